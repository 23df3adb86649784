//! Captures that Linux made with itself as both peers: MACsec, ESP, AH and GTP-U, with what its counters said.
//!
//! The captures are in tests/captures, truth.json beside them; tests/vm/captures.py makes both. To make them again in a
//! guest and judge those (about 3 minutes; scripts/setup-vm.sh installs what is needed):
//! `cargo test -p sluice-monitor --test all kernels:: -- --ignored`

use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;
use sluice_monitor::analysis::{Control, Options, analyze};
use sluice_monitor::anomaly::Kind;
use sluice_monitor::capture;
use sluice_monitor::observation::Protocol;
use sluice_monitor::summary::{ChannelSummary, Gap, Protection, Rekey, Sink, Summary, Update};

#[derive(Deserialize)]
struct Truth {
    captures: Vec<Capture>,
}

#[derive(Deserialize)]
struct Capture {
    file: String,
    channels: Vec<Channel>,
    rekeys: usize,
    reordered: bool,
    integrity_only: bool,
}

/// What one sender did with one key, by the counters of its kernel.
#[derive(Deserialize)]
struct Channel {
    protocol: Protocol,
    #[serde(default)]
    sci: Option<String>,
    #[serde(default)]
    source: Option<String>,
    id: u32,
    vlan: u16,
    sent: u64,
    /// The first and the last number, 0 without numbers.
    first: u64,
    last: u64,
    /// Taken off the link before the capture.
    #[serde(default)]
    dropped: u64,
}

impl Channel {
    fn is(&self, seen: &ChannelSummary) -> bool {
        let identity = &seen.identity;
        identity.protocol == self.protocol
            && identity.key_id == self.id
            && identity.sci == self.sci
            && (self.source.is_none() || identity.source == self.source)
            && (identity.outer_vlan, identity.vlan) == (0, self.vlan)
    }

    fn wraps(&self) -> bool {
        self.last >> 32 != self.first >> 32
    }
}

#[derive(Default)]
struct Seen {
    channels: Vec<ChannelSummary>,
    gaps: Vec<Gap>,
    rekeys: Vec<Rekey>,
}

impl Sink for Seen {
    fn update(&mut self, update: Update) -> anyhow::Result<()> {
        self.channels.extend(update.channels.iter().map(|state| state.summary()));
        self.gaps.extend(update.gaps);
        self.rekeys.extend(update.rekeys);
        Ok(())
    }

