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
}

impl Who {
    pub fn name(self) -> &'static str {
        match self {
            Who::Userspace => "userspace",
            Who::Plain => "plain recvmmsg + sendmmsg",
            Who::Envoy => "Envoy",
            Who::Nginx => "nginx",
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
        matches!(self, Who::Userspace | Who::Plain)
    }
}

pub struct Lane {
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
            Who::Userspace => process::sluice(&site.gateway)?,
            Who::Plain => process::plain(&site.gateway)?,
            Who::Envoy => process::envoy(&site.gateway)?,
            Who::Nginx => process::nginx(&site.gateway)?,
        };
        Ok(Lane { bytes, site, frames, process, _sink: sink })
    }

    pub fn measure(&mut self, length: Duration) -> Result<Sample> {
        let overflow = udp_overflows(&self.site.gateway);
        let process = &self.process;
        let window =
            self.frames.overload(&self.site.lan_host, self.bytes, length, &|| process.cpu_seconds())?;
        Ok(Sample {
            mpps: window.arrived_pps / 1e6,
            offered: window.offered_pps / 1e6,
            cpu: window.probed / window.seconds,
            rss: self.process.resident(),
            sent: window.sent,
            arrived: window.arrived,
            overflow: udp_overflows(&self.site.gateway) - overflow,
        })
    }
}
