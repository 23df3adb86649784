//! The state of one channel: a hot part that every packet touches, a cold part for the rest.

use crate::observation::{ChannelKey, Flags, Observation};
use crate::summary::{Counts, Protection};

use super::memory::prefetch;
use super::plausible::Evidence;
use super::{DUPLICATE_HORIZON_NS, WINDOW};

/// No entry in one of the lists that hold indices.
pub const NONE: u32 = u32::MAX;

/// The channel has had a packet with a number.
pub const STARTED: u16 = 1 << 8;
/// Its sender has moved on to another AN or SPI.
pub const SUCCEEDED: u16 = 1 << 9;
/// What has been noted about the channel once and is not noted again.
pub const NOTED_PROTECTION: u16 = 1 << 10;
pub const NOTED_MIXED: u16 = 1 << 11;
pub const NOTED_LENGTH: u16 = 1 << 12;
pub const NOTED_EXHAUSTION: u16 = 1 << 13;
pub const NOTED_WRAPPED: u16 = 1 << 14;
/// Its numbers do not count its packets.
pub const NO_COUNTER: u16 = 1 << 15;

/// Of [`Flags::LOOKS_OPEN`]; that of [`Flags::ENCRYPTED`] is 0.
const LOOKS_OPEN_BIT: u16 = 7;

/// Shorter times between packets never count as silence.
pub const SILENCE_NS: u64 = 100_000_000;
/// Numbers whose fingerprints are kept.
const REMEMBERED: u64 = 16;
/// Times are kept in units of 2^24 ns (16.8 ms).
const TIME_SHIFT: u32 = 24;

/// What a packet in order reads and writes: three cache lines.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct Hot {
    pub key: ChannelKey,
    /// The highest number, extended, plus one period of the counter (so that earlier numbers stay positive).
    pub highest: u64,
    pub last_ns: u64,
    /// Since the last flush.
    pub packets: u32,
    pub bytes: u32,
    /// Bit `n % 512` tells whether number `n` has come, for the 512 numbers up to the highest.
    window: [u64; 8],
    fingerprints: [u16; REMEMBERED as usize],
    jitter_ns: f32,
    last_spacing: u32,
    pub min_payload: u16,
    pub max_payload: u16,
    /// Low byte: all [`Flags`] seen. High byte: [`STARTED`], [`SUCCEEDED`].
    pub flags: u16,
    first_fingerprint: u16,
    /// When the highest number entered each block of 64 numbers.
    times: [u16; 8],
}

impl Hot {
    pub fn new(key: ChannelKey, time_ns: u64) -> Self {
        Hot {
            key,
            highest: 0,
            last_ns: time_ns,
            packets: 0,
            bytes: 0,
            window: [0; 8],
            fingerprints: [0; REMEMBERED as usize],
            jitter_ns: 0.0,
            last_spacing: u32::MAX,
            min_payload: u16::MAX,
            max_payload: 0,
            flags: 0,
            first_fingerprint: 0,
            times: [0; 8],
        }
    }

    /// Counts a packet, whatever its number.
    #[inline]
    pub fn count(&mut self, observation: &Observation, wire_len: u32, time_ns: u64) {
        self.packets += 1;
        self.bytes = self.bytes.wrapping_add(wire_len);
        // Encrypted: what looked open before was chance.
        self.flags &= !(u16::from(observation.flags.0 & Flags::ENCRYPTED.0) << LOOKS_OPEN_BIT);
        self.flags |= u16::from(observation.flags.0);
        self.min_payload = self.min_payload.min(observation.payload_len);
        self.max_payload = self.max_payload.max(observation.payload_len);
        let spacing = u32::try_from(time_ns.saturating_sub(self.last_ns)).unwrap_or(u32::MAX);
        // RFC 3550 6.4.1 with D = change of the spacing, which is the transit difference of evenly sent packets.
        if self.last_spacing != u32::MAX {
            let change = spacing.abs_diff(self.last_spacing) as f32;
            self.jitter_ns += (change - self.jitter_ns) * (1.0 / 16.0);
        }
        // The very first packet has no spacing; `last_ns` is its own time then.
        self.last_spacing = if self.packets == 1 && self.flags & STARTED == 0 { u32::MAX } else { spacing };
        self.last_ns = self.last_ns.max(time_ns);
    }

    /// Takes the packet if it is the next one: the common case.
    #[inline]
    pub fn take_next(&mut self, observation: &Observation, time_ns: u64) -> bool {
        if self.flags & STARTED == 0 || distance(self.highest, observation.sequence, observation.bits) != 1 {
            return false;
        }
        let number = self.highest + 1;
        self.highest = number;
        self.mark(number);
        self.remember(number, fingerprint(observation));
        if number & 63 == 0 {
            self.times[block(number)] = coarse(time_ns);
        }
        true
    }

