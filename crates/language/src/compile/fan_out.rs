//! `services fan-out`: listeners and their receivers.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::view::View;
use crate::config::{Gate, Interface, Zone};
use crate::error::Report;
use crate::fan_out::{
    Balance, FanOut, Framing, HealthCheck, Listener, MAX_PACKET_SIZE, METRICS_PORT, Method, Mode, NoneLeft,
    QUEUE_BYTES, RECEIVE_BUFFER, Receiver, Target, can_receive, comes_back, same_bind,
};
use crate::schema::kind::{address, unit};

pub(super) fn compile(top: View, interfaces: &[Interface], report: &mut Report) -> FanOut {
    let mut found: Vec<(Listener, View)> = vec![];
    for view in top.entries(&["services", "fan-out", "listener"]) {
        let Some(listener) = listener(view, interfaces, report) else { continue };
        if let Some((other, _)) = found.iter().find(|(other, _)| same_bind(other.bind, listener.bind)) {
            let message =
                format!("listener `{}` has {} like listener `{}`", listener.name, listener.bind, other.name);
            report.error_help(&view.location(), message, "give it another address or port, or merge them");
        }
        found.push((listener, view));
    }
    let binds: Vec<SocketAddr> = found.iter().map(|(listener, _)| listener.bind).collect();
    for (listener, view) in &found {
        receivers_are_no_listeners(*view, listener, &binds, interfaces, report);
        receivers_are_no_twins(*view, listener, report);
    }
    let metrics = top.path(&["services", "fan-out", "metrics"]).map(metrics);
    FanOut { listeners: found.into_iter().map(|(listener, _)| listener).collect(), metrics }
}

fn metrics(view: View) -> SocketAddr {
    let everywhere = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let address = view.value(&["address"]).and_then(|a| address(a.word()).ok()).unwrap_or(everywhere);
    SocketAddr::new(address, number(view, "port").unwrap_or(METRICS_PORT))
}

fn number<T: TryFrom<u64>>(view: View, name: &str) -> Option<T> {
    view.value(&[name]).and_then(View::number)
}

fn choice<T: Copy>(view: View, name: &str, all: &[T], text: fn(T) -> &'static str) -> Option<T> {
    let word = view.value(&[name])?.word();
    all.iter().copied().find(|one| text(*one) == word)
}

/// `af_xdp` is known by that name to everybody, so it may be written so.
fn mode(view: View) -> Mode {
    let word = view.value(&["mode"]).map(|word| word.word().replace('_', "-"));
    Mode::ALL.into_iter().find(|mode| Some(mode.name()) == word.as_deref()).unwrap_or_default()
}

fn listener(view: View, interfaces: &[Interface], report: &mut Report) -> Option<Listener> {
    let mode = mode(view);
    let bind = view.value(&["address"]).and_then(|a| address(a.word()).ok());
    let (Some(bind), Some(port)) = (bind, number(view, "port")) else {
        let message = format!("listener `{}` lacks its address or its port", view.word());
        report.error_help(&view.location(), message, "add `address` and `port`");
        return None;
    };
    let interface = view.value(&["interface"]).and_then(|name| known_unit(name, mode, interfaces, report));
    let rings = mode.is_kernel() || mode == Mode::AfXdp;
    if rings && view.value(&["interface"]).is_none() {
        let message = format!("listener `{}` of mode {} has no interface", view.word(), mode.name());
        report.error_help(&view.location(), message, "add `interface`, or choose `mode userspace`");
    }
    if bind.is_multicast() || rings && bind.is_unspecified() {
        let message =
            format!("listener `{}` of mode {} cannot have address {bind}", view.word(), mode.name());
        let help = match bind.is_multicast() {
            true => "name an address of one host: no listener joins a group",
            false => "name one address, or choose `mode userspace`",
        };
        report.error_help(&view.location(), message, help);
    }
    let vlan = view.value(&["interface"]).and_then(|name| tag(name, mode, interfaces, report));
    let changes_family = mode.changes_family(view.has("keep-source"));
    let receivers: Vec<Receiver> = view
        .entries(&["receiver"])
        .filter_map(|entry| receiver(entry, bind, changes_family, report))
        .collect();
    if view.entries(&["receiver"]).next().is_none() {
        let message = format!("listener `{}` has no receiver", view.word());
        report.error_help(&view.location(), message, "add `receiver NAME` with `address` and `port`");
    }
    Some(Listener {
        name: view.word().to_owned(),
        interface,
        vlan,
        mode,
        bind: SocketAddr::new(bind, port),
        balance: choice(view, "balance", &Balance::ALL, Balance::name).unwrap_or_default(),
        receivers,
        health: view.path(&["health-check"]).map(|check| health(check, report)),
        none_left: match view.value(&["none-left"]).map(View::word) {
            Some("all") => NoneLeft::All,
            _ => NoneLeft::Drop,
        },
        framing: choice(view, "framing", &Framing::ALL, Framing::name).unwrap_or_default(),
        answer_arp: view.has("answer-arp"),
        keep_source: view.has("keep-source"),
        max_packet_size: number(view, "max-packet-size").unwrap_or(MAX_PACKET_SIZE),
        queue_bytes: number(view, "queue-bytes").unwrap_or(QUEUE_BYTES),
        receive_buffer: number(view, "receive-buffer").unwrap_or(RECEIVE_BUFFER),
        workers: number(view, "workers"),
    })
}

