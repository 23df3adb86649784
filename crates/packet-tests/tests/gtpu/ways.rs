//! Ways through tunnels: from one into another, to this host and from it, packets that are too long, ends of tunnels that
//! nobody knows the way to.

use sluice_abi::{GTPU_CONTAINER, GTPU_TO_PEER, GtpuRules};
use sluice_dataplane::{GtpuSession, Peer, Tunnel};
use sluice_packet_tests::gateway::Hook;
use sluice_packet_tests::netns::{ifindex, ip};
use sluice_packet_tests::tunnel::{Ends, Message, packet};

use super::Check;
use super::bench::{Action, Bench, PEER_TEID, TEID, UE, UE6, datagram};

pub const CHECKS: [Check; 11] = [
    ("between two subscribers", between),
    ("to this host and from it", host),
    ("packets that are too long are told so", too_long),
    ("a way that takes less than the mobile interface", short_way),
    ("the other end of the tunnel", other_end),
    ("from one tunnel into another (N9)", onward),
    ("End Marker and headers on their way (N9)", onward_signals),
    ("packets that are sent as several", joined),
    ("tunnels that end on a tagged unit", tagged),
    ("a next hop without a neighbour", no_neighbour),
    ("subscribers behind NAT and NAT64, in the end since it commits", translated),
];

/// Hairpin: out of one tunnel, into the other, past the policies between.
fn between(bench: &mut Bench) {
    bench.with(true, bench.rules());
    let other = GtpuSession {
        teid: TEID + 1,
        address: Some("10.45.0.9".parse().expect("an address")),
        prefix: None,
        tunnel: Tunnel { peer: bench.peer(false), teid: 42 },
        ..bench.session(true, bench.rules())
    };
    let number = bench.add(&other);
    let text = |hops| {
        packet(&format!("ip(src={UE}, dst=10.45.0.9, ttl={hops}, id=7)/udp(sport=5, dport=6)/fill(n=9)"))
    };
    for round in ["first packet", "established"] {
        let seen = bench.up_packet(true, &text(64));
        seen.counts(round, &[("received", 2), ("decapsulated", 1), ("redirected", 1)]);
        let ends = bench.n3(false).turned();
        let sport = u16::from_be_bytes([seen.frame[54], seen.frame[55]]);
        let (from, to) = (ends.from, ends.to);
        let ends = Ends { from: (from.0, from.1, sport), to: (to.0, to.1, 2152) };
        seen.leaves(round, &ends.tunnelled(&Message::data(42, &text(63)).bytes(), 0));
    }
    assert_eq!(bench.usage(number)[1], (2 * 37, 2));
}

fn host(bench: &mut Bench) {
    for inner4 in [true, false] {
        bench.begin();
        let number = bench.with(true, bench.rules());
        let mac = bench.gateway.plan.environment.netdevs["mif.0"].mac;
        let mac = sluice_wire::Mac(mac);
        let ping = if inner4 {
            packet(&format!("ip(src={UE}, dst=10.45.0.1)/icmp(type=echo-request, id=1, seq=1)/fill(n=8)"))
        } else {
            packet(&format!(
                "ip6(src={UE6}, dst=2001:db8:45::1)/icmp6(type=echo-request, id=1, seq=1)/fill(n=8)"
            ))
        };
        for round in ["first packet", "next one"] {
            let seen = bench.up_packet(true, &ping);
            seen.counts(round, &[("received", 2), ("decapsulated", 1), ("delivered_local", 1)]);
            seen.leaves(round, &bench.frame_of(&ping, mac, mac));
        }
        // what the host sends by the mobile unit comes out of its far end
        let pong = if inner4 {
            packet(&format!("ip(src=10.45.0.1, dst={UE})/icmp(type=echo-reply, id=1, seq=1)/fill(n=8)"))
        } else {
            packet(&format!(
                "ip6(src=2001:db8:45::1, dst={UE6})/icmp6(type=echo-reply, id=1, seq=1)/fill(n=8)"
            ))
        };
        // the far end is on tc whatever the other devices are on; prog-run enters the hook's own program
        let seen = bench.send("mif.0-peer", &bench.frame_of(&pong, mac, mac));
        seen.encapsulated("from the host", bench.n3(true).turned(), &Message::data(PEER_TEID, &pong), 0);
        assert_eq!(bench.usage(number)[1], (pong.len() as u64, 1));
        let group = if inner4 {
            packet("ip(src=10.45.0.1, dst=224.0.0.1)/udp(sport=1, dport=2)")
        } else {
            packet("ip6(src=2001:db8:45::1, dst=ff02::1)/udp(sport=1, dport=2)")
        };
        let seen = bench.send("mif.0-peer", &bench.frame_of(&group, mac, mac));
        seen.drops("to a group", "gtpu_no_session");
        // an answer to the subscriber leaves by the mobile unit, and finds its tunnel at the far end
        let expired = datagram(inner4, false, 1, 4);
        let seen = bench.up_packet(true, &expired);
        seen.counts("expired", &[("received", 2), ("decapsulated", 1), ("ttl_exceeded", 1), ("replies", 1)]);
        assert_eq!(seen.frame[..12], [mac.0, mac.0].concat());
        let answer = seen.frame[14..].to_vec();
        let seen = bench.send("mif.0-peer", &seen.frame);
        seen.encapsulated("the answer", bench.n3(true).turned(), &Message::data(PEER_TEID, &answer), 0);
    }
}

