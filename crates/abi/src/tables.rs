//! The tables of one generation, as the plan makes them and the data plane loads them.

use std::net::{Ipv4Addr, Ipv6Addr};

use zerocopy::{Immutable, IntoBytes};

use crate::*;

include!(concat!(env!("OUT_DIR"), "/tables.rs"));

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tables {
    /// Slot in the unit table and entry; slots are distinct. An entry stands in its slot ([`crate::unit_slot`] with the
    /// next two) or a little behind.
    pub units: Vec<(usize, Unit)>,
    /// Odd.
    pub unit_multiplier: u32,
    pub unit_shift: u32,
    /// Largest maximum segment size in a forwarded SYN; 0 = as it comes.
    pub tcp_mss: u16,
    /// IPv6 packets that NAT64 makes of packets without DF are cut to this.
    pub lowest_ipv6_mtu: u16,
    /// Indexed by [`crate::zone_pair_index`]; may be shorter than MAX_ZONES * MAX_ZONES, the rest is zero (deny).
    pub zone_pairs: Vec<ZonePair>,
    pub rules: Vec<Rule>,
    /// Which rules each class of packets satisfies; see classifier.h.
    pub contexts: Vec<Context>,
    pub classes: Vec<ClassLine>,
    pub rows: Vec<ClassLine>,
    pub service_terms: Vec<ServiceTerm>,
    /// Indexed by zone id; may be shorter than MAX_ZONES.
    pub screen_limits: Vec<ScreenLimits>,
    pub white_terms: Vec<WhiteTerm>,
    /// By zone id; may be shorter than MAX_ZONES.
    pub zone_limits: Vec<ZoneLimits>,
    pub nat: NatTables,
    pub flow: FlowRules,
    pub gate: GateRules,
    pub fan_out: FanOutTables,
}

/// Listeners, their receivers, and whose turn it is; see fanout.h.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FanOutTables {
    /// Odd.
    pub multiplier: u32,
    pub listeners: Vec<FanOutListener>,
    /// Those of a listener stand side by side.
    pub receivers: Vec<FanoutReceiver>,
    pub lines: Vec<FanoutLine>,
}

/// A listener, and where its receivers and its two tables of turns stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FanOutListener {
    pub slot: usize,
    pub entry: FanoutListener,
    pub first_receiver: u32,
    pub receivers: u32,
    /// Of its first bank; the second follows.
    pub first_line: u32,
    pub bank_lines: u32,
}

/// What programs know of the gate before they look at a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GateRules {
    /// Context of the classifier whose rules are the services; 0 = none.
    pub context: u32,
    /// One bit a zone that demands grants.
    pub zones: [u64; MAX_ZONES / 64],
}

/// What the gate alone stands before: a unit, and the services behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateAlone {
    pub unit: u16,
    /// Id of the unit's zone.
    pub zone: u16,
    pub places: Vec<GatePlace>,
}

/// Ports of this host behind which a service is. Another address of the same host is the gateway's affair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GatePlace {
    pub service: u16,
    pub udp: bool,
    /// First and last.
    pub ports: (u16, u16),
    pub v4: Option<Ipv4Addr>,
    pub v6: Option<Ipv6Addr>,
}

/// Translation; see nat.h. Empty = there is none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NatTables {
    /// By unit index; may be shorter than MAX_UNITS.
    pub units: Vec<NatUnit>,
    /// Rows of units that packets arrive on, one behind the other.
    pub sources: Vec<NatSource>,
    pub rules: Vec<NatRule>,
    pub pools: Vec<NatPool>,
    pub ranges: Vec<NatRange>,
    pub prefixes: Vec<NatPrefix>,
}

impl NatTables {
    /// Context of the source rules for packets between two units, by their indexes; 0 = none.
    pub fn source_context(&self, ingress: usize, egress: usize) -> u16 {
        let (Some(from), Some(to)) = (self.units.get(ingress), self.units.get(egress)) else { return 0 };
        let cell = from.source_row as usize + usize::from(to.source_column);
        self.sources.get(cell / NAT_SOURCE_CELLS).map_or(0, |line| line.context[cell % NAT_SOURCE_CELLS])
    }

    /// Whether some rule has persistent-nat.
    pub fn is_persistent(&self) -> bool {
        self.pools.iter().any(|pool| pool.persistent != 0)
    }
}

