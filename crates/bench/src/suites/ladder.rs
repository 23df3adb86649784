//! Suite `ladder`: the same frames through more and more of a gateway, rung by rung, at rising rates.

mod added;
mod sweeps;

use std::time::Duration;

use anyhow::{Context as _, Result};

use self::added::Added;
use crate::generator::wire::Size;
use crate::method::number::number;
use crate::method::result::{
    Axis, Better, Chart, Check, Figure, LineChart, Point, Role, Series, SuiteResult, Table,
};
use crate::method::rounds::interleave;
use crate::method::stats::estimate;
use crate::method::suite::{Context, Suite};
use crate::testbed::forwarder::Forwarder;
use crate::testbed::testpmd;
use crate::testbed::trial::{Device, Outcome, Sink, Stand};

/// What `sluice bench ladder` runs.
pub const SUITE: Suite = Suite {
    name: "ladder",
    help: "Raw I/O, IP forwarding, firewall, GTP-U, full user plane: loss by rate and rung, rings, workers, soak",
    says: "Every rung does what the one below does and something more, with frames of 1,486 bytes, of which a link of \
        10 Gb/s carries 827,814 a second. Into GTP-U rungs these are N3 frames, out of 10,000 tunnels at random; a bare one \
        has zones and a policy that permits everything, the full user plane a thousand policies, source NAT, rates, flows \
        and quotas besides. Receive-only and forwarding are apart. A cell is the share of frames lost at a rate; a rate that \
        the generator could not hold into a rung is marked, not called loss-free. What a rung adds is measured by itself, \
        all rungs of one kind in the same rounds. Rings and workers are swept; soaks run for 10, 17 and 24 minutes, of GTP-U \
        rungs for 15, in a full run and must end with as many frames received as sent.",
    silent: &[
        "Rungs inside the kernel work on the generator's CPU and cannot lose frames there: their highest rate is a \
            capacity.",
        "Raw I/O goes through packet sockets, which copy; a driver with AF_XDP zero copy or DPDK does not.",
        "There are as many CPUs as there are: a second worker shares the generator's on a machine with two.",
    ],
    run: suite,
};

/// In memory; of N3 frames, from which 44 bytes of headers are taken, the inner size follows.
const FRAME_BYTES: usize = 1486;
const FCS: u16 = 4;
const GBPS: [f64; 6] = [2.0, 3.5, 5.0, 6.0, 7.0, 10.0];
/// Of a quick run.
const FEW_GBPS: [f64; 3] = [2.0, 5.0, 10.0];
/// Rings of packet sockets are made of 32 frames.
const RING: u32 = 8192;
const SOCKET: Sink = Sink::Socket { ring: RING };

/// From the bottom.
const RECEIVE: [Device; 5] = [
    Device::RawReceive { ring: RING, workers: 1 },
    Device::Through(Forwarder::Linux, SOCKET),
    Device::Through(Forwarder::Xdp, SOCKET),
    Device::Through(Forwarder::Gtpu, SOCKET),
    Device::Through(Forwarder::UserPlane, SOCKET),
];
/// See there.
const FORWARD: [Device; 8] = [
    Device::RawForward { ring: RING },
    Device::Testpmd,
    Device::Through(Forwarder::Linux, Sink::Xdp),
    Device::Through(Forwarder::Nftables, Sink::Xdp),
    Device::Through(Forwarder::Redirect, Sink::Xdp),
    Device::Through(Forwarder::Xdp, Sink::Xdp),
    Device::Through(Forwarder::Gtpu, Sink::Xdp),
    Device::Through(Forwarder::UserPlane, Sink::Xdp),
];

/// Off by more, the rate was not held.
const MOST_OFF: f64 = 0.02;
const ATTEMPTS: usize = 3;

/// Frames a second that make a link so busy, what is between frames included.
fn pps(gbps: f64) -> f64 {
    Size::Bytes(FRAME_BYTES as u16 + FCS).line_rate(gbps)
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
            (false, _) => format!("only {:.1}", self.outcome.offered_pps() / pps(1.0)),
            (true, 0.0) => "0".to_owned(),
            (true, loss) => format!("{loss:.2e}"),
        }
    }
}

/// One rung's cells and its rate at full speed, a value a round.
struct Climbed {
    device: Device,
    cells: Vec<Cell>,
    full_mpps: Vec<f64>,
}

fn suite(context: &Context) -> Result<SuiteResult> {
    let mut result = SuiteResult::new(SUITE.name);
    let length = context.pick(Duration::from_millis(150), Duration::from_secs(10));
    let rates = context.pick(&FEW_GBPS[..], &GBPS[..]);
    let mut climbed = vec![];
    let rungs: Vec<Device> =
        RECEIVE.into_iter().chain(FORWARD).filter(|device| context.wants(&device.name())).collect();
    for (i, device) in rungs.iter().copied().enumerate() {
        let name = device.name();
        context.progress.at(0.6 * i as f64 / rungs.len() as f64, &name);
        if device == Device::Testpmd && !testpmd::is_installed() {
            result.notes.push(
                "dpdk-testpmd is not installed (scripts/setup-bench.sh): its rung is left out".to_owned(),
            );
            continue;
        }
        match climb(device, rates, length, context.rounds) {
            Ok(one) => climbed.push(one),
            Err(error) => result.errors.push(format!("{name}: {error:#}")),
        }
    }
    result.figures.extend(climbed.iter().flat_map(figures));
    result.charts = vec![chart(&climbed)];
    if !context.wanted.is_empty() {
        result.tables.push(table(rates, &climbed, &[]));
        return Ok(result);
    }
    context.progress.at(0.6, "what each rung adds");
    let added = added::all(context, length, &mut result);
    result.tables.push(table(rates, &climbed, &added));
    result.charts.extend(added::waterfalls(&added));
    context.progress.at(0.7, "rings and workers");
    result.tables.push(sweeps::rings(context, length)?);
    result.tables.push(sweeps::workers(length)?);
    if context.quick() {
        result.notes.push("the soaks of 10 to 24 minutes belong to the full profile".to_owned());
    } else {
        sweeps::soak(context, &climbed, &mut result);
    }
    Ok(result)
}

