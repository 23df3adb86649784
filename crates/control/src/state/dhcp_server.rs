//! How the DHCP server is, as it is shown.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

#[derive(Debug, Clone, Default)]
pub struct ServerState {
    /// Where it has its files; None where no daemon is.
    pub dir: Option<PathBuf>,
    pub pid: Option<u32>,
    pub error: Option<String>,
}

#[derive(Debug, Default)]
pub struct DhcpServerState(Mutex<ServerState>);

impl DhcpServerState {
    pub fn set(&self, state: ServerState) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }

    pub fn get(&self) -> ServerState {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
