//! `sluice gate`: grants given, taken back and listed; `sluice show gate`.

use clap::{ArgMatches, Args, Command, FromArgMatches, Subcommand};
use sluice_control::Client;
use sluice_control::api::{GateServiceView, GateView, GrantFilter, GrantList, GrantView, RevokeRequest};
use sluice_control::operations::NoArguments;
use sluice_control::operations::gate::{GRANT, GRANTS, REVOKE};

use crate::arguments::{Given, Sent, body};
use crate::exit::{Failure, Outcome};
use crate::output::{Output, table};

#[derive(Args)]
pub struct GateArgs {
    #[command(subcommand)]
    what: What,
    #[command(flatten)]
    output: Output,
}

#[derive(Subcommand)]
enum What {
    /// Let a source use a service
    ///
    /// A grant that is there already for the same user, source and service gets the new limits, counted from now.
    Grant(GrantArgs),
    /// End grants; sessions that live by them end with their next packet
    Revoke(Given<RevokeRequest>),
    /// List grants
    List(Given<GrantFilter>),
}

/// A grant, or a file with many.
struct GrantArgs(Sent);

const FILE: &str = "file";

impl Args for GrantArgs {
    fn augment_args(command: Command) -> Command {
        body(command, GRANT.about.body, FILE)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for GrantArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self(Sent::given(GRANT.about.body, FILE, matches)))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

pub fn gate(args: &GateArgs) -> Outcome {
    match &args.what {
        What::Grant(grant) => give(grant, &args.output),
        What::Revoke(Given(request)) => take_back(request, &args.output),
        What::List(Given(filter)) => list(filter, &args.output),
    }
}

fn give(args: &GrantArgs, output: &Output) -> Outcome {
    let body = args.0.text()?;
    let done = Client::new(output.state_dir()).order(&GRANT, &NoArguments {}, &body)?;
    output.print(&done, |done| match (&done.grants[..], done.renewed) {
        ([grant], 0) => println!("grant {grant} given"),
        ([grant], _) => println!("grant {grant} renewed"),
        _ => println!("{} grants given, {} renewed", done.granted, done.renewed),
    })
}

fn take_back(request: &RevokeRequest, output: &Output) -> Outcome {
    let body = serde_json::to_string(request).map_err(Failure::failed)?;
    let done = Client::new(output.state_dir()).order(&REVOKE, &NoArguments {}, &body)?;
    output.print(&done, |done| println!("{} grants revoked", done.revoked))
}

fn list(filter: &GrantFilter, output: &Output) -> Outcome {
    output.show(&GRANTS, filter, |list| print!("{}", grants(&list)))
}

pub fn grants(list: &GrantList) -> String {
    let header = [
        "Grant",
        "User",
        "Source",
        "Service",
        "By",
        "Age s",
        "Idle/limit s",
        "Ends in s",
        "Sessions",
        "State",
    ];
    let table = table(&header, list.grants.iter().map(row).collect());
    format!("{table}\n{} of {} grants\n", list.grants.len(), list.total)
}

fn row(grant: &GrantView) -> Vec<String> {
    let limit = |seconds: Option<u64>| seconds.map_or("-".to_owned(), |s| s.to_string());
    vec![
        grant.grant.to_string(),
        grant.user.clone(),
        grant.source.clone(),
        grant.service.clone(),
        if grant.by_configuration { "configuration" } else { "operator" }.to_owned(),
        grant.age_s.to_string(),
        format!("{}/{}", grant.idle_s, limit(grant.idle_timeout_s)),
        limit(grant.expires_in_s),
        grant.sessions.to_string(),
        grant.state.clone(),
    ]
}

/// `sluice show gate`
pub fn overview(gate: &GateView) -> String {
    let mut text = match gate.zones.is_empty() {
        true => "No zone demands grants.\n".to_owned(),
        false => format!("Zones that demand grants: {}\n", gate.zones.join(", ")),
    };
    let header = ["Service", "Id", "Protocol", "Destinations", "Ports", "Grants"];
    text += &format!("{}\n", table(&header, gate.services.iter().map(service).collect()));
    text += &format!("{} grants, room for {}\n", gate.grants, gate.limit);
    text + &format!(
        "since the daemon started: {} given, {} renewed, {} revoked, {} expired, {} idle, {} found no room\n",
        gate.given, gate.renewed, gate.revoked, gate.expired, gate.idle, gate.refused_full
    )
}

fn service(service: &GateServiceView) -> Vec<String> {
    vec![
        service.name.clone(),
        service.id.to_string(),
        service.protocol.to_string(),
        service.destinations.join(" "),
        service.ports.join(" "),
        service.grants.to_string(),
    ]
}
