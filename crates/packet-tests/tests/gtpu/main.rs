//! The user plane on both hooks: messages of GTP-U as TS 29.281 has them, what packets of a session meet (TS 29.244), and
//! what is answered. A clause stands beside each case.

mod bench;
mod messages;
mod sessions;
mod signals;
mod ways;

use sluice_packet_tests::gateway::Hook;
use sluice_packet_tests::netns::in_thread;

use bench::Bench;

type Check = (&'static str, fn(&mut Bench));

const CHECKS: [&[Check]; 4] = [&messages::CHECKS, &sessions::CHECKS, &signals::CHECKS, &ways::CHECKS];

fn run(hook: Hook) {
    in_thread(move || {
        let mut bench = Bench::new(hook);
        let only = std::env::var("SLUICE_CHECK").unwrap_or_default();
        for (name, check) in CHECKS.into_iter().flatten().filter(|(name, _)| name.contains(&only)) {
            bench.begin();
            let before = std::time::Instant::now();
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(&mut bench)));
            eprintln!("{}: {name}: {:?}", hook.name(), before.elapsed());
            if let Err(panic) = result {
                eprintln!("on {}: {name}", hook.name());
                std::panic::resume_unwind(panic);
            }
        }
    });
}

#[test]
fn the_user_plane_on_tc() {
    run(Hook::Tc);
}

#[test]
fn the_user_plane_on_xdp() {
    run(Hook::Xdp);
}
