//! Headers of messages: every combination of E, S and PN, chains of extension headers, lengths that do not fit.

use sluice_abi::{GTPU_CONTAINER, GTPU_REFLECTIVE, GtpuRules};
use sluice_packet_tests::tunnel::{Message, packet};

use super::Check;
use super::bench::{Action, Bench, Families, PEER_TEID, TEID, UE, datagram};

pub const CHECKS: [Check; 9] = [
    ("packets pass in all four combinations of families", families),
    ("optional fields and extension headers", options),
    ("what is malformed changes nothing", malformed),
    ("a PDU Session Container", container),
    ("bytes behind the end of each level", trailing),
    ("packets in tunnels that are none", inner),
    ("inner options and fragments", inner_options),
    ("outer options and fragments", outer),
    ("other traffic of the unit", others),
];

fn families(bench: &mut Bench) {
    for Families { inner4, outer4 } in Families::ALL {
        bench.begin();
        let number = bench.with(outer4, bench.rules());
        for round in ["first packet", "established"] {
            let what = format!("{round}, inner IPv4 {inner4}, outer IPv4 {outer4}");
            let seen = bench.up_packet(outer4, &datagram(inner4, false, 64, 20));
            seen.decapsulated(&what, &bench.out_of_n6(&datagram(inner4, false, 63, 20)));
            let seen = bench.down(&datagram(inner4, true, 64, 300));
            let message = Message::data(PEER_TEID, &datagram(inner4, true, 63, 300));
            seen.encapsulated(&what, bench.n3(outer4).turned(), &message, 0);
        }
        let header = if inner4 { 28 } else { 48 };
        assert_eq!(bench.usage(number), [(2 * (header + 20), 2), (2 * (header + 300), 2)]);
    }
}

/// TS 29.281 5.1: the optional fields are there as a whole if one flag is set, and each means something only with its own
/// flag. 5.2.1: what follows in the chain, and which of it must be understood.
fn options(bench: &mut Bench) {
    const CONTAINER: &[u8] = &[0x10, 0x09];
    let plain = Message::data(TEID, &datagram(true, false, 64, 20));
    let flags =
        |more: u8, next: u8| Message { flags: 0x30 | more, options: [0, 7, 3, next], ..plain.clone() };
    let chain = |chain: &[(u8, &[u8])]| plain.clone().with(chain);
    let long: &[u8] = &[0; 254];
    let eight = [(0x20, CONTAINER); 8];
    let nine = [(0x20, CONTAINER); 9];
    let pass = [
        ("S, 5.1", flags(0x02, 0)),
        ("PN, 5.1", flags(0x01, 0)),
        ("S and PN, 5.1", flags(0x03, 0)),
        ("E without a chain, 5.1", flags(0x04, 0)),
        ("E, S and PN, 5.1", flags(0x07, 0)),
        ("S, and a next type that means nothing without E, 5.1", flags(0x02, 0x85)),
        ("PN, and a next type that would have to be understood, 5.1", flags(0x01, 0xc1)),
        ("reserved bit set, 5.1: not evaluated", Message { flags: 0x38, ..plain.clone() }),
        ("PDU Session Container, 5.2.2.7", chain(&[(0x85, CONTAINER)])),
        ("with S and PN", Message { flags: 0x37, ..chain(&[(0x85, CONTAINER)]) }),
        ("longer container, TS 38.415 5.5.2.2", chain(&[(0x85, &[0x18, 9, 1, 2, 3, 4])])),
        ("Service Class Indicator, 5.2.2.3: need not be understood", chain(&[(0x20, CONTAINER)])),
        ("UDP Port, 5.2.2.1", chain(&[(0x40, CONTAINER)])),
        ("not known and need not be, 5.2.1", chain(&[(0x3f, CONTAINER), (0x7f, CONTAINER)])),
        ("container behind another, 5.2.1", chain(&[(0x20, CONTAINER), (0x85, CONTAINER)])),
        ("eight headers", chain(&eight)),
        ("256 octets", chain(&[(0x20, long)])),
    ];
    let answered = [
        ("RAN Container, 5.2.2.4: must be understood", chain(&[(0x81, CONTAINER)])),
        ("Long PDCP PDU number, 5.2.2.2A", chain(&[(0x82, CONTAINER)])),
        ("Xw RAN Container", chain(&[(0x83, CONTAINER)])),
        ("NR RAN Container, 5.2.2.6", chain(&[(0x84, CONTAINER)])),
        ("PDCP PDU number, 5.2.2.2", chain(&[(0xc0, CONTAINER)])),
        ("not known, for the endpoint, 5.2.1", chain(&[(0xbf, CONTAINER)])),
        ("not known, for everybody, 5.2.1", chain(&[(0xff, CONTAINER)])),
        ("behind one that is known", chain(&[(0x85, CONTAINER), (0xc1, CONTAINER)])),
    ];
    let number = bench.with(true, bench.rules());
    let expected = bench.out_of_n6(&datagram(true, false, 63, 20));
    for (what, message) in &pass {
        bench.up(true, message).decapsulated(what, &expected);
    }
    let usage = bench.usage(number);
    bench.summed = false;
    for (what, message) in &answered {
        let seen = bench.up(true, message);
        seen.counts(what, &[("received", 1), ("gtpu_extension", 1), ("replies", 1)]);
        // 7.2.3 and 8.5: the types that are known, to the port of G-PDUs (4.4.2.5)
        let told = Message::signal(31, 0, 0, &[141, 2, 0x40, 0x85]);
        let ends = bench.n3(true);
        let mut back = ends.turned();
        (back.from.2, back.to.2) = (2152, 2152);
        seen.leaves(what, &back.signalled(&told.bytes()));
    }
    bench.up(true, &chain(&nine)).drops("nine headers", "gtpu_extension");
    assert_eq!(bench.usage(number), usage);
}

