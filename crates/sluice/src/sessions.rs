//! `sluice show sessions` and `sluice clear sessions`.

use std::net::IpAddr;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use sluice_control::Client;
use sluice_control::api::nat::NatBindingFilter;
use sluice_control::api::{SessionFilter, SessionView};
use sluice_control::operations::NoArguments;
use sluice_control::operations::nat::CLEAR_NAT_BINDINGS;
use sluice_control::operations::sessions::{CLEAR_SESSIONS, SESSIONS};

use crate::Instance;
use crate::arguments::{Filter, Given};
use crate::exit::Outcome;
use crate::output::{Output, table};

#[derive(Args)]
pub struct ClearArgs {
    #[command(subcommand)]
    what: ClearWhat,
}

#[derive(Subcommand)]
enum ClearWhat {
    /// End sessions; their next packet must be permitted anew
    Sessions {
        #[command(flatten)]
        filter: Filter<SessionFilter>,
        #[command(flatten)]
        instance: Instance,
    },
    /// End bindings of persistent-nat
    Nat {
        #[command(subcommand)]
        what: ClearNat,
    },
}

#[derive(Subcommand)]
enum ClearNat {
    /// Forget which outside endpoints inside ones have; their sessions go on
    PersistentNatTable {
        #[command(flatten)]
        filter: Given<NatBindingFilter>,
        #[command(flatten)]
        instance: Instance,
    },
}

pub fn clear(args: &ClearArgs) -> Outcome {
    let (filter, instance) = match &args.what {
        ClearWhat::Sessions { filter: Filter(filter), instance } => (filter, instance),
        ClearWhat::Nat { what } => return clear_nat(what),
    };
    let body = serde_json::to_string(filter).map_err(crate::exit::Failure::failed)?;
    let done = Client::new(&instance.state_dir).order(&CLEAR_SESSIONS, &NoArguments {}, &body)?;
    println!("{} sessions cleared", done.cleared);
    Ok(ExitCode::SUCCESS)
}

fn clear_nat(what: &ClearNat) -> Outcome {
    let ClearNat::PersistentNatTable { filter: Given(filter), instance } = what;
    let body = serde_json::to_string(filter).map_err(crate::exit::Failure::failed)?;
    let done = Client::new(&instance.state_dir).order(&CLEAR_NAT_BINDINGS, &NoArguments {}, &body)?;
    println!("{} bindings cleared", done.cleared);
    Ok(ExitCode::SUCCESS)
}

pub fn list(filter: &SessionFilter, output: &Output) -> Outcome {
    output.show(&SESSIONS, filter, |list| {
        let rows = list.sessions.iter().map(row).collect();
        let header = [
            "Id",
            "Protocol",
            "Way",
            "Source",
            "Destination",
            "Zones",
            "Policy",
            "State",
            "Age s",
            "Idle/timeout s",
            "Packets",
            "Bytes",
        ];
        println!("{}", table(&header, rows));
        println!("{} of {} sessions", list.sessions.len(), list.total);
    })
}

/// Of a time without packets, what is left when so much of it is over.
pub fn seconds(timeout_s: u64, idle_s: u64) -> String {
    const NEVER_S: u64 = u32::MAX as u64;
    if timeout_s == NEVER_S { "never".to_owned() } else { timeout_s.saturating_sub(idle_s).to_string() }
}

/// Both directions as they arrive here: `In` is how the initiator sends, `Out` how answers come, which tells what is
/// translated.
fn row(s: &SessionView) -> Vec<String> {
    let end = |address: IpAddr, port: u16| match (port, address.is_ipv6()) {
        (0, _) => address.to_string(),
        (_, true) => format!("[{address}]:{port}"),
        (_, false) => format!("{address}:{port}"),
    };
    let both = |there: String, back: String| format!("{there}\n{back}");
    vec![
        s.id.to_string(),
        s.protocol.to_string(),
        "In\nOut".to_owned(),
        both(end(s.source, s.source_port), end(s.out_source, s.out_source_port)),
        both(end(s.destination, s.destination_port), end(s.out_destination, s.out_destination_port)),
        match &s.routing_instance {
            Some(instance) => format!("{} > {}\nin {instance}", s.from_zone, s.to_zone),
            None => format!("{} > {}", s.from_zone, s.to_zone),
        },
        s.policy.to_string(),
        s.state.to_string(),
        s.age_s.to_string(),
        format!("{}/{}", s.idle_s, seconds(s.timeout_s, 0)),
        both(s.packets[0].to_string(), s.packets[1].to_string()),
        both(s.bytes[0].to_string(), s.bytes[1].to_string()),
    ]
}
