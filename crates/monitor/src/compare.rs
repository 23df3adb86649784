//! One link, two taps: which packets got lost between them, and how long the others took. `sluice monitor compare`.
//!
//! A packet is the same at both taps when SCI, AN and PN agree, or SPI and sequence number, or TEID and sequence number,
//! and its content does (length and ICV). Addresses, ports and VLANs may differ: there may be a NAT or a provider's
//! network between the taps.

mod delays;
mod report;
mod window;

use clap::Args;
use serde::{Deserialize, Serialize};

use crate::capture::{self, CaptureError, Source};
use crate::frame::{Batch, Frame};
use crate::observation::{Observation, Unknown};
use crate::protocol;
use crate::slice::Span;
use crate::summary::{Identity, hex_id};

pub use delays::Delay;
pub use report::print;
use window::Matcher;

/// Compares captures of the same link taken at two places.
#[derive(Args, Clone, Debug)]
pub struct CompareArgs {
    /// Capture of the first tap.
    pub a: String,
    /// Capture of the second tap.
    pub b: String,
    /// A packet that the other tap has not seen within this time is lost.
    #[arg(long, value_name = "D", default_value = "1s")]
    pub window: Span,
    /// Added to the second tap's times, where its clock is behind.
    #[arg(long, value_name = "D", conflicts_with = "ahead")]
    pub behind: Option<Span>,
    /// Taken off the second tap's times, where its clock is ahead.
    #[arg(long, value_name = "D")]
    pub ahead: Option<Span>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

impl CompareArgs {
    /// With the clocks' difference as one signed number.
    pub fn options(&self) -> Options {
        let ns = |span: Option<Span>| span.map_or(0, |span| span.0 as i64);
        Options {
            window_ns: self.window.0,
            offset_ns: ns(self.behind) - ns(self.ahead),
            ..Options::default()
        }
    }
}

/// How to compare.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long a packet waits for its counterpart.
    pub window_ns: u64,
    /// Added to the times of tap B.
    pub offset_ns: i64,
    /// Packets that wait at the same time; beyond that the oldest are given up early and counted.
    pub max_waiting: usize,
    /// Channels told apart; packets of further ones are only counted.
    pub max_channels: usize,
    /// Lost ranges listed one by one.
    pub max_losses: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            window_ns: 1_000_000_000,
            offset_ns: 0,
            max_waiting: 1 << 22,
            max_channels: 1 << 16,
            max_losses: 10_000,
        }
    }
}

/// Direction of a channel: which tap its packets pass first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Past tap A first.
    AToB,
    /// Past tap B first.
    BToA,
    /// No packet was seen at both.
    Unknown,
}

/// One tap.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tap {
    /// Name of the file or interface.
    pub source: String,
    /// Frames read.
    pub frames: u64,
    /// Packets with a number, which can be matched.
    pub numbered: u64,
    /// First capture time, by this tap's clock.
    pub first_ns: u64,
    /// Last capture time, by this tap's clock.
    pub last_ns: u64,
    /// Frames the capture itself lost: they look like losses of the link.
    pub capture_drops: u64,
    /// Set when the input ended early: what happened.
    pub partial: Option<String>,
}

/// Packets of a channel, or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Seen at each tap, further copies included.
    pub at_a: u64,
    /// Seen at B, further copies included.
    pub at_b: u64,
    /// Pairs that were matched.
    pub at_both: u64,
    /// Seen where they came from and not where they went: lost between the taps.
    pub lost: u64,
    /// Seen only where they went: the first tap missed them, or they came another way.
    pub missed: u64,
    /// Seen at one tap while the other was not capturing.
    pub undecided: u64,
    /// Further copies within the window.
    pub duplicates_a: u64,
    /// Further copies at B.
    pub duplicates_b: u64,
}

/// One channel at both taps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChannelComparison {
    /// Which channel.
    #[serde(flatten)]
    pub identity: Identity,
    /// By which tap saw its packets first.
    pub direction: Direction,
    /// Its packets.
    #[serde(flatten)]
    pub counts: Counts,
    /// From the first tap to the second.
    pub delay: Option<Delay>,
}

/// Successive numbers of a channel that were lost between the taps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// Number of the channel, as [`Identity::id`].
    #[serde(with = "hex_id")]
    pub channel: u64,
    /// Of the channel.
    pub direction: Direction,
    /// First number that was lost.
    pub first: u64,
    /// Last number that was lost.
    pub last: u64,
    /// When they passed the first tap.
    pub first_ns: u64,
    /// Of the last one, by the first tap's clock.
    pub last_ns: u64,
}

