//! What the kernel tells: neighbours resolve next hops at once; routes, links and addresses have flows re-evaluated.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use futures_util::{FutureExt, StreamExt};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::RouteMessage;
use nix::sys::socket::{setsockopt, sockopt};
use rtnetlink::MulticastGroup;
use rtnetlink::packet_core::NetlinkPayload;
use rtnetlink::sys::AsyncSocket;
use sluice_dataplane::{Dataplane, NexthopEntry};
use sluice_plan::{Environment, IngressHook, InstanceWant, Plan};

use crate::commit::Engine;
use crate::commit::Shared;
use crate::events::departures::Departures;
use crate::events::ours::Ours;
use crate::functions::local::addresses;
use crate::kernel::environment::{self, Known};
use crate::kernel::mtus::Mtus;
use crate::kernel::notices::Notices;
use crate::kernel::{Kernel, KernelError, Link, Neighbour, changes, parse_neighbour};
use crate::state::error::AskError;

/// At most one generation of routes in this time: each has every flow ask once more.
const ROUTES_PAUSE: Duration = Duration::from_millis(20);

/// After so long without an event devices are looked at all the same: what a sender offloads changes without one.
const QUIET: Duration = Duration::from_secs(30);

/// What could not be put back at once (a link has no carrier yet, a commit is under way) is tried so often.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
const RETRIES: u32 = 50;

/// Room for bursts: a full routing table makes about a million messages.
const RECEIVE_BUFFER: usize = 8 << 20;

/// Next hops that no flow names and no first packet asked for in this time are given back.
const UNUSED_NEXTHOP_S: u32 = 60;

/// Messages that are looked at together at most.
const BATCH: usize = 4096;

const GROUPS: [MulticastGroup; 6] = [
    MulticastGroup::Link,
    MulticastGroup::Neigh,
    MulticastGroup::Ipv4Ifaddr,
    MulticastGroup::Ipv6Ifaddr,
    MulticastGroup::Ipv4Route,
    MulticastGroup::Ipv6Route,
];

/// What changed since the last generation of routes. Any of it asks for a new one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Dirty {
    /// A neighbour answers no more: sessions are judged again if it is the gateway of some.
    only_neighbours: bool,
    addresses: bool,
    links: bool,
    /// What the configuration has may be gone.
    ours: bool,
    /// Messages were lost: read everything.
    all: bool,
}

impl Dirty {
    fn merge(self, other: Self) -> Self {
        Self {
            only_neighbours: self.only_neighbours && other.only_neighbours,
            addresses: self.addresses || other.addresses,
            links: self.links || other.links,
            ours: self.ours || other.ours,
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
    if let Err(error) =
        setsockopt(connection.socket_mut().socket_mut(), sockopt::RcvBufForce, &RECEIVE_BUFFER)
    {
        tracing::debug!(%error, "the receive buffer of rtnetlink stays small");
    }
    runtime.spawn(connection);
    drop(context);
    let (sender, receiver) = channel();
    // rules, next-hop objects and who may forward decide over routes as well
    let deciding = sender.clone();
    let tell = move || deciding.send(Dirty { ours: true, ..Default::default() }).is_ok();
    Notices::of_routing().and_then(|notices| notices.watch("routing", Duration::ZERO, tell)).map_err(fail)?;
    // Until the subscription stood, events were missed.
    resync_neighbours(&shared)?;
    let missed = sender.send(Dirty { addresses: true, links: true, ours: true, ..Default::default() });
    debug_assert!(missed.is_ok(), "the receiver is in this function");
    let departures = Departures::new(Kernel::connect(runtime)?);
    let (neighbours, mut ours) = (shared.clone(), Ours::default());
    runtime.spawn(async move {
        while let Some((message, _)) = messages.next().await {
            // with all that has come meanwhile: what stands before each look at the next hops is asked for once
            let more = std::iter::from_fn(|| messages.next().now_or_never().flatten()).take(BATCH);
            let payloads: Vec<_> =
                std::iter::once(message.payload).chain(more.map(|(message, _)| message.payload)).collect();
            if !receive(&neighbours, payloads, &mut ours, &sender) {
                break;
            }
        }
    });
    thread::Builder::new()
        .name("watch".to_owned())
        .spawn(move || coalesce(&shared, &engine, departures, &receiver))
        .map_err(fail)?;
    Ok(())
}

/// False when the receiver is gone.
fn receive(
    shared: &Shared,
    payloads: Vec<NetlinkPayload<RouteNetlinkMessage>>,
    ours: &mut Ours,
    sender: &Sender<Dirty>,
) -> bool {
    let (mut neighbours, mut dirty) = (vec![], vec![]);
    let active = shared.active();
    for payload in payloads {
        match payload {
            NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewNeighbour(message)) => {
                neighbours.extend(parse_neighbour(&message));
            }
            NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelNeighbour(message)) => {
                neighbours.extend(parse_neighbour(&message).map(|n| Neighbour { mac: None, ..n }));
            }
            NetlinkPayload::InnerMessage(message) => {
                dirty.extend(dirt(&message, |route| ours.are_concerned(&active, route)));
            }
            NetlinkPayload::Overrun(_) => dirty.push(Dirty { all: true, ours: true, ..Default::default() }),
            _ => {}
        }
    }
    if !neighbours.is_empty() && update_nexthops(shared, &neighbours) {
        dirty.push(Dirty { only_neighbours: true, ..Default::default() });
    }
    let all = dirty.into_iter().reduce(Dirty::merge);
    all.is_none_or(|dirty| sender.send(dirty).is_ok())
}

