//! One thread a queue: receives, chooses a receiver, rewrites, and sends by the rings of the device that leads there.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sluice_xsk::{FillRing, Frame, RxRing, Socket, Umem, wait_to_receive};

use super::hops::Hop;
use super::packet::{self, Destination, Fragment, Mark};
use super::port::{Fate, Ledger, Port};
use super::{RingListener, Shared};
use crate::counters::{Drop, Queue, add};
use crate::pool::{Table, Target};
use sluice_language::fan_out::Balance;

/// Frames taken at a time.
const BATCH: usize = 64;
/// How long it sleeps before it looks whether it is wanted elsewhere; while frames wait in a tx ring, a moment.
const NAP: Duration = Duration::from_millis(50);
const MOMENT: Duration = Duration::from_millis(1);
/// Turns through empty rings after the end was told: what the kernel has in hand still comes.
const LAST_TURNS: usize = 3;

pub struct Worker {
    pub queue: u32,
    pub socket: Socket,
    pub umem: Umem,
    pub rx: RxRing,
    pub fill: FillRing,
    pub free: Vec<Frame>,
    pub shared: Arc<Shared>,
    pub stop: Arc<AtomicBool>,
}

/// What goes to one receiver.
struct Out {
    target: Arc<Target>,
    destination: Destination,
    /// Index of the outlet, and the next hop; or why its packets are dropped.
    hop: Result<(usize, Hop), Drop>,
    packets: u64,
    bytes: u64,
}

/// A listener as this worker has it.
struct Lane {
    listener: Arc<RingListener>,
    counters: Arc<Queue>,
    table: Arc<Table>,
    version: u64,
    position: usize,
    outs: Vec<Out>,
    packets: u64,
    bytes: u64,
}

/// Frames that leave together.
struct Outlet {
    ifindex: u32,
    port: Arc<Port>,
    frames: Vec<Frame>,
    /// To whom: listener's slot, index in its table, bytes of payload.
    whose: Vec<(usize, usize, u32)>,
    owed: usize,
}

/// What a worker goes by; taken up anew whenever anything of it has changed.
#[derive(Default)]
struct Lanes {
    versions: (u64, u64),
    lanes: Vec<Option<Lane>>,
    outlets: Vec<Outlet>,
}

impl Worker {
    pub fn run(mut self) {
        let mut lanes = Lanes::default();
        let mut batch = Vec::with_capacity(BATCH);
        let mut last_turns = 0;
        self.fill.put(&mut self.free);
        while last_turns < LAST_TURNS {
            let stopping = self.stop.load(Ordering::Acquire);
            if self.rx.receive(&mut batch, BATCH) == 0 {
                last_turns += usize::from(stopping);
                self.rest(&mut lanes, stopping);
                continue;
            }
            lanes.refresh(&self.shared, self.queue);
            for frame in batch.drain(..) {
                lanes.take(&self.umem, frame, &mut self.free, &self.shared);
            }
            lanes.send(&mut self.free);
            self.fill.put(&mut self.free);
        }
    }

    /// Nothing is there: takes back what was sent, and waits.
    fn rest(&mut self, lanes: &mut Lanes, stopping: bool) {
        lanes.refresh(&self.shared, self.queue);
        let waiting = lanes.go_on(&mut self.free);
        self.fill.put(&mut self.free);
        if self.fill.needs_wakeup() {
            // it is made again as long as it is asked for
            let _ = self.socket.wake();
        }
        let patience = if waiting || stopping { MOMENT } else { NAP };
        if wait_to_receive(&[&self.socket], patience).is_err() {
            // the device is down; it may come back
            std::thread::sleep(NAP);
        }
    }
}

impl Lanes {
    fn refresh(&mut self, shared: &Shared, queue: u32) {
        let versions = (shared.version(), shared.hops.version());
        let changed = |lane: &Lane| lane.version != lane.listener.pool.version();
        if versions == self.versions && !self.lanes.iter().flatten().any(changed) {
            return;
        }
        self.versions = versions;
        // a port that was let go keeps its queue from others as long as anybody holds it
        self.outlets.retain(|outlet| outlet.owed > 0 || shared.ports.has(outlet.ifindex, &outlet.port));
        let mut before = std::mem::take(&mut self.lanes);
        for (slot, listener) in shared.listeners().iter().enumerate() {
            let known = before.get_mut(slot).and_then(Option::take);
            let lane = listener.as_ref().and_then(|listener| self.lane(listener, known, shared, queue));
            self.lanes.push(lane);
        }
    }

    fn lane(
        &mut self,
        listener: &Arc<RingListener>,
        known: Option<Lane>,
        shared: &Shared,
        queue: u32,
    ) -> Option<Lane> {
        let version = listener.pool.version();
        let table = listener.pool.table();
        let hops = shared.hops.table();
        let out = |target: &Arc<Target>| Out {
            target: target.clone(),
            destination: Destination::new(listener.bind, target.address),
            hop: match hops.get(&target.address.ip()) {
                Some(Ok(hop)) => {
                    self.outlet(hop.ifindex, shared, queue).map(|at| (at, *hop)).ok_or(Drop::NoRoute)
                }
                Some(Err(reason)) => Err(*reason),
                None => Err(Drop::NoNextHop),
            },
            packets: 0,
            bytes: 0,
        };
        let outs = table.targets.iter().map(out).collect();
        let counters = listener.queues.get(queue as usize)?.clone();
        let position = known.map_or(0, |lane| lane.position);
        Some(Lane {
            listener: listener.clone(),
            counters,
            table,
            version,
            position,
            outs,
            packets: 0,
            bytes: 0,
        })
    }

