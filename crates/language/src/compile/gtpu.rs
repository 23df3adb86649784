//! `services gtp-u`: where tunnels end, who subscribers are, and what their packets meet.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::gtpu_flows::flows;
use super::undefined;
use super::view::View;
use crate::config::{Gate, HookMode, Interface, Prefix, Unit, Zone};
use crate::error::{Location, Report};
use crate::fan_out::FanOut;
use crate::gtpu::{
    DirectionRules, Duplicate, GtpU, MOBILE, Misfit, MobilePool, MobileSession, QUEUE_SIZE, Role,
    SessionRules, Spread, Thresholds, TunnelInterface,
};
use crate::schema::kind::{address, amount, dscp, prefix, teid, unit};
use crate::values::overlap;

/// Bounds of the data plane.
const MAX_UNITS: usize = 255;
const MAX_RULES: usize = 16_384;
const MAX_DUPLICATES: usize = 255;
/// As many more may be there, of sessions that have not got the new ones yet.
const MAX_WITH_FLOWS: usize = 255;

/// Bits of a subscriber's IPv6 prefix (TS 23.501 5.8.2.2.3).
const PREFIX_LENGTH: u8 = 64;

/// What of the configuration the user plane stands on.
pub(super) struct Around<'a> {
    pub interfaces: &'a [Interface],
    pub zones: &'a [Zone],
    pub gate: &'a Gate,
    pub fan_out: &'a FanOut,
}

impl Around<'_> {
    fn unit(&self, name: &str) -> Option<(&Interface, &Unit)> {
        let (interface, number) = unit(name).ok()?;
        let interface = self.interfaces.iter().find(|own| own.name == interface)?;
        Some((interface, interface.units.iter().find(|unit| unit.number == number)?))
    }

    fn zone(&self, unit: &str) -> Option<&Zone> {
        self.zones.iter().find(|zone| zone.interfaces.iter().any(|member| member.unit == unit))
    }

    fn units(&self) -> impl Iterator<Item = String> + use<'_> {
        let names = |own: &Interface| {
            let name = own.name.clone();
            own.units.iter().map(move |unit| format!("{name}.{}", unit.number)).collect::<Vec<_>>()
        };
        self.interfaces.iter().flat_map(names)
    }
}

pub(super) fn compile(top: View, around: &Around, report: &mut Report) -> GtpU {
    let mut gtp_u = GtpU::default();
    if let Some(view) = top.path(&["services", "gtp-u"]) {
        gtp_u.sessions_maximum = view.value(&["sessions-maximum"]).and_then(View::number);
        gtp_u.interfaces =
            view.entries(&["interface"]).filter_map(|entry| interface(entry, around, report)).collect();
        gtp_u.pools = pools(view, around, report);
        gtp_u.duplicates =
            view.entries(&["duplicate"]).filter_map(|entry| duplicate(entry, &gtp_u, report)).collect();
        copies_can_be_made(view, around, report);
        gtp_u.rules = view.entries(&["rules"]).map(|entry| rules(entry, view, report)).collect();
        let bounds = [("interface", MAX_UNITS), ("duplicate", MAX_DUPLICATES), ("rules", MAX_RULES)];
        for (what, most) in bounds {
            if let Some(beyond) = view.entries(&[what]).nth(most) {
                report.error(&beyond.location(), format!("more than {most} of `services gtp-u {what}`"));
            }
        }
        if let Some(beyond) = view.entries(&["rules"]).filter(|rules| rules.has("flow")).nth(MAX_WITH_FLOWS) {
            let message = format!("more than {MAX_WITH_FLOWS} of `services gtp-u rules` have flows");
            report.error_help(&beyond.location(), message, "let sessions share rules");
        }
        gtp_u.sessions = sessions(view, &gtp_u, report);
        gtp_u.spread = view.path(&["spread"]).map(spread);
    }
    mobile_units_have_pools(top, &gtp_u, around, report);
    gtp_u
}

/// What each CPU's share is does not depend on the order in which they are written.
fn spread(view: View) -> Spread {
    let mut processors: Vec<u16> = view.entries(&["processors"]).filter_map(View::number).collect();
    processors.sort_unstable();
    Spread {
        processors,
        queue_size: view.value(&["queue-size"]).and_then(View::number).unwrap_or(QUEUE_SIZE),
    }
}

/// `mif.0`, however it is written.
fn full_name(view: View) -> Option<String> {
    unit(view.word()).ok().map(|(interface, number)| format!("{interface}.{number}"))
}

