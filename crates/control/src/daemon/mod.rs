//! The daemon: starts fail-closed, serves until it is told to end, and leaves the data plane running.

mod boot;
mod notify;
mod owner;
mod sources;
mod start;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sluice_plan::KernelWants;
use tokio::signal::unix::{Signal, SignalKind, signal};

pub use self::boot::guard_at_boot;
use self::notify::Notify;
use self::owner::Namespace;
pub use self::sources::{Options, Translate};
pub use self::start::DaemonError;
use self::start::{Start, Started};
use crate::commit::Shared;
use crate::commit::{Engine, Source};
use crate::events::{
    confirm, dhcp, dhcp_server, drops, fan_out, frr, log, oversize, router_advertisement, ruleset, schedules,
    syslog, tunnels, upkeep, watch,
};
use crate::functions::dhcp::clients::{self, Clients};
use crate::functions::fan_out::service::FanOutService;
use crate::functions::forwarding;
use crate::functions::frr::Frr;
use crate::functions::gate::audit::Audit;
use crate::functions::gtpu::sessions::Sessions;
use crate::kernel::changes::{self, Changes};
use crate::kernel::environment::Known;
use crate::kernel::{self, Kernel, guard, mtus, preflight, tags};
use crate::serve::connections::Pools;
use crate::serve::http::{self, App};
use crate::serve::operations::Gateway;
use crate::state::config;
use crate::state::pins;
use crate::state::store::{Memory, Store, Stored};

/// The process behind `sluice run`.
pub struct Daemon;

/// What a daemon must have for itself before it does anything.
struct Claimed {
    store: Arc<Store>,
    pin: PathBuf,
    namespace: Namespace,
}

impl Claimed {
    fn claim(options: &Options) -> Result<Self, DaemonError> {
        preflight::privileged()?;
        preflight::machine()?;
        let store = Arc::new(Store::lock(&options.state_dir)?);
        let pin = store.pin_dir(&pins::bpffs(&options.state_dir, options.bpffs.as_deref())?)?;
        let namespace = Namespace::lock()?;
        namespace.check(&pin, &options.state_dir)?;
        pins::remember(&options.state_dir, options.bpffs.as_deref()).map_err(DaemonError::Runtime)?;
        Ok(Self { store, pin, namespace })
    }

    fn start<'a>(
        &'a self,
        options: &'a Options,
        kernel: Kernel,
        stored: Option<Stored>,
        service: &FanOutService,
    ) -> Result<Start<'a>, DaemonError> {
        let clients = Clients::of(&options.state_dir, &kernel).map_err(DaemonError::Runtime)?;
        Ok(Start {
            kernel,
            audit: Arc::new(Audit::of(&self.store)?),
            store: self.store.clone(),
            state_dir: &options.state_dir,
            pin: &self.pin,
            namespace: &self.namespace,
            stored,
            service: service.clone(),
            gtpu: Arc::new(Sessions::of(&self.store)?),
            frr: Arc::new(Frr::of(&options.state_dir, options.frr_pathspace.clone())),
            dhcp: Arc::new(clients),
        })
    }
}

