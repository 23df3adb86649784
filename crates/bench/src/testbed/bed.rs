//! A test bed: Sluice with established sessions, and the floors with the same tuples in their tables.

use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Context, Result, ensure};
use sluice_dataplane::{Sizes, Tuple as FlowTuple};

use crate::generator::harness::{Harness, Hook, Macs, Sample, Target};
use crate::generator::packets::{
    CLIENTS4, CLIENTS6, Direction, Family, Protocol, SERVERS4, SERVERS6, TCP_ACK, TCP_SYN, Tuple, address4,
    address6,
};
use crate::generator::site::{Side, Site};
use crate::testbed::gateway::{Action, Sluice, Tally, configuration};
use crate::testbed::ledger::Ledger;

/// One family and protocol on both hooks, which share Sluice's flow table and the floors'.
pub struct Bed {
    pub sluice: Sluice,
    pub family: Family,
    pub protocol: Protocol,
    pub ingress: u32,
    pub filled: usize,
    pub capacity: u32,
    /// Packets of the row under way that took the slow path.
    pub slow: u64,
    /// What Sluice was given of the ring under way.
    pub ledger: Ledger,
    pub lan: Side,
    pub wan: Side,
    floors: Floors,
    /// a second copy elsewhere in memory (A/A).
    again: Option<Floors>,
    roots: Vec<(Hook, OwnedFd)>,
}

/// A ring, a floor table and, for each hook, the programs that use them.
struct Floors {
    harnesses: Vec<Harness>,
    /// Of the table.
    slots: u32,
    /// Sessions whose keys are in it.
    filled: usize,
}

impl Floors {
    fn load(hooks: &[Hook], family: Family, slots: u32, packets: u32, macs: Macs) -> Result<Floors> {
        let first = Harness::load(hooks[0], family, slots, packets, macs)?;
        let others = hooks[1..].iter().map(|hook| first.sharing(*hook)).collect::<Result<Vec<_>>>()?;
        let harnesses = [first].into_iter().chain(others).collect();
        Ok(Floors { harnesses, slots, filled: 0 })
    }

    fn harness(&mut self, hook: Hook) -> &mut Harness {
        let found = self.harnesses.iter_mut().find(|harness| harness.hook == hook);
        found.expect("a hook the bed was made for")
    }

    /// Puts the keys of so many sessions into the empty table.
    fn insert(&mut self, protocol: Protocol, sessions: usize, ingress: u32) -> Result<()> {
        let harness = &mut self.harnesses[0];
        harness.set_packets(protocol, 0, 0, sessions, Direction::Initiator)?;
        harness.set_target(Target::Own(&harness.floor("insert")))?;
        let Sample { hits, misses, .. } = harness.run(sessions as u32, ingress)?;
        ensure!(hits == sessions as u64, "the floor took {hits} of {sessions} sessions and refused {misses}");
        self.filled = sessions;
        Ok(())
    }
}

