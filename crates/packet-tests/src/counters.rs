//! Every counter there is, by name, so that a step can say which change and that no other does.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::sync::LazyLock;

use anyhow::{Result, anyhow};
use sluice_abi::counters::{Role, UnitCounter};
use sluice_abi::stages::{Hook, Reason, Stage};
use sluice_abi::{NAT_INTERFACE, NAT_OFF, NAT_POOL, NAT_POOL_NO_TRANSLATION};
use sluice_dataplane::Dataplane;
use sluice_plan::Plan;
use sluice_plan::nat::Kind;

use crate::case::Words;

/// Where a counter stands: which unit (or policy) and which of its counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CounterId {
    /// Index of a unit, and which of its counters ([`slot`]).
    Unit(usize, usize),
    /// Sessions that a policy permitted, by its id.
    PolicySessions(u32),
    /// First packets that a policy denied or rejected, by its id.
    PolicyDenied(u32),
    /// Zone id and reason.
    Screen(u32, usize),
    /// Rule id and which of its counters.
    NatRule(u32, NatCount),
    /// Pool id and which of its counters.
    NatPool(u32, NatCount),
}

/// What NAT rules and pools count, but for how far the search for a port went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NatCount {
    /// First packets that a rule matched.
    Hits,
    /// Sessions that a rule made.
    Sessions,
    /// First packets that a rule had nothing free for.
    Failed,
    /// Ports that a pool gave.
    Ports,
    /// Packets that a pool had nothing free for.
    Exhausted,
    /// Those of them that the overflow pool served.
    Overflow,
}

/// Counters that are not zero.
pub type Values = BTreeMap<CounterId, u64>;

/// Reads all of them.
pub fn snapshot(dataplane: &Dataplane, plan: &Plan) -> Result<Values> {
    let mut values = Values::new();
    for (unit, (counters, drops)) in dataplane.counters()?.units().enumerate() {
        let slots = counters.values().into_iter().chain(drops.packets).enumerate();
        add(&mut values, slots.map(|(slot, value)| (CounterId::Unit(unit, slot), value)));
    }
    let policies: Vec<u32> = plan.policies.keys().copied().collect();
    for (policy, counters) in policies.iter().zip(dataplane.policy_counters(&policies)?) {
        let counts = [
            (CounterId::PolicySessions(*policy), counters.sessions),
            (CounterId::PolicyDenied(*policy), counters.denied),
        ];
        add(&mut values, counts);
    }
    let zones: Vec<u32> = plan.zones.keys().copied().collect();
    for (zone, counters) in zones.iter().zip(dataplane.screen_counters(&zones)?) {
        let hits = counters.hits.iter().enumerate();
        add(&mut values, hits.map(|(reason, hits)| (CounterId::Screen(*zone, reason), *hits)));
    }
    snapshot_nat(dataplane, plan, &mut values)?;
    Ok(values)
}

/// Those that are not zero: of thousands a few, and tests read all of them after each packet.
fn add(values: &mut Values, counts: impl IntoIterator<Item = (CounterId, u64)>) {
    values.extend(counts.into_iter().filter(|(_, count)| *count != 0));
}

fn snapshot_nat(dataplane: &Dataplane, plan: &Plan, values: &mut Values) -> Result<()> {
    let rules: Vec<u16> = plan.nat.rules.keys().map(|id| *id as u16).collect();
    for (id, count) in rules.iter().zip(dataplane.nat_rule_counters(&rules)?) {
        let counter = |what| CounterId::NatRule((*id).into(), what);
        let counts = [
            (NatCount::Hits, count.hits),
            (NatCount::Sessions, count.sessions),
            (NatCount::Failed, count.failed),
        ];
        add(values, counts.map(|(what, number)| (counter(what), number)));
    }
    let pools: Vec<u16> = plan.nat.pools.keys().map(|id| *id as u16).collect();
    for (id, count) in pools.iter().zip(dataplane.nat_pool_counters(&pools)?) {
        let counter = |what| CounterId::NatPool((*id).into(), what);
        let counts = [
            (NatCount::Ports, count.ports),
            (NatCount::Exhausted, count.exhausted),
            (NatCount::Overflow, count.overflow),
        ];
        add(values, counts.map(|(what, number)| (counter(what), number)));
    }
    Ok(())
}

/// Id of the rule `SET/RULE`.
pub fn nat_rule_id(plan: &Plan, name: &str) -> Result<u32> {
    let ids: Vec<u32> =
        plan.nat.rules.keys().copied().filter(|id| nat_rule_name(plan, *id) == name).collect();
    match ids.as_slice() {
        [id] => Ok(*id),
        [] => Err(anyhow!("the configuration has no NAT rule `{name}`")),
        _ => Err(anyhow!("the configuration has several NAT rules `{name}`")),
    }
}