/// RFC 1191 4, RFC 8201: the mobile unit's MTU of 1400 counts, so that what is in a tunnel fits.
fn too_long(bench: &mut Bench) {
    let number = bench.with(true, bench.rules());
    for inner4 in [true, false] {
        let header = if inner4 { 28 } else { 48 };
        let seen = bench.down(&datagram(inner4, true, 64, 1401 - header));
        seen.counts("1401", &[("received", 1), ("too_big", 1), ("replies", 1)]);
        assert_eq!(seen.action, Action::Redirect);
        let told = if inner4 { &seen.frame[40..42] } else { &seen.frame[60..62] };
        assert_eq!(told, 1400u16.to_be_bytes());
        let seen = bench.down(&datagram(inner4, true, 64, 1400 - header));
        let message = Message::data(PEER_TEID, &datagram(inner4, true, 63, 1400 - header));
        seen.encapsulated("1400", bench.n3(true).turned(), &message, 0);
        // past the session's next hop
        let seen = bench.down(&datagram(inner4, true, 64, 1401 - header));
        seen.counts("1401, established", &[("received", 1), ("too_big", 1), ("replies", 1)]);
    }
    assert_eq!(bench.usage(number)[1], (2800, 2));
}

/// What an ICMP error of a frame says: type, code, MTU, and what it quotes.
fn error_in(frame: &[u8], v4: bool) -> ((u8, u8, u16), &[u8]) {
    let at = if v4 { 34 } else { 54 };
    let mtu = u16::from_be_bytes([frame[at + 6], frame[at + 7]]);
    ((frame[at], frame[at + 1], mtu), &frame[at + 8..])
}

/// A session whose other end is reached by a route that takes 1300 bytes, so 1264 of a packet in it.
fn short(bench: &Bench, relay: bool) -> u32 {
    short_by(bench, "10.3.0.8", "10.3.0.7", relay)
}

/// The other end, and by whom it is reached.
fn short_by(bench: &Bench, remote: &str, via: &str, relay: bool) -> u32 {
    ip(&[format!("route replace {remote}/32 via {via} mtu lock 1300")]).expect("a route");
    let peer = Peer { remote: remote.parse().expect("an address"), ..bench.peer(true) };
    let rules = GtpuRules { flags: if relay { GTPU_TO_PEER as u16 } else { 0 }, ..bench.rules() };
    bench.add(&GtpuSession { tunnel: Tunnel { peer, teid: 9 }, ..bench.session(true, rules) })
}

