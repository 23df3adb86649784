//! Screens: which bits a unit carries, and which stages its device must run.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sluice_abi as abi;
use sluice_abi::stages::{Reason, Stage};
use sluice_language::config::{Config, Prefix, Screen, ScreenLimits, Spoofing, SynFlood};

use crate::PlanError;
use crate::words::words;

fn reason(name: &str) -> Option<Reason> {
    Reason::ALL.into_iter().find(|reason| reason.name() == name)
}

/// `screens` of a unit whose zone has this screen.
pub(crate) fn bits(screen: &Screen) -> u32 {
    let checks = screen.checks.iter().filter_map(|name| reason(name)).map(abi::screen_bit);
    let bits = checks.fold(0, |all, bit| all | bit);
    let alarm = screen.alarm_without_drop && bits != 0;
    bits | if alarm { abi::SCREEN_ALARM_ONLY } else { 0 }
}

/// Stage mask of what the screen needs.
pub(crate) fn stage_mask(screen: &Screen) -> u32 {
    let plain = if bits(screen) != 0 { Stage::Screen.bit() } else { 0 };
    let counts = screen.limits != ScreenLimits::default();
    plain | if counts { Stage::ScreenRate.bit() | Stage::ScreenFirst.bit() } else { 0 }
}

/// Entries of `screen_limits` by zone id, and the white-lists they refer to.
pub(crate) fn limits(
    config: &Config,
    zone_ids: &BTreeMap<String, u32>,
) -> Result<(Vec<abi::ScreenLimits>, Vec<abi::WhiteTerm>), PlanError> {
    let (mut limits, mut white) = (vec![], vec![]);
    for zone in &config.zones {
        let screen = zone.screen.as_ref().and_then(|name| config.screens.iter().find(|s| s.name == *name));
        let Some(screen) = screen.filter(|screen| screen.limits != ScreenLimits::default()) else { continue };
        let mut entry = of_screen(screen);
        let terms = white_terms(screen);
        entry.white_first = white.len() as u16;
        entry.white_count = terms.len() as u16;
        white.extend(terms);
        let id = zone_ids[&zone.name] as usize;
        if limits.len() <= id {
            limits.resize(id + 1, abi::ScreenLimits::default());
        }
        limits[id] = entry;
    }
    if white.len() > abi::MAX_WHITE_TERMS {
        return Err(PlanError::WhiteLists { count: white.len() });
    }
    Ok((limits, white))
}

fn of_screen(screen: &Screen) -> abi::ScreenLimits {
    let limits = &screen.limits;
    let flag = |on: bool, bit: u32| if on { bit } else { 0 };
    let syn = limits.syn_flood.as_ref();
    let syns = |pick: fn(&SynFlood) -> u32| syn.map_or(0, pick);
    abi::ScreenLimits {
        flags: flag(screen.alarm_without_drop, abi::LIMIT_ALARM_ONLY)
            | flag(limits.spoofing == Some(Spoofing::Interface), abi::LIMIT_SPOOFING)
            | flag(limits.spoofing == Some(Spoofing::Zone), abi::LIMIT_SPOOFING_ZONE),
        icmp_flood: limits.icmp_flood.unwrap_or(0),
        udp_flood: limits.udp_flood.unwrap_or(0),
        syn_alarm: syns(|syn| syn.alarm),
        syn_attack: syns(|syn| syn.attack),
        syn_source: syns(|syn| syn.source),
        syn_destination: syns(|syn| syn.destination),
        syn_timeout_s: syns(|syn| syn.timeout_s),
        ip_sweep_us: limits.ip_sweep_us.unwrap_or(0),
        tcp_sweep_us: limits.tcp_sweep_us.unwrap_or(0),
        udp_sweep_us: limits.udp_sweep_us.unwrap_or(0),
        port_scan_us: limits.port_scan_us.unwrap_or(0),
        udp_port_scan_us: limits.udp_port_scan_us.unwrap_or(0),
        ..Default::default()
    }
}

/// Each source with each destination of its family; a side that is left out is any.
fn white_terms(screen: &Screen) -> Vec<abi::WhiteTerm> {
    let any = [
        Prefix { addr: Ipv4Addr::UNSPECIFIED.into(), len: 0 },
        Prefix { addr: Ipv6Addr::UNSPECIFIED.into(), len: 0 },
    ];
    let or_any = |list: &[Prefix]| if list.is_empty() { any.to_vec() } else { list.to_vec() };
    let lists = screen.limits.syn_flood.iter().flat_map(|syn| &syn.white_lists);
    let mut terms = vec![];
    for list in lists {
        let destinations = or_any(&list.destinations);
        for source in or_any(&list.sources) {
            let family = |other: &&Prefix| other.addr.is_ipv4() == source.addr.is_ipv4();
            terms.extend(destinations.iter().filter(family).map(|to| white_term(&source, to)));
        }
    }
    terms
}

fn white_term(source: &Prefix, destination: &Prefix) -> abi::WhiteTerm {
    let ((be_saddr, be_smask), (be_daddr, be_dmask)) = (network(source), network(destination));
    let family = if source.addr.is_ipv4() { 4 } else { 6 };
    let of = abi::WhiteFamily { family, ..Default::default() };
    abi::WhiteTerm { be_saddr, be_smask, be_daddr, be_dmask, of }
}

/// Words of address and mask; IPv4 stands in the first.
fn network(prefix: &Prefix) -> ([u32; 4], [u32; 4]) {
    match prefix.addr {
        IpAddr::V4(addr) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix.len)).unwrap_or(0);
            let word = |value: u32| [u32::from_ne_bytes(value.to_be_bytes()), 0, 0, 0];
            (word(u32::from(addr) & mask), word(mask))
        }
        IpAddr::V6(addr) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix.len)).unwrap_or(0);
            (words((u128::from(addr) & mask).to_be_bytes()), words(mask.to_be_bytes()))
        }
    }
}

