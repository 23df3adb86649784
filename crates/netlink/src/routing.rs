//! Questions to the kernel's routing (rtnetlink(7)): which way, which neighbour, which device.

use std::io;
use std::net::IpAddr;

use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE};
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkMessage};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteMetric, RouteType, RouteVia,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage as Message};
use netlink_sys::protocols::NETLINK_ROUTE;
use nix::errno::Errno;

use crate::exchange::Exchange;
use crate::parse_neighbour;

/// By which device, and over whom, packets to an address leave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextHop {
    /// Of the device they leave by.
    pub ifindex: u32,
    /// Whose MAC address they get.
    pub next: IpAddr,
    /// The address is this host's own.
    pub is_local: bool,
    /// If the route has one of its own.
    pub mtu: Option<u32>,
}

/// A network device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Device {
    /// As `ip link` shows it.
    pub name: String,
    /// Its MAC address; zeros where it has none.
    pub mac: [u8; 6],
    /// In bytes, without the link's own header.
    pub mtu: u32,
}

/// A resolved neighbour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resolved {
    /// Its MAC address.
    pub mac: [u8; 6],
    /// Whether the kernel has heard of it lately.
    pub is_fresh: bool,
}

/// Asks one network namespace.
pub struct Routing(Exchange);

fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn unexpected() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the kernel answers something else than was asked")
}

impl Routing {
    /// Of the calling thread's network namespace.
    pub fn open() -> io::Result<Routing> {
        Exchange::open(NETLINK_ROUTE).map(Routing)
    }

    /// Where a packet of this host to an address would leave, by the kernel's routes.
    pub fn next_hop(&mut self, to: IpAddr) -> io::Result<NextHop> {
        let mut question = RouteMessage::default();
        question.header.address_family = family(to);
        question.header.destination_prefix_length = bits(to);
        let destination = match to {
            IpAddr::V4(address) => RouteAddress::Inet(address),
            IpAddr::V6(address) => RouteAddress::Inet6(address),
        };
        question.attributes.push(RouteAttribute::Destination(destination));
        match self.0.ask(Message::GetRoute(question), 0)? {
            Some(Message::NewRoute(route)) => next_hop(&route, to),
            _ => Err(unexpected()),
        }
    }

    /// None when the kernel knows no MAC address of it.
    pub fn neighbour(&mut self, ifindex: u32, of: IpAddr) -> io::Result<Option<Resolved>> {
        let entry = match self.0.ask(Message::GetNeighbour(neighbour(ifindex, of)), 0) {
            Ok(Some(Message::NewNeighbour(entry))) => entry,
            Ok(_) => return Err(unexpected()),
            Err(error) if error.raw_os_error() == Some(Errno::ENOENT as i32) => return Ok(None),
            Err(error) => return Err(error),
        };
        let known = parse_neighbour(&entry);
        let is_fresh = matches!(
            entry.header.state,
            NeighbourState::Reachable | NeighbourState::Permanent | NeighbourState::Noarp
        );
        Ok(known.and_then(|known| known.mac).map(|mac| Resolved { mac, is_fresh }))
    }

    /// Has the kernel find out, or make sure, as if it had a packet to send.
    pub fn resolve(&mut self, ifindex: u32, of: IpAddr) -> io::Result<()> {
        let mut entry = neighbour(ifindex, of);
        entry.header.flags = NeighbourFlags::Use;
        self.0.ask(Message::NewNeighbour(entry), NLM_F_ACK | NLM_F_CREATE).map(drop)
    }

    /// Gives a device an address, so that the kernel answers for it.
    pub fn add_address(&mut self, ifindex: u32, of: IpAddr) -> io::Result<()> {
        self.0.ask(Message::NewAddress(address(ifindex, of)), NLM_F_ACK | NLM_F_CREATE).map(drop)
    }

    /// Takes it away again.
    pub fn remove_address(&mut self, ifindex: u32, of: IpAddr) -> io::Result<()> {
        self.0.ask(Message::DelAddress(address(ifindex, of)), NLM_F_ACK).map(drop)
    }

    /// The device with a number.
    pub fn device(&mut self, ifindex: u32) -> io::Result<Device> {
        let mut question = LinkMessage::default();
        question.header.index = ifindex;
        match self.0.ask(Message::GetLink(question), 0)? {
            Some(Message::NewLink(link)) => Ok(device(&link)),
            _ => Err(unexpected()),
        }
    }
}

fn next_hop(route: &RouteMessage, to: IpAddr) -> io::Result<NextHop> {
    if !matches!(route.header.kind, RouteType::Unicast | RouteType::Local) {
        return Err(io::Error::new(io::ErrorKind::NetworkUnreachable, "the route leads nowhere"));
    }
    let mut hop =
        NextHop { ifindex: 0, next: to, is_local: route.header.kind == RouteType::Local, mtu: None };
    for attribute in &route.attributes {
        match attribute {
            RouteAttribute::Oif(ifindex) => hop.ifindex = *ifindex,
            RouteAttribute::Gateway(RouteAddress::Inet(address)) => hop.next = (*address).into(),
            RouteAttribute::Gateway(RouteAddress::Inet6(address)) => hop.next = (*address).into(),
            RouteAttribute::Via(RouteVia::Inet(address)) => hop.next = (*address).into(),
            RouteAttribute::Via(RouteVia::Inet6(address)) => hop.next = (*address).into(),
            RouteAttribute::Metrics(metrics) => {
                hop.mtu = metrics.iter().find_map(|metric| match metric {
                    RouteMetric::Mtu(mtu) => Some(*mtu),
                    _ => None,
                });
            }
            _ => {}
        }
    }
    Ok(hop)
}