    /// Its index; one that was there keeps the index it has.
    fn outlet(&mut self, ifindex: u32, shared: &Shared, queue: u32) -> Option<usize> {
        let is_it = |o: &Outlet| o.ifindex == ifindex && shared.ports.has(ifindex, &o.port);
        if let Some(at) = self.outlets.iter().position(is_it) {
            return Some(at);
        }
        let port = shared.ports.get(ifindex, queue % shared.ports.of(ifindex).max(1))?;
        self.outlets.push(Outlet { ifindex, port, frames: vec![], whose: vec![], owed: 0 });
        Some(self.outlets.len() - 1)
    }

    /// Puts a frame into the tx ring of its outgoing device, or drops it for a named reason.
    fn take(&mut self, umem: &Umem, mut frame: Frame, free: &mut Vec<Frame>, shared: &Shared) {
        let bytes = umem.bytes_mut(&mut frame);
        let found = Mark::read(bytes).and_then(|mark| Some((mark, self.lanes.get_mut(mark.slot)?.as_mut()?)));
        let Some((mark, lane)) = found else {
            free.push(frame);
            return;
        };
        lane.packets += 1;
        let seen = match packet::judge(bytes, &mark, lane.table.max_packet_size) {
            Ok(seen) => seen,
            Err(reason) => {
                lane.counters.drops.add(reason, 1);
                free.push(frame);
                return;
            }
        };
        lane.bytes += u64::from(seen.payload);
        let Some(index) = lane.pick(bytes, &mark) else {
            lane.counters.drops.add(Drop::NoReceiver, 1);
            free.push(frame);
            return;
        };
        let out = &lane.outs[index];
        let length = seen.end - mark.network;
        let (at, hop) = match out.hop {
            Ok((_, hop)) if length > hop.mtu as usize => {
                out.target.counters.drops.add(Drop::TooBig, 1);
                free.push(frame);
                return;
            }
            Ok(found) => found,
            Err(reason) => {
                out.target.counters.drops.add(reason, 1);
                shared.hops.miss();
                free.push(frame);
                return;
            }
        };
        let start = out.destination.put(bytes, &mark, &hop.macs);
        umem.cut(&mut frame, start, seen.end - start);
        let outlet = &mut self.outlets[at];
        outlet.frames.push(frame);
        outlet.whose.push((mark.slot, index, seen.payload));
    }

    fn send(&mut self, free: &mut Vec<Frame>) {
        let lanes = &mut self.lanes;
        for outlet in &mut self.outlets {
            outlet.send(lanes, free);
        }
        for lane in self.lanes.iter_mut().flatten() {
            lane.publish();
        }
    }

    /// True while frames wait in a tx ring.
    fn go_on(&mut self, free: &mut Vec<Frame>) -> bool {
        let mut waiting = false;
        for outlet in &mut self.outlets {
            waiting |= outlet.port.go_on(free, &mut outlet.owed);
        }
        waiting
    }
}

impl Lane {
    /// Place of the receiver in the table.
    fn pick(&mut self, bytes: &[u8], mark: &Mark) -> Option<usize> {
        if mark.fragment != Fragment::Whole && self.table.balance != Balance::Source {
            return self.table.pick_fragment(packet::source(bytes, mark).ip(), mark.id);
        }
        let source = match self.table.balance {
            Balance::RoundRobin => SocketAddr::from(([0, 0, 0, 0], 0)),
            _ => packet::source(bytes, mark),
        };
        self.table.pick(&source, &mut self.position)
    }

    /// Counters are others' to read after a batch, not after each packet.
    fn publish(&mut self) {
        let take = std::mem::take::<u64>;
        if self.packets > 0 {
            add(&self.counters.packets, take(&mut self.packets));
            add(&self.counters.bytes, take(&mut self.bytes));
        }
        for out in self.outs.iter_mut().filter(|out| out.packets > 0) {
            add(&out.target.counters.packets, take(&mut out.packets));
            add(&out.target.counters.bytes, take(&mut out.bytes));
        }
    }
}

impl Outlet {
    fn send(&mut self, lanes: &mut [Option<Lane>], free: &mut Vec<Frame>) {
        if self.frames.is_empty() {
            return;
        }
        let mut ledger = Account { lanes, whose: &self.whose };
        self.port.send(&mut self.frames, free, &mut self.owed, &mut ledger);
        // those that could not be sent
        free.append(&mut self.frames);
        self.whose.clear();
    }
}

/// Lanes do not change between the taking of frames and their sending.
struct Account<'a> {
    lanes: &'a mut [Option<Lane>],
    whose: &'a [(usize, usize, u32)],
}

impl Ledger for Account<'_> {
    fn settled(&mut self, nth: usize, fate: Fate) {
        let (slot, index, bytes) = self.whose[nth];
        let Some(lane) = self.lanes[slot].as_mut() else { return };
        let out = &mut lane.outs[index];
        match fate {
            Fate::Sent => (out.packets, out.bytes) = (out.packets + 1, out.bytes + u64::from(bytes)),
            Fate::Dropped(reason) => out.target.counters.drops.add(reason, 1),
        }
    }

    fn whose(&self, nth: usize) -> (Arc<Target>, u32) {
        let (slot, index, bytes) = self.whose[nth];
        let lane = self.lanes[slot].as_ref().expect("frames are sent for lanes that there are");
        (lane.outs[index].target.clone(), bytes)
    }
}
