//! Against headers made from scratch: incremental checksums end where those of the whole packet would.

use proptest::prelude::*;

use super::{Destination, Drop, ETHERNET, Fragment, IpAddr, Mark, Seen, SocketAddr, judge, source};

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn put(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// Of a whole packet, by the definition.
fn checksum(parts: &[&[u8]]) -> u16 {
    let mut bytes = parts.concat();
    bytes.resize(bytes.len().next_multiple_of(2), 0);
    let total: u64 = bytes.chunks(2).map(|w| u64::from(u16::from_be_bytes([w[0], w[1]]))).sum();
    let mut total = total;
    while total >> 16 != 0 {
        total = (total & 0xffff) + (total >> 16);
    }
    !(total as u16)
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

fn udp_checksum(source: IpAddr, destination: IpAddr, udp: &[u8]) -> u16 {
    let length = (udp.len() as u32).to_be_bytes();
    checksum(&[&octets(source), &octets(destination), &length, &[0, 0, 0, 17], udp])
}

/// As the XDP program hands it over, with its mark.
fn frame(
    source: SocketAddr,
    destination: SocketAddr,
    options: usize,
    tag: usize,
    payload: &[u8],
) -> (Vec<u8>, Mark) {
    let mut udp = [source.port().to_be_bytes(), destination.port().to_be_bytes()].concat();
    udp.extend((8 + payload.len() as u16).to_be_bytes());
    udp.extend([0, 0]);
    udp.extend(payload);
    let sum = udp_checksum(source.ip(), destination.ip(), &udp);
    put(&mut udp, 6, if sum == 0 { 0xffff } else { sum });
    let mut ip = vec![];
    if source.is_ipv4() {
        ip.extend([0x45 + options as u8, 0, 0, 0, 1, 2, 0, 0, 64, 17, 0, 0]);
        ip.extend(octets(source.ip()));
        ip.extend(octets(destination.ip()));
        ip.resize(20 + 4 * options, 1);
        let length = (ip.len() + udp.len()) as u16;
        put(&mut ip, 2, length);
        let sum = checksum(&[&ip]);
        put(&mut ip, 10, sum);
    } else {
        ip.extend([0x60, 0, 0, 0]);
        ip.extend((udp.len() as u16).to_be_bytes());
        ip.extend([17, 64]);
        ip.extend(octets(source.ip()));
        ip.extend(octets(destination.ip()));
    }
    let network = ETHERNET + tag;
    let transport = network + ip.len();
    let mut bytes = vec![0; network];
    put(&mut bytes, network - 2, if source.is_ipv4() { 0x0800 } else { 0x86dd });
    bytes[2] = network as u8;
    bytes[4..6].copy_from_slice(&(transport as u16).to_ne_bytes());
    bytes.extend(ip);
    bytes.extend(udp);
    let mark = Mark::read(&bytes).unwrap();
    (bytes, mark)
}

fn address(v4: bool, seed: u128) -> IpAddr {
    if v4 { IpAddr::from((seed as u32).to_be_bytes()) } else { IpAddr::from(seed.to_be_bytes()) }
}

proptest! {
    #[test]
    fn rewritten_packets_are_as_if_made_for_the_receiver(
        v4: bool, addresses: [u128; 3], ports: [u16; 3], options in 0usize..10, tagged: bool,
        payload in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let tag = if tagged { 4 } else { 0 };
        let options = if v4 { options } else { 0 };
        let at = |n: usize| SocketAddr::new(address(v4, addresses[n]), ports[n]);
        let (source, listener, receiver) = (at(0), at(1), at(2));
        let (mut bytes, mark) = frame(source, listener, options, tag, &payload);
        let seen = judge(&bytes, &mark, 65_535).unwrap();
        prop_assert_eq!(seen, Seen { payload: payload.len() as u32, end: bytes.len() });
        prop_assert_eq!(super::source(&bytes, &mark), source);
        let macs = [7; 12];
        let start = Destination::new(listener, receiver).put(&mut bytes, &mark, &macs);
        prop_assert_eq!(start, tag);
        let (mut wanted, _) = frame(source, receiver, options, 0, &payload);
        wanted[..12].copy_from_slice(&macs);
        // hops are one fewer
        wanted[if v4 { ETHERNET + 8 } else { ETHERNET + 7 }] -= 1;
        if v4 {
            put(&mut wanted, ETHERNET + 10, 0);
            let sum = checksum(&[&wanted[ETHERNET..ETHERNET + 20 + 4 * options]]);
            put(&mut wanted, ETHERNET + 10, sum);
        }
        // 0 and 0xffff are the same number to a checksum
        let same = |a: u16, b: u16| a == b || (a == 0 && b == 0xffff) || (a == 0xffff && b == 0);
        for offset in [ETHERNET + 10, mark.transport - tag + 6] {
            let (got, right) = (half(&bytes, start + offset), half(&wanted, offset));
            if v4 || offset != ETHERNET + 10 {
                prop_assert!(same(got, right), "{:04x} instead of {:04x} at {}", got, right, offset);
                put(&mut bytes, start + offset, right);
            }
        }
        prop_assert_eq!(&bytes[start..], &wanted[..]);
    }

    #[test]
    fn nothing_malformed_is_read_beyond_its_end(
        bytes in proptest::collection::vec(any::<u8>(), 0..120), network in 14usize..60, more in 0usize..70, fragment in 0u8..3,
    ) {
        let fragment = [Fragment::Whole, Fragment::First, Fragment::Later][usize::from(fragment)];
        let mark = Mark { slot: 0, network, transport: network + more, fragment, id: 0 };
        if let Ok(seen) = judge(&bytes, &mark, 65_535) {
            prop_assert!(seen.end <= bytes.len());
        }
        super::source(&bytes, &mark);
    }
}

fn four(payload: usize) -> (Vec<u8>, Mark) {
    let at = |text: &str| text.parse::<SocketAddr>().unwrap();
    frame(at("10.0.0.1:4000"), at("10.0.0.2:514"), 0, 0, &vec![7; payload])
}

/// With the header's checksum made right again.
fn with(change: impl Fn(&mut [u8], &Mark)) -> Result<Seen, Drop> {
    let (mut bytes, mark) = four(40);
    change(&mut bytes, &mark);
    put(&mut bytes, mark.network + 10, 0);
    let sum = checksum(&[&bytes[mark.network..mark.transport]]);
    put(&mut bytes, mark.network + 10, sum);
    judge(&bytes, &mark, 1400)
}

#[test]
fn what_is_wrong_has_a_name() {
    assert!(with(|_, _| ()).is_ok());
    for length in [0, 7, 49, 999] {
        assert_eq!(with(|b, m| put(b, m.transport + 4, length)), Err(Drop::Length), "UDP length {length}");
    }
    assert!(with(|b, m| put(b, m.transport + 4, 8)).is_ok());
    for length in [0, 19, 69, 9999] {
        assert_eq!(with(|b, m| put(b, m.network + 2, length)), Err(Drop::Malformed), "total length {length}");
    }
    assert_eq!(with(|b, m| put(b, m.network + 2, 24)), Err(Drop::Length));
    assert_eq!(with(|b, m| b[m.network + 8] = 1), Err(Drop::TtlExceeded));
    let (mut bytes, mark) = four(40);
    bytes[mark.network + 11] ^= 1;
    assert_eq!(judge(&bytes, &mark, 1400), Err(Drop::Malformed));
    let (bytes, mark) = four(1401);
    assert_eq!(judge(&bytes, &mark, 1400), Err(Drop::TooLarge));
}

#[test]
fn padding_is_left_out_and_no_checksum_stays_none() {
    let (mut bytes, mark) = four(3);
    let end = bytes.len();
    bytes.resize(60, 0);
    assert_eq!(judge(&bytes, &mark, 1400), Ok(Seen { payload: 3, end }));
    put(&mut bytes, mark.transport + 6, 0);
    let at = |text: &str| text.parse::<SocketAddr>().unwrap();
    Destination::new(at("10.0.0.2:514"), at("10.0.9.2:5514")).put(&mut bytes, &mark, &[0; 12]);
    assert_eq!(half(&bytes, mark.transport + 6), 0);
}

#[test]
fn later_fragments_keep_what_is_no_udp_header() {
    let (mut bytes, mut mark) = four(40);
    mark.fragment = Fragment::Later;
    let before = bytes[mark.transport..].to_vec();
    assert_eq!(judge(&bytes, &mark, 1400).unwrap().payload, 48);
    let at = |text: &str| text.parse::<SocketAddr>().unwrap();
    Destination::new(at("10.0.0.2:514"), at("10.0.9.2:5514")).put(&mut bytes, &mark, &[0; 12]);
    assert_eq!(bytes[mark.transport..], before);
    assert_eq!(source(&bytes, &mark).port(), 0);
}
