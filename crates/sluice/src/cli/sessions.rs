//! `show security flow session`: a page at a time, so that a million of them need no more memory than a hundred.

use std::borrow::Cow;
use std::fmt::Write;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use serde::Deserialize;
use sluice_control::api::{SessionFilter, SessionList};
use sluice_control::operations::NoArguments;
use sluice_control::operations::sessions::SESSIONS;
use sluice_control::operations::system::STATS;

use super::grammar::{Argument, Given, Value, flag, named};
use super::out::{Done, Out, Stop};
use super::pipe::Form;
use super::shell::Shell;
use crate::exit::Failure;
use crate::sessions::seconds;

const PORT: Value = Value::Number(0, 65_535);

macro_rules! filter {
    ($($more:expr,)*) => {
        &[
            named("application", "Application or application-set, also a predefined one", Value::Name("application")),
            named("destination-port", "Destination port of the initiator", PORT),
            named("destination-prefix", "Destination address of the initiator", Value::Prefix),
            named("interface", "Interface the first packet arrived on", Value::Name("interface")),
            flag("nat", "Only sessions that are translated"),
            named("nat-prefix", "Address that translation put into the session", Value::Prefix),
            named("policy", "Policy that permitted it", Value::Name("policy")),
            named("protocol", "tcp, udp, icmp, icmp6 or a number", Value::Name("protocol")),
            named("source-port", "Source port of the initiator", PORT),
            named("source-prefix", "Source address of the initiator", Value::Prefix),
            named("zone", "Ingress or egress zone", Value::Name("zone")),
            $($more,)*
        ]
    };
}

pub const FILTER: &[Argument] = filter!();
pub const LISTED: &[Argument] = filter!(flag("summary", "Only how many"),);

/// Sessions of the first answer, which is there at once, and of each behind it.
const FIRST: usize = 100;
const PAGE: usize = 10_000;

pub fn filter(given: &Given) -> SessionFilter {
    SessionFilter {
        source_prefix: given.get("source-prefix"),
        destination_prefix: given.get("destination-prefix"),
        nat_prefix: given.get("nat-prefix"),
        nat: given.has("nat"),
        protocol: given.get("protocol"),
        source_port: given.number("source-port"),
        destination_port: given.number("destination-port"),
        zone: given.get("zone"),
        interface: given.get("interface"),
        policy: given.get("policy"),
        application: given.get("application"),
        ..SessionFilter::default()
    }
}

pub fn list(shell: &mut Shell, given: &Given, out: &mut Out) -> Done {
    out.takes(&[Form::Text, Form::Json])?;
    let filter = filter(given);
    if given.has("summary") {
        return summary(shell, &filter, out);
    }
    let (mut total, mut separator, mut text) = (0_u64, "[", String::new());
    for answer in pages(shell, filter) {
        let answer = answer?;
        let is_first = total == 0;
        match out.form {
            Form::Json => {
                let page: SessionList = read(&answer)?;
                total += page.sessions.len() as u64;
                for session in &page.sessions {
                    let line = serde_json::to_string(session).map_err(Failure::failed)?;
                    out.line(&format!("{separator}{line}"))?;
                    separator = ",";
                }
            }
            _ => {
                let page: Page<'_> = read(&answer)?;
                total += page.sessions.len() as u64;
                for session in &page.sessions {
                    text.clear();
                    session.describe(&mut text);
                    text.split('\n').try_for_each(|line| out.line(line))?;
                }
            }
        }
        if is_first {
            out.flush()?;
        }
    }
    match out.form {
        Form::Json => out.line(if total == 0 { "[]" } else { "]" }),
        _ => out.line(&format!("Total sessions: {total}")),
    }
}

fn read<'a, T: Deserialize<'a>>(answer: &'a [u8]) -> Result<T, Failure> {
    serde_json::from_slice(answer)
        .map_err(|error| Failure::failed(format!("the list cannot be read: {error}")))
}

/// Where an answer stands that says how many it has before it lists them.
const LISTS: &[u8] = b",\"sessions\":[";

/// Where the next page begins. It is asked for before this one is read as a whole.
fn next_of(answer: &[u8]) -> Result<Option<u64>, Failure> {
    #[derive(Deserialize)]
    struct Head {
        next: Option<u64>,
    }
    let start = &answer[..answer.len().min(200)];
    let head = match start.windows(LISTS.len()).position(|window| window == LISTS) {
        Some(length) => [&start[..length], b"}"].concat(),
        None => answer.to_vec(),
    };
    read(&head).map(|Head { next }| next)
}

/// Pages in their order, as they came; while one is being written, the next one is on its way.
fn pages(shell: &Shell, filter: SessionFilter) -> Receiver<Result<Vec<u8>, Stop>> {
    let (sender, receiver) = sync_channel(1);
    let client = shell.client();
    thread::spawn(move || {
        let (mut from, mut limit) = (Some(0), FIRST);
        while let Some(start) = from {
            let query = SessionFilter { from: Some(start), limit: Some(limit), ..filter.clone() };
            let page = client.send(&SESSIONS.about, &query, "").map_err(Stop::from);
            let page = page.and_then(|answer| {
                from = next_of(&answer)?;
                Ok(answer)
            });
            limit = PAGE;
            let is_last = page.is_err();
            if sender.send(page).is_err() || is_last {
                break;
            }
        }
    });
    receiver
}

