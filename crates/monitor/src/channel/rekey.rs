//! Changes of key: successive ANs or SPIs between the same sender and receiver.
//!
//! A sender of MACsec uses one AN at a time (802.1AE 10.5.1), so a new AN is a new key at once. Between two IP hosts
//! there may be several SAs side by side: a new SPI has replaced another one only if that one fell silent.

use std::collections::HashMap;

use crate::observation::{ChannelKey, Protocol};
use crate::summary::Rekey;

use super::index::Index;
use super::memory::Words;
use super::state::{NO_COUNTER, NONE, SILENCE_NS, SUCCEEDED, period};
use super::suspicion::Packet;
use super::table::Channels;
use crate::anomaly::Kind;

/// The old key may be used for so long beside the new one; after that the change is judged.
pub const OVERLAP_NS: u64 = 10_000_000_000;
/// A pause longer than this is worth a look, unless told otherwise.
pub const LONG_PAUSE_NS: u64 = 1_000_000_000;
/// A sender of fewer packets says nothing about what is long for it.
const BUSY_PACKETS: u64 = 16;
/// A new key's numbers start at 1 (802.1AE 10.5.2, RFC 4303 3.3.3): a first number up to this shows what is missing.
pub const START: u64 = 64;
/// Keys of a group that are looked through for the one that fell silent.
const CANDIDATES: usize = 16;
/// Changes of one group that wait to be judged; beyond that the oldest is judged at once, by what is known.
const OPEN_OF_GROUP: usize = 256;
/// And of all groups; beyond that changes of groups without any that waits are not looked into.
const OPEN: usize = 1 << 16;

/// A new key that has not been judged yet.
#[derive(Clone, Copy, Debug)]
struct Change {
    /// The group's latest channel before it.
    old: u32,
    old_key: ChannelKey,
    new: u32,
    new_key: ChannelKey,
    at_ns: u64,
    frame: u64,
    /// What the old channel had lost by then, and its last packet.
    old_lost: i64,
    old_last_ns: u64,
}

#[derive(Debug)]
pub struct Rekeys {
    /// The latest channel of each group.
    heads: Index,
    /// Changes that wait to be judged, by group.
    open: HashMap<ChannelKey, Vec<Change>, Words>,
    /// How many wait.
    waiting: usize,
    pub reports: Vec<Rekey>,
    pub total: u64,
    /// Shorter pauses are no anomaly.
    pub long_pause_ns: u64,
}

impl Rekeys {
    pub fn new() -> Self {
        Rekeys {
            heads: Index::new(),
            open: HashMap::default(),
            waiting: 0,
            reports: Vec::new(),
            total: 0,
            long_pause_ns: LONG_PAUSE_NS,
        }
    }

    /// Lets a change wait; returns the one of its group that has to be judged to make room.
    fn wait(&mut self, change: Change) -> Option<Change> {
        let changes = match self.waiting < OPEN {
            true => self.open.entry(change.new_key.group()).or_default(),
            false => self.open.get_mut(&change.new_key.group())?,
        };
        let is_full = self.waiting >= OPEN || changes.len() >= OPEN_OF_GROUP;
        let oldest = is_full.then(|| changes.remove(0));
        changes.push(change);
        self.waiting += usize::from(oldest.is_none());
        oldest
    }

    /// Ends the wait of a group's changes.
    fn take(&mut self, group: &ChannelKey) -> Vec<Change> {
        let changes = self.open.remove(group).unwrap_or_default();
        self.waiting -= changes.len();
        changes
    }

    /// Asks for what a new channel with this key will look up.
    pub fn prefetch(&self, key: &ChannelKey) {
        self.heads.prefetch(hash(&key.group()));
    }
}

/// Whether a channel is one of several keys. Keepalives (SPI 0, RFC 3948 2.3) are of none, and stand beside all.
fn has_keys(key: &ChannelKey) -> bool {
    key.protocol().is_keyed() && !(key.protocol() == Protocol::EspUdp && key.id() == 0)
}

