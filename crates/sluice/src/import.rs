//! `sluice import`: a router's configuration becomes one that Sluice accepts, and it is said what that costs.

use std::io::{self, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use sluice_language::import::{Finding, Import, ImportError, Imported, Port};

use crate::exit::{BAD_INPUT, FAILED, Failure, Outcome, read};

#[derive(Args)]
pub struct ImportArgs {
    /// What `show configuration` printed, plain or with `display set`; `-` is standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Network devices that take the place of the router's interfaces
    #[arg(long, value_name = "NAME=DEVICE", value_delimiter = ',', value_parser = pair)]
    interfaces: Vec<(String, String)>,
    /// Give interfaces that are not named the devices of this machine, in the kernel's order
    #[arg(long)]
    in_order: bool,
    /// Write the result although more may pass than on the router
    #[arg(long)]
    accept: bool,
    /// Write the configuration there instead of to standard output
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Findings that are told one by one.
const MAX_TOLD: usize = 100;

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, device)) if !name.is_empty() && !device.is_empty() => {
            Ok((name.to_owned(), device.to_owned()))
        }
        _ => Err("expected NAME=DEVICE, like `ge-0/0/0=eth0`".to_owned()),
    }
}

pub fn import(args: &ImportArgs) -> Outcome {
    let (text, file) = input(&args.file)?;
    let import = Import::read(&text, &file)?;
    let ports: Vec<Port> = import.ports();
    let unnamed = ports.iter().filter(|port| args.interfaces.iter().all(|(name, _)| *name != port.name));
    let unnamed: Vec<&Port> = unnamed.collect();
    let mut devices = args.interfaces.clone();
    let asks = !args.in_order && args.file != Path::new("-") && io::stdin().is_terminal();
    if args.in_order {
        let free = free_devices(&devices);
        devices.extend(unnamed.iter().map(|port| port.name.clone()).zip(free));
    } else if asks && !unnamed.is_empty() {
        ask(&unnamed, &mut devices)?;
    }
    let imported = import.finish(&devices)?;
    sluice_control::check(&imported.text, &file, false)?;
    tell(&imported, &file);
    if imported.is_wider() && !args.accept {
        return Err(Failure::bad_input(
            "nothing written: more would pass than on the router; look at what is called wider, then say --accept",
        ));
    }
    match &args.output {
        Some(path) => std::fs::write(path, &imported.text)
            .map_err(|e| Failure::failed(format!("cannot write {}: {e}", path.display())))?,
        None => print!("{}", imported.text),
    }
    Ok(if imported.is_partial() { ExitCode::from(FAILED) } else { ExitCode::SUCCESS })
}

impl From<ImportError> for Failure {
    fn from(error: ImportError) -> Self {
        Failure { code: BAD_INPUT, message: error.to_string() }
    }
}

/// Routers print what they are told to, so that a byte which is no UTF-8 must not end it.
fn input(file: &Path) -> Result<(String, String), Failure> {
    if file == Path::new("-") {
        let mut bytes = Vec::new();
        io::stdin()
            .read_to_end(&mut bytes)
            .map_err(|e| Failure::bad_input(format!("cannot read standard input: {e}")))?;
        return Ok((String::from_utf8_lossy(&bytes).into_owned(), "standard input".to_owned()));
    }
    let name = file.display().to_string();
    match std::fs::read(file) {
        Ok(bytes) => Ok((String::from_utf8_lossy(&bytes).into_owned(), name)),
        Err(_) => read(file).map(|text| (text, name)),
    }
}

/// Ethernet devices of this machine in the kernel's order, but for those that are named already.
fn free_devices(named: &[(String, String)]) -> Vec<String> {
    let number = |path: PathBuf| std::fs::read_to_string(path).ok()?.trim().parse::<u32>().ok();
    let entries = std::fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    let mut devices: Vec<(u32, String)> = entries
        // 1 is Ethernet (ARPHRD_ETHER)
        .filter(|entry| number(entry.path().join("type")) == Some(1))
        .filter_map(|entry| {
            Some((number(entry.path().join("ifindex"))?, entry.file_name().into_string().ok()?))
        })
        .collect();
    devices.sort();
    let names = devices.into_iter().map(|(_, name)| name);
    names.filter(|name| named.iter().all(|(_, device)| device != name)).collect()
}

/// Asks for each interface; Enter takes the device that is offered, `-` leaves the interface out.
fn ask(ports: &[&Port], devices: &mut Vec<(String, String)>) -> Result<(), Failure> {
    eprintln!(
        "Which network devices take the place of the router's interfaces? Enter takes [this], `-` none."
    );
    for port in ports {
        let free = free_devices(devices);
        let offered = free.first().map(|name| format!(" [{name}]")).unwrap_or_default();
        eprint!("{}{}{offered}: ", port.name, about(port));
        io::stderr().flush().map_err(Failure::failed)?;
        let mut answer = String::new();
        let read = io::stdin().read_line(&mut answer).map_err(Failure::failed)?;
        if read == 0 {
            return Err(Failure::bad_input("no answer; name devices with --interfaces, or say --in-order"));
        }
        let device = match answer.trim() {
            "" => free.first().cloned(),
            "-" => None,
            name => Some(name.to_owned()),
        };
        devices.extend(device.map(|device| (port.name.clone(), device)));
    }
    Ok(())
}

/// ` (uplink, 203.0.113.2/30, zone untrust)`
fn about(port: &Port) -> String {
    let zones = port.zones.iter().map(|zone| format!("zone {zone}"));
    let facts: Vec<String> =
        port.description.iter().cloned().chain(port.addresses.iter().cloned()).chain(zones).collect();
    if facts.is_empty() { String::new() } else { format!(" ({})", facts.join(", ")) }
}

fn tell(imported: &Imported, file: &str) {
    for (from, to) in &imported.devices {
        eprintln!("sluice: {from} is {to}");
    }
    let mut last = None;
    for finding in imported.findings.iter().take(MAX_TOLD) {
        if last.replace(finding.cost) != Some(finding.cost) {
            eprintln!("\n{}: {}", finding.cost.name(), finding.cost.heading());
        }
        eprintln!("  {}", line(finding));
    }
    if let Some(further) = imported.findings.len().checked_sub(MAX_TOLD).filter(|further| *further > 0) {
        eprintln!("  and {further} more, all of them in comments at the top of the result");
    }
    let left = imported.findings.iter().filter(|finding| finding.left_out).count();
    match left {
        0 => eprintln!("sluice: {file}: all of it is taken over"),
        left => eprintln!(
            "\nsluice: {file}: {left} statements are not in effect; they stand in the result as `inactive:`"
        ),
    }
}

fn line(finding: &Finding) -> String {
    let at = &finding.location;
    format!("{}:{}:{}: `{}`: {}", at.file, at.line, at.column, finding.what, finding.why)
}
