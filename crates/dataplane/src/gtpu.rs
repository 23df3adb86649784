//! GTP-U sessions: lines that programs find by TEID and by address, and what many of them share. Layouts are in bpf/abi/gtpu.h.
//!
//! Nothing of a session is remembered here but what the maps say, so a daemon that starts finds them as the last one left them. A
//! session's number is the place of its line by TEID.

mod copies;
mod flows;
mod lines;
mod shared;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::mem::offset_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::slice;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use libbpf_rs::{MapCore, MapHandle};
use sluice_abi::{
    GTPU_DOWNLINK, GTPU_FOREVER, GTPU_TO_PEER, GTPU_UPLINK, GtpuLine, GtpuPeer, GtpuRules, gtpu_decided,
    gtpu_decision,
};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::error::{Doing, Error, Result};
use crate::gtpu_room::{DOWNLINKS, UPLINKS, downlink_slots_for, entries, slots_for, slots_of};
use crate::mmap::{Array, array};
use crate::state::State;
use crate::{Dataplane, Session, SessionId, Sizes};
pub use flows::FlowUsage;
use flows::{FlowBook, Flows};
use lines::{Key, Lines};
use shared::Shared;

/// The other end of tunnels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Peer {
    /// Our address of the tunnels.
    pub local: IpAddr,
    /// Theirs; of the same family.
    pub remote: IpAddr,
    /// Device that has ours.
    pub ifindex: u32,
}

/// Where packets to a subscriber go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tunnel {
    /// Who is there.
    pub peer: Peer,
    /// By which the peer knows the session.
    pub teid: u32,
}

/// A session, as it is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GtpuSession {
    /// By which this gateway knows it; not 0.
    pub teid: u32,
    /// The subscriber's IPv4 address.
    pub address: Option<Ipv4Addr>,
    /// The /64 of the subscriber's IPv6 addresses.
    pub prefix: Option<Ipv6Addr>,
    /// Where packets to the subscriber go.
    pub tunnel: Tunnel,
    /// What packets meet. Filters are those that [`Gtpu::keep_filters`] has numbered.
    pub rules: GtpuRules,
    /// Bytes of inner packets, by direction, that may pass in all.
    pub quota: [Option<u64>; 2],
}

/// Inner packets that passed, by direction: [`sluice_abi::GTPU_UPLINK`], [`sluice_abi::GTPU_DOWNLINK`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GtpuUsage {
    /// IP bytes.
    pub bytes: [u64; 2],
    /// Packets.
    pub packets: [u64; 2],
}

/// A session that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GtpuRecord {
    /// Its number, until it is removed.
    pub number: u32,
    /// As it was asked for.
    pub session: GtpuSession,
    /// What passed.
    pub usage: GtpuUsage,
    /// What passed of its flows, by precedence, since it has its rules.
    pub flows: Vec<FlowUsage>,
}

/// What is known of the other end of tunnels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerRecord {
    /// Which.
    pub peer: Peer,
    /// Directions of sessions that lead there; and sets of rules and configurations whose copies do.
    pub lines: u32,
    /// Messages that came from there.
    pub received: u64,
    /// Jiffies of the last one; 0 = none.
    pub last_received: u64,
}

/// Why a session is not made, or not changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "its variants and their fields are what their messages name")]
pub enum GtpuRefused {
    #[error("TEID 0 is for messages of no session (TS 29.281 5.1); choose another")]
    NoTeid,
    #[error("TEID {0:#010x} belongs to another session; remove that first, or choose another")]
    TeidInUse(u32),
    #[error("{0} belongs to another session; remove that first, or choose another")]
    AddressInUse(IpAddr),
    #[error(
        "a session that is no relay needs an IPv4 address or an IPv6 prefix of 64 bits that is not all zero"
    )]
    NoAddress,
    #[error("{local} and {remote} cannot be the ends of one tunnel: they are of different families")]
    Families { local: IpAddr, remote: IpAddr },
    #[error(
        "there is no room for another {what}: {limit} are possible; remove some, or raise sessions-maximum"
    )]
    Full { what: &'static str, limit: u32 },
    #[error("no session has number {0}")]
    NoSession(u32),
    #[error("its rules have flows that are not there any more; commit the configuration anew")]
    NoFilters,
    #[error("the tunnel of its copies is not there any more; commit the configuration anew")]
    NoCopies,
}

