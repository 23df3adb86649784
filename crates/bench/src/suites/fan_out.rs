//! Suite `fanout`: datagrams of one listener spread over three receivers, beside the least programs that do so.

use std::os::fd::OwnedFd;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use sluice_dataplane::Sizes;

use super::{Context, Suite};
use crate::frames::Frames;
use crate::gateway::{Action, LAN, Mode, Site, Sluice, Tally, WAN, configuration};
use crate::layouts::{FanoutFloor, RingEntry4};
use crate::link::Place;
use crate::packets::{CLIENTS4, Template, Tuple, address4};
use crate::result::{Better, Figure, SuiteResult};
use crate::rounds::interleave;

pub const SUITE: Suite = Suite {
    name: "fanout",
    help: "Datagrams spread over three receivers: XDP and tc against the least programs, and nftables numgen",
    says: "10,000 flows of UDP to one address and port, as fast as the generator can, by turns to three receivers behind \
        another device; generator, gateway and sink share one core. The least program compares address and port, takes \
        turns, writes the destination and both checksums, lowers the TTL, and redirects to a device and MAC addresses \
        that it was told. nftables translates by `numgen inc mod 3`, which decides for a flow, and tracks connections.",
    silent: &[
        "Every frame arrives, or there is no figure: this is capacity, not a rate without loss.",
        "Frames go over veth pairs; a network card takes and gives them otherwise.",
        "Modes of user space are not part of it.",
    ],
    run: suite,
};

const LISTENER: [u8; 4] = [192, 0, 2, 1];
const PORT: u16 = 514;
const RECEIVERS: [[u8; 4]; 3] = [[198, 51, 100, 100], [10, 128, 0, 1], [10, 128, 0, 2]];
const RECEIVER_PORT: u16 = 5514;
const FLOWS: usize = 10_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    LeastXdp,
    Xdp,
    LeastTc,
    Tc,
    Nftables,
}

/// Who, and the figure they make: against whom, in frames of how many bytes (without the check sequence).
const ROWS: [(Who, usize); 10] = [
    (Who::LeastXdp, 60),
    (Who::Xdp, 60),
    (Who::LeastXdp, 508),
    (Who::Xdp, 508),
    (Who::LeastTc, 60),
    (Who::Tc, 60),
    (Who::LeastTc, 508),
    (Who::Tc, 508),
    (Who::Nftables, 60),
    (Who::Nftables, 508),
];

impl Who {
    fn name(self) -> &'static str {
        match self {
            Who::LeastXdp => "least XDP program",
            Who::Xdp => "xdp",
            Who::LeastTc => "least tc program",
            Who::Tc => "tc",
            Who::Nftables => "nftables numgen",
        }
    }
}

fn row_name(who: Who, bytes: usize) -> String {
    format!("{}, {} B", who.name(), bytes + 4)
}

struct Lane {
    who: Who,
    bytes: usize,
    site: Site,
    frames: Frames,
    sluice: Option<Sluice>,
    _links: Vec<OwnedFd>,
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

fn entry(template: &Template, number: usize) -> RingEntry4 {
    let tuple = Tuple::of_session(number);
    template.entry4_between(address4(CLIENTS4, tuple.client), LISTENER, tuple.client_port, PORT)
}

impl Lane {
    fn new(who: Who, bytes: usize) -> Result<Lane> {
        let site = Site::create("fan")?;
        let mut frames = Frames::load()?;
        let mut links =
            vec![frames.attach("frames_sink", &site.wan_host, site.wan.host_ifindex, Place::XdpNative)?];
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
            Who::LeastXdp => links.push(frames.attach("fanout_least", gateway, lan, Place::XdpNative)?),
            Who::LeastTc => links.push(frames.attach("fanout_least_tc", gateway, lan, Place::TcxIngress)?),
            Who::Nftables => drop(site.gateway.run("nft", [numgen()])?),
        }
        frames.aim_entries_sized(&site.lan, FLOWS, bytes, entry)?;
        Ok(Lane { who, bytes, site, frames, sluice, _links: links })
    }

    /// Nanoseconds a packet. Every frame must have arrived behind the gateway, by turns.
    fn measure(&mut self, length: Duration) -> Result<f64> {
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
        Ok(seconds * 1e9 / sent as f64)
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

fn suite(context: &Context) -> Result<SuiteResult> {
    let mut lanes = vec![];
    for (who, bytes) in ROWS {
        let name = row_name(who, bytes);
        lanes.push(Lane::new(who, bytes).with_context(|| format!("cannot set up {name}"))?);
    }
    let length = context.pick(Duration::from_millis(300), Duration::from_millis(700));
    let total = (lanes.len() * context.rounds) as f64;
    let mut done = 0.0;
    let samples = interleave(lanes.len(), context.rounds, |contestant, _| {
        let name = row_name(ROWS[contestant].0, ROWS[contestant].1);
        context.progress.at(done / total, &name);
        done += 1.0;
        lanes[contestant].measure(length).with_context(|| format!("frames through {name}"))
    })?;
    let of = |who: Who, bytes: usize| {
        ROWS.iter().position(|row| *row == (who, bytes)).map(|place| &samples[place])
    };
    let mut result = SuiteResult::new(SUITE.name);
    for (who, peer) in [(Who::Xdp, Who::LeastXdp), (Who::Tc, Who::LeastTc), (Who::Tc, Who::Nftables)] {
        for bytes in [60, 508] {
            let (Some(own), Some(others)) = (of(who, bytes), of(peer, bytes)) else { continue };
            let name = match peer {
                Who::Nftables => format!("{} beside nftables", row_name(who, bytes)),
                _ => row_name(who, bytes),
            };
            // packets a second, of which more is better: a share of the floor's
            let mpps = |ns: &[f64]| ns.iter().map(|ns| 1e3 / ns).collect::<Vec<_>>();
            let figure = Figure::new(name, "Mpps", Better::Higher, mpps(own));
            result.figures.push(figure.against(peer.name(), &mpps(others)));
        }
    }
    Ok(result)
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
