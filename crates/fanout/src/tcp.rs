//! Messages over TCP: a connection and a bounded queue for each receiver, so that one that is gone does not hold up the others.

use std::fmt::Display;
use std::io::{self, Write};
use std::mem::take;
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sluice_language::fan_out::Framing;

use crate::counters::{Drop as Reason, add};
use crate::mmsg::set_option;
use crate::pool::{Pool, Target};

const CONNECT: Duration = Duration::from_secs(1);
const RETRY: Duration = Duration::from_millis(200);
/// A receiver that takes nothing for so long counts as gone.
const STALL: Duration = Duration::from_secs(5);
/// A connection that follows a broken one is trusted when it has lasted so long: some take it and hang up.
const LASTING: Duration = Duration::from_millis(200);
/// Seconds without a word after which the kernel asks whether the other end is still there, and between two questions.
const SILENCE: i32 = 5;
const ASK_AGAIN: i32 = 2;
/// How long a worker may go on with a table that still has a receiver that has left.
const LINGER: Duration = Duration::from_millis(200);
/// How often a connection on trial is looked at.
const TRIAL_NAP: Duration = Duration::from_millis(10);
/// What is still sent when the fan-out ends.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Framed messages behind each other, and how long each is.
#[derive(Debug, Default)]
struct Batch {
    bytes: Vec<u8>,
    lengths: Vec<u32>,
    /// Nobody takes anything out of it any more.
    is_closed: bool,
}

impl Batch {
    fn append(&mut self, other: &mut Batch) {
        self.bytes.append(&mut other.bytes);
        self.lengths.append(&mut other.lengths);
    }

    /// Forgets the messages that lie within the first `written` bytes. The rest begins with a whole message.
    fn written(&mut self, written: usize) -> (u64, u64) {
        let (mut messages, mut end) = (0, 0);
        for length in &self.lengths {
            if end + *length as usize > written {
                break;
            }
            end += *length as usize;
            messages += 1;
        }
        self.bytes.drain(..end);
        self.lengths.drain(..messages);
        (messages as u64, end as u64)
    }
}

/// The queue of one receiver.
#[derive(Debug)]
struct Line {
    target: Arc<Target>,
    batch: Mutex<Batch>,
    /// Bytes in the queue and on their way.
    bytes: AtomicU64,
    news: Condvar,
    /// Its receiver has left, for ever: one that comes back gets another line.
    gone: AtomicBool,
}

/// A line and the thread that serves it.
type Running = (Arc<Line>, JoinHandle<()>);

/// The line of a receiver; of two, the one whose receiver is there.
fn find<'a>(lines: &'a [Running], target: &Arc<Target>) -> Option<&'a Arc<Line>> {
    let mut of = lines.iter().map(|(line, _)| line).filter(|line| Arc::ptr_eq(&line.target, target));
    let first = of.next();
    first.filter(|line| !line.is_gone()).or_else(|| of.find(|line| !line.is_gone())).or(first)
}

impl Line {
    fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }
}

