//! Several sources as one: files one after the other, interfaces side by side.

use super::{CaptureError, Source};
use crate::frame::Batch;

/// How the sources follow each other.
enum Order {
    /// Files of one capture, in the order given, as rotating captures leave them. Channels go on from file to file.
    InTurn,
    /// Interfaces that are listened to at the same time, numbered in the order given.
    SideBySide,
}

pub struct Several {
    sources: Vec<Box<dyn Source>>,
    order: Order,
    present: usize,
    /// Frames of the sources before the present one, in turn; of all, side by side.
    before: u64,
    /// Frames of the present file.
    frames: u64,
    name: String,
}

impl Several {
    pub fn in_turn(sources: Vec<Box<dyn Source>>) -> Several {
        Several::new(sources, Order::InTurn)
    }

    pub fn side_by_side(sources: Vec<Box<dyn Source>>) -> Several {
        Several::new(sources, Order::SideBySide)
    }

    fn new(sources: Vec<Box<dyn Source>>, order: Order) -> Several {
        let name = sources.iter().map(|source| source.name()).collect::<Vec<_>>().join(", ");
        Several { sources, order, present: 0, before: 0, frames: 0, name }
    }

    fn next_in_turn(&mut self, batch: &mut Batch) -> Result<bool, CaptureError> {
        let Some(source) = self.sources.get_mut(self.present) else { return Ok(false) };
        let result = source.next_batch(batch);
        self.frames += batch.len() as u64;
        batch.number_from(self.before + batch.first_number());
        if !result? {
            self.present += 1;
            self.before += std::mem::take(&mut self.frames);
        }
        Ok(self.present < self.sources.len())
    }

    fn next_beside(&mut self, batch: &mut Batch) -> Result<bool, CaptureError> {
        let number = self.present;
        self.present = (number + 1) % self.sources.len();
        let more = self.sources[number].next_batch(batch)?;
        batch.number_from(self.before + 1);
        batch.set_interface(number.min(usize::from(u16::MAX)) as u16);
        self.before += batch.len() as u64;
        Ok(more)
    }
}

impl Source for Several {
    fn next_batch(&mut self, batch: &mut Batch) -> Result<bool, CaptureError> {
        match self.order {
            Order::InTurn => self.next_in_turn(batch),
            Order::SideBySide => self.next_beside(batch),
        }
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
