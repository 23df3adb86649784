//! Messages and packets with every header broken, held against the plain model: lengths that lie, chains of any extension headers,
//! ends inside each header, other versions, options, fragments; both directions.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sluice_abi::{
    GTPU_CONTAINER, GTPU_DOWNLINK_CLOSED, GTPU_DOWNLINK_DROP, GTPU_MARK_DOWNLINK, GTPU_MARK_UPLINK,
    GTPU_REFLECTIVE, GTPU_TO_PEER, GTPU_UPLINK_CLOSED, GTPU_UPLINK_DROP, GtpuRules,
};
use sluice_dataplane::{GtpuSession, Tunnel};
use sluice_packet_tests::gateway::{Gateway, Hook};
use sluice_packet_tests::model::{Action as Then, Model, Route, Rule, Service, Target, Unit, Verdict};
use sluice_packet_tests::random::{self, Random};
use sluice_packet_tests::tunnel::{Ends, Message, TO_PORT};
use sluice_packet_tests::tunnel_model::{Answer, Fate, Gate, Subscriber, UserPlane};
use sluice_packet_tests::{extent, forward};
use sluice_wire::checksum::Pseudo;
use sluice_wire::text::{diff, dissect};
use sluice_wire::{ethertype, icmpv4, ipv4, ipv6, protocol, udp};

use super::bench::{Action, Bench, Outcome};

/// Packets from one beginning.
const EACH: u64 = 500;
/// In `make test`, on a hook.
const PACKETS: u64 = 3_000;
const CAPACITY: usize = 256;

/// Sessions of the bench, by TEID: the first is as the tables' own.
fn subscribers() -> BTreeMap<u32, Subscriber> {
    let of = |number: u8, outer4: bool| Subscriber {
        address: Some([10, 45, 0, number].into()),
        prefix: Some(format!("2001:db8:45:{number:x}::").parse().expect("a prefix")),
        peer_teid: 0xdead_0000 | u32::from(number),
        outer4,
        ..Subscriber::default()
    };
    let marked = Subscriber { dscp: [Some(10), Some(46)], ..of(4, true) };
    let with_quota = Subscriber { quota: [Some(5_000), Some(4_000)], ..of(7, false) };
    let all = [
        of(2, true),
        Subscriber { qfi: Some(9), reflective: true, ..of(3, false) },
        Subscriber { qfi: Some(63), ..marked },
        Subscriber { gates: [Gate::Closed, Gate::Discarding], ..of(5, true) },
        Subscriber { gates: [Gate::Discarding, Gate::Closed], ..of(6, true) },
        with_quota,
        Subscriber { relay: true, ..of(8, false) },
        Subscriber { relay: true, dscp: [Some(12), None], ..of(9, true) },
    ];
    (0x1001..).zip(all).collect()
}

fn rules_of(bench: &Bench, session: &Subscriber) -> GtpuRules {
    let flag = |is: bool, flag: u32| if is { flag } else { 0 };
    let [up, down] = session.gates;
    let flags = flag(up == Gate::Closed, GTPU_UPLINK_CLOSED)
        | flag(up == Gate::Discarding, GTPU_UPLINK_DROP)
        | flag(down == Gate::Closed, GTPU_DOWNLINK_CLOSED)
        | flag(down == Gate::Discarding, GTPU_DOWNLINK_DROP)
        | flag(session.qfi.is_some(), GTPU_CONTAINER)
        | flag(session.reflective, GTPU_REFLECTIVE)
        | flag(session.dscp[0].is_some(), GTPU_MARK_UPLINK)
        | flag(session.dscp[1].is_some(), GTPU_MARK_DOWNLINK)
        | flag(session.relay, GTPU_TO_PEER);
    let [dscp_uplink, dscp_downlink] = session.dscp.map(Option::unwrap_or_default);
    let qfi = session.qfi.unwrap_or(0);
    GtpuRules { flags: flags as u16, qfi, dscp_uplink, dscp_downlink, ..bench.rules() }
}

