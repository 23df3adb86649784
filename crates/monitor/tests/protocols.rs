//! Every protocol by its standard: right, wrong, cut and corrupt headers.

use crate::packets;

use packets::*;
use proptest::prelude::*;
use sluice_monitor::frame::LinkType;
use sluice_monitor::observation::{Flags, Observation, Protocol, Unknown};

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const MACSEC: u16 = 0x88e5;
const EAPOL: u16 = 0x888e;
const SCI: u64 = 0x0200_0000_000c_0005;

const SECTAG_E_C: u8 = 0x0c;
const SECTAG_SC: u8 = 0x20;

fn seen(data: &[u8]) -> Observation {
    observe(data).unwrap_or_else(|unknown| panic!("{unknown}: {data:02x?}"))
}

fn text(seen: &Observation) -> String {
    seen.key.to_string()
}

fn malformed(data: &[u8]) -> &'static str {
    match observe(data) {
        Err(Unknown::Malformed(what)) => what,
        other => panic!("{other:?}"),
    }
}

/// 802.1AE-2018 9.5 to 9.9, figure 9-2 and following.
#[test]
fn a_macsec_channel_is_sci_and_association_number() {
    let frame = |tci, sci| seen(&eth(MACSEC, &sectag(tci, 0, 0x1234_5678, sci, &[0x55; 60])));
    let explicit = frame(SECTAG_SC | SECTAG_E_C | 2, Some(SCI));
    assert_eq!(text(&explicit), "macsec 02000000000c:0005 AN 2");
    assert_eq!((explicit.sequence, explicit.bits, explicit.payload_len), (0x1234_5678, 32, 60));
    assert_eq!(explicit.flags, Flags::ENCRYPTED);

    // 9.9: without an SCI the source address and port 00-01, also when ES says so; 00-00 for a single copy broadcast.
    for (tci, port) in [(0x00, "0001"), (0x40, "0001"), (0x10, "0000"), (0x50, "0000")] {
        let implied = frame(tci | SECTAG_E_C | 3, None);
        assert_eq!(text(&implied), format!("macsec 02000000000a:{port} AN 3"), "TCI 0x{tci:02x}");
        assert_eq!(implied.flags, Flags::ENCRYPTED.with(Flags::IMPLIED_SCI));
    }
}

/// 9.5, 9.6: E and C.
#[test]
fn macsec_frames_are_encrypted_integrity_only_or_for_key_agreement() {
    let flags = |bits| seen(&eth(MACSEC, &sectag(SECTAG_SC | bits, 0, 1, Some(SCI), &[0; 60]))).flags;
    assert_eq!(flags(0x0c), Flags::ENCRYPTED);
    assert_eq!(flags(0x00), Flags::INTEGRITY_ONLY);
    assert_eq!(flags(0x04), Flags::INTEGRITY_ONLY, "changed by the suite, not encrypted");
    assert_eq!(flags(0x08), Flags::ENCRYPTED.with(Flags::CONTROL));
}

/// 9.12, and macsec_validate_skb in Linux.
#[test]
fn a_sectag_that_contradicts_the_standard_is_refused() {
    let frame = |tci, sl| eth(MACSEC, &sectag(tci, sl, 1, (tci & 0x20 != 0).then_some(SCI), &[0; 60]));
    assert!(malformed(&frame(0x80 | SECTAG_E_C, 0)).contains("version"), "c)");
    for tci in [0x40, 0x10, 0x50] {
        assert!(malformed(&frame(SECTAG_SC | tci, 0)).contains("SCI with ES or SCB"), "d)");
    }
    for sl in [0x40, 0x80, 0xc1] {
        assert!(malformed(&frame(SECTAG_SC, sl)).contains("short length"), "e)");
    }
    let short = eth(MACSEC, &sectag(SECTAG_SC, 0, 1, Some(SCI), &[])[..14 + 15]);
    assert!(malformed(&short).contains("no room for the ICV"));
    // PN 0 is what an extended packet number shows once in 2^32 packets (10.7.8).
    assert_eq!(seen(&eth(MACSEC, &sectag(SECTAG_SC, 0, 0, Some(SCI), &[0; 60]))).sequence, 0);
}

