//! `sluice show match-policies` and `sluice test policy`: which policy a first packet would match.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use sluice_control::api::{MatchQuery, MatchView};
use sluice_control::operations::policies::MATCH_POLICIES;

use crate::exit::{Failure, Outcome, read};
use crate::output::{Output, print_json};

/// The packet.
#[derive(Args, Clone)]
pub struct PacketArgs {
    /// Zone it arrives from
    #[arg(long, value_name = "ZONE")]
    from_zone: String,
    /// Zone it leaves to
    #[arg(long, value_name = "ZONE")]
    to_zone: String,
    #[arg(long, value_name = "ADDRESS")]
    source_ip: String,
    #[arg(long, value_name = "ADDRESS")]
    destination_ip: String,
    /// tcp, udp, icmp, icmp6 or a number
    #[arg(long)]
    protocol: String,
    #[arg(long, value_name = "PORT")]
    source_port: Option<u16>,
    #[arg(long, value_name = "PORT")]
    destination_port: Option<u16>,
    /// Of ICMP and ICMPv6 [default: echo request]
    #[arg(long, value_name = "TYPE")]
    icmp_type: Option<u8>,
    #[arg(long, value_name = "CODE")]
    icmp_code: Option<u8>,
}

impl PacketArgs {
    fn query(&self) -> MatchQuery {
        MatchQuery {
            from_zone: self.from_zone.clone(),
            to_zone: self.to_zone.clone(),
            source_ip: self.source_ip.clone(),
            destination_ip: self.destination_ip.clone(),
            protocol: self.protocol.clone(),
            source_port: self.source_port,
            destination_port: self.destination_port,
            icmp_type: self.icmp_type,
            icmp_code: self.icmp_code,
        }
    }
}

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
        packet: PacketArgs,
        /// Print data instead of text
        #[arg(long)]
        json: bool,
    },
    /// What the NAT rules of a configuration file make of a first packet; no gateway needs to run
    Nat(crate::nat::TestArgs),
}

pub fn test(args: &TestArgs) -> Outcome {
    let (file, packet, json) = match &args.what {
        Test::Policy { file, packet, json } => (file, packet, json),
        Test::Nat(args) => return crate::nat::test(args),
    };
    let plan = sluice_control::check(&read(file)?, &file.display().to_string(), false)?;
    let view = sluice_control::match_planned(&packet.query(), &plan).map_err(Failure::bad_input)?;
    if *json {
        print_json(&view)?;
    } else {
        print(&view);
    }
    Ok(ExitCode::SUCCESS)
}

/// The answer of the gateway that runs.
pub fn show(packet: &PacketArgs, output: &Output) -> Outcome {
    output.show(&MATCH_POLICIES, &packet.query(), |view| print(&view))
}

fn print(view: &MatchView) {
    let zones = format!("from-zone {} to-zone {}", view.from_zone, view.to_zone);
    if let Some(reason) = &view.dropped_as {
        println!(
            "{zones}: dropped as {reason} whatever policies say: of ICMP only echo requests open sessions; errors and answers pass \
             with theirs"
        );
        return;
    }
    let (Some(policy), Some(number), Some(id)) = (&view.policy, view.number, view.id) else {
        println!("{zones}: no policy matches; default-policy: {}", view.action);
        return;
    };
    let list = if view.global { "global policies" } else { "policies of the zone pair" };
    let then =
        [(view.log_init, "log session-init"), (view.log_close, "log session-close"), (view.count, "count")];
    let then: Vec<&str> = then.iter().filter(|(on, _)| *on).map(|(_, name)| *name).collect();
    println!("{zones}: policy {policy}");
    println!("  action  {}", [vec![view.action.as_str()], then].concat().join(", "));
    println!("  number {number} of the {list} in force, id {id}");
}
