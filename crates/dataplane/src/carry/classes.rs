//! What becomes of each map of the state when a program comes that would make it otherwise: its class in bpf/maps.def.

use sluice_abi::maps::StateMap;

pub(crate) use sluice_abi::maps::Class;

/// Pinned from the tc object under their own names; `active` and the PROG_ARRAYs come on top, and are shared only by the
/// same program. First those whose size is counted in sessions: a mismatch is told of the first that differs.
pub(crate) fn known() -> impl Iterator<Item = (&'static str, Class)> {
    StateMap::pinned().map(|map| (map.name(), map.class()))
}

pub(crate) fn class_of(name: &str) -> Option<Class> {
    known().find(|(known, _)| *known == name).map(|(_, class)| class)
}

/// Arrays whose index is a reason: map and field. Their numbers are followed by the names of reasons.
const BY_REASON: [(&str, &str); 5] = [
    ("counters", "drops"),
    ("drops", "packets"),
    ("fanout_listener_counters", "drops"),
    ("fanout_listener_counters", "drops.packets"),
    ("screen_counters", "hits"),
];

pub(crate) fn is_by_reason(map: &str, field: &str) -> bool {
    BY_REASON.contains(&(map, field))
}

/// Fields that states before this one had elsewhere: map and field, then and now.
pub(crate) const MOVED: [[(&str, &str); 2]; 2] = [
    [("counters", "drops"), ("drops", "packets")],
    [("fanout_listener_counters", "drops"), ("fanout_listener_counters", "drops.packets")],
];
