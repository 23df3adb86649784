//! Names of rules and pools, by which their ids are kept, and what reports say of them.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

use sluice_language::nat::{Nat, RuleSet};

use super::rules::static_kind;

/// Key of the pool that stands for addresses of interfaces; no name has a space.
pub const INTERFACE_POOL: &str = "the interface";

/// What a rule translates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Source addresses, by the address of the outgoing interface or a pool.
    Source,
    /// Destination addresses, and ports where the rule says so.
    Destination,
    /// Both directions, one to one: a prefix for a prefix, with NPTv6 (RFC 6296) or without.
    Static,
    /// IPv6 destinations in a prefix to the IPv4 addresses in them (RFC 6146).
    Nat64,
}

impl Kind {
    /// In the order reports list them.
    pub const ALL: [Kind; 4] = [Kind::Source, Kind::Destination, Kind::Static, Kind::Nat64];

    /// As the configuration spells it; `nat64` stands under `static`.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Source => "source",
            Kind::Destination => "destination",
            Kind::Static => "static",
            Kind::Nat64 => "nat64",
        }
    }
}

impl Display for Kind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A rule, as reports name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NatRuleInfo {
    /// Source, destination or static.
    pub kind: Kind,
    /// Name of its rule-set.
    pub set: String,
    /// Unique within its rule-set only.
    pub name: String,
}

/// A source pool, as reports name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NatPoolInfo {
    /// None = addresses of interfaces.
    pub name: Option<String>,
}

/// Key of a rule among the ids: `source out r1`.
pub fn rule_key(kind: Kind, set: &str, rule: &str) -> String {
    format!("{kind} {set} {rule}")
}

/// Key of a source pool among the ids.
pub fn pool_key(name: &str) -> String {
    format!("pool {name}")
}

fn infos(nat: &Nat) -> impl Iterator<Item = NatRuleInfo> + '_ {
    fn of<A>(sets: &[RuleSet<A>], kind: impl Fn(&A) -> Kind + Copy) -> impl Iterator<Item = NatRuleInfo> {
        sets.iter().flat_map(move |set| {
            set.rules.iter().map(move |rule| NatRuleInfo {
                kind: kind(&rule.then),
                set: set.name.clone(),
                name: rule.name.clone(),
            })
        })
    }
    let source = of(&nat.source.rule_sets, |_| Kind::Source);
    let destination = of(&nat.destination.rule_sets, |_| Kind::Destination);
    source.chain(destination).chain(of(&nat.statics, static_kind))
}

fn key(info: &NatRuleInfo) -> String {
    rule_key(info.kind, &info.set, &info.name)
}

pub(super) fn rule_keys(nat: &Nat) -> Vec<String> {
    infos(nat).map(|info| key(&info)).collect()
}

/// The interface's addresses are a pool as soon as there is source NAT.
pub(super) fn pool_keys(nat: &Nat) -> Vec<String> {
    let interface = (!nat.source.rule_sets.is_empty()).then(|| INTERFACE_POOL.to_owned());
    interface.into_iter().chain(nat.source.pools.iter().map(|pool| pool_key(&pool.name))).collect()
}

pub(super) fn rules(nat: &Nat, ids: &BTreeMap<String, u32>) -> BTreeMap<u32, NatRuleInfo> {
    infos(nat).map(|info| (ids[&key(&info)], info)).collect()
}

pub(super) fn pools(nat: &Nat, ids: &BTreeMap<String, u32>) -> BTreeMap<u32, NatPoolInfo> {
    let interface = ids.get(INTERFACE_POOL).map(|id| (*id, NatPoolInfo { name: None }));
    let named = nat
        .source
        .pools
        .iter()
        .map(|pool| (ids[&pool_key(&pool.name)], NatPoolInfo { name: Some(pool.name.clone()) }));
    interface.into_iter().chain(named).collect()
}
