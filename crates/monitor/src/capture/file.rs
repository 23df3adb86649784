//! Capture files, compressed or not, and standard input.

#![allow(unsafe_code, reason = "mapping a file")]

use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::Mmap;

use super::{Broken, CaptureError, Format, HEADER_LEN, Source};
use crate::frame::Batch;

/// Bytes read at a time: a part of the second-level cache, so that frames are still there when they are parsed.
const READ: usize = 256 << 10;
/// Bytes of a mapped file that one batch looks at.
const WINDOW: usize = 1 << 20;
/// Files whose frames are longer than this on average are mapped: only their headers are touched then, while reading would
/// copy everything.
const MAP_FROM: u64 = 512;

/// A file or pipe in one of the formats.
pub struct FileSource {
    name: String,
    format: Format,
    way: Way,
    /// The plain file behind it, if it can be mapped.
    file: Option<File>,
    read: Arc<AtomicU64>,
    total: Option<u64>,
    frames: u64,
    /// Bytes of the (uncompressed) file before the present batch.
    before: u64,
    ended: bool,
}

/// How bytes come.
enum Way {
    Read { reader: Box<dyn Read + Send>, rest: Vec<u8> },
    Map { map: Arc<Mmap>, at: usize },
}

impl FileSource {
    pub fn open(path: &str) -> Result<FileSource, CaptureError> {
        let io = |source| CaptureError::Io { name: path.to_owned(), source };
        let file = File::open(path).map_err(io)?;
        let metadata = file.metadata().map_err(io)?;
        if metadata.is_dir() {
            return Err(io(io::Error::from(io::ErrorKind::IsADirectory)));
        }
        let plain = metadata.is_file().then(|| file.try_clone()).transpose().map_err(io)?;
        let mut source = FileSource::new(path, Box::new(file), plain)?;
        source.total = metadata.is_file().then_some(metadata.len());
        Ok(source)
    }

    /// Reads a stream, such as standard input.
    pub fn from_reader(name: &str, reader: Box<dyn Read + Send>) -> Result<FileSource, CaptureError> {
        FileSource::new(name, reader, None)
    }

    fn new(
        name: &str,
        reader: Box<dyn Read + Send>,
        plain: Option<File>,
    ) -> Result<FileSource, CaptureError> {
        let name = name.to_owned();
        let io = |source| CaptureError::Io { name: name.clone(), source };
        let read = Arc::new(AtomicU64::new(0));
        let mut reader: Box<dyn Read + Send> = Box::new(Counted { reader, count: Arc::clone(&read) });
        let mut rest = start_of(&mut reader).map_err(io)?;
        let mut file = plain;
        if let Some(packing) = Packing::of(&rest) {
            reader = packing.unpack(io::Cursor::new(rest).chain(reader)).map_err(io)?;
            rest = start_of(&mut reader).map_err(io)?;
            file = None;
        }
        let damaged = |what| CaptureError::Damaged { name: name.clone(), at: 0, frames: 0, what };
        let Some(format) = Format::of(&rest).map_err(damaged)? else {
            return Err(CaptureError::NotACapture { start: hexadecimal(&rest), name });
        };
        let way = Way::Read { reader, rest };
        Ok(FileSource { name, format, way, file, read, total: None, frames: 0, before: 0, ended: false })
    }

    /// Ends the source: nothing of it can be read any more.
    fn broken(&mut self, at: u64, what: Option<Broken>) -> CaptureError {
        self.ended = true;
        let (name, at, frames) = (self.name.clone(), self.before + at, self.frames);
        match what {
            None => CaptureError::Cut { name, at, frames },
            Some(what) => CaptureError::Damaged { name, at, frames, what },
        }
    }

    /// A batch of what one call of read gives, and of what the batch before left over.
    fn read_batch(&mut self, batch: &mut Batch) -> Result<bool, CaptureError> {
        let Way::Read { reader, rest } = &mut self.way else { return Ok(false) };
        // The buffer keeps its length, so that it is not zeroed each time.
        let mut buffer = std::mem::take(batch.buffer());
        let mut filled = rest.len();
        if buffer.len() < filled + READ {
            buffer.resize(filled + READ, 0);
        }
        buffer[..filled].copy_from_slice(rest);
        let (mut at, mut error) = (0, None);
        // The format has been told by what is left over, so a parser gets to see it even if nothing follows.
        while at == 0 && error.is_none() && !self.ended {
            if filled == buffer.len() {
                buffer.resize(2 * filled, 0);
            }
            match reader.read(&mut buffer[filled..]) {
                Ok(0) => self.ended = true,
                Ok(count) => filled += count,
                Err(failed) if failed.kind() == io::ErrorKind::Interrupted => continue,
                Err(failed) if failed.kind() == io::ErrorKind::UnexpectedEof => self.ended = true,
                Err(failed) => error = Some(CaptureError::Io { name: self.name.clone(), source: failed }),
            }
            let (end, parsed) = self.format.parse(&buffer[..filled], 0, batch);
            at = end;
            if let Err(what) = parsed {
                let frames = self.frames + batch.len() as u64;
                let at = self.before + end as u64;
                error = Some(CaptureError::Damaged { name: self.name.clone(), at, frames, what });
            }
        }
        rest.clear();
        rest.extend_from_slice(&buffer[at..filled]);
        let left = filled - at;
        *batch.buffer() = buffer;
        self.frames += batch.len() as u64;
        if let Some(error) = error {
            self.ended = true;
            return Err(error);
        }
        if self.ended && left > 0 {
            return Err(self.broken(at as u64, None));
        }
        self.before += at as u64;
        self.map_if_worth_it(batch);
        Ok(!self.ended)
    }

