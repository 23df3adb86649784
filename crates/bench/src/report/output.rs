//! Where results go.

use std::path::PathBuf;

use anyhow::{Context as _, Result};

use crate::method::document::{self, RunDocument};
use crate::method::suite::Suite;
use crate::report::{csv, html};

/// Where results go besides the terminal.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct OutputArgs {
    /// Also write everything, every round's samples included, as JSON (docs/bench.schema.json); compressed where the name
    /// ends in .gz
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Also write the report: one HTML file that needs no network
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Also write figures and tables as CSV, one file each, into this folder
    #[arg(long, value_name = "FOLDER")]
    pub csv: Option<PathBuf>,
}

/// Writes what the user asked for.
pub fn write(document: &RunDocument, output: &OutputArgs, suites: &[Suite]) -> Result<()> {
    if let Some(path) = &output.json {
        document::write(document, path).with_context(|| format!("cannot write {}", path.display()))?;
        eprintln!("results: {}", path.display());
    }
    if let Some(path) = &output.html {
        std::fs::write(path, html::render(document, suites)?)
            .with_context(|| format!("cannot write {}", path.display()))?;
        eprintln!("report: {}", path.display());
    }
    if let Some(folder) = &output.csv {
        let files = csv::write(document, folder)?;
        eprintln!("CSV: {files} files in {}", folder.display());
    }
    Ok(())
}
