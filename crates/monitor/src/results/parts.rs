//! Channels' results as bytes: parts of the database that hold thousands of channels each.
//!
//! Numbers are LEB128: seven bits a byte, the lowest first, the top bit set while more follow. Where the text says
//! *difference*, the difference to the same field of the entry before (0 before the first) is meant, folded so that
//! small ones of either sign are short: 0, -1, 1, -2, ... become 0, 1, 2, 3, ...
//!
//! - Kind 1, a channel: number (difference); a byte whose bits 0 to 3 say which of the key's words 0 to 3 are not zero;
//!   word 4 and those words, 8 bytes each, little-endian ([`ChannelKey`] says what is in them).
//! - Kinds 2 and 4, what was added: number (difference); a byte whose bits say which of lost, late, duplicates, replays,
//!   reused, too old, stray and highest number follow; packets; bytes; time of the last packet (difference); what
//!   follows, in that order (lost folded, the others plain).
//! - Kind 3, figures: number (difference); two bytes of [`Bits`]; width of the sequence number; protection; first time
//!   (difference); last time less first; first frame (difference); first number; highest number; jitter; least and most
//!   payload; then, where the bits say so, the rate in packets a second (8 bytes, IEEE 754) and numbers left; gaps,
//!   restarts and jumps; the greatest depth and the ten depths of the histogram.

use crate::observation::ChannelKey;
use crate::summary::{
    ChannelDelta, ChannelState, Counts, DEPTHS, Exhaustion, Figures, NewChannel, Protection, Reorder,
};

/// What a part holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum PartKind {
    Channels = 1,
    Deltas = 2,
    States = 3,
    /// Deltas of packets in order, of several intervals together.
    Rest = 4,
}

/// Entries that wait to be written to the database.
#[derive(Debug)]
pub(super) struct Part {
    pub kind: PartKind,
    pub interval: u64,
    pub channels: u32,
    pub first: u32,
    pub last: u32,
    pub data: Vec<u8>,
    /// Fields of the entry before: number, time, frame.
    before: [u64; 3],
    /// The entry at work, so that the vector is asked for room once an entry and not once a byte.
    entry: [u8; LONGEST],
    filled: usize,
}

/// Bits of the two bytes in front of a channel's figures.
struct Bits;

impl Bits {
    const EXTENDED: u16 = 1;
    const LENGTH_MISMATCHES: u16 = 2;
    const EVICTED: u16 = 4;
    const DIRECTIONS_KNOWN: u16 = 8;
    const ONE_WAY: u16 = 16;
    const EXHAUSTION: u16 = 32;
    const TROUBLE: u16 = 64;
    const REORDER: u16 = 128;
    const NO_COUNTER: u16 = 256;
}

/// Bytes of the longest entry, figures with 25 numbers of 10 bytes; and of a usual one.
const LONGEST: usize = 288;
const USUAL: usize = 20;

const PROTECTIONS: [Protection; 4] =
    [Protection::None, Protection::Encrypted, Protection::IntegrityOnly, Protection::Mixed];

impl Part {
    pub fn new(kind: PartKind, interval: u64) -> Self {
        let (data, entry) = (Vec::new(), [0; LONGEST]);
        Part { kind, interval, channels: 0, first: u32::MAX, last: 0, data, before: [0; 3], entry, filled: 0 }
    }

    /// Takes memory for so many more entries at once.
    pub fn expect(&mut self, entries: usize) {
        self.data.reserve(entries * USUAL);
    }

    pub fn add_channel(&mut self, channel: &NewChannel) {
        self.begin(channel.number);
        let [first @ .., tail] = channel.key.words();
        let mask = first.iter().rev().fold(0, |mask, word| mask << 1 | u8::from(*word != 0));
        self.byte(mask);
        self.bytes(tail.to_le_bytes());
        for word in first.iter().filter(|word| **word != 0) {
            self.bytes(word.to_le_bytes());
        }
        self.end();
    }

