//! Rings, workers and time: what else decides whether a rung loses frames.

use std::time::Duration;

use anyhow::Result;

use super::{Cell, Climbed, FRAME_BYTES, RING, SOCKET, cell, pps};
use crate::method::result::{Check, SuiteResult, Table};
use crate::method::suite::Context;
use crate::testbed::forwarder::Forwarder;
use crate::testbed::trial::{Device, Outcome, Sink, Stand};

const RINGS: [u32; 5] = [32, 256, 1024, 4096, 8192];
/// Of a quick run.
const FEW_RINGS: [u32; 3] = [32, 1024, 8192];
const RING_GBPS: [f64; 4] = [2.0, 3.5, 5.0, 10.0];
/// Likewise.
const FEW_RING_GBPS: [f64; 2] = [2.0, 10.0];

/// Those that have one.
fn with_ring(ring: u32) -> [Device; 3] {
    [
        Device::RawForward { ring },
        Device::Through(Forwarder::Gtpu, Sink::Socket { ring }),
        Device::Through(Forwarder::UserPlane, Sink::Socket { ring }),
    ]
}

/// How large a receive ring must be at a rate that its owner can keep on average.
pub(super) fn rings(context: &Context, length: Duration) -> Result<Table> {
    let sizes = context.pick(&FEW_RINGS[..], &RINGS[..]);
    let rates = context.pick(&FEW_RING_GBPS[..], &RING_GBPS[..]);
    let mut rows = vec![];
    for (i, first) in with_ring(RING).into_iter().enumerate() {
        let mut stand = Stand::new(first, FRAME_BYTES)?;
        stand.trial(None, Duration::from_millis(50))?;
        for ring in sizes.iter().copied() {
            // opened anew for each trial
            stand.device = with_ring(ring)[i];
            let name = stand.device.name();
            let mut row = vec![name.split(", ring").next().unwrap_or_default().to_owned(), ring.to_string()];
            for gbps in rates.iter().copied() {
                row.push(cell(&mut stand, gbps, length)?.words());
            }
            rows.push(row);
        }
    }
    let header = ["of", "ring"].map(str::to_owned).into_iter();
    Ok(Table {
        title: "Receive ring, frames: share lost".to_owned(),
        header: header.chain(rates.iter().map(|gbps| format!("{gbps} Gb/s"))).collect(),
        rows,
        note: "A ring holds what arrives while the worker is away.".to_owned(),
    })
}

pub(super) fn workers(length: Duration) -> Result<Table> {
    let most = std::thread::available_parallelism().map_or(1, usize::from).clamp(2, 8) as u32;
    let mut rows = vec![];
    for workers in 1..=most {
        let mut stand = Stand::new(Device::RawReceive { ring: RING, workers }, FRAME_BYTES)?;
        stand.trial(None, Duration::from_millis(50))?;
        let outcome = stand.trial(None, length)?;
        rows.push(vec![
            workers.to_string(),
            format!("{:.3}", outcome.received as f64 / outcome.seconds / 1e6),
            format!("{:.2e}", outcome.loss_ratio()),
        ]);
    }
    Ok(Table {
        title: "Workers that share a device's flows, at full speed".to_owned(),
        header: ["workers", "Mpps received", "lost"].map(str::to_owned).to_vec(),
        rows,
        note: "Flows are shared by hash (PACKET_FANOUT). The generator has a CPU too.".to_owned(),
    })
}

const RAW: Device = Device::RawForward { ring: RING };
const fn minutes(minutes: u64) -> Duration {
    Duration::from_secs(60 * minutes)
}
/// Who forwards or receives for how long.
const SOAKS: [(Device, Duration); 7] = [
    (RAW, minutes(10)),
    (RAW, minutes(17)),
    (RAW, minutes(24)),
    (Device::Through(Forwarder::Gtpu, SOCKET), minutes(15)),
    (Device::Through(Forwarder::UserPlane, SOCKET), minutes(15)),
    (Device::Through(Forwarder::Gtpu, Sink::Xdp), minutes(15)),
    (Device::Through(Forwarder::UserPlane, Sink::Xdp), minutes(15)),
];

