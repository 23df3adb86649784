//! A mapped stretch of a file.
#![allow(unsafe_code, reason = "slices of mapped files, and the signal that tells of their end")]

use std::fs::File;
use std::io;
use std::slice;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Once, OnceLock};

use crate::mapping::{Memory, page};

/// A mapped stretch of a file. Where the file is cut off meanwhile, it holds zeros: the kernel sends SIGBUS for a page
/// behind the end (mmap(2)), which would end the process.
#[derive(Debug)]
pub struct Piece {
    memory: Memory,
    /// Bytes between the page where the mapping begins and the stretch.
    front: usize,
    length: usize,
    slot: &'static Slot,
}

impl Piece {
    /// `length` bytes of a file, from `offset` on.
    pub fn map(file: &File, offset: u64, length: u64) -> io::Result<Piece> {
        let front = (offset % page() as u64) as usize;
        let length = usize::try_from(length).map_err(|_| io::ErrorKind::InvalidInput)?;
        let begin = i64::try_from(offset - front as u64).map_err(|_| io::ErrorKind::InvalidInput)?;
        HANDLER.call_once(handle_faults);
        // of an empty stretch a page is mapped that nobody looks at: the kernel refuses a length of 0
        let memory = Memory::read_only(file, begin, (front + length).max(1))?;
        let slot = Slot::take(&memory).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Piece { memory, front, length, slot })
    }
}

impl std::ops::Deref for Piece {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let start = self.memory.at(self.front, self.length);
        // SAFETY: inside the mapping, which is read only; and whatever happens to the file, reading it yields bytes: those
        // of the file or, behind its end, the zeros that `on_fault` puts there.
        unsafe { slice::from_raw_parts(start.as_ptr(), self.length) }
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.slot.start.store(FREE, Ordering::Release);
    }
}

/// Addresses of a piece, as a signal handler can read them.
#[derive(Debug)]
struct Slot {
    start: AtomicUsize,
    end: AtomicUsize,
}

const FREE: usize = 0;
const TAKEN: usize = 1;
/// More pieces than all batches on their way can hold.
static SLOTS: [Slot; 256] = [const { Slot { start: AtomicUsize::new(FREE), end: AtomicUsize::new(0) } }; 256];

impl Slot {
    fn take(memory: &Memory) -> Option<&'static Slot> {
        let start = memory.at(0, memory.length()).as_ptr() as usize;
        let take = |slot: &&Slot| {
            slot.start.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        let slot = SLOTS.iter().find(take)?;
        slot.end.store(start + memory.length(), Ordering::Release);
        slot.start.store(start, Ordering::Release);
        Some(slot)
    }
}

static HANDLER: Once = Once::new();
static PAGE_BYTES: AtomicUsize = AtomicUsize::new(0);
/// What was done about SIGBUS before: Rust's own handler tells of a stack that is full.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

fn handle_faults() {
    PAGE_BYTES.store(page(), Ordering::Relaxed);
    // SAFETY: both structures are valid for sigaction, all-zero bytes included, and the handler does only what a handler
    // may: atomics, mmap and sigaction.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let mut before: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_fault as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        if libc::sigaction(libc::SIGBUS, &raw const action, &raw mut before) == 0 {
            let _ = BEFORE.set(before);
        }
    }
}

/// Puts zeros where the file behind a piece has ended.
extern "C" fn on_fault(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo_t, which for SIGBUS has an address.
    let at = unsafe { (*info).si_addr() } as usize;
    let page = PAGE_BYTES.load(Ordering::Relaxed);
    for slot in &SLOTS {
        let (start, end) = (slot.start.load(Ordering::Acquire), slot.end.load(Ordering::Acquire));
        if start > TAKEN && (start..end).contains(&at) {
            let first = at / page * page;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
            // SAFETY: the pages belong to a piece, which is read only and stays mapped as long as it can be read.
            let zeros =
                unsafe { libc::mmap(first as *mut libc::c_void, end - first, libc::PROT_READ, flags, -1, 0) };
            if zeros != libc::MAP_FAILED {
                return;
            }
        }
    }
    // SAFETY: the structure is one that sigaction gave, or all zeros, the default action. The fault happens again.
    unsafe {
        let before = BEFORE.get().copied().unwrap_or_else(|| std::mem::zeroed());
        libc::sigaction(libc::SIGBUS, &raw const before, std::ptr::null_mut());
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// A file of so many pages, the first full of ones, the second of twos.
    fn pages(count: u8) -> File {
        let mut file = tempfile::tempfile().unwrap();
        (1..=count).for_each(|number| file.write_all(&vec![number; page()]).unwrap());
        file
    }

    #[test]
    fn a_piece_begins_at_any_byte() {
        let piece = Piece::map(&pages(3), page() as u64 - 1, 2).unwrap();
        assert_eq!(*piece, [1, 2]);
        assert!(Piece::map(&pages(1), 0, 0).unwrap().is_empty());
    }

    #[test]
    fn behind_the_end_of_a_file_that_was_cut_are_zeros() {
        let file = pages(3);
        let whole = Piece::map(&file, 0, 3 * page() as u64).unwrap();
        let other = Piece::map(&pages(1), 0, 1).unwrap();
        file.set_len(page() as u64).unwrap();
        assert_eq!(whole[page() - 1..=page()], [1, 0]);
        assert!(whole[page()..].iter().all(|byte| *byte == 0));
        assert_eq!(whole.len(), 3 * page());
        assert_eq!(*other, [1]);
    }
}
