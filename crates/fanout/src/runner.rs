//! Runs the listeners of a configuration in this process, and changes over to another without losing a packet: sockets
//! that stay wanted stay open, with everything that waits in them.

use std::io;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use sluice_language::fan_out::{FanOut, Listener, Mode, same_bind};

use crate::counters::{Queue, get};
use crate::descriptors;
use crate::error::RunnerError;
use crate::health;
use crate::metrics::{ListenerReport, QueueReport, ReceiverReport, named};
use crate::names::Names;
use crate::pool::Pool;
use crate::rings::Rings;
use crate::socket;
use crate::tcp::Connections;
use crate::threads::{cpus, pin};
use crate::udp::{Transport, Worker};

/// How often shares move.
const TICK: Duration = Duration::from_millis(50);

/// How often it is looked whether devices have been made anew.
const LOOK: Duration = Duration::from_secs(1);

/// A listener at work.
struct Running {
    listener: Listener,
    /// Number of the device that its sockets are bound to.
    device: Option<u32>,
    pool: Arc<Pool>,
    /// One a worker.
    queues: Vec<Arc<Queue>>,
    threads: Vec<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
    sources: Arc<AtomicUsize>,
    connections: Option<Arc<Connections>>,
    /// The log has said how its rings are.
    is_told: bool,
}

#[derive(Default)]
struct State {
    running: Vec<Running>,
    wanted: FanOut,
    /// Version of the names that the running listeners have.
    named: u64,
    rings: Rings,
    /// Descriptors that the process may have.
    descriptors: u64,
}

/// Changes of it exclude each other; packets do not wait for them.
#[derive(Clone, Default)]
pub struct Runner {
    state: Arc<Mutex<State>>,
    names: Names,
    ending: Arc<AtomicBool>,
}

impl Runner {
    /// Starts the thread that moves shares and follows `names`; listeners come with [`Runner::apply`].
    pub fn start(names: Names) -> Result<Runner, RunnerError> {
        let runner = Runner { names, ..Runner::default() };
        runner.state().descriptors = descriptors::raise();
        let own = runner.clone();
        Builder::new().name("fan-upkeep".into()).spawn(move || own.upkeep()).map_err(RunnerError::Thread)?;
        Ok(runner)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts the user-space listeners of a configuration in force: all of them or, on an error, none.
    pub fn apply(&self, fan_out: &FanOut) -> Result<(), RunnerError> {
        let wanted = FanOut { listeners: fan_out.user().cloned().collect(), metrics: fan_out.metrics };
        let mut state = self.state();
        state.apply(&wanted, &self.names)?;
        state.wanted = wanted;
        Ok(())
    }

    /// Of each user-space listener, in configuration order.
    pub fn report(&self) -> Vec<ListenerReport> {
        let state = self.state();
        state.running.iter().map(|running| running.report(&state.rings)).collect()
    }

    /// Receives what waits in the sockets, sends it, and returns when every thread has ended.
    pub fn end(&self) {
        self.ending.store(true, Ordering::Release);
        let mut state = self.state();
        state.rings.end();
        end(std::mem::take(&mut state.running));
    }

    fn upkeep(&self) {
        let (mut looked, mut said) = (Instant::now(), String::new());
        loop {
            std::thread::sleep(TICK);
            let mut state = self.state();
            // under the lock: what ends is not started again
            if self.ending.load(Ordering::Acquire) {
                return;
            }
            state.running.iter().for_each(Running::tick);
            let version = self.names.version();
            let mut is_behind = version != state.named;
            if looked.elapsed() > LOOK {
                is_behind |= state.has_new_device();
                looked = Instant::now();
            }
            if !is_behind {
                continue;
            }
            let wanted = state.wanted.clone();
            let result = state.apply(&wanted, &self.names).map_err(|error| error.to_string()).err();
            // until another answer comes
            state.named = version;
            let error = result.unwrap_or_default();
            if error != said && !error.is_empty() {
                tracing::warn!(error, "listeners stay as they were");
            }
            said = error;
        }
    }
}

/// Whether a listener can go on with the sockets it has.
fn keeps_sockets(a: &Listener, b: &Listener) -> bool {
    (a.bind, &a.interface, a.mode, a.workers, a.framing)
        == (b.bind, &b.interface, b.mode, b.workers, b.framing)
        && (a.receive_buffer, a.keep_source) == (b.receive_buffer, b.keep_source)
}

impl State {
    /// Puts `wanted` in force with what its names mean now.
    fn apply(&mut self, wanted: &FanOut, names: &Names) -> Result<(), RunnerError> {
        let version = names.version();
        let wanted = names.expand(wanted);
        let stays = |r: &Running| {
            let same = |l: &Listener| l.name == r.listener.name && keeps_sockets(&r.listener, l);
            wanted.listeners.iter().any(same) && !r.has_new_device()
        };
        let (stay, go): (Vec<Running>, Vec<Running>) = self.running.drain(..).partition(stays);
        self.running = stay;
        let mut fresh = match self.start(&wanted, &go) {
            Ok(fresh) => fresh,
            Err(error) => {
                self.running.extend(go);
                return Err(error);
            }
        };
        self.running.append(&mut fresh);
        for running in &mut self.running {
            if let Some(listener) = wanted.listeners.iter().find(|l| l.name == running.listener.name) {
                running.configure(listener);
            }
        }
        self.share_descriptors();
        let committed = self.commit_rings();
        end(go);
        self.named = version;
        committed
    }

