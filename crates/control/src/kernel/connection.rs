//! The daemon's connection to rtnetlink, and what the kernel refuses over it.

use std::sync::{Arc, Mutex, PoisonError};

use rtnetlink::Handle;

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
    pub(super) runtime: tokio::runtime::Handle,
    pub(super) netlink: Handle,
    /// The same, and the kernel answers exactly what is asked (NETLINK_GET_STRICT_CHK).
    pub(super) strict: Handle,
    /// A socket answers one dump at a time (EBUSY).
    one_at_a_time: Arc<Mutex<()>>,
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
        Ok(Self { runtime: runtime.clone(), netlink, strict, one_at_a_time: Arc::default() })
    }

    /// `work` must send nothing before it is polled: rtnetlink's dumps do, so they stand in an async block.
    pub(super) fn wait<T>(
        &self,
        work: impl Future<Output = std::result::Result<T, rtnetlink::Error>>,
        action: impl FnOnce() -> String,
        advice: &'static str,
    ) -> Result<T> {
        let _guard = self.one_at_a_time.lock().unwrap_or_else(PoisonError::into_inner);
        let result = self.runtime.block_on(work);
        result.map_err(|error| KernelError { action: action(), reason: reason(&error), advice })
    }
}

/// The kernel's own words where it said something.
pub(super) fn reason(error: &rtnetlink::Error) -> String {
    match error {
        rtnetlink::Error::NetlinkError(message) => message.to_io().to_string(),
        other => other.to_string(),
    }
}
