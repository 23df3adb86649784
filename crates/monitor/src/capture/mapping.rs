//! A file mapped piece by piece, so that memory does not grow with it.

#![allow(unsafe_code, reason = "mapping a file, asking for cache lines")]

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Once, OnceLock};

use memmap2::{Mmap, MmapOptions};

/// Bytes of a piece. Batches hold on to the pieces they show; the last one lets it go.
const PIECE: u64 = 16 << 20;
const PAGE: u64 = 4096;
/// Ethernet, IPv4, UDP and the first words of ESP or GTP-U end about here.
const HEADERS: usize = 48;

/// The mapped part of a file.
pub(super) struct Mapping {
    file: File,
    pub size: u64,
    /// The file has become shorter than it was.
    pub shrank: bool,
    pub piece: Arc<Piece>,
    /// Offset of the piece in the file.
    at: u64,
}

impl Mapping {
    pub fn new(file: File) -> io::Result<Mapping> {
        let size = file.metadata()?.len();
        let piece = Arc::new(Piece::map(&file, 0, PIECE.min(size))?);
        Ok(Mapping { file, size, shrank: false, piece, at: 0 })
    }

    /// Looks whether the file is as long as it was. One that grows is read up to its size when it was opened.
    pub fn look(&mut self) {
        let size = self.file.metadata().map_or(0, |metadata| metadata.len());
        if size < self.size {
            (self.size, self.shrank) = (size, true);
        }
    }

    /// Where `length` bytes from `at` on lie in the piece, fewer only at the end of the file. Maps another one if it
    /// must.
    pub fn window(&mut self, at: u64, length: u64) -> io::Result<(usize, usize)> {
        let end = (at + length).min(self.size);
        if at < self.at || end > self.at + self.piece.len() as u64 {
            let start = at / PAGE * PAGE;
            let length = PIECE.max(end - start).min(self.size - start);
            self.piece = Arc::new(Piece::map(&self.file, start, length)?);
            self.at = start;
        }
        Ok(((at - self.at) as usize, (end - self.at) as usize))
    }
}

/// A mapped stretch of a file. Where the file is cut off meanwhile, it holds zeros: the kernel sends SIGBUS for a page
/// behind the end (mmap(2)), which would end the process.
#[derive(Debug)]
pub struct Piece {
    map: Mmap,
    place: &'static Place,
}

impl Piece {
    fn map(file: &File, offset: u64, length: u64) -> io::Result<Piece> {
        HANDLER.call_once(handle_faults);
        // SAFETY: the mapping is read only, and whatever happens to the file, reading it yields bytes: those of the file
        // or, behind its end, the zeros that `on_fault` puts there.
        let map = unsafe { MmapOptions::new().offset(offset).len(length as usize).map(file) }?;
        let place = Place::take(&map).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Piece { map, place })
    }
}

impl std::ops::Deref for Piece {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.map
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.place.start.store(FREE, Ordering::Release);
    }
}

/// Addresses of a piece, as a signal handler can read them.
#[derive(Debug)]
struct Place {
    start: AtomicUsize,
    end: AtomicUsize,
}

const FREE: usize = 0;
const TAKEN: usize = 1;
/// More pieces than all batches on their way can hold.
static PLACES: [Place; 256] =
    [const { Place { start: AtomicUsize::new(FREE), end: AtomicUsize::new(0) } }; 256];

impl Place {
    fn take(map: &Mmap) -> Option<&'static Place> {
        let start = map.as_ptr() as usize;
        let take = |place: &&Place| {
            place.start.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        let place = PLACES.iter().find(take)?;
        place.end.store(start + map.len(), Ordering::Release);
        place.start.store(start, Ordering::Release);
        Some(place)
    }
}

static HANDLER: Once = Once::new();
static PAGE_BYTES: AtomicUsize = AtomicUsize::new(0);
/// What was done about SIGBUS before: Rust's own handler tells of a stack that is full.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

fn handle_faults() {
    // SAFETY: sysconf has no preconditions; both structures are valid for sigaction, all-zero bytes included, and the
    // handler does only what a handler may: atomics, mmap and sigaction.
    unsafe {
        PAGE_BYTES.store(libc::sysconf(libc::_SC_PAGESIZE).max(1) as usize, Ordering::Relaxed);
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
    for place in &PLACES {
        let (start, end) = (place.start.load(Ordering::Acquire), place.end.load(Ordering::Acquire));
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

/// Asks for the bytes of a frame that a parser will look at: what of its headers is not in the line of the record's own
/// header, and its end. While memory answers, the next record is found, so that the two wait together: with mapped
/// frames of 1500 bytes, reading and parsing one takes 95 ns instead of 152.
#[inline(always)]
pub(super) fn prefetch(bytes: &[u8], start: usize, end: usize) {
    line(bytes, start + HEADERS);
    line(bytes, end.saturating_sub(1));
}

#[inline(always)]
fn line(bytes: &[u8], at: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of any address has no effect that a program can observe; SSE is part of x86-64.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(bytes.as_ptr().wrapping_add(at).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (bytes, at);
}
