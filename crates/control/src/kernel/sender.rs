//! The other end of a veth pair, which may be in another namespace: what it leaves to its receiver.

use std::os::fd::{AsFd, AsRawFd};

use futures_util::StreamExt;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::nsid::{NsidAttribute, NsidMessage};
use nix::net::if_::if_indextoname;
use rtnetlink::packet_core::{NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use sluice_netns::Namespace;
use sluice_plan::Sender;

use super::{Kernel, Link, ethtool};

impl Kernel {
    /// None where it cannot be seen: its namespace is hidden, as that of a container's host is, or may not be entered.
    pub fn sender(&self, link: &Link) -> Option<Sender> {
        let index = link.lower?;
        let Some(number) = link.lower_namespace else { return sender_at(index) };
        let mut namespaces = sluice_netns::all().into_iter();
        let namespace = namespaces.find(|namespace| self.namespace_number(namespace) == Some(number))?;
        namespace.enter(|| sender_at(index)).ok().flatten()
    }

    /// Under which number our namespace knows another.
    fn namespace_number(&self, namespace: &Namespace) -> Option<i32> {
        let mut message = NsidMessage::default();
        message.attributes.push(NsidAttribute::Fd(namespace.as_fd().as_raw_fd() as u32));
        let mut request = NetlinkMessage::from(RouteNetlinkMessage::GetNsId(message));
        request.header.flags = NLM_F_REQUEST;
        let mut netlink = self.netlink.clone();
        let ask = async {
            let mut answers = netlink.request(request)?;
            while let Some(answer) = answers.next().await {
                if let NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewNsId(answer)) = answer.payload {
                    return Ok(answer.attributes.iter().find_map(|attribute| match attribute {
                        NsidAttribute::Id(number) => Some(*number).filter(|number| *number >= 0),
                        _ => None,
                    }));
                }
            }
            Ok(None)
        };
        self.wait(ask, || "ask for a namespace's number".to_owned(), "this is a defect; report it").ok()?
    }
}

fn sender_at(index: u32) -> Option<Sender> {
    let name = if_indextoname(index).ok()?.into_string().ok()?;
    ethtool::sender(&name).ok()
}