/// The same sessions in the data plane; their numbers by TEID.
fn fill(bench: &Bench, plane: &UserPlane) -> BTreeMap<u32, u32> {
    // on tc a run shows that a packet goes on as if it had not been copied; on XDP it goes another way (copies.rs)
    let gtpu = bench.gateway.dataplane.gtpu().expect("room");
    let copies = (bench.hook() == Hook::Tc).then(|| gtpu.keep_copies([bench.peer(true)]).expect("room")[0]);
    let add = |(teid, own): (&u32, &Subscriber)| {
        let session = GtpuSession {
            teid: *teid,
            address: own.address,
            prefix: own.prefix,
            tunnel: Tunnel { peer: bench.peer(own.outer4), teid: own.peer_teid },
            rules: GtpuRules {
                copy_peer: [copies.filter(|_| !own.relay).unwrap_or(0); 2],
                ..rules_of(bench, own)
            },
            quota: own.quota,
        };
        (*teid, bench.add(&session))
    };
    plane.sessions.iter().map(add).collect()
}

/// What `gtpu.world` and its configuration say.
pub fn plane(gateway: &Gateway, sessions: BTreeMap<u32, Subscriber>) -> UserPlane {
    let mut model = Model::new(CAPACITY);
    let mac = sluice_wire::Mac(gateway.plan.environment.netdevs["mif.0"].mac);
    let units = [
        ("n3.0", "n3", "ran", 1500, "10.3.0.1/24", "2001:db8:3::1/64"),
        ("n6.0", "n6", "internet", 1500, "10.6.0.1/24", "2001:db8:6::1/64"),
        ("n9.9", "n9", "ran", 1500, "10.9.0.1/24", "2001:db8:9::1/64"),
        ("mif.0", "mif.0", "subscribers", 1400, "10.45.0.1/16", "2001:db8:45::1/64"),
    ];
    let prefix = |text: &str| -> (IpAddr, u8) {
        let (address, length) = text.split_once('/').expect("a prefix");
        (address.parse().expect("an address"), length.parse().expect("a length"))
    };
    for (name, device, zone, mtu, v4, v6) in units {
        let ping = |protocol, kind| Service {
            protocol,
            sport: (0, u16::MAX),
            dport: (0, u16::MAX),
            icmp_type: Some(kind),
        };
        let is_mobile = name == "mif.0";
        let tags = if name == "n9.9" { vec![(ethertype::VLAN, 9)] } else { vec![] };
        let inbound = if is_mobile { vec![ping(1, 8), ping(58, 128)] } else { vec![] };
        let addresses = vec![prefix(v4), prefix(v6)];
        for own in &addresses {
            model.routes.push(Route { prefix: *own, target: Target::Link(name.to_owned()) });
            if name.starts_with("n3") || name.starts_with("n9") {
                model.tunnels.push((name.to_owned(), own.0));
            }
        }
        model.units.push(Unit {
            name: name.to_owned(),
            device: device.to_owned(),
            tags,
            mac: if is_mobile { mac } else { gateway.world.unit_mac(name).expect("a unit of the world") },
            zone: zone.to_owned(),
            mtu,
            screens: if is_mobile { vec!["syn_fin"] } else { vec![] },
            alarm_without_drop: false,
            addresses,
            inbound,
        });
    }
    let pool = prefix("2001:db8:45::/48");
    model.routes.push(Route { prefix: pool, target: Target::Link("mif.0".to_owned()) });
    model.neighbours = gateway.world.hosts.iter().flat_map(|host| host.addresses.clone()).collect();
    let any = Rule { pair: None, source: None, destination: None, application: None, action: Then::Permit };
    model.rules.push(any);
    UserPlane { model, mac, sessions, copied: vec![] }
}

