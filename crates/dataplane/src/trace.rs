//! Packets before and after the gateway's programs, and what became of them, for as long as somebody looks.
//!
//! Where packets come in and where they leave, programs stand meanwhile that were compiled from the same text and tell of
//! packets (`bpf/trace`). Those whose places they take are pinned, and put back when the trace ends, however it ends: by
//! the trace itself, by the next commit of the slot, or by the daemon (`standing`).

mod standing;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs::File;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use libbpf_rs::{
    ErrorKind, MapCore, MapFlags, MapHandle, MapType, PerfBuffer, PerfBufferBuilder, num_possible_cpus,
};
use nix::fcntl::Flock;
use nix::time::{ClockId, clock_gettime};
use sluice_abi::stages::Reason;
use sluice_abi::{
    TRACE_HOST, TRACE_INGRESS, TRACE_SLOW, TRACE_XDP, TraceConfig, TraceEvent, TraceFilter, TraceUnit,
};
use sluice_libbpf::map::NewMap;
use zerocopy::{FromBytes, IntoBytes};

use crate::error::{Doing, Error, Result};
use crate::records::words_address;
use crate::{Dataplane, Family, ProgramDetails, Session};

use standing::Standing;

const EVENTS: &str = "trace_events";
const UNITS: &str = "trace_units";

/// How long is waited for packets before other things are looked after.
const PATIENCE: Duration = Duration::from_millis(20);
/// How long programs tell of packets after they were last asked to: who is killed takes nothing back.
const LEASE: Duration = Duration::from_secs(1);
/// Pages of a CPU's buffer: for heads of frames, and for whole ones.
const FEW_PAGES: usize = 64;
const MANY_PAGES: usize = 512;
/// And of all CPUs together: 64 MiB.
const MOST_PAGES: usize = 16_384;
/// Above it frames count as whole ones.
const HEADS: u32 = 256;
const UNITS_MOST: u32 = 2 * sluice_abi::MAX_UNITS as u32;

/// Which packets are told, and how much of them.
#[derive(Debug, Clone, Default)]
pub struct TraceRequest {
    /// Compared in the programs, with the packet as it came and as it left.
    pub filter: TraceFilter,
    /// Only of these, where the filter says so.
    pub units: Vec<TraceUnit>,
    /// Bytes of a frame.
    pub snaplen: u32,
    /// Packets a second and CPU.
    pub rate: u32,
    /// Only packets that are dropped, and those as they are then.
    pub drops: bool,
}

/// Where a packet was met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TracePoint {
    /// Received, by the XDP program of its device.
    Xdp,
    /// Received, by the tc program of its device.
    TcIngress,
    /// Sent by this host, or by the kernel.
    TcEgress,
}

/// What looked at it last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TracePath {
    /// A short path, of established sessions or of what needs none.
    Short,
    /// The stages of a first packet.
    Slow,
    /// The egress program, on what this host sends.
    Host,
}

/// What the hook did with a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// It ends here; an answer may have been sent in its place.
    Dropped,
    /// To the kernel, or to the next program.
    Passed,
    /// Out of the same or another device.
    Redirected,
}

/// A frame, as it is on the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TracedFrame {
    /// By CLOCK_MONOTONIC.
    pub when_ns: u64,
    /// Of all of it.
    pub length: u32,
    /// At most as many as were asked for.
    pub bytes: Vec<u8>,
}

/// A packet that went through the gateway's programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Traced {
    /// Hook and direction.
    pub point: TracePoint,
    /// How far it got.
    pub path: TracePath,
    /// As it came; None where only drops are told.
    pub before: Option<TracedFrame>,
    /// As it left, or was dropped.
    pub after: TracedFrame,
    /// Told by what the program returned.
    pub action: Action,
    /// Why it was dropped; None of others, and of what no program of the gateway dropped.
    pub reason: Option<Reason>,
    /// Neighbour that the kernel's FIB has found, by device.
    pub route: Option<(u32, IpAddr)>,
    /// All that the programs said.
    pub raw: TraceEvent,
}

impl Traced {
    /// Its session, as long as that lives.
    pub fn session(&self, dataplane: &Dataplane) -> Option<Session> {
        let family = if self.raw.family == 4 { Family::V4 } else { Family::V6 };
        (self.raw.line != 0).then(|| dataplane.session(family, self.raw.line / 2)).flatten()
    }
}

/// Packets that fitted and are not told.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Untold {
    /// Beyond the rate.
    pub rate: u64,
    /// Found the buffer full.
    pub lost: u64,
}

/// Events as they come out of the buffers of all CPUs.
#[derive(Default)]
struct Queue {
    events: RefCell<Vec<(TraceEvent, Vec<u8>)>>,
    lost: Cell<u64>,
}

