//! Suite `ladder`: the same frames through more and more of a gateway, rung by rung, at rising rates.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use crate::method::result::{
    Axis, Better, Chart, Check, Figure, LineChart, Point, Role, Series, Step, SuiteResult, Table, Waterfall,
};
use crate::method::rounds::interleave;
use crate::method::stats::estimate;
use crate::method::suite::{Context, Suite};
use crate::testbed::forwarder::Forwarder;
use crate::testbed::testpmd;
use crate::testbed::trial::{Device, Outcome, Sink, Stand};

pub const SUITE: Suite = Suite {
    name: "ladder",
    help: "Raw I/O, IP forwarding, firewall: loss by rate and rung for 1,486-byte frames, rings, workers, soak",
    says: "Every rung does what the one below does and something more, with the same frames. Receive-only and forwarding \
        are apart. A cell is the share of frames lost at a rate; a rate that the generator could not hold into a rung is \
        marked, not called loss-free. Rings and workers are swept; the soak runs for 10, 17 and 24 minutes in a full \
        run and must end with as many frames received as sent.",
    silent: &[
        "Rungs inside the kernel work on the generator's CPU and cannot lose frames there: their highest rate is a \
            capacity.",
        "Raw I/O goes through packet sockets, which copy; a driver with AF_XDP zero copy or DPDK does not.",
        "There are as many CPUs as there are: a second worker shares the generator's on a machine with two.",
    ],
    run: suite,
};

const FRAME_BYTES: usize = 1486;
const GBPS: [f64; 6] = [2.0, 3.5, 5.0, 6.0, 7.0, 10.0];
/// The seed's advice; rings of packet sockets are made of 32 frames.
const RING: u32 = 8192;
const RINGS: [u32; 5] = [32, 256, 1024, 4096, 8192];
const SOCKET: Sink = Sink::Socket { ring: RING };

/// From the bottom; a rung names the one it stands on.
struct Rung {
    device: Device,
    receive_only: bool,
    below: Option<usize>,
}

const fn rung(device: Device, receive_only: bool, below: Option<usize>) -> Rung {
    Rung { device, receive_only, below }
}

const RUNGS: [Rung; 8] = [
    rung(Device::RawReceive { ring: RING, workers: 1 }, true, None),
    rung(Device::Through(Forwarder::Linux, SOCKET), true, Some(0)),
    rung(Device::Through(Forwarder::Xdp, SOCKET), true, Some(0)),
    rung(Device::RawForward { ring: RING }, false, None),
    rung(Device::Testpmd, false, None),
    rung(Device::Through(Forwarder::Linux, Sink::Xdp), false, None),
    rung(Device::Through(Forwarder::Nftables, Sink::Xdp), false, Some(5)),
    rung(Device::Through(Forwarder::Xdp, Sink::Xdp), false, None),
];

/// Off by more, the rate was not held.
const MOST_OFF: f64 = 0.02;
const ATTEMPTS: usize = 3;

fn pps(gbps: f64) -> f64 {
    gbps * 1e9 / (8.0 * FRAME_BYTES as f64)
}

/// A cell of the table: what became of the frames at one rate.
#[derive(Debug, Clone, Copy)]
struct Cell {
    gbps: f64,
    outcome: Outcome,
}

impl Cell {
    fn held(&self) -> bool {
        (self.outcome.offered_pps() / pps(self.gbps) - 1.0).abs() <= MOST_OFF
    }

    fn loss_free(&self) -> bool {
        self.held() && self.outcome.sent == self.outcome.received
    }

    fn words(&self) -> String {
        match (self.held(), self.outcome.loss_ratio()) {
            (false, _) => format!("only {:.1}", self.outcome.offered_pps() * 8.0 * FRAME_BYTES as f64 / 1e9),
            (true, 0.0) => "0".to_owned(),
            (true, loss) => format!("{loss:.2e}"),
        }
    }
}

/// One rung's cells and its rate at full speed, a value a round.
struct Climbed {
    rung: usize,
    cells: Vec<Cell>,
    full_mpps: Vec<f64>,
}

fn suite(context: &Context) -> Result<SuiteResult> {
    let mut result = SuiteResult::new(SUITE.name);
    let length = context.pick(Duration::from_millis(150), Duration::from_secs(10));
    let mut climbed = vec![];
    for (i, rung) in RUNGS.iter().enumerate() {
        let name = rung.device.name();
        context.progress.at(0.7 * i as f64 / RUNGS.len() as f64, &name);
        if rung.device == Device::Testpmd && !testpmd::is_installed() {
            result.notes.push(
                "dpdk-testpmd is not installed (scripts/setup-bench.sh): its rung is left out".to_owned(),
            );
            continue;
        }
        match climb(i, length, context.rounds) {
            Ok(one) => climbed.push(one),
            Err(error) => result.errors.push(format!("{name}: {error:#}")),
        }
    }
    for one in &climbed {
        result.figures.extend(figures(one, &climbed));
    }
    result.tables.push(table(&climbed));
    result.charts = vec![chart(&climbed), waterfall(&climbed)];
    context.progress.at(0.7, "rings and workers");
    result.tables.push(rings(length)?);
    result.tables.push(workers(length)?);
    if context.quick() {
        result.notes.push("the soak of 10, 17 and 24 minutes belongs to the full profile".to_owned());
    } else {
        soak(context, &climbed, &mut result)?;
    }
    Ok(result)
}

