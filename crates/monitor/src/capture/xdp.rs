//! A live interface through AF_XDP sockets, one a receive queue (Documentation/networking/af_xdp.rst).
//!
//! Cheaper than a packet socket, because a frame is taken before the kernel makes anything of it; and for that reason
//! only for taps that nobody else uses: what is taken does not reach the machine. Such a tap is declared by `xdp:` in
//! front of its name.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{SystemTime, UNIX_EPOCH};

use sluice_libbpf::{Link, Target};
use sluice_xsk::{
    Copy, FillRing, Frame, Options, QueueId, RxRing, Sizes, Socket, Umem, open, program, queues,
};

use super::CaptureError;
use super::interface::{Capture, Interface};
use super::live::promiscuous;
use crate::frame::{Batch, LinkType, Record};

/// What stands in front of the name of an interface whose frames are taken.
pub(super) const PREFIX: &str = "xdp:";

/// Frames a queue, and room for each: a page, of which the kernel keeps some for itself.
const FRAMES: u32 = 8192;
const ROOM: u32 = 4096;
/// Frames of a batch, at most.
const BATCH: usize = 4096;

pub(super) struct Sockets {
    queues: Vec<Queue>,
    /// The network card drops what is for other stations, unless somebody asks for it.
    _promiscuous: OwnedFd,
    /// Takes the program off when it is closed.
    _link: Link,
}

impl Sockets {
    /// Takes all frames of an interface of the caller's network namespace.
    pub fn open(interface: &str) -> Result<Interface<Sockets>, CaptureError> {
        let name = format!("{PREFIX}{interface}");
        let Ok(index) = nix::net::if_::if_nametoindex(interface) else {
            return Err(CaptureError::NoInterface { name, known: super::live::interfaces() });
        };
        let failed = |what: &str, source: io::Error| {
            let text = format!("{what}: {source}");
            CaptureError::Io { name: name.clone(), source: io::Error::new(source.kind(), text) }
        };
        let count = queues(interface).rx;
        let map =
            program::socket_map(count).map_err(|error| failed("cannot make a map of sockets", error))?;
        let mut queues = Vec::new();
        for number in 0..count {
            let queue = Queue::open(index, number)
                .map_err(|error| failed(&format!("cannot open an AF_XDP socket on queue {number}"), error))?;
            program::put(&map, number, &queue.socket)
                .map_err(|error| failed("cannot enter a socket", error))?;
            queues.push(queue);
        }
        let promiscuous =
            promiscuous(index).map_err(|error| failed("cannot ask for frames to other stations", error))?;
        let link = program::redirect_to(&map)
            .and_then(|program| Link::attach(program, index, Target::Xdp))
            .map_err(|error| {
            failed("cannot attach the XDP program that takes frames (is there another?)", error)
        })?;
        Ok(Interface::new(name, Sockets { queues, _promiscuous: promiscuous, _link: link }))
    }
}

impl Capture for Sockets {
    fn take(&mut self, batch: &mut Batch) -> io::Result<()> {
        for queue in &mut self.queues {
            queue.take(batch);
        }
        Ok(())
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.queues.iter().map(|queue| queue.socket.fd().as_fd()).collect()
    }

    fn drops(&self) -> u64 {
        self.queues.iter().map(Queue::drops).sum()
    }
}

/// One socket with its frames, which are the kernel's but while they are copied.
struct Queue {
    socket: Socket,
    umem: Umem,
    fill: FillRing,
    receive: RxRing,
    frames: Vec<Frame>,
}

impl Queue {
    fn open(ifindex: u32, queue: u32) -> io::Result<Queue> {
        let (umem, mut frames) = Umem::new(FRAMES, ROOM)?;
        let sizes = Sizes { fill: FRAMES, completion: 64, rx: FRAMES, tx: 0 };
        let options = Options { sizes, copy: Copy::AsPossible, need_wakeup: false };
        let mut opened = open(&umem, QueueId { ifindex, queue }, options, None)?;
        let receive = opened.rx.ok_or(io::ErrorKind::Unsupported)?;
        opened.fill.put(&mut frames);
        Ok(Queue { socket: opened.socket, umem, fill: opened.fill, receive, frames })
    }

    /// Copies the frames that wait and gives their memory back. The time is that of reading: AF_XDP has none.
    fn take(&mut self, batch: &mut Batch) {
        if self.receive.receive(&mut self.frames, BATCH) == 0 {
            return;
        }
        let time_ns = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
        for frame in &self.frames {
            let record = Record {
                time_ns,
                wire_len: frame.len() as u32,
                link: LinkType::Ethernet,
                ..Record::default()
            };
            batch.push_copy(record, self.umem.bytes(frame));
        }
        self.fill.put(&mut self.frames);
    }

    /// Frames for which there was no room.
    fn drops(&self) -> u64 {
        self.socket.statistics().map_or(0, |of| of.rx_dropped + of.rx_ring_full)
    }
}