/// The result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Tap A.
    pub a: Tap,
    /// Tap B.
    pub b: Tap,
    /// How long a packet waited for its counterpart.
    pub window_ns: u64,
    /// As [`Options::offset_ns`].
    pub offset_ns: i64,
    /// All channels together.
    pub totals: Counts,
    /// Delays of all channels by direction.
    pub a_to_b: Option<Delay>,
    /// As `a_to_b`.
    pub b_to_a: Option<Delay>,
    /// How far B's clock is ahead of A's, if both directions take equally long. Only where delays contradict the
    /// directions.
    pub clock_offset_ns: Option<i64>,
    /// Worst first.
    pub channels: Vec<ChannelComparison>,
    /// By time, at most so many as are kept.
    pub losses: Vec<Loss>,
    /// Ranges beyond those listed.
    pub more_losses: u64,
    /// Things about the inputs that an operator should know.
    pub warnings: Vec<String>,
}

/// Runs the command.
pub fn run(args: &CompareArgs) -> Result<Comparison, CaptureError> {
    let (mut a, mut b) = (capture::open(&args.a)?, capture::open(&args.b)?);
    compare(a.as_mut(), b.as_mut(), protocol::observe, &args.options())
}

/// Compares two sources; `observe` tells channels and numbers.
pub fn compare(
    a: &mut dyn Source,
    b: &mut dyn Source,
    observe: impl Fn(&Frame<'_>) -> Result<Observation, Unknown>,
    options: &Options,
) -> Result<Comparison, CaptureError> {
    let mut cursors = [Cursor::new(a, 0)?, Cursor::new(b, options.offset_ns)?];
    let mut matcher = Matcher::new(options.clone());
    for (side, cursor) in cursors.iter().enumerate() {
        matcher.begins(side, cursor.time_ns());
    }
    loop {
        let side = match (cursors[0].time_ns(), cursors[1].time_ns()) {
            (None, None) => break,
            (Some(a), Some(b)) => usize::from(b < a),
            (a, _) => usize::from(a.is_none()),
        };
        let cursor = &mut cursors[side];
        let (frame, time_ns) = cursor.frame();
        let observation = observe(&frame).ok().filter(|observation| observation.bits > 0);
        cursor.tap.numbered += u64::from(observation.is_some());
        matcher.clock(side, time_ns);
        if let Some(observation) = observation {
            matcher.take(side, &observation, time_ns);
        }
        if cursor.advance()? {
            matcher.ends(side);
        }
    }
    let [a, b] = cursors.map(Cursor::finish);
    Ok(matcher.finish(a, b))
}

/// Reads one source frame by frame.
struct Cursor<'a> {
    source: &'a mut dyn Source,
    batch: Batch,
    at: usize,
    more: bool,
    offset_ns: i64,
    tap: Tap,
}

impl<'a> Cursor<'a> {
    fn new(source: &'a mut dyn Source, offset_ns: i64) -> Result<Self, CaptureError> {
        let tap = Tap { source: source.name().to_owned(), first_ns: u64::MAX, ..Tap::default() };
        let mut cursor = Cursor { source, batch: Batch::default(), at: 0, more: true, offset_ns, tap };
        cursor.fill()?;
        Ok(cursor)
    }

    /// Reads on when the batch is used up.
    fn fill(&mut self) -> Result<(), CaptureError> {
        while self.at >= self.batch.len() && self.more {
            self.at = 0;
            match self.source.next_batch(&mut self.batch) {
                Ok(more) => self.more = more,
                Err(error) if error.is_partial() => {
                    self.tap.partial = Some(error.to_string());
                    self.more = false;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Time of the present frame on the common clock; `None` at the end.
    fn time_ns(&self) -> Option<u64> {
        let record = self.batch.records().get(self.at)?;
        Some(record.time_ns.saturating_add_signed(self.offset_ns))
    }

    fn frame(&self) -> (Frame<'_>, u64) {
        let frame = self.batch.frame(self.at);
        (frame, frame.time_ns.saturating_add_signed(self.offset_ns))
    }

    /// Goes on to the next frame and says whether there is none.
    fn advance(&mut self) -> Result<bool, CaptureError> {
        let time_ns = self.batch.records()[self.at].time_ns;
        self.tap.frames += 1;
        self.tap.first_ns = self.tap.first_ns.min(time_ns);
        self.tap.last_ns = self.tap.last_ns.max(time_ns);
        self.at += 1;
        self.fill()?;
        Ok(self.at >= self.batch.len())
    }

    fn finish(self) -> Tap {
        let first_ns = if self.tap.frames == 0 { 0 } else { self.tap.first_ns };
        Tap { first_ns, capture_drops: self.source.drops(), ..self.tap }
    }
}
