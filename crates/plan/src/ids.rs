//! Ids that the data plane stores in sessions and counters: allocated once by name, kept with the configuration.
//!
//! An id that its name gave up is not handed to another name within two generations, since records of the old one may
//! still carry it. Where that would refuse a commit, ids that only reports tell apart go sooner, the longest rested first:
//! what a commit may be must not depend on the ones before it. Those of gate services and NAT wait in any case, for the
//! commit ends grants and bindings by them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// An id freed in generation `g` may serve another name from generation `g + QUARANTINE` on.
const QUARANTINE: u32 = 2;

/// Ids of zones, units, policies, NAT rules and pools, and gate services. Clone before a commit, store after it: a failed
/// commit must leave no trace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ids {
    /// By zone name, from `ZONE_HOST` + 1 on.
    pub zones: Pool,
    /// By unit name, and by device name in the null zone: indexes of counters, which go on where they were.
    pub units: Pool,
    /// By [`crate::policy_key`], from 1 on.
    pub policies: Pool,
    /// By listener name: indexes of counters.
    #[serde(default = "fan_out_listeners")]
    pub fan_out_listeners: Pool,
    /// By listener, receiver and address: indexes of counters.
    #[serde(default = "fan_out_receivers")]
    pub fan_out_receivers: Pool,
    /// By [`crate::nat::rule_key`], from 1 on.
    #[serde(default = "nat_rules")]
    pub nat_rules: Pool,
    /// By [`crate::nat::pool_key`], from 1 on.
    #[serde(default = "nat_pools")]
    pub nat_pools: Pool,
    /// By service name, from 1 on.
    #[serde(default = "services")]
    pub services: Pool,
    /// By name; 0 is the main instance.
    #[serde(default = "routing_instances")]
    pub routing_instances: Pool,
}

fn routing_instances() -> Pool {
    Pool::new(1, sluice_abi::MAX_ROUTING_INSTANCES as u32 - 1)
}

fn services() -> Pool {
    Pool::new(1, sluice_abi::MAX_GATE_SERVICES as u32 - 1)
}

fn nat_rules() -> Pool {
    Pool::new(1, sluice_abi::MAX_NAT_RULES as u32 - 1)
}

fn nat_pools() -> Pool {
    Pool::new(1, sluice_abi::MAX_NAT_POOLS as u32 - 1)
}

fn fan_out_listeners() -> Pool {
    Pool { keeps: true, ..Pool::new(0, sluice_abi::MAX_FANOUT_LISTENERS as u32 - 1) }
}

fn fan_out_receivers() -> Pool {
    Pool { keeps: true, ..Pool::new(0, sluice_abi::MAX_FANOUT_RECEIVERS as u32 - 1) }
}

impl Default for Ids {
    fn default() -> Self {
        Self {
            zones: Pool::new(u32::from(sluice_abi::ZONE_HOST) + 1, sluice_abi::MAX_ZONES as u32 - 1),
            units: Pool { keeps: true, ..Pool::new(1, sluice_abi::MAX_UNITS as u32 - 1) },
            policies: Pool::new(1, sluice_abi::MAX_POLICIES as u32 - 1),
            fan_out_listeners: fan_out_listeners(),
            fan_out_receivers: fan_out_receivers(),
            nat_rules: nat_rules(),
            nat_pools: nat_pools(),
            services: services(),
            routing_instances: routing_instances(),
        }
    }
}

impl Ids {
    /// Those of an earlier version may have been stored with fewer ids than there are.
    pub(crate) fn widen(&mut self) {
        let all = Ids::default();
        self.zones.last = all.zones.last;
        (self.units.last, self.units.keeps) = (all.units.last, all.units.keeps);
    }
}

/// The ids `first..=last` and who holds them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    first: u32,
    last: u32,
    held: BTreeMap<String, u32>,
    retired: BTreeMap<String, Retired>,
    /// Ids stay with names that left for as long as there are others: what was counted under them stays theirs.
    #[serde(default)]
    keeps: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Retired {
    id: u32,
    generation: u32,
}

impl Pool {
    fn new(first: u32, last: u32) -> Self {
        Self { first, last, held: BTreeMap::new(), retired: BTreeMap::new(), keeps: false }
    }