    /// A device that listeners are bound to, or have rings on, is another one by now.
    fn has_new_device(&self) -> bool {
        let is_behind = |running: &Running| {
            let listener = &running.listener;
            running.has_new_device() || listener.mode == Mode::AfXdp && self.rings.lack(listener)
        };
        self.running.iter().any(is_behind)
    }

    /// Listeners that are not yet there, at work: all of them or, on an error, none.
    fn start(&mut self, wanted: &FanOut, go: &[Running]) -> Result<Vec<Running>, RunnerError> {
        let is_new = |l: &&Listener| !self.running.iter().any(|r| r.listener.name == l.name);
        let fresh: Vec<&Listener> = wanted.listeners.iter().filter(is_new).collect();
        let new_rings = fresh.iter().filter(|l| l.mode == Mode::AfXdp).count();
        let opened: Vec<Opened> = fresh.iter().map(|l| open(l, go)).collect::<Result<_, _>>()?;
        let by_rings: Vec<&Listener> = wanted.listeners.iter().filter(|l| l.mode == Mode::AfXdp).collect();
        self.rings.prepare(&by_rings, new_rings)?;
        let mut started = vec![];
        for (listener, opened) in fresh.into_iter().zip(opened) {
            let mut running = Running::new(listener, opened.device);
            let result = running.start(opened.sockets);
            started.push(running);
            if let Err(error) = result {
                end(started);
                return Err(error);
            }
        }
        Ok(started)
    }
}

impl State {
    /// Among the workers that keep senders.
    fn share_descriptors(&self) {
        let keep = || self.running.iter().filter(|running| running.listener.keep_source);
        let sources =
            descriptors::sources(self.descriptors, keep().map(|running| running.queues.len()).sum());
        keep().for_each(|running| running.sources.store(sources, Ordering::Relaxed));
    }

