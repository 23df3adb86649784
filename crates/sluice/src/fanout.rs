//! `sluice fanout`: listeners from a YAML file.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use clap::Args;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sluice_control::{Daemon, Options, Translate};
use sluice_fanout::names::PATIENCE;
use sluice_fanout::yaml::{self, Loaded};
use sluice_fanout::{Event, Names, Runner, RunnerError, events, metrics, tree, watch_file};
use sluice_language::fan_out::{FanOut, Mode};

use crate::Instance;
use crate::exit::{Failure, Outcome, read};
use crate::run::{SetLevel, start_log_at};

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
        has_interfaces(&args.config, &loaded)?;
        println!("{}: {} listeners, no error", args.config.display(), loaded.fan_out.listeners.len());
        return Ok(ExitCode::SUCCESS);
    }
    let set_level = start_log_at(level(&loaded));
    announce(&loaded.fan_out);
    if loaded.fan_out.kernel().next().is_none() {
        return in_user_space(&args.config, &loaded, &set_level);
    }
    follow_file(&args.config).map_err(Failure::failed)?;
    let names = Names::default();
    let yaml = Yaml { names: names.clone(), set_level, level: Mutex::default(), ways: Mutex::default() };
    let options = Options {
        config: Some(args.config.clone()),
        override_store: false,
        translate: Some(Arc::new(yaml)),
        names,
        state_dir: args.instance.state_dir.clone(),
        listen: None,
        bpffs: None,
        wait: false,
        frr_pathspace: None,
        listen_names: vec![],
    };
    Daemon::run(options)?;
    Ok(ExitCode::SUCCESS)
}

/// The file as the daemon reads it.
struct Yaml {
    names: Names,
    set_level: SetLevel,
    /// Of what was read last.
    level: Mutex<String>,
    /// Likewise its listeners, and the devices that led to their receivers then.
    ways: Mutex<(FanOut, BTreeSet<String>)>,
}

impl Translate for Yaml {
    fn statements(&self, text: &str, file: &str) -> Result<String, String> {
        let loaded = yaml::load(text, file).map_err(|error| error.to_string())?;
        level(&loaded).clone_into(&mut self.level.lock().unwrap_or_else(PoisonError::into_inner));
        self.names.learn(&loaded.fan_out, PATIENCE);
        // before the tree is made: a way that comes up between the two is found to be new
        let ways = tree::ways(&loaded.fan_out, &self.names);
        *self.ways.lock().unwrap_or_else(PoisonError::into_inner) = (loaded.fan_out.clone(), ways);
        tree::from_yaml(&loaded, file, &self.names).map_err(|error| error.to_string())
    }

    /// A receiver whose link was down, or that had no route, when the file was read has a way now.
    fn is_behind(&self) -> bool {
        let (fan_out, known) = self.ways.lock().unwrap_or_else(PoisonError::into_inner).clone();
        !tree::ways(&fan_out, &self.names).is_subset(&known)
    }

    fn in_force(&self) {
        (self.set_level)(&self.level.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

fn level(loaded: &Loaded) -> &str {
    loaded.log_level.as_deref().unwrap_or("info")
}

/// Interfaces that listeners name must be there, whatever their mode.
fn has_interfaces(file: &Path, loaded: &Loaded) -> Result<(), Failure> {
    for listener in &loaded.fan_out.listeners {
        let Some(interface) = &listener.interface else { continue };
        // tagged units of the kernel and of rings are made on their device; sockets want one that is there
        let device = match listener.mode {
            Mode::Userspace | Mode::TcpForward => interface.strip_suffix(".0").unwrap_or(interface),
            _ => interface.rsplit_once('.').map_or(interface.as_str(), |(device, _)| device),
        };
        if nix::net::if_::if_nametoindex(device).is_err() {
            let (listener, interface) = (listener.name.clone(), device.to_owned());
            return Err(refused(file, loaded, &RunnerError::NoInterface { listener, interface }));
        }
    }
    Ok(())
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

/// What a process in user space does with a file, at the start and whenever it has changed.
struct UserSpace<'a> {
    file: &'a Path,
    names: Names,
    runner: Runner,
    server: metrics::Server,
    set_level: &'a SetLevel,
}

fn in_user_space(file: &Path, loaded: &Loaded, set_level: &SetLevel) -> Outcome {
    let events = events(file).map_err(Failure::failed)?;
    let names = Names::default();
    let runner = Runner::start(names.clone()).map_err(Failure::failed)?;
    let running = UserSpace { file, names, runner, server: metrics::Server::default(), set_level };
    running.put_in_force(loaded)?;
    tracing::info!(pid = std::process::id(), "ready");
    while let Ok(event) = events.recv() {
        match event {
            Event::End => break,
            Event::Reload => running.reload(),
        }
    }
    running.runner.end();
    tracing::info!("ended");
    Ok(ExitCode::SUCCESS)
}

impl UserSpace<'_> {
    /// What is wrong with the file leaves everything as it is.
    fn reload(&self) {
        match load(self.file).and_then(|loaded| self.put_in_force(&loaded)) {
            Ok(()) => tracing::info!(file = %self.file.display(), "reloaded"),
            Err(error) => tracing::error!(error = error.message, "reload refused, nothing changed"),
        }
    }

    fn put_in_force(&self, loaded: &Loaded) -> Result<(), Failure> {
        let (fan_out, file) = (&loaded.fan_out, self.file.display().to_string());
        if let Some(listener) = fan_out.kernel().next() {
            let message = format!(
                "listener {}: mode {} needs the data plane, which only a new start takes up; restart `sluice fanout`",
                listener.name,
                listener.mode.name()
            );
            return Err(Failure::bad_input(loaded.error(&file, &listener.name, message)));
        }
        let no_metrics =
            |error: std::io::Error| Failure::bad_input(format!("{file}: {error} with metrics.bind"));
        self.names.learn(fan_out, PATIENCE);
        let bound = self.server.prepare(fan_out.metrics).map_err(no_metrics)?;
        self.runner.apply(fan_out).map_err(|error| refused(self.file, loaded, &error))?;
        let runner = self.runner.clone();
        let source: metrics::Source = Arc::new(move || runner.report());
        self.server.put(fan_out.metrics, bound, &source).map_err(no_metrics)?;
        self.names.want(fan_out);
        (self.set_level)(level(loaded));
        Ok(())
    }
}