/// A trace that runs; it ends when this is dropped.
pub struct Trace<'a> {
    dataplane: &'a Dataplane,
    request: TraceRequest,
    events: MapHandle,
    units: MapHandle,
    buffer: PerfBuffer<'static>,
    queue: Rc<Queue>,
    standing: Option<Standing>,
    /// Of slots that are the generation's no more.
    gone: Untold,
    /// The last packet of each CPU, as it came.
    waiting: BTreeMap<u32, (u64, TracedFrame)>,
    /// There is one trace at a time.
    _alone: Flock<File>,
    is_abandoned: bool,
}

impl Dataplane {
    /// Begins to trace what devices receive, and what this host sends by them.
    pub fn trace(&self, request: TraceRequest) -> Result<Trace<'_>> {
        let doing = || "make the buffer of a trace".to_owned();
        let alone = self.begin_trace()?;
        let cpus = num_possible_cpus().doing(doing)? as u32;
        let new = |kind, name, key_size, max_entries| {
            NewMap { kind, name, key_size, value_size: 4, max_entries }.create().doing(doing)
        };
        let events = new(MapType::PerfEventArray, EVENTS, 4, cpus)?;
        let units = new(MapType::Hash, UNITS, size_of::<TraceUnit>() as u32, UNITS_MOST)?;
        for unit in &request.units {
            units.update(unit.as_bytes(), &[0; 4], MapFlags::ANY).doing(doing)?;
        }
        let queue = Rc::new(Queue::default());
        let buffer = buffer(&events, &queue, pages(request.snaplen, cpus))?;
        let mut trace = Trace {
            dataplane: self,
            request,
            events,
            units,
            buffer,
            queue,
            standing: None,
            gone: Untold::default(),
            waiting: BTreeMap::new(),
            _alone: alone,
            is_abandoned: false,
        };
        trace.renew()?;
        Ok(trace)
    }
}

/// A power of two of them.
fn pages(snaplen: u32, cpus: u32) -> usize {
    let wanted = if snaplen <= HEADS { FEW_PAGES } else { MANY_PAGES };
    let share = MOST_PAGES / cpus.max(1) as usize;
    wanted.min(1 << share.max(1).ilog2())
}

fn buffer(events: &MapHandle, queue: &Rc<Queue>, pages: usize) -> Result<PerfBuffer<'static>> {
    let (taken, lost) = (queue.clone(), queue.clone());
    PerfBufferBuilder::new(events)
        .pages(pages)
        .sample_cb(move |_, bytes: &[u8]| {
            if let Ok((event, rest)) = TraceEvent::read_from_prefix(bytes) {
                let frame = rest.get(..event.captured as usize).unwrap_or(rest);
                taken.events.borrow_mut().push((event, frame.to_vec()));
            }
        })
        .lost_cb(move |_, count| lost.lost.set(lost.lost.get() + count))
        .build()
        .doing(|| "make the buffer of a trace".to_owned())
}

/// The clock of programs and of frames.
fn now_ns() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |now| Duration::from(now).as_nanos() as u64)
}

impl Trace<'_> {
    /// Hands over packets as they come, for a moment. An error, if the gateway has another state now.
    pub fn poll(&mut self, mut take: impl FnMut(Traced)) -> Result<()> {
        self.extend_lease()?;
        match self.buffer.poll(PATIENCE) {
            Err(error) if error.kind() != ErrorKind::Interrupted => {
                return Err(error).doing(|| "wait for packets".to_owned());
            }
            _ => {}
        }
        let mut events = self.queue.events.take();
        events.sort_by_key(|(event, _)| event.when);
        for (event, bytes) in events {
            self.pair(event, bytes).into_iter().for_each(&mut take);
        }
        if !self.dataplane.is_there() {
            return Err(Error::TraceGone);
        }
        self.renew()
    }

    fn extend_lease(&self) -> Result<()> {
        let until = now_ns() + LEASE.as_nanos() as u64;
        self.standing.as_ref().map_or(Ok(()), |standing| standing.extend_lease(until))
    }

    /// What the kernel says of the programs that stand in places.
    pub fn programs(&self) -> Result<Vec<ProgramDetails>> {
        self.standing.as_ref().map_or(Ok(vec![]), Standing::programs)
    }

    /// Packets that fitted and were not handed over.
    pub fn untold(&self) -> Untold {
        let now = self.standing.as_ref().map(Standing::untold).unwrap_or_default();
        Untold { rate: self.gone.rate + now.rate, lost: self.gone.lost + now.lost + self.queue.lost.get() }
    }

    /// Leaves everything as it is, as a process does that is killed. For tests.
    #[doc(hidden)]
    pub fn abandon(mut self) {
        self.is_abandoned = true;
    }

    /// Follows the generation in force, and programs that were put into its slot meanwhile.
    fn renew(&mut self) -> Result<()> {
        if self.standing.as_ref().is_some_and(|standing| standing.is_in_force(self.dataplane)) {
            return Ok(());
        }
        self.end_standing()?;
        let config = TraceConfig {
            filter: self.request.filter,
            snaplen: self.request.snaplen,
            rate: self.request.rate,
            drops: self.request.drops.into(),
        };
        self.standing = Standing::begin(self.dataplane, &config, &self.events, &self.units)?;
        self.extend_lease()
    }

    fn end_standing(&mut self) -> Result<()> {
        if let Some(standing) = self.standing.take() {
            let untold = standing.untold();
            self.gone.rate += untold.rate;
            self.gone.lost += untold.lost;
        }
        self.dataplane.end_traced()
    }

    fn pair(&mut self, event: TraceEvent, bytes: Vec<u8>) -> Option<Traced> {
        let frame = frame(&event, bytes);
        if event.after == 0 {
            self.waiting.insert(event.cpu, (event.number, frame));
            return None;
        }
        let before = self.waiting.remove(&event.cpu).filter(|(number, _)| *number == event.number);
        Some(traced(event, before.map(|(_, frame)| frame), frame))
    }
}