fn known<'a>(view: View, around: &'a Around, report: &mut Report) -> Option<(&'a Interface, &'a Unit)> {
    let found = full_name(view).and_then(|name| around.unit(&name));
    if found.is_none() {
        let units: Vec<String> = around.units().collect();
        undefined(report, view, "interface", units.iter().map(String::as_str), &HashSet::new());
    }
    found
}

/// Its packets are looked at only where a zone has it.
fn belongs_to_a_zone(view: View, around: &Around, report: &mut Report) {
    let name = full_name(view).unwrap_or_default();
    if around.zone(&name).is_none() {
        let message = format!("`{name}` belongs to no zone");
        report.error_help(&view.location(), message, "add it to the interfaces of a zone");
    }
}

fn interface(view: View, around: &Around, report: &mut Report) -> Option<TunnelInterface> {
    let (interface, unit) = known(view, around, report)?;
    let name = format!("{}.{}", interface.name, unit.number);
    let role = match view.value(&["role"]).map(View::word) {
        Some("n9") => Role::N9,
        Some("s1-u") => Role::S1U,
        Some(_) => Role::N3,
        None => {
            let message = format!("`{}` has no `role`", view.context());
            report.error_help(&view.location(), message, "add `role n3`, `role n9` or `role s1-u`");
            return None;
        }
    };
    if interface.mobile {
        let message = format!("`{name}` leads to subscribers, and tunnels cannot end on it");
        report.error_help(&view.location(), message, "name the unit that base stations are reached by");
        return None;
    }
    belongs_to_a_zone(view, around, report);
    if around.gate.host_only.contains(&interface.name) {
        let message =
            format!("`{name}` is an interface of `services gate host-only`, which passes tunnels by");
        report.error_help(&view.location(), message, "leave one of them out");
    }
    if let Some(zone) = around.zone(&name).filter(|zone| around.gate.zones.contains(&zone.name)) {
        let message =
            format!("`{name}` is in zone `{}` of `services gate`, which tunnels would pass by", zone.name);
        let help = "give it a zone of its own: base stations are authenticated by IPsec and have no grants";
        report.error_help(&view.location(), message, help);
    }
    let v4 = unit.inet.iter().find_map(|prefix| match prefix.addr {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    });
    let v6 = unit.inet6.iter().find_map(|prefix| match prefix.addr {
        IpAddr::V6(address) => Some(address).filter(|address| !address.is_unicast_link_local()),
        IpAddr::V4(_) => None,
    });
    if v4.is_none() && v6.is_none() {
        let message = format!("`{name}` has no address that tunnels could end at");
        let help = format!("give `interfaces {} unit {}` one", interface.name, unit.number);
        report.error_help(&view.location(), message, help);
        return None;
    }
    Some(TunnelInterface { unit: name, role, v4, v6 })
}

fn pools(gtp_u: View, around: &Around, report: &mut Report) -> Vec<MobilePool> {
    let mut seen: Vec<(Prefix, View)> = vec![];
    let mut pools = vec![];
    for view in gtp_u.entries(&["pool"]) {
        let prefixes: Vec<(Prefix, View)> =
            view.entries(&["prefix"]).filter_map(|entry| Some((prefix(entry.word()).ok()?, entry))).collect();
        if view.child("prefix").is_none() {
            let message = format!("pool `{}` has no `prefix`", view.word());
            report.error_help(&view.location(), message, "add one, such as `prefix 10.45.0.0/16`");
        }
        let mobile = mobile_interface(view, around, report);
        for (prefix, entry) in &prefixes {
            pool_prefix(*prefix, *entry, mobile.as_deref(), &seen, around, report);
            seen.push((*prefix, *entry));
        }
        if let Some(interface) = mobile {
            let prefixes = prefixes.into_iter().map(|(prefix, _)| prefix).collect();
            let unit = around.unit(&interface).map(|(_, unit)| unit);
            let own = unit.into_iter().flat_map(|unit| unit.addresses());
            let gateway = own.map(|prefix| prefix.addr).collect();
            pools.push(MobilePool { name: view.word().to_owned(), prefixes, interface, gateway });
        }
    }
    pools
}

