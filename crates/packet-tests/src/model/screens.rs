//! What screens must recognise, one rule a screen.

use std::collections::HashMap;
use std::net::IpAddr;

use sluice_wire::{icmpv6, tcp};

use super::{Facts, ICMP, ICMPV6, TCP, Unit};

/// Every screen in the order that decides which one a drop is counted for.
type Rule = (&'static str, fn(&Facts) -> bool);
const RULES: [Rule; 20] = [
    ("land", |f| f.source == f.destination),
    ("bad_option", |f| options(f).is_err()),
    ("record_route_option", |f| has_option(f, 7)),
    ("timestamp_option", |f| has_option(f, 68)),
    ("security_option", |f| has_option(f, 130)),
    ("stream_option", |f| has_option(f, 136)),
    ("loose_source_route_option", |f| has_option(f, 131)),
    ("strict_source_route_option", |f| has_option(f, 137)),
    ("source_route_option", |f| has_option(f, 131) || has_option(f, 137)),
    ("unknown_protocol", |f| f.protocol > 145),
    ("ping_death", |f| is_icmp(f) && f.fragment && too_long(f)),
    ("tear_drop", |f| f.fragment && impossible(f)),
    ("icmp_fragment", |f| is_icmp(f) && f.fragment),
    ("syn_frag", |f| f.fragment && f.piece.offset == 0 && f.protocol == TCP && syn_of_payload(f)),
    ("block_frag", |f| f.fragment),
    ("icmp_large", |f| is_icmp(f) && f.length > 1024),
    ("icmpv6_malformed", |f| has_header(f) && f.protocol == ICMPV6 && malformed(f)),
    ("syn_fin", |f| flags(f).is_some_and(|flags| flags & tcp::SYN != 0 && flags & tcp::FIN != 0)),
    ("tcp_no_flag", |f| flags(f).is_some_and(|flags| flags.trailing_zeros() > 5)),
    ("fin_no_ack", |f| flags(f).is_some_and(|flags| flags & tcp::FIN != 0 && flags & tcp::ACK == 0)),
];

/// Fragments seen: the last one of each datagram.
#[derive(Debug, Clone, Default)]
pub struct Datagrams(HashMap<Datagram, (usize, usize)>);

/// Zone, source, destination, protocol, identification.
type Datagram = (String, IpAddr, IpAddr, u8, u32);

impl Datagrams {
    /// Names of the unit's screens that recognise the packet, the deciding one first.
    pub fn screens(&mut self, unit: &Unit, facts: &Facts) -> Vec<&'static str> {
        let mut found: Vec<&str> = Vec::new();
        let wanted = |name: &&str| unit.screens.contains(name);
        for (name, rule) in RULES {
            let overlaps = name == "tear_drop" && wanted(&name) && self.overlaps(&unit.zone, facts);
            if wanted(&name) && (rule(facts) || overlaps) {
                found.push(name);
            }
        }
        let urgent = flags(facts).is_some_and(|flags| flags & tcp::URG != 0);
        if unit.screens.contains(&"winnuke") && urgent && facts.dport == 139 {
            found.push("winnuke");
        }
        found
    }

    fn overlaps(&mut self, zone: &str, facts: &Facts) -> bool {
        if !facts.fragment || impossible(facts) {
            return false;
        }
        let key = (zone.to_owned(), facts.source, facts.destination, facts.protocol, facts.piece.id);
        let own = (facts.piece.offset, facts.piece.end());
        let last = self.0.insert(key, own);
        last.is_some_and(|last| last != own && own.0 < last.1 && last.0 < own.1)
    }
}

fn is_icmp(facts: &Facts) -> bool {
    [ICMP, ICMPV6].contains(&facts.protocol)
}

fn flags(facts: &Facts) -> Option<u8> {
    (facts.protocol == TCP && has_header(facts)).then_some(facts.tcp_flags)
}

/// Whether the whole transport header is there.
fn has_header(facts: &Facts) -> bool {
    facts.piece.offset == 0 && !facts.tiny
}

fn syn_of_payload(facts: &Facts) -> bool {
    facts.payload.get(tcp::field::FLAGS).is_some_and(|flags| flags & tcp::SYN != 0)
}

/// The whole datagram would be longer than its length field can say (RFC 791 section 3.1, RFC 8200 section 4.5).
fn too_long(facts: &Facts) -> bool {
    facts.piece.header + facts.piece.end() > 65535
}

/// What cannot be part of a packet; RFC 3128: the second must leave the TCP flags alone.
fn impossible(facts: &Facts) -> bool {
    facts.piece.is_malformed() || rewrites_flags(facts)
}

pub fn rewrites_flags(facts: &Facts) -> bool {
    facts.protocol == TCP && facts.piece.offset == 8
}

/// Types of the options before the end; Err with those before the first that is malformed.
fn options(facts: &Facts) -> Result<Vec<u8>, Vec<u8>> {
    let mut rest = &facts.ip_options[..];
    let mut types = Vec::new();
    let mut short = false;
    while let [kind, tail @ ..] = rest {
        match kind {
            0 => break,
            1 => rest = tail,
            _ => {
                let length = usize::from(tail.first().copied().unwrap_or(0));
                if length < 2 || length > rest.len() {
                    return Err(types);
                }
                short |= match kind {
                    7 | 131 | 137 => length < 3,
                    68 => length < 4,
                    136 => length != 4,
                    _ => false,
                };
                types.push(*kind);
                rest = &rest[length..];
            }
        }
    }
    if short { Err(types) } else { Ok(types) }
}

fn has_option(facts: &Facts, kind: u8) -> bool {
    options(facts).unwrap_or_else(|types| types).contains(&kind)
}

/// RFC 4443 sections 2.1, 2.4 (c), 4; RFC 4861 sections 4 and 6 to 8.
fn malformed(facts: &Facts) -> bool {
    let length = facts.payload.len();
    let least = match facts.icmp_type {
        0 | 127 | 255 => return true,
        1..=126 => return length < 48,
        icmpv6::ECHO_REQUEST | icmpv6::ECHO_REPLY => return facts.icmp_code != 0,
        133 => 8,
        134 => 16,
        135 | 136 => 24,
        137 => 40,
        _ => return false,
    };
    facts.ttl != 255 || facts.icmp_code != 0 || length < least
}
