//! `sluice show drops`: how many packets were dropped for which reason, or which ones in the last minutes.

use chrono::DateTime;
use clap::Args;
use sluice_control::api::drops::{RecentDrop, RecentDrops, RecentDropsQuery};
use sluice_control::api::{Equation, Stats};
use sluice_control::operations::NoArguments;
use sluice_control::operations::drops::RECENT_DROPS;
use sluice_control::operations::system::STATS;

use crate::exit::Outcome;
use crate::output::{Output, table};

#[derive(Args)]
pub struct DropsArgs {
    /// The packets themselves, of the last minutes: what they were, where from, and why they were dropped
    #[arg(long)]
    recent: bool,
    /// Only so many of the newest
    #[arg(long, value_name = "N", requires = "recent")]
    last: Option<usize>,
    /// Only those from or to this address, as ADDRESS or PREFIX
    #[arg(long, requires = "recent")]
    prefix: Option<String>,
    /// Only this protocol: tcp, udp, icmp, icmp6 or a number
    #[arg(long, requires = "recent")]
    protocol: Option<String>,
    /// Only those from or to this port
    #[arg(long, requires = "recent")]
    port: Option<u16>,
    /// Only those of this interface
    #[arg(long, requires = "recent")]
    interface: Option<String>,
    /// Only those that came from this zone
    #[arg(long, requires = "recent")]
    zone: Option<String>,
    /// Only those dropped for this reason
    #[arg(long, requires = "recent")]
    reason: Option<String>,
}

pub fn show(args: &DropsArgs, output: &Output) -> Outcome {
    if !args.recent {
        return output.show(&STATS, &NoArguments {}, |stats| print!("{}", by_reason(&stats)));
    }
    let query = RecentDropsQuery {
        last: args.last,
        prefix: args.prefix.clone(),
        protocol: args.protocol.clone(),
        port: args.port,
        interface: args.interface.clone(),
        zone: args.zone.clone(),
        reason: args.reason.clone(),
    };
    output.show(&RECENT_DROPS, &query, |answer| print!("{}", recent(&answer)))
}

/// Counters by reason, and both equations.
pub fn by_reason(stats: &Stats) -> String {
    let rows = stats
        .drops
        .iter()
        .map(|d| vec![d.stage.clone(), d.reason.clone(), d.packets.to_string(), d.help.clone()]);
    let mut text = format!("{}\n", table(&["Stage", "Reason", "Packets", "Meaning"], rows.collect()));
    for (name, equation) in [("ingress", stats.equations.ingress), ("egress", stats.equations.egress)] {
        let Equation { left, right, difference } = equation;
        text += &format!("{name}: {left} packets in, {right} accounted for, {difference} different\n");
    }
    text
}

/// Dropped packets themselves.
pub fn recent(answer: &RecentDrops) -> String {
    let rows = answer.drops.iter().map(row).collect();
    let header = [
        "Last",
        "Packets",
        "Interface",
        "Zones",
        "Source",
        "Destination",
        "Protocol",
        "Stage",
        "Reason",
        "Rule",
    ];
    let mut text = format!("{}\n", table(&header, rows));
    let minutes = answer.kept_s / 60;
    if answer.drops.is_empty() {
        text += &format!("no packet was dropped in the last {minutes} minutes, or none that fits\n");
    }
    if answer.untold != 0 {
        text += &format!(
            "{} more packets were dropped in the last {minutes} minutes, too many to tell one by one; \
             `sluice show drops` has their reasons\n",
            answer.untold
        );
    }
    text
}

fn row(drop: &RecentDrop) -> Vec<String> {
    let zones = [&drop.from_zone, &drop.to_zone].map(|zone| zone.as_deref().unwrap_or("-"));
    let tag = drop.vlan.as_ref().filter(|_| !drop.interface.contains('.'));
    let rules = [&drop.policy, &drop.nat_destination_rule, &drop.nat_source_rule];
    let mut rule = rules.into_iter().flatten().cloned().collect::<Vec<_>>().join(", ");
    if let Some(place) = &drop.place {
        rule += &format!(" ({place})");
    }
    vec![
        time(drop.last_unix_ms),
        drop.packets.to_string(),
        tag.map_or_else(|| drop.interface.clone(), |tag| format!("{} vlan {tag}", drop.interface)),
        zones.join(" > "),
        drop.source.as_ref().or(drop.frame.as_ref()).map_or_else(String::new, |s| end(s, drop.source_port)),
        drop.destination.as_ref().map_or_else(String::new, |to| end(to, drop.destination_port)),
        protocol(drop),
        drop.stage.clone(),
        drop.reason.clone(),
        rule,
    ]
}

/// Of the day, in UTC.
fn time(unix_ms: u64) -> String {
    DateTime::from_timestamp_millis(unix_ms as i64).unwrap_or_default().format("%H:%M:%S%.3f").to_string()
}

pub fn end(address: &str, port: Option<u16>) -> String {
    match port {
        None => address.to_owned(),
        Some(port) if address.contains(':') => format!("[{address}]:{port}"),
        Some(port) => format!("{address}:{port}"),
    }
}

fn protocol(drop: &RecentDrop) -> String {
    let name = drop.protocol.clone().unwrap_or_default();
    match (&drop.icmp, &drop.tcp_flags) {
        (Some((kind, code)), _) => format!("{name} {kind}/{code}"),
        (_, Some(flags)) if !flags.is_empty() => format!("{name} {flags}"),
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drop_reads_as_a_line() {
        let drop = RecentDrop {
            packets: 3,
            interface: "left0.0".into(),
            from_zone: Some("left".into()),
            to_zone: Some("right".into()),
            source: Some("fd71:1::2".into()),
            source_port: Some(4000),
            destination: Some("fd71:2::2".into()),
            destination_port: Some(80),
            protocol: Some("tcp".into()),
            tcp_flags: Some("syn".into()),
            stage: "policy".into(),
            reason: "policy_deny".into(),
            policy: Some("none".into()),
            place: Some("a.conf:12".into()),
            ..RecentDrop::default()
        };
        assert_eq!(
            row(&drop),
            [
                "00:00:00.000",
                "3",
                "left0.0",
                "left > right",
                "[fd71:1::2]:4000",
                "[fd71:2::2]:80",
                "tcp syn",
                "policy",
                "policy_deny",
                "none (a.conf:12)"
            ]
        );
    }
}