/// A packet of somebody's: sound, or with something wrong.
fn packet(random: &mut Random, source: IpAddr, destination: IpAddr) -> Vec<u8> {
    let v4 = source.is_ipv4();
    let pseudo = match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => Pseudo::V4(source, destination),
        (IpAddr::V6(source), IpAddr::V6(destination)) => Pseudo::V6(source, destination),
        _ => Pseudo::None,
    };
    let length = *random.pick(&[0, 1, 4, 5, 9, 72, 300, 1200, 1351, 1352, 1371, 1372, 1373, 1400]);
    let payload = vec![0x61; length];
    let ports = [53, 80, 1000, 2152];
    let udp = |random: &mut Random| udp::Builder {
        source_port: *random.pick(&ports),
        destination_port: *random.pick(&ports),
        ..Default::default()
    };
    let (protocol, segment) = match random.below(8) {
        0 if v4 => (1, icmpv4::Builder::echo_request(7, 1).build(&payload)),
        0 => (58, sluice_wire::icmpv6::Builder::echo_request(7, 1).build(&payload, pseudo)),
        1 => (50, payload),
        2 => {
            let syn = sluice_wire::tcp::Builder {
                source_port: *random.pick(&ports),
                destination_port: *random.pick(&ports),
                flags: sluice_wire::tcp::SYN,
                ..Default::default()
            };
            (6, syn.build(&payload, pseudo))
        }
        _ => (17, udp(random).build(&payload, pseudo)),
    };
    let hops = *random.pick(&[64, 64, 64, 64, 255, 2, 1, 0]);
    let class = *random.pick(&[0, 0, 0xb8, 0x2a, 3]);
    let lie = random.percent(12);
    let real = segment.len() as i32;
    let lied = |random: &mut Random, header: i32| {
        let wrong = [0, 1, 4, header - 1, header + real - 1, header + real + 1, 65535];
        Some(*random.pick(&wrong) as u16)
    };
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => ipv4::Builder {
            source,
            destination,
            protocol,
            ttl: hops,
            tos: class,
            options: if random.percent(8) { vec![0x94, 4, 0, 0] } else { vec![] },
            id: random.number() as u16,
            flags_offset: if random.percent(6) { *random.pick(&[0x2000, 0x2001, 3, 185]) } else { 0 },
            version: (lie && random.percent(25)).then(|| random.below(16) as u8),
            ihl: (lie && random.percent(25)).then(|| random.below(16) as u8),
            length: (lie && random.percent(40)).then(|| lied(random, 20)).flatten(),
            checksum: (lie && random.percent(20)).then_some(0xbad),
        }
        .build(&segment),
        (IpAddr::V6(source), IpAddr::V6(destination)) => ipv6::Builder {
            source,
            destination,
            next_header: protocol,
            hop_limit: hops,
            traffic_class: class,
            version: (lie && random.percent(30)).then(|| random.below(16) as u8),
            length: (lie && random.percent(50)).then(|| lied(random, 0)).flatten(),
            ..Default::default()
        }
        .build(&segment),
        _ => vec![],
    }
}

fn subscriber_address(random: &mut Random, v4: bool) -> IpAddr {
    // one more than there are
    let number = 2 + random.below(9) as u16;
    if v4 {
        Ipv4Addr::new(10, 45, 0, number as u8).into()
    } else {
        Ipv6Addr::new(0x2001, 0xdb8, 0x45, number, 0, 0, 0, 7).into()
    }
}

fn elsewhere(random: &mut Random, v4: bool) -> IpAddr {
    let both = [
        ("10.6.0.100", "2001:db8:6::100"),
        ("10.6.0.100", "2001:db8:6::100"),
        ("10.6.0.100", "2001:db8:6::100"),
        ("10.3.0.7", "2001:db8:3::7"),
        ("10.45.0.1", "2001:db8:45::1"),
        ("192.0.2.1", "2001:db8:99::1"),
        ("10.3.0.1", "2001:db8:3::1"),
    ];
    let (own4, own6) = random.pick(&both);
    if v4 { own4 } else { own6 }.parse().expect("an address")
}

