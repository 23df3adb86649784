//! How a daemon starts: with the configuration it is given, else with the last one that worked.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use sluice_dataplane::Dataplane;

use crate::commit::{self, Beside, Engine, Shared, Source};
use crate::daemon::owner::{Namespace, OwnerError};
use crate::functions::dhcp::clients::Clients;
use crate::functions::fan_out::service::FanOutService;
use crate::functions::fan_out::{self, positions::InForce};
use crate::functions::frr::Frr;
use crate::functions::gate::audit::Audit;
use crate::functions::gtpu::sessions::Sessions;
use crate::functions::{CommitError, Tools};
use crate::kernel::bpffs::BpffsError;
use crate::kernel::devices::Latest;
use crate::kernel::environment::{self, Known};
use crate::kernel::preflight::PreflightError;
use crate::kernel::{Kernel, KernelError, guard};
use crate::state::config::{self, CheckError};
use crate::state::draft::Drafts;
use crate::state::store::{Store, StoreError, Stored};

/// Why a daemon does not run.
#[allow(missing_docs, reason = "its variants and their fields are what their messages name")]
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    #[error(transparent)]
    Preflight(#[from] PreflightError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Bpffs(#[from] BpffsError),
    #[error(transparent)]
    Owner(#[from] OwnerError),
    #[error("cannot read {}: {source}; check the path", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("nothing was committed in {} yet; give a configuration with --config FILE", dir.display())]
    NoConfiguration { dir: PathBuf },
    #[error("no commit in {} can be gone back to; commit another configuration", dir.display())]
    NothingEarlier { dir: PathBuf },
    #[error(transparent)]
    Commit(#[from] CommitError),
    #[error("cannot listen on {place}: {source}; choose another place with --listen, or none")]
    Listen { place: String, source: io::Error },
    #[error("cannot serve {0}")]
    Metrics(io::Error),
    #[error("{0}")]
    Translate(String),
    #[error("cannot start threads: {0}; check the limits of the process")]
    Runtime(io::Error),
}

impl From<KernelError> for DaemonError {
    fn from(error: KernelError) -> Self {
        Self::Commit(error.into())
    }
}

impl From<CheckError> for DaemonError {
    fn from(error: CheckError) -> Self {
        Self::Commit(error.into())
    }
}

impl From<sluice_dataplane::Error> for DaemonError {
    fn from(error: sluice_dataplane::Error) -> Self {
        Self::Commit(error.into())
    }
}

impl DaemonError {
    /// The interface that is configured and not there, if that is why.
    pub fn missing_interface(&self) -> Option<&str> {
        match self {
            Self::Commit(error) => error.missing_interface(),
            _ => None,
        }
    }

    /// The command line or the configuration is at fault, not the machine.
    pub fn is_bad_input(&self) -> bool {
        match self {
            Self::Read { .. } | Self::NoConfiguration { .. } => true,
            Self::Translate(_) | Self::Metrics(_) => true,
            Self::Commit(error) => error.is_bad_input(),
            _ => false,
        }
    }
}

pub type Started = (Arc<Shared>, Arc<Mutex<Engine>>);

/// Everything but the configuration.
pub struct Start<'a> {
    pub kernel: Kernel,
    pub store: Arc<Store>,
    pub state_dir: &'a Path,
    pub pin: &'a Path,
    pub namespace: &'a Namespace,
    pub stored: Option<Stored>,
    pub audit: Arc<Audit>,
    pub service: FanOutService,
    pub gtpu: Arc<Sessions>,
    pub frr: Arc<Frr>,
    pub dhcp: Arc<Clients>,
}

impl Start<'_> {
    /// Tries one after the other; when none works, the first one's error counts. With `waits` one that only lacks an interface
    /// is not given up for an earlier one; those of `known` need not be there. `notes` are the operator's to know.
    pub fn first_that_works(
        &self,
        sources: Vec<Result<Source, DaemonError>>,
        (waits, known): (bool, &Known),
        mut notes: Vec<String>,
    ) -> Result<Started, DaemonError> {
        let mut first: Option<DaemonError> = None;
        for source in sources {
            let tried = source.and_then(|source| {
                let file = source.file.clone();
                self.attempt(source, known).map(|started| (file, started))
            });
            match (tried, first.is_some()) {
                (Ok((file, started)), _) => {
                    notes.extend(first.map(|error| {
                        format!("the configuration cannot be used; the last one that worked, {file}, is in force: {error}")
                    }));
                    notes.iter().for_each(|note| tracing::error!("{note}"));
                    started.0.commits.set_notes(notes);
                    return Ok(started);
                }
                (Err(error), false) if waits && error.missing_interface().is_some() => return Err(error),
                (Err(error), false) => first = Some(error),
                (Err(error), true) => {
                    tracing::error!(%error, "an earlier configuration does not work either")
                }
            }
        }
        Err(first.unwrap_or_else(|| DaemonError::NoConfiguration { dir: self.state_dir.to_owned() }))
    }

    fn attempt(&self, source: Source, known: &Known) -> Result<Started, DaemonError> {
        self.service.learn(&source.text, &source.file);
        let sizes = self.rehearse(&source, known)?;
        let found = Found { pins: self.pin.exists(), guard: guard::is_installed() };
        let opened = Dataplane::open(self.pin, sizes).map_err(DaemonError::from);
        let started = opened.and_then(|dataplane| {
            self.namespace.claim(self.pin, self.state_dir)?;
            self.activate(Arc::new(dataplane), source)
        });
        started.inspect_err(|_| found.undo_start(self.pin))
    }

    /// Everything that can be refused, before the data plane is opened.
    fn rehearse(&self, source: &Source, known: &Known) -> Result<sluice_dataplane::Sizes, DaemonError> {
        let config = config::parse(&source.text, &source.file)?;
        let Stored { generation, mut ids, mtus_before, .. } = self.stored.clone().unwrap_or_default();
        let environment =
            environment::read(&self.kernel, &self.kernel.links()?, (&config, known), &mtus_before)?;
        if let Some(address) = fan_out::possible(&config, &environment).metrics {
            match sluice_fanout::metrics::listen(address) {
                // the start itself may give it
                Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {}
                listener => drop(listener.map_err(DaemonError::Metrics)?),
            }
        }
        config::plan(&config, &source.file, &environment, &mut ids, generation + 1)?;
        Ok(config::sizes(&config))
    }

    fn activate(&self, dataplane: Arc<Dataplane>, source: Source) -> Result<Started, DaemonError> {
        let (kernel, audit) = (self.kernel.clone(), self.audit.clone());
        let tools = Tools {
            kernel: kernel.clone(),
            store: self.store.clone(),
            dataplane: dataplane.clone(),
            in_force: InForce::default(),
            devices_latest: Latest::default(),
            audit: audit.clone(),
            fan_out: self.service.clone(),
            gtpu: self.gtpu.clone(),
            frr: self.frr.clone(),
            dhcp: self.dhcp.clone(),
        };
        let mut engine = Engine::new(tools, self.stored.clone());
        let (active, done) = engine.activate(source, None, &mut |_| ())?;
        commit::tell(&active, None, &done);
        let (drafts, damage) = Drafts::load(self.state_dir);
        if let Some(damage) = damage {
            tracing::error!("{damage}");
        }
        let beside =
            Beside { audit, gtpu: self.gtpu.clone(), frr: self.frr.clone(), dhcp: self.dhcp.clone() };
        let shared = Arc::new(Shared::new(dataplane, kernel, active, drafts, beside));
        shared.commits.set_confirm(engine.stored().and_then(|stored| stored.confirm.clone()));
        Ok((shared, Arc::new(Mutex::new(engine))))
    }
}

/// What was there before this start.
struct Found {
    pins: bool,
    guard: bool,
}

impl Found {
    /// A first start that failed leaves nothing; one that found an earlier daemon's data plane leaves that running, and a
    /// guard that stood before (a boot unit's, say) stays.
    fn undo_start(&self, pin: &Path) {
        if !self.pins
            && let Err(error) = sluice_dataplane::cleanup(pin)
        {
            tracing::error!(%error, "pins of the failed start remain; run `sluice cleanup`");
        }
        if !self.guard
            && let Err(error) = guard::remove()
        {
            tracing::error!(%error, "the guard of the failed start remains; run `sluice cleanup`");
        }
    }
}
