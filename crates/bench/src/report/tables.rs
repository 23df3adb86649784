//! Budgets on a terminal; the same as JSON is `--json`.

use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{CellAlignment, Table};

use crate::method::judge::{Judged, Verdict};
use crate::method::number::interval;
use crate::report::published;

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
    use crate::method::budget::{Bound, Budget};
    use crate::method::stats::Estimate;

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
