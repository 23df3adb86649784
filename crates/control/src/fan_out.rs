//! Fan-out inside the daemon: threads for the listeners of user space, health and shares for those of the data plane.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, sleep};
use std::time::{Duration, Instant};

use sluice_dataplane::Dataplane;
use sluice_fanout::metrics::{self, ListenerReport, QueueReport, ReceiverReport};
use sluice_fanout::pool::Pool;
use sluice_fanout::resolve::{Resolver, has_names};
use sluice_fanout::{Runner, RunnerError, health};
use sluice_language::Config;
use sluice_language::fan_out::{FanOut, Listener, Receiver};
use sluice_plan::fan_out::FanOutInfo;
use sluice_plan::{IngressHook, Plan, fan_out};

use crate::engine::Engine;
use crate::shared::Shared;

/// How often shares move, and what changed is put into the tables of the data plane.
const TICK: Duration = Duration::from_millis(20);
/// How often names are looked up.
const NAMES: Duration = Duration::from_secs(5);
/// How often receivers that have drained are taken out.
const AGAIN: Duration = Duration::from_millis(500);

/// Health of the receivers of one listener of the data plane.
struct Watched {
    pool: Arc<Pool>,
    stop: Arc<AtomicBool>,
    /// Version of the pool that the data plane has.
    written: u64,
}

/// What a commit asks and tells; it lives as long as the daemon.
#[derive(Clone, Default)]
pub struct FanOutService(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    runner: Option<Runner>,
    watched: BTreeMap<String, Watched>,
    resolver: Resolver,
}

impl FanOutService {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts addresses in the place of names, and has listeners of the data plane keep those who leave until they have
    /// drained.
    pub fn resolve(&self, config: &mut Config) {
        let mut state = self.state();
        if has_names(&config.fan_out) {
            config.fan_out = state.resolver.expand(&config.fan_out);
        }
        for listener in config.fan_out.listeners.iter_mut().filter(|listener| listener.mode.is_kernel()) {
            let Some(watched) = state.watched.get(&listener.name) else { continue };
            listener.receivers.extend(watched.pool.leaving(&listener.receivers));
        }
    }

    /// Whether somebody whom the text does not name has drained.
    fn has_drained(&self, config: &Config, named: &FanOut) -> bool {
        let state = self.state();
        config.fan_out.kernel().any(|listener| {
            let Some(text) = named.listeners.iter().find(|l| l.name == listener.name) else { return false };
            let Some(watched) = state.watched.get(&listener.name) else { return false };
            let stays = |r: &Receiver| {
                !r.drain || {
                    // addresses of a name are called NAME/ADDRESS
                    let name = r.name.split('/').next();
                    text.receivers.iter().any(|t| Some(t.name.as_str()) == name && t.drain)
                }
            };
            let kept: Vec<Receiver> = listener.receivers.iter().filter(|r| stays(r)).cloned().collect();
            kept.len() + watched.pool.leaving(&kept).len() < listener.receivers.len()
        })
    }

    /// Starts and changes the listeners of user space: all of them or none.
    pub fn apply_user(&self, wanted: &FanOut) -> Result<(), RunnerError> {
        let mut state = self.state();
        if state.runner.is_none() && wanted.user().next().is_none() {
            return Ok(());
        }
        if state.runner.is_none() {
            state.runner = Some(Runner::start()?);
        }
        state.runner.as_ref().map_or(Ok(()), |runner| runner.apply(wanted))
    }

    /// Leaves receivers that are known to be down out of the tables that are about to be loaded.
    pub fn overlay(&self, plan: &mut Plan, wanted: &FanOut) {
        let mut state = self.state();
        for (place, info) in plan.fan_out.iter().enumerate() {
            let Some(listener) = wanted.listeners.iter().find(|l| l.name == info.name) else { continue };
            let watched = state.watch(listener);
            watched.pool.configure(listener);
            watched.written = watched.pool.version();
            fan_out::take_turns(&mut plan.tables.fan_out, place, &turns(info, &watched.pool));
        }
    }

