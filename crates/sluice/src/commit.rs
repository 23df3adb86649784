//! `sluice commit`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use sluice_control::Client;
use sluice_control::api::{CommitQuery, Committed};
use sluice_control::operations::NoArguments;
use sluice_control::operations::candidate::COMMIT_CANDIDATE;
use sluice_control::operations::configuration::{COMMIT, CONFIRM};

use crate::Instance;
use crate::exit::{Outcome, read};

#[derive(Args)]
pub struct CommitArgs {
    /// Configuration file; without one the candidate is committed
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Find everything that would be refused, and change nothing
    #[arg(long)]
    check: bool,
    /// Go back by itself after so long, unless `commit --confirm` or another commit comes first
    #[arg(long, value_name = "MINUTES", conflicts_with = "check")]
    confirmed: Option<u32>,
    /// Let a commit that waits for this word stay
    #[arg(long, conflicts_with_all = ["file", "check", "confirmed", "comment", "allow_empty"])]
    confirm: bool,
    /// Why, for the history
    #[arg(long, value_name = "TEXT")]
    comment: Option<String>,
    /// A configuration without a statement is meant: nothing passes, and nobody reaches this host
    #[arg(long)]
    allow_empty: bool,
    #[command(flatten)]
    instance: Instance,
}

/// What the history calls whoever uses these commands.
pub const CLIENT: &str = "cli";

/// Lines of what a commit has changed that are shown.
const SHOWN: usize = 40;

pub fn commit(args: &CommitArgs) -> Outcome {
    let client = Client::new(&args.instance.state_dir);
    if args.confirm {
        let done = client.ask(&CONFIRM, &NoArguments {})?.done;
        println!("{}", if done { "commit confirmed" } else { "no commit waits to be confirmed" });
        return Ok(ExitCode::SUCCESS);
    }
    let query = CommitQuery {
        file: args.file.as_ref().map(|file| file.display().to_string()),
        check: args.check,
        confirmed: args.confirmed,
        comment: args.comment.clone(),
        client: Some(CLIENT.to_owned()),
        connection: sluice_control::ssh_connection(),
        allow_empty: args.allow_empty,
    };
    let text = args.file.as_ref().map(|file| read(file)).transpose()?;
    let order = |query: &CommitQuery| match &text {
        Some(text) => client.order(&COMMIT, query, text),
        None => client.order(&COMMIT_CANDIDATE, query, ""),
    };
    // who is cut off by a commit reads nothing of it afterwards
    if query.connection.is_some() && !query.check {
        let would = order(&CommitQuery { check: true, ..query.clone() })?;
        would.warnings.iter().for_each(|warning| eprintln!("sluice: warning: {warning}"));
        let mut done = order(&query)?;
        done.warnings.retain(|warning| !would.warnings.contains(warning));
        tell(&done, args);
        return Ok(ExitCode::SUCCESS);
    }
    tell(&order(&query)?, args);
    Ok(ExitCode::SUCCESS)
}

fn tell(done: &Committed, args: &CommitArgs) {
    for warning in &done.warnings {
        eprintln!("sluice: warning: {warning}");
    }
    let lines: Vec<&str> = done.changes.lines().collect();
    lines.iter().take(SHOWN).for_each(|line| println!("{line}"));
    if lines.len() > SHOWN {
        let rest = match (args.check, &args.file) {
            (false, _) => "; `sluice compare 1 0` shows them",
            (true, None) => "; `sluice compare` shows them",
            (true, Some(_)) => "",
        };
        println!("... {} more lines{rest}", lines.len() - SHOWN);
    }
    if let Some(sessions) = done.sessions_ending.filter(|sessions| *sessions > 0) {
        let verb = if args.check { "would end" } else { "end" };
        println!("{sessions} sessions {verb}: no policy permits them any more");
    }
    if args.check {
        return println!("configuration check succeeds");
    }
    if let Some(minutes) = args.confirmed {
        println!("commit confirmed will be automatically rolled back in {minutes} minutes unless confirmed");
    }
    println!("commit complete: generation {} in {} ms", done.generation, done.took_ms);
}
