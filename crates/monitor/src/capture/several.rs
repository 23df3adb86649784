//! Several interfaces as one source, side by side.

use std::time::{Duration, Instant};

use super::interface::{self, PATIENCE, gone};
use super::{CaptureError, Source};
use crate::frame::Batch;

/// Interfaces that are listened to at the same time, numbered in the order given.
pub struct Several {
    sources: Vec<Box<dyn Source>>,
    present: usize,
    /// Frames of all.
    before: u64,
    name: String,
    /// When it was last asked whether all interfaces are there.
    looked: Instant,
}

impl Several {
    pub fn side_by_side(sources: Vec<Box<dyn Source>>) -> Several {
        let name = sources.iter().map(|source| source.name()).collect::<Vec<_>>().join(", ");
        Several { sources, present: 0, before: 0, name, looked: Instant::now() }
    }

    /// Asks one after the other what has come until one has something; none of them may hold up the others.
    fn take_round(&mut self, batch: &mut Batch) -> Result<bool, CaptureError> {
        for _ in 0..self.sources.len() {
            let number = self.present;
            self.present = (number + 1) % self.sources.len();
            if self.take(number, batch)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn take(&mut self, number: usize, batch: &mut Batch) -> Result<bool, CaptureError> {
        self.sources[number].take_ready(batch)?;
        batch.number_from(self.before + 1);
        batch.set_interface(number.min(usize::from(u16::MAX)) as u16);
        self.before += batch.len() as u64;
        Ok(!batch.is_empty())
    }

    /// Waits for frames on any interface. One that is gone is an error when all that it had is in batches.
    fn wait(&mut self, patience_ms: u16, batch: &mut Batch) -> Result<(), CaptureError> {
        self.looked = Instant::now();
        let of_source = |number: usize| {
            self.sources[number].descriptors().into_iter().map(move |descriptor| (number, descriptor))
        };
        let (owners, descriptors): (Vec<usize>, Vec<_>) = (0..self.sources.len()).flat_map(of_source).unzip();
        let failed = |name: &str, source| CaptureError::Io { name: name.to_owned(), source };
        let ended = interface::wait(&descriptors, patience_ms).map_err(|error| failed(&self.name, error))?;
        let Some(number) = ended.map(|at| owners[at]) else { return Ok(()) };
        match self.take(number, batch)? {
            true => Ok(()),
            false => Err(failed(self.sources[number].name(), gone())),
        }
    }
}

impl Source for Several {
    fn next_batch(&mut self, batch: &mut Batch) -> Result<bool, CaptureError> {
        batch.reset(self.before + 1);
        // Where the others always have something, one that is gone would never be waited for.
        if self.looked.elapsed() >= Duration::from_millis(PATIENCE.into()) {
            self.wait(0, batch)?;
        }
        if batch.is_empty() && !self.take_round(batch)? {
            self.wait(PATIENCE, batch)?;
            if batch.is_empty() {
                self.take_round(batch)?;
            }
        }
        Ok(true)
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn progress(&self) -> (u64, Option<u64>) {
        let all = self.sources.iter().map(|source| source.progress());
        all.fold((0, Some(0)), |(read, total), (more, size)| {
            (read + more, total.zip(size).map(|(total, size)| total + size))
        })
    }

    fn is_live(&self) -> bool {
        self.sources.iter().any(|source| source.is_live())
    }

    fn drops(&self) -> u64 {
        self.sources.iter().map(|source| source.drops()).sum()
    }
}
