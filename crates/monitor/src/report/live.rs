//! A table on the terminal while a run is at work.

use std::collections::HashMap;
use std::io::{IsTerminal, Stderr, Write};
use std::time::{Duration, Instant};

use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{Cell, CellAlignment, ContentArrangement, Table};

use super::words::{percent, short, signed, time, whole};
use crate::anomaly::Kind;
use crate::summary::{Counts, Interval, NewChannel, Sink, Summary, Update};

const EVERY: Duration = Duration::from_secs(1);
const ROWS: usize = 12;
/// Channels beyond these are counted in the totals only.
const MOST_CHANNELS: usize = 100_000;
/// Latest anomalies shown.
const NEWS: usize = 4;

/// A sink that draws the totals, the channels with most trouble or traffic, and the latest anomalies, once a second.
pub struct Live<W: Write + Send = Stderr> {
    out: W,
    width: u16,
    totals: Counts,
    unknown: u64,
    capture_drops: u64,
    interval: Interval,
    channels: HashMap<u64, Line>,
    news: Vec<(Kind, String, u64)>,
    drawn: Option<Instant>,
    /// Lines to go back before drawing again.
    lines: usize,
}

struct Line {
    name: String,
    counts: Counts,
    interval: u64,
    packets: u64,
}

impl Live<Stderr> {
    /// Draws on standard error, if that is a terminal.
    pub fn on_terminal() -> Option<Self> {
        std::io::stderr().is_terminal().then(|| Live::new(std::io::stderr(), super::terminal_width()))
    }
}

impl<W: Write + Send> Live<W> {
    /// `width` in columns; longer lines are cut.
    pub fn new(out: W, width: u16) -> Self {
        Live {
            out,
            width,
            totals: Counts::default(),
            unknown: 0,
            capture_drops: 0,
            interval: Interval::default(),
            channels: HashMap::new(),
            news: Vec::new(),
            drawn: None,
            lines: 0,
        }
    }

    fn take(&mut self, update: Update) {
        self.totals.add(&update.interval.counts);
        self.unknown += update.interval.unknown;
        self.capture_drops += update.interval.capture_drops;
        if update.interval.replaces(&self.interval) {
            self.interval = update.interval;
        } else if update.interval.index == self.interval.index {
            self.interval.counts.add(&update.interval.counts);
            self.interval.active += update.interval.active;
        }
        for NewChannel { key, .. } in &update.new_channels {
            if self.channels.len() < MOST_CHANNELS {
                let line = Line { name: key.to_string(), counts: Counts::default(), interval: 0, packets: 0 };
                self.channels.entry(key.channel_id()).or_insert(line);
            }
        }
        for delta in &update.deltas {
            let Some(line) = self.channels.get_mut(&delta.channel) else { continue };
            line.counts.add(&delta.counts);
            if delta.interval != line.interval {
                (line.interval, line.packets) = (delta.interval, 0);
            }
            line.packets += delta.counts.packets;
        }
        for anomaly in update.anomalies {
            let name = if anomaly.channel == 0 { "the link".to_owned() } else { anomaly.channel_name };
            self.news.retain(|(kind, of, _)| (*kind, of) != (anomaly.kind, &name));
            if anomaly.count > 0 {
                self.news.push((anomaly.kind, name, anomaly.count));
            }
        }
        let old = self.news.len().saturating_sub(NEWS);
        self.news.drain(..old);
    }

    /// What is drawn.
    fn text(&self) -> String {
        let seconds = (self.interval.length_ns as f64 / 1e9).max(1e-9);
        let last = &self.interval.counts;
        let mut out = format!(
            "{}  {} packets/s, {}bit/s, {} active channels\nin all: {} packets, lost {} ({}), late {}, duplicates {}, \
             replays {}, reused {}, unknown {}, capture drops {}\n",
            time(self.interval.start_ns),
            short(last.packets as f64 / seconds),
            short(last.bytes as f64 * 8.0 / seconds),
            whole(self.interval.active),
            whole(self.totals.packets),
            signed(self.totals.lost),
            percent(self.totals.loss_ratio()),
            whole(self.totals.late),
            whole(self.totals.duplicates),
            whole(self.totals.replays),
            whole(self.totals.reused),
            whole(self.unknown),
            whole(self.capture_drops)
        );
        if !self.channels.is_empty() {
            out += &format!("{}\n", self.table(seconds));
        }
        for (kind, name, count) in self.news.iter().rev() {
            out += &format!("{}: {name} ({})\n", kind.name().replace('_', " "), whole(*count));
        }
        out
    }

