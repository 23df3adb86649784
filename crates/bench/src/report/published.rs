//! Verdicts in words: what terminal, report and the published pages have in common, and the tables that those pages get
//! from a run's results.

use std::collections::BTreeMap;

use crate::method::budget::Budget;
use crate::method::document::RunDocument;
use crate::method::environment::BPF_SOURCES;
use crate::method::judge::{Judged, Verdict, doubts};
use crate::method::number::number;
use crate::method::result::{Check, Figure, Profile};
use crate::method::stats::Estimate;

/// Raw results of the published tables.
pub const RESULTS: &str = "bench/results.json.gz";

/// Raw results of the published promises of GTP-U, which take minutes where all the others take an hour.
pub const GTPU: &str = "bench/gtpu.json.gz";

/// Raw results of the published ladder, whose soaks take hours.
pub const LADDER: &str = "bench/ladder.json.gz";

/// `<= 1.5 x`
pub fn limit(budget: &Budget) -> String {
    format!("{} {} {}", budget.bound.sign(), budget.limit, budget.unit)
}

/// `kept`, `missed` or `no verdict`.
pub fn verdict(entry: &Judged) -> String {
    let holds_limit = !entry.certain && entry.verdict != Verdict::NoVerdict;
    format!("{}{}", entry.verdict.word(), if holds_limit { " (interval holds the limit)" } else { "" })
}

/// How many there are, and how many of each verdict.
pub fn summary(judged: &[Judged]) -> String {
    let count = |verdict: Verdict| {
        let entries = judged.iter().filter(|entry| entry.verdict == verdict);
        format!("{} {}", entries.count(), verdict.word())
    };
    format!("{} budgets: {}", judged.len(), Verdict::ALL.map(count).join(", "))
}

/// How often each of these is there, the most frequent one first.
fn tally<'a>(words: impl Iterator<Item = &'a str>) -> String {
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for word in words {
        *kinds.entry(word).or_default() += 1;
    }
    let mut kinds: Vec<_> = kinds.into_iter().collect();
    kinds.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    kinds.iter().map(|(kind, count)| format!("{kind} ({count})")).collect::<Vec<_>>().join(", ")
}

/// How often each doubt was had; it stands before the colon, what was seen behind.
fn doubts_told(judged: &[Judged]) -> String {
    let doubts = judged.iter().flat_map(|entry| &entry.doubts);
    tally(doubts.map(|doubt| doubt.split(':').next().unwrap_or(doubt)))
}

/// On what, when and by which command something was measured.
fn run_told(document: &RunDocument) -> String {
    let machine = &document.environment;
    format!(
        "`{}`, {}, commit {}, {:.0} minutes: Linux {}, {} x {}, {} MiB, load {:.2} when it began, {:.1} % stolen.",
        document.command,
        document.began,
        machine.commit,
        document.seconds / 60.0,
        machine.kernel,
        machine.cpus,
        machine.cpu,
        machine.memory_mib,
        machine.load,
        machine.steal_percent,
    )
}

/// Whether figures are of other programs than these.
fn age(document: &RunDocument, bpf_sources: &str) -> &'static str {
    if document.environment.bpf_sources == bpf_sources {
        return "";
    }
    " **`bpf/` has changed since: these are figures of earlier programs.**"
}

/// How figures were measured, how budgets were kept, and whether the figures are of today's programs.
pub fn caption(document: &RunDocument, bpf_sources: &str) -> String {
    let mut text = format!("{} {}.", run_told(document), summary(&document.budgets));
    let told = doubts_told(&document.budgets);
    if !told.is_empty() {
        text += &format!(" Doubts: {told}.");
    }
    text + age(document, bpf_sources)
}

