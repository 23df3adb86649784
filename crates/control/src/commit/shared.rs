//! What the daemon's threads share: the data plane and the kernel, the commit in force, and what is remembered.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use sluice_dataplane::Dataplane;

use crate::commit::record::Record;
use crate::functions::dhcp::clients::Clients;
use crate::functions::frr::Frr;
use crate::functions::gate::audit::Audit;
use crate::functions::gate::grants::Grants;
use crate::functions::gtpu::sessions::Sessions;
use crate::kernel::Kernel;
use crate::state::active::Active;
use crate::state::advertised::Advertised;
use crate::state::dhcp_server::DhcpServerState;
use crate::state::draft::Drafts;
use crate::state::recent_drops::RecentDrops;
use crate::state::session_log::SessionLog;
use crate::state::unfragmented::Unfragmented;

pub struct Shared {
    pub dataplane: Arc<Dataplane>,
    pub kernel: Kernel,
    pub started: Instant,
    pub commits: Record,
    pub log: SessionLog,
    pub drops: RecentDrops,
    /// What may be in force next.
    pub drafts: Drafts,
    /// Of the user plane, by name.
    pub gtpu: Arc<Sessions>,
    /// What speaks routing protocols.
    pub frr: Arc<Frr>,
    /// Links that this router is advertised on.
    pub advertised: Advertised,
    pub dhcp_server: DhcpServerState,
    /// What NAT64 was to fragment and has not.
    pub unfragmented: Unfragmented,
    /// Of units whose addresses servers give.
    pub dhcp: Arc<Clients>,
    audit: Arc<Audit>,
    active: RwLock<Arc<Active>>,
}

/// What functions keep beside commits.
pub struct Beside {
    pub audit: Arc<Audit>,
    pub gtpu: Arc<Sessions>,
    pub frr: Arc<Frr>,
    pub dhcp: Arc<Clients>,
}

impl Shared {
    pub fn new(
        dataplane: Arc<Dataplane>,
        kernel: Kernel,
        active: Active,
        drafts: Drafts,
        beside: Beside,
    ) -> Self {
        let Beside { audit, gtpu, frr, dhcp } = beside;
        Self {
            dataplane,
            kernel,
            started: Instant::now(),
            commits: Record::default(),
            log: SessionLog::default(),
            drops: RecentDrops::default(),
            drafts,
            gtpu,
            frr,
            advertised: Advertised::default(),
            dhcp_server: DhcpServerState::default(),
            unfragmented: Unfragmented::default(),
            dhcp,
            audit,
            active: RwLock::new(Arc::new(active)),
        }
    }

    pub fn active(&self) -> Arc<Active> {
        self.active.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn set_active(&self, active: Active) {
        *self.active.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(active);
    }

    /// Grants, by the services of `active`.
    pub fn grants<'a>(&'a self, active: &'a Active) -> Grants<'a> {
        Grants { dataplane: &self.dataplane, audit: &self.audit, plan: &active.plan.gate }
    }
}
