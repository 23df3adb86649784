//! Stages and drop reasons, generated from `bpf/stages.def`. `Reason as usize` is the counter slot, which differs from
//! build to build; its name stays.

/// The direction a stage looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Hook {
    /// Frames that arrive from a device.
    Ingress,
    /// Frames that leave by a device.
    Egress,
}

include!(concat!(env!("OUT_DIR"), "/stages.rs"));

impl Stage {
    /// Its bit of the stage mask (`STAGE_BIT`).
    pub const fn bit(self) -> u32 {
        1 << self as u32
    }

    /// The reasons it drops for.
    pub fn reasons(self) -> impl Iterator<Item = Reason> {
        Reason::ALL.into_iter().filter(move |reason| reason.stage() == self)
    }
}
