//! The daemon: starts fail-closed, serves until it is told to end, and leaves the data plane running.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sluice_fanout::Names;
use sluice_plan::KernelWants;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::bpffs;
use crate::changes::{self, Changes};
use crate::commit::{Engine, Source};
use crate::config;
use crate::connections::Pools;
use crate::fan_out::FanOutService;
use crate::http::{self, App};
use crate::kernel::{self, Kernel, guard};
use crate::operations::Gateway;
use crate::owner::Namespace;
use crate::preflight;
use crate::shared::Shared;
use crate::start::{DaemonError, Start};
use crate::store::{Memory, Store, Stored};
use crate::{fan_out, log, mtus, oversize, ruleset, schedules, tags, tunnels, upkeep, watch};

/// Files that hold something else than statements.
pub trait Translate: Send + Sync {
    /// Makes statements of a file; told its text and name.
    fn statements(&self, text: &str, file: &str) -> Result<String, String>;

    /// What was read last is in force.
    fn in_force(&self) {}

    /// The same file would be other statements by now: the machine has changed.
    fn is_behind(&self) -> bool {
        false
    }
}

#[derive(Clone)]
pub struct Options {
    /// Configuration to start with; None = the last one committed here.
    pub config: Option<PathBuf>,
    pub state_dir: PathBuf,
    /// Where pins stand; None = where one is found.
    pub bpffs: Option<PathBuf>,
    pub translate: Option<Arc<dyn Translate>>,
    /// What receivers by name mean.
    pub names: Names,
    /// Where the questions are answered over TCP.
    pub listen: Option<SocketAddr>,
    /// What this host is called there, besides its address, localhost and its host-name.
    pub listen_names: Vec<String>,
}

pub struct Daemon;

impl Daemon {
    /// Runs until SIGTERM or SIGINT. What it set up stays: programs, sessions, addresses, routes, guard.
    pub fn run(options: Options) -> Result<(), DaemonError> {
        preflight::privileged()?;
        preflight::machine()?;
        let store = Store::lock(&options.state_dir)?;
        let pin = store.pin_dir(&bpffs::find(options.bpffs.as_deref())?)?;
        let namespace = Namespace::lock()?;
        namespace.check(&pin, &options.state_dir)?;
        let memory = store.load()?;
        let service = FanOutService::new(options.names.clone());
        let runtime = crate::runtime().map_err(DaemonError::Runtime)?;
        let tcp = match options.listen {
            None => None,
            Some(address) => Some(runtime.block_on(http::bind_tcp(address)).map_err(listen_error(address))?),
        };
        let socket = store.socket();
        let sources = sources(&options, &memory);
        let start = Start {
            kernel: Kernel::connect(runtime.handle())?,
            audit: Arc::new(store.audit()?),
            store: Arc::new(store),
            state_dir: &options.state_dir,
            pin: &pin,
            namespace: &namespace,
            stored: memory.stored,
            service: service.clone(),
        };
        let (shared, engine) = start.first_that_works(sources, memory.damage.into_iter().collect())?;
        watch::start(runtime.handle(), shared.clone(), engine.clone())?;
        ruleset::start(shared.clone(), engine.clone())?;
        shared.dataplane.start_sweeping()?;
        upkeep::start(shared.clone()).map_err(DaemonError::Runtime)?;
        tunnels::start(shared.clone()).map_err(DaemonError::Runtime)?;
        schedules::start(shared.clone(), engine.clone()).map_err(DaemonError::Runtime)?;
        log::start(shared.clone()).map_err(DaemonError::Runtime)?;
        oversize::start(shared.clone()).map_err(DaemonError::Runtime)?;
        fan_out::serve_metrics(&shared, &service).map_err(DaemonError::Metrics)?;
        let in_force = engine.lock().unwrap_or_else(PoisonError::into_inner).in_force();
        let reloads =
            Reloads { options: options.clone(), shared: shared.clone(), engine: engine.clone(), service };
        fan_out::start(shared.clone(), reloads.service.clone(), in_force, reloads.clone())
            .map_err(DaemonError::Runtime)?;

        let gateway =
            Gateway { shared: shared.clone(), engine: engine.clone(), fan_out: reloads.service.clone() };
        let app = App { gateway, pools: Pools::default(), names: options.listen_names.into() };
        let context = runtime.enter();
        runtime.spawn(app.pools.clone().end_idle());
        let unix = http::bind_unix(&socket).map_err(listen_error(socket.display()))?;
        runtime.spawn(http::serve_unix(unix, app.clone()));
        if let Some(tcp) = tcp {
            runtime.spawn(http::serve_tcp(tcp, app));
        }
        drop(context);
        tracing::info!(pid = std::process::id(), socket = %socket.display(), "ready");
        runtime.block_on(signals(&reloads)).map_err(DaemonError::Runtime)?;

        // A commit that is under way ends first.
        let _engine = engine.lock().unwrap_or_else(PoisonError::into_inner);
        // What remains of the socket only says that nobody listens.
        let _ = std::fs::remove_file(&socket);
        tracing::info!("ended; the data plane keeps forwarding (`sluice cleanup` removes it)");
        runtime.shutdown_background();
        Ok(())
    }
}

