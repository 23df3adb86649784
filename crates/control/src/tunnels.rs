//! IPsec policies that come while the gateway runs are told of in the log, as a commit tells of those that are there.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use sluice_plan::{Environment, passed_by_ipsec};

use crate::environment;
use crate::kernel::KernelError;
use crate::kernel::notices::Notices;
use crate::shared::Shared;

/// Whoever sets up tunnels adds several policies.
const PAUSE: Duration = Duration::from_millis(100);

/// Subscribes before it returns. Nothing to do where the kernel has no IPsec.
pub fn start(shared: Arc<Shared>) -> std::io::Result<()> {
    let notices = match Notices::of_ipsec() {
        Err(error) if error.raw_os_error() == Some(libc::EPROTONOSUPPORT) => return Ok(()),
        other => other?,
    };
    let watch = move || {
        // those that were there when the commit looked have been told of
        let mut told = texts(&shared).unwrap_or_default();
        while notices.wait().is_ok() {
            thread::sleep(PAUSE);
            match texts(&shared) {
                Ok(now) => {
                    now.difference(&told).for_each(|text| tracing::warn!("{text}"));
                    told = now;
                }
                Err(error) => tracing::error!(%error, "the policies of IPsec are not looked at"),
            }
        }
    };
    thread::Builder::new().name("ipsec".to_owned()).spawn(watch).map(drop)
}

fn texts(shared: &Shared) -> Result<BTreeSet<String>, KernelError> {
    let tunnels = environment::tunnels(&shared.kernel)?;
    let warnings = passed_by_ipsec(&Environment { tunnels, ..Environment::default() });
    Ok(warnings.into_iter().map(|warning| warning.text).collect())
}
