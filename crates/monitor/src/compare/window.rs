//! Finds the same packet at both taps, among those of the last second or so.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::net::IpAddr;

use crate::generate::random::mix;
use crate::observation::{ChannelKey, Location, Observation, Protocol};

use super::delays::Delays;
use super::{Loss, Options, Tap};

/// Hashes keys that are already scrambled.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mixed(u64);

impl Hasher for Mixed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.0 = mix(self.0 ^ u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = mix(self.0 ^ word);
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(word.into());
    }
}

type Words = BuildHasherDefault<Mixed>;

/// What the same packet has at both taps, whatever lies between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Same {
    /// SCI, or the protocol.
    sender: u64,
    /// AN, SPI or TEID, and the number.
    number: u64,
}

impl std::hash::Hash for Same {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.sender);
        state.write_u64(self.number);
    }
}

impl Same {
    fn of(observation: &Observation) -> Self {
        let key = &observation.key;
        let sender = match key.protocol() {
            Protocol::Macsec | Protocol::Mka => key.sci().unwrap_or_default(),
            // A NAT between the taps may be where ESP gets its UDP header.
            Protocol::Esp | Protocol::EspUdp => Protocol::Esp as u64,
            other => other as u64,
        };
        Same { sender, number: u64::from(key.id()) << 32 | (observation.sequence & 0xffff_ffff) }
    }
}

/// A channel without the location at which it was captured.
fn anywhere(key: &ChannelKey) -> ChannelKey {
    let (location, id) = (Location::default(), key.id());
    match (key.sci(), key.addresses(), key.ports()) {
        (Some(sci), ..) if key.protocol() == Protocol::Macsec => ChannelKey::macsec(sci, id as u8, location),
        (Some(sci), ..) => ChannelKey::mka(sci, id, location),
        (None, Some((IpAddr::V4(from), IpAddr::V4(to))), ports) => {
            let key = ChannelKey::ipv4(key.protocol(), from.octets(), to.octets(), id, location);
            ports.map_or(key, |(source, destination)| key.with_ports(source, destination))
        }
        (None, Some((IpAddr::V6(from), IpAddr::V6(to))), _) => {
            ChannelKey::ipv6(key.protocol(), from.octets(), to.octets(), id, location)
        }
        _ => key.any_interface(),
    }
}

/// A packet that was seen lately.
#[derive(Clone, Copy, Debug)]
struct Seen {
    same: Same,
    fingerprint: u32,
    line: u32,
    first_ns: u64,
    /// Time and copies at each tap.
    times: [u64; 2],
    copies: [u32; 2],
}

/// A range of losses that may go on.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    pub first: u64,
    pub last: u64,
    pub first_ns: u64,
    pub last_ns: u64,
}

/// One channel.
#[derive(Clone, Debug)]
pub struct Line {
    /// As it was first seen, and without its location.
    pub key: ChannelKey,
    pub anywhere: ChannelKey,
    /// The line that this one turned out to be part of.
    part_of: u32,
    pub seen: [u64; 2],
    pub both: u64,
    pub only: [u64; 2],
    pub undecided: u64,
    pub copies: [u64; 2],
    pub delays: Delays,
    /// Ranges seen only at one tap.
    open: [Option<Range>; 2],
}

/// Matches packets of two taps.
pub struct Matcher {
    pub options: Options,
    channels: HashMap<[u64; 5], u32, Words>,
    pub lines: Vec<Line>,
    /// By what they have at both taps and their fingerprint, which is 0 of a cut frame.
    packets: HashMap<(Same, u32), u32, Words>,
    /// The newest of those that differ by their fingerprint only.
    newest: HashMap<Same, u32, Words>,
    slab: Vec<Seen>,
    free: Vec<u32>,
    /// In order of their first appearance.
    queue: VecDeque<u32>,
    first_ns: [Option<u64>; 2],
    last_ns: [u64; 2],
    ended: [bool; 2],
    /// Ranges by line and tap.
    pub ranges: Vec<(u32, usize, Range)>,
    pub more_ranges: u64,
    pub crowded_channels: u64,
    pub given_up: u64,
}

