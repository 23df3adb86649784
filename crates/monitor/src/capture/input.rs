//! Where the bytes of a capture come from: a file or a pipe, compressed or not.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::HEADER_LEN;

/// How long a pipe may be silent before its reader is asked whether it still wants to wait, milliseconds.
const PATIENCE: u16 = 200;

/// Bytes of a compressed file that are read at a time.
const PACKED_BUFFER: usize = 256 << 10;

/// What a read came to.
pub(super) enum Got {
    Bytes(usize),
    /// Nothing for a while; more may come.
    Silence,
    End,
}

/// The bytes of a capture, decompressed.
pub(super) struct Input {
    encoding: Encoding,
    /// Bytes taken from the file itself, compressed or not.
    pub count: Arc<AtomicU64>,
    pub is_packed: bool,
}

enum Encoding {
    Plain(Counted),
    Packed(Box<dyn Read + Send>),
}

impl Input {
    /// The input and its first bytes, fewer than [`HEADER_LEN`] only where there are no more; they are not read again.
    pub fn new(file: File) -> io::Result<(Input, Vec<u8>)> {
        let count = Arc::new(AtomicU64::new(0));
        let is_file = file.metadata().is_ok_and(|metadata| metadata.is_file());
        let mut file = Counted { file, is_file, count: Arc::clone(&count) };
        let start = start_of(&mut file)?;
        let Some(packing) = Packing::of(&start) else {
            return Ok((Input { encoding: Encoding::Plain(file), count, is_packed: false }, start));
        };
        let raw = io::BufReader::with_capacity(PACKED_BUFFER, io::Cursor::new(start).chain(file));
        let mut packed: Box<dyn Read + Send> = match packing {
            Packing::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(raw)),
            Packing::Zstd => Box::new(zstd::stream::read::Decoder::with_buffer(raw)?),
        };
        let start = start_of(&mut packed)?;
        Ok((Input { encoding: Encoding::Packed(packed), count, is_packed: true }, start))
    }

    /// Reads what is there, at most `buffer`, once.
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<Got> {
        let length = match &mut self.encoding {
            Encoding::Packed(packed) => packed.read(buffer),
            Encoding::Plain(plain) => {
                if !plain.is_ready()? {
                    return Ok(Got::Silence);
                }
                plain.read(buffer)
            }
        };
        match length {
            Ok(0) => Ok(Got::End),
            Ok(length) => Ok(Got::Bytes(length)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Got::Silence),
            Err(error) => Err(error),
        }
    }
}

/// Counts what is read.
struct Counted {
    file: File,
    is_file: bool,
    count: Arc<AtomicU64>,
}

impl Counted {
    /// Whether a read would not wait: files never do, pipes until their writer writes or goes.
    fn is_ready(&self) -> io::Result<bool> {
        if self.is_file {
            return Ok(true);
        }
        let mut wanted = [PollFd::new(self.file.as_fd(), PollFlags::POLLIN)];
        match poll(&mut wanted, PollTimeout::from(PATIENCE)) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::EINTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        self.count.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

#[derive(Clone, Copy)]
enum Packing {
    Gzip,
    Zstd,
}

impl Packing {
    fn of(start: &[u8]) -> Option<Packing> {
        match start {
            // RFC 1952 2.3.1
            [0x1f, 0x8b, ..] => Some(Packing::Gzip),
            // RFC 8878 3.1.1, and 3.1.2: frames to be passed over.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Some(Packing::Zstd),
            _ => None,
        }
    }
}

fn start_of(reader: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut start = Vec::with_capacity(HEADER_LEN);
    match reader.take(HEADER_LEN as u64).read_to_end(&mut start) {
        // A compressed file that is cut this early: what there is says enough.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof && !start.is_empty() => Ok(start),
        other => other.map(|_| start),
    }
}
