//! Results on a terminal.

use std::fmt::Write;

use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{CellAlignment, ContentArrangement, Table as Grid};

use crate::method::document::RunDocument;
use crate::method::number::number;
use crate::method::result::{Check, Figure, Profile, SuiteResult, Table};
use crate::method::stats::Estimate;

/// Everything a person wants to read after a run.
pub fn document(document: &RunDocument) -> String {
    let mut text = String::new();
    for suite in &document.suites {
        text += &self::suite(suite);
    }
    let _ = writeln!(text, "\n{}", document.environment.lines());
    if document.profile == Profile::Quick {
        text += "Quick profile: few rounds, every figure is unconfirmed. Quote `--profile full`.\n";
    }
    text
}

pub fn suite(suite: &SuiteResult) -> String {
    let mut text = format!("\n{} ({:.0} s)\n", suite.suite, suite.seconds);
    if !suite.figures.is_empty() {
        let _ = writeln!(text, "{}", figures(suite));
    }
    for table in &suite.tables {
        let _ = writeln!(text, "{}\n{}", table.title, grid(table));
        if !table.note.is_empty() {
            let _ = writeln!(text, "{}", table.note);
        }
    }
    for check in &suite.checks {
        let _ = writeln!(text, "  {}", check_line(check));
    }
    for note in &suite.notes {
        let _ = writeln!(text, "  note: {note}");
    }
    for error in &suite.errors {
        let _ = writeln!(text, "  NOT MEASURED: {error}");
    }
    text
}

fn check_line(check: &Check) -> String {
    let mark = if check.passed { "[ok]  " } else { "[FAIL]" };
    format!("{mark} {}: {}", check.name, check.detail)
}

fn figures(suite: &SuiteResult) -> Grid {
    let mut columns: Vec<(&str, bool, Vec<String>)> =
        ["figure", "median", "95 %", "n", "to floor", "A/A", "floor", "remarks"]
            .map(|name| (name, !["figure", "floor", "remarks"].contains(&name), vec![]))
            .to_vec();
    for figure in &suite.figures {
        for (column, cell) in columns.iter_mut().zip(cells(figure, &suite.checks)) {
            column.2.push(cell);
        }
    }
    columns.retain(|(_, _, cells)| cells.iter().any(|cell| !cell.is_empty()));
    let mut grid = new_grid();
    grid.set_header(columns.iter().map(|(name, ..)| *name));
    for row in 0..suite.figures.len() {
        grid.add_row(columns.iter().map(|(_, _, cells)| &cells[row]));
    }
    let numeric: Vec<usize> = (0..columns.len()).filter(|column| columns[*column].1).collect();
    align_right(&mut grid, &numeric);
    grid
}

fn cells(figure: &Figure, suite: &[Check]) -> [String; 8] {
    let floor = figure.floor.as_ref();
    let ratio = figure.ratio.map(|ratio| format!("{:.2}x {}", ratio.value, interval(&ratio)));
    [
        figure.name.clone(),
        format!("{} {}", number(figure.estimate.value), figure.unit),
        interval(&figure.estimate),
        figure.estimate.n.to_string(),
        ratio.unwrap_or_default(),
        figure.same.map(|same| format!("{:.3}", same.value)).unwrap_or_default(),
        floor.map(|floor| format!("{} {}", number(floor.estimate.value), floor.name)).unwrap_or_default(),
        remarks(figure, suite),
    ]
}

/// What forbids quoting the figure alone, then the state of its validity checks.
pub fn remarks(figure: &Figure, suite: &[Check]) -> String {
    let checks: Vec<&Check> = figure.checks.iter().chain(suite).collect();
    let failed: Vec<&str> =
        checks.iter().filter(|check| !check.passed).map(|check| check.name.as_str()).collect();
    let mut remarks = vec![];
    if figure.unsteady {
        remarks.push("unsteady".to_owned());
    }
    if !figure.confirmed {
        remarks.push("unconfirmed".to_owned());
    }
    if failed.is_empty() {
        remarks.push(format!("{} checks", checks.len()));
    } else {
        remarks.push(format!("FAILED: {}", failed.join(", ")));
    }
    remarks.join(", ")
}

fn grid(table: &Table) -> Grid {
    let mut grid = new_grid();
    grid.set_header(table.header.clone());
    for row in &table.rows {
        grid.add_row(row.clone());
    }
    let numeric: Vec<usize> = (0..table.header.len()).filter(|column| is_numeric(table, *column)).collect();
    align_right(&mut grid, &numeric);
    grid
}

/// Whether most cells of a column begin like a number.
pub fn is_numeric(table: &Table, column: usize) -> bool {
    let cells = table.rows.iter().filter_map(|row| row.get(column)).filter(|cell| !cell.is_empty());
    let (numbers, all) = cells.fold((0, 0), |(numbers, all), cell| {
        let number = cell.starts_with(|c: char| c.is_ascii_digit() || "-+[<>=".contains(c));
        (numbers + usize::from(number), all + 1)
    });
    all > 0 && 2 * numbers > all
}

fn new_grid() -> Grid {
    let mut grid = Grid::new();
    grid.load_style(UTF8_BORDERS_ONLY).set_content_arrangement(ContentArrangement::Dynamic);
    grid
}

fn align_right(grid: &mut Grid, columns: &[usize]) {
    for index in columns {
        if let Some(column) = grid.column_mut(*index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

fn interval(estimate: &Estimate) -> String {
    format!("[{}, {}]", number(estimate.low), number(estimate.high))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method::result::Better;

    #[test]
    fn a_figure_never_stands_without_its_validity_checks() {
        let mut suite = SuiteResult::new("test");
        suite.checks.push(Check::new("no tracing", true, "fine"));
        let figure = Figure::new("rate", "Mpps", Better::Higher, vec![1.0, 1.0, 1.0]);
        suite.figures.push(figure.check(Check::new(
            "single pass",
            false,
            "10 packets, 5 of them for the first time",
        )));
        let text = super::suite(&suite);
        assert!(text.contains("FAILED: single pass") && text.contains("[ok]   no tracing: fine"), "{text}");
    }

    #[test]
    fn columns_of_numbers_are_recognised() {
        let rows = vec![vec!["a".to_owned(), "1.5".to_owned()], vec!["b".to_owned(), "-2".to_owned()]];
        let table = Table { header: vec!["x".to_owned(), "y".to_owned()], rows, ..Table::default() };
        assert!(!is_numeric(&table, 0) && is_numeric(&table, 1));
    }
}