    pub fn add_delta(&mut self, delta: &ChannelDelta) {
        self.begin(delta.number);
        let counts = &delta.counts;
        let rare = [
            fold(counts.lost),
            counts.late,
            counts.duplicates,
            counts.replays,
            counts.reused,
            counts.too_old,
            counts.stray,
            delta.highest_sequence,
        ];
        let mask = rare.iter().rev().fold(0, |mask, count| mask << 1 | u8::from(*count != 0));
        self.byte(mask);
        self.plain(counts.packets);
        self.plain(counts.bytes);
        self.difference(1, delta.last_ns);
        for count in rare.into_iter().filter(|count| *count != 0) {
            self.plain(count);
        }
        self.end();
    }

    pub fn add_state(&mut self, state: &ChannelState) {
        self.begin(state.number);
        let figures = &state.figures;
        let trouble = [figures.gaps, figures.restarts.into(), figures.jumps.into()];
        let bits = bit(figures.extended, Bits::EXTENDED)
            | bit(figures.length_mismatches, Bits::LENGTH_MISMATCHES)
            | bit(figures.evicted, Bits::EVICTED)
            | bit(figures.no_counter, Bits::NO_COUNTER)
            | bit(figures.one_way.is_some(), Bits::DIRECTIONS_KNOWN)
            | bit(figures.one_way == Some(true), Bits::ONE_WAY)
            | bit(figures.exhaustion.is_some(), Bits::EXHAUSTION)
            | bit(trouble != [0; 3], Bits::TROUBLE)
            | bit(figures.reorder != Reorder::default(), Bits::REORDER);
        self.bytes(bits.to_le_bytes());
        self.bytes([figures.sequence_bits, figures.protection as u8]);
        self.difference(1, figures.first_ns);
        self.plain(figures.last_ns.wrapping_sub(figures.first_ns));
        self.difference(2, figures.first_frame);
        for number in [figures.first_sequence, figures.highest_sequence, figures.jitter_ns] {
            self.plain(number);
        }
        self.plain(figures.min_payload.into());
        self.plain(figures.max_payload.into());
        if let Some(Exhaustion { rate_pps, remaining, .. }) = figures.exhaustion {
            self.bytes(rate_pps.to_le_bytes());
            self.plain(remaining);
        }
        if bits & Bits::TROUBLE != 0 {
            trouble.into_iter().for_each(|count| self.plain(count));
        }
        if bits & Bits::REORDER != 0 {
            self.plain(figures.reorder.max_depth.into());
            figures.reorder.depths.into_iter().for_each(|count| self.plain(count));
        }
        self.end();
    }

    fn begin(&mut self, number: u32) {
        self.channels += 1;
        self.first = self.first.min(number);
        self.last = self.last.max(number);
        self.difference(0, number.into());
    }

    fn difference(&mut self, field: usize, value: u64) {
        let before = std::mem::replace(&mut self.before[field], value);
        self.plain(fold(value.wrapping_sub(before) as i64));
    }

    #[inline]
    fn plain(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.byte(value as u8 | 0x80);
            value >>= 7;
        }
        self.byte(value as u8);
    }

    #[inline]
    fn byte(&mut self, byte: u8) {
        self.entry[self.filled] = byte;
        self.filled += 1;
    }

    #[inline]
    fn bytes<const N: usize>(&mut self, bytes: [u8; N]) {
        self.entry[self.filled..self.filled + N].copy_from_slice(&bytes);
        self.filled += N;
    }

    fn end(&mut self) {
        self.data.extend_from_slice(&self.entry[..std::mem::take(&mut self.filled)]);
    }
}

fn bit(is_set: bool, bit: u16) -> u16 {
    if is_set { bit } else { 0 }
}

