//! `system services dhcp-local-server` and its pools.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};

use super::router_advertisement::known_unit;
use super::view::View;
use crate::config::{Interface, Prefix};
use crate::dhcp_server::{DhcpHost, DhcpServer, DhcpSubnet, LEASE_S};
use crate::error::Report;
use crate::schema::kind::{address, first_address, last_address, prefix};
use crate::values::overlap;

/// Of one pool.
const MAX_RANGES: usize = 64;
const MAX_HOSTS: usize = 4096;

/// Options of DHCP (RFC 2132 3, 9) that statements stand for, and those that the server makes itself.
const ROUTER: u8 = 3;
const NAME_SERVER: u8 = 6;
const DOMAIN_NAME: u8 = 15;
const TFTP_SERVER: u8 = 66;
const BOOT_FILE: u8 = 67;
const OF_THE_SERVER: [u8; 9] = [1, 50, 51, 53, 54, 55, 57, 61, 82];

struct Pool<'a> {
    view: View<'a>,
    network: Prefix,
    subnet: DhcpSubnet,
}

pub(super) fn compile(top: View, interfaces: &[Interface], report: &mut Report) -> DhcpServer {
    let pools: Vec<Pool> = top
        .entries(&["access", "address-assignment", "pool"])
        .filter_map(|view| pool(view, report))
        .collect();
    for (index, pool) in pools.iter().enumerate() {
        if let Some(other) = pools[..index].iter().find(|other| overlap(&other.network, &pool.network)) {
            let message =
                format!("pools `{}` and `{}` are of one network", other.view.word(), pool.view.word());
            report.error_help(&pool.view.location(), message, "merge them: a pool takes several ranges");
        }
    }
    let mut found: Vec<DhcpSubnet> = vec![];
    let groups = top.entries(&["system", "services", "dhcp-local-server", "group"]);
    for view in groups.flat_map(|group| group.entries(&["interface"])) {
        let Some(unit) = known_unit(view, interfaces, report) else { continue };
        if found.iter().any(|other| other.unit == unit) {
            report.error_help(&view.location(), format!("`{unit}` is served twice"), "leave one out");
            continue;
        }
        let served = served(view, &unit, &pools, interfaces, report);
        found.extend(served.map(|(pool, own)| of_unit(&pool.subnet, unit, own)));
    }
    DhcpServer { subnets: found }
}

/// The pool of a unit, by the first of its addresses that has one.
fn served<'a>(
    view: View,
    unit: &str,
    pools: &'a [Pool<'a>],
    interfaces: &[Interface],
    report: &mut Report,
) -> Option<(&'a Pool<'a>, Ipv4Addr)> {
    let (name, number) = unit.rsplit_once('.')?;
    let interface = interfaces.iter().find(|own| own.name == name)?;
    let own = interface.units.iter().find(|own| own.number.to_string() == number)?;
    let mut fitting = own.inet.iter().filter_map(|own| {
        let IpAddr::V4(address) = own.addr else { return None };
        let network = Prefix { addr: first_address(*own), len: own.len };
        pools.iter().find(|pool| pool.network == network).map(|pool| (pool, address))
    });
    let first = fitting.next();
    if first.is_none() {
        let message = format!("no pool has the network of `{unit}`");
        let help = match own.inet.first() {
            None => format!("give `interfaces {name} unit {number}` an IPv4 address"),
            Some(own) => format!(
                "add `access address-assignment pool NAME family inet network {}/{}`",
                first_address(*own),
                own.len
            ),
        };
        report.error_help(&view.location(), message, help);
    } else if fitting.next().is_some() {
        let message = format!("two pools have networks of `{unit}`");
        report.error_help(&view.location(), message, "leave the network of one address to its hosts");
    }
    first
}

fn of_unit(subnet: &DhcpSubnet, unit: String, own: Ipv4Addr) -> DhcpSubnet {
    let mut subnet = DhcpSubnet { unit, own, ..subnet.clone() };
    if !subnet.options.iter().any(|(code, _)| *code == ROUTER) {
        subnet.options.push((ROUTER, own.octets().to_vec()));
    }
    subnet.options.sort();
    subnet
}