fn mobile_interface(pool: View, around: &Around, report: &mut Report) -> Option<String> {
    let Some(view) = pool.value(&["mobile-interface"]) else {
        if pool.child("mobile-interface").is_none() {
            let message = format!("pool `{}` has no `mobile-interface`", pool.word());
            report.error_help(&pool.location(), message, "add one, such as `mobile-interface mif.0`");
        }
        return None;
    };
    let (interface, unit) = known(view, around, report)?;
    if !interface.mobile {
        let message = format!("`{}` is no unit of `interfaces {MOBILE}`", view.word());
        let help = format!("define `interfaces {MOBILE} unit 0`, and write `mobile-interface {MOBILE}.0`");
        report.error_help(&view.location(), message, help);
        return None;
    }
    belongs_to_a_zone(view, around, report);
    Some(format!("{}.{}", interface.name, unit.number))
}

fn pool_prefix(
    prefix: Prefix,
    entry: View,
    mobile: Option<&str>,
    seen: &[(Prefix, View)],
    around: &Around,
    report: &mut Report,
) {
    let at = entry.location();
    if prefix.addr.is_ipv6() && prefix.len > PREFIX_LENGTH {
        let message = format!("`{}` is longer than a subscriber's IPv6 prefix", entry.word());
        report.error_help(&at, message, format!("a subscriber has {PREFIX_LENGTH} bits; shorten it"));
    }
    if let Some((_, other)) = seen.iter().find(|(other, _)| overlap(other, &prefix)) {
        let pool = other.above().above().word();
        let message = format!("`{}` overlaps `{}` of pool `{pool}`", entry.word(), other.word());
        report.error_help(&at, message, "an address belongs to one pool");
    }
    for interface in around.interfaces {
        for unit in &interface.units {
            let name = format!("{}.{}", interface.name, unit.number);
            let subnets = unit.addresses();
            let clash = subnets.filter(|_| Some(name.as_str()) != mobile).find(|own| overlap(own, &prefix));
            if let Some(own) = clash {
                let (addr, len) = (own.addr, own.len);
                let message = format!("`{}` overlaps `{addr}/{len}` of `{name}`", entry.word());
                report.error_help(&at, message, "subscribers have addresses of their own");
            }
        }
    }
}

fn duplicate(view: View, config: &GtpU, report: &mut Report) -> Option<Duplicate> {
    let name = view.word().to_owned();
    let has_tunnel = lacks_nothing(view, "duplicate", &[&["peer", "address"], &["peer", "teid"]], report);
    let at = |path: &[&str]| view.value(path).and_then(|word| address(word.word()).ok());
    let peer_teid = view.value(&["peer", "teid"]).and_then(|word| teid(word.word()).ok());
    let (peer, local) = (at(&["peer", "address"]), at(&["local-address"]));
    if let (true, Some(peer)) = (has_tunnel, peer)
        && let Err(misfit) = config.tunnel(peer, local)
    {
        let message = format!("duplicate `{name}`: {}", misfit.what);
        report.error_help(&place_of(view, &misfit), message, misfit.help);
        return None;
    }
    Some(Duplicate { name, peer: peer?, peer_teid: peer_teid?, local })
}

/// XDP has tc copy, and tells it so beside the packet, which generic XDP hides from tc.
fn copies_can_be_made(gtp_u: View, around: &Around, report: &mut Report) {
    let generic = around.interfaces.iter().find(|interface| interface.mode == HookMode::Generic);
    let (Some(interface), Some(first)) = (generic, gtp_u.entries(&["duplicate"]).next()) else { return };
    let message = format!(
        "`duplicate {}`: packets of interface {} cannot be copied, it is in mode generic",
        first.word(),
        interface.name
    );
    report.error_help(&first.location(), message, "use `mode tc`, `xdp` or `auto` there");
}

/// Name of the tunnel that copies of a direction go into.
fn copies_of(direction: View, gtp_u: View, report: &mut Report) -> Option<String> {
    let name = direction.value(&["duplicate"])?;
    if !gtp_u.entries(&["duplicate"]).any(|known| known.word() == name.word()) {
        let known: Vec<&str> = gtp_u.entries(&["duplicate"]).map(View::word).collect();
        undefined(report, name, "tunnel", known, &gtp_u.inactive_names(&["duplicate"]).collect());
    }
    if direction.has("discard") {
        let message = format!("`{}` beside `discard`: only what passes is copied", name.above().context());
        report.error_help(&name.location(), message, "remove one of both");
    }
    Some(name.word().to_owned())
}