/// 9.7: SL is the length of secure data below 48 octets, else 0.
#[test]
fn a_short_length_is_compared_and_shows_where_padding_begins() {
    let frame =
        |sl: u8, secured: usize| sectag(SECTAG_SC | SECTAG_E_C, sl, 9, Some(SCI), &vec![0x77; secured]);
    let check = |bytes: Vec<u8>| {
        let seen = seen(&eth(MACSEC, &bytes));
        (seen.payload_len, seen.flags.has(Flags::LENGTH_MISMATCH))
    };
    for (sl, secured, is_wrong) in [
        (0, 48, false),
        (0, 47, true),
        (47, 47, false),
        (46, 47, true),
        (47, 46, true),
        (0, 1400, false),
        (50, 50, true),
    ] {
        assert_eq!(check(frame(sl, secured)).1, is_wrong, "SL {sl}, {secured} octets");
    }
    assert_eq!(check(frame(47, 47)).0, 47);

    // A MAC pads what is shorter than 64 octets with FCS, behind the ICV.
    let mut padded = frame(2, 2);
    let bare = seen(&eth(MACSEC, &padded));
    padded.resize(60 - 14, 0);
    let padded = seen(&eth(MACSEC, &padded));
    assert_eq!(padded, bare, "the same packet with and without padding, ICV and all");
    assert!(!padded.flags.has(Flags::LENGTH_MISMATCH));
    let mut long = frame(2, 2);
    long.resize(200, 0);
    assert!(check(long).1, "nobody pads to 200 octets");
}

#[test]
fn vlan_tags_before_macsec_are_part_of_the_place_and_tags_inside_are_not() {
    let macsec = sectag(SECTAG_SC | SECTAG_E_C, 0, 1, Some(SCI), &[0; 60]);
    let one = eth(0x8100, &tag(0x6064, MACSEC, &macsec));
    assert_eq!(text(&seen(&one)), "macsec 02000000000c:0005 AN 0 vlan 100", "priority is no identity");
    for outer in [0x8100, 0x88a8, 0x9100] {
        let two = eth(outer, &tag(200, 0x8100, &tag(100, MACSEC, &macsec)));
        assert_eq!(text(&seen(&two)), "macsec 02000000000c:0005 AN 0 vlan 200.100");
    }
    // Integrity only: the tag inside can be read, but all VLANs share the numbers of the channel.
    let inside = |vlan| {
        let clear = join(&[&[0x81, 0x00], &tag(vlan, IPV4, &ip4(17, &[0; 40]))]);
        seen(&eth(MACSEC, &sectag(SECTAG_SC, 0, 1, Some(SCI), &clear)))
    };
    assert_eq!(inside(7).key, inside(8).key);
    assert_eq!(inside(7).flags, Flags::INTEGRITY_ONLY);
}

/// However many tags: no recursion, no panic.
#[test]
fn a_third_tag_is_refused() {
    for vlan in [0, 5] {
        for count in [3, 4, 16_000] {
            let bytes = [[0x81, 0x00], [0, vlan]].concat().repeat(count);
            let frame = join(&[&[0; 12], &bytes, &[8, 0]]);
            assert_eq!(malformed(&frame), "VLAN tags: more than two");
        }
    }
}

/// 802.1X-2020 11.11.1.
#[test]
fn an_mka_participant_is_sci_member_and_key_name() {
    let member = *b"member-id-01";
    let frame = |member, number, ckn: &[u8]| seen(&eth(EAPOL, &mka(SCI, member, number, ckn, &[1, 2, 3, 4])));
    let first = frame(member, 41, b"a key name");
    assert!(text(&first).starts_with("mka 02000000000c member "), "{}", text(&first));
    assert_eq!((first.sequence, first.bits, first.flags), (41, 32, Flags::CONTROL));
    assert_eq!(first.key, frame(member, 42, b"a key name").key);
    assert_ne!(
        first.key,
        frame(*b"member-id-02", 42, b"a key name").key,
        "a member that restarts has a new identifier"
    );
    assert_ne!(first.key, frame(member, 42, b"another key name").key);
    // EAPOL frames of other types are no MKA (11.3.2).
    assert_eq!(observe(&eth(EAPOL, &[3, 0, 0, 0])), Err(Unknown::Ethertype(0x888e)));
    let mut wrong = mka(SCI, member, 1, b"x", &[]);
    wrong[6..8].copy_from_slice(&[0xe0, 27]);
    assert!(malformed(&eth(EAPOL, &wrong)).contains("body length"));
    wrong[6..8].copy_from_slice(&[0xef, 0xff]);
    assert_eq!(observe(&eth(EAPOL, &wrong)), Err(Unknown::Short("MKA key name")));
}

