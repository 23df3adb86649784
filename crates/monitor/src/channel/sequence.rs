//! What a packet out of order means: the judge of the definitions in [`super`].

use crate::observation::{Observation, Protocol};

use super::gaps::Skipped;
use super::rekey::START;
use super::state::{NO_COUNTER, STARTED, SUCCEEDED, distance, period};
use super::suspicion::{Class, Packet, RUN, SHORT_RUN, Settled};
use super::table::{Arrival, Channels, What};
use super::{DUPLICATE_HORIZON_NS, LEAP, WINDOW};
use crate::anomaly::Kind;

/// A leap up to this size may be loss even on a channel that was slow before.
const BELIEVABLE: u64 = 65_536;
/// A channel may burst to this multiple of its mean rate.
const BURST: u64 = 16;

impl Channels {
    /// A packet that is not simply the next one of its channel. `before_ns` is the time of the packet before it.
    #[cold]
    pub(super) fn exceptional(
        &mut self,
        at: u32,
        observation: &Observation,
        arrival: &Arrival,
        before_ns: u64,
    ) {
        if observation.bits == 0 {
            return;
        }
        let hot = &self.hot[at as usize];
        if hot.flags & NO_COUNTER != 0 {
            return self.counts_again(at, observation, arrival);
        }
        if hot.flags & STARTED == 0 {
            return self.start(at, observation, arrival);
        }
        let away = distance(hot.highest, observation.sequence, observation.bits);
        let packet = Packet::of(observation, arrival, hot.highest.wrapping_add_signed(away));
        self.classify(at, packet, before_ns);
        self.weigh(at, observation, packet);
    }

    /// The first packet with a number.
    pub(super) fn start(&mut self, at: u32, observation: &Observation, arrival: &Arrival) {
        self.cold[at as usize].bits = observation.bits;
        let number = observation.sequence.wrapping_add(period(observation.bits));
        self.begin(at, Packet::of(observation, arrival, number));
        self.begin_evidence(at, observation);
    }

    /// Starts a sequence with this packet.
    fn begin(&mut self, at: u32, packet: Packet) {
        self.hot[at as usize].begin(packet.number, packet.fingerprint, packet.time_ns);
        let cold = &mut self.cold[at as usize];
        (cold.first, cold.forgotten) = (packet.number, 0);
    }

    /// Judges a packet whose number is extended.
    fn classify(&mut self, at: u32, packet: Packet, before_ns: u64) {
        let hot = &mut self.hot[at as usize];
        match packet.number.checked_sub(hot.highest) {
            Some(0) | None => self.behind(at, packet, before_ns),
            Some(1) => hot.advance(packet.number, packet.fingerprint, packet.time_ns),
            Some(ahead) if ahead <= LEAP => self.skip(at, packet, before_ns),
            Some(_) => self.leap(at, packet, before_ns),
        }
    }

    /// Numbers were skipped: lost, until they come.
    fn skip(&mut self, at: u32, packet: Packet, before_ns: u64) {
        let hot = &mut self.hot[at as usize];
        let (first, last) = (hot.highest + 1, packet.number - 1);
        hot.advance(packet.number, packet.fingerprint, packet.time_ns);
        let Packet { time_ns: after_ns, frame, .. } = packet;
        self.gaps.open(&mut self.cold, at, Skipped { first, last, before_ns, after_ns, frame });
        self.rare(at).lost += (last - first + 1) as i64;
        self.tell(What::Skipped, at, packet, last - first + 1);
    }

    /// So many numbers were skipped that a second packet has to confirm it.
    fn leap(&mut self, at: u32, packet: Packet, before_ns: u64) {
        if let Some(first) = self.suspicions.ahead(at) {
            let apart = first.number.abs_diff(packet.number);
            self.suspicions.clear_ahead(at);
            if apart != 0 && apart <= WINDOW {
                self.believe(at, first, before_ns);
                // The first packet may have begun a new count, in which this one has another place.
                let (highest, bits) = (self.hot[at as usize].highest, self.cold[at as usize].bits);
                let number = highest.wrapping_add_signed(distance(highest, packet.number, bits));
                self.classify(at, Packet { number, ..packet }, first.time_ns);
                return;
            }
            self.stray(at, first);
        }
        self.make_room_to_wait(at);
        self.suspicions.wait_ahead(at, packet);
    }

