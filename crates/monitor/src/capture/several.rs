//! Several interfaces as one source, side by side, in the order of their frames' times.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::interface::{self, PATIENCE, gone};
use super::{CaptureError, Source};
use crate::frame::Batch;

/// A frame waits so long for earlier ones of other interfaces: a packet socket keeps them for 50 milliseconds.
const HOLD: Duration = Duration::from_millis(60);
/// Pause while frames are held and nothing else comes.
const PAUSE: Duration = Duration::from_millis(5);
/// Batches of one interface that wait, at most; more stay where the kernel has them, or count as lost there.
const MOST: usize = 256;
/// Frames of a batch, about.
const BATCH: usize = 4096;

/// Interfaces that are listened to at the same time, numbered in the order given.
pub struct Several {
    members: Vec<Member>,
    /// Frames of all.
    before: u64,
    name: String,
    /// When it was last asked whether all interfaces are there.
    looked: Instant,
    /// Set when one is gone; told when all that was heard is in batches.
    gone: Option<CaptureError>,
    spare: Vec<Batch>,
}

/// An interface with what it has heard.
struct Member {
    source: Box<dyn Source>,
    heard: VecDeque<(Instant, Batch)>,
    /// The next frame of the first batch.
    next: usize,
}

impl Member {
    /// Time of its next frame, and when it was heard.
    fn first(&self) -> Option<(u64, Instant)> {
        let (when, batch) = self.heard.front()?;
        Some((batch.records()[self.next].time_ns, *when))
    }

    /// Takes what is there, without waiting.
    fn listen(&mut self, spare: &mut Vec<Batch>) -> Result<(), CaptureError> {
        while self.heard.len() < MOST {
            let mut batch = spare.pop().unwrap_or_default();
            self.source.take_ready(&mut batch)?;
            if batch.is_empty() {
                spare.push(batch);
                break;
            }
            self.heard.push_back((Instant::now(), batch));
        }
        Ok(())
    }

    fn hand_over(&mut self, number: usize, out: &mut Batch, spare: &mut Vec<Batch>) {
        let Some((_, batch)) = self.heard.front() else { return };
        let mut record = batch.records()[self.next];
        record.interface = number.min(usize::from(u16::MAX)) as u16;
        out.push_copy(record, batch.frame(self.next).data);
        self.next += 1;
        if self.next == batch.len() {
            self.next = 0;
            spare.extend(self.heard.pop_front().map(|(_, batch)| batch));
        }
    }
}

impl Several {
    pub fn side_by_side(sources: Vec<Box<dyn Source>>) -> Several {
        let name = sources.iter().map(|source| source.name()).collect::<Vec<_>>().join(", ");
        let member = |source| Member { source, heard: VecDeque::new(), next: 0 };
        let members = sources.into_iter().map(member).collect();
        Several { members, before: 0, name, looked: Instant::now(), gone: None, spare: Vec::new() }
    }

    /// Adds the frames before which none can come any more, earliest first.
    fn merge(&mut self, out: &mut Batch) {
        while out.len() < BATCH {
            let firsts = self.members.iter().enumerate();
            let earliest = firsts.filter_map(|(number, member)| Some((member.first()?, number))).min();
            let Some(((_, heard), number)) = earliest else { return };
            let is_last = self.gone.is_some() || heard.elapsed() >= HOLD;
            if !is_last && self.members.iter().any(|member| member.heard.is_empty()) {
                return;
            }
            self.members[number].hand_over(number, out, &mut self.spare);
        }
    }

    /// Waits for frames on any interface, and sees whether all are there.
    fn wait(&mut self, patience: Duration) -> Result<(), CaptureError> {
        self.looked = Instant::now();
        let of_member = |number: usize| {
            self.members[number].source.descriptors().into_iter().map(move |descriptor| (number, descriptor))
        };
        let (owners, descriptors): (Vec<usize>, Vec<_>) = (0..self.members.len()).flat_map(of_member).unzip();
        let failed = |name: &str, source| CaptureError::Io { name: name.to_owned(), source };
        let ended = interface::wait(&descriptors, patience.as_millis() as u16)
            .map_err(|error| failed(&self.name, error))?;
        if let Some(number) = ended.map(|at| owners[at]) {
            let member = &mut self.members[number];
            member.listen(&mut self.spare)?;
            self.gone = Some(failed(member.source.name(), gone()));
        }
        Ok(())
    }
}

impl Source for Several {
    fn next_batch(&mut self, out: &mut Batch) -> Result<bool, CaptureError> {
        out.reset(self.before + 1);
        out.buffer().clear();
        let (start, patience) = (Instant::now(), Duration::from_millis(PATIENCE.into()));
        loop {
            if self.gone.is_none() {
                self.members.iter_mut().try_for_each(|member| member.listen(&mut self.spare))?;
            }
            self.merge(out);
            let left = patience.saturating_sub(start.elapsed());
            let is_held = self.members.iter().any(|member| !member.heard.is_empty());
            match self.gone.take() {
                Some(gone) if out.is_empty() => return Err(gone),
                gone => self.gone = gone,
            }
            // Where the others always have something, one that is gone would never be waited for.
            if self.gone.is_none() && self.looked.elapsed() >= patience {
                self.wait(Duration::ZERO)?;
            }
            if !out.is_empty() || left.is_zero() {
                self.before += out.len() as u64;
                return Ok(true);
            }
            match is_held {
                // What waits here may make its interface readable all the time.
                true => std::thread::sleep(PAUSE),
                false if self.gone.is_none() => self.wait(left)?,
                false => {}
            }
        }
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn progress(&self) -> (u64, Option<u64>) {
        (self.members.iter().map(|member| member.source.progress().0).sum(), None)
    }

    fn is_live(&self) -> bool {
        true
    }

    fn drops(&self) -> u64 {
        self.members.iter().map(|member| member.source.drops()).sum()
    }
}
