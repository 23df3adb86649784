//! What the kernel tells: neighbours resolve next hops at once; routes, links and addresses have flows judged again.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use netlink_packet_route::RouteNetlinkMessage;
use rtnetlink::MulticastGroup;
use rtnetlink::packet_core::NetlinkPayload;
use rtnetlink::sys::AsyncSocket;

use crate::engine::Engine;
use crate::kernel::{KernelError, Link, Neighbour, parse_neighbour};
use crate::local;
use crate::shared::{Shared, count};

/// At most one epoch in this time: each has every flow judged once more.
const EPOCH_PAUSE: Duration = Duration::from_millis(50);

/// Room for bursts: a full routing table makes about a million messages.
const RECEIVE_BUFFER: usize = 8 << 20;

/// Next hops that no flow names and no first packet asked for in this time are given back.
const UNUSED_NEXTHOP_S: u32 = 60;

const GROUPS: [MulticastGroup; 6] = [
    MulticastGroup::Link,
    MulticastGroup::Neigh,
    MulticastGroup::Ipv4Ifaddr,
    MulticastGroup::Ipv6Ifaddr,
    MulticastGroup::Ipv4Route,
    MulticastGroup::Ipv6Route,
];

/// What changed since the last epoch. Any of it asks for a new one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Dirty {
    addresses: bool,
    links: bool,
    /// Messages were lost: read everything.
    all: bool,
}

impl Dirty {
    fn merge(self, other: Self) -> Self {
        Self {
            addresses: self.addresses || other.addresses,
            links: self.links || other.links,
            all: self.all || other.all,
        }
    }
}

/// Subscribes before it returns, so nothing that happens afterwards is missed.
pub fn start(
    runtime: &tokio::runtime::Handle,
    shared: Arc<Shared>,
    engine: Arc<Mutex<Engine>>,
) -> Result<(), KernelError> {
    let fail = |e: std::io::Error| KernelError {
        action: "watch rtnetlink".to_owned(),
        reason: e.to_string(),
        advice: "run as root",
    };
    let context = runtime.enter();
    let (mut connection, _, mut messages) = rtnetlink::new_multicast_connection(&GROUPS).map_err(fail)?;
    // A smaller buffer only means an earlier resync.
    if let Err(error) = connection.socket_mut().socket_mut().set_rx_buf_sz(RECEIVE_BUFFER) {
        tracing::debug!(%error, "the receive buffer of rtnetlink stays small");
    }
    runtime.spawn(connection);
    drop(context);
    let (sender, receiver) = channel();
    // Until the subscription stood, events were missed.
    resync_neighbours(&shared)?;
    let missed = sender.send(Dirty { addresses: true, links: true, all: false });
    debug_assert!(missed.is_ok(), "the receiver is in this function");
    let neighbours = shared.clone();
    runtime.spawn(async move {
        while let Some((message, _)) = messages.next().await {
            if !receive(&neighbours, message.payload, &sender) {
                break;
            }
        }
    });
    thread::Builder::new()
        .name("watch".to_owned())
        .spawn(move || coalesce(&shared, &engine, &receiver))
        .map_err(fail)?;
    Ok(())
}

/// False when nobody listens any more.
fn receive(shared: &Shared, payload: NetlinkPayload<RouteNetlinkMessage>, sender: &Sender<Dirty>) -> bool {
    let dirty = match payload {
        NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewNeighbour(message)) => {
            parse_neighbour(&message).into_iter().for_each(|n| update_nexthop(shared, &n));
            return true;
        }
        NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelNeighbour(message)) => {
            let gone = parse_neighbour(&message).map(|n| Neighbour { mac: None, ..n });
            gone.into_iter().for_each(|n| update_nexthop(shared, &n));
            return true;
        }
        NetlinkPayload::InnerMessage(message) => match message {
            RouteNetlinkMessage::NewRoute(_) | RouteNetlinkMessage::DelRoute(_) => Dirty::default(),
            RouteNetlinkMessage::NewLink(_) | RouteNetlinkMessage::DelLink(_) => {
                Dirty { links: true, ..Default::default() }
            }
            RouteNetlinkMessage::NewAddress(_) | RouteNetlinkMessage::DelAddress(_) => {
                Dirty { addresses: true, ..Default::default() }
            }
            _ => return true,
        },
        NetlinkPayload::Overrun(_) => Dirty { all: true, ..Default::default() },
        _ => return true,
    };
    sender.send(dirty).is_ok()
}

fn update_nexthop(shared: &Shared, neighbour: &Neighbour) {
    let dataplane = &shared.dataplane;
    let update = || -> sluice_dataplane::Result<()> {
        let Some(index) = dataplane.find_nexthop(neighbour.ifindex, neighbour.addr)? else { return Ok(()) };
        let changed = match neighbour.mac {
            Some(mac) => dataplane.set_nexthop_mac(index, mac)?,
            None => dataplane.unresolve_nexthop(index)?,
        };
        if changed {
            tracing::debug!(address = %neighbour.addr, resolved = neighbour.mac.is_some(), "next hop");
        }
        Ok(())
    };
    if let Err(error) = update() {
        tracing::error!(%error, address = %neighbour.addr, "a next hop could not be updated");
    }
}

