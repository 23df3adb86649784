//! How long the lab waits for what it has started: other people's programs take their time on a slow machine.

use std::env;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// How many times slower than a usual machine this one is, for guests with an emulated CPU.
const SLOWNESS: &str = "SLUICE_LAB_SLOWNESS";

/// `usual`, times the environment's SLUICE_LAB_SLOWNESS.
pub fn patience(usual: Duration) -> Duration {
    usual * env::var(SLOWNESS).ok().and_then(|times| times.parse().ok()).unwrap_or(1)
}

/// Asks `done` until it says yes; fails with what `wanted` says after `usual`, on a slow machine later.
pub fn until(
    usual: Duration,
    mut done: impl FnMut() -> Result<bool>,
    wanted: impl FnOnce() -> String,
) -> Result<()> {
    let patience = patience(usual);
    let deadline = Instant::now() + patience;
    while !done()? {
        if Instant::now() > deadline {
            bail!("{} after {patience:?}", wanted());
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
