//! Answers in the appliance's layout. What has none of its own is printed by the modules of `sluice show`.

use std::time::{Duration, SystemTime};

use chrono::{DateTime, SecondsFormat, Utc};
use sluice_control::api::{CommitView, Health, InterfaceView, PolicyView, ZoneView};
use sluice_control::operations::capacity::TableFill;

use super::pipe::Form;
use crate::exit::Failure;
use crate::output::{table, up_or_down};

/// A text in force, or the part of it that a path leads to.
pub fn configuration(text: &str, file: &str, path: &[String], form: Form) -> Result<String, Failure> {
    let tree = sluice_language::parse(text, file).map_err(Failure::failed)?;
    match form {
        Form::Set => Ok(tree.set_at(path).unwrap_or_default()),
        Form::Inheritance => tree.inherited_at(path).map_err(Failure::failed),
        _ => Ok(tree.text_at(path).unwrap_or_default()),
    }
}

/// `show interfaces terse`
pub fn terse(list: &[InterfaceView]) -> String {
    let mut text = format!("{:<24}{:<6}{:<5}{:<9}{}\n", "Interface", "Admin", "Link", "Proto", "Local");
    for interface in list {
        let (admin, link) = (up_or_down(interface.up), up_or_down(interface.link));
        let mut front = format!("{:<24}{admin:<6}{link:<5}", interface.name);
        if interface.addresses.is_empty() {
            text += &format!("{}\n", front.trim_end());
        }
        let mut last = "";
        for address in &interface.addresses {
            let family = if address.contains(':') { "inet6" } else { "inet" };
            text += &format!("{front}{:<9}{address}\n", if family == last { "" } else { family });
            (front, last) = (" ".repeat(35), family);
        }
    }
    text
}

/// `show interfaces`
pub fn interfaces(list: &[InterfaceView], is_extensive: bool) -> String {
    list.iter().map(|interface| one_interface(interface, is_extensive)).collect()
}

fn one_interface(i: &InterfaceView, is_extensive: bool) -> String {
    let link = if i.link { "Up" } else { "Down" };
    let mut text = format!("Logical interface {}, Physical link is {link}\n", i.name);
    if let Some(description) = &i.description {
        text += &format!("  Description: {description}\n");
    }
    let tags = match (i.vlan, i.inner_vlan) {
        (0, _) => String::new(),
        (outer, 0) => format!(", VLAN-Tag: {outer}"),
        (outer, inner) => format!(", VLAN-Tags: {outer}.{inner}"),
    };
    text += &format!("  Device: {}, MTU: {}, Mode: {}{tags}\n", i.physical, i.mtu, i.mode);
    text += &format!("  Security: Zone: {}\n", i.zone);
    let drops = i.counters.dropped_ingress + i.counters.dropped_egress;
    text += &format!("  Input packets : {}\n", i.counters.received);
    text += &format!("  Output packets: {}\n", i.counters.sent);
    text += &format!("  Dropped packets: {drops}, Sessions created: {}\n", i.counters.sessions);
    if is_extensive {
        text += &counters(i);
    }
    for address in &i.addresses {
        let protocol = if address.contains(':') { "inet6" } else { "inet" };
        text += &format!("  Protocol {protocol}, Local: {address}\n");
    }
    i.notes.iter().for_each(|note| text += &format!("  Note: {note}\n"));
    text + "\n"
}

fn counters(i: &InterfaceView) -> String {
    let mut text = String::from("  Flow Statistics:\n");
    let data = serde_json::to_value(i.counters).unwrap_or_default();
    for (name, value) in data.as_object().into_iter().flatten() {
        text += &format!("    {:<28}: {value}\n", name.replace('_', " "));
    }
    text += &format!("    {:<28}: {}\n", "device drops", i.device_drops);
    if !i.drops.is_empty() {
        text += "  Drops by reason:\n";
        i.drops.iter().for_each(|(reason, count)| text += &format!("    {reason:<28}: {count}\n"));
    }
    text
}

/// `show security zones`
pub fn zones(list: &[ZoneView]) -> String {
    let one = |zone: &ZoneView| {
        let mut text = format!("Security zone: {}\n", zone.name);
        if let Some(screen) = &zone.screen {
            text += &format!("  Screen: {screen}\n");
        }
        text += &format!("  Packets received: {}, sent: {}, ", zone.counters.received, zone.counters.sent);
        text += &format!("dropped: {}\n", zone.counters.dropped_ingress + zone.counters.dropped_egress);
        text += &format!("  Sessions created: {}\n", zone.counters.sessions);
        text += &format!("  Interfaces bound: {}\n  Interfaces:\n", zone.interfaces.len());
        zone.interfaces.iter().for_each(|interface| text += &format!("    {interface}\n"));
        text + "\n"
    };
    list.iter().map(one).collect()
}

/// `show security policies`
pub fn policies(list: &[PolicyView]) -> String {
    let mut text = String::new();
    let (mut pair, mut number) = (None, 0);
    for policy in list {
        let this = (&policy.from_zone, &policy.to_zone);
        if pair != Some(this) {
            (pair, number) = (Some(this), 0);
            text += &match this.0.as_str() {
                "any" => "Global policies:\n".to_owned(),
                _ => format!("From zone: {}, To zone: {}\n", this.0, this.1),
            };
        }
        number += 1;
        let state = if policy.active { "enabled" } else { "inactive (scheduler)" };
        text += &format!(
            "  Policy: {}, State: {state}, Index: {}, Sequence number: {number}\n    Action: {}\n",
            policy.name, policy.id, policy.action
        );
        text += &format!("    Sessions: {}, Denied: {}\n", policy.sessions, policy.denied);
        if let (Some(packets), Some(bytes)) = (policy.packets, policy.bytes) {
            text += &format!("    Packets: {packets}, Bytes: {bytes}\n");
        }
    }
    text
}

