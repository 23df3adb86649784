//! Capture files, compressed or not, and standard input.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use super::cooked::Cooked;
use super::input::{Got, Input};
use super::mapping::Mapping;
use super::{Broken, CaptureError, Format, Source};
use crate::frame::Batch;

/// Bytes read at a time: a part of the second-level cache, so that frames are still there when they are parsed.
const READ: usize = 128 << 10;
/// Bytes of a mapped file that one batch looks at.
const WINDOW: u64 = 1 << 20;
/// Files whose frames are longer than this on average are mapped: of a mapped frame only headers and end are touched,
/// while reading copies everything. Measured from the page cache, reading or mapping and parsing a frame takes: 35 or
/// 33 ns at 64 bytes, 59 or 72 ns at 350, 143 or 95 ns at 1500.
const MAP_FROM: u64 = 576;

/// A file or pipe in one of the formats.
pub struct FileSource {
    name: String,
    format: Format,
    access: Access,
    /// The plain file behind it, if it can be mapped.
    file: Option<File>,
    progress: u64,
    total: Option<u64>,
    frames: u64,
    /// Bytes of the (uncompressed) file before the present batch.
    before: u64,
    ended: bool,
    cooked: Cooked,
}

/// How bytes come.
enum Access {
    Read { input: Input, rest: Vec<u8> },
    Map(Mapping),
}

impl FileSource {
    /// A capture file, pipe or device; its format is known by its first bytes.
    pub fn open(path: &str) -> Result<FileSource, CaptureError> {
        let failed = |source| CaptureError::Io { name: path.to_owned(), source };
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if metadata.is_dir() {
            return Err(failed(io::Error::from(io::ErrorKind::IsADirectory)));
        }
        let plain = metadata.is_file().then(|| file.try_clone()).transpose().map_err(failed)?;
        let mut source = FileSource::new(path, file, plain)?;
        source.total = metadata.is_file().then_some(metadata.len());
        Ok(source)
    }

    /// A capture that is piped in; its format is known by its first bytes.
    pub fn standard_input() -> Result<FileSource, CaptureError> {
        let name = "standard input";
        match io::stdin().as_fd().try_clone_to_owned() {
            Ok(fd) => FileSource::new(name, File::from(fd), None),
            Err(source) => Err(CaptureError::Io { name: name.to_owned(), source }),
        }
    }

