//! IPv6 addresses of devices with their lifetimes: what a router advertises.

use std::net::{IpAddr, Ipv6Addr};

use futures_util::TryStreamExt;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use sluice_language::config::Prefix;

use super::connection::{Kernel, Result};

/// The prefix of a global address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastingPrefix {
    pub prefix: Ipv6Addr,
    pub length: u8,
    /// 2^32 - 1 does not end.
    pub valid_s: u32,
    pub preferred_s: u32,
}

/// What an address of a device is for a router on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceAddress {
    /// It speaks by this one (RFC 4861 6.1.2).
    LinkLocal(Ipv6Addr),
    Global(LastingPrefix),
}

impl Kernel {
    /// IPv6 addresses that are in use, by device; those of a host alone have no prefix that others could share.
    pub fn router_addresses(&self) -> Result<Vec<(u32, DeviceAddress)>> {
        let dump = async {
            let mut request = self.netlink.address().get();
            request.message_mut().header.family = AddressFamily::Inet6;
            request.execute().try_collect().await
        };
        let messages: Vec<AddressMessage> =
            self.wait(dump, || "list the IPv6 addresses".to_owned(), "this is a defect; report it")?;
        Ok(messages.iter().filter_map(parse).collect())
    }
}

fn parse(message: &AddressMessage) -> Option<(u32, DeviceAddress)> {
    let (header, attributes) = (&message.header, &message.attributes);
    let unusable =
        AddressHeaderFlags::Secondary | AddressHeaderFlags::Tentative | AddressHeaderFlags::Dadfailed;
    if header.flags.intersects(unusable) {
        return None;
    }
    let address = attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Address(IpAddr::V6(address)) => Some(*address),
        _ => None,
    })?;
    if address.is_unicast_link_local() {
        return Some((header.index, DeviceAddress::LinkLocal(address)));
    }
    if address.is_loopback() || address.is_multicast() || header.prefix_len == 128 {
        return None;
    }
    let (valid_s, preferred_s) = attributes
        .iter()
        .find_map(|attribute| match attribute {
            AddressAttribute::CacheInfo(info) => Some((info.ifa_valid, info.ifa_preferred)),
            _ => None,
        })
        .unwrap_or((u32::MAX, u32::MAX));
    let own = Prefix { addr: address.into(), len: header.prefix_len };
    let IpAddr::V6(prefix) = sluice_plan::network(own).addr else { return None };
    let found = LastingPrefix { prefix, length: header.prefix_len, valid_s, preferred_s };
    Some((header.index, DeviceAddress::Global(found)))
}