    /// A leap happened: loss, a jump of the counter, or its restart at the far end of the wire's range.
    fn believe(&mut self, at: u32, packet: Packet, before_ns: u64) {
        let (hot, cold) = (&self.hot[at as usize], &self.cold[at as usize]);
        let highest = hot.highest;
        if packet.number <= highest {
            return self.classify(at, packet, before_ns);
        }
        let missing = packet.number - highest - 1;
        let (sent, time) = (highest - cold.first + 1, before_ns.saturating_sub(cold.first_ns).max(1));
        let idle = packet.time_ns.saturating_sub(before_ns);
        let believable = u128::from(sent) * u128::from(idle) * u128::from(BURST) / u128::from(time);
        let one_period = period(cold.bits).max(1);
        let anew =
            packet.number / one_period > highest / one_period && packet.number % one_period < BELIEVABLE;
        let plausible = missing < BELIEVABLE || (!anew && u128::from(missing) <= believable);
        if plausible || cold.bits == 16 {
            self.skip(at, packet, before_ns);
        } else if anew {
            self.count_anew(at, packet, one_period, before_ns);
        } else {
            self.note(Kind::SequenceJump, at, packet, 1, missing);
            self.cold[at as usize].jumps = self.cold[at as usize].jumps.saturating_add(1);
            self.tell(What::Jump, at, packet, missing);
            self.begin(at, packet);
        }
    }

    /// Too far ahead, but a small number on the wire: the counter restarted, or a key that was replaced is played again.
    fn count_anew(&mut self, at: u32, packet: Packet, one_period: u64, before_ns: u64) {
        let (superseded, number) = (self.is_superseded(at), packet.number % one_period);
        if superseded && number > START {
            return self.behind(at, Packet { number: packet.number - one_period, ..packet }, before_ns);
        }
        self.restart(at, vec![Packet { number: number + one_period, ..packet }], superseded);
    }

    /// Whether the sender of this MACsec channel has moved on to another AN: this one may come round, with a new key.
    fn is_superseded(&self, at: u32) -> bool {
        let hot = &self.hot[at as usize];
        hot.flags & SUCCEEDED != 0 && hot.key.protocol() == Protocol::Macsec
    }

    /// At or below the highest: late, or seen before.
    fn behind(&mut self, at: u32, packet: Packet, before_ns: u64) {
        let (hot, cold) = (&self.hot[at as usize], &self.cold[at as usize]);
        let (number, depth) = (packet.number, hot.highest - packet.number);
        let first = cold.first;
        // A new key under an AN that comes round counts from 1, where the old key may have gaps: more packets decide.
        let anew = self.is_superseded(at) && cold.shown(number) <= START;
        if anew && (depth >= WINDOW || !hot.has(number)) {
            return self.suspect(at, packet, Class::Late);
        }
        if self.belated(at, packet, before_ns) {
            return;
        }
        let class = self.seen_before(at, packet, before_ns);
        if class == Class::TooOld {
            return self.suspect(at, packet, class);
        }
        match (self.hot[at as usize].remembered(number, first), packet.fingerprint) {
            (0, _) | (_, 0) => self.suspect(at, packet, class),
            // The old key's first packet tells what the ones behind it are.
            (known, new) if known == new && anew => self.suspect(at, packet, class),
            (known, new) if known == new => self.judged(at, packet, class),
            _ => self.suspect(at, packet, Class::Reused),
        }
    }

