//! In which direction packets went, whether the clocks agree, and the table that tells.

use std::collections::HashMap;
use std::fmt::Write;

use comfy_table::{Cell, CellAlignment, Table, presets::UTF8_HORIZONTAL_ONLY};

use crate::observation::ChannelKey;
use crate::summary::Identity;

use super::delays::Delays;
use super::window::{Line, Matcher};
use super::{ChannelComparison, Comparison, Counts, Delay, Direction, Tap};

/// So many packets at one tap only, and none at the other only, tell where they came from.
const EVIDENCE: u64 = 4;
/// Channels in the table.
const SHOWN: usize = 20;

/// How far B's clock seems to be ahead, where channels of both directions show it.
fn clock_offset(matcher: &Matcher) -> Option<i64> {
    let groups: HashMap<ChannelKey, &Line> = matcher
        .whole()
        .map(|(_, line)| (line.anywhere.group(), line))
        .filter(|(_, line)| line.both > 0)
        .collect();
    let mut offsets: Vec<i64> = groups
        .values()
        .filter_map(|line| {
            let back = groups.get(&line.anywhere.reverse_group()?)?;
            let ((there_min, there_max), (back_min, back_max)) = (line.delays.range()?, back.delays.range()?);
            // Both directions seem to go the same way: only clocks can do that.
            let same = (there_min > 0 && back_min > 0) || (there_max < 0 && back_max < 0);
            // The shortest delays of either direction are the least disturbed.
            let (upper, lower) =
                if there_min >= back_min { (there_min, back_max) } else { (back_min, there_max) };
            same.then_some((upper + lower) / 2)
        })
        .collect();
    offsets.sort_unstable();
    offsets.get(offsets.len() / 2).copied()
}

fn direction(line: &Line, offset_ns: i64) -> Direction {
    let Some(mean) = line.delays.mean() else { return Direction::Unknown };
    match line.only {
        // What is lost is missing behind the link, not in front of it.
        [only, 0] if only >= EVIDENCE => Direction::AToB,
        [0, only] if only >= EVIDENCE => Direction::BToA,
        _ if mean >= offset_ns => Direction::AToB,
        _ => Direction::BToA,
    }
}

fn counts(line: &Line, direction: Direction) -> Counts {
    let [only_a, only_b] = line.only;
    let (lost, missed) = if direction == Direction::BToA { (only_b, only_a) } else { (only_a, only_b) };
    Counts {
        at_a: line.seen[0],
        at_b: line.seen[1],
        at_both: line.both,
        lost,
        missed,
        undecided: line.undecided,
        duplicates_a: line.copies[0],
        duplicates_b: line.copies[1],
    }
}

/// Puts everything into words.
pub fn conclude(matcher: Matcher, a: Tap, b: Tap) -> Comparison {
    let offset = clock_offset(&matcher);
    let directions: HashMap<u32, Direction> =
        matcher.whole().map(|(at, line)| (at, direction(line, offset.unwrap_or(0)))).collect();
    let (mut totals, mut both_ways) = (Counts::default(), [Delays::default(), Delays::default()]);
    let mut channels = Vec::new();
    for (at, line) in matcher.whole() {
        let direction = directions[&at];
        let counts = counts(line, direction);
        add(&mut totals, &counts);
        both_ways[usize::from(direction == Direction::BToA)].add(&line.delays);
        channels.push(ChannelComparison {
            identity: Identity::of(&line.key),
            direction,
            counts,
            delay: line.delays.summary(direction == Direction::BToA),
        });
    }
    channels.sort_by(|one, other| {
        let trouble = |channel: &ChannelComparison| (channel.counts.lost, channel.counts.missed);
        trouble(other).cmp(&trouble(one)).then_with(|| one.identity.name.cmp(&other.identity.name))
    });
    let mut losses: Vec<_> = matcher
        .ranges
        .iter()
        .filter_map(|(line, side, range)| {
            let direction = directions[&matcher.resolved(*line)];
            let is_lost = *side == usize::from(direction == Direction::BToA);
            is_lost.then(|| matcher.loss(*line, *range, direction))
        })
        .collect();
    losses.sort_by_key(|loss| (loss.first_ns, loss.channel, loss.first));
    let mut comparison = Comparison {
        a,
        b,
        window_ns: matcher.options.window_ns,
        offset_ns: matcher.options.offset_ns,
        totals,
        a_to_b: both_ways[0].summary(false),
        b_to_a: both_ways[1].summary(true),
        clock_offset_ns: offset,
        channels,
        losses,
        more_losses: matcher.more_ranges,
        warnings: Vec::new(),
    };
    comparison.warnings = warnings(&comparison, &matcher);
    comparison
}

fn add(sum: &mut Counts, more: &Counts) {
    sum.at_a += more.at_a;
    sum.at_b += more.at_b;
    sum.at_both += more.at_both;
    sum.lost += more.lost;
    sum.missed += more.missed;
    sum.undecided += more.undecided;
    sum.duplicates_a += more.duplicates_a;
    sum.duplicates_b += more.duplicates_b;
}