/// The sessions of one data plane.
#[derive(Debug)]
pub struct Gtpu {
    uplinks: Lines,
    downlinks: Lines,
    rules: Array<GtpuRules>,
    peers: Array<GtpuPeer>,
    /// Once some configuration has some.
    flows: OnceLock<Flows>,
    slots: u32,
    book: Mutex<Book>,
}

/// Who may write, and what is in use of the tables that sessions share.
#[derive(Debug)]
struct Book {
    sessions: u32,
    /// Direction and place of lines that belong to no whole session.
    halves: Vec<(u32, u32)>,
    /// Places of lines by address, of whose sessions only the line by TEID has changed.
    behind: Vec<u32>,
    rules: Shared<[u8; size_of::<GtpuRules>()]>,
    peers: Shared<Peer>,
    flows: FlowBook,
    /// Peers of copies in the configuration in force: sessions may come whose rules name them.
    copies: Vec<u32>,
}

impl Book {
    fn new(slots: u32) -> Book {
        Book {
            sessions: 0,
            halves: vec![],
            behind: vec![],
            rules: Shared::new("set of rules", entries("gtpu_rules", [slots; 2])),
            peers: Shared::new("peer", entries("gtpu_peers", [slots; 2])),
            flows: FlowBook::default(),
            copies: vec![],
        }
    }
}

fn mapped<T: FromBytes + IntoBytes + Immutable + Copy>(map: &MapHandle, name: &str) -> Result<Array<T>> {
    array(map).doing(|| format!("map {name}"))
}