    /// What a packet is whose number is not known to be missing.
    fn seen_before(&self, at: u32, packet: Packet, before_ns: u64) -> Class {
        let (hot, cold) = (&self.hot[at as usize], &self.cold[at as usize]);
        let Packet { number, time_ns, .. } = packet;
        if number < cold.first || (hot.highest - number >= WINDOW && number < cold.forgotten) {
            return Class::TooOld;
        }
        if hot.is_duplicate(number, time_ns, before_ns) { Class::Duplicate } else { Class::Replay }
    }

    /// Takes a packet whose number has not come before; false when it has, or when it cannot be told.
    fn belated(&mut self, at: u32, packet: Packet, before_ns: u64) -> bool {
        let hot = &mut self.hot[at as usize];
        let (number, depth) = (packet.number, hot.highest - packet.number);
        if depth < WINDOW && !hot.has(number) {
            hot.mark(number);
            if depth < 16 {
                hot.remember(number, packet.fingerprint);
            }
            if number < self.cold[at as usize].first {
                self.extend_down(at, number, before_ns, packet);
                self.hot[at as usize].remember_first(packet.fingerprint);
            } else {
                self.gaps.fill(&mut self.cold, at, number);
                self.rare(at).lost -= 1;
            }
        } else if depth >= WINDOW && self.gaps.fill(&mut self.cold, at, number) {
            self.rare(at).lost -= 1;
        } else {
            return false;
        }
        self.late(at, packet, depth);
        true
    }

    /// The sequence begins lower than its first packet made believe; what lies between is missing.
    pub(super) fn extend_down(&mut self, at: u32, number: u64, before_ns: u64, packet: Packet) {
        let first = std::mem::replace(&mut self.cold[at as usize].first, number);
        if first - number > 1 {
            let skipped = Skipped {
                first: number + 1,
                last: first - 1,
                before_ns,
                after_ns: packet.time_ns,
                frame: packet.frame,
            };
            self.gaps.open_lowest(&mut self.cold, at, skipped);
            self.rare(at).lost += (first - number - 1) as i64;
        }
    }

    fn late(&mut self, at: u32, packet: Packet, depth: u64) {
        self.rare(at).late += 1;
        let slot = &mut self.cold[at as usize].late_slot;
        *slot = self.late.add(*slot, depth);
        if depth >= 64 {
            self.note(Kind::LateBeyondWindow, at, packet, 1, depth);
        }
        self.tell(What::Late, at, packet, depth);
    }

    /// A packet from below that may be the first of a restarted counter.
    fn suspect(&mut self, at: u32, packet: Packet, class: Class) {
        self.make_room_to_wait(at);
        let highest = self.hot[at as usize].highest;
        let (settled, length) = self.suspicions.wait_behind(at, packet, class, highest);
        for (packet, class) in settled {
            self.judged(at, packet, class);
        }
        let (superseded, strong) = (self.is_superseded(at), self.suspicions.is_strong(at));
        let renewed = superseded && self.begins_a_key(at);
        let returns = renewed || (superseded && length >= RUN && self.is_back_at(at, packet.time_ns));
        let enough = if renewed || strong { SHORT_RUN } else { RUN };
        if length < enough {
            return;
        }
        let run = self.suspicions.take_run(at);
        if superseded && !returns && !strong {
            // Its highest number stands still whoever sends: copies, however many follow each other.
            return run.into_iter().for_each(|(packet, class)| self.judged(at, packet, class));
        }
        let mut run: Vec<Packet> = run.into_iter().map(|(packet, _)| packet).collect();
        if !returns {
            run.sort_by_key(|packet| packet.number);
        }
        self.restart(at, run, returns);
    }

    /// Whether the waiting run is the start of a new key: its numbers start at 1 (802.1AE 10.5.2), and none of its packets
    /// is a copy of the old key's.
    fn begins_a_key(&self, at: u32) -> bool {
        let (hot, cold) = (&self.hot[at as usize], &self.cold[at as usize]);
        let is_copy = |packet: &Packet| {
            packet.fingerprint != 0 && hot.remembered(packet.number, cold.first) == packet.fingerprint
        };
        let run = self.suspicions.run(at);
        run.first().is_some_and(|(first, _)| cold.shown(first.number) <= START)
            && !run.iter().any(|(packet, _)| is_copy(packet))
    }