    fn table(&self, seconds: f64) -> Table {
        let mut lines: Vec<&Line> = self.channels.values().collect();
        let order =
            |line: &&Line| (std::cmp::Reverse((line.counts.trouble(), line.packets)), line.name.clone());
        if lines.len() > ROWS {
            // Only the first are wanted in order.
            lines.select_nth_unstable_by_key(ROWS, order);
            lines.truncate(ROWS);
        }
        lines.sort_by_key(order);
        let mut table = Table::new();
        table
            .load_style(UTF8_BORDERS_ONLY)
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_width(self.width);
        let names = ["channel", "packets/s", "packets", "lost", "loss", "late", "replays", "reused"];
        let align = |at: usize| if at == 0 { CellAlignment::Left } else { CellAlignment::Right };
        table.set_header(names.iter().enumerate().map(|(at, name)| Cell::new(name).set_alignment(align(at))));
        for Line { name, counts, interval, packets } in lines {
            let now = if *interval == self.interval.index { *packets } else { 0 };
            let cells = [
                name.clone(),
                short(now as f64 / seconds),
                whole(counts.packets),
                signed(counts.lost),
                percent(counts.loss_ratio()),
                whole(counts.late),
                whole(counts.replays),
                whole(counts.reused),
            ];
            table.add_row(
                cells.into_iter().enumerate().map(|(at, text)| Cell::new(text).set_alignment(align(at))),
            );
        }
        table
    }

    /// Over what was drawn before. A terminal that cannot be written to ends nothing.
    fn draw(&mut self) {
        let text = self.text();
        let mut screen = String::with_capacity(text.len() + 64);
        if self.lines > 0 {
            screen += &format!("\x1b[{}A", self.lines);
        }
        for line in text.lines() {
            screen.extend(line.chars().take(self.width.into()));
            screen += "\x1b[K\n";
        }
        screen += "\x1b[J";
        let _ = self.out.write_all(screen.as_bytes()).and_then(|()| self.out.flush());
        self.lines = text.lines().count();
        self.drawn = Some(Instant::now());
    }
}

impl<W: Write + Send> Sink for Live<W> {
    fn update(&mut self, update: Update) -> anyhow::Result<()> {
        self.take(update);
        if self.drawn.is_none_or(|when| when.elapsed() >= EVERY) {
            self.draw();
        }
        Ok(())
    }

    fn finish(&mut self, _: &Summary) -> anyhow::Result<()> {
        // The summary takes its place.
        if self.lines > 0 {
            let _ = write!(self.out, "\x1b[{}A\x1b[J", self.lines).and_then(|()| self.out.flush());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observation::{ChannelKey, Location};
    use crate::summary::{Anomaly, ChannelDelta};

    fn update(index: u64, lost: i64) -> Update {
        let keys: Vec<_> =
            (1..=30).map(|sci| ChannelKey::macsec(sci << 16 | 1, 0, Location::default())).collect();
        let counts = |at: usize| Counts {
            packets: 1000,
            bytes: 64_000,
            lost: if at == 7 { lost } else { 0 },
            ..Counts::default()
        };
        let delta = |(at, key): (usize, &ChannelKey)| ChannelDelta {
            channel: key.channel_id(),
            number: at as u32,
            interval: index,
            last_ns: 0,
            highest_sequence: 0,
            counts: counts(at),
        };
        let deltas: Vec<_> = keys.iter().enumerate().map(delta).collect();
        let mut sum = Counts::default();
        deltas.iter().for_each(|delta| sum.add(&delta.counts));
        let interval = Interval {
            index,
            start_ns: index * 1_000_000_000,
            length_ns: 1_000_000_000,
            counts: sum,
            active: 30,
            ..Interval::default()
        };
        let new_channels = (0..).zip(keys).map(|(number, key)| NewChannel { number, key }).collect();
        Update { interval, new_channels, deltas, ..Update::default() }
    }

    #[test]
    fn the_worst_channel_is_on_top_and_the_table_takes_its_own_place() {
        let mut screen = Vec::new();
        let mut live = Live::new(&mut screen, 110);
        let anomaly = Anomaly {
            added: 1,
            kind: Kind::ClearText,
            channel: 0,
            channel_name: String::new(),
            count: 3,
            first_ns: 0,
            last_ns: 0,
            first_sequence: 0,
            last_sequence: 0,
            frame: 1,
            detail: String::new(),
        };
        live.update(Update { anomalies: vec![anomaly], ..update(1, 0) }).unwrap();
        live.drawn = None;
        live.update(update(2, 5)).unwrap();
        let text = live.text();
        let lines = live.lines;
        let rows: Vec<_> = text.lines().filter(|line| line.contains("macsec")).collect();
        assert_eq!(rows.len(), ROWS);
        assert!(
            rows[0].contains("000000000008:0001") && rows[0].contains("2,000") && rows[0].contains(" 5 "),
            "{text}"
        );
        assert!(
            text.contains("30.0 k packets/s") && text.contains("in all: 60,000 packets, lost 5"),
            "{text}"
        );
        assert!(text.contains("clear text: the link (3)"), "{text}");
        live.finish(&Summary::default()).unwrap();
        let screen = String::from_utf8(screen).unwrap();
        assert!(screen.ends_with(&format!("\x1b[{lines}A\x1b[J")), "{screen:?}");
        assert_eq!(
            screen.matches(&format!("\x1b[{lines}A")).count(),
            2,
            "it went back once to draw again and once to leave"
        );
    }

    #[test]
    fn it_draws_once_a_second() {
        let mut screen = Vec::new();
        let mut live = Live::new(&mut screen, 110);
        for index in 0..100 {
            live.update(update(index, 0)).unwrap();
        }
        assert_eq!(String::from_utf8(screen).unwrap().matches("in all").count(), 1);
    }
}
