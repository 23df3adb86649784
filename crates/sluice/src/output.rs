//! How commands print what the daemon has answered: as a table, or as it came.

use std::process::ExitCode;

use clap::Args;
use comfy_table::{CellAlignment, Table};
use serde::de::DeserializeOwned;
use sluice_control::operations::Operation;
use sluice_control::{Client, ClientError};

use crate::exit::{FAILED, Failure, Outcome};

/// Where from and in which form.
#[derive(Args, Clone)]
pub struct Output {
    /// Print data instead of a table
    #[arg(long, global = true)]
    pub json: bool,
    /// Directory of the gateway's state, lock and socket
    #[arg(long, global = true, value_name = "DIR", default_value = sluice_control::DEFAULT_STATE_DIR)]
    state_dir: std::path::PathBuf,
}

impl Output {
    pub fn state_dir(&self) -> &std::path::Path {
        &self.state_dir
    }

    /// What the daemon has answered.
    pub fn print<T: serde::Serialize>(&self, value: &T, print: impl Fn(&T)) -> Outcome {
        if self.json {
            print_json(value)?;
        } else {
            print(value);
        }
        Ok(ExitCode::SUCCESS)
    }

    /// What an operation answers.
    pub fn show<A: serde::Serialize, T: DeserializeOwned + serde::Serialize>(
        &self,
        operation: &Operation<A, T>,
        arguments: &A,
        print: impl Fn(T),
    ) -> Outcome {
        let (value, code) = self.ask(operation, arguments)?;
        if self.json {
            print_json(&value)?;
        } else {
            print(value);
        }
        Ok(code)
    }

    /// Of the daemon; when it says nothing, of what it has left in the data plane. That is a failure nevertheless.
    pub fn ask<A: serde::Serialize, T: DeserializeOwned>(
        &self,
        operation: &Operation<A, T>,
        arguments: &A,
    ) -> Result<(T, ExitCode), Failure> {
        let silent = match Client::new(&self.state_dir).ask(operation, arguments) {
            Ok(value) => return Ok((value, ExitCode::SUCCESS)),
            Err(error @ ClientError::Silent { .. }) => error,
            Err(error) => return Err(error.into()),
        };
        let without = |error: &dyn std::fmt::Display| {
            Failure::failed(format!("{silent}, and without it that cannot be told: {error}"))
        };
        let value = sluice_control::offline_answer(&self.state_dir, operation, arguments)
            .map_err(|error| without(&error))?;
        eprintln!("sluice: {silent}; what follows is read from the maps and the last commit");
        Ok((value, ExitCode::from(FAILED)))
    }
}

pub fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    println!("{}", serde_json::to_string_pretty(value).map_err(Failure::failed)?);
    Ok(())
}

pub fn up_or_down(is_up: bool) -> &'static str {
    if is_up { "up" } else { "down" }
}

/// A plain table; columns of numbers are aligned to the right.
pub fn table(header: &[&str], rows: Vec<Vec<String>>) -> Table {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header(header);
    let numeric: Vec<bool> = (0..header.len())
        .map(|column| !rows.is_empty() && rows.iter().all(|r| r[column].chars().all(|c| c.is_ascii_digit())))
        .collect();
    table.add_rows(rows);
    for (column, numeric) in numeric.into_iter().enumerate() {
        if let Some(column) = table.column_mut(column).filter(|_| numeric) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_to_the_right() {
        let rows = vec![vec!["a".to_owned(), "7".to_owned()], vec!["b".to_owned(), "1234".to_owned()]];
        let text = table(&["Name", "Packets"], rows).to_string();
        assert!(text.lines().nth(1).unwrap().trim_end().ends_with("   7"), "{text}");
    }
}
