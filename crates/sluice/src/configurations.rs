//! `sluice load`, `rollback`, `compare`, `history` and `rescue`: configurations that are not, or no longer, in force.

use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;

use chrono::{DateTime, Local};
use clap::{Args, Subcommand, ValueEnum};
use sluice_control::api::{CommitView, CompareQuery, Edited, LoadQuery, RollbackQuery};
use sluice_control::operations::NoArguments;
use sluice_control::operations::candidate::{COMPARE, LOAD_CANDIDATE, ROLLBACK};
use sluice_control::operations::configuration::HISTORY;
use sluice_control::operations::rescue::{DELETE_RESCUE, SAVE_RESCUE};
use sluice_control::{Client, Options, Restored, restore};
use sluice_fanout::Names;

use crate::Instance;
use crate::commit::CLIENT;
use crate::exit::{FAILED, Failure, Outcome, read};
use crate::output::{Output, table};

#[derive(Args)]
pub struct LoadArgs {
    /// What the text does to the candidate
    #[arg(value_enum)]
    mode: Mode,
    /// Configuration file; `-` reads standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Words before those of each statement, as in a `set` command
    #[arg(long, value_name = "WORDS")]
    path: Option<String>,
    #[command(flatten)]
    instance: Instance,
}

#[derive(Clone, Copy, ValueEnum)]
enum Mode {
    /// Its statements come to those that are there
    Merge,
    /// It is all that is there
    Override,
    /// Like merge, and what is marked `replace:` stands for what was there
    Replace,
    /// It consists of commands: set, delete, ...
    Set,
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Self::Merge => "merge",
            Self::Override => "override",
            Self::Replace => "replace",
            Self::Set => "set",
        }
    }
}

pub fn load(args: &LoadArgs) -> Outcome {
    let (text, file) = if args.file.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map_err(Failure::bad_input)?;
        (text, "(standard input)".to_owned())
    } else {
        (read(&args.file)?, args.file.display().to_string())
    };
    let query = LoadQuery {
        mode: args.mode.name().to_owned(),
        path: args.path.clone(),
        file: Some(file),
        client: Some(CLIENT.to_owned()),
    };
    let edited = Client::new(&args.instance.state_dir).order(&LOAD_CANDIDATE, &query, &text)?;
    tell(&edited);
    Ok(ExitCode::SUCCESS)
}

fn tell(edited: &Edited) {
    for warning in &edited.warnings {
        eprintln!("sluice: warning: {warning}");
    }
    println!(
        "load complete: {}",
        match edited.changed {
            true => "`sluice compare` shows what a commit changes, `sluice commit` puts it in force",
            false => "the candidate is what is in force",
        }
    );
}

#[derive(Args)]
pub struct RollbackArgs {
    /// Number in the history: 1 is the configuration before the one in force, 0 the one in force
    #[arg(value_name = "N", required_unless_present_any = ["rescue", "if_unconfirmed"])]
    number: Option<u32>,
    /// The rescue configuration
    #[arg(long, conflicts_with = "number")]
    rescue: bool,
    /// Only if a commit was not confirmed in time, and also when no daemon is there: puts the configuration before it in force
    ///
    /// For a timer. A daemon that is there does it by itself.
    #[arg(long, conflicts_with_all = ["number", "rescue"])]
    if_unconfirmed: bool,
    #[command(flatten)]
    instance: Instance,
}

pub fn rollback(args: &RollbackArgs) -> Outcome {
    if args.if_unconfirmed {
        return if_unconfirmed(args);
    }
    let query = RollbackQuery { number: args.number, rescue: args.rescue, client: Some(CLIENT.to_owned()) };
    tell(&Client::new(&args.instance.state_dir).ask(&ROLLBACK, &query)?);
    Ok(ExitCode::SUCCESS)
}

