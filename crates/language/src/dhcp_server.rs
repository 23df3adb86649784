//! `system services dhcp-local-server` with the pools of `access address-assignment`, as types.

use std::net::{IpAddr, Ipv4Addr};

use serde::Serialize;

use crate::values::Prefix;

/// Seconds that an address is lent for where the pool says nothing.
pub const LEASE_S: u32 = 86_400;

/// Which of the two protocols: DHCP (RFC 2131) or DHCPv6 (RFC 8415).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Family {
    /// `family inet`
    Inet,
    /// `family inet6`
    Inet6,
}

impl Family {
    /// In the order of everything that is done for both.
    pub const ALL: [Family; 2] = [Family::Inet, Family::Inet6];

    /// Of an address.
    pub fn of(address: IpAddr) -> Family {
        if address.is_ipv4() { Family::Inet } else { Family::Inet6 }
    }

    /// The statement that serves it.
    pub fn statement(self) -> &'static str {
        match self {
            Family::Inet => "system services dhcp-local-server",
            Family::Inet6 => "system services dhcp-local-server dhcpv6",
        }
    }
}

/// What is served; units without a pool were refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
pub struct DhcpServer {
    /// Of each unit, in configuration order; first those of IPv4.
    pub subnets: Vec<DhcpSubnet>,
}

impl DhcpServer {
    /// Subnets of one family.
    pub fn of(&self, family: Family) -> impl Iterator<Item = &DhcpSubnet> {
        self.subnets.iter().filter(move |subnet| subnet.family() == family)
    }
}

/// A unit's network, and the pool that serves it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DhcpSubnet {
    /// `NAME.UNIT`
    pub unit: String,
    /// Of the pool.
    pub pool: String,
    /// The unit's address in the network.
    pub own: IpAddr,
    /// Without host bits.
    pub network: Prefix,
    /// First and last address; those of the gateway are left out by who lends them.
    pub ranges: Vec<(IpAddr, IpAddr)>,
    /// Reserved addresses.
    pub hosts: Vec<DhcpHost>,
    /// Seconds.
    pub lease_s: u32,
    /// Seconds that what is lent may be used for new connections; of IPv6 alone.
    pub preferred_s: u32,
    /// Option 54, of IPv4 alone.
    pub server_identifier: Option<Ipv4Addr>,
    /// By number, as bytes on the wire (RFC 2132; RFC 8415, section 21); each number once.
    pub options: Vec<(u16, Vec<u8>)>,
    /// A client that asks for it is served with two messages instead of four (RFC 8415, section 18.3.1).
    pub rapid_commit: bool,
    /// Prefixes that clients get for the links behind them.
    pub delegated: Option<Delegated>,
}

impl DhcpSubnet {
    /// Which protocol serves it.
    pub fn family(&self) -> Family {
        Family::of(self.network.addr)
    }
}

/// A client with an address of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DhcpHost {
    /// As it is written.
    pub name: String,
    /// Its hardware address, or its DUID.
    pub client: Vec<u8>,
    /// Its address.
    pub address: IpAddr,
}

/// Prefixes of one length out of a larger one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Delegated {
    /// Of the pool.
    pub pool: String,
    /// What they are taken from.
    pub prefix: Prefix,
    /// Bits of each.
    pub length: u8,
}