/// TS 29.281 4.4.2 leaves it to the path: what does not fit is answered with what would (RFC 1191 4, RFC 8201 4), by the
/// session's own way back. Nothing of it counts as usage (TS 29.244 5.2.2.2).
fn short_way(bench: &mut Bench) {
    let number = short(bench, false);
    bench.summed = false; // they are cut
    let (server, gateway) = (bench.host("server"), bench.mac("n6.0"));
    for inner4 in [true, false] {
        let header = if inner4 { 28 } else { 48 };
        let long = datagram(inner4, true, 64, 1265 - header);
        let ends = [server.0, gateway.0].concat();
        let answered = |seen: &super::bench::Outcome, what: &str| {
            seen.counts(what, &[("received", 2), ("gtpu_mtu", 1), ("icmp_related", 1), ("redirected", 1)]);
            assert_eq!(seen.action, Action::Redirect, "{what}");
            assert_eq!(seen.frame[..12], ends, "{what}");
            let (told, quoted) = error_in(&seen.frame, inner4);
            assert_eq!(told, if inner4 { (3, 4, 1264) } else { (2, 0, 1264) }, "{what}");
            // the packet as the tunnel would have carried it, but for its hop
            let before = if inner4 { 12 } else { 8 };
            assert_eq!(quoted[before..before + 24], long[before..before + 24], "{what}");
        };
        answered(&bench.down(&long), "first packet");
        answered(&bench.down(&long), "established");
        let seen = bench.down(&datagram(inner4, true, 64, 1264 - header));
        seen.counts("fits", &[("received", 1), ("redirected", 1)]);
    }
    // RFC 1122 3.2.2: never about an error
    let quoted = "ip(src=10.45.0.2, dst=10.6.0.100)/udp(sport=1000, dport=53)/fill(n=1300)";
    bench.up_packet(true, &datagram(true, false, 64, 20));
    let error = format!("ip(src=10.6.0.100, dst=10.45.0.2)/icmp(type=unreachable, code=1)/{quoted}");
    bench.down(&packet(&error)).counts("an error", &[("received", 1), ("gtpu_mtu", 1), ("icmp_related", 1)]);
    assert_eq!(bench.usage(number)[1], (2 * 1264, 2));
    bench.begin();
    // the same where nobody has asked for the neighbour yet
    let number = short_by(bench, "10.3.0.9", "10.3.0.77", false);
    let seen = bench.down(&datagram(true, true, 64, 1265 - 28));
    seen.counts("no neighbour", &[("received", 2), ("gtpu_mtu", 1), ("icmp_related", 1), ("redirected", 1)]);
    assert_eq!((error_in(&seen.frame, true).0, bench.usage(number)[1].1), ((3, 4, 1264), 0));
    bench.begin();
    // a message that goes on: its sender has 36 bytes of headers, as the next one has
    short(bench, true);
    let inner = datagram(true, false, 64, 1265 - 28);
    let seen = bench.up_packet(true, &inner);
    seen.counts("relayed", &[("received", 1), ("gtpu_mtu", 1), ("replies", 1)]);
    assert_eq!(error_in(&seen.frame, true).0, (3, 4, 1300));
    assert_eq!(seen.frame[30..34], [10, 3, 0, 7]);
}

