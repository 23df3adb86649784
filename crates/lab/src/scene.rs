//! What the scenes of one function have in common: checks with what they saw, a report for each hook, printed or as data.

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::args::RunArgs;
use crate::branch::Hook;
use crate::gateway::Gateway;
use crate::netns::Netns;
use crate::state::remove_leftovers;
use crate::{interrupt, stats};

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

/// A gateway of this program with a configuration, ready to be started.
pub fn gateway<'a>(netns: &'a Netns, state: &Path, file: &str, text: &str) -> Result<Gateway<'a>> {
    let configuration = state.join(file);
    fs::write(&configuration, text)?;
    let program = std::env::current_exe().context("cannot find the sluice binary")?;
    Gateway::new(&program, netns, &configuration, state)
}

/// The last check of a scene is whether the gateway's account holds; if any failed, it has the last words.
pub fn finish(gateway: Gateway<'_>, rows: &mut Vec<Row>) -> Result<()> {
    thread::sleep(Duration::from_millis(300));
    let equations = stats::at_rest(&gateway)?.equations;
    rows.push(Row { check: "every packet is accounted for", ok: equations.hold(), saw: String::new() });
    if rows.iter().any(|row| !row.ok) {
        eprintln!("last words of the daemon:\n{}", gateway.last_words());
    }
    gateway.finish()
}

/// A line for each check, whose names have room for `width` characters.
pub fn print_rows(rows: &[Row], width: usize) {
    for row in rows {
        println!("  {} {:<width$} {}", if row.ok { "ok  " } else { "FAIL" }, row.check, row.saw);
    }
}
