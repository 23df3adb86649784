//! Translation: rule-sets become contexts of the classifier, rules and pools the tables of bpf/abi/nat.h.

mod ends;
mod info;
mod lookup;
mod pools;
mod prefixes;
mod rules;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use sluice_abi::tables::NatTables;
use sluice_abi::{self as abi, NatSource, NatUnit};
use sluice_language::config::Config;
use sluice_language::nat as language;

use crate::PlanError;
use crate::classifier::Rules;
use crate::instances::name_of;
use crate::units::{Managed, unit_name};

pub use info::{Kind, NatPoolInfo, NatRuleInfo, pool_key, rule_key};
pub use lookup::{Question, Translation, translate};

pub(crate) use prefixes::of_range;

use ends::{best, best_pair, kinds};
use pools::Pools;

/// What a plan knows of its translation besides the tables.
#[derive(Debug, Clone, Default)]
pub struct NatPlan {
    /// Number of the first context; those before it hold policies.
    pub first_context: u32,
    /// What the rules want, list by list; in the order of the table of NAT rules.
    pub contexts: Vec<Rules>,
    /// By id.
    pub rules: BTreeMap<u32, NatRuleInfo>,
    /// Source pools by id.
    pub pools: BTreeMap<u32, NatPoolInfo>,
}

#[derive(Debug, Default)]
pub(crate) struct Compiled {
    pub tables: NatTables,
    pub plan: NatPlan,
}

/// Ids by key.
pub(crate) struct IdMaps {
    pub rules: BTreeMap<String, u32>,
    pub pools: BTreeMap<String, u32>,
    /// Of routing instances.
    pub instances: BTreeMap<String, u32>,
}

/// Whether any packet can be translated.
pub(crate) fn is_used(config: &Config) -> bool {
    let nat = &config.nat;
    !(nat.source.rule_sets.is_empty() && nat.destination.rule_sets.is_empty() && nat.statics.is_empty())
}

