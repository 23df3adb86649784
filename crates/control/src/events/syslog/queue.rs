//! What waits for one output. Who puts in never waits; who takes out does.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::state::session_log::OutputCounts;

/// Bytes that wait at most for a collector that is away or slow: 10,000 entries and more.
pub const BUFFER_BYTES: usize = 8 << 20;
/// Bytes handed over at a time.
const BATCH_BYTES: usize = 64 << 10;

pub type Message = Arc<[u8]>;

pub struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    pub counts: Arc<OutputCounts>,
}

#[derive(Default)]
struct State {
    messages: VecDeque<Message>,
    bytes: usize,
    closed: bool,
    /// Since the output was last told of a loss.
    lost: u64,
}

impl Queue {
    pub fn new(counts: Arc<OutputCounts>) -> Self {
        Self { state: Mutex::default(), changed: Condvar::new(), counts }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A message that finds no room is counted. The first one that finds room again comes behind what `tell` makes of
    /// their number.
    pub fn push(&self, message: &Message, tell: impl FnOnce(u64) -> Message) {
        let mut state = self.state();
        let was_empty = state.messages.is_empty();
        if state.bytes + message.len() > BUFFER_BYTES {
            state.lost += 1;
            self.counts.lost_full.fetch_add(1, Ordering::Relaxed);
            return;
        }
        if state.lost > 0 {
            let notice = tell(std::mem::take(&mut state.lost));
            state.bytes += notice.len();
            state.messages.push_back(notice);
        }
        state.bytes += message.len();
        state.messages.push_back(message.clone());
        self.counts.waiting_bytes.store(state.bytes as u64, Ordering::Relaxed);
        drop(state);
        // who takes out waits only for the first
        if was_empty {
            self.changed.notify_one();
        }
    }

    /// What waits, oldest first, up to a batch; None = nothing, and nothing will come.
    pub fn take(&self) -> Option<VecDeque<Message>> {
        let mut state = self.state();
        while state.messages.is_empty() {
            if state.closed {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let (mut batch, mut bytes) = (VecDeque::new(), 0);
        while bytes < BATCH_BYTES
            && let Some(message) = state.messages.pop_front()
        {
            bytes += message.len();
            batch.push_back(message);
        }
        state.bytes -= bytes;
        self.counts.waiting_bytes.store(state.bytes as u64, Ordering::Relaxed);
        Some(batch)
    }

    /// Waits before something is tried again. False: it need not be.
    pub fn pause(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        let mut state = self.state();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if state.closed || left.is_zero() {
                return !state.closed;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Nothing more will come.
    pub fn close(&self) {
        self.state().closed = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue() -> Queue {
        Queue::new(Arc::new(OutputCounts::new("a", "tcp")))
    }

    fn message(bytes: usize) -> Message {
        vec![b'x'; bytes].into()
    }

    #[test]
    fn what_finds_no_room_is_counted_and_told_of_once_there_is_room() {
        let queue = queue();
        let push = |bytes| queue.push(&message(bytes), |lost| lost.to_string().into_bytes().into());
        push(BUFFER_BYTES - 10);
        push(11);
        push(11);
        assert_eq!(queue.counts.lost_full.load(Ordering::Relaxed), 2);
        assert_eq!(queue.take().unwrap().len(), 1);
        push(11);
        let told = queue.take().unwrap();
        assert_eq!((told.len(), &*told[0], told[1].len()), (2, &b"2"[..], 11));
    }

    #[test]
    fn who_waits_behind_a_loss_is_woken() {
        let queue = Arc::new(queue());
        let push = |bytes| queue.push(&message(bytes), |lost| lost.to_string().into_bytes().into());
        push(BUFFER_BYTES);
        push(1);
        assert_eq!(queue.take().unwrap().len(), 1);
        let (taker, (sender, taken)) = (queue.clone(), std::sync::mpsc::channel());
        std::thread::spawn(move || sender.send(taker.take().unwrap().len()));
        // it waits by now, or takes what comes without waiting
        std::thread::sleep(Duration::from_millis(100));
        push(1);
        assert_eq!(taken.recv_timeout(Duration::from_secs(20)), Ok(2));
    }

    #[test]
    fn a_closed_queue_is_emptied_before_it_ends() {
        let queue = queue();
        queue.push(&message(5), |_| unreachable!());
        queue.close();
        assert_eq!(queue.take().unwrap().len(), 1);
        assert!(queue.take().is_none() && !queue.pause(Duration::from_secs(60)));
    }
}