fn climb(rung: usize, length: Duration, rounds: usize) -> Result<Climbed> {
    let mut stand = Stand::new(RUNGS[rung].device, FRAME_BYTES)?;
    stand.trial(None, Duration::from_millis(100)).context("warming up")?;
    let cells = GBPS.iter().map(|gbps| cell(&mut stand, *gbps, length)).collect::<Result<Vec<_>>>()?;
    let full = interleave(1, rounds, |_, _| {
        let outcome = stand.trial(None, length)?;
        Ok(outcome.received as f64 / outcome.seconds / 1e6)
    })?;
    Ok(Climbed { rung, cells, full_mpps: full[0].clone() })
}

/// The best of a few attempts to hold the rate: what disturbed the generator says nothing about the rung.
fn cell(stand: &mut Stand, gbps: f64, length: Duration) -> Result<Cell> {
    let mut cell = Cell { gbps, outcome: stand.trial(Some(pps(gbps)), length)? };
    for _ in 1..ATTEMPTS {
        if !cell.held() {
            cell.outcome = stand.trial(Some(pps(gbps)), length)?;
        }
    }
    Ok(cell)
}

impl Climbed {
    fn device(&self) -> Device {
        RUNGS[self.rung].device
    }

    /// Highest rate of the table up to which nothing was lost.
    fn best_gbps(&self) -> f64 {
        let kept = self.cells.iter().take_while(|cell| cell.loss_free());
        kept.map(|cell| cell.gbps).last().unwrap_or(0.0)
    }

    fn ns(&self) -> Vec<f64> {
        self.full_mpps.iter().map(|mpps| 1e3 / mpps).collect()
    }
}

fn figures(one: &Climbed, all: &[Climbed]) -> Vec<Figure> {
    let name = one.device().name();
    let mut best = Figure::new(
        format!("{name}: highest rate without loss"),
        "Gb/s",
        Better::Higher,
        vec![one.best_gbps()],
    );
    if let Some(cell) = one.cells.iter().find(|cell| !cell.loss_free()) {
        best.checks.push(Check::new(
            "generator not the limiter",
            cell.held() && !one.device().closed(),
            format!(
                "at {} Gb/s: {} of {} frames arrived",
                cell.gbps, cell.outcome.received, cell.outcome.sent
            ),
        ));
    } else {
        best.checks.push(Check::new(
            "generator not the limiter",
            false,
            "no rate of the table made it lose a frame",
        ));
    }
    let ns = Figure::new(format!("{name}: ns a frame at full speed"), "ns/packet", Better::Lower, one.ns());
    let below = RUNGS[one.rung].below.and_then(|below| all.iter().find(|other| other.rung == below));
    let ns = match below {
        Some(below) => ns.against(below.device().name(), &below.ns()),
        None => ns,
    };
    vec![best, ns]
}

fn table(climbed: &[Climbed]) -> Table {
    let row = |one: &Climbed| {
        let mut cells = vec![
            if RUNGS[one.rung].receive_only { "receive" } else { "forward" }.to_owned(),
            one.device().name(),
        ];
        cells.extend(one.cells.iter().map(Cell::words));
        cells.push(format!("{}", one.best_gbps()));
        cells.push(format!("{:.0}", estimate(&one.ns()).value));
        cells
    };
    let mut header = vec!["does".to_owned(), "rung".to_owned()];
    header.extend(GBPS.map(|gbps| format!("{gbps} Gb/s")));
    header.extend(["best".to_owned(), "ns/frame".to_owned()]);
    Table {
        title: format!("Share of {FRAME_BYTES}-byte frames lost, by rung and rate"),
        header,
        rows: climbed.iter().map(row).collect(),
        note: "only N: the generator reached N Gb/s into this rung, so the cell says nothing about loss. best: up to \
            which nothing was lost. ns/frame: at full speed, generator included where the rung works on its CPU."
            .to_owned(),
    }
}

