//! Static routes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use futures_util::TryStreamExt;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteNextHop, RouteProtocol,
    RouteScope, RouteType,
};
use rtnetlink::{RouteMessageBuilder, RouteNextHopBuilder};
use sluice_language::config::Prefix;
use sluice_plan::{FIRST_INSTANCE_TABLE, Gateway, MAIN_TABLE, RouteVia, RouteWant, network};

use super::connection::{Kernel, KernelError, PROTOCOL, Result};

/// IP6_RT_PRIO_ADDRCONF (net/ip6_route.h)
const CONNECTED_IPV6: u32 = 256;

impl Kernel {
    /// The routes that carry Sluice's protocol number, and the devices their gateways are on.
    pub fn routes(&self, device_name: impl Fn(u32) -> Option<String>) -> Result<Vec<RouteWant>> {
        self.routes_of(PROTOCOL, device_name)
    }

    pub(super) fn routes_of(
        &self,
        protocol: u8,
        device_name: impl Fn(u32) -> Option<String>,
    ) -> Result<Vec<RouteWant>> {
        let messages = self.all_tables(RouteProtocol::Other(protocol), RouteType::Unspec)?;
        Ok(messages.iter().filter_map(|message| parse(message, &device_name)).collect())
    }

    /// The subnets that addresses lead to, by device.
    pub fn connected(&self) -> Result<Vec<(u32, Prefix)>> {
        let messages = self.all_tables(RouteProtocol::Kernel, RouteType::Unicast)?;
        Ok(messages.iter().filter_map(connected).collect())
    }

    /// As the kernel does when it gets the address.
    pub fn add_connected(&self, ifindex: u32, device: &str, table: u32, address: Prefix) -> Result<()> {
        let subnet = network(address);
        let action = || format!("add route {}/{} to {device}", subnet.addr, subnet.len);
        let invalid =
            |reason: String| KernelError { action: action(), reason, advice: "this is a defect; report it" };
        let mut builder = RouteMessageBuilder::<IpAddr>::new()
            .destination_prefix(subnet.addr, subnet.len)
            .map_err(|e| invalid(e.to_string()))?
            .protocol(RouteProtocol::Kernel)
            .table_id(table)
            .output_interface(ifindex);
        builder = match address.addr {
            IpAddr::V4(_) => builder
                .scope(RouteScope::Link)
                .pref_source(address.addr)
                .map_err(|e| invalid(e.to_string()))?,
            IpAddr::V6(_) => builder.priority(CONNECTED_IPV6),
        };
        self.wait(self.netlink.route().add(builder.build()).execute(), action, "check the device")
    }

    /// The device that leads to an address.
    pub fn device_towards(&self, address: IpAddr) -> Result<Option<u32>> {
        let action = || format!("find the route to {address}");
        let (length, advice) = (if address.is_ipv4() { 32 } else { 128 }, "check the routing table");
        let query = RouteMessageBuilder::<IpAddr>::new()
            .destination_prefix(address, length)
            .map_err(|e| KernelError { action: action(), reason: e.to_string(), advice })?
            .build();
        let get = async { self.netlink.route().get(query).execute().try_next().await };
        let found = self.wait(get, action, advice)?;
        let attributes = found.into_iter().flat_map(|message| message.attributes);
        Ok(attributes.into_iter().find_map(|attribute| match attribute {
            RouteAttribute::Oif(ifindex) => Some(ifindex),
            _ => None,
        }))
    }

    /// Whether the route to a destination has this gateway on this device, alone or among others, in the table of a VRF device
    /// or in the main one. Where nothing can be asked, it is taken to.
    pub fn leads(&self, destination: IpAddr, vrf: Option<u32>, (ifindex, gateway): (u32, IpAddr)) -> bool {
        let length = if destination.is_ipv4() { 32 } else { 128 };
        let Ok(mut builder) = RouteMessageBuilder::<IpAddr>::new().destination_prefix(destination, length)
        else {
            return true;
        };
        if let Some(vrf) = vrf {
            builder = builder.output_interface(vrf);
        }
        let mut query = builder.build();
        query.header.flags = RouteFlags::FibMatch;
        let get = async { self.netlink.route().get(query).execute().try_next().await };
        match self.runtime.block_on(get) {
            Ok(Some(message)) => hops(&message).any(|hop| hop == (ifindex, Some(gateway))),
            Err(rtnetlink::Error::NetlinkError(_)) => false,
            Ok(None) | Err(_) => true,
        }
    }

