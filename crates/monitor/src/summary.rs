//! What the analysis says: the types that results, reports and the REST interface share.
//!
//! During a run a [`Sink`] receives one [`Update`] an interval of capture time; an update holds differences, so writing
//! each once (in one transaction) is all a database has to do. At the end it receives the [`Summary`].

use serde::{Deserialize, Serialize};

use crate::anomaly::Kind;
use crate::observation::{ChannelKey, Protocol};

/// Who receives results. Called from the analysis: slow work belongs into a thread of its own.
pub trait Sink: Send {
    /// What changed since the update before. One interval may come in several parts, each with
    /// the counts it adds.
    fn update(&mut self, update: Update) -> anyhow::Result<()>;

    /// The end of the run. Everything was delivered before; the totals here are absolute.
    fn finish(&mut self, summary: &Summary) -> anyhow::Result<()>;
}

/// Counts of one channel, of one interval, or of a whole run.
///
/// Every packet with a number is exactly one of: in order, late, duplicate, replay, reused, too old, stray. `packets`
/// counts them all, and those without a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// All of them, also those without a number.
    pub packets: u64,
    /// Length on the wire, as captured (without FCS unless the capture has it).
    pub bytes: u64,
    /// Numbers that were skipped and have not come. In an interval it is negative when late packets gave more back
    /// than was lost.
    pub lost: i64,
    /// Came after a higher number (RFC 4737: reordered). Never counted as lost.
    pub late: u64,
    /// The same packet again, while its number is in the window of 512 and the original is at most a second old.
    pub duplicates: u64,
    /// The same packet again, later than that.
    pub replays: u64,
    /// Another packet under a number that was used before.
    pub reused: u64,
    /// Below what is remembered: late or replayed, it cannot be told.
    pub too_old: u64,
    /// A single number far off the sequence, which nothing followed up.
    pub stray: u64,
}

impl Counts {
    /// Sums them up.
    pub fn add(&mut self, other: &Counts) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.lost += other.lost;
        self.late += other.late;
        self.duplicates += other.duplicates;
        self.replays += other.replays;
        self.reused += other.reused;
        self.too_old += other.too_old;
        self.stray += other.stray;
    }

    /// What channels are ranked by: a replayed or reused number counts 100, a lost one 10, a late one or a duplicate 1.
    pub fn trouble(&self) -> u64 {
        (self.replays + self.reused) * 100 + self.lost.max(0) as u64 * 10 + self.late + self.duplicates
    }

    /// Lost of expected, 0 to 1 (RFC 7680: what arrived late is not lost).
    pub fn loss_ratio(&self) -> f64 {
        let again = self.duplicates + self.replays + self.reused + self.stray + self.too_old;
        let expected = self.lost.max(0) as u64 + self.packets.saturating_sub(again);
        if expected == 0 { 0.0 } else { self.lost.max(0) as f64 / expected as f64 }
    }
}

/// A channel's identity, in the words of its protocol.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Stable number of the channel; hexadecimal, because JSON numbers lose bits above 2^53.
    #[serde(with = "hex_id")]
    pub id: u64,
    /// As reports print it.
    pub name: String,
    /// What its packets carry.
    pub protocol: Protocol,
    /// Capture interface; from the 16th on they share one number.
    pub interface: u8,
    /// 0 without a second tag.
    pub outer_vlan: u16,
    /// 0 without a tag.
    pub vlan: u16,
    /// MACsec and MKA: 16 hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sci: Option<String>,
    /// Address, with the port for UDP; absent for MACsec and MKA.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Address, with the port for UDP; absent for MACsec and MKA.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination: Option<String>,
    /// AN, SPI or TEID.
    pub key_id: u32,
    /// Number of the group that successive keys of one secure channel share.
    #[serde(with = "hex_id")]
    pub group: u64,
}

impl Identity {
    /// Puts a key into words.
    pub fn of(key: &ChannelKey) -> Self {
        let vlans = key.vlans();
        let with_port = |address: std::net::IpAddr, port: Option<u16>| match port {
            Some(port) => format!("{address}:{port}"),
            None => address.to_string(),
        };
        let ports = key.ports();
        let addresses = key.addresses();
        Identity {
            id: key.channel_id(),
            name: key.to_string(),
            protocol: key.protocol(),
            interface: key.interface(),
            outer_vlan: vlans.outer,
            vlan: vlans.inner,
            sci: key.sci().map(|sci| format!("{sci:016x}")),
            source: addresses.map(|(source, _)| with_port(source, ports.map(|ports| ports.0))),
            destination: addresses.map(|(_, destination)| with_port(destination, ports.map(|ports| ports.1))),
            key_id: key.id(),
            group: key.group().channel_id(),
        }
    }
}

