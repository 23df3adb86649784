//! FRR has what it should: what it has lost with a daemon that was started anew is put back, and what waited for one is told.

use std::sync::{Arc, Mutex, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use crate::commit::{Engine, Shared};

/// A look at six sockets.
const PERIOD: Duration = Duration::from_secs(1);
/// FRR is asked what it has, should somebody else have changed that.
const LOOK_PERIOD: Duration = Duration::from_secs(30);
/// What FRR has refused is tried so often.
const RETRY: Duration = Duration::from_secs(5);

pub fn start(shared: Arc<Shared>, engine: Arc<Mutex<Engine>>) -> std::io::Result<()> {
    thread::Builder::new().name("frr".to_owned()).spawn(move || run(&shared, &engine)).map(drop)
}

fn run(shared: &Shared, engine: &Mutex<Engine>) {
    let (mut looked, mut last_error) = (Instant::now(), String::new());
    loop {
        thread::sleep(PERIOD);
        // a commit that is under way tells FRR itself
        let held = match engine.try_lock() {
            Ok(engine) => engine,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => continue,
        };
        let look = looked.elapsed() >= LOOK_PERIOD;
        if look {
            looked = Instant::now();
        }
        match shared.frr.keep(look) {
            Ok(put) => {
                last_error.clear();
                if put {
                    tracing::info!("put back: the configuration of FRR");
                }
            }
            Err(error) => {
                let text = error.to_string();
                if text != last_error {
                    tracing::error!(%error, "FRR has not got its configuration; it is tried again");
                }
                last_error = text;
                drop(held);
                thread::sleep(RETRY);
            }
        }
    }
}
