//! `sluice cli`: the shell, with operational and configuration mode.
//!
//! What may be typed stands in tables ([`operational`], [`configure`], [`pipe`]); [`grammar`] makes matching, completion, `?` and errors
//! of them. Answers go line by line through the pipe to the terminal ([`out`]).

mod configure;
mod dhcp;
mod grammar;
mod gtpu;
mod help;
mod kernel;
mod known;
mod lan_services;
mod line;
mod logs;
mod monitor;
mod operational;
mod out;
mod pipe;
mod report;
mod routing;
mod sessions;
mod shell;
mod statement;
mod words;

use std::io::{IsTerminal, Read};
use std::process::ExitCode;

use clap::Args;

use crate::Instance;
use crate::exit::{FAILED, Failure, Outcome};
use crate::interrupt;
use shell::Shell;

#[derive(Args)]
pub struct CliArgs {
    /// Give these commands instead of asking for some; `;` and line ends divide them
    #[arg(short, value_name = "COMMANDS")]
    command: Vec<String>,
    #[command(flatten)]
    instance: Instance,
}

/// The shell as somebody's login shell: sshd calls it by a name that begins with a dash, or gives it a command by `-c`.
pub fn is_login(name: &str) -> bool {
    let name = name.rsplit('/').next().unwrap_or(name);
    name.trim_start_matches('-') == "sluice-cli" || name.starts_with("-sluice")
}

pub fn cli(args: &CliArgs) -> Outcome {
    interrupt::install().map_err(Failure::failed)?;
    let is_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let mut shell = Shell::new(&args.instance.state_dir, is_terminal && args.command.is_empty());
    let all_well = if !args.command.is_empty() {
        shell.run_all(words::commands(&args.command.join("\n")))
    } else if is_terminal {
        shell.talk()?
    } else {
        let mut text = vec![];
        std::io::stdin().read_to_end(&mut text).map_err(Failure::failed)?;
        shell.run_all(String::from_utf8_lossy(&text).lines().map(str::to_owned))
    };
    Ok(if all_well { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}
