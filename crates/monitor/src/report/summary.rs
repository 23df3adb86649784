//! The summary after a run.

use std::fmt::Write;

use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{Cell, CellAlignment, ContentArrangement, Table};

use super::advice;
use super::words::{percent, short, signed, span, time, whole};
use crate::anomaly::{Kind, Severity};
use crate::summary::{ChannelSummary, REPLAY_WINDOWS, Summary};

/// More rows of a kind are counted, not shown.
const ROWS: usize = 10;

/// The whole summary as text for a terminal of so many columns.
pub fn text(summary: &Summary, width: u16) -> String {
    let mut out = String::new();
    head(&mut out, summary);
    protocols(&mut out, summary, width);
    worst(&mut out, summary, width);
    reorder(&mut out, summary, width);
    anomalies(&mut out, summary, width);
    unknown(&mut out, summary, width);
    for warning in &summary.warnings {
        let _ = write!(out, "\nwarning: {}", wrap(warning, width, 9));
    }
    if let Some(partial) = &summary.partial {
        let _ = write!(out, "\npartial: {}", wrap(partial, width, 9));
    }
    out
}

fn head(out: &mut String, summary: &Summary) {
    let seconds = summary.last_ns.saturating_sub(summary.first_ns) as f64 / 1e9;
    let per_second = |value: f64| if seconds > 0.0 { short(value / seconds) } else { "-".to_owned() };
    let counts = &summary.counts;
    let _ = writeln!(out, "{}", summary.source);
    if summary.frames > 0 {
        let _ = writeln!(
            out,
            "  captured    {} to {} UTC ({})",
            time(summary.first_ns),
            time(summary.last_ns),
            span(summary.last_ns.saturating_sub(summary.first_ns))
        );
    }
    let _ = writeln!(
        out,
        "  frames      {}, {} of them in {} channels\n  rate        {} frames/s, {}bit/s",
        whole(summary.frames),
        whole(counts.packets),
        whole(summary.channels),
        per_second(summary.frames as f64),
        per_second(summary.bytes as f64 * 8.0)
    );
    let _ = writeln!(
        out,
        "  lost        {} ({}) in {} gaps",
        signed(counts.lost),
        percent(counts.loss_ratio()),
        whole(summary.gaps)
    );
    let others: Vec<String> = [
        (counts.late, "late"),
        (counts.duplicates, "duplicates"),
        (counts.replays, "replayed"),
        (counts.reused, "reused numbers"),
        (counts.too_old, "too old"),
        (counts.stray, "stray"),
    ]
    .iter()
    .filter(|(count, _)| *count > 0)
    .map(|(count, name)| format!("{} {name}", whole(*count)))
    .collect();
    let others =
        if others.is_empty() { "every number once and in order".to_owned() } else { others.join(", ") };
    let _ = writeln!(out, "  besides     {others}");
    let _ = writeln!(out, "  keys        {} changes", whole(summary.rekeys));
    if summary.capture_drops > 0 {
        let _ = writeln!(out, "  capture     lost {} frames itself", whole(summary.capture_drops));
    }
    if summary.elapsed_s > 0.0 {
        let _ = writeln!(
            out,
            "  analysed    in {:.2} s: {} packets/s with {} worker{}",
            summary.elapsed_s,
            short(summary.frames as f64 / summary.elapsed_s),
            summary.workers,
            if summary.workers == 1 { "" } else { "s" }
        );
    }
}

fn table(width: u16, names: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY).set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    table.set_header(names.iter().enumerate().map(|(at, name)| cell(at, (*name).to_owned())));
    table
}

fn cell(at: usize, text: String) -> Cell {
    Cell::new(text).set_alignment(if at == 0 { CellAlignment::Left } else { CellAlignment::Right })
}

fn row(table: &mut Table, cells: Vec<String>) {
    table.add_row(cells.into_iter().enumerate().map(|(at, text)| cell(at, text)));
}

fn protocols(out: &mut String, summary: &Summary, width: u16) {
    if summary.protocols.is_empty() {
        return;
    }
    let mut table = table(width, &["protocol", "channels", "packets", "bytes", "lost", "loss", "late"]);
    for entry in &summary.protocols {
        let counts = &entry.counts;
        row(
            &mut table,
            vec![
                entry.protocol.to_string(),
                whole(entry.channels),
                whole(counts.packets),
                short(counts.bytes as f64),
                signed(counts.lost),
                percent(counts.loss_ratio()),
                whole(counts.late),
            ],
        );
    }
    let _ = writeln!(out, "\n{table}");
}

fn worst(out: &mut String, summary: &Summary, width: u16) {
    if summary.worst.is_empty() {
        return;
    }
    let names =
        ["worst channels", "packets", "lost", "loss", "gaps", "late", "depth", "copies", "replays", "reused"];
    let mut table = table(width, &names);
    for ChannelSummary { identity, figures } in summary.worst.iter().take(ROWS) {
        let counts = &figures.counts;
        row(
            &mut table,
            vec![
                identity.name.clone(),
                whole(counts.packets),
                signed(counts.lost),
                percent(counts.loss_ratio()),
                whole(figures.gaps),
                whole(counts.late),
                whole(figures.reorder.max_depth.into()),
                whole(counts.duplicates),
                whole(counts.replays),
                whole(counts.reused),
            ],
        );
    }
    let _ = writeln!(out, "\n{table}");
}

