//! Neighbours: hosts on a link and their MAC addresses.

use std::net::IpAddr;

use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};

/// An entry of the kernel's table of neighbours (ARP, NDP).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Neighbour {
    /// Of the device behind which it is.
    pub ifindex: u32,
    /// Its IPv4 or IPv6 address.
    pub addr: IpAddr,
    /// None while it is not, or no longer, resolved.
    pub mac: Option<[u8; 6]>,
    /// Somebody has entered it by hand: it needs no probes.
    pub fixed: bool,
}

/// What a message of rtnetlink says of a neighbour; None where it says nothing that packets are sent by.
pub fn parse_neighbour(message: &NeighbourMessage) -> Option<Neighbour> {
    let usable = matches!(
        message.header.state,
        NeighbourState::Reachable
            | NeighbourState::Stale
            | NeighbourState::Delay
            | NeighbourState::Probe
            | NeighbourState::Permanent
            | NeighbourState::Noarp
    );
    let (mut addr, mut mac) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(a)) => addr = Some(IpAddr::V4(*a)),
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(a)) => addr = Some(IpAddr::V6(*a)),
            NeighbourAttribute::LinkLayerAddress(bytes) => mac = bytes.as_slice().try_into().ok(),
            _ => {}
        }
    }
    let fixed = matches!(message.header.state, NeighbourState::Permanent | NeighbourState::Noarp);
    Some(Neighbour { ifindex: message.header.ifindex, addr: addr?, mac: mac.filter(|_| usable), fixed })
}
