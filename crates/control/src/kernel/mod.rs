//! What the daemon reads from and asks of the kernel: devices, addresses, routes, neighbours, sysctls, the guard.
//!
//! Synchronous on purpose: a commit is one straight line of steps. Never called from an async task.

mod address;
pub mod ethtool;
pub mod guard;
pub mod ipsec;
mod link;
mod neighbour;
pub mod notices;
mod proxy;
mod route;
mod sender;

use std::fs;
use std::sync::{Arc, Mutex, PoisonError};

use rtnetlink::Handle;

pub use address::Address;
pub use link::Link;
pub use neighbour::{Neighbour, parse_neighbour};
pub use route::text as route_text;

/// Protocol number of the addresses and routes that Sluice adds (`ip route` shows `proto 83`). The kernel itself thus
/// remembers what is ours, whatever happens to the daemon.
pub const PROTOCOL: u8 = 83;

/// Something the kernel refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot {action}: {reason}; {advice}")]
pub struct KernelError {
    pub action: String,
    pub reason: String,
    pub advice: &'static str,
}

pub type Result<T, E = KernelError> = std::result::Result<T, E>;

/// A connection to rtnetlink in the daemon's namespace.
#[derive(Clone)]
pub struct Kernel {
    runtime: tokio::runtime::Handle,
    netlink: Handle,
    /// The same, and the kernel answers exactly what is asked (NETLINK_GET_STRICT_CHK).
    strict: Handle,
    /// A socket answers one dump at a time (EBUSY).
    turn: Arc<Mutex<()>>,
}

impl Kernel {
    pub fn connect(runtime: &tokio::runtime::Handle) -> Result<Self> {
        let _context = runtime.enter();
        let fail = |e: std::io::Error| KernelError {
            action: "open an rtnetlink socket".to_owned(),
            reason: e.to_string(),
            advice: "check the limits of open files",
        };
        let (connection, netlink, _) = rtnetlink::new_connection().map_err(fail)?;
        runtime.spawn(connection);
        let (connection, strict, _) = rtnetlink::new_connection_with_strict_check().map_err(fail)?;
        runtime.spawn(connection);
        Ok(Self { runtime: runtime.clone(), netlink, strict, turn: Arc::default() })
    }

    /// `work` must send nothing before it is polled: rtnetlink's dumps do, so they stand in an async block.
    fn wait<T>(
        &self,
        work: impl Future<Output = std::result::Result<T, rtnetlink::Error>>,
        action: impl FnOnce() -> String,
        advice: &'static str,
    ) -> Result<T> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let result = self.runtime.block_on(work);
        result.map_err(|error| KernelError { action: action(), reason: reason(&error), advice })
    }
}

/// The kernel's own words where it said something.
fn reason(error: &rtnetlink::Error) -> String {
    match error {
        rtnetlink::Error::NetlinkError(message) => message.to_io().to_string(),
        other => other.to_string(),
    }
}

/// Reads a file below /proc/sys.
pub fn sysctl(path: &str) -> Result<String> {
    let text = fs::read_to_string(format!("/proc/sys/{path}")).map_err(|e| sysctl_error("read", path, &e))?;
    Ok(text.trim().to_owned())
}

/// Writes a file below /proc/sys unless it holds the value already.
pub fn set_sysctl(path: &str, value: &str) -> Result<()> {
    if sysctl(path).is_ok_and(|current| current == value) {
        return Ok(());
    }
    fs::write(format!("/proc/sys/{path}"), value).map_err(|e| sysctl_error("write", path, &e))
}

/// A device goes back to what the whole machine is set to; one that is gone needs nothing.
pub fn stop_forwarding(device: &str) -> Result<()> {
    for family in ["ipv4", "ipv6"] {
        let path = format!("net/{family}/conf/{device}/forwarding");
        if sysctl(&path).is_ok() {
            set_sysctl(&path, &sysctl(&format!("net/{family}/conf/all/forwarding"))?)?;
        }
    }
    Ok(())
}

fn sysctl_error(verb: &str, path: &str, error: &std::io::Error) -> KernelError {
    KernelError {
        action: format!("{verb} /proc/sys/{path}"),
        reason: error.to_string(),
        advice: "run as root, with IPv6 enabled in the kernel and /proc/sys writable, or set it before the start (in a container: from the host)",
    }
}
