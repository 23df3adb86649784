//! What ten thousand policies cost before the first packet: time of a commit, and memory.

use anyhow::Result;
use serde::Serialize;
use sluice_dataplane::Sizes;

use crate::generator::harness::Hook;
use crate::generator::site::Site;
use crate::method::result::{Better, Figure, SuiteResult};
use crate::method::rounds::alone;
use crate::method::suite::{Context, Suite};
use crate::testbed::gateway::{Sluice, ruled_configuration};
use crate::testbed::ruleset::Then;

pub const SUITE: Suite = Suite {
    name: "policies",
    help: "Seconds and memory of a commit with many policies",
    says: "How long a commit of 10,000 policies takes in one zone pair, with some 2,000 overlapping prefixes and 500 \
        applications: text parsed, names resolved, \
        compiled to tables, both hooks' programs verified, tables filled, generation switched. And how much memory their \
        tables take.",
    silent: &[
        "Addresses, routes and attaching are not in it; suite load has them.",
        "What a first packet then pays stands in suite prog, rows `rules N`.",
    ],
    run: suite,
};

#[derive(Debug, Serialize)]
struct PoliciesRow {
    policies: usize,
    seconds: Vec<f64>,
    tables_mib: f64,
}

fn suite(context: &Context) -> Result<SuiteResult> {
    let mut result = SuiteResult::new(SUITE.name);
    let sizes: &[usize] = context.pick(&[10_000], &[10_000, 50_000]);
    let mut rows = vec![];
    for policies in sizes {
        let names = [format!("commit {policies}"), format!("tables {policies}")];
        if !names.iter().any(|name| context.wants(name)) {
            continue;
        }
        context.progress.at(rows.len() as f64 / sizes.len() as f64, &names[0]);
        let row = run(*policies, context.rounds)?;
        result.figures.push(Figure::new(&names[0], "s", Better::Lower, row.seconds.clone()));
        result.figures.push(Figure::new(
            &names[1],
            "MiB",
            Better::Lower,
            vec![row.tables_mib; row.seconds.len()],
        ));
        rows.push(row);
    }
    result.rows = serde_json::to_value(&rows)?;
    Ok(result)
}

fn run(policies: usize, rounds: usize) -> Result<PoliciesRow> {
    let site = Site::create("policies")?;
    let text = ruled_configuration(Hook::Xdp.into(), policies, Then::Permit);
    site.gateway.enter(|| {
        let sizes = Sizes { sessions4: 4096, sessions6: 4096, ..Sizes::default() };
        let mut sluice = Sluice::start(&site, Hook::Xdp, sizes, true)?;
        let seconds = alone(rounds, |_| sluice.commit(&site, &text))?;
        let tables = &sluice.plan.tables;
        let bytes = size_of_val(&tables.rules[..])
            + size_of_val(&tables.classes[..])
            + size_of_val(&tables.rows[..])
            + size_of_val(&tables.service_terms[..]);
        Ok(PoliciesRow { policies, seconds, tables_mib: bytes as f64 / f64::from(1 << 20) })
    })?
}
