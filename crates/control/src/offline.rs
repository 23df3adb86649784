//! Answers without the daemon: what its maps and its last commit say, when it does not answer.

use std::path::Path;
use std::sync::Arc;

use sluice_dataplane::Dataplane;
use sluice_fanout::Names;
use sluice_plan::Plan;

use crate::audit::Audit;
use crate::bpffs::{self, BpffsError};
use crate::devices::Latest;
use crate::error::AskError;
use crate::fan_out::FanOutService;
use crate::functions::CommitError;
use crate::kernel::Kernel;
use crate::operations::{Act, Failure, Operation};
use crate::shared::{Active, Shared};
use crate::store::{self, StoreError, Stored};
use crate::{config, environment};

#[derive(Debug, thiserror::Error)]
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
fn shared(state_dir: &Path, kernel: Kernel) -> Result<Shared, OfflineError> {
    let stored = store::load(state_dir)?.stored.ok_or(OfflineError::Nothing)?;
    let pin = store::pin_dir(state_dir, &bpffs::find(None)?)?;
    let active = active(stored, &kernel)?;
    let dataplane = Dataplane::read(&pin, config::sizes(&active.config)).map_err(AskError::from)?;
    let dataplane = dataplane.ok_or(OfflineError::Other)?;
    // nothing is done here that would be written down
    let audit = Audit::open(Path::new("/dev/null"))?;
    Ok(Shared::new(Arc::new(dataplane), kernel, active, Arc::new(audit)))
}

fn active(stored: Stored, kernel: &Kernel) -> Result<Active, CommitError> {
    let Stored { generation, text, file, mut ids, devices_before, devices_gone, mtus_before, .. } = stored;
    let mut config = config::parse(&text, &file)?;
    let named = config.fan_out.clone();
    FanOutService::new(Names::default()).resolve(&mut config);
    let environment = environment::read(kernel, &kernel.links()?, &config, &mtus_before)?;
    let plan: Plan = config::plan(&config, &file, &environment, &mut ids, generation)?;
    Ok(Active {
        generation,
        text,
        file,
        config,
        named,
        plan,
        rules: None,
        devices_before,
        devices_latest: Latest::default(),
        devices_gone,
    })
}
