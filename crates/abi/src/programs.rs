//! The programs of a generation, generated from `bpf/programs.def`; `Program as usize` is the place in a slot.

use crate::stages::{Hook, Stage};

include!(concat!(env!("OUT_DIR"), "/programs.rs"));

impl Stage {
    /// The direction it looks at.
    pub fn hook(self) -> Hook {
        if self.phase() == Program::Egress { Hook::Egress } else { Hook::Ingress }
    }
}
