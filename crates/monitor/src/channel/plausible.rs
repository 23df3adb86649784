//! Whether a channel's numbers count its packets at all. GTP-U senders may set the S flag and then send a constant, or the
//! number in the wrong byte order; others send times, or a capture holds a sample of the packets. Losses of such channels
//! cannot be told: what was taken for them is taken back, and the channel's packets are counted as those without a number.

use crate::observation::{Observation, Protocol};

use super::state::{NO_COUNTER, NOTED_EXHAUSTION, NOTED_WRAPPED, STARTED, fingerprint};
use super::suspicion::Packet;
use super::table::{Arrival, Channels};
use crate::anomaly::Kind;

/// So many packets that follow each other make a counter of what was none.
const RECOVERED: u32 = 64;
/// Packets of one telling pattern, behind the first.
const PATTERN: u32 = 3;
/// A number in the wrong byte order may skip so many and is still known.
const REVERSED_STEP: u64 = 16;

/// Why numbers are no counter, as the anomaly's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Why {
    Constant = 1,
    Reversed = 2,
    Irregular = 3,
}

impl Why {
    /// Detail text of the anomaly.
    pub fn words(value: u64) -> &'static str {
        match value {
            1 => "packet after packet carries the same number",
            2 => "read in the other byte order they count packets: the sender writes them little-endian",
            _ => {
                "hardly any packet has the number behind that of the packet before: no counter, or a sample of the packets"
            }
        }
    }
}

/// What a channel's packets that were not simply the next have in common.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Evidence {
    /// Number and fingerprint of the latest of them, and how many packets the channel had then.
    previous: u32,
    packets: u32,
    /// Packets whose number follows that of the packet before, and packets whose number does not.
    counting: u32,
    odd: u32,
    /// Of those: one more when read in the other byte order; the same number with another content.
    reversed: u16,
    same: u16,
    /// Of those: far from the packet before.
    far: u16,
    fingerprint: u16,
}

impl Evidence {
    fn begin(&mut self, observation: &Observation, packets: u32) {
        self.previous = observation.sequence as u32;
        self.packets = packets;
        self.fingerprint = fingerprint(observation);
    }

    fn add(&mut self, observation: &Observation, packets: u32) {
        let before = *self;
        self.begin(observation, packets);
        let between = packets.wrapping_sub(before.packets).saturating_sub(1);
        self.counting = self.counting.saturating_add(between);
        let step = step(before.previous, self.previous, observation.bits);
        // A stretch that is played again follows itself.
        if between == 0 && step == 1 {
            self.counting = self.counting.saturating_add(1);
            return;
        }
        self.odd = self.odd.saturating_add(1);
        if between > 0 {
            return;
        }
        let reversed = step_reversed(before.previous, self.previous, observation.bits);
        let differs = before.fingerprint != self.fingerprint || self.fingerprint == 0;
        let add = |count: &mut u16, is_so: bool| *count = count.saturating_add(is_so.into());
        add(&mut self.reversed, (1..=REVERSED_STEP).contains(&reversed));
        add(&mut self.same, step == 0 && differs);
        add(&mut self.far, (super::LEAP..=range(observation.bits) - super::LEAP).contains(&step));
    }

    /// `guards`: the protocol's number protects against replay. Its receivers would drop what does not count, and somebody
    /// who forges packets must not be able to silence the monitor: more evidence is wanted, and numbers used twice stay
    /// what they are.
    fn verdict(&self, guards: bool, lost: u64, stray: u64) -> Option<Why> {
        let Evidence { counting, odd, .. } = *self;
        let mostly = |count: u16| u32::from(count) >= PATTERN && u32::from(count) >= odd / 4 * 3;
        if counting <= odd / 4 {
            if mostly(self.reversed) {
                return Some(Why::Reversed);
            }
            if !guards && mostly(self.same) {
                return Some(Why::Constant);
            }
        }
        let (enough, others, skipped) = if guards { (64, 64, 32) } else { (32, 8, 4) };
        let all = u64::from(odd);
        let strange =
            lost >= all * skipped || stray * 4 >= all || (!guards && u64::from(self.far) * 2 >= all);
        (odd >= enough && counting <= odd / others && strange).then_some(Why::Irregular)
    }
}

