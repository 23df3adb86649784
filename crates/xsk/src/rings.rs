//! The four rings, by what becomes of frames in them.

use crate::frame::{Frame, Umem};
use crate::ring::{Consumer, Producer};

/// Empty frames for the kernel to receive into.
pub struct FillRing {
    pub(crate) ring: Producer<u64>,
    pub(crate) umem: Umem,
}

impl FillRing {
    /// Gives away as many of the last of `frames` as there is room for.
    pub fn put(&mut self, frames: &mut Vec<Frame>) -> usize {
        let count = self.ring.room_for(frames.len());
        let last = frames.drain(frames.len() - count..);
        self.ring.put(last.map(|frame| self.umem.give(frame, false).addr));
        count
    }

    /// Frames that the kernel has not taken.
    pub fn pending(&mut self) -> u32 {
        self.ring.pending()
    }

    /// The kernel asks for a system call before it goes on with the ring.
    pub fn needs_wakeup(&self) -> bool {
        self.ring.needs_wakeup()
    }
}

/// Received frames.
pub struct RxRing {
    pub(crate) ring: Consumer<libc::xdp_desc>,
    pub(crate) umem: Umem,
}

impl RxRing {
    /// Frames that wait.
    pub fn ready(&mut self) -> u32 {
        self.ring.available()
    }

    /// Takes up to `most` frames, in order, and says how many they were.
    pub fn receive(&mut self, frames: &mut Vec<Frame>, most: usize) -> usize {
        self.ring.take(most, |entry| frames.extend(self.umem.take(entry.addr, entry.len, false)))
    }
}

/// Frames to send.
pub struct TxRing {
    pub(crate) ring: Producer<libc::xdp_desc>,
    pub(crate) umem: Umem,
}

impl TxRing {
    /// Gives away the first of `frames`, as many as there is room for, in order.
    pub fn put(&mut self, frames: &mut Vec<Frame>) -> usize {
        let count = self.ring.room_for(frames.len());
        self.ring.put(frames.drain(..count).map(|frame| self.umem.give(frame, true)));
        count
    }

    /// Frames that the kernel has not begun to send.
    pub fn pending(&mut self) -> u32 {
        self.ring.pending()
    }

    /// The kernel asks for a system call before it goes on with the ring.
    pub fn needs_wakeup(&self) -> bool {
        self.ring.needs_wakeup()
    }
}

/// Frames that were sent.
pub struct CompletionRing {
    pub(crate) ring: Consumer<u64>,
    pub(crate) umem: Umem,
}

impl CompletionRing {
    /// Takes up to `most` frames back.
    pub fn take(&mut self, frames: &mut Vec<Frame>, most: usize) -> usize {
        self.ring.take(most, |address| frames.extend(self.umem.take(address, 0, true)))
    }
}

#[cfg(test)]
mod tests;
