//! What one TCP stream keeps while a third host floods the gateway with packets that policies deny, beside the same flood
//! into the least that can drop it.
//!
//! The generator has one CPU. On the other one the kernel's thread that receives the flood runs ahead of everything, as
//! interrupts would, and the stream's two ends and the gateway have what it leaves. A stream is owed what is left of the CPU:
//! rates are told over that, so that what denial costs beyond its own time shows.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde::Serialize;
use sluice_dataplane::abi::stages::Reason;
use sluice_lab::devices;
use sluice_libbpf::Link;

use crate::generator::frames::Frames;
use crate::generator::layouts::FRAME4_LEN;
use crate::generator::link::Target;
use crate::generator::napi::NapiThread;
use crate::generator::packets::{CLIENTS4, SERVERS4, Tuple, address4};
use crate::generator::site::{OUTSIDE, OUTSIDE_HOST, Side, Site};
use crate::method::affinity::bench_cpu;
use crate::method::result::{Better, Check, Figure, SuiteResult, Table};
use crate::method::rounds::interleave;
use crate::method::stats::{estimate, paired_ratio};
use crate::method::suite::Context;
use crate::testbed::forwarder::{Forwarder, Lane};
use crate::testbed::gateway::{Action, Mode, closed_configuration, configuration};
use crate::testbed::iperf::{Bulk, Length, Transfer};

/// Packets a second that are asked of the generator. Its frames go to another CPU, so that it may make fewer; what was dropped
/// is told, and less than this share of it is no flood.
const PPS: f64 = 1e6;
const LEAST: f64 = 0.25;
/// Flows, each from another forged source.
const FLOWS: usize = 50_000;
const POLICIES: usize = 10;
/// Of the stream, without a flood.
const SECONDS: f64 = 0.4;
/// Bytes of the transfer that says how many these are.
const FIRST_BYTES: u64 = 30_000_000;

const FLOOR: &str = "the same packets dropped by a program that does nothing else";

/// Both hooks, with the floor's program.
const FORWARDERS: [(Forwarder, &str, &str, Target); 2] = [
    (Forwarder::Tc, "tc 1 stream under denied packets", "frames_discard", Target::TcxIngress),
    (Forwarder::Xdp, "xdp 1 stream under denied packets", "frames_drop", Target::XdpNative),
];

/// What a round came to.
#[derive(Debug, Clone, Copy, Serialize)]
struct Sample {
    gbps: f64,
    sent_pps: f64,
    dropped_pps: f64,
    /// Share of the CPU that receiving and dropping took.
    share: f64,
}

impl Sample {
    /// Gb/s of a whole CPU.
    fn of_what_is_left(&self) -> f64 {
        self.gbps / (1.0 - self.share)
    }

    fn ns_a_packet(&self) -> f64 {
        self.share * 1e9 / self.dropped_pps
    }
}

struct Flooded {
    bulk: Bulk,
    frames: Frames,
    napi: NapiThread,
    transfer: Transfer,
    denies: bool,
    _floor: Option<Link>,
}

impl Flooded {
    fn new(forwarder: Forwarder, floor: Option<(&str, Target)>) -> Result<Flooded> {
        let mode = forwarder.mode().unwrap_or(Mode::Tc);
        let mut site = Site::create("flood")?;
        site.add_outside("flood")?;
        let text = match floor {
            None => closed_configuration(mode, POLICIES),
            Some(_) => configuration(mode, Action::Permit),
        };
        let mut frames = Frames::load()?;
        let (host, side) = site.outside.as_ref().context("a third host")?;
        let side = *side;
        // frames made in the kernel reach a device without an XDP program only when it polls
        site.gateway.run("ethtool", ["-K", OUTSIDE, "gro", "on"])?;
        let attach = |(program, target)| frames.attach(program, &site.gateway, side.ifindex, target);
        let floor = floor.map(attach).transpose()?;
        let sink = frames.attach("frames_sink", host, side.host_ifindex, Target::XdpNative)?;
        aim(&mut frames, &side)?;
        let lane = Lane::of_sluice(forwarder, site, &text)?;
        let napi = NapiThread::of(&lane.site.gateway, OUTSIDE, stream_cpu())?;
        drop(sink);
        let bulk = Bulk::over(lane)?;
        let first = Transfer { streams: 1, length: Length::Bytes(FIRST_BYTES), reverse: false };
        let gbps = bulk.measure_on(first, [stream_cpu(); 2])?.gbps;
        let transfer = Transfer { length: Length::Bytes((gbps * 1e9 / 8.0 * SECONDS) as u64), ..first };
        Ok(Flooded { bulk, frames, napi, transfer, denies: floor.is_none(), _floor: floor })
    }

