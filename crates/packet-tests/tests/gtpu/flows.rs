//! Flows of a session (TS 29.244 5.2.1, 5.4.3, 5.4.4; TS 23.501 5.7.1.5): which packets are theirs, and what these meet.

use std::net::IpAddr;

use sluice_abi::{
    FlowMatch, FlowPacket, GTPU_CONTAINER, GTPU_DOWNLINK_CLOSED, GTPU_DOWNLINK_DROP, GTPU_MARK_DOWNLINK,
    GTPU_MARK_UPLINK, GTPU_REFLECTIVE, GTPU_UPLINK_CLOSED, GTPU_UPLINK_DROP, GtpuFilters, GtpuRules,
    conforms, cost_of_rate, tolerance_of_burst,
};
use sluice_dataplane::GtpuSession;
use sluice_packet_tests::tunnel::{Message, packet};

use super::Check;
use super::bench::{Bench, Outcome, PEER_TEID, TEID, UE, UE6, datagram};

pub const CHECKS: [Check; 8] = [
    ("the first flow by precedence", precedence),
    ("what filters ask for", asked_for),
    ("random packets, against a scan", scanned),
    ("fragments and extension headers", behind),
    ("gates and FARs of flows", gates),
    ("marks and containers of flows", marks),
    ("maximum bit rates of flows and of their session", rates),
    ("other flows for a session that is there", changed),
];

/// Where every packet of a table goes to, or comes from.
const SERVER: &str = "10.6.0.100";
const SERVER6: &str = "2001:db8:6::100";

/// The usual session, with these flows.
fn with(bench: &Bench, flows: &[(FlowMatch, GtpuRules)]) -> u32 {
    bench.add(&session(bench, flows))
}

fn session(bench: &Bench, flows: &[(FlowMatch, GtpuRules)]) -> GtpuSession {
    let filters = GtpuFilters::new(flows).expect("there is room");
    let numbers = bench.gateway.dataplane.gtpu().expect("room").keep_filters([&*filters]).expect("room");
    bench.session(true, GtpuRules { filters: numbers[0], ..bench.rules() })
}

/// Bytes of flows, by direction.
fn flows_of(bench: &Bench, number: u32) -> Vec<[u64; 2]> {
    let record = bench.gateway.dataplane.gtpu().expect("room").get(number).expect("a session");
    record.flows.iter().map(|flow| flow.bytes).collect()
}

fn host(text: &str) -> (IpAddr, IpAddr) {
    let address = text.parse().expect("an address");
    (address, address)
}

/// As it is in the tunnel, and then on its way to the subscriber.
fn down(bench: &mut Bench, inner: &[u8]) -> Outcome {
    let mac = bench.gateway.plan.environment.netdevs["mif.0"].mac;
    let mac = sluice_wire::Mac(mac);
    let frame = bench.frame_of(inner, mac, mac);
    bench.send("mif.0-peer", &frame)
}

/// A packet that filters see so.
fn inner(seen: &FlowPacket, is_down: bool) -> Vec<u8> {
    let ue = if seen.remote.is_ipv4() { UE } else { UE6 }.parse::<IpAddr>().expect("an address");
    let (from, to) = if is_down { (seen.remote, ue) } else { (ue, seen.remote) };
    let (remote, local) = seen.ports.unwrap_or((0, 0));
    let (sport, dport) = if is_down { (remote, local) } else { (local, remote) };
    let (class, protocol) = (seen.dscp << 2, seen.protocol);
    let ip = match seen.remote {
        IpAddr::V4(_) => format!("ip(src={from}, dst={to}, ttl=64, tos={class:#x}"),
        IpAddr::V6(_) => format!("ip6(src={from}, dst={to}, hop=64, tc={class:#x}"),
    };
    let next = if seen.remote.is_ipv4() { "proto" } else { "next" };
    packet(&match protocol {
        17 => format!("{ip})/udp(sport={sport}, dport={dport})/fill(n=20)"),
        6 => format!("{ip})/tcp(sport={sport}, dport={dport}, flags=A)/fill(n=8)"),
        _ => format!("{ip}, {next}={protocol})/{}", ports_text(sport, dport)),
    })
}

/// SCTP begins with its ports; whatever has none begins with what would be some.
fn ports_text(sport: u16, dport: u16) -> String {
    format!("0x{sport:04x}{dport:04x}{}", "00".repeat(24))
}

