//! Frames, and the memory they are in.
#![allow(unsafe_code, reason = "slices of memory shared with the kernel")]

use std::io;
use std::sync::Arc;
#[cfg(debug_assertions)]
use std::sync::atomic::AtomicU8;
use std::sync::atomic::{AtomicU32, Ordering};

use sluice_memory::Memory;

/// A frame that is the user's. It stands for its part of the memory and cannot be copied; putting it into a ring gives
/// it away, and dropping it only means that nobody has it any more.
#[must_use = "a frame that is dropped is lost to its memory"]
#[derive(Debug, PartialEq, Eq)]
pub struct Frame {
    number: u32,
    /// Where its bytes begin within it.
    offset: u16,
    memory: u16,
    length: u32,
}

impl Frame {
    /// Its place in the memory.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Bytes it holds.
    pub fn len(&self) -> usize {
        self.length as usize
    }

    /// It holds no bytes.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }
}

/// Where a frame is, as the user's side knows it.
#[cfg(debug_assertions)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Whose {
    User,
    /// In the fill ring, or received and not yet taken.
    Receiving,
    /// In the tx ring, or sent and not yet taken back.
    Sending,
}

struct Inner {
    memory: Memory,
    number: u16,
    frames: u32,
    shift: u32,
    /// Checks in debug builds that the kernel gives back only what it was given.
    #[cfg(debug_assertions)]
    ledger: Vec<AtomicU8>,
}

/// Memory for frames. Clones are the same memory.
#[derive(Clone)]
pub struct Umem(Arc<Inner>);