    /// Gives every name its id in `generation`: old ones keep theirs, returning ones get theirs back, the others the
    /// lowest free one, or one that has not rested yet. Err = how many names there are for how many ids.
    pub fn assign<'a>(
        &mut self,
        names: impl IntoIterator<Item = &'a str>,
        generation: u32,
    ) -> Result<BTreeMap<String, u32>, Exhausted> {
        self.give(names, generation, false)
    }

    /// The same, and no id goes to another name before it has rested.
    pub fn assign_rested<'a>(
        &mut self,
        names: impl IntoIterator<Item = &'a str>,
        generation: u32,
    ) -> Result<BTreeMap<String, u32>, Exhausted> {
        self.give(names, generation, true)
    }

    fn give<'a>(
        &mut self,
        names: impl IntoIterator<Item = &'a str>,
        generation: u32,
        rested: bool,
    ) -> Result<BTreeMap<String, u32>, Exhausted> {
        let names: Vec<&str> = names.into_iter().collect();
        let mut held = BTreeMap::new();
        for name in &names {
            let known = self.held.remove(*name).or_else(|| self.retired.remove(*name).map(|r| r.id));
            if let Some(id) = known {
                held.insert((*name).to_owned(), id);
            }
        }
        let gone = std::mem::take(&mut self.held);
        self.retired.extend(gone.into_iter().map(|(name, id)| (name, Retired { id, generation })));
        self.release(generation, names.len());
        if !rested {
            self.lend(names.len());
        }

        let mut taken = vec![false; self.last as usize + 1];
        for id in held.values().copied().chain(self.retired.values().map(|r| r.id)) {
            taken[id as usize] = true;
        }
        let mut free = (self.first..=self.last).filter(|id| !taken[*id as usize]);
        for name in &names {
            if !held.contains_key(*name) {
                let id = free.next().ok_or(Exhausted {
                    wanted: names.len(),
                    ids: self.last - self.first + 1,
                    quarantined: self.retired.len(),
                })?;
                held.insert((*name).to_owned(), id);
            }
        }
        self.held = held.clone();
        Ok(held)
    }

    /// Frees ids of names that left, so that `held` names find theirs.
    fn release(&mut self, generation: u32, held: usize) {
        let rested = |r: &Retired| generation >= r.generation.saturating_add(QUARANTINE);
        if !self.keeps {
            self.retired.retain(|_, r| !rested(r));
            return;
        }
        let ids = (self.last - self.first + 1) as usize;
        while held + self.retired.len() > ids {
            let left = self.retired.iter().filter(|(_, r)| rested(r));
            let Some((oldest, _)) = left.min_by_key(|(_, r)| r.generation) else { return };
            let oldest = oldest.clone();
            self.retired.remove(&oldest);
        }
    }

    /// Ids of names that left rest as if they had left in `generation`.
    pub fn rest_on(&mut self, generation: u32) {
        self.retired.values_mut().for_each(|retired| retired.generation = generation);
    }

    /// Frees ids that have not rested, the oldest first, until `held` names fit.
    fn lend(&mut self, held: usize) {
        let ids = (self.last - self.first + 1) as usize;
        let short = (held + self.retired.len()).saturating_sub(ids);
        let mut resting: Vec<(u32, String)> =
            self.retired.iter().map(|(name, retired)| (retired.generation, name.clone())).collect();
        resting.sort();
        for (_, name) in resting.iter().take(short) {
            self.retired.remove(name);
        }
    }

    /// Ids whose names did not have them in `before`: what was counted under them is not theirs.
    pub fn given_since<'a>(&'a self, before: &'a Pool) -> impl Iterator<Item = u32> + 'a {
        let had = |name: &String| {
            before.held.get(name).copied().or_else(|| before.retired.get(name).map(|retired| retired.id))
        };
        self.held.iter().filter(move |(name, id)| had(name) != Some(**id)).map(|(_, id)| *id)
    }

    /// Names that left and still have their ids.
    pub fn retired(&self) -> impl Iterator<Item = (&str, u32)> {
        self.retired.iter().map(|(name, retired)| (name.as_str(), retired.id))
    }

    /// Who holds `id` now.
    pub fn name(&self, id: u32) -> Option<&str> {
        self.held.iter().find(|(_, held)| **held == id).map(|(name, _)| name.as_str())
    }

    /// None = the name has none now.
    pub fn id(&self, name: &str) -> Option<u32> {
        self.held.get(name).copied()
    }

    /// Every name that has an id now, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u32)> {
        self.held.iter().map(|(name, id)| (name.as_str(), *id))
    }
}