fn rules(view: View, gtp_u: View, report: &mut Report) -> SessionRules {
    let qfi = view.value(&["qfi"]).and_then(View::number);
    let reflective = view.child("reflective-qos");
    if let Some(reflective) = reflective.filter(|_| view.child("qfi").is_none()) {
        let message = format!("rules `{}` have `reflective-qos` and no `qfi`", view.word());
        report.error_help(&reflective.location(), message, "add `qfi`, whose container says so");
    }
    SessionRules {
        name: view.word().to_owned(),
        qfi,
        reflective: reflective.is_some(),
        uplink: direction(view, "uplink", gtp_u, report),
        downlink: direction(view, "downlink", gtp_u, report),
        flows: flows(view, gtp_u, report),
    }
}

pub(super) fn direction(rules: View, name: &str, gtp_u: View, report: &mut Report) -> DirectionRules {
    let Some(view) = rules.child(name) else { return DirectionRules::default() };
    let number = |name: &str| view.value(&[name]).and_then(|word| amount(word.word(), 0, u64::MAX).ok());
    if let Some(burst) = view.child("burst-size").filter(|_| view.child("maximum-bit-rate").is_none()) {
        let message = format!("`{}` without `maximum-bit-rate`", burst.context());
        report.error_help(&burst.location(), message, "add the rate that it is a burst of, or remove it");
    }
    DirectionRules {
        rate_bps: number("maximum-bit-rate"),
        burst_bytes: number("burst-size"),
        closed: view.value(&["gate"]).is_some_and(|gate| gate.word() == "closed"),
        discard: view.has("discard"),
        dscp: view.value(&["dscp"]).and_then(|value| dscp(value.word()).ok()),
        duplicate: copies_of(view, gtp_u, report),
    }
}

/// Sessions by what must not be another's.
#[derive(Default)]
struct Taken<'a> {
    teids: HashMap<u32, View<'a>>,
    addresses: HashMap<IpAddr, View<'a>>,
}

fn sessions(gtp_u: View, config: &GtpU, report: &mut Report) -> Vec<MobileSession> {
    let mut taken = Taken::default();
    let mut sessions = vec![];
    for (index, view) in gtp_u.entries(&["session"]).enumerate() {
        if index == config.sessions_maximum.unwrap_or(crate::gtpu::SESSIONS_MAXIMUM) as usize {
            let message = format!("more than {index} sessions");
            report.error_help(&view.location(), message, "raise `services gtp-u sessions-maximum`");
        }
        let Some(session) = session(view, report) else { continue };
        is_distinct(view, &session, &mut taken, report);
        if let Err(misfit) = config.place(&session) {
            let message = format!("session `{}`: {}", session.name, misfit.what);
            report.error_help(&place_of(view, &misfit), message, misfit.help);
            continue;
        }
        sessions.push(session);
    }
    sessions
}

/// The statement that says what does not fit.
fn place_of(view: View, misfit: &Misfit) -> Location {
    match view.path(misfit.statement).filter(|_| !misfit.statement.is_empty()) {
        Some(statement) => statement.children().next().unwrap_or(statement).location(),
        None => view.location(),
    }
}

/// Whether all of its tunnel is there.
fn lacks_nothing(view: View, what: &str, paths: &[&[&str]], report: &mut Report) -> bool {
    let missing: Vec<String> = paths
        .iter()
        .filter(|path| view.path(path).is_none())
        .map(|path| format!("`{}`", path.join(" ")))
        .collect();
    if !missing.is_empty() {
        let message = format!("{what} `{}` lacks {}", view.word(), missing.join(" and "));
        report.error_help(&view.location(), message, "add what is missing of its tunnel");
    }
    missing.is_empty()
}

fn session(view: View, report: &mut Report) -> Option<MobileSession> {
    let of_tunnel = |path: &[&str]| view.value(path);
    lacks_nothing(view, "session", &[&["teid"], &["peer", "address"], &["peer", "teid"]], report);
    let end = |path: &[&str]| of_tunnel(path).and_then(|word| teid(word.word()).ok());
    let at = |path: &[&str]| of_tunnel(path).and_then(|word| address(word.word()).ok());
    let quota = |path: &[&str]| of_tunnel(path).and_then(|word| amount(word.word(), 0, u64::MAX).ok());
    let seconds =
        |path: &[&str]| of_tunnel(path).and_then(View::number).map(|seconds: u32| u64::from(seconds));
    let own = subscriber(view, report);
    let (own4, own6) = own?;
    Some(MobileSession {
        name: view.word().to_owned(),
        teid: end(&["teid"])?,
        address: own4,
        prefix: own6,
        relay: view.has("relay"),
        peer: at(&["peer", "address"])?,
        peer_teid: end(&["peer", "teid"])?,
        local: at(&["local-address"]),
        rules: view.value(&["rules"]).map(|name| name.word().to_owned()),
        uplink_quota: quota(&["quota", "uplink"]),
        downlink_quota: quota(&["quota", "downlink"]),
        time_quota_s: seconds(&["quota", "time"]),
        thresholds: Thresholds {
            uplink: quota(&["threshold", "uplink"]),
            downlink: quota(&["threshold", "downlink"]),
            total: quota(&["threshold", "total"]),
            time_s: seconds(&["threshold", "time"]),
        },
    })
}

