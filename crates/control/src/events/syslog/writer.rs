//! From a queue to where it goes.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::queue::{Message, Queue};

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
                    if whole > 0 && counts.set_error(None) {
                        tracing::info!(output = counts.name(), "the session log gets through");
                    }
                    continue;
                }
                Err(error) => error,
            };
            if counts.set_error(Some(error.to_string())) {
                tracing::warn!(output = counts.name(), place = to.place(), %error, "the session log does not get through");
            }
            if to.gives_up() {
                counts.lost_refused.fetch_add(u64::from(batch.pop_front().is_some()), Ordering::Relaxed);
            } else if !queue.pause(RETRY) {
                return;
            }
        }
    }
}
