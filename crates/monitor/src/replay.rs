//! A capture played in the time that it took when it was captured.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::analysis::Control;
use crate::capture::{CaptureError, Source};
use crate::frame::Batch;

/// Longest pause at a time, so that a replay can be ended.
const NAP: Duration = Duration::from_millis(50);

/// Hands frames on when they are due.
pub(crate) struct Paced {
    source: Box<dyn Source>,
    /// Frames that wait for their time, those from `next` on, and what the source said behind them.
    batch: Batch,
    next: usize,
    more: Result<bool, CaptureError>,
    /// When the first frame was played, and its time.
    began: Option<(Instant, u64)>,
    control: Arc<Control>,
}

impl Paced {
    pub fn new(source: Box<dyn Source>, control: Arc<Control>) -> Paced {
        Paced { source, batch: Batch::default(), next: 0, more: Ok(true), began: None, control }
    }

    /// How far a time is away, at the pace of the capture.
    fn until(&mut self, time_ns: u64) -> Duration {
        let (began, first_ns) = *self.began.get_or_insert_with(|| (Instant::now(), time_ns));
        Duration::from_nanos(time_ns.saturating_sub(first_ns)).saturating_sub(began.elapsed())
    }

    fn due(&mut self, out: &mut Batch) {
        while let Some(record) = self.batch.records().get(self.next).copied() {
            let wait = self.until(record.time_ns);
            if !wait.is_zero() {
                if out.is_empty() {
                    std::thread::sleep(wait.min(NAP));
                }
                break;
            }
            out.push_copy(record, self.batch.frame(self.next).data);
            self.next += 1;
        }
    }
}

impl Source for Paced {
    fn next_batch(&mut self, out: &mut Batch) -> Result<bool, CaptureError> {
        if self.next == self.batch.len() && matches!(self.more, Ok(true)) {
            self.more = self.source.next_batch(&mut self.batch);
            self.next = 0;
        }
        out.reset(self.batch.first_number() + self.next as u64);
        out.buffer().clear();
        // Who ends the run waits for nothing any more.
        if !self.control.stop.load(Ordering::Relaxed) {
            self.due(out);
        }
        match self.next < self.batch.len() {
            true => Ok(true),
            false => std::mem::replace(&mut self.more, Ok(false)).inspect(|more| self.more = Ok(*more)),
        }
    }

    fn name(&self) -> &str {
        self.source.name()
    }

    fn progress(&self) -> (u64, Option<u64>) {
        self.source.progress()
    }

    fn is_live(&self) -> bool {
        self.source.is_live()
    }

    fn drops(&self) -> u64 {
        self.source.drops()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Record;

    /// A second of frames in one batch, as a file has it, and damage behind them.
    struct Second(u64);

    impl Source for Second {
        fn next_batch(&mut self, batch: &mut Batch) -> Result<bool, CaptureError> {
            batch.reset(self.0 + 1);
            batch.buffer().clear();
            for number in 0..if self.0 == 0 { 11u8 } else { 0 } {
                let record = Record { time_ns: u64::from(number) * 100_000_000, ..Record::default() };
                batch.push_copy(record, &[number; 60]);
            }
            self.0 += batch.len() as u64;
            match batch.is_empty() {
                true => Err(CaptureError::Cut { name: "x".to_owned(), at: 0, frames: self.0 }),
                false => Ok(true),
            }
        }

        fn name(&self) -> &str {
            "x"
        }

        fn progress(&self) -> (u64, Option<u64>) {
            (self.0, Some(11))
        }
    }

    #[test]
    fn frames_are_played_when_they_are_due() {
        let control = Arc::new(Control::default());
        let mut paced = Paced::new(Box::new(Second(0)), Arc::clone(&control));
        let (mut batch, start, mut seen) = (Batch::default(), Instant::now(), 0);
        while paced.next_batch(&mut batch).is_ok() {
            let now = start.elapsed().as_millis() as u64;
            for frame in batch.frames() {
                let due = frame.time_ns / 1_000_000;
                assert!((due..due + 90).contains(&now), "frame {} at {now} ms", frame.number);
                seen += 1;
                assert_eq!((frame.number, frame.data), (seen, &[seen as u8 - 1; 60][..]));
            }
        }
        assert_eq!(seen, 11);
        let (mut paced, start) = (Paced::new(Box::new(Second(0)), Arc::clone(&control)), Instant::now());
        control.stop.store(true, Ordering::Relaxed);
        assert!(paced.next_batch(&mut batch).is_ok() && start.elapsed() < Duration::from_millis(90));
    }
}
