//! A gateway between a base station and a data network: its configurations, and the sessions of its subscribers.

use std::net::Ipv4Addr;
use std::ops::RangeInclusive;

use anyhow::{Context as _, Result, anyhow};
use sluice_dataplane::abi::{
    FlowMatch, GTPU_CONTAINER, GtpuFilters, GtpuRules, cost_of_rate, tolerance_of_burst,
};
use sluice_dataplane::{GtpuRecord, GtpuSession, Peer, Tunnel};

use crate::generator::packets::{SERVER_PORT_BITS, SERVER_PORTS};
use crate::generator::site::{LAN, MOBILE, Site, WAN};
use crate::generator::tunnels::{FIRST_SUBSCRIBER, FIRST_TEID, GATEWAY, QFI, STATION, TEID_THERE, Way};
use crate::testbed::gateway::Sluice;
use crate::testbed::ruleset::{Rules, Then};

/// Address of the mobile interface, and all subscribers.
const SUBSCRIBERS: &str = "10.79.255.254/12";
/// With more sessions there is no room for flows, which takes 512 bytes a session.
pub const MOST_WITH_FLOWS: u32 = 10_000;
/// Of one set of rules.
pub const FLOWS: u8 = 16;
/// Policies of [`Surroundings::Full`].
const POLICIES: usize = 1000;

/// What subscribers' packets meet besides the rules of their sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Surroundings {
    /// Zones, and one policy that permits everything.
    Bare,
    /// The same, and their flows are spread to all CPUs.
    Spread,
    /// A thousand policies, and source NAT to the address of the interface.
    Full,
}

/// Gives a site its mobile interface and takes the subscribers from the lan host, where they are for others; who is no
/// subscriber is there.
pub fn prepare(site: &mut Site) -> Result<()> {
    site.add_mobile(SUBSCRIBERS)?;
    site.gateway.ip_batch("route del 10.64.0.0/16\nroute add 10.96.0.0/16 via 192.0.2.100\n")?;
    Ok(())
}

/// Everything on native XDP.
pub fn configuration(sessions: u32, surroundings: Surroundings) -> String {
    let flows = if sessions > MOST_WITH_FLOWS { "" } else { "rules flows { flow all { precedence 1; } }" };
    let more = match surroundings {
        Surroundings::Bare => permitting("subscribers"),
        Surroundings::Spread => {
            permitting("subscribers") + "services { gtp-u { spread { queue-size 8192; } } }\n"
        }
        Surroundings::Full => {
            Rules::new(POLICIES, Then::Permit).between("subscribers", "internet")
                + "security { nat { source { rule-set out { from zone subscribers; to zone internet;
                     rule all { match { source-address 0.0.0.0/0; } then { source-nat interface; } } } } } }\n"
        }
    };
    let past = permitting("ran");
    format!(
        "interfaces {{
             {LAN} {{ mode xdp; unit 0 {{ family inet {{ address 192.0.2.1/24; }} }} }}
             {WAN} {{ mode xdp; unit 0 {{ family inet {{ address 198.51.100.1/24; }} }} }}
             mif {{ unit 0 {{ family inet {{ address {SUBSCRIBERS}; }} }} }}
         }}
         security {{
             flow {{ max-unanswered 100; }}
             zones {{
                 security-zone ran {{ interfaces {{ {LAN}.0; }} }}
                 security-zone subscribers {{ interfaces {{ {MOBILE}; }} }}
                 security-zone internet {{ interfaces {{ {WAN}.0; }} }}
             }}
         }}
         services {{ gtp-u {{
             sessions-maximum {sessions};
             interface {LAN}.0 {{ role n3; }}
             pool all {{ prefix 10.64.0.0/12; mobile-interface {MOBILE}; }}
             {flows}
         }} }}\n{past}{more}"
    )
}

fn permitting(zone: &str) -> String {
    format!(
        "security {{ policies {{ from-zone {zone} to-zone internet {{ policy all {{
             match {{ source-address any; destination-address any; application any; }} then {{ permit; }} }} }} }} }}\n"
    )
}

/// Sessions of subscribers in a row, from [`FIRST_TEID`] and [`FIRST_SUBSCRIBER`] on.
pub struct Subscribers {
    numbers: Vec<u32>,
    mobile: u32,
    peer: Peer,
}

