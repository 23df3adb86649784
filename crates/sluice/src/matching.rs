//! `sluice show match-policies` and `sluice test policy`: which policy a first packet would match.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use sluice_control::api::{MatchQuery, MatchView};
use sluice_control::operations::policies::MATCH_POLICIES;

use crate::arguments::Given;
use crate::exit::{Failure, Outcome, read};
use crate::output::{Output, print_json};

#[derive(Args)]
pub struct TestArgs {
    #[command(subcommand)]
    what: Test,
}

#[derive(Subcommand)]
enum Test {
    /// Which policy of a configuration file a first packet would match; no gateway needs to run
    Policy {
        /// Configuration file
        #[arg(value_name = "FILE")]
        file: PathBuf,
        #[command(flatten)]
        packet: Given<MatchQuery>,
        /// Print data instead of text
        #[arg(long)]
        json: bool,
    },
    /// What the NAT rules of a configuration file make of a first packet; no gateway needs to run
    Nat(crate::nat::TestArgs),
}

pub fn test(args: &TestArgs) -> Outcome {
    let (file, packet, json) = match &args.what {
        Test::Policy { file, packet: Given(packet), json } => (file, packet, json),
        Test::Nat(args) => return crate::nat::test(args),
    };
    let plan = sluice_control::check(&read(file)?, &file.display().to_string(), false)?;
    let view = sluice_control::match_planned(packet, &plan).map_err(Failure::bad_input)?;
    if *json {
        print_json(&view)?;
    } else {
        print!("{}", describe(&view));
    }
    Ok(ExitCode::SUCCESS)
}

/// The answer of the gateway that runs.
pub fn show(packet: &MatchQuery, output: &Output) -> Outcome {
    output.show(&MATCH_POLICIES, packet, |view| print!("{}", describe(&view)))
}

pub fn describe(view: &MatchView) -> String {
    let zones = format!("from-zone {} to-zone {}", view.from_zone, view.to_zone);
    if let Some(reason) = &view.dropped_as {
        return format!(
            "{zones}: dropped as {reason} whatever policies say: of ICMP only echo requests open sessions; errors and answers pass \
             with theirs\n"
        );
    }
    let (Some(policy), Some(number), Some(id)) = (&view.policy, view.number, view.id) else {
        return format!("{zones}: no policy matches; default-policy: {}\n", view.action);
    };
    let list = if view.global { "global policies" } else { "policies of the zone pair" };
    let then =
        [(view.log_init, "log session-init"), (view.log_close, "log session-close"), (view.count, "count")];
    let then: Vec<&str> = then.iter().filter(|(on, _)| *on).map(|(_, name)| *name).collect();
    let action = [vec![view.action.as_str()], then].concat().join(", ");
    format!(
        "{zones}: policy {policy}\n  action  {action}\n  number {number} of the {list} in force, id {id}\n"
    )
}
