//! What the channels report: differences at the end of an interval, absolute figures at the end of all.

use std::collections::HashMap;

use crate::observation::{ChannelKey, Flags, Protocol};
use crate::summary::{
    ChannelDelta, ChannelState, Exhaustion, Figures, Interval, Protection, ProtocolCounts, Reorder, Update,
};

use super::memory::Words;
use super::state::{
    NO_COUNTER, NONE, NOTED_EXHAUSTION, NOTED_LENGTH, NOTED_MIXED, NOTED_PROTECTION, NOTED_WRAPPED, STARTED,
    SUCCEEDED, period,
};
use super::suspicion::Packet;
use super::table::{Channels, PerProtocol};
use super::{DUPLICATE_HORIZON_NS, SETTLE_NS};
use crate::anomaly::Kind;

/// Entries in one part of an update: what waits for a sink takes no more than some megabytes.
const PART: usize = 2048;
/// So many new channels, or gaps, are reported before the interval ends.
const MANY: usize = 32_768;
/// MKA renews a 32-bit key when its PN passes this (802.1X 9.8, PendingPNExhaustion).
const PENDING_EXHAUSTION: u64 = 0xc000_0000;
/// Numbers that run out within this time are an anomaly.
const SOON_S: f64 = 600.0;
/// A channel with fewer packets says nothing about its opposite direction.
const ENOUGH_PACKETS: u64 = 16;

/// Sums over all channels.
#[derive(Clone, Debug, Default)]
pub struct Sums {
    /// Those that were seen.
    pub protocols: Vec<ProtocolCounts>,
    /// How many there were, evicted ones included.
    pub channels: u64,
    /// How many states were dropped to make room.
    pub evicted: u64,
    /// Late packets of all channels.
    pub reorder: Reorder,
    /// Ranges of lost numbers.
    pub gaps: u64,
    /// Changes of key.
    pub rekeys: u64,
    /// Occurrences by kind.
    pub anomalies: Vec<(Kind, u64)>,
    /// Occurrences of anomalies that no report named: there were too many at once.
    pub unlisted: u64,
    /// By [`crate::summary::Counts::trouble`], worst first.
    pub worst: Vec<ChannelState>,
}

/// Directions in which traffic was seen, for the question whether a channel has an opposite one.
#[derive(Clone, Debug, Default)]
pub struct Directions {
    /// Groups between addresses by their number, in order.
    groups: Vec<u64>,
    /// Number of distinct SCIs by location (interface and VLANs).
    senders: HashMap<u64, u32, Words>,
}

impl Directions {
    /// Takes over what another worker has seen.
    pub fn add(&mut self, other: Directions) {
        self.groups.extend(other.groups);
        self.groups.sort_unstable();
        for (location, senders) in other.senders {
            *self.senders.entry(location).or_default() += senders;
        }
    }

    /// Whether nothing came in the opposite direction; `None` where that cannot be told.
    fn is_one_way(&self, key: &ChannelKey) -> Option<bool> {
        match key.protocol() {
            // Nobody answers from a group's address.
            _ if key.is_multicast() || is_keepalive(key) => None,
            Protocol::Macsec => self.senders.get(&place(key).words()[4]).map(|senders| *senders < 2),
            Protocol::Esp | Protocol::EspUdp | Protocol::Ah | Protocol::GtpU => {
                let reverse = place(key).reverse_group();
                reverse.map(|reverse| self.groups.binary_search(&reverse.channel_id()).is_err())
            }
            Protocol::Mka | Protocol::Ike => None,
        }
    }
}

impl Channels {
    /// Whether so much waits to be reported that memory asks for a flush before the interval ends.
    pub fn is_overflowing(&self) -> bool {
        self.fresh.len() >= MANY
            || self.gone.len() >= PART
            || self.lost_gaps.len() + self.gaps.reports.len() >= MANY
            || self.alarms.is_overflowing()
    }