fn if_unconfirmed(args: &RollbackArgs) -> Outcome {
    if Client::new(&args.instance.state_dir).is_answered() {
        println!("the daemon is there: it goes back by itself when a commit is not confirmed in time");
        return Ok(ExitCode::SUCCESS);
    }
    let options = Options {
        config: None,
        override_store: false,
        wait: false,
        state_dir: args.instance.state_dir.clone(),
        bpffs: None,
        translate: None,
        names: Names::default(),
        listen: None,
        frr_pathspace: None,
        listen_names: vec![],
    };
    match restore(&options)? {
        Restored::Nothing => println!("no commit waits to be confirmed"),
        Restored::Waiting(left) => println!("a commit has {} s left to be confirmed", left.as_secs()),
        Restored::Back => {
            println!("the commit was not confirmed in time: the configuration before it is in force")
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[derive(Args)]
pub struct CompareArgs {
    /// Number in the history that the candidate is compared with; the configuration in force when not given
    #[arg(value_name = "N")]
    from: Option<u32>,
    /// Number in the history to compare it with, instead of the candidate
    #[arg(value_name = "M")]
    to: Option<u32>,
    /// Words that lead to the part to compare, as in a `set` command
    #[arg(long, value_name = "WORDS")]
    path: Option<String>,
    #[command(flatten)]
    output: Output,
}

/// Like `diff`, it fails where something differs only with data that it cannot tell.
pub fn compare(args: &CompareArgs) -> Outcome {
    let query = CompareQuery { from: args.from, to: args.to, path: args.path.clone() };
    args.output.show(&COMPARE, &query, |comparison| print!("{}", comparison.text))
}

#[derive(Args)]
pub struct HistoryArgs {
    #[command(flatten)]
    output: Output,
}

pub fn history(args: &HistoryArgs) -> Outcome {
    args.output.show(&HISTORY, &NoArguments {}, |commits| {
        let header = ["Number", "Time", "User", "By", "File", "Comment"];
        println!("{}", table(&header, commits.iter().map(row).collect()));
    })
}

fn row(commit: &CommitView) -> Vec<String> {
    let remark = match (&commit.damage, commit.returns_unix_ms) {
        (Some(why), _) => format!("(damaged: {why})"),
        (None, Some(at)) => format!("(not confirmed; goes back at {})", time(at)),
        (None, None) => String::new(),
    };
    let comment = [commit.comment.clone().unwrap_or_default(), remark];
    let comment: Vec<String> = comment.into_iter().filter(|part| !part.is_empty()).collect();
    vec![
        commit.number.to_string(),
        time(commit.unix_ms),
        commit.user.clone(),
        commit.client.clone(),
        commit.file.clone(),
        comment.join(" "),
    ]
}

fn time(unix_ms: u64) -> String {
    let at = i64::try_from(unix_ms).ok().filter(|at| *at > 0).and_then(DateTime::from_timestamp_millis);
    at.map_or_else(|| "-".to_owned(), |at| at.with_timezone(&Local).format("%Y-%m-%d %H:%M:%S").to_string())
}

#[derive(Args)]
pub struct RescueArgs {
    #[command(subcommand)]
    command: RescueCommand,
}

#[derive(Subcommand)]
enum RescueCommand {
    /// Save the configuration in force as the rescue configuration
    Save(Instance),
    /// Make the candidate the rescue configuration
    Load(Instance),
    /// Delete the rescue configuration
    Delete(Instance),
}

pub fn rescue(args: &RescueArgs) -> Outcome {
    match &args.command {
        RescueCommand::Save(instance) => {
            Client::new(&instance.state_dir).ask(&SAVE_RESCUE, &NoArguments {})?;
            println!("the configuration in force is the rescue configuration");
        }
        RescueCommand::Load(instance) => {
            let query =
                RollbackQuery { rescue: true, client: Some(CLIENT.to_owned()), ..RollbackQuery::default() };
            tell(&Client::new(&instance.state_dir).ask(&ROLLBACK, &query)?);
        }
        RescueCommand::Delete(instance) => {
            if !Client::new(&instance.state_dir).ask(&DELETE_RESCUE, &NoArguments {})?.done {
                println!("no rescue configuration is saved");
                return Ok(ExitCode::from(FAILED));
            }
            println!("the rescue configuration is deleted");
        }
    }
    Ok(ExitCode::SUCCESS)
}
