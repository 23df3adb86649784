//! Counters, summed over CPUs.

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use sluice_abi::stages::Reason;
use sluice_abi::{MAX_UNITS, NatPoolCounters, NatRuleCounters, PolicyCounters, ScreenCounters, UnitCounters};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

use crate::Dataplane;
use crate::error::{Doing, Result};

/// Counters of every unit, by index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counters(Vec<UnitCounters>);

impl Counters {
    /// By unit index; index 0 counts what arrived at no known unit.
    pub fn units(&self) -> &[UnitCounters] {
        &self.0
    }

    pub fn unit(&self, index: u16) -> UnitCounters {
        self.0.get(usize::from(index)).copied().unwrap_or_default()
    }

    /// Drops of one reason at every unit together.
    pub fn drops(&self, reason: Reason) -> u64 {
        self.0.iter().map(|unit| unit.drops[reason as usize]).sum()
    }

    pub fn total(&self) -> UnitCounters {
        let mut total = UnitCounters::new_zeroed();
        self.0.iter().for_each(|unit| add(&mut total, unit.as_bytes()));
        total
    }
}

impl Dataplane {
    pub fn counters(&self) -> Result<Counters> {
        let map = self.state.map("counters");
        (0..MAX_UNITS as u32).map(|unit| sum(map, unit)).collect::<Result<_>>().map(Counters)
    }

    /// Counters of some units, in the order asked for.
    pub fn unit_counters(&self, units: &[u16]) -> Result<Vec<UnitCounters>> {
        units.iter().map(|unit| sum(self.state.map("counters"), u32::from(*unit))).collect()
    }

    /// What screens saw in some zones, by zone id, in the order asked for.
    pub fn screen_counters(&self, zones: &[u32]) -> Result<Vec<ScreenCounters>> {
        zones.iter().map(|zone| sum(self.state.map("screen_counters"), *zone)).collect()
    }

    /// Counters of some policies, in the order asked for.
    pub fn policy_counters(&self, policies: &[u32]) -> Result<Vec<PolicyCounters>> {
        policies.iter().map(|policy| sum(self.state.map("policy_counters"), *policy)).collect()
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
