//! A socket on one queue of a device, with its rings.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::frame::Umem;
use crate::ring::{Consumer, Producer};
use crate::rings::{CompletionRing, FillRing, RxRing, TxRing};
use crate::sys;

/// The kernel lets go of a closed socket's queue some time after it was closed.
const LETTING_GO: Duration = Duration::from_secs(2);

/// A queue of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueId {
    /// Of the device.
    pub ifindex: u32,
    /// From 0.
    pub queue: u32,
}

/// Entries of the rings, powers of two; rx and tx may be 0, then there is no such ring.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    /// Of frames to receive into.
    pub fill: u32,
    /// Of frames that were sent.
    pub completion: u32,
    /// Of frames received.
    pub rx: u32,
    /// Of frames to send.
    pub tx: u32,
}

/// Whether the driver sends and receives from the shared memory itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Copy {
    /// Zero-copy where the driver can.
    #[default]
    AsPossible,
    /// Copied by the kernel.
    Always,
}

/// How a socket is opened.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Of its rings.
    pub sizes: Sizes,
    /// Who copies.
    pub copy: Copy,
    /// Be told when a system call is needed, instead of making it always.
    pub need_wakeup: bool,
}

/// What a socket is made of; each part can be another thread's.
pub struct Opened {
    /// What keeps the rest working.
    pub socket: Socket,
    /// Frames to receive into.
    pub fill: FillRing,
    /// Frames that were sent.
    pub completion: CompletionRing,
    /// Frames received.
    pub rx: Option<RxRing>,
    /// Frames to send.
    pub tx: Option<TxRing>,
}

/// The socket itself; clones are the same.
#[derive(Clone)]
pub struct Socket(Arc<Held>);

struct Held {
    fd: OwnedFd,
    /// The kernel has the pages, too, but their addresses must not be given to anything else.
    _umem: Umem,
    is_zero_copy: bool,
}

/// XDP_STATISTICS: frames that a socket lost, by where.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    /// For other reasons than those below.
    pub rx_dropped: u64,
    /// Entries of the fill ring that lie outside of the memory.
    pub rx_invalid_descs: u64,
    /// Entries of the tx ring that lie outside of the memory.
    pub tx_invalid_descs: u64,
    /// There was no room in the rx ring.
    pub rx_ring_full: u64,
    /// There was no frame to receive into.
    pub rx_fill_ring_empty_descs: u64,
    /// Times that there was nothing to send; nothing is lost by it.
    pub tx_ring_empty_descs: u64,
}

