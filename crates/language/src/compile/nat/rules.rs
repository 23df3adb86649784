//! Source and destination rule-sets.

use std::collections::HashMap;
use std::net::IpAddr;

use super::matching::matching;
use super::persistent::persistent;
use super::pools::{WrittenPool, named};
use super::{Published, Scope, family};
use crate::compile::view::View;
use crate::config::Ranges;
use crate::error::Report;
use crate::nat::{DestinationAction, DestinationPool, Ends, NatMatch, NatRule, RuleSet, SourceAction, count};
use crate::schema::kind::{book_prefix, first_address, last_address};
use crate::services::{has_ports, has_translated_ports};

/// Rule-sets of one kind; `rule` reads what stands in one.
pub(super) fn sets<'a, Action>(
    view: View<'a>,
    path: &[&str],
    scope: &mut Scope,
    mut rule: impl FnMut(View<'a>, &RuleSet<Action>, &mut Scope) -> Option<NatRule<Action>>,
) -> Vec<RuleSet<Action>> {
    let mut sets = Vec::new();
    for set in view.entries(path) {
        let from = scope.ends(set, "from");
        let to = if path[0] == "source" { scope.ends(set, "to") } else { None };
        let Some(from) = from.filter(|_| path[0] != "source" || to.is_some()) else { continue };
        if set.path(&["rule"]).is_none() {
            let message = format!("`{}` has no rule", set.context());
            scope.report.error_help(&set.location(), message, "add a rule, or remove the rule-set");
        }
        let mut compiled = RuleSet { name: set.word().to_owned(), from, to, rules: Vec::new() };
        for view in set.entries(&["rule"]) {
            let rule = rule(view, &compiled, scope);
            compiled.rules.extend(rule);
        }
        sets.push(compiled);
    }
    sets
}

/// What may stand below `then KIND`.
const ACTIONS: [&str; 7] = ["off", "interface", "pool", "inet", "nptv6-prefix", "prefix", "prefix-name"];

/// The one action below `then KIND`.
pub(super) fn action<'a>(rule: View<'a>, kind: &str, choices: &str, report: &mut Report) -> Option<View<'a>> {
    let known = |view: &View| ACTIONS.contains(&view.word());
    let actions: Vec<View> = rule.entries(&["then", kind]).filter(known).collect();
    let Some(first) = actions.first() else {
        let message = format!("`{}` has no action", rule.context());
        report.error_help(&rule.location(), message, format!("add `then {kind}` with {choices}"));
        return None;
    };
    for other in &actions[1..] {
        let message = format!("`{}` has both `{}` and `{}`", rule.context(), first.word(), other.word());
        report.error_help(&other.location(), message, "keep one");
    }
    Some(*first)
}

/// Families that a side of a match has; None = any.
fn families(side: &Option<Ranges>) -> (bool, bool) {
    side.as_ref().map_or((true, true), |ranges| (!ranges.v4.is_empty(), !ranges.v6.is_empty()))
}

pub(super) fn source(
    nat: View,
    pools: &[WrittenPool],
    nat64: bool,
    scope: &mut Scope,
) -> Vec<RuleSet<SourceAction>> {
    let names: HashMap<&str, usize> =
        pools.iter().enumerate().map(|(index, pool)| (pool.pool.name.as_str(), index)).collect();
    sets(nat, &["source", "rule-set"], scope, |view, set, scope| {
        let matching = matching(view, scope);
        if matching.source.is_none() && matching.destination.is_none() {
            let message = format!("`{}` matches no address", view.context());
            let help = "add `match source-address` or `match destination-address`, such as 0.0.0.0/0 or ::/0";
            scope.report.error_help(&view.location(), message, help);
        }
        let action = action(view, "source-nat", "interface, off or pool NAME", scope.report)?;
        let (then, pool) = match action.word() {
            "off" => (SourceAction::Off, None),
            "interface" => (
                SourceAction::Interface { persistent: persistent(action, &matching, None, scope.report) },
                None,
            ),
            _ => {
                let (index, name) =
                    named(action, &names, "source pool", &scope.inactive.source_pools, scope.report)?;
                let pool = &pools[index];
                let persistent = persistent(action, &matching, Some(&pool.pool), scope.report);
                (SourceAction::Pool { name: pool.pool.name.clone(), persistent }, Some((pool, name)))
            }
        };
        families_fit(view, &matching, nat64, scope.report);
        if let Some((pool, name)) = pool {
            pool_fits(&matching, pool, name, nat64, scope.report);
            leaves_there(pool, name, set.to.as_ref(), scope);
            if pool.sets_ports() {
                ports_fit(&matching, name, scope.report);
            }
        }
        Some(NatRule { name: view.word().to_owned(), matching, then })
    })
}

