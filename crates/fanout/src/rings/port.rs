//! Where frames leave: the tx ring of one queue of a device, which workers share only if the device has fewer queues.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sluice_xsk::{CompletionRing, Frame, Socket, TxRing};

use crate::counters::{Drop, add};
use crate::pool::Target;

/// How long frames wait for a device that takes none, before those that the ring has no room for are dropped.
const PATIENCE: Duration = Duration::from_millis(2);

pub struct Port {
    pub socket: Socket,
    inner: Mutex<Inner>,
    /// The device is gone or down: frames are refused until it takes one again.
    is_dead: AtomicBool,
}

struct Inner {
    tx: TxRing,
    completion: CompletionRing,
    /// Frames in the ring that the kernel had not taken when their worker went on.
    left: VecDeque<(Arc<Target>, u32)>,
}

/// What became of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Sent,
    Dropped(Drop),
}

/// Keeps account of frames that are sent, by their index among those that were given.
pub trait Ledger {
    fn settled(&mut self, nth: usize, fate: Fate);
    /// Receiver, and bytes of payload, of a frame that waits in the ring.
    fn whose(&self, nth: usize) -> (Arc<Target>, u32);
}

/// Of calls that give no frames.
struct Nobody;

impl Ledger for Nobody {
    fn settled(&mut self, _: usize, _: Fate) {}

    fn whose(&self, _: usize) -> (Arc<Target>, u32) {
        unreachable!("no frame was given")
    }
}

impl Port {
    pub fn new(socket: Socket, tx: TxRing, completion: CompletionRing) -> Port {
        let inner = Inner { tx, completion, left: VecDeque::new() };
        Port { socket, inner: Mutex::new(inner), is_dead: AtomicBool::new(false) }
    }

    /// Sends frames. Those that cannot be sent stay in `frames`; those that were sent come back to `free`, and `owed`
    /// counts those of this worker that have not.
    pub fn send(
        &self,
        frames: &mut Vec<Frame>,
        free: &mut Vec<Frame>,
        owed: &mut usize,
        ledger: &mut impl Ledger,
    ) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let total = frames.len();
        if self.is_dead.load(Ordering::Relaxed) {
            self.push(&mut inner, free, owed, &mut 0, ledger);
            if self.is_dead.load(Ordering::Relaxed) {
                (0..total).for_each(|nth| ledger.settled(nth, Fate::Dropped(Drop::SendFailed)));
                return;
            }
        }
        let (mut put, mut told) = (0, 0);
        loop {
            let now = inner.tx.put(frames);
            (put, *owed) = (put + now, *owed + now);
            self.push(&mut inner, free, owed, &mut told, ledger);
            if frames.is_empty() || now == 0 {
                break;
            }
        }
        for nth in put..total {
            ledger.settled(nth, Fate::Dropped(Drop::RingFull));
        }
        for (target, bytes) in (told..put).map(|nth| ledger.whose(nth)) {
            add(&target.counters.waiting, 1);
            inner.left.push_back((target, bytes));
        }
    }

    /// Goes on with what an earlier call left in the ring, and takes back what was sent. True while frames wait.
    pub fn go_on(&self, free: &mut Vec<Frame>, owed: &mut usize) -> bool {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if !inner.left.is_empty() {
            self.push(&mut inner, free, owed, &mut 0, &mut Nobody);
        }
        *owed -= inner.completion.take(free, *owed);
        !inner.left.is_empty()
    }

    /// Has the kernel send what is in the ring, as long as it takes any.
    fn push(
        &self,
        inner: &mut Inner,
        free: &mut Vec<Frame>,
        owed: &mut usize,
        told: &mut usize,
        ledger: &mut impl Ledger,
    ) {
        let mut stuck: Option<Instant> = None;
        loop {
            let before = inner.tx.pending();
            *owed -= inner.completion.take(free, *owed);
            if before == 0 {
                break;
            }
            let result = if inner.tx.needs_wakeup() { self.socket.kick() } else { Ok(()) };
            let code = result.as_ref().err().and_then(io::Error::raw_os_error);
            let gone = (before - inner.tx.pending()) as usize;
            inner.settle(gone, code == Some(libc::EBUSY), told, ledger);
            let is_dead = !matches!(code, None | Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS));
            if self.is_dead.swap(is_dead, Ordering::Relaxed) != is_dead {
                tracing::warn!(is_dead, error = ?result.err(), "the device that frames leave by");
            }
            // a driver that reads the ring itself takes its time
            if is_dead || (self.socket.is_zero_copy() && gone == 0) {
                break;
            }
            if gone > 0 {
                stuck = None;
            } else if stuck.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
                break;
            } else {
                std::thread::yield_now();
            }
        }
    }
}

impl Inner {
    /// The kernel took `count` frames, in order; of the last, the device made nothing if `refused`.
    fn settle(&mut self, count: usize, refused: bool, told: &mut usize, ledger: &mut impl Ledger) {
        for nth in 0..count {
            let what = match refused && nth + 1 == count {
                true => Fate::Dropped(Drop::Refused),
                false => Fate::Sent,
            };
            let Some((target, bytes)) = self.left.pop_front() else {
                ledger.settled(*told, what);
                *told += 1;
                continue;
            };
            target.counters.waiting.fetch_sub(1, Ordering::Relaxed);
            match what {
                Fate::Sent => {
                    add(&target.counters.packets, 1);
                    add(&target.counters.bytes, bytes.into());
                }
                Fate::Dropped(reason) => target.counters.drops.add(reason, 1),
            }
        }
    }
}

/// By index of the device and queue.
#[derive(Default)]
pub struct Ports(Mutex<HashMap<(u32, u32), Arc<Port>>>);

impl Ports {
    pub fn get(&self, ifindex: u32, queue: u32) -> Option<Arc<Port>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&(ifindex, queue)).cloned()
    }

    /// Whether it is still one of a device's.
    pub fn has(&self, ifindex: u32, port: &Arc<Port>) -> bool {
        let ports = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ports.iter().any(|((of, _), own)| *of == ifindex && Arc::ptr_eq(own, port))
    }

    pub fn insert(&self, ifindex: u32, queue: u32, port: Arc<Port>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert((ifindex, queue), port);
    }

    /// Lets go of those that `keep` refuses.
    pub fn retain(&self, keep: impl Fn(u32) -> bool) {
        let mut ports = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ports.retain(|(ifindex, _), _| keep(*ifindex));
    }

    /// How many queues of a device there are.
    pub fn of(&self, ifindex: u32) -> u32 {
        let ports = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ports.keys().filter(|(device, _)| *device == ifindex).count() as u32
    }
}
