//! Prometheus text format: totals of a run for a scrape, or for node_exporter's textfile collector.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use sluice_metrics::Kind::{Counter, Gauge};
use sluice_metrics::Page;

use crate::anomaly::Kind;
use crate::beside::Beside;
use crate::summary::{Counts, Interval, Sink, Summary, Update};

/// How often the file is renewed.
const EVERY: Duration = Duration::from_secs(1);

/// What is exported: sums over all channels, so that the number of series does not grow with them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Totals {
    pub counts: Counts,
    pub unknown: u64,
    pub capture_drops: u64,
    pub channels: u64,
    pub active: u64,
    pub gaps: u64,
    pub rekeys: u64,
    pub anomalies: BTreeMap<Kind, u64>,
    /// Capture time of the newest result.
    pub last_ns: u64,
    pub finished: bool,
}

type TotalField = (&'static str, &'static str, fn(&Totals) -> u64);

const COUNTERS: [TotalField; 12] = [
    ("sluice_monitor_packets_total", "Packets that belong to a channel.", |t| t.counts.packets),
    ("sluice_monitor_bytes_total", "Their length on the wire.", |t| t.counts.bytes),
    ("sluice_monitor_late_total", "Packets that came after a higher number: reordered, not lost.", |t| {
        t.counts.late
    }),
    ("sluice_monitor_duplicates_total", "The same packet again within a second.", |t| t.counts.duplicates),
    ("sluice_monitor_replays_total", "The same packet again, later than that.", |t| t.counts.replays),
    ("sluice_monitor_reused_total", "Another packet under a number used before.", |t| t.counts.reused),
    ("sluice_monitor_too_old_total", "Packets below what is remembered.", |t| t.counts.too_old),
    ("sluice_monitor_stray_total", "Single numbers far off the sequence.", |t| t.counts.stray),
    ("sluice_monitor_unknown_frames_total", "Frames that belong to no channel.", |t| t.unknown),
    ("sluice_monitor_capture_drops_total", "Frames that the capture itself lost.", |t| t.capture_drops),
    ("sluice_monitor_channels_total", "Channels seen so far.", |t| t.channels),
    ("sluice_monitor_rekeys_total", "Changes of key.", |t| t.rekeys),
];

/// The text of a scrape.
pub fn text(totals: &Totals) -> String {
    let mut page = Page::default();
    for (name, help, field) in COUNTERS {
        page.family(name, Counter, help).sample(&[], field(totals));
    }
    // Late packets take losses back, so these may fall.
    page.family("sluice_monitor_lost", Gauge, "Numbers that were skipped and have not come.")
        .sample(&[], totals.counts.lost);
    page.family("sluice_monitor_gaps", Gauge, "Ranges of lost numbers.").sample(&[], totals.gaps);
    page.family("sluice_monitor_channels_active", Gauge, "Channels with packets in the newest interval.")
        .sample(&[], totals.active);
    page.family("sluice_monitor_last_seconds", Gauge, "Capture time of the newest result.")
        .fraction(totals.last_ns as f64 / 1e9);
    page.family("sluice_monitor_finished", Gauge, "Whether the run has ended.").sample(&[], totals.finished);
    let anomalies = page.family("sluice_monitor_anomalies", Gauge, "Occurrences by kind.");
    for kind in Kind::ALL {
        let count = totals.anomalies.get(kind).copied().unwrap_or(0);
        let severity = format!("{:?}", kind.severity()).to_lowercase();
        anomalies.sample(&[("kind", kind.name()), ("severity", &severity)], count);
    }
    page.text()
}

/// A sink that keeps a text file up to date; readers see the old or the new one, never half of one.
pub struct TextFile {
    path: PathBuf,
    totals: Totals,
    newest: Interval,
    written: Option<Instant>,
}

impl TextFile {
    /// Fails where the file cannot be written; it holds zeros until the first update.
    pub fn create(path: &Path) -> anyhow::Result<Self> {
        let mut file = TextFile {
            path: path.to_owned(),
            totals: Totals::default(),
            newest: Interval::default(),
            written: None,
        };
        file.write()?;
        Ok(file)
    }

    fn write(&mut self) -> anyhow::Result<()> {
        // The collector reads *.prom only, so it never takes the one beside it.
        Beside::create(&self.path)
            .and_then(|(beside, mut file)| {
                file.write_all(text(&self.totals).as_bytes())?;
                beside.take_place()
            })
            .with_context(|| {
                format!(
                    "cannot write metrics to {}: give a file in a folder that can be written",
                    self.path.display()
                )
            })?;
        self.written = Some(Instant::now());
        Ok(())
    }
}

