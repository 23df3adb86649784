//! The plan as text: stable, one fact a line, every table entry decoded from what the data plane will hold.

mod nat;

use std::fmt::{self, Display, Formatter};
use std::net::Ipv4Addr;

use sluice_abi::stages::Stage;
use sluice_abi::tables::GateEndpoint;
use sluice_abi::{self as abi, Rule, ServiceTerm, Unit, ZonePair};
use sluice_language::config::{Prefix, Ranges, STATIC_PREFERENCE, Service};

use crate::classifier::Wanted;
use crate::words::v6_of;
use crate::{Attachment, Gateway, KernelWants, MAIN_TABLE, Plan, RouteVia};
use crate::{screens, terms};

impl Display for Plan {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "generation {}", self.generation)?;
        for (number, variant) in self.variants.iter().enumerate() {
            let names = Stage::ALL.iter().filter(|s| variant.stage_mask & s.bit() != 0);
            let names: Vec<_> = names.map(|s| s.name()).collect();
            writeln!(f, "variant {number}: {}", names.join(" "))?;
        }
        for attachment in &self.attachments {
            write_attachment(f, attachment)?;
        }
        writeln!(f, "unit table multiplier {:#010x}", self.tables.unit_multiplier)?;
        if self.tables.tcp_mss != 0 {
            writeln!(f, "tcp-mss {}", self.tables.tcp_mss)?;
        }
        if !self.tables.nat.prefixes.is_empty() {
            writeln!(f, "lowest-ipv6-mtu {}", self.tables.lowest_ipv6_mtu)?;
        }
        for (_, entry) in &self.tables.units {
            self.write_unit(f, entry)?;
        }
        self.write_limits(f)?;
        self.write_flow(f)?;
        self.write_pairs(f)?;
        self.write_contexts(f)?;
        self.write_fan_out(f)?;
        self.write_gate(f)?;
        self.write_gtpu(f)?;
        nat::write(f, self)?;
        write_kernel(f, &self.kernel)?;
        self.frr.lines().try_for_each(|line| writeln!(f, "frr | {line}"))
    }
}

/// `100`, or the outer and the inner VLAN as in `0x88a8.100.7`.
fn vlan_text(word: u32) -> String {
    let service = if word & abi::VLAN_SERVICE == 0 { "" } else { "0x88a8." };
    let inner = (word & abi::VLAN_TWO != 0).then_some((word >> abi::VLAN_INNER_SHIFT) & abi::VLAN_ID);
    format!("{service}{}{}", word & abi::VLAN_ID, inner.map(|id| format!(".{id}")).unwrap_or_default())
}

fn write_attachment(f: &mut Formatter<'_>, a: &Attachment) -> fmt::Result {
    let ingress = a
        .ingress
        .map_or("egress only".to_owned(), |hook| format!("ingress {} variant {}", hook.name(), a.variant));
    writeln!(f, "attach {} ifindex {}: {ingress}", a.device, a.ifindex)
}

impl Plan {
    fn write_fan_out(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (info, listener) in self.fan_out.iter().zip(&self.tables.fan_out.listeners) {
            let (balance, hook, turns) = (info.balance.name(), info.hook.name(), listener.entry.table as u32);
            writeln!(
                f,
                "listener {} {} {} on {} {hook}: {balance} positions {turns}",
                info.index, info.name, info.bind, info.unit
            )?;
            for (name, address, index) in &info.receivers {
                writeln!(f, "  receiver {index} {name} {address}")?;
            }
        }
        Ok(())
    }

    fn write_gtpu(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.tables.gtpu_sessions != 0 {
            writeln!(f, "gtp-u room for {} sessions", self.tables.gtpu_sessions)?;
        }
        if self.tables.spread.queue != 0 {
            writeln!(
                f,
                "gtp-u spread to {:?}, queues of {}",
                self.tables.spread.cpus, self.tables.spread.queue
            )?;
        }
        write!(f, "{}", self.gtpu)?;
        for (name, session) in &self.gtpu_sessions {
            writeln!(f, "gtp-u session {name} {session}")?;
        }
        Ok(())
    }