fn device(link: &LinkMessage) -> Device {
    let mut device = Device::default();
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::IfName(name) => device.name.clone_from(name),
            LinkAttribute::Address(bytes) => device.mac = bytes.as_slice().try_into().unwrap_or_default(),
            LinkAttribute::Mtu(mtu) => device.mtu = *mtu,
            _ => {}
        }
    }
    device
}

fn neighbour(ifindex: u32, of: IpAddr) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    (message.header.family, message.header.ifindex) = (family(of), ifindex);
    let destination = match of {
        IpAddr::V4(address) => NeighbourAddress::Inet(address),
        IpAddr::V6(address) => NeighbourAddress::Inet6(address),
    };
    message.attributes.push(NeighbourAttribute::Destination(destination));
    message
}

/// An address of one host. Nobody else can have it, so there is nothing to detect.
fn address(ifindex: u32, of: IpAddr) -> AddressMessage {
    let mut message = AddressMessage::default();
    (message.header.family, message.header.prefix_len, message.header.index) =
        (family(of), bits(of), ifindex);
    message.header.flags = AddressHeaderFlags::Nodad;
    message.attributes = vec![AddressAttribute::Local(of), AddressAttribute::Address(of)];
    message
}

#[cfg(test)]
mod tests {
    use sluice_netns::Netns;

    use super::*;

    #[test]
    fn ways_lead_through_gateways_to_neighbours() {
        let netns = Netns::create("routing").unwrap();
        let batch = "link set lo up\nlink add v0 address 02:00:00:00:00:01 mtu 1400 type veth peer name v1\n\
            link set v0 up\nlink set v1 up\naddr add 10.0.1.1/24 dev v0\naddr add fd00:1::1/64 dev v0 nodad\n\
            neigh add 10.0.1.2 lladdr 02:00:00:00:00:02 dev v0 nud permanent\n\
            neigh add fd00:1::2 lladdr 02:00:00:00:00:02 dev v0 nud stale\n\
            route add 10.1.0.0/16 via 10.0.1.2 mtu 1300\nroute add 10.2.0.0/16 via inet6 fd00:1::2 dev v0\n\
            route add fd01::/16 via fd00:1::2\nroute add blackhole 10.3.0.0/16\n";
        netns.ip_batch(batch).unwrap();
        let ifindex = netns.ifindex("v0").unwrap();
        let mut routing = netns.enter(Routing::open).unwrap().unwrap();
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        for (to, next, mtu) in [
            ("10.0.1.2", "10.0.1.2", None),
            ("10.1.2.3", "10.0.1.2", Some(1300)),
            ("10.2.2.3", "fd00:1::2", None),
            ("fd01::1", "fd00:1::2", None),
        ] {
            let hop = NextHop { ifindex, next: ip(next), is_local: false, mtu };
            assert_eq!(routing.next_hop(ip(to)).unwrap(), hop, "{to}");
        }
        assert!(routing.next_hop(ip("10.3.0.1")).is_err() && routing.next_hop(ip("10.4.0.1")).is_err());
        let device = Device { name: "v0".to_owned(), mac: [2, 0, 0, 0, 0, 1], mtu: 1400 };
        assert_eq!(routing.device(ifindex).unwrap(), device);
        for (of, is_fresh) in [("10.0.1.2", true), ("fd00:1::2", false)] {
            let wanted = Resolved { mac: [2, 0, 0, 0, 0, 2], is_fresh };
            assert_eq!(routing.neighbour(ifindex, ip(of)).unwrap(), Some(wanted), "{of}");
        }
        assert_eq!(routing.neighbour(ifindex, ip("10.0.1.9")).unwrap(), None);
        routing.resolve(ifindex, ip("10.0.1.9")).unwrap();
        assert!(netns.ip("neigh show to 10.0.1.9 dev v0 nud all").unwrap().contains("10.0.1.9"));
        // the way to an address of IPv6 leads here some time after it was added
        let has = |address: &str| netns.ip("addr show dev v0").unwrap().contains(&format!("{address}/"));
        for address in ["10.0.1.7", "fd00:1::7"] {
            routing.add_address(ifindex, ip(address)).unwrap();
            assert!(has(address), "{address}");
            routing.remove_address(ifindex, ip(address)).unwrap();
            assert!(!has(address), "{address}");
        }
    }

    #[test]
    fn the_kernel_tells_the_way_to_this_host() {
        let mut routing = Routing::open().unwrap();
        for address in ["127.0.0.1", "127.1.2.3"] {
            let hop = routing.next_hop(address.parse().unwrap()).unwrap();
            assert!(hop.is_local && hop.next == address.parse::<IpAddr>().unwrap());
            let device = routing.device(hop.ifindex).unwrap();
            assert_eq!((device.name.as_str(), device.mac), ("lo", [0; 6]));
            assert_eq!(routing.neighbour(hop.ifindex, "127.9.9.9".parse().unwrap()).unwrap(), None);
        }
        assert!(routing.device(u32::MAX >> 1).is_err());
    }
}
