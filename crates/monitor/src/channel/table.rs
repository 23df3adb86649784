//! All channels: found by key, kept within a limit, reported interval by interval.

use crate::observation::{ChannelKey, Flags, Observation, Protocol};
use crate::summary::{ChannelDelta, ChannelState, Counts, Gap, NewChannel, Reorder};

use super::alarms::{Alarms, Occurrence};
use super::gaps::Gaps;
use super::index::Index;
use super::late::Lateness;
use super::memory::huge_vec;
use super::rekey::Rekeys;
use super::shared::Shared;
use super::state::{Cold, Hot, NONE, Rare, SILENCE_NS};
use super::suspicion::{Packet, Suspicions};
use crate::anomaly::Kind;

/// When and where a packet was captured.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Capture time, nanoseconds since the epoch.
    pub time_ns: u64,
    /// Number of the frame in its source.
    pub frame: u64,
    /// Bytes on the wire.
    pub wire_len: u32,
}

/// What an exceptional packet was found to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum What {
    /// Numbers before it are missing; `depth` is how many.
    Skipped,
    /// After a higher number (RFC 4737).
    Late,
    /// The same packet again within a second.
    Duplicate,
    /// The same packet again, later than that.
    Replay,
    /// Another packet under a used number.
    Reused,
    /// Below what is remembered.
    TooOld,
    /// Far off the sequence, and nothing followed.
    Stray,
    /// Far off the sequence, which went on from there.
    Jump,
}

/// One exceptional packet, for whoever watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// What it was found to be.
    pub what: What,
    /// Its channel.
    pub channel: ChannelKey,
    /// Extended beyond its width on the wire where it wrapped.
    pub sequence: u64,
    /// Number of the frame in its source.
    pub frame: u64,
    /// Capture time, nanoseconds since the epoch.
    pub time_ns: u64,
    /// How far below the highest number seen; of `Skipped` how many numbers are missing.
    pub depth: u64,
}

/// Called for each exceptional packet, by the worker that found it.
pub type Watch = Box<dyn FnMut(&Event) + Send>;

/// Sums over the channels of a protocol.
#[derive(Clone, Copy, Debug, Default)]
pub struct PerProtocol {
    pub channels: u64,
    pub counts: Counts,
}

impl PerProtocol {
    pub fn add(&mut self, counts: &Counts) {
        self.channels += 1;
        self.counts.add(counts);
    }
}

/// So many packets of ESP in a row that look open are no chance.
const OPEN_IN_A_ROW: u8 = 8;

/// How many channels an eviction looks at to find one that has been silent for long.
const SAMPLE: usize = 32;

/// Every channel of one worker, with what is needed to judge its next packet.
pub struct Channels {
    index: Index,
    pub(super) hot: Vec<Hot>,
    pub(super) cold: Vec<Cold>,
    limit: usize,
    pub(super) gaps: Gaps,
    pub(super) suspicions: Suspicions,
    pub(super) rekeys: Rekeys,
    pub(super) shared: Shared,
    pub(super) alarms: Alarms,
    /// Channels with packets since the last flush.
    pub(super) dirty: Vec<u32>,
    /// Rare counts since the last flush, with their channel.
    pub(super) rare: Vec<(u32, Rare)>,
    /// Bytes that did not fit into 32 bits.
    pub(super) folded: Vec<ChannelDelta>,
    /// What late packets there were, of the channels that had some.
    pub(super) late: Lateness,
    /// Waiting for the next flush: channels that are new, gaps and differences of channels that are gone, their state.
    pub(super) fresh: Vec<NewChannel>,
    pub(super) lost_gaps: Vec<Gap>,
    pub(super) early: Vec<ChannelDelta>,
    pub(super) gone: Vec<ChannelState>,
    next_victim: usize,
    /// The next channel's number, and how far apart numbers are: workers share them.
    next_number: u32,
    stride: u32,
    pub(super) created: u64,
    pub(super) evicted: u64,
    /// Of channels that were evicted.
    pub(super) gaps_gone: u64,
    pub(super) reorder_gone: Reorder,
    pub(super) protocols_gone: [PerProtocol; Protocol::ALL.len()],
    watch: Option<Watch>,
}

