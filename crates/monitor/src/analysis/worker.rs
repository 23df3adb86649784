//! One worker's part: frames into slots, slots into channels.

use crate::channel::alarms::Alarms;
use crate::channel::{Arrival, Channels, hash_of};
use crate::frame::{Batch, Frame};
use crate::observation::{ChannelKey, Observation, Unknown};
use crate::protocol;
use crate::summary::{Interval, Update, is_set_back};

use super::Options;
use super::link::{Link, interval};

/// Frames that are parsed before the first of them is looked up: long enough for memory to answer the prefetches, short
/// enough for the first-level cache.
pub const GROUP: usize = 64;

/// Reads the channel and number of a frame; [`crate::protocol::observe`] outside of tests.
pub trait Observe: Copy + Sync {
    /// The reason, where the frame belongs to no channel.
    fn observe(&self, frame: &Frame<'_>) -> Result<Observation, Unknown>;
}

impl<F: Fn(&Frame<'_>) -> Result<Observation, Unknown> + Copy + Sync> Observe for F {
    #[inline(always)]
    fn observe(&self, frame: &Frame<'_>) -> Result<Observation, Unknown> {
        self(frame)
    }
}

/// All protocols that are followed, as a part of the loop that asks: a function as a value would be called.
#[derive(Clone, Copy, Debug)]
pub struct Protocols;

impl Observe for Protocols {
    #[inline(always)]
    fn observe(&self, frame: &Frame<'_>) -> Result<Observation, Unknown> {
        protocol::observe(frame)
    }
}

/// A parsed frame that waits for its channel to be looked up.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    pub observation: Observation,
    pub arrival: Arrival,
    pub hash: u32,
}

/// Reads frames: everything before the channels.
pub struct Parser<O> {
    pub link: Link,
    pub alarms: Alarms,
    observe: O,
}

impl<O: Observe> Parser<O> {
    pub fn new(observe: O) -> Self {
        Parser { link: Link::default(), alarms: Alarms::default(), observe }
    }

    /// Parses one frame; `None` when it belongs to no channel.
    #[inline(always)]
    pub fn parse(&mut self, frame: &Frame<'_>, previous_ns: u64, options: &Options) -> Option<Slot> {
        self.link.count(frame, previous_ns);
        Link::check_mtu(frame, options.mtu, &mut self.alarms);
        match self.observe.observe(frame) {
            Ok(mut observation) => {
                Link::check_protection(&observation, frame, options.expect_protected, &mut self.alarms);
                if options.merge_interfaces {
                    observation.key = observation.key.any_interface();
                }
                let hash = hash_of(&observation.key);
                let Frame { time_ns, wire_len, number: frame, .. } = *frame;
                Some(Slot { observation, arrival: Arrival { time_ns, frame, wire_len }, hash })
            }
            Err(reason) => {
                self.link.unknown(reason, frame, options, &mut self.alarms);
                None
            }
        }
    }
}

/// A set of channels with its clock.
pub struct Shard {
    pub channels: Channels,
    /// The highest capture time so far.
    pub now_ns: u64,
    interval_end_ns: u64,
    length_ns: u64,
    evicted: u64,
    guesses: [u32; GROUP],
}

impl Shard {
    /// The share of one of the workers, which count from 0.
    pub fn new(options: &Options, worker: usize) -> Self {
        let workers = options.workers.max(1);
        let limit = options.max_channels.div_ceil(workers);
        let mut channels = Channels::of_worker(limit, worker as u32, workers as u32);
        channels.long_pause(options.rekey_pause_ns);
        Shard {
            channels,
            now_ns: 0,
            interval_end_ns: 0,
            length_ns: options.interval_ns.max(1),
            evicted: 0,
            guesses: [0; GROUP],
        }
    }

    pub fn prefetch(&self, slot: &Slot) {
        self.channels.prefetch_slot(slot.hash);
    }

    /// Takes at most [`GROUP`] slots whose index entries were asked for.
    #[inline]
    pub fn take(&mut self, slots: &[Slot], emit: &mut dyn FnMut(Update)) {
        for (guess, slot) in self.guesses.iter_mut().zip(slots) {
            *guess = self.channels.prefetch_channel(slot.hash, &slot.observation.key);
        }
        if let Some(first) = slots.first()
            && slots.iter().all(|slot| self.is_set_back(slot.arrival.time_ns))
        {
            self.set_back(first.arrival.time_ns, emit);
        }
        for (at, slot) in slots.iter().enumerate() {
            if slot.arrival.time_ns >= self.interval_end_ns {
                self.tick(slot.arrival.time_ns, emit);
            }
            self.channels.observe(slot.hash, self.guesses[at], &slot.observation, &slot.arrival);
        }
        if self.channels.is_overflowing() {
            self.flush(emit);
        }
    }

    #[inline]
    fn is_set_back(&self, time_ns: u64) -> bool {
        is_set_back(time_ns, self.interval_end_ns, self.length_ns)
    }

    /// Follows a clock that was set back, or that a damaged record had carried into the future.
    #[cold]
    fn set_back(&mut self, time_ns: u64, emit: &mut dyn FnMut(Update)) {
        self.now_ns = time_ns;
        self.flush(emit);
        self.interval_end_ns = 0;
    }

    /// Moves the clock; intervals that end are reported.
    pub fn tick(&mut self, time_ns: u64, emit: &mut dyn FnMut(Update)) {
        if self.is_set_back(time_ns) {
            self.set_back(time_ns, emit);
        }
        if time_ns >= self.interval_end_ns {
            if self.interval_end_ns > 0 {
                self.now_ns = self.now_ns.max(time_ns);
                self.flush(emit);
            }
            // Damaged captures have times near the end of what a number holds.
            self.interval_end_ns =
                (time_ns / self.length_ns).saturating_add(1).saturating_mul(self.length_ns);
        }
        self.now_ns = self.now_ns.max(time_ns);
    }

    fn flush(&mut self, emit: &mut dyn FnMut(Update)) {
        self.channels.flush(self.now_ns, self.interval(), emit);
    }

    /// The interval that the clock is in.
    pub fn interval(&self) -> Interval {
        interval(self.interval_end_ns.saturating_sub(1) / self.length_ns, self.length_ns)
    }

    /// Evictions since the last call.
    pub fn new_evictions(&mut self) -> u64 {
        let total = self.channels.evicted();
        total - std::mem::replace(&mut self.evicted, total)
    }
}

/// Which of `shards` keeps a channel. Successive keys of one secure channel stay together.
#[inline]
pub fn shard_of(key: &ChannelKey, shards: usize) -> usize {
    ((u128::from(key.shard()) * shards as u128) >> 64) as usize
}

/// Parses a batch and takes its frames, group by group.
pub fn analyse_batch<O: Observe>(
    batch: &Batch,
    previous_ns: u64,
    parser: &mut Parser<O>,
    shard: &mut Shard,
    options: &Options,
    slots: &mut Vec<Slot>,
    emit: &mut dyn FnMut(Update),
) {
    let (bytes, mut number, mut previous_ns) = (batch.bytes(), batch.first_number(), previous_ns);
    for records in batch.records().chunks(GROUP) {
        slots.clear();
        for record in records {
            let frame = Batch::frame_of(bytes, record, number);
            number += 1;
            if let Some(slot) = parser.parse(&frame, previous_ns, options) {
                shard.prefetch(&slot);
                slots.push(slot);
            }
            previous_ns = record.time_ns;
        }
        shard.take(slots, emit);
    }
}