/// The limits that are on, for people.
pub(crate) fn limit_names(limits: &abi::ScreenLimits) -> String {
    let numbers = [
        ("icmp-flood", limits.icmp_flood, "/s"),
        ("udp-flood", limits.udp_flood, "/s"),
        ("syn-alarm", limits.syn_alarm, "/s"),
        ("syn-attack", limits.syn_attack, "/s"),
        ("syn-source", limits.syn_source, "/s"),
        ("syn-destination", limits.syn_destination, "/s"),
        ("syn-timeout", limits.syn_timeout_s, "s"),
        ("ip-sweep", limits.ip_sweep_us, "us"),
        ("tcp-sweep", limits.tcp_sweep_us, "us"),
        ("udp-sweep", limits.udp_sweep_us, "us"),
        ("port-scan", limits.port_scan_us, "us"),
        ("udp-port-scan", limits.udp_port_scan_us, "us"),
    ];
    let flags = [
        ("spoofing", abi::LIMIT_SPOOFING),
        ("spoofing-zone-based", abi::LIMIT_SPOOFING_ZONE),
        ("alarm-without-drop", abi::LIMIT_ALARM_ONLY),
    ];
    let numbers = numbers.into_iter().filter(|(_, value, _)| *value != 0);
    let numbers = numbers.map(|(name, value, unit)| format!("{name} {value}{unit}"));
    let flags = flags.into_iter().filter(|(_, bit)| limits.flags & bit != 0);
    numbers.chain(flags.map(|(name, _)| name.to_owned())).collect::<Vec<_>>().join(", ")
}

/// `limit-session` of a zone's screen.
fn session_limits(screen: &Screen) -> abi::ZoneLimits {
    abi::ZoneLimits {
        source: screen.source_sessions.unwrap_or(0),
        destination: screen.destination_sessions.unwrap_or(0),
        alarm_only: screen.alarm_without_drop.into(),
        spare: 0,
    }
}

/// By zone id; empty when no zone has any.
pub(crate) fn zone_limits(config: &Config, zone_ids: &BTreeMap<String, u32>) -> Vec<abi::ZoneLimits> {
    let mut table = vec![];
    for zone in &config.zones {
        let screen = config.screens.iter().find(|screen| zone.screen.as_ref() == Some(&screen.name));
        let limits = screen.map(session_limits).unwrap_or_default();
        if limits.source != 0 || limits.destination != 0 {
            let id = zone_ids[&zone.name] as usize;
            table.resize(table.len().max(id + 1), abi::ZoneLimits::default());
            table[id] = limits;
        }
    }
    table
}

/// Names of the screens that are on, for people.
pub(crate) fn names(bits: u32) -> String {
    let on = Stage::Screen.reasons().filter(|reason| bits & abi::screen_bit(*reason) != 0);
    let mut names: Vec<&str> = on.map(Reason::name).collect();
    if bits & abi::SCREEN_ALARM_ONLY != 0 {
        names.push("alarm-without-drop");
    }
    names.join(" ")
}

/// A pair of a white-list, for people.
pub(crate) fn white_name(term: &abi::WhiteTerm) -> String {
    let bytes = |words: [u32; 4]| -> [u8; 16] { std::array::from_fn(|i| words[i / 4].to_ne_bytes()[i % 4]) };
    let side = |net: [u32; 4], mask: [u32; 4]| {
        let length = mask.iter().map(|word| word.count_ones()).sum::<u32>();
        let addr =
            if term.of.family == 4 { IpAddr::from(net[0].to_ne_bytes()) } else { IpAddr::from(bytes(net)) };
        format!("{addr}/{length}")
    };
    format!("{} to {}", side(term.be_saddr, term.be_smask), side(term.be_daddr, term.be_dmask))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_language::config::{COUNTING_CHECKS, SCREEN_CHECKS};

    #[test]
    fn every_check_of_the_language_is_a_screen_and_the_other_way_round() {
        for (checks, stages) in [
            (&SCREEN_CHECKS[..], &[Stage::Screen][..]),
            (&COUNTING_CHECKS[..], &[Stage::ScreenRate, Stage::ScreenFirst][..]),
        ] {
            let mut checks: Vec<&str> = checks.iter().map(|(_, _, reason)| *reason).collect();
            let mut screens: Vec<&str> = stages.iter().flat_map(|s| s.reasons()).map(Reason::name).collect();
            checks.sort_unstable();
            screens.sort_unstable();
            assert_eq!(checks, screens);
        }
    }

    #[test]
    fn masks_of_white_lists() {
        let of = |text: &str, len| network(&Prefix { addr: text.parse().unwrap(), len });
        assert_eq!(of("0.0.0.0", 0), ([0; 4], [0; 4]));
        let (net, mask) = of("10.1.2.0", 24);
        assert_eq!(net[0].to_ne_bytes(), [10, 1, 2, 0]);
        assert_eq!(mask[0].to_ne_bytes(), [255, 255, 255, 0]);
        assert_eq!(of("10.1.2.3", 32).1[0], u32::MAX);
        let (net, mask) = of("2001:db8::", 33);
        assert_eq!(net[0].to_ne_bytes(), [0x20, 0x01, 0x0d, 0xb8]);
        assert_eq!((mask[0], mask[1].to_ne_bytes(), mask[2]), (u32::MAX, [0x80, 0, 0, 0], 0));
        assert_eq!(of("::", 0).1, [0; 4]);
    }
}
