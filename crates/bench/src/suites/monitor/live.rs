//! Live taps: a capture is played at its own times through a veth, and every frame is accounted for.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use sluice_monitor::analysis::{Control, Options as Analysis, analyze};
use sluice_monitor::capture;
use sluice_monitor::generate::{Mix, Options, Size, generate};
use sluice_monitor::results::{Database, Detail, RunInfo};
use sluice_monitor::summary::Summary;

use crate::generator::wire::Device;
use crate::generator::wire::generator::{Generator, Tempo};
use crate::generator::wire::pair::Pair;
use crate::generator::wire::pcap;
use crate::generator::wire::receiver::Role;
use crate::method::affinity::keep_on;
use crate::method::checks;
use crate::method::result::{Better, Figure, SuiteResult, Table};
use crate::method::suite::Context;

/// Frames a second, and how many in a round: half a second of them.
const RATES: [(f64, u64); 2] = [(0.5, 250_000), (1.0, 500_000)];
/// The tap's name in the pair's namespace.
const TAP: &str = "there0";
/// How long after the last frame the tap may still be silent.
const PATIENCE: Duration = Duration::from_secs(2);

/// What a round came to.
struct Round {
    sent: u64,
    analysed: u64,
    dropped: u64,
    seconds: f64,
}

pub fn measure(context: &Context, folder: &Path, result: &mut SuiteResult) -> Result<()> {
    let mut rows = vec![];
    for (mpps, frames) in RATES {
        let path = folder.join("live.pcap");
        generate(options(mpps, frames), &path)?;
        let records = pcap::read(&path)?;
        let mut generator = Generator::of_capture(&records)?;
        let rounds = (0..context.rounds).map(|_| round(folder, &mut generator, records.len()));
        let rounds =
            rounds.collect::<Result<Vec<_>>>().with_context(|| format!("a live tap at {mpps} Mpps"))?;
        let sum = |field: fn(&Round) -> u64| rounds.iter().map(field).sum::<u64>();
        let (sent, analysed, dropped) = (sum(|r| r.sent), sum(|r| r.analysed), sum(|r| r.dropped));
        let account = checks::conserved(sent, analysed, dropped);
        let samples = |of: fn(&Round) -> f64| rounds.iter().map(of).collect::<Vec<_>>();
        let lost = samples(|r| r.dropped as f64);
        let unnamed = samples(|r| (r.sent as f64 - r.analysed as f64 - r.dropped as f64).abs());
        for (what, samples) in [("lost by the capture", lost), ("not accounted for", unnamed)] {
            let name = format!("live, {mpps:.1} Mpps: {what}");
            let figure = Figure::new(name, "frames", Better::Lower, samples).worst();
            result.figures.push(figure.check(account.clone()));
        }
        let rate = sent as f64 / rounds.iter().map(|round| round.seconds).sum::<f64>() / 1e6;
        rows.push(vec![
            format!("{mpps:.1}"),
            format!("{rate:.2}"),
            sent.to_string(),
            analysed.to_string(),
            dropped.to_string(),
        ]);
    }
    result.tables.push(Table {
        title: "Live tap".to_owned(),
        header: ["Mpps wanted", "Mpps sent", "frames sent", "analysed", "lost by the capture"].map(str::to_owned).to_vec(),
        rows,
        note: "64-byte MACsec of 10,000 channels over a veth into a packet socket with a ring, database on. Generator and the \
            kernel's receiving share one CPU, the analysis has another."
            .to_owned(),
    });
    Ok(())
}

fn options(mpps: f64, packets: u64) -> Options {
    Options {
        packets,
        flows: 10_000,
        protocol: Mix::Macsec,
        size: Size::Fixed(64),
        loss: 0.001,
        reorder: 0.001,
        duplicate: 0.0,
        replay: 0.0,
        rekey: 0,
        vlans: vec![],
        seed: 7,
        rate: Some((mpps * 1e6) as u64),
    }
}

fn round(folder: &Path, generator: &mut Generator, records: usize) -> Result<Round> {
    // Passes what it receives on to the stack, where the tap is.
    let pair = Pair::veth(Role::Pass)?;
    let netns = pair.netns().context("a veth pair has a namespace")?;
    let mut tap = netns.enter(|| capture::open(TAP))??;
    let database = folder.join("live.db");
    let info = RunInfo { source: TAP.to_owned(), interval_ns: 100_000_000, detail: Detail::Full };
    let mut sink = Database::create(&database, &info)?;
    let (control, analysis) = (Control::default(), Analysis::default());
    let (sent, summary) = std::thread::scope(|scope| -> Result<_> {
        let watch = scope.spawn(|| -> Result<Summary> {
            keep_on(0)?;
            analyze(&mut *tap, &analysis, &mut sink, &control)
        });
        let running = generator.replay(Device::new(netns, pair.from), records, Tempo::Recorded)?;
        let sent = running.finish(Duration::from_secs(20));
        let frames = || control.frames.load(Ordering::Relaxed);
        // Frames that the capture lost never come: the tap is over when it is silent.
        let (mut last, mut since) = (frames(), Instant::now());
        while frames() < records as u64 && since.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(20));
            if frames() != last {
                (last, since) = (frames(), Instant::now());
            }
        }
        control.stop.store(true, Ordering::Relaxed);
        let summary = watch.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok((sent?, summary))
    })?;
    for name in ["live.db", "live.db-wal", "live.db-shm"] {
        // The log is usually gone.
        let _ = std::fs::remove_file(folder.join(name));
    }
    Ok(Round {
        sent: sent.frames,
        analysed: summary.frames,
        dropped: summary.capture_drops,
        seconds: sent.seconds,
    })
}
