//! `sluice api`: any operation of the daemon by its name. Sub-commands, their options and their help are the list of operations.

use std::io::Write;
use std::process::ExitCode;

use clap::{ArgMatches, Args, Command, FromArgMatches};
use serde_json::{Map, Value};
use sluice_control::Client;
use sluice_control::operations::{Listed, OPERATIONS, arguments};

use crate::Instance;
use crate::arguments::{Sent, body, given, option};
use crate::exit::{Failure, Outcome};

/// The option that names a file with the body.
const BODY: &str = "body";

/// An operation and what was given of its arguments.
pub struct ApiArgs {
    operation: &'static dyn Listed,
    arguments: Map<String, Value>,
    sent: Sent,
    instance: Instance,
}

impl Args for ApiArgs {
    fn augment_args(command: Command) -> Command {
        let command = command.subcommand_required(true).arg_required_else_help(true);
        command.subcommands(OPERATIONS.iter().map(|operation| subcommand(*operation)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ApiArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let missing = || clap::Error::new(clap::error::ErrorKind::MissingSubcommand);
        let (name, matches) = matches.subcommand().ok_or_else(missing)?;
        let operation =
            *OPERATIONS.iter().find(|operation| operation.about().name == name).ok_or_else(missing)?;
        Ok(Self {
            operation,
            arguments: given(&arguments(operation), matches),
            sent: Sent::given(operation.about().body, BODY, matches),
            instance: Instance::from_arg_matches(matches)?,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

fn subcommand(operation: &'static dyn Listed) -> Command {
    let about = operation.about();
    let request = format!("{} {}, for {}", about.method.name(), about.path, about.role.help());
    let command = Command::new(about.name).about(about.help).after_help(request);
    let command = command.args(arguments(operation).iter().map(option));
    // the words of what is flattened would stand in place of the operation's
    Instance::augment_args(body(command, about.body, BODY)).about(about.help)
}

pub fn api(args: &ApiArgs) -> Outcome {
    let body = args.sent.text()?;
    let client = Client::new(&args.instance.state_dir);
    let answer = client.send(args.operation.about(), &args.arguments, &body)?;
    print(&answer)?;
    Ok(ExitCode::SUCCESS)
}

/// JSON laid out for reading, text as it came.
fn print(answer: &[u8]) -> Result<(), Failure> {
    let laid_out =
        serde_json::from_slice::<Value>(answer).and_then(|value| serde_json::to_vec_pretty(&value));
    let mut text = laid_out.unwrap_or_else(|_| answer.to_vec());
    if !text.ends_with(b"\n") {
        text.push(b'\n');
    }
    std::io::stdout().write_all(&text).map_err(Failure::failed)
}
