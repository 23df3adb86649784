//! How long it takes from nothing to the first attached program.

use anyhow::Result;
use serde::Serialize;
use sluice_dataplane::Sizes;

use crate::generator::harness::Hook;
use crate::generator::site::Site;
use crate::method::result::{Better, Figure, SuiteResult};
use crate::method::rounds::alone;
use crate::method::stats::{Estimate, estimate};
use crate::method::suite::{Context, Suite};
use crate::testbed::gateway::Sluice;

pub(crate) const SUITE: Suite = Suite {
    name: "load",
    help: "Seconds from nothing to the first attached program",
    says: "How long a gateway takes to come up: maps created and pinned, both hooks' programs through the verifier, tables \
        filled, generation switched, programs attached to two devices. Most of it is zeroing the session tables, so two \
        sizes are measured.",
    silent: &[
        "Start of the process, reading the configuration, addresses and routes are not in it.",
        "A restart finds its maps pinned and is faster; suite hitless shows what packets see of it.",
    ],
    run: suite,
};

/// Tables of the sizes that are promised.
fn sizes() -> [(&'static str, Sizes); 2] {
    [
        ("default", Sizes::default()),
        ("1M v4, 256k v6", Sizes { sessions4: 1 << 20, sessions6: 1 << 18, ..Sizes::default() }),
    ]
}

fn suite(context: &Context) -> Result<SuiteResult> {
    let mut result = SuiteResult::new("load");
    let mut rows = vec![];
    for (i, (name, sizes)) in sizes().into_iter().enumerate().filter(|(_, (name, _))| context.wants(name)) {
        context.progress.at(i as f64 / 2.0, name);
        rows.push(run(name, sizes, context.rounds)?);
    }
    result.figures = rows.iter().map(LoadRow::figure).collect();
    result.rows = serde_json::to_value(&rows)?;
    Ok(result)
}

/// How long a start took, with tables of one size.
#[derive(Debug, Clone, Serialize)]
pub struct LoadRow {
    /// Of the figure.
    pub name: &'static str,
    /// From nothing to programs on two devices.
    pub seconds: Estimate,
    /// One value a round, in round order.
    pub samples: Vec<f64>,
}

impl LoadRow {
    /// In seconds.
    pub fn figure(&self) -> Figure {
        Figure::new(self.name, "s", Better::Lower, self.samples.clone())
    }
}

/// Maps made and pinned, both hooks' programs verified and stored, switched, attached to two devices.
pub fn run(name: &'static str, sizes: Sizes, rounds: usize) -> Result<LoadRow> {
    let site = Site::create("load")?;
    let samples = alone(rounds, |_| {
        site.gateway.enter(|| Ok(Sluice::start(&site, Hook::Xdp, sizes, true)?.load_seconds))?
    })?;
    Ok(LoadRow { name, seconds: estimate(&samples), samples })
}