/// RFC 4303 2.1, 2.2.
#[test]
fn an_esp_channel_is_addresses_and_spi() {
    let packet = esp(0xabcd_ef01, 0x8000_0001, &[0x5a; 64]);
    let over4 = seen(&eth(IPV4, &ip4(50, &packet)));
    assert_eq!(text(&over4), "esp 10.0.0.1 > 10.0.0.2 SPI 0xabcdef01");
    assert_eq!((over4.sequence, over4.bits, over4.payload_len), (0x8000_0001, 32, 64));
    assert_eq!(over4.flags, Flags::ENCRYPTED);
    let over6 = seen(&eth(IPV6, &ip6(50, &packet)));
    assert_eq!(text(&over6), "esp 2001:db8::1 > 2001:db8::2 SPI 0xabcdef01");
    assert_eq!((over6.sequence, over6.payload_len), (over4.sequence, over4.payload_len));
    assert!(malformed(&eth(IPV4, &ip4(50, &esp(0, 1, &[0; 32])))).contains("SPI 0"), "RFC 4303 2.1");
}

/// RFC 2410 in tunnel mode: the packet inside is open.
#[test]
fn esp_without_encryption_is_told() {
    let inner = ip4(6, &[0; 40]);
    let trailer = [1, 2, 2, 4, 0x99, 0x99, 0x99, 0x99, 0x99, 0x99, 0x99, 0x99, 0x99, 0x99, 0x99, 0x99];
    let flags = |inner: &[u8]| seen(&eth(IPV4, &ip4(50, &esp(9, 1, &join(&[inner, &trailer]))))).flags;
    assert_eq!(flags(&inner), Flags::INTEGRITY_ONLY);
    let mut other = inner.clone();
    other[8] ^= 1;
    assert_eq!(flags(&other), Flags::ENCRYPTED, "a checksum that is wrong is chance");
}

/// RFC 2410 with RFC 4303 2.4 to 2.6: what is open shows in its own length and in the trailer behind it.
#[test]
fn null_encryption_is_seen_around_ipv6_and_in_transport_mode() {
    for icv in [12, 16, 24, 32] {
        for padding in [0u8, 2, 3] {
            let pad: Vec<u8> = (1..=padding).collect();
            let flags = |inner: &[u8], next: u8, length: u8| {
                let body = join(&[inner, &pad, &[length, next], &vec![0x99; icv]]);
                seen(&eth(IPV4, &ip4(50, &esp(9, 1, &body)))).flags
            };
            let (tunnel, transport) = (ip6(6, &[7; 30]), udp(1, 2, &[7; 30]));
            assert_eq!(flags(&tunnel, 41, padding), Flags::INTEGRITY_ONLY, "{icv} {padding}");
            assert_eq!(flags(&transport, 17, padding), Flags::INTEGRITY_ONLY, "{icv} {padding}");
            assert_eq!(flags(&transport, 6, padding), Flags::ENCRYPTED, "another next header");
            assert_eq!(flags(&transport, 17, padding + 1), Flags::ENCRYPTED, "another pad length");
            let mut longer = transport.clone();
            longer[5] ^= 0x40;
            assert_eq!(flags(&longer, 17, padding), Flags::ENCRYPTED, "another length");
        }
    }
}

/// RFC 4302 2.
#[test]
fn an_ah_channel_is_addresses_and_spi() {
    let packet = ah(6, 0x77, 5, &[0xaa; 12], &[1; 40]);
    for (frame, name) in [
        (eth(IPV4, &ip4(51, &packet)), "ah 10.0.0.1 > 10.0.0.2 SPI 0x00000077"),
        (eth(IPV6, &ip6(51, &packet)), "ah 2001:db8::1 > 2001:db8::2 SPI 0x00000077"),
    ] {
        let seen = seen(&frame);
        assert_eq!(text(&seen), name);
        assert_eq!((seen.sequence, seen.bits, seen.payload_len), (5, 32, 40));
        assert_eq!(seen.flags, Flags::INTEGRITY_ONLY);
    }
    // The ICV tells packets apart even when their payloads end alike.
    let other = ah(6, 0x77, 5, &[0xab; 12], &[1; 40]);
    assert_ne!(
        seen(&eth(IPV4, &ip4(51, &packet))).fingerprint,
        seen(&eth(IPV4, &ip4(51, &other))).fingerprint
    );
    let mut short = packet;
    short[1] = 0;
    assert!(malformed(&eth(IPV4, &ip4(51, &short))).contains("payload length"));
}