    /// Tells the rings whom they serve now.
    fn commit_rings(&mut self) -> Result<(), RunnerError> {
        let by_rings = self.running.iter().filter(|running| running.listener.mode == Mode::AfXdp);
        let wanted: Vec<_> = by_rings.map(|running| (&running.listener, &running.pool)).collect();
        self.rings.commit(&wanted)?;
        for running in self.running.iter_mut().filter(|running| running.listener.mode == Mode::AfXdp) {
            if !std::mem::replace(&mut running.is_told, true) {
                self.rings.log(&running.listener);
            }
        }
        Ok(())
    }
}

/// All at once, since each takes its time.
fn end(listeners: Vec<Running>) {
    for running in &listeners {
        running.stop.store(true, Ordering::Release);
    }
    listeners.into_iter().for_each(Running::end);
}

/// What a new listener has before it is at work.
struct Opened {
    sockets: Vec<UdpSocket>,
    device: Option<u32>,
}

/// Number of the device that a listener's sockets are to be bound to; rings look for their own.
fn device_of(listener: &Listener) -> Result<Option<u32>, RunnerError> {
    let Some(unit) = listener.interface.as_deref().filter(|_| listener.mode != Mode::AfXdp) else {
        return Ok(None);
    };
    let device = unit.strip_suffix(".0").unwrap_or(unit);
    let (name, interface) = (listener.name.clone(), device.to_owned());
    let missing = |_| RunnerError::NoInterface { listener: name, interface };
    nix::net::if_::if_nametoindex(device).map(Some).map_err(missing)
}

/// The sockets of a listener; they join those of one that is about to go.
fn open(listener: &Listener, going: &[Running]) -> Result<Opened, RunnerError> {
    let (name, address) = (&listener.name, listener.bind);
    let fail = |source: io::Error| match source.kind() {
        io::ErrorKind::AddrInUse => RunnerError::InUse { listener: name.clone(), address },
        kind => {
            let advice = match kind {
                io::ErrorKind::AddrNotAvailable => {
                    "give an interface the address, or choose a mode that needs none (xdp, tc-ebpf)"
                }
                io::ErrorKind::PermissionDenied => "ports below 1024 and keep-source need privileges",
                _ => "check the address",
            };
            RunnerError::Listen { listener: name.clone(), address, source, advice }
        }
    };
    if listener.mode == Mode::AfXdp {
        return Ok(Opened { sockets: vec![], device: None });
    }
    let device = device_of(listener)?;
    if !going.iter().any(|running| same_bind(running.listener.bind, address)) {
        socket::is_free(address, device).map_err(fail)?;
    }
    let cpus = cpus();
    let workers = listener.workers.map_or(cpus.len(), |workers| workers as usize).max(1);
    // the CPU that has the packet chooses the socket, if every CPU has one
    let of = |worker: usize| (workers == cpus.len() && workers > 1).then(|| cpus[worker]);
    let one = |worker| socket::listen(address, device, listener.receive_buffer, of(worker));
    let sockets = (0..workers).map(one).collect::<io::Result<_>>().map_err(fail)?;
    Ok(Opened { sockets, device })
}

impl Running {
    /// With its connections, and without threads.
    fn new(listener: &Listener, device: Option<u32>) -> Running {
        let pool = Arc::new(Pool::new(listener));
        let connections = (listener.mode == Mode::TcpForward)
            .then(|| Connections::new(pool.clone(), listener.framing, listener.queue_bytes));
        if let Some(connections) = &connections {
            connections.prepare(&pool.table().targets);
        }
        Running {
            listener: listener.clone(),
            device,
            pool,
            queues: vec![],
            threads: vec![],
            stop: Arc::new(AtomicBool::new(false)),
            sources: Arc::new(AtomicUsize::new(1)),
            connections,
            is_told: false,
        }
    }

    fn start(&mut self, sockets: Vec<UdpSocket>) -> Result<(), RunnerError> {
        let cpus = cpus();
        for (number, socket) in sockets.into_iter().enumerate() {
            self.worker(number, socket, cpus.get(number % cpus.len().max(1)).copied())?;
        }
        let (pool, stop, name) = (self.pool.clone(), self.stop.clone(), self.listener.name.clone());
        let checker = move || health::watch(&pool, &name, &stop, &|| ());
        // nobody waits for its end: it may have just asked receivers that do not answer
        Builder::new().name("fan-health".into()).spawn(checker).map_err(RunnerError::Thread)?;
        let (listener, workers) = (&self.listener, self.queues.len());
        let (name, mode, bind) = (&listener.name, listener.mode.name(), listener.bind);
        tracing::info!(listener = name, mode, %bind, workers, "listener initialized");
        Ok(())
    }

