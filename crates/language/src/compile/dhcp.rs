//! `interfaces unit family`: clients of DHCP and DHCPv6.

use std::collections::{HashMap, HashSet};

use super::view::View;
use crate::config::{Interface, StaticRoute};
use crate::dhcp::{DhcpClient, Dhcpv6Client, DuidType};
use crate::error::Report;
use crate::gtpu::MOBILE;
use crate::schema::dhcp::PREFERENCE;

/// Both spellings of one statement.
const NAMES: [&str; 2] = ["dhcp", "dhcp-client"];
const V6: &str = "dhcpv6-client";

/// Longest identifier, which has one octet for its length (RFC 2132, section 9.14).
const LONGEST: usize = 255;

pub(super) fn v4(top: View, unit: View, report: &mut Report) -> Option<DhcpClient> {
    is_in_its_family(unit, report);
    let [dhcp, client] = NAMES.map(|name| unit.path(&["family", "inet", name]));
    if let (Some(_), Some(client)) = (dhcp, client) {
        let message = format!("`{}` beside `dhcp`, which means the same", client.context());
        report.error_help(&client.location(), message, "keep one of them");
    }
    let view = dhcp.or(client)?;
    may_have_a_client(unit, "inet", view, report);
    let number = |name| view.value(&[name]).and_then(View::number);
    let host_name = top.value(&["system", "host-name"]).map(|name| name.word().to_owned());
    Some(DhcpClient {
        identifier: identifier(view, report),
        lease_s: number("lease-time"),
        server: server(view, report),
        vendor: vendor(view, report),
        attempts: number("retransmission-attempt").unwrap_or(6),
        interval_s: number("retransmission-interval").unwrap_or(4),
        install_dns: !view.has("no-dns-install"),
        host_name: host_name.filter(|_| view.path(&["options", "no-hostname"]).is_none()),
        discover: view.has("force-discover"),
        default_route: !view.has("no-default-route"),
        preference: number("preference").unwrap_or(PREFERENCE),
    })
}

/// Option 60 (RFC 2132, section 9.13).
fn vendor(view: View, report: &mut Report) -> Option<String> {
    let word = view.value(&["vendor-id"])?;
    if word.word().len() > LONGEST {
        let message =
            format!("`vendor-id` has {} bytes, and an option has {LONGEST} at most", word.word().len());
        report.error_help(&word.location(), message, "shorten it");
    }
    Some(word.word().to_owned())
}

pub(super) fn v6(unit: View, report: &mut Report) -> Option<Dhcpv6Client> {
    let view = unit.path(&["family", "inet6", V6])?;
    may_have_a_client(unit, "inet6", view, report);
    let has = |path: &[&str]| view.path(path).is_some();
    let (na, pd) = (has(&["client-ia-type", "ia-na"]), has(&["client-ia-type", "ia-pd"]));
    let number = |path: &[&str]| view.value(path).and_then(View::number);
    let stateful = view.value(&["client-type"]).is_none_or(|word| word.word() == "stateful");
    let lans: Vec<View> = view.entries(&["update-router-advertisement", "interface"]).collect();
    if let (Some(first), false) = (lans.first(), pd) {
        let message = format!("`{}` needs a prefix, and none is asked for", first.above().context());
        report.error_help(&first.location(), message, "add `client-ia-type ia-pd`");
    }
    let client = Dhcpv6Client {
        address: na || stateful && !pd,
        prefix: pd,
        rapid_commit: view.has("rapid-commit"),
        duid: match view.value(&["client-identifier", "duid-type"]).map(View::word) {
            Some("duid-ll") => DuidType::LinkLayer,
            _ => DuidType::LinkLayerTime,
        },
        dns: has(&["req-option", "dns-server"]),
        prefix_length: number(&["prefix-delegating", "preferred-prefix-length"]).map(|n: u64| n as u8),
        sub_prefix_length: number(&["prefix-delegating", "sub-prefix-length"]).map_or(64, |n: u64| n as u8),
        lans: lans.iter().map(|lan| unit_name(lan.word())).collect(),
        attempts: number(&["retransmission-attempt"]).map(|n: u64| n as u32),
        default_route: !view.has("no-default-route"),
        preference: number(&["preference"]).map(|n: u64| n as u32),
    };
    has_room(view, &client, report);
    Some(client)
}

/// A prefix of the length that is asked for has a sub-prefix for every unit.
fn has_room(view: View, client: &Dhcpv6Client, report: &mut Report) {
    let Some(length) = client.prefix_length else { return };
    let Some(bits) = client.sub_prefix_length.checked_sub(length) else {
        let message = format!("sub-prefixes of /{} do not fit into /{length}", client.sub_prefix_length);
        return report.error_help(&view.location(), message, "choose a shorter `preferred-prefix-length`");
    };
    if bits < 32 && client.lans.len() > 1 << bits {
        let message = format!("{} units need more sub-prefixes than /{length} has", client.lans.len());
        report.error_help(&view.location(), message, "ask for a shorter prefix, or name fewer units");
    }
}

