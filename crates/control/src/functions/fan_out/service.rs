//! Fan-out inside the daemon: listeners of user space, health and shares for those of the data plane.
//!
//! Health and commits come at the same time. Each change of shares is put into the tables of the generation in force, also
//! while another is being loaded; what the generation in force has is remembered with its number, so whatever one of the
//! two has not seen is made good when both are done.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Builder;
use std::time::Instant;

use sluice_dataplane::Dataplane;
use sluice_fanout::metrics::{self, ListenerReport};
use sluice_fanout::names::PATIENCE;
use sluice_fanout::pool::Pool;
use sluice_fanout::{Names, Runner, RunnerError, health};
use sluice_language::Config;
use sluice_language::fan_out::{FanOut, Listener};
use sluice_plan::fan_out::FanOutInfo;
use sluice_plan::{Plan, fan_out};

use crate::functions::fan_out::positions::News;
use crate::functions::fan_out::report;
use crate::state::config;

/// Positions of a listener in the tables of one generation.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Written {
    generation: u32,
    positions: Vec<u16>,
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

    /// Waits a moment for names that are new to be resolved; before a commit, and without its lock.
    pub fn learn(&self, text: &str, file: &str) {
        // most configurations have none, and reading one takes its time
        if text.contains("fan-out")
            && let Ok(config) = config::parse(text, file)
        {
            self.names.learn(&config.fan_out, PATIENCE);
        }
    }

    /// Has the DNS asked for the names in a configuration from now on.
    pub fn want(&self, named: &FanOut) {
        self.names.want(named);
    }

    /// Puts addresses in the place of names, and has listeners of the data plane keep those who leave until they have
    /// drained.
    pub fn resolve(&self, config: &mut Config) {
        config.fan_out = self.resolved(&config.fan_out);
    }

    pub fn resolved(&self, named: &FanOut) -> FanOut {
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

    /// The listeners of user space send what waits, and end; checks do, too.
    pub fn end(&self) {
        let runner = {
            let mut state = self.state();
            state.keep(|_| false);
            state.runner.take()
        };
        if let Some(runner) = runner {
            runner.end();
        }
    }

    /// Leaves receivers that are known to be down out of the tables that are about to be loaded. The checks go on with the
    /// configuration in force until [`FanOutService::finish`].
    pub fn overlay(&self, plan: &mut Plan, wanted: &FanOut) {
        let mut state = self.state();
        for (index, info) in plan.fan_out.iter().enumerate() {
            let Some(listener) = wanted.listeners.iter().find(|l| l.name == info.name) else { continue };
            let watched = state.watch(listener);
            let positions = positions(info, &watched.pool.weights_with(listener));
            fan_out::write_positions(&mut plan.tables.fan_out, index, &positions);
            watched.loaded = Some(Written { generation: plan.generation, positions });
        }
    }

    /// After a commit: it is checked who is in the configuration now.
    pub fn finish(&self, plan: &Plan, wanted: &FanOut) {
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

    /// Listeners whose tables in the data plane are behind, with the positions they should have.
    pub fn news(&self, plan: &Plan) -> Vec<News> {
        let (mut state, generation) = (self.state(), plan.generation);
        let mut news = vec![];
        for (index, info) in plan.fan_out.iter().enumerate() {
            let Some(watched) = state.watched.get_mut(&info.name) else { continue };
            watched.pool.tick(Instant::now());
            let version = watched.pool.version();
            if watched.seen == (generation, version) {
                continue;
            }
            let wanted = Written { generation, positions: positions(info, &watched.pool.weights()) };
            if watched.written.as_ref() == Some(&wanted) {
                watched.seen = (generation, version);
            } else {
                news.push(News { listener: info.name.clone(), index, version, positions: wanted.positions });
            }
        }
        news
    }

    /// The tables of the generation have these positions.
    pub fn written(&self, generation: u32, news: Vec<News>) {
        let mut state = self.state();
        for one in news {
            let Some(watched) = state.watched.get_mut(&one.listener) else { continue };
            // a commit that came meanwhile has written its own
            if watched.written.as_ref().is_none_or(|written| written.generation <= generation) {
                watched.written = Some(Written { generation, positions: one.positions });
                watched.seen = (generation, one.version);
            }
        }
    }

    /// Listens where a configuration wants its metrics, before it is in force.
    pub fn prepare_metrics(&self, wanted: &FanOut) -> io::Result<Option<metrics::Bound>> {
        self.server.prepare(wanted.metrics)
    }

    /// Answers on the address that the configuration names, and on another as soon as it names that.
    pub fn serve_metrics(&self, source: metrics::Source, wanted: &FanOut) -> io::Result<()> {
        let _ = self.source.set(source);
        let bound = self.prepare_metrics(wanted)?;
        self.put_metrics(wanted, bound)
    }

    /// Serves them there. Before there is anything to report, [`FanOutService::serve_metrics`] will do it.
    pub fn put_metrics(&self, wanted: &FanOut, bound: Option<metrics::Bound>) -> io::Result<()> {
        let Some(source) = self.source.get() else { return Ok(()) };
        self.server.put(wanted.metrics, bound, source)
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
            kernel.map(|(info, pool)| report::kernel(dataplane, info, pool.as_deref())).collect();
        reports.extend(runner.iter().flat_map(Runner::report));
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
fn positions(info: &FanOutInfo, weights: &[(std::net::SocketAddr, String, u32)]) -> Vec<u16> {
    let weight = |name: &str, address| {
        weights.iter().find(|(a, n, _)| *a == address && n == name).map_or(0, |(_, _, weight)| *weight)
    };
    let names: Vec<String> = info.receivers.iter().map(|(_, address, _)| address.to_string()).collect();
    let weights: Vec<u32> = info.receivers.iter().map(|(name, address, _)| weight(name, *address)).collect();
    fan_out::positions(info.balance, &names, &weights)
}

#[cfg(test)]
mod tests;
