//! `show match-policies`: which policy a first packet would match, by the packet path's own tables.

use std::net::IpAddr;

use sluice_abi::stages::Reason;
use sluice_abi::{self as abi, Rule, ZonePair};
use sluice_dataplane::RuleTables;
use sluice_plan::Plan;
use sluice_plan::classifier::{Lookup, Subject};

use crate::api::{MatchQuery, MatchView, protocol};

/// The tables that decide, wherever they are.
struct Tables<'a> {
    lookup: Lookup<'a>,
    zone_pair: &'a dyn Fn(u32) -> ZonePair,
    rule: &'a dyn Fn(u32) -> Rule,
}

/// Asks the tables that are in force. Err says what is wrong with the question.
pub fn in_force(query: &MatchQuery, plan: &Plan, tables: &RuleTables) -> Result<MatchView, String> {
    let lookup = Lookup {
        classes: &|line| tables.classes(line),
        rows: &|line| tables.rows(line),
        context: &|number| tables.context(number),
    };
    let (zone_pair, rule) = (|index| tables.zone_pair(index), |index| tables.rule(index));
    let answer = answer(query, plan, &Tables { lookup, zone_pair: &zone_pair, rule: &rule })?;
    // two commits while the tables were read: half of the answer may be theirs
    if tables.are_there() {
        Ok(answer)
    } else {
        Err("the configuration has just changed; ask again".to_owned())
    }
}

/// The same for a plan that is not in force.
pub fn planned(query: &MatchQuery, plan: &Plan) -> Result<MatchView, String> {
    let tables = &plan.tables;
    let lookup = Lookup {
        classes: &|line| tables.classes[line as usize],
        rows: &|line| tables.rows[line as usize],
        context: &|number| tables.contexts[number as usize],
    };
    let zone_pair = |index: u32| tables.zone_pairs[index as usize];
    let rule = |index: u32| tables.rules[index as usize];
    answer(query, plan, &Tables { lookup, zone_pair: &zone_pair, rule: &rule })
}

/// Whether a plan's policies permit what goes from one zone to another.
pub fn permits(plan: &Plan, from_zone: u16, to_zone: u16, subject: &Subject) -> bool {
    let tables = &plan.tables;
    let lookup = Lookup {
        classes: &|line| tables.classes[line as usize],
        rows: &|line| tables.rows[line as usize],
        context: &|number| tables.contexts[number as usize],
    };
    let Some(pair) = tables.zone_pairs.get(abi::zone_pair_index(from_zone, to_zone)) else { return false };
    let index = [pair.context, pair.global].into_iter().find_map(|context| lookup.find(context, subject));
    let action = index.map_or(pair.default_action, |index| tables.rules[index as usize].action);
    sluice_plan::action(action) == "permit"
}

fn answer(query: &MatchQuery, plan: &Plan, tables: &Tables<'_>) -> Result<MatchView, String> {
    let zone = |name: &str| {
        let found = plan.zones.iter().find(|(_, zone)| *zone == name).map(|(id, _)| *id as u16);
        let known = || plan.zones.values().cloned().collect::<Vec<_>>().join(", ");
        found.ok_or_else(|| format!("zone {name} is not configured; zones are {}", known()))
    };
    let index = abi::zone_pair_index(zone(&query.from_zone)?, zone(&query.to_zone)?);
    let pair = (tables.zone_pair)(index as u32);
    let subject = subject(query)?;
    let view = MatchView {
        from_zone: query.from_zone.clone(),
        to_zone: query.to_zone.clone(),
        ..MatchView::default()
    };
    if !opens_session(&subject) {
        let dropped_as = Some(Reason::IcmpNoSession.name().to_owned());
        return Ok(MatchView { action: "deny".to_owned(), dropped_as, ..view });
    }
    let found = [pair.context, pair.global].into_iter().find_map(|context| {
        let index = tables.lookup.find(context, &subject)?;
        Some((context, index))
    });
    let Some((context, index)) = found else {
        return Ok(MatchView { action: sluice_plan::action(pair.default_action).to_owned(), ..view });
    };
    let rule = (tables.rule)(index);
    let policy = plan.policies.get(&rule.policy.into());
    Ok(MatchView {
        policy: policy.map(|policy| policy.name.clone()),
        id: Some(rule.policy.into()),
        global: policy.is_some_and(|policy| policy.context.is_none()),
        number: Some(index - tables.lookup.first_rule(context) + 1),
        action: sluice_plan::action(rule.action).to_owned(),
        log_init: rule.flags & abi::RULE_LOG_INIT != 0,
        log_close: rule.flags & abi::RULE_LOG_CLOSE != 0,
        count: rule.flags & abi::RULE_COUNT != 0,
        ..view
    })
}

/// Of ICMP, echo requests do; errors and answers belong to sessions (stage `session`).
fn opens_session(subject: &Subject) -> bool {
    match subject.protocol {
        1 => subject.icmp_type == 8,
        58 => subject.icmp_type == 128,
        _ => true,
    }
}

fn subject(query: &MatchQuery) -> Result<Subject, String> {
    let address = |name: &str, text: &str| -> Result<IpAddr, String> {
        text.parse().map_err(|_| format!("{name} `{text}` is not an IPv4 or IPv6 address"))
    };
    let source = address("source-ip", &query.source_ip)?;
    let destination = address("destination-ip", &query.destination_ip)?;
    if source.is_ipv4() != destination.is_ipv4() {
        return Err("source-ip and destination-ip are of different families".to_owned());
    }
    let protocol = protocol::parse(&query.protocol)?;
    let ported = sluice_language::has_ports(protocol);
    if ported && (query.source_port.is_none() || query.destination_port.is_none()) {
        return Err(format!("protocol {} needs source-port and destination-port", query.protocol));
    }
    let echo = if protocol == 58 { 128 } else { 8 };
    Ok(Subject {
        source,
        destination,
        protocol,
        source_port: query.source_port.unwrap_or(0),
        destination_port: query.destination_port.unwrap_or(0),
        icmp_type: query.icmp_type.unwrap_or(echo),
        icmp_code: query.icmp_code.unwrap_or(0),
    })
}
