//! This host's own addresses, which the data plane delivers instead of forwarding.

use std::net::IpAddr;
use std::sync::atomic::Ordering;

use libbpf_rs::{ErrorKind, MapCore, MapFlags};
use sluice_abi::{LOCAL_FILTER_SHIFT, LOCAL_LINK_SHIFT, LocalKey};
use zerocopy::{FromBytes, IntoBytes};

use crate::Dataplane;
use crate::error::{Doing, Result};
use crate::records::{address_words, words_address};

/// What an address of this host is to a packet sent to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LocalKind {
    /// One of this host's own: host-inbound-traffic decides.
    Address,
    /// Everybody's on a connected subnet, and the netdev of it; none where several have the same one.
    #[allow(missing_docs, reason = "said above")]
    Broadcast { ifindex: Option<u32> },
}

impl LocalKind {
    fn value(self) -> u32 {
        match self {
            LocalKind::Address => sluice_abi::LOCAL_ADDRESS,
            LocalKind::Broadcast { ifindex } => {
                let link = ifindex.filter(|ifindex| ifindex.leading_zeros() >= LOCAL_LINK_SHIFT);
                sluice_abi::LOCAL_BROADCAST | link.unwrap_or(0) << LOCAL_LINK_SHIFT
            }
        }
    }

    /// What an address is that two interfaces have: a host's own in one of them is its own.
    pub fn and(self, other: LocalKind) -> LocalKind {
        match (self, other) {
            (LocalKind::Broadcast { ifindex: one }, LocalKind::Broadcast { ifindex: two }) => {
                LocalKind::Broadcast { ifindex: one.filter(|_| one == two) }
            }
            _ => LocalKind::Address,
        }
    }
}

impl Dataplane {
    /// Adding an address twice is no error; the last kind counts.
    pub fn add_local_address(&self, routing_instance: u16, address: IpAddr, kind: LocalKind) -> Result<()> {
        let (word, bit) = filter_bit(address);
        self.local_filter.word(0, word).fetch_or(bit, Ordering::Release);
        self.state
            .map("local_addresses")
            .update(key(routing_instance, address).as_bytes(), kind.value().as_bytes(), MapFlags::ANY)
            .doing(|| format!("add local address {address}"))
    }

    /// True when it was there.
    pub fn remove_local_address(&self, routing_instance: u16, address: IpAddr) -> Result<bool> {
        match self.state.map("local_addresses").delete(key(routing_instance, address).as_bytes()) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            other => other.doing(|| format!("remove local address {address}")).map(|()| true),
        }
    }

    /// Routing instance and address, in no particular order.
    pub fn local_addresses(&self) -> Vec<(u16, IpAddr)> {
        let keys = self.state.map("local_addresses").keys();
        keys.filter_map(|bytes| LocalKey::read_from_bytes(&bytes).ok())
            .map(|key| (key.routing_instance, words_address(key.family, key.be_addr)))
            .collect()
    }

    /// Makes the table hold exactly these addresses, never less than what both states have in common.
    pub fn set_local_addresses(&self, wanted: &[(u16, IpAddr, LocalKind)]) -> Result<()> {
        for (instance, address, kind) in wanted {
            self.add_local_address(*instance, *address, *kind)?;
        }
        for (instance, address) in self.local_addresses() {
            if !wanted.iter().any(|(i, a, _)| (*i, *a) == (instance, address)) {
                self.remove_local_address(instance, address)?;
            }
        }
        Ok(())
    }
}

/// Where the filter says that this address may be local: offset of the word, and the bit in it.
fn filter_bit(address: IpAddr) -> (usize, u32) {
    let (_, words) = address_words(address);
    let x = words.into_iter().fold(0, |x, word| x ^ word);
    let bit = x.wrapping_mul(0x9e37_79b1) >> LOCAL_FILTER_SHIFT;
    (4 * (bit as usize / 32), 1 << (bit % 32))
}

fn key(routing_instance: u16, address: IpAddr) -> LocalKey {
    let (family, be_addr) = address_words(address);
    LocalKey { be_addr, routing_instance, family: family as u8, ..Default::default() }
}
