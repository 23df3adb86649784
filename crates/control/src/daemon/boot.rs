//! Before a gateway forwards: the guard of a machine that starts, and devices that come late.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::ifaddrs::getifaddrs;
use sluice_language::Config;

use super::notify::Notify;
use super::start::DaemonError;
use crate::kernel::{Kernel, KernelError, guard};
use crate::state::config;
use crate::state::store;

/// How often the kernel is asked whether a device has come.
const LOOK: Duration = Duration::from_millis(500);

/// How late interfaces of the last commit may be; then the others forward without them.
pub const LATE: Duration = Duration::from_secs(30);

/// Keeps the kernel from forwarding between the devices of the last commit, and names them. A commit that cannot be read
/// stops all that are there: what it was for is not known.
pub fn guard_at_boot(state_dir: &Path) -> Result<Vec<String>, DaemonError> {
    let devices = match store::load(state_dir) {
        Ok(memory) => match memory.stored {
            None => return Ok(vec![]),
            Some(stored) => config::parse(&stored.text, &stored.file).map(|config| devices(&config)),
        }
        .map_err(DaemonError::from),
        Err(error) => Err(error.into()),
    };
    let devices = devices.unwrap_or_else(|error| {
        tracing::error!(%error, "what was committed cannot be read: nothing is forwarded");
        here()
    });
    guard::install(&devices)?;
    Ok(devices.into_iter().collect())
}

/// Devices of a configuration, whether they are there or not.
fn devices(config: &Config) -> BTreeSet<String> {
    let own = |interface: &sluice_language::Interface| {
        let units = interface.units.iter().map(|unit| sluice_plan::device_of(interface, unit));
        units.chain([interface.name.clone()]).collect::<Vec<_>>()
    };
    let instances = config.routing_instances.iter().map(|instance| instance.name.clone());
    config.interfaces.iter().flat_map(own).chain(instances).collect()
}

fn here() -> BTreeSet<String> {
    let all = getifaddrs().into_iter().flatten().map(|entry| entry.interface_name);
    all.filter(|name| name != "lo").collect()
}

/// Returns when a device is there, or, with false, after `longest`; until then the guard holds what the configuration is about.
pub fn wait_for(
    device: &str,
    longest: Option<Duration>,
    texts: &[(String, String)],
    kernel: &Kernel,
    notify: &Notify,
) -> Result<bool, KernelError> {
    let configs = texts.iter().filter_map(|(text, file)| config::parse(text, file).ok());
    guard::install(&configs.flat_map(|config| devices(&config)).collect())?;
    let begun = Instant::now();
    let until =
        longest.map_or_else(String::new, |longest| format!(" or {} seconds are over", longest.as_secs()));
    tracing::warn!(device, "not here yet; nothing is forwarded until it comes{until}");
    notify.say(&format!("STATUS=waiting for interface {device}"));
    while !kernel.links()?.iter().any(|link| link.name == device) {
        if longest.is_some_and(|longest| begun.elapsed() >= longest) {
            return Ok(false);
        }
        std::thread::sleep(LOOK);
    }
    tracing::info!(device, "has come");
    Ok(true)
}
