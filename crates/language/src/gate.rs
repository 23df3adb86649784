//! `services gate` as types.

use serde::Serialize;

use crate::values::{Prefix, Service};

/// Most seconds of `idle-timeout`: the data plane has 32 bits for their ticks, of which the kernel makes up to a thousand a second.
pub const MAX_IDLE_S: u32 = u32::MAX / 1000;

/// All of `services gate`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
pub struct Gate {
    /// Zones that reach nothing without a grant.
    pub zones: Vec<String>,
    /// In configuration order: the first that has a packet's destination is its service.
    pub services: Vec<GateService>,
    /// Grants that hold as long as they stand in the configuration.
    pub grants: Vec<GateGrant>,
    /// Interfaces with one untagged unit, in a zone that demands grants: the gate stands alone before them.
    pub host_only: Vec<String>,
    /// Room for grants; None = built-in default.
    pub max_grants: Option<u32>,
}

/// What grants are for; all of one protocol.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GateService {
    /// Unique; grants name services by it.
    pub name: String,
    /// After translation.
    pub destinations: Vec<Prefix>,
    /// Protocol and ports at these destinations.
    pub terms: Vec<Service>,
}

/// A grant that stands in the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GateGrant {
    /// Unique; the user's, too, where none is given.
    pub name: String,
    /// Host or network it is given to.
    pub source: Prefix,
    /// Whom reports and logs name.
    pub user: String,
    /// Names of the services it opens.
    pub services: Vec<String>,
    /// None = no limit.
    pub idle_s: Option<u32>,
    /// Seconds after which it ends in any case; None = never.
    pub absolute_s: Option<u32>,
}
