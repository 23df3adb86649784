//! What a configuration says of clients of DHCP and DHCPv6.

use std::net::Ipv4Addr;

use serde::Serialize;

/// `family inet dhcp` of a unit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct DhcpClient {
    /// Option 61 as it is sent; None = as RFC 4361 makes one.
    pub identifier: Option<Vec<u8>>,
    /// What is asked for.
    pub lease_s: Option<u32>,
    /// The only server that is listened to.
    pub server: Option<Ipv4Addr>,
    /// Option 60.
    pub vendor: Option<String>,
    /// Unanswered messages before a rest.
    pub attempts: u32,
    /// Seconds to the first one that is sent again.
    pub interval_s: u32,
    /// Whether name servers are written to the state directory's `resolv.conf`.
    pub install_dns: bool,
    /// Option 12; None = `no-hostname`, or the system has no name in the configuration.
    pub host_name: Option<String>,
    /// A lease of before is not asked for.
    pub discover: bool,
    /// Whether a default route is taken.
    pub default_route: bool,
    /// Metric of the routes.
    pub preference: u32,
}

/// `family inet6 dhcpv6-client` of a unit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Dhcpv6Client {
    /// IA_NA is asked for.
    pub address: bool,
    /// IA_PD is asked for.
    pub prefix: bool,
    /// Option 14 is sent.
    pub rapid_commit: bool,
    /// What the client is known by.
    pub duid: DuidType,
    /// Whether name servers are asked for.
    pub dns: bool,
    /// Length of the prefix that is asked for.
    pub prefix_length: Option<u8>,
    /// Length of what units get of it.
    pub sub_prefix_length: u8,
    /// Units that get a sub-prefix each, as `NAME.UNIT`.
    pub lans: Vec<String>,
    /// Unanswered solicits before a rest.
    pub attempts: Option<u32>,
    /// Whether a default route of router advertisements is taken.
    pub default_route: bool,
    /// Metric of that route; None = the kernel's.
    pub preference: Option<u32>,
}

/// RFC 8415, section 11.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub enum DuidType {
    /// Made of the unit's MAC address.
    LinkLayer,
    /// Made once, and kept.
    #[default]
    LinkLayerTime,
}
