//! The table of pools: those that rules use.

use std::collections::BTreeMap;
use std::net::IpAddr;

use sluice_abi::{self as abi, NatPool, NatRange};
use sluice_language::config::Config;
use sluice_language::nat::{Overflow, Permit, Persistent, Ports, SourceNat, SourcePool, count};

use super::IdMaps;
use super::info::{INTERFACE_POOL, pool_key};
use super::prefixes::words_of;
use crate::PlanError;
use crate::instances::name_of;
use crate::units::unit_name;

pub(super) struct Pools<'a> {
    source: &'a SourceNat,
    ids: &'a IdMaps,
    /// Addresses of this host, and the instances that they are in.
    own: Vec<(&'a str, IpAddr)>,
    pub pools: Vec<NatPool>,
    pub ranges: Vec<NatRange>,
    /// Entries that stand already.
    known: BTreeMap<(Option<&'a str>, Option<Persistent>), u16>,
    /// Where a pool's ranges stand: first, number, and addresses in all.
    placed: BTreeMap<&'a str, (u32, u16, u32)>,
}

fn permit(permit: Permit) -> u8 {
    match permit {
        Permit::AnyRemoteHost => abi::NAT_PERSISTENT_ANY_HOST,
        Permit::TargetHost => abi::NAT_PERSISTENT_TARGET_HOST,
        Permit::TargetHostPort => abi::NAT_PERSISTENT_TARGET_PORT,
    }
}

impl<'a> Pools<'a> {
    pub fn new(config: &'a Config, ids: &'a IdMaps) -> Result<Self, PlanError> {
        let units = config
            .interfaces
            .iter()
            .flat_map(|interface| interface.units.iter().map(move |u| (interface, u)));
        let own = units
            .flat_map(|(interface, unit)| {
                let instance = name_of(config, &unit_name(interface, unit));
                unit.addresses().map(move |prefix| (instance, prefix.addr))
            })
            .collect();
        let mut pools = Pools {
            source: &config.nat.source,
            ids,
            own,
            pools: vec![],
            ranges: vec![],
            known: BTreeMap::new(),
            placed: BTreeMap::new(),
        };
        for pool in &config.nat.source.pools {
            pools.add(pool);
        }
        if pools.ranges.len() > abi::MAX_NAT_RANGES {
            return Err(PlanError::NatRanges { count: pools.ranges.len() });
        }
        Ok(pools)
    }

    fn add(&mut self, pool: &'a SourcePool) {
        let first_range = self.ranges.len() as u32;
        let mut first = 0u32;
        for (low, high) in &pool.addresses {
            let room = u64::from(u32::MAX - first);
            let addresses = count(*low, *high).min(room) as u32;
            self.ranges.push(NatRange {
                be_low: words_of(*low),
                first,
                count: addresses,
                ..Default::default()
            });
            first += addresses;
        }
        self.placed.insert(&pool.name, (first_range, pool.addresses.len() as u16, first));
    }

    /// Entry of a pool, None = of the interface's address, for rules with the same persistent-nat.
    pub fn entry(&mut self, name: Option<&'a str>, persistent: Option<Persistent>) -> Result<u16, PlanError> {
        let key = (name, persistent);
        if let Some(index) = self.known.get(&key) {
            return Ok(*index);
        }
        let mut entry = match name {
            None => self.interface(),
            Some(name) => self.named(name)?,
        };
        if let Some(persistent) = persistent {
            entry.persistent = permit(persistent.permit);
            (entry.persistent_timeout_s, entry.persistent_sessions) =
                (persistent.timeout_s, persistent.sessions);
        }
        let index = self.pools.len();
        if index >= abi::MAX_NAT_POOLS {
            return Err(PlanError::NatPools);
        }
        self.pools.push(entry);
        self.known.insert(key, index as u16);
        Ok(index as u16)
    }

    fn interface(&self) -> NatPool {
        let ports = self.source.interface_ports;
        let mut entry = NatPool {
            id: self.ids.pools[INTERFACE_POOL] as u16,
            addresses: 1,
            flags: abi::NAT_POOL_INTERFACE | abi::NAT_POOL_HOST,
            ..Default::default()
        };
        self.set_ports(&mut entry, ports);
        entry
    }

    fn named(&mut self, name: &'a str) -> Result<NatPool, PlanError> {
        let source = self.source;
        let Some(pool) = source.pools.iter().find(|pool| pool.name == name) else {
            return Ok(self.interface());
        };
        let (first_range, ranges, addresses) = self.placed[name];
        let mut entry = NatPool {
            first_range,
            ranges,
            id: self.ids.pools[&pool_key(&pool.name)] as u16,
            addresses,
            family: if pool.addresses.iter().any(|(low, _)| low.is_ipv4()) { 4 } else { 6 },
            ..Default::default()
        };
        self.set_ports(&mut entry, pool.ports);
        let has_own = |(instance, own): &(&str, IpAddr)| {
            pool.routing_instance.as_deref().is_none_or(|of| of == *instance)
                && pool.addresses.iter().any(|(low, high)| low <= own && own <= high)
        };
        if self.own.iter().any(has_own) {
            entry.flags |= abi::NAT_POOL_HOST;
        }
        if pool.paired {
            entry.flags |= abi::NAT_POOL_PERSISTENT;
        }
        if let Some(base) = pool.base {
            entry.flags |= abi::NAT_POOL_SHIFT;
            entry.be_base = words_of(base);
        }
        let overflow = match &pool.overflow {
            None => return Ok(entry),
            Some(Overflow::Interface) => self.entry(None, None)?,
            Some(Overflow::Pool(name)) => self.entry(Some(name), None)?,
        };
        entry.flags |= abi::NAT_POOL_OVERFLOW;
        entry.overflow = overflow;
        Ok(entry)
    }

    fn set_ports(&self, entry: &mut NatPool, ports: Ports) {
        match ports.range {
            None => entry.flags |= abi::NAT_POOL_NO_TRANSLATION,
            Some((low, high)) => (entry.port_low, entry.port_high) = (low, high),
        }
        if ports.preserve_source {
            entry.flags |= abi::NAT_POOL_PRESERVE;
        }
        if !self.source.sequential_ports && ports.range.is_some() {
            entry.flags |= abi::NAT_POOL_RANDOM;
        }
    }
}
