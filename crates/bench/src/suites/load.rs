//! How long it takes from nothing to the first attached program.

use anyhow::Result;
use serde::Serialize;
use sluice_dataplane::Sizes;

use crate::gateway::{Site, Sluice};
use crate::harness::Hook;
use crate::result::{Better, Figure};
use crate::stats::{Estimate, estimate};

#[derive(Debug, Clone, Serialize)]
pub struct LoadRow {
    pub name: &'static str,
    pub seconds: Estimate,
    pub samples: Vec<f64>,
}

impl LoadRow {
    pub fn figure(&self) -> Figure {
        Figure::new(self.name, "s", Better::Lower, self.samples.clone())
    }
}

/// Maps made and pinned, both hooks' programs verified and stored, switched, attached to two devices.
pub fn run(name: &'static str, sizes: Sizes, rounds: usize) -> Result<LoadRow> {
    let site = Site::create("load")?;
    let samples = (0..rounds)
        .map(|_| site.gateway.enter(|| Ok(Sluice::start(&site, Hook::Xdp, sizes, true)?.load_seconds))?)
        .collect::<Result<Vec<f64>>>()?;
    Ok(LoadRow { name, seconds: estimate(&samples), samples })
}