    fn write_unit(&self, f: &mut Formatter<'_>, entry: &Unit) -> fmt::Result {
        if entry.vlan == abi::VLAN_NULL {
            let null = self.null_zone.iter().find(|null| null.index == u32::from(entry.index));
            let (device, cause) = null.map_or(("?", "?"), |null| (null.device.as_str(), null.cause));
            return writeln!(f, "null zone {} {device} on ifindex {}: {cause}", entry.index, entry.ifindex);
        }
        if entry.vlan == abi::VLAN_GENERIC {
            return writeln!(f, "generic XDP on ifindex {}", entry.ifindex);
        }
        let info = self.units.iter().find(|u| u.index == u32::from(entry.index));
        let name = info.map_or("?", |u| u.name.as_str());
        let zone = self.zone(entry.zone.into());
        writeln!(
            f,
            "unit {} {name} on ifindex {} vlan {}: zone {zone}",
            entry.index,
            entry.ifindex,
            vlan_text(if entry.flags & abi::UNIT_HOST_SIDE == 0 { entry.vlan } else { 0 })
        )?;
        let mac = entry.mac.map(|b| format!("{b:02x}")).join(":");
        write!(
            f,
            "  mtu {} mac {mac} leaves by {}ifindex {} vlan {}",
            entry.mtu,
            if entry.phys_ifindex & abi::LEAVES_BY_KERNEL == 0 { "" } else { "the kernel and " },
            entry.phys_ifindex & !abi::LEAVES_BY_KERNEL,
            vlan_text(entry.vlan)
        )?;
        writeln!(f, " host ifindex {} peer {}", entry.host_ifindex, entry.host_peer_ifindex)?;
        let v4 = Ipv4Addr::from(entry.be_addr4.to_ne_bytes());
        writeln!(f, "  replies from {v4} {} flags {}", v6_of(entry.be_addr6), unit_flags(entry.flags))?;
        if let Some(own) = self.tables.gtpu_interfaces.get(usize::from(entry.gtpu).wrapping_sub(1)) {
            let v4 = Ipv4Addr::from(own.be_addr4.to_ne_bytes());
            match u32::from(own.kind) {
                abi::GTPU_MOBILE => writeln!(f, "  gtp-u {}: mobile", entry.gtpu)?,
                _ => writeln!(f, "  gtp-u {}: tunnels to {v4} {}", entry.gtpu, v6_of(own.be_addr6))?,
            }
        }
        if entry.screens != 0 {
            writeln!(f, "  screens {}", screens::names(entry.screens))?;
        }
        let first = usize::from(entry.host_first);
        for term in &self.tables.service_terms[first..first + usize::from(entry.host_count)] {
            writeln!(f, "  host-inbound {}", service(term))?;
        }
        Ok(())
    }

    fn write_limits(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (zone, limits) in self.tables.screen_limits.iter().enumerate() {
            let names = screens::limit_names(limits);
            if !names.is_empty() {
                writeln!(f, "limits of {}: {names}", self.zone(zone as u32))?;
            }
            let first = usize::from(limits.white_first);
            for term in &self.tables.white_terms[first..first + usize::from(limits.white_count)] {
                writeln!(f, "  white-list {}", screens::white_name(term))?;
            }
        }
        Ok(())
    }

    fn zone(&self, id: u32) -> String {
        format!("{}({id})", self.zones.get(&id).map_or("?", String::as_str))
    }

    /// What differs from the defaults.
    fn write_flow(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (flow, default) = (&self.tables.flow, abi::tables::FlowRules::default());
        if !flow.sequence_check {
            writeln!(f, "flow no-sequence-check")?;
        }
        if flow.reverse_across_zones {
            writeln!(f, "flow allow-reverse-across-zones")?;
        }
        if flow.unanswered_percent != default.unanswered_percent {
            writeln!(f, "flow max-unanswered {} percent", flow.unanswered_percent)?;
        }
        for (zone, limits) in (0..).zip(&self.tables.zone_limits) {
            for (what, limit) in [("source", limits.source), ("destination", limits.destination)] {
                if limit != 0 {
                    let alarm = if limits.alarm_only != 0 { " alarm-without-drop" } else { "" };
                    writeln!(f, "limit-session zone {} {what} {limit}{alarm}", self.zone(zone))?;
                }
            }
        }
        Ok(())
    }

    fn write_pairs(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (index, pair) in self.tables.zone_pairs.iter().enumerate() {
            let (from, to) = ((index / abi::MAX_ZONES) as u32, (index % abi::MAX_ZONES) as u32);
            if self.zones.contains_key(&from) && self.zones.contains_key(&to) {
                self.write_pair(f, pair, from, to)?;
            }
        }
        Ok(())
    }