fn hash(group: &ChannelKey) -> u32 {
    (group.hash() >> 32) as u32
}

impl Channels {
    pub(super) fn head(&self, group: &ChannelKey) -> Option<u32> {
        self.rekeys.heads.find(hash(group), |at| self.hot[at as usize].key.group() == *group)
    }

    /// Whether a channel is the latest of its group.
    pub(super) fn is_head(&self, at: u32) -> bool {
        self.head(&self.hot[at as usize].key.group()) == Some(at)
    }

    /// A channel was seen for the first time.
    pub(super) fn join_group(&mut self, at: u32) {
        let key = self.hot[at as usize].key;
        if !has_keys(&key) {
            return;
        }
        let group = key.group();
        let Some(old) = self.head(&group) else {
            self.cold[at as usize].is_first = true;
            return self.rekeys.heads.insert(hash(&group), at);
        };
        self.rekeys.heads.replace(hash(&group), old, at);
        self.cold[at as usize].previous = old;
        let (at_ns, frame) = (self.cold[at as usize].first_ns, self.cold[at as usize].first_frame);
        self.changed(old, at, at_ns, frame);
    }

    /// A channel whose sender had moved on begins anew: its AN came round with a new key.
    pub(super) fn returned(&mut self, at: u32, start: Packet) {
        let group = self.hot[at as usize].key.group();
        let open = self.rekeys.take(&group);
        self.judge_all(open, start.time_ns);
        self.hot[at as usize].flags &= !SUCCEEDED;
        // The time since its last key's end is no silence of this one.
        self.cold[at as usize].longest_silence_ns = 0;
        let Some(old) = self.head(&group).filter(|old| *old != at) else { return };
        self.rekeys.heads.replace(hash(&group), old, at);
        self.cold[at as usize].previous = old;
        self.changed(old, at, start.time_ns, start.frame);
    }

    fn changed(&mut self, old: u32, new: u32, at_ns: u64, frame: u64) {
        let (old_key, new_key) = (self.hot[old as usize].key, self.hot[new as usize].key);
        if new_key.protocol() == Protocol::Macsec {
            self.hot[old as usize].flags |= SUCCEEDED;
            // What came before the change cannot be the start of the AN's next key.
            for (packet, class) in self.suspicions.take_run(old) {
                self.judged(old, packet, class);
            }
        }
        let (old_lost, old_last_ns) = (self.lost_so_far(old), self.hot[old as usize].last_ns);
        let change = Change { old, old_key, new, new_key, at_ns, frame, old_lost, old_last_ns };
        if let Some(oldest) = self.rekeys.wait(change) {
            self.judge_all(vec![oldest], at_ns);
        }
    }

    /// A channel goes away: take it out of its group.
    pub(super) fn leave_group(&mut self, at: u32) {
        let key = self.hot[at as usize].key;
        if !has_keys(&key) {
            return;
        }
        let group = key.group();
        if self.head(&group) == Some(at) {
            let previous = self.cold[at as usize].previous;
            let valid =
                previous != NONE && previous != at && self.hot[previous as usize].key.group() == group;
            match valid {
                true => self.rekeys.heads.replace(hash(&group), at, previous),
                false => self.rekeys.heads.remove(hash(&group), at),
            }
        }
    }

    /// Judges changes that are old enough, or all at the end.
    pub(super) fn judge_due_changes(&mut self, now_ns: u64, end: bool) {
        let mut due = Vec::new();
        self.rekeys.open.retain(|_, changes| {
            let is_due = |change: &mut Change| end || change.at_ns.saturating_add(OVERLAP_NS) <= now_ns;
            due.extend(changes.extract_if(.., is_due));
            !changes.is_empty()
        });
        self.rekeys.waiting -= due.len();
        due.sort_unstable_by_key(|change| (change.at_ns, change.frame));
        self.judge_all(due, now_ns);
    }

