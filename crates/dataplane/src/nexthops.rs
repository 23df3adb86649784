//! The next-hop table: the slow path writes entries, the daemon keeps their MAC addresses true.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::offset_of;
use std::net::IpAddr;
use std::sync::atomic::Ordering;

use libbpf_rs::{ErrorKind, MapCore, MapFlags};
use sluice_abi::{
    FLOW_LIVE, FLOW_NAT64, FlowLine4, FlowLine6, MAX_NEXTHOPS, NEXTHOP_LEFT, NEXTHOP_MTU_SHIFT,
    NEXTHOP_RESOLVED, NEXTHOP_TUNNEL, NEXTHOP_VALID, NEXTHOPS_HAVE_MTUS, Nexthop, NexthopKey, Watermarks,
};
use zerocopy::{FromBytes, IntoBytes};

use crate::Dataplane;
use crate::error::{Doing, Error, Result};
use crate::records::{FlowTable, Line, address_words, words_address};
use crate::sessions::age;

const FLAGS: usize = offset_of!(Nexthop, flags);
const RETIRED: usize = offset_of!(Watermarks, nexthops_retired);
/// dmac is the first six bytes of the word it shares with the first two of smac.
const DMAC: usize = offset_of!(Nexthop, dmac);

/// A next hop as the index knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NexthopEntry {
    /// Index into the table of next hops.
    pub index: u32,
    /// Device whose neighbour table resolves it.
    pub host_ifindex: u32,
    /// Of the gateway, or of the destination itself when it is on the link.
    pub address: IpAddr,
    /// Of the routes that lead to it, where it is less than the unit's; else 0.
    pub mtu: u16,
}

impl NexthopEntry {
    fn key(&self) -> NexthopKey {
        let (family, be_addr) = address_words(self.address);
        let family = family | u32::from(self.mtu) << NEXTHOP_MTU_SHIFT;
        NexthopKey { host_ifindex: self.host_ifindex, family, be_addr }
    }
}

impl Dataplane {
    /// What the data plane has for it. Fails for an index beyond the table.
    pub fn nexthop(&self, index: u32) -> Result<Nexthop> {
        check(index)?;
        Ok(self.nexthops.read(index))
    }

    /// Indices of the entries for each of these neighbours: one, and one more for each MTU that its routes have. Where
    /// routes have some, the index is read once for all of them.
    pub fn find_nexthops(&self, neighbours: &[(u32, IpAddr)]) -> Result<Vec<Vec<u32>>> {
        if self.watermarks.word(0, RETIRED).load(Ordering::Acquire) & NEXTHOPS_HAVE_MTUS == 0 {
            let find = |(host_ifindex, address): &(u32, IpAddr)| {
                let key = NexthopEntry { index: 0, host_ifindex: *host_ifindex, address: *address, mtu: 0 };
                Ok(self.nexthop_number(&key.key())?.into_iter().collect())
            };
            return neighbours.iter().map(find).collect();
        }
        let mut known: BTreeMap<(u32, IpAddr), Vec<u32>> = BTreeMap::new();
        for entry in self.nexthops()? {
            known.entry((entry.host_ifindex, entry.address)).or_default().push(entry.index);
        }
        Ok(neighbours.iter().map(|neighbour| known.get(neighbour).cloned().unwrap_or_default()).collect())
    }

    fn nexthop_number(&self, key: &NexthopKey) -> Result<Option<u32>> {
        let value = self
            .state
            .map("nexthop_index")
            .lookup(key.as_bytes(), MapFlags::ANY)
            .doing(|| "look up a next hop".to_owned())?;
        Ok(value.and_then(|bytes| u32::read_from_bytes(&bytes).ok()))
    }

    /// Every entry in the index, in no particular order.
    pub fn nexthops(&self) -> Result<Vec<NexthopEntry>> {
        let map = self.state.map("nexthop_index");
        let mut entries = Vec::new();
        for bytes in map.keys() {
            let Ok(key) = NexthopKey::read_from_bytes(&bytes) else { continue };
            let address = words_address(key.family as u8, key.be_addr);
            let mtu = (key.family >> NEXTHOP_MTU_SHIFT) as u16;
            if let Some(index) = self.nexthop_number(&key)? {
                entries.push(NexthopEntry { index, host_ifindex: key.host_ifindex, address, mtu });
            }
        }
        Ok(entries)
    }

    /// A neighbour answered: packets take its MAC address from the next one on. True when it was another before.
    pub fn set_nexthop_mac(&self, index: u32, mac: [u8; 6]) -> Result<bool> {
        check(index)?;
        let mut low = [0; 8];
        low[..6].copy_from_slice(&mac);
        let (low, mask) =
            (u64::from_ne_bytes(low), u64::from_ne_bytes([0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0]));
        let word = self.nexthops.long(index, DMAC);
        let before = word.load(Ordering::Relaxed);
        word.store((before & !mask) | low, Ordering::Release);
        let flags = self.nexthops.byte(index, FLAGS).fetch_or(NEXTHOP_RESOLVED, Ordering::Release);
        Ok(before & mask != low || flags & NEXTHOP_RESOLVED == 0)
    }

    /// A neighbour failed: packets go to the kernel's neighbour code until it answers. True when it was resolved. Where
    /// tunnels begin there is no neighbour that could.
    pub fn unresolve_nexthop(&self, index: u32) -> Result<bool> {
        check(index)?;
        if self.nexthops.read(index).flags & NEXTHOP_TUNNEL != 0 {
            return Ok(false);
        }
        let flags = self.nexthops.byte(index, FLAGS).fetch_and(!NEXTHOP_RESOLVED, Ordering::Release);
        Ok(flags & NEXTHOP_RESOLVED != 0)
    }

