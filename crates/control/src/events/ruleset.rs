//! The guard stays in force when somebody loads a ruleset of their own, which often begins with `flush ruleset`.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::commit::Engine;
use crate::commit::Shared;
use crate::kernel::notices::Notices;
use crate::kernel::{KernelError, guard};

/// Time for a transaction to end, and for what could not be done at once.
const PAUSE: Duration = Duration::from_millis(100);

/// Subscribes before it returns.
pub fn start(shared: Arc<Shared>, engine: Arc<Mutex<Engine>>) -> Result<(), KernelError> {
    let fail = |e: std::io::Error| KernelError {
        action: "watch nftables".to_owned(),
        reason: e.to_string(),
        advice: "run as root, with nf_tables in the kernel",
    };
    let look = move || {
        while let Err(error) = put_back(&shared, &engine) {
            tracing::error!(%error, "nothing keeps the kernel from forwarding should programs be detached");
            thread::sleep(10 * PAUSE);
        }
        true
    };
    Notices::of_rulesets().and_then(|notices| notices.watch("ruleset", PAUSE, look)).map_err(fail)
}

/// A commit puts up a guard of its own, which is waited for.
fn put_back(shared: &Shared, engine: &Mutex<Engine>) -> Result<(), KernelError> {
    let _engine = engine.lock().unwrap_or_else(PoisonError::into_inner);
    let active = shared.active();
    let devices = &active.plan.kernel.guard;
    if guard::stands(devices) {
        return Ok(());
    }
    guard::install(devices)?;
    tracing::warn!("put back: table inet sluice_guard, which somebody had removed or changed");
    Ok(())
}