impl Daemon {
    /// Runs until SIGTERM or SIGINT. What it set up stays: programs, sessions, addresses, routes, guard.
    pub fn run(options: Options) -> Result<(), DaemonError> {
        sluice_dataplane::map_large_pieces();
        let claimed = Claimed::claim(&options)?;
        let memory = claimed.store.load()?;
        let notify = Notify::from_environment();
        let service = FanOutService::new(options.names.clone());
        let runtime = crate::runtime().map_err(DaemonError::Runtime)?;
        let tcp = match options.listen {
            None => None,
            Some(address) => Some(runtime.block_on(http::bind_tcp(address)).map_err(listen_error(address))?),
        };
        let socket = claimed.store.socket();
        let kernel = Kernel::connect(runtime.handle())?;
        let start = claimed.start(&options, kernel, memory.stored.clone(), &service)?;
        let (shared, engine) = start_with_devices(&start, &options, &memory, &notify)?;
        watch::start(runtime.handle(), shared.clone(), engine.clone())?;
        ruleset::start(shared.clone(), engine.clone())?;
        shared.dataplane.start_sweeping()?;
        upkeep::start(shared.clone()).map_err(DaemonError::Runtime)?;
        tunnels::start(shared.clone()).map_err(DaemonError::Runtime)?;
        schedules::start(shared.clone(), engine.clone()).map_err(DaemonError::Runtime)?;
        confirm::start(shared.clone(), engine.clone(), service.clone()).map_err(DaemonError::Runtime)?;
        log::start(shared.clone()).map_err(DaemonError::Runtime)?;
        syslog::start(shared.clone()).map_err(DaemonError::Runtime)?;
        frr::start(shared.clone(), engine.clone()).map_err(DaemonError::Runtime)?;
        drops::start(shared.clone()).map_err(DaemonError::Runtime)?;
        dhcp::start(shared.clone()).map_err(DaemonError::Runtime)?;
        oversize::start(shared.clone()).map_err(DaemonError::Runtime)?;
        dhcp_server::start(&shared, &options.state_dir).map_err(DaemonError::Runtime)?;
        router_advertisement::start(shared.clone()).map_err(DaemonError::Runtime)?;
        fan_out::serve_metrics(&shared, &service).map_err(DaemonError::Metrics)?;
        let in_force = engine.lock().unwrap_or_else(PoisonError::into_inner).in_force();
        let reloads = Reloads {
            options: options.clone(),
            shared: shared.clone(),
            engine: engine.clone(),
            service,
            notify: notify.clone(),
        };
        fan_out::start(shared.clone(), reloads.service.clone(), in_force, reloads.clone())
            .map_err(DaemonError::Runtime)?;

        let gateway =
            Gateway { shared: shared.clone(), engine: engine.clone(), fan_out: reloads.service.clone() };
        let app = App { gateway, pools: Pools::default(), names: options.listen_names.into() };
        let context = runtime.enter();
        // before anybody can see that it runs, and ends it for that
        let heard = heard().map_err(DaemonError::Runtime)?;
        runtime.spawn(app.pools.clone().end_idle());
        let unix = http::bind_unix(&socket).map_err(listen_error(socket.display()))?;
        runtime.spawn(http::serve_unix(unix, app.clone()));
        if let Some(tcp) = tcp {
            runtime.spawn(http::serve_tcp(tcp, app));
        }
        drop(context);
        tracing::info!(pid = std::process::id(), socket = %socket.display(), "ready");
        notify.say("READY=1\nSTATUS=forwarding");
        runtime.block_on(signals(heard, &reloads));
        notify.say("STOPPING=1");

        // A commit that is under way ends first.
        let _engine = engine.lock().unwrap_or_else(PoisonError::into_inner);
        reloads.service.end();
        // A socket file that remains shows clients that no daemon listens.
        let _ = std::fs::remove_file(&socket);
        tracing::info!("ended; the data plane keeps forwarding (`sluice cleanup` removes it)");
        runtime.shutdown_background();
        Ok(())
    }
}

/// What [`restore`] has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restored {
    /// No commit waits to be confirmed.
    Nothing,
    /// One does, and has this much time left.
    Waiting(Duration),
    /// Its time was over: the configuration before it is in force.
    Back,
}

