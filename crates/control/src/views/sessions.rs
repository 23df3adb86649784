//! Listing and ending sessions.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use sluice_abi::{
    TCP_DIR_CLOSED, TCP_DIR_ESTABLISHED, TCP_DIR_FIN, TCP_DIR_NONE, TCP_DIR_RESET, TCP_DIR_SYN,
};
use sluice_dataplane::{Direction, Family, Session, Timeouts, Tuple};
use sluice_language::Service;
use sluice_language::config::Prefix;
use sluice_plan::contains;

use crate::api::{SessionFilter, SessionList, SessionView, prefix, protocol};
use crate::commit::Shared;
use crate::state::active::Active;
use crate::state::config;
use crate::state::error::AskError;

/// Most sessions in one answer.
const MOST_LISTED: usize = 10_000;
const USUALLY_LISTED: usize = 100;

type Condition = Box<dyn Fn(&Session) -> bool + Send>;

/// A filter with its fields understood: what it asks of a session, one condition for each field that is given.
pub struct Matcher(Vec<Condition>);

impl Matcher {
    /// Err says which field is wrong and what it takes.
    pub fn new(filter: &SessionFilter, active: &Active) -> Result<Self, String> {
        let SessionFilter { source_prefix, destination_prefix, nat_prefix, nat, protocol, .. } =
            filter.clone();
        let SessionFilter { source_port, destination_port, zone, interface, policy, application, .. } =
            filter.clone();
        let mut all = Self(vec![]);
        all.ask(source_prefix, prefix, |s, p| contains(*p, s.initiator.tuple.source))?;
        all.ask(destination_prefix, prefix, |s, p| contains(*p, s.initiator.tuple.destination))?;
        all.ask(nat_prefix, prefix, |s, p| is_translated_to(s, *p))?;
        all.ask(nat.then_some(()), Ok, |s, ()| translated(s))?;
        all.ask(protocol, |p| protocol::parse(&p), |s, p| *p == s.initiator.tuple.protocol)?;
        all.ask(source_port, Ok, |s, port| *port == s.initiator.tuple.source_port)?;
        all.ask(destination_port, Ok, |s, port| *port == s.initiator.tuple.destination_port)?;
        all.ask(zone, |z| zone_id(&z, active), |s, z| [s.from_zone, s.to_zone].map(u32::from).contains(z))?;
        all.ask(interface, |name| unit(&name, active), |s, unit| *unit == u32::from(s.ingress_unit))?;
        all.ask(policy, |name| policies(&name, active), |s, ids| ids.contains(&s.policy))?;
        all.ask(
            application,
            |name| services(&name, active),
            |s, terms| terms.iter().any(|term| is_of(term, &s.initiator.tuple)),
        )?;
        Ok(all)
    }