/// User space may listen where the data plane does not, so only kernel modes want a unit of the configuration.
fn known_unit(view: View, mode: Mode, interfaces: &[Interface], report: &mut Report) -> Option<String> {
    let (name, number) = unit(view.word()).ok()?;
    let exists = |i: &Interface| i.name == name && i.units.iter().any(|unit| unit.number == number);
    if mode.is_kernel() && !interfaces.iter().any(exists) {
        let message = format!("interface `{}` is not defined", view.word());
        report.error_help(
            &view.location(),
            message,
            "define the interface and its unit, or correct the name",
        );
    }
    Some(format!("{name}.{number}"))
}

/// Tag of a unit's frames. Rings see one tag; a unit that nobody configures is named after its own.
fn tag(view: View, mode: Mode, interfaces: &[Interface], report: &mut Report) -> Option<u16> {
    let (name, number) = unit(view.word()).ok()?;
    let units = interfaces.iter().filter(|i| i.name == name).flat_map(|i| &i.units);
    let Some(unit) = units.clone().find(|unit| unit.number == number) else {
        return u16::try_from(number).ok().filter(|number| *number > 0);
    };
    let vlan = unit.vlan?;
    if mode == Mode::AfXdp && vlan.inner.is_some() {
        let message = format!("rings take no frames of interface `{}`: {vlan}", view.word());
        report.error_help(&view.location(), message, "choose a unit with one tag, or `mode auto`");
    }
    Some(vlan.id)
}

fn receiver(view: View, bind: IpAddr, changes_family: bool, report: &mut Report) -> Option<Receiver> {
    let port: Option<u16> = number(view, "port");
    let one = view.value(&["address"]).and_then(|a| address(a.word()).ok());
    let host = view.value(&["host"]).map(|name| name.word().to_owned());
    let service = view.value(&["service"]).map(|name| name.word().to_owned());
    let target = match (one, host, service, port) {
        (Some(address), None, None, Some(port)) => Target::Address(SocketAddr::new(address, port)),
        (None, Some(host), None, Some(port)) => Target::Host(host, port),
        (None, None, Some(service), None) => Target::Service(service),
        _ => {
            let message = format!("receiver `{}` does not say where it is", view.word());
            let help = "give it `address` and `port`, `host` and `port`, or `service`";
            report.error_help(&view.location(), message, help);
            return None;
        }
    };
    if let Target::Address(address) = target
        && !changes_family
        && address.is_ipv4() != bind.is_ipv4()
    {
        let message = format!("receiver `{}` is not of the address family of its listener", view.word());
        report.error_help(
            &view.location(),
            message,
            "only user-space modes change the family, without `keep-source`",
        );
    }
    if one.is_some_and(|address| !can_receive(address)) {
        let message = format!("receiver `{}` cannot have this address", view.word());
        report.error_help(&view.location(), message, "expected the address of a host");
    }
    Some(Receiver {
        name: view.word().to_owned(),
        target,
        weight: number(view, "weight").unwrap_or(1),
        drain: view.has("drain"),
    })
}