    fn new(name: &str, file: File, plain: Option<File>) -> Result<FileSource, CaptureError> {
        let name = name.to_owned();
        let (input, start) = match Input::new(file) {
            Ok(input) => input,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(CaptureError::Cut { name, at: 0, frames: 0 });
            }
            Err(source) => return Err(CaptureError::Io { name, source }),
        };
        let format = match Format::of(&start) {
            Ok(Some(format)) => format,
            Ok(None) => return Err(CaptureError::NotACapture { start: hexadecimal(&start), name }),
            Err(what) => return Err(CaptureError::Damaged { name, at: 0, frames: 0, what }),
        };
        let file = plain.filter(|_| !input.is_packed);
        let access = Access::Read { input, rest: start };
        let (progress, total, frames, before, ended) = (0, None, 0, 0, false);
        let cooked = Cooked::default();
        Ok(FileSource { name, format, access, file, progress, total, frames, before, ended, cooked })
    }

    /// Time of the first frame, if there is one that can be read.
    pub fn first_time(mut self) -> Option<u64> {
        let mut batch = Batch::default();
        loop {
            let more = self.next_batch(&mut batch);
            if let Some(record) = batch.records().first() {
                return Some(record.time_ns);
            }
            if !matches!(more, Ok(true)) {
                return None;
            }
        }
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

    fn io(&mut self, source: io::Error) -> CaptureError {
        self.ended = true;
        CaptureError::Io { name: self.name.clone(), source }
    }

    /// A batch of what was read and of what the batch before left over.
    fn read_batch(&mut self, batch: &mut Batch) -> Result<bool, CaptureError> {
        let Access::Read { input, rest } = &mut self.access else { return Ok(false) };
        // The buffer keeps its length, so that it is not zeroed each time.
        let mut buffer = std::mem::take(batch.buffer());
        let kept = rest.len();
        // A record that is longer than what was read so far is read in larger and larger pieces.
        let wanted = kept + READ.max(kept);
        if buffer.len() < wanted {
            buffer.resize(wanted, 0);
        }
        buffer[..kept].copy_from_slice(rest);
        let got = input.read(&mut buffer[kept..wanted]);
        let filled = kept + if let Ok(Got::Bytes(length)) = got { length } else { 0 };
        let (at, parsed) = self.format.parse(&buffer[..filled], 0, batch);
        rest.clear();
        rest.extend_from_slice(&buffer[at..filled]);
        self.progress = input.count.load(Ordering::Relaxed);
        let (left, is_packed) = (rest.len(), input.is_packed);
        *batch.buffer() = buffer;
        self.frames += batch.len() as u64;
        self.before += at as u64;
        parsed.map_err(|what| self.broken(0, Some(what)))?;
        match got {
            // A whole file ends here, but what is left of a larger one may end between two records too.
            Ok(Got::End)
                if left > 0 || (!is_packed && self.total.is_some_and(|total| self.progress < total)) =>
            {
                Err(self.broken(0, None))
            }
            Ok(Got::End) => {
                self.ended = true;
                Ok(false)
            }
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(self.broken(0, None)),
            Err(error) if is_packed => Err(self.broken(0, Some(format!("it does not decompress ({error})")))),
            Err(error) => Err(self.io(error)),
            Ok(Got::Silence) => Ok(true),
            Ok(Got::Bytes(_)) => {
                self.map_if_worth_it(batch);
                Ok(true)
            }
        }
    }

    /// After the first frames have shown how long they are.
    fn map_if_worth_it(&mut self, batch: &Batch) {
        if batch.is_empty() {
            return;
        }
        let bytes: u64 = batch.records().iter().map(|record| u64::from(record.captured)).sum();
        let file = self.file.take().filter(|_| bytes > MAP_FROM * batch.len() as u64);
        // What cannot be mapped is read on.
        if let Some(Ok(mapping)) = file.map(Mapping::new) {
            self.access = Access::Map(mapping);
        }
    }

    fn map_batch(&mut self, batch: &mut Batch) -> Result<bool, CaptureError> {
        let Access::Map(mapping) = &mut self.access else { return Ok(false) };
        mapping.look();
        if self.before >= mapping.size {
            self.ended = true;
            return if mapping.shrank { Err(self.broken(0, None)) } else { Ok(false) };
        }
        let mut length = WINDOW;
        let (consumed, parsed) = loop {
            let (start, end) = match mapping.window(self.before, length) {
                Ok(window) => window,
                Err(error) => return Err(self.io(error)),
            };
            let bytes = &mapping.piece[start..end];
            let (consumed, parsed) = self.format.parse(bytes, 0, batch);
            if consumed > 0 || parsed.is_err() || self.before + length >= mapping.size {
                batch.window(&mapping.piece, start, end);
                break (consumed, parsed);
            }
            length *= 2;
        };
        mapping.look();
        if mapping.shrank {
            // Records may have been read where the file was not any more.
            batch.cut(mapping.size.saturating_sub(self.before));
            self.frames += batch.len() as u64;
            let end =
                batch.records().last().map_or(0, |last| u64::from(last.offset) + u64::from(last.captured));
            return Err(self.broken(end, None));
        }
        self.frames += batch.len() as u64;
        self.before += consumed as u64;
        self.progress = self.before;
        parsed.map_err(|what| self.broken(0, Some(what)))?;
        if consumed == 0 { Err(self.broken(0, None)) } else { Ok(true) }
    }
}

impl Source for FileSource {
    fn next_batch(&mut self, batch: &mut Batch) -> Result<bool, CaptureError> {
        batch.reset(self.frames + 1);
        if self.ended {
            return Ok(false);
        }
        let result = match self.access {
            Access::Read { .. } => self.read_batch(batch),
            Access::Map { .. } => self.map_batch(batch),
        };
        self.cooked.number(batch);
        result
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn progress(&self) -> (u64, Option<u64>) {
        (self.progress, self.total)
    }

    fn drops(&self) -> u64 {
        self.format.drops()
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    match bytes {
        [] => "nothing".to_owned(),
        _ => bytes.iter().take(8).map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" "),
    }
}