impl Gtpu {
    /// None as long as there is no room for sessions.
    pub(crate) fn open(state: &State) -> Result<Option<Gtpu>> {
        let slots = slots_of(state.map(UPLINKS).max_entries());
        if slots == 0 {
            return Ok(None);
        }
        let gtpu = Gtpu {
            uplinks: Lines::of(mapped(state.map(UPLINKS), UPLINKS)?).by_teid(),
            downlinks: Lines::of(mapped(state.map(DOWNLINKS), DOWNLINKS)?),
            rules: mapped(state.map("gtpu_rules"), "gtpu_rules")?,
            peers: mapped(state.map("gtpu_peers"), "gtpu_peers")?,
            flows: Flows::open(state)?.map_or_else(OnceLock::new, OnceLock::from),
            slots,
            book: Mutex::new(Book::new(slots)),
        };
        gtpu.take_stock();
        Ok(Some(gtpu))
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds what an earlier process has left. Whoever only reads may see a session that another process is about to make, so
    /// the half of one stays here.
    fn take_stock(&self) {
        let mut book = self.book();
        if let Some(flows) = self.flows.get() {
            book.flows = flows.book();
        }
        let mut is_owned = vec![false; self.downlinks.places() as usize];
        for number in 0..self.uplinks.places() {
            let Some(up) = self.uplinks.get(number) else { continue };
            let Some(below) = self.whole(&up) else {
                book.halves.push((GTPU_UPLINK, number));
                continue;
            };
            book.sessions += 1;
            self.note(&mut book, &up);
            for (place, line) in below {
                is_owned[place as usize] = true;
                self.note(&mut book, &line);
                if (up.decision, up.flows) != (line.decision, line.flows) {
                    book.behind.push(place);
                }
            }
        }
        let is_of_nobody = |place: &u32| !is_owned[*place as usize] && self.downlinks.get(*place).is_some();
        let of_nobody = (0..self.downlinks.places()).filter(is_of_nobody);
        book.halves.extend(of_nobody.map(|place| (GTPU_DOWNLINK, place)));
        book.rules.rest_is_free();
        book.peers.rest_is_free();
        book.flows.filters.rest_is_free();
    }

    /// Lines by address of a line by TEID: all are there, and none of them, nor itself, is closed.
    fn whole(&self, line: &GtpuLine) -> Option<Vec<(u32, GtpuLine)>> {
        let is_open = |line: &GtpuLine| gtpu_decided(line.decision).1 != 0;
        let below = self.below(line)?;
        let is_own = |down: &GtpuLine| down.session == line.session && is_open(down);
        (is_open(line) && below.iter().all(|(_, down)| is_own(down))).then_some(below)
    }

    /// Finishes what a process did not live to: sessions that are not whole are removed, and those that have changed in part
    /// change altogether. For who makes sessions, before the first.
    fn finish(&self) {
        let mut book = self.book();
        for (direction, place) in std::mem::take(&mut book.halves) {
            let lines = if direction == GTPU_UPLINK { &self.uplinks } else { &self.downlinks };
            lines.close(place);
            lines.remove(place);
        }
        for place in std::mem::take(&mut book.behind) {
            let Some(line) = self.downlinks.get(place) else { continue };
            let Some(up) = self.uplinks.get(line.session) else { continue };
            self.note(&mut book, &GtpuLine { decision: up.decision, flows: up.flows, ..line });
            self.downlinks.decide(place, up.decision, lines::block_of(&up), line.quota);
            self.leave(&mut book, line.decision);
            if up.flows != line.flows {
                book.flows.blocks.leave(lines::block_of(&line));
            }
        }
    }

    fn note(&self, book: &mut Book, line: &GtpuLine) {
        let (_, rules, peer) = gtpu_decided(line.decision);
        if rules == 0 || rules >= self.rules.len() || peer >= self.peers.len() {
            return;
        }
        book.flows.blocks.mark(lines::block_of(line));
        let mut bytes = [0; size_of::<GtpuRules>()];
        let entry = self.rules.read(rules);
        bytes.copy_from_slice(entry.as_bytes());
        if book.rules.get(rules).is_none() {
            self.note_filters(book, entry.filters.into());
            self.note_copies(book, slice::from_ref(&entry));
        }
        book.rules.use_of(rules, bytes);
        if let Some(found) = peer_of(&self.peers.read(peer)) {
            book.peers.use_of(peer, found);
        }
    }

    /// Places of the lines by address that a line by TEID has, and these; None if one of them is missing.
    fn below(&self, line: &GtpuLine) -> Option<Vec<(u32, GtpuLine)>> {
        let at = |place| Some((place, self.downlinks.get(place)?));
        keys_of(line).into_iter().map(|key| self.downlinks.find(key).and_then(at)).collect()
    }

    /// Places of lines by TEID, which is twice as many as there is room for sessions; and of lines by address.
    pub fn slots(&self) -> [u32; 2] {
        [self.slots, slots_of(self.downlinks.places())]
    }

    /// Sessions that there is room for.
    pub fn capacity(&self) -> u32 {
        self.slots / 2
    }

    /// Sessions that are there.
    pub fn len(&self) -> u32 {
        self.book().sessions
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes a session: its packets pass from here on.
    ///
    /// # Errors
    /// When TEID or address belong to another session, or a table is full. Then nothing has changed.
    pub fn add(&self, session: &GtpuSession) -> Result<u32, GtpuRefused> {
        let mut book = self.book();
        let line = line_of(session)?;
        self.check_keys(&line)?;
        let full = GtpuRefused::Full { what: "session", limit: self.capacity() };
        if book.sessions >= self.capacity() {
            return Err(full);
        }
        let place = self.uplinks.vacant(Key::Teid(line.teid)).ok_or(full)?;
        let keys = keys_of(&line);
        let mut below = Vec::new();
        for key in &keys {
            // two keys of one session never want the same place: the first is not there yet
            let vacant = self.downlinks.vacant_but(*key, &below).ok_or(full)?;
            below.push(vacant);
        }
        let block = self.take_block(&mut book, &session.rules)?;
        let decided = self.decide(&mut book, &session.tunnel, &session.rules, 1 + keys.len() as u32);
        let decision = decided.inspect_err(|_| book.flows.blocks.put_back(block))?;
        let line = lines::with_block(GtpuLine { session: place, decision, ..line }, block);
        for (key, at) in keys.iter().zip(&below) {
            let shared = if *at == below[0] { 0 } else { below[0] + 1 };
            self.downlinks.insert(*at, downlink_of(&line, *key, shared, quota_of(session.quota[1])));
        }
        self.uplinks.insert(place, line);
        book.sessions += 1;
        Ok(place)
    }

    fn check_keys(&self, line: &GtpuLine) -> Result<(), GtpuRefused> {
        if self.uplinks.find(Key::Teid(line.teid)).is_some() {
            return Err(GtpuRefused::TeidInUse(line.teid));
        }
        match keys_of(line).into_iter().find(|key| self.downlinks.find(*key).is_some()) {
            Some(Key::Prefix(prefix)) => Err(GtpuRefused::AddressInUse(prefix_of(prefix).into())),
            Some(Key::Address(address)) => Err(GtpuRefused::AddressInUse(address_of(address).into())),
            _ => Ok(()),
        }
    }

    /// A decision for so many lines.
    fn decide(
        &self,
        book: &mut Book,
        tunnel: &Tunnel,
        rules: &GtpuRules,
        lines: u32,
    ) -> Result<u64, GtpuRefused> {
        let entry = entry_of(&tunnel.peer)?;
        let mut bytes = [0; size_of::<GtpuRules>()];
        bytes.copy_from_slice(rules.as_bytes());
        let (peer, is_new) = book.peers.take(tunnel.peer)?;
        if is_new {
            self.peers.write(peer, entry);
        }
        let (set, is_new) = book.rules.take(bytes).inspect_err(|_| {
            book.peers.leave(peer);
        })?;
        if is_new && let Err(refused) = book.share_of(rules) {
            book.peers.leave(peer);
            book.rules.leave(set);
            return Err(refused);
        }
        if is_new {
            self.rules.write(set, *rules);
        }
        for _ in 1..lines {
            // both are there: they are only counted
            book.peers.use_of(peer, tunnel.peer);
            book.rules.use_of(set, bytes);
        }
        Ok(gtpu_decision(tunnel.teid, set, peer))
    }

    fn leave(&self, book: &mut Book, decision: u64) {
        let (_, rules, peer) = gtpu_decided(decision);
        if book.rules.leave(rules) {
            let entry = self.rules.read(rules);
            self.leave_filters(book, entry.filters.into());
            book.leave_copies(slice::from_ref(&entry));
        }
        book.peers.leave(peer);
    }

    /// Gives a session another tunnel and other rules, of which each packet meets the old ones or the new ones; and quotas.
    ///
    /// # Errors
    /// When there is no such session, or a table is full. Then nothing has changed.
    pub fn change(
        &self,
        number: u32,
        tunnel: &Tunnel,
        rules: &GtpuRules,
        quota: [Option<u64>; 2],
    ) -> Result<(), GtpuRefused> {
        let mut book = self.book();
        let line = self.uplinks.get(number).ok_or(GtpuRefused::NoSession(number))?;
        let below = self.below(&line).unwrap_or_default();
        let before: Vec<GtpuLine> = [line].into_iter().chain(below.iter().map(|(_, down)| *down)).collect();
        let blocks = blocks_of(&before);
        // what passed of flows goes on with them
        let filters = [self.filters_of(line.decision), rules.filters];
        let stays = blocks.len() == 1 && self.have_same_flows(&mut book, filters);
        let block = if stays { blocks[0] } else { self.take_block(&mut book, rules)? };
        let decided = self.decide(&mut book, tunnel, rules, before.len() as u32);
        let decision = decided.inspect_err(|_| {
            if !stays {
                book.flows.blocks.put_back(block);
            }
        })?;
        self.uplinks.decide(number, decision, block, quota_of(quota[0]));
        for (place, _) in &below {
            self.downlinks.decide(*place, decision, block, quota_of(quota[1]));
        }
        if before.iter().any(|old| self.rates_of(old.decision) != (rules.cost, rules.tolerance)) {
            self.uplinks.forget_arrival(number);
            below.iter().for_each(|(place, _)| self.downlinks.forget_arrival(*place));
        }
        before.iter().for_each(|old| self.leave(&mut book, old.decision));
        blocks.into_iter().filter(|old| *old != block).for_each(|old| book.flows.blocks.leave(old));
        Ok(())
    }

    fn rules_of(&self, decision: u64) -> GtpuRules {
        let (_, rules, _) = gtpu_decided(decision);
        if rules < self.rules.len() { self.rules.read(rules) } else { GtpuRules::default() }
    }

    fn filters_of(&self, decision: u64) -> u16 {
        self.rules_of(decision).filters
    }

    fn rates_of(&self, decision: u64) -> ([u64; 2], [u64; 2]) {
        let rules = self.rules_of(decision);
        (rules.cost, rules.tolerance)
    }

    /// Ends sessions: none of their packets passes any more. What is returned has all that did.
    pub(crate) fn remove(&self, numbers: &[u32], grace: impl Fn() -> Result<()>) -> Result<Vec<GtpuRecord>> {
        let mut book = self.book();
        let closed = |number: &u32| {
            let line = self.uplinks.get(*number)?;
            let below = self.below(&line).unwrap_or_default();
            self.uplinks.close(*number);
            below.iter().for_each(|(place, _)| self.downlinks.close(*place));
            Some((*number, line, below))
        };
        let lines: Vec<_> = numbers.iter().filter_map(closed).collect();
        // programs that had read the decision count until here
        grace().inspect_err(|_| {
            for (number, line, below) in &lines {
                self.uplinks.reopen(*number, line);
                below.iter().for_each(|(place, line)| self.downlinks.reopen(*place, line));
            }
        })?;
        let records =
            lines.iter().filter_map(|(number, line, _)| self.record(*number, line.decision)).collect();
        for (number, line, below) in lines {
            self.leave(&mut book, line.decision);
            book.flows.blocks.leave(lines::block_of(&line));
            below.iter().for_each(|(place, line)| {
                self.leave(&mut book, line.decision);
                self.downlinks.remove(*place);
            });
            self.uplinks.remove(number);
            book.sessions -= 1;
        }
        Ok(records)
    }

    /// A session by its number.
    pub fn get(&self, number: u32) -> Option<GtpuRecord> {
        self.record(number, self.uplinks.get(number)?.decision)
    }

    fn record(&self, number: u32, decision: u64) -> Option<GtpuRecord> {
        let up = self.uplinks.get(number)?;
        let first = keys_of(&up).first().and_then(|key| self.downlinks.get(self.downlinks.find(*key)?));
        let down = first.unwrap_or(GtpuLine { quota: GTPU_FOREVER, ..Default::default() });
        let (teid, rules, peer) = gtpu_decided(decision);
        let peer = peer_of(&(peer < self.peers.len()).then(|| self.peers.read(peer))?)?;
        let forever = |quota| (quota != GTPU_FOREVER).then_some(quota);
        let rules = (rules < self.rules.len()).then(|| self.rules.read(rules))?;
        let flows = self.flows.get().map(|flows| flows.usage(&rules, lines::block_of(&up)));
        Some(GtpuRecord {
            number,
            session: GtpuSession {
                teid: up.teid,
                address: (up.be_addr4 != 0).then(|| address_of(up.be_addr4)),
                prefix: (up.be_prefix6 != 0).then(|| prefix_of(up.be_prefix6)),
                tunnel: Tunnel { peer, teid },
                rules,
                quota: [forever(up.quota), forever(down.quota)],
            },
            usage: GtpuUsage { bytes: [up.bytes, down.bytes], packets: [up.packets, down.packets] },
            flows: flows.unwrap_or_default(),
        })
    }

    /// The number of the session that messages with this TEID belong to.
    pub fn find_teid(&self, teid: u32) -> Option<u32> {
        (teid != 0).then(|| self.uplinks.find(Key::Teid(teid)))?
    }

    /// The number of the session that a subscriber's address belongs to.
    pub fn find_address(&self, address: IpAddr) -> Option<u32> {
        let key = match address {
            IpAddr::V4(address) => Key::Address(be_address(address)),
            IpAddr::V6(address) => Key::Prefix(be_prefix(address)),
        };
        Some(self.downlinks.get(self.downlinks.find(key)?)?.session)
    }

    /// Sessions from this number on, at most so many.
    pub fn list(&self, from: u32, limit: usize) -> Vec<GtpuRecord> {
        (from..self.uplinks.places()).filter_map(|number| self.get(number)).take(limit).collect()
    }

    /// The other ends of tunnels.
    pub fn peers(&self) -> Vec<PeerRecord> {
        let book = self.book();
        let in_use = (1..=book.peers.limit()).filter_map(|number| Some((number, book.peers.get(number)?)));
        let record = |(number, peer): (u32, Peer)| {
            let entry = self.peers.read(number);
            let lines = book.peers.users[number as usize].0;
            PeerRecord { peer, lines, received: entry.received, last_received: entry.last_received }
        };
        in_use.map(record).collect()
    }

    /// Has programs ask the kernel anew where peers are reached.
    pub fn forget_routes(&self) {
        for number in 1..self.peers.len() {
            self.peers.long(number, offset_of!(GtpuPeer, nexthop)).store(0, Ordering::Relaxed);
        }
    }
}

/// Blocks of a session's lines: one, but where a process did not live to change them all.
fn blocks_of(lines: &[GtpuLine]) -> Vec<u32> {
    let mut blocks: Vec<u32> = lines.iter().map(lines::block_of).collect();
    blocks.sort_unstable();
    blocks.dedup();
    blocks
}

fn quota_of(quota: Option<u64>) -> u64 {
    quota.unwrap_or(GTPU_FOREVER)
}

fn be_address(address: Ipv4Addr) -> u32 {
    u32::from_ne_bytes(address.octets())
}

fn address_of(be_addr: u32) -> Ipv4Addr {
    be_addr.to_ne_bytes().into()
}

fn be_prefix(prefix: Ipv6Addr) -> u64 {
    let mut half = [0; 8];
    half.copy_from_slice(&prefix.octets()[..8]);
    u64::from_ne_bytes(half)
}

fn prefix_of(be_prefix: u64) -> Ipv6Addr {
    let mut octets = [0; 16];
    octets[..8].copy_from_slice(&be_prefix.to_ne_bytes());
    octets.into()
}

/// Keys of a session's lines by address; the first is that of the line that counts.
fn keys_of(line: &GtpuLine) -> Vec<Key> {
    let address = (line.be_addr4 != 0).then_some(Key::Address(line.be_addr4));
    let prefix = (line.be_prefix6 != 0).then_some(Key::Prefix(line.be_prefix6));
    address.into_iter().chain(prefix).collect()
}

/// The line by TEID, but for what is decided.
fn line_of(session: &GtpuSession) -> Result<GtpuLine, GtpuRefused> {
    let line = GtpuLine {
        teid: session.teid,
        be_addr4: session.address.map_or(0, be_address),
        be_prefix6: session.prefix.map_or(0, be_prefix),
        quota: quota_of(session.quota[0]),
        ..Default::default()
    };
    match () {
        () if line.teid == 0 => Err(GtpuRefused::NoTeid),
        () if line.be_addr4 == 0 && line.be_prefix6 == 0 && !is_relay(&session.rules) => {
            Err(GtpuRefused::NoAddress)
        }
        () => Ok(line),
    }
}

/// What comes under the TEID goes on in another tunnel: nobody looks for a subscriber.
fn is_relay(rules: &GtpuRules) -> bool {
    u32::from(rules.flags) & GTPU_TO_PEER != 0
}

fn downlink_of(line: &GtpuLine, key: Key, shared: u32, quota: u64) -> GtpuLine {
    let (be_addr4, be_prefix6) = match key {
        Key::Prefix(prefix) => (0, prefix),
        Key::Address(address) => (address, 0),
        Key::Teid(_) => (0, 0),
    };
    GtpuLine { teid: shared, be_addr4, be_prefix6, quota, ..*line }
}

/// The address that a session has, or the first of its prefix.
fn subscriber_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => prefix_of(be_prefix(address)).into(),
    }
}