fn dirt(message: &RouteNetlinkMessage, concerns_ours: impl FnOnce(&RouteMessage) -> bool) -> Option<Dirty> {
    match message {
        RouteNetlinkMessage::NewRoute(route) | RouteNetlinkMessage::DelRoute(route) => {
            Some(Dirty { ours: concerns_ours(route), ..Default::default() })
        }
        RouteNetlinkMessage::NewLink(_) | RouteNetlinkMessage::DelLink(_) => {
            Some(Dirty { links: true, ours: true, ..Default::default() })
        }
        RouteNetlinkMessage::NewAddress(_) | RouteNetlinkMessage::DelAddress(_) => {
            Some(Dirty { addresses: true, ours: true, ..Default::default() })
        }
        _ => None,
    }
}

/// What the kernel has said of neighbours, oldest first. True when one that had answered does so no more.
fn update_nexthops(shared: &Shared, neighbours: &[Neighbour]) -> bool {
    let dataplane = &shared.dataplane;
    let keys: Vec<_> = neighbours.iter().map(|neighbour| (neighbour.ifindex, neighbour.addr)).collect();
    let found = dataplane.find_nexthops(&keys).unwrap_or_else(|error| {
        tracing::error!(%error, "next hops could not be looked up");
        vec![]
    });
    let mut is_silent = false;
    for (neighbour, indices) in neighbours.iter().zip(found) {
        for index in indices {
            is_silent |= update_nexthop(shared, index, neighbour);
        }
    }
    is_silent
}

/// True when it had answered and does so no more.
fn update_nexthop(shared: &Shared, index: u32, neighbour: &Neighbour) -> bool {
    let changed = match neighbour.mac {
        Some(mac) => shared.dataplane.set_nexthop_mac(index, mac),
        None => shared.dataplane.unresolve_nexthop(index),
    };
    match changed {
        Ok(changed) => {
            if changed {
                tracing::debug!(address = %neighbour.addr, resolved = neighbour.mac.is_some(), "next hop");
            }
            return changed && neighbour.mac.is_none();
        }
        Err(error) => tracing::error!(%error, address = %neighbour.addr, "a next hop could not be updated"),
    }
    false
}