/// More names than ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exhausted {
    /// How many names were to have one.
    pub wanted: usize,
    /// How many ids the pool has in all.
    pub ids: u32,
    /// How many of them rest after their name went.
    pub quarantined: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool() -> Pool {
        Pool::new(2, 4)
    }

    #[test]
    fn names_keep_their_ids_whatever_the_order() {
        let mut p = pool();
        let first = p.assign(["b", "a"], 1).unwrap();
        let second = p.assign(["c", "a", "b"], 2).unwrap();
        assert_eq!(first["a"], second["a"]);
        assert_eq!(first["b"], second["b"]);
        assert_eq!(second["c"], 4);
    }

    #[test]
    fn freed_ids_wait_two_generations() {
        let mut p = pool();
        p.assign(["a", "b", "c"], 1).unwrap();
        p.assign(["b", "c"], 2).unwrap();
        let refused = p.clone().assign_rested(["b", "c", "d"], 3).unwrap_err();
        assert_eq!(refused, Exhausted { wanted: 3, ids: 3, quarantined: 1 });
        assert_eq!(p.assign_rested(["b", "c", "d"], 4).unwrap()["d"], 2);
    }

    #[test]
    fn what_rests_on_waits_as_if_it_had_left_then() {
        let mut p = pool();
        p.assign(["a", "b", "c"], 1).unwrap();
        p.assign(["b", "c"], 2).unwrap();
        p.rest_on(3);
        assert!(p.clone().assign_rested(["b", "c", "d"], 4).is_err());
        assert_eq!(p.clone().assign_rested(["b", "c", "d"], 5).unwrap()["d"], 2);
        assert_eq!(p.assign_rested(["a", "b", "c"], 4).unwrap()["a"], 2);
    }

    /// Whatever was committed before, and how often: as many names as there are ids fit.
    #[test]
    fn what_fits_once_fits_after_any_commit() {
        let mut p = Pool::new(1, 65_535);
        for generation in 1..6 {
            let names: Vec<String> = (0..65_535).map(|n| format!("{generation}-{n}")).collect();
            let before = p.clone();
            let ids = p.assign(names.iter().map(String::as_str), generation).unwrap();
            assert_eq!(ids.values().collect::<std::collections::BTreeSet<_>>().len(), 65_535);
            assert_eq!(p.given_since(&before).count(), 65_535, "none has what the old name counted");
        }
        let refused = p
            .clone()
            .assign((0..65_536).map(|n| n.to_string()).collect::<Vec<_>>().iter().map(String::as_str), 6);
        assert_eq!(refused.unwrap_err().wanted, 65_536);
    }

    #[test]
    fn the_longest_rested_goes_first_when_none_has_rested() {
        let mut p = Pool::new(1, 3);
        p.assign(["a", "b", "c"], 1).unwrap();
        p.assign(["b", "c"], 2).unwrap();
        p.assign(["c"], 3).unwrap();
        assert_eq!(p.assign(["c", "d"], 3).unwrap()["d"], 1);
        assert_eq!(
            p.given_since(&Pool { held: [("c".to_owned(), 3)].into(), ..Pool::new(1, 3) })
                .collect::<Vec<_>>(),
            [1]
        );
    }

    #[test]
    fn names_that_left_keep_their_ids_while_there_is_room() {
        let mut p = Pool { keeps: true, ..pool() };
        p.assign(["a", "b"], 1).unwrap();
        p.assign(["b"], 2).unwrap();
        assert_eq!(p.assign(["b", "c"], 9).unwrap()["c"], 4, "2 is still that of `a`");
        assert_eq!(p.retired().collect::<Vec<_>>(), [("a", 2)]);
        assert_eq!(p.assign(["b", "c", "d"], 10).unwrap()["d"], 2);
        assert_eq!(p.retired().count(), 0);
    }

    /// What one has counted shows under no other name.
    #[test]
    fn a_new_unit_does_not_count_on_from_one_that_left() {
        let mut ids = Ids { units: Pool::new(1, 255), ..Ids::default() };
        ids.widen();
        let left = ids.units.assign(["lan0.0", "wan0.0"], 1).unwrap()["lan0.0"];
        (2..9).for_each(|generation| drop(ids.units.assign(["wan0.0"], generation).unwrap()));
        assert_ne!(ids.units.assign(["wan0.0", "new0.0"], 9).unwrap()["new0.0"], left);
        assert_eq!(ids.units.assign(["wan0.0", "lan0.0"], 10).unwrap()["lan0.0"], left);
    }

    #[test]
    fn stored_ids_are_as_many_as_there_are_now() {
        let mut ids = Ids { zones: Pool::new(2, 31), units: Pool::new(1, 255), ..Ids::default() };
        let before = ids.zones.assign(["a"], 1).unwrap();
        ids.widen();
        let names: Vec<String> = (0..253).map(|n| format!("z{n}")).collect();
        let zones = ids.zones.assign(names.iter().map(String::as_str).chain(["a"]), 2).unwrap();
        assert_eq!((zones.len(), zones["a"]), (254, before["a"]));
        assert_eq!(ids.units, Ids::default().units);
    }

    #[test]
    fn a_returning_name_gets_its_id_back() {
        let mut p = pool();
        let first = p.assign(["a", "b"], 1).unwrap();
        p.assign(["b"], 2).unwrap();
        assert_eq!(p.assign(["a", "b"], 3).unwrap()["a"], first["a"]);
    }
}