    /// The device it is bound to is another of the same name by now. One that is away may come back.
    fn has_new_device(&self) -> bool {
        self.device.is_some() && device_of(&self.listener).is_ok_and(|index| index != self.device)
    }

    fn worker(&mut self, number: usize, socket: UdpSocket, cpu: Option<usize>) -> Result<(), RunnerError> {
        let counters = Arc::new(Queue::default());
        let transport = self.connections.clone().map_or(Transport::Datagrams, Transport::Streams);
        let (pool, stop, sources) = (self.pool.clone(), self.stop.clone(), self.sources.clone());
        self.queues.push(counters.clone());
        let worker = Worker { socket, pool, counters, transport, stop, sources };
        // the kernel keeps 15 characters of a thread's name
        let name = format!("fan-{}", self.listener.name);
        let name = format!("{}-{number}", name.chars().take(12).collect::<String>());
        let thread = Builder::new().name(name).spawn(move || {
            if let Some(cpu) = cpu {
                pin(cpu);
            }
            worker.run();
        });
        self.threads.push(thread.map_err(RunnerError::Thread)?);
        Ok(())
    }

    fn configure(&mut self, listener: &Listener) {
        if self.listener == *listener {
            return;
        }
        self.pool.configure_with(listener, |targets| {
            if let Some(connections) = &self.connections {
                connections.limit(listener.queue_bytes);
                connections.prepare(targets);
            }
        });
        self.listener = listener.clone();
    }

    /// Shares move, and connections end of receivers that have drained.
    fn tick(&self) {
        self.pool.tick(Instant::now());
        if let Some(connections) = &self.connections {
            connections.retire();
        }
    }

    /// Waits for those who were told to stop.
    fn end(self) {
        for thread in self.threads {
            let _ = thread.join();
        }
        if let Some(connections) = &self.connections {
            connections.end();
        }
        tracing::info!(listener = self.listener.name, "listener ended");
    }

    fn report(&self, rings: &Rings) -> ListenerReport {
        let queue = |(number, counters): (usize, &Arc<Queue>)| QueueReport {
            queue: number.to_string(),
            packets: get(&counters.packets),
            bytes: get(&counters.bytes),
            overflow: Some(get(&counters.overflow)),
            drops: named(&counters.drops),
            xdp_statistics: vec![],
        };
        let rings = rings.report(&self.listener.name);
        let (attach, zero_copy) = rings.as_ref().map_or(("none", false), |r| (r.attach, r.zero_copy));
        ListenerReport {
            name: self.listener.name.clone(),
            mode: self.listener.mode.name().to_owned(),
            attach: attach.to_owned(),
            zero_copy,
            ring_memory: rings.as_ref().map(|rings| rings.memory),
            interface: self.listener.interface.clone().unwrap_or_default(),
            queues: rings
                .map_or_else(|| self.queues.iter().enumerate().map(queue).collect(), |rings| rings.queues),
            receivers: receivers(&self.pool),
        }
    }
}

/// What the pool knows of its receivers.
pub fn receivers(pool: &Pool) -> Vec<ReceiverReport> {
    let one = |view: crate::pool::View| {
        let counters = &view.target.counters;
        ReceiverReport {
            name: view.target.name.clone(),
            address: view.target.address.to_string(),
            is_former: view.is_former,
            up: view.up,
            share: view.share,
            packets: get(&counters.packets),
            bytes: get(&counters.bytes),
            waiting: get(&counters.waiting),
            drops: named(&counters.drops),
        }
    };
    pool.view().into_iter().map(one).collect()
}

#[cfg(test)]
mod tests;
