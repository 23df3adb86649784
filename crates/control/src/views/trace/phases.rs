//! The phases of a packet's way, and what each came to, in words.

use sluice_abi::stages::{Hook, Reason, Stage};
use sluice_abi::{
    TRACE_CREATED, TRACE_DROPS, TRACE_FOR_HOST, TRACE_FORWARDS, TRACE_IS_LOCAL, TRACE_KNOWN,
    TRACE_REEVALUATED, TRACE_RELATED,
};
use sluice_dataplane::TracePath;
use sluice_language::config::Action;

use super::Facts;
use crate::api::trace::{TracedHeaders, TracedPacket, TracedPhase};
use crate::state::active::Active;

/// Phases of the slow path before the last.
const PHASES: [&str; 3] = ["admit", "judge", "record"];

pub(super) fn of(facts: &Facts<'_>, told: &TracedPacket, active: &Active) -> Vec<TracedPhase> {
    let phase = |phase: &str, stages: Vec<String>, notes: Vec<String>| TracedPhase {
        phase: phase.to_owned(),
        stages,
        notes,
    };
    let end = ending(told);
    match facts.traced.path {
        TracePath::Short => {
            let mut notes = session(facts, told);
            notes.extend(policy(facts, told, active));
            notes.extend(rules(told));
            notes.push(end);
            vec![phase("fast", vec![], notes)]
        }
        TracePath::Host => {
            let mut notes = session(facts, told);
            notes.push(end);
            vec![phase("egress", vec![Stage::Egress.name().to_owned()], notes)]
        }
        TracePath::Slow => {
            let mut phases: Vec<TracedPhase> = PHASES
                .into_iter()
                .map(|name| (name, met(facts, name)))
                .filter(|(_, stages)| !stages.is_empty())
                .map(|(name, stages)| phase(name, stages, notes(name, facts, told, active)))
                .collect();
            phases.push(phase("leave", vec![Stage::Exit.name().to_owned()], vec![end]));
            phases
        }
    }
}

/// Stages of a phase that the packet met: up to the one with a verdict, without those that no zone asks for.
fn met(facts: &Facts<'_>, phase: &str) -> Vec<String> {
    let raw = &facts.traced.raw;
    let is_known = raw.flags & TRACE_KNOWN != 0;
    let skips = match phase {
        "judge" => is_known && raw.nat64 == 0,
        "record" => is_known,
        _ => false,
    };
    if skips {
        return vec![];
    }
    let last = last_stage(facts);
    let stages = Stage::ALL.into_iter().filter(|stage| {
        stage.hook() == Hook::Ingress
            && stage.phase().name() == phase
            && stage.bit() & raw.stage_mask != 0
            && last.is_none_or(|last| *stage <= last)
    });
    stages.map(|stage| stage.name().to_owned()).collect()
}

/// The one that had a verdict; None where all of them let it go on.
fn last_stage(facts: &Facts<'_>) -> Option<Stage> {
    let raw = &facts.traced.raw;
    match raw.verdict {
        TRACE_DROPS => Reason::BY_NUMBER.get(raw.stopped as usize).map(|reason| reason.stage()),
        TRACE_IS_LOCAL => Some(Stage::Local),
        TRACE_FORWARDS => Some(Stage::Fanout),
        _ => None,
    }
}

fn notes(phase: &str, facts: &Facts<'_>, told: &TracedPacket, active: &Active) -> Vec<String> {
    let raw = &facts.traced.raw;
    let reached = |stage: Stage| last_stage(facts).is_none_or(|last| stage <= last);
    let mut notes = vec![];
    match phase {
        "admit" if raw.flags & TRACE_CREATED == 0 => notes.extend(session(facts, told)),
        "admit" if reached(Stage::Session) => notes.push("no session".to_owned()),
        "judge" => {
            notes.extend(
                told.nat_destination_rule.as_ref().map(|rule| format!("destination NAT rule {rule}")),
            );
            if raw.flags & TRACE_FOR_HOST != 0 || raw.verdict == TRACE_IS_LOCAL {
                notes.push("for this host, which admits it".to_owned());
            } else if reached(Stage::Route) {
                notes.extend(route(facts));
            }
            notes.extend(policy(facts, told, active));
        }
        "record" => {
            notes.extend(told.nat_source_rule.as_ref().map(|rule| format!("source NAT rule {rule}")));
            let created = told.session.filter(|_| raw.flags & TRACE_CREATED != 0);
            notes.extend(created.map(|number| format!("session {number} recorded")));
        }
        _ => {}
    }
    if is_stopped_in(phase, facts) {
        notes.extend(
            told.reason.as_ref().map(|reason| format!("{reason}: {}", told.help.clone().unwrap_or_default())),
        );
    }
    notes
}

/// Whether a stage of this phase dropped it.
fn is_stopped_in(phase: &str, facts: &Facts<'_>) -> bool {
    facts.traced.raw.verdict == TRACE_DROPS
        && last_stage(facts).is_some_and(|stage| stage.phase().name() == phase)
}