    /// Adds the condition of a field that is given; `understand` makes of it what sessions are compared with.
    fn ask<F, V: Send + 'static>(
        &mut self,
        field: Option<F>,
        understand: impl FnOnce(F) -> Result<V, String>,
        holds: fn(&Session, &V) -> bool,
    ) -> Result<(), String> {
        if let Some(field) = field {
            let value = understand(field)?;
            self.0.push(Box::new(move |session| holds(session, &value)));
        }
        Ok(())
    }

    fn matches(&self, session: &Session) -> bool {
        self.0.iter().all(|condition| condition(session))
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

pub(super) fn zone_id(name: &str, active: &Active) -> Result<u32, String> {
    let found = active.plan.zones.iter().find(|(_, known)| *known == name).map(|(id, _)| *id);
    found.ok_or_else(|| format!("zone {name} is not configured; `sluice show zones` lists them"))
}

pub(super) fn unit(name: &str, active: &Active) -> Result<u32, String> {
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

fn services(name: &str, active: &Active) -> Result<Vec<Service>, String> {
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
    let mut viewer = Viewer::new(shared, &active)?;
    let offset = filter.offset.unwrap_or(0);
    let limit = filter.limit.unwrap_or(USUALLY_LISTED).min(MOST_LISTED);
    let mut list = SessionList::default();
    for session in shared.dataplane.sessions_from(filter.from.unwrap_or(0)).filter(|s| matcher.matches(s)) {
        if (offset..offset.saturating_add(limit)).contains(&(list.total as usize)) {
            list.sessions.push(viewer.view(&session));
        } else if filter.from.is_some() && list.total as usize >= offset {
            list.next = Some(session.id.cursor());
            break;
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

/// The unit whose addresses a device carries.
pub(super) fn unit_of_device(ifindex: u32, active: &Active) -> Option<String> {
    let device = nix::net::if_::if_indextoname(ifindex).ok()?.into_string().ok()?;
    active.plan.units.iter().find(|unit| unit.device == device).map(|unit| unit.name.clone())
}

/// Names that many sessions of a list have, each made once.
#[derive(Default)]
struct Names<K>(HashMap<K, Arc<str>>);

impl<K: Eq + Hash> Names<K> {
    fn get(&mut self, key: K, name: impl FnOnce() -> String) -> Arc<str> {
        Arc::clone(self.0.entry(key).or_insert_with(|| name().into()))
    }
}

/// What does not change from session to session.
struct Viewer<'a> {
    shared: &'a Shared,
    active: &'a Active,
    timeouts: Timeouts,
    zones: Names<u16>,
    units: Names<u16>,
    /// By the number of the next hop.
    exits: Names<u16>,
    policies: Names<u32>,
    nat_rules: Names<u16>,
    instances: Names<u16>,
    now: u64,
    hz: u64,
}

impl<'a> Viewer<'a> {
    fn new(shared: &'a Shared, active: &'a Active) -> Result<Self, AskError> {
        Ok(Self {
            shared,
            active,
            timeouts: config::timeouts(&active.config),
            zones: Names::default(),
            units: Names::default(),
            exits: Names::default(),
            policies: Names::default(),
            nat_rules: Names::default(),
            instances: Names::default(),
            now: shared.dataplane.now_jiffies()?,
            hz: shared.dataplane.hz().into(),
        })
    }

    fn zone(&mut self, id: u16) -> Arc<str> {
        let active = self.active;
        self.zones.get(id, || active.zone_name(id).to_owned())
    }

    /// Unit that it leaves by.
    fn exit(&mut self, session: &Session) -> Arc<str> {
        let Self { shared, active, .. } = *self;
        let index = match session.to_zone {
            sluice_abi::ZONE_HOST => sluice_abi::NEXTHOP_LOCAL,
            _ => session.initiator.nexthop,
        };
        self.exits.get(index, || match index {
            sluice_abi::NEXTHOP_LOCAL => "local".to_owned(),
            index => {
                let hop = shared.dataplane.nexthop(index.into()).ok().filter(|hop| hop.flags != 0);
                let unit = hop.and_then(|hop| unit_of_device(hop.host_ifindex, active));
                unit.unwrap_or_else(|| "-".to_owned())
            }
        })
    }

    fn nat_rule(&mut self, id: u16) -> Option<Arc<str>> {
        let active = self.active;
        (id != 0).then(|| self.nat_rules.get(id, || active.nat_rule_name(id).unwrap_or_default()))
    }

    fn instance(&mut self, number: u16) -> Option<Arc<str>> {
        let known = &self.active.plan.kernel.instances;
        let name = || known.iter().find(|want| want.number == number).map(|want| want.device.clone());
        (number != 0).then(|| self.instances.get(number, || name().unwrap_or_else(|| number.to_string())))
    }

    fn view(&mut self, session: &Session) -> SessionView {
        let Self { active, now, hz, .. } = *self;
        let tuple = &session.initiator.tuple;
        let sides = [&session.initiator, &session.responder];
        let answer = &session.responder.tuple;
        let (ports, answer_ports) = (tuple.ports(), answer.ports());
        SessionView {
            id: session.id.number,
            family: if session.id.family == Family::V4 { 4 } else { 6 },
            protocol: protocol::name(tuple.protocol),
            source: tuple.source,
            source_port: ports.0,
            destination: tuple.destination,
            destination_port: ports.1,
            out_source: answer.source,
            out_source_port: answer_ports.0,
            out_destination: answer.destination,
            out_destination_port: answer_ports.1,
            translated: translated(session),
            nat_destination_rule: self.nat_rule(session.nat_destination),
            nat_source_rule: self.nat_rule(session.nat_source),
            from_zone: self.zone(session.from_zone),
            to_zone: self.zone(session.to_zone),
            in_interface: self
                .units
                .get(session.ingress_unit, || active.unit_name(session.ingress_unit).to_owned()),
            out_interface: self.exit(session),
            routing_instance: self.instance(tuple.routing_instance),
            policy: self.policies.get(session.policy, || active.policy_name(session.policy).to_owned()),
            state: state(tuple.protocol, sides),
            age_s: u64::from((now as u32).wrapping_sub(session.created)) / hz,
            idle_s: u64::from(session.idle_jiffies(now)) / hz,
            timeout_s: self.timeouts.of_session(session).into(),
            packets: sides.map(|s| s.packets),
            bytes: sides.map(|s| s.bytes),
        }
    }
}

fn state(protocol: u8, sides: [&Direction; 2]) -> Cow<'static, str> {
    const TCP: u8 = 6;
    if protocol != TCP {
        return if sides[1].packets > 0 { "answered" } else { "unanswered" }.into();
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
        return "reset".into();
    }
    let names = sides.map(|s| name(s.tcp_state));
    if names[0] == names[1] { names[0].into() } else { names.join("/").into() }
}

pub(super) fn prefix(text: String) -> Result<Prefix, String> {
    let wrong = || format!("{text}: expected an address or a prefix, such as 10.0.1.0/24");
    prefix::parse(&text).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_contain_their_addresses() {
        let check = |p: &str, a: &str| contains(prefix(p.to_owned()).unwrap(), a.parse().unwrap());
        assert!(check("10.0.1.0/24", "10.0.1.255"));
        assert!(!check("10.0.1.0/24", "10.0.2.0"));
        assert!(check("0.0.0.0/0", "203.0.113.9"));
        assert!(!check("0.0.0.0/0", "::1"));
        assert!(check("fd00::/8", "fdff::1"));
        assert!(check("10.0.1.1", "10.0.1.1"));
        assert!(prefix("10.0.1.0/33".to_owned()).is_err() && prefix("ten".to_owned()).is_err());
    }
}