    /// Begins (or begins anew) with this number as the only one seen.
    pub fn begin(&mut self, number: u64, fingerprint: u16, time_ns: u64) {
        self.highest = number;
        self.window = [0; 8];
        self.fingerprints = [0; REMEMBERED as usize];
        self.times = [coarse(time_ns); 8];
        self.mark(number);
        self.remember(number, fingerprint);
        self.first_fingerprint = fingerprint;
        self.flags |= STARTED;
    }

    /// Makes `number`, above the highest, the highest; what lies between has not come.
    pub fn advance(&mut self, number: u64, fingerprint: u16, time_ns: u64) {
        let from = self.highest + 1;
        if number - self.highest >= WINDOW {
            self.window = [0; 8];
        } else {
            for missing in from..number {
                self.window[block(missing)] &= !(1 << (missing & 63));
            }
        }
        let blocks = (number >> 6) - (self.highest >> 6);
        for entered in (0..blocks.min(8)).map(|back| (number >> 6) - back) {
            self.times[(entered & 7) as usize] = coarse(time_ns);
        }
        self.highest = number;
        self.mark(number);
        self.remember(number, fingerprint);
    }

    /// Whether `number`, less than [`WINDOW`] below the highest, has come.
    pub fn has(&self, number: u64) -> bool {
        self.window[block(number)] >> (number & 63) & 1 == 1
    }

    #[inline]
    pub fn mark(&mut self, number: u64) {
        self.window[block(number)] |= 1 << (number & 63);
    }

    #[inline]
    pub fn remember(&mut self, number: u64, fingerprint: u16) {
        self.fingerprints[(number % REMEMBERED) as usize] = fingerprint;
    }

    /// The fingerprint under which a number that has come before is remembered; 0 when it is not.
    pub fn remembered(&self, number: u64, first: u64) -> u16 {
        if self.highest - number < REMEMBERED {
            self.fingerprints[(number % REMEMBERED) as usize]
        } else if number == first {
            self.first_fingerprint
        } else {
            0
        }
    }

    pub fn remember_first(&mut self, fingerprint: u16) {
        self.first_fingerprint = fingerprint;
    }

    /// Whether a copy of `number` that arrives at `time_ns` is a duplicate rather than a replay. `last_ns` is the
    /// channel's last packet before the copy.
    pub fn is_duplicate(&self, number: u64, time_ns: u64, last_ns: u64) -> bool {
        if self.highest - number >= WINDOW || time_ns.saturating_sub(last_ns) > DUPLICATE_HORIZON_NS {
            return false;
        }
        let now = coarse(time_ns);
        // The original came between its block's start and the next block's start: interpolate.
        let next = self.times[block(number + 64)];
        let (start, end, span) = match (self.highest >> 6) - (number >> 6) {
            0 => (self.times[block(number)], coarse(last_ns), (self.highest & 63).max(1)),
            // The highest number's block has taken the place of this one's.
            8 => (next, next, 64),
            _ => (self.times[block(number)], next, 64),
        };
        let into = u64::from(end.wrapping_sub(start)) * (number & 63).min(span) / span;
        let age = now.wrapping_sub(start.wrapping_add(into as u16));
        // A clock that stepped back makes an age of nearly 2^16.
        let behind = (age as i16) < 0 && time_ns < last_ns;
        behind || u64::from(age) << TIME_SHIFT <= DUPLICATE_HORIZON_NS
    }

    /// Asks for the lines that a packet in order needs.
    #[inline(always)]
    pub fn prefetch(&self) {
        prefetch(&self.key);
        prefetch(&self.window);
        prefetch(&self.fingerprints);
    }

    pub fn jitter(&self) -> u64 {
        self.jitter_ns as u64
    }

    pub fn protection(&self) -> Protection {
        let flags = Flags(self.flags as u8);
        if flags.has(Flags::LOOKS_OPEN) && !flags.has(Flags::ENCRYPTED) {
            return Protection::IntegrityOnly;
        }
        match (flags.has(Flags::ENCRYPTED), flags.has(Flags::INTEGRITY_ONLY)) {
            (true, true) => Protection::Mixed,
            (true, false) => Protection::Encrypted,
            (false, true) => Protection::IntegrityOnly,
            (false, false) => Protection::None,
        }
    }
}

fn block(number: u64) -> usize {
    (number >> 6 & 7) as usize
}

fn coarse(time_ns: u64) -> u16 {
    (time_ns >> TIME_SHIFT) as u16
}

/// How far a number on the wire is from `highest`, in the shorter of both directions around.
#[inline]
pub fn distance(highest: u64, sequence: u64, bits: u8) -> i64 {
    let unused = 64 - u32::from(bits);
    (sequence.wrapping_shl(unused).wrapping_sub(highest.wrapping_shl(unused)) as i64) >> (unused & 63)
}

/// 16 bits of the fingerprint; 0 stays reserved for "not known".
#[inline]
pub fn fingerprint(observation: &Observation) -> u16 {
    let folded = (observation.fingerprint ^ (observation.fingerprint >> 16)) as u16;
    folded.max(u16::from(observation.fingerprint != 0))
}

