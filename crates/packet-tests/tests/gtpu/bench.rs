//! One gateway a hook, since its programs take longest of all to load; what a test makes is gone when it ends.

use std::cell::RefCell;
use std::collections::BTreeMap;

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use sluice_abi::counters::UnitCounter;
use sluice_abi::stages::Reason;
use sluice_abi::{GtpuFlow, GtpuLine, GtpuRules, gtpu_block_flow};
use sluice_dataplane::{GtpuSession, Peer, Sizes, Tunnel};
use sluice_packet_tests::counters::{self, Values};
use sluice_packet_tests::gateway::{Gateway, Hook};
use sluice_packet_tests::judge::Judge;
use sluice_packet_tests::netns::ifindex;
use sluice_packet_tests::table;
use sluice_packet_tests::tunnel::{Ends, Message, TO_PORT, packet};
use sluice_wire::Mac;
use sluice_wire::text::diff;
use zerocopy::{FromBytes, IntoBytes};

/// By which the gateway knows the session of most tests, and by which the base station does.
pub const TEID: u32 = 0x1001;
pub const PEER_TEID: u32 = 0xdead_beef;
/// From the subscriber's side.
pub const UE: &str = "10.45.0.2";
pub const UE6: &str = "2001:db8:45:2::7";
const PREFIX: &str = "2001:db8:45:2::";

/// What the tests say nothing about: how long packets are, and which path they take.
const SILENT: [&str; 6] =
    ["received_bytes", "redirected_bytes", "sent_bytes", "slow", "sessions", "encapsulated"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Drop,
    Pass,
    Redirect,
    Other(u32),
}

/// What became of a frame.
#[derive(Debug)]
pub struct Outcome {
    pub action: Action,
    pub frame: Vec<u8>,
    /// Counters of all units that changed, and drops by reason.
    pub counted: BTreeMap<&'static str, u64>,
}

pub struct Bench {
    pub gateway: Gateway,
    before: RefCell<Values>,
    /// Frames come with the sum of their bytes and must leave with the right one. The kernel forgets it where a program
    /// changes a frame's end, which a run takes for a wrong one.
    pub summed: bool,
    /// What leaves is for tshark to read, too: whole packets, to the last header.
    pub judged: bool,
    /// Every frame that left.
    sent: Judge,
}

/// The subscriber's families, and whether base stations speak IPv4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Families {
    pub inner4: bool,
    pub outer4: bool,
}

impl Families {
    pub const ALL: [Families; 4] = [
        Families { inner4: true, outer4: true },
        Families { inner4: true, outer4: false },
        Families { inner4: false, outer4: true },
        Families { inner4: false, outer4: false },
    ];
}

impl Bench {
    pub fn new(hook: Hook) -> Bench {
        let sizes = Sizes { sessions4: 256, sessions6: 256, ..Sizes::default() };
        let gateway = Gateway::of("gtpu.world", sizes, hook).expect("a gateway");
        let before = counters::snapshot(&gateway.dataplane, &gateway.plan).expect("counters");
        Bench { gateway, before: RefCell::new(before), summed: true, judged: true, sent: Judge::default() }
    }

    /// As before the first test.
    pub fn begin(&mut self) {
        let gtpu = self.gateway.dataplane.gtpu().expect("room for sessions");
        let numbers: Vec<u32> = gtpu.list(0, usize::MAX).iter().map(|record| record.number).collect();
        self.gateway.dataplane.remove_gtpu(&numbers).expect("sessions end");
        self.gateway.clear_sessions().expect("flows end");
        self.gateway.refill().expect("buckets are filled");
        self.counted();
        self.summed = true;
        self.judged = true;
    }

    /// tshark reads each frame that left: whole, its sums right, and all to the port as messages of version 1.
    pub fn judge(&self) {
        let found = |filter: &str| self.sent.found(filter).expect("tshark reads a capture");
        let none = std::collections::BTreeMap::new();
        assert_eq!(self.sent.wrong().expect("tshark reads a capture"), none, "checksums");
        // what goes to port 53 here is no DNS, and nothing else is to be wrong with it
        assert_eq!(found("_ws.malformed and not udp.port == 53"), none, "dissection");
        // what passes by to the same port of another host need be none
        let messages = "udp.dstport == 2152 and not ip.dst == 10.6.0.100";
        assert_eq!(found(&format!("{messages} and not gtp.flags.version == 1")), none, "messages");
        assert!(
            found("gtp.message == 0xff").len() > 50,
            "{} frames, of {}",
            found("gtp").len(),
            self.sent.len()
        );
    }

    pub fn hook(&self) -> Hook {
        self.gateway.hook
    }

    pub fn mac(&self, unit: &str) -> Mac {
        self.gateway.world.unit_mac(unit).expect("a unit of the world")
    }

    pub fn host(&self, name: &str) -> Mac {
        self.gateway.world.host(name).expect("a host of the world").mac
    }