fn malformed(bench: &mut Bench) {
    let number = bench.with(true, bench.rules());
    let inner = datagram(true, false, 64, 20);
    let plain = Message::data(TEID, &inner);
    let length = |length: u16| Message { length: Some(length), ..plain.clone() };
    let cut = |message: &Message, left: usize| message.bytes()[..left].to_vec();
    let chained = plain.clone().with(&[(0x85, &[0x10, 9])]);
    let mut zero = chained.clone();
    zero.extensions[0] = 0;
    let mut over = chained.clone();
    over.extensions[0] = 200;
    let messages: [(&str, Vec<u8>); 12] = [
        ("nothing", vec![]),
        ("seven octets, 5.1", cut(&plain, 7)),
        ("length of one more than there is, 5.1", length(inner.len() as u16 + 1).bytes()),
        ("length 65535", length(65535).bytes()),
        (
            "S, and no room for the optional fields, 5.1",
            Message { flags: 0x32, length: Some(3), ..plain.clone() }.bytes(),
        ),
        (
            "E, and a message of eight octets",
            Message { flags: 0x34, body: vec![], options: [0; 4], length: Some(0), ..plain.clone() }.bytes(),
        ),
        ("E, and no room for the extension header", cut(&Message { length: Some(4), ..chained.clone() }, 12)),
        ("extension header of length 0, 5.2.1", zero.bytes()),
        ("extension header that is longer than the message, 5.2.1", over.bytes()),
        (
            "extension header of which one octet is there",
            cut(&Message { length: Some(5), ..chained.clone() }, 13),
        ),
        ("Error Indication without elements, 7.3.1", Message::signal(26, 0, 0, &[]).bytes()),
        (
            "Error Indication that ends in an element",
            Message::signal(26, 0, 0, &[16, 0, 0, 0, 1, 133, 0, 4, 10]).bytes(),
        ),
    ];
    for (what, message) in &messages {
        let frame = bench.n3(true).frame(message);
        let seen = bench.send("n3", &frame);
        seen.drops(what, "gtpu_malformed");
        assert_eq!(seen.frame, frame, "{what}: the frame stays as it is");
    }
    for (what, field) in [("longer", inner.len() + 17), ("shorter than its header", 7), ("without GTP-U", 15)]
    {
        let frame = bench.n3(true).frame_with(&plain.bytes(), "", &format!(", len={field}"));
        let seen = bench.send("n3", &frame);
        seen.drops(&format!("UDP length {what} (RFC 768)"), "gtpu_malformed");
    }
    // version 1 and GTP' (TS 32.295): another protocol
    bench.up(true, &Message { flags: 0x20, ..plain.clone() }).drops("PT 0, 5.1", "gtpu_version");
    assert_eq!(bench.usage(number), [(0, 0); 2]);
}

/// TS 38.415 5.5.2.1: type 0, no paging policy, RQI, QFI.
fn container(bench: &mut Bench) {
    for (flags, octet) in [(GTPU_CONTAINER, 9), (GTPU_CONTAINER | GTPU_REFLECTIVE, 0x40 | 9)] {
        for Families { inner4, outer4 } in Families::ALL {
            bench.begin();
            bench.with(outer4, GtpuRules { flags: flags as u16, qfi: 9, ..bench.rules() });
            let up = Message::data(TEID, &datagram(inner4, false, 64, 1)).with(&[(0x85, &[0x10, 9])]);
            let expected = bench.out_of_n6(&datagram(inner4, false, 63, 1));
            bench.up(outer4, &up).decapsulated("uplink", &expected);
            let down =
                Message::data(PEER_TEID, &datagram(inner4, true, 63, 100)).with(&[(0x85, &[0, octet])]);
            let seen = bench.down(&datagram(inner4, true, 64, 100));
            seen.encapsulated("downlink", bench.n3(outer4).turned(), &down, 0);
        }
    }
}

