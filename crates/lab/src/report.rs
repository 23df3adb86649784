//! The report of a run as a person reads it.

use std::ops::Range;

use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{CellAlignment, ContentArrangement, Table};
use serde::Serialize;

use crate::matrix::Row;
use crate::stats::{Equation, Stats};

#[derive(Debug, Serialize)]
pub struct Report {
    pub lab: &'static str,
    pub ok: bool,
    pub seconds: f64,
    pub gateways: Vec<GatewayReport>,
}

#[derive(Debug, Serialize)]
pub struct GatewayReport {
    /// `tc`, `xdp` or `linux`
    pub gateway: &'static str,
    pub ok: bool,
    pub seconds: f64,
    pub rows: Vec<Row>,
    /// Checksum errors counted by the hosts' stacks, which must be none.
    pub checksum_errors: Vec<String>,
    pub stats: Option<Stats>,
}

/// Fits a terminal and a pull request.
const WIDTH: u16 = 120;

pub fn print_gateway(report: &GatewayReport) {
    println!("\nGateway: {}", title(report.gateway));
    println!("{}", matrix(&report.rows));
    let load: Vec<&Row> = report.rows.iter().filter(|row| row.seen.gbps.is_some()).collect();
    if !load.is_empty() {
        println!("{}", throughput(&load));
    }
    if let Some(stats) = &report.stats {
        print_stats(stats);
    }
    match report.checksum_errors.as_slice() {
        [] => println!("Checksum errors in the hosts' stacks: none"),
        errors => println!("CHECKSUM ERRORS: {}", errors.join(", ")),
    }
    let failed = report.rows.iter().filter(|row| !row.ok).count();
    let verdict = if report.ok { "as expected" } else { "NOT AS EXPECTED" };
    println!(
        "{}: {} of {} rows, {verdict}, {:.0} s",
        report.gateway,
        report.rows.len() - failed,
        report.rows.len(),
        report.seconds
    );
}

pub fn print_end(report: &Report) {
    let verdict = if report.ok { "everything as expected" } else { "SOMETHING DIFFERS, see above" };
    println!("\nsluice lab {}: {verdict} ({:.0} s)", report.lab, report.seconds);
}

fn title(gateway: &str) -> String {
    match gateway {
        "linux" => "plain Linux forwarding (no policies; only what must pass is run)".to_owned(),
        hook => format!("Sluice on the {hook} hook"),
    }
}

/// Rows of one zone pair with the same expectation share a line; whatever differs gets its own.
fn matrix(rows: &[Row]) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY).set_header(["from", "to", "tests", "expected", "seen", ""]);
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(WIDTH);
    for group in groups(rows) {
        let first = group[0];
        let tests: Vec<&str> = group.iter().map(|row| row.test.as_str()).collect();
        let seen = if first.ok {
            first.seen.verdict.to_string()
        } else {
            format!("{}: {}", first.seen.verdict, first.seen.text)
        };
        table.add_row([
            first.case.from.name(),
            first.case.to,
            &tests.join(", "),
            &first.case.expected.to_string(),
            &seen,
            if first.ok { "ok" } else { "DIFFERS" },
        ]);
    }
    table
}

fn groups(rows: &[Row]) -> Vec<Vec<&Row>> {
    let mut groups: Vec<Vec<&Row>> = vec![];
    for row in rows {
        let same = |group: &&mut Vec<&Row>| {
            let first = group[0];
            let key = |row: &Row| (row.case.from, row.case.to, row.case.expected, row.ok);
            first.ok && key(first) == key(row)
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.push(row),
            None => groups.push(vec![row]),
        }
    }
    groups
}

fn throughput(rows: &[&Row]) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY).set_header(["from", "to", "test", "throughput"]);
    for row in rows {
        table.add_row([row.case.from.name(), row.case.to, &row.test, &row.seen.text]);
    }
    align_right(&mut table, 3..4);
    table
}

fn print_stats(stats: &Stats) {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY);
    table.set_header(["interface", "attached", "received", "redirected", "slow path", "sessions made"]);
    for interface in &stats.interfaces {
        let counters = &interface.counters;
        let numbers = [counters.received, counters.redirected, counters.slow, counters.sessions];
        let words = [interface.name.clone(), interface.mode.clone()];
        table.add_row(words.into_iter().chain(numbers.map(|number| number.to_string())));
    }
    align_right(&mut table, 2..6);
    println!("{table}");
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY).set_header(["stage", "drop reason", "packets", "meaning"]);
    for drop in &stats.drops {
        table.add_row([&drop.stage, &drop.reason, &drop.packets.to_string(), &drop.help]);
    }
    align_right(&mut table, 2..3);
    println!("{table}");
    let sessions = &stats.sessions;
    println!(
        "Sessions: {} created, {} IPv4 and {} IPv6 in the table",
        stats.sessions_created(),
        sessions.v4,
        sessions.v6
    );
    println!("Conservation, counted in packets (GSO by segments):");
    let equations = &stats.equations;
    print_equation("received", "redirected + handed off + local + oversize + drops", &equations.ingress);
    print_equation(
        "redirected + handed off + resolved + unjudged + pieces + replies + originated",
        "sent + queued + drops",
        &equations.egress,
    );
}

fn print_equation(left: &str, right: &str, equation: &Equation) {
    let (sign, verdict) = if equation.holds() { ("=", "balanced") } else { ("!=", "NOT BALANCED") };
    println!("  {left} {} {sign} {} {right}: {verdict}", equation.left, equation.right);
}

fn align_right(table: &mut Table, columns: Range<usize>) {
    for index in columns {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}