fn inner(random: &mut Random, teid: u32) -> Vec<u8> {
    if random.percent(2) {
        return vec![0x45; random.below(21)];
    }
    let v4 = random.percent(50);
    let own: IpAddr = if v4 {
        Ipv4Addr::new(10, 45, 0, (teid & 0xff) as u8 + 1).into()
    } else {
        Ipv6Addr::new(0x2001, 0xdb8, 0x45, (teid & 0xff) as u16 + 1, 0, 0, 0, 7).into()
    };
    let source = if random.percent(90) { own } else { subscriber_address(random, v4) };
    let destination = if random.percent(12) { subscriber_address(random, v4) } else { elsewhere(random, v4) };
    let mut bytes = packet(random, source, destination);
    if random.percent(6) {
        bytes.extend(vec![0xaa; 1 + random.below(9)]);
    }
    if random.percent(5) {
        bytes.truncate(random.below(bytes.len() + 1));
    }
    bytes
}

const TYPES: [u8; 16] =
    [0x85, 0x85, 0x85, 0x85, 0x20, 0x40, 0x03, 0x3f, 0x7f, 0x81, 0x82, 0x84, 0xc0, 0xc1, 0xff, 0xbf];

fn chain(random: &mut Random, message: Message) -> Message {
    let count = *random.pick(&[1, 1, 1, 1, 2, 3, 8, 9]);
    let contents: Vec<(u8, Vec<u8>)> = (0..count)
        .map(|_| {
            let kind = if count > 3 { *random.pick(&TYPES[..9]) } else { *random.pick(&TYPES) };
            let octets = *random.pick(&[2, 2, 2, 2, 6, 10, 254]);
            (kind, (0..octets).map(|_| random.number() as u8).collect())
        })
        .collect();
    let borrowed: Vec<(u8, &[u8])> = contents.iter().map(|(kind, content)| (*kind, &content[..])).collect();
    let mut message = message.with(&borrowed);
    if random.percent(10) {
        let at = random.below(message.extensions.len());
        message.extensions[at] = *random.pick(&[0, 1, 2, 63, 64, 255]);
    }
    message
}

/// Whole headers, each of which may lie.
fn message(random: &mut Random) -> Message {
    let teid = if random.percent(90) { 0x1001 + random.below(8) as u32 } else { random.below(3) as u32 };
    let kind = if random.percent(75) {
        255
    } else {
        *random.pick(&[254, 254, 1, 1, 2, 3, 26, 26, 31, 253, 0, 4, 27, 252])
    };
    let body = match kind {
        255 => inner(random, teid),
        26 => {
            let mut elements = vec![16, 0, 0, 0, 1, 133, 0, *random.pick(&[4, 4, 16, 5, 0])];
            elements.extend(vec![7; *random.pick(&[4, 16, 3, 20])]);
            elements
        }
        _ => vec![14; *random.pick(&[0, 0, 2, 7])],
    };
    let mut message = Message { kind, ..Message::data(teid, &body) };
    if random.percent(40) {
        message.flags |= random.below(8) as u8;
        message.options = [1, 2, 3, if random.percent(70) { 0 } else { *random.pick(&TYPES) }];
    }
    if random.percent(35) {
        message = chain(random, message);
    }
    if random.percent(4) {
        message.flags = random.number() as u8;
    }
    if random.percent(8) {
        let real = message.bytes().len() as i32 - 8;
        message.length = Some(*random.pick(&[0, 1, 3, 4, 5, 8, real - 1, real + 1, 65535]) as u16);
    }
    message
}

