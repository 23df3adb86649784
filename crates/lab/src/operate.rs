//! `sluice lab run operate`: the first section of docs/OPERATE.md, command by command, while an office goes on working.
//!
//! ```text
//!   client 10.30.1.10 ---- lan0 gateway wan0 ---- 203.0.113.10 server
//! ```
//!
//! The page is what is run: its blocks of commands in their order, and what it prints behind one must come of it.

use std::path::Path;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Serialize;

use crate::args::RunArgs;
use crate::branch::{HOST_DEVICE, Hook};
use crate::gateway::Gateway;
use crate::netns::{Netns, VethEnd, veth};
use crate::patience::until;
use crate::scene::{self, Row, print_rows};
use crate::services::{self, Service};
use crate::state::StateDirectory;

/// The gateway's configuration when the walk begins.
pub const OPERATE_CONF: &str = include_str!("../../../examples/operate.conf");
const PAGE: &str = include_str!("../../../docs/OPERATE.md");
const SECTION: &str = "## A day with a gateway\n";
const SERVER: &str = "203.0.113.10";

/// Where the commands of a block are typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// ```` ```sh ````: at the gateway.
    Gateway,
    /// ```` ```sh client ````: at a host of the LAN.
    Client,
    /// ```` ```sh package ````: what the package manager does to the daemon stands for it here; `make debtest` runs it.
    Package,
}

/// Commands of the page, and what it shows of their output.
#[derive(Debug)]
struct Step {
    place: Place,
    commands: &'static str,
    shown: Option<&'static str>,
}

/// The steps of the walk: blocks behind a fence, each followed by an unmarked one if the page shows output.
fn steps(page: &'static str) -> Result<Vec<Step>> {
    let (_, section) = page.split_once(SECTION).context("docs/OPERATE.md has lost its walk")?;
    let section = section.split("\n## ").next().unwrap_or_default();
    let mut steps: Vec<Step> = vec![];
    // outside and inside of fences take turns
    for block in section.split("```").skip(1).step_by(2) {
        let (mark, text) = block.split_once('\n').unwrap_or((block, ""));
        let place = match mark {
            "sh" => Place::Gateway,
            "sh client" => Place::Client,
            "sh package" => Place::Package,
            // `make debtest` installs the package in a clean Debian
            "sh install" => continue,
            "" => {
                steps.last_mut().context("output before any command")?.shown = Some(text);
                continue;
            }
            other => bail!("docs/OPERATE.md: nobody knows how to run a block of {other:?}"),
        };
        steps.push(Step { place, commands: text, shown: None });
    }
    Ok(steps)
}

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A line of the page that is not in the output. Blanks count as one, and `...` stands for anything in a line.
fn missing<'a>(shown: &'a str, output: &str) -> Option<&'a str> {
    let lines: Vec<String> = output.lines().map(words).collect();
    let fits = |wanted: &str| {
        lines.iter().any(|line| {
            let mut rest = line.as_str();
            wanted.split("...").map(words).all(|part| match rest.find(&part) {
                Some(at) => {
                    rest = &rest[at + part.len()..];
                    true
                }
                None => false,
            })
        })
    };
    shown.lines().find(|line| !line.trim().is_empty() && !fits(line))
}

struct Office {
    gateway: Netns,
    client: Netns,
    server: Netns,
}

impl Office {
    fn create(hook: Hook) -> Result<Office> {
        let make = |label: &str| Netns::create(&format!("operate-{label}"));
        let office = Office { gateway: make("gw")?, client: make("client")?, server: make("server")? };
        for (host, device, address, via) in [
            (&office.client, "lan0", "10.30.1.10/24", "10.30.1.1"),
            (&office.server, "wan0", "203.0.113.10/24", "203.0.113.1"),
        ] {
            let near = VethEnd { netns: &office.gateway, name: device, mac: None, addresses: &[] };
            veth(near, VethEnd { netns: host, name: HOST_DEVICE, mac: None, addresses: &[address] })?;
            host.ip(&format!("route add default via {via}"))?;
            if hook == Hook::Xdp {
                // XDP sees frames as the stack left them: checksums must be complete; a peer that polls takes redirects
                host.run("ethtool", ["-K", HOST_DEVICE, "tx", "off", "gro", "on"])?;
            }
        }
        Ok(office)
    }

    /// Somebody who opens a page over and over, over a slow line: a commit finds a connection in the middle, whose last segments
    /// come for seconds.
    fn start_work(&self) -> Result<Service> {
        let mut command = self.client.command("sh");
        let page =
            format!("while :; do curl -so /dev/null --limit-rate 400k -m1 http://{SERVER}/; sleep 0.1; done");
        command.args(["-c", &page]).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Service(command.spawn().context("cannot start a shell")?))
    }

    fn answers(&self) -> bool {
        let ping = ["-n", "-c1", "-W1", SERVER];
        self.client.command("ping").args(ping).output().is_ok_and(|output| output.status.success())
    }
}

