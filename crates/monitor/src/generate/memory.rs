//! A generated capture as a source: no file, no disk.

use crate::capture::{CaptureError, Source};
use crate::frame::{Batch, Record};

use super::truth::{Event, Tally, Truth};
use super::{Generator, Options, OptionsError};

/// Bytes of a batch.
const BATCH: usize = 256 << 10;

/// Frames straight from the generator.
pub struct Synthetic {
    generator: Generator,
    events: Vec<Event>,
}

impl Synthetic {
    /// The same frames as a file made with these options.
    pub fn new(options: Options) -> Result<Self, OptionsError> {
        Ok(Synthetic { generator: Generator::new(options)?, events: Vec::new() })
    }

    /// What was planted so far.
    pub fn truth(&self) -> Truth {
        Truth {
            command: String::new(),
            events: self.events.clone(),
            channels: self.generator.tallies().map(Tally::channel).collect(),
            clear: self.generator.clear(),
            totals: self.generator.totals(),
        }
    }
}

impl Source for Synthetic {
    fn next_batch(&mut self, batch: &mut Batch) -> Result<bool, CaptureError> {
        batch.reset(self.generator.totals().frames + 1);
        batch.buffer().clear();
        while batch.buffer().len() < BATCH {
            let start = batch.buffer().len();
            let next = self.generator.next(batch.buffer(), &mut self.events);
            let failed = |source| CaptureError::Io { name: "generator".to_owned(), source };
            let Some(time_ns) = next.map_err(failed)? else { return Ok(false) };
            let length = (batch.buffer().len() - start) as u32;
            batch.push(Record {
                time_ns,
                offset: start as u32,
                captured: length,
                wire_len: length,
                ..Record::default()
            });
        }
        Ok(true)
    }

    fn name(&self) -> &str {
        "generator"
    }

    fn progress(&self) -> (u64, Option<u64>) {
        (self.generator.totals().bytes, None)
    }
}
