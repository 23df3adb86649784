//! Modes of the data plane beside the least programs that do the same, and nftables.

use std::time::Duration;

use anyhow::{Result, ensure};
use sluice_dataplane::Sizes;
use sluice_libbpf::Link;

use super::{FLOWS, LISTENER, PORT, RECEIVER_PORT, RECEIVERS, Sample, entry};
use crate::generator::frames::Frames;
use crate::generator::layouts::FanoutFloor;
use crate::generator::link::Target;
use crate::generator::site::{LAN, Site, WAN};
use crate::testbed::gateway::{Action, Mode, Sluice, Tally, configuration};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    LeastXdp,
    Xdp,
    LeastTc,
    Tc,
    Nftables,
}

impl Who {
    pub fn name(self) -> &'static str {
        match self {
            Who::LeastXdp => "least XDP program",
            Who::Xdp => "xdp",
            Who::LeastTc => "least tc program",
            Who::Tc => "tc",
            Who::Nftables => "nftables numgen",
        }
    }
}

pub struct Lane {
    bytes: usize,
    site: Site,
    frames: Frames,
    sluice: Option<Sluice>,
    _links: Vec<Link>,
}

fn listener(mode: Mode) -> String {
    let mut text = configuration(mode, Action::Permit)
        + &format!(
            "services {{ fan-out {{ listener bench {{ interface {LAN}; address 192.0.2.1; port {PORT};\n"
        );
    for (number, [a, b, c, d]) in RECEIVERS.iter().enumerate() {
        text += &format!("receiver r{number} {{ address {a}.{b}.{c}.{d}; port {RECEIVER_PORT}; }}\n");
    }
    text + "} } }\n"
}

fn numgen() -> String {
    let target = |(n, [a, b, c, d]): (usize, &[u8; 4])| format!("{n} : {a}.{b}.{c}.{d}");
    let map: Vec<String> = RECEIVERS.iter().enumerate().map(target).collect();
    format!(
        "table ip fan {{ chain pre {{ type nat hook prerouting priority -100; ip daddr 192.0.2.1 udp dport {PORT} \
         dnat to numgen inc mod 3 map {{ {} }} : {RECEIVER_PORT}; }}; }}",
        map.join(", ")
    )
}

impl Lane {
    pub fn new(who: Who, bytes: usize) -> Result<Lane> {
        let site = Site::create("fan")?;
        let mut frames = Frames::load()?;
        let mut links =
            vec![frames.attach("frames_sink", &site.wan_host, site.wan.host_ifindex, Target::XdpNative)?];
        let mut sluice = None;
        if !matches!(who, Who::LeastXdp | Who::Xdp) {
            for device in [LAN, WAN] {
                site.gateway.run("ethtool", ["-K", device, "gro", "on"])?;
            }
        }
        frames.floor.update(0, |floor| *floor = least(&site));
        let mut start = |mode| -> Result<()> {
            let start = || Sluice::start_with(&site, &listener(mode), Sizes::default(), true);
            sluice = Some(site.gateway.enter(start)??);
            Ok(())
        };
        let (gateway, lan) = (&site.gateway, site.lan.ifindex);
        match who {
            Who::Xdp => start(Mode::Xdp)?,
            Who::Tc => start(Mode::Tc)?,
            Who::LeastXdp => links.push(frames.attach("fanout_least", gateway, lan, Target::XdpNative)?),
            Who::LeastTc => links.push(frames.attach("fanout_least_tc", gateway, lan, Target::TcxIngress)?),
            Who::Nftables => drop(site.gateway.run("nft", [numgen()])?),
        }
        frames.aim_entries_sized(&site.lan, FLOWS, bytes, entry)?;
        Ok(Lane { bytes, site, frames, sluice, _links: links })
    }

    /// Every frame must have arrived behind the gateway, by turns.
    pub fn measure(&mut self, length: Duration) -> Result<Sample> {
        let before = self.sluice.as_ref().map(|sluice| Tally::read(&sluice.dataplane)).transpose()?;
        let shares_before = self.shares()?;
        let arrived = self.frames.total_arrived();
        let (sent, seconds) = self.frames.run_for(&self.site.lan_host, self.bytes, None, length)?;
        let arrived = self.frames.total_arrived() - arrived;
        ensure!(arrived == sent, "of {sent} frames {arrived} arrived");
        if let (Some(sluice), Some(before)) = (&self.sluice, before) {
            let tally = Tally::read(&sluice.dataplane)?.since(before);
            ensure!(tally.redirected == sent && tally.sessions == 0, "of {sent} frames: {tally:?}");
            let shares: Vec<u64> =
                self.shares()?.iter().zip(shares_before).map(|(now, then)| now - then).collect();
            let (least, most) = (shares.iter().min(), shares.iter().max());
            let uneven = most.zip(least).map_or(0, |(most, least)| most - least);
            ensure!(
                uneven <= std::thread::available_parallelism()?.get() as u64,
                "uneven shares: {shares:?}"
            );
        }
        let mpps = sent as f64 / seconds / 1e6;
        // one core does all of it, and nothing else
        Ok(Sample { mpps, offered: mpps, cpu: 1.0, sent, arrived, ..Sample::default() })
    }

    fn shares(&self) -> Result<Vec<u64>> {
        let Some(sluice) = &self.sluice else { return Ok(vec![]) };
        let receivers = sluice.plan.fan_out.iter().flat_map(|info| &info.receivers);
        receivers.map(|(_, _, index)| Ok(sluice.dataplane.fan_out_receiver(*index)?.packets)).collect()
    }
}

fn least(site: &Site) -> FanoutFloor {
    FanoutFloor {
        be_listener: u32::from_ne_bytes(LISTENER),
        be_receivers: RECEIVERS.map(u32::from_ne_bytes),
        be_port: PORT.to_be(),
        be_receiver_port: RECEIVER_PORT.to_be(),
        out_ifindex: site.wan.ifindex,
        dmac: site.wan.host_mac,
        smac: site.wan.mac,
        next: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_listener_compiles() {
        for mode in [Mode::Xdp, Mode::Tc] {
            let tree = sluice_language::parse(&listener(mode), "bench").unwrap();
            let config = sluice_language::compile(&tree).unwrap();
            assert_eq!(config.fan_out.listeners[0].receivers.len(), RECEIVERS.len());
        }
    }

    #[test]
    fn numgen_names_every_receiver() {
        assert!(numgen().contains("map { 0 : 198.51.100.100, 1 : 10.128.0.1, 2 : 10.128.0.2 }"));
    }
}
