//! `sluice commit`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use sluice_control::api::Committed;
use sluice_control::{Client, encode};

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
    let path = format!("/api/commit?file={}", encode(&args.file.display().to_string()));
    let done: Committed = Client::new(&args.instance.state_dir).post(&path, &text)?;
    for warning in &done.warnings {
        eprintln!("sluice: warning: {warning}");
    }
    println!("commit complete: generation {} in {} ms", done.generation, done.took_ms);
    Ok(ExitCode::SUCCESS)
}
