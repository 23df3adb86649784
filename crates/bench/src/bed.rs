//! A test bed: Sluice with established sessions, and the floors with the same tuples in their tables.

use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Context, Result, ensure};
use sluice_dataplane::{Sizes, Tuple as FlowTuple};

use crate::gateway::{Action, Site, Sluice, Tally, configuration};
use crate::harness::{Harness, Hook, Target};
use crate::packets::{
    CLIENTS4, CLIENTS6, Direction, Family, Protocol, SERVERS4, SERVERS6, TCP_ACK, TCP_SYN, Tuple, address4,
    address6,
};

/// One family and protocol on both hooks. The hooks share Sluice's flow table; each harness has a floor of its own.
pub struct Bed {
    pub sluice: Sluice,
    pub family: Family,
    pub protocol: Protocol,
    pub ingress: u32,
    pub filled: usize,
    pub capacity: u32,
    /// Packets of the row under way that took the slow line.
    pub slow: u64,
    sides: Vec<(Harness, OwnedFd)>,
}

/// Sessions that the product's tables have room for when nobody says otherwise.
pub const DEFAULT_CAPACITY: u32 = 1 << 16;
const OTHER_FAMILY: u32 = 1024;

impl Bed {
    /// Call it on a thread inside the gateway's namespace, and keep it there.
    pub fn new(
        site: &Site,
        hooks: &[Hook],
        family: Family,
        protocol: Protocol,
        capacity: u32,
    ) -> Result<Bed> {
        Bed::with(site, &configuration(hooks[0].into(), Action::Permit), hooks, family, protocol, capacity)
    }

    /// The same with a configuration of one's own, in text.
    pub fn with(
        site: &Site,
        text: &str,
        hooks: &[Hook],
        family: Family,
        protocol: Protocol,
        capacity: u32,
    ) -> Result<Bed> {
        let sizes = match family {
            Family::V4 => Sizes { sessions4: capacity, sessions6: OTHER_FAMILY, ..Sizes::default() },
            Family::V6 => Sizes { sessions4: OTHER_FAMILY, sessions6: capacity, ..Sizes::default() },
        };
        let sluice = Sluice::start_with(site, text, sizes, false)?;
        let macs = (site.lan.mac, site.lan.host_mac);
        let side = |hook: &Hook| {
            let harness = Harness::load(*hook, family, capacity, 2 * capacity, macs)?;
            Ok((harness, sluice.root(*hook)?))
        };
        let sides = hooks.iter().map(side).collect::<Result<Vec<_>>>()?;
        Ok(Bed { sluice, family, protocol, ingress: site.lan.ifindex, filled: 0, capacity, slow: 0, sides })
    }

    pub fn hooks(&self) -> Vec<Hook> {
        self.sides.iter().map(|(harness, _)| harness.hook).collect()
    }

    pub fn harness(&mut self, hook: Hook) -> &mut Harness {
        let found = self.sides.iter_mut().find(|(harness, _)| harness.hook == hook);
        &mut found.expect("a hook the bed was made for").0
    }

    /// Sluice's root program, the beginning of the whole path.
    pub fn root(&self, hook: Hook) -> &OwnedFd {
        let found = self.sides.iter().find(|(harness, _)| harness.hook == hook);
        &found.expect("a hook the bed was made for").1
    }

    /// Brings every table to `sessions` sessions: Sluice's by first packets through its slow line, the handshake and an
    /// answer included, the floors' by their insert program.
    pub fn fill(&mut self, sessions: usize) -> Result<()> {
        let (first, count) = (self.filled, sessions - self.filled);
        if count == 0 {
            return Ok(());
        }
        for hook in self.hooks() {
            let insert = self.harness(hook).floor("insert");
            let sample = self.pass(hook, Some(&insert), 0, first, count, Direction::Initiator)?;
            ensure!(sample == (count as u64, 0), "the floor took {sample:?} of {count} sessions");
        }
        self.open(self.hooks()[0], first, count)?;
        self.filled = sessions;
        // The first packet of a direction may still take the slow line; both hooks' programs have run after this.
        for hook in self.hooks() {
            self.pass(hook, None, TCP_ACK, 0, sessions, Direction::Both)?;
        }
        Ok(())
    }

    /// Sends the first packets of sessions through Sluice.
    pub fn open(&mut self, hook: Hook, first: usize, count: usize) -> Result<()> {
        let before = Tally::read(&self.sluice.dataplane)?;
        let opening = match self.protocol {
            Protocol::Udp => vec![(0, Direction::Initiator), (0, Direction::Responder)],
            Protocol::Tcp => vec![
                (TCP_SYN, Direction::Initiator),
                (TCP_SYN | TCP_ACK, Direction::Responder),
                (TCP_ACK, Direction::Initiator),
            ],
        };
        let packets = (count * opening.len()) as u64;
        for (flags, direction) in opening {
            self.pass(hook, None, flags, first, count, direction)?;
        }
        let tally = Tally::read(&self.sluice.dataplane)?.since(before);
        ensure!(
            tally.sessions == count as u64 && tally.redirected == packets && tally.dropped == 0,
            "{packets} packets that open {count} sessions gave {tally:?}; {}",
            self.reasons()?
        );
        Ok(())
    }

    /// One pass over a ring; returns the floor's (hits, misses).
    pub fn pass(
        &mut self,
        hook: Hook,
        floor: Option<&str>,
        flags: u8,
        first: usize,
        count: usize,
        direction: Direction,
    ) -> Result<(u64, u64)> {
        let (protocol, ingress) = (self.protocol, self.ingress);
        let root = self.root(hook).try_clone()?;
        let harness = self.harness(hook);
        harness.set_packets(protocol, flags, first, count, direction)?;
        harness.set_target(floor.map_or(Target::Foreign(root.as_fd()), Target::Own))?;
        let packets = harness.distinct_packets();
        let sample = harness.run(packets, ingress)?;
        Ok((sample.hits, sample.misses))
    }

    /// Ends sessions again, by the same way as `sluice clear sessions`.
    pub fn close(&mut self, first: usize, count: usize) -> Result<()> {
        let mut ids = Vec::with_capacity(count);
        for session in first..first + count {
            let tuple = flow_tuple(Tuple::of_session(session), self.family, self.protocol);
            let found = self.sluice.dataplane.find_session(&tuple)?;
            let found = found.with_context(|| format!("session {session} has vanished"))?;
            ids.push(found.id);
        }
        self.sluice.dataplane.delete_sessions(&ids)?;
        Ok(())
    }

    /// Names and numbers of drops so far.
    pub fn reasons(&self) -> Result<String> {
        let drops = self.sluice.dataplane.counters()?.total_drops();
        let reasons = drops.named().map(|(reason, count)| format!("{} {count}", reason.name()));
        let text = reasons.collect::<Vec<_>>().join(", ");
        Ok(if text.is_empty() { "nothing dropped".to_owned() } else { format!("dropped: {text}") })
    }
}

fn flow_tuple(tuple: Tuple, family: Family, protocol: Protocol) -> FlowTuple {
    let (source, destination): (IpAddr, IpAddr) = match family {
        Family::V4 => (address4(CLIENTS4, tuple.client).into(), address4(SERVERS4, tuple.server).into()),
        Family::V6 => (address6(CLIENTS6, tuple.client).into(), address6(SERVERS6, tuple.server).into()),
    };
    FlowTuple {
        source,
        source_port: tuple.client_port,
        destination,
        destination_port: tuple.server_port,
        protocol: match protocol {
            Protocol::Udp => 17,
            Protocol::Tcp => 6,
        },
        routing_instance: 0,
    }
}
