//! Fan-out inside the daemon: threads for the listeners of user space, health and shares for those of the data plane.
//!
//! Health and commits come at the same time. Each change of shares is put into the tables of the generation in force, also
//! while another is being loaded; what the generation in force has is remembered with its number, so whatever one of the
//! two has not seen is made good when both are done.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{Builder, sleep};
use std::time::{Duration, Instant};

use sluice_abi::DropCounters;
use sluice_abi::stages::{Reason, Stage};
use sluice_abi::tables::FanOutListener;
use sluice_dataplane::{Dataplane, Generation};
use sluice_fanout::metrics::{self, ListenerReport, QueueReport, ReceiverReport};
use sluice_fanout::names::PATIENCE;
use sluice_fanout::pool::Pool;
use sluice_fanout::{Names, Runner, RunnerError, health};
use sluice_language::Config;
use sluice_language::fan_out::{FanOut, Listener};
use sluice_plan::fan_out::FanOutInfo;
use sluice_plan::{IngressHook, Plan, fan_out};

use crate::shared::Shared;

/// How often shares move, and what changed is put into the tables of the data plane.
const TICK: Duration = Duration::from_millis(20);
/// How often it is looked whether receivers are others, by their names or since they have drained.
const LOOK: Duration = Duration::from_millis(200);
/// How often it is looked whether receivers are behind other devices.
const LOOK_AROUND: Duration = Duration::from_secs(1);
/// How long after a failure it is tried again.
const RETRY: Duration = Duration::from_secs(5);

/// Turns of a listener in the tables of one generation.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Written {
    generation: u32,
    turns: Vec<u16>,
}

/// Health of the receivers of one listener of the data plane.
struct Watched {
    pool: Arc<Pool>,
    stop: Arc<AtomicBool>,
    /// What the generation in force has.
    written: Option<Written>,
    /// What one has that is being loaded.
    loaded: Option<Written>,
    /// Generation and version of the pool that `written` was last compared with.
    seen: (u32, u64),
}

/// Turns that a listener should have.
pub struct News {
    listener: String,
    place: usize,
    version: u64,
    turns: Vec<u16>,
}

/// A generation and its listeners in the order of its plan.
type Listening = (Generation, Vec<FanOutListener>);

/// The generation in force, when this process loaded it; a commit changes over while it holds this.
#[derive(Clone, Default)]
pub struct InForce(Arc<Mutex<Option<Listening>>>);

impl InForce {
    pub fn lock(&self) -> MutexGuard<'_, Option<Listening>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts turns into the tables of a generation; false if it is not in force.
    fn take_turns(
        &self,
        generation: u32,
        news: &[News],
        dataplane: &Dataplane,
    ) -> sluice_dataplane::Result<bool> {
        let guard = self.lock();
        let Some((loaded, listeners)) = guard.as_ref().filter(|(loaded, _)| loaded.number() == generation)
        else {
            return Ok(false);
        };
        for one in news {
            let Some(listener) = listeners.get(one.place) else { return Ok(false) };
            dataplane.set_fan_out_turns(loaded, listener, &one.turns)?;
        }
        Ok(true)
    }
}

/// What a commit asks and tells; it lives as long as the daemon.
#[derive(Clone, Default)]
pub struct FanOutService {
    state: Arc<Mutex<State>>,
    names: Names,
    server: metrics::Server,
    /// There is one as soon as there is something to report.
    source: Arc<OnceLock<metrics::Source>>,
}

#[derive(Default)]
struct State {
    runner: Option<Runner>,
    watched: BTreeMap<String, Watched>,
}