fn other_end(bench: &mut Bench) {
    let down = datagram(true, true, 64, 20);
    let to = |bench: &Bench, remote: &str| {
        let peer = Peer { remote: remote.parse().expect("an address"), ..bench.peer(true) };
        bench.add(&GtpuSession { tunnel: Tunnel { peer, teid: 9 }, ..bench.session(true, bench.rules()) })
    };
    to(bench, "192.0.2.9");
    bench.down(&down).drops("no route", "gtpu_peer");
    bench.begin();
    to(bench, "10.45.7.7");
    bench.down(&down).drops("behind a mobile unit", "gtpu_peer");
    bench.begin();
    // nobody has asked for it: the kernel does
    to(bench, "10.3.0.77");
    let seen = bench.down(&down);
    seen.counts("an unknown neighbour", &[("received", 1), ("handed_off", 1), ("queued", 1)]);
    let wanted = if bench.hook() == Hook::Tc { Action::Redirect } else { Action::Pass };
    assert_eq!(seen.action, wanted);
    let message = Message::data(9, &datagram(true, true, 63, 20)).bytes();
    assert_eq!(seen.frame[14 + 28..], message[..]);
    bench.begin();
    // a route that takes less than the tunnel needs
    ip(&["route replace 10.3.0.8/32 via 10.3.0.7 mtu lock 1300".to_owned()]).expect("a route");
    to(bench, "10.3.0.8");
    let seen = bench.down(&datagram(true, true, 64, 1300 - 36 - 28));
    seen.counts("just fits", &[("received", 1), ("redirected", 1)]);
    let seen = bench.down(&datagram(true, true, 64, 1301 - 36 - 28));
    seen.counts("does not", &[("received", 2), ("gtpu_mtu", 1), ("icmp_related", 1), ("redirected", 1)]);
    bench.begin();
    // by the other unit, with its tag
    let peer = Peer {
        local: bench.n9(true).to.1,
        remote: bench.n9(true).from.1,
        ifindex: ifindex("n9.9").expect("a device"),
    };
    bench.add(&GtpuSession { tunnel: Tunnel { peer, teid: 9 }, ..bench.session(true, bench.rules()) });
    let seen = bench.down(&down);
    let message = Message::data(9, &datagram(true, true, 63, 20));
    let seen = untagged(bench, seen);
    seen.encapsulated("a tagged unit", bench.n9(true).turned(), &message, 0);
}

/// On XDP the tag stands in the frame; on tc beside it, where prog-run does not show it.
fn untagged(bench: &Bench, mut seen: super::bench::Outcome) -> super::bench::Outcome {
    if bench.hook() == Hook::Xdp {
        assert_eq!(seen.frame[12..16], [0x81, 0, 0, 9]);
        seen.frame.drain(12..16);
    }
    seen
}

/// TS 23.501 5.8.2.3, TS 29.281 4.2.5: what comes under a TEID goes on under another one, container and all.
fn onward(bench: &mut Bench) {
    for (from4, to4) in [(true, true), (true, false), (false, true), (false, false)] {
        bench.begin();
        let n9 = bench.n9(to4);
        let peer = Peer { local: n9.to.1, remote: n9.from.1, ifindex: ifindex("n9.9").expect("a device") };
        let rules = GtpuRules { flags: GTPU_TO_PEER as u16, ..bench.rules() };
        let session = GtpuSession { tunnel: Tunnel { peer, teid: 77 }, ..bench.session(from4, rules) };
        let number = bench.add(&session);
        let inner = datagram(true, false, 64, 20);
        let messages = [
            ("plain", Message::data(TEID, &inner)),
            ("with a container", Message::data(TEID, &inner).with(&[(0x85, &[0x10, 9])])),
            (
                "with a sequence number",
                Message { flags: 0x32, options: [1, 2, 0, 0], ..Message::data(TEID, &inner) },
            ),
            ("with a header for the end, 5.2.1", Message::data(TEID, &inner).with(&[(0x82, &[0, 1])])),
            ("whatever is in it", Message::data(TEID, &[0xaa; 33])),
        ];
        let mut bytes = 0;
        for (what, message) in &messages {
            let seen = bench.up(from4, message);
            seen.counts(what, &[("received", 1), ("redirected", 1)]);
            let seen = untagged(bench, seen);
            let expected = Message { teid: 77, ..message.clone() }.bytes();
            let mut ends = n9.turned();
            (ends.from.2, ends.to.2) = (30000, 2152);
            seen.leaves(what, &ends.tunnelled(&expected, 0));
            bytes += message.body.len() as u64;
        }
        assert_eq!(bench.usage(number)[0], (bytes, 5));
        // what the first tunnel met of congestion is told behind the second (RFC 6040 4.2)
        let field = if from4 { ", tos=0xbb" } else { ", tc=0xbb" };
        let frame = bench.n3(from4).frame_with(&messages[0].1.bytes(), field, "");
        let seen = bench.send("n3", &frame);
        let seen = untagged(bench, seen);
        let mut ends = n9.turned();
        (ends.from.2, ends.to.2) = (30000, 2152);
        let expected = Message { teid: 77, ..messages[0].1.clone() }.bytes();
        seen.leaves("met congestion", &ends.tunnelled(&expected, 0xbb));
        // and from the frame with a tag, back to the base station
        let back = GtpuSession {
            teid: TEID + 5,
            address: Some("10.45.0.5".parse().expect("an address")),
            prefix: None,
            tunnel: Tunnel { peer: bench.peer(from4), teid: 88 },
            ..session
        };
        bench.add(&back);
        let message = Message::data(TEID + 5, &inner).with(&[(0x85, &[0, 9])]);
        let plain = n9.frame(&message.bytes());
        let frame = [&plain[..12], &[0x81, 0, 0, 9], &plain[12..]].concat();
        bench.summed = false; // the tag leaves the frame without it
        let seen = bench.send("n9", &frame);
        seen.counts("back", &[("received", 1), ("redirected", 1)]);
        let mut ends = bench.n3(from4).turned();
        (ends.from.2, ends.to.2) = (30000, 2152);
        seen.leaves("back", &ends.tunnelled(&Message { teid: 88, ..message }.bytes(), 0));
    }
}

