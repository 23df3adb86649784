//! `sluice show`: one request to the daemon, as a table or, with `--json`, as it came.

use std::collections::BTreeSet;
use std::process::ExitCode;

use chrono::{DateTime, SecondsFormat};
use clap::{Args, Subcommand, ValueEnum};
use sluice_control::Client;
use sluice_control::api::{
    self, Health, InterfaceView, LogEntry, LogQuery, PolicyView, ScreenView, StageView, Stats, ZoneView,
};
use sluice_control::operations::NoArguments;
use sluice_control::operations::configuration::CONFIGURATION;
use sluice_control::operations::gate::GATE;
use sluice_control::operations::interfaces::INTERFACES;
use sluice_control::operations::policies::POLICIES;
use sluice_control::operations::sessions::LOG;
use sluice_control::operations::system::{HEALTH, STATS};
use sluice_control::operations::zones::{SCREENS, ZONES};

use crate::exit::{Failure, Outcome};
use crate::output::{Output, print_json, table};
use crate::{gate, matching, nat, sessions};

#[derive(Args)]
pub struct ShowArgs {
    #[command(subcommand)]
    what: What,
    #[command(flatten)]
    output: Output,
}

#[derive(Clone, Copy, ValueEnum)]
enum Display {
    Inheritance,
}

#[derive(Subcommand)]
enum What {
    /// Established sessions
    Sessions(sessions::ListArgs),
    /// Interfaces: zone, attach mode, packets
    Interfaces,
    /// Zones and what passed through them
    Zones,
    /// Screens of each zone and how many packets they recognised
    Screens {
        /// Only this zone
        #[arg(long, value_name = "ZONE")]
        zone: Option<String>,
    },
    /// The gate: zones, services, how many grants
    Gate,
    /// Policies and how often they decided
    Policies,
    /// Network address translation: rules, pools and their counters
    Nat(nat::NatArgs),
    /// Which policy a first packet would match, by the tables in force
    MatchPolicies(matching::PacketArgs),
    /// Dropped packets by stage and reason, and the conservation equations
    Drops,
    /// Stages in the order packets walk them, with their drop reasons
    Pipeline,
    /// Sessions that policies with `then log` permitted, ended or denied
    Log {
        /// How many of the newest entries
        #[arg(long, default_value_t = 50, value_name = "N")]
        last: usize,
    },
    /// The active configuration, as it was committed
    Configuration {
        /// What is in effect: statements inherited from groups written out, each with the group it comes from
        #[arg(long, value_name = "FORM")]
        display: Option<Display>,
    },
    /// The daemon: version, commit in force, what is under way, what it has to say
    System,
    /// Version of this program, and of the gateway that runs
    Version,
}

pub fn show(args: &ShowArgs) -> Outcome {
    let (output, all) = (&args.output, &NoArguments {});
    match &args.what {
        What::Sessions(list) => sessions::list(list, output),
        What::Interfaces => output.show(&INTERFACES, all, interfaces),
        What::Zones => output.show(&ZONES, all, zones),
        What::Screens { zone } => output.show(&SCREENS, all, |list| screens(list, zone.as_deref())),
        What::Gate => output.show(&GATE, all, |view| gate::show(&view)),
        What::Policies => output.show(&POLICIES, all, policies),
        What::Nat(args) => nat::show(args, output),
        What::MatchPolicies(packet) => matching::show(packet, output),
        What::Drops => output.show(&STATS, all, drops),
        What::Pipeline => pipeline(output),
        What::Log { last } => output.show(&LOG, &LogQuery { last: *last }, session_log),
        What::Configuration { display: None } => output.show(&CONFIGURATION, all, |c| print!("{}", c.text)),
        What::Configuration { display: Some(Display::Inheritance) } => inheritance(output),
        What::System => output.show(&HEALTH, all, system),
        What::Version => show_version(output),
    }
}

pub fn version() -> Outcome {
    println!("sluice {}", env!("CARGO_PKG_VERSION"));
    Ok(ExitCode::SUCCESS)
}

