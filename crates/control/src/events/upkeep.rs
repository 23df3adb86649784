//! The thread that keeps neighbours fresh and takes out grants whose time is over. Idle sessions are the data plane's own to end.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::commit::Shared;
use crate::events::{log, watch};
use crate::kernel::clock::unix_ms;

const PERIOD: Duration = Duration::from_secs(1);
/// The kernel's neighbour entries stay reachable for 15 to 45 seconds.
const NEIGHBOUR_PERIOD: Duration = Duration::from_secs(30);

pub fn start(shared: Arc<Shared>) -> std::io::Result<()> {
    thread::Builder::new().name("upkeep".to_owned()).spawn(move || run(&shared)).map(drop)
}

/// What a device has counted goes with it when it is deleted.
fn look_at_devices(shared: &Shared) {
    let active = shared.active();
    match shared.kernel.links() {
        Ok(links) => active.devices.look(&links),
        Err(error) => tracing::debug!(%error, "what devices count was not read"),
    }
}

fn run(shared: &Shared) {
    let mut refreshed = Instant::now();
    loop {
        thread::sleep(PERIOD);
        watch::catch_up_unresolved(shared);
        look_at_devices(shared);
        let reports = shared.gtpu.meter(&shared.dataplane, unix_ms() / 1000);
        reports.iter().map(log::usage_entry).for_each(|entry| shared.log.post(entry));
        if let Err(error) = shared.grants(&shared.active()).expire() {
            tracing::error!(%error, "grants whose time is over are not tidied; they are refused nevertheless");
        }
        if let Err(error) = shared.dataplane.follow_cpus() {
            tracing::warn!(%error, "a CPU that came or went has not the packets of GTP-U that are its own");
        }
        if let Err(error) = shared.dataplane.end_abandoned_trace() {
            tracing::warn!(%error, "an abandoned trace is not put away; packets go their way nevertheless");
        }
        if refreshed.elapsed() >= NEIGHBOUR_PERIOD {
            watch::refresh_neighbours(shared);
            refreshed = Instant::now();
        }
    }
}