fn onward_signals(bench: &mut Bench) {
    let n9 = bench.n9(true);
    let peer = Peer { local: n9.to.1, remote: n9.from.1, ifindex: ifindex("n9.9").expect("a device") };
    let rules = GtpuRules { flags: (GTPU_TO_PEER | GTPU_CONTAINER) as u16, qfi: 3, ..bench.rules() };
    let number = bench.add(&GtpuSession { tunnel: Tunnel { peer, teid: 77 }, ..bench.session(true, rules) });
    let marker = Message { kind: 254, ..Message::data(TEID, &[]) };
    let seen = bench.up(true, &marker);
    seen.counts("End Marker, 7.3.2", &[("received", 1), ("redirected", 1)]);
    let seen = untagged(bench, seen);
    let mut ends = n9.turned();
    (ends.from.2, ends.to.2) = (30000, 2152);
    seen.leaves("End Marker, 7.3.2", &ends.tunnelled(&Message { teid: 77, ..marker }.bytes(), 0));
    // 5.2.1: 10 is for the end of the tunnel, 11 for everybody; PDCP PDU numbers are for whom they are forwarded to
    bench.summed = false;
    for (kind, passes) in
        [(0x81, true), (0xbf, true), (0xc0, true), (0xc1, false), (0xff, false), (0x3f, true)]
    {
        let seen = bench.up(true, &Message::data(TEID, &[0xaa; 20]).with(&[(kind, &[0, 0])]));
        assert_eq!(seen.counted.contains_key("gtpu_extension"), !passes, "{kind:#x}: {:?}", seen.counted);
    }
    assert_eq!(bench.usage(number)[0], (80, 4));
    let tail = [bench.n3(true).frame(&Message::data(TEID, &[0xaa; 20]).bytes()), vec![0; 9]].concat();
    let seen = bench.send("n3", &tail);
    let seen = untagged(bench, seen);
    seen.leaves("a trailer ends here", &ends.tunnelled(&Message::data(77, &[0xaa; 20]).bytes(), 0));
}

