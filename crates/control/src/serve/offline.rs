//! Answers without the daemon: what its maps and its last commit say, when it does not answer.

use std::path::Path;
use std::sync::Arc;

use sluice_dataplane::Dataplane;
use sluice_fanout::Names;
use sluice_plan::Plan;

use crate::commit::{Beside, Shared};
use crate::functions::CommitError;
use crate::functions::dhcp::clients::Clients;
use crate::functions::fan_out::service::FanOutService;
use crate::functions::frr::Frr;
use crate::functions::gate::audit::Audit;
use crate::functions::gtpu::sessions::Sessions;
use crate::kernel::bpffs::BpffsError;
use crate::kernel::devices::{Latest, Managed};
use crate::kernel::{Kernel, environment};
use crate::serve::operations::{Act, Failure, Operation};
use crate::state::active::{Active, Former};
use crate::state::config;
use crate::state::draft::Drafts;
use crate::state::error::AskError;
use crate::state::pins;
use crate::state::store::{self, StoreError, Stored};

/// Why a question cannot be answered without a daemon.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "its variants are what their messages name")]
pub enum OfflineError {
    #[error("only the daemon knows that")]
    Daemon,
    #[error("nothing was committed there")]
    Nothing,
    #[error("the data plane is another version's, or is being made")]
    Other,
    #[error(transparent)]
    Bpffs(#[from] BpffsError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Commit(#[from] CommitError),
    #[error(transparent)]
    Ask(#[from] AskError),
    #[error("{0}")]
    Os(#[from] std::io::Error),
    #[error(transparent)]
    Operation(#[from] Failure),
}

/// What the daemon would answer. Nothing is changed by it.
pub fn answer<A, T>(state_dir: &Path, operation: &Operation<A, T>, arguments: &A) -> Result<T, OfflineError> {
    let Act::Read(read) = operation.act else { return Err(OfflineError::Daemon) };
    let runtime = crate::runtime()?;
    let kernel = Kernel::connect(runtime.handle()).map_err(AskError::from)?;
    let shared = shared(state_dir, kernel)?;
    Ok(read(&shared, arguments)?)
}

/// The commit in force, planned once more, and the maps that are there.
pub(super) fn shared(state_dir: &Path, kernel: Kernel) -> Result<Shared, OfflineError> {
    let stored = store::load(state_dir)?.stored.ok_or(OfflineError::Nothing)?;
    let pin = store::pin_dir(state_dir, &pins::bpffs(state_dir, None)?)?;
    let confirm = stored.confirm.clone();
    let active = active(stored, &kernel)?;
    let dataplane = Dataplane::read(&pin, config::sizes(&active.config)).map_err(AskError::from)?;
    let dataplane = dataplane.ok_or(OfflineError::Other)?;
    // nothing is done here that would be written down
    let audit = Audit::open(Path::new("/dev/null"))?;
    let (drafts, _) = Drafts::load(state_dir);
    let gtpu = Arc::new(Sessions::look(state_dir, &active.config, &active.plan)?);
    let frr = Arc::new(Frr::of(state_dir, None));
    let dhcp = Arc::new(Clients::look(state_dir)?);
    let beside = Beside { audit: Arc::new(audit), gtpu, frr, dhcp };
    let shared = Shared::new(Arc::new(dataplane), kernel, active, drafts, beside);
    shared.commits.set_confirm(confirm);
    Ok(shared)
}

/// The commit in force, when it is written down.
pub(super) fn committed(state_dir: &Path, kernel: &Kernel) -> Result<Active, OfflineError> {
    let stored = store::load(state_dir)?.stored.ok_or(OfflineError::Nothing)?;
    Ok(active(stored, kernel)?)
}

fn active(stored: Stored, kernel: &Kernel) -> Result<Active, CommitError> {
    let Stored { generation, text, file, commit, mut ids, devices_before, devices_gone, mtus_before, .. } =
        stored;
    let mut config = config::parse(&text, &file)?;
    let named = config.fan_out.clone();
    FanOutService::new(Names::default()).resolve(&mut config);
    let known = environment::known(&config);
    let environment = environment::read(kernel, &kernel.links()?, (&config, &known), &mtus_before)?;
    let plan: Plan = config::plan(&config, &file, &environment, &mut ids, generation)?;
    Ok(Active {
        generation,
        text,
        file,
        commit,
        config,
        named,
        plan,
        rules: None,
        devices: Managed { before: devices_before, latest: Latest::default(), gone: devices_gone },
        former: Former::default(),
    })
}
