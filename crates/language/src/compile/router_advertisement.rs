//! `protocols router-advertisement`: what links are told.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv6Addr};

use super::undefined;
use super::view::View;
use crate::config::{Interface, Zone};
use crate::error::Report;
use crate::router_advertisement::{
    AdvertisedPrefix, AdvertisedUnit, NAT_PREFIX_LENGTHS, PREFERRED_S, RouterAdvertisement, RouterPreference,
    VALID_S,
};
use crate::schema::kind::{address, prefix, unit};

/// Of one kind on one unit; what they take in all is bounded by the MTU, which the sender sees to.
const MAX_ENTRIES: usize = 32;

pub(super) fn compile(
    top: View,
    interfaces: &[Interface],
    zones: &[Zone],
    report: &mut Report,
) -> RouterAdvertisement {
    let entries = top.entries(&["protocols", "router-advertisement", "interface"]);
    let mut found: Vec<AdvertisedUnit> = vec![];
    for view in entries {
        let Some(name) = known_unit(view, interfaces, report) else { continue };
        if !zones.iter().any(|zone| zone.interfaces.iter().any(|member| member.unit == name)) {
            let message = format!("`{name}` belongs to no zone");
            report.error_help(&view.location(), message, "add it to the interfaces of a zone");
        }
        if found.iter().any(|other| other.unit == name) {
            report.error_help(&view.location(), format!("`{name}` stands twice"), "merge them");
            continue;
        }
        found.push(advertised(view, name, report));
    }
    RouterAdvertisement { interfaces: found }
}

/// `NAME.UNIT` as it is written everywhere, if the configuration has the unit.
pub(super) fn known_unit(view: View, interfaces: &[Interface], report: &mut Report) -> Option<String> {
    let (interface, number) = unit(view.word()).ok()?;
    let exists = |own: &Interface| {
        own.name == interface && !own.mobile && own.units.iter().any(|unit| unit.number == number)
    };
    if interfaces.iter().any(exists) {
        return Some(format!("{interface}.{number}"));
    }
    let all = interfaces.iter().filter(|own| !own.mobile);
    let names = all.flat_map(|own| own.units.iter().map(|unit| format!("{}.{}", own.name, unit.number)));
    let names: Vec<String> = names.collect();
    undefined(report, view, "interface", names.iter().map(String::as_str), &HashSet::new());
    None
}

fn number<T: TryFrom<u64>>(view: View, name: &str) -> Option<T> {
    view.value(&[name]).and_then(View::number)
}

fn advertised(view: View, name: String, report: &mut Report) -> AdvertisedUnit {
    let (min_interval_s, max_interval_s) = intervals(view, report);
    let default_lifetime_s = default_lifetime(view, max_interval_s, report);
    let lifetime_s = u32::from(max_interval_s) * 3;
    for kind in ["prefix", "dns-server-address", "dns-search-label", "nat-prefix"] {
        if let Some(beyond) = view.entries(&[kind]).nth(MAX_ENTRIES) {
            report.error(&beyond.location(), format!("more than {MAX_ENTRIES} of `{kind}` on `{name}`"));
        }
    }
    let of = |entry: View| number(entry, "lifetime").unwrap_or(lifetime_s);
    let domains = view.entries(&["dns-search-label"]).map(|entry| (entry.word().to_owned(), of(entry)));
    AdvertisedUnit {
        unit: name,
        max_interval_s,
        min_interval_s,
        default_lifetime_s,
        reachable_ms: number(view, "reachable-time").unwrap_or(0),
        retransmit_ms: number(view, "retransmit-timer").unwrap_or(0),
        hop_limit: number(view, "current-hop-limit").unwrap_or(64),
        link_mtu: number(view, "link-mtu"),
        managed: view.has("managed-configuration"),
        other: view.has("other-stateful-configuration"),
        preference: match view.value(&["preference"]).map(View::word) {
            Some("high") => RouterPreference::High,
            Some("low") => RouterPreference::Low,
            _ => RouterPreference::Medium,
        },
        domains: domains.collect(),
        resolvers: view
            .entries(&["dns-server-address"])
            .filter_map(|entry| Some((resolver(entry, report)?, of(entry))))
            .collect(),
        nat_prefixes: view
            .entries(&["nat-prefix"])
            .filter_map(|entry| nat_prefix(entry, lifetime_s, report))
            .collect(),
        prefixes: view.entries(&["prefix"]).filter_map(|entry| advertised_prefix(entry, report)).collect(),
    }
}

