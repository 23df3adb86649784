//! Maps that outlive a commit, generated from `bpf/maps.def`.

/// What becomes of a map when a program comes that would make it otherwise. One that both would make alike is
/// shared, whatever its class, unless it is each state's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Gives out numbers or leads to them. Two of these would give out the same number twice, so one that differs is
    /// refused.
    Numbers,
    /// Records, found by their number: converted by the names of fields. `stamps` are fields that grow whenever a program
    /// writes the record; the first of them that differs says which of two copies is newer.
    Records {
        /// Names of fields of the record.
        stamps: &'static [&'static str],
    },
    /// Records that are as good as none, where they cannot be converted.
    Hints,
    /// Made anew; what was counted is added, field by field.
    Counted,
    /// Made anew, and empty.
    Cache,
    /// Made anew, and empty, also where reasons have other numbers.
    ReasonCache,
    /// Of one binary only.
    Programs,
    /// Each state has its own, whoever made it.
    Own,
    /// Never pinned: made with the programs that use it.
    Local,
}

/// How a map is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Elements by number.
    Array,
    /// An array for each CPU.
    Percpu,
    /// Values by key.
    Hash,
    /// First in, first out.
    Queue,
    /// Records for user space, in order.
    Ringbuf,
    /// Programs by number, for tail calls.
    Programs,
    /// CPUs that XDP leaves packets to.
    Cpus,
}

include!(concat!(env!("OUT_DIR"), "/maps.rs"));

impl StateMap {
    /// Maps that are pinned under their own names.
    pub fn pinned() -> impl Iterator<Item = StateMap> {
        Self::ALL.into_iter().filter(|map| !matches!(map.class(), Class::Programs | Class::Local))
    }
}
