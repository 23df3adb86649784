//! What concerns the link as a whole: frames outside all channels, and facts about the capture itself.

use std::collections::HashMap;

use crate::anomaly::Kind;
use crate::channel::alarms::{Alarms, Occurrence};
use crate::frame::Frame;
use crate::observation::{Flags, Observation, Protocol, Unknown};
use crate::summary::{Interval, UnknownCount, Update, is_set_back};

use super::Options;

/// Ethernet header and one VLAN tag, which an MTU does not count.
const HEADER: u32 = 18;
/// Intervals that are looked through for one that comes again.
const CLOCKS: usize = 8;
/// A share of unknown frames above this is worth a warning.
const STRANGE_SHARE: f64 = 0.10;

/// Frames of one unknown kind.
#[derive(Clone, Copy, Debug)]
struct Tally {
    frames: u64,
    bytes: u64,
    first_frame: u64,
}

/// Counts of one worker, added up at the end.
#[derive(Debug, Default)]
pub struct Link {
    pub frames: u64,
    pub bytes: u64,
    pub cut_frames: u64,
    pub steps_back: u64,
    pub first_ns: Option<u64>,
    pub last_ns: u64,
    unknown: HashMap<Unknown, Tally>,
    /// Unknown frames by interval, as far as they have not been reported; the last entry grows.
    intervals: Vec<(u64, u64)>,
    interval_end_ns: u64,
    /// The interval that the capture's clock was in.
    open: Option<u64>,
}

impl Link {
    /// Counts a frame, whatever it carries.
    #[inline]
    pub fn count(&mut self, frame: &Frame<'_>, previous_ns: u64) {
        self.frames += 1;
        self.bytes += u64::from(frame.wire_len);
        self.cut_frames += u64::from(frame.is_cut());
        self.steps_back += u64::from(frame.time_ns < previous_ns);
        self.last_ns = self.last_ns.max(frame.time_ns);
    }

    /// Counts a frame that belongs to no channel.
    pub fn unknown(&mut self, reason: Unknown, frame: &Frame<'_>, options: &Options, alarms: &mut Alarms) {
        let tally = Tally { frames: 0, bytes: 0, first_frame: frame.number };
        let tally = self.unknown.entry(reason).or_insert(tally);
        tally.frames += 1;
        tally.bytes += u64::from(frame.wire_len);
        let length_ns = options.interval_ns.max(1);
        if frame.time_ns >= self.interval_end_ns
            || is_set_back(frame.time_ns, self.interval_end_ns, length_ns)
        {
            self.enter(frame.time_ns / length_ns, length_ns);
        }
        if let Some((_, count)) = self.intervals.last_mut() {
            *count += 1;
        }
        if options.expect_protected && reason.is_clear_text() {
            alarms.note(Kind::ClearText, None, occurrence(frame, 0));
        }
        if matches!(reason, Unknown::Malformed(_)) {
            alarms.note(Kind::Malformed, None, occurrence(frame, 0));
        }
    }

    /// Makes an interval the last one. Two clocks may take turns.
    #[cold]
    fn enter(&mut self, index: u64, length_ns: u64) {
        self.interval_end_ns = index.saturating_add(1).saturating_mul(length_ns);
        let last = self.intervals.len();
        let recent = &mut self.intervals[last.saturating_sub(CLOCKS)..];
        match recent.iter().rposition(|(known, _)| *known == index) {
            Some(at) => recent[at..].rotate_left(1),
            None => self.intervals.push((index, 0)),
        }
    }

    /// Notes user data in a channel that does not protect it: a packet of a subscriber in GTP-U.
    #[inline]
    pub fn check_protection(
        seen: &Observation,
        frame: &Frame<'_>,
        expect_protected: bool,
        alarms: &mut Alarms,
    ) {
        let is_open = seen.key.protocol() == Protocol::GtpU && !seen.flags.has(Flags::CONTROL);
        if expect_protected && is_open {
            alarms.note(Kind::ClearText, None, occurrence(frame, 0));
        }
    }