/// TS 29.244 5.2.1: of all that match, the one with the lowest precedence value; who matches none meets the rules' own.
fn precedence(bench: &mut Bench) {
    let of = |asked: FlowMatch, qfi: u8| {
        (asked, GtpuRules { flags: GTPU_CONTAINER as u16, qfi, ..GtpuRules::default() })
    };
    let ports = |ports: (u16, u16)| FlowMatch { remote_ports: vec![ports], ..FlowMatch::default() };
    let flows = [
        of(FlowMatch { protocol: Some(17), ..ports((53, 53)) }, 1),
        of(FlowMatch { protocol: Some(6), ..FlowMatch::default() }, 2),
        of(ports((1, 1023)), 3),
        of(FlowMatch { remote: vec![host(SERVER), host(SERVER6)], ..FlowMatch::default() }, 4),
    ];
    let number = with(bench, &flows);
    bench.judged = false;
    let mut passed = vec![[0; 2]; 4];
    for server in [SERVER, SERVER6, "10.6.0.101"] {
        let seen = |protocol, port| FlowPacket {
            remote: server.parse().expect("an address"),
            protocol,
            dscp: 0,
            ports: Some((port, 4000)),
        };
        let others = if server == "10.6.0.101" { None } else { Some(3) };
        for (packet, flow) in [
            (seen(17, 53), Some(0)),
            (seen(6, 53), Some(1)),
            (seen(17, 54), Some(2)),
            (seen(132, 1023), Some(2)),
            (seen(17, 1024), others),
        ] {
            let bytes = inner(&packet, true);
            let answer = down(bench, &bytes);
            let plain = Message::data(PEER_TEID, &bytes);
            let message = match flow {
                Some(flow) => plain.with(&[(0x85, &[0, flow as u8 + 1])]),
                None => plain,
            };
            let what = format!("{packet:?}");
            answer.encapsulated(&what, bench.n3(true).turned(), &message, 0);
            bench.up_packet(true, &inner(&packet, false));
            if let Some(flow) = flow {
                let own: &mut [u64; 2] = &mut passed[flow];
                *own = own.map(|before| before + bytes.len() as u64);
            }
            assert_eq!(flows_of(bench, number), passed, "{what}");
        }
    }
    // each packet is the session's too
    let [(up, packets), (down, _)] = bench.usage(number);
    assert!(up == down && packets == 15 && up > passed.iter().map(|own| own[0]).sum());
}

/// One filter at a time, at both ends of what it asks for.
fn asked_for(bench: &mut Bench) {
    let six = |text: &str| text.parse::<IpAddr>().expect("an address");
    let four = FlowPacket { remote: six(SERVER), protocol: 17, dscp: 10, ports: Some((2000, 3000)) };
    let asked = FlowMatch::default;
    let cases = [
        (FlowMatch { dscp: Some(10), ..asked() }, four, FlowPacket { dscp: 11, ..four }),
        (FlowMatch { protocol: Some(17), ..asked() }, four, FlowPacket { protocol: 132, ..four }),
        (
            FlowMatch { remote: vec![(six("10.6.0.64"), six("10.6.0.127"))], ..asked() },
            four,
            FlowPacket { remote: six("10.6.0.128"), ..four },
        ),
        (
            FlowMatch { remote: vec![(six("2001:db8:6::"), six("2001:db8:6::ffff"))], ..asked() },
            FlowPacket { remote: six(SERVER6), ..four },
            FlowPacket { remote: six("2001:db8:6::1:0"), ..four },
        ),
        (
            FlowMatch {
                remote: vec![(six("2001:db8:6::"), six("2001:db8:6:0:ffff:ffff:ffff:ffff"))],
                ..asked()
            },
            FlowPacket { remote: six("2001:db8:6:0:ffff:ffff:ffff:ffff"), ..four },
            FlowPacket { remote: six("2001:db8:6:1::"), ..four },
        ),
        (
            FlowMatch { remote: vec![host(SERVER6)], ..asked() },
            FlowPacket { remote: six(SERVER6), ..four },
            four,
        ),
        (
            FlowMatch { remote_ports: vec![(1900, 2000), (2002, 2002)], ..asked() },
            four,
            FlowPacket { ports: Some((2001, 3000)), ..four },
        ),
        (
            FlowMatch { local_ports: vec![(3000, 65_535)], ..asked() },
            FlowPacket { ports: Some((2000, 65_535)), ..four },
            FlowPacket { ports: Some((3000, 2999)), ..four },
        ),
    ];
    for (asked, within, without) in cases {
        bench.begin();
        bench.judged = false;
        let number = with(bench, &[(asked.clone(), GtpuRules::default())]);
        for (packet, matches) in [(within, true), (without, false)] {
            for is_down in [false, true] {
                let before = flows_of(bench, number)[0];
                let bytes = inner(&packet, is_down);
                if is_down {
                    down(bench, &bytes)
                } else {
                    bench.up_packet(true, &bytes)
                };
                let mut expected = before;
                expected[usize::from(is_down)] += if matches { bytes.len() as u64 } else { 0 };
                assert_eq!(flows_of(bench, number)[0], expected, "{asked:?}: {packet:?}, down {is_down}");
            }
        }
    }
}

