//! Several sources as one: files one after the other, interfaces side by side.

use super::{CaptureError, Source};
use crate::frame::Batch;

/// Files of one capture, in the order given, as rotating captures leave them. Channels go on from file to file.
pub struct InTurn {
    sources: Vec<Box<dyn Source>>,
    present: usize,
    /// Frames of the files before the present one.
    before: u64,
    /// Frames of the present file.
    frames: u64,
    name: String,
}

/// Interfaces that are listened to at the same time, numbered in the order given.
pub struct SideBySide {
    sources: Vec<Box<dyn Source>>,
    present: usize,
    frames: u64,
    name: String,
}

fn name_of(sources: &[Box<dyn Source>]) -> String {
    sources.iter().map(|source| source.name()).collect::<Vec<_>>().join(", ")
}

fn sum_of(sources: &[Box<dyn Source>]) -> (u64, Option<u64>) {
    let all = sources.iter().map(|source| source.progress());
    all.fold((0, Some(0)), |(read, total), (more, size)| {
        (read + more, total.zip(size).map(|(total, size)| total + size))
    })
}

impl InTurn {
    pub fn new(sources: Vec<Box<dyn Source>>) -> InTurn {
        InTurn { name: name_of(&sources), sources, present: 0, before: 0, frames: 0 }
    }
}

impl Source for InTurn {
    fn next_batch(&mut self, batch: &mut Batch) -> Result<bool, CaptureError> {
        let Some(source) = self.sources.get_mut(self.present) else { return Ok(false) };
        let result = source.next_batch(batch);
        self.frames += batch.len() as u64;
        batch.number_from(self.before + batch.first_number());
        if !result? {
            self.present += 1;
            self.before += self.frames;
            self.frames = 0;
        }
        Ok(self.present < self.sources.len())
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn progress(&self) -> (u64, Option<u64>) {
        sum_of(&self.sources)
    }

    fn drops(&self) -> u64 {
        self.sources.iter().map(|source| source.drops()).sum()
    }
}

impl SideBySide {
    pub fn new(sources: Vec<Box<dyn Source>>) -> SideBySide {
        SideBySide { name: name_of(&sources), sources, present: 0, frames: 0 }
    }
}

impl Source for SideBySide {
    fn next_batch(&mut self, batch: &mut Batch) -> Result<bool, CaptureError> {
        let number = self.present;
        self.present = (number + 1) % self.sources.len();
        let more = self.sources[number].next_batch(batch)?;
        batch.number_from(self.frames + 1);
        batch.set_interface(number.min(usize::from(u16::MAX)) as u16);
        self.frames += batch.len() as u64;
        Ok(more)
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn progress(&self) -> (u64, Option<u64>) {
        sum_of(&self.sources)
    }

    fn drops(&self) -> u64 {
        self.sources.iter().map(|source| source.drops()).sum()
    }
}