impl Umem {
    /// `frames` frames of `size` bytes, a power of two that the kernel takes (2048, 4096), all of them the user's.
    pub fn new(frames: u32, size: u32) -> io::Result<(Umem, Vec<Frame>)> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        if !size.is_power_of_two() || size > 1 << 15 || frames == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "frames have 2048 or 4096 bytes"));
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed) as u16;
        let inner = Inner {
            memory: Memory::fresh(frames as usize * size as usize)?,
            number,
            frames,
            shift: size.trailing_zeros(),
            #[cfg(debug_assertions)]
            ledger: (0..frames).map(|_| AtomicU8::new(Whose::User as u8)).collect(),
        };
        let all = (0..frames).map(|frame| Frame { number: frame, offset: 0, memory: number, length: 0 });
        Ok((Umem(Arc::new(inner)), all.collect()))
    }

    /// Bytes of a frame.
    pub fn frame_size(&self) -> u32 {
        1 << self.0.shift
    }

    /// How many frames there are.
    pub fn frames(&self) -> u32 {
        self.0.frames
    }

    /// Both are the same memory.
    pub fn is_same(&self, other: &Umem) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Start and length, for registration.
    pub(crate) fn region(&self) -> (u64, u64) {
        let length = self.0.memory.length();
        (self.0.memory.at(0, length).as_ptr() as u64, length as u64)
    }

    fn start(&self, frame: &Frame) -> *mut u8 {
        assert!(frame.memory == self.0.number, "a frame of another memory");
        let at = ((frame.number as usize) << self.0.shift) + usize::from(frame.offset);
        self.0.memory.at(at, frame.length as usize).as_ptr()
    }

    /// What a frame holds.
    pub fn bytes<'a>(&'a self, frame: &'a Frame) -> &'a [u8] {
        // SAFETY: within the frame, which is the user's while there is a `Frame`: nobody writes to it.
        unsafe { std::slice::from_raw_parts(self.start(frame), frame.length as usize) }
    }

    /// What a frame holds, to be written.
    pub fn bytes_mut<'a>(&'a self, frame: &'a mut Frame) -> &'a mut [u8] {
        // SAFETY: as in `bytes`; the frame is borrowed for writing, and there is no second `Frame` of it.
        unsafe { std::slice::from_raw_parts_mut(self.start(frame), frame.length as usize) }
    }

    /// Makes a frame hold `length` bytes from its beginning on; what they are is as it happens.
    pub fn resize(&self, frame: &mut Frame, length: usize) {
        assert!(length <= 1 << self.0.shift, "more than a frame holds");
        (frame.offset, frame.length) = (0, length as u32);
    }

    /// Leaves `front` bytes out, and all behind the first `length` of the rest.
    pub fn cut(&self, frame: &mut Frame, front: usize, length: usize) {
        assert!(front + length <= frame.len(), "more than the frame holds");
        frame.offset += front as u16;
        frame.length = length as u32;
    }

    /// The address to give the kernel.
    pub(crate) fn give(&self, frame: Frame, sending: bool) -> libc::xdp_desc {
        assert!(frame.memory == self.0.number, "a frame of another memory");
        #[cfg(debug_assertions)]
        self.moves(frame.number, Whose::User, if sending { Whose::Sending } else { Whose::Receiving });
        let offset = if sending { u64::from(frame.offset) } else { 0 };
        libc::xdp_desc {
            addr: (u64::from(frame.number) << self.0.shift) + offset,
            len: frame.length,
            options: 0,
        }
    }

    /// A frame from the kernel. None when what it says is not within a frame; such a frame is lost.
    pub(crate) fn take(&self, address: u64, length: u32, sending: bool) -> Option<Frame> {
        let (number, offset) = (address >> self.0.shift, address & ((1 << self.0.shift) - 1));
        if number >= u64::from(self.0.frames) || offset + u64::from(length) > 1 << self.0.shift {
            return None;
        }
        #[cfg(debug_assertions)]
        self.moves(number as u32, if sending { Whose::Sending } else { Whose::Receiving }, Whose::User);
        #[cfg(not(debug_assertions))]
        let _ = sending;
        Some(Frame { number: number as u32, offset: offset as u16, memory: self.0.number, length })
    }

    /// As a simulated kernel has it: a second `Frame`, of one that is not the user's.
    #[cfg(test)]
    pub(crate) fn at_hand(&self, number: u32, offset: u16, length: u32) -> Frame {
        Frame { number, offset, memory: self.0.number, length }
    }

    #[cfg(debug_assertions)]
    fn moves(&self, number: u32, from: Whose, to: Whose) {
        let was = self.0.ledger[number as usize].swap(to as u8, Ordering::Relaxed);
        assert!(was == from as u8, "frame {number} goes to {to:?}, but was at {was} and not {from:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_apart_and_hold_what_is_written() {
        let (umem, mut frames) = Umem::new(4, 2048).unwrap();
        for frame in &mut frames {
            umem.resize(frame, 2048);
            let number = frame.number() as u8;
            umem.bytes_mut(frame).fill(number);
        }
        for frame in &frames {
            assert!(umem.bytes(frame).iter().all(|byte| u32::from(*byte) == frame.number()));
        }
    }

    #[test]
    #[should_panic(expected = "another memory")]
    fn a_frame_belongs_to_one_memory() {
        let (_one, frames) = Umem::new(1, 2048).unwrap();
        let (other, _) = Umem::new(1, 2048).unwrap();
        other.bytes(&frames[0]);
    }

    #[test]
    fn what_lies_outside_is_not_taken() {
        let (umem, frames) = Umem::new(2, 2048).unwrap();
        for frame in frames {
            let _ = umem.give(frame, false);
        }
        assert_eq!(umem.take(2 * 2048, 1, false), None);
        assert_eq!(umem.take(2000, 49, false), None);
        assert_eq!(umem.take(2000, 48, false).unwrap().len(), 48);
        assert_eq!(umem.take(u64::MAX, 1, false), None);
    }

    #[cfg(debug_assertions)]
    #[test]
    #[should_panic(expected = "goes to User")]
    fn a_frame_is_given_back_once() {
        let (umem, mut frames) = Umem::new(1, 2048).unwrap();
        let _ = umem.give(frames.remove(0), true);
        let _ = umem.take(0, 10, true);
        let _ = umem.take(0, 10, true);
    }
}