/// GSO: the kernel cuts it on its way through the mobile unit's device, and the far end puts each piece into the tunnel.
fn joined(bench: &mut Bench) {
    use std::os::fd::AsFd;

    use sluice_dataplane::prog_run::{self, TcRun};

    if bench.hook() != Hook::Tc {
        return;
    }
    let number = bench.with(true, bench.rules());
    let inner = packet(&format!("ip(src=10.6.0.100, dst={UE}, ttl=64)/tcp(sport=80, dport=9, flags=S)"));
    bench.down(&inner);
    let inner = packet(&format!("ip(src={UE}, dst=10.6.0.100)/tcp(sport=9, dport=80, flags=SA, ack=1)"));
    bench.up_packet(true, &inner);
    let usage = bench.usage(number);
    let inner = packet(&format!(
        "ip(src=10.6.0.100, dst={UE}, ttl=64)/tcp(sport=80, dport=9, flags=A, seq=1, ack=1)/fill(n=3000)"
    ));
    let frame = bench.frame_of(&inner, bench.mac("n6.0"), bench.host("server"));
    let program = bench.gateway.arrive("n6").expect("a program");
    // 0: of a virtual machine's, or of a packet socket's, the kernel has not counted them
    for gso_segs in [3, 0] {
        let run = TcRun { gso_segs, gso_size: 1000, ..TcRun::new(&frame, ifindex("n6").expect("a device")) };
        let seen = prog_run::tc(program.as_fd(), &run).expect("a run");
        assert_eq!(seen.retval, 7);
        let mac = bench.gateway.plan.environment.netdevs["mif.0"].mac;
        assert_eq!(seen.data[..12], [mac, mac].concat());
        let (counted, packets) = (bench.counted(), u64::from(gso_segs.max(1)));
        assert_eq!((counted["received"], counted["redirected"]), (packets, packets));
    }
    assert_eq!(bench.usage(number), usage);
}

fn tagged(bench: &mut Bench) {
    let number = bench.with(true, bench.rules());
    bench.summed = false; // the tag leaves the frame without it
    for outer4 in [true, false] {
        let plain = bench.n9(outer4).frame(&Message::data(TEID, &datagram(true, false, 64, 20)).bytes());
        let frame = [&plain[..12], &[0x81, 0, 0, 9], &plain[12..]].concat();
        let expected = bench.out_of_n6(&datagram(true, false, 63, 20));
        bench.send("n9", &frame).decapsulated("a G-PDU", &expected);
        let plain = bench.n9(outer4).frame(&Message::signal(1, 0, 6, &[]).bytes());
        let frame = [&plain[..12], &[0x81, 0, 0, 9], &plain[12..]].concat();
        let seen = bench.send("n9", &frame);
        seen.counts("an echo", &[("received", 1), ("gtpu_signals", 1), ("replies", 1)]);
        let seen = untagged(bench, seen);
        let mut ends = bench.n9(outer4).turned();
        ends.from.2 = 2152;
        seen.leaves("an echo", &ends.signalled(&Message::signal(2, 0, 6, &[14, 0]).bytes()));
    }
    // the tunnel's address on another unit is none there
    let n9 = bench.n9(true);
    let ends = Ends { from: bench.n3(true).from, to: (bench.mac("n3.0"), n9.to.1, 2152) };
    let frame = ends.frame(&Message::data(TEID, &datagram(true, false, 64, 20)).bytes());
    bench.send("n3", &frame).drops("by another unit", "host_inbound");
    assert_eq!(bench.usage(number)[0].1, 2);
}

/// What the daemon hears of neighbours, or does not, says nothing of subscribers: they have none.
fn no_neighbour(bench: &mut Bench) {
    bench.with(true, bench.rules());
    bench.down(&datagram(true, true, 64, 20));
    bench.down(&datagram(false, true, 64, 20));
    let mobile = ifindex("mif.0").expect("a device");
    let dataplane = &bench.gateway.dataplane;
    let entries = dataplane.nexthops().expect("next hops");
    let own: Vec<u32> = entries.iter().filter(|e| e.host_ifindex == mobile).map(|e| e.index).collect();
    assert_eq!(own.len(), 2, "one a family");
    for index in own {
        assert!(!dataplane.unresolve_nexthop(index).expect("an entry"));
    }
    let asked = dataplane.neighbours_in_use(1000).expect("neighbours");
    assert!(!asked.iter().any(|(device, _)| *device == mobile), "{asked:?}");
    bench.counted();
    let seen = bench.down(&datagram(true, true, 64, 20));
    let message = Message::data(PEER_TEID, &datagram(true, true, 63, 20));
    seen.encapsulated("after that", bench.n3(true).turned(), &message, 0);
}

