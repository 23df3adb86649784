//! Trials: frames offered at a rate for a time, and what became of every one of them.
//!
//! The generator paces itself on one CPU; what is under test works on the other and has a queue that can overflow, so
//! that the rate offered is the question and not the answer (open loop). Where the device works inline on the
//! generator's CPU nothing can be lost: such a device is `closed`, and a trial of it measures capacity.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use sluice_lab::devices;
use sluice_libbpf::Link;

use crate::generator::frames::Frames;
use crate::generator::link::Target;
use crate::generator::ring::{PacketRing, PacketSender};
use crate::generator::site::{LAN, LAN_HOST, Site, WAN, WAN_HOST};
use crate::method::affinity::{bench_cpu, pin};
use crate::method::result::Check;
use crate::testbed::forwarder::{FLOWS, Forwarder, Lane};
use crate::testbed::testpmd::Testpmd;

/// What is under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Device {
    /// Nothing but the generator and an XDP program that counts and drops.
    Nobody,
    /// Packet sockets with rings of so many frames: received and forgotten.
    RawReceive { ring: u32, workers: u32 },
    /// Received by a packet socket, sent on by another.
    RawForward { ring: u32 },
    /// Forwarded on the generator's own CPU to the host behind.
    Through(Forwarder, Sink),
    /// dpdk-testpmd on packet sockets.
    Testpmd,
}

/// Who takes the frames at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sink {
    /// An XDP program that counts and drops.
    Xdp,
    /// A packet socket with a ring of so many frames.
    Socket { ring: u32 },
}

impl Device {
    pub fn name(self) -> String {
        match self {
            Device::Nobody => "nobody".to_owned(),
            Device::RawReceive { ring, workers: 1 } => format!("raw receive, ring {ring}"),
            Device::RawReceive { ring, workers } => format!("raw receive, ring {ring}, {workers} workers"),
            Device::RawForward { ring } => format!("raw forward, ring {ring}"),
            Device::Through(forwarder, Sink::Xdp) => forwarder.name().to_owned(),
            Device::Through(forwarder, Sink::Socket { .. }) => format!("{} to a socket", forwarder.name()),
            Device::Testpmd => "dpdk-testpmd".to_owned(),
        }
    }

    /// Works on the generator's own CPU up to the last step, which never overflows: the generator waits for it.
    pub fn closed(self) -> bool {
        match self {
            Device::Nobody => true,
            Device::Through(forwarder, Sink::Xdp) => forwarder != Forwarder::GtpuSpread,
            _ => false,
        }
    }

    /// Says itself how many frames it dropped.
    fn counts(self) -> bool {
        self != Device::Testpmd
    }
}

/// What became of the frames of one trial.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outcome {
    pub sent: u64,
    pub received: u64,
    /// Frames that the queue under test counted as dropped.
    pub dropped: u64,
    /// From the first frame to the last.
    pub seconds: f64,
}

impl Outcome {
    pub fn offered_pps(&self) -> f64 {
        self.sent as f64 / self.seconds
    }

    pub fn loss_ratio(&self) -> f64 {
        self.sent.saturating_sub(self.received) as f64 / self.sent.max(1) as f64
    }

    /// Every frame is accounted for.
    pub fn is_conserved(&self) -> bool {
        self.sent == self.received + self.dropped
    }
}

/// A generator with a device under test behind it.
pub struct Stand {
    pub device: Device,
    pub(crate) lane: Lane,
    pub(crate) frames: Frames,
    links: Vec<Link>,
    frame_bytes: usize,
    peer: Option<Testpmd>,
}

/// Flows that are answered before anything is measured, at least.
const ENOUGH: u64 = FLOWS as u64 * 99 / 100;
/// A part of the flows that fits into a veth's ring of 256 places.
const VETH_ROOM: usize = FLOWS / 50;
/// Without a frame: queues are empty by then.
const DRAIN: Duration = Duration::from_millis(150);