fn words_of(address: IpAddr) -> [u32; 4] {
    match address {
        IpAddr::V4(address) => [be_address(address), 0, 0, 0],
        IpAddr::V6(address) => {
            let (mut words, octets) = ([0; 4], address.octets());
            for (word, four) in words.iter_mut().zip(octets.chunks_exact(4)) {
                *word = u32::from_ne_bytes([four[0], four[1], four[2], four[3]]);
            }
            words
        }
    }
}

fn entry_of(peer: &Peer) -> Result<GtpuPeer, GtpuRefused> {
    if peer.local.is_ipv4() != peer.remote.is_ipv4() {
        return Err(GtpuRefused::Families { local: peer.local, remote: peer.remote });
    }
    Ok(GtpuPeer {
        be_local: words_of(peer.local),
        be_remote: words_of(peer.remote),
        ifindex: peer.ifindex,
        family: if peer.local.is_ipv4() { 4 } else { 6 },
        ..Default::default()
    })
}

fn peer_of(entry: &GtpuPeer) -> Option<Peer> {
    let address = |words: [u32; 4]| match entry.family {
        4 => Some(IpAddr::from(address_of(words[0]))),
        6 => {
            let mut octets = [0; 16];
            octets.copy_from_slice(words.as_bytes());
            Some(IpAddr::from(octets))
        }
        _ => None,
    };
    Some(Peer { local: address(entry.be_local)?, remote: address(entry.be_remote)?, ifindex: entry.ifindex })
}