    fn write_pair(&self, f: &mut Formatter<'_>, pair: &ZonePair, from: u32, to: u32) -> fmt::Result {
        let default = action(pair.default_action);
        let (from, to) = (self.zone(from), self.zone(to));
        let context = |number: u16| if number == 0 { "none".to_owned() } else { number.to_string() };
        let (own, global) = (context(pair.context), context(pair.global));
        writeln!(f, "pair {from} -> {to}: context {own}, global {global}, default {default}")
    }

    fn write_contexts(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (number, list) in (1..).zip(&self.contexts).filter(|(n, _)| *n != self.tables.gate.context) {
            writeln!(f, "context {number} {}: {} rules at {}", list.name, list.rules.len(), list.first)?;
            for (rule, wanted) in self.tables.rules[list.first as usize..].iter().zip(&list.rules) {
                self.write_rule(f, rule, wanted)?;
            }
        }
        Ok(())
    }

    fn write_gate(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let gate = &self.tables.gate;
        for zone in
            (0..abi::MAX_ZONES as u32).filter(|zone| gate.zones[*zone as usize / 64] >> (zone % 64) & 1 == 1)
        {
            writeln!(f, "gate zone {}", self.zone(zone))?;
        }
        let lists = (1..).zip(&self.contexts).filter(|(number, _)| *number == gate.context);
        for (number, list) in lists {
            writeln!(f, "gate context {number}: {} services at {}", list.rules.len(), list.first)?;
            for (rule, wanted) in self.tables.rules[list.first as usize..].iter().zip(&list.rules) {
                let name = self.gate.services.get(&rule.policy.into()).map_or("?", String::as_str);
                write!(f, "  service {name}({})", rule.policy)?;
                write_wanted(f, wanted)?;
            }
        }
        for (device, alone) in &self.gate.alone {
            writeln!(f, "gate alone before {device} unit {}", alone.unit)?;
            alone.endpoints.iter().try_for_each(|endpoint| write_endpoint(f, endpoint))?;
        }
        self.gate.grants.iter().try_for_each(|grant| writeln!(f, "gate {grant}"))
    }

    fn write_rule(&self, f: &mut Formatter<'_>, r: &Rule, wanted: &Wanted) -> fmt::Result {
        let name = self.policies.get(&r.policy.into()).map_or("?", |p| p.name.as_str());
        write!(f, "  {} {name}({})", action(r.action), r.policy)?;
        for (bit, text) in
            [(abi::RULE_LOG_INIT, "log-init"), (abi::RULE_LOG_CLOSE, "log-close"), (abi::RULE_COUNT, "count")]
        {
            if r.flags & bit != 0 {
                write!(f, " {text}")?;
            }
        }
        write_wanted(f, wanted)
    }
}

fn write_endpoint(f: &mut Formatter<'_>, endpoint: &GateEndpoint) -> fmt::Result {
    let protocol = if endpoint.udp { "udp" } else { "tcp" };
    write!(f, "  {protocol} {}-{} service {}", endpoint.ports.0, endpoint.ports.1, endpoint.service)?;
    endpoint.v4.iter().try_for_each(|address| write!(f, " at {address}"))?;
    endpoint.v6.iter().try_for_each(|address| write!(f, " at {address}"))?;
    writeln!(f)
}

/// The rest of a rule's line: what it wants of a packet.
pub(crate) fn write_wanted(f: &mut Formatter<'_>, wanted: &Wanted) -> fmt::Result {
    let services = |list: &Vec<Service>| list.iter().map(|term| service(&terms::service(term))).collect();
    write!(f, "{}", list("from", wanted.source.as_ref().map(addresses)))?;
    write!(f, "{}", list("to", wanted.destination.as_ref().map(addresses)))?;
    writeln!(f, "{}", list("application", wanted.services.as_ref().map(services)))
}

fn addresses(ranges: &Ranges) -> Vec<String> {
    let v4 = ranges.v4.iter().map(|(low, high)| range(low, high));
    v4.chain(ranges.v6.iter().map(|(low, high)| range(low, high))).collect()
}

fn list(word: &str, items: Option<Vec<String>>) -> String {
    match items {
        None => format!(" {word} any"),
        Some(items) if items.is_empty() => format!(" {word} nothing"),
        Some(items) => format!(" {word} [{}]", items.join(", ")),
    }
}

/// Name of an `ACTION_*`.
pub fn action(action: u8) -> &'static str {
    match action {
        abi::ACTION_PERMIT => "permit",
        abi::ACTION_REJECT => "reject",
        _ => "deny",
    }
}

