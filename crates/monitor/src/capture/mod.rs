//! Sources of frames: capture files, standard input, live interfaces.

mod cooked;
mod file;
mod input;
mod interface;
mod live;
mod mapping;
mod pcap;
mod pcapng;
mod port;
mod rotated;
mod several;
mod xdp;

use std::os::fd::BorrowedFd;

use thiserror::Error;

use crate::frame::Batch;

pub use file::FileSource;

/// Something that yields frames in their order of capture.
pub trait Source: Send {
    /// Fills `batch` with the next frames, a few hundred kilobytes of them, and says whether more may follow. Live
    /// sources return an empty batch when nothing came for a while. On an error the batch holds the frames before it,
    /// which are to be used.
    fn next_batch(&mut self, batch: &mut Batch) -> Result<bool, CaptureError>;

    /// The same of a live source without any wait.
    fn take_ready(&mut self, batch: &mut Batch) -> Result<(), CaptureError> {
        self.next_batch(batch).map(drop)
    }

    /// What becomes readable when frames of a live source come.
    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }

    /// What to call the source in reports.
    fn name(&self) -> &str;

    /// Bytes read and, where it is known, bytes in all.
    fn progress(&self) -> (u64, Option<u64>);

    /// Whether frames come as they are on the wire, without an end.
    fn is_live(&self) -> bool {
        false
    }

    /// Frames that the capture itself lost so far (PACKET_STATISTICS, pcapng interface statistics).
    fn drops(&self) -> u64 {
        0
    }
}

/// Opens what a command line names: `-` is standard input, a path is a capture file, anything else an interface; `xdp:`
/// before an interface takes its frames away from the machine.
pub fn open(name: &str) -> Result<Box<dyn Source>, CaptureError> {
    open_for(name, false)
}

/// `everything`: also what no protocol is followed of, where a gateway hands over copies.
fn open_for(name: &str, everything: bool) -> Result<Box<dyn Source>, CaptureError> {
    if name == "-" {
        return Ok(Box::new(FileSource::standard_input()?));
    }
    if let Some(interface) = name.strip_prefix(xdp::PREFIX) {
        return Ok(Box::new(xdp::Sockets::open(interface)?));
    }
    if is_file(name) {
        return Ok(Box::new(FileSource::open(name)?));
    }
    match port::Port::open(name, everything)? {
        Some(port) => Ok(Box::new(port)),
        None => Ok(Box::new(live::PacketSocket::open(name)?)),
    }
}

/// Opens everything a command line names: files form one capture, in the order of their first frames, since a shell lists
/// day10 before day2; interfaces are heard at the same time. `everything`: of a gateway's port also frames that are not
/// followed, to find clear text among them.
pub fn open_all(names: &[String], everything: bool) -> Result<Box<dyn Source>, CaptureError> {
    if let [only] = names {
        return open_for(only, everything);
    }
    let files = names.iter().filter(|name| is_file(name)).count();
    if files == names.len() {
        return Ok(Box::new(rotated::Rotated::open(names)?));
    }
    if files > 0 {
        return Err(CaptureError::Mixed { names: names.join(", ") });
    }
    let sources = names.iter().map(|name| open_for(name, everything)).collect::<Result<Vec<_>, _>>()?;
    Ok(Box::new(several::Several::side_by_side(sources)))
}

/// Whether a name is that of a file, a pipe or standard input.
fn is_file(name: &str) -> bool {
    let is_path = name.contains('/') || std::path::Path::new(name).exists();
    let looks_like_a_file = [".pcap", ".pcapng", ".cap", ".gz", ".zst"].iter().any(|end| name.ends_with(end));
    name == "-" || !name.starts_with(xdp::PREFIX) && (is_path || looks_like_a_file)
}

/// Why no frame comes any more, or none came at all.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "its variants and their fields are what their messages name")]
pub enum CaptureError {
    #[error("{name}: {source}")]
    Io { name: String, source: std::io::Error },
    #[error("{name} is not a capture: it starts with {start}, expected pcap, pcapng, gzip or zstd")]
    NotACapture { name: String, start: String },
    #[error("{name} is cut in the middle, at byte {at} after {frames} frames; results up to there are kept")]
    Cut { name: String, at: u64, frames: u64 },
    #[error("{name} is damaged at byte {at} after {frames} frames: {what}; results up to there are kept")]
    Damaged { name: String, at: u64, frames: u64, what: String },
    #[error("{what}")]
    Several { what: String },
    #[error("there is no interface {name}; interfaces here: {known}")]
    NoInterface { name: String, known: String },
    #[error("{names}: files and interfaces together make no one capture; run the monitor twice")]
    Mixed { names: String },
}

impl CaptureError {
    /// Whether frames before the error are worth a partial result.
    pub fn is_partial(&self) -> bool {
        !matches!(
            self,
            CaptureError::NotACapture { .. } | CaptureError::NoInterface { .. } | CaptureError::Mixed { .. }
        )
    }
}

/// What is wrong with a file's bytes.
type Broken = String;

/// A file format: finds whole records in a run of bytes.
#[derive(Debug)]
enum Format {
    Pcap(pcap::Pcap),
    Pcapng(pcapng::Pcapng),
}

/// Bytes that begin any file that is read: the longest header that must be seen to tell.
const HEADER_LEN: usize = pcap::HEADER_LEN;

impl Format {
    /// Recognises the first bytes of a file; Ok(None) when they are of no known format.
    fn of(start: &[u8]) -> Result<Option<Format>, Broken> {
        if let Some(pcap) = pcap::Pcap::of(start)? {
            return Ok(Some(Format::Pcap(pcap)));
        }
        Ok(pcapng::Pcapng::of(start).map(Format::Pcapng))
    }

    /// Adds the whole records of `bytes` from `from` on to the batch; returns how far it came. With an error the
    /// records before it are in the batch.
    fn parse(&mut self, bytes: &[u8], from: usize, records: &mut Batch) -> (usize, Result<(), Broken>) {
        match self {
            Format::Pcap(pcap) => pcap.parse(bytes, from, records),
            Format::Pcapng(pcapng) => pcapng.parse(bytes, from, records),
        }
    }

    fn drops(&self) -> u64 {
        match self {
            Format::Pcap(_) => 0,
            Format::Pcapng(pcapng) => pcapng.drops(),
        }
    }
}

/// Longer frames are damage: no link carries them and no capture tool writes them.
const LONGEST_FRAME: u32 = 1 << 20;

/// Reads fixed-size fields in the byte order of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Order {
    big: bool,
}

impl Order {
    #[inline(always)]
    fn u16(self, bytes: &[u8], at: usize) -> u16 {
        let field = [bytes[at], bytes[at + 1]];
        if self.big { u16::from_be_bytes(field) } else { u16::from_le_bytes(field) }
    }

    #[inline(always)]
    fn u32(self, bytes: &[u8], at: usize) -> u32 {
        let field = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        if self.big { u32::from_be_bytes(field) } else { u32::from_le_bytes(field) }
    }
}
