//! Routes and neighbours as the kernel of this namespace has them, and programs that ask the network.

use std::process::{Command as Process, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::grammar::{Argument, Given, Value, alone, named};
use super::out::{Done, Out, Stop};
use super::shell::Shell;
use crate::exit::Failure;
use crate::interrupt;
use crate::output::table;

pub const ROUTES: &[Argument] = &[
    named("table", "Only of this table: a number, main, local or all", Value::Any("table")),
    alone("destination", "Only to this prefix and what lies in it", Value::Prefix),
];

#[derive(Debug, Serialize, Deserialize)]
struct Route {
    dst: String,
    #[serde(rename = "type")]
    kind: Option<String>,
    gateway: Option<String>,
    via: Option<Via>,
    dev: Option<String>,
    protocol: Option<String>,
    metric: Option<u32>,
    #[serde(default)]
    nexthops: Vec<NextHop>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Via {
    host: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct NextHop {
    gateway: Option<String>,
    via: Option<Via>,
    dev: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Neighbour {
    dst: String,
    dev: String,
    lladdr: Option<String>,
    #[serde(default)]
    state: Vec<String>,
}

/// What iproute2 says, as data.
fn ip<T: DeserializeOwned>(arguments: &[&str]) -> Result<T, Failure> {
    let said = Process::new("ip").args(["-j", "-d"]).args(arguments).output();
    let said = said.map_err(|error| Failure::failed(format!("cannot run ip: {error}; install iproute2")))?;
    if !said.status.success() {
        return Err(Failure::failed(String::from_utf8_lossy(&said.stderr).trim()));
    }
    // of an empty table it says nothing
    let text = if said.stdout.trim_ascii().is_empty() { b"[]" } else { &said.stdout[..] };
    serde_json::from_slice(text)
        .map_err(|error| Failure::failed(format!("ip {}: {error}", arguments.join(" "))))
}

pub fn routes(_: &mut Shell, given: &Given, out: &mut Out) -> Done {
    let wanted = given.get("table").unwrap_or_else(|| "main".to_owned());
    let mut all = vec![];
    for (family, name) in [("-4", "inet.0"), ("-6", "inet6.0")] {
        let mut arguments = vec![family, "route", "show", "table", &wanted];
        let to = given.get("destination");
        if let Some(to) = &to {
            if to.contains(':') != (family == "-6") {
                continue;
            }
            arguments.extend(["root", to]);
        }
        let routes: Vec<Route> = ip(&arguments)?;
        all.push((name, routes));
    }
    out.show(&all, |all| all.iter().map(|(name, routes)| route_table(name, &wanted, routes)).collect())
}

fn route_table(name: &str, table: &str, routes: &[Route]) -> String {
    let table = if table == "main" { String::new() } else { format!(" (table {table})") };
    let mut text = format!("{name}{table}: {} destinations\n", routes.len());
    for route in routes {
        let dst = match (route.dst.as_str(), name) {
            ("default", "inet.0") => "0.0.0.0/0",
            ("default", _) => "::/0",
            (dst, _) => dst,
        };
        let protocol = match route.protocol.as_deref() {
            Some("kernel") | None => "Direct",
            Some("static") => "Static",
            Some("boot") => "Boot",
            Some(other) => other,
        };
        text += &format!("{dst:<24} *[{protocol}/{}]\n", route.metric.unwrap_or(0));
        let mut hops: Vec<String> =
            route.nexthops.iter().map(|hop| way(&hop.gateway, &hop.via, &hop.dev)).collect();
        if hops.is_empty() {
            hops.push(match route.kind.as_deref() {
                Some("unicast") | None => way(&route.gateway, &route.via, &route.dev),
                Some(kind) => kind.to_owned(),
            });
        }
        hops.iter().for_each(|hop| text += &format!("{:>26} {hop}\n", ">"));
    }
    text + "\n"
}

fn way(gateway: &Option<String>, via: &Option<Via>, dev: &Option<String>) -> String {
    let dev = dev.as_deref().unwrap_or("-");
    match gateway.as_ref().or(via.as_ref().map(|via| &via.host)) {
        Some(gateway) => format!("to {gateway} via {dev}"),
        None => format!("via {dev}"),
    }
}

pub fn arp(_: &mut Shell, _: &Given, out: &mut Out) -> Done {
    neighbour_table(out, "-4", &["MAC Address", "Address", "Interface", "State"])
}

pub fn neighbours(_: &mut Shell, _: &Given, out: &mut Out) -> Done {
    neighbour_table(out, "-6", &["Link-layer Address", "IPv6 Address", "Interface", "State"])
}

fn neighbour_table(out: &mut Out, family: &str, header: &[&str]) -> Done {
    let list: Vec<Neighbour> = ip(&[family, "neighbour", "show"])?;
    out.show(&list, |list| {
        let rows = list.iter().map(|neighbour| {
            vec![
                neighbour.lladdr.clone().unwrap_or_else(|| "none".to_owned()),
                neighbour.dst.clone(),
                neighbour.dev.clone(),
                neighbour.state.join(" ").to_lowercase(),
            ]
        });
        format!("{}\nTotal entries: {}\n", table(header, rows.collect()), list.len())
    })
}

/// Runs a program to its end: on a terminal it has the screen, else its lines go through the pipe.
pub fn run(_: &mut Shell, process: &mut Process, out: &mut Out) -> Done {
    use std::io::{BufRead, BufReader};
    let name = process.get_program().to_string_lossy().into_owned();
    let started = |error: std::io::Error| Failure::failed(format!("cannot run {name}: {error}; install it"));
    let mut child = if out.is_terminal {
        out.flush()?;
        process.spawn().map_err(started)?
    } else {
        process.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(started)?
    };
    let mut done = Ok(());
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).lines() {
            done = match line {
                Ok(line) => out.line(&line),
                Err(_) => Err(Stop::Interrupted),
            };
            if done.is_err() {
                // it may have ended by itself
                let _ = kill(Pid::from_raw(child.id() as i32), Signal::SIGINT);
                break;
            }
        }
    }
    // the handler only makes the wait return; the program has the signal, too
    let ended = child.wait().map_err(Failure::failed)?;
    done?;
    match interrupt::requested() || ended.success() {
        true => Ok(()),
        false => Err(Failure::failed(format!("{name} says no ({ended})")).into()),
    }
}