impl Dataplane {
    /// GTP-U sessions.
    ///
    /// # Errors
    /// Before a generation was loaded that has the user plane.
    pub fn gtpu(&self) -> Result<&Gtpu> {
        self.gtpu.get().ok_or(Error::NoTunnels)
    }

    /// Ends GTP-U sessions, and what their subscribers have opened and was opened to them: whoever has an address next has
    /// nothing of it. Numbers that are no session's are left out.
    pub fn remove_gtpu(&self, numbers: &[u32]) -> Result<Vec<GtpuRecord>> {
        let removed = self.gtpu()?.remove(numbers, || self.grace())?;
        if let Err(error) = self.end_flows_of(&removed) {
            tracing::error!(%error, "flows of GTP-U sessions that have ended stay; `clear security flow session` ends them");
        }
        Ok(removed)
    }

    /// One look at all flows, however many sessions end.
    fn end_flows_of(&self, ended: &[GtpuRecord]) -> Result<()> {
        let own = |record: &GtpuRecord| {
            let GtpuSession { address, prefix, .. } = record.session;
            [address.map(IpAddr::V4), prefix.map(|prefix| subscriber_of(prefix.into()))]
        };
        let subscribers: HashSet<IpAddr> = ended.iter().flat_map(own).flatten().collect();
        if subscribers.is_empty() {
            return Ok(());
        }
        let sides = |flow: &Session| [flow.initiator.tuple.source, flow.responder.tuple.source];
        let is_theirs =
            |flow: &Session| sides(flow).map(subscriber_of).iter().any(|own| subscribers.contains(own));
        let flows: Vec<SessionId> = self.sessions().filter(is_theirs).map(|flow| flow.id).collect();
        self.delete_sessions(&flows).map(drop)
    }