fn summary(shell: &Shell, filter: &SessionFilter, out: &mut Out) -> Done {
    let list = shell.ask(&SESSIONS, &SessionFilter { limit: Some(0), ..filter.clone() })?;
    let stats = shell.ask(&STATS, &NoArguments {})?;
    out.show(&(list.total, stats.sessions), |(total, counts)| {
        let lines = [
            ("Sessions that match", *total),
            ("IPv4 sessions", counts.v4),
            ("IPv6 sessions", counts.v6),
            ("Unanswered sessions", counts.unanswered4 + counts.unanswered6),
            ("Expired sessions", counts.expired),
            ("Maximum IPv4 sessions", counts.limit4),
            ("Maximum IPv6 sessions", counts.limit6),
        ];
        lines.iter().map(|(what, count)| format!("{what}: {count}\n")).collect()
    })
}

/// The part of a list that one answer has.
#[derive(Deserialize)]
struct Page<'a> {
    #[serde(borrow)]
    sessions: Vec<Listed<'a>>,
}

/// What is shown of a session ([`SessionView`]), in the text that it came in.
#[derive(Deserialize)]
struct Listed<'a> {
    id: u32,
    #[serde(borrow)]
    protocol: Cow<'a, str>,
    #[serde(borrow)]
    source: Cow<'a, str>,
    source_port: u16,
    #[serde(borrow)]
    destination: Cow<'a, str>,
    destination_port: u16,
    #[serde(borrow)]
    out_source: Cow<'a, str>,
    out_source_port: u16,
    #[serde(borrow)]
    out_destination: Cow<'a, str>,
    out_destination_port: u16,
    #[serde(borrow)]
    in_interface: Cow<'a, str>,
    #[serde(borrow)]
    out_interface: Cow<'a, str>,
    #[serde(borrow, default)]
    routing_instance: Option<Cow<'a, str>>,
    #[serde(borrow)]
    policy: Cow<'a, str>,
    #[serde(borrow)]
    state: Cow<'a, str>,
    idle_s: u64,
    timeout_s: u64,
    packets: [u64; 2],
    bytes: [u64; 2],
}

impl Listed<'_> {
    /// Three lines, as the appliance has it, and where it is of a routing instance.
    fn describe(&self, to: &mut String) {
        let Listed { id, protocol, source, source_port, destination, destination_port, .. } = self;
        let Listed { out_source, out_source_port, out_destination, out_destination_port, .. } = self;
        let Listed { in_interface, out_interface, policy, state, packets, bytes, .. } = self;
        let rest = seconds(self.timeout_s, self.idle_s);
        // a String takes whatever is written to it
        let _ = write!(
            to,
            "Session ID: {id}, Policy name: {policy}, Timeout: {rest}, State: {state}\n  \
             In: {source}/{source_port} --> {destination}/{destination_port};{protocol}, If: {in_interface}, \
             Pkts: {}, Bytes: {}\n  \
             Out: {out_source}/{out_source_port} --> {out_destination}/{out_destination_port};{protocol}, \
             If: {out_interface}, Pkts: {}, Bytes: {}",
            packets[0], bytes[0], packets[1], bytes[1]
        );
        if let Some(instance) = &self.routing_instance {
            let _ = write!(to, "\n  Routing instance: {instance}");
        }
    }
}

#[cfg(test)]
mod tests {
    use sluice_control::api::SessionView;

    use super::*;

    #[test]
    fn a_session_looks_as_on_the_appliance() {
        let text = r#"{"id":17,"family":4,"protocol":"tcp","source":"10.0.1.102","source_port":41000,
            "destination":"203.0.113.9","destination_port":443,"out_source":"203.0.113.9",
            "out_source_port":443,"out_destination":"192.0.2.1","out_destination_port":1024,
            "translated":true,"nat_destination_rule":null,"nat_source_rule":"out all","from_zone":"trust",
            "to_zone":"untrust","in_interface":"trust0.0","out_interface":"wan0.0","policy":"web",
            "state":"established","age_s":20,"idle_s":10,"timeout_s":1800,"packets":[5,4],"bytes":[300,2000]}"#;
        let session: SessionView = serde_json::from_str(text).unwrap();
        let list = SessionList { total: 1, next: Some(7), sessions: vec![session] };
        let answer = serde_json::to_vec(&list).unwrap();
        assert!(answer[..200].windows(LISTS.len()).any(|window| window == LISTS));
        assert_eq!(next_of(&answer).unwrap(), Some(7));
        let page: Page<'_> = read(&answer).unwrap();
        let mut text = String::new();
        page.sessions[0].describe(&mut text);
        assert_eq!(
            text.split('\n').collect::<Vec<_>>(),
            [
                "Session ID: 17, Policy name: web, Timeout: 1790, State: established",
                "  In: 10.0.1.102/41000 --> 203.0.113.9/443;tcp, If: trust0.0, Pkts: 5, Bytes: 300",
                "  Out: 203.0.113.9/443 --> 192.0.2.1/1024;tcp, If: wan0.0, Pkts: 4, Bytes: 2000",
            ]
        );
        let mut text = String::new();
        Listed { timeout_s: u32::MAX.into(), ..page.sessions.into_iter().next().unwrap() }
            .describe(&mut text);
        assert!(text.contains("Timeout: never, State"), "{text}");
    }
}