fn reorder(out: &mut String, summary: &Summary, width: u16) {
    if summary.reorder.max_depth == 0 {
        return;
    }
    let drops: Vec<String> = REPLAY_WINDOWS
        .iter()
        .zip(summary.reorder.would_drop)
        .map(|(window, count)| format!("{} at window {window}", whole(count)))
        .collect();
    let deepest = whole(summary.reorder.max_depth.into());
    let sentence =
        format!("Of the late packets a receiver would drop {}. Deepest: {deepest}.", drops.join(", "));
    let _ = writeln!(out, "\n{}", wrap(&sentence, width, 0));
}

fn anomalies(out: &mut String, summary: &Summary, width: u16) {
    let mut found: Vec<(Kind, u64)> =
        summary.anomalies.iter().copied().filter(|(_, count)| *count > 0).collect();
    found.sort_by_key(|(kind, count)| (std::cmp::Reverse(kind.severity()), std::cmp::Reverse(*count)));
    if found.is_empty() {
        let _ = writeln!(out, "\nNo anomalies.");
        return;
    }
    let _ = writeln!(out, "\nAnomalies");
    for (kind, count) in found {
        let mark = match kind.severity() {
            Severity::Critical => "critical",
            Severity::Warning => "warning ",
            Severity::Info => "info    ",
        };
        let _ = writeln!(out, "  {mark}  {} ({})", kind.name().replace('_', " "), whole(count));
        let _ = writeln!(out, "            {}", wrap(kind.help(), width, 12));
        let _ = writeln!(out, "            {}", wrap(&format!("What to do: {}", advice(kind)), width, 12));
    }
}

fn unknown(out: &mut String, summary: &Summary, width: u16) {
    if summary.unknown.is_empty() {
        return;
    }
    let mut table = table(width, &["frames outside all channels", "frames", "bytes", "first frame"]);
    for count in summary.unknown.iter().take(ROWS) {
        let bytes = short(count.bytes as f64);
        row(&mut table, vec![count.reason.clone(), whole(count.frames), bytes, whole(count.first_frame)]);
    }
    let _ = writeln!(out, "\n{table}");
    if let Some(rest) = summary.unknown.get(ROWS..).filter(|rest| !rest.is_empty()) {
        let frames: u64 = rest.iter().map(|count| count.frames).sum();
        let _ = writeln!(out, "and {} frames of {} other kinds", whole(frames), rest.len());
    }
}

/// Breaks a sentence between words; later lines start at column `indent`.
fn wrap(sentence: &str, width: u16, indent: usize) -> String {
    let room = usize::from(width).saturating_sub(indent).max(20);
    let (mut out, mut used) = (String::new(), 0);
    for word in sentence.split_whitespace() {
        let length = word.chars().count();
        if used > 0 && used + 1 + length > room {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent));
            used = 0;
        } else if used > 0 {
            out.push(' ');
            used += 1;
        }
        out.push_str(word);
        used += length;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observation::Protocol;
    use crate::summary::{Counts, ProtocolCounts, Reorder, UnknownCount};

    fn example() -> Summary {
        let counts =
            Counts { packets: 1_000_000, bytes: 64_000_000, lost: 1234, late: 56, ..Counts::default() };
        Summary {
            source: "link.pcap".to_owned(),
            first_ns: 1_709_294_400_000_000_000,
            last_ns: 1_709_294_410_000_000_000,
            partial: Some("link.pcap is cut in the middle".to_owned()),
            frames: 1_000_010,
            bytes: 64_000_640,
            counts,
            protocols: vec![ProtocolCounts { protocol: Protocol::Macsec, channels: 3, counts }],
            unknown: (0..12)
                .map(|at| UnknownCount {
                    reason: format!("UDP port {at}"),
                    frames: 1,
                    bytes: 64,
                    first_frame: at,
                })
                .collect(),
            channels: 3,
            reorder: Reorder { max_depth: 77, would_drop: [56, 5, 2, 0], ..Reorder::default() },
            gaps: 17,
            anomalies: vec![(Kind::Loss, 17), (Kind::Replay, 2), (Kind::Stray, 0)],
            warnings: vec!["12 frames were cut by the capture's snap length".to_owned()],
            workers: 1,
            elapsed_s: 0.5,
            ..Summary::default()
        }
    }

    #[test]
    fn it_says_what_was_found_and_what_to_do() {
        let text = text(&example(), 100);
        for said in [
            "2024-03-01 12:00:00.000 to 2024-03-01 12:00:10.000 UTC (10.0 s)",
            "1,000,010, 1,000,000 of them in 3 channels\n",
            "100 k frames/s, 51.2 Mbit/s",
            "1,234 (0.12 %) in 17 gaps",
            "would drop 56 at window 0, 5 at window 32",
            "critical  replay (2)",
            "What to do: Find out who sends the copies",
            "and 2 frames of 2 other kinds",
            "warning: 12 frames were cut",
            "partial: link.pcap is cut",
            "2.0 M packets/s with 1 worker\n",
        ] {
            assert!(text.contains(said), "missing: {said}\n{text}");
        }
        assert!(!text.contains("stray ("), "{text}");
        let (replay, loss) = (text.find("replay (2)").unwrap(), text.find("loss (17)").unwrap());
        assert!(replay < loss, "the gravest comes first");
    }

    #[test]
    fn no_line_is_longer_than_the_terminal() {
        for width in [80, 100, 140] {
            let text = text(&example(), width);
            let longest = text.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(longest <= usize::from(width), "{longest} > {width}\n{text}");
        }
    }

    #[test]
    fn an_empty_capture_has_a_summary() {
        let text = text(&Summary { source: "empty.pcap".to_owned(), ..Summary::default() }, 80);
        assert!(
            text.contains("empty.pcap") && text.contains("No anomalies.") && !text.contains("NaN"),
            "{text}"
        );
    }
}