fn range(bits: u8) -> u64 {
    1 << bits.min(32)
}

fn step(from: u32, to: u32, bits: u8) -> u64 {
    u64::from(to.wrapping_sub(from)) & (range(bits) - 1)
}

fn step_reversed(from: u32, to: u32, bits: u8) -> u64 {
    let turned =
        |number: u32| if bits == 16 { (number as u16).swap_bytes().into() } else { number.swap_bytes() };
    step(turned(from), turned(to), bits)
}

/// What is taken back: it was said of numbers that are none. Numbers used twice under one key are an alarm whatever they count.
const TAKEN_BACK: [Kind; 7] = [
    Kind::Loss,
    Kind::LateBeyondWindow,
    Kind::Stray,
    Kind::TooOld,
    Kind::SequenceJump,
    Kind::Exhaustion,
    Kind::Wrapped,
];
const TAKEN_BACK_UNGUARDED: [Kind; 4] =
    [Kind::Duplicate, Kind::Replay, Kind::CounterReuse, Kind::CounterRestart];

impl Channels {
    fn packets_of(&self, at: u32) -> u32 {
        (self.cold[at as usize].packets as u32).wrapping_add(self.hot[at as usize].packets)
    }

    /// The first packet of a channel.
    pub(super) fn begin_evidence(&mut self, at: u32, observation: &Observation) {
        let packets = self.packets_of(at);
        self.cold[at as usize].evidence.begin(observation, packets);
    }

    /// A packet that was not simply the next has been judged.
    pub(super) fn weigh(&mut self, at: u32, observation: &Observation, packet: Packet) {
        let (packets, lost) = (self.packets_of(at), self.lost_so_far(at).max(0) as u64);
        let guards = self.hot[at as usize].key.protocol() != Protocol::GtpU;
        let cold = &mut self.cold[at as usize];
        cold.evidence.add(observation, packets);
        let recent = self.rare.get(cold.rare_slot as usize).map_or(0, |(_, rare)| rare.stray);
        let stray = u64::from(cold.rare.stray) + u64::from(recent);
        if let Some(why) = cold.evidence.verdict(guards, lost, stray) {
            self.is_no_counter(at, packet, why, guards);
        }
    }

    fn is_no_counter(&mut self, at: u32, packet: Packet, why: Why, guards: bool) {
        let lost = self.lost_so_far(at);
        let channel = self.hot[at as usize].key.channel_id();
        // Reports on their way would come behind what takes them back.
        self.collect_gaps();
        self.gaps.withdraw(&mut self.cold[at as usize]);
        self.collect_gaps();
        drop(self.suspicions.remove(at, packet.time_ns));
        let rare = self.rare(at);
        rare.lost -= lost;
        (rare.stray, rare.too_old) = (0, 0);
        self.alarms.take_back(channel, &TAKEN_BACK);
        if !guards {
            let rare = self.rare(at);
            (rare.duplicates, rare.replays, rare.reused) = (0, 0, 0);
            self.alarms.take_back(channel, &TAKEN_BACK_UNGUARDED);
        }
        let cold = &mut self.cold[at as usize];
        self.gaps.change -= i64::from(cold.gaps);
        (cold.gaps, cold.restarts, cold.jumps) = (0, 0, 0);
        cold.evidence = Evidence { previous: cold.evidence.previous, ..Evidence::default() };
        self.note(Kind::NoCounter, at, packet, 1, why as u64);
        let hot = &mut self.hot[at as usize];
        hot.flags = hot.flags & !(STARTED | NOTED_EXHAUSTION | NOTED_WRAPPED) | NO_COUNTER;
    }

    /// A packet of a channel whose numbers were no counter so far.
    pub(super) fn counts_again(&mut self, at: u32, observation: &Observation, arrival: &Arrival) {
        let evidence = &mut self.cold[at as usize].evidence;
        let follows = step(evidence.previous, observation.sequence as u32, observation.bits) == 1;
        evidence.previous = observation.sequence as u32;
        evidence.counting = if follows { evidence.counting + 1 } else { 0 };
        if evidence.counting >= RECOVERED {
            *evidence = Evidence::default();
            self.hot[at as usize].flags &= !NO_COUNTER;
            self.start(at, observation, arrival);
        }
    }
}