fn climb(device: Device, rates: &[f64], length: Duration, rounds: usize) -> Result<Climbed> {
    let mut stand = Stand::new(device, FRAME_BYTES)?;
    stand.trial(None, Duration::from_millis(100)).context("warming up")?;
    let cells = rates.iter().map(|gbps| cell(&mut stand, *gbps, length)).collect::<Result<Vec<_>>>()?;
    let full = interleave(1, rounds, |_, _| full_speed(&mut stand, length))?;
    Ok(Climbed { device, cells, full_mpps: full[0].clone() })
}

/// Million frames a second that came through, every one explained.
fn full_speed(stand: &mut Stand, length: Duration) -> Result<f64> {
    let outcome = stand.trial_counted(length)?;
    Ok(outcome.received as f64 / outcome.seconds / 1e6)
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
    /// That of the highest rate of the table up to which nothing was lost.
    fn best(&self) -> Option<&Cell> {
        self.cells.iter().take_while(|cell| cell.loss_free()).last()
    }

    fn best_gbps(&self) -> f64 {
        self.best().map_or(0.0, |cell| cell.gbps)
    }

    fn ns(&self) -> Vec<f64> {
        ns(&self.full_mpps)
    }
}

fn ns(mpps: &[f64]) -> Vec<f64> {
    mpps.iter().map(|mpps| 1e3 / mpps).collect()
}

fn figures(one: &Climbed) -> Vec<Figure> {
    let name = one.device.name();
    let mut best = Figure::new(
        format!("{name}: highest rate without loss"),
        "Gb/s",
        Better::Higher,
        vec![one.best_gbps()],
    );
    if let Some(cell) = one.cells.iter().find(|cell| !cell.loss_free()) {
        best.checks.push(Check::new(
            "generator not the limiter",
            cell.held() && !one.device.closed(),
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
    vec![best, ns]
}

fn table(rates: &[f64], climbed: &[Climbed], added: &[Added]) -> Table {
    let row = |one: &Climbed| {
        let mut cells = vec![
            if RECEIVE.contains(&one.device) { "receive" } else { "forward" }.to_owned(),
            one.device.name(),
        ];
        cells.extend(one.cells.iter().map(Cell::words));
        let counts = one.best().map(|cell| [cell.outcome.sent, cell.outcome.received]);
        cells.push(format!("{}", one.best_gbps()));
        cells.extend(counts.map_or([String::new(), String::new()], |counts| counts.map(|n| n.to_string())));
        cells.push(format!("{:.0}", estimate(&one.ns()).value));
        let adds = added.iter().find(|adds| adds.device == one.device);
        cells.push(adds.map(|adds| number(estimate(&adds.ns).value)).unwrap_or_default());
        cells
    };
    let mut header = vec!["does".to_owned(), "rung".to_owned()];
    header.extend(rates.iter().map(|gbps| format!("{gbps} Gb/s")));
    header.extend(["best", "tx", "rx", "ns/frame", "ns added"].map(str::to_owned));
    Table {
        title: format!("Share of {FRAME_BYTES}-byte frames lost, by rung and rate"),
        header,
        rows: climbed.iter().map(row).collect(),
        note: "only N: the generator reached N Gb/s into this rung, so the cell says nothing about loss. best: up to \
            which nothing was lost; tx, rx: frames of that trial. ns/frame: at full speed, generator included where the \
            rung works on its CPU. ns added: to the rung below, in the same rounds."
            .to_owned(),
    }
}

fn chart(climbed: &[Climbed]) -> Chart {
    let series = |one: &Climbed| Series {
        name: one.device.name(),
        role: if one.device.name().starts_with("sluice") { Role::Subject } else { Role::Peer },
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
        let one = Climbed { device: RECEIVE[0], cells, full_mpps: vec![] };
        assert_eq!(one.best_gbps(), 3.5);
    }

    #[test]
    fn loss_is_a_share() {
        assert_eq!(cell(10.0, 1.0, 0).words(), "0");
        assert_eq!(cell(2.0, 1.0, 165).words(), "9.97e-4");
    }

    #[test]
    fn a_link_of_ten_gigabits_carries_827_814_of_these_frames() {
        assert_eq!(pps(10.0) as u64, 827_814);
    }

    #[test]
    fn what_a_rung_adds_is_measured_to_one_that_is_there() {
        for device in added::CHAINS.iter().flat_map(|chain| &chain[1..]) {
            assert!(RECEIVE.contains(device) || FORWARD.contains(device), "{}", device.name());
        }
    }

    #[test]
    fn a_row_has_what_was_sent_at_its_best_rate_and_what_it_adds() {
        let device = FORWARD[6];
        let one =
            Climbed { device, cells: vec![cell(2.0, 1.0, 0), cell(3.5, 1.0, 1)], full_mpps: vec![2.0; 3] };
        let adds = Added { device, below: FORWARD[5], ns: vec![40.0; 3] };
        let row = table(&[2.0, 3.5], &[one], &[adds]).rows.remove(0);
        let frames = (pps(2.0) as u64).to_string();
        assert_eq!(row[4..], ["2", &frames, &frames, "500", "40.0"]);
    }
}
