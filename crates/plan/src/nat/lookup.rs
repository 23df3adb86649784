//! What becomes of a first packet, as the packet path finds it (bpf/stage/nat_*.h): for commands that ask, and for tests.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sluice_abi::tables::NatTables;
use sluice_abi::{self as abi, NatPrefix, NatRule};

use crate::classifier::{Lookup, Subject};

/// A packet and the units it would pass.
#[derive(Debug, Clone, Copy)]
pub struct Question {
    /// Before any translation.
    pub subject: Subject,
    /// Indexes of units; without the second, the source is not translated.
    pub ingress: u32,
    /// None = not known.
    pub egress: Option<u32>,
}

/// What the rules say. Which address and port of a pool a packet gets is only known when it comes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Translation {
    /// Index of the rule that matched the destination.
    pub destination_rule: Option<usize>,
    /// After translation.
    pub destination: IpAddr,
    /// After translation, host order.
    pub destination_port: u16,
    /// Index of the rule that translates the source.
    pub source_rule: Option<usize>,
    /// Of static NAT alone.
    pub source: Option<(IpAddr, u16)>,
    /// Index of the pool otherwise.
    pub pool: Option<usize>,
}

/// Destination first, as `nat_destination` stands before `nat_source` in the stages.
pub fn translate(lookup: &Lookup<'_>, nat: &NatTables, question: &Question) -> Translation {
    let Question { subject, ingress, egress } = *question;
    let unit = nat.units.get(ingress as usize).copied().unwrap_or_default();
    let found = |contexts: &[u16], subject: &Subject| {
        contexts.iter().find_map(|context| lookup.find(*context, subject)).map(|index| index as usize)
    };
    let destination_rule = found(&[unit.static_context, unit.destination_context], &subject);
    let (destination, destination_port) = match destination_rule.map(|index| &nat.rules[index]) {
        Some(rule) => target(rule, nat, subject.destination, subject.destination_port, subject.protocol),
        None => (subject.destination, subject.destination_port),
    };
    let mut result = Translation {
        destination_rule,
        destination,
        destination_port,
        source_rule: None,
        source: None,
        pool: None,
    };
    let Some(egress) = egress else { return result };
    let leaving = Subject { destination, destination_port, ..subject };
    let reverse = nat.reverse_context(ingress as usize, egress as usize);
    let pair = nat.source_context(ingress as usize, egress as usize);
    result.source_rule = found(&[reverse, pair], &leaving);
    if let Some(rule) = result.source_rule.map(|index| &nat.rules[index]) {
        match rule.kind {
            abi::NAT_PREFIX | abi::NAT_NPTV6 => {
                result.source =
                    Some(target(rule, nat, subject.source, subject.source_port, subject.protocol));
            }
            abi::NAT_INTERFACE | abi::NAT_POOL => result.pool = Some(rule.pool.into()),
            _ => {}
        }
    }
    result
}

fn target(rule: &NatRule, nat: &NatTables, address: IpAddr, port: u16, protocol: u8) -> (IpAddr, u16) {
    let new = match rule.kind {
        abi::NAT_PREFIX => exchange(address, of_words(rule.be_target, address), rule.target_len),
        abi::NAT_NPTV6 => match address {
            IpAddr::V6(six) => {
                nptv6(six, six_of(rule.be_match), six_of(rule.be_target), rule.target_len).into()
            }
            IpAddr::V4(_) => address,
        },
        abi::NAT_NAT64 => match address {
            IpAddr::V6(six) => embedded(six, &nat.prefixes[usize::from(rule.pool)]).into(),
            IpAddr::V4(_) => address,
        },
        _ => address,
    };
    let ported = matches!(protocol, 6 | 17) && rule.flags & abi::NAT_RULE_PORT != 0;
    let offset =
        if rule.flags & abi::NAT_RULE_PORT_RANGE != 0 { port.wrapping_sub(rule.port_low) } else { 0 };
    (new, if ported { rule.new_port.wrapping_add(offset) } else { port })
}

fn six_of(words: [u32; 4]) -> Ipv6Addr {
    let bytes: [u8; 16] = std::array::from_fn(|i| words[i / 4].to_ne_bytes()[i % 4]);
    bytes.into()
}