/// Numbers that are the same ones in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as u32) % limit
    }

    fn remote(&mut self) -> IpAddr {
        match self.below(2) {
            0 => IpAddr::V4((0x0a06_0060 + self.below(48)).into()),
            _ => {
                let upper = 0x2001_0db8_0006_0000u128 + u128::from(self.below(2));
                IpAddr::V6((upper << 64 | (0xfff0 + u128::from(self.below(32)))).into())
            }
        }
    }

    fn ports(&mut self) -> Vec<(u16, u16)> {
        let one = |random: &mut Random| {
            let first = random.below(100) as u16;
            (first, first + random.below(20) as u16)
        };
        (0..self.below(3).saturating_sub(1)).map(|_| one(self)).collect()
    }

    fn asked(&mut self) -> FlowMatch {
        let remote = |random: &mut Random| {
            let (one, other) = (random.remote(), random.remote());
            if one.is_ipv4() == other.is_ipv4() { (one.min(other), one.max(other)) } else { (one, one) }
        };
        FlowMatch {
            protocol: [None, Some(6), Some(17), Some(132), Some(47)][self.below(5) as usize],
            remote: (0..self.below(3)).map(|_| remote(self)).collect(),
            remote_ports: self.ports(),
            local_ports: self.ports(),
            dscp: [None, None, None, Some(0), Some(63)][self.below(5) as usize],
        }
    }

    fn packet(&mut self) -> FlowPacket {
        let protocol = [6, 17, 132, 47, 17][self.below(5) as usize];
        let ports = (self.below(120) as u16, self.below(120) as u16);
        FlowPacket {
            remote: self.remote(),
            protocol,
            dscp: [0, 63, 7][self.below(3) as usize],
            ports: (protocol != 47).then_some(ports),
        }
    }
}

/// The flow of each is the first of a plain list that matches, on the way up and down.
fn scanned(bench: &mut Bench) {
    let mut random = Random(11);
    let mut met = [0u32; 2];
    for flows in [1, 5, 16, 40, 64] {
        bench.begin();
        bench.judged = false;
        let asked: Vec<FlowMatch> = (0..flows).map(|_| random.asked()).collect();
        let set: Vec<_> = asked.iter().map(|asked| (asked.clone(), GtpuRules::default())).collect();
        let number = with(bench, &set);
        let mut expected = vec![[0; 2]; flows];
        for step in 0..60 {
            let packet = random.packet();
            let is_down = step % 2 == 1;
            let bytes = inner(&packet, is_down);
            if is_down {
                down(bench, &bytes)
            } else {
                bench.up_packet(true, &bytes)
            };
            let flow = asked.iter().position(|asked| asked.matches(&packet));
            if let Some(flow) = flow {
                expected[flow][usize::from(is_down)] += bytes.len() as u64;
            }
            met[usize::from(flow.is_some())] += 1;
            assert_eq!(flows_of(bench, number), expected, "{flows} flows, {packet:?}, down {is_down}");
        }
        let [(_, up), (_, down)] = bench.usage(number);
        assert_eq!((up, down), (30, 30));
    }
    assert!(met.iter().all(|count| *count > 50), "of none, of one: {met:?}");
}