    /// From the base station to this gateway.
    pub fn n3(&self, v4: bool) -> Ends {
        let (from, to) = if v4 { ("10.3.0.7", "10.3.0.1") } else { ("2001:db8:3::7", "2001:db8:3::1") };
        Ends {
            from: (self.host("gnb"), from.parse().expect("an address"), 30000),
            to: (self.mac("n3.0"), to.parse().expect("an address"), TO_PORT),
        }
    }

    /// From the other user plane function to this gateway, but for the tag.
    pub fn n9(&self, v4: bool) -> Ends {
        let (from, to) = if v4 { ("10.9.0.2", "10.9.0.1") } else { ("2001:db8:9::2", "2001:db8:9::1") };
        Ends {
            from: (self.host("psa"), from.parse().expect("an address"), 30000),
            to: (self.mac("n9.9"), to.parse().expect("an address"), TO_PORT),
        }
    }

    pub fn rules(&self) -> GtpuRules {
        GtpuRules { ifindex: ifindex("mif.0").expect("the mobile unit's device"), ..Default::default() }
    }

    pub fn peer(&self, v4: bool) -> Peer {
        let ends = self.n3(v4);
        Peer { local: ends.to.1, remote: ends.from.1, ifindex: ifindex("n3").expect("a device") }
    }

    pub fn session(&self, outer4: bool, rules: GtpuRules) -> GtpuSession {
        GtpuSession {
            teid: TEID,
            address: Some(UE.parse().expect("an address")),
            prefix: Some(PREFIX.parse().expect("a prefix")),
            tunnel: Tunnel { peer: self.peer(outer4), teid: PEER_TEID },
            rules,
            quota: [None; 2],
        }
    }

    pub fn add(&self, session: &GtpuSession) -> u32 {
        self.gateway.dataplane.gtpu().expect("room").add(session).expect("a session")
    }

    /// The usual session, with these rules.
    pub fn with(&self, outer4: bool, rules: GtpuRules) -> u32 {
        self.add(&self.session(outer4, rules))
    }

    /// Bytes and packets that passed, uplink first.
    pub fn usage(&self, number: u32) -> [(u64, u64); 2] {
        let usage = self.gateway.dataplane.gtpu().expect("room").get(number).expect("a session").usage;
        [0, 1].map(|direction| (usage.bytes[direction], usage.packets[direction]))
    }

    /// The line of a session by its TEID, which has its number.
    pub fn line(&self, number: u32) -> GtpuLine {
        let bytes = self.map("gtpu_uplinks").lookup(&number.to_ne_bytes(), MapFlags::ANY).expect("a map");
        GtpuLine::read_from_bytes(&bytes.expect("an entry")).expect("a line")
    }

    pub fn set_line(&self, number: u32, line: &GtpuLine) {
        self.map("gtpu_uplinks")
            .update(&number.to_ne_bytes(), line.as_bytes(), MapFlags::ANY)
            .expect("a map");
    }

    /// State of a session's flow, in the place that bpf/abi/gtpu.h says.
    pub fn flow(&self, number: u32, flow: u32) -> GtpuFlow {
        let key = self.flow_entry(number, flow).to_ne_bytes();
        let bytes = self.map("gtpu_flows").lookup(&key, MapFlags::ANY).expect("a map");
        GtpuFlow::read_from_bytes(&bytes.expect("an entry")).expect("a flow")
    }

    pub fn set_flow(&self, number: u32, flow: u32, state: &GtpuFlow) {
        let key = self.flow_entry(number, flow).to_ne_bytes();
        self.map("gtpu_flows").update(&key, state.as_bytes(), MapFlags::ANY).expect("a map");
    }

    fn flow_entry(&self, number: u32, flow: u32) -> u32 {
        let [low, middle, high] = self.line(number).flows;
        gtpu_block_flow(u32::from_le_bytes([low, middle, high, 0]), flow)
    }

    fn map(&self, name: &str) -> MapHandle {
        MapHandle::from_pinned_path(self.gateway.dataplane.pin().join(name)).expect("a pinned map")
    }

