//! What every way to capture from an interface has in common.

use std::io;

use super::{CaptureError, Source};
use crate::frame::Batch;

/// One way to capture from an interface: a packet socket, a ring or the copies of a port.
pub(super) trait Capture: Send {
    /// Adds the frames that have come to an empty batch, and waits a while for some where there are none.
    fn fill(&mut self, batch: &mut Batch) -> io::Result<()>;

    /// Frames that it lost so far.
    fn drops(&self) -> u64;
}

/// An interface, for as long as it is there.
pub(super) struct Interface<T> {
    name: String,
    capture: T,
    frames: u64,
    bytes: u64,
}

impl<T> Interface<T> {
    pub fn new(name: String, capture: T) -> Interface<T> {
        Interface { name, capture, frames: 0, bytes: 0 }
    }
}

impl<T: Capture> Source for Interface<T> {
    fn next_batch(&mut self, batch: &mut Batch) -> Result<bool, CaptureError> {
        batch.reset(self.frames + 1);
        batch.buffer().clear();
        self.capture.fill(batch).map_err(|source| CaptureError::Io { name: self.name.clone(), source })?;
        self.frames += batch.len() as u64;
        self.bytes += batch.bytes().len() as u64;
        Ok(true)
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn progress(&self) -> (u64, Option<u64>) {
        (self.bytes, None)
    }

    fn is_live(&self) -> bool {
        true
    }

    fn drops(&self) -> u64 {
        self.capture.drops()
    }
}
