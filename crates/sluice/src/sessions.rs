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
use crate::exit::Outcome;
use crate::output::{Output, table};

/// Which sessions; without any of these, all.
#[derive(Args, Clone)]
pub struct FilterArgs {
    /// Source address of the initiator, as ADDRESS or PREFIX
    #[arg(long, value_name = "PREFIX")]
    source_prefix: Option<String>,
    /// Destination address of the initiator, as ADDRESS or PREFIX
    #[arg(long, value_name = "PREFIX")]
    destination_prefix: Option<String>,
    /// Address that translation put into the session, as ADDRESS or PREFIX
    #[arg(long, value_name = "PREFIX")]
    nat_prefix: Option<String>,
    /// Only sessions that are translated
    #[arg(long)]
    nat: bool,
    /// tcp, udp, icmp, icmp6 or a number
    #[arg(long)]
    protocol: Option<String>,
    /// Source port of the initiator
    #[arg(long)]
    source_port: Option<u16>,
    /// Destination port of the initiator
    #[arg(long)]
    destination_port: Option<u16>,
    /// Ingress or egress zone
    #[arg(long)]
    zone: Option<String>,
    /// Interface unit the first packet arrived on
    #[arg(long)]
    interface: Option<String>,
    /// Name of the policy that permitted it
    #[arg(long)]
    policy: Option<String>,
    /// Application or application-set, also a predefined one
    #[arg(long)]
    application: Option<String>,
}

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
        filter: FilterArgs,
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
        /// Only those of this address inside
        #[arg(long, value_name = "ADDRESS")]
        internal_ip: Option<IpAddr>,
        /// Only those of this port inside
        #[arg(long, value_name = "PORT")]
        internal_port: Option<u16>,
        #[command(flatten)]
        instance: Instance,
    },
}

#[derive(Args)]
pub struct ListArgs {
    #[command(flatten)]
    filter: FilterArgs,
    /// List at most this many
    #[arg(long, default_value_t = 100)]
    limit: usize,
    /// Leave out the first ones
    #[arg(long, default_value_t = 0)]
    offset: usize,
}

pub fn clear(args: &ClearArgs) -> Outcome {
    let (filter, instance) = match &args.what {
        ClearWhat::Sessions { filter, instance } => (filter, instance),
        ClearWhat::Nat { what } => return clear_nat(what),
    };
    let body = serde_json::to_string(&wanted(filter)).map_err(crate::exit::Failure::failed)?;
    let done = Client::new(&instance.state_dir).order(&CLEAR_SESSIONS, &NoArguments {}, &body)?;
    println!("{} sessions cleared", done.cleared);
    Ok(ExitCode::SUCCESS)
}

fn clear_nat(what: &ClearNat) -> Outcome {
    let ClearNat::PersistentNatTable { internal_ip, internal_port, instance } = what;
    let filter = NatBindingFilter { internal_address: *internal_ip, internal_port: *internal_port };
    let body = serde_json::to_string(&filter).map_err(crate::exit::Failure::failed)?;
    let done = Client::new(&instance.state_dir).order(&CLEAR_NAT_BINDINGS, &NoArguments {}, &body)?;
    println!("{} bindings cleared", done.cleared);
    Ok(ExitCode::SUCCESS)
}

fn wanted(filter: &FilterArgs) -> SessionFilter {
    SessionFilter {
        source_prefix: filter.source_prefix.clone(),
        destination_prefix: filter.destination_prefix.clone(),
        nat_prefix: filter.nat_prefix.clone(),
        nat: filter.nat,
        protocol: filter.protocol.clone(),
        source_port: filter.source_port,
        destination_port: filter.destination_port,
        zone: filter.zone.clone(),
        interface: filter.interface.clone(),
        policy: filter.policy.clone(),
        application: filter.application.clone(),
        ..Default::default()
    }
}

pub fn list(args: &ListArgs, output: &Output) -> Outcome {
    let filter = SessionFilter { offset: Some(args.offset), limit: Some(args.limit), ..wanted(&args.filter) };
    output.show(&SESSIONS, &filter, |list| {
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

/// Both directions as they arrive here: `In` is how the initiator sends, `Out` how answers come, which tells what is
/// translated.
fn row(s: &SessionView) -> Vec<String> {
    let end = |address: &str, port: u16| match address.contains(':') {
        true => format!("[{address}]:{port}"),
        false => format!("{address}:{port}"),
    };
    let both = |there: String, back: String| format!("{there}\n{back}");
    vec![
        s.id.to_string(),
        s.protocol.clone(),
        "In\nOut".to_owned(),
        both(end(&s.source, s.source_port), end(&s.out_source, s.out_source_port)),
        both(end(&s.destination, s.destination_port), end(&s.out_destination, s.out_destination_port)),
        format!("{} > {}", s.from_zone, s.to_zone),
        s.policy.clone(),
        s.state.clone(),
        s.age_s.to_string(),
        format!("{}/{}", s.idle_s, s.timeout_s),
        both(s.packets[0].to_string(), s.packets[1].to_string()),
        both(s.bytes[0].to_string(), s.bytes[1].to_string()),
    ]
}
