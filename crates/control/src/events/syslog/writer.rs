//! From a queue to where it goes.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::queue::{Message, Queue};
use crate::state::messages::OWN_OUTPUTS;
use crate::state::session_log::OutputCounts;

/// How long to wait before something that has failed is tried again.
const RETRY: Duration = Duration::from_secs(1);

pub trait Destination {
    /// Hands over messages from the first on: how many whole ones, and what stopped it.
    fn send(&mut self, messages: &VecDeque<Message>) -> (usize, io::Result<()>);

    /// What has failed once is not sent again.
    fn gives_up(&self) -> bool {
        false
    }

    /// For the log.
    fn place(&self) -> String;

    /// What is amiss though messages get through.
    fn trouble(&self) -> Option<String> {
        None
    }
}

/// Writes until the queue is closed and empty, or closed and out of reach.
pub fn write(queue: &Queue, mut to: impl Destination) {
    let counts = &queue.counts;
    while let Some(mut batch) = queue.take() {
        while !batch.is_empty() {
            let (whole, result) = to.send(&batch);
            batch.drain(..whole);
            counts.sent.fetch_add(whole as u64, Ordering::Relaxed);
            let error = match result {
                Ok(()) => {
                    let trouble = to.trouble();
                    if whole > 0 && counts.set_error(trouble.clone()) {
                        tell(counts, trouble.map_or(Said::GetThrough, Said::Amiss));
                    }
                    continue;
                }
                Err(error) => error,
            };
            if counts.set_error(Some(error.to_string())) {
                tell(counts, Said::Stopped(&to.place(), &error));
            }
            if to.gives_up() {
                counts.lost_refused.fetch_add(u64::from(batch.pop_front().is_some()), Ordering::Relaxed);
            } else if !queue.pause(RETRY) {
                return given_up(queue, batch.len() as u64);
            }
        }
    }
}

/// Nobody takes what still waits for an output that has been changed or ended.
fn given_up(queue: &Queue, under_way: u64) {
    let mut count = under_way;
    while let Some(batch) = queue.take() {
        count += batch.len() as u64;
    }
    let counts = &queue.counts;
    counts.lost_full.fetch_add(count, Ordering::Relaxed);
    tell(counts, Said::GivenUp(count));
}

/// What the log says of an output.
enum Said<'a> {
    GetThrough,
    Amiss(String),
    Stopped(&'a str, &'a io::Error),
    GivenUp(u64),
}

/// What becomes of messages of the gateway itself is not sent where they go: that would be one more that does not get through.
fn tell(counts: &OutputCounts, said: Said<'_>) {
    let output = counts.name();
    match (counts.is_own, said) {
        (false, Said::GetThrough) => tracing::info!(output, "the session log gets through"),
        (false, Said::Amiss(trouble)) => {
            tracing::warn!(output, trouble, "the session log gets through, with trouble");
        }
        (false, Said::Stopped(place, error)) => {
            tracing::warn!(output, place, %error, "the session log does not get through");
        }
        (false, Said::GivenUp(lost)) => {
            tracing::warn!(
                output,
                lost,
                "entries of the session log are lost: their output has gone before it took them"
            );
        }
        (true, Said::GivenUp(lost)) => {
            tracing::warn!(target: OWN_OUTPUTS, output, lost, "messages are lost: their output has gone before it took them");
        }
        (true, Said::GetThrough) => tracing::info!(target: OWN_OUTPUTS, output, "messages get through"),
        (true, Said::Amiss(trouble)) => {
            tracing::warn!(target: OWN_OUTPUTS, output, trouble, "messages get through, with trouble");
        }
        (true, Said::Stopped(place, error)) => {
            tracing::warn!(target: OWN_OUTPUTS, output, place, %error, "messages do not get through");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// A collector that is away.
    struct Away;

    impl Destination for Away {
        fn send(&mut self, _messages: &VecDeque<Message>) -> (usize, io::Result<()>) {
            (0, Err(io::ErrorKind::ConnectionRefused.into()))
        }

        fn place(&self) -> String {
            "nowhere".to_owned()
        }
    }

    #[test]
    fn what_waits_for_an_output_that_has_gone_is_counted() {
        let queue = Queue::new(Arc::new(OutputCounts::new("a", "tcp")));
        let message: Message = vec![b'x'; 40 << 10].into();
        (0..5).for_each(|_| queue.push(&message, |_| unreachable!()));
        queue.close();
        write(&queue, Away);
        assert_eq!(queue.counts.lost_full.load(Ordering::Relaxed), 5);
    }
}