    /// Reports what happened since the last flush, as part of `interval`.
    pub fn flush(&mut self, now_ns: u64, interval: Interval, emit: &mut dyn FnMut(Update)) {
        self.settle(now_ns);
        let mut update = Update { interval, ..Update::default() };
        self.collect_gaps();
        update.gap_change = std::mem::take(&mut self.gaps.change);
        update.new_channels = std::mem::take(&mut self.fresh);
        update.gaps = std::mem::take(&mut self.lost_gaps);
        update.rekeys = std::mem::take(&mut self.rekeys.reports);
        update.channels = std::mem::take(&mut self.gone);
        for delta in std::mem::take(&mut self.early) {
            push(&mut update, delta);
        }
        for delta in std::mem::take(&mut self.folded) {
            push(&mut update, delta);
        }
        let mut dirty = std::mem::take(&mut self.dirty);
        self.in_order(&mut dirty);
        for at in dirty.drain(..) {
            self.note_facts(at);
            self.take_delta(at, Some(interval.index)).into_iter().for_each(|delta| push(&mut update, delta));
            if update.deltas.len() >= PART {
                update.anomalies = self.alarms.drain();
                let deltas = Vec::with_capacity(PART);
                emit(std::mem::replace(&mut update, Update { interval, deltas, ..Update::default() }));
            }
        }
        self.dirty = dirty;
        // What is left belongs to channels without packets: waiting packets that were judged.
        for slot in 0..self.rare.len() {
            let at = self.rare[slot].0;
            if at != NONE {
                self.take_delta(at, Some(interval.index))
                    .into_iter()
                    .for_each(|delta| push(&mut update, delta));
            }
        }
        self.rare.clear();
        update.anomalies = self.alarms.drain();
        emit(update);
    }

    /// Brings channels into the order of memory, which is that of their numbers. Many are found by a look at all.
    fn in_order(&self, dirty: &mut Vec<u32>) {
        if dirty.len() < self.hot.len() / 4 {
            return dirty.sort_unstable();
        }
        let mut is_dirty = vec![0u64; self.hot.len().div_ceil(64)];
        dirty.drain(..).for_each(|at| is_dirty[at as usize / 64] |= 1 << (at % 64));
        for (word, mut bits) in is_dirty.into_iter().enumerate() {
            while bits != 0 {
                dirty.push(word as u32 * 64 + bits.trailing_zeros());
                bits &= bits - 1;
            }
        }
    }

    /// Ends all waiting and reports the rest. `directions` are those of all workers.
    pub fn finish(&mut self, now_ns: u64, interval: Interval, emit: &mut dyn FnMut(Update)) {
        for at in self.suspicions.channels() {
            let last_ns = self.hot[at as usize].last_ns;
            let settled = self.suspicions.remove(at, last_ns);
            self.settled(at, settled);
        }
        self.judge_due_changes(now_ns, true);
        self.gaps.settle(u64::MAX);
        self.flush(now_ns, interval, emit);
    }

    /// The directions in which channels had traffic.
    pub fn directions(&self) -> Directions {
        let mut directions = Directions::default();
        for (at, hot) in self.hot.iter().enumerate() {
            let group = place(&hot.key);
            match group.protocol() {
                _ if is_keepalive(&hot.key) => {}
                Protocol::Macsec if self.stands_for_group(at as u32) => {
                    *directions.senders.entry(group.words()[4]).or_default() += 1;
                }
                Protocol::Esp | Protocol::EspUdp | Protocol::Ah | Protocol::GtpU => {
                    directions.groups.push(group.channel_id());
                }
                _ => {}
            }
        }
        directions.groups.sort_unstable();
        directions.groups.dedup();
        directions
    }

    /// Whether a channel is the one of its group that is counted.
    fn stands_for_group(&self, at: u32) -> bool {
        // Without evictions, only the first channel of a group has none before it, and that is known without a search.
        if self.evicted == 0 { self.cold[at as usize].is_first } else { self.is_head(at) }
    }

    /// The absolute state of all channels, in parts, and their sums. Nothing may be observed after it.
    pub fn conclude(
        &mut self,
        directions: &Directions,
        interval: Interval,
        emit: &mut dyn FnMut(Update),
    ) -> Sums {
        let mut sums = Sums {
            channels: self.created,
            evicted: self.evicted,
            gaps: self.gaps_gone,
            reorder: self.reorder_gone,
            rekeys: self.rekeys.total,
            ..Sums::default()
        };
        let mut update = Update { interval, ..Update::default() };
        let mut protocols = self.protocols_gone;
        for at in 0..self.hot.len() as u32 {
            let mut state = self.state(at);
            state.figures.one_way = directions.is_one_way(&state.key);
            if state.figures.one_way == Some(true) && state.figures.counts.packets >= ENOUGH_PACKETS {
                self.note_channel(Kind::OneWay, at, state.figures.counts.packets, 0);
            }
            sums.gaps += state.figures.gaps;
            sums.reorder.add(&state.figures.reorder);
            protocols[state.key.protocol() as usize].add(&state.figures.counts);
            keep_worst(&mut sums.worst, &state);
            update.channels.push(state);
            if update.channels.len() >= PART {
                update.anomalies = self.alarms.drain();
                let channels = Vec::with_capacity(PART);
                emit(std::mem::replace(&mut update, Update { interval, channels, ..Update::default() }));
            }
        }
        update.anomalies = self.alarms.drain();
        emit(update);
        let named = Protocol::ALL.iter().zip(protocols).filter(|(_, sum)| sum.channels > 0);
        sums.protocols = named
            .map(|(protocol, PerProtocol { channels, counts })| ProtocolCounts {
                protocol: *protocol,
                channels,
                counts,
            })
            .collect();
        sums.unlisted = self.alarms.unlisted();
        sums.anomalies = self.alarms.totals().filter(|(_, count)| *count > 0).collect();
        sums
    }

