//! The suites. This one list drives the command line, its help, the page docs/BENCH.md and the report.

pub mod budgets;
pub mod bulk;
pub mod concurrent;
pub mod cps;
pub mod fair;
pub mod fan_out;
pub mod frames;
pub mod gate;
pub mod hitless;
pub mod ladder;
pub mod latency;
pub mod load;
pub mod mapops;
mod mix;
pub mod monitor;
pub mod nat;
pub mod ndr;
pub mod options;
pub mod peers;
pub mod policies;
pub mod profile;
pub mod prog;
pub mod screens;
mod stages;
pub mod sweep;
pub mod tailcall;
pub mod wire;

use crate::method::suite::Suite;

/// In the order in which `all` runs them and the report shows them.
pub static SUITES: &[Suite] = &[
    prog::SUITE,
    tailcall::SUITE,
    screens::SUITE,
    gate::SUITE,
    load::SUITE,
    policies::SUITE,
    nat::SUITE,
    mapops::SUITE,
    sweep::SUITE,
    wire::SUITE,
    peers::SUITE,
    ndr::SUITE,
    ladder::SUITE,
    bulk::SUITE,
    latency::SUITE,
    cps::SUITE,
    concurrent::SUITE,
    hitless::SUITE,
    fair::SUITE,
    fan_out::SUITE,
    profile::SUITE,
    monitor::SUITE,
];

pub fn find(name: &str) -> Option<&'static Suite> {
    SUITES.iter().find(|suite| suite.name == name)
}
