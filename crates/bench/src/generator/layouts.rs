//! Layouts shared with the bench's programs, generated from `bpf/bench/bench.h`.
#![allow(non_camel_case_types, non_upper_case_globals, clippy::unreadable_literal)]

include!(concat!(env!("OUT_DIR"), "/layouts.rs"));
