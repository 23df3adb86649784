//! `protocols router-advertisement` as types.

use std::net::Ipv6Addr;

use serde::Serialize;

/// A lifetime that does not end (RFC 4861 4.6.2).
pub const INFINITE_S: u32 = u32::MAX;

/// AdvValidLifetime and AdvPreferredLifetime (RFC 4861 6.2.1).
pub const VALID_S: u32 = 2_592_000;
/// See [`VALID_S`].
pub const PREFERRED_S: u32 = 604_800;

/// Lengths of prefixes that PREF64 can say, in the order of their codes (RFC 8781 4).
pub const NAT_PREFIX_LENGTHS: [u8; 6] = [96, 64, 56, 48, 40, 32];

/// All of `protocols router-advertisement`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
pub struct RouterAdvertisement {
    /// In configuration order.
    pub interfaces: Vec<AdvertisedUnit>,
}

/// Of this router among those of the link (RFC 4191 2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Default)]
#[serde(rename_all = "lowercase")]
pub enum RouterPreference {
    /// Before others.
    High,
    /// The default.
    #[default]
    Medium,
    /// Behind others.
    Low,
}

/// What a unit's link is told; names and defaults of RFC 4861 6.2.1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AdvertisedUnit {
    /// `NAME.UNIT`
    pub unit: String,
    /// MaxRtrAdvInterval
    pub max_interval_s: u16,
    /// MinRtrAdvInterval
    pub min_interval_s: u16,
    /// AdvDefaultLifetime; 0 = no default router.
    pub default_lifetime_s: u16,
    /// AdvReachableTime; 0 = unspecified.
    pub reachable_ms: u32,
    /// AdvRetransTimer; 0 = unspecified.
    pub retransmit_ms: u32,
    /// AdvCurHopLimit; 0 = unspecified.
    pub hop_limit: u8,
    /// AdvLinkMTU
    pub link_mtu: Option<u32>,
    /// AdvManagedFlag
    pub managed: bool,
    /// AdvOtherConfigFlag
    pub other: bool,
    /// RFC 4191
    pub preference: RouterPreference,
    /// RDNSS (RFC 8106 5.1): resolver, lifetime.
    pub resolvers: Vec<(Ipv6Addr, u32)>,
    /// DNSSL (RFC 8106 5.2): domain, lifetime.
    pub domains: Vec<(String, u32)>,
    /// PREF64 (RFC 8781): prefix, its length, lifetime.
    pub nat_prefixes: Vec<(Ipv6Addr, u8, u16)>,
    /// AdvPrefixList; empty = those of the device's addresses.
    pub prefixes: Vec<AdvertisedPrefix>,
}

/// A prefix of a link, as hosts are told of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct AdvertisedPrefix {
    /// Without host bits.
    pub prefix: Ipv6Addr,
    /// Of the prefix.
    pub length: u8,
    /// Its addresses are on the link.
    pub on_link: bool,
    /// Hosts make addresses of it.
    pub autonomous: bool,
    /// [`INFINITE_S`] does not end.
    pub valid_s: u32,
    /// Not more than that.
    pub preferred_s: u32,
}