    fn finish(&mut self, _: &Summary) -> anyhow::Result<()> {
        Ok(())
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Judges all captures of a directory by the truth beside them; returns how many.
fn judge_all(directory: &Path) -> usize {
    let truth = std::fs::read(directory.join("truth.json")).expect("truth.json is beside the captures");
    let truth: Truth = serde_json::from_slice(&truth).unwrap();
    for capture in &truth.captures {
        for workers in [1, 2] {
            judge(directory, capture, workers);
        }
    }
    truth.captures.len()
}

fn judge(directory: &Path, truth: &Capture, workers: usize) {
    let path = directory.join(&truth.file);
    let mut source = capture::open(path.to_str().unwrap()).unwrap();
    let mut seen = Seen::default();
    let options = Options { workers, ..Options::default() };
    let summary = analyze(&mut *source, &options, &mut seen, &Control::default()).unwrap();
    let name = &truth.file;
    let sent: u64 = truth.channels.iter().map(|channel| channel.sent - channel.dropped).sum();
    assert_eq!(summary.frames, sent, "{name}: frames");
    assert!(summary.unknown.is_empty(), "{name}: {:?}", summary.unknown);
    assert!(summary.warnings.is_empty(), "{name}: {:?}", summary.warnings);
    assert_eq!(summary.partial, None, "{name}");
    assert_eq!(seen.channels.len(), truth.channels.len(), "{name}: {:#?}", seen.channels);
    for channel in &truth.channels {
        let found = seen.channels.iter().find(|found| channel.is(found));
        let found = found.unwrap_or_else(|| panic!("{name}: no {:?} {:#x}", channel.protocol, channel.id));
        judge_channel(truth, channel, found);
    }
    judge_rekeys(truth, &seen.rekeys);
    judge_gaps(truth, &seen.gaps);
    let mut found = anomalies(&summary);
    if truth.channels.iter().any(Channel::wraps) {
        // Before the low half has wrapped nothing tells an ESN: an interval that ends there must warn.
        found.retain(|kind| *kind != Kind::Exhaustion);
    }
    assert_eq!(found, expected_anomalies(truth), "{name}");
}

fn judge_channel(truth: &Capture, channel: &Channel, found: &ChannelSummary) {
    let (name, figures) = (format!("{}: {}", truth.file, found.identity.name), &found.figures);
    let counts = &figures.counts;
    assert_eq!(counts.packets, channel.sent - channel.dropped, "{name}: packets");
    assert_eq!(counts.lost, channel.dropped as i64, "{name}: lost");
    let wrong = counts.duplicates + counts.replays + counts.reused + counts.too_old + counts.stray;
    assert_eq!(wrong, 0, "{name}: {counts:?}");
    assert_eq!(figures.highest_sequence, channel.last, "{name}: last number");
    assert_eq!(figures.extended, channel.wraps(), "{name}: ESN or XPN");
    assert_eq!((figures.restarts, figures.jumps), (0, 0), "{name}");
    assert!(!figures.one_way.unwrap_or(false), "{name}: both directions are there");
    assert!(!figures.length_mismatches, "{name}: lengths");
    let protection = match (truth.integrity_only, channel.protocol) {
        (_, Protocol::GtpU) => Protection::None,
        (true, _) => Protection::IntegrityOnly,
        (false, _) => Protection::Encrypted,
    };
    assert_eq!(figures.protection, protection, "{name}");
    if truth.reordered && channel.first == 1 && channel.sent > 100 {
        // netem sends every fifth packet at once and holds the others back.
        assert!(counts.late > channel.sent / 2, "{name}: {counts:?}");
    } else {
        assert_eq!(figures.first_sequence, channel.first, "{name}: first number");
        assert_eq!((counts.late, figures.reorder.max_depth), (0, 0), "{name}: order");
    }
}

fn judge_rekeys(truth: &Capture, rekeys: &[Rekey]) {
    assert_eq!(rekeys.len(), truth.rekeys, "{}: {rekeys:?}", truth.file);
    for rekey in rekeys {
        assert_eq!(rekey.lost, 0, "{}: {rekey:?}", truth.file);
        assert_ne!(rekey.from, rekey.to, "{}: {rekey:?}", truth.file);
    }
}

fn judge_gaps(truth: &Capture, gaps: &[Gap]) {
    // A later report of a gap replaces the earlier one.
    let mut last: Vec<(u64, u64, u64)> = Vec::new();
    for gap in gaps {
        last.retain(|(channel, first, _)| (*channel, *first) != (gap.channel, gap.first));
        last.push((gap.channel, gap.first, gap.lost));
    }
    let lost: u64 = last.iter().map(|(_, _, lost)| lost).sum();
    let dropped: u64 = truth.channels.iter().map(|channel| channel.dropped).sum();
    assert_eq!(lost, dropped, "{}: {gaps:?}", truth.file);
}

fn anomalies(summary: &Summary) -> Vec<Kind> {
    summary.anomalies.iter().filter(|(_, count)| *count > 0).map(|(kind, _)| *kind).collect()
}

/// In the order of [`Kind`].
fn expected_anomalies(truth: &Capture) -> Vec<Kind> {
    let any = |test: fn(&Channel) -> bool| truth.channels.iter().any(test);
    [
        (any(|channel| channel.dropped > 0), Kind::Loss),
        (any(Channel::wraps), Kind::Wrapped),
        // AH has no confidentiality to be switched off (RFC 4302 1).
        (truth.integrity_only && any(|channel| channel.protocol != Protocol::Ah), Kind::IntegrityOnly),
    ]
    .into_iter()
    .filter_map(|(is, kind)| is.then_some(kind))
    .collect()
}

#[test]
fn captures_of_the_kernel_are_read_as_its_counters_say() {
    assert!(judge_all(&root().join("tests/captures")) >= 20);
}

#[test]
#[ignore = "boots a guest kernel for about 3 minutes; wants scripts/setup-vm.sh"]
fn captures_made_again_are_read_as_the_kernels_counters_say() {
    let directory = tempfile::tempdir().unwrap();
    let vm = root().join("tests/vm");
    let status = Command::new(vm.join("run"))
        .args(["-t", "280", "-s"])
        .arg(directory.path())
        .arg(vm.join("captures.py"))
        .status()
        .unwrap();
    assert!(status.success(), "tests/vm/run: {status}");
    assert!(judge_all(directory.path()) >= 20);
}