/// What a daemon does when a commit was not confirmed in time, where none is there to do it.
pub fn restore(options: &Options) -> Result<Restored, DaemonError> {
    let claimed = Claimed::claim(options)?;
    let memory = claimed.store.load()?;
    let Some(stored) = memory.stored else { return Ok(Restored::Nothing) };
    let Some(confirm) = &stored.confirm else { return Ok(Restored::Nothing) };
    if !confirm.deadline.has_passed() {
        return Ok(Restored::Waiting(confirm.deadline.left()));
    }
    let Some(back) = stored.unconfirmed(&claimed.store.archive()) else {
        return Err(DaemonError::NothingEarlier { dir: options.state_dir.clone() });
    };
    let runtime = crate::runtime().map_err(DaemonError::Runtime)?;
    let service = FanOutService::new(options.names.clone());
    let known = config::known(Some(&stored));
    let start = claimed.start(options, Kernel::connect(runtime.handle())?, Some(stored), &service)?;
    start.first_that_works(vec![Ok(Source::unconfirmed(back))], (false, &known), vec![])?;
    Ok(Restored::Back)
}

fn listen_error(place: impl ToString) -> impl FnOnce(io::Error) -> DaemonError {
    let place = place.to_string();
    move |source| DaemonError::Listen { place, source }
}

/// Begins as often as it takes for every interface to be there, if the options say so. Those of the last commit are given some
/// time, or none without the option: one that is broken must not keep the others from forwarding for good.
fn start_with_devices(
    start: &Start<'_>,
    options: &Options,
    memory: &Memory,
    notify: &Notify,
) -> Result<Started, DaemonError> {
    let known = config::known(memory.stored.as_ref());
    let mut may_be_away = Known::new();
    loop {
        let mut notes: Vec<String> = memory.damage.iter().cloned().collect();
        let sources = sources::of(options, memory, &start.store.archive(), &mut notes);
        let read = sources.iter().flatten();
        let texts: Vec<(String, String)> = read.map(|s| (s.text.clone(), s.file.clone())).collect();
        let error = match start.first_that_works(sources, (options.wait, &may_be_away), notes) {
            Err(error) => error,
            started => return started,
        };
        let Some(missing) = error.missing_interface() else { return Err(error) };
        let is_known = known.contains(missing);
        let has_come = match options.wait {
            true => boot::wait_for(missing, is_known.then_some(boot::LATE), &texts, &start.kernel, notify)?,
            false if is_known && may_be_away.is_empty() => false,
            false => return Err(error),
        };
        if !has_come {
            may_be_away.clone_from(&known);
        }
    }
}

/// How old the last sign of life of the thread that reads events may be.
const ALIVE: Duration = Duration::from_secs(15);

/// SIGTERM, SIGINT and SIGHUP, which from here on do not end the process by themselves.
fn heard() -> io::Result<[Signal; 3]> {
    let [t, i, h] = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()].map(signal);
    Ok([t?, i?, h?])
}

/// Returns when the daemon is to end.
async fn signals([mut terminate, mut interrupt, mut hangup]: [Signal; 3], reloads: &Reloads) {
    let period = reloads.notify.watchdog.map_or(Duration::MAX, |longest| longest / 3);
    let mut watchdog = tokio::time::interval(period.min(Duration::from_secs(3600)));
    loop {
        tokio::select! {
            _ = watchdog.tick(), if reloads.notify.watchdog.is_some() => {
                if reloads.shared.log.is_read_since(ALIVE) {
                    reloads.notify.say("WATCHDOG=1");
                }
            }
            _ = terminate.recv() => return,
            _ = interrupt.recv() => return,
            _ = hangup.recv() => reloads.begin(),
        }
    }
}

/// Commits of the file that the daemon was started with, and of what is in force once more.
#[derive(Clone)]
struct Reloads {
    options: Options,
    shared: Arc<Shared>,
    engine: Arc<Mutex<Engine>>,
    service: FanOutService,
    notify: Notify,
}

impl Reloads {
    /// SIGHUP: commits the file anew, beside everything else.
    fn begin(&self) {
        let Some(path) = self.options.config.clone() else {
            return tracing::warn!("SIGHUP ignored: the daemon was started without --config");
        };
        // one that already waits for the lock will read what the file holds by then
        static WAITING: AtomicBool = AtomicBool::new(false);
        if WAITING.swap(true, Ordering::AcqRel) {
            return;
        }
        let own = self.clone();
        std::thread::spawn(move || {
            let guard = one_at_a_time();
            WAITING.store(false, Ordering::Release);
            own.notify.say("RELOADING=1");
            if let Err(error) = own.file(&path, &guard) {
                tracing::error!(%error, "SIGHUP: nothing changed");
            }
            own.notify.say("READY=1");
        });
    }