impl Sink for TextFile {
    fn update(&mut self, update: Update) -> anyhow::Result<()> {
        let (totals, interval) = (&mut self.totals, &update.interval);
        totals.counts.add(&interval.counts);
        totals.unknown += interval.unknown;
        totals.capture_drops += interval.capture_drops;
        totals.channels += update.new_channels.len() as u64;
        totals.rekeys += update.rekeys.len() as u64;
        totals.gaps = totals.gaps.saturating_add_signed(update.gap_change);
        if interval.replaces(&self.newest) {
            (self.newest, totals.active) = (*interval, 0);
        }
        if interval.index == self.newest.index {
            totals.active += interval.active;
        }
        totals.last_ns = totals.last_ns.max(interval.start_ns + interval.length_ns);
        for anomaly in &update.anomalies {
            let total = totals.anomalies.entry(anomaly.kind).or_default();
            *total = total.saturating_add_signed(anomaly.added);
        }
        if self.written.is_none_or(|when| when.elapsed() >= EVERY) {
            self.write()?;
        }
        Ok(())
    }

    fn finish(&mut self, summary: &Summary) -> anyhow::Result<()> {
        self.totals = Totals::of(summary, self.totals.active);
        self.write()
    }
}

impl Totals {
    /// The totals of a whole run.
    pub fn of(summary: &Summary, active: u64) -> Self {
        Totals {
            counts: summary.counts,
            unknown: summary.unknown.iter().map(|count| count.frames).sum(),
            capture_drops: summary.capture_drops,
            channels: summary.channels,
            active,
            gaps: summary.gaps,
            rekeys: summary.rekeys,
            anomalies: summary.anomalies.iter().copied().collect(),
            last_ns: summary.last_ns,
            finished: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use sluice_metrics::judge;

    use super::*;
    use crate::summary::{Anomaly, Interval};

    #[test]
    fn the_page_is_the_one_kept_and_another_reader_reads_it() {
        let totals = Totals {
            counts: Counts {
                packets: 1,
                bytes: 2,
                lost: -3,
                late: 4,
                duplicates: 5,
                replays: 6,
                reused: 7,
                too_old: 8,
                stray: 9,
            },
            unknown: 10,
            capture_drops: 11,
            channels: 12,
            active: 13,
            gaps: 14,
            rekeys: 15,
            anomalies: [(Kind::Loss, 16)].into(),
            last_ns: 1_604_724_074_003_728_500,
            finished: true,
        };
        let page = text(&totals);
        judge::golden("monitor", &page);
        judge::read(&page).unwrap();
        let begun = text(&Totals::default());
        assert!(begun.contains("\nsluice_monitor_last_seconds 0\n"), "{begun}");
    }

    fn value(text: &str, name: &str) -> f64 {
        let line = text.lines().find(|line| line.split(' ').next() == Some(name));
        line.unwrap_or_else(|| panic!("no {name}")).split(' ').nth(1).unwrap().parse().unwrap()
    }

    #[test]
    fn the_file_is_whole_at_all_times_and_ends_with_the_summary() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("monitor.prom");
        let mut sink = TextFile::create(&path).unwrap();
        sink.written = None;
        let counts = Counts { packets: 10, lost: 2, ..Counts::default() };
        let interval = Interval { index: 3, counts, active: 4, length_ns: 1, ..Interval::default() };
        let anomaly = |count, added| Anomaly {
            added,
            kind: Kind::Loss,
            channel: 9,
            channel_name: String::new(),
            count,
            first_ns: 0,
            last_ns: 0,
            first_sequence: 0,
            last_sequence: 0,
            frame: 0,
            detail: String::new(),
        };
        sink.update(Update { interval, anomalies: vec![anomaly(2, 2)], gap_change: 3, ..Update::default() })
            .unwrap();
        sink.written = None;
        sink.update(Update { interval, anomalies: vec![anomaly(5, 3)], gap_change: -1, ..Update::default() })
            .unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(value(&text, "sluice_monitor_packets_total"), 20.0);
        assert_eq!(value(&text, "sluice_monitor_lost"), 4.0);
        assert_eq!(value(&text, "sluice_monitor_gaps"), 2.0);
        assert_eq!(value(&text, "sluice_monitor_channels_active"), 8.0);
        assert_eq!(value(&text, "sluice_monitor_anomalies{kind=\"loss\",severity=\"warning\"}"), 5.0);
        sink.finish(&Summary { counts, gaps: 1, ..Summary::default() }).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(value(&text, "sluice_monitor_packets_total"), 10.0);
        assert_eq!(value(&text, "sluice_monitor_finished"), 1.0);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn a_folder_that_is_not_there_is_said() {
        let error = TextFile::create(Path::new("/nowhere/monitor.prom")).err().unwrap();
        assert!(format!("{error:#}").contains("/nowhere/monitor.prom: give a file"), "{error:#}");
    }
}
