//! How many entries the maps of GTP-U sessions have.

use sluice_abi::{GTPU_REACH, MAX_GTPU_FILTERS, MAX_GTPU_PEERS, MAX_GTPU_RULES, MAX_GTPU_SESSIONS};

/// The maps of it, the one last whose size tells that the others are there.
pub(crate) const MAPS: [&str; 4] = ["gtpu_rules", "gtpu_peers", DOWNLINKS, UPLINKS];
pub(crate) const UPLINKS: &str = "gtpu_uplinks";
pub(crate) const DOWNLINKS: &str = "gtpu_downlinks";

/// The maps of flows, which are made when the first configuration has some.
pub(crate) const FLOW_MAPS: [&str; 2] = [FILTERS, FLOWS];
pub(crate) const FILTERS: &str = "gtpu_filters";
pub(crate) const FLOWS: &str = "gtpu_flows";

/// Flows that there is room for, at least and for each session, and at most: 16 in each of 2^21 blocks.
pub(crate) const LEAST_FLOWS: u32 = 4096;
const FLOWS_A_SESSION: u32 = 16;
const MOST_FLOWS: u32 = 1 << 24;

/// Of a map of [`FLOW_MAPS`].
pub(crate) fn flow_entries(map: &str, slots: u32, has_flows: bool) -> u32 {
    match map {
        _ if !has_flows => 2,
        FLOWS => (slots / 2).saturating_mul(FLOWS_A_SESSION).clamp(LEAST_FLOWS, MOST_FLOWS),
        _ => MAX_GTPU_FILTERS as u32,
    }
}

/// Places that lines have, for this many sessions: half of them stay empty, so that keys stand close to their slots.
pub(crate) fn slots_for(sessions: u32) -> u32 {
    const LEAST: u32 = 1024;
    (2 * sessions.clamp(LEAST / 2, MAX_GTPU_SESSIONS as u32)).next_power_of_two()
}

/// The same of lines by address: a session may have two.
pub(crate) fn downlink_slots_for(sessions: u32) -> u32 {
    2 * slots_for(sessions)
}

/// Of a map of lines; 0 as long as there is no room.
pub(crate) fn slots_of(entries: u32) -> u32 {
    entries.saturating_sub(GTPU_REACH)
}

pub(crate) fn shift_of(slots: u32) -> u32 {
    32 - slots.max(2).ilog2()
}

/// Entries of a map of [`MAPS`]. `slots`: of lines by TEID, and of those by address.
pub(crate) fn entries(map: &str, [slots, downlink_slots]: [u32; 2]) -> u32 {
    match map {
        _ if slots == 0 => 2,
        DOWNLINKS => downlink_slots + GTPU_REACH,
        "gtpu_rules" => (slots / 2 + 2).min(MAX_GTPU_RULES as u32),
        "gtpu_peers" => (slots / 2 + 2).min(MAX_GTPU_PEERS as u32),
        _ => slots + GTPU_REACH,
    }
}