    /// Packets that the policies have denied.
    fn denied(&self) -> Result<u64> {
        let sluice = self.bulk.lane.sluice.as_ref().context("a gateway of Sluice")?;
        Ok(sluice.dataplane.counters()?.drops(Reason::PolicyDeny))
    }

    /// Frames that found the 256 places of the gateway's device full.
    fn overruns(&self) -> Result<u64> {
        let (host, _) = self.bulk.lane.site.outside.as_ref().context("a third host")?;
        devices::count(host, OUTSIDE_HOST, "tx/dropped")
    }

    /// Every frame must have been dropped as it was meant to be, but for those that found no place.
    fn measure(&mut self) -> Result<Sample> {
        let (overruns, denied, ever) = (self.overruns()?, self.denied()?, self.frames.sent());
        let (host, _) = self.bulk.lane.site.outside.as_ref().context("a third host")?;
        let (bulk, napi, transfer) = (&self.bulk, &self.napi, self.transfer);
        let stream = || {
            let (began, cpu) = (Instant::now(), napi.cpu_seconds()?);
            let gbps = bulk.measure_on(transfer, [stream_cpu(); 2])?.gbps;
            Ok((gbps, (napi.cpu_seconds()? - cpu) / began.elapsed().as_secs_f64()))
        };
        let frames = self.frames.run_while(host, FRAME4_LEN as usize, PPS, stream);
        let ((gbps, share), sent, seconds) = frames?;
        thread::sleep(Duration::from_millis(30));
        let (all, overruns) = (self.frames.sent() - ever, self.overruns()? - overruns);
        let denied = self.denied()? - denied;
        let wanted = if self.denies { all.saturating_sub(overruns) } else { 0 };
        ensure!(denied == wanted, "of {all} frames {overruns} found no place and {denied} were denied");
        let dropped = sent as f64 * (1.0 - overruns as f64 / all.max(1) as f64);
        Ok(Sample { gbps, sent_pps: sent as f64 / seconds, dropped_pps: dropped / seconds, share })
    }
}

/// Where the stream and the flood's receiving are: where the generator is not.
fn stream_cpu() -> usize {
    1 - bench_cpu().min(1)
}

fn aim(frames: &mut Frames, side: &Side) -> Result<()> {
    frames.aim_entries(side, FLOWS, |template, number| {
        let Tuple { client, client_port, server, server_port } = Tuple::of_session(number);
        let (from, to) = (address4(CLIENTS4, client), address4(SERVERS4, server));
        template.entry4_between(from, to, client_port, server_port)
    })
}

/// A figure a hook, every sample, and one table.
pub fn add(context: &Context, result: &mut SuiteResult) -> Result<()> {
    let (mut samples, mut rows) = (serde_json::Map::new(), vec![]);
    for (forwarder, name, program, place) in
        FORWARDERS.into_iter().filter(|(_, name, ..)| context.wants(name))
    {
        context.progress.at(0.9, name);
        let floor = Some((program, place));
        // the floor stands there twice, with everything of its own (A/A)
        let lanes = [None, floor, floor].map(|floor| Flooded::new(forwarder, floor));
        let mut lanes = lanes.into_iter().collect::<Result<Vec<_>>>().with_context(|| name.to_owned())?;
        let mut seen: [Vec<Sample>; 3] = Default::default();
        interleave(lanes.len(), context.rounds, |contestant, _| {
            let sample = lanes[contestant].measure().with_context(|| name.to_owned())?;
            seen[contestant].push(sample);
            Ok(sample.gbps)
        })?;
        result.figures.push(figure(name, &seen));
        samples.insert(name.to_owned(), serde_json::to_value(&seen)?);
        rows.extend(table_rows(forwarder, &seen));
    }
    if !rows.is_empty() {
        result.tables.push(table(rows));
    }
    result.rows = samples.into();
    Ok(())
}

