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
use crate::exit::{Failure, Outcome, read};

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
    let warn = |warning: &str| {
        eprintln!("sluice: warning: {warning}");
        Ok::<_, Failure>(())
    };
    tell(&forewarned(&query, |query| Ok(order(query)?), warn)?, args);
    Ok(ExitCode::SUCCESS)
}

/// What becomes of a commit that was to be confirmed within so many minutes.
pub fn rolled_back(done: &Committed, minutes: u32) -> String {
    match done.returns_unix_ms {
        Some(_) => {
            format!(
                "commit confirmed will be automatically rolled back in {minutes} minutes unless confirmed"
            )
        }
        None => "nothing has changed; nothing waits to be confirmed".to_owned(),
    }
}

/// Commits; who may be cut off by it, and then would read nothing of it, is warned before. The answer has the other warnings.
pub fn forewarned<E>(
    query: &CommitQuery,
    mut order: impl FnMut(&CommitQuery) -> Result<Committed, E>,
    mut warn: impl FnMut(&str) -> Result<(), E>,
) -> Result<Committed, E> {
    if query.connection.is_none() || query.check {
        return order(query);
    }
    let would = order(&CommitQuery { check: true, ..query.clone() })?;
    would.warnings.iter().try_for_each(|warning| warn(warning))?;
    let mut done = order(query)?;
    done.warnings.retain(|warning| !would.warnings.contains(warning));
    Ok(done)
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
        println!("{}", rolled_back(done, minutes));
    }
    println!("commit complete: generation {} in {} ms", done.generation, done.took_ms);
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// What it does for an operator on a connection, in order.
    fn steps(connection: Option<&str>, check: bool) -> Vec<String> {
        let steps = RefCell::new(vec![]);
        let query =
            CommitQuery { connection: connection.map(str::to_owned), check, ..CommitQuery::default() };
        let order = |query: &CommitQuery| {
            steps.borrow_mut().push(if query.check { "check" } else { "commit" }.to_owned());
            let warnings =
                ["cut off".to_owned()].into_iter().chain((!query.check).then(|| "slow".to_owned()));
            Ok::<_, ()>(Committed { warnings: warnings.collect(), ..Committed::default() })
        };
        let warn = |warning: &str| {
            steps.borrow_mut().push(warning.to_owned());
            Ok(())
        };
        let done = forewarned(&query, order, warn).unwrap();
        steps
            .into_inner()
            .into_iter()
            .chain(done.warnings.into_iter().map(|left| format!("left: {left}")))
            .collect()
    }

    #[test]
    fn who_may_be_cut_off_is_warned_before() {
        let ssh = Some("192.0.2.9 50022 192.0.2.1 22");
        assert_eq!(steps(ssh, false), ["check", "cut off", "commit", "left: slow"]);
        assert_eq!(steps(ssh, true), ["check", "left: cut off"]);
        assert_eq!(steps(None, false), ["commit", "left: cut off", "left: slow"]);
    }
}