    fn settle(&mut self, now_ns: u64) {
        let hot = &self.hot;
        let over = self
            .suspicions
            .settle(now_ns.saturating_sub(DUPLICATE_HORIZON_NS), |at| hot[at as usize].last_ns);
        for (at, settled) in over {
            self.settled(at, settled);
        }
        self.judge_due_changes(now_ns, false);
        self.gaps.settle(now_ns.saturating_sub(SETTLE_NS));
    }

    /// Puts the reports of the gap pool into the words of operators.
    pub(super) fn collect_gaps(&mut self) {
        for report in std::mem::take(&mut self.gaps.reports) {
            let mut gap = report.gap;
            if report.fresh {
                let packet =
                    Packet { number: gap.first, time_ns: gap.before_ns, frame: gap.frame, fingerprint: 0 };
                self.note(Kind::Loss, report.owner, packet, gap.lost, gap.lost);
            }
            let cold = &self.cold[report.owner as usize];
            (gap.first, gap.last) = (cold.shown(gap.first), cold.shown(gap.last));
            gap.channel = self.hot[report.owner as usize].key.channel_id();
            self.lost_gaps.push(gap);
        }
    }

    /// Takes what a channel counted since the last flush, and adds it to its totals.
    pub(super) fn take_delta(&mut self, at: u32, interval: Option<u64>) -> Option<ChannelDelta> {
        let (hot, cold) = (&mut self.hot[at as usize], &mut self.cold[at as usize]);
        let (packets, bytes) = (std::mem::take(&mut hot.packets), std::mem::take(&mut hot.bytes));
        let mut rare = super::state::Rare::default();
        if cold.rare_slot != NONE {
            let (owner, counts) = &mut self.rare[std::mem::replace(&mut cold.rare_slot, NONE) as usize];
            *owner = NONE;
            rare = *counts;
        } else if packets == 0 {
            return None;
        }
        cold.packets += u64::from(packets);
        cold.bytes += u64::from(bytes);
        cold.rare.add(&rare);
        Some(ChannelDelta {
            channel: hot.key.channel_id(),
            number: cold.number,
            interval: interval.unwrap_or_default(),
            last_ns: hot.last_ns,
            highest_sequence: if hot.flags & STARTED == 0 { 0 } else { cold.shown(hot.highest) },
            counts: rare.counts(u64::from(packets), u64::from(bytes)),
        })
    }

    /// The absolute figures of a channel; everything must have been flushed.
    pub(super) fn state(&self, at: u32) -> ChannelState {
        let (hot, cold) = (&self.hot[at as usize], &self.cold[at as usize]);
        let started = hot.flags & STARTED != 0;
        let figures = Figures {
            first_ns: cold.first_ns,
            last_ns: hot.last_ns,
            first_frame: cold.first_frame,
            first_sequence: if started { cold.shown(cold.first) } else { 0 },
            highest_sequence: if started { cold.shown(hot.highest) } else { 0 },
            sequence_bits: cold.bits,
            extended: started && is_extended(hot.highest, cold.bits),
            counts: cold.rare.counts(cold.packets, cold.bytes),
            reorder: self.late.reorder(cold.late_slot),
            restarts: cold.restarts.into(),
            jumps: cold.jumps.into(),
            gaps: cold.gaps.into(),
            jitter_ns: hot.jitter(),
            min_payload: hot.min_payload.min(hot.max_payload),
            max_payload: hot.max_payload,
            protection: hot.protection(),
            length_mismatches: Flags(hot.flags as u8).has(Flags::LENGTH_MISMATCH),
            exhaustion: if started { self.exhaustion(at) } else { None },
            one_way: None,
            evicted: false,
            no_counter: hot.flags & NO_COUNTER != 0,
        };
        ChannelState { key: hot.key, number: cold.number, figures }
    }