/// The ladder's table of rungs, and what its checks found.
pub fn ladder(document: &RunDocument) -> String {
    let mut text = run_told(document);
    if document.profile == Profile::Quick {
        text += " Quick profile: every figure is unconfirmed.";
    }
    text += age(document, BPF_SOURCES);
    let suite = document.suites.iter().find(|suite| suite.suite == "ladder");
    let Some((suite, table)) = suite.and_then(|suite| Some((suite, suite.tables.first()?))) else {
        return format!("{text}\n\nNot measured.\n");
    };
    let failed = |checks: &[Check]| checks.iter().filter(|check| !check.passed).cloned().collect::<Vec<_>>();
    let whole: Vec<String> =
        failed(&suite.checks).iter().map(|check| format!("{} ({})", check.name, check.detail)).collect();
    if !whole.is_empty() {
        text += &format!(" Checks that failed: {}.", whole.join("; "));
    }
    let of_figures: Vec<Check> = suite.figures.iter().flat_map(|figure| failed(&figure.checks)).collect();
    if !of_figures.is_empty() {
        let told = tally(of_figures.iter().map(|check| check.name.as_str()));
        text += &format!(" Doubts about figures, {} in all: {told}.", suite.figures.len());
    }
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let rows: String = table.rows.iter().map(|row| line(row)).collect();
    let ruler = "---|".repeat(table.header.len());
    format!("{text}\n\n{}|{ruler}\n{rows}\n{}\n", line(&table.header), table.note)
}

/// Every budget of these runs; those of one subject share a line. What is promised beside them is named as not measured.
pub fn budgets(documents: &[RunDocument], promised: &[Budget]) -> String {
    let mut lines: Vec<(String, Vec<String>)> = vec![];
    for entry in documents.iter().flat_map(|document| &document.budgets) {
        let (variant, subject) = told_apart(&entry.budget.name);
        let colon = if variant.is_empty() { "" } else { ": " };
        let told = format!("{variant}{colon}{}, {}", limit(&entry.budget), cell(entry));
        match lines.iter_mut().find(|(other, _)| *other == subject) {
            Some((_, cells)) => cells.push(told),
            None => lines.push((subject, vec![told])),
        }
    }
    let rows = lines.iter().map(|(subject, cells)| format!("| {subject} | {} |\n", cells.join("<br>")));
    let header = "| promise | limit, measured, 95 %, verdict |\n|---|---|\n";
    let captions: Vec<String> = documents.iter().map(|document| caption(document, BPF_SOURCES)).collect();
    let missing = not_measured(documents, promised);
    format!("{}{missing}\n\n{header}{}", captions.join("<br>\n"), rows.collect::<String>())
}

/// Promises that none of the runs knows: their number and their names.
fn not_measured(documents: &[RunDocument], promised: &[Budget]) -> String {
    let row = |budget: &Budget| (budget.suite.clone(), budget.row.clone());
    let known = |promise: &Budget| {
        documents.iter().flat_map(|run| &run.budgets).any(|entry| row(&entry.budget) == row(promise))
    };
    let missing = promised.iter().filter(|promise| !known(promise));
    let names: Vec<&str> = missing.map(|promise| promise.name.as_str()).collect();
    match names.len() {
        0 => String::new(),
        count => {
            format!(" **Not measured: {count}** promises of `bench/budgets.toml`: {}.", names.join("; "))
        }
    }
}

/// What tells a budget apart from others of its subject, and the subject: what stands before the first colon or comma,
/// without hook and family.
fn told_apart(name: &str) -> (String, String) {
    let mut rest = name.to_owned();
    let mut variant = String::new();
    for word in ["xdp ", "tc ", "IPv4 ", "IPv6 "] {
        if let Some(without) = rest.strip_prefix(word) {
            variant += word;
            rest = without.to_owned();
        }
    }
    let end = rest.find([':', ',']).filter(|end| rest[end + 1..].starts_with(' ')).unwrap_or(rest.len());
    let more = rest.get(end + 2..).unwrap_or_default();
    (format!("{variant}{more}").trim().to_owned(), rest[..end].to_owned())
}

fn cell(entry: &Judged) -> String {
    let measured = entry.measured.map(|measured| format!("{} ", value(&measured, &entry.budget.unit)));
    let verdict = match entry.verdict {
        Verdict::Missed => format!("**{}**", self::verdict(entry)),
        _ => self::verdict(entry),
    };
    format!("{}{verdict}", measured.unwrap_or_default())
}