/// RFC 3948 2.1 to 2.3.
#[test]
fn esp_in_udp_keepalives_and_ike_share_a_port() {
    let frame = |from, to, payload: &[u8]| eth(IPV4, &ip4(17, &udp(from, to, payload)));
    let packet = seen(&frame(4500, 1027, &esp(0x1001, 3, &[0x5a; 40])));
    assert_eq!(text(&packet), "esp_udp 10.0.0.1:4500 > 10.0.0.2:1027 SPI 0x00001001");
    assert_eq!(
        (packet.sequence, packet.bits, packet.payload_len, packet.flags),
        (3, 32, 40, Flags::ENCRYPTED)
    );

    let keepalive = seen(&frame(4500, 4500, &[0xff]));
    assert_eq!(text(&keepalive), "esp_udp 10.0.0.1:4500 > 10.0.0.2:4500 SPI 0x00000000");
    assert_eq!((keepalive.bits, keepalive.flags), (0, Flags::CONTROL));
    let mut padded = frame(4500, 4500, &[0xff]);
    padded.resize(60, 0);
    assert_eq!(seen(&padded).key, keepalive.key, "padding is not part of the packet");

    let marked = seen(&frame(4500, 4500, &join(&[&[0; 4], &ike(1 << 40, 0, 0x20, &[0; 8])])));
    assert_eq!(marked.key.protocol(), Protocol::Ike);
    assert_eq!(observe(&frame(4500, 4500, &[1, 2])), Err(Unknown::Short("UDP-encapsulated ESP header")));

    // The same over IPv6.
    let over6 = seen(&eth(IPV6, &ip6(17, &udp(4500, 4500, &esp(0x1001, 3, &[0x5a; 40])))));
    assert_eq!(text(&over6), "esp_udp 2001:db8::1 > 2001:db8::2 SPI 0x00001001");
}

/// RFC 7296 3.1.
#[test]
fn ike_is_counted_by_its_association() {
    let frame = |initiator, responder, version| {
        eth(IPV4, &ip4(17, &udp(500, 500, &ike(initiator, responder, version, &[0; 20]))))
    };
    let request = seen(&frame(0x1111_2222_3333_4444, 0, 0x20));
    assert_eq!((request.key.protocol(), request.bits, request.flags), (Protocol::Ike, 0, Flags::CONTROL));
    assert_eq!(
        request.key,
        seen(&frame(0x1111_2222_3333_4444, 99, 0x20)).key,
        "the responder's SPI comes later"
    );
    assert_ne!(request.key, seen(&frame(0x1111_2222_3333_4445, 0, 0x20)).key);
    assert_eq!(seen(&frame(5, 6, 0x10)).key.protocol(), Protocol::Ike, "IKEv1");
    assert!(malformed(&frame(5, 6, 0x30)).contains("version"));
}

/// 3GPP TS 29.281 5.1.
#[test]
fn a_gtpu_channel_is_addresses_and_teid() {
    let frame = |payload: &[u8]| eth(IPV4, &ip4(17, &udp(2152, 2152, payload)));
    let plain = seen(&frame(&gtpu(0x30, 255, 0xbeef, None, &[7; 50])));
    assert_eq!(text(&plain), "gtpu 10.0.0.1 > 10.0.0.2 TEID 0x0000beef");
    assert_eq!((plain.bits, plain.sequence, plain.flags), (0, 0, Flags::default()), "no S flag, no number");
    let numbered = seen(&frame(&gtpu(0x32, 255, 0xbeef, Some([0xff, 0xfe, 0, 0]), &[7; 50])));
    assert_eq!((numbered.bits, numbered.sequence, numbered.key), (16, 0xfffe, plain.key));
    // E or PN bring the four bytes too, but no number.
    for flags in [0x34, 0x31] {
        assert_eq!(seen(&frame(&gtpu(flags, 255, 1, Some([9, 9, 0, 0]), &[7; 50]))).bits, 0);
    }
    for message in [1, 2, 26, 31, 254] {
        let control = seen(&frame(&gtpu(0x32, message, 0, Some([0, 1, 0, 0]), &[14, 0])));
        assert_eq!((control.bits, control.flags), (0, Flags::CONTROL), "message {message}");
    }
    assert!(malformed(&frame(&gtpu(0x50, 255, 1, None, &[]))).contains("version"), "GTPv2");
    assert!(malformed(&frame(&gtpu(0x20, 255, 1, None, &[]))).contains("version"), "GTP'");
    let mut lying = gtpu(0x30, 255, 1, None, &[7; 50]);
    lying[3] += 1;
    assert!(seen(&frame(&lying)).flags.has(Flags::LENGTH_MISMATCH));
}