/// This program's version, and whom it found running.
fn show_version(output: &Output) -> Outcome {
    match Client::new(output.state_dir()).ask(&HEALTH, &NoArguments {}) {
        Err(_) => version(),
        Ok(health) if output.json => {
            print_json(&health)?;
            Ok(ExitCode::SUCCESS)
        }
        Ok(Health { host_name, version: running, generation, pid, .. }) => {
            version()?;
            let name = host_name.unwrap_or_else(|| "a gateway without a name".to_owned());
            println!("{name} runs sluice {running}, commit {generation}, pid {pid}");
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn system(health: Health) {
    let Health { host_name, version, generation, pid, uptime_s, under_way, notes, .. } = health;
    println!("host-name    {}", host_name.as_deref().unwrap_or("-"));
    println!("version      {version}");
    println!("commit       {generation}");
    println!("daemon       pid {pid}, runs for {uptime_s} s");
    println!("under way    {}", under_way.as_deref().unwrap_or("nothing"));
    notes.iter().for_each(|note| println!("note         {note}"));
}

/// `show configuration | display inheritance` of Junos.
fn inheritance(output: &Output) -> Outcome {
    let (configuration, code) = output.ask(&CONFIGURATION, &NoArguments {})?;
    let tree = sluice_language::parse(&configuration.text, &configuration.file).map_err(Failure::failed)?;
    print!("{}", tree.to_inherited_text().map_err(Failure::failed)?);
    Ok(code)
}

/// The stages are part of this program: no daemon is needed.
fn pipeline(output: &Output) -> Outcome {
    let stages = api::pipeline();
    if output.json {
        print_json(&stages)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut rows = vec![];
    for (number, stage) in stages.iter().enumerate() {
        let StageView { stage: name, hook, help, reasons } = stage;
        rows.push(vec![(number + 1).to_string(), name.clone(), hook.clone(), String::new(), help.clone()]);
        for reason in reasons {
            rows.push(vec![
                String::new(),
                String::new(),
                String::new(),
                reason.reason.clone(),
                reason.help.clone(),
            ]);
        }
    }
    println!("{}", table(&["#", "Stage", "Hook", "Drop reason", "Meaning"], rows));
    Ok(ExitCode::SUCCESS)
}

fn interfaces(list: Vec<InterfaceView>) {
    let rows = list.iter().map(|i| {
        let drops = i.counters.dropped_ingress + i.counters.dropped_egress;
        vec![
            i.name.clone(),
            i.zone.clone(),
            i.mode.clone(),
            if i.up { "up" } else { "down" }.to_owned(),
            i.mtu.to_string(),
            i.addresses.join("\n"),
            i.counters.received.to_string(),
            i.counters.sent.to_string(),
            drops.to_string(),
            i.counters.sessions.to_string(),
            i.description.clone().unwrap_or_default(),
        ]
    });
    let header = [
        "Interface",
        "Zone",
        "Mode",
        "Link",
        "MTU",
        "Addresses",
        "Received",
        "Sent",
        "Drops",
        "Sessions",
        "Description",
    ];
    println!("{}", table(&header, rows.collect()));
    for note in list.iter().flat_map(|interface| &interface.notes).collect::<BTreeSet<_>>() {
        println!("{note}");
    }
}

fn zones(list: Vec<ZoneView>) {
    let rows = list.iter().map(|z| {
        vec![
            z.name.clone(),
            z.interfaces.join("\n"),
            z.screen.clone().unwrap_or_default(),
            z.counters.received.to_string(),
            z.counters.sent.to_string(),
            (z.counters.dropped_ingress + z.counters.dropped_egress).to_string(),
            z.counters.sessions.to_string(),
        ]
    });
    let header = ["Zone", "Interfaces", "Screen", "Received", "Sent", "Drops", "Sessions"];
    println!("{}", table(&header, rows.collect()));
}

fn screens(list: Vec<ScreenView>, zone: Option<&str>) {
    let rows = list.iter().filter(|s| zone.is_none_or(|zone| zone == s.zone)).map(|s| {
        vec![
            s.zone.clone(),
            s.screen.clone(),
            s.check.clone(),
            s.action.clone(),
            s.packets.to_string(),
            s.help.clone(),
        ]
    });
    println!("{}", table(&["Zone", "Screen", "Check", "Action", "Packets", "Meaning"], rows.collect()));
}

fn policies(list: Vec<PolicyView>) {
    let rows = list.iter().map(|p| {
        vec![
            p.from_zone.clone(),
            p.to_zone.clone(),
            p.name.clone(),
            p.action.clone(),
            if p.active { "active" } else { "inactive" }.to_owned(),
            p.sessions.to_string(),
            p.denied.to_string(),
            p.packets.map(|count| count.to_string()).unwrap_or_default(),
            p.bytes.map(|count| count.to_string()).unwrap_or_default(),
        ]
    });
    let header =
        ["From zone", "To zone", "Policy", "Action", "State", "Sessions", "Denied", "Packets", "Bytes"];
    println!("{}", table(&header, rows.collect()));
}

fn session_log(entries: Vec<LogEntry>) {
    for entry in entries {
        let time = DateTime::from_timestamp_millis(entry.unix_ms as i64).unwrap_or_default();
        println!("{} {}", time.to_rfc3339_opts(SecondsFormat::Millis, true), entry.line());
    }
}

fn drops(stats: Stats) {
    let rows = stats
        .drops
        .iter()
        .map(|d| vec![d.stage.clone(), d.reason.clone(), d.packets.to_string(), d.help.clone()]);
    println!("{}", table(&["Stage", "Reason", "Packets", "Meaning"], rows.collect()));
    for (name, equation) in [("ingress", stats.equations.ingress), ("egress", stats.equations.egress)] {
        let api::Equation { left, right, difference } = equation;
        println!("{name}: {left} packets in, {right} accounted for, {difference} different");
    }
}
