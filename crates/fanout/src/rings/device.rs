//! The rings of devices: memory that all of them share, receiving ones with their workers, and those that only send.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

use sluice_xsk::{Copy, Frame, Opened, Options, QueueId, Queues, Sizes, Socket, Umem, open, queues};

use super::affinity::cpu_of;
use super::port::Port;
use super::program::Program;
use super::worker::Worker;
use super::{Shared, with_losses};
use crate::counters::{Queue, get};
use crate::metrics::QueueReport;
use crate::threads::{cpus, pin};

const RX: u32 = 4096;
const TX: u32 = 2048;
const SIZES: Sizes = Sizes { fill: RX, completion: 2 * TX, rx: RX, tx: TX };
/// Frames of a worker: its fill ring full, and its tx ring, too.
const FRAMES: u32 = RX + TX;
/// Room in front of a frame that the kernel keeps (XDP_PACKET_HEADROOM).
const HEADROOM: u32 = 256;
/// Ethernet header and one VLAN tag.
const LINK_HEADER: u32 = 18;

/// Opens tx rings, also from the thread that finds next hops.
#[derive(Clone)]
pub struct Opener {
    umem: Umem,
    copy: Copy,
    /// All that were opened and still are, with their device; a new socket shares the memory with one of them.
    sockets: Arc<Mutex<Vec<(u32, Socket)>>>,
}

pub struct Memory {
    opener: Opener,
    free: Mutex<Vec<Frame>>,
}

impl Memory {
    /// For so many workers. Frames are as large as the largest MTU wants them.
    pub fn new(workers: u32, mtu: u32, copy: Copy) -> io::Result<Memory> {
        let size = if mtu + LINK_HEADER + HEADROOM <= 2048 { 2048 } else { 4096 };
        let (umem, free) = Umem::new(workers.max(1) * FRAMES, size)?;
        let opener = Opener { umem, copy, sockets: Arc::default() };
        Ok(Memory { opener, free: Mutex::new(free) })
    }

    pub fn opener(&self) -> Opener {
        self.opener.clone()
    }

    pub fn bytes(&self) -> u64 {
        u64::from(self.opener.umem.frames()) * u64::from(self.opener.umem.frame_size())
    }

    pub fn anyone(&self) -> Option<Socket> {
        self.opener.sockets().first().map(|(_, socket)| socket.clone())
    }

    /// Lets go of what is open on devices that `keep` refuses.
    pub fn retain(&self, keep: impl Fn(u32) -> bool) {
        self.opener.sockets().retain(|(ifindex, _)| keep(*ifindex));
    }

    pub fn serve(&self, ifindex: u32, name: &str, shared: &Shared) -> io::Result<()> {
        self.opener.serve(ifindex, name, shared)
    }

    /// The frames of one worker.
    fn frames(&self) -> io::Result<Vec<Frame>> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let rest = free.len().checked_sub(FRAMES as usize).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::OutOfMemory,
                "the memory of the rings was made for fewer queues; start anew to have more",
            )
        })?;
        Ok(free.split_off(rest))
    }

    fn give_back(&self, mut frames: Vec<Frame>) {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).append(&mut frames);
    }
}

impl Opener {
    fn sockets(&self) -> MutexGuard<'_, Vec<(u32, Socket)>> {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self, ifindex: u32, queue: u32) -> io::Result<Opened> {
        let mut sockets = self.sockets();
        let options = Options { sizes: SIZES, copy: self.copy, need_wakeup: true };
        let beside = sockets.first().map(|(_, socket)| socket);
        let opened = open(&self.umem, QueueId { ifindex, queue }, options, beside)?;
        sockets.push((ifindex, opened.socket.clone()));
        Ok(opened)
    }

    /// Tx rings on the queues of a device that leads to receivers; those it has are kept.
    pub fn serve(&self, ifindex: u32, name: &str, shared: &Shared) -> io::Result<()> {
        let Queues { tx, .. } = queues(name);
        for queue in shared.ports.of(ifindex)..tx {
            let opened = self.open(ifindex, queue)?;
            if let Some(port) = port(opened.socket, opened.tx, opened.completion) {
                shared.ports.insert(ifindex, queue, port);
            }
        }
        Ok(())
    }
}

