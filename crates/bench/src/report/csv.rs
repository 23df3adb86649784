//! Figures and tables for spreadsheets (RFC 4180).

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::method::document::RunDocument;

/// Writes `figures.csv` and a file for every table; returns how many files.
pub fn write(document: &RunDocument, folder: &Path) -> Result<usize> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make folder {}", folder.display()))?;
    let put = |name: &str, header: &[String], rows: &[Vec<String>]| {
        let path = folder.join(name);
        let lines = std::iter::once(header).chain(rows.iter().map(Vec::as_slice)).map(line);
        fs::write(&path, lines.collect::<String>())
            .with_context(|| format!("cannot write {}", path.display()))
    };
    let mut figures = vec![];
    let mut files = 1;
    for suite in &document.suites {
        for figure in &suite.figures {
            let of = figure.estimate;
            let numbers = [of.value, of.low, of.high].map(|number| number.to_string());
            let mut row = vec![suite.suite.clone(), figure.name.clone(), figure.unit.clone()];
            row.extend(numbers);
            row.push(figure.samples.len().to_string());
            figures.push(row);
        }
        for table in &suite.tables {
            put(&format!("{}-{}.csv", suite.suite, slug(&table.title)), &table.header, &table.rows)?;
            files += 1;
        }
    }
    let header = ["suite", "figure", "unit", "median", "low_95", "high_95", "rounds"].map(str::to_owned);
    put("figures.csv", &header, &figures)?;
    Ok(files)
}

fn slug(title: &str) -> String {
    let plain = title.to_lowercase().replace(|letter: char| !letter.is_ascii_alphanumeric(), "-");
    plain.split('-').filter(|word| !word.is_empty()).collect::<Vec<_>>().join("-")
}

fn line(cells: &[String]) -> String {
    cells.iter().map(|cell| quoted(cell)).collect::<Vec<_>>().join(",") + "\r\n"
}

fn quoted(cell: &str) -> String {
    if cell.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_with_commas_and_quotes_survive() {
        assert_eq!(
            line(&["a,b".to_owned(), "say \"x\"".to_owned(), "1".to_owned()]),
            "\"a,b\",\"say \"\"x\"\"\",1\r\n"
        );
        assert_eq!(
            slug("Distinct packets of one capture, one pass"),
            "distinct-packets-of-one-capture-one-pass"
        );
    }
}
