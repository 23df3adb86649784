//! `services gate` as types.

use serde::Serialize;

use crate::values::{Prefix, Service};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
pub struct Gate {
    /// Zones that reach nothing without a grant.
    pub zones: Vec<String>,
    /// In configuration order: the first that has a packet's destination is its service.
    pub services: Vec<GateService>,
    pub grants: Vec<GateGrant>,
    /// Interfaces with one untagged unit, in a zone that demands grants: the gate stands alone before them.
    pub host_only: Vec<String>,
    /// Room for grants; None = built-in default.
    pub max_grants: Option<u32>,
}

/// What grants are for; all of one protocol.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GateService {
    pub name: String,
    /// After translation.
    pub destinations: Vec<Prefix>,
    pub terms: Vec<Service>,
}

/// A grant that stands in the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GateGrant {
    pub name: String,
    pub source: Prefix,
    pub user: String,
    pub services: Vec<String>,
    /// None = no limit.
    pub idle_s: Option<u32>,
    pub absolute_s: Option<u32>,
}
