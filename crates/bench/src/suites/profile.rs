//! Suite `profile`: where the CPU's time goes while frames pass, by function, BPF programs named.

use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::method::affinity::bench_cpu;
use crate::method::perf::{self, Chains, Recording, by_symbol, is_bpf, total, tree};
use crate::method::result::{Bar, Bars, Better, Chart, Check, Figure, Flame, Role, SuiteResult, Table};
use crate::method::stats::{Estimate, estimate};
use crate::method::suite::{Context, Suite};
use crate::testbed::forwarder::Forwarder;
use crate::testbed::trial::{Device, Sink, Stand};

pub const SUITE: Suite = Suite {
    name: "profile",
    help: "CPU time by function while live frames pass: shares, BPF programs by name, flame graph",
    says: "Samples of the CPU time of generator, gateway and sink, which share one thread, about a thousand a second, while 64-byte frames \
        pass at full speed. The share of Sluice's own programs is what Sluice can make faster; the rest is the kernel's \
        and the bench's.",
    silent: &[
        "Sampling is by timer: code that runs with interrupts off is charged to where they come on again.",
        "A program's helpers and map functions that the kernel inlined into it count as the program.",
    ],
    run: suite,
};

const DEVICES: [Device; 2] =
    [Device::Through(Forwarder::Xdp, Sink::Xdp), Device::Through(Forwarder::Nftables, Sink::Xdp)];
/// Branches below this share are left out of the flame graph.
const LEAST: f64 = 0.002;
const SHOWN: usize = 15;
/// Fewer samples make no share.
const ENOUGH: u64 = 500;

fn suite(context: &Context) -> Result<SuiteResult> {
    let mut result = SuiteResult::new(SUITE.name);
    if !perf::is_installed() {
        result.notes.push("perf is not installed (scripts/setup-bench.sh): nothing was profiled".to_owned());
        return Ok(result);
    }
    let length = context.pick(Duration::from_secs(2), Duration::from_secs(30));
    for (i, device) in DEVICES.into_iter().enumerate() {
        context.progress.at(i as f64 / DEVICES.len() as f64, &device.name());
        let mut stand = Stand::new(device, 60)?;
        let rounds = (0..context.rounds).map(|_| record(&mut stand, length)).collect::<Result<Vec<_>>>()?;
        report(&device.name(), i == 0, &rounds, &mut result);
    }
    Ok(result)
}

fn record(stand: &mut Stand, length: Duration) -> Result<Chains> {
    stand.trial(None, Duration::from_millis(100))?;
    let recording = Recording::start(bench_cpu(), "profile")?;
    let passed = stand.trial(None, length);
    let chains = recording.end();
    passed?;
    let mut chains = chains.context("profile")?;
    // What else ran on this CPU meanwhile is another story.
    chains.retain(|chain, _| chain.first().is_some_and(|command| is_traffic(command)));
    Ok(chains)
}

/// The generator, in whose time gateway and sink work, and the kernel's thread that does when they fall behind.
fn is_traffic(command: &str) -> bool {
    command == "generator" || command.starts_with("ksoftirqd/")
}

fn percent(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}

/// What belongs to the bench itself.
fn is_bench(symbol: &str) -> bool {
    symbol.starts_with("bpf: frames_")
}

/// Share of a kind of function in every round.
fn shares(rounds: &[Chains], belongs: impl Fn(&str) -> bool) -> Vec<f64> {
    let share = |chains: &Chains| {
        let own =
            by_symbol(chains).into_iter().filter(|(name, _)| belongs(name)).map(|(_, count)| count).sum();
        percent(own, total(chains))
    };
    rounds.iter().map(share).collect()
}

fn report(name: &str, subject: bool, rounds: &[Chains], result: &mut SuiteResult) {
    let samples: u64 = rounds.iter().map(total).sum();
    let enough =
        Check::new("enough samples", samples >= ENOUGH, format!("{samples} samples, {ENOUGH} wanted"));
    if subject {
        let own = shares(rounds, |symbol| is_bpf(symbol) && !is_bench(symbol));
        let named = own.iter().any(|share| *share > 0.0);
        let figure =
            Figure::new(format!("{name}: its own programs"), "% of CPU", Better::Lower, own).headline();
        result.figures.push(figure.check(enough.clone()).check(Check::new(
            "BPF programs are named",
            named,
            "kernel.perf_event_paranoid and net.core.bpf_jit_kallsyms decide it",
        )));
    }
    let bench = shares(rounds, is_bench);
    result.figures.push(
        Figure::new(format!("{name}: the bench's programs"), "% of CPU", Better::Lower, bench).check(enough),
    );
    let mut all = Chains::new();
    for (chain, count) in rounds.iter().flatten() {
        *all.entry(chain.clone()).or_default() += count;
    }
    result.tables.push(table(name, &all));
    result.charts.push(bars(name, &all, rounds));
    result.charts.push(Chart::Flame(Flame {
        title: format!("CPU time, {name}"),
        root: tree(&all, LEAST),
        note: format!("{} samples; branches below {:.1} % are left out", total(&all), 100.0 * LEAST),
    }));
}

fn table(name: &str, chains: &Chains) -> Table {
    let whole = total(chains);
    let row = |(symbol, count): (String, u64)| vec![format!("{:.1}", percent(count, whole)), symbol];
    Table {
        title: format!("CPU time by function, {name}"),
        header: ["%", "function"].map(str::to_owned).to_vec(),
        rows: by_symbol(chains).into_iter().take(SHOWN).map(row).collect(),
        note: "The function's own time, without what it called.".to_owned(),
    }
}

fn bars(name: &str, all: &Chains, rounds: &[Chains]) -> Chart {
    let bar = |(symbol, _): (String, u64)| {
        let share: Estimate = estimate(&shares(rounds, |other| other == symbol));
        let role = if is_bench(&symbol) || !is_bpf(&symbol) { Role::Peer } else { Role::Subject };
        Bar { name: symbol, role, estimate: share }
    };
    Chart::Bars(Bars {
        title: format!("CPU time by function, {name}"),
        unit: "% of CPU".to_owned(),
        bars: by_symbol(all).into_iter().take(SHOWN).map(bar).collect(),
        note: String::new(),
    })
}