fn listen_error(place: impl ToString) -> impl FnOnce(io::Error) -> DaemonError {
    let place = place.to_string();
    move |source| DaemonError::Listen { place, source }
}

/// What to start with: the named file; behind it, and without one, the last commit and the one before. Files of another
/// language are what an operator has just written, and are put right.
fn sources(options: &Options, memory: &Memory) -> Vec<Result<Source, DaemonError>> {
    let named = options.config.as_ref().map(|path| read(path, options));
    let again = |stored: &Stored| Ok(Source { text: stored.text.clone(), file: stored.file.clone() });
    let committed = memory.stored.iter().chain(&memory.before).map(again);
    match named {
        Some(named) if options.translate.is_some() => vec![named],
        named => named.into_iter().chain(committed).collect(),
    }
}

fn read(path: &Path, options: &Options) -> Result<Source, DaemonError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| DaemonError::Read { path: path.to_owned(), source })?;
    let file = path.display().to_string();
    let text = match &options.translate {
        Some(translate) => translate.statements(&text, &file).map_err(DaemonError::Translate)?,
        None => text,
    };
    Ok(Source { text, file })
}

async fn signals(reloads: &Reloads) -> io::Result<()> {
    let wanted = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()];
    let [mut terminate, mut interrupt, mut hangup]: [Signal; 3] = {
        let [t, i, h] = wanted.map(signal);
        [t?, i?, h?]
    };
    loop {
        tokio::select! {
            _ = terminate.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
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
}

impl Reloads {
    /// SIGHUP: commits the file anew, beside everything else.
    fn begin(&self) {
        let Some(path) = self.options.config.clone() else {
            return tracing::warn!("SIGHUP ignored: the daemon was started without --config");
        };
        // one that waits for its turn will read what the file holds by then
        static WAITING: AtomicBool = AtomicBool::new(false);
        if WAITING.swap(true, Ordering::AcqRel) {
            return;
        }
        let own = self.clone();
        std::thread::spawn(move || {
            let turn = one_at_a_time();
            WAITING.store(false, Ordering::Release);
            if let Err(error) = own.file(&path, &turn) {
                tracing::error!(%error, "SIGHUP: nothing changed");
            }
        });
    }

    /// Reads the file and commits it. The engine is free meanwhile: a translation may have to wait for names.
    fn file(&self, path: &Path, _turn: &MutexGuard<()>) -> Result<bool, DaemonError> {
        let source = read(path, &self.options)?;
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
            let turn = one_at_a_time();
            match self.file(path, &turn) {
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
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes what a daemon left: programs, pins, sessions, guard, and the addresses, routes and devices it added.
pub fn cleanup(state_dir: &Path, bpffs: Option<&Path>) -> Result<(), DaemonError> {
    preflight::check()?;
    let store = Store::lock(state_dir)?;
    let pin = store.pin_dir(&bpffs::find(bpffs)?)?;
    let namespace = Namespace::lock()?;
    namespace.check(&pin, state_dir)?;
    let runtime = crate::runtime().map_err(DaemonError::Runtime)?;
    let kernel = Kernel::connect(runtime.handle())?;
    // Before programs and guard go: the kernel must not begin to forward by itself.
    let stored = store.load()?.stored;
    if let Some(stored) = &stored {
        let config = config::parse(&stored.text, &stored.file)?;
        let units =
            config.interfaces.iter().flat_map(|i| i.units.iter().map(move |u| sluice_plan::device_of(i, u)));
        units.into_iter().try_for_each(|device| kernel::stop_forwarding(&device))?;
    }
    sluice_dataplane::cleanup(&pin)?;
    let mut wants = KernelWants::default();
    let errors = changes::remove_leftovers(&kernel, &wants);
    let before = stored.unwrap_or_default();
    mtus::restore(&mut wants, &kernel.links()?, &before.mtus_before);
    for error in tags::put_back(&before.tags_before, &[]) {
        tracing::warn!("{error}");
    }
    let mut changes = Changes::new(&kernel);
    changes.apply(&wants)?;
    changes.keep();
    guard::remove()?;
    store.clear()?;
    errors.into_iter().next().map_or(Ok(()), |error| Err(error.into()))
}
