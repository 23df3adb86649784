//! The gateway's own messages on their way to the hosts and files of `system syslog`.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;
use std::{io, thread};

use sluice_language::{Chosen, SystemLog};

use super::message::{host, own};
use super::{Output, Rate, Wanted, kept_or_started};
use crate::api::LogFields;
use crate::commit::Shared;
use crate::kernel::clock::unix_ms;
use crate::state::messages::{Said, listen, unheard};

/// Messages a second beyond which they are only counted; a gateway that is well says a few a day.
const RATE_CAP: u64 = 1000;
/// How soon a configuration that is in force by now is followed where nothing is said.
const LOOK: Duration = Duration::from_secs(1);

/// Sends messages for as long as the process lives.
pub fn start(shared: Arc<Shared>) -> io::Result<()> {
    let Some(said) = listen() else { return Ok(()) };
    let send = move || {
        let mut outputs = OwnOutputs::default();
        loop {
            let message = said.recv_timeout(LOOK);
            outputs.follow(&shared);
            match message {
                Ok(message) => outputs.send(&message),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    };
    thread::Builder::new().name("messages".to_owned()).spawn(send).map(drop)
}

/// Hosts and files of the configuration in force, and what each gets.
#[derive(Default)]
struct OwnOutputs {
    generation: u32,
    host: String,
    rate: Rate,
    outputs: Vec<(Output, Chosen)>,
}

impl OwnOutputs {
    fn follow(&mut self, shared: &Shared) {
        let active = shared.active();
        if active.generation != self.generation {
            self.generation = active.generation;
            self.host = host(active.config.system.host_name.as_deref());
            self.become_as(&active.config.system.syslog);
            let counts = self.outputs.iter().map(|(output, _)| output.queue.counts.clone());
            shared.log.set_own_outputs(counts.collect());
        }
        if let Some(count) = self.rate.ended(unix_ms()) {
            self.queue(&loss("messages were left out: there were too many within a second", count));
        }
        let count = unheard();
        if count > 0 && !self.outputs.is_empty() {
            self.queue(&loss(
                "messages found no room on the way here, for outputs that may not have chosen them",
                count,
            ));
        }
    }

    fn become_as(&mut self, log: &SystemLog) {
        let before = std::mem::take(&mut self.outputs);
        let mut before = before.into_iter().map(|(output, _)| output).collect();
        let hosts = log.hosts.iter().map(|host| (Wanted::Stream(host.to.clone()), &host.chosen));
        let files = log.files.iter().map(|file| (Wanted::File(file.to.clone()), &file.chosen));
        let start = |(wanted, chosen): (Wanted, &Chosen)| {
            let output = kept_or_started(&mut before, wanted, Output::start_own, "`system syslog`")?;
            Some((output, chosen.clone()))
        };
        self.outputs = files.chain(hosts).filter_map(start).collect();
    }

    fn send(&mut self, said: &Said) {
        if self.outputs.is_empty() {
            return;
        }
        if self.rate.admits(RATE_CAP) {
            return self.queue(said);
        }
        for (output, chosen) in &self.outputs {
            let is_lost = chosen.has(said.facility, said.severity);
            output.queue.counts.lost_rate.fetch_add(is_lost.into(), Ordering::Relaxed);
        }
    }

    fn queue(&self, said: &Said) {
        for (output, chosen) in &self.outputs {
            if !chosen.has(said.facility, said.severity) {
                continue;
            }
            let lost = |count: u64| {
                let said = loss("messages found no room to wait in", count);
                own(&said, &self.host, chosen.structured).into()
            };
            output.queue.push(&own(said, &self.host, chosen.structured).into(), lost);
        }
    }
}

fn loss(text: &str, count: u64) -> Said {
    const WARNING: u8 = 4;
    let mut fields = LogFields::default();
    fields.add("count", count);
    Said::new("", WARNING, text.to_owned(), fields)
}