/// What holds for sessions of every zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowRules {
    /// TCP segments outside of their session's window are dropped.
    pub sequence_check: bool,
    /// Answers may leave into another zone than their session came from.
    pub reverse_across_zones: bool,
    /// Most of the table, in percent, that sessions without an answer may take.
    pub unanswered_percent: u32,
}

impl Default for FlowRules {
    fn default() -> Self {
        FlowRules { sequence_check: true, reverse_across_zones: false, unanswered_percent: 25 }
    }
}

impl FlowRules {
    /// Small tables leave all of their first sessions to whoever comes.
    const ALWAYS_ADMITTED: u32 = 1024;

    /// Sessions without an answer that a table of this size takes.
    pub fn unanswered(&self, sessions: u32) -> u32 {
        let share = u64::from(sessions) * u64::from(self.unanswered_percent.min(100)) / 100;
        (share as u32).max(Self::ALWAYS_ADMITTED)
    }
}

/// A table that does not fit the data plane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TooLarge {
    pub table: &'static str,
    pub entries: usize,
    pub limit: usize,
}

impl std::fmt::Display for TooLarge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "table {} needs {} entries, the data plane has {}", self.table, self.entries, self.limit)
    }
}

impl std::error::Error for TooLarge {}

impl Tables {
    /// Whether sessions may need more than their lines.
    pub fn needs_extensions(&self) -> bool {
        self.gate.zones.iter().any(|zones| *zones != 0)
    }

    /// Refuses tables that are larger than programs can address, or entries outside of theirs.
    pub fn check(&self) -> Result<(), TooLarge> {
        let prefixes = ("nat_prefixes", self.nat.prefixes.len(), MAX_NAT_PREFIXES);
        let sizes =
            Table::ALL.into_iter().map(|table| (table.name(), self.rows_of(table).needed, table.most()));
        match sizes.chain([prefixes]).find(|(_, entries, limit)| entries > limit) {
            Some((table, entries, limit)) => Err(TooLarge { table, entries, limit }),
            None => Ok(()),
        }
    }

    /// Lines of memory that all tables take.
    pub fn lines(&self) -> usize {
        Table::ALL.into_iter().map(|table| table.lines(self.rows_of(table).entries)).sum()
    }
}

/// What a table is filled with.
pub struct Rows<'a> {
    /// Entries of the table; those without a row are zero.
    pub entries: usize,
    /// Up to the last row. More than the most is refused.
    pub needed: usize,
    /// Not every entry has a row.
    pub sparse: bool,
    /// Index and bytes.
    pub rows: Box<dyn Iterator<Item = (usize, &'a [u8])> + 'a>,
}

/// A row that knows its index.
pub trait Placed {
    fn index(&self) -> usize;
    fn bytes(&self) -> &[u8];
}

impl Placed for (usize, Unit) {
    fn index(&self) -> usize {
        self.0
    }

    fn bytes(&self) -> &[u8] {
        self.1.as_bytes()
    }
}

impl Placed for FanOutListener {
    fn index(&self) -> usize {
        self.slot
    }

    fn bytes(&self) -> &[u8] {
        self.entry.as_bytes()
    }
}

fn list<T: IntoBytes + Immutable>(rows: &[T]) -> Rows<'_> {
    let bytes = rows.iter().map(IntoBytes::as_bytes);
    Rows { entries: rows.len(), needed: rows.len(), sparse: false, rows: Box::new(bytes.enumerate()) }
}

fn placed<T: Placed>(rows: &[T]) -> Rows<'_> {
    let needed = rows.iter().map(|row| row.index() + 1).max().unwrap_or(0);
    let rows = Box::new(rows.iter().map(|row| (row.index(), row.bytes())));
    Rows { entries: needed, needed, sparse: true, rows }
}

impl Table {
    /// Lines of memory that so many entries take.
    pub const fn lines(self, entries: usize) -> usize {
        match self.entry_bytes() {
            small if small < TABLE_LINE_BYTES => entries.div_ceil(TABLE_LINE_BYTES / small),
            large => entries * large.div_ceil(TABLE_LINE_BYTES),
        }
    }

    /// Where an entry lies, in bytes behind the table's first line.
    pub const fn offset(self, index: usize) -> usize {
        match self.entry_bytes() {
            small if small < TABLE_LINE_BYTES => index * small,
            large => index * large.next_multiple_of(TABLE_LINE_BYTES),
        }
    }
}
