//! One thread of a listener: receives batches, sorts them by receiver, sends them on.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::counters::{Drop, Queue, add};
use crate::descriptors::is_short_of;
use crate::mmsg::{Receive, Send, Sent};
use crate::pool::{Pool, Table, Target};
use crate::socket;
use crate::tcp::Connections;

/// How long a worker that ends takes what goes on coming, where the kernel cannot keep it away.
const DRAIN: Duration = Duration::from_millis(200);
/// How long a datagram takes into a socket that the kernel has found for it.
const LATECOMERS: Duration = Duration::from_millis(1);

/// How datagrams leave.
#[derive(Clone)]
pub enum Transport {
    Datagrams,
    Streams(Arc<Connections>),
}

pub struct Worker {
    pub socket: UdpSocket,
    pub pool: Arc<Pool>,
    pub counters: Arc<Queue>,
    pub transport: Transport,
    pub stop: Arc<AtomicBool>,
    /// Sockets of senders that it keeps open with `keep-source`; beyond, all are closed and made anew.
    pub sources: Arc<AtomicUsize>,
}

/// What goes to one receiver.
struct Out {
    target: Arc<Target>,
    source: Option<SocketAddr>,
    /// None when it could not be opened.
    socket: Option<UdpSocket>,
    send: Send,
    /// Datagrams that are to be sent.
    waiting: u64,
}

/// Sender and place; without `keep_source` the sender is not told apart.
type Key = (Option<SocketAddr>, usize);

struct Outs {
    version: u64,
    table: Arc<Table>,
    position: usize,
    /// By index in the table.
    plain: Vec<Out>,
    by_source: HashMap<(SocketAddr, usize), Out>,
    /// Of `by_source`, those that have a socket.
    open: usize,
    /// Those that have something to send.
    touched: Vec<Key>,
}

impl Outs {
    fn new(pool: &Pool) -> Outs {
        let (version, table) = (pool.version(), pool.table());
        Outs {
            version,
            plain: plain(&table, vec![]),
            table,
            position: 0,
            by_source: HashMap::new(),
            open: 0,
            touched: vec![],
        }
    }

    /// Takes up a changed table; sockets to receivers that stay are kept.
    fn refresh(&mut self, pool: &Pool) {
        let version = pool.version();
        if version == self.version {
            return;
        }
        self.version = version;
        self.table = pool.table();
        self.plain = plain(&self.table, std::mem::take(&mut self.plain));
        self.by_source.clear();
        self.open = 0;
    }

    fn at(&mut self, (source, index): Key) -> &mut Out {
        let Some(source) = source else { return &mut self.plain[index] };
        let target = &self.table.targets[index];
        self.by_source.entry((source, index)).or_insert_with(|| Out::new(target.clone(), Some(source)))
    }

    fn push(&mut self, key: Key, datagram: &[u8]) {
        let out = self.at(key);
        out.send.push(datagram);
        out.waiting += 1;
        if out.waiting == 1 {
            self.touched.push(key);
        }
    }

    fn flush(&mut self, sources: usize) {
        for key in std::mem::take(&mut self.touched) {
            self.open(key, sources);
            self.at(key).flush();
        }
        // with those that could not have one
        if self.by_source.len() > sources {
            self.close_sources();
        }
    }

    /// There is a socket afterwards, if it can be.
    fn open(&mut self, key: Key, sources: usize) {
        if self.at(key).socket.is_some() {
            return;
        }
        if key.0.is_some() && self.open >= sources {
            self.close_sources();
        }
        let mut opened = self.at(key).open();
        if opened.as_ref().is_err_and(is_short_of) && self.open > 0 {
            self.close_sources();
            opened = self.at(key).open();
        }
        match opened {
            Ok(()) => self.open += usize::from(key.0.is_some()),
            Err(error) => tracing::debug!(receiver = %self.at(key).target.address, %error, "no socket"),
        }
    }

    /// Of all senders, but what is to be sent stays.
    fn close_sources(&mut self) {
        self.by_source.retain(|_, out| out.waiting > 0);
        self.by_source.values_mut().for_each(|out| out.socket = None);
        self.open = 0;
    }
}

