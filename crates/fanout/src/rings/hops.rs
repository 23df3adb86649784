//! Which device and which MAC addresses packets to a receiver get: as the kernel has it, looked up again and again.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use sluice_netlink::Routing;

use super::{AGAIN, FRESHEN};
use crate::counters::Drop;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hop {
    pub ifindex: u32,
    /// Destination and source, as a frame begins.
    pub macs: [u8; 12],
    pub mtu: u32,
}

/// A receiver that cannot be reached has a reason.
pub type Found = Result<Hop, Drop>;

#[derive(Debug, Default)]
pub struct Hops {
    table: Mutex<Arc<HashMap<IpAddr, Found>>>,
    version: AtomicU64,
    /// A packet had nowhere to go.
    missed: AtomicBool,
}

impl Hops {
    pub fn table(&self) -> Arc<HashMap<IpAddr, Found>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes with the table.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Has the next look-up come soon.
    pub fn miss(&self) {
        self.missed.store(true, Ordering::Relaxed);
    }

    pub fn publish(&self, table: HashMap<IpAddr, Found>) {
        let mut present = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        if **present != table {
            *present = Arc::new(table);
            self.version.fetch_add(1, Ordering::Release);
        }
    }
}

/// Asks the kernel; one a namespace.
pub struct Finder {
    routing: Routing,
    /// When neighbours were last used as if by a packet of the kernel's own.
    freshened: HashMap<IpAddr, Instant>,
    looked: Option<Instant>,
}

impl Finder {
    pub fn open() -> io::Result<Finder> {
        Ok(Finder { routing: Routing::open()?, freshened: HashMap::new(), looked: None })
    }

    /// Whether it is time to look again.
    pub fn is_due(&self, hops: &Hops) -> bool {
        let unresolved = hops.missed.swap(false, Ordering::Relaxed)
            || hops.table().values().any(|found| *found == Err(Drop::NoNextHop));
        unresolved || self.looked.is_none_or(|looked| looked.elapsed() > AGAIN)
    }

    /// Looks all of them up.
    pub fn find(&mut self, addresses: impl Iterator<Item = IpAddr>) -> HashMap<IpAddr, Found> {
        self.looked = Some(Instant::now());
        addresses.map(|address| (address, self.one(address))).collect()
    }

    fn one(&mut self, address: IpAddr) -> Found {
        let hop = self.routing.next_hop(address).map_err(|_| Drop::NoRoute)?;
        if hop.is_local {
            return Err(Drop::NoRoute);
        }
        let neighbour = self.routing.neighbour(hop.ifindex, hop.next).unwrap_or_default();
        let wants = neighbour.is_none_or(|neighbour| !neighbour.is_fresh);
        let lately = self.freshened.get(&hop.next).is_some_and(|then| then.elapsed() < FRESHEN);
        if wants && !lately {
            self.freshened.insert(hop.next, Instant::now());
            if let Err(error) = self.routing.resolve(hop.ifindex, hop.next) {
                tracing::debug!(next_hop = %hop.next, %error, "cannot ask for its MAC address");
            }
        }
        let neighbour = neighbour.ok_or(Drop::NoNextHop)?;
        let device = self.routing.device(hop.ifindex).map_err(|_| Drop::NoRoute)?;
        let mut macs = [0; 12];
        macs[..6].copy_from_slice(&neighbour.mac);
        macs[6..].copy_from_slice(&device.mac);
        Ok(Hop { ifindex: hop.ifindex, macs, mtu: hop.mtu.unwrap_or(device.mtu).min(device.mtu) })
    }

    /// Devices that packets to these addresses leave through, resolved or not.
    pub fn devices(&mut self, addresses: impl Iterator<Item = IpAddr>) -> Vec<u32> {
        let hops = addresses.filter_map(|address| self.routing.next_hop(address).ok());
        let mut devices: Vec<u32> = hops.filter(|hop| !hop.is_local).map(|hop| hop.ifindex).collect();
        devices.sort_unstable();
        devices.dedup();
        devices
    }

    pub fn name(&mut self, ifindex: u32) -> io::Result<String> {
        Ok(self.routing.device(ifindex)?.name)
    }

    pub fn mtu(&mut self, ifindex: u32) -> io::Result<u32> {
        Ok(self.routing.device(ifindex)?.mtu)
    }

    pub fn give_address(&mut self, ifindex: u32, address: IpAddr) -> io::Result<()> {
        self.routing.add_address(ifindex, address)
    }

    pub fn take_address(&mut self, ifindex: u32, address: IpAddr) -> io::Result<()> {
        self.routing.remove_address(ifindex, address)
    }

    pub fn is_local(&mut self, address: IpAddr) -> bool {
        self.routing.next_hop(address).is_ok_and(|hop| hop.is_local)
    }
}