impl Matcher {
    pub fn new(options: Options) -> Self {
        Matcher {
            options,
            channels: HashMap::default(),
            lines: Vec::new(),
            packets: HashMap::default(),
            newest: HashMap::default(),
            slab: Vec::new(),
            free: Vec::new(),
            queue: VecDeque::new(),
            first_ns: [None; 2],
            last_ns: [0; 2],
            ended: [false; 2],
            ranges: Vec::new(),
            more_ranges: 0,
            crowded_channels: 0,
            given_up: 0,
        }
    }

    /// A tap's first frame; none: it captured nothing.
    pub fn begins(&mut self, side: usize, first_ns: Option<u64>) {
        self.first_ns[side] = first_ns;
        self.ended[side] = first_ns.is_none();
    }

    /// There is nothing more from a tap.
    pub fn ends(&mut self, side: usize) {
        self.ended[side] = true;
    }

    /// Takes a packet of one tap.
    pub fn take(&mut self, side: usize, observation: &Observation, time_ns: u64) {
        let Some(line) = self.line(&observation.key) else {
            self.crowded_channels += 1;
            return;
        };
        self.lines[line as usize].seen[side] += 1;
        let same = Same::of(observation);
        match self.find(same, observation.fingerprint) {
            Some(at) => self.again(at, side, line, time_ns),
            None => self.insert(same, observation.fingerprint, line, side, time_ns),
        }
    }

    /// A cut frame has no fingerprint; then the number has to do.
    fn find(&self, same: Same, fingerprint: u32) -> Option<u32> {
        let found = match fingerprint {
            0 => self.newest.get(&same),
            _ => self.packets.get(&(same, fingerprint)).or_else(|| self.packets.get(&(same, 0))),
        };
        found.copied()
    }

    /// A packet that one tap has seen before.
    fn again(&mut self, at: u32, side: usize, line: u32, time_ns: u64) {
        let seen = &mut self.slab[at as usize];
        seen.copies[side] += 1;
        let (copies, own) = (seen.copies[side], seen.line);
        if copies > 1 {
            self.lines[line as usize].copies[side] += 1;
            return;
        }
        seen.times[side] = time_ns;
        let delay_ns = (seen.times[1] as i64).saturating_sub(seen.times[0] as i64);
        let own = self.resolve(own);
        if own != line {
            self.unite(own, line);
        }
        let own = &mut self.lines[own as usize];
        own.both += 1;
        own.delays.record(delay_ns);
    }

    fn insert(&mut self, same: Same, fingerprint: u32, line: u32, side: usize, time_ns: u64) {
        let mut seen = Seen { same, fingerprint, line, first_ns: time_ns, times: [0; 2], copies: [0; 2] };
        (seen.times[side], seen.copies[side]) = (time_ns, 1);
        let at = match self.free.pop() {
            Some(at) => {
                self.slab[at as usize] = seen;
                at
            }
            None => {
                self.slab.push(seen);
                self.slab.len() as u32 - 1
            }
        };
        self.packets.insert((same, fingerprint), at);
        self.newest.insert(same, at);
        self.queue.push_back(at);
        if self.queue.len() > self.options.max_waiting {
            self.given_up += 1;
            self.settle_first();
        }
    }

    /// A tap's clock has come so far; what the other cannot show any more is settled.
    pub fn clock(&mut self, side: usize, time_ns: u64) {
        self.last_ns[side] = self.last_ns[side].max(time_ns);
        let running = (0..2).filter(|side| !self.ended[*side]).map(|side| self.last_ns[side]);
        let Some(now_ns) = running.min() else { return };
        while let Some(first) = self.queue.front() {
            if self.slab[*first as usize].first_ns.saturating_add(self.options.window_ns) >= now_ns {
                break;
            }
            self.settle_first();
        }
    }

    /// The oldest packet has waited long enough.
    fn settle_first(&mut self) {
        let Some(at) = self.queue.pop_front() else { return };
        let seen = self.slab[at as usize];
        self.packets.remove(&(seen.same, seen.fingerprint));
        // Packets go in the order in which they came: behind the newest none is left.
        if self.newest.get(&seen.same) == Some(&at) {
            self.newest.remove(&seen.same);
        }
        self.free.push(at);
        let line = self.resolve(seen.line);
        let side = match seen.copies {
            [_, 0] => 0,
            [0, _] => 1,
            _ => return,
        };
        if self.is_undecided(line, side, seen.times[side]) {
            self.lines[line as usize].undecided += 1;
            return;
        }
        self.lines[line as usize].only[side] += 1;
        self.lost(line, side, seen.same.number & 0xffff_ffff, seen.times[side]);
    }