    /// Whether the sender is back at this AN with a key whose start was missed: the key that had taken its place is silent.
    fn is_back_at(&self, at: u32, now_ns: u64) -> bool {
        let live = self.head(&self.hot[at as usize].key.group()).filter(|head| *head != at);
        live.is_none_or(|head| self.hot[head as usize].last_ns.saturating_add(DUPLICATE_HORIZON_NS) <= now_ns)
    }

    /// Nothing more can change what this packet is.
    pub(super) fn judged(&mut self, at: u32, packet: Packet, class: Class) {
        if class == Class::Late && self.belated(at, packet, packet.time_ns) {
            return;
        }
        let class = match class {
            Class::Late => self.seen_before(at, packet, self.hot[at as usize].last_ns),
            class => class,
        };
        let depth = self.hot[at as usize].highest.saturating_sub(packet.number);
        let rare = self.rare(at);
        let (kind, what) = match class {
            Class::Duplicate => {
                rare.duplicates += 1;
                (Kind::Duplicate, What::Duplicate)
            }
            Class::Replay => {
                rare.replays += 1;
                (Kind::Replay, What::Replay)
            }
            Class::Reused => {
                rare.reused += 1;
                (Kind::CounterReuse, What::Reused)
            }
            Class::TooOld | Class::Late => {
                rare.too_old += 1;
                (Kind::TooOld, What::TooOld)
            }
        };
        self.note(kind, at, packet, 1, depth);
        self.tell(what, at, packet, depth);
    }

    fn stray(&mut self, at: u32, packet: Packet) {
        self.rare(at).stray += 1;
        self.note(Kind::Stray, at, packet, 1, 0);
        self.tell(What::Stray, at, packet, 0);
    }

    /// The counter began anew with these packets: under a new key if its sender `returns` to this AN (802.1AE has four, so
    /// they come round), else under the same one.
    fn restart(&mut self, at: u32, run: Vec<Packet>, returns: bool) {
        let Some(start) = run.first().copied() else { return };
        for (packet, class) in self.suspicions.take_run(at) {
            self.judged(at, packet, class);
        }
        let highest = self.cold[at as usize].shown(self.hot[at as usize].highest);
        if returns {
            self.returned(at, start);
        } else {
            self.cold[at as usize].restarts = self.cold[at as usize].restarts.saturating_add(1);
            self.rare(at).reused += run.len() as u32;
            self.note(Kind::CounterRestart, at, start, 1, highest);
            for packet in &run {
                self.tell(What::Reused, at, *packet, 0);
            }
        }
        self.gaps.release(&mut self.cold[at as usize]);
        self.begin(at, start);
        let mut before_ns = start.time_ns;
        for packet in run.into_iter().skip(1) {
            self.classify(at, packet, before_ns);
            before_ns = packet.time_ns;
        }
    }

    /// Judges what has waited longest, where too much waits for one more channel.
    fn make_room_to_wait(&mut self, at: u32) {
        for quiet in self.suspicions.to_make_room(at) {
            let settled = self.suspicions.remove(quiet, self.hot[quiet as usize].last_ns);
            self.settled(quiet, settled);
        }
    }

    /// Judges what waited and can wait no longer.
    pub(super) fn settled(&mut self, at: u32, settled: Settled) {
        for (packet, class) in settled.run {
            self.judged(at, packet, class);
        }
        if let Some(packet) = settled.stray {
            self.stray(at, packet);
        }
        if let Some(packet) = settled.ahead {
            // Nothing followed it, so nothing confirms it either: loss if that is plausible.
            let ahead = packet.number.wrapping_sub(self.hot[at as usize].highest);
            if (1..=BELIEVABLE).contains(&ahead) {
                self.skip(at, packet, self.hot[at as usize].last_ns.min(packet.time_ns));
            } else {
                self.stray(at, packet);
            }
        }
    }
}