impl Statistics {
    /// By the kernel's names.
    pub fn named(&self) -> [(&'static str, u64); 6] {
        [
            ("rx_dropped", self.rx_dropped),
            ("rx_invalid_descs", self.rx_invalid_descs),
            ("tx_invalid_descs", self.tx_invalid_descs),
            ("rx_ring_full", self.rx_ring_full),
            ("rx_fill_ring_empty_descs", self.rx_fill_ring_empty_descs),
            ("tx_ring_empty_descs", self.tx_ring_empty_descs),
        ]
    }
}

/// Opens a socket on a queue of a device of the calling thread's network namespace. The first socket registers the
/// memory; every other one shares it with one of those before, and takes its way of copying from it.
pub fn open(umem: &Umem, queue: QueueId, options: Options, beside: Option<&Socket>) -> io::Result<Opened> {
    let fd = sys::socket().map_err(|error| said("cannot open an AF_XDP socket", error))?;
    if beside.is_none() {
        sys::register(&fd, umem.region(), umem.frame_size())
            .map_err(|error| said("cannot share memory with an AF_XDP socket", error))?;
    }
    let sizes = options.sizes;
    for (option, entries) in [
        (libc::XDP_UMEM_FILL_RING, sizes.fill),
        (libc::XDP_UMEM_COMPLETION_RING, sizes.completion),
        (libc::XDP_RX_RING, sizes.rx),
        (libc::XDP_TX_RING, sizes.tx),
    ] {
        if entries > 0 {
            sys::set(&fd, option, &entries).map_err(|error| said("cannot make an AF_XDP ring", error))?;
        }
    }
    let rings = map(&fd, umem, sizes).map_err(|error| said("cannot map an AF_XDP ring", error))?;
    let flags = match (beside, options.copy) {
        (Some(_), _) => libc::XDP_SHARED_UMEM,
        (None, Copy::AsPossible) => 0,
        (None, Copy::Always) => libc::XDP_COPY,
    };
    // a socket beside another takes over its flags, and must not have its own
    let wakeup = if options.need_wakeup && beside.is_none() { libc::XDP_USE_NEED_WAKEUP } else { 0 };
    bind(&fd, queue, flags | wakeup, beside)?;
    let is_zero_copy = sys::options(&fd)?.flags & libc::XDP_OPTIONS_ZEROCOPY != 0;
    let (fill, completion, rx, tx) = rings;
    let socket = Socket(Arc::new(Held { fd, _umem: umem.clone(), is_zero_copy }));
    Ok(Opened { socket, fill, completion, rx, tx })
}

fn said(what: &str, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

type Rings = (FillRing, CompletionRing, Option<RxRing>, Option<TxRing>);

fn map(fd: &OwnedFd, umem: &Umem, sizes: Sizes) -> io::Result<Rings> {
    let offsets = sys::offsets(fd)?;
    let umem = || umem.clone();
    let fill = Producer::map(fd, &offsets.fr, libc::XDP_UMEM_PGOFF_FILL_RING as i64, sizes.fill)?;
    let completion =
        Consumer::map(fd, &offsets.cr, libc::XDP_UMEM_PGOFF_COMPLETION_RING as i64, sizes.completion)?;
    let rx = match sizes.rx {
        0 => None,
        size => Some(Consumer::map(fd, &offsets.rx, libc::XDP_PGOFF_RX_RING, size)?),
    };
    let tx = match sizes.tx {
        0 => None,
        size => Some(Producer::map(fd, &offsets.tx, libc::XDP_PGOFF_TX_RING, size)?),
    };
    Ok((
        FillRing { ring: fill, umem: umem() },
        CompletionRing { ring: completion, umem: umem() },
        rx.map(|ring| RxRing { ring, umem: umem() }),
        tx.map(|ring| TxRing { ring, umem: umem() }),
    ))
}

fn bind(fd: &OwnedFd, queue: QueueId, flags: u16, beside: Option<&Socket>) -> io::Result<()> {
    let shared = beside.map(|socket| socket.0.fd.as_raw_fd());
    let deadline = Instant::now() + LETTING_GO;
    loop {
        match sys::bind(fd, queue.ifindex, queue.queue, flags, shared) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < deadline => {
                thread::sleep(Duration::from_millis(10));
            }
            result => {
                let what = format!("cannot tie an AF_XDP socket to queue {}", queue.queue);
                return result.map_err(|error| said(&what, error));
            }
        }
    }
}

impl Socket {
    /// The driver reads and writes the memory itself.
    pub fn is_zero_copy(&self) -> bool {
        self.0.is_zero_copy
    }

    /// To wait for, and to be put into maps.
    pub fn fd(&self) -> &OwnedFd {
        &self.0.fd
    }

    /// What the kernel has counted of it.
    pub fn statistics(&self) -> io::Result<Statistics> {
        let of = sys::statistics(&self.0.fd)?;
        Ok(Statistics {
            rx_dropped: of.rx_dropped,
            rx_invalid_descs: of.rx_invalid_descs,
            tx_invalid_descs: of.tx_invalid_descs,
            rx_ring_full: of.rx_ring_full,
            rx_fill_ring_empty_descs: of.rx_fill_ring_empty_descs,
            tx_ring_empty_descs: of.tx_ring_empty_descs,
        })
    }

    /// Has the kernel send what is in the tx ring, as much as it likes at a time; Err says what kept it from more:
    /// EAGAIN, that there is more to do or no room now; EBUSY, that the device dropped the frame it took last.
    pub fn kick(&self) -> io::Result<()> {
        sys::kick_tx(&self.0.fd)
    }

    /// Has the kernel look for frames to receive into.
    pub fn wake(&self) -> io::Result<()> {
        sys::kick_rx(&self.0.fd)
    }
}

/// Waits until one of the sockets has received something, or `patience` has passed.
pub fn wait_to_receive(sockets: &[&Socket], patience: Duration) -> io::Result<()> {
    let fds: Vec<&OwnedFd> = sockets.iter().map(|socket| socket.fd()).collect();
    sys::poll(&fds, libc::POLLIN, patience.as_millis() as libc::c_int)
}