/// Runs the commands of one block; gives whether they worked, and all they print.
fn run_block(office: &Office, directory: &Path, step: &Step) -> Result<(bool, String)> {
    let program = std::env::current_exe().context("cannot find the sluice binary")?;
    let script = format!(
        "exec 2>&1; set -e; cd \"$DIRECTORY\"; sluice() {{ \"$PROGRAM\" \"$@\" --state-dir \"$DIRECTORY\"; }}\n{}",
        step.commands
    );
    let netns = if step.place == Place::Client { &office.client } else { &office.gateway };
    let output = netns
        .command("timeout")
        .args(["30", "sh", "-c", &script])
        .env("PROGRAM", program)
        .env("DIRECTORY", directory)
        .output()
        .context("cannot start a shell")?;
    Ok((output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned()))
}

/// What installing a package does to a gateway that runs: the daemon ends, and the new one starts. Every ping of that time
/// must be answered.
fn upgrade(office: &Office, gateway: &mut Gateway<'_>) -> Result<(bool, String)> {
    let pings = ["-n", "-q", "-i0.01", "-c150", "-W1", SERVER];
    let mut command = office.client.command("ping");
    let running = command.args(pings).stdout(Stdio::piped()).spawn().context("cannot start ping")?;
    gateway.stop()?;
    gateway.forget_file();
    gateway.start()?;
    let output = running.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let summary = said.lines().find(|line| line.contains("transmitted")).unwrap_or_default();
    Ok((
        summary.contains(" 0% packet loss"),
        format!("{}\n", summary.split(", time").next().unwrap_or_default()),
    ))
}

/// A step as its reader sees it.
#[derive(Debug, Serialize)]
struct Played {
    commands: &'static str,
    output: String,
    ok: bool,
    /// Line of the page that did not come.
    missing: Option<&'static str>,
}

/// What came of one hook.
#[derive(Debug, Serialize)]
struct Report {
    hook: &'static str,
    steps: Vec<Played>,
    checks: Vec<Row>,
}

impl scene::HookReport for Report {
    fn is_ok(&self) -> bool {
        self.steps.iter().all(|step| step.ok) && self.checks.iter().all(|row| row.ok)
    }

    fn print(&self) {
        println!("\nA day with a gateway (docs/OPERATE.md) on the {} hook", self.hook);
        for step in &self.steps {
            println!();
            step.commands.lines().for_each(|line| println!("  $ {line}"));
            step.output.lines().for_each(|line| println!("    {line}"));
            match step.missing {
                _ if step.ok => {}
                Some(line) => println!("  FAIL the page shows this line: {line}"),
                None => println!("  FAIL"),
            }
        }
        println!();
        print_rows(&self.checks, 52);
    }
}

/// Runs it on every wanted hook.
pub fn run_lab(args: &RunArgs) -> Result<ExitCode> {
    scene::on_hooks(args, play)
}

fn play(hook: Hook) -> Result<Report> {
    let directory = StateDirectory::new(hook.name())?;
    let office = Office::create(hook)?;
    let _services = services::start(&[&office.server], directory.path())?;
    let mode = format!("system {{ services {{ sluice {{ mode {}; }} }} }}\n", hook.name());
    let mut gateway = scene::gateway(
        &office.gateway,
        directory.path(),
        "operate.conf",
        &(OPERATE_CONF.to_owned() + &mode),
    )?;
    gateway.start()?;
    until(Duration::from_secs(10), || Ok(office.answers()), || "the server does not answer".to_owned())?;
    let work = office.start_work()?;
    let (mut played, mut checks) = (vec![], vec![]);
    for step in steps(PAGE)? {
        crate::interrupt::check()?;
        let (worked, output) = match step.place {
            Place::Package => upgrade(&office, &mut gateway)?,
            _ => run_block(&office, directory.path(), &step)?,
        };
        let missing = step.shown.and_then(|shown| missing(shown, &output));
        played.push(Played { commands: step.commands, output, ok: worked && missing.is_none(), missing });
    }
    drop(work);
    checks.push(Row {
        check: "every command of the page worked, and shows what it says",
        ok: played.iter().all(|step| step.ok),
        saw: format!("{} blocks", played.len()),
    });
    scene::finish(gateway, &mut checks)?;
    Ok(Report { hook: hook.name(), steps: played, checks })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_page_are_looked_for_with_gaps() {
        assert_eq!(missing("a ... c\n\n  x", "aa  b c\nx  y\n"), None);
        assert_eq!(missing("a ... c", "a b\nc\n"), Some("a ... c"));
        assert_eq!(missing("c ... a", "a b c"), Some("c ... a"));
    }

    #[test]
    fn the_page_has_its_steps() {
        let steps = steps(PAGE).unwrap();
        assert!(steps.iter().any(|step| step.place == Place::Package));
        assert!(steps.iter().filter(|step| step.shown.is_some()).count() >= 4, "{steps:?}");
    }
}
