//! Tracing, in the process that asks for it: the programs tell of packets, and the last commit has their names.

use std::path::{Path, PathBuf};

use sluice_dataplane::{Error, TraceRequest, Traced, Untold};
use tokio::runtime::Runtime;

use crate::api::trace::{TraceFilter, TracedPacket};
use crate::commit::Shared;
use crate::kernel::Kernel;
use crate::serve::offline::{self, OfflineError};
use crate::state::error::AskError;
use crate::views::trace::{Explainer, filter};

/// Why nothing is traced.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "its variants are what their messages name")]
pub enum TraceError {
    #[error("{0}")]
    Filter(String),
    #[error("there is no gateway to trace: {0}")]
    NoGateway(#[from] OfflineError),
    #[error(transparent)]
    Dataplane(#[from] Error),
}

impl TraceError {
    /// The question is wrong, not the gateway.
    pub fn is_bad_input(&self) -> bool {
        matches!(self, Self::Filter(_))
    }
}

/// What is wanted of packets.
#[derive(Debug, Clone, Default)]
pub struct TraceOptions {
    /// Everything, when it is empty.
    pub filter: TraceFilter,
    /// Bytes of a frame.
    pub snaplen: u32,
    /// Packets a second and CPU.
    pub rate: u32,
    /// Only packets that are dropped, as they are then.
    pub drops: bool,
}

/// The gateway of a state directory, for who traces.
pub struct Tracer {
    state_dir: PathBuf,
    shared: Shared,
    /// Questions to the kernel run on it.
    _runtime: Runtime,
}

impl Tracer {
    /// The gateway whose state this directory has; its daemon may be dead.
    pub fn open(state_dir: &Path) -> Result<Self, TraceError> {
        let runtime = crate::runtime().map_err(OfflineError::from)?;
        let kernel = Kernel::connect(runtime.handle()).map_err(AskError::from).map_err(OfflineError::from)?;
        let shared = offline::shared(state_dir, kernel)?;
        Ok(Self { state_dir: state_dir.to_owned(), shared, _runtime: runtime })
    }

    /// Hands over packets as they come, until `go_on` says no, and says how many were not. `begun` is called once packets are
    /// looked at.
    pub fn run(
        &self,
        options: &TraceOptions,
        begun: impl FnOnce(),
        go_on: impl Fn() -> bool,
        mut take: impl FnMut(TracedPacket, &Traced),
    ) -> Result<Untold, TraceError> {
        let (compared, units) =
            filter::compile(&options.filter, &self.shared.active()).map_err(TraceError::Filter)?;
        let TraceOptions { snaplen, rate, drops, .. } = *options;
        let request = TraceRequest { filter: compared, units, snaplen, rate, drops };
        let mut trace = self.shared.dataplane.trace(request)?;
        let mut explainer = Explainer::new(&self.shared);
        begun();
        while go_on() {
            let mut packets = vec![];
            trace.poll(|packet| packets.push(packet))?;
            let newest = packets.iter().map(|packet| packet.raw.generation).max();
            if newest.is_some_and(|newest| newest > explainer.generation()) {
                self.renew_names();
                explainer = Explainer::new(&self.shared);
            }
            for packet in packets.iter().take_while(|_| go_on()) {
                take(explainer.explain(packet), packet);
            }
        }
        Ok(trace.untold())
    }

    /// After a commit; its names are written down a moment later than it judges packets.
    fn renew_names(&self) {
        match offline::committed(&self.state_dir, &self.shared.kernel) {
            Ok(active) => self.shared.set_active(active),
            Err(error) => tracing::debug!(%error, "the names of a new commit are not there yet"),
        }
    }
}
