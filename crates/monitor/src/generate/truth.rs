//! What was planted into a capture, as JSON beside it.
//!
//! Events are written in the order of the capture while it is made, so that memory does not grow with its length.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};

use crate::observation::{ChannelKey, Protocol};
use crate::summary::hex_id;

/// Everything about a generated capture.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Truth {
    /// The command that makes the same capture again.
    pub command: String,
    pub events: Vec<Event>,
    pub channels: Vec<Channel>,
    /// Frames that belong to no channel, by kind.
    pub clear: Clear,
    pub totals: Totals,
}

/// One planted event. Sequence numbers count on where the number on the wire wraps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    pub kind: Kind,
    #[serde(with = "hex_id")]
    pub channel: u64,
    /// First and last number: a range for losses, one packet elsewhere, of a rekey the new key's first.
    pub first: u64,
    pub last: u64,
    /// Frame and time of the packet; of a loss that of the packet which reveals it.
    pub frame: u64,
    pub time_ns: u64,
    /// How far the number was below the highest sent; of a rekey the numbers lost at the new key's start.
    pub depth: u64,
    /// The frame with the original of a copy; of a rekey the old key's last frame.
    pub original: u64,
    /// The old key of a rekey.
    #[serde(with = "hex_id", default, skip_serializing_if = "is_zero")]
    pub from: u64,
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// What an event is. The definitions are those of [`crate::channel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Loss,
    Late,
    Duplicate,
    Replay,
    Rekey,
}

/// One key of a flow. An AN that comes round is listed again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Channel {
    #[serde(with = "hex_id")]
    pub id: u64,
    pub name: String,
    pub protocol: Protocol,
    pub packets: u64,
    pub bytes: u64,
    pub first: u64,
    pub last: u64,
    pub lost: u64,
    pub late: u64,
    pub duplicates: u64,
    pub replays: u64,
}

/// A [`Channel`] without text, as it is kept until the end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub key: ChannelKey,
    pub packets: u64,
    pub bytes: u64,
    pub first: u64,
    pub last: u64,
    pub lost: u64,
    pub late: u32,
    pub duplicates: u32,
    pub replays: u32,
}

impl Tally {
    pub fn channel(&self) -> Channel {
        Channel {
            id: self.key.channel_id(),
            name: self.key.to_string(),
            protocol: self.key.protocol(),
            packets: self.packets,
            bytes: self.bytes,
            first: self.first,
            last: self.last,
            lost: self.lost,
            late: self.late.into(),
            duplicates: self.duplicates.into(),
            replays: self.replays.into(),
        }
    }
}

/// Frames in clear text, which belong to no channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clear {
    pub arp: u64,
    pub icmp: u64,
    pub tcp: u64,
    pub udp: u64,
}

/// Sums, for whoever wants no list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    pub frames: u64,
    pub bytes: u64,
    pub first_ns: u64,
    pub last_ns: u64,
    pub channels: u64,
    /// Ranges of lost numbers, and numbers in them.
    pub gaps: u64,
    pub lost: u64,
    pub late: u64,
    pub duplicates: u64,
    pub replays: u64,
    pub rekeys: u64,
    /// Key management and keepalives: channels without numbers.
    pub ike: u64,
    pub keepalives: u64,
}

impl Totals {
    pub fn add_event(&mut self, event: &Event) {
        match event.kind {
            Kind::Loss => {
                self.gaps += 1;
                self.lost += event.last - event.first + 1;
            }
            Kind::Late => self.late += 1,
            Kind::Duplicate => self.duplicates += 1,
            Kind::Replay => self.replays += 1,
            Kind::Rekey => self.rekeys += 1,
        }
    }
}

/// Who takes the truth while it comes about.
pub trait Record {
    fn event(&mut self, event: &Event) -> io::Result<()>;
}

impl Record for Vec<Event> {
    fn event(&mut self, event: &Event) -> io::Result<()> {
        self.push(*event);
        Ok(())
    }
}

/// Writes a [`Truth`] piece by piece.
pub struct Writer<W: Write> {
    out: W,
    events: u64,
}

impl<W: Write> Writer<W> {
    pub fn new(mut out: W, command: &str) -> io::Result<Self> {
        write!(out, "{{\"command\":{},\n\"events\":[", serde_json::to_string(command)?)?;
        Ok(Writer { out, events: 0 })
    }

    pub fn finish(
        mut self,
        channels: impl Iterator<Item = Channel>,
        clear: &Clear,
        totals: &Totals,
    ) -> io::Result<()> {
        self.out.write_all(b"],\n\"channels\":[")?;
        for (at, channel) in channels.enumerate() {
            self.out.write_all(if at == 0 { b"\n" } else { b",\n" })?;
            serde_json::to_writer(&mut self.out, &channel)?;
        }
        self.out.write_all(b"],\n\"clear\":")?;
        serde_json::to_writer(&mut self.out, clear)?;
        self.out.write_all(b",\n\"totals\":")?;
        serde_json::to_writer(&mut self.out, totals)?;
        self.out.write_all(b"}\n")?;
        self.out.flush()
    }
}

impl<W: Write> Record for Writer<W> {
    fn event(&mut self, event: &Event) -> io::Result<()> {
        self.out.write_all(if self.events == 0 { b"\n" } else { b",\n" })?;
        self.events += 1;
        serde_json::to_writer(&mut self.out, event)?;
        Ok(())
    }
}
