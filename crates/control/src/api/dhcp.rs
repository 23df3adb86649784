//! What is said of clients of DHCP and DHCPv6.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A client of DHCP.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct DhcpBinding {
    /// `NAME.UNIT`
    pub interface: String,
    /// `down`, `init`, `selecting`, `requesting`, `rebooting`, `probing`, `bound`, `renewing`, `rebinding`, `released`
    pub state: String,
    /// The leased address and the length of its subnet.
    pub address: Option<String>,
    /// Who leased it.
    pub server: Option<Ipv4Addr>,
    /// Seconds until the lease ends; none = never, or there is no lease.
    pub left_s: Option<u32>,
    /// Seconds until the server is asked to renew it (T1).
    pub renew_s: Option<u32>,
    /// Seconds until any server is asked (T2).
    pub rebind_s: Option<u32>,
    /// Routes of the lease; a gateway `0.0.0.0` is on the link.
    pub routes: Vec<DhcpRouteView>,
    /// Its name servers.
    pub name_servers: Vec<Ipv4Addr>,
    /// Why there is no lease, or what of it was left out.
    pub note: Option<String>,
}

/// A route of a lease.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct DhcpRouteView {
    /// `address/length`
    pub destination: String,
    /// Its next hop.
    pub gateway: IpAddr,
}

/// A client of DHCPv6.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct Dhcpv6Binding {
    /// `NAME.UNIT`
    pub interface: String,
    /// `down`, `soliciting`, `requesting`, `confirming`, `bound`, `renewing`, `rebinding`, `informing`, `informed`, `released`
    pub state: String,
    /// DUID of the server, in hexadecimal.
    pub server: Option<String>,
    /// The leased address.
    pub address: Option<Dhcpv6Given>,
    /// The delegated prefix.
    pub prefix: Option<Dhcpv6Given>,
    /// What units have of it.
    pub sub_prefixes: Vec<Dhcpv6SubPrefix>,
    /// Seconds until the server is asked to renew it (T1).
    pub renew_s: Option<u32>,
    /// Seconds until any server is asked (T2).
    pub rebind_s: Option<u32>,
    /// Name servers.
    pub name_servers: Vec<Ipv6Addr>,
    /// Why there is no lease, or what of it was left out.
    pub note: Option<String>,
}

/// An address or a prefix, and how long it is good for.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Dhcpv6Given {
    /// `address/length`
    pub prefix: String,
    /// Seconds for which new sessions may begin from it; none = for ever.
    pub preferred_s: Option<u32>,
    /// Seconds until it ends; none = never.
    pub valid_s: Option<u32>,
}

/// What a unit has of a delegated prefix.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Dhcpv6SubPrefix {
    /// Device of the unit.
    pub device: String,
    /// Its address there, and the length of the subnet.
    pub address: String,
    /// It was of another prefix: nobody begins anything from it any more.
    pub deprecated: bool,
}

/// Whose client is meant.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DhcpRequest {
    /// `NAME.UNIT`, or `NAME` for unit 0.
    pub interface: String,
}

/// What was done.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct DhcpDone {
    /// `NAME.UNIT`
    pub interface: String,
    /// False = there was no lease to release.
    pub done: bool,
}