/// RFC 791 3.1: options; RFC 8200 4: extension headers.
#[test]
fn ip_options_and_extension_headers_are_passed_over() {
    let packet = esp(0x42, 6, &[0x5a; 32]);
    let plain4 = seen(&eth(IPV4, &ip4(50, &packet)));
    for words in 1..=10 {
        assert_eq!(seen(&eth(IPV4, &ipv4(50, 0, &vec![1; words * 4], &packet))), plain4);
    }
    let plain6 = seen(&eth(IPV6, &ip6(50, &packet)));
    let extension = |next: u8, words: u8, rest: &[u8]| {
        join(&[&[next, words], &vec![1; 6 + usize::from(words) * 8], rest])
    };
    for kind in [0, 43, 60, 135] {
        for words in [0, 1, 5] {
            assert_eq!(seen(&eth(IPV6, &ip6(kind, &extension(50, words, &packet)))), plain6, "header {kind}");
        }
    }
    let all = extension(60, 0, &extension(43, 2, &extension(50, 0, &packet)));
    assert_eq!(seen(&eth(IPV6, &ip6(0, &all))), plain6);
    let mut many = packet.clone();
    for count in 0..20 {
        many = extension(if count == 0 { 50 } else { 60 }, 0, &many);
    }
    assert!(malformed(&eth(IPV6, &ip6(60, &many))).contains("extension headers"));
    assert_eq!(observe(&eth(IPV6, &ip6(59, &[]))), Err(Unknown::IpProtocol(59)));
}

#[test]
fn first_fragments_are_followed_and_later_ones_named() {
    let packet = esp(0x42, 6, &[0x5a; 32]);
    let first = seen(&eth(IPV4, &ipv4(50, 0x2000, &[], &packet)));
    assert!(first.flags.has(Flags::FRAGMENT));
    assert_eq!(first.sequence, 6);
    for fragment in [0x0001, 0x0005, 0x2005, 0x1000, 0x1fff] {
        assert_eq!(observe(&eth(IPV4, &ipv4(50, fragment, &[], &packet))), Err(Unknown::Fragment));
    }
    assert_eq!(seen(&eth(IPV4, &ipv4(50, 0x4000, &[], &packet))).flags, Flags::ENCRYPTED, "do not fragment");

    let fragment = |bits: u16| ip6(44, &join(&[&[50, 0], &bits.to_be_bytes(), &[0, 0, 0, 9], &packet]));
    assert!(seen(&eth(IPV6, &fragment(1))).flags.has(Flags::FRAGMENT));
    assert!(!seen(&eth(IPV6, &fragment(0))).flags.has(Flags::FRAGMENT), "atomic (RFC 6946)");
    assert_eq!(observe(&eth(IPV6, &fragment(8 << 3))), Err(Unknown::Fragment));

    // The lengths of UDP and GTP-U count what later fragments bring.
    let mut long = udp(2152, 2152, &gtpu(0x32, 255, 5, Some([0, 9, 0, 0]), &[7; 50]));
    long[4..6].copy_from_slice(&3000u16.to_be_bytes());
    long[10..12].copy_from_slice(&2984u16.to_be_bytes());
    let first = seen(&eth(IPV4, &ipv4(17, 0x2000, &[], &long)));
    assert_eq!((first.sequence, first.flags), (9, Flags::FRAGMENT));
}