fn nat_rule_name(plan: &Plan, id: u32) -> String {
    plan.nat.rules.get(&id).map_or_else(|| format!("#{id}"), |rule| format!("{}/{}", rule.set, rule.name))
}

/// Drops that the last rule asked counts as its failures.
const NAT_FAILURES: [&str; 5] =
    ["nat_ports_exhausted", "nat_no_address", "nat64_address", "nat_bindings_full", "nat_binding_sessions"];

/// What a first packet's rules count. `refused` is the reason of its drop; a rule that finds no address or port counts
/// that itself, and it is the last one that was asked.
pub fn expect_nat(plan: &Plan, words: &Words, refused: Option<&str>, values: &mut Values) -> Result<()> {
    let (rules, recorded) = (&words.nat, words.new);
    for (number, name) in rules.iter().enumerate() {
        let id = nat_rule_id(plan, name)?;
        let mut add = |id| *values.entry(id).or_default() += 1;
        let rule = plan.tables.nat.rules.iter().find(|rule| u32::from(rule.id) == id);
        let rule = rule.ok_or_else(|| anyhow!("no table has the NAT rule `{name}`"))?;
        let kind = rule.kind;
        add(CounterId::NatRule(id, NatCount::Hits));
        if recorded && kind != NAT_OFF {
            add(CounterId::NatRule(id, NatCount::Sessions));
        }
        let last = number + 1 == rules.len();
        if last && refused.is_some_and(|reason| NAT_FAILURES.contains(&reason)) {
            add(CounterId::NatRule(id, NatCount::Failed));
        }
        let is_source = plan.nat.rules.get(&id).is_some_and(|info| info.kind == Kind::Source);
        if !is_source || !matches!(kind, NAT_POOL | NAT_INTERFACE) {
            continue;
        }
        let pool = &plan.tables.nat.pools[usize::from(rule.pool)];
        if recorded && !words.bound && !words.unported && pool.flags & NAT_POOL_NO_TRANSLATION == 0 {
            add(CounterId::NatPool(pool.id.into(), NatCount::Ports));
        }
        if refused == Some("nat_ports_exhausted") {
            add(CounterId::NatPool(pool.id.into(), NatCount::Exhausted));
        }
    }
    Ok(())
}

/// What changed. A counter that fell is reported by its two's complement, which no test expects.
pub fn delta(before: &Values, after: &Values) -> Values {
    let changed = after.iter().map(|(id, now)| (*id, now.wrapping_sub(value(before, *id))));
    let gone = before.iter().filter(|(id, _)| !after.contains_key(id));
    let mut delta = Values::new();
    add(&mut delta, changed.chain(gone.map(|(id, was)| (*id, was.wrapping_neg()))));
    delta
}

/// 0 where it is not there.
pub fn value(values: &Values, id: CounterId) -> u64 {
    values.get(&id).copied().unwrap_or(0)
}

/// Slot of a named counter: `received`, or a drop by its reason.
pub fn slot(name: &str) -> Result<usize> {
    static SLOTS: LazyLock<HashMap<&str, usize>> = LazyLock::new(|| {
        let plain = UnitCounter::ALL.iter().map(|counter| counter.name).zip(0..);
        let reasons = Reason::ALL.into_iter().map(|reason| (reason.name(), reason_slot(reason)));
        // a counter and a reason of one name: the counter
        reasons.chain(plain).collect()
    });
    let known = SLOTS.get(name).copied();
    known.ok_or_else(|| anyhow!("`{name}` is neither a counter nor a drop reason"))
}

fn reason_slot(reason: Reason) -> usize {
    UnitCounter::ALL.len() + reason as usize
}

/// Sum of one counter over all units.
pub fn total(values: &Values, name: &str) -> u64 {
    let slot = slot(name).expect("callers name counters that exist");
    values.iter().filter(|(id, _)| matches!(id, CounterId::Unit(_, s) if *s == slot)).map(|(_, v)| v).sum()
}

/// Stages whose reasons are screens.
const SCREENS: [Stage; 3] = [Stage::Screen, Stage::ScreenRate, Stage::ScreenFirst];

/// The screen that a reason is, if it is one.
pub fn screen(name: &str) -> Option<Reason> {
    let limits = [Reason::SourceSessionLimit, Reason::DestinationSessionLimit];
    let is_screen = |reason: &Reason| SCREENS.contains(&reason.stage()) || limits.contains(reason);
    Reason::ALL.into_iter().find(|reason| reason.name() == name && is_screen(reason))
}

/// Drops for all reasons of one direction.
pub fn drops(values: &Values, hook: Hook) -> u64 {
    let of_hook = |id: &CounterId| match id {
        CounterId::Unit(_, slot) => reason_of(*slot).is_some_and(|reason| reason.stage().hook() == hook),
        _ => false,
    };
    values.iter().filter(|(id, _)| of_hook(id)).map(|(_, count)| count).sum()
}

