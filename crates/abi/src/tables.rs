//! The tables of one generation, as the plan makes them and the data plane loads them.

use std::net::{Ipv4Addr, Ipv6Addr};

use zerocopy::{Immutable, IntoBytes};

use crate::*;

include!(concat!(env!("OUT_DIR"), "/tables.rs"));

/// The CPUs among which packets in GTP-U tunnels are spread by their flows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Spread {
    /// Each has as many shares as it stands here, of [`crate::SPREAD_SHARES`]; empty = packets stay where they came.
    pub cpus: Vec<u16>,
    /// Packets that may wait for each of them.
    pub queue: u32,
}

/// Everything that a generation of the data plane is filled with, as the plan makes it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tables {
    /// Slot in the unit table and entry; slots are distinct. An entry stands in its slot ([`crate::unit_slot`] with the
    /// next two) or a little behind.
    pub units: Vec<(usize, Unit)>,
    /// Odd.
    pub unit_multiplier: u32,
    /// Bits that the product of key and multiplier is shifted by.
    pub unit_shift: u32,
    /// Largest maximum segment size in a forwarded SYN; 0 = as it comes.
    pub tcp_mss: u16,
    /// IPv6 packets that NAT64 makes of packets without DF are cut to this.
    pub lowest_ipv6_mtu: u16,
    /// Indexed by [`crate::zone_pair_index`]; may be shorter than MAX_ZONES * MAX_ZONES, the rest is zero (deny).
    pub zone_pairs: Vec<ZonePair>,
    /// What policies and services of the gate do.
    pub rules: Vec<Rule>,
    /// Which rules each class of packets satisfies; see classifier.h.
    pub contexts: Vec<Context>,
    /// Search trees of addresses, and classes of services.
    pub classes: Vec<ClassLine>,
    /// Which rules each class satisfies.
    pub rows: Vec<ClassLine>,
    /// Protocols and ports of host-inbound-traffic and of applications with timeouts.
    pub service_terms: Vec<ServiceTerm>,
    /// Indexed by zone id; may be shorter than MAX_ZONES.
    pub screen_limits: Vec<ScreenLimits>,
    /// White-lists of the SYN flood screen.
    pub white_terms: Vec<WhiteTerm>,
    /// By zone id; may be shorter than MAX_ZONES.
    pub zone_limits: Vec<ZoneLimits>,
    /// Units that have tunnels of the user plane, or lead into them; [`Unit::gtpu`] counts them from 1.
    pub gtpu_interfaces: Vec<GtpuInterface>,
    /// By number; empty while there is only the main instance.
    pub routing_instances: Vec<RoutingInstance>,
    /// GTP-U sessions that there shall be room for.
    pub gtpu_sessions: u32,
    /// Some rules of GTP-U sessions have flows.
    pub gtpu_flows: bool,
    /// CPUs that the packets in tunnels are spread to.
    pub spread: Spread,
    /// Translation.
    pub nat: NatTables,
    /// What sessions are made and kept by.
    pub flow: FlowRules,
    /// What programs know of the gate.
    pub gate: GateRules,
    /// Listeners and receivers.
    pub fan_out: FanOutTables,
}

/// Listeners, their receivers, and which comes next; see fanout.h.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FanOutTables {
    /// Odd.
    pub multiplier: u32,
    /// By slot, without collisions.
    pub listeners: Vec<FanOutListener>,
    /// Those of a listener stand side by side.
    pub receivers: Vec<FanoutReceiver>,
    /// Receivers by position, of all listeners one behind the other.
    pub lines: Vec<FanoutLine>,
}

/// A listener, and where its receivers and its two tables of positions stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FanOutListener {
    /// In the table of listeners.
    pub slot: usize,
    /// As programs read it.
    pub entry: FanoutListener,
    /// Index of its first receiver.
    pub first_receiver: u32,
    /// How many it has.
    pub receivers: u32,
    /// Of its first bank; the second follows.
    pub first_line: u32,
    /// Lines of each of its two banks.
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
    /// Index of the unit.
    pub unit: u16,
    /// Id of the unit's zone.
    pub zone: u16,
    /// What stands behind it.
    pub endpoints: Vec<GateEndpoint>,
}

/// Ports of this host behind which a service is. Another address of the same host is the gateway's affair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GateEndpoint {
    /// Id of the service.
    pub service: u16,
    /// UDP; else TCP.
    pub udp: bool,
    /// First and last.
    pub ports: (u16, u16),
    /// Address of this host, where it is an IPv4 one.
    pub v4: Option<Ipv4Addr>,
    /// Address of this host, where it is an IPv6 one.
    pub v6: Option<Ipv6Addr>,
}

/// Translation; see nat.h. Empty = there is none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NatTables {
    /// By unit index; may be shorter than MAX_UNITS.
    pub units: Vec<NatUnit>,
    /// Rows of units that packets arrive on, one behind the other.
    pub sources: Vec<NatSource>,
    /// By index; contexts of the classifier lead to them.
    pub rules: Vec<NatRule>,
    /// By index.
    pub pools: Vec<NatPool>,
    /// Addresses of the pools, one behind the other.
    pub ranges: Vec<NatRange>,
    /// Prefixes of static NAT, NPTv6 and NAT64.
    pub prefixes: Vec<NatPrefix>,
}

impl NatTables {
    /// Context of the source rules for packets between two units, by their indexes; 0 = none.
    pub fn source_context(&self, ingress: usize, egress: usize) -> u16 {
        let (Some(from), Some(to)) = (self.units.get(ingress), self.units.get(egress)) else { return 0 };
        let cell = from.source_row as usize + usize::from(to.source_column);
        self.sources.get(cell / NAT_SOURCE_CELLS).map_or(0, |line| line.context[cell % NAT_SOURCE_CELLS])
    }

    /// Context of the static rules for the source of packets between two units, by their indexes; 0 = none.
    pub fn reverse_context(&self, ingress: usize, egress: usize) -> u16 {
        let (Some(from), Some(to)) = (self.units.get(ingress), self.units.get(egress)) else { return 0 };
        if to.reverse_context == 0 { 0 } else { to.reverse_context + from.reverse_class }
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
    /// Which.
    pub table: &'static str,
    /// How many it would need.
    pub entries: usize,
    /// How many there may be.
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
pub trait Indexed {
    /// Where it stands in its table.
    fn index(&self) -> usize;
    /// As programs read it.
    fn bytes(&self) -> &[u8];
}

impl Indexed for (usize, Unit) {
    fn index(&self) -> usize {
        self.0
    }

    fn bytes(&self) -> &[u8] {
        self.1.as_bytes()
    }
}

impl Indexed for FanOutListener {
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

fn indexed<T: Indexed>(rows: &[T]) -> Rows<'_> {
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