    /// Judges changes in their order. What turns out to be missing at a key's start was lost before that key was
    /// replaced in turn.
    fn judge_all(&mut self, changes: Vec<Change>, now_ns: u64) {
        let mut missing: HashMap<u32, i64, Words> = HashMap::default();
        for mut change in changes {
            change.old_lost += missing.get(&change.old).copied().unwrap_or(0);
            let at_start = self.judge(change, now_ns) as i64;
            if at_start == 0 {
                continue;
            }
            *missing.entry(change.new).or_default() += at_start;
            let open = self.rekeys.open.get_mut(&change.new_key.group()).into_iter().flatten();
            open.filter(|later| later.old == change.new).for_each(|later| later.old_lost += at_start);
        }
    }

    /// Says which key was replaced, if any was, and returns what is missing at the new key's start.
    fn judge(&mut self, change: Change, now_ns: u64) -> u64 {
        let still = |at: u32, key: ChannelKey| self.hot[at as usize].key == key;
        if !still(change.old, change.old_key) || !still(change.new, change.new_key) {
            return 0; // evicted meanwhile, which is reported as such
        }
        let Some(old) = self.predecessor(&change, now_ns) else { return 0 };
        self.hot[old as usize].flags |= SUCCEEDED;
        let beside = if old == change.old { self.lost_so_far(old) - change.old_lost } else { 0 };
        let missing = self.missing_at_start(&change);
        let lost = missing + beside.max(0) as u64;
        let old_key = self.hot[old as usize].key;
        // Packets from `now_ns` on, or waiting to be judged, belong to the next key under an AN that came round.
        let returns = self.hot[old as usize].last_ns > now_ns || self.suspicions.is_waiting(old);
        let last_ns = if returns { change.old_last_ns } else { self.hot[old as usize].last_ns };
        // Damaged captures have times of any size.
        let pause_ns = (change.at_ns as i64).saturating_sub(last_ns as i64);
        let packet = Packet {
            number: self.cold[change.new as usize].first,
            time_ns: change.at_ns,
            frame: change.frame,
            fingerprint: 0,
        };
        if lost > 0 {
            self.note(Kind::RekeyLoss, change.new, packet, lost, lost);
        }
        if pause_ns > 0 && self.is_long(old, pause_ns as u64) {
            self.note(Kind::RekeyPause, change.new, packet, 1, pause_ns as u64);
        }
        self.rekeys.total += 1;
        self.rekeys.reports.push(Rekey {
            from: old_key.channel_id(),
            to: change.new_key.channel_id(),
            from_name: old_key.to_string(),
            to_name: change.new_key.to_string(),
            at_ns: change.at_ns,
            pause_ns,
            lost,
        });
        missing
    }

    /// Whether a sender that pauses for so long between two keys had been busy: for a time that makes the pause short, and
    /// never silent for half as long.
    fn is_long(&self, old: u32, pause_ns: u64) -> bool {
        let (hot, cold) = (&self.hot[old as usize], &self.cold[old as usize]);
        let packets = cold.packets + u64::from(hot.packets);
        let busy_ns = hot.last_ns.saturating_sub(cold.first_ns);
        let silence_ns = cold.longest_silence_ns.max(SILENCE_NS);
        pause_ns > self.rekeys.long_pause_ns
            && packets >= BUSY_PACKETS
            && busy_ns / 4 >= pause_ns
            && pause_ns / 2 > silence_ns
    }

    /// The channel that the new one replaced.
    fn predecessor(&self, change: &Change, now_ns: u64) -> Option<u32> {
        if change.new_key.protocol() == Protocol::Macsec {
            return Some(change.old);
        }
        let (group, mut at, mut best) = (change.new_key.group(), change.old, None);
        for _ in 0..CANDIDATES {
            if at == NONE || self.hot[at as usize].key.group() != group {
                break;
            }
            let away = self.hot[at as usize].last_ns.abs_diff(change.at_ns);
            if at != change.new
                && self.fell_silent(at, change, now_ns)
                && !self.has_nearer_successor(&group, change, self.hot[at as usize].last_ns)
                && best.is_none_or(|(nearest, _)| away < nearest)
            {
                best = Some((away, at));
            }
            at = self.cold[at as usize].previous;
        }
        best.map(|(_, at)| at)
    }