/// Translated like packets of any zone, on both paths; quotas count what the subscriber sees.
fn translated(bench: &mut Bench) {
    let nat = "nat {
        static {
            rule-set nat64 {
                from zone subscribers;
                rule all { match { destination-address 2001:dbe:122:344::/96; } then { static-nat { inet; } } }
            }
        }
        source {
            pool outside { address { 203.0.113.9/32; } port { range 20000 to 29999; preserve-source; } }
            rule-set out {
                from zone subscribers;
                to zone internet;
                rule all { match { source-address [ 10.45.0.0/16 2001:db8:45::/48 ]; } then { source-nat { pool outside; } } }
            }
        }
    }";
    let config = std::fs::read_to_string(&bench.gateway.world.config).expect("a configuration");
    let config = config.replacen("policies {", &format!("{nat}\n    policies {{"), 1);
    let config = format!("routing-options {{ static {{ route 203.0.113.9/32 discard; }} }}\n{config}");
    bench.gateway.commit(&config).expect("a commit");
    let number = bench.with(true, bench.rules());
    let nat4 = |inner: &str| packet(inner);
    let out = nat4("ip(src=203.0.113.9, dst=10.6.0.100, ttl=63, id=7)/udp(sport=20200, dport=53)/fill(n=20)");
    let back =
        nat4("ip(src=10.6.0.100, dst=203.0.113.9, ttl=64, id=7)/udp(sport=53, dport=20200)/fill(n=20)");
    let up =
        packet(&format!("ip(src={UE}, dst=10.6.0.100, ttl=64, id=7)/udp(sport=20200, dport=53)/fill(n=20)"));
    let down =
        packet(&format!("ip(src=10.6.0.100, dst={UE}, ttl=63, id=7)/udp(sport=53, dport=20200)/fill(n=20)"));
    for round in ["first packets", "established"] {
        bench.up_packet(true, &up).decapsulated(round, &bench.out_of_n6(&out));
        let seen = bench.down(&back);
        seen.encapsulated(round, bench.n3(true).turned(), &Message::data(PEER_TEID, &down), 0);
    }
    assert_eq!(bench.usage(number), [(96, 2), (96, 2)]);
    let up6 = packet(&format!(
        "ip6(src={UE6}, dst=2001:dbe:122:344::10.6.0.100, hop=64)/udp(sport=20300, dport=53)/fill(n=20)"
    ));
    let down6 = packet(&format!(
        "ip6(src=2001:dbe:122:344::10.6.0.100, dst={UE6}, hop=63)/udp(sport=53, dport=20300)/fill(n=20)"
    ));
    let back =
        packet("ip(src=10.6.0.100, dst=203.0.113.9, ttl=64, df)/udp(sport=53, dport=20300)/fill(n=20)");
    for round in ["NAT64, first packets", "NAT64, established"] {
        let seen = bench.up_packet(true, &up6);
        seen.counts(round, &[("received", 2), ("decapsulated", 1), ("redirected", 1)]);
        assert_eq!(seen.frame[12..14], [8, 0], "{round}");
        let seen = bench.down(&back);
        seen.encapsulated(round, bench.n3(true).turned(), &Message::data(PEER_TEID, &down6), 0);
    }
    assert_eq!(bench.usage(number), [(96 + 136, 4), (96 + 136, 4)]);
    // RFC 5508 4.2: who is told that a packet was too long knows only the address that it was sent to
    bench.begin();
    short(bench, false);
    bench.up_packet(true, &up).decapsulated("a short way", &bench.out_of_n6(&out));
    let long =
        packet("ip(src=10.6.0.100, dst=203.0.113.9, ttl=64, id=7)/udp(sport=53, dport=20200)/fill(n=1300)");
    bench.summed = false; // it is cut
    let seen = bench.down(&long);
    seen.counts("translated", &[("received", 2), ("gtpu_mtu", 1), ("icmp_related", 1), ("redirected", 1)]);
    let (told, quoted) = error_in(&seen.frame, true);
    assert_eq!((told, &quoted[12..24]), ((3, 4, 1264), &long[12..24]));
    assert_eq!(seen.frame[30..34], [10, 6, 0, 100]);
}
