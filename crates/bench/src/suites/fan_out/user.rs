//! Relays of user space, one thread each, with more offered than they can take.

use std::os::fd::OwnedFd;
use std::time::Duration;

use anyhow::Result;
use sluice_lab::hosts::udp_overflows;

use super::process::{self, Process};
use super::{FLOWS, Sample, entry};
use crate::frames::Frames;
use crate::gateway::Site;
use crate::link::Place;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    Userspace,
    Plain,
    Envoy,
    Nginx,
    Rings,
    /// The same at the highest rate that it takes without loss.
    RingsWithoutLoss,
    BareRings,
}

impl Who {
    pub fn name(self) -> &'static str {
        match self {
            Who::Userspace => "userspace",
            Who::Plain => "plain recvmmsg + sendmmsg",
            Who::Envoy => "Envoy",
            Who::Nginx => "nginx",
            Who::Rings => "af_xdp",
            Who::RingsWithoutLoss => "af_xdp without loss",
            Who::BareRings => "bare rx-to-tx rings",
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
        matches!(self, Who::Userspace | Who::Plain | Who::Rings)
    }

    /// Whether it is given more than it takes, so that what it takes is its rate.
    pub fn is_overloaded(self) -> bool {
        self != Who::RingsWithoutLoss
    }
}

/// Steps by which the highest rate without loss is searched for, downwards from the highest at all.
const STEPS: [f64; 7] = [0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.25];

pub struct Lane {
    who: Who,
    bytes: usize,
    site: Site,
    frames: Frames,
    process: Process,
    _sink: OwnedFd,
}

impl Lane {
    pub fn new(who: Who, bytes: usize) -> Result<Lane> {
        let site = Site::create("fan")?;
        let mut frames = Frames::load()?;
        let sink = frames.attach("frames_sink", &site.wan_host, site.wan.host_ifindex, Place::XdpNative)?;
        // NAPI takes what is redirected; without a program in the way frames become packets of the stack
        site.gateway.run("ethtool", ["-K", crate::gateway::LAN, "gro", "on"])?;
        frames.aim_entries_sized(&site.lan, FLOWS, bytes, entry)?;
        let process = match who {
            Who::Userspace => process::sluice(&site.gateway, "userspace")?,
            Who::Rings | Who::RingsWithoutLoss => process::sluice(&site.gateway, "af_xdp")?,
            Who::BareRings => process::bare_rings(&site.gateway)?,
            Who::Plain => process::plain(&site.gateway)?,
            Who::Envoy => process::envoy(&site.gateway)?,
            Who::Nginx => process::nginx(&site.gateway)?,
        };
        Ok(Lane { who, bytes, site, frames, process, _sink: sink })
    }

    /// Lost, and counted where that happened.
    fn overflow(&self) -> Result<u64> {
        match self.who {
            Who::Rings | Who::RingsWithoutLoss => {
                process::metric(&self.site.gateway, "sluice_fanout_dropped_packets_total")
            }
            _ => Ok(udp_overflows(&self.site.gateway)),
        }
    }

    /// Bytes that are resident beside the memory for frames, which is as large as it is asked for.
    fn resident(&self) -> Result<u64> {
        let frames = match self.who {
            Who::Rings | Who::RingsWithoutLoss => {
                process::metric(&self.site.gateway, "sluice_fanout_ring_memory_bytes")?
            }
            _ => 0,
        };
        Ok(self.process.resident().saturating_sub(frames))
    }

    pub fn measure(&mut self, length: Duration) -> Result<Sample> {
        let sample = self.overload(length)?;
        if self.who.is_overloaded() {
            return Ok(sample);
        }
        for share in STEPS {
            let pps = sample.mpps * 1e6 * share;
            let arrived = self.frames.total_arrived();
            let (sent, seconds) = self.frames.run_for(&self.site.lan_host, self.bytes, Some(pps), length)?;
            self.frames.wait_for_quiet();
            let arrived = self.frames.total_arrived() - arrived;
            let mpps = arrived as f64 / seconds / 1e6;
            if arrived == sent {
                return Ok(Sample { mpps, offered: mpps, sent, arrived, overflow: 0, ..sample });
            }
        }
        Ok(Sample { mpps: 0.0, offered: 0.0, sent: 0, arrived: 0, overflow: 0, ..sample })
    }

    fn overload(&mut self, length: Duration) -> Result<Sample> {
        let overflow = self.overflow()?;
        let process = &self.process;
        let window =
            self.frames.overload(&self.site.lan_host, self.bytes, length, &|| process.cpu_seconds())?;
        Ok(Sample {
            mpps: window.arrived_pps / 1e6,
            offered: window.offered_pps / 1e6,
            cpu: window.probed / window.seconds,
            rss: self.resident()?,
            sent: window.sent,
            arrived: window.arrived,
            overflow: self.overflow()? - overflow,
        })
    }
}
