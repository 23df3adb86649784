//! Mode `af_xdp`: a worker a queue between the rx rings of the listeners' interfaces and the tx rings of those that lead
//! to receivers. All rings share one memory, so that a frame is received, rewritten and sent where it is.

mod affinity;
mod device;
mod hops;
mod packet;
mod port;
mod program;
mod worker;

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use sluice_language::fan_out::{Listener, Mode};
use sluice_xsk::{Copy, queues};

use crate::counters::{Drop, Queue, get};
use crate::error::RunnerError;
use crate::metrics::{QueueReport, named};
use crate::pool::Pool;
use device::{Device, Memory};
use hops::{Finder, Found, Hops};
use port::Ports;
use program::{Entry, SLOTS};

/// How often next hops are looked up, and how often while one is missing.
const AGAIN: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(20);
/// How long a commit waits for next hops that were never asked for.
const ANSWER: Duration = Duration::from_millis(500);
/// How often the kernel is asked to make sure of a neighbour that it has not heard of lately.
const FRESHEN: Duration = Duration::from_secs(1);

/// A listener with what its workers count.
pub(crate) struct RingListener {
    name: String,
    device: String,
    bind: SocketAddr,
    pool: Arc<Pool>,
    /// By number of the device's queue.
    queues: Vec<Arc<Queue>>,
}

/// What workers go by.
#[derive(Default)]
struct Shared {
    /// By slot. One that went stays until its slot is another's: frames of it may be on their way.
    listeners: Mutex<Arc<Vec<Option<Arc<RingListener>>>>>,
    version: AtomicU64,
    hops: Hops,
    ports: Ports,
}

impl Shared {
    fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    fn listeners(&self) -> Arc<Vec<Option<Arc<RingListener>>>> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn publish(&self, listeners: Vec<Option<Arc<RingListener>>>) {
        *self.listeners.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(listeners);
        self.version.fetch_add(1, Ordering::Release);
    }
}

/// What a listener's rings are, for reports.
pub(crate) struct Report {
    pub attach: &'static str,
    pub zero_copy: bool,
    /// Bytes for frames, of all rings together.
    pub memory: u64,
    pub queues: Vec<QueueReport>,
}

/// All rings of this process.
#[derive(Default)]
pub(crate) struct Rings {
    memory: Option<Memory>,
    devices: Vec<Device>,
    /// Slots whose listener is wanted.
    in_force: Vec<usize>,
    shared: Arc<Shared>,
    finder: Option<(JoinHandle<()>, Arc<AtomicBool>)>,
    /// Memory and next hops are shared with the thread that looks for them.
    opener: Arc<Mutex<Option<device::Opener>>>,
    /// Addresses that devices were given (`answer-arp`).
    given: Vec<(u32, IpAddr)>,
}

/// The device that a listener's frames come by, and their tag; 0 = without.
fn device_and_tag(listener: &Listener) -> (String, u16) {
    let unit = listener.interface.as_deref().unwrap_or_default();
    let device = unit.rsplit_once('.').map_or(unit, |(device, _)| device);
    (device.to_owned(), listener.vlan.unwrap_or(0))
}

/// The device of that name is not the one with that number any more.
fn is_other(name: &str, ifindex: u32) -> bool {
    nix::net::if_::if_nametoindex(name) != Ok(ifindex)
}

fn mode_error(listener: &Listener, reason: String) -> RunnerError {
    RunnerError::Mode { listener: listener.name.clone(), mode: Mode::AfXdp.name(), reason }
}

impl Rings {
    /// Opens what the wanted listeners need beyond what there is. Nothing is taken from the kernel yet, and on an error
    /// all is as before, but for devices that are gone. So many of the listeners, `new`, have no slot yet.
    pub fn prepare(&mut self, wanted: &[&Listener], new: usize) -> Result<(), RunnerError> {
        self.close_gone();
        let fresh = self.fresh(wanted)?;
        let Some(first) = wanted.first() else { return Ok(()) };
        // those that go have theirs until others have taken over
        if self.in_force.len() + new > SLOTS {
            return Err(mode_error(first, format!("rings serve {SLOTS} listeners at most")));
        }
        let fail = |error: io::Error| mode_error(first, error.to_string());
        let mut finder = Finder::open().map_err(fail)?;
        refuse_receivers_here(&mut finder, wanted)?;
        let result = match self.memory {
            Some(_) => self.open(&fresh, wanted, &mut finder),
            None => self.begin(&fresh, wanted, &mut finder),
        };
        match result {
            Ok(mut devices) => self.devices.append(&mut devices),
            Err(error) => {
                fresh.iter().for_each(|(_, ifindex, _)| self.let_go(*ifindex));
                if self.devices.is_empty() {
                    self.forget();
                }
                return Err(error);
            }
        }
        self.await_hops(&mut finder, wanted);
        Ok(())
    }