fn plain(table: &Table, mut before: Vec<Out>) -> Vec<Out> {
    let out = |target: &Arc<Target>| {
        let known = before.iter().position(|out| Arc::ptr_eq(&out.target, target));
        known.map_or_else(|| Out::new(target.clone(), None), |index| before.swap_remove(index))
    };
    table.targets.iter().map(out).collect()
}

impl Out {
    fn new(target: Arc<Target>, source: Option<SocketAddr>) -> Out {
        Out { target, source, socket: None, send: Send::new(), waiting: 0 }
    }

    fn open(&mut self) -> io::Result<()> {
        self.socket = Some(socket::towards(self.target.address, self.source)?);
        Ok(())
    }

    fn flush(&mut self) {
        let waiting = std::mem::take(&mut self.waiting);
        let sent = match &self.socket {
            Some(socket) => self.send.flush(socket.as_raw_fd()),
            None => {
                self.send = Send::new();
                Sent { failed: waiting, ..Sent::default() }
            }
        };
        let counters = &self.target.counters;
        add(&counters.packets, sent.packets);
        add(&counters.bytes, sent.bytes);
        counters.drops.add(Drop::SendFailed, sent.failed);
        counters.drops.add(Drop::SendBufferFull, sent.full);
    }
}

impl Worker {
    /// Runs until it is told to stop, and then through what waits in its socket, which it closes.
    pub fn run(self) {
        let mut receive = Receive::new();
        let mut outs = Outs::new(&self.pool);
        while !self.stop.load(Ordering::Acquire) {
            match receive.receive(self.socket.as_raw_fd()) {
                Ok(count) => self.spread(&receive, count, &mut outs),
                Err(error) if is_nothing(&error) => {}
                Err(error) => {
                    tracing::warn!(%error, "cannot receive");
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
        }
        self.drain(&mut receive, &mut outs);
    }

    /// What waits has an end, since nothing comes any more; where the kernel cannot see to that, time has.
    fn drain(&self, receive: &mut Receive, outs: &mut Outs) {
        let ends = socket::retire(&self.socket).is_ok();
        let begun = Instant::now();
        loop {
            while let Ok(count) = receive.receive_at_once(self.socket.as_raw_fd()) {
                self.spread(receive, count, outs);
                if !ends && begun.elapsed() > DRAIN {
                    return;
                }
            }
            // another CPU may have been about to put a datagram in
            if begun.elapsed() > LATECOMERS {
                return;
            }
            std::thread::sleep(LATECOMERS);
        }
    }

    fn spread(&self, receive: &Receive, count: usize, outs: &mut Outs) {
        outs.refresh(&self.pool);
        let (mut packets, mut bytes, mut large, mut homeless) = (0, 0, 0, 0);
        let table = outs.table.clone();
        for burst in (0..count).map(|index| receive.burst(index)) {
            if let Some(overflow) = burst.overflow {
                self.counters.overflow.store(overflow.into(), Ordering::Relaxed);
            }
            for datagram in datagrams(burst.data, burst.segment) {
                (packets, bytes) = (packets + 1, bytes + datagram.len() as u64);
                if datagram.len() > table.max_packet_size as usize {
                    large += 1;
                    continue;
                }
                let Some(index) = table.pick(&burst.source, &mut outs.position) else {
                    homeless += 1;
                    continue;
                };
                match &self.transport {
                    Transport::Streams(connections) => connections.push(&table.targets[index], datagram),
                    Transport::Datagrams => {
                        outs.push((table.keep_source.then_some(burst.source), index), datagram)
                    }
                }
            }
        }
        add(&self.counters.packets, packets);
        add(&self.counters.bytes, bytes);
        self.counters.drops.add(Drop::TooLarge, large);
        self.counters.drops.add(Drop::NoReceiver, homeless);
        outs.flush(self.sources.load(Ordering::Relaxed));
        if let Transport::Streams(connections) = &self.transport {
            connections.wake();
        }
    }
}

/// An empty datagram is one, too.
fn datagrams(data: &[u8], segment: usize) -> impl Iterator<Item = &[u8]> {
    let empty = data.is_empty().then_some(data);
    empty.into_iter().chain(data.chunks(segment))
}

fn is_nothing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}
