//! `show security flow session`: a page at a time, so that a million of them need no more memory than a hundred.

use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use sluice_control::ClientError;
use sluice_control::api::{SessionFilter, SessionList, SessionView};
use sluice_control::operations::NoArguments;
use sluice_control::operations::sessions::SESSIONS;
use sluice_control::operations::system::STATS;

use super::grammar::{Argument, Given, Value, flag, named};
use super::out::{Done, Out};
use super::pipe::Form;
use super::shell::Shell;

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
    let (mut total, mut separator) = (0_u64, "[");
    for page in pages(shell, filter) {
        let page = page?;
        for session in &page.sessions {
            match out.form {
                Form::Json => {
                    let line = serde_json::to_string(session).map_err(crate::exit::Failure::failed)?;
                    out.line(&format!("{separator}{line}"))?;
                    separator = ",";
                }
                _ => describe(session).iter().try_for_each(|line| out.line(line))?,
            }
        }
        if total == 0 {
            out.flush()?;
        }
        total += page.sessions.len() as u64;
    }
    match out.form {
        Form::Json => out.line(if total == 0 { "[]" } else { "]" }),
        _ => out.line(&format!("Total sessions: {total}")),
    }
}

/// Pages in their order; while one is being written, the next one is on its way.
fn pages(shell: &Shell, filter: SessionFilter) -> Receiver<Result<SessionList, ClientError>> {
    let (sender, receiver) = sync_channel(1);
    let client = shell.client();
    thread::spawn(move || {
        let (mut from, mut limit) = (Some(0), FIRST);
        while let Some(start) = from {
            let query = SessionFilter { from: Some(start), limit: Some(limit), ..filter.clone() };
            let page = client.ask(&SESSIONS, &query);
            from = page.as_ref().ok().and_then(|page| page.next);
            limit = PAGE;
            if sender.send(page).is_err() {
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

/// A session in three lines, as the appliance has it.
fn describe(s: &SessionView) -> [String; 3] {
    let rest = s.timeout_s.saturating_sub(s.idle_s);
    let side = |name: &str, from: &str, from_port: u16, to: &str, to_port: u16, interface: &str, n: usize| {
        format!(
            "  {name}: {from}/{from_port} --> {to}/{to_port};{}, If: {interface}, Pkts: {}, Bytes: {}",
            s.protocol, s.packets[n], s.bytes[n]
        )
    };
    [
        format!("Session ID: {}, Policy name: {}, Timeout: {rest}, State: {}", s.id, s.policy, s.state),
        side("In", &s.source, s.source_port, &s.destination, s.destination_port, &s.in_interface, 0),
        side(
            "Out",
            &s.out_source,
            s.out_source_port,
            &s.out_destination,
            s.out_destination_port,
            &s.out_interface,
            1,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_looks_as_on_the_appliance() {
        let session = SessionView {
            id: 17,
            protocol: "tcp".to_owned(),
            source: "10.0.1.102".to_owned(),
            source_port: 41000,
            destination: "203.0.113.9".to_owned(),
            destination_port: 443,
            out_source: "203.0.113.9".to_owned(),
            out_source_port: 443,
            out_destination: "192.0.2.1".to_owned(),
            out_destination_port: 1024,
            in_interface: "trust0.0".to_owned(),
            out_interface: "wan0.0".to_owned(),
            policy: "web".to_owned(),
            state: "established".to_owned(),
            idle_s: 10,
            timeout_s: 1800,
            packets: [5, 4],
            bytes: [300, 2000],
            ..SessionView::default()
        };
        assert_eq!(
            describe(&session),
            [
                "Session ID: 17, Policy name: web, Timeout: 1790, State: established",
                "  In: 10.0.1.102/41000 --> 203.0.113.9/443;tcp, If: trust0.0, Pkts: 5, Bytes: 300",
                "  Out: 203.0.113.9/443 --> 192.0.2.1/1024;tcp, If: wan0.0, Pkts: 4, Bytes: 2000",
            ]
        );
    }
}
