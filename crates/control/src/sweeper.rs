//! The thread that ends idle sessions and keeps neighbours fresh.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use sluice_dataplane::Timeouts;

use crate::shared::{Shared, count};
use crate::watch;

const PERIOD: Duration = Duration::from_secs(1);
/// The kernel's neighbour entries stay reachable for 15 to 45 seconds.
const NEIGHBOUR_PERIOD: Duration = Duration::from_secs(30);

pub fn start(shared: Arc<Shared>) -> std::io::Result<()> {
    thread::Builder::new().name("sweeper".to_owned()).spawn(move || run(&shared)).map(drop)
}

fn run(shared: &Shared) {
    let mut refreshed = Instant::now();
    loop {
        thread::sleep(PERIOD);
        sweep(shared);
        watch::catch_up_unresolved(shared);
        if refreshed.elapsed() >= NEIGHBOUR_PERIOD {
            watch::refresh_neighbours(shared);
            refreshed = Instant::now();
        }
    }
}

fn sweep(shared: &Shared) {
    let swept =
        shared.dataplane.now_jiffies().and_then(|now| shared.dataplane.sweep(now, &Timeouts::default()));
    match swept {
        Ok(report) => {
            count(&shared.totals.sweeps, 1);
            count(&shared.totals.expired, u64::from(report.expired4) + u64::from(report.expired6));
        }
        Err(error) => tracing::error!(%error, "the session table could not be swept"),
    }
}
