//! Dropped packets of the last minutes, those with the same facts counted together. However many there are, and whoever
//! sends them, this has a bounded size, and what comes often makes room for itself only.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use sluice_abi::stages::Reason;
use sluice_dataplane::{Dropped, Headers};

/// How many different drops are remembered, and how long after the last packet.
pub const MOST: usize = 1000;
pub const KEPT_MS: u64 = 5 * 60 * 1000;
/// Of what was not told there is one number for so many milliseconds.
const SLICE_MS: u64 = 10_000;
/// How often is looked for what is too long ago, while drops come.
const LOOK_MS: u64 = 1000;

/// What drops have in common that are counted together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Facts {
    pub reason: Reason,
    /// Index of the unit; 0 = of none.
    pub unit: u16,
    /// Device, where no unit is known.
    pub ifindex: u32,
    /// Tags as `bpf/abi/unit.h` has them.
    pub vlan: u32,
    pub from_zone: u16,
    pub to_zone: u16,
    /// 0 = none was asked, or none matched.
    pub policy: u32,
    pub nat_destination: u16,
    pub nat_source: u16,
    pub headers: Headers,
}

impl Facts {
    pub fn of(dropped: &Dropped) -> Self {
        let raw = &dropped.raw;
        // flags and MAC addresses of a flow's packets may differ, and what is no IP has nothing else
        let mut headers = Headers { tcp_flags: None, ..dropped.headers };
        if headers.addresses.is_some() {
            headers.macs = None;
        }
        Self {
            reason: dropped.reason,
            unit: raw.unit,
            ifindex: raw.ifindex,
            vlan: raw.vlan,
            from_zone: raw.from_zone,
            to_zone: raw.to_zone,
            policy: raw.policy,
            nat_destination: raw.nat_destination,
            nat_source: raw.nat_source,
            headers,
        }
    }

    fn kind(&self) -> Kind {
        (self.unit, self.reason as u16)
    }
}

/// Unit and reason: what shares room.
type Kind = (u16, u16);

/// Drops with the same facts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub facts: Facts,
    pub packets: u64,
    pub first_ms: u64,
    pub last_ms: u64,
    /// Flags of the last one.
    pub tcp_flags: Option<u8>,
    /// Counts up with every packet that is kept: its key among those of its kind.
    sequence: u64,
}

#[derive(Debug, Default)]
struct Table {
    entries: HashMap<Facts, Entry>,
    /// By kind, those whose last packet is longest ago first.
    kinds: BTreeMap<Kind, BTreeMap<u64, Facts>>,
    sequences: u64,
    /// Packets that were dropped and not told: when a slice began, and how many.
    untold: VecDeque<(u64, u64)>,
    /// When was looked last for what is too long ago.
    looked_ms: u64,
}

#[derive(Debug, Default)]
pub struct RecentDrops(Mutex<Table>);

impl RecentDrops {
    /// Remembers a packet that was dropped at this time.
    pub fn keep(&self, dropped: &Dropped, unix_ms: u64) {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if unix_ms >= table.looked_ms + LOOK_MS {
            table.forget(unix_ms);
        }
        table.note_untold(unix_ms, dropped.raw.untold.into());
        table.keep(Facts::of(dropped), dropped.headers.tcp_flags, dropped.raw.segments.into(), unix_ms);
    }

    /// Newest first, and how many packets of this time were not told.
    pub fn all(&self, unix_ms: u64) -> (Vec<Entry>, u64) {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        table.forget(unix_ms);
        let mut entries: Vec<Entry> = table.entries.values().cloned().collect();
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.sequence));
        (entries, table.untold.iter().map(|(_, count)| count).sum())
    }
}

impl Table {
    fn keep(&mut self, facts: Facts, tcp_flags: Option<u8>, packets: u64, unix_ms: u64) {
        self.sequences += 1;
        let sequence = self.sequences;
        let of_kind = self.kinds.entry(facts.kind()).or_default();
        if let Some(entry) = self.entries.get_mut(&facts) {
            of_kind.remove(&entry.sequence);
            entry.packets += packets;
            (entry.last_ms, entry.sequence, entry.tcp_flags) = (unix_ms, sequence, tcp_flags);
            of_kind.insert(sequence, facts);
            return;
        }
        of_kind.insert(sequence, facts.clone());
        let entry =
            Entry { facts: facts.clone(), packets, first_ms: unix_ms, last_ms: unix_ms, tcp_flags, sequence };
        self.entries.insert(facts, entry);
        if self.entries.len() > MOST {
            self.make_room();
        }
    }

