//! IPsec policies that come while the gateway runs are told of in the log, as a commit tells of those that are there.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use sluice_plan::{Environment, passed_by_ipsec};

use crate::commit::Shared;
use crate::kernel::notices::Notices;
use crate::kernel::{KernelError, environment};

/// Whoever sets up tunnels adds several policies.
const PAUSE: Duration = Duration::from_millis(100);

/// Subscribes before it returns. Nothing to do where the kernel has no IPsec.
pub fn start(shared: Arc<Shared>) -> std::io::Result<()> {
    let notices = match Notices::of_ipsec() {
        Err(error) if error.raw_os_error() == Some(libc::EPROTONOSUPPORT) => return Ok(()),
        other => other?,
    };
    // a commit has told of those that it saw
    let mut told: Option<BTreeSet<String>> = None;
    let look = move || {
        match texts(&shared) {
            Ok(now) => {
                if let Some(told) = &told {
                    now.difference(told).for_each(|text| tracing::warn!("{text}"));
                }
                told = Some(now);
            }
            Err(error) => {
                tracing::error!(%error, "the policies of IPsec are not looked at");
                told.get_or_insert_default();
            }
        }
        true
    };
    notices.watch("ipsec", PAUSE, look)
}

fn texts(shared: &Shared) -> Result<BTreeSet<String>, KernelError> {
    let tunnels = environment::tunnels(&shared.kernel.addresses()?);
    let warnings = passed_by_ipsec(&Environment { tunnels, ..Environment::default() });
    Ok(warnings.into_iter().map(|warning| warning.text).collect())
}