/// What a subscriber has; None = it was wrong.
fn subscriber(view: View, report: &mut Report) -> Option<(Option<Ipv4Addr>, Option<Ipv6Addr>)> {
    let mut own4 = None;
    if let Some(entry) = view.value(&["address"]) {
        match address(entry.word()).ok()? {
            IpAddr::V4(address) => own4 = Some(address),
            IpAddr::V6(_) => {
                let message = format!("`{}` is an IPv6 address", entry.word());
                let help = "a subscriber has an IPv6 prefix: `prefix 2001:db8:45:1::/64`";
                report.error_help(&entry.location(), message, help);
                return None;
            }
        }
    }
    let Some(entry) = view.value(&["prefix"]) else { return Some((own4, None)) };
    let own6 = prefix(entry.word()).ok()?;
    match own6.addr {
        IpAddr::V6(addr) if own6.len == PREFIX_LENGTH => Some((own4, Some(addr))),
        _ => {
            let message = format!("`{}` is no IPv6 prefix of {PREFIX_LENGTH} bits", entry.word());
            let help = "write it like `2001:db8:45:1::/64`; an IPv4 address stands behind `address`";
            report.error_help(&entry.location(), message, help);
            None
        }
    }
}

fn is_distinct<'a>(view: View<'a>, session: &MobileSession, taken: &mut Taken<'a>, report: &mut Report) {
    if let Some(other) = taken.teids.insert(session.teid, view) {
        let at = view.value(&["teid"]).unwrap_or(view).location();
        let message = format!("session `{}` has the TEID of session `{}`", session.name, other.word());
        report.error_help(&at, message, "give each session its own");
    }
    let own = [session.address.map(IpAddr::V4), session.prefix.map(IpAddr::V6)];
    for (own, statement) in own.into_iter().zip(["address", "prefix"]) {
        let Some(own) = own else { continue };
        if let Some(other) = taken.addresses.insert(own, view) {
            let at = view.value(&[statement]).unwrap_or(view).location();
            let message =
                format!("session `{}` has the {statement} of session `{}`", session.name, other.word());
            report.error_help(&at, message, "give each subscriber its own");
        }
    }
}

/// A mobile interface without subscribers is a slip: nothing would ever come from it.
fn mobile_units_have_pools(top: View, gtp_u: &GtpU, around: &Around, report: &mut Report) {
    for view in top.entries(&["interfaces", MOBILE, "unit"]) {
        let name = format!("{MOBILE}.{}", view.word());
        let is_named = top
            .entries(&["services", "gtp-u", "pool"])
            .filter_map(|pool| pool.value(&["mobile-interface"]))
            .any(|own| full_name(own).as_ref() == Some(&name));
        if !is_named {
            let message = format!("`{name}` is the mobile interface of no pool");
            let help = format!("add `services gtp-u pool NAME mobile-interface {name}`, or remove it");
            report.error_help(&view.location(), message, help);
        }
        if around.fan_out.listeners.iter().any(|listener| listener.interface.as_ref() == Some(&name)) {
            let message = format!("`{name}` has a fan-out listener");
            report.error_help(&view.location(), message, "let it listen on another interface");
        }
    }
    let Some(view) = top.path(&["interfaces", MOBILE]) else { return };
    if around.gate.host_only.iter().any(|name| name == MOBILE) {
        let message = format!("`{MOBILE}` cannot be an interface of `services gate host-only`");
        report.error_help(&view.location(), message, "leave it out there");
    }
    if !gtp_u.pools.is_empty() && gtp_u.interfaces.is_empty() {
        let message = "subscribers have pools, and no tunnels end here".to_owned();
        report.error_help(&view.location(), message, "add `services gtp-u interface NAME role n3`");
    }
}
