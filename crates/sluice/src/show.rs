//! `sluice show`: one request to the daemon, as a table or, with `--json`, as it came.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::ExitCode;
use std::thread;

use chrono::{DateTime, SecondsFormat};
use clap::{Args, Subcommand, ValueEnum};
use sluice_control::Client;
use sluice_control::api::{
    self, Health, InterfaceView, LogEntry, LogQuery, MatchQuery, PolicyView, ScreenView, SessionFilter,
    StageView, ZoneView,
};
use sluice_control::operations::NoArguments;
use sluice_control::operations::configuration::CONFIGURATION;
use sluice_control::operations::gate::GATE;
use sluice_control::operations::interfaces::INTERFACES;
use sluice_control::operations::policies::POLICIES;
use sluice_control::operations::sessions::LOG;
use sluice_control::operations::system::HEALTH;
use sluice_control::operations::zones::{SCREENS, ZONES};

use crate::arguments::Given;
use crate::exit::{Failure, Outcome};
use crate::follow::{LOOK, Sessions};
use crate::output::{Output, print_json, table, up_or_down};
use crate::{drops, gate, matching, nat, sessions};

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
    Sessions(Given<SessionFilter>),
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
    MatchPolicies(Given<MatchQuery>),
    /// Dropped packets by stage and reason, and the conservation equations
    Drops(drops::DropsArgs),
    /// Stages in the order packets walk them, with their drop reasons
    Pipeline,
    /// Sessions that policies with `then log` permitted, ended or denied
    Log {
        #[command(flatten)]
        query: Given<LogQuery>,
        /// Go on with what comes, until Ctrl-C
        #[arg(long)]
        follow: bool,
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
        What::Sessions(Given(filter)) => sessions::list(filter, output),
        What::Interfaces => output.show(&INTERFACES, all, interfaces),
        What::Zones => output.show(&ZONES, all, zones),
        What::Screens { zone } => {
            output.show(&SCREENS, all, |list| print!("{}", screens(&list, zone.as_deref())))
        }
        What::Gate => output.show(&GATE, all, |view| print!("{}", gate::overview(&view))),
        What::Policies => output.show(&POLICIES, all, policies),
        What::Nat(args) => nat::show(args, output),
        What::MatchPolicies(Given(packet)) => matching::show(packet, output),
        What::Drops(args) => drops::show(args, output),
        What::Pipeline => pipeline(output),
        What::Log { query: Given(query), follow: true } => follow_log(query, output),
        What::Log { query: Given(query), follow: false } => {
            output.show(&LOG, query, |log| print!("{}", session_log(&log)))
        }
        What::Configuration { display: None } => output.show(&CONFIGURATION, all, |c| print!("{}", c.text)),
        What::Configuration { display: Some(Display::Inheritance) } => inheritance(output),
        What::System => output.show(&HEALTH, all, |health| print!("{}", system(&health))),
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
        Ok(health) => {
            print!("{}", running(&health));
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// This program, and the gateway that runs.
pub fn running(health: &Health) -> String {
    let Health { host_name, version, generation, pid, .. } = health;
    let name = host_name.as_deref().unwrap_or("a gateway without a name");
    let own = env!("CARGO_PKG_VERSION");
    format!("sluice {own}\n{name} runs sluice {version}, commit {generation}, pid {pid}\n")
}

pub fn system(health: &Health) -> String {
    let Health { host_name, version, generation, pid, uptime_s, under_way, notes, .. } = health;
    let mut text = format!("host-name    {}\n", host_name.as_deref().unwrap_or("-"));
    text += &format!("version      {version}\ncommit       {generation}\n");
    text += &format!("daemon       pid {pid}, runs for {uptime_s} s\n");
    text += &format!("under way    {}\n", under_way.as_deref().unwrap_or("nothing"));
    notes.iter().for_each(|note| text += &format!("note         {note}\n"));
    text
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
    } else {
        print!("{}", self::stages(&stages));
    }
    Ok(ExitCode::SUCCESS)
}

pub fn stages(stages: &[StageView]) -> String {
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
    format!("{}\n", table(&["#", "Stage", "Hook", "Drop reason", "Meaning"], rows))
}

fn interfaces(list: Vec<InterfaceView>) {
    let rows = list.iter().map(|i| {
        let drops = i.counters.dropped_ingress + i.counters.dropped_egress;
        vec![
            i.name.clone(),
            i.zone.clone(),
            i.mode.clone(),
            up_or_down(i.up).to_owned(),
            up_or_down(i.link).to_owned(),
            mtu(i),
            addresses(i),
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
        "Admin",
        "Link",
        "MTU",
        "Addresses",
        "Received",
        "Sent",
        "Drops",
        "Sessions created",
        "Description",
    ];
    println!("{}", table(&header, rows.collect()));
    for note in list.iter().flat_map(|interface| &interface.notes).collect::<BTreeSet<_>>() {
        println!("{note}");
    }
}

/// The device's, and what the configuration wants where that differs.
fn mtu(interface: &InterfaceView) -> String {
    match (u32::from(interface.mtu), interface.device_mtu) {
        (wanted, here) if wanted == here || wanted == 0 => here.to_string(),
        (wanted, 0) => format!("- (configured: {wanted})"),
        // `family inet mtu` is below the device's
        (wanted, here) if wanted < here => format!("{wanted} (device: {here})"),
        (wanted, here) => format!("{here} (configured: {wanted})"),
    }
}

/// What the device has, and how that differs from the configuration.
fn addresses(interface: &InterfaceView) -> String {
    let InterfaceView { addresses, configured, .. } = interface;
    let others = |address: &String| match configured.contains(address) {
        true => address.clone(),
        false => format!("{address} (not configured)"),
    };
    let missing = configured.iter().filter(|address| !addresses.contains(address));
    let missing = missing.map(|address| format!("{address} (missing)"));
    addresses.iter().map(others).chain(missing).collect::<Vec<_>>().join("\n")
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
    let header = ["Zone", "Interfaces", "Screen", "Received", "Sent", "Drops", "Sessions created"];
    println!("{}", table(&header, rows.collect()));
}

pub fn screens(list: &[ScreenView], zone: Option<&str>) -> String {
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
    format!("{}\n", table(&["Zone", "Screen", "Check", "Action", "Packets", "Meaning"], rows.collect()))
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

/// As text, or as data a line.
fn follow_log(query: &LogQuery, output: &Output) -> Outcome {
    let client = Client::new(output.state_dir());
    let mut sessions = Sessions::new(query.last);
    let mut stdout = std::io::stdout();
    loop {
        let (has_gap, new) = sessions.next(&client.ask(&LOG, &LogQuery { last: Sessions::MOST })?);
        if has_gap {
            eprintln!("sluice: {}", Sessions::GAP);
        }
        for entry in new {
            let text = match output.json {
                true => serde_json::to_string(&entry).map_err(Failure::failed)? + "\n",
                false => session_log(&[entry]),
            };
            if stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).is_err() {
                // nobody reads any more
                return Ok(ExitCode::SUCCESS);
            }
        }
        thread::sleep(LOOK);
    }
}

pub fn session_log(entries: &[LogEntry]) -> String {
    let line = |entry: &LogEntry| {
        let time = DateTime::from_timestamp_millis(entry.unix_ms as i64).unwrap_or_default();
        format!("{} {}\n", time.to_rfc3339_opts(SecondsFormat::Millis, true), entry.line())
    };
    entries.iter().map(line).collect()
}
