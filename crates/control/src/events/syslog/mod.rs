//! Where entries go that leave this host: `security log`. Each output has a queue and a thread, so that whoever reads
//! events never waits for a collector or a disk.

mod file;
mod message;
mod own;
mod queue;
mod stream;
mod tls;
mod writer;

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use sluice_language::{LogFile, LogStream, SecurityLog};

pub use self::own::start;

use self::message::{Writer, host};
use self::queue::{Message, Queue};
use self::writer::write;
use crate::api::{LogEntry, LogFields};
use crate::commit::Shared;
use crate::kernel::clock::unix_ms;
use crate::state::session_log::OutputCounts;

/// What an output is made from: it goes on for as long as this stays the same.
#[derive(PartialEq, Eq, Clone)]
enum Wanted {
    File(LogFile),
    Stream(LogStream),
}

impl Wanted {
    fn name(&self) -> &str {
        match self {
            Self::File(file) => &file.name,
            Self::Stream(stream) => &stream.name,
        }
    }

    fn transport(&self) -> &'static str {
        match self {
            Self::File(_) => "file",
            Self::Stream(stream) => stream.transport.name(),
        }
    }
}

struct Output {
    wanted: Wanted,
    queue: Arc<Queue>,
}

impl Output {
    /// One of the session log.
    fn start(wanted: Wanted) -> io::Result<Self> {
        let counts = OutputCounts::new(wanted.name(), wanted.transport());
        Self::with(counts, wanted)
    }

    /// One of `system syslog`; its statement is its name, which no stream can have.
    fn start_own(wanted: Wanted) -> io::Result<Self> {
        let kind = if matches!(wanted, Wanted::File(_)) { "file" } else { "host" };
        let counts =
            OutputCounts::own(&format!("system syslog {kind} {}", wanted.name()), wanted.transport());
        Self::with(counts, wanted)
    }

    fn with(counts: OutputCounts, wanted: Wanted) -> io::Result<Self> {
        let queue = Arc::new(Queue::new(Arc::new(counts)));
        let (own, to) = (queue.clone(), wanted.clone());
        thread::Builder::new().name("syslog".to_owned()).spawn(move || match to {
            Wanted::File(to) => write(&own, file::Rotated::new(to)),
            Wanted::Stream(to) => stream::run(&own, to),
        })?;
        Ok(Self { wanted, queue })
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        self.queue.close();
    }
}

/// The one that goes on, else a new one; None: there is no thread for it.
fn kept_or_started(
    before: &mut Vec<Output>,
    wanted: Wanted,
    start: fn(Wanted) -> io::Result<Output>,
    log: &str,
) -> Option<Output> {
    if let Some(kept) = before.iter().position(|output| output.wanted == wanted) {
        return Some(before.swap_remove(kept));
    }
    start(wanted).inspect_err(|error| tracing::error!(%error, "no thread for an output of {log}")).ok()
}

/// The outputs of the configuration in force.
#[derive(Default)]
pub struct Outputs {
    generation: u32,
    writer: Writer,
    rate_cap: u64,
    rate: Rate,
    outputs: Vec<Output>,
}

impl Outputs {
    /// Becomes what the configuration in force wants, and tells of what a second had too much of.
    pub fn follow(&mut self, shared: &Shared) {
        let active = shared.active();
        if active.generation != self.generation {
            self.generation = active.generation;
            self.writer.host = host(active.config.system.host_name.as_deref());
            self.become_as(&active.config.log);
            shared.log.set_outputs(self.outputs.iter().map(|output| output.queue.counts.clone()).collect());
        }
        if let Some(left_out) = self.rate.ended(unix_ms()) {
            self.queue(&notice("rate", left_out));
        }
    }

    fn become_as(&mut self, log: &SecurityLog) {
        self.rate_cap = log.rate_cap.into();
        let mut before = std::mem::take(&mut self.outputs);
        let streams = log.streams.iter().cloned().map(Wanted::Stream);
        let wanted = log.file.iter().cloned().map(Wanted::File).chain(streams);
        let start = |wanted| kept_or_started(&mut before, wanted, Output::start, "the session log");
        self.outputs = wanted.filter_map(start).collect();
    }

    /// False: no stream or file is configured.
    pub fn send(&mut self, entry: &LogEntry) -> bool {
        if self.outputs.is_empty() {
            return false;
        }
        if self.rate.admits(self.rate_cap) {
            self.queue(entry);
        } else {
            for output in &self.outputs {
                output.queue.counts.lost_rate.fetch_add(1, Ordering::Relaxed);
            }
        }
        true
    }

    fn queue(&mut self, entry: &LogEntry) {
        let text: Message = self.writer.message(entry).into();
        for output in &self.outputs {
            output.queue.push(&text, |lost| self.writer.message(&notice("full", lost)).into());
        }
    }
}

/// Entries of the current second.
#[derive(Default)]
struct Rate {
    second: u64,
    admitted: u64,
    left_out: u64,
}

impl Rate {
    /// How many a second that is over has left out, if any.
    fn ended(&mut self, unix_ms: u64) -> Option<u64> {
        let second = unix_ms / 1000;
        if second == self.second {
            return None;
        }
        let before = std::mem::replace(self, Rate { second, ..Rate::default() });
        (before.left_out > 0).then_some(before.left_out)
    }

    fn admits(&mut self, cap: u64) -> bool {
        let admits = self.admitted < cap;
        if admits {
            self.admitted += 1;
        } else {
            self.left_out += 1;
        }
        admits
    }
}

/// Says in the log itself what is missing there.
fn notice(cause: &str, count: u64) -> LogEntry {
    let mut fields = LogFields::default();
    fields.add("cause", cause);
    fields.add("count", count);
    LogEntry { unix_ms: unix_ms(), event: "RT_LOG_LEFT_OUT".into(), fields }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_second_leaves_out_is_told_when_it_is_over() {
        let mut rate = Rate::default();
        assert_eq!(rate.ended(5_000), None);
        let admitted = (0..7).filter(|_| rate.admits(3)).count();
        assert_eq!((admitted, rate.ended(5_999), rate.ended(6_000)), (3, None, Some(4)));
        assert!(rate.admits(3));
        assert_eq!(rate.ended(7_000), None);
    }
}