/// What stands behind the end of a packet, a message or a datagram is no part of it, and goes nowhere.
fn trailing(bench: &mut Bench) {
    bench.summed = false;
    let number = bench.with(true, bench.rules());
    let inner = datagram(true, false, 64, 20);
    let expected = bench.out_of_n6(&datagram(true, false, 63, 20));
    let padded = [&inner[..], &[0xaa; 9]].concat();
    bench.up_packet(true, &padded).decapsulated("behind the inner packet", &expected);
    let message = [Message::data(TEID, &inner).bytes(), vec![0xaa; 5]].concat();
    let frame = bench.n3(true).frame(&message);
    bench.send("n3", &frame).decapsulated("behind the message", &expected);
    let message = Message::data(TEID, &inner).bytes();
    let frame = [bench.n3(true).frame(&message), vec![0xaa; 7]].concat();
    bench.send("n3", &frame).decapsulated("behind the outer packet", &expected);
    let length = 8 + message.len();
    let frame =
        bench.n3(true).frame_with(&[&message[..], &[0xaa; 3]].concat(), "", &format!(", len={length}"));
    bench.send("n3", &frame).decapsulated("behind the datagram", &expected);
    assert_eq!(bench.usage(number), [(4 * inner.len() as u64, 4), (0, 0)]);
    // Ethernet's least length
    let small = datagram(true, true, 64, 1);
    let frame = [bench.frame_of(&small, bench.mac("n6.0"), bench.host("server")), vec![0; 17]].concat();
    let seen = bench.send("n6", &frame);
    let message = Message::data(PEER_TEID, &datagram(true, true, 63, 1));
    seen.encapsulated("padding of the frame", bench.n3(true).turned(), &message, 0);
}

fn inner(bench: &mut Bench) {
    let number = bench.with(true, bench.rules());
    let good = datagram(true, false, 64, 20);
    let six = datagram(false, false, 64, 20);
    let change = |at: usize, value: u8| {
        let mut packet = good.clone();
        packet[at] = value;
        packet
    };
    let packets = [
        ("nothing", vec![]),
        ("19 octets", good[..19].to_vec()),
        ("version 5", change(0, 0x55)),
        ("version 0", change(0, 0x05)),
        ("header of four words", change(0, 0x44)),
        ("total length less than the header", change(3, 19)),
        ("total length more than the message", change(3, good.len() as u8 + 1)),
        ("IPv6 that ends in its header", six[..39].to_vec()),
        ("IPv6 payload longer than the message", {
            let mut packet = six.clone();
            packet[5] += 1;
            packet
        }),
    ];
    for (what, packet) in &packets {
        let seen = bench.up_packet(true, packet);
        seen.drops(what, "gtpu_inner");
    }
    assert_eq!(bench.usage(number), [(0, 0); 2]);
    // what a router says of any packet is said of these, at the mobile unit
    let counts = |reason| [("received", 2), ("decapsulated", 1), (reason, 1)];
    bench.up_packet(true, &change(10, 0x55)).counts("header checksum", &counts("bad_ip_header"));
    let seen = bench.up_packet(true, &datagram(true, false, 1, 20));
    seen.counts("TTL 1", &[("received", 2), ("decapsulated", 1), ("ttl_exceeded", 1), ("replies", 1)]);
    assert_eq!(seen.action, Action::Redirect);
}

fn inner_options(bench: &mut Bench) {
    bench.with(true, bench.rules());
    let text = |hops: u8, more: &str| {
        packet(&format!(
            "ip(src={UE}, dst=10.6.0.100, ttl={hops}, id=9{more})/udp(sport=1001, dport=53)/fill(n=64)"
        ))
    };
    for more in [", opts=0x94040000", ", opts=0x0101010100000000", ", df", ", mf"] {
        let seen = bench.up_packet(true, &text(64, more));
        seen.decapsulated(more, &bench.out_of_n6(&text(63, more)));
    }
    let later = |hops| {
        packet(&format!("ip(src={UE}, dst=10.6.0.100, ttl={hops}, id=9, frag=9, proto=udp)/fill(n=40)"))
    };
    let seen = bench.up_packet(true, &later(64));
    seen.decapsulated("a later fragment", &bench.out_of_n6(&later(63)));
}

