//! The published pages: suites as the program tells them, tables as the raw results have them, and no figure by hand.

mod mutants;

use std::path::{Path, PathBuf};

use sluice_bench::method::document::{self, RunDocument};
use sluice_bench::report::published;
use sluice_bench::suites::SUITES;
use sluice_bench::suites::budgets::Budgets;

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)
}

fn read(name: &str) -> String {
    std::fs::read_to_string(path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn results(name: &str) -> RunDocument {
    document::read(&path(name)).unwrap()
}

const PAGES: [&str; 2] = ["README.md", "docs/BENCH.md"];

/// A page around one of its generated parts: before, the part, after.
fn split<'a>(page: &'a str, part: &str) -> [&'a str; 3] {
    let begin =
        format!("<!-- {part}:begin, written by UPDATE=1 cargo test -p sluice-bench --test all docs:: -->\n");
    let (before, rest) = page.split_once(&begin).unwrap_or_else(|| panic!("`{begin}` is missing"));
    let (inside, _) = rest.split_once(&format!("<!-- {part}:end -->")).expect("the end marker is missing");
    let front = before.len() + begin.len();
    [&page[..front], inside, &page[front + inside.len()..]]
}

fn is_as_written(name: &str, part: &str, text: &str) {
    let page = read(name);
    let [before, found, after] = split(&page, part);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path(name), format!("{before}\n{text}\n{after}")).unwrap();
    } else {
        assert!(
            found == format!("\n{text}\n"),
            "{name}, {part}: not up to date: UPDATE=1 cargo test -p sluice-bench --test all docs::"
        );
    }
}

/// One test, since two of the parts stand on one page.
#[test]
fn the_pages_tell_what_program_and_results_do() {
    let suites = SUITES.iter().map(|suite| format!("| `{}` | {} |\n", suite.name, suite.help));
    let suites = format!("| suite | what it measures |\n|---|---|\n{}", suites.collect::<String>());
    is_as_written("docs/BENCH.md", "suites", &suites);
    let runs = [published::RESULTS, published::GTPU].map(results);
    let promised = Budgets::read(&path("bench/budgets.toml")).unwrap().budget;
    let budgets = published::budgets(&runs, &promised);
    is_as_written("docs/BENCH.md", "budgets", &budgets);
    for promise in &promised {
        let rows = || runs.iter().flat_map(|run| &run.budgets).map(|entry| &entry.budget);
        let is_known = rows().any(|row| (&row.suite, &row.row) == (&promise.suite, &promise.row));
        assert!(is_known || budgets.contains(&promise.name), "{} is promised and not told", promise.name);
    }
    is_as_written("docs/BENCH.md", "mutants", &mutants::table());
    is_as_written("README.md", "figures", &published::headline(&runs[0]));
    is_as_written("README.md", "ladder", &published::ladder(&results(published::LADDER)));
    let lines = read("docs/BENCH.md").lines().count();
    assert!(lines <= 250, "docs/BENCH.md has {lines} lines");
}

/// Numbers with these units behind them are measurements.
const UNITS: [&str; 6] = ["ns", "us", "mpps", "gb/s", "times", "million"];

fn measurements(text: &str) -> Vec<String> {
    let trimmed = |word: &str| word.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase();
    let words: Vec<String> = text.split_whitespace().map(trimmed).collect();
    let is_number = |word: &str| word.starts_with(|c: char| c.is_ascii_digit());
    let pairs = words.windows(2).filter(|pair| is_number(&pair[0]) && UNITS.contains(&pair[1].as_str()));
    pairs.map(|pair| pair.join(" ")).collect()
}

#[test]
fn no_measurement_is_written_by_hand() {
    assert_eq!(measurements("takes 5.1 times as long, (21 ns), of 95 %"), ["5.1 times", "21 ns"]);
    let by_hand = |name: &str, parts: &[&str]| {
        let mut page = read(name);
        for part in parts {
            let [before, _, after] = split(&page, part);
            page = format!("{before}{after}");
        }
        measurements(&page)
    };
    assert_eq!(by_hand("docs/BENCH.md", &["suites", "budgets"]), [""; 0]);
    assert_eq!(by_hand("README.md", &["figures", "ladder"]), [""; 0]);
}

#[test]
fn every_page_with_figures_names_method_raw_results_and_command() {
    for name in PAGES {
        let page = read(name);
        for named in [published::RESULTS, "sluice bench budgets"] {
            assert!(page.contains(named), "{name} does not name {named}");
        }
    }
    assert!(read("docs/BENCH.md").contains(published::GTPU));
    assert!(read("README.md").contains("docs/BENCH.md"));
}

#[test]
fn every_suite_says_what_it_does_not_say() {
    for suite in SUITES {
        assert!(suite.says.ends_with('.') && !suite.help.ends_with('.'), "{}", suite.name);
        assert!(!suite.silent.is_empty(), "{} claims to say everything", suite.name);
        assert!(suite.silent.iter().all(|sentence| sentence.ends_with('.')), "{}", suite.name);
    }
}
