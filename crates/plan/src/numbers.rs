//! The numbers that names have in the tables of a generation.

use std::collections::BTreeMap;

use sluice_language::config::Config;

use crate::{Exhausted, Ids, PlanError, Pool, fan_out, nat, policies};

pub(crate) struct Numbers {
    pub zones: BTreeMap<String, u32>,
    pub units: BTreeMap<String, u32>,
    pub policies: BTreeMap<String, u32>,
    pub nat: nat::IdMaps,
    /// Of the gate.
    pub services: BTreeMap<String, u32>,
    pub listeners: BTreeMap<String, u32>,
    pub receivers: BTreeMap<String, u32>,
}

impl Numbers {
    /// Of routing instances other than the main one.
    pub fn instances(&self) -> &BTreeMap<String, u32> {
        &self.nat.instances
    }

    /// Names that had numbers keep them.
    pub fn assign(
        config: &Config,
        units: &[String],
        ids: &mut Ids,
        generation: u32,
    ) -> Result<Numbers, PlanError> {
        let (rules, pools) = nat::keys(config);
        let fan_out = fan_out::names(config);
        let zones: Vec<&str> = config.zones.iter().map(|zone| zone.name.as_str()).collect();
        let services: Vec<&str> = config.gate.services.iter().map(|service| service.name.as_str()).collect();
        let instances: Vec<&str> = config.routing_instances.iter().map(|own| own.name.as_str()).collect();
        Ok(Numbers {
            zones: assign(&mut ids.zones, "zones", &zones, generation)?,
            units: assign(&mut ids.units, "interface units", units, generation)?,
            policies: assign(&mut ids.policies, "policies", &policies::keys(config), generation)?,
            nat: nat::IdMaps {
                rules: assign_rested(&mut ids.nat_rules, "NAT rules", &rules, generation)?,
                pools: assign_rested(&mut ids.nat_pools, "NAT pools", &pools, generation)?,
                // sessions of the one that had a number must not be taken for its successor's
                instances: assign_rested(
                    &mut ids.routing_instances,
                    "routing instances",
                    &instances,
                    generation,
                )?,
            },
            services: assign_rested(&mut ids.services, "gate services", &services, generation)?,
            listeners: assign(
                &mut ids.fan_out_listeners,
                "fan-out listeners",
                &fan_out.listeners,
                generation,
            )?,
            receivers: assign(
                &mut ids.fan_out_receivers,
                "fan-out receivers",
                &fan_out.receivers,
                generation,
            )?,
        })
    }
}

fn assign(
    pool: &mut Pool,
    what: &'static str,
    names: &[impl AsRef<str>],
    generation: u32,
) -> Result<BTreeMap<String, u32>, PlanError> {
    pool.assign(names.iter().map(AsRef::as_ref), generation).map_err(|e| exhausted(what, e))
}

fn assign_rested(
    pool: &mut Pool,
    what: &'static str,
    names: &[impl AsRef<str>],
    generation: u32,
) -> Result<BTreeMap<String, u32>, PlanError> {
    pool.assign_rested(names.iter().map(AsRef::as_ref), generation).map_err(|e| exhausted(what, e))
}

fn exhausted(what: &'static str, e: Exhausted) -> PlanError {
    PlanError::NoIds { what, wanted: e.wanted, free: e.ids, quarantined: e.quarantined }
}