/// Brings every next hop to what the kernel's neighbour table says.
pub fn resync_neighbours(shared: &Shared) -> Result<(), KernelError> {
    let known = shared.kernel.neighbours()?;
    known.iter().for_each(|n| update_nexthop(shared, n));
    let present: BTreeSet<_> = known.iter().map(|n| (n.ifindex, n.addr)).collect();
    let entries = shared.dataplane.nexthops().unwrap_or_else(|error| {
        tracing::error!(%error, "the next-hop table cannot be read");
        vec![]
    });
    for entry in entries.iter().filter(|e| !present.contains(&(e.host_ifindex, e.address))) {
        update_nexthop(
            shared,
            &Neighbour { ifindex: entry.host_ifindex, addr: entry.address, mac: None, fixed: false },
        );
    }
    Ok(())
}

/// Turns bursts of events into one epoch each.
fn coalesce(shared: &Arc<Shared>, engine: &Arc<Mutex<Engine>>, events: &Receiver<Dirty>) {
    let recommitting = Arc::new(AtomicBool::new(false));
    let mut last: Option<Instant> = None;
    while let Ok(first) = events.recv() {
        if let Some(rest) = last.and_then(|last| EPOCH_PAUSE.checked_sub(last.elapsed())) {
            thread::sleep(rest);
        }
        let dirty = events.try_iter().fold(first, Dirty::merge);
        if let Err(error) = refresh(shared, dirty) {
            tracing::error!(%error, "the kernel's state could not be read again");
        }
        shared.dataplane.bump_epoch();
        last = Some(Instant::now());
        if (dirty.links || dirty.all) && devices_changed(shared) && !recommitting.swap(true, Ordering::AcqRel)
        {
            recommit(shared.clone(), engine.clone(), recommitting.clone());
        }
    }
}

fn refresh(shared: &Shared, dirty: Dirty) -> Result<(), crate::engine::CommitError> {
    if dirty.all {
        count(&shared.totals.resyncs, 1);
        tracing::warn!("rtnetlink lost messages; reading everything again");
        resync_neighbours(shared)?;
    }
    if dirty.addresses || dirty.all {
        local::update(&shared.kernel, &shared.dataplane)?;
    }
    Ok(())
}

/// Whether all managed devices exist, but not all as the active plan knows them.
fn devices_changed(shared: &Shared) -> bool {
    let plan = &shared.active().plan;
    let links = match shared.kernel.links() {
        Ok(links) => links,
        Err(error) => {
            tracing::error!(%error, "the devices cannot be read");
            return false;
        }
    };
    let named = |name: &str| links.iter().find(|l| l.name == name);
    let physical = plan.units.iter().map(|u| &u.physical).chain(plan.null_zone.iter().map(|n| &n.device));
    let complete = physical.into_iter().all(|device| named(device).is_some());
    let same = |link: Option<&Link>, ifindex: u32| link.is_some_and(|l| l.index == ifindex);
    let moved = plan.attachments.iter().any(|a| !same(named(&a.device), a.ifindex));
    let readdressed = plan.tables.units.iter().any(|(_, entry)| {
        links.iter().find(|l| l.index == entry.ifindex).is_some_and(|l| l.mac != entry.mac)
    });
    complete && (moved || readdressed)
}

/// On a thread of its own: epochs must not wait for a commit.
fn recommit(shared: Arc<Shared>, engine: Arc<Mutex<Engine>>, running: Arc<AtomicBool>) {
    thread::spawn(move || {
        let mut engine = engine.lock().unwrap_or_else(PoisonError::into_inner);
        running.store(false, Ordering::Release);
        // The commit that held the engine may have seen to it.
        if devices_changed(&shared) {
            tracing::info!(
                "a managed device came back or changed; committing the active configuration again"
            );
            // Its result is logged by the engine.
            let _ = engine.recommit(&shared);
        }
    });
}

/// Gives back next hops that nobody uses. The others get NTF_USE: redirected packets do not tell the kernel that a
/// neighbour is in use.
pub fn refresh_neighbours(shared: &Shared) {
    if let Err(error) = shared.dataplane.free_unused_nexthops(UNUSED_NEXTHOP_S) {
        tracing::warn!(%error, "unused next hops were not freed");
    }
    let entries = match shared.dataplane.nexthops() {
        Ok(entries) => entries,
        Err(error) => return tracing::error!(%error, "the next-hop table cannot be read"),
    };
    let wanted = entries.iter().map(|entry| (entry.host_ifindex, entry.address));
    if let Err(error) = shared.kernel.use_neighbours(wanted) {
        tracing::error!(%error, "neighbours cannot be refreshed");
    }
}

/// The slow path may have read the FIB just before the answer came and recorded the next hop just after.
pub fn catch_up_unresolved(shared: &Shared) {
    let unresolved = |index: u32| {
        let flags = shared.dataplane.nexthop(index).map(|n| n.flags).unwrap_or(sluice_abi::NEXTHOP_RESOLVED);
        flags & sluice_abi::NEXTHOP_RESOLVED == 0
    };
    let any = shared.dataplane.nexthops().is_ok_and(|entries| entries.iter().any(|e| unresolved(e.index)));
    if any && let Err(error) = resync_neighbours(shared) {
        tracing::error!(%error, "neighbours cannot be read");
    }
}
