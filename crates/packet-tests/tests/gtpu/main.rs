//! The user plane on both hooks: messages of GTP-U as TS 29.281 has them, what packets of a session meet (TS 29.244), and
//! what is answered. A clause stands beside each case.

mod bench;
mod copies;
mod flows;
mod fuzz;
mod messages;
mod onwire;
mod sessions;
mod signals;
mod ways;

use std::panic::{AssertUnwindSafe, catch_unwind};

use sluice_packet_tests::gateway::Hook;
use sluice_packet_tests::netns::in_thread;

use bench::Bench;

/// What it is about, and the test.
type Check = (&'static str, fn(&mut Bench));

const CHECKS: [&[Check]; 6] = [
    &messages::CHECKS,
    &sessions::CHECKS,
    &flows::CHECKS,
    &signals::CHECKS,
    &[("every header broken, and a plain model", fuzz::every_header)],
    // the last of them commits another configuration
    &ways::CHECKS,
];

/// All of them on one gateway, whatever becomes of the others. `SLUICE_CHECK` names the only one.
fn run(hook: Hook) {
    let failed = in_thread(move || {
        let mut bench = Bench::new(hook);
        let only = std::env::var("SLUICE_CHECK").unwrap_or_default();
        let wanted = CHECKS.into_iter().flatten().filter(|(name, _)| name.contains(&only));
        let mut failed = Vec::new();
        for (name, check) in wanted {
            bench.begin();
            if catch_unwind(AssertUnwindSafe(|| check(&mut bench))).is_err() {
                failed.push(*name);
            }
        }
        if only.is_empty() && catch_unwind(AssertUnwindSafe(|| bench.judge())).is_err() {
            failed.push("what another program reads of it");
        }
        failed
    });
    assert!(failed.is_empty(), "on {}: {failed:#?}", hook.name());
}

#[test]
fn the_user_plane_on_tc() {
    run(Hook::Tc);
}

#[test]
fn the_user_plane_on_xdp() {
    run(Hook::Xdp);
}
