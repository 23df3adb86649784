//! The packets around an event, as a capture of their own: `sluice monitor slice`.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, bail, ensure};
use clap::Args;
use serde::Serialize;

use crate::beside::{Beside, not_a_source};
use crate::capture::{self, CaptureError, Source};
use crate::frame::{Batch, Frame, LinkType};
use crate::generate::writer::{CaptureWriter, Format, Interface, formats_of};
use crate::observation::{ChannelKey, Observation, Unknown};
use crate::protocol;

/// Frames from before the event that are kept in memory, bytes.
const KEPT: usize = 256 << 20;
/// Capture times may step back by so much; later frames are still looked at.
const DISORDER_NS: u64 = 1_000_000_000;

/// Writes the packets around an event to a pcapng file.
#[derive(Args, Clone, Debug)]
pub struct SliceArgs {
    /// Capture files, read in the order of their first frames as one capture, or - for standard input.
    #[arg(required = true, value_name = "SOURCE")]
    pub sources: Vec<String>,
    /// Only packets of this channel: its number as in reports, 16 hexadecimal digits.
    #[arg(long, value_name = "ID", value_parser = channel_id)]
    pub channel: Option<u64>,
    /// The channel's number is of a run with --merge-interfaces.
    #[arg(long, requires = "channel")]
    pub merge_interfaces: bool,
    /// The event is this frame, counted from 1 over all files.
    #[arg(long, value_name = "N", conflicts_with = "time")]
    pub frame: Option<u64>,
    /// The event is at this time: seconds since the epoch, or like 2026-01-31T12:30:00.25Z.
    #[arg(long, value_name = "T")]
    pub time: Option<Time>,
    /// How long before the event.
    #[arg(long, value_name = "D", default_value = "100ms")]
    pub before: Span,
    /// How long after it.
    #[arg(long, value_name = "D", default_value = "100ms")]
    pub after: Span,
    /// A name that ends in .pcapng, and .gz or .zst after it to compress.
    #[arg(long)]
    pub output: PathBuf,
}

fn channel_id(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u64::from_str_radix(digits, 16).map_err(|_| "expected up to 16 hexadecimal digits".to_owned())
}

impl SliceArgs {
    /// Fails where the options contradict each other.
    pub fn request(&self) -> anyhow::Result<Request> {
        let event = match (self.frame, self.time) {
            (Some(0), _) => bail!("--frame 0: frames are counted from 1"),
            (Some(frame), _) => Some(Event::Frame(frame)),
            (None, Some(time)) => Some(Event::Time(time.0)),
            (None, None) => None,
        };
        ensure!(
            event.is_some() || self.channel.is_some(),
            "slice: say which packets, with --channel, --frame or --time"
        );
        let merged = self.merge_interfaces;
        Ok(Request { channel: self.channel, merged, event, before_ns: self.before.0, after_ns: self.after.0 })
    }
}

/// A length of time: a number with ns, us, ms, s, m or h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(pub u64);

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(at);
        let factor = match unit {
            "ns" => 1.0,
            "us" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" => 60e9,
            "h" => 3600e9,
            _ => return Err("expected a number with its unit, like 250us, 100ms, 2s or 1m".to_owned()),
        };
        let number: f64 = number.parse().map_err(|_| "expected a number before the unit".to_owned())?;
        Ok(Span((number * factor).round() as u64))
    }
}

/// A moment, nanoseconds since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time(pub u64);

impl FromStr for Time {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || "expected seconds since the epoch, or a time like 2026-01-31T12:30:00.25Z".to_owned();
        let (whole, fraction) = match text.trim_end_matches('Z').split_once('.') {
            Some((whole, fraction)) => (whole, fraction),
            None => (text.trim_end_matches('Z'), ""),
        };
        if fraction.len() > 9 || !fraction.bytes().all(|digit| digit.is_ascii_digit()) {
            return Err(wrong());
        }
        let nanoseconds: u64 = format!("{fraction:0<9}").parse().map_err(|_| wrong())?;
        let seconds = match whole.split_once('T') {
            None => whole.parse().ok(),
            Some((date, time)) => civil_seconds(date, time),
        };
        let time_ns = seconds.and_then(|seconds: u64| seconds.checked_mul(1_000_000_000));
        time_ns.and_then(|time_ns| time_ns.checked_add(nanoseconds)).map(Time).ok_or_else(wrong)
    }
}

