//! What systemd is told (sd_notify(3)): datagrams to the socket it has named, if it has started the daemon.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

#[derive(Clone, Default)]
pub struct Notify {
    socket_address: Option<SocketAddr>,
    /// How often it wants to hear that the daemon lives, at least.
    pub watchdog: Option<Duration>,
}

impl Notify {
    pub fn from_environment() -> Self {
        let variable = |name| std::env::var(name).ok();
        let address = |path: String| match path.strip_prefix('@') {
            Some(name) => SocketAddr::from_abstract_name(name).ok(),
            None => SocketAddr::from_pathname(path).ok(),
        };
        // a variable that was inherited from another process is not meant
        let ours = variable("WATCHDOG_PID").is_none_or(|pid| pid == std::process::id().to_string());
        let microseconds = variable("WATCHDOG_USEC").and_then(|text| text.parse().ok()).filter(|_| ours);
        Self {
            socket_address: variable("NOTIFY_SOCKET").and_then(address),
            watchdog: microseconds.map(Duration::from_micros),
        }
    }

    /// `READY=1`, `STATUS=...`, one a line. Nobody who listens is no fault.
    pub fn say(&self, state: &str) {
        if let Some(socket_address) = &self.socket_address
            && let Err(error) = UnixDatagram::unbound()
                .and_then(|socket| socket.send_to_addr(state.as_bytes(), socket_address))
        {
            tracing::warn!(%error, "systemd was not told {state:?}");
        }
    }
}
