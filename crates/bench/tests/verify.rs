//! Rows of every kind, on both hooks and of both families, with the proof of what their packets came to.

use sluice_bench::method::progress::Progress;
use sluice_bench::method::result::{Profile, SuiteResult};
use sluice_bench::method::suite::{Context, Suite};
use sluice_bench::suites::prog::{self, RowSpec};
use sluice_bench::suites::{gate, gtpu, ladder, nat, peers};

const ROUNDS: usize = 1;
const REPEAT: u32 = 2000;
/// So many that a fault which comes once in 10,007 packets is among them.
const MANY: u32 = 10_100;

/// Rows of one family and protocol on both hooks.
fn rows(tables: &str, kinds: &[&str]) -> Vec<RowSpec> {
    let row = |hook: &str, kind: &&str| format!("{hook} {tables} {kind}").parse().unwrap();
    ["xdp", "tc"].iter().flat_map(|hook| kinds.iter().map(move |kind| row(hook, kind))).collect()
}

/// Every row is there, and every check of every row has passed.
fn proven(rows: Vec<RowSpec>, repeat: u32) {
    let wanted = rows.len();
    let options = prog::Options { rows, rounds: ROUNDS, repeat, capacity: Some(4000) };
    let prog::Outcome { rows, errors } = prog::run(&options, |_| ());
    assert!(errors.is_empty(), "{}", errors.join("\n"));
    assert_eq!(rows.len(), wanted);
    for row in rows {
        assert!(row.checks.len() >= 3 && row.checks.iter().all(|check| check.passed), "{:?}", row.checks);
    }
}

#[test]
fn established_packets_and_first_ones_leave_as_they_must_and_are_counted() {
    let kinds = ["established 1", "established 300", "new 300"];
    for (tables, repeat) in [("v4 udp", MANY), ("v4 tcp", REPEAT), ("v6 udp", REPEAT), ("v6 tcp", MANY)] {
        proven(rows(tables, &kinds), repeat);
    }
}

#[test]
fn the_policy_that_comes_first_decides() {
    proven(rows("v4 udp", &["established 300 rules 40", "new 300 rules 40"]), REPEAT);
    proven(rows("v6 tcp", &["new 300 rules 40"]), REPEAT);
}

#[test]
fn refused_packets_are_refused_for_the_right_reason_by_the_right_policy() {
    proven(rows("v4 udp", &["denied 300"]), REPEAT);
    proven(rows("v6 tcp", &["denied 300 rules 40", "miss 300"]), REPEAT);
}

#[test]
fn screens_change_nothing_for_those_who_do_no_harm() {
    proven(rows("v4 udp", &["established 300 screens", "new 300 screens"]), REPEAT);
    proven(rows("v6 tcp", &["established 300 screens"]), REPEAT);
    proven(rows("v4 udp", &["established 300 udp-flood"]), REPEAT);
}

/// One round of these rows alone.
fn context(rows: &[&str]) -> Context {
    Context {
        profile: Profile::Quick,
        rounds: 1,
        interfaces: None,
        peer: None,
        wanted: rows.iter().map(|row| (*row).to_owned()).collect(),
        progress: Progress::silent(),
    }
}

/// What a suite gives of these rows in one round.
fn run_suite(suite: &Suite, rows: &[&str]) -> SuiteResult {
    let result = (suite.run)(&context(rows)).unwrap();
    assert!(result.errors.is_empty(), "{}", result.errors.join("\n"));
    for row in rows {
        let figure = result.figure(row).unwrap_or_else(|| panic!("{} gives no row `{row}`", suite.name));
        let failed = figure.checks.iter().find(|check| !check.passed);
        assert!(failed.is_none(), "row `{row}`: {failed:?}");
    }
    result
}

#[test]
fn translated_packets_leave_as_they_must_in_both_directions() {
    let rows = [
        "xdp v4 udp established 10000",
        "tc v6 udp established 10000 answers",
        "xdp v6 udp new 10000",
        "tc nat64 udp new 10000",
    ];
    let result = run_suite(&nat::SUITE, &rows);
    for row in rows {
        let checks = &result.figure(row).unwrap().checks;
        assert!(checks.iter().any(|check| check.name == "output byte by byte"), "row `{row}`: {checks:?}");
    }
}

#[test]
fn grants_stand_beside_lists_and_keys_of_their_own_size() {
    let rows = ["alone v4 mixed 5000", "alone v6 accept 5000", "grants given 5000", "grants found 5000"];
    let result = run_suite(&gate::SUITE, &rows);
    let floor = |row: &str| result.figure(row).unwrap().floor.as_ref().unwrap().name.clone();
    assert_eq!((floor(rows[2]), floor(rows[3])), ("BPF_MAP_UPDATE_BATCH".into(), "HashMap get".into()));
}

#[test]
fn sluice_on_tc_stands_beside_linux_into_either_sink() {
    let rows = ["sluice tc", "sluice tc to a socket"];
    let result = run_suite(&peers::SUITE, &rows);
    assert_eq!(result.figures.len(), 4, "those two and Linux, nobody else has to run");
    for row in rows {
        assert_eq!(result.figure(row).unwrap().floor.as_ref().unwrap().name, "linux, the same sink");
    }
}

#[test]
fn the_user_plane_stands_beside_what_it_may_cost() {
    let rows = ["xdp uplink 10000 usage", "xdp uplink 10000 joined", "veth uplink 10000"];
    let result = run_suite(&gtpu::SUITE, &rows);
    assert_eq!(result.figures.len(), rows.len());
    assert_eq!(result.figure(rows[2]).unwrap().floor.as_ref().unwrap().name, "minimal redirect");
}

#[test]
fn as_many_frames_come_out_of_a_rung_as_were_sent() {
    let rungs = ["sluice gtp-u bare", "sluice full user plane", "sluice full user plane to a socket"];
    let context = context(&rungs);
    let result = (ladder::SUITE.run)(&context).unwrap();
    assert!(result.errors.is_empty(), "{}", result.errors.join("\n"));
    let table = &result.tables[0];
    let names: Vec<&str> = table.rows.iter().map(|row| &*row[1]).collect();
    assert_eq!(names, [rungs[2], rungs[0], rungs[1]]);
    let column = |name: &str| table.header.iter().position(|header| header == name).unwrap();
    for row in &table.rows {
        assert_eq!(row[column("tx")], row[column("rx")], "{row:?}");
    }
}
