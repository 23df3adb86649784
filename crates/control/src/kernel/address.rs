//! Addresses.

use std::net::IpAddr;

use futures_util::TryStreamExt;
use netlink_packet_route::address::{
    AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage, AddressProtocol,
};
use sluice_language::config::Prefix;

use super::connection::{Kernel, PROTOCOL, Result};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Address {
    pub ifindex: u32,
    pub prefix: Prefix,
    /// Sluice added it: it carries [`PROTOCOL`].
    pub ours: bool,
    /// Others may know this host by it: neither tentative, on its way out, temporary nor of the link alone.
    pub lasting: bool,
}

impl Kernel {
    pub fn addresses(&self) -> Result<Vec<Address>> {
        let dump = async { self.netlink.address().get().execute().try_collect().await };
        let messages: Vec<AddressMessage> =
            self.wait(dump, || "list the addresses".to_owned(), "this is a defect; report it")?;
        Ok(messages.iter().filter_map(parse).collect())
    }

    pub fn add_address(&self, ifindex: u32, device: &str, prefix: Prefix) -> Result<()> {
        let mut request = self.netlink.address().add(ifindex, prefix.addr, prefix.len);
        let protocol = AddressAttribute::Protocol(AddressProtocol::Other(PROTOCOL));
        request.message_mut().attributes.push(protocol);
        if prefix.addr.is_ipv6() {
            // A gateway's own configured address works at once; the operator vouches that it is free.
            request.message_mut().header.flags |= AddressHeaderFlags::Nodad;
            request.message_mut().attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
        }
        let action = || format!("add address {}/{} to {device}", prefix.addr, prefix.len);
        self.wait(request.execute(), action, "check that no other device has it")
    }

    pub fn delete_address(&self, ifindex: u32, device: &str, prefix: Prefix) -> Result<()> {
        let mut message = self.netlink.address().add(ifindex, prefix.addr, prefix.len);
        let message = std::mem::take(message.message_mut());
        let action = || format!("remove address {}/{} from {device}", prefix.addr, prefix.len);
        self.wait(self.netlink.address().del(message).execute(), action, "check the device")
    }
}

fn parse(message: &AddressMessage) -> Option<Address> {
    let find = |local: bool| {
        message.attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::Local(addr) if local => Some(*addr),
            AddressAttribute::Address(addr) if !local => Some(*addr),
            _ => None,
        })
    };
    // On a point-to-point device IFA_ADDRESS is the other end and IFA_LOCAL ours.
    let addr: IpAddr = find(true).or_else(|| find(false))?;
    let protocol = AddressAttribute::Protocol(AddressProtocol::Other(PROTOCOL));
    let prefix = Prefix { addr, len: message.header.prefix_len };
    let passing = AddressHeaderFlags::Secondary
        | AddressHeaderFlags::Deprecated
        | AddressHeaderFlags::Tentative
        | AddressHeaderFlags::Dadfailed;
    let of_the_link = match addr {
        IpAddr::V4(addr) => addr.is_link_local(),
        IpAddr::V6(addr) => addr.is_unicast_link_local(),
    };
    Some(Address {
        ifindex: message.header.index,
        prefix,
        ours: message.attributes.contains(&protocol),
        lasting: !message.header.flags.intersects(passing) && !of_the_link,
    })
}