    /// After the first batch has shown how long frames are.
    fn map_if_worth_it(&mut self, batch: &Batch) {
        let bytes: u64 = batch.records().iter().map(|record| u64::from(record.captured)).sum();
        let Some(file) = self.file.take().filter(|_| bytes > MAP_FROM * batch.len() as u64 && !self.ended)
        else {
            return;
        };
        // SAFETY: the mapping is read only. Whoever shortens the file meanwhile ends this process with SIGBUS, as with
        // every tool that maps files; a file that grows is read up to its present end.
        if let Ok(map) = unsafe { Mmap::map(&file) } {
            // Advice may be ignored; it is no promise.
            let _ = map.advise(memmap2::Advice::Sequential);
            self.way = Way::Map { map: Arc::new(map), at: self.before as usize };
        }
    }

    fn map_batch(&mut self, batch: &mut Batch) -> Result<bool, CaptureError> {
        let Way::Map { map, at } = &mut self.way else { return Ok(false) };
        let (start, mut size) = (*at, WINDOW);
        let (consumed, parsed, is_last) = loop {
            let end = map.len().min(start + size);
            let (consumed, parsed) = self.format.parse(&map[start..end], 0, batch);
            if consumed > 0 || parsed.is_err() || end == map.len() {
                batch.window(map, start, end);
                break (consumed, parsed, end == map.len());
            }
            size *= 2;
        };
        *at += consumed;
        let left = map.len() - *at;
        self.frames += batch.len() as u64;
        self.read.store((start + consumed) as u64, Ordering::Relaxed);
        match parsed {
            Err(what) => return Err(self.broken(consumed as u64, Some(what))),
            Ok(()) if is_last && consumed == 0 && left > 0 => return Err(self.broken(0, None)),
            Ok(()) => {}
        }
        self.before += consumed as u64;
        self.ended = left == 0;
        Ok(!self.ended)
    }
}

impl Source for FileSource {
    fn next_batch(&mut self, batch: &mut Batch) -> Result<bool, CaptureError> {
        batch.reset(self.frames + 1);
        if self.ended {
            return Ok(false);
        }
        match self.way {
            Way::Read { .. } => self.read_batch(batch),
            Way::Map { .. } => self.map_batch(batch),
        }
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn progress(&self) -> (u64, Option<u64>) {
        (self.read.load(Ordering::Relaxed), self.total)
    }

    fn drops(&self) -> u64 {
        self.format.drops()
    }
}

/// Counts what is read of the file itself, compressed or not.
struct Counted {
    reader: Box<dyn Read + Send>,
    count: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(buffer)?;
        self.count.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

/// The first bytes, fewer only where there are no more.
fn start_of(reader: &mut dyn Read) -> io::Result<Vec<u8>> {
    let mut start = Vec::with_capacity(HEADER_LEN);
    match reader.take(HEADER_LEN as u64).read_to_end(&mut start) {
        // A compressed file that is cut this early: what there is says enough.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(start),
        other => other.map(|_| start),
    }
}

enum Packing {
    Gzip,
    Zstd,
}

impl Packing {
    /// RFC 1952 2.3.1, RFC 8878 3.1.1.
    fn of(start: &[u8]) -> Option<Packing> {
        match start {
            [0x1f, 0x8b, ..] => Some(Packing::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Packing::Zstd),
            _ => None,
        }
    }

    fn unpack(self, packed: impl Read + Send + 'static) -> io::Result<Box<dyn Read + Send>> {
        Ok(match self {
            Packing::Gzip => Box::new(flate2::read::MultiGzDecoder::new(packed)),
            Packing::Zstd => Box::new(zstd::stream::read::Decoder::new(packed)?),
        })
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    match bytes {
        [] => "nothing".to_owned(),
        _ => bytes.iter().take(8).map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" "),
    }
}
