//! Router advertisements as bytes (RFC 4861 4.2 and its options), and solicitations that are read (4.1). Checksums are the
//! kernel's: it makes and judges those of ICMPv6 sockets (RFC 3542 3.1).

use std::net::Ipv6Addr;

use sluice_language::router_advertisement::{
    AdvertisedPrefix, AdvertisedUnit, NAT_PREFIX_LENGTHS, RouterPreference,
};

pub const SOLICITATION: u8 = 133;
pub const ADVERTISEMENT: u8 = 134;

/// Options (RFC 4861 4.6; RFC 8106 5; RFC 8781 4).
const SOURCE_LINK_LAYER: u8 = 1;
const PREFIX: u8 = 3;
const MTU: u8 = 5;
const RDNSS: u8 = 25;
const DNSSL: u8 = 31;
const PREF64: u8 = 38;

/// Flags of the message (RFC 4861 4.2) and of a prefix (4.6.2).
const MANAGED: u8 = 0x80;
const OTHER: u8 = 0x40;
const ON_LINK: u8 = 0x80;
const AUTONOMOUS: u8 = 0x40;

/// Where the options of a solicitation and of an advertisement begin.
const SOLICITATION_HEADER: usize = 8;

/// An advertisement must fit into every IPv6 link (RFC 8200 5): 1280 bytes without the header of IPv6.
pub const LONGEST: usize = 1240;

/// What a device is told at one moment. Options that do not fit are left out at the end; `true` = all are there.
pub fn advertisement(unit: &AdvertisedUnit, prefixes: &[AdvertisedPrefix], mac: [u8; 6]) -> (Vec<u8>, bool) {
    let mut bytes = header(unit, unit.default_lifetime_s);
    let mut fits = push(&mut bytes, option(SOURCE_LINK_LAYER, &mac));
    if let Some(mtu) = unit.link_mtu {
        fits &= push(&mut bytes, option(MTU, &[&[0, 0], &mtu.to_be_bytes()[..]].concat()));
    }
    for prefix in prefixes {
        fits &= push(&mut bytes, prefix_option(prefix));
    }
    fits &= push_names(&mut bytes, unit, |lifetime| lifetime, |lifetime| lifetime);
    (bytes, fits)
}

/// The last word of a router (RFC 4861 6.2.5): it is no default router, resolver or translator any more.
pub fn goodbye(unit: &AdvertisedUnit, mac: [u8; 6]) -> Vec<u8> {
    let mut bytes = header(unit, 0);
    // what does not fit now did not fit before
    push(&mut bytes, option(SOURCE_LINK_LAYER, &mac));
    push_names(&mut bytes, unit, |_| 0, |_| 0);
    bytes
}

fn header(unit: &AdvertisedUnit, lifetime_s: u16) -> Vec<u8> {
    let mut flags = 0;
    if unit.managed {
        flags |= MANAGED;
    }
    if unit.other {
        flags |= OTHER;
    }
    // RFC 4191 2.2: medium where this is no default router
    flags |= match unit.preference {
        _ if lifetime_s == 0 => 0,
        RouterPreference::High => 0b01 << 3,
        RouterPreference::Medium => 0,
        RouterPreference::Low => 0b11 << 3,
    };
    let mut bytes = vec![ADVERTISEMENT, 0, 0, 0, unit.hop_limit, flags];
    bytes.extend(lifetime_s.to_be_bytes());
    bytes.extend(unit.reachable_ms.to_be_bytes());
    bytes.extend(unit.retransmit_ms.to_be_bytes());
    bytes
}

/// Resolvers, domains and prefixes of translators.
fn push_names(
    bytes: &mut Vec<u8>,
    unit: &AdvertisedUnit,
    lifetime: fn(u32) -> u32,
    nat_lifetime: fn(u16) -> u16,
) -> bool {
    let mut fits = true;
    for (resolver, lifetime_s) in &unit.resolvers {
        fits &= push(bytes, rdnss(*resolver, lifetime(*lifetime_s)));
    }
    for (domain, lifetime_s) in &unit.domains {
        fits &= push(bytes, dnssl(domain, lifetime(*lifetime_s)));
    }
    for (prefix, length, lifetime_s) in &unit.nat_prefixes {
        fits &= push(bytes, pref64(*prefix, *length, nat_lifetime(*lifetime_s)));
    }
    fits
}

fn push(bytes: &mut Vec<u8>, option: Vec<u8>) -> bool {
    let fits = bytes.len() + option.len() <= LONGEST;
    if fits {
        bytes.extend(option);
    }
    fits
}

