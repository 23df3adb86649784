//! The programs of a generation, generated from `bpf/programs.def`; `Program as usize` is the place in a slot.

use crate::stages::Stage;

include!(concat!(env!("OUT_DIR"), "/programs.rs"));
