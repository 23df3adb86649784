//! A test bed: Sluice with established sessions, and the floors with the same tuples in their tables.

use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Context, Result, ensure};
use sluice_dataplane::{Sizes, Tuple as FlowTuple};

use crate::gateway::{Action, Side, Site, Sluice, Tally, configuration};
use crate::harness::{Harness, Hook, Target};
use crate::packets::{
    CLIENTS4, CLIENTS6, Direction, Family, Protocol, SERVERS4, SERVERS6, TCP_ACK, TCP_SYN, Tuple, address4,
    address6,
};
use crate::verify::Ledger;

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
    /// What Sluice was given of the ring under way.
    pub ledger: Ledger,
    pub lan: Side,
    pub wan: Side,
    hooks: Vec<OfHook>,
}

/// What a hook has for itself.
struct OfHook {
    harness: Harness,
    root: OwnedFd,
    /// Sessions that the floor's table has room for, and those whose keys are in it.
    room: usize,
    filled: usize,
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
        let of_hook = |hook: &Hook| {
            let harness = Harness::load(*hook, family, 1, 2 * capacity, link_macs(&site.lan))?;
            Ok(OfHook { harness, root: sluice.root(*hook)?, room: 1, filled: 0 })
        };
        let hooks = hooks.iter().map(of_hook).collect::<Result<Vec<_>>>()?;
        let (lan, wan, ledger) = (site.lan, site.wan, Ledger::default());
        let ingress = lan.ifindex;
        Ok(Bed { sluice, family, protocol, ingress, filled: 0, capacity, slow: 0, ledger, lan, wan, hooks })
    }

    pub fn hooks(&self) -> Vec<Hook> {
        self.hooks.iter().map(|of_hook| of_hook.harness.hook).collect()
    }

    fn of_hook(&mut self, hook: Hook) -> &mut OfHook {
        let found = self.hooks.iter_mut().find(|of_hook| of_hook.harness.hook == hook);
        found.expect("a hook the bed was made for")
    }

    pub fn harness(&mut self, hook: Hook) -> &mut Harness {
        &mut self.of_hook(hook).harness
    }

    /// Sluice's root program, the beginning of the whole path.
    pub fn root(&self, hook: Hook) -> &OwnedFd {
        let found = self.hooks.iter().find(|of_hook| of_hook.harness.hook == hook);
        &found.expect("a hook the bed was made for").root
    }

    /// From now on Sluice gets the ring's packets.
    pub fn aim_at_root(&mut self, hook: Hook) -> Result<()> {
        let root = self.root(hook).try_clone()?;
        self.harness(hook).set_target(Target::Foreign(root.as_fd()))
    }

    /// Makes the floor's table anew, where it has another size than `room` sessions: a table that is larger than its keys
    /// need costs more memory accesses, and flatters what is compared with it.
    pub fn size_floor(&mut self, hook: Hook, room: usize) -> Result<()> {
        let (family, capacity, filled, macs) =
            (self.family, self.capacity, self.filled, link_macs(&self.lan));
        let floor = self.of_hook(hook);
        if (floor.room, floor.filled) == (room, filled) {
            return Ok(());
        }
        floor.harness = Harness::load(hook, family, room as u32, 2 * capacity, macs)?;
        (floor.room, floor.filled) = (room, filled);
        if filled > 0 {
            let insert = self.harness(hook).floor("insert");
            let sample = self.pass(hook, Some(&insert), 0, 0, filled, Direction::Initiator)?;
            ensure!(sample == (filled as u64, 0), "the floor took {sample:?} of {filled} sessions");
        }
        Ok(())
    }

    /// Brings every table to `sessions` sessions: Sluice's by first packets through its slow line, the handshake and an
    /// answer included, the floors', which are just as large, by their insert program.
    pub fn fill(&mut self, sessions: usize) -> Result<()> {
        let (first, count) = (self.filled, sessions - self.filled);
        if count == 0 {
            return Ok(());
        }
        self.open(self.hooks()[0], first, count)?;
        self.filled = sessions;
        for hook in self.hooks() {
            self.size_floor(hook, sessions)?;
        }
        // The first packet of a direction may still take the slow line, on whichever hook.
        self.pass(self.hooks()[0], None, TCP_ACK, 0, sessions, Direction::Both).map(drop)
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

/// Of frames that a host sends to the gateway: destination and source.
fn link_macs(side: &Side) -> ([u8; 6], [u8; 6]) {
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