/// Brings every next hop to what the kernel's neighbour table says.
pub fn resync_neighbours(shared: &Shared) -> Result<(), KernelError> {
    let known = shared.kernel.neighbours()?;
    update_nexthops(shared, &known);
    let present: BTreeSet<_> = known.iter().map(|n| (n.ifindex, n.addr)).collect();
    let entries = shared.dataplane.nexthops().unwrap_or_else(|error| {
        tracing::error!(%error, "the next-hop table cannot be read");
        vec![]
    });
    for entry in entries.iter().filter(|e| !present.contains(&(e.host_ifindex, e.address))) {
        let gone = Neighbour { ifindex: entry.host_ifindex, addr: entry.address, mac: None, fixed: false };
        update_nexthop(shared, entry.index, &gone);
    }
    Ok(())
}

/// Turns bursts of events into one generation of routes each, and sees to what they took away.
fn coalesce(
    shared: &Arc<Shared>,
    engine: &Arc<Mutex<Engine>>,
    mut departures: Departures,
    events: &Receiver<Dirty>,
) {
    let (recommitting, told) = (Arc::default(), BTreeSet::new());
    let mut changes = Changes { shared, engine, recommitting, told, up: None };
    let mut last: Option<Instant> = None;
    let (mut retries, mut looked) = (0, Instant::now());
    loop {
        let pause = if retries > 0 { RETRY_PAUSE } else { QUIET };
        let dirty = match events.recv_timeout(pause.saturating_sub(looked.elapsed())) {
            Ok(first) => {
                if let Some(rest) = last.and_then(|last| ROUTES_PAUSE.checked_sub(last.elapsed())) {
                    thread::sleep(rest);
                }
                Some(events.try_iter().fold(first, Dirty::merge))
            }
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        if let Some(dirty) = dirty {
            if let Err(error) = refresh(shared, dirty) {
                tracing::error!(%error, "the kernel's state could not be read again");
            }
            if departures.mark(&shared.dataplane) || !dirty.only_neighbours {
                ask_again_for_routes(&shared.dataplane);
            }
            last = Some(Instant::now());
        }
        departures.read(&shared.dataplane);
        // however much else changes meanwhile
        let is_time = looked.elapsed() >= pause;
        if dirty.is_some_and(|dirty| dirty.ours) {
            retries = RETRIES;
        } else if !is_time {
            continue;
        }
        looked = Instant::now();
        retries = if changes.restore() { 0 } else { retries.saturating_sub(1) };
        if is_time || dirty.is_some_and(|dirty| dirty.links || dirty.addresses || dirty.all) {
            changes.devices();
        }
    }
}

/// Every session, at its next packet; tunnels find their ways anew.
fn ask_again_for_routes(dataplane: &Dataplane) {
    dataplane.ask_routes_again();
    if let Ok(gtpu) = dataplane.gtpu() {
        gtpu.forget_routes();
    }
}

/// What a change of the kernel's state asks for.
struct Changes<'a> {
    shared: &'a Arc<Shared>,
    engine: &'a Arc<Mutex<Engine>>,
    recommitting: Arc<AtomicBool>,
    /// What the log says already of devices that others have taken.
    told: BTreeSet<String>,
    /// Managed devices and whether they were up when they were looked at last.
    up: Option<BTreeMap<String, bool>>,
}