    /// Reads the file and commits it. The engine is free meanwhile: a translation may have to wait for names.
    fn file(&self, path: &Path, _guard: &MutexGuard<()>) -> Result<bool, DaemonError> {
        let source = sources::read(path, &self.options)?;
        self.service.learn(&source.text, &source.file);
        let mut engine = self.engine.lock().unwrap_or_else(PoisonError::into_inner);
        // its result is logged by the engine
        let done = engine.commit(source, &self.shared).is_ok();
        if let Some(translate) = self.options.translate.as_ref().filter(|_| done) {
            translate.in_force();
        }
        Ok(done)
    }

    /// Names mean something else: what is in force is committed once more. What a file was translated to may depend on
    /// them, too.
    fn again(&self) -> bool {
        tracing::info!("receivers are others, or elsewhere");
        if let (Some(path), Some(_)) = (&self.options.config, &self.options.translate) {
            let guard = one_at_a_time();
            match self.file(path, &guard) {
                Ok(done) => return done,
                Err(error) => tracing::warn!(%error, "the file cannot be read; what it said before holds"),
            }
        }
        self.engine.lock().unwrap_or_else(PoisonError::into_inner).recommit(&self.shared).is_ok()
    }
}

impl fan_out::Again for Reloads {
    fn is_behind(&self) -> bool {
        self.options.translate.as_ref().is_some_and(|translate| translate.is_behind())
    }

    fn commit(&self) -> bool {
        self.again()
    }
}

/// Files are committed in the order in which they were read.
fn one_at_a_time() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes what a daemon left: programs, pins, sessions, guard, and the addresses, routes and devices it added.
/// What was committed goes, too, unless it is to be kept for another start.
pub fn cleanup(state_dir: &Path, bpffs: Option<&Path>, keep_commits: bool) -> Result<(), DaemonError> {
    preflight::check()?;
    let store = Store::lock(state_dir)?;
    let pin = store.pin_dir(&pins::bpffs(state_dir, bpffs)?)?;
    let namespace = Namespace::lock()?;
    namespace.check(&pin, state_dir)?;
    let runtime = crate::runtime().map_err(DaemonError::Runtime)?;
    let kernel = Kernel::connect(runtime.handle())?;
    // Before programs and guard go: the kernel must not begin to forward by itself.
    let stored = store.load()?.stored;
    if let Some(stored) = &stored {
        let config = config::parse(&stored.text, &stored.file)?;
        crate::functions::router_advertisement::end(&kernel, &config);
        forwarding::forwarded(&config).iter().try_for_each(|device| kernel::stop_forwarding(device))?;
    }
    crate::functions::dhcp_server::end(state_dir, keep_commits, &kernel);
    sluice_dataplane::cleanup(&pin)?;
    let mut wants = KernelWants::default();
    let mut errors = clients::cleanup(state_dir, &kernel);
    errors.extend(changes::remove_leftovers(&kernel, &wants));
    let before = stored.unwrap_or_default();
    mtus::restore(&mut wants, &kernel.links()?, &before.mtus_before);
    for error in tags::put_back(&kernel, &before.tags_before) {
        tracing::warn!("{error}");
    }
    let mut changes = Changes::new(&kernel);
    changes.apply(&wants)?;
    changes.keep();
    guard::remove()?;
    pins::forget(state_dir).map_err(DaemonError::Runtime)?;
    if !keep_commits {
        store.clear()?;
        clients::forget(state_dir).map_err(DaemonError::Runtime)?;
    }
    errors.into_iter().next().map_or(Ok(()), |error| Err(error.into()))
}
