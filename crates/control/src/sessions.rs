//! Listing and ending sessions.

use sluice_abi::{
    TCP_DIR_CLOSED, TCP_DIR_ESTABLISHED, TCP_DIR_FIN, TCP_DIR_NONE, TCP_DIR_RESET, TCP_DIR_SYN,
};
use sluice_dataplane::{Direction, Family, Session, Tuple};
use sluice_language::Service;
use sluice_language::config::Prefix;
use sluice_plan::contains;

use crate::api::{SessionFilter, SessionList, SessionView};
use crate::config;
use crate::error::AskError;
use crate::prefix;
use crate::shared::{Active, Shared};

/// Most sessions in one answer.
const MOST_LISTED: usize = 10_000;
const USUALLY_LISTED: usize = 100;

/// A filter with its fields understood.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Matcher {
    source: Option<Prefix>,
    destination: Option<Prefix>,
    /// A translated address, that of neither end as it sees itself.
    translated: Option<Prefix>,
    nat: bool,
    protocol: Option<u8>,
    source_port: Option<u16>,
    destination_port: Option<u16>,
    zone: Option<u32>,
    interface: Option<u32>,
    /// All policies of that name.
    policies: Option<Vec<u32>>,
    application: Option<Vec<Service>>,
}

impl Matcher {
    /// Err says which field is wrong and what it takes.
    pub fn new(filter: &SessionFilter, active: &Active) -> Result<Self, String> {
        let zone = |name: &String| {
            let found = active.plan.zones.iter().find(|(_, n)| *n == name).map(|(id, _)| *id);
            found.ok_or_else(|| format!("zone {name} is not configured; `sluice show zones` lists them"))
        };
        Ok(Self {
            source: filter.source_prefix.as_deref().map(prefix).transpose()?,
            destination: filter.destination_prefix.as_deref().map(prefix).transpose()?,
            translated: filter.nat_prefix.as_deref().map(prefix).transpose()?,
            nat: filter.nat,
            protocol: filter.protocol.as_deref().map(protocol).transpose()?,
            source_port: filter.source_port,
            destination_port: filter.destination_port,
            zone: filter.zone.as_ref().map(zone).transpose()?,
            interface: filter.interface.as_ref().map(|name| interface(name, active)).transpose()?,
            policies: filter.policy.as_ref().map(|name| policies(name, active)).transpose()?,
            application: filter.application.as_ref().map(|name| application(name, active)).transpose()?,
        })
    }

    fn matches(&self, session: &Session) -> bool {
        let tuple = &session.initiator.tuple;
        let zones = [u32::from(session.from_zone), u32::from(session.to_zone)];
        self.source.is_none_or(|p| contains(p, tuple.source))
            && self.destination.is_none_or(|p| contains(p, tuple.destination))
            && self.translated.is_none_or(|p| is_translated_to(session, p))
            && (!self.nat || translated(session))
            && self.protocol.is_none_or(|p| p == tuple.protocol)
            && self.source_port.is_none_or(|p| p == tuple.source_port)
            && self.destination_port.is_none_or(|p| p == tuple.destination_port)
            && self.zone.is_none_or(|z| zones.contains(&z))
            && self.interface.is_none_or(|i| i == u32::from(session.ingress_unit))
            && self.policies.as_ref().is_none_or(|ids| ids.contains(&session.policy))
            && self.application.as_ref().is_none_or(|terms| terms.iter().any(|term| is_of(term, tuple)))
    }
}

/// Answers go back to other addresses or ports than the initiator used.
fn translated(session: &Session) -> bool {
    let (there, back) = (&session.initiator.tuple, &session.responder.tuple);
    (there.source, there.source_port) != (back.destination, back.destination_port)
        || (there.destination, there.destination_port) != (back.source, back.source_port)
}

/// Whether an address that translation put into the session lies in a prefix: what the outside sees of the source, or what
/// the initiator sees of the destination.
fn is_translated_to(session: &Session, prefix: Prefix) -> bool {
    let (there, back) = (&session.initiator.tuple, &session.responder.tuple);
    there.source != back.destination && contains(prefix, back.destination)
        || there.destination != back.source
            && (contains(prefix, back.source) || contains(prefix, there.destination))
}

fn interface(name: &str, active: &Active) -> Result<u32, String> {
    let name = if name.contains('.') { name.to_owned() } else { format!("{name}.0") };
    let unit = active.plan.units.iter().find(|unit| unit.name == name);
    unit.map(|unit| unit.index).ok_or_else(|| {
        format!("interface {name} is not in any zone; `sluice show interfaces` lists those that are")
    })
}

fn policies(name: &str, active: &Active) -> Result<Vec<u32>, String> {
    let named = active.plan.policies.iter().filter(|(_, policy)| policy.name == name);
    let ids: Vec<u32> = named.map(|(id, _)| *id).collect();
    if ids.is_empty() {
        return Err(format!("policy {name} is not configured; `sluice show policies` lists them"));
    }
    Ok(ids)
}

fn application(name: &str, active: &Active) -> Result<Vec<Service>, String> {
    let tree = sluice_language::parse(&active.text, &active.file).map_err(|errors| errors.to_string())?;
    sluice_language::application(&tree, name)
        .ok_or_else(|| format!("application {name} is neither configured nor one of Junos' own"))
}