impl Subscribers {
    /// Sessions whose rules do no more than to name the QoS flow.
    pub fn add(sluice: &Sluice, site: &Site, sessions: u32) -> Result<Subscribers> {
        let mobile = site.mobile.first().context("the site has no mobile interface")?.1;
        let peer = Peer {
            local: Ipv4Addr::from(GATEWAY).into(),
            remote: Ipv4Addr::from(STATION).into(),
            ifindex: site.lan.ifindex,
        };
        let mut subscribers = Subscribers { numbers: vec![], mobile, peer };
        let (gtpu, rules) = (sluice.dataplane.gtpu()?, subscribers.plain());
        let one = |n: u32| {
            gtpu.add(&GtpuSession {
                teid: FIRST_TEID + n,
                address: Some((FIRST_SUBSCRIBER + n).into()),
                prefix: None,
                tunnel: subscribers.tunnel(n),
                rules,
                quota: [None; 2],
            })
        };
        subscribers.numbers = (0..sessions).map(one).collect::<Result<_, _>>()?;
        Ok(subscribers)
    }

    fn tunnel(&self, n: u32) -> Tunnel {
        Tunnel { peer: self.peer, teid: TEID_THERE + n }
    }

    /// What sessions have to begin with.
    pub fn plain(&self) -> GtpuRules {
        GtpuRules { ifindex: self.mobile, flags: GTPU_CONTAINER as u16, qfi: QFI, ..Default::default() }
    }

    /// With a maximum bit rate that no packet exceeds.
    pub fn policed(&self) -> GtpuRules {
        let cost = cost_of_rate(40_000_000_000);
        let burst = tolerance_of_burst(1 << 20, cost);
        GtpuRules { cost: [cost; 2], tolerance: [burst; 2], ..self.plain() }
    }

    /// These rules with [`FLOWS`] flows that have the same, of which every packet to these ports belongs to one.
    pub fn with_flows(
        &self,
        sluice: &Sluice,
        rules: GtpuRules,
        ports: RangeInclusive<u16>,
    ) -> Result<GtpuRules> {
        let filters = sluice.dataplane.gtpu()?.keep_filters([&*filters(rules, &ports)?])?;
        Ok(GtpuRules { filters: filters[0], ..rules })
    }

    /// Every session has these rules and this quota in both directions from now on.
    pub fn give(&self, sluice: &Sluice, rules: &GtpuRules, quota: Option<u64>) -> Result<()> {
        let gtpu = sluice.dataplane.gtpu()?;
        for (number, n) in self.numbers.iter().zip(0..) {
            gtpu.change(*number, &self.tunnel(n), rules, [quota; 2])?;
        }
        Ok(())
    }

    /// All that rules can ask for at once: a maximum bit rate of the session and of each flow, flows, and a quota.
    pub fn give_everything(&self, sluice: &Sluice) -> Result<()> {
        let last = SERVER_PORTS + (1 << SERVER_PORT_BITS) - 1;
        let rules = self.with_flows(sluice, self.policed(), SERVER_PORTS..=last)?;
        self.give(sluice, &rules, Some(1 << 60))
    }

    /// What has passed.
    pub fn records(&self, sluice: &Sluice) -> Result<Vec<GtpuRecord>> {
        Ok(sluice.dataplane.gtpu()?.list(0, self.numbers.len()))
    }

    /// Packets that all sessions have counted.
    pub fn counted(&self, sluice: &Sluice, way: Way) -> Result<u64> {
        Ok(self.records(sluice)?.iter().map(|record| record.usage.packets[way as usize]).sum())
    }
}

