//! From text to plan, without touching anything.

use sluice_dataplane::Sizes;
use sluice_language::{Config, Errors};
use sluice_plan::{Environment, Ids, Plan, PlanError};

use crate::environment;
use crate::kernel::{Kernel, KernelError};
use crate::mtus::Mtus;
use crate::schedules;

/// Why a configuration cannot be used here.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    #[error("{0}")]
    Language(Errors),
    #[error("{file}: {source}")]
    Plan { file: String, source: PlanError },
    #[error(transparent)]
    Kernel(#[from] KernelError),
}

/// Text with every name resolved, and policies active or not as schedulers have it now; errors carry file:line:col.
pub fn parse(text: &str, file: &str) -> Result<Config, CheckError> {
    let tree = sluice_language::parse(text, file).map_err(CheckError::Language)?;
    let mut config = sluice_language::compile(&tree).map_err(CheckError::Language)?;
    config.set_time(schedules::local_seconds());
    Ok(config)
}

pub(crate) fn plan(
    config: &Config,
    file: &str,
    environment: &Environment,
    ids: &mut Ids,
    generation: u32,
) -> Result<Plan, CheckError> {
    sluice_plan::compile(config, environment, ids, generation)
        .map_err(|source| CheckError::Plan { file: file.to_owned(), source })
}

/// `sluice check`: the plan a first commit would make, against this machine's devices or imagined ones.
pub fn check(text: &str, file: &str, look_at_interfaces: bool) -> Result<Plan, CheckError> {
    let config = parse(text, file)?;
    let environment = match look_at_interfaces {
        false => environment::imagined(&config),
        true => {
            let runtime = crate::runtime().map_err(|e| KernelError {
                action: "start a runtime".to_owned(),
                reason: e.to_string(),
                advice: "check the limits of threads and open files",
            })?;
            environment::read(&Kernel::connect(runtime.handle())?.links()?, &config, &Mtus::default())
        }
    };
    plan(&config, file, &environment, &mut Ids::default(), 1)
}

/// Sizes of the flow tables.
pub fn sizes(config: &Config) -> Sizes {
    let default = Sizes::default();
    Sizes {
        sessions4: config.flow.max_sessions.unwrap_or(default.sessions4),
        sessions6: config.flow.max_sessions_v6.unwrap_or(default.sessions6),
        kernel_index: default.kernel_index,
    }
}
