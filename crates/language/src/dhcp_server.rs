//! `system services dhcp-local-server` with the pools of `access address-assignment`, as types.

use std::net::Ipv4Addr;

use serde::Serialize;

use crate::values::Prefix;

/// Seconds that an address is lent for where the pool says nothing.
pub const LEASE_S: u32 = 86_400;

/// What is served; units without a pool were refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
pub struct DhcpServer {
    /// Of each unit, in configuration order.
    pub subnets: Vec<DhcpSubnet>,
}

/// A unit's network, and the pool that serves it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DhcpSubnet {
    /// `NAME.UNIT`
    pub unit: String,
    /// Of the pool.
    pub pool: String,
    /// The unit's address in the network.
    pub own: Ipv4Addr,
    /// Without host bits.
    pub network: Prefix,
    /// First and last address; those of the gateway are left out by who lends them.
    pub ranges: Vec<(Ipv4Addr, Ipv4Addr)>,
    /// Reserved addresses.
    pub hosts: Vec<DhcpHost>,
    /// Seconds.
    pub lease_s: u32,
    /// Option 54.
    pub server_identifier: Option<Ipv4Addr>,
    /// By number, as bytes on the wire (RFC 2132); each number once.
    pub options: Vec<(u8, Vec<u8>)>,
}

/// A client with an address of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DhcpHost {
    /// As it is written.
    pub name: String,
    /// Its hardware address.
    pub mac: [u8; 6],
    /// Its address.
    pub address: Ipv4Addr,
}