impl Channels {
    /// Room for `limit` channels; memory is taken as they appear.
    pub fn new(limit: usize) -> Self {
        let limit = limit.clamp(1, NONE as usize - 1);
        Channels {
            index: Index::new(),
            hot: huge_vec(limit),
            cold: huge_vec(limit),
            limit,
            gaps: Gaps::new(1 << 16),
            suspicions: Suspicions::default(),
            rekeys: Rekeys::new(),
            shared: Shared::default(),
            alarms: Alarms::default(),
            dirty: Vec::new(),
            rare: Vec::new(),
            folded: Vec::new(),
            late: Lateness::default(),
            fresh: Vec::new(),
            lost_gaps: Vec::new(),
            early: Vec::new(),
            gone: Vec::new(),
            next_victim: 0,
            next_number: 1,
            stride: 1,
            created: 0,
            evicted: 0,
            gaps_gone: 0,
            reorder_gone: Reorder::default(),
            protocols_gone: Default::default(),
            watch: None,
        }
    }

    /// Channels of one of several workers: each hands out numbers of its own.
    pub fn of_worker(limit: usize, worker: u32, workers: u32) -> Self {
        Channels { next_number: worker + 1, stride: workers.max(1), ..Channels::new(limit) }
    }

    /// Pauses between two keys are an anomaly from this length on.
    pub fn long_pause(&mut self, pause_ns: u64) {
        self.rekeys.long_pause_ns = pause_ns;
    }

    /// Calls `watch` for every exceptional packet.
    pub fn watch(&mut self, watch: Watch) {
        self.watch = Some(watch);
    }

    /// Asks for the index slot of a hash.
    #[inline(always)]
    pub fn prefetch_slot(&self, hash: u32) {
        self.index.prefetch(hash);
    }

    /// The channel that probably has this hash, its state asked for; [`NONE`] when there is none.
    #[inline(always)]
    pub fn prefetch_channel(&self, hash: u32, key: &ChannelKey) -> u32 {
        let Some(at) = self.index.find(hash, |_| true) else {
            self.rekeys.prefetch(key);
            return NONE;
        };
        if let Some(hot) = self.hot.get(at as usize) {
            hot.prefetch();
        }
        at
    }

    /// Takes a packet; `guess` is what [`Self::prefetch_channel`] returned.
    #[inline(always)]
    pub fn observe(&mut self, hash: u32, guess: u32, observation: &Observation, arrival: &Arrival) {
        let at = match self.hot.get(guess as usize) {
            Some(hot) if hot.key == observation.key => guess,
            _ => self.find_or_create(hash, observation, arrival),
        };
        let judged;
        let mut observation = observation;
        if observation.flags.has(Flags::INTEGRITY_ONLY) {
            judged = self.judge_open(at, observation);
            observation = &judged;
        }
        let hot = &mut self.hot[at as usize];
        let before_ns = hot.last_ns;
        hot.count(observation, arrival.wire_len, arrival.time_ns);
        if hot.packets == 1 {
            self.dirty.push(at);
        }
        if arrival.time_ns.saturating_sub(before_ns) > SILENCE_NS {
            self.was_silent(at, arrival.time_ns - before_ns);
        }
        let hot = &mut self.hot[at as usize];
        let full = hot.bytes > u32::MAX / 2;
        if !hot.take_next(observation, arrival.time_ns) {
            self.exceptional(at, observation, arrival, before_ns);
        }
        if full {
            self.fold_bytes(at);
        }
    }

    /// An encrypted packet of ESP looks open once in a while, and behind an initialization vector that counts more often:
    /// several in a row are wanted.
    fn judge_open(&mut self, at: u32, observation: &Observation) -> Observation {
        if !matches!(observation.key.protocol(), Protocol::Esp | Protocol::EspUdp) {
            return *observation;
        }
        let goes_on = Flags(self.hot[at as usize].flags as u8).has(Flags::LOOKS_OPEN);
        let open = &mut self.cold[at as usize].open;
        *open = if goes_on { open.saturating_add(1) } else { 1 };
        let kept = if *open < OPEN_IN_A_ROW { !Flags::INTEGRITY_ONLY.0 } else { u8::MAX };
        Observation { flags: Flags(observation.flags.0 & kept).with(Flags::LOOKS_OPEN), ..*observation }
    }

