//! What every way to capture from an interface has in common.

use std::io;
use std::os::fd::BorrowedFd;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{CaptureError, Source};
use crate::frame::Batch;

/// One way to capture from an interface: a packet socket, a ring or the copies of a port.
pub(super) trait Capture: Send {
    /// Adds the frames that have come to an empty batch, without waiting for any.
    fn take(&mut self, batch: &mut Batch) -> io::Result<()>;

    /// What becomes readable when frames come.
    fn descriptors(&self) -> Vec<BorrowedFd<'_>>;

    /// Frames that it lost so far.
    fn drops(&self) -> u64;
}

/// Wait for frames before an empty batch is returned, milliseconds.
pub(super) const PATIENCE: u16 = 200;

/// Waits until one of the descriptors is readable, at most so long; says which one's device went down or away.
pub(super) fn wait(descriptors: &[BorrowedFd<'_>], patience_ms: u16) -> io::Result<Option<usize>> {
    let mut wanted: Vec<_> = descriptors.iter().map(|fd| PollFd::new(*fd, PollFlags::POLLIN)).collect();
    match poll(&mut wanted, PollTimeout::from(patience_ms)) {
        Ok(_) => {}
        Err(Errno::EINTR) => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    let ended = PollFlags::POLLERR | PollFlags::POLLHUP;
    Ok(wanted.iter().position(|one| one.revents().is_some_and(|events| events.intersects(ended))))
}

/// Why an interface that is gone yields nothing.
pub(super) fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::NetworkDown, "the interface went down or away")
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
        self.take_ready(batch)?;
        if batch.is_empty() {
            let ended = wait(&self.capture.descriptors(), PATIENCE);
            match ended.and_then(|ended| ended.map_or(Ok(()), |_| Err(gone()))) {
                Ok(()) => self.take_ready(batch)?,
                Err(source) => return Err(CaptureError::Io { name: self.name.clone(), source }),
            }
        }
        Ok(true)
    }

    fn take_ready(&mut self, batch: &mut Batch) -> Result<(), CaptureError> {
        batch.reset(self.frames + 1);
        batch.buffer().clear();
        self.capture.take(batch).map_err(|source| CaptureError::Io { name: self.name.clone(), source })?;
        self.frames += batch.len() as u64;
        self.bytes += batch.bytes().len() as u64;
        Ok(())
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.capture.descriptors()
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
