//! What packets of a session meet: whose source they have, gates, quotas to the byte, maximum bit rates, marks.

use std::os::fd::AsFd;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use sluice_abi::{
    GTPU_DOWNLINK_CLOSED, GTPU_DOWNLINK_DROP, GTPU_MARK_DOWNLINK, GTPU_MARK_UPLINK, GTPU_UPLINK_CLOSED,
    GTPU_UPLINK_DROP, GtpuRules, conforms, cost_of_rate, tolerance_of_burst,
};
use sluice_dataplane::prog_run::{self, TcRun};
use sluice_dataplane::{GtpuSession, Tunnel};
use sluice_packet_tests::gateway::Hook;
use sluice_packet_tests::netns::ifindex;
use sluice_packet_tests::tunnel::{Message, packet};

use super::Check;
use super::bench::{Bench, Families, PEER_TEID, TEID, UE, UE6, datagram};

pub const CHECKS: [Check; 11] = [
    ("sources that are not the subscriber's", spoofed),
    ("screens of the subscribers' zone", screened),
    ("gates and FARs", gates),
    ("quotas to the byte", quotas),
    ("a quota that both families share", shared_quota),
    ("two CPUs at one quota", two_cpus),
    ("maximum bit rates", rates),
    ("bursts", bursts),
    ("marks", marks),
    ("congestion in a tunnel", congestion),
    ("many sessions, and those that are gone", many),
];

/// TS 23.501 5.8.2.2, TS 29.244 8.2.62: only its own addresses.
fn spoofed(bench: &mut Bench) {
    let number = bench.with(true, bench.rules());
    let from = |source: &str, destination: &str| {
        let ip = if source.contains(':') { "ip6" } else { "ip" };
        packet(&format!("{ip}(src={source}, dst={destination})/udp(sport=1, dport=53)/fill(n=4)"))
    };
    for source in ["10.45.0.3", "10.6.0.100", "10.45.0.1", "0.0.0.0", "127.0.0.1"] {
        bench.up_packet(true, &from(source, "10.6.0.100")).drops(source, "gtpu_spoofed");
    }
    for source in ["2001:db8:45:3::7", "2001:db8:45:2:1::7", "fe80::1", "::", "2001:db8:6::100"] {
        let seen = bench.up_packet(true, &from(source, "2001:db8:6::100"));
        if source == "2001:db8:45:2:1::7" {
            // another address of the same /64 is the subscriber's too (RFC 6177, TS 23.401 5.3.1.2.2)
            seen.counts(source, &[("received", 2), ("decapsulated", 1), ("redirected", 1)]);
        } else {
            seen.drops(source, "gtpu_spoofed");
        }
    }
    assert_eq!(bench.usage(number), [(52, 1), (0, 0)]);
    bench.begin();
    // of one family only
    bench.add(&GtpuSession { address: None, ..bench.session(true, bench.rules()) });
    bench.up_packet(true, &from(UE, "10.6.0.100")).drops("IPv4 without an address", "gtpu_spoofed");
    bench.begin();
    bench.add(&GtpuSession { prefix: None, ..bench.session(true, bench.rules()) });
    bench.up_packet(true, &from(UE6, "2001:db8:6::100")).drops("IPv6 without a prefix", "gtpu_spoofed");
    bench.down(&datagram(false, true, 64, 4)).drops("to nobody", "gtpu_no_session");
}

/// They see what comes out of tunnels, whatever the zone of the base stations has.
fn screened(bench: &mut Bench) {
    bench.with(true, bench.rules());
    for (source, server) in
        [(UE, "ip(src=10.45.0.2, dst=10.6.0.100"), (UE6, "ip6(src=2001:db8:45:2::7, dst=2001:db8:6::100")]
    {
        let odd = packet(&format!("{server})/tcp(sport=1000, dport=53, flags=SF)"));
        let seen = bench.up_packet(true, &odd);
        seen.counts(source, &[("received", 2), ("decapsulated", 1), ("syn_fin", 1)]);
    }
}

