//! Everything the BPF programs and user space share: layouts and bounds generated from `bpf/abi`, stages and drop
//! reasons generated from `bpf/stages.def`, counters of a unit from `bpf/counters.def`. A C name `flow_line4` is `FlowLine4` here; constants keep their names.

#![warn(missing_docs)]

pub mod counters;
mod flow_hash;
mod gtpu;
mod gtpu_filters;
mod layouts;
pub mod maps;
pub mod programs;
mod slots;
pub mod stages;
pub mod tables;
#[cfg(test)]
mod tests;

pub use flow_hash::{BucketPair, FLOW_LANES, bucket_pair4, bucket_pair6, grant_bucket, grant_source};
pub use gtpu::{
    GTPU_FOREVER, conforms, cost_of_rate, gtpu_block, gtpu_block_flow, gtpu_block_room, gtpu_decided,
    gtpu_decision, gtpu_slot, rate_of_cost, tolerance_of_burst,
};
pub use gtpu_filters::{FlowMatch, FlowPacket, TooManyFilters};
pub use layouts::*;
pub use slots::{
    GRANT_FOREVER, PROGRAM_SLOTS, TIMEOUT_NEVER_S, active_after_commit, active_after_routes, active_epoch,
    active_routes, active_slot, active_stamp, fanout_slot, grant_what, next_handle, program_slot, screen_bit,
    unit_slot, zone_pair_index,
};