fn pool<'a>(view: View<'a>, report: &mut Report) -> Option<Pool<'a>> {
    let inet = view.path(&["family", "inet"])?;
    let Some(network) = inet.value(&["network"]) else {
        let message = format!("pool `{}` has no `network`", view.word());
        report.error_help(&inet.location(), message, "add it: `network 192.0.2.0/24`");
        return None;
    };
    let network = prefix(network.word()).ok().filter(|found| {
        let is_v4 = found.addr.is_ipv4() && found.len <= 30;
        if !is_v4 {
            let message = format!(
                "network `{}` of pool `{}` has no IPv4 addresses to lend",
                network.word(),
                view.word()
            );
            report.error_help(&network.location(), message, "write an IPv4 network of at most 30 bits");
        }
        is_v4
    })?;
    let attributes = inet.child("dhcp-attributes");
    let ranges = bounded(inet, "range", MAX_RANGES, report);
    let ranges: Vec<_> =
        ranges.into_iter().filter_map(|entry| Some((entry, range(entry, network, report)?))).collect();
    for (index, (entry, own)) in ranges.iter().enumerate() {
        if let Some((other, _)) =
            ranges[..index].iter().find(|(_, other)| own.0 <= other.1 && other.0 <= own.1)
        {
            let message =
                format!("ranges `{}` and `{}` have addresses in common", other.word(), entry.word());
            report.error_help(&entry.location(), message, "let them end before each other");
        }
    }
    let subnet = DhcpSubnet {
        unit: String::new(),
        pool: view.word().to_owned(),
        own: Ipv4Addr::UNSPECIFIED,
        network,
        ranges: ranges.into_iter().map(|(_, range)| range).collect(),
        hosts: hosts(inet, network, report),
        lease_s: attributes
            .and_then(|own| own.value(&["maximum-lease-time"]))
            .and_then(View::number)
            .unwrap_or(LEASE_S),
        server_identifier: attributes
            .and_then(|own| own.value(&["server-identifier"]))
            .and_then(|own| v4(own, report)),
        options: attributes.map(|own| options(own, report)).unwrap_or_default(),
    };
    Some(Pool { view, network, subnet })
}

fn bounded<'a>(view: View<'a>, kind: &str, most: usize, report: &mut Report) -> Vec<View<'a>> {
    let all: Vec<View> = view.entries(&[kind]).collect();
    if let Some(beyond) = all.get(most) {
        report.error(&beyond.location(), format!("more than {most} of `{kind}` in one pool"));
    }
    all
}

/// An IPv4 address.
fn v4(view: View, report: &mut Report) -> Option<Ipv4Addr> {
    match address(view.word()).ok()? {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => {
            let message = format!("`{}` is an IPv6 address", view.word());
            report.error_help(&view.location(), message, "DHCP of IPv4 tells IPv4 addresses");
            None
        }
    }
}

/// One that a host of the network can have.
fn lendable(view: View, network: Prefix, report: &mut Report) -> Option<Ipv4Addr> {
    let found = v4(view, report)?;
    let (first, last) = (first_address(network), last_address(network));
    if IpAddr::V4(found) <= first || IpAddr::V4(found) >= last {
        let message = format!("`{found}` is no address of a host in {}/{}", network.addr, network.len);
        let help = format!("take one between {first} and {last}");
        report.error_help(&view.location(), message, help);
        return None;
    }
    Some(found)
}

fn range(view: View, network: Prefix, report: &mut Report) -> Option<(Ipv4Addr, Ipv4Addr)> {
    let (Some(low), Some(high)) = (view.value(&["low"]), view.value(&["high"])) else {
        let message = format!("range `{}` lacks `low` or `high`", view.word());
        report.error_help(&view.location(), message, "add both: its first and its last address");
        return None;
    };
    let (first, last) = (lendable(low, network, report), lendable(high, network, report));
    let (first, last) = (first?, last?);
    if first > last {
        let message = format!("range `{}` begins at {first}, behind its end {last}", view.word());
        report.error_help(&low.location(), message, "exchange `low` and `high`");
        return None;
    }
    Some((first, last))
}

fn hosts(inet: View, network: Prefix, report: &mut Report) -> Vec<DhcpHost> {
    let (mut macs, mut addresses) = (HashMap::new(), HashMap::new());
    let mut found = vec![];
    for view in bounded(inet, "host", MAX_HOSTS, report) {
        let (Some(mac), Some(own)) = (view.value(&["hardware-address"]), view.value(&["ip-address"])) else {
            let message = format!("host `{}` lacks `hardware-address` or `ip-address`", view.word());
            report.error_help(&view.location(), message, "add both");
            continue;
        };
        let Some(read) = mac_address(mac.word()) else {
            let message = format!("`{}` is no hardware address", mac.word());
            report.error_help(&mac.location(), message, "write it like `02:00:5e:10:00:01`");
            continue;
        };
        let Some(address) = lendable(own, network, report) else { continue };
        let twins = [
            macs.insert(read, view).map(|other| (other, "hardware address")),
            addresses.insert(address, view).map(|other| (other, "address")),
        ];
        for (other, what) in twins.into_iter().flatten() {
            let message = format!("host `{}` has the {what} of host `{}`", view.word(), other.word());
            report.error_help(&view.location(), message, "give each its own");
        }
        found.push(DhcpHost { name: view.word().to_owned(), mac: read, address });
    }
    found
}

