//! Files of one capture, in the order of their first frames, as rotating captures leave them. Channels go on from file to
//! file.

use std::collections::VecDeque;
use std::path::Path;

use super::file::FileSource;
use super::{CaptureError, Source};
use crate::frame::Batch;

/// Opens each file at its turn: there may be more of them than a process can have open.
pub(super) struct Rotated {
    waiting: VecDeque<String>,
    present: Option<FileSource>,
    /// Frames, bytes and drops of the files before the present one.
    before: u64,
    bytes_before: u64,
    drops_before: u64,
    /// Frames of the present file.
    frames: u64,
    /// Bytes of all, where they are files.
    total: Option<u64>,
    name: String,
    /// Files that could not be read to their end.
    broken: Vec<CaptureError>,
}

impl Rotated {
    /// Fails at once where one of them is no capture.
    pub fn open(names: &[String]) -> Result<Rotated, CaptureError> {
        let is_file = |name: &String| Path::new(name).metadata().is_ok_and(|metadata| metadata.is_file());
        let mut names = names.to_vec();
        for name in names.iter().filter(|name| *name != "-" && !Path::new(name).exists()) {
            // says so
            FileSource::open(name)?;
        }
        // What comes through a pipe can be read only once.
        if names.iter().all(is_file) {
            let first_time = |name: &String| match FileSource::open(name) {
                Ok(source) => Ok(source.first_time()),
                Err(CaptureError::Cut { .. } | CaptureError::Damaged { .. }) => Ok(None),
                Err(error) => Err(error),
            };
            let mut timed = Vec::with_capacity(names.len());
            for name in names {
                timed.push((first_time(&name)?, name));
            }
            // Files without a frame change nothing wherever they stand.
            timed.sort_by_key(|(first_ns, _)| *first_ns);
            names = timed.into_iter().map(|(_, name)| name).collect();
        }
        let size =
            |name: &String| Path::new(name).metadata().ok().filter(|of| of.is_file()).map(|of| of.len());
        Ok(Rotated {
            total: names.iter().map(size).sum(),
            name: names.join(", "),
            waiting: names.into(),
            present: None,
            before: 0,
            bytes_before: 0,
            drops_before: 0,
            frames: 0,
            broken: Vec::new(),
        })
    }

    /// The file that is read, or the next one; none where all are.
    fn present(&mut self) -> Option<&mut FileSource> {
        while self.present.is_none() {
            let name = self.waiting.pop_front()?;
            let opened = if name == "-" { FileSource::standard_input() } else { FileSource::open(&name) };
            match opened {
                Ok(source) => self.present = Some(source),
                Err(error) => self.broken.push(error),
            }
        }
        self.present.as_mut()
    }

    fn close(&mut self) {
        if let Some(source) = self.present.take() {
            self.before += std::mem::take(&mut self.frames);
            self.drops_before += source.drops();
            let (read, size) = source.progress();
            self.bytes_before += size.unwrap_or(read);
        }
    }

    /// What is to be said behind the last file.
    fn end(&mut self) -> Result<bool, CaptureError> {
        match self.broken.len() {
            0 => Ok(false),
            1 => Err(self.broken.remove(0)),
            _ => {
                let what = self.broken.drain(..).map(|error| error.to_string()).collect::<Vec<_>>();
                Err(CaptureError::Several { what: what.join("; ") })
            }
        }
    }
}

impl Source for Rotated {
    fn next_batch(&mut self, batch: &mut Batch) -> Result<bool, CaptureError> {
        batch.reset(self.before + 1);
        let before = self.before;
        let Some(source) = self.present() else { return self.end() };
        let result = source.next_batch(batch);
        batch.number_from(before + batch.first_number());
        self.frames += batch.len() as u64;
        let more = result.unwrap_or_else(|error| {
            self.broken.push(error);
            false
        });
        if !more {
            self.close();
        }
        match !more && self.waiting.is_empty() {
            true => self.end(),
            false => Ok(true),
        }
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn progress(&self) -> (u64, Option<u64>) {
        (self.bytes_before + self.present.as_ref().map_or(0, |source| source.progress().0), self.total)
    }

    fn drops(&self) -> u64 {
        self.drops_before + self.present.as_ref().map_or(0, Source::drops)
    }
}
