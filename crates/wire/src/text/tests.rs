use super::*;

const UDP: &str = "eth(dst=02:00:00:00:00:01, src=02:00:00:00:00:02)/ip(src=10.0.1.100, dst=10.0.2.100, ttl=64)/udp(sport=1000, dport=53)/\"abc\"";

/// Parses, encodes, dissects, prints: the text must come back.
fn round_trip(text: &str) {
    let frame = bytes(text).unwrap_or_else(|e| panic!("{text}: {e}"));
    assert_eq!(dissect(&frame).to_string(), text);
}

#[test]
fn lengths_and_checksums_are_right_by_default() {
    let frame = bytes(UDP).unwrap();
    // Judged by scapy, but for the IP identification.
    let expected = "020000000001020000000002080045000\
                    01f00000000401163070a0001640a00026403e80035000b1f91616263";
    assert_eq!(spec::hex(&frame), format!("0x{expected}"));
}

#[test]
fn text_comes_back() {
    round_trip(UDP);
    let eth = "eth(dst=02:00:00:00:00:01, src=02:00:00:00:00:02)";
    for inner in [
        "vlan(id=100)/ip(src=10.0.1.100, dst=10.0.2.100, ttl=1)/tcp(sport=1, dport=2, flags=SA, seq=5, ack=6, opts=0x020405b4)",
        "vlan(id=100, pcp=5, dei=1)/ip6(src=fd00:1::64, dst=fd00:2::64, hop=64)/icmp6(type=echo-request, id=7, seq=1)",
        "arp(op=request, sha=02:00:00:00:00:02, spa=10.0.1.100, tha=00:00:00:00:00:00, tpa=10.0.1.10)",
        "ip(src=10.0.1.100, dst=10.0.2.100, ttl=64, csum=0xbad)/udp(sport=1, dport=2, len=4)",
        "ip(src=10.0.1.100, dst=10.0.2.100, ttl=64, proto=gre)/0x00000800",
        "ip(src=10.0.1.100, dst=10.0.2.100, ttl=64, proto=udp, id=7, mf=1, frag=185)/\"later\"",
        "ip(src=10.0.1.100, dst=10.0.2.100, ttl=64, opts=0x94040000)/udp(sport=1, dport=2)",
        "ip(src=10.0.1.100, dst=10.0.2.100, ttl=64)/udp(sport=1, dport=2)/trailer(bytes=0x0000)",
        "ip6(src=fd00:1::64, dst=fd00:2::64, hop=64)/hbh(opts=0x050200000100)/routing(type=0, left=0)/dstopts()/udp(sport=1, dport=2)",
        "ip6(src=fd00:1::64, dst=fd00:2::64, hop=64)/fragment(frag=0, mf=1, id=9)/udp(sport=1, dport=2)/\"x\"",
        "ip6(src=fd00:1::64, dst=fd00:2::64, hop=64)/fragment(next=udp, frag=181, mf=0, id=9)/\"y\"",
        "ip(src=10.0.1.10, dst=10.0.1.100, ttl=64)/icmp(type=unreachable, code=4, mtu=1300)/ip(src=10.0.1.100, dst=10.0.2.100, ttl=64)/udp(sport=1, dport=2)/fill(n=40, byte=0x61)",
        "ip6(src=fd00:1::a, dst=fd00:1::64, hop=64)/icmp6(type=packet-too-big, mtu=1280)/ip6(src=fd00:1::64, dst=fd00:2::64, hop=1)/tcp(sport=1, dport=2, flags=none)",
        "ip(src=10.0.1.100, dst=10.0.2.100, ttl=64, ihl=4)/0x00",
    ] {
        round_trip(&format!("{eth}/{inner}"));
    }
}

#[test]
fn a_quote_keeps_its_stated_lengths() {
    let text = "eth/ip(src=10.0.1.10, dst=10.0.1.100)/icmp(type=time-exceeded, quote=28)\
                /ip(src=10.0.1.100, dst=10.0.2.100, ttl=1)/udp(sport=1, dport=2)/\"abcd\"";
    let frame = bytes(text).unwrap();
    assert_eq!(frame.len(), 14 + 20 + 8 + 28);
    let quoted = dissect(&frame);
    assert!(quoted.to_string().contains("len=32"), "{quoted}");
    assert_eq!(bytes(&quoted.to_string()).unwrap(), frame);
}

#[test]
fn cut_frames_keep_their_stated_lengths() {
    let frame = bytes(&format!("{UDP}/cut(n=30)")).unwrap();
    assert_eq!(frame, bytes(UDP).unwrap()[..30]);
}

/// Whatever the bytes are, their layers are they, without the way out of [`dissect`]: bytes that no layer has words for are
/// shown as bytes, so that a layer that is read or written wrongly would only look like such.
#[test]
fn any_bytes_come_back() {
    let mut state = 0x1234_5678_9abc_def1_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let seeds = [
        UDP,
        "eth/vlan(id=5)/ip6(src=fd00::1, dst=fd00::2)/hbh/fragment(frag=0, mf=1)/tcp(flags=SA)/\"ab\"",
        "eth/ip6(src=fd00::1, dst=fd00::2)/icmp6(type=packet-too-big, mtu=9)/ip6/dstopts/udp/\"abc\"",
        "eth/ip/icmp(type=parameter-problem, rest=0x1000000)/ip(opts=0x0101)/icmp(type=echo-request, id=3)/\"z\"",
    ];
    for round in 0..20_000 {
        let mut frame = bytes(seeds[round % seeds.len()]).unwrap();
        for _ in 0..random() % 6 {
            let at = random() as usize % frame.len();
            frame[at] = random() as u8;
        }
        frame.truncate(random() as usize % (frame.len() * 2));
        let text = dissect(&frame).to_string();
        if !frame.is_empty() {
            assert_eq!(bytes(&text).unwrap(), frame, "{text}");
        }
        let layers = dissect::full(&frame);
        assert_eq!(encode::packet(&layers).ok(), Some(frame), "{}", Packet { layers });
    }
}

#[test]
fn errors_say_where_and_what() {
    let error = |text: &str| Packet::parse(text).unwrap_err().to_string();
    assert!(error("eth/ipx").contains("character 5: `ipx` is no layer; there are: eth"));
    assert!(error("ip(sorc=1)").contains("`ip` has no field `sorc`; it has: src, dst"));
    assert!(error("ip(src=10.0.1)").contains("not an IPv4 address"));
    assert!(error("ip(ttl=256)").contains("does not fit the 8 bits"));
    assert!(error("udp(sport=1, sport=2)").contains("given twice"));
    assert!(error("udp(sport=1").contains("expected `,` or `)`"));
    assert!(error("\"abc").contains("no closing quote"));
    assert!(error("0x123").contains("pairs of hex digits"));
    assert!(error("tcp(flags=Z)").contains("TCP flags"));
    assert!(bytes("eth/trailer(bytes=0x00)/ip").unwrap_err().message.contains("stands last"));
}

#[test]
fn a_diff_names_layer_and_field() {
    let seen = bytes(&UDP.replace("ttl=64", "ttl=63")).unwrap();
    let text = diff(&bytes(UDP).unwrap(), &seen).unwrap();
    assert!(text.contains("ip.ttl: expected 64, seen 63"), "{text}");
    assert!(text.contains("ip.csum: expected 0x6307, seen 0x6407"), "{text}");
    assert!(!text.contains("udp."), "{text}");
    assert!(diff(&seen, &seen).is_none());
    let other = bytes("eth/arp").unwrap();
    assert!(diff(&seen, &other).unwrap().contains("  + arp("));
}
