//! `sluice commit`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use sluice_control::Client;
use sluice_control::api::CommitQuery;
use sluice_control::operations::configuration::COMMIT;

use crate::Instance;
use crate::exit::{Outcome, read};

#[derive(Args)]
pub struct CommitArgs {
    /// Configuration file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    instance: Instance,
}

pub fn commit(args: &CommitArgs) -> Outcome {
    let text = read(&args.file)?;
    let query = CommitQuery { file: Some(args.file.display().to_string()) };
    let done = Client::new(&args.instance.state_dir).order(&COMMIT, &query, &text)?;
    for warning in &done.warnings {
        eprintln!("sluice: warning: {warning}");
    }
    println!("commit complete: generation {} in {} ms", done.generation, done.took_ms);
    Ok(ExitCode::SUCCESS)
}