#[test]
fn every_link_type_leads_to_the_same_packet() {
    let packet = ip4(50, &esp(0x42, 6, &[0x5a; 32]));
    let wanted = seen(&eth(IPV4, &packet));
    let cooked = join(&[&[0, 0, 0, 1, 0, 6], &SOURCE, &[0, 0, 8, 0], &packet]);
    let cooked2 = join(&[&[8, 0, 0, 0, 0, 0, 0, 3, 0, 1, 0, 6], &SOURCE, &[0, 0], &packet]);
    let null = join(&[&[2, 0, 0, 0], &packet]);
    for (link, bytes) in [
        (LinkType::RawIp, &packet),
        (LinkType::LinuxCooked, &cooked),
        (LinkType::LinuxCooked2, &cooked2),
        (LinkType::Null, &null),
    ] {
        assert_eq!(observe_as(link, bytes, bytes.len()), Ok(wanted), "{link:?}");
    }
    // Implied SCIs come from the cooked header's address.
    let macsec = sectag(SECTAG_E_C, 0, 1, None, &[0; 60]);
    let cooked = join(&[&[0, 0, 0, 1, 0, 6], &SOURCE, &[0, 0, 0x88, 0xe5], &macsec]);
    assert_eq!(
        observe_as(LinkType::LinuxCooked, &cooked, cooked.len()).unwrap().key,
        seen(&eth(MACSEC, &macsec)).key
    );
    let ip6 = ip6(50, &esp(0x42, 6, &[0x5a; 32]));
    assert_eq!(observe_as(LinkType::RawIp, &ip6, ip6.len()), observe(&eth(IPV6, &ip6)));
    assert_eq!(observe_as(LinkType::Other, &packet, packet.len()), Err(Unknown::LinkType));
    assert!(matches!(observe_as(LinkType::RawIp, &[0x10; 40], 40), Err(Unknown::Malformed(_))));
}

/// The first header that differs gives the reason.
#[test]
fn what_is_not_followed_is_named_by_its_first_differing_header() {
    let table = [
        (eth(0x0806, &[0; 28]), Unknown::Ethertype(0x0806)),
        (eth(0x0026, &[0x42, 0x42, 3]), Unknown::Ethertype(0x0026)),
        (eth(0x8100, &tag(5, 0x88cc, &[0; 40])), Unknown::Ethertype(0x88cc)),
        (eth(IPV4, &ip4(6, &[0; 20])), Unknown::IpProtocol(6)),
        (eth(IPV6, &ip6(58, &[0; 20])), Unknown::IpProtocol(58)),
        (eth(IPV4, &ip4(17, &udp(40000, 53, &[0; 20]))), Unknown::UdpPort(53)),
        (eth(IPV4, &ip4(17, &udp(53, 40000, &[0; 20]))), Unknown::UdpPort(53)),
        (eth(IPV4, &ip4(17, &[0; 7])), Unknown::Short("UDP header")),
        (vec![0; 13], Unknown::Short("Ethernet header")),
        (vec![], Unknown::Short("Ethernet header")),
    ];
    for (frame, reason) in table {
        assert_eq!(observe(&frame), Err(reason));
    }
    assert!(malformed(&eth(IPV4, &[0x44; 40])).contains("IPv4"));
    assert!(malformed(&eth(IPV4, &[0x65; 40])).contains("IPv4"));
    assert!(malformed(&eth(IPV6, &[0x45; 60])).contains("IPv6"));
}

/// Padding and what a capture cut off.
#[test]
fn a_fingerprint_tells_packets_apart_and_is_absent_where_the_end_was_cut() {
    let frame = eth(IPV4, &ip4(50, &esp(0x42, 6, &[0x5a; 8])));
    let whole = seen(&frame);
    assert_ne!(whole.fingerprint, 0);
    let mut padded = frame.clone();
    padded.resize(60, 0);
    assert_eq!(seen(&padded), whole, "padding is not part of the packet");
    let mut other = frame.clone();
    *other.last_mut().unwrap() ^= 1;
    assert_ne!(seen(&other).fingerprint, whole.fingerprint);
    assert_ne!(seen(&eth(IPV4, &ip4(50, &esp(0x42, 6, &[0x5a; 12])))).fingerprint, whole.fingerprint);
    let cut = observe_as(LinkType::Ethernet, &frame[..44], frame.len()).unwrap();
    assert_eq!((cut.fingerprint, cut.sequence, cut.payload_len), (0, 6, 8));
    assert!(cut.flags.has(Flags::CUT));
}