/// `units` are the managed ones with their indexes.
pub(crate) fn compile(
    config: &Config,
    units: &[(&Managed<'_>, u32)],
    ids: &IdMaps,
    first_context: u32,
) -> Result<Compiled, PlanError> {
    if !is_used(config) {
        return Ok(Compiled::default());
    }
    let mut builder = Builder {
        config,
        nat: &config.nat,
        origins: rules::origins(&config.nat),
        ids,
        first_context,
        pools: Pools::new(config, ids)?,
        tables: NatTables::default(),
        contexts: vec![],
        known: BTreeMap::new(),
    };
    builder.units(units)?;
    let Builder { mut tables, pools, contexts, .. } = builder;
    (tables.pools, tables.ranges) = (pools.pools, pools.ranges);
    let plan = NatPlan {
        first_context,
        contexts,
        rules: info::rules(&config.nat, &ids.rules),
        pools: info::pools(&config.nat, &ids.pools),
    };
    Ok(Compiled { tables, plan })
}

/// Which of the four kinds of contexts, and the numbers of the rule-sets in it.
type Key = (Part, Vec<usize>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Static,
    Destination,
    Reverse,
    Source,
}

struct Builder<'a> {
    config: &'a Config,
    nat: &'a language::Nat,
    /// Instances that static rules tell apart: unit n of these, counted from 1, has this class.
    origins: Vec<&'a str>,
    ids: &'a IdMaps,
    first_context: u32,
    pools: Pools<'a>,
    tables: NatTables,
    contexts: Vec<Rules>,
    /// Contexts that stand already.
    known: BTreeMap<Key, u16>,
}

impl Builder<'_> {
    fn units(&mut self, units: &[(&Managed<'_>, u32)]) -> Result<(), PlanError> {
        let highest = units.iter().map(|(_, index)| *index as usize).max().unwrap_or(0);
        self.tables.units = vec![NatUnit::default(); highest + 1];
        for (unit, index) in units {
            let statics = best(self.nat.statics.iter().map(|set| &set.from), unit);
            let destinations = best(self.nat.destination.rule_sets.iter().map(|set| &set.from), unit);
            let instance = name_of(self.config, &unit_name(unit.interface, unit.unit));
            let class = self.origins.iter().position(|origin| *origin == instance);
            self.tables.units[*index as usize] = NatUnit {
                reverse_class: class.map_or(0, |class| class as u16 + 1),
                static_context: self.context(Part::Static, statics.clone())?,
                destination_context: self.context(Part::Destination, destinations)?,
                reverse_context: self.context(Part::Reverse, statics)?,
                ..Default::default()
            };
        }
        self.sources(units)
    }

    /// A row for each kind of units that packets come from, a column for each that they go to.
    fn sources(&mut self, units: &[(&Managed<'_>, u32)]) -> Result<(), PlanError> {
        let sets = &self.nat.source.rule_sets;
        if sets.is_empty() {
            return Ok(());
        }
        let rows = kinds(units, sets.iter().map(|set| &set.from));
        let columns = kinds(units, sets.iter().filter_map(|set| set.to.as_ref()));
        let cells = rows.len() * columns.len();
        if cells.div_ceil(abi::NAT_SOURCE_CELLS) > abi::MAX_NAT_SOURCES {
            return Err(PlanError::NatSources { rows: rows.len(), columns: columns.len() });
        }
        let mut contexts = Vec::with_capacity(cells);
        for (from, to) in rows.iter().flat_map(|from| columns.iter().map(move |to| (from, to))) {
            let ends = self.nat.source.rule_sets.iter().map(|set| (&set.from, set.to.as_ref()));
            contexts.push(self.context(Part::Source, best_pair(ends, from[0].0, to[0].0))?);
        }
        for (number, (_, index)) in
            rows.iter().enumerate().flat_map(|(n, row)| row.iter().map(move |u| (n, u)))
        {
            self.tables.units[*index as usize].source_row = (number * columns.len()) as u32;
        }
        for (number, (_, index)) in
            columns.iter().enumerate().flat_map(|(n, c)| c.iter().map(move |u| (n, u)))
        {
            self.tables.units[*index as usize].source_column = number as u16;
        }
        let line = |cells: &[u16]| {
            let mut line = NatSource::default();
            line.context[..cells.len()].copy_from_slice(cells);
            line
        };
        self.tables.sources = contexts.chunks(abi::NAT_SOURCE_CELLS).map(line).collect();
        Ok(())
    }

    /// Number of the context that has the rules of these rule-sets, 0 for none; of Part::Reverse the first of one for each class
    /// of units that packets come from.
    fn context(&mut self, part: Part, sets: Vec<usize>) -> Result<u16, PlanError> {
        let key = (part, sets);
        if let Some(number) = self.known.get(&key) {
            return Ok(*number);
        }
        let lists = match part {
            Part::Static => vec![rules::statics(self, &key.1)?],
            Part::Reverse => {
                let classes = [None].into_iter().chain(self.origins.iter().copied().map(Some));
                classes.map(|origin| rules::reverse(self, &key.1, origin)).collect()
            }
            Part::Destination => vec![rules::destination(self, &key.1)?],
            Part::Source => vec![rules::source(self, &key.1)?],
        };
        let mut number = 0;
        if lists.iter().any(|list| !list.is_empty()) {
            number = self.first_context as u16 + self.contexts.len() as u16;
            for list in lists {
                self.add(part, &key.1, list)?;
            }
        }
        self.known.insert(key, number);
        Ok(number)
    }

    fn add(&mut self, part: Part, sets: &[usize], compiled: Vec<rules::Compiled>) -> Result<(), PlanError> {
        let first = self.tables.rules.len() as u32;
        let mut list = Rules { name: self.name(part, sets), first, rules: vec![] };
        for (rule, wanted) in compiled {
            self.tables.rules.push(rule);
            list.rules.push(wanted);
        }
        if self.tables.rules.len() > abi::MAX_NAT_RULES {
            return Err(PlanError::NatRules { count: self.tables.rules.len() });
        }
        self.contexts.push(list);
        if self.contexts.len() > abi::MAX_NAT_CONTEXTS {
            return Err(PlanError::NatContexts);
        }
        Ok(())
    }

    fn name(&self, part: Part, sets: &[usize]) -> String {
        let (kind, names): (_, Vec<&str>) = match part {
            Part::Static => ("static", sets.iter().map(|n| self.nat.statics[*n].name.as_str()).collect()),
            Part::Reverse => {
                ("static reverse", sets.iter().map(|n| self.nat.statics[*n].name.as_str()).collect())
            }
            Part::Destination => (
                "destination",
                sets.iter().map(|n| self.nat.destination.rule_sets[*n].name.as_str()).collect(),
            ),
            Part::Source => {
                ("source", sets.iter().map(|n| self.nat.source.rule_sets[*n].name.as_str()).collect())
            }
        };
        format!("nat {kind} {}", names.join(" "))
    }
}

/// Keys of all rules and pools, in configuration order.
pub(crate) fn keys(config: &Config) -> (Vec<String>, Vec<String>) {
    (info::rule_keys(&config.nat), info::pool_keys(&config.nat))
}

/// Devices and the addresses they answer for.
pub(crate) fn proxies(config: &Config, managed: &[Managed<'_>]) -> Vec<(String, language::Proxy)> {
    let device = |proxy: &language::Proxy| {
        let unit = managed.iter().find(|m| unit_name(m.interface, m.unit) == proxy.unit)?;
        Some((crate::device_of(unit.interface, unit.unit), proxy.clone()))
    };
    config.nat.proxies.iter().filter_map(device).collect()
}