impl Changes<'_> {
    /// Puts back what the configuration has and somebody, or a link that was down, took away; true = nothing is missing.
    /// A commit that is under way has plans of its own.
    fn restore(&self) -> bool {
        let _engine = match self.engine.try_lock() {
            Ok(engine) => engine,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        let plan = &self.shared.active().plan;
        // one that is new has no programs yet: a commit comes that attaches them
        let is_new = |link: &Link| {
            let mut known = plan.attachments.iter().filter(|known| known.device == link.name);
            known.any(|known| known.ifindex != link.index)
        };
        match changes::restore(&self.shared.kernel, &plan.kernel, is_new) {
            Ok((restored, lacks)) => {
                restored.iter().for_each(|what| tracing::info!("put back: {what}"));
                !lacks
            }
            Err(error) => {
                tracing::error!(%error, "the kernel's state could not be read again");
                false
            }
        }
    }

    /// Says which managed devices have come up or gone down since they were looked at last.
    fn tell_links(&mut self, plan: &Plan, links: &[Link]) {
        let managed: BTreeSet<&str> = plan.attachments.iter().map(|a| a.device.as_str()).collect();
        let there = links.iter().filter(|link| managed.contains(link.name.as_str()));
        let now: BTreeMap<String, bool> =
            there.map(|link| (link.name.clone(), link.up && link.running)).collect();
        let before = self.up.replace(now.clone()).unwrap_or_else(|| now.clone());
        for (interface, is_up) in &now {
            match before.get(interface) {
                Some(was_up) if was_up == is_up => {}
                _ if *is_up => tracing::info!(interface, "the interface is up"),
                _ => tracing::warn!(interface, "the interface is down"),
            }
        }
        let gone = before.keys().filter(|name| managed.contains(name.as_str()) && !now.contains_key(*name));
        gone.for_each(|interface| tracing::warn!(interface, "the interface is gone"));
    }

    fn devices(&mut self) {
        let plan = &self.shared.active().plan;
        let links = match self.shared.kernel.links() {
            Ok(links) => links,
            Err(error) => return tracing::error!(%error, "the devices cannot be read"),
        };
        self.tell_links(plan, &links);
        let taken: BTreeSet<String> = enslaved(plan, &links).map(|(_, text)| text).collect();
        taken.difference(&self.told).for_each(|text| tracing::warn!("{text}"));
        self.told = taken;
        if self.told.is_empty()
            && devices_changed(self.shared)
            && !self.recommitting.swap(true, Ordering::AcqRel)
        {
            recommit(self.shared.clone(), self.engine.clone(), self.recommitting.clone());
        }
    }
}

/// Managed devices that have become a port of another one, by name, and what that means.
pub fn enslaved<'a>(plan: &'a Plan, links: &'a [Link]) -> impl Iterator<Item = (String, String)> + 'a {
    let by_index: HashMap<u32, &Link> = links.iter().map(|link| (link.index, link)).collect();
    plan.attachments.iter().filter_map(move |attachment| {
        let master = by_index.get(&by_index.get(&attachment.ifindex)?.master?)?;
        if master.is_instance() {
            return None;
        }
        let kind = master.kind.as_deref().unwrap_or("device");
        let (name, of) = (&attachment.device, &master.name);
        let text = format!(
            "interface {name} has become a port of {kind} {of}, which takes its packets; `ip link set {name} nomaster`, or \
             configure {of} instead"
        );
        Some((name.clone(), text))
    })
}

fn refresh(shared: &Shared, dirty: Dirty) -> Result<(), AskError> {
    if dirty.all {
        tracing::warn!("rtnetlink lost messages; reading everything again");
        resync_neighbours(shared)?;
    }
    let instances = &shared.active().plan.kernel.instances;
    // with its link an address goes from one instance to another
    if dirty.addresses || dirty.all || dirty.links && !instances.is_empty() {
        addresses::update(&shared.kernel, &shared.dataplane, instances)?;
    }
    Ok(())
}

/// Whether managed devices that are here are not all as the active plan knows them.
fn devices_changed(shared: &Shared) -> bool {
    let active = shared.active();
    let plan = &active.plan;
    let read = || -> Result<_, KernelError> {
        let (links, addresses) = (shared.kernel.links()?, shared.kernel.addresses()?);
        let config = (&active.config, &Known::new());
        Ok(environment::devices(&shared.kernel, &links, &addresses, config, &Mtus::default()))
    };
    let now = match read() {
        Ok(now) => now,
        Err(error) => {
            tracing::error!(%error, "the devices cannot be read");
            return false;
        }
    };
    let is_interface = |device: &String| active.config.interfaces.iter().any(|own| own.name == *device);
    let is_same = |device: &String| {
        let (Some(was), Some(is)) = (plan.environment.netdevs.get(device), now.netdevs.get(device)) else {
            // an interface that has gone is waited for, and meanwhile holds up no other; our own devices are made anew
            return is_interface(device);
        };
        let sets_mtu = plan.kernel.links.iter().any(|link| link.device == *device && link.mtu.is_some());
        (was.ifindex, was.mac, &was.learned, was.sender) == (is.ifindex, is.mac, &is.learned, is.sender)
            && (sets_mtu || was.mtu == is.mtu)
    };
    // routes are asked by the indexes of VRF devices
    let index =
        |environment: &Environment, device: &String| environment.netdevs.get(device).map(|d| d.ifindex);
    let instances = &plan.kernel.instances;
    let is_moved = |own: &InstanceWant| {
        let (was, is) = (index(&plan.environment, &own.device), index(&now, &own.device));
        is.is_some() && was != is
    };
    let mut absent = active.config.interfaces.iter().filter(|own| plan.environment.is_absent(&own.name));
    instances.iter().any(is_moved)
        || absent.any(|own| now.netdevs.contains_key(&own.name))
        || !plan.attachments.iter().all(|attachment| is_same(&attachment.device))
}