/// What an operator should know before believing the figures.
fn warnings(comparison: &Comparison, matcher: &Matcher) -> Vec<String> {
    let mut warnings = Vec::new();
    let (totals, window) = (&comparison.totals, show(comparison.window_ns as i64));
    if totals.at_both == 0 && totals.at_a > 0 && totals.at_b > 0 {
        warnings.push(format!(
            "no packet was seen at both taps: they watch different links, or their clocks differ by more than {window} \
             (--ahead, --behind, --window)"
        ));
    }
    let negative: u64 =
        [comparison.a_to_b, comparison.b_to_a].iter().flatten().map(|delay: &Delay| delay.negative).sum();
    if negative > 0 {
        let by = match comparison.clock_offset_ns {
            Some(ns @ 0..) => format!("the clock of B is about {} ahead (--ahead)", show(ns)),
            Some(ns) => format!("the clock of B is about {} behind (--behind)", show(-ns)),
            None => {
                "how far cannot be told, because channels of both directions are needed for it".to_owned()
            }
        };
        warnings
            .push(format!("{negative} packets seem to have come before they went: the clocks differ; {by}"));
    }
    for tap in [&comparison.a, &comparison.b] {
        if tap.capture_drops > 0 {
            warnings.push(format!(
                "the capture {} itself lost {} frames, which look like losses of the link here",
                tap.source, tap.capture_drops
            ));
        }
        if let Some(partial) = &tap.partial {
            warnings.push(format!("{partial}: what the other tap saw after that is undecided"));
        }
    }
    if matcher.given_up > 0 {
        warnings.push(format!(
            "{} packets were given up before the window of {window} was over, for lack of memory: some losses may be \
             none; use a shorter --window",
            matcher.given_up
        ));
    }
    if matcher.crowded_channels > 0 {
        warnings.push(format!(
            "{} packets belong to channels beyond the first {}, which were not compared",
            matcher.crowded_channels, matcher.options.max_channels
        ));
    }
    warnings
}

/// A time in the unit that suits it.
fn show(ns: i64) -> String {
    let magnitude = ns.unsigned_abs();
    let value = ns as f64;
    match magnitude {
        0..1000 => format!("{ns} ns"),
        1000..1_000_000 => format!("{:.2} us", value / 1e3),
        1_000_000..1_000_000_000 => format!("{:.3} ms", value / 1e6),
        _ => format!("{:.3} s", value / 1e9),
    }
}

fn arrow(direction: Direction) -> &'static str {
    match direction {
        Direction::AToB => "A > B",
        Direction::BToA => "B > A",
        Direction::Unknown => "?",
    }
}

/// The comparison as text for a terminal.
pub fn print(comparison: &Comparison) -> String {
    let mut text = String::new();
    let Comparison { a, b, totals, .. } = comparison;
    let _ = writeln!(text, "A {}: {} frames, {} to compare", a.source, a.frames, a.numbered);
    let _ = writeln!(text, "B {}: {} frames, {} to compare", b.source, b.frames, b.numbered);
    let _ = writeln!(
        text,
        "{} packets at both, {} lost between, {} missed by the first tap, {} undecided",
        totals.at_both, totals.lost, totals.missed, totals.undecided
    );
    for (name, delay) in [("A > B", comparison.a_to_b), ("B > A", comparison.b_to_a)] {
        if let Some(delay) = delay {
            let _ = writeln!(
                text,
                "{name}: {} packets, min {}, median {}, 99 % {}, 99.9 % {}, max {}",
                delay.packets,
                show(delay.min_ns),
                show(delay.p50_ns),
                show(delay.p99_ns),
                show(delay.p999_ns),
                show(delay.max_ns)
            );
        }
    }
    let mut table = Table::new();
    table.load_style(UTF8_HORIZONTAL_ONLY);
    table.set_header([
        "channel",
        "way",
        "both",
        "lost",
        "missed",
        "copies A/B",
        "min",
        "median",
        "99 %",
        "max",
    ]);
    for channel in comparison.channels.iter().take(SHOWN) {
        table.add_row(row(channel));
    }
    let _ = writeln!(text, "{table}");
    if comparison.channels.len() > SHOWN {
        let _ = writeln!(text, "and {} more channels (--json has all)", comparison.channels.len() - SHOWN);
    }
    for warning in &comparison.warnings {
        let _ = writeln!(text, "warning: {warning}");
    }
    text
}

fn row(channel: &ChannelComparison) -> Vec<Cell> {
    let counts = &channel.counts;
    let time = |of: fn(&Delay) -> i64| channel.delay.as_ref().map_or(String::new(), |delay| show(of(delay)));
    let figures = [
        counts.at_both.to_string(),
        counts.lost.to_string(),
        counts.missed.to_string(),
        format!("{}/{}", counts.duplicates_a, counts.duplicates_b),
        time(|delay| delay.min_ns),
        time(|delay| delay.p50_ns),
        time(|delay| delay.p99_ns),
        time(|delay| delay.max_ns),
    ];
    let words = [channel.identity.name.clone(), arrow(channel.direction).to_owned()];
    let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
    words.into_iter().map(Cell::new).chain(figures.into_iter().map(right)).collect()
}