/// Upper edges of the reorder histogram's buckets; the last bucket has none. A packet's depth is how far its number
/// is below the highest seen, which is what a replay window compares (RFC 4303 3.4.3, 802.1AE 10.6.2).
pub const DEPTH_EDGES: [u32; 9] = [1, 3, 7, 15, 31, 63, 127, 255, 511];
/// Buckets of the histogram.
pub const DEPTHS: usize = DEPTH_EDGES.len() + 1;

/// Late packets by depth, and how many a receiver would have dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reorder {
    /// Late packets by depth, buckets as in [`DEPTH_EDGES`].
    pub depths: [u64; DEPTHS],
    /// The deepest, in numbers.
    pub max_depth: u32,
    /// Would be dropped at replay window 0 (strict order), 32, 64, 512.
    pub would_drop: [u64; 4],
}

impl Reorder {
    /// Every replay window is the edge of a bucket, so whole buckets add up to the packets at least that deep.
    pub fn of(depths: [u64; DEPTHS], max_depth: u32) -> Self {
        let beyond = |window: u32| depths[DEPTH_EDGES.partition_point(|edge| *edge < window)..].iter().sum();
        Reorder { depths, max_depth, would_drop: REPLAY_WINDOWS.map(beyond) }
    }

    /// Sums them up; the larger `max_depth` stays.
    pub fn add(&mut self, other: &Reorder) {
        for (sum, more) in self.depths.iter_mut().zip(other.depths) {
            *sum += more;
        }
        for (sum, more) in self.would_drop.iter_mut().zip(other.would_drop) {
            *sum += more;
        }
        self.max_depth = self.max_depth.max(other.max_depth);
    }
}

/// Replay windows of [`Reorder::would_drop`].
pub const REPLAY_WINDOWS: [u32; 4] = [0, 32, 64, 512];

/// Whether a channel hides its payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protection {
    /// Readable, and nothing proves where it came from.
    #[default]
    None,
    /// Nobody reads it without the key.
    Encrypted,
    /// Readable, and authenticated.
    IntegrityOnly,
    /// Both kinds of frames under one key.
    Mixed,
}

/// When a channel's numbers run out at its present rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Exhaustion {
    /// Packets a second, of late.
    pub rate_pps: f64,
    /// Numbers that are left.
    pub remaining: u64,
    /// Time until none is left.
    pub seconds: f64,
}

impl Exhaustion {
    /// `rate_pps` must be above 0.
    pub fn new(rate_pps: f64, remaining: u64) -> Self {
        Exhaustion { rate_pps, remaining, seconds: remaining as f64 / rate_pps }
    }
}

/// All that is known of a channel, ready to print. [`ChannelState`] is the same without text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChannelSummary {
    /// Which channel.
    #[serde(flatten)]
    pub identity: Identity,
    /// What is known of it.
    #[serde(flatten)]
    pub figures: Figures,
}

/// A channel's key and figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChannelState {
    /// Which channel.
    pub key: ChannelKey,
    /// As in [`NewChannel`].
    pub number: u32,
    /// What is known of it.
    pub figures: Figures,
}

impl ChannelState {
    /// In words.
    pub fn summary(&self) -> ChannelSummary {
        ChannelSummary { identity: Identity::of(&self.key), figures: self.figures }
    }
}

/// All figures of a channel, absolute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Capture time of its first packet.
    pub first_ns: u64,
    /// Capture time of its last packet.
    pub last_ns: u64,
    /// Frame number of the first packet in its source.
    pub first_frame: u64,
    /// 0 where its packets have no numbers.
    pub first_sequence: u64,
    /// The highest number, extended beyond its width on the wire where it wrapped.
    pub highest_sequence: u64,
    /// 16, 32 or 64; 0 without numbers.
    pub sequence_bits: u8,
    /// The number wrapped without a new key: ESN or XPN is in use (RFC 4303 2.2.1), or GTP-U, where that is usual.
    pub extended: bool,
    /// Since the channel was first seen.
    pub counts: Counts,
    /// Its late packets.
    pub reorder: Reorder,
    /// Times the counter started anew under the same key.
    pub restarts: u32,
    /// Times the counter leapt further than the link could have carried.
    pub jumps: u32,
    /// Ranges of lost numbers.
    pub gaps: u64,
    /// Smoothed variation of the time between packets (RFC 3550 6.4.1, with equal sending times assumed).
    pub jitter_ns: u64,
    /// Shortest protected payload, in bytes.
    pub min_payload: u16,
    /// Longest protected payload, in bytes.
    pub max_payload: u16,
    /// As its packets say.
    pub protection: Protection,
    /// Lengths of a packet contradicted each other.
    pub length_mismatches: bool,
    /// Absent without numbers, or without a rate.
    pub exhaustion: Option<Exhaustion>,
    /// No traffic was seen in the opposite direction; absent where it cannot be told.
    pub one_way: Option<bool>,
    /// The state was dropped to make room; the channel may appear again.
    pub evicted: bool,
    /// Its numbers do not count its packets, so what was lost cannot be told.
    #[serde(default)]
    pub no_counter: bool,
}