fn port(
    socket: Socket,
    tx: Option<sluice_xsk::TxRing>,
    completion: sluice_xsk::CompletionRing,
) -> Option<Arc<Port>> {
    Some(Arc::new(Port::new(socket, tx?, completion)))
}

/// A worker at work.
pub struct Running {
    socket: Socket,
    thread: Option<JoinHandle<()>>,
}

/// An interface that listeners are on.
pub struct Device {
    pub name: String,
    pub ifindex: u32,
    pub program: Program,
    pub workers: Vec<Running>,
    stop: Arc<AtomicBool>,
}

impl Device {
    /// With a worker on every queue it receives by, and a program that is not attached.
    pub fn open(name: &str, ifindex: u32, memory: &Memory, shared: &Arc<Shared>) -> io::Result<Device> {
        let Queues { rx, tx } = queues(name);
        let room = memory.opener.umem.frame_size() - HEADROOM;
        let program = Program::load(rx, room)?;
        let mut device =
            Device { name: name.to_owned(), ifindex, program, workers: vec![], stop: Arc::default() };
        for queue in 0..rx {
            device.worker(queue, tx, memory, shared)?;
        }
        Ok(device)
    }

    fn worker(&mut self, queue: u32, tx: u32, memory: &Memory, shared: &Arc<Shared>) -> io::Result<()> {
        let free = memory.frames()?;
        let opened = match memory.opener.open(self.ifindex, queue) {
            Ok(opened) => opened,
            Err(error) => {
                memory.give_back(free);
                return Err(error);
            }
        };
        let (socket, rx) = (opened.socket, opened.rx.ok_or(io::ErrorKind::Unsupported)?);
        // receivers may be behind the interface that listeners are on
        if let (true, Some(port)) = (queue < tx, port(socket.clone(), opened.tx, opened.completion)) {
            shared.ports.insert(self.ifindex, queue, port);
        }
        self.program.serve(queue, &socket)?;
        let worker = Worker {
            queue,
            socket: socket.clone(),
            umem: memory.opener.umem.clone(),
            rx,
            fill: opened.fill,
            free,
            shared: shared.clone(),
            stop: self.stop.clone(),
        };
        let cpu = cpu_of(&self.name, queue, &cpus());
        // the kernel keeps 15 characters of a thread's name
        let name = format!("fan-{}-q{queue}", self.name.chars().take(8).collect::<String>());
        let thread = Builder::new().name(name).spawn(move || {
            if let Some(cpu) = cpu {
                pin(cpu);
            }
            worker.run();
        })?;
        self.workers.push(Running { socket, thread: Some(thread) });
        Ok(())
    }

    /// From now on frames of its listeners are taken.
    pub fn attach(&mut self) -> io::Result<()> {
        self.program.attach(self.ifindex)
    }

    /// Takes nothing more; workers send what was received, and end.
    pub fn end(&mut self) {
        self.program.detach();
        self.stop.store(true, Ordering::Release);
        for thread in self.workers.iter_mut().filter_map(|worker| worker.thread.take()) {
            let _ = thread.join();
        }
    }

    pub fn queue_report(&self, queue: u32, slot: u32, counters: &Queue, is_alone: bool) -> QueueReport {
        let statistics = self.workers.get(queue as usize).and_then(|w| w.socket.statistics().ok());
        let statistics = statistics.unwrap_or_default();
        let counted = self.program.counted(slot, queue);
        // the socket's losses are those of all listeners on the device
        let lost = statistics.rx_dropped + statistics.rx_ring_full;
        let missing = counted.taken.saturating_sub(get(&counters.packets));
        let lost = if is_alone { lost } else { lost.min(missing) };
        let report = with_losses(queue, counters, lost, counted);
        QueueReport { xdp_statistics: statistics.named().to_vec(), ..report }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.end();
    }
}
