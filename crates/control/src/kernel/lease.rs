//! Addresses and routes that are leased: they carry the number that the kernel has for DHCP, and addresses end by themselves.

use std::net::{IpAddr, Ipv4Addr};

use futures_util::TryStreamExt;
use netlink_packet_route::address::{
    AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage, AddressProtocol, CacheInfo,
};
use netlink_packet_route::route::{RouteAttribute, RouteMessage, RouteProtocol, RouteScope, RouteType};
use rtnetlink::RouteMessageBuilder;
use sluice_language::config::Prefix;

use super::connection::{Kernel, KernelError, Result};
use super::route::ip;

/// RTPROT_DHCP (linux/rtnetlink.h), for addresses too.
const PROTOCOL: u8 = 16;

/// Seconds that never end, to the kernel and to both protocols.
pub const FOREVER_S: u32 = u32::MAX;

/// An address that a server gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leased {
    pub ifindex: u32,
    pub prefix: Prefix,
    pub preferred_s: u32,
    pub valid_s: u32,
    /// Others had it already (RFC 4862, section 5.4).
    pub is_duplicate: bool,
}

/// A route that a lease gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeasedRoute {
    pub destination: Prefix,
    pub via: LeasedVia,
    pub metric: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeasedVia {
    /// `gateway` unspecified = on the link. With `source` goes the route.
    Device { ifindex: u32, gateway: Ipv4Addr, source: Ipv4Addr },
    /// Nowhere, and senders are told.
    Unreachable,
}

impl Kernel {
    /// Adds an address, or gives the one that is there other times. `is_tried` = the kernel asks first who has it.
    pub fn put_leased(&self, device: &str, leased: &Leased, is_tried: bool) -> Result<()> {
        let Prefix { addr, len } = leased.prefix;
        let mut request = self.netlink.address().add(leased.ifindex, addr, len).replace();
        let message = request.message_mut();
        message.attributes.push(AddressAttribute::Protocol(AddressProtocol::Other(PROTOCOL)));
        let mut times = CacheInfo::default();
        (times.ifa_preferred, times.ifa_valid) = (leased.preferred_s.min(leased.valid_s), leased.valid_s);
        message.attributes.push(AddressAttribute::CacheInfo(times));
        if addr.is_ipv6() && !is_tried {
            message.header.flags |= AddressHeaderFlags::Nodad;
            message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
        }
        let action = || format!("add address {addr}/{len} to {device}");
        self.wait(request.execute(), action, "check that no other device has it")
    }

    pub fn leased(&self) -> Result<Vec<Leased>> {
        let dump = async { self.netlink.address().get().execute().try_collect().await };
        let messages: Vec<AddressMessage> =
            self.wait(dump, || "list the addresses".to_owned(), "this is a defect; report it")?;
        Ok(messages.iter().filter_map(leased).collect())
    }

    /// Adds a route, or changes the one of its destination and metric, where that is the caller's. False = somebody else has
    /// one of them, which stays.
    pub fn put_leased_route(&self, route: &LeasedRoute, is_own: bool) -> Result<bool> {
        let action = || format!("add route {}/{}", route.destination.addr, route.destination.len);
        let message = build(route).map_err(|reason| KernelError {
            action: action(),
            reason,
            advice: "this is a defect; report it",
        })?;
        let request = self.netlink.route().add(message);
        let request = if is_own { request.replace() } else { request };
        let add = async {
            match request.execute().await {
                Err(rtnetlink::Error::NetlinkError(message))
                    if message.to_io().kind() == std::io::ErrorKind::AlreadyExists =>
                {
                    Ok(false)
                }
                done => done.map(|()| true),
            }
        };
        self.wait(add, action, "the server's routes do not fit the device")
    }

    pub fn delete_leased_route(&self, route: &LeasedRoute) -> Result<()> {
        let action = || format!("remove route {}/{}", route.destination.addr, route.destination.len);
        let message = build(route).map_err(|reason| KernelError {
            action: action(),
            reason,
            advice: "this is a defect; report it",
        })?;
        self.wait(self.netlink.route().del(message).execute(), action, "check the routing table")
    }