fn mac_address(word: &str) -> Option<[u8; 6]> {
    let parts: Vec<&str> = word.split([':', '-']).collect();
    let mut mac = [0; 6];
    if parts.len() != mac.len() {
        return None;
    }
    for (byte, part) in mac.iter_mut().zip(parts) {
        let is_hex = (1..=2).contains(&part.len()) && part.bytes().all(|c| c.is_ascii_hexdigit());
        *byte = u8::from_str_radix(part, 16).ok().filter(|_| is_hex)?;
    }
    Some(mac)
}

fn addresses(view: View, name: &str, report: &mut Report) -> Option<Vec<u8>> {
    let all: Vec<View> = view.entries(&[name]).collect();
    let bytes: Vec<u8> = all.iter().filter_map(|own| v4(*own, report)).flat_map(|own| own.octets()).collect();
    if let Some(beyond) = all.get(63) {
        report.error(&beyond.location(), format!("more addresses of `{name}` than an option has room for"));
    }
    (!bytes.is_empty()).then_some(bytes)
}

fn options(view: View, report: &mut Report) -> Vec<(u8, Vec<u8>)> {
    let text = |name: &str| view.value(&[name]).map(|own| own.word().as_bytes().to_vec());
    let named = [
        (ROUTER, "router", addresses(view, "router", report)),
        (NAME_SERVER, "name-server", addresses(view, "name-server", report)),
        (DOMAIN_NAME, "domain-name", text("domain-name")),
        (TFTP_SERVER, "tftp-server", text("tftp-server")),
        (BOOT_FILE, "boot-file", text("boot-file")),
    ];
    let mut found: Vec<(u8, Vec<u8>)> = vec![];
    for entry in view.entries(&["option"]) {
        let Some(code) = entry.number::<u8>() else { continue };
        let twin = named.iter().find(|(own, _, value)| *own == code && value.is_some());
        let help = match twin {
            Some((_, name, _)) => Some(format!("`{name}` stands for it: leave one out")),
            None if OF_THE_SERVER.contains(&code) => {
                Some("the server makes it itself: leave it out".to_owned())
            }
            None => None,
        };
        if let Some(help) = help {
            let message = format!("option {code} is told already");
            report.error_help(&entry.location(), message, help);
        }
        found.extend(option_value(entry, report).map(|value| (code, value)));
    }
    found.extend(named.into_iter().filter_map(|(code, _, value)| Some((code, value?))));
    found
}

fn option_value(entry: View, report: &mut Report) -> Option<Vec<u8>> {
    let mut values = entry.children();
    let (first, more) = (values.next(), values.next());
    let Some(first) = first.filter(|_| more.is_none()) else {
        let message = format!("option {} needs one value", entry.word());
        report.error_help(&entry.location(), message, "write it like `option 42 ip-address 192.0.2.1`");
        return None;
    };
    let kind = first.word();
    if kind == "ip-address" {
        return addresses(entry, "ip-address", report);
    }
    let value = first.children().next()?;
    let bytes = match kind {
        "byte" => vec![value.number::<u8>()?],
        "short" => value.number::<u16>()?.to_be_bytes().to_vec(),
        "integer" => value.number::<u32>()?.to_be_bytes().to_vec(),
        "hex-string" => hex(value.word()).unwrap_or_default(),
        _ => value.word().as_bytes().to_vec(),
    };
    if bytes.is_empty() || bytes.len() > 255 {
        let message = format!("`{}` has no bytes for an option, or more than 255", value.word());
        let help = match kind {
            "hex-string" => "write two hexadecimal digits for each byte, like `0a0b`",
            _ => "an option has 1 to 255 bytes (RFC 2132 2)",
        };
        report.error_help(&value.location(), message, help);
        return None;
    }
    Some(bytes)
}

fn hex(word: &str) -> Option<Vec<u8>> {
    let digits = word.strip_prefix("0x").unwrap_or(word).as_bytes();
    if !digits.len().is_multiple_of(2) || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.chunks(2).map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hardware_addresses_and_bytes_are_read_strictly() {
        assert_eq!(mac_address("02:00:5E:10:0:1"), Some([2, 0, 0x5e, 0x10, 0, 1]));
        for wrong in [
            "",
            "02:00:5e:10:00",
            "02:00:5e:10:00:01:02",
            "02:00:5e:10:00:+1",
            "2005e100001",
            "02:00:5e:10:00:001",
        ] {
            assert_eq!(mac_address(wrong), None, "{wrong}");
        }
        assert_eq!(hex("0x0aFF"), Some(vec![10, 255]));
        assert_eq!(hex("0a0"), None);
        assert_eq!(hex("+a"), None);
    }
}
