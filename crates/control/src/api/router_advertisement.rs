//! What is said of router advertisements.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A unit that this gateway advertises itself on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RouterAdvertisementView {
    /// `NAME.UNIT`
    pub interface: String,
    /// The kernel's device of it.
    pub device: String,
    /// Why nothing is sent at the moment.
    pub error: Option<String>,
    /// The device's link-local address, which hosts have as their router.
    pub source: Option<String>,
    /// Seconds that hosts may use the gateway as a default router for.
    pub default_lifetime_s: u16,
    /// Advertisements, to all nodes and to single hosts.
    pub sent: u64,
    /// Those of them that went to single hosts.
    pub sent_unicast: u64,
    /// Solicitations that came and were valid.
    pub solicitations: u64,
    /// Solicitations that came and were not.
    pub invalid: u64,
    /// When the last one was sent, in milliseconds since 1970.
    pub last_sent_unix_ms: Option<u64>,
    /// What is told of the link's prefixes.
    pub prefixes: Vec<AdvertisedPrefixView>,
}

/// A prefix as hosts are told of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AdvertisedPrefixView {
    /// With its length.
    pub prefix: String,
    /// 4294967295 does not end.
    pub valid_lifetime_s: u32,
    /// Not more than that.
    pub preferred_lifetime_s: u32,
    /// Its addresses are on the link.
    pub on_link: bool,
    /// Hosts make addresses of it.
    pub autonomous: bool,
    /// The device or the configuration has it no more; hosts are told to give it up.
    pub withdrawn: bool,
}