fn outer(random: &mut Random, bench: &Bench, message: &Message) -> Vec<u8> {
    let v4 = random.percent(50);
    let mut ends = bench.n3(v4);
    ends.from.2 = *random.pick(&[2152, 30000, 0, 53]);
    if random.percent(3) {
        ends.to.2 = *random.pick(&[2151, 2153, 53]);
    }
    let bytes = message.bytes();
    let id = random.number() as u16;
    let pieces = [format!(", mf, id={id}"), format!(", id={id}, frag=9")];
    let class = format!("=0x{:02x}", *random.pick(&[0xb8, 0xb9, 0xba, 0xbb, 3]));
    let [of_tos, of_class] = ["tos", "tc"].map(|name| format!(", {name}{class}"));
    let of4 = ["", "", "", "", "", "", ", ttl=1", &of_tos, ", opts=0x94040000", &pieces[0], &pieces[1]];
    let of6 = ["", "", "", ", hop=1", &of_class];
    let fields = if v4 { random.pick(&of4) } else { random.pick(&of6) };
    let real = bytes.len() as i32 + 8;
    let lied = *random.pick(&[0, 7, 8, 15, 16, real - 1, real + 1, 65535]) as u16;
    let length = format!(", len={lied}");
    let udp = *random.pick(&["", "", "", "", "", ", csum=0", ", csum=0xbad", &length]);
    let mut frame = ends.frame_with(&bytes, fields, udp);
    if !v4 && random.percent(12) {
        let kind = *random.pick(&[0, 60, protocol::FRAGMENT]);
        let length = u16::from_be_bytes([frame[18], frame[19]]) + 8;
        frame[18..20].copy_from_slice(&length.to_be_bytes());
        let next = std::mem::replace(&mut frame[20], kind);
        // padding to eight octets; of the last kind, a whole packet (RFC 6946)
        let header = if kind == protocol::FRAGMENT {
            [next, 0, 0, 0, 0, 0, 0, 9]
        } else {
            [next, 0, 1, 4, 0, 0, 0, 0]
        };
        frame.splice(54..54, header).for_each(drop);
    }
    frame
}

/// A frame and the device it arrives on.
fn frame(random: &mut Random, bench: &Bench) -> (&'static str, Vec<u8>) {
    let (device, mut frame) = if random.percent(70) {
        let message = message(random);
        ("n3", outer(random, bench, &message))
    } else {
        let v4 = random.percent(50);
        let server: IpAddr = if v4 { "10.6.0.100" } else { "2001:db8:6::100" }.parse().expect("an address");
        let to = subscriber_address(random, v4);
        let bytes = packet(random, server, to);
        let kind = if v4 { ethertype::IPV4 } else { ethertype::IPV6 };
        let (to, from) = (bench.mac("n6.0"), bench.host("server"));
        ("n6", [&to.0[..], &from.0, &kind.to_be_bytes(), &bytes].concat())
    };
    match random.below(14) {
        0 => frame.truncate(14 + random.below(frame.len() - 13)),
        1 => frame.extend(vec![0x55; 1 + random.below(40)]),
        2 => random::mutate(random, &mut frame),
        3 => {
            // behind the outer headers
            let at = random.below(frame.len().min(140));
            frame[at] ^= 1 << random.below(8);
        }
        _ => {}
    }
    (device, frame)
}

/// Who changes a unit's tag, or leaves it, is no part of this.
fn is_plain(frame: &[u8]) -> bool {
    let kinds = [ethertype::IPV4, ethertype::IPV6].map(u16::to_be_bytes);
    frame.get(12..14).is_some_and(|kind| kinds.iter().any(|known| known == kind))
}

/// Counters of what a verdict says, and the frame that leaves where that is known.
struct Wanted {
    counts: BTreeMap<&'static str, u64>,
    frame: Option<Vec<u8>>,
}

impl Wanted {
    fn add(&mut self, name: &'static str) {
        *self.counts.entry(name).or_insert(0) += 1;
    }
}