/// One period of the counter, which extended numbers start with.
pub fn period(bits: u8) -> u64 {
    if bits < 64 { 1 << bits } else { 0 }
}

/// What only exceptional packets and reports touch.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Cold {
    pub first_ns: u64,
    pub first_frame: u64,
    /// The lowest number that belongs to the sequence, extended like `Hot::highest`.
    pub first: u64,
    /// Numbers below this are no longer told apart: their gaps were forgotten.
    pub forgotten: u64,
    /// Up to the last flush.
    pub packets: u64,
    pub bytes: u64,
    pub rare: Rare,
    /// The longest time between two packets, if it was longer than [`SILENCE_NS`].
    pub longest_silence_ns: u64,
    pub evidence: Evidence,
    /// Where this interval's rare counts are, or [`NONE`].
    pub rare_slot: u32,
    pub gap_head: u32,
    pub gap_tail: u32,
    /// Where its late packets are counted, or [`NONE`].
    pub late_slot: u32,
    /// Number of the channel within the run.
    pub number: u32,
    /// Ranges of numbers that are lost.
    pub gaps: u32,
    /// The channel before this one in its group.
    pub previous: u32,
    pub gap_entries: u16,
    pub restarts: u16,
    pub jumps: u16,
    pub bits: u8,
    /// The first channel of its group.
    pub is_first: bool,
    /// Anomalies of it were noted.
    pub is_noted: bool,
    /// Packets in a row that looked open, as far as they matter.
    pub open: u8,
}

/// Counts of what does not happen to most packets.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Rare {
    pub lost: i64,
    pub late: u32,
    pub duplicates: u32,
    pub replays: u32,
    pub reused: u32,
    pub too_old: u32,
    pub stray: u32,
}

impl Rare {
    pub fn add(&mut self, other: &Rare) {
        self.lost += other.lost;
        self.late = self.late.saturating_add(other.late);
        self.duplicates = self.duplicates.saturating_add(other.duplicates);
        self.replays = self.replays.saturating_add(other.replays);
        self.reused = self.reused.saturating_add(other.reused);
        self.too_old = self.too_old.saturating_add(other.too_old);
        self.stray = self.stray.saturating_add(other.stray);
    }

    pub fn counts(&self, packets: u64, bytes: u64) -> Counts {
        Counts {
            packets,
            bytes,
            lost: self.lost,
            late: self.late.into(),
            duplicates: self.duplicates.into(),
            replays: self.replays.into(),
            reused: self.reused.into(),
            too_old: self.too_old.into(),
            stray: self.stray.into(),
        }
    }
}

impl Cold {
    pub fn new(number: u32, time_ns: u64, frame: u64) -> Self {
        Cold {
            number,
            first_ns: time_ns,
            first_frame: frame,
            first: 0,
            forgotten: 0,
            packets: 0,
            bytes: 0,
            rare: Rare::default(),
            longest_silence_ns: 0,
            evidence: Evidence::default(),
            rare_slot: NONE,
            gap_head: NONE,
            gap_tail: NONE,
            late_slot: NONE,
            gaps: 0,
            previous: NONE,
            gap_entries: 0,
            restarts: 0,
            jumps: 0,
            bits: 0,
            is_first: false,
            is_noted: false,
            open: 0,
        }
    }

    /// An extended number as operators know it: without the period that keeps it positive.
    pub fn shown(&self, number: u64) -> u64 {
        number.checked_sub(period(self.bits)).unwrap_or(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearer_way_round_wins() {
        for bits in [16, 32, 64] {
            let top = if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
            assert_eq!(distance(5, 6, bits), 1);
            assert_eq!(distance(5, 3, bits), -2);
            assert_eq!(distance(top, 0, bits), 1, "{bits} bits wrap");
            assert_eq!(distance(0, top, bits), -1, "{bits} bits wrap back");
        }
        assert_eq!(distance((7 << 32) | 0xffff_ffff, 4, 32), 5, "the upper half of an ESN follows");
    }

    #[test]
    fn the_window_remembers_exactly_512_numbers() {
        let mut hot = Hot::new(ChannelKey::default(), 0);
        hot.begin(1000, 1, 0);
        hot.advance(1511, 1, 0);
        assert!(hot.has(1000) && hot.has(1511) && !hot.has(1001) && !hot.has(1510));
        hot.advance(1513, 1, 0);
        assert!(!hot.has(1512) && hot.has(1511));
        hot.advance(1513 + 512, 1, 0);
        assert_eq!((1514..2025).filter(|number| hot.has(*number)).count(), 0);
    }

    #[test]
    fn a_channel_costs_less_than_its_budget() {
        assert_eq!(size_of::<Hot>(), 192);
        // With an index entry and group entry at their lowest load (8 / 0.3 + 4 / 0.3) and the list of touched ones.
        assert!(size_of::<Hot>() + size_of::<Cold>() + 27 + 14 + 4 <= 400, "{}", size_of::<Cold>());
    }
}