/// Later fragments have no ports. In IPv6 ports stand behind up to six extension headers.
fn behind(bench: &mut Bench) {
    let number = with(
        bench,
        &[
            (FlowMatch { remote_ports: vec![(53, 53)], ..FlowMatch::default() }, GtpuRules::default()),
            (FlowMatch { protocol: Some(17), ..FlowMatch::default() }, GtpuRules::default()),
        ],
    );
    let four = |fields: &str| {
        format!("ip(src={UE}, dst={SERVER}, ttl=64, {fields})/udp(sport=9, dport=53)/fill(n=16)")
    };
    let six = |chain: &str| format!("ip6(src={UE6}, dst={SERVER6}, hop=64)/{chain}");
    let udp = "udp(sport=9, dport=53)/fill(n=16)";
    let options = |count: usize| six(&format!("{}{udp}", "dstopts()/".repeat(count)));
    bench.judged = false;
    let mut passed = [0, 0];
    for (text, flow) in [
        (four("id=1"), Some(0)),
        (four("id=2, mf=1"), Some(0)),
        (four("id=3, opts=0x94040000"), Some(0)),
        (
            format!("ip(src={UE}, dst={SERVER}, ttl=64, proto=udp, id=4, frag=3)/0x000900350018000000000000"),
            Some(1),
        ),
        (format!("ip(src={UE}, dst={SERVER}, ttl=64, proto=udp, id=5)/0x0009"), Some(1)),
        (six(udp), Some(0)),
        (six(&format!("hbh(opts=0x050200000100)/routing(type=0, left=0)/dstopts()/{udp}")), Some(0)),
        (six(&format!("fragment(frag=0, mf=1, id=9)/{udp}")), Some(0)),
        (six("fragment(next=udp, frag=3, mf=0, id=9)/0x000900350018000000000000"), Some(1)),
        (options(6), Some(0)),
        (options(7), None),
        (six("icmp6(type=echo-request, id=9, seq=53)"), None),
    ] {
        let bytes = packet(&text);
        bench.up_packet(true, &bytes);
        if let Some(flow) = flow {
            passed[flow] += bytes.len() as u64;
        }
        let seen: Vec<u64> = flows_of(bench, number).iter().map(|flow| flow[0]).collect();
        assert_eq!(seen, passed, "{text}");
    }
}

/// TS 29.244 5.2.1 and 5.4.3, by flow; those of the rules hold for packets of no flow.
fn gates(bench: &mut Bench) {
    let dns = FlowMatch { remote_ports: vec![(53, 53)], ..FlowMatch::default() };
    let cases = [
        (GTPU_UPLINK_CLOSED, Some("gtpu_gate"), None),
        (GTPU_DOWNLINK_CLOSED, None, Some("gtpu_gate")),
        (GTPU_UPLINK_DROP | GTPU_UPLINK_CLOSED, Some("gtpu_forwarding"), None),
        (GTPU_DOWNLINK_DROP, None, Some("gtpu_forwarding")),
    ];
    let other = |is_down: bool| {
        let (from, to) = if is_down { (SERVER, UE) } else { (UE, SERVER) };
        packet(&format!("ip(src={from}, dst={to}, ttl=64)/udp(sport=1000, dport=1000)/fill(n=4)"))
    };
    for (flags, up, down) in cases {
        for of_flow in [true, false] {
            bench.begin();
            let closed =
                |own: bool| GtpuRules { flags: if own { flags as u16 } else { 0 }, ..GtpuRules::default() };
            let session = session(bench, &[(dns.clone(), closed(of_flow))]);
            let rules = GtpuRules { flags: closed(!of_flow).flags, ..session.rules };
            let number = bench.add(&GtpuSession { rules, ..session });
            let what = format!("flags {flags:#x}, of the flow {of_flow}");
            for is_flow in [true, false] {
                let packet = |is_down| if is_flow { datagram(true, is_down, 64, 4) } else { other(is_down) };
                let seen = bench.up_packet(true, &packet(false));
                match up.filter(|_| is_flow == of_flow) {
                    Some(reason) => seen.drops(&what, reason),
                    None => seen.counts(&what, &[("received", 2), ("decapsulated", 1), ("redirected", 1)]),
                }
                let seen = bench.down(&packet(true));
                match down.filter(|_| is_flow == of_flow) {
                    Some(reason) => seen.drops(&what, reason),
                    None => seen.counts(&what, &[("received", 1), ("redirected", 1)]),
                }
            }
            let passed = |refused: Option<&str>| if refused.is_some() { (32, 1) } else { (64, 2) };
            assert_eq!(bench.usage(number), [passed(up), passed(down)], "{what}");
            let passed = |refused: Option<&str>| if refused.is_some() && of_flow { 0 } else { 32 };
            assert_eq!(flows_of(bench, number), [[passed(up), passed(down)]], "{what}");
        }
    }
}

