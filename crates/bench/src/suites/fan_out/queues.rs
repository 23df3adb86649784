//! Every queue of a listener's device: datagrams of many flows over four of them, and what of them was lost.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use sluice_lab::metrics::Metrics;
use sluice_lab::netns::Netns;

use super::process::{self, Process};
use super::{LISTENER, PORT};
use crate::generator::frames::Frames;
use crate::generator::layouts::SINK_MAGIC;
use crate::generator::link::Target;
use crate::generator::site::{LAN, LAN_HOST, Site};
use crate::method::result::{Better, Check, Figure};
use crate::method::rounds::alone;

pub const NAME: &str = "af_xdp, four queues: frames lost";

const QUEUES: usize = 4;
/// The kernel gives each a queue by its hash.
const FLOWS: usize = 64;
/// In a round, and how many a second: far below what the workers take, since this is about queues.
const FRAMES: usize = 20_000;
const PPS: f64 = 40_000.0;
/// Of the frames, what each queue must have had: eight standard deviations of 64 flows' luck below a quarter would be less.
const LEAST: usize = FRAMES / 40;
/// Frames of the kernel itself that a queue may have seen besides.
const STRAYS: u64 = 16;

struct Bed {
    site: Site,
    frames: Frames,
    process: Process,
    sockets: Vec<UdpSocket>,
    _sink: sluice_libbpf::Link,
}

/// Of each queue: frames that the device took off it, and those that the fan-out received from it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Taken {
    device: u64,
    fan_out: u64,
}

impl Bed {
    fn new() -> Result<Bed> {
        let site = Site::with_queues("fanq", Some(QUEUES as u32))?;
        let frames = Frames::load()?;
        let sink = frames.attach("frames_sink", &site.wan_host, site.wan.host_ifindex, Target::XdpNative)?;
        site.gateway.run("ethtool", ["-K", LAN, "gro", "on"])?;
        // a frame that is sent on as it is needs its checksum
        site.lan_host.run("ethtool", ["-K", LAN_HOST, "tx", "off", "gro", "on"])?;
        let process = process::sluice(&site.gateway, "af_xdp")?;
        let sockets = site.lan_host.enter(sockets)?.context("cannot open the senders' sockets")?;
        Ok(Bed { site, frames, process, sockets, _sink: sink })
    }

    fn taken(&self) -> Result<[Taken; QUEUES]> {
        let metrics = Metrics::read(&self.site.gateway, "127.0.0.1:9090")?;
        let device = device_queues(&self.site.gateway)?;
        let mut taken = [Taken::default(); QUEUES];
        for (queue, taken) in taken.iter_mut().enumerate() {
            let label = format!("queue=\"{queue}\"");
            let fan_out = metrics.sum("sluice_fanout_received_packets_total", &[&label])?;
            *taken = Taken { device: device[queue], fan_out };
        }
        Ok(taken)
    }

    /// Frames that did not arrive; adds what each queue had.
    fn measure(&mut self, all: &mut [Taken; QUEUES]) -> Result<f64> {
        let (before, arrived) = (self.taken()?, self.frames.total_arrived());
        self.send()?;
        self.frames.wait_for_quiet();
        if let Some(words) = self.process.ended() {
            bail!("it ended: {words}");
        }
        let after = self.taken()?;
        for (sum, (after, before)) in all.iter_mut().zip(after.iter().zip(before)) {
            sum.device += after.device - before.device;
            sum.fan_out += after.fan_out - before.fan_out;
        }
        let arrived = self.frames.total_arrived() - arrived;
        Ok(FRAMES as f64 - arrived as f64)
    }

    /// By turns, at the rate.
    fn send(&self) -> Result<()> {
        let mut payload = [0; 18];
        payload[..4].copy_from_slice(&SINK_MAGIC.to_be_bytes());
        let began = Instant::now();
        for (number, socket) in (0..FRAMES).zip(self.sockets.iter().cycle()) {
            socket.send(&payload).context("cannot send")?;
            let due = Duration::from_secs_f64(number as f64 / PPS);
            if let Some(early) = due.checked_sub(began.elapsed()).filter(|early| early.as_micros() > 500) {
                thread::sleep(early);
            }
        }
        Ok(())
    }
}

/// One a flow.
fn sockets() -> io::Result<Vec<UdpSocket>> {
    let one = |_| {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.connect((Ipv4Addr::from(LISTENER), PORT))?;
        Ok(socket)
    };
    (0..FLOWS).map(one).collect()
}

/// Frames that XDP took off each queue, by the device's own statistics.
fn device_queues(gateway: &Netns) -> Result<[u64; QUEUES]> {
    let text = gateway.run("ethtool", ["-S", LAN])?;
    let mut found = [0; QUEUES];
    for (queue, found) in found.iter_mut().enumerate() {
        let name = format!("rx_queue_{queue}_xdp_packets:");
        let value = text.lines().find_map(|line| line.trim().strip_prefix(&name)?.trim().parse().ok());
        *found = value.with_context(|| format!("{LAN} has no statistic {name}"))?;
    }
    Ok(found)
}

pub fn measure(rounds: usize) -> Result<Figure> {
    let mut bed = Bed::new().context("a listener on four queues")?;
    let mut taken = [Taken::default(); QUEUES];
    let lost = alone(rounds, |_| bed.measure(&mut taken)).context(NAME)?;
    Ok(Figure::new(NAME, "frames", Better::Lower, lost).worst().check(every_queue(&taken, rounds)))
}

/// Nothing is lost on a queue that has no frames; and the fan-out must have had what the device took.
fn every_queue(taken: &[Taken; QUEUES], rounds: usize) -> Check {
    let had = |queue: &Taken| queue.fan_out >= (LEAST * rounds) as u64;
    let same = |queue: &Taken| queue.device.abs_diff(queue.fan_out) <= STRAYS;
    let words = taken.iter().map(|queue| format!("{} of {}", queue.fan_out, queue.device));
    let detail = words.collect::<Vec<_>>().join(", ");
    Check::new("every queue served", taken.iter().all(|queue| had(queue) && same(queue)), detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_without_frames_or_with_frames_that_nobody_got_is_seen() {
        let each = Taken { device: 5010, fan_out: 5000 };
        assert!(every_queue(&[each; QUEUES], 1).passed);
        for wrong in [Taken::default(), Taken { fan_out: 4000, ..each }, Taken { device: 0, ..each }] {
            assert!(!every_queue(&[each, each, wrong, each], 1).passed, "{wrong:?}");
        }
    }
}
