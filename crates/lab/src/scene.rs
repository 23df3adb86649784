//! What the scenes of one function have in common: checks with what they saw, a report for each hook, printed or as data.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::args::RunArgs;
use crate::branch::Hook;
use crate::demo::remove_leftovers;
use crate::interrupt;

/// What a check saw.
#[derive(Debug, Serialize)]
pub struct Row {
    pub check: &'static str,
    pub ok: bool,
    pub saw: String,
}

/// What came of one hook.
pub trait HookReport: Serialize {
    fn is_ok(&self) -> bool;
    fn print(&self);
}

/// Plays a scene on each hook that is asked for.
pub fn on_hooks<R: HookReport>(args: &RunArgs, play: impl Fn(Hook) -> Result<R>) -> Result<ExitCode> {
    interrupt::install()?;
    remove_leftovers();
    let data_only = args.json.as_deref() == Some(Path::new("-"));
    let mut reports = vec![];
    for hook in args.hook.list() {
        let report = play(*hook)?;
        if !data_only {
            report.print();
        }
        reports.push(report);
    }
    if let Some(file) = &args.json {
        let text = serde_json::to_string_pretty(&reports)? + "\n";
        if data_only {
            print!("{text}");
        } else {
            fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
        }
    }
    Ok(if reports.iter().all(R::is_ok) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A line for each check, whose names have room for `width` characters.
pub fn print_rows(rows: &[Row], width: usize) {
    for row in rows {
        println!("  {} {:<width$} {}", if row.ok { "ok  " } else { "FAIL" }, row.check, row.saw);
    }
}