    /// Says whether routes have left it, so that its flows are judged again at the next stamp, however many others wait for
    /// that. True when it was the other way.
    pub fn leave_nexthop(&self, index: u32, left: bool) -> Result<bool> {
        check(index)?;
        let flags = self.nexthops.byte(index, FLAGS);
        let before = match left {
            true => flags.fetch_or(NEXTHOP_LEFT, Ordering::Release),
            false => flags.fetch_and(!NEXTHOP_LEFT, Ordering::Release),
        };
        Ok((before & NEXTHOP_LEFT != 0) != left)
    }

    /// Some destinations of each of these next hops that live flows use, as their packets leave: behind it rather than
    /// itself. Reads every flow.
    pub fn nexthop_destinations(
        &self,
        entries: &[NexthopEntry],
        most: usize,
    ) -> BTreeMap<u32, BTreeSet<IpAddr>> {
        let mut found = Destinations { of: BTreeMap::new(), most };
        found.of.extend(entries.iter().map(|entry| (entry.index, (entry.address, BTreeSet::new()))));
        found.read(&self.flows4, |line: &FlowLine4| words_address(4, [line.key.be_saddr, 0, 0, 0]));
        found.read(&self.flows6, |line: &FlowLine6| words_address(6, line.key.be_saddr));
        found.of.into_iter().map(|(index, (_, destinations))| (index, destinations)).collect()
    }

    /// Gives back entries that are not in use ([`Dataplane::free_unused_nexthops`]), and says whose the others are: each
    /// neighbour once, however many entries it has, if it has answered. Who never did is asked for by packets alone, which
    /// are bounded (RFC 6583).
    pub fn neighbours_in_use(&self, idle_s: u32) -> Result<BTreeSet<(u32, IpAddr)>> {
        self.free_unused_nexthops(idle_s)?;
        let has_answered = |entry: &NexthopEntry| {
            let flags = self.nexthops.read(entry.index).flags;
            flags & (NEXTHOP_RESOLVED | NEXTHOP_TUNNEL) == NEXTHOP_RESOLVED
        };
        let entries = self.nexthops()?.into_iter().filter(has_answered);
        Ok(entries.map(|entry| (entry.host_ifindex, entry.address)).collect())
    }

    /// Gives back entries that no flow refers to and no first packet asked for since `idle_s` seconds.
    ///
    /// An entry leaves the index first, and what CPUs have cached of it becomes invalid, so that no packet can use it; once every
    /// program that had looked it up has ended, the flows are searched again, and only then its number becomes free.
    pub fn free_unused_nexthops(&self, idle_s: u32) -> Result<usize> {
        let limit = u64::from(idle_s) * u64::from(self.hz());
        let now = self.now_jiffies()?;
        let used = self.nexthops_in_use();
        let is_unused = |entry: &NexthopEntry| {
            let idle = age(now, self.nexthops.read(entry.index).last_used);
            !used[entry.index as usize] && u64::from(idle) > limit
        };
        let unused: Vec<NexthopEntry> = self.nexthops()?.into_iter().filter(is_unused).collect();
        if unused.is_empty() {
            return Ok(0);
        }
        let index = self.state.map("nexthop_index");
        for entry in &unused {
            match index.delete(entry.key().as_bytes()) {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                other => other.doing(|| format!("take next hop {} out of the index", entry.address))?,
            }
        }
        self.watermarks.word(0, RETIRED).fetch_add(1, Ordering::Release);
        self.grace()?;
        let used = self.nexthops_in_use();
        let (kept, freed): (Vec<_>, Vec<_>) =
            unused.into_iter().partition(|entry| used[entry.index as usize]);
        for entry in kept {
            // a newer entry for the same neighbour serves new flows just as well
            let _ = index.update(entry.key().as_bytes(), entry.index.as_bytes(), MapFlags::NO_EXIST);
        }
        for entry in &freed {
            let flags = !(NEXTHOP_VALID | NEXTHOP_RESOLVED | NEXTHOP_LEFT);
            self.nexthops.byte(entry.index, FLAGS).fetch_and(flags, Ordering::Release);
            self.state
                .map("free_nexthops")
                .update(&[], entry.index.as_bytes(), MapFlags::ANY)
                .doing(|| format!("give back next hop {}", entry.index))?;
        }
        Ok(freed.len())
    }
}

struct Destinations {
    /// With the next hop's own address, by its number.
    of: BTreeMap<u32, (IpAddr, BTreeSet<IpAddr>)>,
    most: usize,
}

impl Destinations {
    /// Packets of a line go, translated or not, to whoever the line beside it, of the answers, comes from.
    fn read<L: Line>(&mut self, table: &FlowTable<L>, sender: impl Fn(&L) -> IpAddr) {
        for line in table.numbers().flat_map(|number| [2 * number, 2 * number + 1]) {
            let state = table.state(line);
            if state.flags & FLOW_LIVE == 0 || state.flags & FLOW_NAT64 != 0 {
                continue;
            }
            let Some((own, found)) = self.of.get_mut(&u32::from(state.nexthop)) else { continue };
            if found.len() < self.most || found.contains(own) {
                let destination = sender(&table.lines.read(line ^ 1));
                if found.len() == self.most && destination != *own {
                    found.remove(own);
                }
                found.insert(destination);
            }
        }
    }
}

fn check(index: u32) -> Result<()> {
    if index < MAX_NEXTHOPS as u32 {
        Ok(())
    } else {
        Err(Error::NoNexthop { index, limit: MAX_NEXTHOPS as u32 })
    }
}