/// Seconds since the epoch of a date and time in UTC (RFC 3339 5.6).
fn civil_seconds(date: &str, time: &str) -> Option<u64> {
    let numbers = |text: &str, by: char| -> Option<[u64; 3]> {
        let parts: Vec<u64> = text.split(by).map(|part| part.parse().ok()).collect::<Option<_>>()?;
        parts.try_into().ok()
    };
    let ([year, month, day], [hour, minute, second]) = (numbers(date, '-')?, numbers(time, ':')?);
    let fits = (1970..10_000).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second <= 60;
    if !fits {
        return None;
    }
    // Years that begin in March put the leap day at their end.
    let (year, month) = if month <= 2 { (year - 1, month + 9) } else { (year, month - 3) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1;
    Some((days - 719_468) * 86_400 + hour * 3600 + minute * 60 + second)
}

/// What the slice is around.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Number in the source, from 1.
    Frame(u64),
    /// Capture time, nanoseconds since the epoch.
    Time(u64),
}

/// Which packets are wanted.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// None = frames of every channel, and of none.
    pub channel: Option<u64>,
    /// The channel is that of all interfaces together.
    pub merged: bool,
    /// Nothing: all packets of the channel.
    pub event: Option<Event>,
    /// Capture time before the event.
    pub before_ns: u64,
    /// Capture time behind the event.
    pub after_ns: u64,
}

/// Runs the command.
pub fn run(args: &SliceArgs, stop: &AtomicBool) -> anyhow::Result<Slice> {
    let request = args.request()?;
    let sources: Vec<&str> = args.sources.iter().map(String::as_str).collect();
    not_a_source("--output", &args.output, &sources)?;
    let mut source = capture::open_all(&args.sources, true)?;
    slice(source.as_mut(), protocol::observe, &request, &args.output, stop)
}

/// What was written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Slice {
    /// Path of the capture.
    pub output: PathBuf,
    /// Frames in it.
    pub frames: u64,
    /// Numbers of the first and last frame in their source.
    pub first_frame: u64,
    /// Of the last one.
    pub last_frame: u64,
    /// First capture time, nanoseconds since the epoch.
    pub first_ns: u64,
    /// Last capture time, nanoseconds since the epoch.
    pub last_ns: u64,
    /// Frames before the event that did not fit into memory.
    pub left_out: u64,
    /// Set when the input ended early: what happened.
    pub partial: Option<String>,
}

