//! What a refused packet leaves behind: every table of the programs, before and after the first packet of each reason.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use sluice_abi::maps::{Class, Kind, StateMap};

use crate::case::{Action, Case, Verdict};
use crate::gateway::Gateway;
use crate::table;

/// Tables that are not read.
const NOT_READ: [&str; 10] = [
    // only the daemon puts anything into them
    "grants",
    "grant_users",
    "grant_lengths",
    "grant_index",
    "grant_sources",
    "local_addresses",
    // records by number, which an index leads to: that is read
    "nexthops",
    "nat_bindings",
    // where searches stand, by CPU and pool
    "nat_cursors",
    // so many entries, whoever is refused: how often the daemon is told
    "dropped_tokens",
];

/// What a refused packet may write, and why that fills nothing.
const MAY: &[(&str, &[&str])] = &[
    // the session that is looked at ends, or is seen to be in use
    ("buckets4", &["egress_grant", "grant_revoked", "nat_changed", "session_revoked"]),
    (
        "lines4",
        &["answer_zone", "egress_grant", "grant_revoked", "nat_changed", "session_revoked", "ttl_exceeded"],
    ),
    ("lines6", &["nat64_extension", "nat64_udp_checksum"]),
    ("unanswered_sessions", &["answer_zone", "nat_changed"]),
    // a session's number is drawn, and kept for the next one of this CPU (`spares`)
    ("lines4", &["egress_conflict", "nat_no_address", "nat_ports_exhausted"]),
    ("shared4", &["egress_conflict", "nat_no_address", "nat_ports_exhausted"]),
    ("watermarks", &["egress_conflict", "nat_no_address", "nat_ports_exhausted"]),
    // later fragments end as the first did; these give way to those that pass (tests/fragments.rs)
    (
        "fragment_datagrams",
        &[
            "nat64_extension",
            "nat64_icmp_fragment",
            "nat64_udp_checksum",
            "policy_default",
            "policy_reject",
            "too_big",
            "ttl_exceeded",
        ],
    ),
    // screens count what they refuse, in cells that the newest takes over
    ("fragment_memory", &["icmp_fragment", "syn_frag", "tear_drop"]),
    (
        "screen_rates",
        &[
            "icmp_flood",
            "ip_sweep",
            "port_scan",
            "spoofing",
            "syn_flood_destination",
            "tcp_sweep",
            "udp_flood",
            "udp_port_scan",
            "udp_sweep",
        ],
    ),
    ("screen_scans", &["ip_sweep", "port_scan", "tcp_sweep", "udp_port_scan", "udp_sweep"]),
];

/// Entries that are read in one go.
const BATCH: u32 = 8192;

type Contents = BTreeMap<&'static str, Vec<(Vec<u8>, Vec<u8>)>>;

/// Reasons whose first packet was watched, and which of them wrote to what they may not write to.
#[derive(Default)]
pub struct Watch {
    /// Names of drop reasons.
    pub reasons: BTreeSet<String>,
    /// A sentence each: which reason, which map.
    pub wrong: Vec<String>,
}

impl Watch {
    /// A case, as `table::run` runs it.
    pub fn run(&mut self, gateway: &mut Gateway, case: &Case) -> Result<()> {
        table::begin(gateway)?;
        for step in &case.steps {
            match self.new_reason(&step.action) {
                Some(reason) => self.watch(gateway, &step.action, reason),
                None => table::run_step(gateway, &step.action),
            }
            .with_context(|| format!("line {}", step.line))?;
        }
        Ok(())
    }

    fn new_reason(&self, action: &Action) -> Option<String> {
        let Action::Packet(packet) = action else { return None };
        let Verdict::Drop { reason } = &packet.verdict else { return None };
        (!self.reasons.contains(reason)).then(|| reason.clone())
    }

    fn watch(&mut self, gateway: &mut Gateway, action: &Action, reason: String) -> Result<()> {
        let pins = gateway.dataplane.pin().to_owned();
        let before = read(&pins)?;
        table::run_step(gateway, action)?;
        let after = read(&pins)?;
        let changed =
            after.iter().filter(|(name, entries)| before[*name] != **entries).map(|(name, _)| *name);
        let may =
            |name: &str| MAY.iter().any(|(table, may)| *table == name && may.contains(&reason.as_str()));
        self.wrong.extend(changed.filter(|name| !may(name)).map(|name| format!("{reason} wrote to {name}")));
        self.reasons.insert(reason);
        Ok(())
    }
}

/// Those that stay when a packet is gone, and are no counters: what is new in maps.def is looked at without a word.
fn is_read(map: &StateMap) -> bool {
    matches!(map.kind(), Kind::Array | Kind::Hash)
        && !matches!(map.class(), Class::Counted | Class::Own)
        && !NOT_READ.contains(&map.name())
}

fn read(pins: &Path) -> Result<Contents> {
    let entries = |map: StateMap| {
        let name = map.name();
        let map = MapHandle::from_pinned_path(pins.join(name)).with_context(|| format!("opening {name}"))?;
        let batch = map.max_entries().min(BATCH);
        let all = map.lookup_batch(batch, MapFlags::ANY, MapFlags::ANY);
        Ok((name, all.with_context(|| format!("reading {name}"))?.collect()))
    };
    StateMap::pinned().filter(is_read).map(entries).collect()
}
