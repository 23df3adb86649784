//! What changes in the kernel beside what rtnetlink's library parses. Only that something has changed is asked, so no
//! message is read: rules, next-hop objects and who may forward (rtnetlink(7)), rulesets of nftables, policies of IPsec.

use std::io;
use std::thread;
use std::time::Duration;

use rtnetlink::MulticastGroup;
use rtnetlink::sys::{Socket, SocketAddr, protocols};

const ROUTING: [MulticastGroup; 5] = [
    MulticastGroup::Ipv4Rule,
    MulticastGroup::Ipv6Rule,
    MulticastGroup::Ipv4Netconf,
    MulticastGroup::Ipv6Netconf,
    MulticastGroup::Nexthop,
];

const LINKS: [MulticastGroup; 3] =
    [MulticastGroup::Link, MulticastGroup::Ipv4Ifaddr, MulticastGroup::Ipv6Ifaddr];

/// linux/netfilter/nfnetlink.h
const NFNLGRP_NFTABLES: u32 = 7;

/// linux/xfrm.h
const XFRMNLGRP_POLICY: u32 = 4;

/// The beginning of a message is as good as all of it.
const ENOUGH: usize = 64;

/// News of one kind, from the moment it is made.
#[derive(Debug)]
pub struct Notices(Socket);

impl Notices {
    pub fn of_routing() -> io::Result<Self> {
        Self::of(protocols::NETLINK_ROUTE, &ROUTING.map(|group| group as u32))
    }

    /// Devices and their addresses.
    pub fn of_links() -> io::Result<Self> {
        Self::of(protocols::NETLINK_ROUTE, &LINKS.map(|group| group as u32))
    }

    pub fn of_rulesets() -> io::Result<Self> {
        Self::of(protocols::NETLINK_NETFILTER, &[NFNLGRP_NFTABLES])
    }

    pub fn of_ipsec() -> io::Result<Self> {
        Self::of(protocols::NETLINK_XFRM, &[XFRMNLGRP_POLICY])
    }

    fn of(protocol: isize, groups: &[u32]) -> io::Result<Self> {
        let mut socket = Socket::new(protocol)?;
        socket.bind(&SocketAddr::new(0, 0))?;
        groups.iter().try_for_each(|group| socket.add_membership(*group))?;
        Ok(Self(socket))
    }

    /// A thread that looks at once, for what came before the subscription, and again so long after all news; until `look`
    /// says that notices are not wanted any more.
    pub fn watch(
        self,
        name: &'static str,
        pause: Duration,
        mut look: impl FnMut() -> bool + Send + 'static,
    ) -> io::Result<()> {
        let watch = move || {
            while look() {
                if let Err(error) = self.wait() {
                    return tracing::error!(%error, "{name}: the kernel tells nothing any more");
                }
                thread::sleep(pause);
            }
        };
        thread::Builder::new().name(name.to_owned()).spawn(watch).map(drop)
    }

    /// Returns when something has changed since the last call.
    fn wait(&self) -> io::Result<()> {
        match self.receive(0) {
            Err(error) if !is_news(&error) => return Err(error),
            _ => {}
        }
        // what else has come by now is the same news
        while self.receive(libc::MSG_DONTWAIT).is_ok() {}
        Ok(())
    }

    fn receive(&self, flags: i32) -> io::Result<usize> {
        self.0.recv(&mut Vec::with_capacity(ENOUGH), flags)
    }
}

/// More than there was room for, or a signal: something may have changed.
fn is_news(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENOBUFS) || error.kind() == io::ErrorKind::Interrupted
}