fn of_words(words: [u32; 4], like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => Ipv4Addr::from(words[0].to_ne_bytes()).into(),
        IpAddr::V6(_) => six_of(words).into(),
    }
}

/// The first `len` bits of one address, the rest of another.
fn exchange(rest: IpAddr, first: IpAddr, len: u8) -> IpAddr {
    let ((a, width), (b, _)) = (sluice_language::nat::bits(rest), sluice_language::nat::bits(first));
    let host = u128::MAX.checked_shr(128 - width + u32::from(len)).unwrap_or(0);
    sluice_language::nat::address(b & !host | a & host, rest)
}

/// RFC 6296 3.1: the prefix is exchanged, and one word makes up for it in the checksum.
fn nptv6(address: Ipv6Addr, from: Ipv6Addr, to: Ipv6Addr, len: u8) -> Ipv6Addr {
    let IpAddr::V6(new) = exchange(address.into(), to.into(), len) else { return address };
    let prefix = |of: Ipv6Addr| match exchange(Ipv6Addr::UNSPECIFIED.into(), of.into(), len) {
        IpAddr::V6(prefix) => sum(&prefix.segments()),
        IpAddr::V4(_) => 0,
    };
    let mut words = new.segments();
    // 3.2 and 3.5: bits 48 to 63, or the first word of the identifier that is not all ones.
    let index = if len <= 48 { Some(3) } else { (4..8).find(|index| words[*index] != 0xffff) };
    let Some(index) = index else { return address };
    let adjusted = sum(&[words[index], prefix(from), !prefix(to)]);
    words[index] = if adjusted == 0xffff { 0 } else { adjusted };
    words.into()
}

/// One's complement sum.
fn sum(words: &[u16]) -> u16 {
    let total: u32 = words.iter().map(|word| u32::from(*word)).sum();
    let folded = (total & 0xffff) + (total >> 16);
    ((folded & 0xffff) + (folded >> 16)) as u16
}

/// RFC 6052 2.2: the IPv4 address behind a prefix, around the eight bits that are zero.
fn embedded(address: Ipv6Addr, prefix: &NatPrefix) -> Ipv4Addr {
    let bytes = address.octets();
    let offsets = (usize::from(prefix.length) / 8..16).filter(|index| *index != 8);
    let mut four = [0; 4];
    for (to, from) in four.iter_mut().zip(offsets) {
        *to = bytes[from];
    }
    four.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of RFC 6052 2.4.
    #[test]
    fn addresses_behind_prefixes_of_every_length() {
        for (length, text) in [
            (32, "2001:db8:c000:221::"),
            (40, "2001:db8:1c0:2:21::"),
            (48, "2001:db8:122:c000:2:2100::"),
            (56, "2001:db8:122:3c0:0:221::"),
            (64, "2001:db8:122:344:c0:2:2100::"),
            (96, "2001:db8:122:344::192.0.2.33"),
        ] {
            let prefix = NatPrefix { length, ..Default::default() };
            assert_eq!(embedded(text.parse().unwrap(), &prefix), Ipv4Addr::new(192, 0, 2, 33), "/{length}");
        }
    }

    /// The example of RFC 6296 2.1 and its way back.
    #[test]
    fn prefixes_are_exchanged_without_a_change_of_checksum() {
        let ip = |text: &str| text.parse::<Ipv6Addr>().unwrap();
        let (inside, outside) = (ip("fd01:203:405::"), ip("2001:db8:1::"));
        let there = nptv6(ip("fd01:203:405:1::1234"), inside, outside, 48);
        assert_eq!(there, ip("2001:db8:1:d550::1234"));
        assert_eq!(nptv6(there, outside, inside, 48), ip("fd01:203:405:1::1234"));
        let long = nptv6(ip("fd01:203:405:1:ffff::1"), ip("fd01:203:405:1::"), ip("2001:db8:1:2::"), 64);
        assert_eq!(long.segments()[4], 0xffff);
        assert_eq!(sum(&long.segments()), sum(&ip("fd01:203:405:1:ffff::1").segments()));
    }
}