    /// Makes room for so many GTP-U sessions, where there is none.
    pub(crate) fn make_gtpu_room(&self, sessions: u32) -> Result<()> {
        if let Some(gtpu) = self.gtpu.get() {
            gtpu.finish();
            return match gtpu.capacity() {
                room if sessions <= room => Ok(()),
                room => Err(Error::TunnelRoom { wanted: sessions, room }),
            };
        }
        let sizes = Sizes {
            gtpu_slots: slots_for(sessions),
            gtpu_downlink_slots: downlink_slots_for(sessions),
            ..self.sizes
        };
        self.state.make_gtpu_room(sizes)?;
        self.loaded.read_state(&self.state)?;
        if let Some(gtpu) = Gtpu::open(&self.state)? {
            // generations are loaded one after the other
            let _ = self.gtpu.set(gtpu);
        }
        Ok(())
    }

    /// Makes room for flows of GTP-U sessions, where there is none.
    pub(crate) fn make_flow_room(&self) -> Result<()> {
        let gtpu = self.gtpu()?;
        if gtpu.has_flows() {
            return Ok(());
        }
        self.state.make_flow_room(Sizes { gtpu_flows: true, ..self.sizes() })?;
        self.loaded.read_state(&self.state)?;
        gtpu.open_flows(&self.state)
    }
}
