//! Packets: a generator on live frames with a number and a time in every frame, and a receiver that finds what was lost,
//! doubled, reordered or corrupted.

pub mod control;
pub mod frame;
pub mod generator;
pub(crate) mod latency;
pub mod numbers;
pub mod pair;
pub mod pcap;
pub mod receiver;
pub mod socket;
mod xsk;

use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Context, Result};
use libbpf_rs::{MapCore, Object, ObjectBuilder};
use sluice_lab::netns::Netns;
use sluice_libbpf::Link;

pub use frame::{Addresses, Size};
pub use generator::{Generator, Order, Running, Sent};
pub use receiver::{Received, Receiver};

use crate::generator::link::{Target, attach};

#[repr(align(8))]
struct Aligned<const N: usize>([u8; N]);

static OBJECT: &Aligned<{ include_bytes!(concat!(env!("OUT_DIR"), "/wire.bpf.o")).len() }> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/wire.bpf.o")));

/// A device, and the namespace in which it is one; None for the caller's own.
#[derive(Debug, Clone, Copy)]
pub struct Device<'a> {
    /// None = the caller's namespace.
    pub netns: Option<&'a Netns>,
    /// In that namespace.
    pub ifindex: u32,
}

impl<'a> Device<'a> {
    /// In a namespace of its own.
    pub fn new(netns: &'a Netns, ifindex: u32) -> Device<'a> {
        Device { netns: Some(netns), ifindex }
    }

    /// Runs `work` on a thread in the device's namespace.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        match self.netns {
            Some(netns) => Ok(netns.enter(work)?),
            None => Ok(work()),
        }
    }
}

/// The programs of bpf/bench/wire.bpf.c with maps of their own.
pub(crate) struct Programs {
    object: Object,
}

impl Programs {
    /// `room` sets the entries of the maps that a user of the programs needs; the others hold one.
    fn load(room: &[(&str, u32)]) -> Result<Programs> {
        let mut open =
            ObjectBuilder::default().open_memory(&OBJECT.0).context("cannot open the generator's object")?;
        for mut map in open.maps_mut() {
            let wanted = room.iter().find(|(name, _)| map.name() == *name);
            if let Some((_, entries)) = wanted {
                map.set_max_entries(*entries)?;
            }
        }
        let object = open.load().context("cannot load the generator (root and Linux 6.8 are needed)")?;
        Ok(Programs { object })
    }

    fn map(&self, name: &str) -> Result<libbpf_rs::Map<'_>> {
        let found = self.object.maps().find(|map| map.name() == name);
        found.with_context(|| format!("the generator's object has no map {name}"))
    }

    fn program(&self, name: &str) -> Result<OwnedFd> {
        let found = self.object.progs().find(|program| program.name() == name);
        let found = found.with_context(|| format!("the generator's object has no program {name}"))?;
        Ok(found.as_fd().try_clone_to_owned()?)
    }

    /// The program leaves the device when the descriptor is dropped.
    fn attach(&self, program: &str, device: Device<'_>, target: Target) -> Result<Link> {
        let fd = self.program(program)?;
        device.enter(|| attach(fd.as_fd(), device.ifindex, target))?
    }
}