/// TS 29.244 5.2.1 and 5.4.3.
fn gates(bench: &mut Bench) {
    let cases = [
        (GTPU_UPLINK_CLOSED, Some("gtpu_gate"), None),
        (GTPU_DOWNLINK_CLOSED, None, Some("gtpu_gate")),
        (GTPU_UPLINK_DROP, Some("gtpu_forwarding"), None),
        (GTPU_DOWNLINK_DROP, None, Some("gtpu_forwarding")),
        (GTPU_UPLINK_DROP | GTPU_UPLINK_CLOSED, Some("gtpu_forwarding"), None),
    ];
    for (flags, up, down) in cases {
        bench.begin();
        let number = bench.with(true, GtpuRules { flags: flags as u16, ..bench.rules() });
        let what = format!("flags {flags:#x}");
        let seen = bench.up_packet(true, &datagram(true, false, 64, 4));
        match up {
            Some(reason) => seen.drops(&what, reason),
            None => seen.counts(&what, &[("received", 2), ("decapsulated", 1), ("redirected", 1)]),
        }
        let seen = bench.down(&datagram(true, true, 64, 4));
        match down {
            Some(reason) => seen.drops(&what, reason),
            None => seen.counts(&what, &[("received", 1), ("redirected", 1)]),
        }
        let passed = |refused: Option<_>| if refused.is_some() { (0, 0) } else { (32, 1) };
        assert_eq!(bench.usage(number), [passed(up), passed(down)], "{what}");
    }
}

/// TS 29.244 5.2.2.2: the last byte passes, the next one does not; what does not pass is not counted.
fn quotas(bench: &mut Bench) {
    let session = bench.session(true, bench.rules());
    let number = bench.add(&GtpuSession { quota: [Some(1000), Some(500)], ..session });
    for (length, passes, used) in [(600, true, 600), (401, false, 600), (400, true, 1000), (28, false, 1000)]
    {
        let seen = bench.up_packet(true, &datagram(true, false, 64, length - 28));
        assert_eq!(seen.counted.contains_key("gtpu_quota"), !passes, "{length}");
        assert_eq!(bench.usage(number)[0].0, used);
    }
    for (length, passes, used) in [(501, false, 0), (500, true, 500), (28, false, 500)] {
        let seen = bench.down(&datagram(true, true, 64, length - 28));
        assert_eq!(seen.counted.contains_key("gtpu_quota"), !passes, "{length}");
        assert_eq!(bench.usage(number)[1].0, used);
    }
    assert_eq!(bench.usage(number), [(1000, 2), (500, 1)]);
    // a new volume
    let gtpu = bench.gateway.dataplane.gtpu().expect("room");
    gtpu.change(number, &session.tunnel, &session.rules, [Some(1028), None]).expect("a session");
    for _ in 0..2 {
        bench.up_packet(true, &datagram(true, false, 64, 0));
    }
    bench.down(&datagram(true, true, 64, 972));
    assert_eq!(bench.usage(number), [(1028, 3), (1500, 2)]);
}

fn shared_quota(bench: &mut Bench) {
    let number = bench.add(&GtpuSession { quota: [None, Some(1000)], ..bench.session(true, bench.rules()) });
    let lengths = [(true, 500, 500), (false, 500, 1000), (true, 28, 1000), (false, 48, 1000)];
    for (inner4, length, used) in lengths {
        let header = if inner4 { 28 } else { 48 };
        bench.down(&datagram(inner4, true, 64, length - header));
        assert_eq!(bench.usage(number)[1].0, used, "{length}");
    }
}

/// Every run is a packet of its own, since a program that has taken one out of its tunnel cannot do so again.
fn two_cpus(bench: &mut Bench) {
    const EACH: u64 = 200;
    if bench.hook() != Hook::Tc {
        return; // a run takes 20 ms there
    }
    let number =
        bench.add(&GtpuSession { quota: [Some(300 * 100 + 99), None], ..bench.session(true, bench.rules()) });
    let frame = bench.n3(true).frame(&Message::data(TEID, &datagram(true, false, 64, 72)).bytes());
    let program = bench.gateway.arrive("n3").expect("a program");
    let index = ifindex("n3").expect("a device");
    std::thread::scope(|scope| {
        for cpu in [0, 1] {
            let (frame, program) = (&frame, &program);
            scope.spawn(move || {
                let mut set = CpuSet::new();
                set.set(cpu).and_then(|()| sched_setaffinity(Pid::from_raw(0), &set)).expect("two CPUs");
                for _ in 0..EACH {
                    prog_run::tc(program.as_fd(), &TcRun::new(frame, index)).expect("a run");
                }
            });
        }
    });
    let counted = bench.counted();
    assert_eq!((counted["decapsulated"], counted["gtpu_quota"]), (300, 2 * EACH - 300));
    assert_eq!(bench.usage(number)[0], (30_000, 300));
}