/// Of a floor's table for so many sessions. The kernel makes a power of two of buckets: what is rounded here as well
/// costs a lookup nothing, and rows whose tables have as many buckets share them.
fn slots(sessions: usize) -> u32 {
    (2 * sessions.max(1)).next_power_of_two() as u32
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
        let floors = Floors::load(hooks, family, slots(1), 2 * capacity, link_macs(&site.lan))?;
        let root = |hook: &Hook| Ok((*hook, sluice.root(*hook)?));
        let roots = hooks.iter().map(root).collect::<Result<Vec<_>>>()?;
        Ok(Bed {
            sluice,
            family,
            protocol,
            ingress: site.lan.ifindex,
            filled: 0,
            capacity,
            slow: 0,
            ledger: Ledger::default(),
            lan: site.lan,
            wan: site.wan,
            floors,
            again: None,
            roots,
        })
    }

    pub fn hooks(&self) -> Vec<Hook> {
        self.roots.iter().map(|(hook, _)| *hook).collect()
    }

    pub fn harness(&mut self, hook: Hook) -> &mut Harness {
        self.floors.harness(hook)
    }

    /// Sluice's root program, the beginning of the whole path.
    pub fn root(&self, hook: Hook) -> &OwnedFd {
        let found = self.roots.iter().find(|(of, _)| *of == hook);
        &found.expect("a hook the bed was made for").1
    }

    /// From now on Sluice gets the ring's packets.
    pub fn aim_at_root(&mut self, hook: Hook) -> Result<()> {
        let root = self.root(hook).try_clone()?;
        self.harness(hook).set_target(Target::Foreign(root.as_fd()))
    }

    /// Makes the floors' table anew, where it has another size than `room` sessions want: a table that is larger than its
    /// keys need costs more memory accesses, and flatters what is compared with it.
    pub fn size_floor(&mut self, room: usize) -> Result<()> {
        if !self.fits(&self.floors, room) {
            self.floors = self.floors_for(room)?;
        }
        Ok(())
    }

    /// The same for the second copy of the table, which the row now needs.
    pub fn size_again(&mut self, room: usize) -> Result<()> {
        if !self.again.as_ref().is_some_and(|again| self.fits(again, room)) {
            self.again = None;
            self.again = Some(self.floors_for(room)?);
        }
        Ok(())
    }

    fn fits(&self, floors: &Floors, room: usize) -> bool {
        (floors.slots, floors.filled) == (slots(room), self.filled)
    }

    fn floors_for(&self, room: usize) -> Result<Floors> {
        let (hooks, macs) = (self.hooks(), link_macs(&self.lan));
        let mut floors = Floors::load(&hooks, self.family, slots(room), 2 * self.capacity, macs)?;
        if self.filled > 0 {
            floors.insert(self.protocol, self.filled, self.ingress)?;
        }
        Ok(floors)
    }

    /// Does something with the second copy of the floors.
    pub fn instead<T>(&mut self, work: impl FnOnce(&mut Bed) -> Result<T>) -> Result<T> {
        self.exchange();
        let done = work(self);
        self.exchange();
        done
    }

    fn exchange(&mut self) {
        let again = self.again.as_mut().expect("size_again comes before");
        std::mem::swap(&mut self.floors, again);
    }

    /// Brings every table to `sessions` sessions: Sluice's by first packets through its slow path, the handshake and an
    /// answer included, the floors', which are just as large, by their insert program.
    pub fn fill(&mut self, sessions: usize) -> Result<()> {
        let (first, count) = (self.filled, sessions - self.filled);
        if count == 0 {
            return Ok(());
        }
        self.open(self.hooks()[0], first, count)?;
        self.filled = sessions;
        self.size_floor(sessions)?;
        // The first packet of a direction may still take the slow path, on whichever hook.
        self.pass(self.hooks()[0], TCP_ACK, 0, sessions, Direction::Both)
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
            self.pass(hook, flags, first, count, direction)?;
        }
        let tally = Tally::read(&self.sluice.dataplane)?.since(before);
        ensure!(
            tally.sessions == count as u64 && tally.redirected == packets && tally.dropped == 0,
            "{packets} packets that open {count} sessions gave {tally:?}; {}",
            self.reasons()?
        );
        Ok(())
    }

    /// Sends one packet of each through Sluice.
    pub fn pass(
        &mut self,
        hook: Hook,
        flags: u8,
        first: usize,
        count: usize,
        direction: Direction,
    ) -> Result<()> {
        let (protocol, ingress) = (self.protocol, self.ingress);
        self.harness(hook).set_packets(protocol, flags, first, count, direction)?;
        self.aim_at_root(hook)?;
        let harness = self.harness(hook);
        harness.run(harness.distinct_packets(), ingress).map(drop)
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

/// Of frames that a host sends to the gateway.
fn link_macs(side: &Side) -> Macs {
    (side.mac, side.host_mac)
}

pub fn flow_tuple(tuple: Tuple, family: Family, protocol: Protocol) -> FlowTuple {
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
