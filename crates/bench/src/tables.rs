//! Tables for people; the same as JSON is `--json`.

use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{CellAlignment, Table};

use crate::published;
use crate::result;
use crate::stats::Estimate;
use crate::suites::budgets::{Judged, Verdict};
use crate::suites::prog::{Kind, Row};

/// One row in one line, printed as soon as it is measured.
pub fn prog_line(row: &Row) -> String {
    format!(
        "{:34} {:7.1} ns, floor {:7.1} ns, {}, raw {:.2}x, A/A {:.3}{}",
        row.name,
        row.target_ns.value,
        row.floor_ns.value,
        ratio(&row.ratio),
        row.ratio_raw.value,
        row.same_ratio.value,
        notes(row)
    )
}

/// What a reader must know before quoting the row. First packets all take the slow line.
fn notes(row: &Row) -> String {
    let mut notes = String::new();
    if row.unsteady {
        notes += ", unsteady";
    }
    if row.slow_packets > 0 && row.spec.kind == Kind::Established {
        notes += &format!(", {} packets took the slow line", row.slow_packets);
    }
    notes
}

/// The same rows with the wrapper left in: a smaller ratio, and not the one that is judged.
pub fn prog_table(rows: &[Row]) -> result::Table {
    let cells = |row: &Row| {
        vec![
            row.name.clone(),
            format!("{:.1}", row.wrapper_ns.value),
            format!("{:.1}", row.floor_raw_ns.value),
            format!("{:.1}", row.target_raw_ns.value),
            format!("{:.2}", row.ratio_raw.value),
            row.distinct_packets.to_string(),
            row.capacity.to_string(),
            row.slow_packets.to_string(),
        ]
    };
    let header = [
        "row",
        "wrapper",
        "raw floor",
        "raw sluice",
        "raw ratio",
        "distinct packets",
        "capacity",
        "slow line",
    ];
    result::Table {
        title: "Nanoseconds a packet with the wrapper left in".to_owned(),
        header: header.map(str::to_owned).to_vec(),
        rows: rows.iter().map(cells).collect(),
        note: "wrapper: prog-run's own cost, ring, header rebuild and one tail call to an empty program; figures have \
            their round's wrapper taken off. slow line: packets of all rounds that took it."
            .to_owned(),
    }
}

/// `colour`: escape sequences for a terminal.
pub fn budgets_table(judged: &[Judged], colour: bool) -> String {
    let mut table = Table::new();
    table
        .load_style(UTF8_BORDERS_ONLY)
        .set_header(["budget", "limit", "measured", "95 %", "verdict", "figures"]);
    for entry in judged {
        let budget = &entry.budget;
        let digits = if budget.unit == "x" { 2 } else { 3 };
        table.add_row([
            budget.name.clone(),
            published::limit(budget),
            entry.measured.map(|m| format!("{:.digits$}", m.value)).unwrap_or_else(|| "-".to_owned()),
            entry.measured.map(|m| interval(&m, digits)).unwrap_or_default(),
            published::verdict(entry),
            entry.remarks(),
        ]);
    }
    align_right(&mut table, 1..4);
    let text = table.to_string();
    if !colour {
        return text;
    }
    let paint = |line: &str| match line {
        _ if line.contains(Verdict::Missed.word()) => format!("\x1b[31m{line}\x1b[0m"),
        _ if line.contains(Verdict::NoVerdict.word()) => format!("\x1b[33m{line}\x1b[0m"),
        _ => line.to_owned(),
    };
    text.lines().map(paint).collect::<Vec<_>>().join("\n")
}

fn ratio(estimate: &Estimate) -> String {
    format!("{:.2}x {}", estimate.value, interval(estimate, 2))
}

fn interval(estimate: &Estimate, digits: usize) -> String {
    format!("[{:.digits$}, {:.digits$}]", estimate.low, estimate.high)
}

fn align_right(table: &mut Table, columns: std::ops::Range<usize>) {
    for index in columns {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suites::budgets::{Bound, Budget};

    fn judged(verdict: Verdict) -> Judged {
        let budget = Budget {
            name: "established".to_owned(),
            suite: "load".to_owned(),
            row: "default".to_owned(),
            floor: String::new(),
            bound: Bound::AtMost,
            limit: 2.0,
            unit: "x".to_owned(),
        };
        let measured = Some(Estimate { value: 2.5, low: 2.4, high: 2.6, n: 5 });
        let detail = "50 / 20 ns/packet".to_owned();
        Judged { budget, measured, verdict, certain: true, doubts: vec!["unsteady".to_owned()], detail }
    }

    #[test]
    fn each_verdict_has_its_colour() {
        for (verdict, colour) in [(Verdict::Missed, "\x1b[31m"), (Verdict::NoVerdict, "\x1b[33m")] {
            let text = budgets_table(&[judged(verdict), judged(Verdict::Kept)], true);
            let painted: Vec<&str> = text.lines().filter(|line| line.starts_with(colour)).collect();
            assert_eq!(painted.len(), 1, "{text}");
            assert!(painted[0].contains("<= 2 x") && painted[0].contains("[2.40, 2.60]"), "{text}");
            assert!(painted[0].contains("50 / 20 ns/packet; unsteady"), "{text}");
        }
        assert!(!budgets_table(&[judged(Verdict::Missed)], false).contains('\x1b'));
    }
}