/// The same arithmetic as `conforms`, which is held against the rate in virtual time: here time stands still, since the
/// next packet is expected later than any clock shows.
fn rates(bench: &mut Bench) {
    const AHEAD: u64 = 1 << 61;
    for rate in [64_000, 1_000_000, 100_000_000, 10_000_000_000, 40_000_000_000] {
        bench.begin();
        let (cost, mut rules) = (cost_of_rate(rate), bench.rules());
        (rules.cost[0], rules.tolerance[0]) = (cost, 1 << 62);
        let number = bench.with(true, rules);
        bench.set_line(number, &sluice_abi::GtpuLine { arrival: AHEAD, ..bench.line(number) });
        let mut expected = AHEAD;
        for length in [28, 576, 1400] {
            bench.up_packet(true, &datagram(true, false, 64, length - 28));
            expected = conforms(expected, 0, length as u64, cost, 1 << 62).expect("there is time enough");
            assert_eq!(bench.line(number).arrival, expected, "{rate} bit/s, {length} bytes");
        }
        let seconds = (expected - AHEAD) as f64 / 256e9;
        let measured = (28 + 576 + 1400) as f64 * 8.0 / seconds;
        assert!((measured / rate as f64 - 1.0).abs() < 0.02, "{rate} bit/s: {measured}");
        assert_eq!(bench.usage(number)[0].1, 3);
    }
}

/// At 64 kb/s, a run of some packets takes no time worth mentioning.
fn bursts(bench: &mut Bench) {
    let cost = cost_of_rate(64_000);
    let tolerance = tolerance_of_burst(5600, cost);
    for down in [false, true] {
        bench.begin();
        let mut rules = bench.rules();
        (rules.cost[usize::from(down)], rules.tolerance[usize::from(down)]) = (cost, tolerance);
        let number = bench.with(true, rules);
        let passed: Vec<bool> = (0..6)
            .map(|_| {
                let inner = datagram(true, down, 64, 1372);
                let seen = if down { bench.down(&inner) } else { bench.up_packet(true, &inner) };
                !seen.counted.contains_key("gtpu_rate")
            })
            .collect();
        assert_eq!(passed, [true, true, true, true, false, false]);
        assert_eq!(bench.usage(number)[usize::from(down)], (5600, 4));
    }
}

/// A datagram of this traffic class.
fn of_class(inner4: bool, down: bool, hops: u8, class: u8) -> Vec<u8> {
    let mut packet = datagram(inner4, down, hops, 8);
    if inner4 {
        packet[1] = class;
        packet[10..12].fill(0);
        let sum = sluice_wire::checksum::internet(&packet[..20]);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
    } else {
        packet[0] |= class >> 4;
        packet[1] |= class << 4;
    }
    packet
}

/// RFC 6040 4.2: by the ECN of the packet, what becomes of it under each of the outer header; its DSCP is its own.
fn congestion(bench: &mut Bench) {
    const FIGURE: [(u8, [Option<u8>; 4]); 4] = [
        (0, [Some(0), Some(0), Some(0), None]),
        (1, [Some(1), Some(1), Some(1), Some(3)]),
        (2, [Some(2), Some(1), Some(2), Some(3)]),
        (3, [Some(3), Some(3), Some(3), Some(3)]),
    ];
    for Families { inner4, outer4 } in Families::ALL {
        bench.begin();
        let number = bench.with(outer4, bench.rules());
        let mut passed = 0;
        for (inner, by_outer) in FIGURE {
            let packet = of_class(inner4, false, 64, 0xb8 | inner);
            for (outer, expected) in by_outer.into_iter().enumerate() {
                let what = format!("{inner} in {outer}");
                let field = format!(", {}=0x{outer:x}", if outer4 { "tos" } else { "tc" });
                let message = Message::data(TEID, &packet).bytes();
                let frame = bench.n3(outer4).frame_with(&message, &field, "");
                let seen = bench.send("n3", &frame);
                match expected {
                    Some(ecn) => {
                        let left = of_class(inner4, false, 63, 0xb8 | ecn);
                        seen.decapsulated(&what, &bench.out_of_n6(&left));
                        passed += 1;
                    }
                    None => seen.drops(&what, "gtpu_congested"),
                }
            }
        }
        assert_eq!(bench.usage(number)[0].1, passed);
    }
}