/// A source of one family reaches a destination of the other through NAT64 only, and only from IPv6 to IPv4.
fn families_fit(rule: View, matching: &NatMatch, nat64: bool, report: &mut Report) {
    let ((from4, from6), (to4, to6)) = (families(&matching.source), families(&matching.destination));
    if from4 && to4 || from6 && to6 || nat64 && from6 && to4 {
        return;
    }
    if !(from4 || from6) || !(to4 || to6) {
        // A set of addresses that could not be resolved, which was reported.
        return;
    }
    let help = match from6 {
        true => "only NAT64 leads from IPv6 to IPv4: add a static rule with `then static-nat inet`",
        false => "nothing translates from IPv4 to IPv6; correct one of the addresses",
    };
    let message = format!(
        "`{}` matches no packet: its source and destination are of different families",
        rule.context()
    );
    report.error_help(&rule.location(), message, help);
}

/// Packets that get an address of the pool must be of its family when they leave.
fn pool_fits(matching: &NatMatch, pool: &WrittenPool, name: View, nat64: bool, report: &mut Report) {
    let Some(address) = pool.family() else { return };
    let of = |(four, six): (bool, bool)| if address.is_ipv4() { four } else { six };
    let source_fits =
        of(families(&matching.source)) || nat64 && address.is_ipv4() && families(&matching.source).1;
    if !source_fits || !of(families(&matching.destination)) {
        let message = format!(
            "pool `{}` has {} addresses, which no packet that the rule matches can get",
            name.word(),
            family(address)
        );
        report.error_help(&name.location(), message, "match addresses of that family, or use another pool");
    }
}

/// A pool's addresses are known in its instance alone: no answer would come for a session that leaves in another one.
fn leaves_there(pool: &WrittenPool, name: View, to: Option<&Ends>, scope: &mut Scope) {
    let (Some(instance), Some(to)) = (pool.instance(), to) else { return };
    let Some((end, other)) = scope.names.elsewhere(to, instance) else { return };
    let message = format!(
        "pool `{}` is in routing-instance `{instance}`, but what leaves to {end} is in `{other}`",
        name.word()
    );
    let help = format!(
        "name a pool of `{other}`, in a rule-set of its own where its packets leave in several instances"
    );
    scope.report.error_help(&name.location(), message, help);
}

