//! Routes and neighbours as the kernel of this namespace has them, and programs that ask the network.

use std::collections::BTreeMap;
use std::process::{Command as Process, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sluice_control::api::routes::{RoutingInstanceView, StaticRouteView};
use sluice_control::operations::NoArguments;
use sluice_control::operations::routes::{ROUTING_INSTANCES, STATIC_ROUTES};

use super::grammar::{Argument, Given, Value, alone, named};
use super::out::{Done, Out, Stop};
use super::shell::Shell;
use crate::exit::Failure;
use crate::interrupt;
use crate::output::table;

/// As `ip route` shows the protocol number of what Sluice has put there.
const OURS: &str = "83";
/// To prefixes that clients of the DHCPv6 server have.
const DELEGATED: &str = "84";

pub const ROUTES: &[Argument] = &[
    named(
        "protocol",
        "Only of this origin: static, direct, access, bgp, ospf, dhcp, or as the kernel calls it",
        Value::Any("protocol"),
    ),
    named("instance", "Of this routing instance", Value::Any("routing-instance")),
    named(
        "table",
        "Only of this table: inet6.0, NAME.inet.0, a number, main, local or all",
        Value::Any("table"),
    ),
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
    flags: Vec<String>,
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
    #[serde(default)]
    flags: Vec<String>,
}

/// What is shown of one family.
#[derive(Debug, Serialize)]
struct Table {
    name: &'static str,
    routes: Vec<Route>,
    /// Static routes that the kernel does not have.
    missing: Vec<StaticRouteView>,
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

pub fn routes(shell: &mut Shell, given: &Given, out: &mut Out) -> Done {
    let place = Place::new(given)?;
    let (to, protocol) = (given.get("destination"), given.get("protocol"));
    let is_wanted = |origin: &str| protocol.as_deref().is_none_or(|only| only.eq_ignore_ascii_case(origin));
    // the kernel is asked whether the daemon answers or not
    let configured = match place.is_configured() && to.is_none() && is_wanted("static") {
        true => shell.ask(&STATIC_ROUTES, &NoArguments {}).unwrap_or_default(),
        false => vec![],
    };
    let of_table =
        configured.iter().filter(|route| !route.present && route.routing_instance == place.instance);
    let missing = |v6: bool| of_table.clone().filter(move |r| r.destination.contains(':') == v6);
    let mut all = vec![];
    for (family, name) in [("-4", "inet.0"), ("-6", "inet6.0")] {
        if place.family.is_some_and(|only| only != name) {
            continue;
        }
        let mut arguments = vec![family, "route", "show"];
        arguments.extend(place.words());
        if let Some(to) = &to {
            if to.contains(':') != (family == "-6") {
                continue;
            }
            arguments.extend(["root", to]);
        }
        let mut routes: Vec<Route> = ip(&arguments)?;
        routes.retain(|route| is_wanted(route.origin()));
        all.push(Table { name, routes, missing: missing(family == "-6").cloned().collect() });
    }
    out.show(&all, |all| all.iter().map(|part| route_table(part, &place)).collect())
}

/// Which table is shown.
struct Place {
    /// As iproute2 takes it; an instance's is asked for by its VRF device.
    table: String,
    instance: Option<String>,
    family: Option<&'static str>,
}

impl Place {
    /// `instance NAME`, or `table` with a table of Junos (`inet.0`, `NAME.inet6.0`) or of the kernel.
    fn new(given: &Given) -> Result<Place, Failure> {
        let (table, instance) = (given.get("table"), given.get("instance"));
        let instance = instance.filter(|name| name != "main" && name != "master" && name != "default");
        let main = "main".to_owned();
        let Some(table) = table else { return Ok(Place { table: main, instance, family: None }) };
        if instance.is_some() {
            return Err(Failure::bad_input("show route: `table` and `instance`; leave one out"));
        }
        for family in ["inet.0", "inet6.0"] {
            let Some(before) = table.strip_suffix(family) else { continue };
            let instance = before.strip_suffix('.').filter(|name| !name.is_empty()).map(str::to_owned);
            return Ok(Place { table: main, instance, family: Some(family) });
        }
        Ok(Place { table, instance: None, family: None })
    }

    /// Routes of the configuration may be missing there.
    fn is_configured(&self) -> bool {
        self.table == "main"
    }

    fn words(&self) -> [&str; 2] {
        match &self.instance {
            Some(name) => ["vrf", name],
            None => ["table", &self.table],
        }
    }
}

impl Route {
    /// In the words of Junos where it has one.
    fn origin(&self) -> &str {
        match self.protocol.as_deref() {
            Some("kernel") | None => "Direct",
            Some("static" | OURS) => "Static",
            Some(DELEGATED) => "Access",
            Some("bgp") => "BGP",
            Some("ospf") => "OSPF",
            Some("dhcp") => "DHCP",
            Some("ra") => "Router-Advertisement",
            Some("boot") => "Boot",
            Some(other) => other,
        }
    }

    fn destination(&self, is_v6: bool) -> &str {
        match (self.dst.as_str(), is_v6) {
            ("default", false) => "0.0.0.0/0",
            ("default", true) => "::/0",
            (dst, _) => dst,
        }
    }

    /// The kernel passes it over.
    fn is_dead(&self) -> bool {
        let dead = |flags: &[String]| flags.iter().any(|flag| flag == "dead");
        match self.nexthops.is_empty() {
            true => dead(&self.flags),
            false => self.nexthops.iter().all(|hop| dead(&hop.flags)),
        }
    }

    /// Where it leads, and what is wrong with that.
    fn ways(&self) -> Vec<String> {
        if !self.nexthops.is_empty() {
            return self
                .nexthops
                .iter()
                .map(|hop| way(&hop.gateway, &hop.via, &hop.dev, &hop.flags))
                .collect();
        }
        vec![match self.kind.as_deref() {
            Some("unicast") | None => way(&self.gateway, &self.via, &self.dev, &self.flags),
            Some(kind) => kind.to_owned(),
        }]
    }
}

fn route_table(part: &Table, place: &Place) -> String {
    let Table { name, routes, missing } = part;
    let title = match (&place.instance, place.table.as_str()) {
        (Some(instance), _) => format!("{instance}.{name}"),
        (None, "main") => (*name).to_owned(),
        (None, table) => format!("{name} (table {table})"),
    };
    let mut text = format!("{title}: {} routes\n", routes.len());
    let mut best: BTreeMap<&str, u32> = BTreeMap::new();
    for route in routes.iter().filter(|route| !route.is_dead()) {
        let metric = route.metric.unwrap_or(0);
        best.entry(&route.dst).and_modify(|least| *least = metric.min(*least)).or_insert(metric);
    }
    for route in routes {
        let metric = route.metric.unwrap_or(0);
        let is_used = !route.is_dead() && best.get(route.dst.as_str()) == Some(&metric);
        let mark = if is_used { '*' } else { ' ' };
        let note =
            if route.protocol.as_deref() == Some("static") { " not of this configuration" } else { "" };
        text += &format!(
            "{:<24} {mark}[{}/{metric}]{note}\n",
            route.destination(*name == "inet6.0"),
            route.origin()
        );
        route.ways().iter().for_each(|way| text += &format!("{:>26} {way}\n", ">"));
    }
    for StaticRouteView { destination, preference, target, .. } in missing {
        text += &format!(
            "{destination:<24}  [Static/{preference}] configured, not in the kernel\n{:>26} {target}\n",
            " "
        );
    }
    text + "\n"
}

fn way(gateway: &Option<String>, via: &Option<Via>, dev: &Option<String>, flags: &[String]) -> String {
    let dev = dev.as_deref().unwrap_or("-");
    let dead = flags.iter().filter(|flag| *flag == "dead" || *flag == "linkdown");
    let dead: Vec<&str> = dead.map(String::as_str).collect();
    let note = if dead.is_empty() { String::new() } else { format!(" ({})", dead.join(", ")) };
    match gateway.as_ref().or(via.as_ref().map(|via| &via.host)) {
        Some(gateway) => format!("to {gateway} via {dev}{note}"),
        None => format!("via {dev}{note}"),
    }
}

/// `show routing instances`
pub fn instances(shell: &mut Shell, _: &Given, out: &mut Out) -> Done {
    out.show(&shell.ask(&ROUTING_INSTANCES, &NoArguments {})?, |list| {
        let rows = list.iter().map(|view: &RoutingInstanceView| {
            let state = match (view.up, view.missing.as_slice()) {
                (false, _) => "down".to_owned(),
                (true, []) => "up".to_owned(),
                (true, missing) => format!("without {}", missing.join(" ")),
            };
            let (name, kind) = (view.name.clone(), view.instance_type.clone());
            vec![name, kind, view.table.to_string(), state, view.interfaces.join(" ")]
        });
        table(&["Instance", "Type", "Table", "State", "Interfaces"], rows.collect()).to_string()
    })
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