    /// The oldest of the kind that has most.
    fn make_room(&mut self) {
        let fullest = self.kinds.iter().max_by_key(|(_, of_kind)| of_kind.len()).map(|(kind, _)| *kind);
        if let Some(kind) = fullest {
            self.remove_oldest(kind);
        }
    }

    fn remove_oldest(&mut self, kind: Kind) {
        let Some(of_kind) = self.kinds.get_mut(&kind) else { return };
        if let Some((_, facts)) = of_kind.pop_first() {
            self.entries.remove(&facts);
        }
        if of_kind.is_empty() {
            self.kinds.remove(&kind);
        }
    }

    /// What is too long ago.
    fn forget(&mut self, unix_ms: u64) {
        self.looked_ms = unix_ms;
        let begin = unix_ms.saturating_sub(KEPT_MS);
        let is_old = |entries: &HashMap<Facts, Entry>, of_kind: &BTreeMap<u64, Facts>| {
            let oldest = of_kind.first_key_value().and_then(|(_, facts)| entries.get(facts));
            oldest.is_some_and(|entry| entry.last_ms < begin)
        };
        while let Some(kind) =
            self.kinds.iter().find(|(_, of_kind)| is_old(&self.entries, of_kind)).map(|(kind, _)| *kind)
        {
            self.remove_oldest(kind);
        }
        while self.untold.front().is_some_and(|(at, _)| at + SLICE_MS < begin) {
            self.untold.pop_front();
        }
    }

    fn note_untold(&mut self, unix_ms: u64, count: u64) {
        match self.untold.back_mut() {
            _ if count == 0 => {}
            Some((at, sum)) if unix_ms < *at + SLICE_MS => *sum += count,
            _ => self.untold.push_back((unix_ms, count)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dropped(reason: Reason, port: u16, untold: u32) -> Dropped {
        let raw = sluice_abi::Dropped { unit: 1, segments: 1, untold, ..Default::default() };
        let headers = Headers { ports: Some((port, 80)), protocol: Some(6), ..Default::default() };
        Dropped { reason, headers, raw }
    }

    #[test]
    fn the_same_is_counted_and_the_newest_comes_first() {
        let drops = RecentDrops::default();
        for (port, at) in [(1, 1000), (2, 2000), (1, 3000)] {
            drops.keep(&dropped(Reason::PolicyDefault, port, 0), at);
        }
        let (entries, untold) = drops.all(3000);
        let seen =
            entries.iter().map(|e| (e.facts.headers.ports.unwrap().0, e.packets, e.first_ms, e.last_ms));
        assert_eq!(seen.collect::<Vec<_>>(), [(1, 2, 1000, 3000), (2, 1, 2000, 2000)]);
        assert_eq!(untold, 0);
    }

    #[test]
    fn a_flood_of_one_kind_leaves_the_others_and_has_a_bound() {
        let drops = RecentDrops::default();
        drops.keep(&dropped(Reason::TcpOutOfWindow, 7, 0), 1);
        for number in 0..100_000u32 {
            drops.keep(&dropped(Reason::PolicyDefault, number as u16, 3), 2 + u64::from(number / 1000));
        }
        let (entries, untold) = drops.all(200);
        assert_eq!((entries.len(), untold), (MOST, 300_000));
        assert!(entries.iter().any(|entry| entry.facts.reason == Reason::TcpOutOfWindow));
        let table = drops.0.lock().unwrap();
        assert_eq!(table.kinds.values().map(BTreeMap::len).sum::<usize>(), MOST);
        assert_eq!(table.untold.len(), 1);
    }

    #[test]
    fn what_is_five_minutes_ago_is_forgotten() {
        let drops = RecentDrops::default();
        drops.keep(&dropped(Reason::PolicyDefault, 1, 5), 1000);
        drops.keep(&dropped(Reason::PolicyDeny, 2, 0), 2000 + KEPT_MS);
        let (entries, untold) = drops.all(1001 + KEPT_MS);
        assert_eq!((entries.len(), untold), (1, 5));
        let (entries, untold) = drops.all(100_000 + 3 * KEPT_MS);
        assert_eq!((entries.len(), untold), (0, 0));
        assert!(drops.0.lock().unwrap().kinds.is_empty());
    }
}