/// The shortest and the longest time between two advertisements (RFC 4861 6.2.1).
fn intervals(view: View, report: &mut Report) -> (u16, u16) {
    let max: u16 = number(view, "max-advertisement-interval").unwrap_or(600);
    let default = if max >= 9 { max / 3 } else { (max * 3 / 4).max(3) };
    let Some(value) = view.value(&["min-advertisement-interval"]) else { return (default, max) };
    let min: u16 = value.number().unwrap_or(default);
    if u32::from(min) * 4 > u32::from(max) * 3 {
        let message =
            format!("min-advertisement-interval {min} on `{}`, whose longest is {max}", view.word());
        let help = format!("three quarters of it, {}, are the most (RFC 4861 6.2.1)", max * 3 / 4);
        report.error_help(&value.location(), message, help);
    }
    (min.min(max), max)
}

fn default_lifetime(view: View, max_interval_s: u16, report: &mut Report) -> u16 {
    let Some(value) = view.value(&["default-lifetime"]) else { return max_interval_s * 3 };
    let lifetime: u16 = value.number().unwrap_or(0);
    if lifetime != 0 && lifetime < max_interval_s {
        let message = format!(
            "default-lifetime {lifetime} on `{}`, which may be silent for {max_interval_s} seconds",
            view.word()
        );
        let help = format!(
            "hosts would lose their route meanwhile: 0, or {max_interval_s} at least (RFC 4861 6.2.1)"
        );
        report.error_help(&value.location(), message, help);
    }
    lifetime
}

fn resolver(view: View, report: &mut Report) -> Option<Ipv6Addr> {
    match address(view.word()).ok()? {
        IpAddr::V6(address) => Some(address),
        IpAddr::V4(_) => {
            let message = format!("dns-server-address `{}` is an IPv4 address", view.word());
            report.error_help(&view.location(), message, "hosts are told IPv4 ones by DHCP");
            None
        }
    }
}

fn ipv6_prefix(view: View, report: &mut Report) -> Option<(Ipv6Addr, u8)> {
    let found = prefix(view.word()).ok()?;
    match found.addr {
        IpAddr::V6(address) => Some((address, found.len)),
        IpAddr::V4(_) => {
            let message = format!("`{}` is an IPv4 prefix", view.context());
            report.error_help(&view.location(), message, "write an IPv6 one, like `2001:db8:1::/64`");
            None
        }
    }
}

fn nat_prefix(view: View, lifetime_s: u32, report: &mut Report) -> Option<(Ipv6Addr, u8, u16)> {
    let (address, length) = ipv6_prefix(view, report)?;
    if !NAT_PREFIX_LENGTHS.contains(&length) {
        let message = format!("nat-prefix `{}` is {length} bits long", view.word());
        report.error_help(&view.location(), message, "96, 64, 56, 48, 40 or 32 can be told (RFC 8781 4)");
        return None;
    }
    Some((address, length, number(view, "lifetime").unwrap_or(lifetime_s as u16)))
}

fn advertised_prefix(view: View, report: &mut Report) -> Option<AdvertisedPrefix> {
    let (prefix, length) = ipv6_prefix(view, report)?;
    for word in ["on-link", "autonomous"] {
        let Some(no) = view.child(&format!("no-{word}")).filter(|_| view.has(word)) else { continue };
        let message = format!("prefix `{}` has both `{word}` and `no-{word}`", view.word());
        report.error_help(&no.location(), message, "keep one");
    }
    if prefix.is_unicast_link_local() || prefix.is_multicast() {
        let message = format!("prefix `{}` is not one of global addresses", view.word());
        report.error_help(&view.location(), message, "leave it out (RFC 4861 6.2.1)");
        return None;
    }
    let valid_s = number(view, "valid-lifetime").unwrap_or(VALID_S);
    let stated: Option<u32> = number(view, "preferred-lifetime");
    if let Some(preferred) = stated.filter(|preferred| *preferred > valid_s) {
        let at = view.value(&["preferred-lifetime"]).unwrap_or(view).location();
        let message =
            format!("prefix `{}` is preferred for {preferred} seconds and valid for {valid_s}", view.word());
        report.error_help(
            &at,
            message,
            "hosts would pass it over (RFC 4862 5.5.3): lower it, or raise `valid-lifetime`",
        );
    }
    Some(AdvertisedPrefix {
        prefix,
        length,
        on_link: !view.has("no-on-link"),
        autonomous: !view.has("no-autonomous"),
        valid_s,
        preferred_s: stated.unwrap_or(PREFERRED_S).min(valid_s),
    })
}
