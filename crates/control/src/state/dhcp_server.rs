//! How the DHCP servers are, as it is shown.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use sluice_language::dhcp_server::Family;
use sluice_plan::RouteWant;

#[derive(Debug, Clone, Default)]
pub struct ServerState {
    /// Where the daemon has its files; None where none is.
    pub state_dir: Option<PathBuf>,
    pub pid: Option<u32>,
    pub error: Option<String>,
    /// To delegated prefixes, as they stand.
    pub routes: Vec<RouteWant>,
}

/// Of both families, in the order of [`Family::ALL`].
#[derive(Debug, Default)]
pub struct DhcpServerState([Mutex<ServerState>; 2]);

impl DhcpServerState {
    fn of(&self, family: Family) -> &Mutex<ServerState> {
        let [inet, inet6] = &self.0;
        match family {
            Family::Inet => inet,
            Family::Inet6 => inet6,
        }
    }

    pub fn set(&self, family: Family, state: ServerState) {
        *self.of(family).lock().unwrap_or_else(PoisonError::into_inner) = state;
    }

    pub fn get(&self, family: Family) -> ServerState {
        self.of(family).lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