/// Units that get sub-prefixes are there, once, and none is the client's own.
pub(super) fn lans_are_units(top: View, interfaces: &[Interface], report: &mut Report) {
    let units =
        interfaces.iter().flat_map(|i| i.units.iter().map(move |u| format!("{}.{}", i.name, u.number)));
    let units: HashSet<String> = units.collect();
    let mut seen = HashSet::new();
    for unit in top.entries(&["interfaces"]).flat_map(|interface| interface.entries(&["unit"])) {
        let own = format!("{}.{}", unit.above().above().word(), unit.word());
        for lan in unit.entries(&["family", "inet6", V6, "update-router-advertisement", "interface"]) {
            let name = unit_name(lan.word());
            let refuse = |report: &mut Report, message: String, help: &str| {
                report.error_help(&lan.location(), message, help);
            };
            if !units.contains(&name) {
                refuse(
                    report,
                    format!("unit `{}` is not defined", lan.word()),
                    "define it under `interfaces`, or correct the name",
                );
            } else if name == own {
                refuse(
                    report,
                    format!("`{own}` would get a sub-prefix of its own"),
                    "name the units behind this gateway",
                );
            } else if !seen.insert(name) {
                refuse(report, format!("`{}` gets a sub-prefix already", lan.word()), "name it once");
            }
        }
    }
}

/// By this the import knows it.
pub(crate) const SAME_DEFAULT_ROUTE: &str = "takes a default route of preference";

/// The kernel has one route of a destination and a metric: clients would take theirs from each other for ever.
pub(super) fn default_routes_are_distinct(
    top: View,
    interfaces: &[Interface],
    routes: &[StaticRoute],
    report: &mut Report,
) {
    let is_default = |route: &&StaticRoute| route.destination.len == 0 && route.destination.addr.is_ipv4();
    let of_text =
        |route: &StaticRoute| (route.preference, "routing-options static route 0.0.0.0/0".to_owned());
    let mut seen: HashMap<u32, String> = routes.iter().filter(is_default).map(of_text).collect();
    let in_service = interfaces.iter().filter(|interface| !interface.disabled).flat_map(|interface| {
        interface.units.iter().filter(|unit| !unit.disabled).map(move |unit| (&interface.name, unit))
    });
    for (interface, unit) in in_service {
        let Some(client) = unit.dhcp.as_ref().filter(|client| client.default_route) else { continue };
        let number = unit.number.to_string();
        let view = top.path(&["interfaces", interface, "unit", &number, "family", "inet"]);
        let Some(view) = view.and_then(|inet| NAMES.iter().find_map(|name| inet.child(name))) else {
            continue;
        };
        if let Some(other) = seen.insert(client.preference, format!("interfaces {interface} unit {number}")) {
            let message = format!(
                "`{}` {SAME_DEFAULT_ROUTE} {}, as `{other}` has one",
                view.context(),
                client.preference
            );
            let help = "give one of them another `preference`, or the client `no-default-route`";
            report.error_help(&view.location(), message, help);
        }
    }
}

fn unit_name(word: &str) -> String {
    if word.contains('.') { word.to_owned() } else { format!("{word}.0") }
}

fn is_in_its_family(unit: View, report: &mut Report) {
    let wrong = NAMES.map(|name| ("inet6", name, "inet")).into_iter().chain([("inet", V6, "inet6")]);
    for (family, name, right) in wrong {
        if let Some(view) = unit.path(&["family", family, name]) {
            let message = format!("`{name}` in `family {family}`");
            report.error_help(&view.location(), message, format!("write it under `family {right}`"));
        }
    }
}

/// As in Junos, a unit has addresses of its own or those of a server; tunnels have no servers.
fn may_have_a_client(unit: View, family: &str, client: View, report: &mut Report) {
    let has = |word: &str| unit.path(&["family", family, word]).is_some();
    if unit.above().above().word() == MOBILE {
        let message = format!("`{}`, which leads into tunnels", client.context());
        report.error_help(&client.location(), message, "remove it");
    } else if has("address") {
        let message = format!("`{}` beside `address`", client.context());
        report.error_help(
            &client.location(),
            message,
            "keep one of them: the server chooses the address, or you do",
        );
    }
}

fn server(view: View, report: &mut Report) -> Option<std::net::Ipv4Addr> {
    let value = view.value(&["server-address"])?;
    let address = value.word().parse().ok();
    if address.is_none() {
        report.error_help(
            &value.location(),
            format!("`{}` is no IPv4 address", value.word()),
            "write one like `192.0.2.1`",
        );
    }
    address
}

fn identifier(view: View, report: &mut Report) -> Option<Vec<u8>> {
    let given = |kind| view.value(&["client-identifier", kind]);
    if let Some(text) = given("ascii") {
        return sized(text, [&[0], text.word().as_bytes()].concat(), report);
    }
    let hexadecimal = given("hexadecimal")?;
    let word = hexadecimal.word();
    let digits = word.strip_prefix("0x").unwrap_or(word).as_bytes();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let is_even = digits.len().is_multiple_of(2) && digits.iter().all(u8::is_ascii_hexdigit);
    match digits.chunks(2).map(byte).collect::<Option<Vec<u8>>>().filter(|_| is_even) {
        Some(bytes) => sized(hexadecimal, bytes, report),
        None => {
            let message = format!("`{word}` is not made of bytes of two hexadecimal digits");
            report.error_help(&hexadecimal.location(), message, "write it like `01a0b1c2d3e4f5`");
            None
        }
    }
}

/// RFC 2132, section 9.14: at least a type and an octet.
fn sized(view: View, bytes: Vec<u8>, report: &mut Report) -> Option<Vec<u8>> {
    if (2..=LONGEST).contains(&bytes.len()) {
        return Some(bytes);
    }
    let message = format!("an identifier of {} octets", bytes.len());
    report.error_help(&view.location(), message, "expected 2 to 255 with its type (RFC 2132, section 9.14)");
    None
}
