//! The tables of one generation, as the plan makes them and the data plane loads them.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::{
    ClassLine, Context, FanoutLine, FanoutListener, FanoutReceiver, MAX_CLASS_LINES, MAX_CONTEXTS,
    MAX_FANOUT_LINES, MAX_FANOUT_RECEIVERS, MAX_FANOUT_SLOTS, MAX_NAT_CONTEXTS, MAX_NAT_POOLS,
    MAX_NAT_PREFIXES, MAX_NAT_RANGES, MAX_NAT_RULES, MAX_ROW_LINES, MAX_RULES, MAX_SERVICE_TERMS, MAX_UNITS,
    MAX_WHITE_TERMS, MAX_ZONES, NatPool, NatPrefix, NatRange, NatRule, NatSource, NatUnit, Rule,
    ScreenLimits, ServiceTerm, UNIT_TABLE_SLOTS, Unit, WhiteTerm, ZoneLimits, ZonePair,
};

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tables {
    /// Slot in the unit table ([`crate::unit_slot`] with `unit_multiplier`) and entry; slots are distinct.
    pub units: Vec<(usize, Unit)>,
    /// Odd.
    pub unit_multiplier: u32,
    /// Largest maximum segment size in a forwarded SYN; 0 = as it comes.
    pub tcp_mss: u16,
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
    pub zones: u32,
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
    /// By ingress unit index; may be shorter than MAX_UNITS.
    pub sources: Vec<NatSource>,
    pub rules: Vec<NatRule>,
    pub pools: Vec<NatPool>,
    pub ranges: Vec<NatRange>,
    pub prefixes: Vec<NatPrefix>,
}

impl NatTables {
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
    /// Most of the table, in percent, that sessions without an answer may take.
    pub unanswered_percent: u32,
}

impl Default for FlowRules {
    fn default() -> Self {
        FlowRules { sequence_check: true, unanswered_percent: 25 }
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
    /// Refuses tables that are larger than the maps, or unit slots outside the unit table.
    pub fn check(&self) -> Result<(), TooLarge> {
        let highest_slot = self.units.iter().map(|(slot, _)| slot + 1).max().unwrap_or(0);
        let sizes = [
            ("units", highest_slot, UNIT_TABLE_SLOTS),
            ("zone_pairs", self.zone_pairs.len(), MAX_ZONES * MAX_ZONES),
            ("rules", self.rules.len(), MAX_RULES),
            ("contexts", self.contexts.len(), MAX_CONTEXTS + MAX_NAT_CONTEXTS),
            ("classes", self.classes.len(), MAX_CLASS_LINES),
            ("rows", self.rows.len(), MAX_ROW_LINES),
            ("service_terms", self.service_terms.len(), MAX_SERVICE_TERMS),
            ("screen_limits", self.screen_limits.len(), MAX_ZONES),
            ("white_terms", self.white_terms.len(), MAX_WHITE_TERMS),
            ("zone_limits", self.zone_limits.len(), MAX_ZONES),
            (
                "fanout_listeners",
                self.fan_out.listeners.iter().map(|l| l.slot + 1).max().unwrap_or(0),
                MAX_FANOUT_SLOTS,
            ),
            ("fanout_receivers", self.fan_out.receivers.len(), MAX_FANOUT_RECEIVERS),
            ("fanout_lines", self.fan_out.lines.len(), MAX_FANOUT_LINES),
            ("nat_units", self.nat.units.len(), MAX_UNITS),
            ("nat_sources", self.nat.sources.len(), MAX_UNITS),
            ("nat_rules", self.nat.rules.len(), MAX_NAT_RULES),
            ("nat_pools", self.nat.pools.len(), MAX_NAT_POOLS),
            ("nat_ranges", self.nat.ranges.len(), MAX_NAT_RANGES),
            ("nat_prefixes", self.nat.prefixes.len(), MAX_NAT_PREFIXES),
        ];
        match sizes.into_iter().find(|(_, entries, limit)| entries > limit) {
            Some((table, entries, limit)) => Err(TooLarge { table, entries, limit }),
            None => Ok(()),
        }
    }
}
