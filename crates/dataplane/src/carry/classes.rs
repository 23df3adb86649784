//! What becomes of each map of the state when a program comes that would make it otherwise.

/// A map that both programs would make alike is shared, whatever its class, unless it is each state's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// Gives out numbers or leads to them. Two of these would give out the same number twice, so one that differs is
    /// refused.
    Numbers,
    /// Records, found by their number: converted by the names of fields. `stamps` are fields that grow whenever a program
    /// writes the record; the first of them that differs says which of two copies is newer.
    Records { stamps: &'static [&'static str] },
    /// Records that are as good as none, where they cannot be converted.
    Hints,
    /// Made anew; what was counted is added, field by field.
    Counted,
    /// Made anew, and empty.
    Cache,
    /// Made anew, and empty, also where reasons have other numbers.
    ReasonCache,
    /// Each state has its own, whoever made it.
    Own,
}

use Class::{Cache, Counted, Hints, Numbers, Own, ReasonCache, Records};

const LINE: Class = Records { stamps: &["state.tag", "state.last_seen", "state.packets"] };

/// Pinned from the tc object under their own names; `active` and the PROG_ARRAYs come on top, and are shared only by the
/// same program. First those whose size is counted in sessions: a mismatch is told of the first that differs.
pub(crate) const SHARED: [(&str, Class); 46] = [
    ("free4", Numbers),
    ("free6", Numbers),
    ("spares", Numbers),
    ("counters", Counted),
    ("drops", Counted),
    ("policy_counters", Counted),
    ("buckets4", Numbers),
    ("buckets6", Numbers),
    ("stash4", Numbers),
    ("stash6", Numbers),
    ("lines4", LINE),
    ("lines6", LINE),
    ("shared4", Records { stamps: &["created"] }),
    ("shared6", Records { stamps: &["created"] }),
    ("nexthops", Hints),
    ("nexthop_index", Numbers),
    ("free_nexthops", Numbers),
    ("local_addresses", Cache),
    ("local_filter", Cache),
    ("watermarks", Numbers),
    ("reply_tokens", Cache),
    ("events", ReasonCache),
    ("screen_counters", Counted),
    ("fragment_memory", Cache),
    ("screen_rates", Cache),
    ("screen_scans", Cache),
    ("cookie_times", Cache),
    ("fragment_datagrams", ReasonCache),
    ("unanswered_sessions", Numbers),
    ("session_limits", Numbers),
    ("sweep_limits", Records { stamps: &[] }),
    ("sweeps", Records { stamps: &["ticks"] }),
    ("sweep_timer", Cache),
    ("fanout_listener_counters", Counted),
    ("fanout_receiver_counters", Counted),
    ("nat_rule_counters", Counted),
    ("nat_pool_counters", Counted),
    ("nat_cursors", Cache),
    ("nat_bindings", Records { stamps: &["last_used"] }),
    ("nat_binding_index", Numbers),
    ("grants", Records { stamps: &["last_use", "sessions"] }),
    ("grant_users", Records { stamps: &[] }),
    ("grant_lengths", Cache),
    ("grant_index", Cache),
    ("grant_sources", Cache),
    ("identity", Own),
];

pub(crate) fn class_of(name: &str) -> Option<Class> {
    SHARED.iter().find(|(shared, _)| *shared == name).map(|(_, class)| *class)
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
