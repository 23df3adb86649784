//! Which packet comes next: flows send one after the other, faults are planted so that their definitions leave no doubt.
//!
//! - A loss is followed at once by a packet of the same flow, so that nothing is lost at a channel's end.
//! - A copy comes within a fifth of a second or after two, never near the second that divides duplicates from replays.
//! - The first packets of a key come undisturbed (an AN that comes round has to be recognised), and a key changes only
//!   when nothing of the old one is on its way.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;

use super::flow::Flow;
use super::packet::{Builder, Other, Packet};
use super::random::Random;
use super::truth::{Clear, Event, Kind, Record, Tally, Totals};
use super::{Mix, Options, OptionsError};

/// Packets of a key before the first fault.
const CALM: u64 = 8;
/// Turns at the end in which no key changes: the old one has to be seen to fall silent.
const NO_REKEY: u64 = 24;
/// Packets on their way at the same time.
const MAX_PENDING: usize = 1 << 20;
/// A frame beside the flows in so many of a mixed capture.
const OTHERS: u64 = 100;
/// 2023-11-14 22:13:20 UTC.
const EPOCH_NS: u64 = 1_700_000_000_000_000_000;

/// A packet that comes later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Pending {
    /// Number of the frame that it is to be.
    due: u64,
    order: u64,
    flow: u32,
    kind: Kind,
    number: u64,
    original: u64,
}

/// What changes about a flow.
#[derive(Clone, Debug, Default)]
struct State {
    next: u64,
    key: u32,
    /// Rounds with this key.
    rounds: u32,
    pending: u16,
    /// Of these, duplicates.
    copies: u16,
    /// When the last of them is due.
    latest_due: u64,
    last_frame: u64,
    started: bool,
    tally: Tally,
}

/// Chances in 2^32, and times in frames.
#[derive(Clone, Copy, Debug)]
struct Plan {
    loss: u64,
    late: u64,
    duplicate: u64,
    replay: u64,
    max_late: u64,
    max_duplicate: u64,
    min_replay: u64,
}

impl Plan {
    fn of(options: &Options) -> Self {
        let chance = |rate: f64| (rate * (1u64 << 32) as f64) as u64;
        let (flows, rate) = (u64::from(options.flows), options.rate());
        // The mean burst is three quarters of 1 and a quarter of 2 to 9.
        let burst = 0.75 + 0.25 * 5.5;
        let loss = chance(options.loss / ((1.0 - options.loss) * burst));
        let late = loss + chance(options.reorder);
        let duplicate = late + chance(options.duplicate);
        Plan {
            loss,
            late,
            duplicate,
            replay: duplicate + chance(options.replay),
            max_late: flows.max(2 * rate),
            max_duplicate: (8 * flows).min(rate / 5).max(1),
            min_replay: Self::min_replay(flows, rate),
        }
    }

    /// A replay is older than a second beyond doubt, however numbers are spread over time, or below the window.
    fn min_replay(flows: u64, rate: u64) -> u64 {
        (2 * rate + 32 * flows).min(600 * flows)
    }
}

/// Makes a capture, frame by frame.
pub struct Generator {
    options: Options,
    plan: Plan,
    builder: Builder,
    random: Random,
    flows: Vec<State>,
    /// Index of the flow that sends next, and the distance to the one after it.
    current: u32,
    stride: u32,
    heap: BinaryHeap<Reverse<Pending>>,
    order: u64,
    retired: Vec<Tally>,
    clear: Clear,
    totals: Totals,
    /// Time between frames and time since the start, in 2^-16 ns.
    step: u64,
    elapsed: u128,
}