fn chart(climbed: &[Climbed]) -> Chart {
    let series = |one: &Climbed| Series {
        name: one.device().name(),
        role: if one.device().name().starts_with("sluice") { Role::Subject } else { Role::Peer },
        points: one
            .cells
            .iter()
            .filter(|cell| cell.held())
            .map(|cell| Point::new(cell.gbps, 100.0 * cell.outcome.loss_ratio()))
            .collect(),
    };
    Chart::Line(LineChart {
        title: "Loss by rate and rung".to_owned(),
        x: Axis::linear("offered, Gb/s of 1,486-byte frames"),
        y: Axis::linear("lost, %"),
        series: climbed.iter().map(series).collect(),
        note: "Only rates that the generator held.".to_owned(),
    })
}

/// What each forwarding rung inside the kernel costs, beside forwarding itself.
fn waterfall(climbed: &[Climbed]) -> Chart {
    let step = |one: &Climbed| Step { name: one.device().name(), estimate: estimate(&one.ns()), total: true };
    Chart::Waterfall(Waterfall {
        title: "Nanoseconds a frame at full speed".to_owned(),
        unit: "ns/packet".to_owned(),
        steps: climbed.iter().map(step).collect(),
        note: "Totals, each measured by itself; generator and sink included.".to_owned(),
    })
}

/// How large a receive ring must be: raw forwarding at a rate it can keep on average.
fn rings(length: Duration) -> Result<Table> {
    let mut rows = vec![];
    for ring in RINGS {
        let mut stand = Stand::new(Device::RawForward { ring }, FRAME_BYTES)?;
        stand.trial(None, Duration::from_millis(50))?;
        let mut row = vec![ring.to_string()];
        for gbps in [2.0, 3.5, 5.0] {
            row.push(cell(&mut stand, gbps, length)?.words());
        }
        rows.push(row);
    }
    Ok(Table {
        title: "Receive ring, frames: share lost by raw forwarding".to_owned(),
        header: ["ring", "2 Gb/s", "3.5 Gb/s", "5 Gb/s"].map(str::to_owned).to_vec(),
        rows,
        note: "A ring holds what arrives while the worker is away.".to_owned(),
    })
}

fn workers(length: Duration) -> Result<Table> {
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

const SOAKS: [Duration; 3] = [Duration::from_secs(600), Duration::from_secs(1020), Duration::from_secs(1440)];

/// As many frames received as sent, for a long time, at half of what the rung kept.
fn soak(context: &Context, climbed: &[Climbed], result: &mut SuiteResult) -> Result<()> {
    let device = Device::RawForward { ring: RING };
    let best = climbed.iter().find(|one| one.device() == device).map_or(2.0, Climbed::best_gbps).max(1.0);
    let gbps = 0.5 * best;
    let mut stand = Stand::new(device, FRAME_BYTES)?;
    let mut rows = vec![];
    for length in SOAKS {
        context.progress.at(0.8, &format!("soak of {} minutes", length.as_secs() / 60));
        let began = Instant::now();
        let outcome = stand.trial(Some(pps(gbps)), length)?;
        let minutes = began.elapsed().as_secs_f64() / 60.0;
        rows.push(vec![
            format!("{gbps:.1} Gb/s"),
            outcome.sent.to_string(),
            outcome.received.to_string(),
            format!("{minutes:.0}"),
            outcome.dropped.to_string(),
        ]);
        result.checks.push(Check::new(
            format!("soak of {:.0} minutes: tx = rx", minutes),
            outcome.sent == outcome.received,
            format!("{} sent, {} received", outcome.sent, outcome.received),
        ));
    }
    result.tables.push(Table {
        title: format!("Soak, {}", device.name()),
        header: ["rate", "tx", "rx", "minutes", "dropped"].map(str::to_owned).to_vec(),
        rows,
        note: String::new(),
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(gbps: f64, offered: f64, lost: u64) -> Cell {
        let sent = (pps(gbps) * offered) as u64;
        Cell { gbps, outcome: Outcome { sent, received: sent - lost, dropped: lost, seconds: 1.0 } }
    }

    #[test]
    fn a_rate_that_was_not_offered_is_not_loss_free() {
        let cells = vec![cell(2.0, 1.0, 0), cell(3.5, 1.0, 0), cell(5.0, 0.7, 0), cell(6.0, 1.0, 0)];
        assert_eq!(cells[2].words(), "only 3.5");
        let one = Climbed { rung: 0, cells, full_mpps: vec![] };
        assert_eq!(one.best_gbps(), 3.5);
    }

    #[test]
    fn loss_is_a_share() {
        assert_eq!(cell(10.0, 1.0, 0).words(), "0");
        assert_eq!(cell(2.0, 1.0, 168).words(), "9.99e-4");
    }

    #[test]
    fn ten_gigabits_of_these_frames_are_841_thousand_a_second() {
        assert_eq!(pps(10.0).round(), 841_184.0);
    }

    #[test]
    fn a_rung_stands_on_one_that_was_climbed_before() {
        assert!(RUNGS.iter().enumerate().all(|(i, rung)| rung.below.is_none_or(|below| below < i)));
    }
}