/// Behind a kilobyte of options, one of which seems to have another message, where an offset of ten bits would lead.
fn behind_options(bench: &Bench, message: &[u8]) -> Vec<u8> {
    let mut frame = bench.n3(false).frame(message);
    let udp = frame.split_off(54);
    let mut options = vec![0u8; 1032];
    options[..2].copy_from_slice(&[17, (1032 / 8 - 1) as u8]);
    // options that whoever does not know them passes over (RFC 8200 4.2)
    (2..1030).step_by(257).for_each(|at| options[at..at + 2].copy_from_slice(&[0x1e, 255]));
    options[1030..].copy_from_slice(&[1, 0]);
    options[8..8 + udp.len()].copy_from_slice(&udp);
    frame[18..20].copy_from_slice(&((options.len() + udp.len()) as u16).to_be_bytes());
    frame[20] = 60;
    [frame, options, udp].concat()
}

fn outer(bench: &mut Bench) {
    let number = bench.with(true, bench.rules());
    let inner = datagram(true, false, 64, 20);
    let message = Message::data(TEID, &inner).bytes();
    let expected = bench.out_of_n6(&datagram(true, false, 63, 20));
    for (what, fields, udp) in [
        ("options of the outer header", ", opts=0x94040000", ""),
        ("outer TTL 1: it ends here", ", ttl=1", ""),
        ("no UDP checksum", "", ", csum=0"),
    ] {
        let frame = bench.n3(true).frame_with(&message, fields, udp);
        bench.send("n3", &frame).decapsulated(what, &expected);
    }
    let usage = bench.usage(number);
    bench.send("n3", &behind_options(bench, &message)).drops("far behind its header", "gtpu_malformed");
    let first = bench.n3(true).frame_with(&message, ", mf, id=77", "");
    bench.send("n3", &first).drops("a first fragment", "gtpu_fragment");
    let ((smac, source, _), (dmac, destination, _)) = (bench.n3(true).from, bench.n3(true).to);
    let at = (message.len() + 8) / 8;
    let later = packet(&format!(
        "eth(dst={dmac}, src={smac})/ip(src={source}, dst={destination}, id=77, frag={at}, proto=udp)/fill(n=20)"
    ));
    bench.send("n3", &later).drops("one that follows it", "gtpu_fragment");
    // RFC 1122 3.2.1.3, RFC 4291 2.5.3, 2.7
    for from in ["224.0.0.7", "127.0.0.1", "0.1.2.3", "ff01::7", "::1"] {
        let address: std::net::IpAddr = from.parse().expect("an address");
        let mut ends = bench.n3(address.is_ipv4());
        ends.from.1 = address;
        bench.send("n3", &ends.frame(&message)).drops(from, "bad_address");
    }
    assert_eq!(bench.usage(number), usage);
}

/// A unit that tunnels end on is a unit like others besides.
fn others(bench: &mut Bench) {
    let ((smac, source, _), (dmac, ..)) = (bench.n3(true).from, bench.n3(true).to);
    let through = |hops: u8, to: &str, dport: u16| {
        packet(&format!("ip(src={source}, dst={to}, ttl={hops})/udp(sport=2152, dport={dport})/fill(n=20)"))
    };
    for dport in [2152, 53] {
        for round in ["first packet", "established"] {
            let frame = bench.frame_of(&through(64, "10.6.0.100", dport), dmac, smac);
            let seen = bench.send("n3", &frame);
            seen.counts(round, &[("received", 1), ("redirected", 1)]);
            seen.leaves(round, &bench.out_of_n6(&through(63, "10.6.0.100", dport)));
        }
    }
    // nor does a tunnel end where subscribers are: what they send to the port goes its way
    bench.with(true, bench.rules());
    for round in ["first packet", "established"] {
        let sent = |hops: u8| {
            packet(&format!(
                "ip(src={UE}, dst=10.6.0.100, ttl={hops})/udp(sport=2152, dport=2152)/fill(n=20)"
            ))
        };
        let seen = bench.up_packet(true, &sent(64));
        seen.decapsulated(round, &bench.out_of_n6(&sent(63)));
    }
    let text = "eth()/vlan(id=9)/ip(src=10.9.0.2, dst=10.6.0.100)/udp(sport=2152, dport=53)";
    let mut frame = packet(text);
    frame[..12].copy_from_slice(&[bench.n9(true).to.0.0, bench.n9(true).from.0.0].concat());
    bench.summed = false; // the tag leaves the frame without it
    bench.send("n9", &frame).counts("a tagged one", &[("received", 1), ("redirected", 1)]);
    let frame = bench.frame_of(&through(64, "10.3.0.1", 53), dmac, smac);
    bench.send("n3", &frame).drops("another port of the tunnel's address", "host_inbound");
}