    /// Notes a frame that is longer than the link's MTU allows.
    #[inline]
    pub fn check_mtu(frame: &Frame<'_>, mtu: Option<u32>, alarms: &mut Alarms) {
        if mtu.is_some_and(|mtu| frame.wire_len > mtu + HEADER) {
            alarms.note(Kind::OverMtu, None, occurrence(frame, frame.wire_len.into()));
        }
    }

    /// Moves the capture's clock; the interval that it left, if it did.
    pub fn move_clock(&mut self, time_ns: u64, length_ns: u64) -> Option<u64> {
        let index = time_ns / length_ns;
        self.open.replace(index).filter(|left| *left != index)
    }

    /// The unknown frames of all intervals but the present one, or of all. The one that unknown frames were last in is over
    /// when the clock is beyond it.
    pub fn close_intervals(&mut self, all: bool, length_ns: u64) -> Vec<Update> {
        let last = self.intervals.last().map(|(index, _)| *index);
        let is_over = all || last.zip(self.open).is_some_and(|(last, open)| last < open);
        let closed = if is_over { self.intervals.len() } else { self.intervals.len().saturating_sub(1) };
        if is_over {
            self.interval_end_ns = 0;
        }
        let update = |(index, unknown)| Update {
            interval: Interval { unknown, ..interval(index, length_ns) },
            ..Update::default()
        };
        self.intervals.drain(..closed).map(update).collect()
    }

    pub fn add(&mut self, other: Link) {
        self.frames += other.frames;
        self.bytes += other.bytes;
        self.cut_frames += other.cut_frames;
        self.steps_back += other.steps_back;
        self.first_ns = self.first_ns.into_iter().chain(other.first_ns).min();
        self.last_ns = self.last_ns.max(other.last_ns);
        for (reason, more) in other.unknown {
            let tally = self.unknown.entry(reason).or_insert(Tally { frames: 0, bytes: 0, ..more });
            tally.frames += more.frames;
            tally.bytes += more.bytes;
            tally.first_frame = tally.first_frame.min(more.first_frame);
        }
    }

    /// Frames outside all channels by reason, most frequent first.
    pub fn unknown_counts(&self) -> Vec<UnknownCount> {
        let mut counts: Vec<_> = self.unknown.iter().collect();
        counts.sort_by(|(a, left), (b, right)| right.frames.cmp(&left.frames).then(a.cmp(b)));
        let count = |(reason, tally): (&Unknown, &Tally)| UnknownCount {
            reason: reason.to_string(),
            frames: tally.frames,
            bytes: tally.bytes,
            first_frame: tally.first_frame,
        };
        counts.into_iter().map(count).collect()
    }

    /// What an operator should know about the input before believing the figures.
    pub fn warnings(&self, capture_drops: u64) -> Vec<String> {
        let mut warnings = Vec::new();
        let unknown = self.unknown_counts();
        let outside: u64 = unknown.iter().map(|count| count.frames).sum();
        if let Some(most) = unknown.first().filter(|_| outside as f64 > self.frames as f64 * STRANGE_SHARE) {
            warnings.push(format!(
                "{:.1} % of the frames belong to no protocol that is followed, most of them {} (first: frame {}); \
                 is this the right link?",
                outside as f64 * 100.0 / self.frames as f64,
                most.reason,
                most.first_frame
            ));
        }
        if self.steps_back > 0 {
            warnings.push(format!(
                "{} frames carry a time before that of their predecessor: rates and delays around them are not exact",
                self.steps_back
            ));
        }
        if self.cut_frames > 0 {
            warnings.push(format!(
                "{} frames were cut by the capture's snap length: copies and reused numbers are told apart by their \
                 last bytes, which are missing there",
                self.cut_frames
            ));
        }
        if capture_drops > 0 {
            warnings
                .push(format!("the capture lost {capture_drops} frames: losses of channels may be its own"));
        }
        warnings
    }
}

/// An interval without counts.
pub fn interval(index: u64, length_ns: u64) -> Interval {
    Interval { index, start_ns: index * length_ns, length_ns, ..Interval::default() }
}

fn occurrence(frame: &Frame<'_>, value: u64) -> Occurrence {
    Occurrence { time_ns: frame.time_ns, sequence: 0, frame: frame.number, count: 1, value }
}