/// TS 38.415 5.5.2.1, TS 29.244 5.4.11: each flow has its own; a forged source is found before it.
fn marks(bench: &mut Bench) {
    let flags = GTPU_CONTAINER | GTPU_REFLECTIVE | GTPU_MARK_UPLINK | GTPU_MARK_DOWNLINK;
    let of = |port: u16, flags: u32, qfi: u8, dscp: u8| {
        let asked = FlowMatch { remote_ports: vec![(port, port)], ..FlowMatch::default() };
        let (dscp_uplink, dscp_downlink) = (dscp, dscp + 1);
        let rules =
            GtpuRules { flags: flags as u16, qfi, dscp_uplink, dscp_downlink, ..GtpuRules::default() };
        (asked, rules)
    };
    let session = session(bench, &[of(53, flags, 5, 10), of(54, GTPU_CONTAINER, 63, 20)]);
    let own = GtpuRules {
        flags: (GTPU_CONTAINER | GTPU_MARK_DOWNLINK) as u16,
        qfi: 9,
        dscp_downlink: 46,
        ..session.rules
    };
    bench.add(&GtpuSession { rules: own, ..session });
    let cases = [(53, 0x40 | 5, 10, 11), (54, 63, 0, 0), (55, 9, 0, 46)];
    for (port, container, uplink, downlink) in cases {
        let up = |hops: u8, class: u8| {
            packet(&format!(
                "ip(src={UE}, dst={SERVER}, ttl={hops}, tos={class:#x})/udp(sport=9, dport={port})/fill(n=4)"
            ))
        };
        let seen = bench.up_packet(true, &up(64, 0));
        seen.decapsulated("uplink", &bench.out_of_n6(&up(63, uplink << 2)));
        let text =
            |hops: u8| format!("ip(src={SERVER}, dst={UE}, ttl={hops})/udp(sport={port}, dport=9)/fill(n=4)");
        let seen = bench.down(&packet(&text(64)));
        let inner = packet(&text(63));
        let message = Message::data(PEER_TEID, &inner).with(&[(0x85, &[0, container])]);
        seen.encapsulated("downlink", bench.n3(true).turned(), &message, downlink << 2);
    }
    let forged = packet("ip(src=10.45.0.3, dst=10.6.0.100)/udp(sport=9, dport=53)/fill(n=4)");
    bench.up(true, &Message::data(TEID, &forged)).drops("forged", "gtpu_spoofed");
}

/// TS 23.501 5.7.1.5: the flow's rate first, then the session's; what the session refuses takes nothing of the flow's. Time
/// stands still, as in the test of the session's rate.
fn rates(bench: &mut Bench) {
    const AHEAD: u64 = 1 << 61;
    let dns = FlowMatch { remote_ports: vec![(53, 53)], ..FlowMatch::default() };
    for is_down in [false, true] {
        bench.begin();
        let (cost, which) = (cost_of_rate(10_000_000), usize::from(is_down));
        let mut rules = GtpuRules::default();
        (rules.cost[which], rules.tolerance[which]) = (cost, 1 << 62);
        let number = with(bench, &[(dns.clone(), rules)]);
        let state = |bench: &Bench| bench.flow(number, 0);
        let mut first = state(bench);
        first.arrival[which] = AHEAD;
        bench.set_flow(number, 0, &first);
        let mut expected = AHEAD;
        for length in [28, 576, 1400] {
            let inner = datagram(true, is_down, 64, length - 28);
            if is_down {
                down(bench, &inner)
            } else {
                bench.up_packet(true, &inner)
            };
            expected = conforms(expected, 0, length as u64, cost, 1 << 62).expect("there is time enough");
            assert_eq!(state(bench).arrival[which], expected, "{length} bytes, down {is_down}");
        }
        // the session has a rate that nothing fits into
        let tight = tolerance_of_burst(100, cost_of_rate(64_000));
        let gtpu = bench.gateway.dataplane.gtpu().expect("room");
        let session = gtpu.get(number).expect("a session").session;
        let mut both = session.rules;
        (both.cost[which], both.tolerance[which]) = (cost_of_rate(64_000), tight);
        gtpu.change(number, &session.tunnel, &both, [None; 2]).expect("a session");
        let inner = datagram(true, is_down, 64, 600);
        let seen = if is_down { down(bench, &inner) } else { bench.up_packet(true, &inner) };
        seen.drops("the session's rate", "gtpu_rate");
        assert_eq!(state(bench).arrival[which], expected, "nothing is taken");
        gtpu_quota(bench, number, is_down, expected);
    }
    bursts(bench, &dns);
}

