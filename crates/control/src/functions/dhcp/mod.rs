//! Clients of DHCP and DHCPv6: units whose addresses a server gives.

pub mod chance;
mod client4;
mod client6;
pub mod clients;
mod lease;
mod offer;
mod packets;
mod placed4;
mod placed6;
mod reply6;
mod shown;
mod wire4;
mod wire6;

#[cfg(test)]
mod tried;

use std::sync::Arc;

use self::clients::Clients;
use crate::functions::function::{Candidate, Function};

pub struct Dhcp(Arc<Clients>);

impl Dhcp {
    pub fn new(clients: &Arc<Clients>) -> Self {
        Self(clients.clone())
    }
}

impl Function for Dhcp {
    fn name(&self) -> &'static str {
        "dhcp"
    }

    /// A commit waits for no server. What gives its lease back does so while its device is still there: devices are taken
    /// away by what stands before this in the list.
    fn retire(&mut self, candidate: &Candidate<'_>) -> Vec<String> {
        self.0.reconcile(candidate.config);
        vec![]
    }
}