    /// After a commit: checks of listeners that went end.
    pub fn settle(&self, plan: &Plan) {
        let mut state = self.state();
        let gone = |name: &String| !plan.fan_out.iter().any(|info| info.name == *name);
        let names: Vec<String> = state.watched.keys().filter(|name| gone(name)).cloned().collect();
        for name in names {
            if let Some(watched) = state.watched.remove(&name) {
                watched.stop.store(true, Ordering::Release);
            }
        }
    }

    /// Listeners whose tables in the data plane are behind, with the turns they should have.
    pub fn news(&self, plan: &Plan) -> Vec<(usize, Vec<u16>)> {
        let mut state = self.state();
        let mut news = vec![];
        for (place, info) in plan.fan_out.iter().enumerate() {
            let Some(watched) = state.watched.get_mut(&info.name) else { continue };
            watched.pool.tick(Instant::now());
            let version = watched.pool.version();
            if version != watched.written {
                watched.written = version;
                news.push((place, turns(info, &watched.pool)));
            }
        }
        news
    }

    /// Listeners of the data plane and of user space.
    pub fn report(&self, dataplane: &Dataplane, plan: &Plan) -> Vec<ListenerReport> {
        let state = self.state();
        let kernel = plan.fan_out.iter().map(|info| {
            let pool = state.watched.get(&info.name).map(|watched| watched.pool.clone());
            kernel_report(dataplane, info, pool.as_deref())
        });
        let mut reports: Vec<ListenerReport> = kernel.collect();
        reports.extend(state.runner.iter().flat_map(Runner::report));
        reports
    }
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
            Watched { pool, stop, written: 0 }
        })
    }
}

/// In the order of the data plane's receivers; a receiver that drains is not among them any more.
fn turns(info: &FanOutInfo, pool: &Pool) -> Vec<u16> {
    let weights = pool.weights();
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
        drops: counted.drops.named().map(|(reason, count)| (reason.name(), count)).collect(),
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
    let former = |entry: &(String, std::net::SocketAddr, u32)| ReceiverReport {
        up: false,
        share: 0,
        ..receiver(entry)
    };
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

/// Keeps the data plane's tables as health has them, and names as the DNS has them.
pub fn start(shared: Arc<Shared>, engine: Arc<Mutex<Engine>>, service: FanOutService) -> io::Result<()> {
    Builder::new().name("fan-out".into()).spawn(move || {
        let mut looked_up = Instant::now();
        loop {
            sleep(TICK);
            let active = shared.active();
            let news = service.news(&active.plan);
            let engine = || engine.lock().unwrap_or_else(PoisonError::into_inner);
            if !news.is_empty() {
                engine().take_turns(&news, active.generation, &shared.dataplane);
            }
            let drained = looked_up.elapsed() > AGAIN && service.has_drained(&active.config, &active.named);
            if drained || (looked_up.elapsed() > NAMES && has_names(&active.named)) {
                looked_up = Instant::now();
                let mut config = active.config.clone();
                config.fan_out = active.named.clone();
                service.resolve(&mut config);
                if config.fan_out != active.config.fan_out {
                    tracing::info!(drained, "the receivers of a listener are others");
                    // Its result is logged by the engine.
                    let _ = engine().recommit(&shared);
                }
            }
        }
    })?;
    Ok(())
}

/// Answers on the address that the configuration names.
pub fn serve_metrics(shared: &Arc<Shared>, service: &FanOutService) -> io::Result<()> {
    let Some(address) = shared.active().config.fan_out.metrics else { return Ok(()) };
    let (shared, service) = (shared.clone(), service.clone());
    let source = move || service.report(&shared.dataplane, &shared.active().plan);
    let bound = metrics::serve(address, Arc::new(source)).map_err(|error| {
        io::Error::new(error.kind(), format!("metrics on {address}: {error}; choose another"))
    })?;
    tracing::info!(address = %bound, "metrics of fan-out at /metrics");
    Ok(())
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