/// Flows of a sixteenth of the servers each, with as many different ranges of ports.
fn filters(rules: GtpuRules, ports: &RangeInclusive<u16>) -> Result<Box<GtpuFilters>> {
    let flow = |n: u8| {
        let ends = [0, 255].map(|host| Ipv4Addr::new(10, 128, n, host).into());
        let asked = FlowMatch {
            protocol: Some(17),
            remote: vec![(ends[0], ends[1])],
            remote_ports: vec![(*ports.start(), ports.end() + u16::from(n))],
            ..FlowMatch::default()
        };
        (asked, rules)
    };
    let flows: Vec<_> = (0..FLOWS).map(flow).collect();
    GtpuFilters::new(&flows).map_err(|error| anyhow!("no room for so many {}", error.what))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::time::Duration;

    use super::*;
    use crate::generator::endpoints::Endpoints;
    use crate::generator::layouts::{FRAME4_LEN, GTPU_OUTER};
    use crate::testbed::forwarder::{FLOWS as SUBSCRIBED, Forwarder};
    use crate::testbed::forwarding::forwarded;
    use crate::testbed::trial::{Device, Sink, Stand};

    const N3_FRAME: usize = 1486;

    #[test]
    fn the_texts_compile() {
        for (surroundings, policies) in
            [(Surroundings::Bare, 1), (Surroundings::Spread, 1), (Surroundings::Full, POLICIES)]
        {
            let text = configuration(1000, surroundings);
            let config =
                sluice_language::compile(&sluice_language::parse(&text, "gateway").unwrap()).unwrap();
            let pairs: Vec<usize> = config.policies.iter().map(|pair| pair.policies.len()).collect();
            assert!(pairs.contains(&policies), "{pairs:?}");
        }
    }

    /// A gateway that has forgotten nothing at full speed, nor lost anything where it has no queue, and the head of a frame
    /// of each subscriber.
    fn passed(forwarder: Forwarder) -> (Stand, Vec<Vec<u8>>) {
        let mut stand = Stand::new(Device::Through(forwarder, Sink::Xdp), N3_FRAME).unwrap();
        let outcome = stand.trial_counted(Duration::from_millis(200)).unwrap();
        let lost = outcome.dropped > 0 && stand.device.closed();
        assert!(outcome.received > SUBSCRIBED as u64 && !lost, "{outcome:?}");
        let mut kept = stand.frames.keep(&stand.lane.site.lan_host, SUBSCRIBED, N3_FRAME).unwrap();
        assert_eq!(kept.len(), SUBSCRIBED);
        for frame in &mut kept {
            let outer = if forwarder == Forwarder::Redirect { 0 } else { GTPU_OUTER as usize };
            assert_eq!(frame.len(), N3_FRAME - outer);
            frame.truncate(FRAME4_LEN as usize);
        }
        (stand, kept)
    }

    #[test]
    fn what_comes_in_tunnels_leaves_without_byte_by_byte() {
        let (stand, kept) = passed(Forwarder::Gtpu);
        let inner = stand.frames.frames(SUBSCRIBED);
        let wanted: HashSet<Vec<u8>> =
            inner.iter().map(|frame| forwarded(frame, &stand.lane.site.wan, Endpoints::of(frame))).collect();
        assert_eq!(wanted.len(), SUBSCRIBED, "each is another");
        assert_eq!(kept.into_iter().collect::<HashSet<_>>(), wanted);
    }

    /// What was lost between CPUs without a count would be missing.
    #[test]
    fn every_frame_leaves_where_flows_are_spread() {
        let (stand, kept) = passed(Forwarder::GtpuSpread);
        assert_eq!(kept.iter().collect::<HashSet<_>>().len(), SUBSCRIBED, "each is another");
        let cpus = stand.lane.sluice.as_ref().unwrap().dataplane.spread().unwrap();
        assert!(cpus.iter().any(|cpu| cpu.packets > SUBSCRIBED as u64 / 4), "{cpus:?}");
    }

    #[test]
    fn a_redirected_frame_stays_in_its_tunnel() {
        let (stand, kept) = passed(Forwarder::Redirect);
        let teids: HashSet<&[u8]> = kept.iter().map(|frame| &frame[46..50]).collect();
        assert_eq!(teids.len(), SUBSCRIBED, "a tunnel each");
        assert!(kept.iter().all(|frame| frame[..6] == stand.lane.site.wan.host_mac));
    }

    #[test]
    fn the_full_user_plane_translates_and_counts_by_flow() {
        let (stand, kept) = passed(Forwarder::UserPlane);
        assert!(kept.iter().all(|frame| frame[26..30] == [198, 51, 100, 1] && frame[22] == 63));
        let ports: HashSet<&[u8]> = kept.iter().map(|frame| &frame[30..38]).collect();
        assert!(ports.len() > 1000, "destinations differ");
        let sluice = stand.lane.sluice.as_ref().unwrap();
        let records = sluice.dataplane.gtpu().unwrap().list(0, SUBSCRIBED);
        assert!(records.iter().all(|record| record.session.quota == [Some(1 << 60); 2]));
        let met: HashSet<usize> = records
            .iter()
            .filter_map(|record| record.flows.iter().position(|flow| flow.bytes != [0; 2]))
            .collect();
        assert_eq!((records.len(), met.len()), (SUBSCRIBED, usize::from(FLOWS)));
    }
}