/// An answer goes back to whom the frame came from.
fn answered(frame: &[u8], answer: &Answer) -> Vec<u8> {
    let mac = |at: usize| sluice_wire::Mac(frame[at..at + 6].try_into().expect("six octets"));
    let address = |at: usize| -> IpAddr {
        if frame[12..14] == [8, 0] {
            <[u8; 4]>::try_from(&frame[26 + 4 * at..30 + 4 * at]).expect("four octets").into()
        } else {
            <[u8; 16]>::try_from(&frame[22 + 16 * at..38 + 16 * at]).expect("sixteen octets").into()
        }
    };
    let ends = Ends { from: (mac(0), address(1), TO_PORT), to: (mac(6), address(0), answer.port) };
    ends.signalled(&answer.message)
}

/// `out` says what nobody can foretell: the port that varies by flow, and the neighbour.
fn wanted(bench: &Bench, frame: &[u8], fate: &Fate, out: &[u8], wanted: &mut Wanted) {
    match fate {
        Fate::Plain(Verdict::Redirect(unit)) => {
            wanted.add("redirected");
            let host =
                bench.gateway.world.hosts.iter().find(|host| host.unit == *unit && host.mac.0 == out[..6]);
            let to = host.map(|host| host.mac).unwrap_or_default();
            let vlan = bench.gateway.port(unit).expect("a unit").1;
            let expected = forward::forwarded(frame, to, bench.mac(unit), vlan);
            let on_tc = bench.hook() == Hook::Tc;
            wanted.frame = Some(if on_tc { forward::without_outer(&expected) } else { expected });
        }
        Fate::Plain(Verdict::Handoff(_)) => wanted.add("handed_off"),
        Fate::Plain(Verdict::Local | Verdict::Tunnel) => wanted.add("delivered_local"),
        Fate::Plain(Verdict::Drop(reason)) => wanted.add(reason),
        Fate::Plain(Verdict::Reply(reason)) => {
            wanted.add(reason);
            wanted.add("replies");
        }
        Fate::Refused(reason, answer) => {
            wanted.add(reason);
            if let Some(answer) = answer {
                wanted.add("replies");
                wanted.frame = Some(answered(frame, answer));
            }
        }
        Fate::Signal(answer) => {
            wanted.add("gtpu_signals");
            if let Some(answer) = answer {
                wanted.add("replies");
                wanted.frame = Some(answered(frame, answer));
            }
        }
        Fate::Inward(inner, then) => {
            wanted.add("received");
            wanted.add("decapsulated");
            let mac = bench.gateway.plan.environment.netdevs["mif.0"].mac;
            let kind = if inner[0] >> 4 == 4 { ethertype::IPV4 } else { ethertype::IPV6 };
            let inside = [&mac[..], &mac, &kind.to_be_bytes(), inner].concat();
            self::wanted(bench, &inside, then, out, wanted);
        }
        Fate::Outward { message, class, outer4, sport } => {
            wanted.add("redirected");
            let mut ends = bench.n3(*outer4).turned();
            let at = if *outer4 { 34 } else { 54 };
            let seen = out.get(at..at + 2).map_or(0, |port| u16::from_be_bytes([port[0], port[1]]));
            // RFC 6335 6: of those that are nobody's
            (ends.from.2, ends.to.2) = (sport.unwrap_or(seen.max(49152)), TO_PORT);
            wanted.frame = Some(ends.tunnelled(message, *class));
        }
    }
}

fn text_of(frame: &[u8]) -> String {
    let hex: String = frame.iter().map(|byte| format!("{byte:02x}")).collect();
    let text: String = dissect(frame).to_string().chars().take(500).collect();
    format!("{text}\n{hex}")
}

fn judge(bench: &Bench, frame: &[u8], fate: &Fate, seen: &Outcome) -> Result<(), String> {
    let mut expected = Wanted { counts: BTreeMap::from([("received", 1)]), frame: None };
    wanted(bench, frame, fate, &seen.frame, &mut expected);
    let mut counted = seen.counted.clone();
    counted.remove("queued");
    if counted != expected.counts && !is_of_another_run(fate, &counted) {
        return Err(format!("counted {counted:?}, wanted {:?}", expected.counts));
    }
    match expected.frame {
        Some(_) if seen.action != Action::Redirect => Err(format!("{:?}", seen.action)),
        Some(frame) => diff(&frame, &seen.frame).map_or(Ok(()), Err),
        None => Ok(()),
    }
}

