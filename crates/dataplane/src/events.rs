//! Log events of the data plane, read from its ring buffer.

use std::cell::Cell;
use std::net::IpAddr;
use std::thread;
use std::time::Duration;

use libbpf_rs::{ErrorKind, RingBufferBuilder};
use zerocopy::FromBytes;

use crate::error::{Doing, Result};
use crate::records::{v4, v6};
use crate::{Dataplane, Tuple};

/// How long one wait lasts before it is asked whether to go on.
const PATIENCE: Duration = Duration::from_millis(200);
/// How long entries of the log may wait for others.
pub(crate) const GATHER: Duration = Duration::from_millis(2);

/// One record of `bpf/abi/event.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// As the session's first packet arrived.
    pub tuple: Tuple,
    /// The same as it leaves.
    pub out: Tuple,
    /// All of the record, as the data plane wrote it.
    pub raw: sluice_abi::Event,
}

impl Event {
    fn read(bytes: &[u8]) -> Option<Event> {
        let raw = sluice_abi::Event::read_from_bytes(bytes).ok()?;
        let address = |words: [u32; 4]| -> IpAddr {
            if raw.family == 4 { v4(words[0]).into() } else { v6(words).into() }
        };
        let tuple = |key: &sluice_abi::FlowKey6| Tuple {
            source: address(key.be_saddr).to_canonical(),
            source_port: u16::from_be(key.be_sport),
            destination: address(key.be_daddr).to_canonical(),
            destination_port: u16::from_be(key.be_dport),
            protocol: key.proto,
            routing_instance: key.routing_instance,
        };
        Some(Event { tuple: tuple(&raw.key), out: tuple(&raw.out), raw })
    }
}

impl Dataplane {
    /// Hands over events as they come, those of the time without a reader first, until `go_on` says no. There can be
    /// one reader at a time.
    pub fn watch_events(&self, go_on: impl Fn() -> bool, mut take: impl FnMut(Event)) -> Result<()> {
        self.watch_ring("events", "log events", GATHER, go_on, |bytes| {
            Event::read(bytes).into_iter().for_each(&mut take)
        })
    }

    /// Hands over the records of a ring. Where some came, more are let gather for a while: whoever waits for each is
    /// woken for each, which costs the data plane more than the record.
    pub(crate) fn watch_ring(
        &self,
        map: &str,
        what: &str,
        gather: Duration,
        go_on: impl Fn() -> bool,
        mut take: impl FnMut(&[u8]),
    ) -> Result<()> {
        let came = Cell::new(false);
        let mut builder = RingBufferBuilder::new();
        builder
            .add(self.state.map(map), |bytes| {
                take(bytes);
                came.set(true);
                0
            })
            .doing(|| format!("read the {what}"))?;
        let ring = builder.build().doing(|| format!("read the {what}"))?;
        while go_on() {
            match ring.poll(PATIENCE) {
                Err(error) if error.kind() != ErrorKind::Interrupted => {
                    return Err(error).doing(|| format!("wait for {what}"));
                }
                _ if came.take() => thread::sleep(gather),
                _ => {}
            }
        }
        Ok(())
    }
}