fn session(facts: &Facts<'_>, told: &TracedPacket) -> Vec<String> {
    let raw = &facts.traced.raw;
    let Some(number) = told.session else {
        let asked = facts.traced.path == TracePath::Slow
            && last_stage(facts).is_none_or(|last| last >= Stage::Session);
        return asked.then(|| "no session".to_owned()).into_iter().collect();
    };
    let mut text = format!("session {number}");
    if raw.line & 1 != 0 {
        text += ", answer";
    }
    if raw.flags & TRACE_RELATED != 0 {
        text += ", error about it";
    }
    if raw.flags & TRACE_REEVALUATED != 0 {
        text += ", judged again";
    }
    vec![text]
}

fn route(facts: &Facts<'_>) -> Option<String> {
    let address = facts.hop.address.as_ref()?;
    let interface = facts.hop.interface.as_deref().unwrap_or("-");
    Some(format!("route: next hop {address} on {interface}"))
}

fn policy(facts: &Facts<'_>, told: &TracedPacket, active: &Active) -> Option<String> {
    let name = told.policy.as_ref()?;
    let asked =
        facts.traced.path != TracePath::Slow || last_stage(facts).is_none_or(|last| last >= Stage::Policy);
    if !asked {
        return None;
    }
    let policy = match name.as_str() {
        "default-policy" => name.clone(),
        name => format!("policy {name}"),
    };
    let place = told.place.as_ref().map_or_else(String::new, |place| format!(" ({place})"));
    let id = facts.traced.raw.policy;
    let does = match (facts.traced.reason, active.plan.policies.get(&id).map(|policy| policy.action)) {
        (Some(Reason::PolicyDefault), _) => "denies",
        (_, Some(Action::Deny)) => "denies",
        (_, Some(Action::Reject)) => "rejects",
        _ => "permits",
    };
    Some(format!("{policy}{place} {does}"))
}

fn rules(told: &TracedPacket) -> impl Iterator<Item = String> {
    let destination = told.nat_destination_rule.as_ref().map(|rule| format!("destination NAT rule {rule}"));
    let source = told.nat_source_rule.as_ref().map(|rule| format!("source NAT rule {rule}"));
    destination.into_iter().chain(source)
}

/// What became of it.
fn ending(told: &TracedPacket) -> String {
    let out = told.out_interface.as_deref().unwrap_or("-");
    let translated =
        || told.leaves_as.as_ref().map_or_else(String::new, |left| format!(" as {}", ends(left)));
    let to = told.next_hop.as_ref().map_or_else(String::new, |hop| format!(" to {hop}"));
    match told.verdict.as_str() {
        "forwarded" => format!("forwarded on {out}{to}{}", translated()),
        "delivered" => format!("delivered to this host{}", translated()),
        "sent" => format!("sent on {out}{}", translated()),
        "handed-off" => {
            format!("handed to the kernel for {out}, which asks for the neighbour{to}{}", translated())
        }
        "cut" => format!("handed to the daemon, which fragments it for {out}"),
        "answered" => {
            let answer = told
                .leaves_as
                .as_ref()
                .map_or_else(String::new, |left| format!(", answered with {}", kind(left)));
            format!("dropped: {}{answer}", told.reason.as_deref().unwrap_or("-"))
        }
        _ => match &told.reason {
            Some(reason) => format!("dropped: {reason}"),
            None => "dropped on a short path".to_owned(),
        },
    }
}

/// The verdict, and who gave it, in a line.
pub(super) fn summary(told: &TracedPacket) -> String {
    let mut text = ending(told);
    if let Some(session) = told.session.filter(|_| told.reason.is_none()) {
        text += &format!(", session {session}");
    }
    if let Some(policy) = &told.policy {
        text += &match policy.as_str() {
            "default-policy" => format!(", {policy}"),
            name => format!(", policy {name}"),
        };
        text += &told.place.as_ref().map_or_else(String::new, |place| format!(" ({place})"));
    }
    rules(told).for_each(|rule| text += &format!(", {rule}"));
    text
}

/// Both ends of a packet.
fn ends(headers: &TracedHeaders) -> String {
    let end = |address: &Option<String>, port: Option<u16>| match (address.as_deref().unwrap_or("-"), port) {
        (address, None) => address.to_owned(),
        (address, Some(port)) if address.contains(':') => format!("[{address}]:{port}"),
        (address, Some(port)) => format!("{address}:{port}"),
    };
    format!(
        "{} > {}",
        end(&headers.source, headers.source_port),
        end(&headers.destination, headers.destination_port)
    )
}

fn kind(headers: &TracedHeaders) -> String {
    let protocol = headers.protocol.clone().unwrap_or_else(|| "a frame".to_owned());
    match (headers.icmp, &headers.tcp_flags) {
        (Some((kind, code)), _) => format!("{protocol} {kind}/{code}"),
        (_, Some(flags)) => format!("{protocol} {flags}"),
        _ => protocol,
    }
}