impl Generator {
    /// Fails on options out of range, before anything is made.
    pub fn new(options: Options) -> Result<Self, OptionsError> {
        options.check()?;
        let plan = Plan::of(&options);
        if options.replay > 0.0 && plan.min_replay * 3 > options.packets {
            return Err(OptionsError::TooShortForReplay {
                rate: options.rate(),
                packets: plan.min_replay * 3,
            });
        }
        Ok(Generator {
            plan,
            builder: Builder::new(options.seed, options.size),
            random: Random::new(options.seed),
            flows: vec![State::default(); options.flows as usize],
            current: 0,
            stride: stride(options.flows),
            heap: BinaryHeap::new(),
            order: 0,
            retired: Vec::new(),
            clear: Clear::default(),
            totals: Totals::default(),
            step: (1_000_000_000u64 << 16) / options.rate(),
            elapsed: 0,
            options,
        })
    }

    /// Appends the next frame and returns its time; `None` after the last one. Events go to `record`.
    #[inline]
    pub fn next(&mut self, out: &mut Vec<u8>, record: &mut dyn Record) -> io::Result<Option<u64>> {
        if self.totals.frames == self.options.packets {
            return Ok(None);
        }
        let start = out.len();
        let frame = self.totals.frames + 1;
        let time_ns = self.tick();
        match self.heap.peek() {
            Some(Reverse(pending)) if pending.due <= frame => {
                let Reverse(pending) = self.heap.pop().expect("there is one");
                self.deliver(pending, frame, time_ns, out, record)?;
            }
            _ if self.options.protocol == Mix::Mixed && self.random.below(OTHERS) == 0 => self.other(out),
            _ => self.take_turn(frame, time_ns, out, record)?,
        }
        self.totals.frames = frame;
        self.totals.bytes += (out.len() - start) as u64;
        self.totals.last_ns = time_ns;
        Ok(Some(time_ns))
    }

    /// The next frame's time: evenly spaced, with jitter of up to half the spacing.
    fn tick(&mut self) -> u64 {
        let jitter = self.random.below(self.step / 2 + 1);
        let time_ns = EPOCH_NS + ((self.elapsed + u128::from(jitter)) >> 16) as u64;
        self.elapsed += u128::from(self.step);
        if self.totals.frames == 0 {
            self.totals.first_ns = time_ns;
        }
        time_ns
    }

    /// Frames until the last one.
    fn remaining(&self) -> u64 {
        self.options.packets - self.totals.frames
    }

    fn take_turn(
        &mut self,
        frame: u64,
        time_ns: u64,
        out: &mut Vec<u8>,
        record: &mut dyn Record,
    ) -> io::Result<()> {
        let at = self.current;
        self.current = if at + self.stride >= self.options.flows {
            at + self.stride - self.options.flows
        } else {
            at + self.stride
        };
        let identity = Flow::of(at, &self.options);
        if !self.flows[at as usize].started {
            self.start(at, identity, 0);
        } else if self.is_key_due(at, identity) {
            self.rekey(at, identity, frame, time_ns, record)?;
        }
        let flow = &mut self.flows[at as usize];
        flow.rounds += 1;
        let chance = u64::from(self.random.next() as u32);
        if chance < self.plan.replay && flow.next - flow.tally.first >= CALM {
            self.plant(at, chance, frame, time_ns, record)?;
        }
        let flow = &mut self.flows[at as usize];
        let number = flow.next;
        flow.next += 1;
        flow.tally.last = number;
        self.emit(at, identity, number, frame, out);
        Ok(())
    }

    /// Plants the fault that `chance` stands for before or behind this turn's packet, if its time has come.
    fn plant(
        &mut self,
        at: u32,
        chance: u64,
        frame: u64,
        time_ns: u64,
        record: &mut dyn Record,
    ) -> io::Result<()> {
        let Plan { loss, late, duplicate, max_late, max_duplicate, min_replay, .. } = self.plan;
        if chance < loss {
            return self.lose(at, frame, time_ns, record);
        }
        let flows = u64::from(self.options.flows);
        if chance < late {
            // Mostly a few turns late, sometimes many.
            let rounds = match self.random.below(8) {
                0 => 1 + self.random.below(200),
                _ => 1 + self.random.below(12),
            };
            let delay = 1 + self.random.below((rounds * flows).min(max_late));
            let number = self.flows[at as usize].next;
            if self.schedule(at, Kind::Late, number, delay) {
                self.flows[at as usize].next += 1;
            }
        } else if chance < duplicate {
            let delay = 1 + self.random.below(max_duplicate);
            self.schedule(at, Kind::Duplicate, self.flows[at as usize].next, delay);
        } else {
            let delay = min_replay + self.random.below(min_replay);
            self.schedule(at, Kind::Replay, self.flows[at as usize].next, delay);
        }
        Ok(())
    }

