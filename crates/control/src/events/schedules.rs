//! Policies with a scheduler: commits the active configuration again when one of them begins or ends to count.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::commit::Engine;
use crate::commit::Shared;
use crate::state::config::local_seconds;

/// Looking at the clock again and again follows changes of the clock and of the time zone, too.
const PERIOD: Duration = Duration::from_secs(1);

/// After a commit that was refused.
const RETRY: Duration = Duration::from_secs(60);

pub fn start(shared: Arc<Shared>, engine: Arc<Mutex<Engine>>) -> std::io::Result<()> {
    thread::Builder::new().name("schedules".to_owned()).spawn(move || run(&shared, &engine)).map(drop)
}

fn run(shared: &Shared, engine: &Mutex<Engine>) {
    let mut refused: Option<Instant> = None;
    loop {
        thread::sleep(PERIOD);
        let waits = refused.is_some_and(|at| at.elapsed() < RETRY);
        if waits || shared.active().config.is_of_time(local_seconds()) {
            continue;
        }
        let mut engine = engine.lock().unwrap_or_else(PoisonError::into_inner);
        // The commit that held the engine may have seen to it.
        if shared.active().config.is_of_time(local_seconds()) {
            continue;
        }
        tracing::info!("a scheduler begins or ends; committing the active configuration again");
        // Its result is logged by the engine.
        refused = engine.recommit(shared).is_err().then(Instant::now);
    }
}