/// Drops by unit and name of the reason.
pub fn drops_by_reason(values: &Values) -> BTreeMap<(usize, &'static str), u64> {
    let of = |(id, count): (&CounterId, &u64)| match id {
        CounterId::Unit(unit, slot) => Some(((*unit, reason_of(*slot)?.name()), *count)),
        _ => None,
    };
    values.iter().filter_map(of).collect()
}

fn reason_of(slot: usize) -> Option<Reason> {
    Reason::BY_NUMBER.get(slot.checked_sub(UnitCounter::ALL.len())?).copied()
}

/// received = redirected + handed off + delivered locally + oversize + dropped at ingress. Err says what is missing.
pub fn first_equation(values: &Values) -> Result<()> {
    let received = sum(&parts(values, &[Role::Arrived]));
    let ends = parts(values, &[Role::Passed, Role::Stayed]);
    let dropped = drops(values, Hook::Ingress);
    if received == sum(&ends) + dropped {
        return Ok(());
    }
    Err(anyhow!("received {received} packets, but {ends:?} and dropped {dropped}"))
}

/// redirected + handed off + resolved + unjudged + pieces + replies + originated = sent + queued + dropped at egress + dropped by devices.
pub fn second_equation(values: &Values, device_drops: u64) -> Result<()> {
    let leaving = parts(values, &[Role::Passed, Role::Made]);
    let sent = sum(&parts(values, &[Role::Left]));
    let dropped = drops(values, Hook::Egress);
    if sum(&leaving) == sent + dropped + device_drops {
        return Ok(());
    }
    Err(anyhow!("{leaving:?}, but sent {sent}, dropped {dropped} at egress and {device_drops} by devices"))
}

/// Totals of the counters with these parts in the equations, by name.
fn parts(values: &Values, roles: &[Role]) -> Vec<(&'static str, u64)> {
    let counters = UnitCounter::ALL.into_iter().filter(|counter| roles.contains(&counter.role));
    counters.map(|counter| (counter.name, total(values, counter.name))).collect()
}

fn sum(parts: &[(&str, u64)]) -> u64 {
    parts.iter().map(|(_, count)| count).sum()
}

/// A list for people, with names.
pub fn describe(values: &Values, plan: &Plan) -> String {
    let mut text = String::new();
    for (id, value) in values {
        let _ = match id {
            CounterId::Unit(unit, slot) => {
                let known = plan.units.iter().find(|info| info.index as usize == *unit);
                let unit = known.map_or_else(|| format!("unit {unit}"), |info| info.name.clone());
                writeln!(text, "    {unit} {} +{value}", slot_name(*slot))
            }
            CounterId::Screen(zone, reason) => {
                let zone = plan.zones.get(zone).map_or("?", String::as_str);
                writeln!(text, "    screen {} in zone {zone} +{value}", Reason::BY_NUMBER[*reason].name())
            }
            CounterId::NatRule(id, what) => {
                writeln!(text, "    NAT rule {} {what:?} +{value}", nat_rule_name(plan, *id))
            }
            CounterId::NatPool(id, what) => {
                let name = plan.nat.pools.get(id).and_then(|pool| pool.name.as_deref());
                writeln!(text, "    NAT pool {} {what:?} +{value}", name.unwrap_or("of interfaces"))
            }
            CounterId::PolicySessions(id) => {
                writeln!(text, "    policy {} sessions +{value}", policy_name(plan, *id))
            }
            CounterId::PolicyDenied(id) => {
                writeln!(text, "    policy {} denied +{value}", policy_name(plan, *id))
            }
        };
    }
    if text.is_empty() { "    (nothing)\n".to_owned() } else { text }
}

fn slot_name(slot: usize) -> &'static str {
    let plain = UnitCounter::ALL.get(slot).map(|counter| counter.name);
    plain.or_else(|| Some(reason_of(slot)?.name())).unwrap_or("drop of no reason")
}

/// `trust>untrust/NAME`, or `global/NAME`.
pub fn policy_name(plan: &Plan, id: u32) -> String {
    let Some(info) = plan.policies.get(&id) else { return format!("#{id}") };
    match &info.context {
        Some((from, to)) => format!("{from}>{to}/{}", info.name),
        None => format!("global/{}", info.name),
    }
}

/// By `FROM>TO/NAME` or `global/NAME`.
pub fn policy_id(plan: &Plan, name: &str) -> Result<u32> {
    let ids: Vec<u32> = plan.policies.keys().copied().filter(|id| policy_name(plan, *id) == name).collect();
    ids.first().copied().ok_or_else(|| anyhow!("the configuration has no policy `{name}`"))
}