impl Stand {
    pub fn new(device: Device, frame_bytes: usize) -> Result<Stand> {
        Stand::build(device, frame_bytes).with_context(|| format!("cannot set up {}", device.name()))
    }

    fn build(device: Device, frame_bytes: usize) -> Result<Stand> {
        let forwarder = match device {
            Device::Through(forwarder, _) => forwarder,
            // Packet sockets take what Linux would forward; a tap is the last that sees the frames there.
            _ => Forwarder::Linux,
        };
        let lane = Lane::new(forwarder, "stand")?;
        let mut stand =
            Stand { device, lane, frames: Frames::load()?, links: vec![], frame_bytes, peer: None };
        for (host, name) in [(&stand.lane.site.lan_host, LAN_HOST), (&stand.lane.site.wan_host, WAN_HOST)] {
            host.run("ethtool", ["-K", name, "gro", "on"])?;
        }
        // Frames made in the kernel reach a device without an XDP program only when it polls.
        for device in [LAN, WAN] {
            stand.lane.site.gateway.run("ethtool", ["-K", device, "gro", "on"])?;
        }
        if matches!(device, Device::Through(..)) {
            stand.establish()?;
        }
        stand.attach_ends()?;
        stand.aim()?;
        if device == Device::Testpmd {
            stand.peer = Some(Testpmd::start(&stand.lane.site.gateway, stand.lane.site.wan.host_mac)?);
        }
        Ok(stand)
    }

    /// Frames of all flows, in tunnels where these end, or pass.
    fn aim(&mut self) -> Result<()> {
        let lan = &self.lane.site.lan;
        match self.lane.forwarder.takes_tunnels() {
            true => self.frames.aim_tunnels(lan, FLOWS, self.frame_bytes),
            false => self.frames.aim_sized(lan, FLOWS, self.frame_bytes),
        }
    }

