//! A commit that was not confirmed in time: the configuration before it comes back.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::commit::{Engine, Shared};
use crate::functions::fan_out::service::FanOutService;

/// A commit that waits may be replaced by one that waits for less.
const PERIOD: Duration = Duration::from_secs(1);

/// After the one before was refused.
const RETRY: Duration = Duration::from_secs(10);

pub fn start(shared: Arc<Shared>, engine: Arc<Mutex<Engine>>, fan_out: FanOutService) -> std::io::Result<()> {
    let run = move || run(&shared, &engine, &fan_out);
    thread::Builder::new().name("confirm".to_owned()).spawn(run).map(drop)
}

fn run(shared: &Shared, engine: &Mutex<Engine>, fan_out: &FanOutService) {
    let mut refused: Option<Instant> = None;
    loop {
        let left = shared.commits.confirm().map_or(PERIOD, |confirm| confirm.deadline.left());
        // what was refused stays due
        thread::sleep(if refused.is_some() { PERIOD } else { left.min(PERIOD) });
        let is_due = || shared.commits.confirm().is_some_and(|confirm| confirm.deadline.has_passed());
        if !is_due() {
            refused = None;
            continue;
        }
        if refused.is_some_and(|at| at.elapsed() < RETRY) {
            continue;
        }
        let mut engine = engine.lock().unwrap_or_else(PoisonError::into_inner);
        // who held the engine may have confirmed it
        if !is_due() {
            continue;
        }
        let Some(source) = engine.stored().and_then(|stored| stored.unconfirmed(&shared.drafts.archive))
        else {
            tracing::error!(
                "nobody has confirmed the commit, and no earlier one can be read; commit what shall be in force"
            );
            refused = Some(Instant::now());
            continue;
        };
        fan_out.learn(&source.text, &source.commit.file);
        // its result is logged by the engine
        refused = engine.go_back(source, shared).is_err().then(Instant::now);
    }
}
