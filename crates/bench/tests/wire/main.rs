//! The generator and the receiver on the real kernel: judged by a capture of others, and by a device with planted faults.

mod device;
mod faults;
mod frames;
mod machines;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// One test at a time: they judge rates, and there are few CPUs.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}