fn of(seen: &[Sample], field: fn(&Sample) -> f64) -> Vec<f64> {
    seen.iter().map(field).collect()
}

fn figure(name: &str, [own, floor, again]: &[Vec<Sample>; 3]) -> Figure {
    let left = |seen: &[Sample]| of(seen, Sample::of_what_is_left);
    let figure = Figure::new(name, "Gb/s", Better::Higher, left(own));
    let figure = figure.against(FLOOR, &left(floor)).same(&left(floor), &left(again));
    [own, floor].into_iter().fold(figure, |figure, seen| figure.check(was_flooded(name, seen)))
}

/// A flood that lost its packets on the way to the gateway takes nothing from the stream.
fn was_flooded(name: &str, seen: &[Sample]) -> Check {
    let pps = of(seen, |sample| sample.dropped_pps).into_iter().fold(f64::INFINITY, f64::min);
    let detail = format!("{name}: {:.2} Mpps dropped, {:.2} wanted at least", pps / 1e6, LEAST * PPS / 1e6);
    Check::new("flood arrived", pps >= LEAST * PPS, detail)
}

fn table_rows(forwarder: Forwarder, seen: &[Vec<Sample>; 3]) -> Vec<Vec<String>> {
    let value = |seen: &[Sample], field| estimate(&of(seen, field)).value;
    let row = |(who, own): (&str, &Vec<Sample>)| {
        let kept = paired_ratio(&of(own, |sample| sample.gbps), &of(&seen[1], |sample| sample.gbps));
        vec![
            format!("{}, {who}", forwarder.name()),
            format!("{:.2}", value(own, |sample| sample.gbps)),
            format!("{:.2}", kept.value),
            format!("{:.2}", value(own, |sample| sample.dropped_pps) / 1e6),
            format!("{:.0}", value(own, Sample::ns_a_packet)),
            format!("{:.0}", 100.0 * value(own, |sample| sample.share)),
        ]
    };
    ["denied by policy", "dropped first", "dropped first, again"].into_iter().zip(seen).map(row).collect()
}

fn table(rows: Vec<Vec<String>>) -> Table {
    let header = ["flood", "Gb/s", "to dropped first", "Mpps dropped", "ns/packet", "CPU %"];
    Table {
        title: "One TCP stream while packets are dropped".to_owned(),
        header: header.map(str::to_owned).to_vec(),
        rows,
        note: "iperf3, both ends on the CPU that receives the flood; ns/packet and CPU: of the kernel's thread that receives it, \
            with the device's share."
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(gbps: f64, dropped_pps: f64, share: f64) -> Sample {
        Sample { gbps, sent_pps: 1e6, dropped_pps, share }
    }

    #[test]
    fn a_stream_is_owed_what_drops_leave_of_the_cpu() {
        let floor = vec![sample(9.0, 1e6, 0.1); 3];
        let ratio = |own| figure("x", &[vec![own; 3], floor.clone(), floor.clone()]).ratio.unwrap().value;
        assert!((ratio(sample(7.0, 1e6, 0.3)) - 1.0).abs() < 1e-9);
        // a tenth is lost to something else than the drops' own time
        assert!((ratio(sample(6.3, 1e6, 0.3)) - 0.9).abs() < 1e-9);
        assert!((sample(7.0, 1e6, 0.3).ns_a_packet() - 300.0).abs() < 1e-9);
    }

    #[test]
    fn a_flood_that_did_not_arrive_makes_no_figure() {
        assert!(was_flooded("x", &[sample(7.0, 0.25e6, 0.3)]).passed);
        assert!(!was_flooded("x", &[sample(7.0, 1e6, 0.3), sample(7.0, 0.24e6, 0.3)]).passed);
    }
}