/// Inner ones behind the tunnel, outer ones before it; ECN is the packet's own.
fn marks(bench: &mut Bench) {
    for inner4 in [true, false] {
        bench.begin();
        bench.with(true, bench.rules());
        let class = |down: bool, hops: u8, class: u8| of_class(inner4, down, hops, class);
        let ends = bench.n3(true).turned();
        let seen = bench.up_packet(true, &class(false, 64, 0xb9));
        seen.decapsulated("as it came", &bench.out_of_n6(&class(false, 63, 0xb9)));
        let seen = bench.down(&class(true, 64, 0xb9));
        seen.encapsulated("the packet's own", ends, &Message::data(PEER_TEID, &class(true, 63, 0xb9)), 0xb8);
        bench.begin();
        let flags = (GTPU_MARK_UPLINK | GTPU_MARK_DOWNLINK) as u16;
        bench.with(true, GtpuRules { flags, dscp_uplink: 18, dscp_downlink: 46, ..bench.rules() });
        let seen = bench.up_packet(true, &class(false, 64, 0xb9));
        seen.decapsulated("marked", &bench.out_of_n6(&class(false, 63, 18 << 2 | 1)));
        let seen = bench.down(&class(true, 64, 0x01));
        seen.encapsulated("marked", ends, &Message::data(PEER_TEID, &class(true, 63, 0x01)), 46 << 2);
    }
}

fn many(bench: &mut Bench) {
    let sessions: Vec<(GtpuSession, u32)> = (0..400u32)
        .map(|n| {
            let session = GtpuSession {
                teid: 0x2000 + 1024 * n,
                address: Some((0x0a2d_1000 + n).into()),
                prefix: None,
                tunnel: Tunnel { peer: bench.peer(true), teid: 1 + n },
                ..bench.session(true, bench.rules())
            };
            (session, bench.add(&session))
        })
        .collect();
    let address = |session: &GtpuSession| session.address.expect("it has one");
    let down = |session: &GtpuSession, hops: u8| {
        packet(&format!(
            "ip(src=10.6.0.100, dst={}, ttl={hops})/udp(sport=53, dport=9)/fill(n=4)",
            address(session)
        ))
    };
    let up = |session: &GtpuSession| {
        packet(&format!("ip(src={}, dst=10.6.0.100)/udp(sport=9, dport=53)/fill(n=4)", address(session)))
    };
    for (session, _) in sessions.iter().step_by(25) {
        let seen = bench.up(true, &Message::data(session.teid, &up(session)));
        seen.counts("uplink", &[("received", 2), ("decapsulated", 1), ("redirected", 1)]);
        let message = Message::data(session.tunnel.teid, &down(session, 63));
        bench.down(&down(session, 64)).encapsulated("downlink", bench.n3(true).turned(), &message, 0);
    }
    let gone: Vec<u32> = sessions.iter().step_by(2).map(|(_, number)| *number).collect();
    let records = bench.gateway.dataplane.remove_gtpu(&gone).expect("they end");
    assert_eq!(records.iter().map(|record| record.usage.packets[0]).sum::<u64>(), 8);
    // nobody who has an address next has what was opened before: its packets are first ones, and policies decide
    let opened = |session: &GtpuSession| {
        let own = std::net::IpAddr::from(address(session));
        let of = |flow: &sluice_dataplane::Session| {
            [flow.initiator.tuple.source, flow.responder.tuple.source].contains(&own)
        };
        bench.gateway.dataplane.sessions().filter(of).count()
    };
    for (number, (session, _)) in sessions.iter().enumerate().step_by(25) {
        assert_eq!(opened(session) > 0, number % 2 == 1, "{number}");
    }
    bench.summed = false;
    for (number, (session, _)) in sessions.iter().enumerate().step_by(25) {
        let seen = bench.up(true, &Message::data(session.teid, &up(session)));
        assert_eq!(seen.counted.contains_key("gtpu_teid"), number % 2 == 0, "{number}");
        let seen = bench.down(&down(session, 64));
        assert_eq!(seen.counted.contains_key("gtpu_no_session"), number % 2 == 0, "{number}");
    }
    // the TEIDs around
    bench.summed = false;
    for teid in [1, TEID, 0x2001, u32::MAX] {
        let seen = bench.up(true, &Message::data(teid, &datagram(true, false, 64, 4)));
        seen.counts("nobody's", &[("received", 1), ("gtpu_teid", 1), ("replies", 1)]);
    }
}