fn samples() -> Vec<(LinkType, Vec<u8>)> {
    let esp = esp(0x42, 6, &[0x5a; 24]);
    let natt = udp(4500, 4500, &esp);
    let marked = udp(4500, 4500, &join(&[&[0; 4], &ike(1 << 40, 7, 0x20, &[0; 8])]));
    let gtpu = udp(2152, 2152, &gtpu(0x32, 255, 9, Some([0, 5, 0, 0x85]), &[7; 20]));
    let macsec = sectag(SECTAG_SC | SECTAG_E_C, 0, 1, Some(SCI), &[0; 48]);
    let headers = join(&[&[43, 0, 1, 4, 0, 0, 0, 0], &[44, 1], &[0; 14], &[50, 0, 0, 1, 0, 0, 0, 9], &esp]);
    let frames = [
        eth(MACSEC, &macsec),
        eth(MACSEC, &sectag(SECTAG_E_C, 20, 1, None, &[0; 20])),
        eth(0x88a8, &tag(1, 0x8100, &tag(2, MACSEC, &macsec))),
        eth(EAPOL, &mka(SCI, [7; 12], 9, b"a key name", &[1, 2, 3, 4])),
        eth(IPV4, &ip4(50, &esp)),
        eth(IPV4, &ipv4(50, 0x2000, &[1; 12], &esp)),
        eth(IPV4, &ip4(50, &join(&[&esp[..8], &ip4(6, &[0; 20]), &[0; 16]]))),
        eth(IPV4, &ip4(51, &ah(50, 5, 6, &[0xaa; 12], &esp))),
        eth(IPV4, &ip4(17, &natt)),
        eth(IPV4, &ip4(17, &udp(4500, 4500, &[0xff]))),
        eth(IPV4, &ip4(17, &marked)),
        eth(IPV4, &ip4(17, &udp(500, 500, &ike(5, 6, 0x20, &[0; 8])))),
        eth(IPV4, &ip4(17, &gtpu)),
        eth(IPV6, &ip6(0, &headers)),
        eth(IPV6, &ip6(17, &gtpu)),
    ];
    let raw = ip4(50, &esp);
    let mut all: Vec<_> = frames.into_iter().map(|frame| (LinkType::Ethernet, frame)).collect();
    all.push((LinkType::LinuxCooked, join(&[&[0; 14], &[8, 0], &raw])));
    all.push((LinkType::LinuxCooked2, join(&[&[8, 0], &[0; 18], &raw])));
    all.push((LinkType::Null, join(&[&[2, 0, 0, 0], &raw])));
    all.push((LinkType::RawIp, raw));
    all
}

/// Cut by the capture, and short on the wire.
#[test]
fn every_cut_of_every_sample_gives_an_answer() {
    for (link, frame) in samples() {
        let whole = observe_as(link, &frame, frame.len()).unwrap_or_else(|why| panic!("{why}: {frame:02x?}"));
        let (mut kept, mut refused) = (0, 0);
        for length in 0..frame.len() {
            match observe_as(link, &frame[..length], frame.len()) {
                Ok(cut) => {
                    assert_eq!((cut.key, cut.sequence, cut.bits), (whole.key, whole.sequence, whole.bits));
                    assert_eq!(cut.payload_len, whole.payload_len, "{length} of {frame:02x?}");
                    assert!(cut.flags.has(Flags::CUT) && cut.fingerprint == 0);
                    kept += 1;
                }
                Err(Unknown::Short(_)) => refused += 1,
                Err(other) => panic!("{other} at {length} of {frame:02x?}"),
            }
            if let Err(other) = observe_as(link, &frame[..length], length) {
                assert!(matches!(other, Unknown::Short(_) | Unknown::Malformed(_)), "{other}");
            }
        }
        assert!(refused >= 20, "{refused}");
        let is_keepalive = whole.payload_len == 1;
        assert!(kept > 0 || is_keepalive, "the number is there before the end: {frame:02x?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn corrupt_frames_never_panic(
        which in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        length in any::<prop::sample::Index>(),
        on_wire in 0usize..3000,
    ) {
        let samples = samples();
        let (link, mut frame) = samples[which.index(samples.len())].clone();
        for (at, value) in changes {
            let at = at.index(frame.len());
            frame[at] = value;
        }
        frame.truncate(length.index(frame.len() + 1));
        for wire_len in [frame.len(), on_wire] {
            if let Ok(seen) = observe_as(link, &frame, wire_len) {
                prop_assert!(usize::from(seen.payload_len) <= frame.len().max(wire_len));
                let _ = text(&seen);
            }
        }
    }

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), link in 0usize..6) {
        use LinkType::{Ethernet, LinuxCooked, LinuxCooked2, Null, Other, RawIp};
        let link = [Ethernet, RawIp, LinuxCooked, LinuxCooked2, Null, Other][link];
        let _ = observe_as(link, &bytes, bytes.len());
    }
}