    /// What was counted since the last call. The first equation holds.
    pub fn counted(&self) -> BTreeMap<&'static str, u64> {
        let now = counters::snapshot(&self.gateway.dataplane, &self.gateway.plan).expect("counters");
        let delta = counters::delta(&self.before.borrow(), &now);
        counters::first_equation(&delta).expect("the first equation");
        *self.before.borrow_mut() = now;
        let names = UnitCounter::ALL.iter().map(|c| c.name).chain(Reason::ALL.into_iter().map(Reason::name));
        let totals = names.map(|name| (name, counters::total(&delta, name)));
        totals.filter(|(name, total)| *total != 0 && !SILENT.contains(name)).collect()
    }

    pub fn send(&mut self, device: &str, frame: &[u8]) -> Outcome {
        let seen = if self.summed {
            table::prog_run_summed(&mut self.gateway, device, frame)
        } else {
            table::prog_run(&mut self.gateway, device, frame, false)
        };
        let outcome = self.outcome(seen.unwrap_or_else(|error| panic!("{error:#}")));
        if outcome.action == Action::Redirect && self.judged {
            self.sent.add(format!("frame {} that left", self.sent.len()), &outcome.frame);
        }
        outcome
    }

    /// The same of a frame that may end anywhere, and is for no other judge; None of one that the kernel does not run a program on.
    pub fn try_send(&mut self, device: &str, frame: &[u8]) -> Option<Outcome> {
        match table::prog_run(&mut self.gateway, device, frame, false) {
            Ok(seen) => Some(self.outcome(seen)),
            // tc prog-run refuses what ends inside the IP header
            Err(_) if self.hook() == Hook::Tc && frame.len() < 14 + 40 => None,
            Err(error) => panic!("{error:#}"),
        }
    }

    fn outcome(&self, seen: table::Seen) -> Outcome {
        let action = match (self.hook(), seen.retval) {
            (Hook::Tc, 2) | (Hook::Xdp, 1) => Action::Drop,
            (Hook::Tc, u32::MAX) | (Hook::Xdp, 2) => Action::Pass,
            (Hook::Tc, 7) | (Hook::Xdp, 4) => Action::Redirect,
            (_, other) => Action::Other(other),
        };
        Outcome { action, frame: seen.frame, counted: self.counted() }
    }

    /// A message from the base station.
    pub fn up(&mut self, outer4: bool, message: &Message) -> Outcome {
        let frame = self.n3(outer4).frame(&message.bytes());
        self.send("n3", &frame)
    }

    /// A packet of the subscriber's in its tunnel.
    pub fn up_packet(&mut self, outer4: bool, inner: &[u8]) -> Outcome {
        self.up(outer4, &Message::data(TEID, inner))
    }

    /// A packet from the packet network.
    pub fn down(&mut self, inner: &[u8]) -> Outcome {
        let frame = self.frame_of(inner, self.mac("n6.0"), self.host("server"));
        self.send("n6", &frame)
    }

    pub fn frame_of(&self, inner: &[u8], to: Mac, from: Mac) -> Vec<u8> {
        let kind: [u8; 2] = if inner[0] >> 4 == 4 { [0x08, 0] } else { [0x86, 0xdd] };
        [&to.0[..], &from.0, &kind, inner].concat()
    }

    /// As it leaves towards the packet network.
    pub fn out_of_n6(&self, inner: &[u8]) -> Vec<u8> {
        self.frame_of(inner, self.host("server"), self.mac("n6.0"))
    }
}

/// A datagram between the subscriber and the server.
pub fn datagram(inner4: bool, down: bool, hops: u8, payload: usize) -> Vec<u8> {
    let (ue, server) = if inner4 { (UE, "10.6.0.100") } else { (UE6, "2001:db8:6::100") };
    let (from, to) = if down { (server, ue) } else { (ue, server) };
    let (sport, dport) = if down { (53, 1000) } else { (1000, 53) };
    let ip = if inner4 {
        format!("ip(src={from}, dst={to}, ttl={hops}, id=7")
    } else {
        format!("ip6(src={from}, dst={to}, hop={hops}")
    };
    packet(&format!("{ip})/udp(sport={sport}, dport={dport})/fill(n={payload})"))
}

impl Outcome {
    pub fn counts(&self, what: &str, expected: &[(&'static str, u64)]) {
        let expected: BTreeMap<_, _> = expected.iter().copied().collect();
        assert_eq!(self.counted, expected, "{what}");
    }

    pub fn leaves(&self, what: &str, expected: &[u8]) {
        assert_eq!(self.action, Action::Redirect, "{what}: {:?}", self.counted);
        if let Some(text) = diff(expected, &self.frame) {
            panic!("{what}\n{text}");
        }
    }

    pub fn drops(&self, what: &str, reason: &'static str) {
        self.counts(what, &[("received", 1), (reason, 1)]);
        assert_eq!(self.action, Action::Drop, "{what}");
    }

    /// A packet out of a tunnel that is forwarded.
    pub fn decapsulated(&self, what: &str, expected: &[u8]) {
        self.counts(what, &[("received", 2), ("decapsulated", 1), ("redirected", 1)]);
        self.leaves(what, expected);
    }

    /// A packet that was put into a tunnel: its source port is of its flow, and is returned.
    pub fn encapsulated(&self, what: &str, ends: Ends, message: &Message, class: u8) -> u16 {
        self.counts(what, &[("received", 1), ("redirected", 1)]);
        let at = if ends.from.1.is_ipv4() { 34 } else { 54 };
        let sport = u16::from_be_bytes([self.frame[at], self.frame[at + 1]]);
        assert!(sport >= 49152, "{what}: source port {sport}");
        let (from, to) = (ends.from, ends.to);
        let ends = Ends { from: (from.0, from.1, sport), to: (to.0, to.1, TO_PORT) };
        self.leaves(what, &ends.tunnelled(&message.bytes(), class));
        sport
    }
}