/// The gateway still knows first fragments of a run before this one, whose model has forgotten them: what is a fragment without
/// a first one to the model may be a later one of those. It is dropped either way.
fn is_of_another_run(fate: &Fate, counted: &BTreeMap<&'static str, u64>) -> bool {
    let is_outer = *fate == Fate::Plain(Verdict::Drop("fragment_no_first"));
    let of_pieces = ["fragment_overlap", "gtpu_fragment"];
    is_outer && of_pieces.iter().any(|reason| counted.contains_key(reason))
}

/// A test in which everything is dropped for one reason proves nothing.
#[derive(Default)]
struct Tally(BTreeMap<String, u64>);

impl Tally {
    fn add(&mut self, fate: &Fate) {
        let name = match fate {
            Fate::Plain(verdict) => format!("{verdict:?}"),
            Fate::Refused(reason, answer) => format!("{reason}, answered {}", answer.is_some()),
            Fate::Signal(answer) => format!("signal, answered {}", answer.is_some()),
            Fate::Inward(_, then) => {
                self.add(then);
                "inward".to_owned()
            }
            Fate::Outward { sport, .. } => format!("outward, relayed {}", sport.is_some()),
        };
        *self.0.entry(name).or_insert(0) += 1;
    }

    fn check(&self) {
        println!("{:#?}", self.0);
        let reasons = [
            "gtpu_malformed",
            "gtpu_version",
            "gtpu_extension",
            "gtpu_message",
            "gtpu_teid",
            "gtpu_inner",
            "gtpu_spoofed",
            "gtpu_no_session",
            "gtpu_forwarding",
            "gtpu_gate",
            "gtpu_quota",
            "gtpu_congested",
            "inward",
            "outward",
            "signal",
        ];
        for wanted in reasons {
            let count: u64 = self.0.iter().filter(|(name, _)| name.starts_with(wanted)).map(|(_, n)| n).sum();
            assert!(count >= 5, "{wanted}: {count} times");
        }
    }
}

fn run_seed(bench: &mut Bench, seed: u64, tally: &mut Tally) {
    let mut random = Random::new(seed);
    bench.begin();
    bench.summed = false;
    let mut plane = plane(&bench.gateway, subscribers());
    let numbers = fill(bench, &plane);
    for number in 0..EACH {
        let (device, frame) = frame(&mut random, bench);
        if !is_plain(&frame) {
            continue;
        }
        let before = plane.clone();
        let fate = plane.judge(device, &frame);
        bench.gateway.refill().expect("buckets are filled");
        let Some(seen) = bench.try_send(device, &frame) else {
            plane = before;
            continue;
        };
        if let Err(what) = judge(bench, &frame, &fate, &seen) {
            let hook = bench.hook().name();
            let fate: String = format!("{fate:?}").chars().take(300).collect();
            panic!(
                "seed {seed}, packet {number} on {hook}, at {device}: {what}\n{fate}\n{}",
                text_of(&frame)
            );
        }
        tally.add(&fate);
    }
    for (teid, session) in &plane.sessions {
        let counted = [0, 1].map(|direction| (session.bytes[direction], session.packets[direction]));
        assert_eq!(bench.usage(numbers[teid]), counted, "seed {seed}: usage of {teid:#x}");
    }
}

/// The gateway does to each frame what the model says, and counts what the model counts.
pub fn every_header(bench: &mut Bench) {
    let mut tally = Tally::default();
    let seeds = extent::steps(PACKETS) / EACH;
    for seed in (extent::first_seed()..).take(seeds as usize) {
        run_seed(bench, seed, &mut tally);
    }
    tally.check();
}