    /// When the numbers of a key run out at the rate so far. A counter that wrapped is 64 bits long: never.
    fn exhaustion(&self, at: u32) -> Option<Exhaustion> {
        let (hot, cold) = (&self.hot[at as usize], &self.cold[at as usize]);
        if !hot.key.protocol().is_keyed() || cold.bits != 32 || is_extended(hot.highest, cold.bits) {
            return None;
        }
        if hot.flags & SUCCEEDED != 0 || hot.last_ns <= cold.first_ns || hot.highest <= cold.first {
            return None;
        }
        let seconds = (hot.last_ns - cold.first_ns) as f64 / 1e9;
        let rate_pps = (hot.highest - cold.first) as f64 / seconds;
        let remaining = 2 * period(cold.bits) - 1 - hot.highest;
        Some(Exhaustion::new(rate_pps, remaining))
    }

    /// Notes what a channel's flags and numbers say, once each.
    fn note_facts(&mut self, at: u32) {
        let (hot, cold) = (&self.hot[at as usize], &self.cold[at as usize]);
        let packets = u64::from(hot.packets);
        let protection = hot.protection();
        let wire = hot.highest.wrapping_sub(period(cold.bits));
        let keyed = hot.key.protocol().is_keyed();
        let started = hot.flags & STARTED != 0;
        let wrapped = started && is_extended(hot.highest, cold.bits);
        let near_end = keyed && started && cold.bits == 32 && !wrapped && (1 << 31..1 << 32).contains(&wire);
        let exhausted = near_end
            && hot.flags & NOTED_EXHAUSTION == 0
            && (wire >= PENDING_EXHAUSTION
                || self.exhaustion(at).is_some_and(|forecast| forecast.seconds < SOON_S));
        let mismatch = Flags(hot.flags as u8).has(Flags::LENGTH_MISMATCH);
        // AH hides nothing, and is not meant to (RFC 4302 1).
        let readable = protection == Protection::IntegrityOnly && hot.key.protocol() != Protocol::Ah;
        let facts = [
            (readable, NOTED_PROTECTION, Kind::IntegrityOnly, packets, 0),
            (protection == Protection::Mixed, NOTED_MIXED, Kind::MixedProtection, packets, 0),
            (mismatch, NOTED_LENGTH, Kind::LengthMismatch, packets, 0),
            (exhausted, NOTED_EXHAUSTION, Kind::Exhaustion, 1, (1u64 << 32).wrapping_sub(wire)),
            (wrapped && keyed, NOTED_WRAPPED, Kind::Wrapped, 1, 0),
        ];
        for (is_so, noted, kind, count, value) in facts {
            if is_so && self.hot[at as usize].flags & noted == 0 {
                self.hot[at as usize].flags |= noted;
                self.note_channel(kind, at, count, value);
            }
        }
    }

    fn note_channel(&mut self, kind: Kind, at: u32, count: u64, value: u64) {
        let (hot, cold) = (&self.hot[at as usize], &self.cold[at as usize]);
        let packet =
            Packet { number: hot.highest, time_ns: hot.last_ns, frame: cold.first_frame, fingerprint: 0 };
        self.note(kind, at, packet, count, value);
    }
}

/// Its group on the link. A TAP hands each direction to an interface of its own.
fn place(key: &ChannelKey) -> ChannelKey {
    key.group().any_interface()
}

/// What keeps a NAT's mapping open (RFC 3948 2.3) answers nobody, and nobody answers it.
fn is_keepalive(key: &ChannelKey) -> bool {
    key.protocol() == Protocol::EspUdp && key.id() == 0
}

fn is_extended(highest: u64, bits: u8) -> bool {
    bits < 64 && highest >> bits > 1
}

fn push(update: &mut Update, delta: ChannelDelta) {
    update.interval.counts.add(&delta.counts);
    update.interval.active += u64::from(delta.counts.packets > 0);
    update.deltas.push(ChannelDelta { interval: update.interval.index, ..delta });
}

/// Keeps the 20 channels with most trouble, worst first; among equals those with the lower key, in whatever order they come.
pub fn keep_worst(worst: &mut Vec<ChannelState>, state: &ChannelState) {
    const WORST: usize = 20;
    let trouble = |state: &ChannelState| state.figures.counts.trouble();
    let rank = |state: &ChannelState| (std::cmp::Reverse(trouble(state)), state.key);
    if trouble(state) == 0 || (worst.len() == WORST && rank(state) > rank(&worst[WORST - 1])) {
        return;
    }
    let at = worst.partition_point(|other| rank(other) < rank(state));
    worst.insert(at, *state);
    worst.truncate(WORST);
}