/// ICMP sessions are echo requests.
fn is_of(term: &Service, tuple: &Tuple) -> bool {
    const ECHO: [(u8, u8); 2] = [(1, 8), (58, 128)];
    let has =
        |range: Option<(u8, u8)>, value: u8| range.is_none_or(|(low, high)| (low..=high).contains(&value));
    if term.protocol.is_some_and(|protocol| protocol != tuple.protocol) {
        return false;
    }
    if let Some((_, kind)) = ECHO.iter().find(|(protocol, _)| *protocol == tuple.protocol) {
        return has(term.icmp_type, *kind) && has(term.icmp_code, 0);
    }
    let inside = |(low, high): (u16, u16), port: u16| (low..=high).contains(&port);
    inside(term.source_port, tuple.source_port) && inside(term.destination_port, tuple.destination_port)
}

pub fn list(shared: &Shared, filter: &SessionFilter, matcher: &Matcher) -> Result<SessionList, AskError> {
    let active = shared.active();
    let now = shared.dataplane.now_jiffies()?;
    let hz = u64::from(shared.dataplane.hz());
    let offset = filter.offset.unwrap_or(0);
    let limit = filter.limit.unwrap_or(USUALLY_LISTED).min(MOST_LISTED);
    let mut list = SessionList::default();
    for session in shared.dataplane.sessions().filter(|s| matcher.matches(s)) {
        if (offset..offset.saturating_add(limit)).contains(&(list.total as usize)) {
            list.sessions.push(view(&session, &active, now, hz));
        }
        list.total += 1;
    }
    Ok(list)
}

/// Ends the matching sessions and says how many.
pub fn clear(shared: &Shared, matcher: &Matcher) -> Result<u64, AskError> {
    let sessions = shared.dataplane.sessions().filter(|s| matcher.matches(s));
    let ids: Vec<_> = sessions.map(|s| s.id).collect();
    Ok(shared.dataplane.delete_sessions(&ids)?.into())
}

fn view(session: &Session, active: &Active, now: u64, hz: u64) -> SessionView {
    let tuple = &session.initiator.tuple;
    let sides = [&session.initiator, &session.responder];
    let answer = &session.responder.tuple;
    SessionView {
        id: session.id.number,
        family: if session.id.family == Family::V4 { 4 } else { 6 },
        protocol: protocol_name(tuple.protocol),
        source: tuple.source.to_string(),
        source_port: tuple.source_port,
        destination: tuple.destination.to_string(),
        destination_port: tuple.destination_port,
        out_source: answer.source.to_string(),
        out_source_port: answer.source_port,
        out_destination: answer.destination.to_string(),
        out_destination_port: answer.destination_port,
        translated: translated(session),
        nat_destination_rule: active.nat_rule_name(session.nat_destination),
        nat_source_rule: active.nat_rule_name(session.nat_source),
        from_zone: active.zone_name(session.from_zone),
        to_zone: active.zone_name(session.to_zone),
        policy: active.policy_name(session.policy),
        state: state(tuple.protocol, sides),
        age_s: u64::from((now as u32).wrapping_sub(session.created)) / hz,
        idle_s: u64::from(session.idle_jiffies(now)) / hz,
        timeout_s: config::timeouts(&active.config).of_session(session).into(),
        packets: sides.map(|s| s.packets),
        bytes: sides.map(|s| s.bytes),
    }
}

fn state(protocol: u8, sides: [&Direction; 2]) -> String {
    const TCP: u8 = 6;
    if protocol != TCP {
        return if sides[1].packets > 0 { "answered" } else { "unanswered" }.to_owned();
    }
    let name = |state: u8| match state {
        TCP_DIR_NONE => "none",
        TCP_DIR_SYN => "syn",
        TCP_DIR_ESTABLISHED => "established",
        TCP_DIR_FIN => "fin",
        TCP_DIR_CLOSED => "closed",
        _ => "?",
    };
    if sides.iter().all(|side| side.tcp_state & TCP_DIR_RESET != 0) {
        return "reset".to_owned();
    }
    let names = sides.map(|s| name(s.tcp_state));
    if names[0] == names[1] { names[0].to_owned() } else { names.join("/") }
}

pub fn protocol_name(protocol: u8) -> String {
    match protocol {
        1 => "icmp".to_owned(),
        6 => "tcp".to_owned(),
        17 => "udp".to_owned(),
        58 => "icmp6".to_owned(),
        other => other.to_string(),
    }
}

pub fn protocol(text: &str) -> Result<u8, String> {
    match text {
        "icmp" => Ok(1),
        "tcp" => Ok(6),
        "udp" => Ok(17),
        "icmp6" => Ok(58),
        other => {
            other.parse().map_err(|_| format!("protocol {other}: expected tcp, udp, icmp, icmp6 or 0 to 255"))
        }
    }
}

fn prefix(text: &str) -> Result<Prefix, String> {
    let wrong = || format!("{text}: expected an address or a prefix, such as 10.0.1.0/24");
    prefix::parse(text).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_contain_their_addresses() {
        let check = |p: &str, a: &str| contains(prefix(p).unwrap(), a.parse().unwrap());
        assert!(check("10.0.1.0/24", "10.0.1.255"));
        assert!(!check("10.0.1.0/24", "10.0.2.0"));
        assert!(check("0.0.0.0/0", "203.0.113.9"));
        assert!(!check("0.0.0.0/0", "::1"));
        assert!(check("fd00::/8", "fdff::1"));
        assert!(check("10.0.1.1", "10.0.1.1"));
        assert!(prefix("10.0.1.0/33").is_err() && prefix("ten").is_err());
    }
}