/// Destination rule-sets, and the addresses they publish.
pub(super) fn destination<'a>(
    nat: View<'a>,
    pools: &[(DestinationPool, View<'a>)],
    scope: &mut Scope,
) -> (Vec<RuleSet<DestinationAction>>, Vec<Published<'a>>) {
    let names: HashMap<&str, usize> =
        pools.iter().enumerate().map(|(index, (pool, _))| (pool.name.as_str(), index)).collect();
    let mut published = Vec::new();
    let sets = sets(nat, &["destination", "rule-set"], scope, |view, set, scope| {
        let matching = matching(view, scope);
        let Some(destination) = &matching.destination else {
            let message = format!("`{}` matches no destination", view.context());
            scope.report.error_help(&view.location(), message, "add `match destination-address`");
            return None;
        };
        let addresses = destinations(view, scope);
        let publish = |(low, high, view)| Published { from: set.from.clone(), low, high, view };
        published.extend(addresses.into_iter().map(publish));
        let action = action(view, "destination-nat", "off or pool NAME", scope.report)?;
        if action.word() == "off" {
            return Some(NatRule { name: view.word().to_owned(), matching, then: DestinationAction::Off });
        }
        let inactive = &scope.inactive.destination_pools;
        let (index, name) = named(action, &names, "destination pool", inactive, scope.report)?;
        let pool = &pools[index].0;
        destination_fits(view, &matching, destination, pool, name, scope.report);
        let then = DestinationAction::Pool { name: pool.name.clone() };
        Some(NatRule { name: view.word().to_owned(), matching, then })
    });
    (sets, published)
}

/// Ranges that a rule matches by prefixes and by names, each with where it is written. What says `any` publishes none.
fn destinations<'a>(rule: View<'a>, scope: &Scope) -> Vec<(IpAddr, IpAddr, View<'a>)> {
    let prefixes = rule.entries(&["match", "destination-address"]).filter_map(|entry| {
        let prefix = book_prefix(entry.word()).ok()?;
        Some((first_address(prefix), last_address(prefix), entry))
    });
    let mut found: Vec<_> = prefixes.collect();
    for entry in rule.entries(&["match", "destination-address-name"]) {
        let Some(ranges) = scope.names.addresses.find(None, entry.word()) else { continue };
        found.extend(ranges.v4.iter().map(|&(low, high)| (low.into(), high.into(), entry)));
        found.extend(ranges.v6.iter().map(|&(low, high)| (low.into(), high.into(), entry)));
    }
    found
}

fn destination_fits(
    rule: View,
    matching: &NatMatch,
    destination: &Ranges,
    pool: &DestinationPool,
    name: View,
    report: &mut Report,
) {
    let of = |(four, six): (bool, bool)| if pool.low.is_ipv4() { four } else { six };
    if !of(families(&matching.source)) || !of(families(&matching.destination)) {
        let message = format!(
            "pool `{}` has {} addresses, which no packet that the rule matches can get",
            name.word(),
            family(pool.low)
        );
        report.error_help(&name.location(), message, "match addresses of that family, or use another pool");
        return;
    }
    let addresses = count(pool.low, pool.high);
    let matched = matched(destination, pool.low);
    if addresses > 1 && matched != Some(addresses) {
        let message = format!(
            "pool `{}` has {addresses} addresses, `{}` matches {}",
            name.word(),
            rule.context(),
            matched.map_or("several ranges".to_owned(), |count| count.to_string())
        );
        let help = "they are mapped one to one: match as many in one range, or use a pool of one address";
        report.error_help(&name.location(), message, help);
    }
    if pool.port.is_some() {
        ports_fit(matching, name, report);
    }
    if let (Some(_), Some(services)) = (pool.port, &matching.services)
        && services.iter().all(|service| service.protocol.is_some_and(|number| !has_ports(number)))
    {
        let message =
            format!("pool `{}` sets a port, but the rule matches no protocol that has ports", name.word());
        report.error_help(&name.location(), message, "match tcp or udp, or use a pool without port");
    }
}

/// Some protocols are translated by address only; a pool that says which ports they get does not mean them.
fn ports_fit(matching: &NatMatch, name: View, report: &mut Report) {
    let named = matching.services.iter().flatten().filter_map(|service| service.protocol);
    let Some(fixed) = named.into_iter().find(|number| has_ports(*number) && !has_translated_ports(*number))
    else {
        return;
    };
    let message = format!(
        "pool `{}` sets a port, but the rule matches IP protocol {fixed}, whose ports cannot be changed",
        name.word()
    );
    let help = "match tcp or udp, or use a pool without `port` for this protocol";
    report.error_help(&name.location(), message, help);
}

/// How many addresses of a family match, when they are one range.
fn matched(destination: &Ranges, like: IpAddr) -> Option<u64> {
    match like {
        IpAddr::V4(_) => match destination.v4[..] {
            [(low, high)] => Some(count(low.into(), high.into())),
            _ => None,
        },
        IpAddr::V6(_) => match destination.v6[..] {
            [(low, high)] => Some(count(low.into(), high.into())),
            _ => None,
        },
    }
}