fn value(measured: &Estimate, unit: &str) -> String {
    let Estimate { value, low, high, .. } = *measured;
    let told = |value: f64| if unit == "x" { format!("{value:.2}") } else { number(value) };
    format!("{} [{}, {}]", told(value), told(low), told(high))
}

/// Rows of the budgets that the front page shows: what it is, then suite and row.
const PROMISED: [(&str, &str, &str); 15] = [
    ("established, 10,000 flows, XDP, to a hash lookup", "prog", "xdp v4 udp established 10000"),
    ("the same on tc", "prog", "tc v4 udp established 10000"),
    ("established, 1,000,000 flows, XDP, to a hash lookup", "prog", "xdp v4 udp established 1000000"),
    ("the same on tc", "prog", "tc v4 udp established 1000000"),
    ("new session, 10,000 flows, XDP, to two inserts", "prog", "xdp v4 udp new 10000"),
    ("the same on tc", "prog", "tc v4 udp new 10000"),
    ("the same with 10,000 policies, XDP", "prog", "xdp v4 udp new 10000 rules 10000"),
    ("the same on tc", "prog", "tc v4 udp new 10000 rules 10000"),
    ("new session, 1,000,000 flows, XDP, to two inserts", "prog", "xdp v4 udp new 1000000"),
    ("the same on tc", "prog", "tc v4 udp new 1000000"),
    ("64-byte frames, XDP, into an XDP sink, to nftables", "frames", "udp 64 bytes, 10000 flows"),
    ("the same with source NAT, to masquerade", "nat", "64-byte frames into an XDP sink"),
    ("iperf3 on tc, 1 stream, to Linux forwarding", "bulk", "tc 1 streams to linux"),
    ("iperf3 on tc, 4 streams, to Linux forwarding", "bulk", "tc 4 streams to linux"),
    ("monitor, 64-byte frames, one core", "monitor", "64 B: analysed"),
];

/// Suites of which the front page shows figures that nobody has promised.
pub const UNPROMISED_SUITES: [&str; 1] = ["peers"];

/// Each hook into each sink: the next device takes XDP frames, or makes an skb of each.
const UNPROMISED: [(&str, &str, &str); 4] = [
    ("64-byte frames, XDP, next device takes XDP frames, to nftables", "peers", "sluice xdp"),
    ("64-byte frames, XDP, next device makes an skb, to nftables", "peers", "sluice xdp to a socket"),
    ("64-byte frames, tc, next device takes XDP frames, to nftables", "peers", "sluice tc"),
    ("64-byte frames, tc, next device makes an skb, to nftables", "peers", "sluice tc to a socket"),
];

/// The front page's table.
pub fn headline(document: &RunDocument) -> String {
    let mut rows = String::new();
    for (what, suite, row) in PROMISED {
        let entry =
            document.budgets.iter().find(|entry| (&*entry.budget.suite, &*entry.budget.row) == (suite, row));
        let (limit, cell) = match entry {
            Some(entry) => (limit(&entry.budget), cell(entry)),
            None => (String::new(), "not measured".to_owned()),
        };
        rows += &format!("| {what} | {limit} | {cell} |\n");
    }
    for (what, suite, figure) in UNPROMISED {
        rows += &format!("| {what} | none | {} |\n", unpromised(document, suite, figure));
    }
    let header = "| what, to what | promised | measured, 95 %, verdict |\n|---|---|---|\n";
    format!("{}\n\n{header}{rows}", caption(document, BPF_SOURCES))
}