    /// Next hops of receivers that are new are given a moment to answer, so that no packet finds them missing.
    fn await_hops(&self, finder: &mut Finder, wanted: &[&Listener]) {
        let begun = Instant::now();
        let known = self.shared.hops.table();
        loop {
            let targets = wanted.iter().flat_map(|l| &l.receivers).filter_map(|r| Some(r.address()?.ip()));
            let found = finder.find(targets);
            let missing = |(address, found): (&IpAddr, &Found)| {
                *found == Err(Drop::NoNextHop) && !known.contains_key(address)
            };
            let is_missing = found.iter().any(missing);
            if !is_missing || begun.elapsed() > ANSWER {
                // those of listeners that are about to go are still used
                let before = known.iter().filter(|(address, _)| !found.contains_key(address));
                let before: Vec<_> = before.map(|(address, hop)| (*address, *hop)).collect();
                self.shared.hops.publish(found.into_iter().chain(before).collect());
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Devices that are wanted and not yet there, each with a listener that wants it.
    fn fresh<'a>(&self, wanted: &[&'a Listener]) -> Result<Vec<(String, u32, &'a Listener)>, RunnerError> {
        let mut fresh: Vec<(String, u32, &Listener)> = vec![];
        for listener in wanted {
            let (device, _) = device_and_tag(listener);
            let index = nix::net::if_::if_nametoindex(device.as_str()).map_err(|_| {
                RunnerError::NoInterface { listener: listener.name.clone(), interface: device.clone() }
            })?;
            let known = self.devices.iter().any(|d| d.name == device && d.ifindex == index);
            if !known && !fresh.iter().any(|(name, ..)| *name == device) {
                if self.shared.ports.of(index) > 0 {
                    let reason = format!("interface {device} only sent so far; start anew to listen on it");
                    return Err(mode_error(listener, reason));
                }
                fresh.push((device.clone(), index, listener));
            }
            let on = wanted.iter().filter(|other| device_and_tag(other).0 == device).count();
            if on > SLOTS / 2 {
                let reason = format!("{device} has {on} listeners; rings serve {} an interface", SLOTS / 2);
                return Err(mode_error(listener, reason));
            }
        }
        Ok(fresh)
    }

    /// The first rings: the driver's own memory if all devices can, else all copy.
    fn begin(
        &mut self,
        fresh: &[(String, u32, &Listener)],
        wanted: &[&Listener],
        finder: &mut Finder,
    ) -> Result<Vec<Device>, RunnerError> {
        let Some((_, _, listener)) = fresh.first() else { return Ok(vec![]) };
        let mut copy = Copy::AsPossible;
        loop {
            let workers = fresh.iter().map(|(device, ..)| queues(device).rx).sum();
            let mtus = fresh.iter().map(|(_, index, _)| finder.mtu(*index).unwrap_or(1500));
            let memory = Memory::new(workers, mtus.max().unwrap_or(1500), copy)
                .map_err(|error| mode_error(listener, format!("no memory for frames: {error}")))?;
            self.memory = Some(memory);
            match self.open(fresh, wanted, finder) {
                Err(error) if copy == Copy::AsPossible && self.is_zero_copy() => {
                    tracing::warn!(%error, "not every device takes part in zero-copy: all rings copy");
                    copy = Copy::Always;
                    self.forget();
                }
                result => return result,
            }
        }
    }

    fn is_zero_copy(&self) -> bool {
        self.memory.as_ref().and_then(Memory::anyone).is_some_and(|socket| socket.is_zero_copy())
    }

    fn open(
        &mut self,
        fresh: &[(String, u32, &Listener)],
        wanted: &[&Listener],
        finder: &mut Finder,
    ) -> Result<Vec<Device>, RunnerError> {
        let Some(memory) = self.memory.as_ref() else { return Ok(vec![]) };
        let mut devices = vec![];
        for (name, index, listener) in fresh {
            let device = Device::open(name, *index, memory, &self.shared)
                .map_err(|error| mode_error(listener, format!("interface {name}: {error}")))?;
            devices.push(device);
        }
        for listener in wanted {
            let targets = listener.receivers.iter().filter_map(|r| Some(r.address()?.ip()));
            for ifindex in finder.devices(targets) {
                let name = finder.name(ifindex).unwrap_or_default();
                memory.serve(ifindex, &name, &self.shared).map_err(|error| {
                    mode_error(listener, format!("interface {name}, which leads to receivers: {error}"))
                })?;
            }
        }
        for (device, (name, _, listener)) in devices.iter_mut().zip(fresh) {
            device.attach().map_err(|error| mode_error(listener, format!("interface {name}: {error}")))?;
        }
        Ok(devices)
    }

    /// Whether the device of a listener is there without rings: it has been made anew, or could not be served yet.
    pub fn lack(&self, listener: &Listener) -> bool {
        let (name, _) = device_and_tag(listener);
        let has = |index| self.devices.iter().any(|device| device.name == name && device.ifindex == index);
        nix::net::if_::if_nametoindex(name.as_str()).is_ok_and(|index| !has(index))
    }

    /// Rings of devices that are gone share memory with nobody any more, and stand in the way of those that have come back.
    fn close_gone(&mut self) {
        let is_gone = |device: &Device| is_other(&device.name, device.ifindex);
        let (gone, stay) = std::mem::take(&mut self.devices).into_iter().partition(is_gone);
        self.devices = stay;
        for device in gone {
            self.end_device(device);
        }
        let is_there = |ifindex| nix::net::if_::if_indextoname(ifindex).is_ok();
        self.shared.ports.retain(is_there);
        if let Some(memory) = &self.memory {
            memory.retain(is_there);
        }
        if self.devices.is_empty() && self.memory.is_some() {
            self.forget();
        }
    }

    /// Closes what is open on a device.
    fn let_go(&self, ifindex: u32) {
        self.shared.ports.retain(|of| of != ifindex);
        if let Some(memory) = &self.memory {
            memory.retain(|of| of != ifindex);
        }
    }

    /// Closes everything.
    fn forget(&mut self) {
        // the thread that looks for next hops has a hold on the sockets, too
        *self.opener() = None;
        self.shared.ports.retain(|_| false);
        if let Some(memory) = self.memory.take() {
            memory.retain(|_| false);
        }
    }

    /// Puts listeners in force whose devices are there: in one step for each device.
    pub fn commit(&mut self, wanted: &[(&Listener, &Arc<Pool>)]) -> Result<(), RunnerError> {
        let before = self.shared.listeners();
        let mut slots: Vec<Option<Arc<RingListener>>> = before.to_vec();
        slots.resize(SLOTS, None);
        let mut used = vec![];
        let mut entries: HashMap<String, Vec<Entry>> = HashMap::new();
        for (listener, pool) in wanted {
            let (device, vlan) = device_and_tag(listener);
            let is_it =
                |l: &RingListener| (&l.name, l.bind, &l.device) == (&listener.name, listener.bind, &device);
            let same = |s: &usize| slots[*s].as_ref().is_some_and(|l| is_it(l) && Arc::ptr_eq(&l.pool, pool));
            let slot = match (0..SLOTS).find(same) {
                Some(slot) => slot,
                None => self.take_slot(&mut slots, &used, listener, pool)?,
            };
            used.push(slot);
            entries.entry(device).or_default().push(Entry { bind: listener.bind, vlan, slot: slot as u32 });
        }
        self.shared.publish(slots);
        self.in_force = used;
        for device in &self.devices {
            let entries = entries.remove(&device.name).unwrap_or_default();
            if let Err(error) = device.program.set(&entries) {
                tracing::error!(interface = device.name, %error, "cannot change the listeners of its XDP program");
            }
        }
        let is_wanted = |device: &Device| {
            wanted.iter().any(|(listener, _)| device_and_tag(listener).0 == device.name)
                && !is_other(&device.name, device.ifindex)
        };
        let (stay, go) = std::mem::take(&mut self.devices).into_iter().partition(is_wanted);
        self.devices = stay;
        let ways = self.ways(wanted);
        for device in go {
            self.close(device, &ways);
        }
        self.answer_for(wanted);
        self.look_for_hops(wanted.is_empty())
    }

    /// Gives devices the addresses of listeners that nobody has and that are to be answered for.
    fn answer_for(&mut self, wanted: &[(&Listener, &Arc<Pool>)]) {
        if self.given.is_empty() && !wanted.iter().any(|(listener, _)| listener.answer_arp) {
            return;
        }
        let Ok(mut finder) = Finder::open() else { return };
        let index_and_address = |listener: &Listener| {
            let (device, tag) = device_and_tag(listener);
            // the device of a tagged unit is called as the unit is
            let unit = if tag == 0 { &device } else { listener.interface.as_ref()? };
            Some((nix::net::if_::if_nametoindex(unit.as_str()).ok()?, listener.bind.ip()))
        };
        let asked = wanted.iter().filter(|(listener, _)| listener.answer_arp);
        let asked: Vec<(u32, IpAddr)> =
            asked.filter_map(|(listener, _)| index_and_address(listener)).collect();
        let before = std::mem::take(&mut self.given);
        for (ifindex, address) in before {
            if asked.contains(&(ifindex, address)) {
                self.given.push((ifindex, address));
            } else if let Err(error) = finder.take_address(ifindex, address) {
                tracing::warn!(%address, %error, "cannot take the address away again");
            }
        }
        for (ifindex, address) in asked {
            if finder.is_local(address) {
                continue;
            }
            match finder.give_address(ifindex, address) {
                Ok(()) => self.given.push((ifindex, address)),
                Err(error) => {
                    tracing::error!(%address, %error, "nobody answers ARP for the listener's address")
                }
            }
        }
    }

    /// A slot for a new listener: one never used, else the first whose listener is gone.
    fn take_slot(
        &self,
        slots: &mut [Option<Arc<RingListener>>],
        used: &[usize],
        listener: &Listener,
        pool: &Arc<Pool>,
    ) -> Result<usize, RunnerError> {
        let (name, _) = device_and_tag(listener);
        let is_free = |slot: &usize| !used.contains(slot) && !self.in_force.contains(slot);
        let slot = (0..SLOTS)
            .find(|slot| slots[*slot].is_none())
            .or_else(|| (0..SLOTS).find(is_free))
            .ok_or_else(|| mode_error(listener, format!("rings serve {SLOTS} listeners at most")))?;
        let queues = match self.devices.iter().find(|device| device.name == name) {
            Some(device) => {
                device.program.reset(slot as u32).map_err(|error| mode_error(listener, error.to_string()))?;
                device.workers.len()
            }
            None => 0,
        };
        slots[slot] = Some(Arc::new(RingListener {
            name: listener.name.clone(),
            device: name,
            bind: listener.bind,
            pool: pool.clone(),
            queues: (0..queues).map(|_| Arc::default()).collect(),
        }));
        Ok(slot)
    }

    /// Devices that lead to receivers of these listeners.
    fn ways(&self, wanted: &[(&Listener, &Arc<Pool>)]) -> Vec<u32> {
        let targets = wanted.iter().flat_map(|(_, pool)| pool.targets());
        let addresses = targets.map(|target| target.address.ip());
        // without an answer all are kept
        Finder::open().map_or_else(
            |_| self.devices.iter().map(|device| device.ifindex).collect(),
            |mut finder| finder.devices(addresses),
        )
    }

    /// It receives no more; what it sends by stays open if it is among the `ways` to receivers of others.
    fn close(&mut self, device: Device, ways: &[u32]) {
        let ifindex = device.ifindex;
        self.end_device(device);
        if !ways.contains(&ifindex) {
            self.let_go(ifindex);
        }
        if self.devices.is_empty() {
            self.forget();
        }
    }

    fn end_device(&self, mut device: Device) {
        device.end();
        tracing::info!(interface = device.name, "rings closed");
    }

    /// The thread that keeps next hops as the kernel has them.
    fn look_for_hops(&mut self, none: bool) -> Result<(), RunnerError> {
        *self.opener() = self.memory.as_ref().map(Memory::opener);
        if none {
            if let Some((thread, stop)) = self.finder.take() {
                stop.store(true, Ordering::Release);
                let _ = thread.join();
            }
            return Ok(());
        }
        if self.finder.is_some() {
            return Ok(());
        }
        let stop = Arc::new(AtomicBool::new(false));
        let (end, shared, opener) = (stop.clone(), self.shared.clone(), self.opener.clone());
        let thread = Builder::new()
            .name("fan-hops".into())
            .spawn(move || keep_hops(&shared, &opener, &end))
            .map_err(RunnerError::Thread)?;
        self.finder = Some((thread, stop));
        Ok(())
    }

    fn opener(&self) -> MutexGuard<'_, Option<device::Opener>> {
        self.opener.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn report(&self, name: &str) -> Option<Report> {
        let listeners = self.shared.listeners();
        let in_force = self.in_force.iter().filter_map(|slot| Some((*slot, listeners[*slot].as_ref()?)));
        let (slot, listener) = in_force.clone().find(|(_, listener)| listener.name == name)?;
        let device = self.devices.iter().find(|device| device.name == listener.device)?;
        let is_alone = in_force.filter(|(_, other)| other.device == listener.device).count() == 1;
        let queues = (0..listener.queues.len() as u32)
            .map(|queue| device.queue_report(queue, slot as u32, &listener.queues[queue as usize], is_alone));
        Some(Report {
            attach: device.program.how(),
            zero_copy: self.is_zero_copy(),
            memory: self.memory.as_ref().map_or(0, Memory::bytes),
            queues: queues.collect(),
        })
    }

    /// In the manner of those who come from simpler tools.
    pub fn log(&self, listener: &Listener) {
        let (name, vlan) = device_and_tag(listener);
        let Some(device) = self.devices.iter().find(|device| device.name == name) else { return };
        let (queues, zero_copy) = (device.workers.len(), self.is_zero_copy());
        tracing::info!(listener = listener.name, bind = %listener.bind, vlan, "registered listener in XDP filter");
        tracing::info!(interface = name, mode = device.program.how(), "attached XDP program");
        tracing::info!(interface = name, queues, zero_copy, "AF_XDP path initialized: a worker a queue");
        let here = Finder::open().is_ok_and(|mut finder| finder.is_local(listener.bind.ip()));
        if !here {
            tracing::warn!(
                listener = listener.name,
                address = %listener.bind.ip(),
                "no interface has this address: a router must send it here, or `answer-arp` has the kernel answer for it"
            );
        }
    }

    /// Sends what was received, and lets everything go.
    pub fn end(&mut self) {
        for device in std::mem::take(&mut self.devices) {
            self.close(device, &[]);
        }
        self.answer_for(&[]);
        // nothing is wanted any more, so it cannot fail
        let _ = self.look_for_hops(true);
    }
}

/// A device that is this host's own has no tx ring.
fn refuse_receivers_here(finder: &mut Finder, wanted: &[&Listener]) -> Result<(), RunnerError> {
    for listener in wanted {
        for address in listener.receivers.iter().filter_map(|receiver| receiver.address()) {
            if finder.is_local(address.ip()) {
                return Err(mode_error(
                    listener,
                    format!("receiver {address} is this host; use mode userspace"),
                ));
            }
        }
    }
    Ok(())
}

fn keep_hops(shared: &Shared, opener: &Mutex<Option<device::Opener>>, stop: &AtomicBool) {
    let mut finder = match Finder::open() {
        Ok(finder) => finder,
        Err(error) => {
            tracing::error!(%error, "next hops stay as they are");
            return;
        }
    };
    let mut refused: HashMap<u32, String> = HashMap::new();
    while !stop.load(Ordering::Acquire) {
        std::thread::sleep(TICK);
        if !finder.is_due(&shared.hops) {
            continue;
        }
        let listeners = shared.listeners();
        let targets = listeners.iter().flatten().flat_map(|listener| listener.pool.targets());
        let mut found: HashMap<IpAddr, Found> = finder.find(targets.map(|target| target.address.ip()));
        for hop in found.values_mut() {
            let Ok(ifindex) = hop.map(|hop| hop.ifindex) else { continue };
            let opener = opener.lock().unwrap_or_else(PoisonError::into_inner);
            let name = finder.name(ifindex).unwrap_or_default();
            let Some(Err(error)) = opener.as_ref().map(|opener| opener.serve(ifindex, &name, shared)) else {
                continue;
            };
            *hop = Err(Drop::NoRoute);
            let text = error.to_string();
            if refused.insert(ifindex, text.clone()).as_ref() != Some(&text) {
                tracing::error!(
                    interface = name,
                    error = text,
                    "receivers behind it get nothing: no tx ring"
                );
            }
        }
        shared.hops.publish(found);
    }
}

/// What the kernel lost before the worker could have it is received and dropped, too.
fn with_losses(queue: u32, counters: &Queue, lost: u64, counted: program::Counted) -> QueueReport {
    let mut drops = named(&counters.drops);
    for (reason, count) in
        [(Drop::RxRing, lost), (Drop::FrameTooLarge, counted.too_large), (Drop::Unserved, counted.unserved)]
    {
        if let Some((_, value)) = drops.iter_mut().find(|(name, _)| *name == reason.name()) {
            *value = count;
        }
    }
    QueueReport {
        queue: queue.to_string(),
        packets: get(&counters.packets) + lost + counted.too_large + counted.unserved,
        bytes: get(&counters.bytes),
        overflow: None,
        drops,
        xdp_statistics: vec![],
    }
}
