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
    /// In the order of frames.
    pub events: Vec<Event>,
    /// In the order in which keys ended.
    pub channels: Vec<Channel>,
    /// Frames that belong to no channel, by kind.
    pub clear: Clear,
    /// Sums over all of it.
    pub totals: Totals,
}

/// One planted event. Sequence numbers count on where the number on the wire wraps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// What was planted.
    pub kind: Kind,
    /// Number of the channel, as the analysis gives it.
    #[serde(with = "hex_id")]
    pub channel: u64,
    /// First and last number: a range for losses, one packet elsewhere, of a rekey the new key's first.
    pub first: u64,
    /// Last number.
    pub last: u64,
    /// Frame and time of the packet; of a loss that of the packet which reveals it.
    pub frame: u64,
    /// Capture time, nanoseconds since the epoch.
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
    /// Numbers that never come.
    Loss,
    /// A packet after later ones.
    Late,
    /// A packet that comes twice within a second.
    Duplicate,
    /// A packet that comes again later than that.
    Replay,
    /// A flow changes to another key.
    Rekey,
}

/// One key of a flow. An AN that comes round is listed again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Channel {
    /// Number of the channel, as the analysis gives it.
    #[serde(with = "hex_id")]
    pub id: u64,
    /// As the analysis prints it.
    pub name: String,
    /// What carries it.
    pub protocol: Protocol,
    /// Copies included.
    pub packets: u64,
    /// On the wire, without FCS.
    pub bytes: u64,
    /// First sequence number.
    pub first: u64,
    /// Highest sequence number, extended where it wrapped.
    pub last: u64,
    /// Numbers that never come.
    pub lost: u64,
    /// Packets that come after later ones.
    pub late: u64,
    /// Copies within a second.
    pub duplicates: u64,
    /// Copies later than that.
    pub replays: u64,
}

/// A [`Channel`] without text, as it is kept until the end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Of the channel.
    pub key: ChannelKey,
    /// Copies included.
    pub packets: u64,
    /// On the wire, without FCS.
    pub bytes: u64,
    /// First sequence number.
    pub first: u64,
    /// Highest sequence number, extended where it wrapped.
    pub last: u64,
    /// Numbers that never come.
    pub lost: u64,
    /// Packets that come after later ones.
    pub late: u32,
    /// Copies within a second.
    pub duplicates: u32,
    /// Copies later than that.
    pub replays: u32,
}

impl Tally {
    /// With name and number in words.
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
    /// ARP requests and replies.
    pub arp: u64,
    /// Echo requests and replies.
    pub icmp: u64,
    /// TCP segments.
    pub tcp: u64,
    /// UDP datagrams.
    pub udp: u64,
}

/// Sums, for whoever wants no list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// All of the capture.
    pub frames: u64,
    /// On the wire, without FCS.
    pub bytes: u64,
    /// First capture time, nanoseconds since the epoch.
    pub first_ns: u64,
    /// Last capture time, nanoseconds since the epoch.
    pub last_ns: u64,
    /// Keys with at least one packet.
    pub channels: u64,
    /// Ranges of lost numbers, and numbers in them.
    pub gaps: u64,
    /// Numbers in those ranges.
    pub lost: u64,
    /// Packets that come after later ones.
    pub late: u64,
    /// Copies within a second.
    pub duplicates: u64,
    /// Copies later than that.
    pub replays: u64,
    /// Changes of key.
    pub rekeys: u64,
    /// Key management and keepalives: channels without numbers.
    pub ike: u64,
    /// NAT keepalives (RFC 3948 2.3).
    pub keepalives: u64,
}

impl Totals {
    /// Counts it by its kind.
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
    /// Called in the order of frames.
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
    /// Begins the JSON document.
    pub fn new(mut out: W, command: &str) -> io::Result<Self> {
        write!(out, "{{\"command\":{},\n\"events\":[", serde_json::to_string(command)?)?;
        Ok(Writer { out, events: 0 })
    }

    /// Writes what is known at the end only, and closes the document.
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