/// The connections of one listener.
pub struct Connections {
    pool: Arc<Pool>,
    framing: Framing,
    queue_bytes: AtomicU64,
    lines: Mutex<Vec<Running>>,
    /// Version of the pool that the lines were last compared with.
    seen: AtomicU64,
    ending: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Connections {
    pub fn new(pool: Arc<Pool>, framing: Framing, queue_bytes: u32) -> Arc<Connections> {
        Arc::new(Connections {
            pool,
            framing,
            queue_bytes: AtomicU64::new(queue_bytes.into()),
            lines: Mutex::default(),
            seen: AtomicU64::new(0),
            ending: AtomicBool::new(false),
        })
    }

    /// How much may wait for one receiver from now on.
    pub fn limit(&self, queue_bytes: u32) {
        self.queue_bytes.store(queue_bytes.into(), Ordering::Relaxed);
    }

    /// One connection for every receiver of these. Before they get messages.
    pub fn prepare(self: &Arc<Self>, targets: &[Arc<Target>]) {
        let mut lines = lock(&self.lines);
        for target in targets {
            if find(&lines, target).is_some_and(|line| !line.is_gone()) {
                continue;
            }
            let line = Arc::new(Line {
                target: target.clone(),
                batch: Mutex::default(),
                bytes: AtomicU64::new(0),
                news: Condvar::new(),
                gone: AtomicBool::new(false),
            });
            let (own, on) = (self.clone(), line.clone());
            let name = format!("fan-tcp-{}", target.name);
            match std::thread::Builder::new().name(name).spawn(move || own.serve(&on)) {
                Ok(thread) => lines.push((line, thread)),
                Err(error) => {
                    tracing::error!(receiver = target.name, %error, "it gets nothing: cannot start a thread");
                }
            }
        }
    }

    /// Connections of receivers that the pool does not have any more end once their queues are empty.
    pub fn retire(&self) {
        let version = self.pool.version();
        if self.seen.swap(version, Ordering::AcqRel) == version {
            return;
        }
        let table = self.pool.table();
        let mut lines = lock(&self.lines);
        for (line, _) in lines.iter() {
            if !table.targets.iter().any(|target| Arc::ptr_eq(target, &line.target)) {
                line.gone.store(true, Ordering::Release);
                line.news.notify_all();
            }
        }
        lines.retain(|(_, thread)| !thread.is_finished());
    }

    /// Puts one message into a receiver's queue, or counts why not.
    pub fn push(&self, target: &Arc<Target>, message: &[u8]) {
        if is_none(self.framing, message) {
            return target.counters.drops.add(Reason::Empty, 1);
        }
        self.queue(target, message.len(), |bytes| frame(self.framing, message, bytes));
    }

    /// `write` appends a framed message of about `length` bytes.
    fn queue(&self, target: &Arc<Target>, length: usize, write: impl FnOnce(&mut Vec<u8>)) {
        let line = find(&lock(&self.lines), target).cloned();
        let Some(line) = line else { return target.counters.drops.add(Reason::NoReceiver, 1) };
        if line.bytes.load(Ordering::Relaxed) + length as u64 > self.queue_bytes.load(Ordering::Relaxed) {
            return target.counters.drops.add(Reason::QueueFull, 1);
        }
        let mut batch = lock(&line.batch);
        if batch.is_closed {
            return target.counters.drops.add(Reason::NoReceiver, 1);
        }
        let before = batch.bytes.len();
        write(&mut batch.bytes);
        let length = batch.bytes.len() - before;
        batch.lengths.push(length as u32);
        add(&line.bytes, length as u64);
        add(&target.counters.waiting, 1);
    }

    /// Something may have come into the queues.
    pub fn wake(&self) {
        for (line, _) in lock(&self.lines).iter() {
            line.news.notify_one();
        }
    }

    /// Sends what it can within a moment, counts the rest, and returns when all threads have ended.
    pub fn end(&self) {
        self.ending.store(true, Ordering::Release);
        self.wake();
        for (_, thread) in lock(&self.lines).drain(..).collect::<Vec<_>>() {
            let _ = thread.join();
        }
    }

    fn ends(&self, line: &Line) -> bool {
        self.ending.load(Ordering::Acquire) || line.is_gone()
    }

    /// The thread of one receiver.
    fn serve(&self, line: &Line) {
        let mut batch = Batch::default();
        let mut connection: Option<Connection> = None;
        // the receiver has left a connection, or has not taken one, since the last that lasted
        let mut is_doubted = false;
        let mut ended_at = None;
        loop {
            self.wait(line, &mut batch);
            if self.ends(line) {
                let since = *ended_at.get_or_insert_with(Instant::now);
                let waited = since.elapsed();
                let is_idle = batch.lengths.is_empty();
                if waited > LAST_WORDS || is_idle && (waited > LINGER || self.ending.load(Ordering::Acquire))
                {
                    return self.give_up(line, &mut batch);
                }
                if is_idle {
                    continue;
                }
            }
            let done = match connection.as_mut() {
                None => connect(line).map(|open| connection = Some(open)),
                Some(open) if !is_open(&open.stream) => Err(io::Error::other("the receiver has closed it")),
                Some(open) if is_doubted && open.since.elapsed() < LASTING && !self.ends(line) => {
                    std::thread::sleep(TRIAL_NAP);
                    Ok(())
                }
                Some(open) => {
                    if std::mem::take(&mut is_doubted) && self.tell(line, true) {
                        tracing::info!(receiver = line.target.name, address = %line.target.address, "connected");
                    }
                    self.write(line, &mut open.stream, &mut batch)
                }
            };
            if let Err(error) = done {
                (connection, is_doubted) = (None, true);
                self.lost(line, &mut batch, &error);
            }
        }
    }

    /// The receiver is left out, and what waits for it goes elsewhere, until a connection lasts.
    fn lost(&self, line: &Line, batch: &mut Batch, error: &dyn Display) {
        if self.tell(line, false) {
            tracing::warn!(receiver = line.target.name, address = %line.target.address, %error, "no connection");
        }
        self.pass_on(line, batch);
        std::thread::sleep(RETRY);
    }

    /// Until there is something to send, or something to look after.
    fn wait(&self, line: &Line, batch: &mut Batch) {
        let mut queue = lock(&line.batch);
        if queue.lengths.is_empty() && batch.lengths.is_empty() && !self.ending.load(Ordering::Acquire) {
            let nap = Duration::from_millis(50);
            queue = line.news.wait_timeout(queue, nap).unwrap_or_else(PoisonError::into_inner).0;
        }
        batch.append(&mut queue);
    }

    /// A connection came or went; that of a receiver that has left says nothing of one that has come back. True when
    /// that is news.
    fn tell(&self, line: &Line, connected: bool) -> bool {
        !line.is_gone() && self.pool.connected(&line.target, connected)
    }

    /// Writes the batch, if there is any. On an error it holds what was not written, from a whole message on.
    fn write(&self, line: &Line, stream: &mut TcpStream, batch: &mut Batch) -> io::Result<()> {
        let (mut done, mut since) = (0, Instant::now());
        let result = loop {
            if done == batch.bytes.len() {
                break Ok(());
            }
            match stream.write(&batch.bytes[done..]) {
                Ok(0) => break Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => (done, since) = (done + written, Instant::now()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && since.elapsed() < STALL => {
                    if self.ends(line) {
                        break Err(error);
                    }
                }
                Err(error) => break Err(error),
            }
        };
        let (messages, bytes) = batch.written(done);
        let counters = &line.target.counters;
        counters.waiting.fetch_sub(messages, Ordering::Relaxed);
        line.bytes.fetch_sub(bytes, Ordering::Relaxed);
        add(&counters.packets, messages);
        add(&counters.bytes, bytes);
        result
    }

    /// What waits for a receiver that is gone goes to those that are there; without any, it waits on.
    fn pass_on(&self, line: &Line, batch: &mut Batch) {
        batch.append(&mut lock(&line.batch));
        let table = self.pool.table();
        let others: Vec<_> =
            table.positions.iter().map(|index| &table.targets[usize::from(*index)]).collect();
        let others: Vec<_> = others.into_iter().filter(|target| !Arc::ptr_eq(target, &line.target)).collect();
        if others.is_empty() || batch.lengths.is_empty() {
            return;
        }
        let Batch { bytes, lengths, .. } = take(batch);
        line.target.counters.waiting.fetch_sub(lengths.len() as u64, Ordering::Relaxed);
        line.bytes.fetch_sub(bytes.len() as u64, Ordering::Relaxed);
        let mut rest = &bytes[..];
        for (number, length) in lengths.iter().enumerate() {
            let (message, behind) = rest.split_at(*length as usize);
            rest = behind;
            let other = others[number % others.len()];
            self.queue(other, message.len(), |bytes| bytes.extend_from_slice(message));
        }
        self.wake();
    }

    fn give_up(&self, line: &Line, batch: &mut Batch) {
        let mut queue = lock(&line.batch);
        queue.is_closed = true;
        batch.append(&mut queue);
        drop(queue);
        let left = batch.lengths.len() as u64;
        line.target.counters.waiting.fetch_sub(left, Ordering::Relaxed);
        line.target.counters.drops.add(Reason::Shutdown, left);
        line.bytes.store(0, Ordering::Release);
    }
}

/// A connection, and when it was made.
struct Connection {
    stream: TcpStream,
    since: Instant,
}

fn connect(line: &Line) -> io::Result<Connection> {
    let stream = TcpStream::connect_timeout(&line.target.address, CONNECT)?;
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(Duration::from_millis(100)))?;
    notice_silence(&stream)?;
    Ok(Connection { stream, since: Instant::now() })
}

/// A host that is gone without a word ends its connection: while something waits to be acknowledged after `STALL`
/// (RFC 5482, TCP_USER_TIMEOUT), else when it leaves questions unanswered.
fn notice_silence(stream: &TcpStream) -> io::Result<()> {
    let raw = stream.as_raw_fd();
    set_option(raw, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, STALL.as_millis() as i32)?;
    set_option(raw, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1)?;
    set_option(raw, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, SILENCE)?;
    set_option(raw, libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, ASK_AGAIN)
}

/// A connection that the receiver has closed is noticed by reading only: the next write would still succeed.
fn is_open(stream: &TcpStream) -> bool {
    if stream.set_nonblocking(true).is_err() {
        return false;
    }
    let open = match stream.peek(&mut [0]) {
        Ok(read) => read > 0,
        Err(error) => error.kind() == io::ErrorKind::WouldBlock,
    };
    stream.set_nonblocking(false).is_ok() && open
}

/// Whether a framing has no message for a datagram: RFC 6587 knows none without an octet.
fn is_none(framing: Framing, message: &[u8]) -> bool {
    match framing {
        Framing::OctetCounting => message.is_empty(),
        Framing::Newline => matches!(message, b"" | b"\n"),
        Framing::LengthPrefix => false,
    }
}

/// RFC 6587 section 3.4, or a length before each message.
fn frame(framing: Framing, message: &[u8], out: &mut Vec<u8>) {
    match framing {
        Framing::OctetCounting => {
            out.extend_from_slice(message.len().to_string().as_bytes());
            out.push(b' ');
            out.extend_from_slice(message);
        }
        Framing::LengthPrefix => {
            out.extend_from_slice(&(message.len() as u32).to_be_bytes());
            out.extend_from_slice(message);
        }
        Framing::Newline => {
            let message = message.strip_suffix(b"\n").unwrap_or(message);
            for byte in message {
                match byte {
                    // inside a message it would begin another: written as syslog daemons write control characters
                    b'\n' => out.extend_from_slice(b"#012"),
                    byte => out.push(*byte),
                }
            }
            out.push(b'\n');
        }
    }
}

#[cfg(test)]
mod tests;
