//! Suite `gate`: the gate alone beside its floors, grants beside batch calls, and five benchmarks by name.

mod bed;
mod inside;
mod named;
mod operations;
mod socket;

use anyhow::Result;

use crate::generator::packets::Family;
use crate::method::checks;
use crate::method::document::RunDocument;
use crate::method::environment::exclusive;
use crate::method::progress::Progress;
use crate::method::result::{Better, Figure, Profile, SuiteResult};
use crate::method::rounds::interleave;
use crate::method::suite::{Context, Suite};
use crate::suites::options::CommonArgs;

use bed::{GateBed, Traffic};

/// What `sluice bench gate` runs without a benchmark.
pub const SUITE: Suite = Suite {
    name: "gate",
    help: "The gate alone: refused, accepted and mixed packets beside parse + one HASH lookup; grants beside batch calls",
    says: "What a packet costs in the program that decides for services of this host by grants of single hosts, for distinct \
        packets of distinct sources, beside the least that a program with a hash table of as many entries, a grant's source and \
        port each, could do for the same packets in the same rounds: a miss for refused ones, a hit for accepted ones. The same for \
        packets that the whole gateway refuses, and for established sessions with a grant beside the same ones without a \
        gate. Giving and revoking a list of grants stand beside the kernel's batch calls on as many keys of a HASH, finding \
        one beside a HashMap of this process; and what the daemon takes for 100,000 of them over its socket.",
    silent: &[
        "Accepted packets go on to the host's stack, which costs many times as much and is not in it.",
        "The five named benchmarks send 100 packets round and round, so everything stays in the first-level cache: they are \
         there to be compared with others who measure so, and the rows with distinct packets are the ones to believe.",
        "Beside batch calls grants are given in one list; HTTP, JSON and the audit are in the rows over the socket only.",
    ],
    run: suite,
};

/// `sluice bench gate [benchmark_NAME]`
#[derive(Debug, clap::Args)]
pub struct GateArgs {
    /// One of the five named benchmarks, or `benchmarks` for all of them [default: the suite with its floors]
    #[arg(value_parser = named::parser())]
    benchmark: Option<String>,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// None when the named benchmarks have printed their own lines.
pub fn command(args: &GateArgs) -> Result<Option<RunDocument>> {
    let Some(name) = &args.benchmark else {
        let context = args.common.context(Profile::Quick, Progress::stderr());
        return crate::method::run::one_document(&context, SUITE.name, || suite(&context)).map(Some);
    };
    let _lock = exclusive()?;
    bed::on_thread(|| named::run(name))?;
    Ok(None)
}

const REPEAT: u32 = 400_000;
const GRANTS: [usize; 3] = [5_000, 100_000, 1_000_000];

fn suite(context: &Context) -> Result<SuiteResult> {
    let mut result = SuiteResult::new(SUITE.name);
    let rows: Vec<(Family, usize)> = [Family::V4, Family::V6]
        .into_iter()
        .flat_map(|family| GRANTS.map(|grants| (family, grants)))
        .collect();
    for (done, (family, grants)) in rows.iter().enumerate() {
        if !wanted_names(*family, *grants).iter().any(|name| context.wants(name)) {
            continue;
        }
        context.progress.at(done as f64 / rows.len() as f64, &format!("{family:?}, {grants} grants"));
        let figures = bed::on_thread(|| rows_of(context, *family, *grants));
        take(&mut result, &format!("{family:?}, {grants} grants"), figures);
    }
    for family in [Family::V4, Family::V6].into_iter().filter(|family| context.wants(&inside::name(*family)))
    {
        context.progress.at(0.85, "established sessions with a grant");
        let figure =
            bed::on_thread(|| inside::established(family, context.rounds, REPEAT)).map(|one| vec![one]);
        take(&mut result, "established sessions with a grant", figure);
    }
    for count in operations::COUNTS {
        if operations::names(count).iter().any(|name| context.wants(name)) {
            context.progress.at(0.9, &format!("{count} grants beside map operations"));
            let figures = bed::on_thread(|| operations::figures(count, context.rounds));
            take(&mut result, "grants beside map operations", figures);
        }
    }
    if socket::NAMES.iter().any(|name| context.wants(name)) {
        context.progress.at(0.95, "grants over the socket");
        take(&mut result, "grants over the socket", socket::figures(context.rounds));
    }
    Ok(result)
}

fn take(result: &mut SuiteResult, what: &str, figures: Result<Vec<Figure>>) {
    match figures {
        Ok(figures) => result.figures.extend(figures),
        Err(error) => result.errors.push(format!("{what}: {error:#}")),
    }
}

fn wanted_names(family: Family, grants: usize) -> Vec<String> {
    let alone = Traffic::ALL.map(|traffic| name(family, traffic, grants));
    alone.into_iter().chain([inside::drop_name(family, grants)]).collect()
}

fn name(family: Family, traffic: Traffic, grants: usize) -> String {
    format!("alone {} {} {grants}", format!("{family:?}").to_lowercase(), traffic.name())
}

/// Refused, accepted and mixed packets with as many grants, and as many distinct packets.
fn rows_of(context: &Context, family: Family, grants: usize) -> Result<Vec<Figure>> {
    let mut bed = GateBed::new(family, grants, grants)?;
    let mut figures = vec![];
    for traffic in Traffic::ALL {
        let name = name(family, traffic, grants);
        if !context.wants(&name) {
            continue;
        }
        bed.set_traffic(traffic, grants)?;
        let lap = (grants as u32).min(REPEAT);
        for contestant in [1, 2] {
            run_one(&mut bed, traffic, contestant, lap)?;
        }
        let samples =
            interleave(4, context.rounds, |contestant, _| run_one(&mut bed, traffic, contestant, REPEAT))?;
        let off = |which: usize| -> Vec<f64> {
            samples[which].iter().zip(&samples[0]).map(|(raw, wrapper)| raw - wrapper).collect()
        };
        let figure = Figure::new(&name, "ns/packet", Better::Lower, off(2))
            .against(traffic.floor(), &off(1))
            .same(&off(1), &off(3));
        figures.push(figure.check(checks::distinct(bed.distinct().into(), grants as u64)));
    }
    if context.wants(&inside::drop_name(family, grants)) {
        figures.push(inside::refused(&mut bed, family, grants, context.rounds, REPEAT)?);
    }
    Ok(figures)
}

/// Wrapper, floor, the gate, the floor again from another table.
fn run_one(bed: &mut GateBed, traffic: Traffic, contestant: usize, repeat: u32) -> Result<f64> {
    match contestant {
        0 => bed.run_own("empty", repeat).map(|sample| sample.ns),
        2 => bed.run_gate(traffic, repeat),
        _ => bed.run_floor(traffic, contestant == 3, repeat),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_names_of_their_own() {
        let all: std::collections::BTreeSet<String> = [Family::V4, Family::V6]
            .into_iter()
            .flat_map(|f| Traffic::ALL.into_iter().flat_map(move |t| GRANTS.map(|n| name(f, t, n))))
            .collect();
        assert_eq!(all.len(), 18);
        assert!(all.contains("alone v4 mixed 100000"));
    }
}
