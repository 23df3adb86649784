//! Dropped packets that the data plane tells of: remembered for whoever asks why.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use sluice_dataplane::Dataplane;

use crate::commit::Shared;
use crate::kernel::clock::unix_ms;

/// Reads them for as long as the process lives.
pub fn start(shared: Arc<Shared>) -> std::io::Result<()> {
    let read = move || {
        let mut clock = Clock::new(&shared.dataplane);
        let watched = shared.dataplane.watch_dropped(
            || true,
            |dropped| shared.drops.keep(&dropped, clock.unix_ms(&shared.dataplane, dropped.raw.when)),
        );
        if let Err(error) = watched {
            tracing::error!(%error, "dropped packets are only counted from here on; restart the daemon to have them again");
        }
    };
    thread::Builder::new().name("drops".to_owned()).spawn(read).map(drop)
}

/// What the kernel's ticks mean: read again after a while, since asking costs more than a packet.
struct Clock {
    read: Instant,
    jiffies: u32,
    unix_ms: u64,
}

impl Clock {
    const GOOD_FOR: Duration = Duration::from_secs(1);

    fn new(dataplane: &Dataplane) -> Self {
        let jiffies = dataplane.now_jiffies().unwrap_or(0) as u32;
        Self { read: Instant::now(), jiffies, unix_ms: unix_ms() }
    }

    /// What waited for a reader happened before it was read.
    fn unix_ms(&mut self, dataplane: &Dataplane, when: u32) -> u64 {
        if self.read.elapsed() > Self::GOOD_FOR {
            *self = Self::new(dataplane);
        }
        let ticks = i64::from(when.wrapping_sub(self.jiffies) as i32);
        self.unix_ms.saturating_add_signed(ticks * 1000 / i64::from(dataplane.hz()))
    }
}