/// On a thread of its own: routes must not wait for a commit.
fn recommit(shared: Arc<Shared>, engine: Arc<Mutex<Engine>>, running: Arc<AtomicBool>) {
    thread::spawn(move || {
        let mut engine = engine.lock().unwrap_or_else(PoisonError::into_inner);
        running.store(false, Ordering::Release);
        // The commit that held the engine may have seen to it.
        if devices_changed(&shared) {
            tracing::info!(
                "a managed device came back or changed; committing the active configuration again"
            );
            let before = shared.active();
            // Its result is logged by the engine.
            if engine.recommit(&shared).is_ok() {
                ask_again(&shared, &before.plan);
            }
        }
    });
}

/// Answers to a MAC address that a device has only now were dropped until the data plane knew it.
fn ask_again(shared: &Shared, before: &Plan) {
    let plan = &shared.active().plan;
    for (device, now) in &plan.environment.netdevs {
        let is_ours = plan.attachments.iter().any(|attachment| attachment.device == *device);
        let was = before.environment.netdevs.get(device).filter(|_| is_ours);
        if was.is_some_and(|was| was.mac != now.mac)
            && let Err(error) = shared.kernel.ask_again(now.ifindex)
        {
            tracing::warn!(%error, "neighbours may take a second longer");
        }
    }
}

/// Gives back unused next hops. The others get NTF_USE: redirected packets do not tell the kernel that a
/// neighbour is in use.
pub fn refresh_neighbours(shared: &Shared) {
    match shared.dataplane.neighbours_in_use(UNUSED_NEXTHOP_S) {
        Ok(neighbours) => ask(shared, neighbours),
        Err(error) => tracing::error!(%error, "unused next hops were not freed, nor the others refreshed"),
    }
}

fn ask(shared: &Shared, neighbours: BTreeSet<(u32, IpAddr)>) {
    if let Err(error) = shared.kernel.use_neighbours(neighbours.into_iter()) {
        tracing::error!(%error, "neighbours cannot be asked for");
    }
}

fn is_unresolved(shared: &Shared, index: u32) -> bool {
    shared.dataplane.nexthop(index).is_ok_and(|entry| entry.flags & sluice_abi::NEXTHOP_RESOLVED == 0)
}

/// The slow path may have read the FIB just before the answer came and recorded the next hop just after.
pub fn catch_up_unresolved(shared: &Shared) {
    let Ok(entries) = shared.dataplane.nexthops() else { return };
    let unresolved: Vec<NexthopEntry> =
        entries.into_iter().filter(|entry| is_unresolved(shared, entry.index)).collect();
    if unresolved.is_empty() {
        return;
    }
    if let Err(error) = resync_neighbours(shared) {
        tracing::error!(%error, "neighbours cannot be read");
    }
    ask_for_generic_xdp(shared, &unresolved);
}

/// Behind generic XDP kernels hide from tc who is to be asked for: the packets are lost, and the daemon asks instead.
fn ask_for_generic_xdp(shared: &Shared, unresolved: &[NexthopEntry]) {
    let generic = |plan: &Plan| plan.attachments.iter().any(|a| a.ingress == Some(IngressHook::XdpGeneric));
    if generic(&shared.active().plan) {
        let silent = unresolved.iter().filter(|entry| is_unresolved(shared, entry.index));
        ask(shared, silent.map(|entry| (entry.host_ifindex, entry.address)).collect());
    }
}
