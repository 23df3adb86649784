//! Relays of user space, one thread each, with more offered than they can take.

use std::time::Duration;

use anyhow::{Result, bail};
use sluice_lab::hosts::udp_overflows;
use sluice_lab::metrics::Metrics;
use sluice_libbpf::Link;

use super::process::{self, Process};
use super::{FLOWS_OF_RELAYS, Sample, entry};
use crate::generator::frames::Frames;
use crate::generator::link::Target;
use crate::generator::site::Site;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    Userspace,
    Plain,
    Envoy,
    Nginx,
    AfXdp,
    Rings,
}

impl Who {
    pub fn name(self) -> &'static str {
        match self {
            Who::Userspace => "userspace",
            Who::Plain => "plain recvmmsg + sendmmsg",
            Who::Envoy => "Envoy",
            Who::Nginx => "nginx",
            Who::AfXdp => "af_xdp",
            Who::Rings => "rx-to-tx ring forwarder",
        }
    }

    /// What is not here, and how to get it.
    pub fn missing(self) -> Option<String> {
        let what = match self {
            Who::Envoy if process::find_envoy().is_none() => "Envoy is not here",
            Who::Nginx if process::nginx_stream().is_none() => "nginx has no stream module here",
            _ => return None,
        };
        Some(format!("{what}: scripts/setup-bench.sh installs it"))
    }

    /// Whether packets that reached its socket cannot be lost without a count.
    pub fn counts_everything(self) -> bool {
        matches!(self, Who::Userspace | Who::Plain | Who::AfXdp)
    }
}

pub struct Lane {
    who: Who,
    bytes: usize,
    site: Site,
    frames: Frames,
    process: Process,
    _sink: Link,
}

impl Lane {
    pub fn new(who: Who, bytes: usize) -> Result<Lane> {
        let site = Site::create("fan")?;
        let mut frames = Frames::load()?;
        let sink = frames.attach("frames_sink", &site.wan_host, site.wan.host_ifindex, Target::XdpNative)?;
        // NAPI takes what is redirected; without a program in the way frames become packets of the stack
        site.gateway.run("ethtool", ["-K", crate::generator::site::LAN, "gro", "on"])?;
        frames.aim_entries_sized(&site.lan, FLOWS_OF_RELAYS, bytes, entry)?;
        let process = match who {
            Who::Userspace => process::sluice(&site.gateway, "userspace")?,
            Who::Plain => process::plain(&site.gateway)?,
            Who::Envoy => process::envoy(&site.gateway)?,
            Who::Nginx => process::nginx(&site.gateway)?,
            Who::AfXdp => process::sluice(&site.gateway, "af_xdp")?,
            Who::Rings => process::rings(&site.gateway)?,
        };
        Ok(Lane { who, bytes, site, frames, process, _sink: sink })
    }

    /// What it lost with a count: before its socket, and by its own word.
    fn counted(&self) -> Result<u64> {
        let overflow = udp_overflows(&self.site.gateway);
        Ok(overflow + self.metric("sluice_fanout_dropped_packets_total")?)
    }

    /// Sum of a family of counters, of one that has any.
    fn metric(&self, family: &str) -> Result<u64> {
        if !matches!(self.who, Who::Userspace | Who::AfXdp) {
            return Ok(0);
        }
        Metrics::read(&self.site.gateway, "127.0.0.1:9090")?.sum(family, &[])
    }

    /// At this rate, or as fast as the generator can.
    pub fn measure(&mut self, pps: Option<f64>, length: Duration) -> Result<Sample> {
        let counted = self.counted()?;
        let process = &self.process;
        let window =
            self.frames.overload(&self.site.lan_host, self.bytes, pps, length, &|| process.cpu_seconds())?;
        // the memory for frames is as large as it is asked for
        let frames = self.metric("sluice_fanout_ring_memory_bytes")?;
        let rss = self.process.resident().saturating_sub(frames);
        if let Some(words) = self.process.ended() {
            bail!("it ended under load: {words}");
        }
        Ok(Sample {
            mpps: window.arrived_pps / 1e6,
            offered: window.offered_pps / 1e6,
            cpu: window.probed / window.seconds,
            rss,
            sent: window.sent,
            arrived: window.arrived,
            overflow: self.counted()? - counted,
        })
    }

    /// The highest share of `most` that it takes without losing any, in steps of a twentieth, as millions a second; and
    /// what the generator was asked for.
    pub fn without_loss(&mut self, most: f64, length: Duration) -> Result<(f64, f64)> {
        for twentieths in (1..20).rev() {
            let asked = most * f64::from(twentieths) / 20.0;
            let sample = self.measure(Some(asked * 1e6), length)?;
            if sample.arrived == sample.sent {
                return Ok((sample.offered, asked));
            }
        }
        Ok((0.0, 0.0))
    }
}
