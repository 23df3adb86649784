//! `sluice completion` and `sluice man`: what shells and manual pages know of the commands, printed from the commands themselves.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Command, ValueEnum};
use clap_complete::Shell;

use crate::exit::{Failure, Outcome};

#[derive(Args)]
pub struct CompletionArgs {
    /// For which shell
    shell: Completed,
}

#[derive(Clone, Copy, ValueEnum)]
enum Completed {
    Bash,
    Zsh,
    Fish,
}

impl From<Completed> for Shell {
    fn from(shell: Completed) -> Self {
        match shell {
            Completed::Bash => Self::Bash,
            Completed::Zsh => Self::Zsh,
            Completed::Fish => Self::Fish,
        }
    }
}

#[derive(Args)]
pub struct ManArgs {
    /// Directory to write them to, a page for each command
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

pub fn completion(args: &CompletionArgs, mut command: Command) -> Outcome {
    let mut script = vec![];
    clap_complete::generate(Shell::from(args.shell), &mut command, "sluice", &mut script);
    std::io::stdout().write_all(&script).map_err(Failure::failed)?;
    Ok(ExitCode::SUCCESS)
}

pub fn man(args: &ManArgs, command: Command) -> Outcome {
    let written =
        std::fs::create_dir_all(&args.dir).and_then(|()| clap_mangen::generate_to(command, &args.dir));
    written
        .map_err(|error| Failure::failed(format!("cannot write pages to {}: {error}", args.dir.display())))?;
    Ok(ExitCode::SUCCESS)
}