    /// Routes of one origin. The kernel chooses them: a full table has a million others.
    pub(super) fn main_table(&self, protocol: RouteProtocol) -> Result<Vec<RouteMessage>> {
        let header = RouteHeader { protocol, table: RouteHeader::RT_TABLE_MAIN, ..Default::default() };
        self.dump(header)
    }

    /// Of the main table and those of routing instances.
    fn all_tables(&self, protocol: RouteProtocol, kind: RouteType) -> Result<Vec<RouteMessage>> {
        let mut routes = self.dump(RouteHeader { protocol, kind, ..Default::default() })?;
        routes.retain(|message| is_ours(table(message)));
        Ok(routes)
    }

    fn dump(&self, header: RouteHeader) -> Result<Vec<RouteMessage>> {
        let mut routes = vec![];
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut query = RouteMessage::default();
            query.header = RouteHeader { address_family: family, ..header.clone() };
            let dump = async { self.strict.route().get(query).execute().try_collect::<Vec<_>>().await };
            routes.extend(self.wait(dump, || "list the routes".to_owned(), "this is a defect; report it")?);
        }
        Ok(routes)
    }

    /// Adds the route, or replaces the one Sluice had to the same destination.
    pub fn put_route(&self, route: &RouteWant, ifindex: impl Fn(&str) -> Option<u32>) -> Result<()> {
        self.put_route_of(PROTOCOL, route, ifindex)
    }

    pub(super) fn put_route_of(
        &self,
        protocol: u8,
        route: &RouteWant,
        ifindex: impl Fn(&str) -> Option<u32>,
    ) -> Result<()> {
        let message = build(route, protocol, ifindex)?;
        let action = || format!("add route {}", text(route));
        let advice = "check that each gateway is in the subnet of an interface that is up";
        self.wait(self.netlink.route().add(message).replace().execute(), action, advice)
    }

    pub fn delete_route(&self, route: &RouteWant, ifindex: impl Fn(&str) -> Option<u32>) -> Result<()> {
        self.delete_route_of(PROTOCOL, route, ifindex)
    }

    pub(super) fn delete_route_of(
        &self,
        protocol: u8,
        route: &RouteWant,
        ifindex: impl Fn(&str) -> Option<u32>,
    ) -> Result<()> {
        let message = build(route, protocol, ifindex)?;
        let action = || format!("remove route {}", text(route));
        self.wait(self.netlink.route().del(message).execute(), action, "check the routing table")
    }
}

pub fn text(route: &RouteWant) -> String {
    let table = if route.table == MAIN_TABLE { String::new() } else { format!(" in table {}", route.table) };
    format!("{}/{} {}{table}", route.destination.addr, route.destination.len, route.target)
}

/// The main table, and those of routing instances.
fn is_ours(table: u32) -> bool {
    let instances = FIRST_INSTANCE_TABLE..FIRST_INSTANCE_TABLE + sluice_abi::MAX_ROUTING_INSTANCES as u32;
    table == MAIN_TABLE || instances.contains(&table)
}

fn table(message: &RouteMessage) -> u32 {
    let attribute = message.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Table(table) => Some(*table),
        _ => None,
    });
    attribute.unwrap_or_else(|| message.header.table.into())
}

fn build(route: &RouteWant, protocol: u8, ifindex: impl Fn(&str) -> Option<u32>) -> Result<RouteMessage> {
    let invalid = |reason: String| KernelError {
        action: format!("add route {}", text(route)),
        reason,
        advice: "correct routing-options static",
    };
    let Prefix { addr, len } = route.destination;
    let mut builder = RouteMessageBuilder::<IpAddr>::new()
        .destination_prefix(addr, len)
        .map_err(|e| invalid(e.to_string()))?
        .protocol(RouteProtocol::Other(protocol))
        .table_id(route.table)
        .priority(route.preference);
    builder = match &route.target {
        RouteVia::Gateways(gateways) => {
            let hops: Result<Vec<RouteNextHop>> =
                gateways.iter().map(|g| hop(g, &ifindex).map_err(invalid)).collect();
            builder.multipath(hops?)
        }
        RouteVia::Device(device) | RouteVia::Instance(Some(device)) => {
            let index = ifindex(device).ok_or_else(|| invalid(format!("device {device} does not exist")))?;
            builder.output_interface(index).scope(RouteScope::Link)
        }
        RouteVia::Instance(None) => builder.kind(RouteType::Throw),
        RouteVia::Discard => builder.kind(RouteType::BlackHole),
        RouteVia::Reject => builder.kind(RouteType::Unreachable),
    };
    Ok(builder.build())
}

