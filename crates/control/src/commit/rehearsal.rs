//! Whether the running kernel takes the programs of a plan: they are loaded into a state of their own, which no device is
//! attached to and which goes at once.

use std::path::PathBuf;

use sluice_dataplane::{Dataplane, Sizes};
use sluice_plan::Plan;

use crate::functions::dhcp::chance;
use crate::functions::variants;
use crate::kernel::{bpffs, preflight};

/// Why it is not known that the kernel takes the programs of a configuration, or why it refuses them.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "its variants are what their messages name")]
pub enum LoadsError {
    #[error("this kernel does not take the programs of the configuration: {0}")]
    Refused(#[from] sluice_dataplane::Error),
    #[error(transparent)]
    Bpffs(#[from] bpffs::BpffsError),
}

/// So few sessions as make no difference to a program.
const SESSIONS: u32 = 1024;

/// Loads what a commit would. Says false where that was not tried: it takes root, and a BPF file system that is there.
pub fn loads(plan: &Plan) -> Result<bool, LoadsError> {
    let Some(bpffs) = bpffs::there() else { return Ok(false) };
    if preflight::privileged().is_err() {
        return Ok(false);
    }
    // where others may make names, too, nobody foresees this one
    let scratch = Scratch(bpffs.join(chance::name("sluice-check")));
    let sizes = Sizes { sessions4: SESSIONS, sessions6: SESSIONS, ..Sizes::default() };
    let dataplane = Dataplane::open(&scratch.0, sizes)?;
    dataplane.load(&plan.tables, &variants(plan, None, &[]), plan.generation)?;
    dataplane.sweep_once(dataplane.now_jiffies()?)?;
    Ok(true)
}

struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = sluice_dataplane::cleanup(&self.0) {
            tracing::warn!(%error, pin = %self.0.display(), "pins of a check remain");
        }
    }
}
