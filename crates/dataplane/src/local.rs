//! This host's own addresses, which the data plane delivers instead of forwarding.

use std::net::IpAddr;

use libbpf_rs::{ErrorKind, MapCore, MapFlags};
use sluice_abi::LocalKey;
use zerocopy::{FromBytes, IntoBytes};

use crate::Dataplane;
use crate::error::{Doing, Result};
use crate::records::{address_words, words_address};

/// What an address of this host is to a packet sent to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum LocalKind {
    /// One of this host's own: host-inbound-traffic decides.
    Address = sluice_abi::LOCAL_ADDRESS,
    /// Everybody's on a connected subnet: the host's, like multicast.
    Broadcast = sluice_abi::LOCAL_BROADCAST,
}

impl Dataplane {
    /// Adding an address twice is no error; the last kind counts.
    pub fn add_local_address(&self, routing_instance: u16, address: IpAddr, kind: LocalKind) -> Result<()> {
        self.state
            .map("local_addresses")
            .update(key(routing_instance, address).as_bytes(), (kind as u32).as_bytes(), MapFlags::ANY)
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

fn key(routing_instance: u16, address: IpAddr) -> LocalKey {
    let (family, be_addr) = address_words(address);
    LocalKey { be_addr, routing_instance, family: family as u8, ..Default::default() }
}