/// `show security policies hit-count`
pub fn hit_count(list: &[PolicyView]) -> String {
    let rows = list.iter().enumerate().map(|(number, policy)| {
        vec![
            (number + 1).to_string(),
            policy.from_zone.clone(),
            policy.to_zone.clone(),
            policy.name.clone(),
            (policy.sessions + policy.denied).to_string(),
            policy.action.clone(),
        ]
    });
    let header = ["Index", "From zone", "To zone", "Name", "Policy count", "Action"];
    format!("{}\n\nNumber of policy: {}\n", table(&header, rows.collect()), list.len())
}

/// `show system commit`
pub fn commits(list: &[CommitView]) -> String {
    let one = |commit: &CommitView| {
        let mut text = format!(
            "{:<4}{} by {} via {}\n",
            commit.number,
            unix_time(commit.unix_ms),
            commit.user,
            commit.client
        );
        if let Some(comment) = &commit.comment {
            text += &format!("    {comment}\n");
        }
        if let Some(at) = commit.returns_unix_ms {
            text += &format!("    commit confirmed, rolled back at {}\n", unix_time(at));
        }
        if let Some(damage) = &commit.damage {
            text += &format!("    damaged: {damage}\n");
        }
        text
    };
    list.iter().map(one).collect()
}

/// `show system capacity`
pub fn capacity(tables: &[TableFill]) -> String {
    let mut text = format!("{:<28}{:>12}{:>12}{:>8}\n", "Table", "Used", "Room", "Full");
    for TableFill { table, used, room } in tables {
        let percent = 100 * used / room.max(&1);
        text += &format!("{table:<28}{used:>12}{room:>12}{percent:>6} %\n");
    }
    text
}

/// `show system uptime`
pub fn uptime(health: &Health) -> String {
    let now = SystemTime::now();
    let began = |seconds: u64| now.checked_sub(Duration::from_secs(seconds)).unwrap_or(now);
    let mut text = format!("Current time: {}\n", time(now));
    if let Ok(up) = std::fs::read_to_string("/proc/uptime")
        && let Some(seconds) = up.split('.').next().and_then(|seconds| seconds.parse().ok())
    {
        text += &format!("System booted: {} ({} ago)\n", time(began(seconds)), lasting(seconds));
    }
    text += &format!("Daemon started: {} ({} ago)\n", time(began(health.uptime_s)), lasting(health.uptime_s));
    text + &format!("Commit in force: {}\n", health.generation)
}

fn time(at: SystemTime) -> String {
    DateTime::<Utc>::from(at).to_rfc3339_opts(SecondsFormat::Secs, true)
}

pub fn unix_time(unix_ms: u64) -> String {
    time(SystemTime::UNIX_EPOCH + Duration::from_millis(unix_ms))
}

/// As the appliance tells how long ago something was.
fn lasting(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match days {
        0 => format!("{hours:02}:{minutes:02}:{:02}", seconds % 60),
        days => format!("{days}d {hours:02}:{minutes:02}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_configuration_is_told_without_what_is_around_it() {
        let text = "set interfaces lan0 unit 0 family inet address 10.0.0.1/24\nset system host-name gw\n\
            set security zones security-zone trust interfaces lan0.0\ndeactivate security zones security-zone trust\n";
        let part = |path: &str, form: Form| {
            let path: Vec<String> = path.split(' ').map(str::to_owned).collect();
            configuration(text, "a.conf", &path, form).unwrap_or_else(|failure| panic!("{}", failure.message))
        };
        assert_eq!(
            part("interfaces lan0", Form::Set),
            "set interfaces lan0 unit 0 family inet address 10.0.0.1/24\n"
        );
        assert_eq!(part("system", Form::Text), "host-name gw;\n");
        assert_eq!(
            part("interfaces lan0 unit 0", Form::Text),
            "family inet {\n    address 10.0.0.1/24;\n}\n"
        );
        assert!(part("security zones", Form::Text).starts_with("inactive: security-zone trust {\n"));
        assert_eq!(part("services", Form::Text), "");
    }

    #[test]
    fn terse_names_a_protocol_once() {
        let interface = InterfaceView {
            name: "lan0.0".to_owned(),
            up: true,
            link: true,
            addresses: ["10.0.0.1/24", "10.0.1.1/24", "fd00::1/64"].map(str::to_owned).to_vec(),
            ..InterfaceView::default()
        };
        let cut = InterfaceView { up: true, link: false, ..InterfaceView::default() };
        assert!(terse(&[cut]).ends_with("up    down\n"), "a cable without its other end");
        let text = terse(&[interface]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "Interface               Admin Link Proto    Local");
        assert_eq!(lines[1], "lan0.0                  up    up   inet     10.0.0.1/24");
        assert_eq!(lines[2], "                                            10.0.1.1/24");
        assert_eq!(lines[3], "                                   inet6    fd00::1/64");
    }

    #[test]
    fn times_are_told_short() {
        assert_eq!(lasting(59), "00:00:59");
        assert_eq!(lasting(90_060), "1d 01:01");
    }

    #[test]
    fn a_table_says_how_full_it_is() {
        let table = TableFill { table: "next hops".to_owned(), used: 3, room: 12 };
        let text = capacity(&[table]);
        assert_eq!(text.lines().nth(1), Some("next hops                              3          12    25 %"));
    }
}