fn fold(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

fn unfold(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// Reads the entries of a part; every method returns none at the end of the bytes, or where they are damaged.
pub(super) struct Entries<'a> {
    data: &'a [u8],
    before: [u64; 3],
}

impl<'a> Entries<'a> {
    pub fn of(data: &'a [u8]) -> Self {
        Entries { data, before: [0; 3] }
    }

    /// Whether everything was read.
    pub fn is_over(&self) -> bool {
        self.data.is_empty()
    }

    pub fn channel(&mut self) -> Option<NewChannel> {
        let number = self.difference(0)? as u32;
        let [mask] = self.take()?;
        let tail = u64::from_le_bytes(self.take()?);
        let mut words = [0, 0, 0, 0, tail];
        for (at, word) in words[..4].iter_mut().enumerate() {
            if mask >> at & 1 == 1 {
                *word = u64::from_le_bytes(self.take()?);
            }
        }
        Some(NewChannel { number, key: ChannelKey::from_words(words) })
    }

    /// The channel's identity is not part of it and stays 0.
    pub fn delta(&mut self, interval: u64) -> Option<ChannelDelta> {
        let number = self.difference(0)? as u32;
        let [mask] = self.take()?;
        let (packets, bytes) = (self.plain()?, self.plain()?);
        let last_ns = self.difference(1)?;
        let mut rare = [0; 8];
        for (at, count) in rare.iter_mut().enumerate() {
            if mask >> at & 1 == 1 {
                *count = self.plain()?;
            }
        }
        let [lost, late, duplicates, replays, reused, too_old, stray, highest_sequence] = rare;
        let lost = unfold(lost);
        let counts = Counts { packets, bytes, lost, late, duplicates, replays, reused, too_old, stray };
        Some(ChannelDelta { channel: 0, number, interval, last_ns, highest_sequence, counts })
    }

    /// Number and figures without their counts, which are the sums of the deltas.
    pub fn state(&mut self) -> Option<(u32, Figures)> {
        let number = self.difference(0)? as u32;
        let bits = u16::from_le_bytes(self.take()?);
        let [sequence_bits, protection] = self.take()?;
        let first_ns = self.difference(1)?;
        let mut figures = Figures {
            first_ns,
            last_ns: first_ns.wrapping_add(self.plain()?),
            first_frame: self.difference(2)?,
            first_sequence: self.plain()?,
            highest_sequence: self.plain()?,
            sequence_bits,
            extended: bits & Bits::EXTENDED != 0,
            jitter_ns: self.plain()?,
            min_payload: self.plain()? as u16,
            max_payload: self.plain()? as u16,
            protection: *PROTECTIONS.get(usize::from(protection))?,
            length_mismatches: bits & Bits::LENGTH_MISMATCHES != 0,
            evicted: bits & Bits::EVICTED != 0,
            no_counter: bits & Bits::NO_COUNTER != 0,
            one_way: (bits & Bits::DIRECTIONS_KNOWN != 0).then_some(bits & Bits::ONE_WAY != 0),
            ..Figures::default()
        };
        if bits & Bits::EXHAUSTION != 0 {
            figures.exhaustion = Some(Exhaustion::new(f64::from_le_bytes(self.take()?), self.plain()?));
        }
        if bits & Bits::TROUBLE != 0 {
            figures.gaps = self.plain()?;
            (figures.restarts, figures.jumps) = (self.plain()? as u32, self.plain()? as u32);
        }
        if bits & Bits::REORDER != 0 {
            let max_depth = self.plain()? as u32;
            let mut depths = [0; DEPTHS];
            for count in &mut depths {
                *count = self.plain()?;
            }
            figures.reorder = Reorder::of(depths, max_depth);
        }
        Some((number, figures))
    }

    fn difference(&mut self, field: usize) -> Option<u64> {
        let value = self.before[field].wrapping_add(unfold(self.plain()?) as u64);
        self.before[field] = value;
        Some(value)
    }

    #[inline]
    fn plain(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.data.split_first()?;
            self.data = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.data.split_first_chunk()?;
        self.data = rest;
        Some(*taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observation::{Location, Protocol};
    use proptest::prelude::*;

    fn deltas() -> impl Strategy<Value = Vec<ChannelDelta>> {
        let number = prop_oneof![Just(0u64), 1..200u64, any::<u64>()];
        let delta =
            (any::<u32>(), any::<i64>(), prop::array::uniform10(number)).prop_map(|(number, lost, n)| {
                let counts = Counts {
                    packets: n[0],
                    bytes: n[1],
                    lost,
                    late: n[2],
                    duplicates: n[3],
                    replays: n[4],
                    reused: n[5],
                    too_old: n[6],
                    stray: n[7],
                };
                ChannelDelta {
                    channel: 0,
                    number,
                    interval: 5,
                    last_ns: n[8],
                    highest_sequence: n[9],
                    counts,
                }
            });
        prop::collection::vec(delta, 0..20)
    }

    proptest! {
        #[test]
        fn deltas_come_back_as_they_were(deltas in deltas()) {
            let mut part = Part::new(PartKind::Deltas, 5);
            deltas.iter().for_each(|delta| part.add_delta(delta));
            let mut entries = Entries::of(&part.data);
            for delta in &deltas {
                prop_assert_eq!(entries.delta(5).unwrap(), *delta);
            }
            prop_assert!(entries.is_over() && entries.delta(5).is_none());
            prop_assert_eq!(part.channels as usize, deltas.len());
        }

        #[test]
        fn damaged_bytes_end_in_nothing_worse(data in prop::collection::vec(any::<u8>(), 0..200)) {
            let (mut states, mut channels, mut deltas) = (Entries::of(&data), Entries::of(&data), Entries::of(&data));
            while states.state().is_some() {}
            while channels.channel().is_some() {}
            while deltas.delta(0).is_some() {}
        }
    }

    #[test]
    fn channels_and_figures_come_back_as_they_were() {
        let keys = [
            ChannelKey::macsec(0x0011_2233_4455_0001, 3, Location::default()),
            ChannelKey::ipv4(Protocol::Esp, [10, 0, 0, 1], [10, 0, 0, 2], 7, Location::default()),
            ChannelKey::ipv6(Protocol::GtpU, [0x20; 16], [0x30; 16], 8, Location::default()),
        ];
        let mut part = Part::new(PartKind::Channels, 0);
        for (number, key) in (9..).zip(keys) {
            part.add_channel(&NewChannel { number, key });
        }
        assert_eq!((part.first, part.last), (9, 11));
        let mut entries = Entries::of(&part.data);
        for (number, key) in (9..).zip(keys) {
            assert_eq!(entries.channel().unwrap(), NewChannel { number, key });
        }
        assert!(entries.is_over());

        let plain =
            Figures { first_ns: 1 << 60, last_ns: (1 << 60) + 5, first_frame: 77, ..Figures::default() };
        let full = Figures {
            first_sequence: 1,
            highest_sequence: u64::MAX,
            sequence_bits: 32,
            extended: true,
            reorder: Reorder::of([1, 2, 3, 4, 5, 6, 7, 8, 9, 10], 4000),
            restarts: 3,
            jumps: 2,
            gaps: 1,
            jitter_ns: 12,
            min_payload: 1,
            max_payload: 9000,
            protection: Protection::Mixed,
            length_mismatches: true,
            exhaustion: Some(Exhaustion::new(12.5, 1 << 31)),
            one_way: Some(false),
            evicted: true,
            no_counter: true,
            ..plain
        };
        let mut part = Part::new(PartKind::States, 0);
        for (number, figures) in [(1, plain), (5, full), (2, plain)] {
            part.add_state(&ChannelState { key: keys[0], number, figures });
        }
        let mut entries = Entries::of(&part.data);
        assert_eq!(entries.state(), Some((1, plain)));
        assert_eq!(entries.state(), Some((5, full)));
        assert_eq!(entries.state(), Some((2, plain)));
        assert!(entries.is_over());
    }
}
