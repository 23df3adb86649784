//! What a rung adds to the one before it: all of one kind at full speed in the same rounds.

use std::time::Duration;

use anyhow::{Context as _, Result};

use super::{FRAME_BYTES, SOCKET, full_speed, ns};
use crate::method::result::{Better, Chart, Figure, Step, SuiteResult, Waterfall};
use crate::method::rounds::interleave;
use crate::method::stats::estimate;
use crate::method::suite::Context;
use crate::testbed::forwarder::Forwarder;
use crate::testbed::trial::{Device, Sink, Stand};

/// From the bottom: forwarding, receiving.
pub(super) const CHAINS: [&[Device]; 2] = [
    &[
        Device::Nobody,
        Device::Through(Forwarder::Redirect, Sink::Xdp),
        Device::Through(Forwarder::Xdp, Sink::Xdp),
        Device::Through(Forwarder::Gtpu, Sink::Xdp),
        Device::Through(Forwarder::UserPlane, Sink::Xdp),
    ],
    &[
        Device::Through(Forwarder::Xdp, SOCKET),
        Device::Through(Forwarder::Gtpu, SOCKET),
        Device::Through(Forwarder::UserPlane, SOCKET),
    ],
];

/// A rung, and how much longer its frames take than those of the one below, a value a round.
pub(super) struct Added {
    pub(super) device: Device,
    pub(super) below: Device,
    pub(super) ns: Vec<f64>,
}

/// Of both kinds; what could not be measured is told in the result.
pub(super) fn all(context: &Context, length: Duration, result: &mut SuiteResult) -> Vec<Added> {
    let mut all = vec![];
    for chain in CHAINS {
        match of_chain(chain, length, context.rounds) {
            Ok(added) => all.extend(added),
            Err(error) => result.errors.push(format!("what each rung adds: {error:#}")),
        }
    }
    result.figures.extend(all.iter().map(Added::figure));
    all
}

fn of_chain(chain: &[Device], length: Duration, rounds: usize) -> Result<Vec<Added>> {
    let mut stands =
        chain.iter().map(|device| Stand::new(*device, FRAME_BYTES)).collect::<Result<Vec<_>>>()?;
    let mpps = interleave(chain.len(), rounds, |i, _| {
        full_speed(&mut stands[i], length).with_context(|| chain[i].name())
    })?;
    let pairs = chain.windows(2).zip(mpps.windows(2));
    Ok(pairs
        .map(|(devices, mpps)| {
            let (below, above) = (ns(&mpps[0]), ns(&mpps[1]));
            let ns = above.iter().zip(below).map(|(above, below)| above - below).collect();
            Added { device: devices[1], below: devices[0], ns }
        })
        .collect())
}

impl Added {
    fn figure(&self) -> Figure {
        let name = format!("{}: ns added to {}", self.device.name(), self.below.name());
        Figure::new(name, "ns/packet", Better::Lower, self.ns.clone())
    }
}

/// A chart of each kind.
pub(super) fn waterfalls(added: &[Added]) -> Vec<Chart> {
    let kinds = [(Sink::Xdp, "forwarding"), (SOCKET, "receiving")];
    let chart = |(sink, kind): (Sink, &str)| {
        let is_of_kind = |one: &&Added| matches!(one.device, Device::Through(_, other) if other == sink);
        let step = |one: &Added| Step { name: one.device.name(), estimate: estimate(&one.ns), total: false };
        Chart::Waterfall(Waterfall {
            title: format!("Nanoseconds that each rung adds, {kind}"),
            unit: "ns/packet".to_owned(),
            steps: added.iter().filter(is_of_kind).map(step).collect(),
            note: "At full speed, each to the rung before it in the same rounds.".to_owned(),
        })
    };
    kinds.map(chart).into_iter().collect()
}