/// The same of a quota, which is the session's alone.
fn gtpu_quota(bench: &mut Bench, number: u32, is_down: bool, expected: u64) {
    let gtpu = bench.gateway.dataplane.gtpu().expect("room");
    let session = gtpu.get(number).expect("a session").session;
    let rules = GtpuRules { cost: [0; 2], tolerance: [0; 2], ..session.rules };
    gtpu.change(number, &session.tunnel, &rules, [Some(2004 + 100); 2]).expect("a session");
    let inner = datagram(true, is_down, 64, 600);
    let seen = if is_down { down(bench, &inner) } else { bench.up_packet(true, &inner) };
    seen.drops("the session's quota", "gtpu_quota");
    let flow = bench.flow(number, 0);
    assert_eq!(flow.arrival[usize::from(is_down)], expected, "nothing is taken");
    assert_eq!([flow.uplink_bytes, flow.downlink_bytes][usize::from(is_down)], 2004);
}

/// At 64 kb/s, a run of some packets takes no time worth mentioning; others of the session go on.
fn bursts(bench: &mut Bench, dns: &FlowMatch) {
    let cost = cost_of_rate(64_000);
    let tolerance = tolerance_of_burst(5600, cost);
    bench.begin();
    let rules = GtpuRules { cost: [cost, 0], tolerance: [tolerance, 0], ..GtpuRules::default() };
    let number = with(bench, &[(dns.clone(), rules)]);
    let other = packet(&format!("ip(src={UE}, dst={SERVER}, ttl=64)/udp(sport=1000, dport=99)/fill(n=1372)"));
    for round in 0..6 {
        let seen = bench.up_packet(true, &datagram(true, false, 64, 1372));
        assert_eq!(seen.counted.contains_key("gtpu_rate"), round > 3, "{round}");
        let seen = bench.up_packet(true, &other);
        seen.counts("no flow", &[("received", 2), ("decapsulated", 1), ("redirected", 1)]);
    }
    assert_eq!((flows_of(bench, number), bench.usage(number)[0]), (vec![[5600, 0]], (14_000, 10)));
}

/// One store gives a session other flows; those that stay go on counting.
fn changed(bench: &mut Bench) {
    let of = |port: u16| {
        let asked = FlowMatch { remote_ports: vec![(port, port)], ..FlowMatch::default() };
        (asked, GtpuRules::default())
    };
    let plain = bench.session(true, bench.rules());
    let number = bench.add(&plain);
    let send = |bench: &mut Bench| drop(bench.up_packet(true, &datagram(true, false, 64, 72)));
    send(bench);
    assert!(flows_of(bench, number).is_empty());
    let change = |bench: &Bench, rules: GtpuRules| {
        let gtpu = bench.gateway.dataplane.gtpu().expect("room");
        gtpu.change(number, &plain.tunnel, &rules, [None; 2]).expect("a session");
    };
    let two = session(bench, &[of(52), of(53)]).rules;
    change(bench, two);
    send(bench);
    assert_eq!(flows_of(bench, number), [[0, 0], [100, 0]]);
    change(bench, GtpuRules { qfi: 7, ..two });
    send(bench);
    assert_eq!(flows_of(bench, number), [[0, 0], [200, 0]]);
    let many: Vec<_> = (30..60).map(of).collect();
    change(bench, session(bench, &many).rules);
    send(bench);
    let flows = flows_of(bench, number);
    assert_eq!((flows.len(), flows[23], flows.iter().map(|flow| flow[0]).sum::<u64>()), (30, [100, 0], 100));
    change(bench, plain.rules);
    send(bench);
    assert_eq!((flows_of(bench, number).len(), bench.usage(number)[0]), (0, (500, 5)));
}