/// Filled up to a multiple of 8 bytes, which its length counts (RFC 4861 4.6).
fn option(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = (body.len() + 2).div_ceil(8);
    let mut bytes = vec![kind, length as u8];
    bytes.extend(body);
    bytes.resize(length * 8, 0);
    bytes
}

/// RFC 4861 4.6.2.
fn prefix_option(prefix: &AdvertisedPrefix) -> Vec<u8> {
    let on_link = if prefix.on_link { ON_LINK } else { 0 };
    let autonomous = if prefix.autonomous { AUTONOMOUS } else { 0 };
    let mut body = vec![prefix.length, on_link | autonomous];
    body.extend(prefix.valid_s.to_be_bytes());
    body.extend(prefix.preferred_s.to_be_bytes());
    body.extend([0; 4]);
    body.extend(prefix.prefix.octets());
    option(PREFIX, &body)
}

/// RFC 8106 5.1; one resolver each, as every one may have a lifetime of its own.
fn rdnss(resolver: Ipv6Addr, lifetime_s: u32) -> Vec<u8> {
    option(RDNSS, &[&[0, 0], &lifetime_s.to_be_bytes()[..], &resolver.octets()].concat())
}

/// RFC 8106 5.2: labels as DNS writes them (RFC 1035 3.1), uncompressed.
fn dnssl(domain: &str, lifetime_s: u32) -> Vec<u8> {
    let mut body = vec![0, 0];
    body.extend(lifetime_s.to_be_bytes());
    for label in domain.split('.').filter(|label| !label.is_empty()) {
        body.push(label.len() as u8);
        body.extend(label.as_bytes());
    }
    body.push(0);
    option(DNSSL, &body)
}

/// RFC 8781 4: a lifetime in units of 8 seconds, rounded up, with the code of the length behind it; the first 96 bits.
fn pref64(prefix: Ipv6Addr, length: u8, lifetime_s: u16) -> Vec<u8> {
    let code = NAT_PREFIX_LENGTHS.iter().position(|known| *known == length).unwrap_or(0) as u16;
    let scaled = lifetime_s.div_ceil(8).min(8191);
    option(PREF64, &[&(scaled << 3 | code).to_be_bytes(), &prefix.octets()[..12]].concat())
}

