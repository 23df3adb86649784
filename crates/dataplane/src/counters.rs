//! Counters, summed over CPUs.

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use sluice_abi::stages::Reason;
use sluice_abi::{
    DropCounters, NatPoolCounters, NatRuleCounters, PolicyCounters, REASON_SLOTS, ScreenCounters,
    UnitCounters,
};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::Dataplane;
use crate::error::{Doing, Result};

/// Counters of every unit, by index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counters {
    units: Vec<UnitCounters>,
    drops: Vec<DropCounters>,
}

impl Counters {
    /// By unit index; index 0 counts what arrived at no known unit.
    pub fn units(&self) -> impl Iterator<Item = (&UnitCounters, &DropCounters)> {
        self.units.iter().zip(&self.drops)
    }

    /// All zero for an index that has no counters.
    pub fn unit(&self, index: u16) -> UnitCounters {
        self.units.get(usize::from(index)).copied().unwrap_or_default()
    }

    /// All zero for an index that has no counters.
    pub fn unit_drops(&self, index: u16) -> DropCounters {
        self.drops.get(usize::from(index)).copied().unwrap_or_default()
    }

    /// Drops of one reason at every unit together.
    pub fn drops(&self, reason: Reason) -> u64 {
        self.drops.iter().map(|drops| drops.of(reason)).sum()
    }

    /// Of every unit together, and of what arrived at none.
    pub fn total(&self) -> UnitCounters {
        total(&self.units)
    }

    /// Of every unit together.
    pub fn total_drops(&self) -> DropCounters {
        total(&self.drops)
    }
}

/// Numbers that a commit gives to names which did not have them before.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Renumbered {
    /// Ids of zones.
    pub zones: Vec<u32>,
    /// Ids of policies.
    pub policies: Vec<u32>,
    /// Ids of NAT rules.
    pub nat_rules: Vec<u32>,
    /// Ids of source pools.
    pub nat_pools: Vec<u32>,
}

/// Most were never counted under.
fn zero(map: &MapHandle, indices: &[u32]) -> Result<()> {
    let doing = || format!("clear entries of {}", map.name().to_string_lossy());
    for index in indices {
        let cpus = map.lookup_percpu(&index.to_ne_bytes(), MapFlags::ANY).doing(doing)?.unwrap_or_default();
        if cpus.iter().flatten().any(|byte| *byte != 0) {
            let zeros: Vec<Vec<u8>> = cpus.iter().map(|bytes| vec![0; bytes.len()]).collect();
            map.update_percpu(&index.to_ne_bytes(), &zeros, MapFlags::ANY).doing(doing)?;
        }
    }
    Ok(())
}

fn total<T: FromBytes + IntoBytes + Immutable>(parts: &[T]) -> T {
    let mut total = T::new_zeroed();
    parts.iter().for_each(|part| add(&mut total, part.as_bytes()));
    total
}

impl Dataplane {
    /// A copy, summed over all CPUs.
    pub fn counters(&self) -> Result<Counters> {
        let (units, drops) = (self.state.map("counters"), self.state.map("drops"));
        Ok(Counters {
            units: (0..units.max_entries()).map(|unit| sum(units, unit)).collect::<Result<_>>()?,
            drops: (0..drops.max_entries()).map(|unit| sum(drops, unit)).collect::<Result<_>>()?,
        })
    }

    /// What screens saw in some zones, by zone id, in the order asked for.
    pub fn screen_counters(&self, zones: &[u32]) -> Result<Vec<ScreenCounters>> {
        let hits = |zone: &u32| {
            let sums: ScreenCounters = sum(self.state.map("screen_counters"), *zone)?;
            // a sum of times has no meaning
            Ok(ScreenCounters { logged_at: [0; REASON_SLOTS], ..sums })
        };
        zones.iter().map(hits).collect()
    }

    /// Counters of some policies, in the order asked for.
    pub fn policy_counters(&self, policies: &[u32]) -> Result<Vec<PolicyCounters>> {
        policies.iter().map(|policy| sum(self.state.map("policy_counters"), *policy)).collect()
    }

    /// Counters of these numbers begin at zero: they have been given to other names.
    pub fn begin_counters(&self, new: &Renumbered) -> Result<()> {
        zero(self.state.map("screen_counters"), &new.zones)?;
        zero(self.state.map("policy_counters"), &new.policies)?;
        zero(self.state.map("nat_rule_counters"), &new.nat_rules)?;
        zero(self.state.map("nat_pool_counters"), &new.nat_pools)
    }

    /// Counters of some NAT rules, by id, in the order asked for.
    pub fn nat_rule_counters(&self, rules: &[u16]) -> Result<Vec<NatRuleCounters>> {
        rules.iter().map(|rule| sum(self.state.map("nat_rule_counters"), u32::from(*rule))).collect()
    }

    /// Counters of some NAT pools, by id, in the order asked for.
    pub fn nat_pool_counters(&self, pools: &[u16]) -> Result<Vec<NatPoolCounters>> {
        pools.iter().map(|pool| sum(self.state.map("nat_pool_counters"), u32::from(*pool))).collect()
    }
}

pub(crate) fn sum<T: FromBytes + IntoBytes + Immutable>(map: &MapHandle, index: u32) -> Result<T> {
    let doing = || format!("read entry {index} of {}", map.name().to_string_lossy());
    let cpus = map.lookup_percpu(&index.to_ne_bytes(), MapFlags::ANY).doing(doing)?;
    let mut total = T::new_zeroed();
    cpus.iter().flatten().for_each(|bytes| add(&mut total, bytes));
    Ok(total)
}

/// Adds structures that consist of 64-bit counters only.
fn add<T: FromBytes + IntoBytes>(total: &mut T, bytes: &[u8]) {
    for (sum, part) in total.as_mut_bytes().chunks_exact_mut(8).zip(bytes.chunks_exact(8)) {
        let value =
            u64::read_from_bytes(sum).unwrap_or(0).wrapping_add(u64::read_from_bytes(part).unwrap_or(0));
        sum.copy_from_slice(&value.to_ne_bytes());
    }
}