fn unpromised(document: &RunDocument, suite: &str, name: &str) -> String {
    let suite = document.suites.iter().find(|one| one.suite == suite);
    let figure: Option<&Figure> = suite.and_then(|suite| suite.figure(name));
    let Some((figure, ratio)) = figure.and_then(|figure| Some((figure, figure.ratio?))) else {
        return "not measured".to_owned();
    };
    let checks = suite.map(|suite| &suite.checks[..]).unwrap_or_default();
    let sure = doubts(figure, &ratio, None, checks).is_empty();
    format!("{}{}", value(&ratio, "x"), if sure { "" } else { " no verdict" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method::judge::judge;
    use crate::method::result::{Better, SuiteResult, Table};
    use crate::suites::budgets::Budgets;

    fn document() -> RunDocument {
        let text = include_str!("../../../../bench/budgets.toml");
        let mut document = crate::method::run::begin(Profile::Full);
        document.budgets = judge(&Budgets::parse(text).unwrap().budget, &[]);
        document
    }

    #[test]
    fn every_budget_stands_in_the_table_and_variants_share_a_line() {
        let document = document();
        let table = budgets(std::slice::from_ref(&document), &[]);
        assert_eq!(
            table.matches("no verdict").count(),
            document.budgets.len() + 1,
            "each once, and the caption"
        );
        let line = table.lines().find(|line| line.starts_with("| UDP established |")).unwrap();
        for variant in ["xdp IPv4", "xdp IPv6", "tc IPv4", "tc IPv6"] {
            assert!(line.contains(&format!("{variant} 1 flow: <= 2 x, no verdict")), "{line}");
        }
        assert!(table.contains("Doubts: not measured"), "{table}");
    }

    #[test]
    fn promises_that_no_run_knows_are_named() {
        let mut document = document();
        let promised: Vec<Budget> = document.budgets.iter().map(|entry| entry.budget.clone()).collect();
        let all = budgets(std::slice::from_ref(&document), &promised);
        assert!(!all.contains("Not measured"), "{all}");
        document.budgets.remove(7);
        let table = budgets(&[document], &promised);
        let told = format!("**Not measured: 1** promises of `bench/budgets.toml`: {}.", promised[7].name);
        assert!(table.contains(&told), "{table}");
    }

    #[test]
    fn the_caption_says_of_which_programs_it_is() {
        let mut document = document();
        assert!(!caption(&document, BPF_SOURCES).contains("changed"));
        document.environment.bpf_sources = "0123".to_owned();
        assert!(caption(&document, BPF_SOURCES).contains("`bpf/` has changed since"));
        assert!(headline(&document).contains("changed") && budgets(&[document], &[]).contains("changed"));
    }

    #[test]
    fn the_ladder_is_told_with_how_it_was_measured_and_what_failed() {
        let mut document = crate::method::run::begin(Profile::Quick);
        assert!(ladder(&document).contains("Not measured"));
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let table = Table {
            header: words(&["rung", "10 Gb/s"]),
            rows: vec![words(&["raw", "0"])],
            ..Table::default()
        };
        let check = Check::new("soak", false, "5 sent, 4 received");
        let figure = Figure::new("raw", "Gb/s", Better::Higher, vec![2.0]);
        let figure = figure.check(Check::new("machine to ourselves", false, "a compiler"));
        document.suites = vec![SuiteResult {
            figures: vec![figure],
            tables: vec![table],
            checks: vec![check],
            ..SuiteResult::new("ladder")
        }];
        let text = ladder(&document);
        assert!(text.contains("| rung | 10 Gb/s |\n|---|---|\n| raw | 0 |\n"), "{text}");
        assert!(text.contains("unconfirmed") && text.contains("soak (5 sent, 4 received)"), "{text}");
        assert!(text.contains("Doubts about figures, 1 in all: machine to ourselves (1)."), "{text}");
    }

    #[test]
    fn the_front_page_shows_promises_that_exist() {
        let document = document();
        for (_, suite, row) in PROMISED {
            let named = |entry: &&Judged| (&*entry.budget.suite, &*entry.budget.row) == (suite, row);
            assert_eq!(document.budgets.iter().filter(named).count(), 1, "{suite} {row}");
        }
        assert_eq!(headline(&document).matches("not measured |").count(), UNPROMISED.len());
    }

    #[test]
    fn figures_that_nobody_promised_are_doubted_as_well() {
        let mut document = document();
        let figure = Figure::new("sluice xdp", "Mpps", Better::Higher, vec![3.0; 3]);
        let figure = figure.against("nftables", &[1.0; 3]);
        document.suites.push(SuiteResult { figures: vec![figure], ..SuiteResult::new("peers") });
        assert_eq!(unpromised(&document, "peers", "sluice xdp"), "3.00 [3.00, 3.00] no verdict");
        assert_eq!(unpromised(&document, "peers", "sluice tc"), "not measured");
    }
}