    /// Takes away default routes that a device has by router advertisements: the kernel keeps them when it takes no more of those.
    pub fn forget_routers(&self, ifindex: u32) -> Result<()> {
        let is_one = |message: &&RouteMessage| {
            message.header.destination_prefix_length == 0
                && message.attributes.contains(&RouteAttribute::Oif(ifindex))
        };
        for message in self.main_table(RouteProtocol::Ra)?.iter().filter(is_one) {
            let mut message = message.clone();
            message.attributes.retain(|attribute| {
                matches!(
                    attribute,
                    RouteAttribute::Gateway(_)
                        | RouteAttribute::Oif(_)
                        | RouteAttribute::Priority(_)
                        | RouteAttribute::Table(_)
                )
            });
            let action = || "remove a default route of router advertisements".to_owned();
            self.wait(self.netlink.route().del(message).execute(), action, "check the routing table")?;
        }
        Ok(())
    }

    pub fn leased_routes(&self) -> Result<Vec<LeasedRoute>> {
        Ok(self.main_table(RouteProtocol::Dhcp)?.iter().filter_map(route).collect())
    }
}

fn build(route: &LeasedRoute) -> Result<RouteMessage, String> {
    let Prefix { addr, len } = route.destination;
    let builder = RouteMessageBuilder::<IpAddr>::new()
        .destination_prefix(addr, len)
        .map_err(|error| error.to_string())?
        .protocol(RouteProtocol::Dhcp)
        .priority(route.metric);
    let builder = match route.via {
        LeasedVia::Unreachable => builder.kind(RouteType::Unreachable),
        LeasedVia::Device { ifindex, gateway, source } => {
            let builder = builder
                .output_interface(ifindex)
                .pref_source(source.into())
                .map_err(|error| error.to_string())?;
            match gateway.is_unspecified() {
                true => builder.scope(RouteScope::Link),
                false => builder.gateway(gateway.into()).map_err(|error| error.to_string())?,
            }
        }
    };
    Ok(builder.build())
}

fn leased(message: &AddressMessage) -> Option<Leased> {
    let protocol = AddressAttribute::Protocol(AddressProtocol::Other(PROTOCOL));
    if !message.attributes.contains(&protocol) {
        return None;
    }
    let (mut addr, mut times) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(local) => addr = Some(*local),
            AddressAttribute::Address(other) => addr = addr.or(Some(*other)),
            AddressAttribute::CacheInfo(info) => times = Some((info.ifa_preferred, info.ifa_valid)),
            _ => {}
        }
    }
    let (preferred_s, valid_s) = times?;
    Some(Leased {
        ifindex: message.header.index,
        prefix: Prefix { addr: addr?, len: message.header.prefix_len },
        preferred_s,
        valid_s,
        is_duplicate: message.header.flags.contains(AddressHeaderFlags::Dadfailed),
    })
}

fn route(message: &RouteMessage) -> Option<LeasedRoute> {
    let v4 = message.header.address_family == netlink_packet_route::AddressFamily::Inet;
    let mut destination =
        if v4 { Ipv4Addr::UNSPECIFIED.into() } else { std::net::Ipv6Addr::UNSPECIFIED.into() };
    let (mut gateway, mut source, mut device, mut metric) =
        (Ipv4Addr::UNSPECIFIED, Ipv4Addr::UNSPECIFIED, None, 0);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(addr) => destination = ip(addr)?,
            RouteAttribute::Gateway(addr) => gateway = v4_of(ip(addr)?)?,
            RouteAttribute::PrefSource(addr) => source = v4_of(ip(addr)?)?,
            RouteAttribute::Oif(index) => device = Some(*index),
            RouteAttribute::Priority(priority) => metric = *priority,
            _ => {}
        }
    }
    let via = match message.header.kind {
        RouteType::Unreachable => LeasedVia::Unreachable,
        _ => LeasedVia::Device { ifindex: device?, gateway, source },
    };
    let len = message.header.destination_prefix_length;
    Some(LeasedRoute { destination: Prefix { addr: destination, len }, via, metric })
}

fn v4_of(addr: IpAddr) -> Option<Ipv4Addr> {
    match addr {
        IpAddr::V4(addr) => Some(addr),
        IpAddr::V6(_) => None,
    }
}