impl FanOutService {
    pub fn new(names: Names) -> Self {
        Self { names, ..Self::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives names that nobody has asked for a moment to be answered; before a commit, and without its lock.
    pub fn learn(&self, text: &str, file: &str) {
        // most configurations have none, and reading one takes its time
        if text.contains("fan-out")
            && let Ok(config) = crate::config::parse(text, file)
        {
            self.names.learn(&config.fan_out, PATIENCE);
        }
    }

    /// Puts addresses in the place of names, and has listeners of the data plane keep those who leave until they have
    /// drained.
    pub fn resolve(&self, config: &mut Config) {
        config.fan_out = self.resolved(&config.fan_out);
    }

    fn resolved(&self, named: &FanOut) -> FanOut {
        let mut fan_out = self.names.expand(named);
        let state = self.state();
        for listener in fan_out.listeners.iter_mut().filter(|listener| listener.mode.is_kernel()) {
            let Some(watched) = state.watched.get(&listener.name) else { continue };
            listener.receivers.extend(watched.pool.leaving(&listener.receivers));
        }
        fan_out
    }

    /// Starts and changes the listeners of user space: all of them or none.
    pub fn apply_user(&self, wanted: &FanOut) -> Result<(), RunnerError> {
        let mut state = self.state();
        if state.runner.is_none() && wanted.user().next().is_none() {
            return Ok(());
        }
        if state.runner.is_none() {
            // its names are addresses already
            state.runner = Some(Runner::start(Names::default())?);
        }
        state.runner.as_ref().map_or(Ok(()), |runner| runner.apply(wanted))
    }

    /// Leaves receivers that are known to be down out of the tables that are about to be loaded. The checks go on with the
    /// configuration in force until [`FanOutService::settle`].
    pub fn overlay(&self, plan: &mut Plan, wanted: &FanOut) {
        let mut state = self.state();
        for (place, info) in plan.fan_out.iter().enumerate() {
            let Some(listener) = wanted.listeners.iter().find(|l| l.name == info.name) else { continue };
            let watched = state.watch(listener);
            let turns = turns(info, &watched.pool.weights_with(listener));
            fan_out::take_turns(&mut plan.tables.fan_out, place, &turns);
            watched.loaded = Some(Written { generation: plan.generation, turns });
        }
    }

    /// After a commit: it is checked who is in the configuration now.
    pub fn settle(&self, plan: &Plan, wanted: &FanOut) {
        let mut state = self.state();
        for listener in wanted.kernel() {
            let Some(watched) = state.watched.get_mut(&listener.name) else { continue };
            watched.pool.configure(listener);
            watched.written = watched.loaded.take().filter(|loaded| loaded.generation == plan.generation);
        }
        state.keep(|name| plan.fan_out.iter().any(|info| info.name == name));
    }

    /// After a commit that failed: what it began to check is left alone.
    pub fn abandon(&self, old: Option<&Plan>) {
        let mut state = self.state();
        state.watched.values_mut().for_each(|watched| watched.loaded = None);
        state.keep(|name| old.is_some_and(|plan| plan.fan_out.iter().any(|info| info.name == name)));
    }

    /// Listeners whose tables in the data plane are behind, with the turns they should have.
    fn news(&self, plan: &Plan) -> Vec<News> {
        let (mut state, generation) = (self.state(), plan.generation);
        let mut news = vec![];
        for (place, info) in plan.fan_out.iter().enumerate() {
            let Some(watched) = state.watched.get_mut(&info.name) else { continue };
            watched.pool.tick(Instant::now());
            let version = watched.pool.version();
            if watched.seen == (generation, version) {
                continue;
            }
            let wanted = Written { generation, turns: turns(info, &watched.pool.weights()) };
            if watched.written.as_ref() == Some(&wanted) {
                watched.seen = (generation, version);
            } else {
                news.push(News { listener: info.name.clone(), place, version, turns: wanted.turns });
            }
        }
        news
    }

    /// The tables of the generation have these turns.
    fn written(&self, generation: u32, news: Vec<News>) {
        let mut state = self.state();
        for one in news {
            let Some(watched) = state.watched.get_mut(&one.listener) else { continue };
            // a commit that came meanwhile has written its own
            if watched.written.as_ref().is_none_or(|written| written.generation <= generation) {
                watched.written = Some(Written { generation, turns: one.turns });
                watched.seen = (generation, one.version);
            }
        }
    }

    /// Listens where a configuration wants its metrics, before it is in force.
    pub fn prepare_metrics(&self, wanted: &FanOut) -> io::Result<Option<metrics::Bound>> {
        self.server.prepare(wanted.metrics).map_err(|error| metrics_error(wanted, error))
    }

    /// Serves them there. Before there is anything to report, [`serve_metrics`] will do it.
    pub fn put_metrics(&self, wanted: &FanOut, bound: Option<metrics::Bound>) -> io::Result<()> {
        let Some(source) = self.source.get() else { return Ok(()) };
        self.server.put(wanted.metrics, bound, source).map_err(|error| metrics_error(wanted, error))
    }

    /// Listeners of the data plane and of user space.
    pub fn report(&self, dataplane: &Dataplane, plan: &Plan) -> Vec<ListenerReport> {
        let (runner, pools) = {
            let state = self.state();
            let pool = |info: &FanOutInfo| state.watched.get(&info.name).map(|watched| watched.pool.clone());
            (state.runner.clone(), plan.fan_out.iter().map(pool).collect::<Vec<_>>())
        };
        let kernel = plan.fan_out.iter().zip(pools);
        let mut reports: Vec<ListenerReport> =
            kernel.map(|(info, pool)| kernel_report(dataplane, info, pool.as_deref())).collect();
        reports.extend(runner.iter().flat_map(Runner::report));
        reports
    }
}

fn metrics_error(wanted: &FanOut, error: io::Error) -> io::Error {
    let address = wanted.metrics.map_or_else(String::new, |address| address.to_string());
    io::Error::new(error.kind(), format!("metrics on {address}: {error}; choose another"))
}

impl State {
    fn watch(&mut self, listener: &Listener) -> &mut Watched {
        self.watched.entry(listener.name.clone()).or_insert_with(|| {
            let (pool, stop) = (Arc::new(Pool::new(listener)), Arc::new(AtomicBool::new(false)));
            let (own, end, name) = (pool.clone(), stop.clone(), listener.name.clone());
            let checker = move || health::watch(&own, &name, &end, &|| ());
            if let Err(error) = Builder::new().name("fan-health".into()).spawn(checker) {
                tracing::error!(listener = listener.name, %error, "no health checks: cannot start a thread");
            }
            Watched { pool, stop, written: None, loaded: None, seen: (0, 0) }
        })
    }

    /// Checks of other listeners end.
    fn keep(&mut self, stays: impl Fn(&str) -> bool) {
        self.watched.retain(|name, watched| {
            let stays = stays(name);
            watched.stop.store(!stays, Ordering::Release);
            stays
        });
    }
}

/// In the order of the data plane's receivers; a receiver that drains is not among them any more.
fn turns(info: &FanOutInfo, weights: &[(std::net::SocketAddr, String, u32)]) -> Vec<u16> {
    let weight = |name: &str, address| {
        weights.iter().find(|(a, n, _)| *a == address && n == name).map_or(0, |(_, _, weight)| *weight)
    };
    let names: Vec<String> = info.receivers.iter().map(|(_, address, _)| address.to_string()).collect();
    let weights: Vec<u32> = info.receivers.iter().map(|(name, address, _)| weight(name, *address)).collect();
    fan_out::positions(info.balance, &names, &weights)
}

fn kernel_report(dataplane: &Dataplane, info: &FanOutInfo, pool: Option<&Pool>) -> ListenerReport {
    let counted = dataplane.fan_out_listener(info.index).unwrap_or_default();
    let queue = QueueReport {
        queue: "all".to_owned(),
        packets: counted.received,
        bytes: counted.received_bytes,
        drops: drops(&counted.drops),
        ..QueueReport::default()
    };
    let views = pool.map(Pool::view).unwrap_or_default();
    let receiver = |(name, address, index): &(String, std::net::SocketAddr, u32)| {
        let counted = dataplane.fan_out_receiver(*index).unwrap_or_default();
        let view = views.iter().find(|v| v.target.name == *name && v.target.address == *address);
        ReceiverReport {
            name: name.clone(),
            address: address.to_string(),
            up: view.is_none_or(|view| view.up),
            share: view.map_or(10, |view| view.share),
            packets: counted.packets,
            bytes: counted.bytes,
            ..ReceiverReport::default()
        }
    };
    let former =
        |entry: &(String, std::net::SocketAddr, u32)| ReceiverReport { is_former: true, ..receiver(entry) };
    let (mode, attach) = match info.hook {
        IngressHook::Tc => ("tc_ebpf", "tc"),
        IngressHook::XdpNative => ("xdp", "native"),
        IngressHook::XdpGeneric => ("xdp", "generic"),
    };
    ListenerReport {
        name: info.name.clone(),
        mode: mode.to_owned(),
        attach: attach.to_owned(),
        zero_copy: false,
        ring_memory: None,
        interface: info.unit.clone(),
        queues: vec![queue],
        receivers: info.receivers.iter().map(receiver).chain(info.former.iter().map(former)).collect(),
    }
}

/// Every reason that datagrams of a listener are dropped for, also those that have not come up yet: what computes an
/// increase must have seen the zero before it.
fn drops(counted: &DropCounters) -> Vec<(&'static str, u64)> {
    let last = [Reason::NexthopTableFull, Reason::RewriteFailed, Reason::NeighbourPending];
    let may = |reason: &Reason| {
        matches!(reason.stage(), Stage::Fanout | Stage::Route)
            || last.contains(reason)
            || counted.of(*reason) > 0
    };
    Reason::ALL.into_iter().filter(may).map(|reason| (reason.name(), counted.of(reason))).collect()
}

/// The configuration in force, committed once more.
pub trait Again: Send + 'static {
    /// It would be another one by now.
    fn is_behind(&self) -> bool;

    /// False if it could not be.
    fn commit(&self) -> bool;
}

/// Keeps the data plane's tables as health has them, and receivers as the DNS has them.
pub fn start(
    shared: Arc<Shared>,
    service: FanOutService,
    in_force: InForce,
    again: impl Again,
) -> io::Result<()> {
    let (own, of) = (shared.clone(), service.clone());
    Builder::new().name("fan-out".into()).spawn(move || keep_turns(&own, &of, &in_force))?;
    // on a thread of its own: a commit takes long, and receivers fall meanwhile
    Builder::new().name("fan-receivers".into()).spawn(move || keep_receivers(&shared, &service, &again))?;
    Ok(())
}

fn keep_turns(shared: &Shared, service: &FanOutService, in_force: &InForce) {
    let mut failed: Option<Instant> = None;
    loop {
        sleep(TICK);
        if failed.is_some_and(|at| at.elapsed() < RETRY) {
            continue;
        }
        let active = shared.active();
        let news = service.news(&active.plan);
        if news.is_empty() {
            continue;
        }
        failed = match in_force.take_turns(active.generation, &news, &shared.dataplane) {
            Ok(true) => {
                service.written(active.generation, news);
                None
            }
            // another generation is in force; it is asked for next
            Ok(false) => None,
            Err(error) => {
                tracing::error!(%error, "receivers keep their turns; it is tried again");
                Some(Instant::now())
            }
        };
    }
}

fn keep_receivers(shared: &Shared, service: &FanOutService, again: &impl Again) {
    let (mut failed, mut looked): (Option<Instant>, Instant) = (None, Instant::now());
    loop {
        sleep(LOOK);
        let active = shared.active();
        service.names.want(&active.named);
        if failed.is_some_and(|at| at.elapsed() < RETRY) {
            continue;
        }
        let mut is_behind = service.resolved(&active.named) != active.config.fan_out;
        if !is_behind && looked.elapsed() > LOOK_AROUND {
            is_behind = again.is_behind();
            looked = Instant::now();
        }
        if is_behind {
            // its result is logged by the engine
            failed = (!again.commit()).then(Instant::now);
        }
    }
}

/// Answers on the address that the configuration names, and on another as soon as it names that.
pub fn serve_metrics(shared: &Arc<Shared>, service: &FanOutService) -> io::Result<()> {
    let (own, of) = (shared.clone(), service.clone());
    let source: metrics::Source = Arc::new(move || of.report(&own.dataplane, &own.active().plan));
    let _ = service.source.set(source);
    let wanted = &shared.active().config.fan_out;
    let bound = service.prepare_metrics(wanted)?;
    service.put_metrics(wanted, bound)
}

/// In the manner of those who come from simpler tools.
pub fn log(plan: &Plan) {
    for info in &plan.fan_out {
        let report = match info.hook {
            IngressHook::Tc => "tc",
            IngressHook::XdpNative => "native",
            IngressHook::XdpGeneric => "generic",
        };
        tracing::info!(listener = info.name, bind = %info.bind, receivers = info.receivers.len(), "registered listener");
        tracing::info!(interface = info.unit, mode = report, "attached fan-out program");
        if info.hook == IngressHook::Tc {
            tracing::info!(
                interface = info.unit,
                "on tc a burst that its sender left whole (UDP_SEGMENT over veth or tap) goes to one receiver; `ethtool -K DEVICE tx-udp-segmentation off` at its end, or mode xdp, spreads it"
            );
        }
        let ours = plan.units.iter().flat_map(|unit| &unit.addresses).any(|a| a.addr == info.bind.ip())
            || plan.kernel.addresses.iter().any(|(_, prefix)| prefix.addr == info.bind.ip());
        if !ours {
            tracing::warn!(
                listener = info.name,
                address = %info.bind.ip(),
                "no configured interface has this address: a router must send it here, or `answer-arp` has the kernel answer for it"
            );
        }
    }
}

#[cfg(test)]
mod tests;
