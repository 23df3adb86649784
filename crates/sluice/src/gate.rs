//! `sluice gate`: grants given, taken back and listed; `sluice show gate`.

use std::io::Read;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use sluice_control::Client;
use sluice_control::api::{GateServiceView, GateView, GrantFilter, GrantRequest, GrantView, RevokeRequest};
use sluice_control::operations::NoArguments;
use sluice_control::operations::gate::{GRANT, GRANTS, REVOKE};

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
    Revoke(RevokeArgs),
    /// List grants
    List(ListArgs),
}

#[derive(Args)]
struct GrantArgs {
    /// Whom it is for
    #[arg(long, required_unless_present = "file")]
    user: Option<String>,
    /// Address or prefix
    #[arg(long, value_name = "PREFIX", required_unless_present = "file")]
    source: Option<String>,
    /// A service of the configuration
    #[arg(long, required_unless_present = "file")]
    service: Option<String>,
    /// Seconds without a packet of the source after which it ends [default: none]
    #[arg(long, value_name = "S")]
    idle_timeout: Option<u32>,
    /// Seconds after which it ends [default: none]
    #[arg(long, value_name = "S")]
    absolute_timeout: Option<u32>,
    /// The source is 0.0.0.0/0 or ::/0, and every host is meant
    #[arg(long)]
    any_source: bool,
    /// Many at once, all or none: a JSON list of {"user", "source", "service", "idle_timeout_s", "absolute_timeout_s",
    /// "any_source"}; `-` is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["user", "source", "service", "idle_timeout", "absolute_timeout", "any_source"])]
    file: Option<PathBuf>,
}

#[derive(Args)]
#[group(required = true, multiple = false)]
struct RevokeArgs {
    /// Every grant
    #[arg(long)]
    all: bool,
    /// All grants of a user
    #[arg(long)]
    user: Option<String>,
    /// All grants for a service
    #[arg(long)]
    service: Option<String>,
    /// The grant with this number, as `list` shows it
    #[arg(long)]
    grant: Option<u32>,
    /// All grants for exactly this address or prefix
    #[arg(long, value_name = "PREFIX")]
    source: Option<String>,
}

#[derive(Args)]
struct ListArgs {
    /// Only of this user
    #[arg(long)]
    user: Option<String>,
    /// Only for this service
    #[arg(long)]
    service: Option<String>,
    /// Only for exactly this address or prefix
    #[arg(long, value_name = "PREFIX")]
    source: Option<String>,
    /// List at most this many
    #[arg(long, default_value_t = 100)]
    limit: usize,
    /// Leave out the first ones
    #[arg(long, default_value_t = 0)]
    offset: usize,
}

pub fn gate(args: &GateArgs) -> Outcome {
    match &args.what {
        What::Grant(grant) => give(grant, &args.output),
        What::Revoke(revoke) => take_back(revoke, &args.output),
        What::List(filter) => list(filter, &args.output),
    }
}

fn give(args: &GrantArgs, output: &Output) -> Outcome {
    let body = match &args.file {
        Some(path) => read(path)?,
        None => serde_json::to_string(&GrantRequest {
            user: args.user.clone().unwrap_or_default(),
            source: args.source.clone().unwrap_or_default(),
            service: args.service.clone().unwrap_or_default(),
            idle_timeout_s: args.idle_timeout,
            absolute_timeout_s: args.absolute_timeout,
            any_source: args.any_source,
        })
        .map_err(Failure::failed)?,
    };
    let done = Client::new(output.state_dir()).order(&GRANT, &NoArguments {}, &body)?;
    output.print(&done, |done| match (&done.grants[..], done.renewed) {
        ([grant], 0) => println!("grant {grant} given"),
        ([grant], _) => println!("grant {grant} renewed"),
        _ => println!("{} grants given, {} renewed", done.granted, done.renewed),
    })
}

fn read(path: &PathBuf) -> Result<String, Failure> {
    let mut text = String::new();
    let read = match path.as_os_str() == "-" {
        true => std::io::stdin().read_to_string(&mut text).map(drop),
        false => std::fs::read_to_string(path).map(|read| text = read),
    };
    read.map_err(|error| Failure::bad_input(format!("cannot read {}: {error}", path.display())))?;
    Ok(text)
}

fn take_back(args: &RevokeArgs, output: &Output) -> Outcome {
    let request = RevokeRequest {
        all: args.all,
        user: args.user.clone(),
        service: args.service.clone(),
        grant: args.grant,
        source: args.source.clone(),
    };
    let body = serde_json::to_string(&request).map_err(Failure::failed)?;
    let done = Client::new(output.state_dir()).order(&REVOKE, &NoArguments {}, &body)?;
    output.print(&done, |done| println!("{} grants revoked", done.revoked))
}

fn list(args: &ListArgs, output: &Output) -> Outcome {
    let filter = GrantFilter {
        user: args.user.clone(),
        service: args.service.clone(),
        source: args.source.clone(),
        offset: Some(args.offset),
        limit: Some(args.limit),
    };
    output.show(&GRANTS, &filter, |list| {
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
        println!("{}", table(&header, list.grants.iter().map(row).collect()));
        println!("{} of {} grants", list.grants.len(), list.total);
    })
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
pub fn show(gate: &GateView) {
    match gate.zones.is_empty() {
        true => println!("No zone demands grants."),
        false => println!("Zones that demand grants: {}", gate.zones.join(", ")),
    }
    let header = ["Service", "Id", "Protocol", "Destinations", "Ports", "Grants"];
    println!("{}", table(&header, gate.services.iter().map(service).collect()));
    println!("{} grants, room for {}", gate.grants, gate.limit);
    println!(
        "since the daemon started: {} given, {} renewed, {} revoked, {} expired, {} idle, {} found no room",
        gate.given, gate.renewed, gate.revoked, gate.expired, gate.idle, gate.refused_full
    );
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
