//! Neighbours: what the data plane's next hops are resolved by.

use std::net::IpAddr;

use futures_util::TryStreamExt;
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};

use super::{Kernel, Result};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Neighbour {
    pub ifindex: u32,
    pub addr: IpAddr,
    /// None while it is not, or no longer, resolved.
    pub mac: Option<[u8; 6]>,
}

impl Kernel {
    pub fn neighbours(&self) -> Result<Vec<Neighbour>> {
        let dump = async { self.netlink.neighbours().get().execute().try_collect().await };
        let messages: Vec<NeighbourMessage> =
            self.wait(dump, || "list the neighbours".to_owned(), "this is a defect; report it")?;
        Ok(messages.iter().filter_map(parse_neighbour).collect())
    }

    /// NTF_USE: tells the kernel that an entry is in use, so that it keeps probing it. Redirected packets do not.
    pub fn use_neighbour(&self, ifindex: u32, addr: IpAddr) -> Result<()> {
        let request = self.netlink.neighbours().add(ifindex, addr);
        let request = request.state(NeighbourState::None).flags(NeighbourFlags::Use).replace();
        let action = || format!("refresh neighbour {addr} on ifindex {ifindex}");
        self.wait(request.execute(), action, "check the device")
    }
}

pub fn parse_neighbour(message: &NeighbourMessage) -> Option<Neighbour> {
    let usable = matches!(
        message.header.state,
        NeighbourState::Reachable
            | NeighbourState::Stale
            | NeighbourState::Delay
            | NeighbourState::Probe
            | NeighbourState::Permanent
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
    Some(Neighbour { ifindex: message.header.ifindex, addr: addr?, mac: mac.filter(|_| usable) })
}