/// Writes the wanted packets of `source`, as far as it is read when `stop` is set; `observe` tells channels. An output that was there stays unless there are some.
pub fn slice(
    source: &mut dyn Source,
    observe: impl Fn(&Frame<'_>) -> Result<Observation, Unknown>,
    request: &Request,
    output: &Path,
    stop: &AtomicBool,
) -> anyhow::Result<Slice> {
    let Some((Format::PcapNg, packing)) = formats_of(output) else {
        bail!("{}: expected a name that ends in .pcapng, with .gz or .zst after it", output.display());
    };
    let no_file = || format!("{} could not be written", output.display());
    let (beside, file) = Beside::create(output).with_context(no_file)?;
    let writer = CaptureWriter::new(file, Format::PcapNg, packing, &[]).with_context(no_file)?;
    let mut cutter = Cutter {
        request: *request,
        source: source.name().to_owned(),
        writer,
        beside,
        interfaces: HashMap::new(),
        waiting: VecDeque::new(),
        waiting_bytes: 0,
        event_ns: match request.event {
            Some(Event::Time(time_ns)) => Some(time_ns),
            _ => None,
        },
        name: None,
        slice: Slice { output: output.to_owned(), ..Slice::default() },
    };
    let mut batch = Batch::default();
    loop {
        let more = match source.next_batch(&mut batch) {
            Ok(more) => more,
            Err(error) if error.is_partial() => {
                cutter.slice.partial = Some(error.to_string());
                false
            }
            Err(error) => return Err(CaptureError::into(error)),
        };
        for frame in batch.frames() {
            if cutter.is_past(&frame) {
                return cutter.finish();
            }
            cutter.take(&frame, &observe).with_context(no_file)?;
        }
        if more && stop.load(Ordering::Relaxed) {
            cutter.slice.partial = Some("stopped on request".to_owned());
            return cutter.finish();
        }
        if !more {
            return cutter.finish();
        }
    }
}

/// A frame that waits for its event.
struct Waiting {
    time_ns: u64,
    interface: u32,
    wire_len: u32,
    link: LinkType,
    number: u64,
    data: Vec<u8>,
}

/// Decides frame by frame.
struct Cutter {
    request: Request,
    source: String,
    writer: CaptureWriter,
    beside: Beside,
    /// Interfaces of the output by those of the source.
    interfaces: HashMap<(u32, LinkType), u32>,
    waiting: VecDeque<Waiting>,
    waiting_bytes: usize,
    /// When the event is, as soon as it is known.
    event_ns: Option<u64>,
    /// Name of the wanted channel.
    name: Option<String>,
    slice: Slice,
}

impl Cutter {
    /// Whether nothing can come any more.
    fn is_past(&self, frame: &Frame<'_>) -> bool {
        let (Some(event_ns), Some(_)) = (self.event_ns, self.request.event) else { return false };
        frame.time_ns > event_ns.saturating_add(self.request.after_ns).saturating_add(DISORDER_NS)
    }

    fn take(
        &mut self,
        frame: &Frame<'_>,
        observe: impl Fn(&Frame<'_>) -> Result<Observation, Unknown>,
    ) -> io::Result<()> {
        let is_event = self.request.event == Some(Event::Frame(frame.number));
        if is_event {
            self.event_ns = Some(frame.time_ns);
            self.release()?;
        }
        if let Some(channel) = self.request.channel {
            let merged = self.request.merged;
            let place = |key: ChannelKey| if merged { key.any_interface() } else { key };
            let key = observe(frame).ok().map(|observation| place(observation.key));
            match key.filter(|key| key.channel_id() == channel) {
                Some(key) if self.name.is_none() => self.name = Some(key.to_string()),
                Some(_) => {}
                // The event itself is always shown.
                None if is_event => {}
                None => return Ok(()),
            }
        }
        match (self.request.event, self.event_ns) {
            (Some(_), None) => self.wait(frame),
            (Some(_), Some(event_ns)) if !self.is_near(frame.time_ns, event_ns) => {}
            _ => self.write(frame)?,
        }
        Ok(())
    }

    fn is_near(&self, time_ns: u64, event_ns: u64) -> bool {
        let Request { before_ns, after_ns, .. } = self.request;
        (event_ns.saturating_sub(before_ns)..=event_ns.saturating_add(after_ns)).contains(&time_ns)
    }

    /// Keeps a frame that may turn out to be shortly before the event.
    fn wait(&mut self, frame: &Frame<'_>) {
        let Frame { time_ns, interface, wire_len, link, number, data } = *frame;
        self.waiting_bytes += data.len();
        self.waiting.push_back(Waiting { time_ns, interface, wire_len, link, number, data: data.to_vec() });
        let oldest_ns = time_ns.saturating_sub(self.request.before_ns).saturating_sub(DISORDER_NS);
        while let Some(first) = self.waiting.front() {
            if first.time_ns >= oldest_ns && self.waiting_bytes <= KEPT {
                break;
            }
            self.slice.left_out += u64::from(first.time_ns >= oldest_ns);
            self.waiting_bytes -= first.data.len();
            self.waiting.pop_front();
        }
    }

    /// The event is known: what waited is near it or not.
    fn release(&mut self) -> io::Result<()> {
        let event_ns = self.event_ns.unwrap_or_default();
        for waiting in std::mem::take(&mut self.waiting) {
            let Waiting { time_ns, interface, wire_len, link, number, data } = waiting;
            if self.is_near(time_ns, event_ns) {
                self.write(&Frame { time_ns, interface, wire_len, link, number, data: &data })?;
            }
        }
        Ok(())
    }

    fn write(&mut self, frame: &Frame<'_>) -> io::Result<()> {
        let next = self.interfaces.len() as u32;
        let key = (frame.interface, frame.link);
        let interface = match self.interfaces.get(&key) {
            Some(interface) => *interface,
            None => {
                let name = format!("interface {}", frame.interface);
                self.writer.add_interface(&Interface { link: frame.link, name });
                self.interfaces.insert(key, next);
                next
            }
        };
        let comment = (self.slice.frames == 0).then(|| self.comment(frame.number));
        self.writer.write(&Frame { interface, ..*frame }, comment.as_deref())?;
        let slice = &mut self.slice;
        if slice.frames == 0 {
            (slice.first_frame, slice.first_ns) = (frame.number, frame.time_ns);
        }
        slice.frames += 1;
        (slice.last_frame, slice.last_ns) = (frame.number, frame.time_ns);
        Ok(())
    }

    /// What the slice shows.
    fn comment(&self, first: u64) -> String {
        let seconds = |ns: u64| ns as f64 / 1e9;
        let channel = match (&self.name, self.request.channel) {
            (Some(name), _) => format!("packets of {name} "),
            (None, Some(channel)) => format!("packets of channel {channel:016x} "),
            (None, None) => "packets ".to_owned(),
        };
        let event = match self.request.event {
            Some(Event::Frame(number)) => format!("around frame {number} of {}", self.source),
            Some(Event::Time(ns)) => {
                format!("around {}.{:09} of {}", ns / 1_000_000_000, ns % 1_000_000_000, self.source)
            }
            None => return format!("{channel}in {}; this is its frame {first}", self.source),
        };
        format!(
            "{channel}{event}, {} s before to {} s after; this is its frame {first}",
            seconds(self.request.before_ns),
            seconds(self.request.after_ns)
        )
    }

    fn finish(self) -> anyhow::Result<Slice> {
        let Request { event, channel, .. } = self.request;
        if self.slice.frames > 0 {
            let written = self.writer.finish().and_then(|()| self.beside.take_place());
            written.with_context(|| format!("{} could not be written", self.slice.output.display()))?;
            return Ok(self.slice);
        }
        match (event, self.event_ns, channel) {
            (Some(Event::Frame(number)), None, _) => bail!("{} has no frame {number}", self.source),
            (Some(_), _, None) => bail!("{} has no packets around that time", self.source),
            (_, _, Some(channel)) => bail!("{}: no packets of channel {channel:016x} there", self.source),
            (None, _, None) => bail!("{} has no packets", self.source),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_spans_are_read() {
        for (text, ns) in [
            ("0", 0),
            ("1700000000", 1_700_000_000_000_000_000),
            ("1700000000.000000001", 1_700_000_000_000_000_001),
            ("2023-11-14T22:13:20Z", 1_700_000_000_000_000_000),
            ("2024-02-29T00:00:00.5Z", 1_709_164_800_500_000_000),
            ("1970-01-01T00:00:01", 1_000_000_000),
        ] {
            assert_eq!(text.parse(), Ok(Time(ns)), "{text}");
        }
        for text in ["", "x", "1.0000000001", "2023-13-01T00:00:00Z", "2023-11-14T24:00:00Z", "-1"] {
            assert!(text.parse::<Time>().is_err(), "{text}");
        }
        for (text, ns) in [("7ns", 7), ("2.5us", 2500), ("100ms", 100_000_000), ("1m", 60_000_000_000)] {
            assert_eq!(text.parse(), Ok(Span(ns)), "{text}");
        }
        for text in ["", "5", "ms", "1d", "-1s"] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
    }
}