/// Whether bytes are a solicitation that a router may answer (RFC 4861 6.1.1); the kernel has judged its checksum.
pub fn is_solicitation(bytes: &[u8], source: Ipv6Addr, hop_limit: u8) -> bool {
    let Some((header, options)) = bytes.split_at_checked(SOLICITATION_HEADER) else { return false };
    if header[0] != SOLICITATION || header[1] != 0 || hop_limit != 255 || source.is_multicast() {
        return false;
    }
    let mut rest = options;
    while !rest.is_empty() {
        let [kind, length, ..] = rest else { return false };
        let length = usize::from(*length) * 8;
        // who has no address yet cannot be answered at one
        if length == 0 || length > rest.len() || *kind == SOURCE_LINK_LAYER && source.is_unspecified() {
            return false;
        }
        rest = &rest[length..];
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: [u8; 6] = [0x02, 0, 0, 0, 0, 0x01];

    fn unit() -> AdvertisedUnit {
        AdvertisedUnit {
            unit: "lan0.0".into(),
            max_interval_s: 600,
            min_interval_s: 200,
            default_lifetime_s: 1800,
            reachable_ms: 30_000,
            retransmit_ms: 1000,
            hop_limit: 64,
            link_mtu: Some(1480),
            managed: true,
            other: true,
            preference: RouterPreference::High,
            resolvers: vec![("2001:db8::53".parse().unwrap(), 1800)],
            domains: vec![("a.example".into(), 600)],
            nat_prefixes: vec![("64:ff9b::".parse().unwrap(), 96, 1801)],
            prefixes: vec![],
        }
    }

    fn prefix() -> AdvertisedPrefix {
        AdvertisedPrefix {
            prefix: "2001:db8:1::".parse().unwrap(),
            length: 64,
            on_link: true,
            autonomous: true,
            valid_s: 2_592_000,
            preferred_s: 604_800,
        }
    }

    #[test]
    fn an_advertisement_has_the_bytes_of_the_rfcs() {
        let wanted: &[&[u8]] = &[
            // RFC 4861 4.2: type, code, checksum (the kernel's), hop limit, M O and preference 01 (RFC 4191 2.2), lifetime
            &[134, 0, 0, 0, 64, 0xc8, 0x07, 0x08, 0, 0, 0x75, 0x30, 0, 0, 0x03, 0xe8],
            &[1, 1, 2, 0, 0, 0, 0, 1],
            &[5, 1, 0, 0, 0, 0, 0x05, 0xc8],
            // 4.6.2: 2592000 = 0x278d00, 604800 = 0x93a80
            &[3, 4, 64, 0xc0, 0, 0x27, 0x8d, 0, 0, 0x09, 0x3a, 0x80, 0, 0, 0, 0],
            &[0x20, 0x01, 0x0d, 0xb8, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            // RFC 8106 5.1
            &[25, 3, 0, 0, 0, 0, 0x07, 0x08],
            &[0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x53],
            // 5.2: 8 + 11 bytes, filled up to 24
            &[31, 3, 0, 0, 0, 0, 0x02, 0x58],
            &[1, b'a', 7, b'e', b'x', b'a', b'm', b'p', b'l', b'e', 0, 0, 0, 0, 0, 0],
            // RFC 8781 4: 1801 s are 226 times 8 s, code 0 is 96 bits
            &[38, 2, 0x07, 0x10, 0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0],
        ];
        assert_eq!(advertisement(&unit(), &[prefix()], MAC), (wanted.concat(), true));
    }

    #[test]
    fn the_last_word_ends_everything_but_prefixes() {
        let wanted: &[&[u8]] = &[
            // the preference of no default router is medium
            &[134, 0, 0, 0, 64, 0xc0, 0, 0, 0, 0, 0x75, 0x30, 0, 0, 0x03, 0xe8],
            &[1, 1, 2, 0, 0, 0, 0, 1],
            &[25, 3, 0, 0, 0, 0, 0, 0],
            &[0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x53],
            &[31, 3, 0, 0, 0, 0, 0, 0],
            &[1, b'a', 7, b'e', b'x', b'a', b'm', b'p', b'l', b'e', 0, 0, 0, 0, 0, 0],
            &[38, 2, 0, 0, 0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0],
        ];
        assert_eq!(goodbye(&unit(), MAC), wanted.concat());
    }

    #[test]
    fn each_length_of_a_translators_prefix_has_its_code() {
        let address: Ipv6Addr = "2001:db8::".parse().unwrap();
        for (length, low) in [(96, 0), (64, 1), (56, 2), (48, 3), (40, 4), (32, 5)] {
            assert_eq!(pref64(address, length, 8)[2..4], [0, 8 | low], "{length}");
        }
        // 13 bits
        assert_eq!(pref64(address, 96, 65_535)[2..4], [0xff, 0xf8]);
    }

    #[test]
    fn what_does_not_fit_is_left_out_and_told() {
        let (bytes, fits) = advertisement(&unit(), &[prefix(); 60], MAC);
        assert!(!fits && bytes.len() <= LONGEST && bytes.len().is_multiple_of(8), "{}", bytes.len());
    }

    #[test]
    fn only_solicitations_of_the_link_are_answered() {
        let host: Ipv6Addr = "fe80::1".parse().unwrap();
        let plain = [133, 0, 0, 0, 0, 0, 0, 0];
        let with = |option: &[u8]| [&plain[..], option].concat();
        assert!(is_solicitation(&plain, host, 255) && is_solicitation(&plain, Ipv6Addr::UNSPECIFIED, 255));
        assert!(is_solicitation(&with(&[1, 1, 2, 0, 0, 0, 0, 2]), host, 255));
        assert!(
            is_solicitation(&with(&[200, 1, 0, 0, 0, 0, 0, 0]), host, 255),
            "unknown options are passed over"
        );
        assert!(!is_solicitation(&plain, host, 254));
        assert!(!is_solicitation(&plain[..7], host, 255));
        assert!(!is_solicitation(&[133, 1, 0, 0, 0, 0, 0, 0], host, 255));
        assert!(!is_solicitation(&[134, 0, 0, 0, 0, 0, 0, 0], host, 255));
        assert!(!is_solicitation(&with(&[1, 0, 2, 0, 0, 0, 0, 2]), host, 255), "an option of no length");
        assert!(!is_solicitation(&with(&[1, 2, 2, 0, 0, 0, 0, 2]), host, 255), "its end lies outside");
        assert!(!is_solicitation(&with(&[1]), host, 255));
        assert!(!is_solicitation(&with(&[1, 1, 2, 0, 0, 0, 0, 2]), Ipv6Addr::UNSPECIFIED, 255));
    }
}
