//! Proxied addresses: what this host answers ARP and neighbour solicitations for besides its own.

use std::net::IpAddr;

use futures_util::TryStreamExt;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourHeader, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::RouteProtocol;

use super::connection::{Kernel, PROTOCOL, Result};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proxied {
    pub ifindex: u32,
    pub addr: IpAddr,
    /// Added by Sluice.
    pub ours: bool,
}

impl Kernel {
    pub fn proxied(&self) -> Result<Vec<Proxied>> {
        let mut all = vec![];
        // Without a family the kernel lists no proxies.
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let dump = async {
                self.netlink
                    .neighbours()
                    .get()
                    .set_address_family(family)
                    .proxies()
                    .execute()
                    .try_collect()
                    .await
            };
            let messages: Vec<NeighbourMessage> =
                self.wait(dump, || "list the proxied addresses".to_owned(), "this is a defect; report it")?;
            all.extend(messages.iter().filter_map(parse));
        }
        Ok(all)
    }

    pub fn add_proxied(&self, ifindex: u32, device: &str, addr: IpAddr) -> Result<()> {
        let mut request = self.netlink.neighbours().add(ifindex, addr);
        request.message_mut().attributes.push(NeighbourAttribute::Protocol(RouteProtocol::Other(PROTOCOL)));
        let request = request.flags(NeighbourFlags::Proxy).replace();
        let action = || format!("answer for {addr} on {device}");
        self.wait(request.execute(), action, "check the device")
    }

    pub fn delete_proxied(&self, ifindex: u32, addr: IpAddr) -> Result<()> {
        let (family, destination) = match addr {
            IpAddr::V4(addr) => (AddressFamily::Inet, NeighbourAddress::Inet(addr)),
            IpAddr::V6(addr) => (AddressFamily::Inet6, NeighbourAddress::Inet6(addr)),
        };
        let mut message = NeighbourMessage::default();
        message.header = NeighbourHeader {
            family,
            ifindex,
            state: NeighbourState::Permanent,
            flags: NeighbourFlags::Proxy,
            ..Default::default()
        };
        message.attributes.push(NeighbourAttribute::Destination(destination));
        let request = self.netlink.neighbours().del(message);
        let action = || format!("stop answering for {addr} on ifindex {ifindex}");
        self.wait(request.execute(), action, "check `ip neighbour show proxy`")
    }
}

fn parse(message: &NeighbourMessage) -> Option<Proxied> {
    let mut addr = None;
    let mut ours = false;
    for attribute in &message.attributes {
        match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(a)) => addr = Some(IpAddr::V4(*a)),
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(a)) => addr = Some(IpAddr::V6(*a)),
            NeighbourAttribute::Protocol(protocol) => ours = *protocol == RouteProtocol::Other(PROTOCOL),
            _ => {}
        }
    }
    Some(Proxied { ifindex: message.header.ifindex, addr: addr?, ours })
}
