//! `sluice fanout`: listeners from a YAML file.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sluice_control::{Daemon, Options};
use sluice_fanout::yaml::{self, Loaded};
use sluice_fanout::{Event, Runner, RunnerError, events, metrics, tree, watch_file};
use sluice_language::fan_out::{FanOut, Mode};

use crate::Instance;
use crate::exit::{Failure, Outcome, read};
use crate::run::start_log_at;

#[derive(Args)]
pub struct FanoutArgs {
    /// Listeners and receivers
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Only say whether the file is right
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    instance: Instance,
}

pub fn run(args: &FanoutArgs) -> Outcome {
    let loaded = load(&args.config)?;
    if args.check {
        println!("{}: {} listeners, no error", args.config.display(), loaded.fan_out.listeners.len());
        return Ok(ExitCode::SUCCESS);
    }
    start_log_at(loaded.log_level.as_deref().unwrap_or("info"));
    announce(&loaded.fan_out);
    if loaded.fan_out.kernel().next().is_none() {
        return in_user_space(&args.config, &loaded);
    }
    follow_file(&args.config).map_err(Failure::failed)?;
    let options = Options {
        config: Some(args.config.clone()),
        translate: Some(|text, file| tree::from_yaml(text, file).map_err(|error| error.to_string())),
        state_dir: args.instance.state_dir.clone(),
        listen: None,
    };
    Daemon::run(options)?;
    Ok(ExitCode::SUCCESS)
}

/// A changed file is news to the daemon like SIGHUP.
fn follow_file(file: &Path) -> std::io::Result<()> {
    watch_file(file, || kill(Pid::this(), Signal::SIGHUP).is_ok())
}

fn load(file: &Path) -> Result<Loaded, Failure> {
    yaml::load(&read(file)?, &file.display().to_string()).map_err(Failure::bad_input)
}

fn announce(fan_out: &FanOut) {
    let of = |mode: Mode| fan_out.listeners.iter().filter(|listener| listener.mode == mode).count();
    tracing::info!(version = env!("CARGO_PKG_VERSION"), "starting sluice fanout");
    tracing::info!(
        auto = of(Mode::Auto),
        xdp = of(Mode::Xdp),
        tc_ebpf = of(Mode::TcEbpf),
        af_xdp = of(Mode::AfXdp),
        userspace = of(Mode::Userspace),
        tcp_forward = of(Mode::TcpForward),
        "configured listeners by mode"
    );
}

/// With the line of the listener at fault.
fn refused(file: &Path, loaded: &Loaded, error: &RunnerError) -> Failure {
    let file = file.display().to_string();
    Failure::bad_input(loaded.error(&file, error.listener().unwrap_or_default(), error.to_string()))
}

fn in_user_space(file: &Path, loaded: &Loaded) -> Outcome {
    let events = events(file).map_err(Failure::failed)?;
    let runner = Runner::start().map_err(Failure::failed)?;
    runner.apply(&loaded.fan_out).map_err(|error| refused(file, loaded, &error))?;
    if let Some(address) = loaded.fan_out.metrics {
        let source = runner.clone();
        let bound = metrics::serve(address, Arc::new(move || source.report())).map_err(|error| {
            Failure::bad_input(format!(
                "{}: metrics on {address}: {error}; choose another with metrics.bind",
                file.display()
            ))
        })?;
        tracing::info!(address = %bound, "metrics at /metrics");
    }
    tracing::info!(pid = std::process::id(), "ready");
    while let Ok(event) = events.recv() {
        match event {
            Event::End => break,
            Event::Reload => reload(file, &runner),
        }
    }
    runner.end();
    tracing::info!("ended");
    Ok(ExitCode::SUCCESS)
}

/// What is wrong with the file leaves everything as it is.
fn reload(file: &Path, runner: &Runner) {
    let result = load(file)
        .and_then(|loaded| runner.apply(&loaded.fan_out).map_err(|error| refused(file, &loaded, &error)));
    match result {
        Ok(()) => tracing::info!(file = %file.display(), "reloaded"),
        Err(error) => tracing::error!(error = error.message, "reload refused, nothing changed"),
    }
}
