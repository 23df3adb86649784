//! What a device has.

use crate::sys;

/// How many queues of each direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queues {
    /// To receive from.
    pub rx: u32,
    /// To send by.
    pub tx: u32,
}

/// Of a device of the calling thread's network namespace. One that does not say has one of each.
pub fn queues(device: &str) -> Queues {
    let [rx, tx, _, combined] = sys::channels(device).unwrap_or([0, 0, 0, 1]);
    Queues { rx: (rx + combined).max(1), tx: (tx + combined).max(1) }
}
