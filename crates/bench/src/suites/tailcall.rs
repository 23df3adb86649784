//! What Sluice's root costs: its read of `active`, its branch and its constant-index tail call.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use anyhow::{Context as _, Result, ensure};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use serde::Serialize;
use sluice_dataplane::Program;
use sluice_dataplane::abi::program_slot;

use crate::generator::harness::{Hook, Target};
use crate::generator::packets::{Family, Protocol};
use crate::generator::site::Site;
use crate::method::affinity::{bench_cpu, pin};
use crate::method::result::{Better, Figure, STEADY, SuiteResult};
use crate::method::rounds::interleave;
use crate::method::stats::{Estimate, dispersion, estimate};
use crate::method::suite::{Context, Suite};
use crate::testbed::bed::Bed;
use crate::testbed::gateway::object_kind;

pub(crate) const SUITE: Suite = Suite {
    name: "tailcall",
    help: "Nanoseconds that the root program adds to every packet",
    says: "What it costs that a generation can be switched under traffic: the root between the wrapper and an empty target, \
        less the wrapper calling the empty target directly. It is one load and one constant-index tail call.",
    silent: &[
        "A difference of a few nanoseconds between two runs of the whole wrapper: its interval matters more than its value.",
    ],
    run: suite,
};

/// Long enough that nanoseconds, in which the kernel reports, are tenths of the difference.
const REPEAT: u32 = 2_000_000;

fn suite(context: &Context) -> Result<SuiteResult> {
    let mut result = SuiteResult::new("tailcall");
    let mut rows = vec![];
    for (i, hook) in [Hook::Xdp, Hook::Tc].into_iter().enumerate() {
        context.progress.at(i as f64 / 2.0, &format!("{hook:?}").to_lowercase());
        rows.push(run(hook, context.pick(5, context.rounds.max(15)), REPEAT)?);
    }
    result.figures = rows.iter().map(TailCallRow::figure).collect();
    result.rows = serde_json::to_value(&rows)?;
    Ok(result)
}

/// What the tail call of the root costs.
#[derive(Debug, Clone, Serialize)]
pub struct TailCallRow {
    /// Of root and target.
    pub hook: Hook,
    /// ns with the root between wrapper and empty target, less ns without it, in the same round.
    pub ns: Estimate,
    /// ns a packet, one value a round.
    pub with_root: Vec<f64>,
    /// ns a packet, one value a round.
    pub without_root: Vec<f64>,
}

impl TailCallRow {
    /// The difference, in ns a packet.
    pub fn figure(&self) -> Figure {
        let added: Vec<f64> =
            self.with_root.iter().zip(&self.without_root).map(|(with, without)| with - without).collect();
        let mut figure =
            Figure::new(format!("{:?}", self.hook).to_lowercase(), "ns/packet", Better::Lower, added);
        // A difference near nothing: what matters is how steady its two sides are.
        figure.unsteady = dispersion(&self.with_root).max(dispersion(&self.without_root)) > STEADY;
        figure
    }
}

/// Interleaved rounds of `repeat` packets each.
pub fn run(hook: Hook, rounds: usize, repeat: u32) -> Result<TailCallRow> {
    let site = Site::create("tail")?;
    site.gateway.enter(|| {
        pin(bench_cpu())?;
        let mut bed = Bed::new(&site, &[hook], Family::V4, Protocol::Udp, 1024)?;
        bed.harness(hook).set_established(Protocol::Udp, 1)?;
        let empty = bed.harness(hook).descriptor("empty")?;
        put_fast(&bed, hook, empty.as_fd())?;
        let samples =
            interleave(2, rounds, |contestant, _| run_one(&mut bed, hook, contestant == 0, repeat))?;
        let fast = bed.sluice.generation.program(object_kind(hook), 0, Program::Fast);
        put_fast(&bed, hook, fast.context("the generation has no fast program")?)?;
        let differences: Vec<f64> =
            samples[0].iter().zip(&samples[1]).map(|(with, without)| with - without).collect();
        let [with_root, without_root] = [samples[0].clone(), samples[1].clone()];
        Ok(TailCallRow { hook, ns: estimate(&differences), with_root, without_root })
    })?
}

fn run_one(bed: &mut Bed, hook: Hook, with_root: bool, repeat: u32) -> Result<f64> {
    let (ingress, root) = (bed.ingress, bed.root(hook).try_clone()?);
    let harness = bed.harness(hook);
    harness.set_target(if with_root { Target::Foreign(root.as_fd()) } else { Target::Own("empty") })?;
    let sample = harness.run(repeat, ingress)?;
    ensure!(sample.returned == hook.dropped(), "the empty target was not reached: {}", sample.returned);
    Ok(sample.ns)
}

/// Replaces the program that the root calls for variant 0.
fn put_fast(bed: &Bed, hook: Hook, program: BorrowedFd<'_>) -> Result<()> {
    let name = match hook {
        Hook::Xdp => "programs_xdp",
        Hook::Tc => "programs_tc",
    };
    let map = MapHandle::from_pinned_path(bed.sluice.pin().join(name))?;
    let slot = program_slot(bed.sluice.generation.slot(), 0, Program::Fast);
    map.update(&slot.to_ne_bytes(), &program.as_raw_fd().to_ne_bytes(), MapFlags::ANY)
        .context("cannot put the empty target where the fast path stands")
}
