//! What is said of the gate and its grants.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A grant that is asked for. Only `sluice gate` and whoever may change the gateway can.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GrantRequest {
    /// Label of whom it is for, at most 63 bytes.
    pub user: String,
    /// Address or prefix.
    pub source: String,
    /// A service of the configuration.
    pub service: String,
    /// Seconds without a packet of the source; no limit when left out.
    pub idle_timeout_s: Option<u32>,
    /// Seconds from now; no limit when left out.
    pub absolute_timeout_s: Option<u32>,
    /// Every host of the family is meant: 0.0.0.0/0 and ::/0 are refused without it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub any_source: bool,
}

/// What a request for grants did.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct Granted {
    /// New ones.
    pub granted: u64,
    /// That were there already, and have these limits now.
    pub renewed: u64,
    /// Numbers, in the order of the request; of the first 1000.
    pub grants: Vec<u32>,
}

/// Which grants shall end: exactly one of these.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RevokeRequest {
    /// Every grant.
    #[serde(default)]
    pub all: bool,
    /// All grants of a user.
    pub user: Option<String>,
    /// All grants for a service.
    pub service: Option<String>,
    /// The grant with this number.
    pub grant: Option<u32>,
    /// All grants for exactly this address or prefix.
    pub source: Option<String>,
}

/// What a revocation did.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct Revoked {
    /// Grants that ended.
    pub revoked: u64,
    /// Until the data plane refused all of them and the index was tidy.
    pub took_us: u64,
}

/// Which grants to list. Empty fields match everything.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GrantFilter {
    /// Whom they are for.
    pub user: Option<String>,
    /// What they are for.
    pub service: Option<String>,
    /// Exactly this address or prefix.
    pub source: Option<String>,
    /// How many matches to leave out.
    pub offset: Option<usize>,
    /// How many matches to list at most: 1,000 when not given.
    pub limit: Option<usize>,
}

/// Grants that match a filter.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct GrantList {
    /// How many match altogether.
    pub total: u64,
    /// The part that was asked for, the oldest first.
    pub grants: Vec<GrantView>,
}

/// A grant.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct GrantView {
    /// Its number.
    pub grant: u32,
    /// Whom it is for.
    pub user: String,
    /// Address or prefix.
    pub source: String,
    /// Name of the service.
    pub service: String,
    /// The configuration gave it; else an operator.
    pub by_configuration: bool,
    /// Seconds since it was given or renewed.
    pub age_s: u64,
    /// Since the last packet of its source.
    pub idle_s: u64,
    /// Seconds without a packet after which it ends; none = no limit.
    pub idle_timeout_s: Option<u64>,
    /// Seconds until it ends; none = no limit.
    pub expires_in_s: Option<u64>,
    /// Opened with it.
    pub sessions: u32,
    /// `live`, or why it holds no more.
    pub state: String,
}

/// A service behind the gate.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct GateServiceView {
    /// As the configuration has it.
    pub name: String,
    /// By which the data plane knows it.
    pub id: u32,
    /// Addresses or prefixes.
    pub destinations: Vec<String>,
    /// Number of the IP protocol.
    pub protocol: u8,
    /// `PORT`, `FIRST-LAST` or `any`.
    pub ports: Vec<String>,
    /// Live ones for it.
    pub grants: u64,
}

/// The gate as a whole; counts since the daemon started.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct GateView {
    /// That demand grants.
    pub zones: Vec<String>,
    /// In the order of the configuration.
    pub services: Vec<GateServiceView>,
    /// Live ones.
    pub grants: u64,
    /// Most there may be.
    pub limit: u64,
    /// New ones.
    pub given: u64,
    /// That were there already.
    pub renewed: u64,
    /// Ended by order.
    pub revoked: u64,
    /// Ended by their absolute limit.
    pub expired: u64,
    /// Ended without packets.
    pub idle: u64,
    /// Asked for when there was no room.
    pub refused_full: u64,
}
