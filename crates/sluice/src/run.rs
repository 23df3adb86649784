//! `sluice run` and `sluice cleanup`.

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use sluice_control::{Daemon, Options};
use sluice_fanout::Names;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, reload};

use crate::Instance;
use crate::exit::Outcome;
use crate::messages::Messages;

#[derive(Args)]
pub struct RunArgs {
    /// Configuration to start with where nothing was committed yet; SIGHUP commits it. What was committed counts otherwise
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The file counts even where something was committed before
    #[arg(long = "override", requires = "config")]
    override_store: bool,
    /// Wait for interfaces that are not there yet; until they come nothing is forwarded
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    instance: Instance,
    #[command(flatten)]
    pins: Pins,
    /// Where the read-only HTTP interface listens: ADDRESS:PORT, or none
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080", value_parser = listen)]
    listen: Listen,
    /// Another name that it is asked by; requests for names that are not this host's are refused (DNS rebinding)
    #[arg(long, value_name = "NAME")]
    listen_name: Vec<String>,
    /// FRR beside this gateway was started with `-N NAME`
    #[arg(long, value_name = "NAME")]
    frr_pathspace: Option<String>,
}

#[derive(Args, Clone)]
pub struct GuardArgs {
    #[command(flatten)]
    instance: Instance,
}

/// Where the data plane is kept.
#[derive(Args, Clone)]
pub struct Pins {
    /// BPF file system for what outlives the daemon, remembered until `cleanup` [default: /sys/fs/bpf, also where a new /sys hides it]
    #[arg(long, value_name = "DIR")]
    bpffs: Option<PathBuf>,
}

#[derive(Args, Clone)]
pub struct CleanupArgs {
    /// Leave what was committed, GTP-U sessions made over the API and leases of DHCP, for another start
    #[arg(long)]
    keep_commits: bool,
    #[command(flatten)]
    instance: Instance,
    #[command(flatten)]
    pins: Pins,
}

#[derive(Clone)]
struct Listen(Option<SocketAddr>);

fn listen(text: &str) -> Result<Listen, String> {
    match text {
        "none" => Ok(Listen(None)),
        _ => text.parse().map(|a| Listen(Some(a))).map_err(|_| "expected ADDRESS:PORT or none".to_owned()),
    }
}

pub fn run(args: &RunArgs) -> Outcome {
    start_log();
    let options = Options {
        config: args.config.clone(),
        override_store: args.override_store,
        state_dir: args.instance.state_dir.clone(),
        bpffs: args.pins.bpffs.clone(),
        wait: args.wait,
        translate: None,
        names: Names::default(),
        frr_pathspace: args.frr_pathspace.clone(),
        listen: args.listen.0,
        listen_names: args.listen_name.clone(),
    };
    Daemon::run(options)?;
    Ok(ExitCode::SUCCESS)
}

pub fn cleanup(args: &CleanupArgs) -> Outcome {
    start_log();
    sluice_control::cleanup(&args.instance.state_dir, args.pins.bpffs.as_deref(), args.keep_commits)?;
    Ok(ExitCode::SUCCESS)
}

pub fn guard(args: &GuardArgs) -> Outcome {
    start_log();
    let devices = sluice_control::guard_at_boot(&args.instance.state_dir)?;
    match devices.is_empty() {
        true => println!("nothing was committed yet: the kernel forwards as it did"),
        false => println!("the kernel forwards nothing from or to {}", devices.join(", ")),
    }
    Ok(ExitCode::SUCCESS)
}

fn start_log() {
    let _ = start_log_at("info");
}

/// Changes what is logged while the process runs.
pub type SetLevel = Box<dyn Fn(&str) + Send + Sync>;

/// SLUICE_LOG in the environment wins, now and later.
pub fn start_log_at(level: &str) -> SetLevel {
    let filter =
        |level: &str| EnvFilter::try_from_env("SLUICE_LOG").unwrap_or_else(|_| EnvFilter::new(level));
    let (chosen, handle) = reload::Layer::new(filter(level));
    let log = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .with_filter(chosen);
    tracing_subscriber::registry().with(log).with(Messages.with_filter(LevelFilter::INFO)).init();
    Box::new(move |level| {
        // the log lasts as long as the process
        let _ = handle.reload(filter(level));
    })
}
