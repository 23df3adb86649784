//! A port of a running gateway: copies of its frames, which programs of ours hand over through a BPF ring buffer.
//!
//! A packet socket would not do there: it never sees what XDP redirects, and it makes the port promiscuous.

mod programs;

use std::io;
use std::os::fd::BorrowedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use libbpf_rs::{MapHandle, RingBuffer, RingBufferBuilder};
use nix::time::{ClockId, clock_gettime};

use super::CaptureError;
use super::interface::{Capture, Interface};
use crate::frame::{Batch, LinkType, Record};

use programs::{Standing, Tap};

/// Copies of a batch, at most.
const BATCH: usize = 4096;
/// How often it is asked whether the gateway still has the programs in place: it renews its own with every commit.
const CHECK: Duration = Duration::from_millis(500);
/// `struct copy` of bpf/monitor/copies.h: time, length on the wire, bytes that follow, VLAN tag.
const HEADER: usize = 24;

pub(super) struct Port {
    tap: Tap,
    ring: RingBuffer<'static>,
    /// Where the ring's callback puts frames, and what takes a clock without steps to that of the day.
    sink: Arc<Mutex<Sink>>,
    checked: Instant,
    /// Two monitors on one port would keep replacing each other's programs.
    _lock: UnixListener,
}

#[derive(Default)]
struct Sink {
    batch: Batch,
    to_realtime_ns: i64,
}

impl Port {
    /// `None` where no gateway manages the interface. `everything`: frames that the monitor does not follow as well.
    pub fn open(interface: &str, everything: bool) -> Result<Option<Interface<Port>>, CaptureError> {
        let failed = |source| CaptureError::Io { name: interface.to_owned(), source };
        let Ok(ifindex) = nix::net::if_::if_nametoindex(interface) else { return Ok(None) };
        if !Tap::is_wanted(ifindex) {
            return Ok(None);
        }
        let lock = lock(interface).map_err(failed)?;
        let tap = Tap::set_up(ifindex, everything).map_err(failed)?;
        let sink = Arc::new(Mutex::new(Sink::default()));
        let ring = ring_of(&tap.copies, &sink).map_err(failed)?;
        let port = Port { tap, ring, sink, checked: Instant::now(), _lock: lock };
        Ok(Some(Interface::new(interface.to_owned(), port)))
    }

    /// A commit puts the gateway's own program back on an XDP port.
    fn keep_up(&mut self) -> io::Result<()> {
        if self.checked.elapsed() < CHECK {
            return Ok(());
        }
        self.checked = Instant::now();
        match self.tap.standing() {
            Standing::InPlace => Ok(()),
            Standing::Displaced => self.tap.renew(),
            Standing::Gone => Err(io::Error::new(
                io::ErrorKind::NetworkDown,
                "the interface went away, or the gateway left it or changed its mode",
            )),
        }
    }
}

impl Capture for Port {
    fn take(&mut self, batch: &mut Batch) -> io::Result<()> {
        self.keep_up()?;
        let own = |sink: &Mutex<Sink>, batch: &mut Batch| {
            let mut sink = sink.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::swap(&mut sink.batch, batch);
            sink.to_realtime_ns = to_realtime_ns();
        };
        own(&self.sink, batch);
        let taken = self.ring.consume_raw_n(BATCH);
        own(&self.sink, batch);
        if taken < 0 { Err(io::Error::from_raw_os_error(-taken)) } else { Ok(()) }
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        // SAFETY: the descriptor belongs to the ring, which outlives what is borrowed.
        #[allow(unsafe_code, reason = "libbpf-rs hands out a bare number")]
        let epoll = unsafe { BorrowedFd::borrow_raw(self.ring.epoll_fd()) };
        vec![epoll]
    }

    fn drops(&self) -> u64 {
        self.tap.lost()
    }
}

/// An abstract name belongs to the network namespace, as the interface does, and goes with the process.
fn lock(interface: &str) -> io::Result<UnixListener> {
    let address = SocketAddr::from_abstract_name(format!("sluice-monitor/{interface}"))?;
    UnixListener::bind_addr(&address).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => {
            io::Error::new(error.kind(), "another monitor takes copies of this port already; end it first")
        }
        _ => error,
    })
}

fn ring_of(copies: &MapHandle, sink: &Arc<Mutex<Sink>>) -> io::Result<RingBuffer<'static>> {
    let (mut builder, sink) = (RingBufferBuilder::new(), Arc::clone(sink));
    let take = move |copy: &[u8]| {
        let mut sink = sink.lock().unwrap_or_else(PoisonError::into_inner);
        let shift = sink.to_realtime_ns;
        push(copy, shift, &mut sink.batch);
        0
    };
    builder.add(copies, take).map_err(io::Error::other)?;
    builder.build().map_err(io::Error::other)
}

/// Adds a copy to the batch.
fn push(copy: &[u8], to_realtime_ns: i64, batch: &mut Batch) {
    let Some((header, rest)) = copy.split_first_chunk::<HEADER>() else { return };
    let u16_at = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
    let [a, b, c, d, e, f, g, h, i, j, k, l, ..] = *header;
    let time_ns = u64::from_ne_bytes([a, b, c, d, e, f, g, h]).wrapping_add_signed(to_realtime_ns);
    let wire_len = u32::from_ne_bytes([i, j, k, l]);
    let record = Record { time_ns, wire_len, link: LinkType::Ethernet, ..Record::default() };
    let data = &rest[..usize::from(u16_at(12)).min(rest.len())];
    match u16::from_be_bytes([header[16], header[17]]) {
        0 => batch.push_copy(record, data),
        tpid => super::live::push_tagged(record, data, tpid, u16_at(14), batch),
    }
}

/// From CLOCK_MONOTONIC, which is the programs', to the time of the day.
fn to_realtime_ns() -> i64 {
    let read = |clock| {
        let time = clock_gettime(clock).unwrap_or_else(|_| nix::sys::time::TimeSpec::new(0, 0));
        time.tv_sec() * 1_000_000_000 + time.tv_nsec()
    };
    read(ClockId::CLOCK_REALTIME) - read(ClockId::CLOCK_MONOTONIC)
}