    fn lose(&mut self, at: u32, frame: u64, time_ns: u64, record: &mut dyn Record) -> io::Result<()> {
        let burst = match self.random.below(4) {
            0 => 2 + self.random.below(8),
            _ => 1,
        };
        let flow = &mut self.flows[at as usize];
        // Ages of recent packets are told by their numbers, so nothing may be missing while a duplicate is on its way.
        if flow.copies > 0 {
            return Ok(());
        }
        let (first, last) = (flow.next, flow.next + burst - 1);
        flow.next += burst;
        flow.tally.lost += burst;
        let channel = flow.tally.key.channel_id();
        self.note(
            Event { kind: Kind::Loss, channel, first, last, frame, time_ns, depth: 0, original: 0, from: 0 },
            record,
        )
    }

    /// Lets a packet come `delay` frames later; false when there is no room or no time for it.
    fn schedule(&mut self, at: u32, kind: Kind, number: u64, delay: u64) -> bool {
        let margin = self.heap.len() as u64 + 2 * u64::from(self.options.flows) + 64;
        if self.heap.len() >= MAX_PENDING || delay + margin >= self.remaining() {
            return false;
        }
        let frame = self.totals.frames + 1;
        let latest_due = self.flows[at as usize].latest_due;
        // A key that has served its time waits for what is on its way, and for nothing more.
        if self.wants_key(at) && frame + delay > latest_due {
            return false;
        }
        self.order += 1;
        self.heap.push(Reverse(Pending {
            due: frame + delay,
            order: self.order,
            flow: at,
            kind,
            number,
            original: frame,
        }));
        let flow = &mut self.flows[at as usize];
        flow.pending += 1;
        flow.copies += u16::from(kind == Kind::Duplicate);
        flow.latest_due = latest_due.max(frame + delay);
        true
    }

    fn deliver(
        &mut self,
        pending: Pending,
        frame: u64,
        time_ns: u64,
        out: &mut Vec<u8>,
        record: &mut dyn Record,
    ) -> io::Result<()> {
        let Pending { flow: at, kind, number, original, .. } = pending;
        let flow = &mut self.flows[at as usize];
        flow.pending -= 1;
        let tally = &mut flow.tally;
        match kind {
            Kind::Late => tally.late += 1,
            Kind::Duplicate => {
                tally.duplicates += 1;
                flow.copies -= 1;
            }
            _ => tally.replays += 1,
        }
        let (depth, channel) = (flow.next - 1 - number, flow.tally.key.channel_id());
        let original = if kind == Kind::Late { 0 } else { original };
        self.note(
            Event { kind, channel, first: number, last: number, frame, time_ns, depth, original, from: 0 },
            record,
        )?;
        self.emit(at, Flow::of(at, &self.options), number, frame, out);
        Ok(())
    }

    #[inline]
    fn emit(&mut self, at: u32, identity: Flow, number: u64, frame: u64, out: &mut Vec<u8>) {
        let start = out.len();
        let flow = &mut self.flows[at as usize];
        self.builder.build(&Packet { flow: identity, key: flow.key, number }, out);
        flow.tally.packets += 1;
        flow.tally.bytes += (out.len() - start) as u64;
        flow.last_frame = frame;
    }

    fn note(&mut self, event: Event, record: &mut dyn Record) -> io::Result<()> {
        self.totals.add_event(&event);
        record.event(&event)
    }

