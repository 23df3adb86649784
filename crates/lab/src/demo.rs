//! `sluice lab run branch`: real traffic through a real gateway, and a report that can fail.

use std::collections::VecDeque;
use std::fs;
use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::args::{GatewayKind, RunArgs};
use crate::branch::{Branch, Hook, Site};
use crate::gateway::Gateway;
use crate::hosts;
use crate::interrupt::{self, Interrupted};
use crate::matrix::{self, Case, Row};
use crate::probe::Verdict;
use crate::report::{self, GatewayReport, Report};
use crate::scene;
use crate::services;
use crate::state::{StateDirectory, remove_leftovers};
use crate::stats;

/// The gateway's configuration when none is given.
pub const BRANCH_CONF: &str = include_str!("../../../examples/branch.conf");

/// Silent cases wait, they do not work: many at a time.
const PROBES_AT_ONCE: usize = 24;

/// Runs every wanted gateway one after the other. The exit code says whether everything was as expected.
pub fn run(args: &RunArgs) -> Result<ExitCode> {
    interrupt::install()?;
    match run_all(args) {
        Err(error) if error.is::<Interrupted>() || interrupt::requested() => {
            eprintln!("sluice lab: interrupted; everything is torn down");
            Ok(ExitCode::from(130))
        }
        Err(error) => Err(error),
        Ok(report) => Ok(if report.ok { ExitCode::SUCCESS } else { ExitCode::FAILURE }),
    }
}

fn run_all(args: &RunArgs) -> Result<Report> {
    remove_leftovers();
    let started = Instant::now();
    let hooks: Vec<Option<Hook>> = match args.gateway {
        GatewayKind::Sluice => args.hook.list().iter().copied().map(Some).collect(),
        GatewayKind::Linux => vec![None],
    };
    let data_only = args.json.as_deref() == Some(Path::new("-"));
    let mut gateways = vec![];
    for hook in hooks {
        let gateway = run_gateway(hook, args.config.as_deref())?;
        if !data_only {
            report::print_gateway(&gateway);
        }
        gateways.push(gateway);
    }
    let ok = gateways.iter().all(|gateway| gateway.ok);
    let report = Report { lab: "branch", ok, seconds: started.elapsed().as_secs_f64(), gateways };
    if let Some(file) = &args.json {
        write_json(&report, file)?;
    }
    if !data_only {
        report::print_end(&report);
    }
    Ok(report)
}

fn write_json(report: &Report, file: &Path) -> Result<()> {
    let text = serde_json::to_string_pretty(report)? + "\n";
    if file == Path::new("-") {
        print!("{text}");
        return Ok(());
    }
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

fn run_gateway(hook: Option<Hook>, config: Option<&Path>) -> Result<GatewayReport> {
    let started = Instant::now();
    let name = hook.map_or("linux", Hook::name);
    progress(&format!("{name}: laying out the branch"));
    let directory = StateDirectory::new(name)?;
    let branch = Branch::create(hook)?;
    branch.queue_per_cpu()?;
    let hosts: Vec<_> = Site::ALL.iter().map(|site| branch.host(*site)).collect();
    let _services = services::start(&hosts, directory.path())?;
    let gateway = hook.map(|hook| start_gateway(hook, &branch, directory.path(), config)).transpose()?;

    let cases = matrix::cases().into_iter().filter(|case| hook.is_some() || case.expected == Verdict::Passed);
    let rows = run_cases(&branch, cases.collect(), name)?;
    let stats = gateway.as_ref().map(stats::at_rest).transpose()?;
    let checksum_errors = hosts::checksum_errors(&hosts)?;
    let ok = rows.iter().all(|row| row.ok)
        && checksum_errors.is_empty()
        && stats
            .as_ref()
            .is_none_or(|stats| stats.equations.hold() && stats.attached_otherwise(name).is_empty());
    if !ok && let Some(gateway) = &gateway {
        eprintln!("last words of the daemon:\n{}", gateway.last_words());
    }
    progress(&format!("{name}: tearing down"));
    gateway.map(Gateway::finish).transpose()?;
    Ok(GatewayReport {
        gateway: name,
        ok,
        seconds: started.elapsed().as_secs_f64(),
        rows,
        checksum_errors,
        stats,
    })
}

/// Starts the daemon with the branch configuration on one hook.
pub fn start_gateway<'a>(
    hook: Hook,
    branch: &'a Branch,
    state: &Path,
    config: Option<&Path>,
) -> Result<Gateway<'a>> {
    let text = configuration_text(hook, config)?;
    let mut gateway = scene::gateway(&branch.gateway, state, "branch.conf", &text)?;
    gateway.start()?;
    Ok(gateway)
}

/// The configuration with the hook set for every interface.
pub fn configuration_text(hook: Hook, config: Option<&Path>) -> Result<String> {
    let text = match config {
        Some(file) => fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?,
        None => BRANCH_CONF.to_owned(),
    };
    Ok(format!(
        "{text}system {{\n    services {{\n        sluice {{\n            mode {};\n        }}\n    }}\n}}\n",
        hook.name()
    ))
}

fn run_cases(branch: &Branch, cases: Vec<Case>, name: &str) -> Result<Vec<Row>> {
    let (load, quiet): (Vec<_>, Vec<_>) = cases.into_iter().partition(|case| case.probe.is_load());
    progress(&format!("{name}: {} probes", quiet.len()));
    let mut rows = run_in_parallel(branch, quiet)?;
    for case in load {
        interrupt::check()?;
        progress(&format!(
            "{name}: {} > {}: {}",
            case.from.name(),
            case.to,
            case.probe.name(case.target.is_ipv6())
        ));
        rows.push(case.run(branch));
    }
    Ok(rows)
}

fn run_in_parallel(branch: &Branch, cases: Vec<Case>) -> Result<Vec<Row>> {
    let queue: Mutex<VecDeque<_>> = Mutex::new(cases.into_iter().enumerate().collect());
    let rows = Mutex::new(vec![]);
    thread::scope(|scope| {
        for _ in 0..PROBES_AT_ONCE {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().ok().and_then(|mut queue| queue.pop_front());
                    let Some((index, case)) = next else { break };
                    if interrupt::requested() {
                        break;
                    }
                    let row = case.run(branch);
                    if let Ok(mut rows) = rows.lock() {
                        rows.push((index, row));
                    }
                }
            });
        }
    });
    interrupt::check()?;
    let mut rows = rows.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    rows.sort_by_key(|(index, _)| *index);
    Ok(rows.into_iter().map(|(_, row)| row).collect())
}

/// One line that tells what is going on, only when somebody watches.
fn progress(text: &str) {
    if std::io::stderr().is_terminal() {
        eprintln!("  {text}");
    }
}