/// A channel seen for the first time. Numbers are handed out densely within a run; a channel that comes back after
/// eviction gets another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewChannel {
    /// Counts up from 0.
    pub number: u32,
    /// Which channel.
    pub key: ChannelKey,
}

/// What an interval added to one channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelDelta {
    /// Number of the channel, as [`Identity::id`].
    #[serde(with = "hex_id")]
    pub channel: u64,
    /// As in [`NewChannel`].
    #[serde(skip)]
    pub number: u32,
    /// Numbers the interval.
    pub interval: u64,
    /// Capture time of the last packet.
    pub last_ns: u64,
    /// Extended where it wrapped.
    pub highest_sequence: u64,
    /// What the interval added.
    pub counts: Counts,
}

/// A range of numbers that was lost. Reported once its packets are overdue; if some come after all, it is reported
/// again: `(channel, first)` identifies a gap, and `lost == 0` takes it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// Number of the channel, as [`Identity::id`].
    #[serde(with = "hex_id")]
    pub channel: u64,
    /// First number of the range.
    pub first: u64,
    /// Last number of the range.
    pub last: u64,
    /// How many of them are still missing.
    pub lost: u64,
    /// Time of the packet before the gap and of the one that revealed it: the loss happened between them.
    pub before_ns: u64,
    /// Of the one that revealed it.
    pub after_ns: u64,
    /// Frame number of the packet that revealed it.
    pub frame: u64,
}

/// Something an operator should look at. `(channel, kind)` identifies it; later reports replace earlier ones, and
/// `count == 0` takes it back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Anomaly {
    /// What it is.
    pub kind: Kind,
    /// The channel's number, 0 for the link as a whole.
    #[serde(with = "hex_id")]
    pub channel: u64,
    /// As [`Identity::name`]; empty for the link as a whole.
    pub channel_name: String,
    /// Occurrences so far, or since it was forgotten: there may be too many to remember.
    pub count: u64,
    /// Occurrences since the report before; of what is taken back less than 0.
    #[serde(skip)]
    pub added: i64,
    /// Capture time of the first occurrence.
    pub first_ns: u64,
    /// Capture time of the last occurrence.
    pub last_ns: u64,
    /// Number and frame of the first occurrence, 0 where there is none.
    pub first_sequence: u64,
    /// Number of the last occurrence, 0 where there is none.
    pub last_sequence: u64,
    /// Frame of the first occurrence, 0 where there is none.
    pub frame: u64,
    /// What was seen, in words.
    pub detail: String,
}

/// A change of AN or SPI within one secure channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rekey {
    /// Number of the channel with the old key.
    #[serde(with = "hex_id")]
    pub from: u64,
    /// Number of the channel with the new key.
    #[serde(with = "hex_id")]
    pub to: u64,
    /// As [`Identity::name`].
    pub from_name: String,
    /// As [`Identity::name`].
    pub to_name: String,
    /// Time of the new key's first packet.
    pub at_ns: u64,
    /// Silence between the old key's last packet and the new key's first; negative while both were in use.
    pub pause_ns: i64,
    /// Lost numbers that belong to the change: the start of the new key's sequence, and what the old key lost while
    /// both were in use.
    pub lost: u64,
}

/// One interval of the link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interval {
    /// Counted from the epoch: `start_ns / length`.
    pub index: u64,
    /// Nanoseconds since the epoch.
    pub start_ns: u64,
    /// The same for all intervals of a run.
    pub length_ns: u64,
    /// All channels together.
    pub counts: Counts,
    /// Frames that belong to no channel.
    pub unknown: u64,
    /// Channels with packets in it. Summed over the parts of an update.
    pub active: u64,
    /// Frames the capture itself lost since the interval before.
    pub capture_drops: u64,
}

