//! From text to plan, without touching anything.

use sluice_dataplane::{EarlyAgeout, Sizes, Timeouts};
use sluice_language::{Config, Errors};
use sluice_plan::{Environment, Ids, Plan, PlanError};

use crate::kernel::KernelError;
use crate::kernel::environment::{self, Known};
use crate::kernel::mtus::Mtus;
use crate::state::store::Stored;

/// Why a configuration cannot be used here.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "its variants and their fields are what their messages name")]
pub enum CheckError {
    #[error("{0}")]
    Language(Errors),
    #[error(
        "{file} holds no statement: nothing would pass, and nobody would reach this host; one that is \
         meant takes `sluice commit --allow-empty`"
    )]
    Empty { file: String },
    #[error("{file}: {source}")]
    Plan { file: String, source: PlanError },
    #[error(transparent)]
    Kernel(#[from] KernelError),
}

/// Text with every name resolved, and policies active or not as schedulers have it now; errors carry file:line:col.
pub fn parse(text: &str, file: &str) -> Result<Config, CheckError> {
    let tree = sluice_language::parse(text, file).map_err(CheckError::Language)?;
    let mut config = sluice_language::compile(&tree).map_err(CheckError::Language)?;
    config.set_time(local_seconds());
    Ok(config)
}

/// Refuses a text without a statement, such as a file that was cut off.
pub fn refuse_empty(text: &str, file: &str) -> Result<(), CheckError> {
    match sluice_language::parse(text, file) {
        Ok(tree) if tree.is_empty() => Err(CheckError::Empty { file: file.to_owned() }),
        // what is wrong with it is said where it is compiled
        _ => Ok(()),
    }
}

/// Interfaces of the last commit, which may be away by now.
pub(crate) fn known(stored: Option<&Stored>) -> Known {
    let config = stored.and_then(|stored| parse(&stored.text, &stored.file).ok());
    config.as_ref().map(environment::known).unwrap_or_default()
}

/// The clock on the wall: local seconds since 1970-01-01 00:00.
pub fn local_seconds() -> i64 {
    chrono::Local::now().naive_local().and_utc().timestamp()
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
    refuse_empty(text, file)?;
    let config = parse(text, file)?;
    let environment = match look_at_interfaces {
        false => environment::imagined(&config),
        true => {
            let (_runtime, kernel) = environment::connected()?;
            environment::read(&kernel, &kernel.links()?, (&config, &Known::new()), &Mtus::default())?
        }
    };
    plan(&config, file, &environment, &mut Ids::default(), 1)
}

/// When sessions end.
pub fn timeouts(config: &Config) -> Timeouts {
    let (flow, default) = (&config.flow, Timeouts::default());
    let tcp_closed_s = flow.time_wait_timeout_s.unwrap_or(default.tcp_closed_s);
    Timeouts {
        tcp_initial_s: flow.tcp_initial_timeout_s.unwrap_or(default.tcp_initial_s),
        tcp_closing_s: if flow.time_wait_half_closed { tcp_closed_s } else { default.tcp_closing_s },
        tcp_closed_s,
        udp_s: flow.udp_timeout_s.unwrap_or(default.udp_s),
        icmp_s: flow.icmp_timeout_s.unwrap_or(default.icmp_s),
        other_s: flow.ip_timeout_s.unwrap_or(default.other_s),
        ..default
    }
}

/// `security flow aging`. Watermarks are 100 percent by default, as those of Junos.
pub fn early_ageout(config: &Config) -> Option<EarlyAgeout> {
    let flow = &config.flow;
    flow.early_ageout_s.map(|after_s| EarlyAgeout {
        after_s,
        high_percent: flow.high_watermark.unwrap_or(100),
        low_percent: flow.low_watermark.unwrap_or(100),
    })
}

/// A million IPv4 sessions and a quarter of that of IPv6, unless configured otherwise.
const SESSIONS4: u32 = 1 << 20;
const SESSIONS6: u32 = 1 << 18;

/// Names the index of the flow tables: `kernel` instead of Sluice's own.
const FLOW_INDEX: &str = "SLUICE_FLOW_INDEX";

/// Sizes of the flow tables.
pub fn sizes(config: &Config) -> Sizes {
    let sizes = Sizes {
        sessions4: config.flow.max_sessions.unwrap_or(SESSIONS4),
        sessions6: config.flow.max_sessions_v6.unwrap_or(SESSIONS6),
        kernel_index: std::env::var(FLOW_INDEX).is_ok_and(|index| index == "kernel"),
        grants: config.gate.max_grants.unwrap_or(sluice_abi::GRANTS_DEFAULT),
        bindings: config.nat.source.max_bindings.unwrap_or(sluice_abi::NAT_BINDINGS_DEFAULT),
        extended: !config.gate.zones.is_empty(),
        ..Sizes::default()
    };
    // one in the null zone is counted even without units
    let counted = config.interfaces.iter().map(|interface| interface.units.len().max(1)).sum();
    sizes.with_room(counted, config.zones.len())
}
