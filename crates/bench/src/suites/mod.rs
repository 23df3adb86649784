//! The suites. This one list drives the command line, its help, the page docs/BENCH.md and the report.

pub mod budgets;
pub mod bulk;
pub(crate) mod concurrent;
pub(crate) mod cps;
pub(crate) mod daemon;
pub(crate) mod fair;
pub(crate) mod fan_out;
pub mod frames;
pub mod gate;
pub mod gtpu;
pub(crate) mod hitless;
pub mod ladder;
pub(crate) mod latency;
pub mod load;
pub(crate) mod mapops;
mod mix;
pub(crate) mod monitor;
pub mod nat;
pub(crate) mod ndr;
pub(crate) mod options;
pub mod peers;
pub(crate) mod policies;
pub(crate) mod profile;
pub mod prog;
mod routes;
pub(crate) mod screens;
mod stages;
pub(crate) mod sweep;
pub mod tailcall;
pub(crate) mod wire;

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
    gtpu::SUITE,
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
    daemon::SUITE,
    routes::SUITE,
    fair::SUITE,
    fan_out::SUITE,
    profile::SUITE,
    monitor::SUITE,
];

/// None = no suite has this name.
pub fn find(name: &str) -> Option<&'static Suite> {
    SUITES.iter().find(|suite| suite.name == name)
}
