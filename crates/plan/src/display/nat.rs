//! Translation as text, decoded from what the data plane will hold.

use std::fmt::{self, Formatter};
use std::net::{IpAddr, Ipv4Addr};

use sluice_abi::{self as abi, NatPool, NatRange, NatRule};

use super::write_wanted;
use crate::Plan;
use crate::nat::NatPlan;
use crate::words::v6_of;

pub(crate) fn write(f: &mut Formatter<'_>, plan: &Plan) -> fmt::Result {
    let nat = &plan.tables.nat;
    let unit = |index: usize| plan.units.iter().find(|unit| unit.index as usize == index);
    for (index, entry) in nat.units.iter().enumerate() {
        let Some(unit) = unit(index) else { continue };
        let contexts = [
            ("static", entry.static_context),
            ("destination", entry.destination_context),
            ("reverse", entry.reverse_context),
        ];
        if entry.reverse_class != 0 {
            writeln!(f, "nat reverse {}: as origin {}", unit.name, entry.reverse_class)?;
        }
        for (what, context) in contexts.into_iter().filter(|(_, context)| *context != 0) {
            writeln!(f, "nat {what} {}: context {context}", unit.name)?;
        }
    }
    for (from, to) in (0..nat.units.len()).flat_map(|from| (0..nat.units.len()).map(move |to| (from, to))) {
        let context = nat.source_context(from, to);
        if let (Some(from), Some(to), 1..) = (unit(from), unit(to), context) {
            writeln!(f, "nat source {} -> {}: context {context}", from.name, to.name)?;
        }
    }
    for (number, list) in (plan.nat.first_context..).zip(&plan.nat.contexts) {
        writeln!(f, "context {number} {}: {} rules at {}", list.name, list.rules.len(), list.first)?;
        for (rule, wanted) in nat.rules[list.first as usize..].iter().zip(&list.rules) {
            write_rule(f, &plan.nat, rule)?;
            write_wanted(f, wanted)?;
        }
    }
    for (index, pool) in nat.pools.iter().enumerate() {
        write_pool(f, plan, index, pool)?;
    }
    for (index, prefix) in nat.prefixes.iter().enumerate() {
        writeln!(f, "nat64 prefix {index}: {}/{}", v6_of(prefix.be_prefix), prefix.length)?;
    }
    Ok(())
}

fn write_rule(f: &mut Formatter<'_>, nat: &NatPlan, rule: &NatRule) -> fmt::Result {
    let info = nat.rules.get(&rule.id.into());
    let (set, name) = info.map_or(("?", "?"), |info| (info.set.as_str(), info.name.as_str()));
    write!(f, "  {set} {name}({}): ", rule.id)?;
    let prefix = |words| format!("{}/{}", address(words, rule.target_len), rule.target_len);
    match rule.kind {
        abi::NAT_OFF => write!(f, "off")?,
        abi::NAT_INTERFACE => write!(f, "interface, pool {}", rule.pool)?,
        abi::NAT_POOL => write!(f, "pool {}", rule.pool)?,
        abi::NAT_PREFIX => write!(f, "prefix {}", prefix(rule.be_target))?,
        abi::NAT_NPTV6 => write!(f, "nptv6 {} to {}", prefix(rule.be_match), prefix(rule.be_target))?,
        _ => write!(f, "nat64 prefix {}", rule.pool)?,
    }
    if rule.flags & abi::NAT_RULE_PORT_RANGE != 0 {
        write!(f, " port {}+n to {}+n", rule.port_low, rule.new_port)?;
    } else if rule.flags & abi::NAT_RULE_PORT != 0 {
        write!(f, " port {}", rule.new_port)?;
    }
    if rule.flags & abi::NAT_RULE_INSTANCE != 0 {
        write!(f, " in instance {}", rule.routing_instance)?;
    }
    Ok(())
}

/// IPv4 has lengths up to 32; a longer one is IPv6, and a shorter IPv6 prefix has bits in further words or is told by its
/// first byte, which no IPv4 pool begins with.
fn address(words: [u32; 4], len: u8) -> IpAddr {
    if len <= 32 && words[1..] == [0; 3] {
        Ipv4Addr::from(words[0].to_ne_bytes()).into()
    } else {
        v6_of(words).into()
    }
}

fn write_pool(f: &mut Formatter<'_>, plan: &Plan, index: usize, pool: &NatPool) -> fmt::Result {
    let info = plan.nat.pools.get(&pool.id.into());
    let name = info.map_or("?", |info| info.name.as_deref().unwrap_or("(interface)"));
    write!(f, "nat pool {index} {name}({}):", pool.id)?;
    if pool.flags & abi::NAT_POOL_NO_TRANSLATION == 0 {
        write!(f, " ports {}-{}", pool.port_low, pool.port_high)?;
    }
    let flags = [
        (abi::NAT_POOL_NO_TRANSLATION, "no-translation"),
        (abi::NAT_POOL_PRESERVE, "preserve"),
        (abi::NAT_POOL_RANDOM, "random"),
        (abi::NAT_POOL_PERSISTENT, "paired"),
        (abi::NAT_POOL_HOST, "host"),
        (abi::NAT_POOL_INTERFACE, "interface"),
    ];
    for (_, word) in flags.iter().filter(|(bit, _)| pool.flags & bit != 0) {
        write!(f, " {word}")?;
    }
    if pool.flags & abi::NAT_POOL_OVERFLOW != 0 {
        write!(f, " overflow {}", pool.overflow)?;
    }
    if pool.flags & abi::NAT_POOL_SHIFT != 0 {
        write!(f, " base {}", of_family(pool.be_base, pool.family))?;
    }
    if pool.persistent != 0 {
        let permit = match pool.persistent {
            abi::NAT_PERSISTENT_ANY_HOST => "any-remote-host",
            abi::NAT_PERSISTENT_TARGET_HOST => "target-host",
            _ => "target-host-port",
        };
        let (timeout_s, sessions) = (pool.persistent_timeout_s, pool.persistent_sessions);
        write!(f, " persistent-nat {permit} {timeout_s} s, {sessions} sessions")?;
    }
    writeln!(f)?;
    let first = pool.first_range as usize;
    for range in &plan.tables.nat.ranges[first..first + usize::from(pool.ranges)] {
        let NatRange { be_low, first, count, .. } = range;
        writeln!(f, "  {count} addresses from {}, number {first}", of_family(*be_low, pool.family))?;
    }
    Ok(())
}

fn of_family(words: [u32; 4], family: u8) -> IpAddr {
    if family == 4 { Ipv4Addr::from(words[0].to_ne_bytes()).into() } else { v6_of(words).into() }
}