/// One hop; a list of one is the same to the kernel as a plain gateway.
fn hop(
    gateway: &Gateway,
    ifindex: impl Fn(&str) -> Option<u32>,
) -> std::result::Result<RouteNextHop, String> {
    let builder = match gateway.addr {
        IpAddr::V4(_) => RouteNextHopBuilder::new_ipv4(),
        IpAddr::V6(_) => RouteNextHopBuilder::new_ipv6(),
    };
    let builder = builder.via(gateway.addr).map_err(|e| e.to_string())?;
    let index =
        gateway.device.as_deref().map(|d| ifindex(d).ok_or_else(|| format!("device {d} does not exist")));
    Ok(builder.interface(index.transpose()?.unwrap_or(0)).build())
}

fn parse(message: &RouteMessage, device_name: impl Fn(u32) -> Option<String>) -> Option<RouteWant> {
    let v4 = message.header.address_family == AddressFamily::Inet;
    let mut destination = if v4 { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let mut preference = 0;
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(addr) => destination = ip(addr)?,
            RouteAttribute::Priority(metric) => preference = *metric,
            _ => {}
        }
    }
    let gateway =
        |(device, addr): (u32, Option<IpAddr>)| Some(Gateway { addr: addr?, device: device_name(device) });
    let gateways: Vec<Gateway> = hops(message).filter_map(gateway).collect();
    let target = match message.header.kind {
        RouteType::Throw => RouteVia::Instance(None),
        RouteType::BlackHole => RouteVia::Discard,
        RouteType::Unreachable => RouteVia::Reject,
        _ if gateways.is_empty() => RouteVia::Device(device_name(hops(message).next()?.0)?),
        _ => RouteVia::Gateways(gateways),
    };
    let len = message.header.destination_prefix_length;
    let destination = Prefix { addr: destination, len };
    Some(RouteWant { table: table(message), destination, preference, target })
}

/// None = an address family without one.
pub fn destination(message: &RouteMessage) -> Option<Prefix> {
    let given = message.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Destination(addr) => Some(ip(addr)),
        _ => None,
    });
    let everywhere = || match message.header.address_family {
        AddressFamily::Inet => Some(Ipv4Addr::UNSPECIFIED.into()),
        AddressFamily::Inet6 => Some(Ipv6Addr::UNSPECIFIED.into()),
        _ => None,
    };
    let addr = given.unwrap_or_else(everywhere)?;
    Some(Prefix { addr, len: message.header.destination_prefix_length })
}

/// Added by Sluice, or by the kernel with an address.
pub fn is_lasting(message: &RouteMessage) -> bool {
    matches!(message.header.protocol, RouteProtocol::Other(PROTOCOL) | RouteProtocol::Kernel)
}

fn connected(message: &RouteMessage) -> Option<(u32, Prefix)> {
    let (mut destination, mut device) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(addr) => destination = ip(addr),
            RouteAttribute::Oif(index) => device = Some(*index),
            _ => {}
        }
    }
    Some((device?, Prefix { addr: destination?, len: message.header.destination_prefix_length }))
}

/// Devices and gateways of a route.
fn hops(message: &RouteMessage) -> impl Iterator<Item = (u32, Option<IpAddr>)> + '_ {
    let of = |attributes: &[RouteAttribute]| {
        attributes.iter().find_map(|attribute| match attribute {
            RouteAttribute::Gateway(address) => ip(address),
            RouteAttribute::Via(netlink_packet_route::route::RouteVia::Inet(address)) => {
                Some((*address).into())
            }
            RouteAttribute::Via(netlink_packet_route::route::RouteVia::Inet6(address)) => {
                Some((*address).into())
            }
            _ => None,
        })
    };
    let several = message.attributes.iter().filter_map(|attribute| match attribute {
        RouteAttribute::MultiPath(hops) => Some(hops),
        _ => None,
    });
    let several = several.flatten().map(move |hop| (hop.interface_index, of(&hop.attributes)));
    let device = message.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Oif(ifindex) => Some(*ifindex),
        _ => None,
    });
    device.map(|device| (device, of(&message.attributes))).into_iter().chain(several)
}

pub(super) fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(a) => Some(IpAddr::V4(*a)),
        RouteAddress::Inet6(a) => Some(IpAddr::V6(*a)),
        _ => None,
    }
}