/// As many frames received as sent, at the rate that was asked for and for a long time: at half of what a rung with a queue kept, at all of it elsewhere.
pub(super) fn soak(context: &Context, climbed: &[Climbed], result: &mut SuiteResult) {
    let mut rows = vec![];
    for (i, (device, length)) in SOAKS.into_iter().enumerate() {
        context.progress.at(0.8 + 0.2 * i as f64 / SOAKS.len() as f64, &told(device, length));
        let best = climbed.iter().find(|one| one.device == device).map_or(2.0, Climbed::best_gbps).max(1.0);
        let gbps = if device.closed() { best } else { 0.5 * best };
        // hours of others are not lost with one
        match one_soak(device, gbps, length) {
            Ok((row, checks)) => {
                rows.push(row);
                result.checks.extend(checks);
            }
            Err(error) => result.errors.push(format!("{}: {error:#}", told(device, length))),
        }
    }
    result.tables.push(Table {
        title: "Soak".to_owned(),
        header: ["rung", "rate", "tx", "rx", "minutes", "dropped"].map(str::to_owned).to_vec(),
        rows,
        note: String::new(),
    });
}

fn told(device: Device, length: Duration) -> String {
    format!("{}: soak of {} minutes", device.name(), length.as_secs() / 60)
}

/// Its row and its checks.
fn one_soak(device: Device, gbps: f64, length: Duration) -> Result<(Vec<String>, [Check; 2])> {
    let outcome = Stand::new(device, FRAME_BYTES)?.trial(Some(pps(gbps)), length)?;
    let row = vec![
        device.name(),
        format!("{gbps:.1} Gb/s"),
        outcome.sent.to_string(),
        outcome.received.to_string(),
        format!("{}", length.as_secs() / 60),
        outcome.dropped.to_string(),
    ];
    let whole = Check::new(
        format!("{}: tx = rx", told(device, length)),
        outcome.sent == outcome.received,
        format!("{} sent, {} received", outcome.sent, outcome.received),
    );
    Ok((row, [whole, offered(device, gbps, length, outcome)]))
}

/// A generator that stopped early has soaked nothing, however few frames were lost.
fn offered(device: Device, gbps: f64, length: Duration, outcome: Outcome) -> Check {
    let sent_pps = outcome.sent as f64 / length.as_secs_f64();
    // frames of its end count as well, which are nothing beside those of minutes
    let outcome = Outcome { seconds: length.as_secs_f64(), ..outcome };
    Check::new(
        format!("{}: rate held", told(device, length)),
        Cell { gbps, outcome }.held(),
        format!("{sent_pps:.0} of {:.0} frames a second", pps(gbps)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_frames_arrive_at_the_end_of_a_soak_as_were_sent() {
        let device = Device::Through(Forwarder::UserPlane, Sink::Xdp);
        let (row, [whole, _]) = one_soak(device, 0.5, Duration::from_millis(300)).unwrap();
        assert!(whole.passed, "{whole:?}");
        assert_eq!(row[2], row[3]);
        assert!(row[2].parse::<f64>().unwrap() > 0.2 * pps(0.5) * 0.3, "{row:?}");
    }

    #[test]
    fn a_soak_whose_generator_ended_early_has_not_held_its_rate() {
        let outcome = |share: f64| {
            let sent = (60.0 * share * pps(0.5)) as u64;
            Outcome { sent, received: sent, dropped: 0, seconds: 60.0 * share }
        };
        assert!(offered(RAW, 0.5, minutes(1), outcome(1.0)).passed);
        assert!(!offered(RAW, 0.5, minutes(1), outcome(0.4)).passed);
    }
}