fn range<T: Display + PartialEq>(low: T, high: T) -> String {
    if low == high { low.to_string() } else { format!("{low}-{high}") }
}

fn unit_flags(flags: u8) -> String {
    let names = [
        (abi::UNIT_HOST_VETH, "host-veth"),
        (abi::UNIT_HOST_SIDE, "host-side"),
        (abi::UNIT_HOST_ANY, "host-any"),
        (abi::UNIT_TCP_RST, "tcp-rst"),
        (abi::UNIT_XDP, "xdp"),
        (abi::UNIT_UDP_FLOOD, "udp-flood"),
    ];
    let set: Vec<_> = names.iter().filter(|(bit, _)| flags & bit != 0).map(|(_, name)| *name).collect();
    if set.is_empty() { "none".to_owned() } else { set.join(" ") }
}

fn service(term: &ServiceTerm) -> String {
    let mut text = match term.flags {
        abi::SERVICE_ANY_PROTO => "any protocol".to_owned(),
        _ => match term.proto {
            1 => "icmp".to_owned(),
            6 => "tcp".to_owned(),
            17 => "udp".to_owned(),
            58 => "icmp6".to_owned(),
            other => format!("protocol {other}"),
        },
    };
    let mut part = |word: &str, low: u16, high: u16, all: u16| {
        if (low, high) != (0, all) {
            text += &format!(" {word} {}", range(low, high));
        }
    };
    if term.flags == abi::SERVICE_ICMP {
        part("type", term.icmp_type_low.into(), term.icmp_type_high.into(), 255);
        part("code", term.icmp_code_low.into(), term.icmp_code_high.into(), 255);
    } else {
        part("source-port", term.sport_low, term.sport_high, u16::MAX);
        part("port", term.dport_low, term.dport_high, u16::MAX);
    }
    match term.timeout_s {
        0 => {}
        abi::TIMEOUT_NEVER_S => text += " timeout never",
        seconds => text += &format!(" timeout {seconds}s"),
    }
    text
}

fn write_kernel(f: &mut Formatter<'_>, wants: &KernelWants) -> fmt::Result {
    for instance in &wants.instances {
        let ports = instance.ports.join(" ");
        writeln!(f, "kernel vrf {} table {} ports {ports}", instance.device, instance.table)?;
    }
    for pair in &wants.vlan_pairs {
        write!(f, "kernel veth {} peer {}", pair.device, pair.peer)?;
        pair.parent.iter().try_for_each(|parent| write!(f, " mac of {parent}"))?;
        writeln!(f, " mtu {}", pair.mtu)?;
    }
    for link in &wants.links {
        let state = if link.up { "up" } else { "down" };
        let mtu = link.mtu.map(|mtu| format!(" mtu {mtu}")).unwrap_or_default();
        writeln!(f, "kernel link {} {state}{mtu}", link.device)?;
    }
    for (device, prefix) in &wants.addresses {
        writeln!(f, "kernel address {} on {device}", prefix_text(prefix))?;
    }
    for route in &wants.routes {
        write!(f, "kernel route {} {}", prefix_text(&route.destination), route.target)?;
        if route.table != MAIN_TABLE {
            write!(f, " in table {}", route.table)?;
        }
        match route.preference {
            STATIC_PREFERENCE => writeln!(f)?,
            other => writeln!(f, " preference {other}")?,
        }
    }
    for (device, addr) in &wants.proxies {
        writeln!(f, "kernel proxy {addr} on {device}")?;
    }
    let guard: Vec<&str> = wants.guard.iter().map(String::as_str).collect();
    writeln!(f, "kernel guard {}", guard.join(" "))?;
    for (path, value) in &wants.sysctls {
        writeln!(f, "kernel sysctl {path} = {value}")?;
    }
    Ok(())
}

pub(crate) fn prefix_text(prefix: &Prefix) -> String {
    format!("{}/{}", prefix.addr, prefix.len)
}

impl Display for RouteVia {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gateways(list) => {
                let hop = |g: &Gateway| match &g.device {
                    Some(device) => format!("{} dev {device}", g.addr),
                    None => g.addr.to_string(),
                };
                let list: Vec<String> = list.iter().map(hop).collect();
                write!(f, "via {}", list.join(" and "))
            }
            Self::Device(device) => write!(f, "dev {device}"),
            Self::Instance(Some(device)) => write!(f, "table of {device}"),
            Self::Instance(None) => write!(f, "main table"),
            Self::Discard => write!(f, "discard"),
            Self::Reject => write!(f, "reject"),
        }
    }
}