impl Drop for Trace<'_> {
    fn drop(&mut self) {
        if !self.is_abandoned
            && let Err(error) = self.end_standing()
        {
            tracing::warn!(%error, "the gateway's own programs are put back by the daemon, or by the next commit");
        }
    }
}

fn traced(raw: TraceEvent, before: Option<TracedFrame>, after: TracedFrame) -> Traced {
    let point = match raw.hook {
        TRACE_XDP => TracePoint::Xdp,
        TRACE_INGRESS => TracePoint::TcIngress,
        _ => TracePoint::TcEgress,
    };
    let path = match raw.path {
        TRACE_SLOW => TracePath::Slow,
        TRACE_HOST => TracePath::Host,
        _ => TracePath::Short,
    };
    let route = (raw.route_ifindex != 0)
        .then(|| (raw.route_ifindex, words_address(raw.route_family as u8, raw.be_route)))
        .filter(|(_, address)| !address.is_unspecified());
    Traced {
        point,
        path,
        before,
        after,
        action: action(point, raw.action),
        reason: Reason::BY_NUMBER.get(raw.reason as usize).copied().filter(|_| raw.reason != 0),
        route,
        raw,
    }
}

fn action(point: TracePoint, code: u32) -> Action {
    const XDP: [Action; 5] =
        [Action::Dropped, Action::Dropped, Action::Passed, Action::Redirected, Action::Redirected];
    const SHOT: u32 = 2;
    const REDIRECT: u32 = 7;
    match (point, code) {
        (TracePoint::Xdp, code) => XDP.get(code as usize).copied().unwrap_or(Action::Dropped),
        (_, SHOT) => Action::Dropped,
        (_, REDIRECT) => Action::Redirected,
        _ => Action::Passed,
    }
}

/// A tag that the kernel keeps beside the frame is put back into it.
fn frame(event: &TraceEvent, mut bytes: Vec<u8>) -> TracedFrame {
    const MACS: usize = 12;
    let mut length = event.length;
    if event.be_vlan_proto != 0 && bytes.len() >= MACS {
        let tag = [event.be_vlan_proto.to_ne_bytes(), event.vlan_tci.to_be_bytes()].concat();
        length += tag.len() as u32;
        bytes.splice(MACS..MACS, tag);
    }
    TracedFrame { when_ns: event.when, length, bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_beside_the_frame_is_put_into_it() {
        let event = TraceEvent {
            length: 60,
            vlan_tci: 0x2005,
            be_vlan_proto: 0x8100u16.to_be(),
            ..Default::default()
        };
        let told = frame(&event, (0..20).collect());
        assert_eq!((told.length, told.bytes.len()), (64, 24));
        assert_eq!(told.bytes[10..18], [10, 11, 0x81, 0x00, 0x20, 0x05, 12, 13]);
    }

    #[test]
    fn buffers_of_many_cpus_share_a_bound() {
        assert_eq!((pages(192, 2), pages(60_000, 2), pages(60_000, 256)), (64, 512, 64));
        assert_eq!((pages(60_000, 100), pages(60_000, 100_000)), (128, 1));
    }

    #[test]
    fn hooks_have_their_own_verdicts() {
        use TracePoint::{TcEgress, TcIngress, Xdp};
        assert_eq!([0, 1, 2, 4].map(|code| action(Xdp, code)), {
            use Action::{Dropped, Passed, Redirected};
            [Dropped, Dropped, Passed, Redirected]
        });
        let unspecified = u32::MAX;
        assert_eq!(action(TcIngress, 2), Action::Dropped);
        assert_eq!(action(TcIngress, 7), Action::Redirected);
        assert_eq!((action(TcEgress, unspecified), action(TcEgress, 0)), (Action::Passed, Action::Passed));
    }
}