    #[cold]
    fn find_or_create(&mut self, hash: u32, observation: &Observation, arrival: &Arrival) -> u32 {
        if let Some(at) = self.index.find(hash, |at| self.hot[at as usize].key == observation.key) {
            return at;
        }
        if let Some(at) = self.shared_with(observation) {
            return at;
        }
        let number = self.next_number;
        self.next_number = number.wrapping_add(self.stride);
        let hot = Hot::new(observation.key, arrival.time_ns);
        let cold = Cold::new(number, arrival.time_ns, arrival.frame);
        let at = if self.hot.len() < self.limit {
            self.hot.push(hot);
            self.cold.push(cold);
            self.hot.len() as u32 - 1
        } else {
            let at = self.make_room();
            self.hot[at as usize] = hot;
            self.cold[at as usize] = cold;
            at
        };
        self.index.insert(hash, at);
        self.fresh.push(NewChannel { number, key: observation.key });
        self.created += 1;
        self.may_share(at);
        self.join_group(at);
        at
    }

    #[cold]
    fn was_silent(&mut self, at: u32, silence_ns: u64) {
        let longest = &mut self.cold[at as usize].longest_silence_ns;
        *longest = silence_ns.max(*longest);
    }

    /// Interval counters are 32 bits wide; what 2 GB filled moves on as an interval of its own.
    #[cold]
    fn fold_bytes(&mut self, at: u32) {
        let hot = &mut self.hot[at as usize];
        let bytes = u64::from(std::mem::take(&mut hot.bytes));
        self.cold[at as usize].bytes += bytes;
        let counts = Counts { bytes, ..Counts::default() };
        let (channel, number) = (hot.key.channel_id(), self.cold[at as usize].number);
        let delta = ChannelDelta { channel, number, interval: 0, last_ns: 0, highest_sequence: 0, counts };
        self.folded.push(delta);
    }

    /// Evicts the channel that has been silent longest among some, and returns its index.
    fn make_room(&mut self) -> u32 {
        let candidates = (0..SAMPLE.min(self.limit)).map(|step| (self.next_victim + step) % self.limit);
        let at = candidates.min_by_key(|slot| self.hot[*slot].last_ns).expect("there is at least one channel")
            as u32;
        self.next_victim = (self.next_victim + SAMPLE) % self.limit;
        let settled = self.suspicions.remove(at, self.hot[at as usize].last_ns);
        self.settled(at, settled);
        self.leave_group(at);
        self.gaps.release(&mut self.cold[at as usize]);
        self.collect_gaps();
        let delta = self.take_delta(at, None);
        self.early.extend(delta);
        let mut state = self.state(at);
        state.figures.evicted = true;
        self.gaps_gone += state.figures.gaps;
        self.reorder_gone.add(&state.figures.reorder);
        self.protocols_gone[state.key.protocol() as usize].add(&state.figures.counts);
        self.gone.push(state);
        self.late.release(self.cold[at as usize].late_slot);
        let key = self.hot[at as usize].key;
        if self.cold[at as usize].is_noted {
            self.alarms.forget(key.channel_id());
        }
        self.index.remove(hash_of(&key), at);
        self.evicted += 1;
        at
    }

    /// This interval's rare counts of a channel.
    pub(super) fn rare(&mut self, at: u32) -> &mut Rare {
        let slot = &mut self.cold[at as usize].rare_slot;
        if *slot == NONE {
            *slot = self.rare.len() as u32;
            self.rare.push((at, Rare::default()));
        }
        &mut self.rare[*slot as usize].1
    }

    /// What the channel has lost, this interval included.
    pub(super) fn lost_so_far(&self, at: u32) -> i64 {
        let cold = &self.cold[at as usize];
        let recent = self.rare.get(cold.rare_slot as usize).map_or(0, |(_, rare)| rare.lost);
        cold.rare.lost + recent
    }

    pub(super) fn note(&mut self, kind: Kind, at: u32, packet: Packet, count: u64, value: u64) {
        self.cold[at as usize].is_noted = true;
        let sequence = self.cold[at as usize].shown(packet.number);
        let occurrence = Occurrence { time_ns: packet.time_ns, sequence, frame: packet.frame, count, value };
        self.alarms.note(kind, Some(self.hot[at as usize].key), occurrence);
    }

    /// Channels dropped so far to make room.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    pub(super) fn tell(&mut self, what: What, at: u32, packet: Packet, depth: u64) {
        if let Some(watch) = &mut self.watch {
            let sequence = self.cold[at as usize].shown(packet.number);
            let Packet { frame, time_ns, .. } = packet;
            watch(&Event { what, channel: self.hot[at as usize].key, sequence, frame, time_ns, depth });
        }
    }
}

/// The 32 bits of a key's hash that the index uses.
#[inline]
pub fn hash_of(key: &ChannelKey) -> u32 {
    (key.hash() >> 32) as u32
}
