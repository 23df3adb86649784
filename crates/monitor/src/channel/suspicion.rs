//! Packets whose meaning shows only in what follows: a first packet far ahead, a first few far behind.
//!
//! One damaged or forged packet must not move a channel's window, and a restarted counter must not be reported as
//! thousands of replays. So such packets wait here, a bounded number of them, until the next ones decide.

use std::collections::HashMap;

use crate::observation::Observation;

use super::memory::Words;
use super::state::fingerprint;
use super::table::Arrival;

/// Channels under suspicion at the same time; beyond that the wait of the older half ends.
const LIMIT: usize = 4096;
/// Numbers may be this far apart within a run.
const STRIDE: u64 = 64;
/// A run of this many packets is a restart, even if their contents are no longer remembered.
pub const RUN: usize = 64;
/// So many are enough where one of them differed from its original, or where they start a new key.
pub const SHORT_RUN: usize = 4;

/// A packet with its number extended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    pub number: u64,
    pub time_ns: u64,
    pub frame: u64,
    pub fingerprint: u16,
}

impl Packet {
    pub fn of(observation: &Observation, arrival: &Arrival, number: u64) -> Self {
        let Arrival { time_ns, frame, .. } = *arrival;
        Packet { number, time_ns, frame, fingerprint: fingerprint(observation) }
    }
}

/// What a waiting packet is if no run comes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Its number has not come before, but may belong to the next key under the same AN.
    Late,
    Duplicate,
    Replay,
    Reused,
    TooOld,
}

#[derive(Clone, Debug, Default)]
struct Suspect {
    /// The first packet of a possible leap.
    ahead: Option<Packet>,
    /// Packets below the highest number, in order of arrival.
    run: Vec<(Packet, Class)>,
    /// The highest number when the run began: it must stand still.
    highest: u64,
}

/// Packets whose wait is over without a restart or leap.
#[derive(Clone, Debug, Default)]
pub struct Settled {
    pub run: Vec<(Packet, Class)>,
    pub stray: Option<Packet>,
    /// A leap at the very end, which nothing contradicted.
    pub ahead: Option<Packet>,
}

#[derive(Debug, Default)]
pub struct Suspicions {
    map: HashMap<u32, Suspect, Words>,
}

impl Suspicions {
    /// The waiting packet far ahead, if there is one.
    pub fn ahead(&self, channel: u32) -> Option<Packet> {
        self.map.get(&channel).and_then(|suspect| suspect.ahead)
    }

    /// The channels whose wait has to end before another one may wait, longest quiet first: half of all at once, so that
    /// the search costs next to nothing. Mostly there are none.
    pub fn to_make_room(&self, channel: u32) -> Vec<u32> {
        if self.map.len() < LIMIT || self.map.contains_key(&channel) {
            return Vec::new();
        }
        let latest = |suspect: &Suspect| {
            let waiting = suspect.run.last().map(|(packet, _)| packet).into_iter().chain(&suspect.ahead);
            waiting.map(|packet| packet.time_ns).max()
        };
        let mut by_time: Vec<_> =
            self.map.iter().map(|(channel, suspect)| (latest(suspect), *channel)).collect();
        by_time.sort_unstable();
        by_time.truncate(LIMIT / 2);
        by_time.into_iter().map(|(_, channel)| channel).collect()
    }

    /// Lets a packet far ahead wait.
    pub fn wait_ahead(&mut self, channel: u32, packet: Packet) {
        self.map.entry(channel).or_default().ahead = Some(packet);
    }

    pub fn clear_ahead(&mut self, channel: u32) {
        if let Some(suspect) = self.map.get_mut(&channel) {
            suspect.ahead = None;
        }
    }

    /// Adds a packet from below to its channel's run and returns the run's length. Packets of an earlier run that this one
    /// does not continue are returned as settled.
    pub fn wait_behind(
        &mut self,
        channel: u32,
        packet: Packet,
        class: Class,
        highest: u64,
    ) -> (Vec<(Packet, Class)>, usize) {
        let suspect = self.map.entry(channel).or_default();
        let continues = suspect.highest == highest
            && suspect.run.last().is_some_and(|(last, _)| last.number.abs_diff(packet.number) <= STRIDE)
            && suspect.run.iter().all(|(earlier, _)| earlier.number != packet.number);
        let settled = if continues { Vec::new() } else { std::mem::take(&mut suspect.run) };
        suspect.highest = highest;
        suspect.run.push((packet, class));
        (settled, suspect.run.len())
    }

    /// Whether a packet in the channel's run differed from its original.
    pub fn is_strong(&self, channel: u32) -> bool {
        let strong = |suspect: &Suspect| suspect.run.iter().any(|(_, class)| *class == Class::Reused);
        self.map.get(&channel).is_some_and(strong)
    }

    /// Whether packets from below wait.
    pub fn is_waiting(&self, channel: u32) -> bool {
        self.map.get(&channel).is_some_and(|suspect| !suspect.run.is_empty())
    }

    /// Packets from below that wait, in order of arrival.
    pub fn run(&self, channel: u32) -> &[(Packet, Class)] {
        self.map.get(&channel).map_or(&[], |suspect| &suspect.run)
    }

    pub fn take_run(&mut self, channel: u32) -> Vec<(Packet, Class)> {
        self.map.get_mut(&channel).map(|suspect| std::mem::take(&mut suspect.run)).unwrap_or_default()
    }

    /// Ends the wait of everything that has been quiet since `until_ns`. `last_ns` tells when a channel's last packet
    /// came: a leap that later packets did not follow is a stray, one that nothing followed keeps waiting.
    pub fn settle(&mut self, until_ns: u64, last_ns: impl Fn(u32) -> u64) -> Vec<(u32, Settled)> {
        let mut settled = Vec::new();
        self.map.retain(|channel, suspect| {
            let mut over = Settled::default();
            if suspect.run.last().is_some_and(|(packet, _)| packet.time_ns <= until_ns) {
                over.run = std::mem::take(&mut suspect.run);
            }
            let contradicted =
                |packet: &Packet| packet.time_ns <= until_ns && last_ns(*channel) > packet.time_ns;
            if suspect.ahead.as_ref().is_some_and(contradicted) {
                over.stray = suspect.ahead.take();
            }
            if !over.run.is_empty() || over.stray.is_some() {
                settled.push((*channel, over));
            }
            !suspect.run.is_empty() || suspect.ahead.is_some()
        });
        settled.sort_unstable_by_key(|(channel, _)| *channel);
        settled
    }

    /// Ends all waiting of a channel that goes away.
    pub fn remove(&mut self, channel: u32, last_ns: u64) -> Settled {
        let Some(suspect) = self.map.remove(&channel) else { return Settled::default() };
        let followed = suspect.ahead.is_some_and(|packet| last_ns > packet.time_ns);
        let (stray, ahead) = if followed { (suspect.ahead, None) } else { (None, suspect.ahead) };
        Settled { run: suspect.run, stray, ahead }
    }

    /// All channels with something waiting, in order.
    pub fn channels(&self) -> Vec<u32> {
        let mut channels: Vec<u32> = self.map.keys().copied().collect();
        channels.sort_unstable();
        channels
    }
}