    /// Whether the other tap was not capturing when the packet should have passed it.
    fn is_undecided(&self, line: u32, side: usize, time_ns: u64) -> bool {
        let other = 1 - side;
        let Some(first_ns) = self.first_ns[other] else { return true };
        let (shortest, longest) = self.lines[line as usize].delays.range().unwrap_or((0, 0));
        let (early, late) = if side == 0 { (shortest, longest) } else { (-longest, -shortest) };
        let expected = |delay: i64| time_ns.saturating_add_signed(delay);
        expected(early) < first_ns || (self.ended[other] && expected(late) > self.last_ns[other])
    }

    /// Adds a number to the range that it continues, or begins another.
    fn lost(&mut self, line: u32, side: usize, number: u64, time_ns: u64) {
        let open = &mut self.lines[line as usize].open[side];
        match open {
            Some(range) if number == range.last + 1 => (range.last, range.last_ns) = (number, time_ns),
            _ => {
                let range = Range { first: number, last: number, first_ns: time_ns, last_ns: time_ns };
                if let Some(range) = open.replace(range) {
                    self.keep(line, side, range);
                }
            }
        }
    }

    fn keep(&mut self, line: u32, side: usize, range: Range) {
        match self.ranges.len() < self.options.max_losses {
            true => self.ranges.push((line, side, range)),
            false => self.more_ranges += 1,
        }
    }

    /// The channel's line; `None` when there are too many.
    fn line(&mut self, key: &ChannelKey) -> Option<u32> {
        let anywhere = anywhere(key);
        if let Some(line) = self.channels.get(anywhere.words()) {
            return Some(self.resolve(*line));
        }
        if self.lines.len() >= self.options.max_channels {
            return None;
        }
        let at = self.lines.len() as u32;
        self.lines.push(Line {
            key: *key,
            anywhere,
            part_of: at,
            seen: [0; 2],
            both: 0,
            only: [0; 2],
            undecided: 0,
            copies: [0; 2],
            delays: Delays::default(),
            open: [None; 2],
        });
        self.channels.insert(*anywhere.words(), at);
        Some(at)
    }

    fn resolve(&self, line: u32) -> u32 {
        let mut at = line;
        while self.lines[at as usize].part_of != at {
            at = self.lines[at as usize].part_of;
        }
        at
    }

    /// Two lines are one channel whose addresses change on the way.
    fn unite(&mut self, into: u32, other: u32) {
        let from = &mut self.lines[other as usize];
        from.part_of = into;
        let (seen, both, only) = (from.seen, from.both, from.only);
        let (undecided, copies, delays) = (from.undecided, from.copies, std::mem::take(&mut from.delays));
        let open = std::mem::take(&mut from.open);
        for (side, range) in open.into_iter().enumerate() {
            if let Some(range) = range {
                self.keep(into, side, range);
            }
        }
        let into = &mut self.lines[into as usize];
        for side in 0..2 {
            into.seen[side] += seen[side];
            into.only[side] += only[side];
            into.copies[side] += copies[side];
        }
        into.both += both;
        into.undecided += undecided;
        into.delays.add(&delays);
    }

    /// Settles everything and puts it into words.
    pub fn finish(mut self, a: Tap, b: Tap) -> super::Comparison {
        self.ended = [true; 2];
        while !self.queue.is_empty() {
            self.settle_first();
        }
        for line in 0..self.lines.len() as u32 {
            for side in 0..2 {
                if let Some(range) = self.lines[line as usize].open[side].take() {
                    self.keep(line, side, range);
                }
            }
        }
        super::report::conclude(self, a, b)
    }

    /// The lines that are channels of their own.
    pub fn whole(&self) -> impl Iterator<Item = (u32, &Line)> {
        self.lines
            .iter()
            .enumerate()
            .map(|(at, line)| (at as u32, line))
            .filter(|(at, line)| line.part_of == *at)
    }

    /// A range as a loss of its channel.
    pub fn loss(&self, line: u32, range: Range, direction: super::Direction) -> Loss {
        let channel = self.lines[self.resolve(line) as usize].key.channel_id();
        let Range { first, last, first_ns, last_ns } = range;
        Loss { channel, direction, first, last, first_ns, last_ns }
    }

    pub fn resolved(&self, line: u32) -> u32 {
        self.resolve(line)
    }
}