    /// Begins a flow's key.
    fn start(&mut self, at: u32, identity: Flow, key: u32) {
        let seed = self.options.seed;
        let first = identity.first_number(key, seed);
        let flow = &mut self.flows[at as usize];
        flow.started = true;
        flow.key = key;
        flow.next = first;
        flow.rounds = 0;
        flow.tally = Tally { key: identity.channel(key, seed), first, ..Tally::default() };
        if key == 0 && self.options.rekey > 0 {
            // So that not all keys change at once.
            flow.rounds = self.random.below(u64::from(self.options.rekey) / 2 + 1) as u32;
        }
    }

    /// Whether the flow's key has served its time.
    fn wants_key(&self, at: u32) -> bool {
        self.options.rekey > 0 && self.flows[at as usize].rounds >= self.options.rekey
    }

    fn is_key_due(&self, at: u32, identity: Flow) -> bool {
        self.wants_key(at)
            && !identity.is_narrow()
            && self.flows[at as usize].pending == 0
            && self.remaining() > NO_REKEY * u64::from(self.options.flows)
    }

    fn rekey(
        &mut self,
        at: u32,
        identity: Flow,
        frame: u64,
        time_ns: u64,
        record: &mut dyn Record,
    ) -> io::Result<()> {
        let old = self.flows[at as usize].clone();
        self.retired.push(old.tally);
        self.start(at, identity, old.key + 1);
        let missing = match self.options.loss > 0.0 && self.random.below(4) == 0 {
            true => 1 + self.random.below(4),
            false => 0,
        };
        let channel = self.flows[at as usize].tally.key.channel_id();
        if missing > 0 {
            let flow = &mut self.flows[at as usize];
            (flow.next, flow.tally.lost) = (1 + missing, missing);
            let loss = Event {
                kind: Kind::Loss,
                channel,
                first: 1,
                last: missing,
                frame,
                time_ns,
                depth: 0,
                original: 0,
                from: 0,
            };
            self.note(loss, record)?;
        }
        let rekey = Event {
            kind: Kind::Rekey,
            channel,
            first: 1 + missing,
            last: 1 + missing,
            frame,
            time_ns,
            depth: missing,
            original: old.last_frame,
            from: old.tally.key.channel_id(),
        };
        self.note(rekey, record)
    }

    /// Something beside the flows.
    fn other(&mut self, out: &mut Vec<u8>) {
        let kind = Other::ALL[self.random.below(Other::ALL.len() as u64) as usize];
        match kind {
            Other::Arp => self.clear.arp += 1,
            Other::Icmp => self.clear.icmp += 1,
            Other::Tcp => self.clear.tcp += 1,
            Other::Udp => self.clear.udp += 1,
            Other::Ike | Other::IkeNatT => self.totals.ike += 1,
            Other::Keepalive => self.totals.keepalives += 1,
        }
        kind.build(self.random.next(), out);
    }

    /// All keys that were used, in order of their end.
    pub fn tallies(&self) -> impl Iterator<Item = &Tally> {
        let current = self.flows.iter().filter(|flow| flow.started).map(|flow| &flow.tally);
        self.retired.iter().chain(current)
    }

    /// Frames in clear text so far.
    pub fn clear(&self) -> Clear {
        self.clear
    }

    /// Sums so far.
    pub fn totals(&self) -> Totals {
        let channels = self.tallies().count() as u64;
        Totals { channels, ..self.totals }
    }

    /// Those it was made with.
    pub fn options(&self) -> &Options {
        &self.options
    }
}

/// A step that visits all flows before any of them again: coprime to their number, near the golden section.
fn stride(flows: u32) -> u32 {
    let gcd = |mut a: u32, mut b: u32| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let near = (f64::from(flows) * 0.618) as u32;
    (near.max(1)..).find(|step| gcd(*step, flows) == 1).unwrap_or(1) % flows.max(2)
}