    /// Counts what leaves towards one of the hosts.
    fn sink(&self, host: &str) -> &'static str {
        let forwarder = self.lane.forwarder;
        let ends_here = host == WAN_HOST && forwarder != Forwarder::Redirect;
        if forwarder.takes_tunnels() && !ends_here { "frames_sink_n3" } else { "frames_sink" }
    }

    /// One frame of every flow, and an answer to each.
    fn establish(&mut self) -> Result<()> {
        self.aim()?;
        let Site { lan_host, wan_host, lan, wan, .. } = &self.lane.site;
        let _back = self.frames.attach(self.sink(LAN_HOST), lan_host, lan.host_ifindex, Target::XdpNative)?;
        // A veth takes what its peer sends back by XDP only where a program stands.
        let gateway = &self.lane.site.gateway;
        let _take = match self.lane.forwarder.is_native() {
            true => None,
            false => Some(self.frames.attach("frames_pass", gateway, wan.ifindex, Target::XdpNative)?),
        };
        let _reflect = self.frames.attach("frames_reflect", wan_host, wan.host_ifindex, Target::XdpNative)?;
        let send = |frames: usize| -> Result<u64> {
            let before = self.frames.total_arrived();
            self.frames.send_sized(lan_host, frames as u32, self.frame_bytes)?;
            thread::sleep(DRAIN);
            Ok(self.frames.total_arrived() - before)
        };
        let mut answers = send(FLOWS)?;
        if answers < ENOUGH {
            // a machine that is slower than its generator: each flow once more, as many at a time as a veth has room for
            answers = (0..FLOWS / VETH_ROOM).map(|_| send(VETH_ROOM)).sum::<Result<u64>>()?;
        }
        ensure!(answers >= ENOUGH, "of {FLOWS} flows only {answers} were answered");
        Ok(())
    }

    fn attach_ends(&mut self) -> Result<()> {
        let Site { gateway, wan_host, lan, wan, .. } = &self.lane.site;
        let (sink, discard) = (self.sink(WAN_HOST), "frames_discard");
        let attach = |program, netns, ifindex, target| self.frames.attach(program, netns, ifindex, target);
        let end = match self.device {
            Device::Through(_, Sink::Socket { .. }) => {
                attach(discard, wan_host, wan.host_ifindex, Target::TcxIngress)?
            }
            _ => attach(sink, wan_host, wan.host_ifindex, Target::XdpNative)?,
        };
        self.links.push(end);
        match self.device {
            Device::Nobody => self.links.push(attach(sink, gateway, lan.ifindex, Target::XdpNative)?),
            Device::RawReceive { .. } | Device::RawForward { .. } | Device::Testpmd => {
                self.links.push(attach(discard, gateway, lan.ifindex, Target::TcxIngress)?);
            }
            Device::Through(..) => {}
        }
        Ok(())
    }

    /// Offers frames; None: as fast as the generator can.
    pub fn trial(&mut self, pps: Option<f64>, length: Duration) -> Result<Outcome> {
        let before = self.link_drops()? + self.lane.past_full_queues()?;
        let mut outcome = match self.device {
            Device::RawReceive { ring, workers } => self.receive(ring, workers, pps, length)?,
            Device::RawForward { ring } => self.forward(ring, pps, length)?,
            Device::Through(_, Sink::Socket { ring }) => self.receive(ring, 1, pps, length)?,
            _ => self.inline(pps, length)?,
        };
        outcome.dropped += self.link_drops()? + self.lane.past_full_queues()? - before;
        if !self.device.counts() {
            outcome.dropped = outcome.sent.saturating_sub(outcome.received);
        }
        ensure!(
            outcome.is_conserved(),
            "{}: {} frames sent, {} received and {} counted as dropped",
            self.device.name(),
            outcome.sent,
            outcome.received,
            outcome.dropped
        );
        Ok(outcome)
    }

    /// At full speed; the gateway's own counters, those of its subscribers included, must explain every frame.
    pub fn trial_counted(&mut self, length: Duration) -> Result<Outcome> {
        let counts = |stand: &Stand| -> Result<_> {
            Ok((stand.passed()?, stand.lane.counted()?, stand.lane.past_full_queues()?))
        };
        let before = counts(self)?;
        let outcome = self.trial(None, length)?;
        let after = counts(self)?;
        let taken = outcome.sent - (after.2 - before.2);
        for (what, before, after) in
            [("redirected", before.0, after.0), ("counted for its subscribers", before.1, after.1)]
        {
            let Some((before, after)) = before.zip(after) else { continue };
            ensure!(after - before == taken, "of {taken} frames the gateway {what} {}", after - before);
        }
        Ok(outcome)
    }

    /// Frames that found the 256 places of a veth full, because the kernel had its thread work on them.
    fn link_drops(&self) -> Result<u64> {
        let Site { lan_host, gateway, .. } = &self.lane.site;
        let mut sum = 0;
        for (netns, device) in [(lan_host, LAN_HOST), (gateway, WAN)] {
            sum += devices::count(netns, device, "tx/dropped")?;
        }
        Ok(sum)
    }

    /// Packets that the gateway's own program passed on, where it counts.
    pub fn passed(&self) -> Result<Option<u64>> {
        self.lane.passed()
    }

    /// Packets that went the long way beside a flow table.
    pub fn past_the_flow_table(&self) -> Result<Option<u64>> {
        self.lane.past_the_flow_table()
    }

    pub fn mode_check(&self) -> Result<Check> {
        self.lane.mode_check()
    }

    fn generate(&mut self, pps: Option<f64>, length: Duration) -> Result<(u64, f64)> {
        self.frames.run_for(&self.lane.site.lan_host, self.frame_bytes, pps, length)
    }

    fn inline(&mut self, pps: Option<f64>, length: Duration) -> Result<Outcome> {
        let before = self.frames.total_arrived();
        let (sent, seconds) = self.generate(pps, length)?;
        let arrived = || self.frames.total_arrived() - before;
        let (mut received, mut last) = (arrived(), Instant::now());
        while received < sent && last.elapsed() < DRAIN {
            thread::sleep(DRAIN / 20);
            if arrived() > received {
                (received, last) = (arrived(), Instant::now());
            }
        }
        Ok(Outcome { sent, received, dropped: 0, seconds })
    }

    fn receive(&mut self, ring: u32, workers: u32, pps: Option<f64>, length: Duration) -> Result<Outcome> {
        let site = &self.lane.site;
        let (netns, ifindex) = match self.device {
            Device::Through(..) => (&site.wan_host, site.wan.host_ifindex),
            _ => (&site.gateway, site.lan.ifindex),
        };
        let fanout = (workers > 1).then_some(1);
        let mut rings = (0..workers)
            .map(|_| PacketRing::open(netns, ifindex, ring, fanout))
            .collect::<Result<Vec<_>>>()?;
        let (stop, received) = (AtomicBool::new(false), AtomicU64::new(0));
        let mut dropped = 0;
        let (sent, seconds) = thread::scope(|scope| -> Result<(u64, f64)> {
            for (worker, ring) in rings.iter_mut().enumerate() {
                let (stop, received) = (&stop, &received);
                scope.spawn(move || work(worker, stop, received, || ring.next(|_| ())));
            }
            let generated = self.generate(pps, length);
            thread::sleep(DRAIN);
            stop.store(true, Ordering::Relaxed);
            generated
        })?;
        for ring in &rings {
            dropped += ring.drops()?;
        }
        Ok(Outcome { sent, received: received.into_inner(), dropped, seconds })
    }

    fn forward(&mut self, ring: u32, pps: Option<f64>, length: Duration) -> Result<Outcome> {
        let site = &self.lane.site;
        let mut ring = PacketRing::open(&site.gateway, site.lan.ifindex, ring, None)?;
        let sender = PacketSender::open(&site.gateway, site.wan.ifindex)?;
        let (smac, dmac) = (site.wan.mac, site.wan.host_mac);
        let (stop, taken, unsent) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
        let before = self.frames.total_arrived();
        let (sent, seconds) = thread::scope(|scope| -> Result<(u64, f64)> {
            let (stop, taken, unsent, ring) = (&stop, &taken, &unsent, &mut ring);
            scope.spawn(move || {
                work(0, stop, taken, || {
                    ring.next(|frame| {
                        frame[..6].copy_from_slice(&dmac);
                        frame[6..12].copy_from_slice(&smac);
                        if sender.send(frame).is_err() {
                            unsent.fetch_add(1, Ordering::Relaxed);
                        }
                    })
                })
            });
            let generated = self.generate(pps, length);
            thread::sleep(DRAIN);
            stop.store(true, Ordering::Relaxed);
            generated
        })?;
        let received = self.frames.total_arrived() - before;
        let dropped = ring.drops()? + unsent.into_inner();
        Ok(Outcome { sent, received, dropped, seconds })
    }
}

/// Takes frames until told to stop, on the CPU that the generator leaves alone (a second worker has to share).
fn work(worker: usize, stop: &AtomicBool, received: &AtomicU64, mut next: impl FnMut() -> Option<()>) {
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    // Unpinned it works, too, only less steadily.
    let _ = pin((1 - bench_cpu().min(1) + worker) % cpus);
    let mut count = 0;
    let mut idle = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        if next().is_some() {
            count += 1;
            continue;
        }
        std::hint::spin_loop();
        // A worker that shares the generator's CPU must give way.
        if worker > 0 && idle.elapsed() > Duration::from_micros(50) {
            thread::yield_now();
            idle = Instant::now();
        }
    }
    received.fetch_add(count, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_that_nobody_explains_are_seen() {
        let outcome = Outcome { sent: 1000, received: 990, dropped: 10, seconds: 0.5 };
        assert!(outcome.is_conserved());
        assert_eq!((outcome.loss_ratio(), outcome.offered_pps()), (0.01, 2000.0));
        assert!(!Outcome { dropped: 9, ..outcome }.is_conserved());
    }
}