    /// Whether a newer channel of the group came nearer to the time at which an old one ended.
    fn has_nearer_successor(&self, group: &ChannelKey, change: &Change, ended_ns: u64) -> bool {
        let mut at = self.head(group).unwrap_or(NONE);
        for _ in 0..CANDIDATES {
            if at == NONE || at == change.new || self.hot[at as usize].key.group() != *group {
                return false;
            }
            if self.cold[at as usize].first_ns.abs_diff(ended_ns) < change.at_ns.abs_diff(ended_ns) {
                return true;
            }
            at = self.cold[at as usize].previous;
        }
        false
    }

    /// Whether a channel stopped for good about when the new key came: silent for ten times its usual spacing.
    fn fell_silent(&self, at: u32, change: &Change, now_ns: u64) -> bool {
        let (hot, cold) = (&self.hot[at as usize], &self.cold[at as usize]);
        if hot.flags & SUCCEEDED != 0 || hot.last_ns > change.at_ns.saturating_add(OVERLAP_NS) {
            return false;
        }
        let packets = cold.packets + u64::from(hot.packets);
        let spacing = (hot.last_ns - cold.first_ns.min(hot.last_ns)) / packets.saturating_sub(1).max(1);
        let successor = &self.hot[change.new as usize];
        now_ns.saturating_sub(hot.last_ns) > spacing.saturating_mul(10) && successor.last_ns > hot.last_ns
    }

    /// Numbers missing before the first one of a new key; they are lost, and a gap from now on.
    fn missing_at_start(&mut self, change: &Change) -> u64 {
        let (hot, cold) = (&self.hot[change.new as usize], &self.cold[change.new as usize]);
        let start = period(cold.bits) + 1;
        let first = cold.first;
        if hot.flags & NO_COUNTER != 0 || hot.key != change.new_key || first <= start || first > start + START
        {
            return 0;
        }
        // One below the first number a sender uses, so that number 1 is part of what is missing.
        let packet = Packet { number: start - 1, time_ns: change.at_ns, frame: change.frame, fingerprint: 0 };
        self.extend_down(change.new, start - 1, change.at_ns, packet);
        self.cold[change.new as usize].first = start;
        first - start
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::{Arrival, hash_of};
    use crate::observation::{Location, Observation};
    use crate::summary::Interval;

    /// A packet a millisecond, each of a key of its own whose first number is missing.
    fn send(channels: &mut Channels, count: u32, key: impl Fn(u32) -> ChannelKey) {
        for number in 0..count {
            let (key, time_ns) = (key(number), 1_000_000_000 + u64::from(number) * 1_000_000);
            let observation = Observation { key, sequence: 2, bits: 32, ..Observation::default() };
            let hash = hash_of(&key);
            let guess = channels.prefetch_channel(hash, &key);
            let arrival = Arrival { time_ns, frame: number.into(), wire_len: 100 };
            channels.observe(hash, guess, &observation, &arrival);
        }
    }

    fn esp(host: u32, spi: u32) -> ChannelKey {
        ChannelKey::ipv4(Protocol::Esp, host.to_be_bytes(), [10, 0, 0, 2], spi, Location::default())
    }

    #[test]
    fn changes_that_wait_are_bounded() {
        let mut channels = Channels::new(1 << 18);
        send(&mut channels, 9_000, |number| esp(1, number));
        assert_eq!((channels.rekeys.waiting, channels.rekeys.open.len()), (OPEN_OF_GROUP, 1));
        send(&mut channels, 200_000, |number| esp(2 + number / 2, number));
        let waiting: usize = channels.rekeys.open.values().map(Vec::len).sum();
        assert_eq!((channels.rekeys.waiting, waiting), (OPEN, OPEN));
        channels.finish(u64::MAX / 2, Interval::default(), &mut drop);
        assert_eq!((channels.rekeys.waiting, channels.rekeys.open.len()), (0, 0));
    }
}