/// A time may be so far before the present interval, and four intervals, because frames are out of order; one that is
/// further back is that of a clock that was set back.
const BACK_NS: u64 = 10_000_000_000;

/// Whether a clock that has reached `end_ns`, the end of its interval, was set back.
pub(crate) fn is_set_back(time_ns: u64, end_ns: u64, length_ns: u64) -> bool {
    end_ns.saturating_sub(time_ns) > length_ns.saturating_mul(5).max(BACK_NS.saturating_add(length_ns))
}

impl Interval {
    /// Whether it is the present one in place of another: it is later, or the clock was set back.
    pub(crate) fn replaces(&self, shown: &Interval) -> bool {
        let end_ns = shown.start_ns.saturating_add(shown.length_ns);
        self.index > shown.index || is_set_back(self.start_ns, end_ns, self.length_ns)
    }
}

/// What changed since the update before.
#[derive(Clone, Debug, Default)]
pub struct Update {
    /// The interval that ended, or a part of one that has many results.
    pub interval: Interval,
    /// Channels seen for the first time, or again after eviction; [`Identity::of`] puts them into words.
    pub new_channels: Vec<NewChannel>,
    /// One a channel with packets in it.
    pub deltas: Vec<ChannelDelta>,
    /// New ones, and those that have changed.
    pub gaps: Vec<Gap>,
    /// How many more ranges of lost numbers there are, those that may still be filled included.
    pub gap_change: i64,
    /// New ones, and those that have changed.
    pub anomalies: Vec<Anomaly>,
    /// New ones.
    pub rekeys: Vec<Rekey>,
    /// Absolute state of channels that were evicted or, at the end, of all.
    pub channels: Vec<ChannelState>,
}

/// Frames by the first header that differed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnknownCount {
    /// Which header, in words.
    pub reason: String,
    /// How many there were.
    pub frames: u64,
    /// On the wire.
    pub bytes: u64,
    /// Number of the first in its source.
    pub first_frame: u64,
}

/// Sums over the channels of a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProtocolCounts {
    /// Which protocol.
    pub protocol: Protocol,
    /// How many there were.
    pub channels: u64,
    /// All of them together.
    #[serde(flatten)]
    pub counts: Counts,
}

/// The whole run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Summary {
    /// Files or interfaces that were read.
    pub source: String,
    /// First and last capture time.
    pub first_ns: u64,
    /// Of the last frame.
    pub last_ns: u64,
    /// Set when the input ended early: what happened. Everything before it is analysed.
    pub partial: Option<String>,
    /// All that were read.
    pub frames: u64,
    /// Of these frames on the wire.
    pub bytes: u64,
    /// Frames that the snap length cut.
    pub cut_frames: u64,
    /// Frames whose capture time is before that of their predecessor.
    pub time_steps_back: u64,
    /// Frames the capture lost: not losses of the link.
    pub capture_drops: u64,
    /// All channels together.
    pub counts: Counts,
    /// Those that were seen.
    pub protocols: Vec<ProtocolCounts>,
    /// Frames that belong to no channel, most frequent reason first.
    pub unknown: Vec<UnknownCount>,
    /// Channels seen, evicted ones included.
    pub channels: u64,
    /// Channels whose state was dropped to make room.
    pub evicted: u64,
    /// Late packets of all channels.
    pub reorder: Reorder,
    /// Ranges of lost numbers.
    pub gaps: u64,
    /// Changes of key.
    pub rekeys: u64,
    /// Occurrences by kind.
    pub anomalies: Vec<(Kind, u64)>,
    /// Things about the input itself that an operator should know.
    pub warnings: Vec<String>,
    /// The channels with most trouble, worst first, at most 20.
    pub worst: Vec<ChannelSummary>,
    /// Threads that analysed.
    pub workers: u32,
    /// From start to end of the run.
    pub elapsed_s: f64,
    /// The most memory that the process had; 0 where it is not known.
    #[serde(default)]
    pub peak_memory_bytes: u64,
}

/// 64-bit numbers as 16 hexadecimal digits.
pub mod hex_id {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    /// For `#[serde(with)]`.
    pub fn serialize<S: Serializer>(value: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{value:016x}"))
    }

    /// For `#[serde(with)]`.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        let text = String::deserialize(deserializer)?;
        u64::from_str_radix(&text, 16).map_err(|_| D::Error::custom("expected up to 16 hexadecimal digits"))
    }
}