/// A datagram must never come back to who spreads it.
fn receivers_are_no_listeners(
    view: View,
    listener: &Listener,
    binds: &[SocketAddr],
    interfaces: &[Interface],
    report: &mut Report,
) {
    let units = interfaces.iter().flat_map(|interface| &interface.units);
    let is_own =
        |ip: IpAddr| ip.is_loopback() || units.clone().any(|unit| unit.addresses().any(|own| own.addr == ip));
    for entry in view.entries(&["receiver"]) {
        let Some(receiver) = listener.receivers.iter().find(|r| r.name == entry.word()) else { continue };
        let Some(address) = receiver.address() else { continue };
        let loops = binds.iter().any(|bind| comes_back(*bind, address, is_own));
        if loops && listener.mode != Mode::TcpForward {
            let message = format!("receiver `{}` is a listener itself: {address}", receiver.name);
            report.error_help(&entry.location(), message, "packets would go round in a circle; name another");
        }
    }
}

/// Two shares for one receiver are a weight; two names for it are a mistake.
fn receivers_are_no_twins(view: View, listener: &Listener, report: &mut Report) {
    for entry in view.entries(&["receiver"]) {
        let Some(index) = listener.receivers.iter().position(|r| r.name == entry.word()) else { continue };
        let own = &listener.receivers[index];
        let Some(first) = listener.receivers[..index].iter().find(|r| r.target == own.target) else {
            continue;
        };
        let message = format!("receiver `{}` is where receiver `{}` is", own.name, first.name);
        report.error_help(&entry.location(), message, "keep one of them; a larger share is a `weight`");
    }
}

/// Rings take datagrams before the data plane sees them, and so before its gate.
pub(super) fn refuse_before_gate(
    top: View,
    fan_out: &FanOut,
    zones: &[Zone],
    gate: &Gate,
    report: &mut Report,
) {
    for view in top.entries(&["services", "fan-out", "listener"]) {
        let Some(listener) = fan_out.listeners.iter().find(|l| l.name == view.word()) else { continue };
        let has = |zone: &&Zone| zone.interfaces.iter().any(|i| Some(&i.unit) == listener.interface.as_ref());
        let Some(zone) = zones.iter().find(has).filter(|zone| gate.zones.contains(&zone.name)) else {
            continue;
        };
        if listener.mode == Mode::AfXdp {
            let message = format!(
                "listener `{}` of mode af-xdp stands before the gate, and zone `{}` demands grants",
                listener.name, zone.name
            );
            report.error_help(&view.location(), message, "choose `mode auto`, which asks the gate");
        }
    }
}

fn health(view: View, report: &mut Report) -> HealthCheck {
    let default = HealthCheck::default();
    let method = match view.value(&["method"]).map(View::word) {
        Some("udp") => Method::Udp,
        Some("tcp") => Method::Tcp,
        Some("http") => Method::Http,
        Some(_) => Method::Icmp,
        None => {
            report.error_help(
                &view.location(),
                "health-check has no method",
                "add `method icmp`, `udp`, `tcp` or `http`",
            );
            Method::Icmp
        }
    };
    let path = view.value(&["path"]).map(|path| (path, path.word()));
    let is_path = |text: &str| text.starts_with('/') && text.chars().all(|c| c.is_ascii_graphic());
    if let Some((view, text)) = path.filter(|(_, text)| !is_path(text)) {
        let message = format!("`{text}` is no path");
        report.error_help(&view.location(), message, "write it as a request has it, for example \"/health\"");
    }
    HealthCheck {
        method,
        port: number(view, "port"),
        path: path.map_or(default.path, |(_, text)| text.to_owned()),
        interval_ms: number(view, "interval").unwrap_or(default.interval_ms),
        timeout_ms: number(view, "timeout").unwrap_or(default.timeout_ms),
        rise: number(view, "rise").unwrap_or(default.rise),
        fall: number(view, "fall").unwrap_or(default.fall),
        slow_start_ms: number(view, "slow-start").unwrap_or(default.slow_start_ms),
        drain_ms: number(view, "drain").unwrap_or(default.drain_ms),
    }
}
