//! `show services gtp-u` and `clear services gtp-u`, in words.

use sluice_control::api::{
    GtpuFilter, GtpuFlowView, GtpuPeerView, GtpuRemoved, GtpuSessionList, GtpuSessionView, GtpuUsageList,
    GtpuUsageView, GtpuView,
};

use super::grammar::{Argument, Given, Value, alone, named};
use crate::output::table;

/// Which sessions.
pub const FILTER: &[Argument] = &[
    alone("session", "Only this one", Value::Name("gtp-u-session")),
    named("address", "Only that of this subscriber", Value::Address),
    named("peer", "Only those of this peer", Value::Address),
    named("teid", "Only that of this TEID", Value::Number(1, u32::MAX as u64)),
    named("rules", "Only those of these rules", Value::Any("rules")),
    named("limit", "At most so many; 1000 when not given", Value::Number(1, 1_000_000)),
];

pub fn filter(given: &Given) -> GtpuFilter {
    GtpuFilter {
        name: given.get("session"),
        teid: given.number("teid"),
        address: given.number("address"),
        peer: given.number("peer"),
        rules: given.get("rules"),
        offset: None,
        limit: given.number("limit"),
    }
}

fn or_dash(text: Option<&String>) -> String {
    text.cloned().unwrap_or_else(|| "-".to_owned())
}

pub fn sessions(list: &GtpuSessionList) -> String {
    let header =
        ["Session", "By", "TEID", "Subscriber", "Interface", "Local", "Peer", "TEID", "Rules", "QFI"];
    let table = table(&header, list.sessions.iter().map(session).collect());
    let flows = flows_table(list.sessions.iter().map(|session| &session.usage));
    format!("{table}\n{flows}{} of {} sessions\n", list.sessions.len(), list.total)
}

/// What passed of flows; nothing where no session has some.
fn flows_table<'a>(sessions: impl Iterator<Item = &'a GtpuUsageView>) -> String {
    let rows = sessions.flat_map(|usage| {
        let row = |flow: &GtpuFlowView| {
            let bytes = [flow.uplink_bytes, flow.downlink_bytes].map(|bytes| bytes.to_string());
            [vec![usage.name.clone(), flow.name.clone()], bytes.into()].concat()
        };
        usage.flows.iter().map(row).collect::<Vec<_>>()
    });
    let rows: Vec<Vec<String>> = rows.collect();
    if rows.is_empty() {
        return String::new();
    }
    format!("{}\n", table(&["Session", "Flow", "Up bytes", "Down bytes"], rows))
}

fn session(session: &GtpuSessionView) -> Vec<String> {
    let subscriber: Vec<&str> = session.address.iter().chain(&session.prefix).map(String::as_str).collect();
    vec![
        session.name.clone(),
        if session.by_configuration { "configuration" } else { "api" }.to_owned(),
        format!("{:#010x}", session.teid),
        subscriber.join(" "),
        or_dash(session.interface.as_ref()),
        session.local_address.clone(),
        session.peer.clone(),
        format!("{:#010x}", session.peer_teid),
        or_dash(session.rules.as_ref()),
        session.qfi.map_or("-".to_owned(), |qfi| qfi.to_string()),
    ]
}

pub fn usage(list: &GtpuUsageList) -> String {
    let mut text = usage_table(&list.sessions);
    text += &format!("\n{} of {} sessions; all of them: ", list.sessions.len(), list.total);
    text += &format!("{} bytes in {} packets up, ", list.uplink_bytes, list.uplink_packets);
    text + &format!("{} bytes in {} packets down\n", list.downlink_bytes, list.downlink_packets)
}

pub fn removed(removed: &GtpuRemoved) -> String {
    match removed.removed {
        0 => "no session ended\n".to_owned(),
        count => format!("{}\n{count} sessions ended\n", usage_table(&removed.usage)),
    }
}

fn usage_table(sessions: &[GtpuUsageView]) -> String {
    let header =
        ["Session", "Up bytes", "Packets", "Quota", "Down bytes", "Packets", "Quota", "Reports", "State"];
    let quota = |quota: Option<u64>| quota.map_or("-".to_owned(), |bytes| bytes.to_string());
    let row = |usage: &GtpuUsageView| {
        vec![
            usage.name.clone(),
            usage.uplink_bytes.to_string(),
            usage.uplink_packets.to_string(),
            quota(usage.uplink_quota),
            usage.downlink_bytes.to_string(),
            usage.downlink_packets.to_string(),
            quota(usage.downlink_quota),
            usage.reports.to_string(),
            state(usage).to_owned(),
        ]
    };
    let table = table(&header, sessions.iter().map(row).collect()).to_string();
    match flows_table(sessions.iter()) {
        flows if flows.is_empty() => table,
        flows => format!("{table}\n{flows}"),
    }
}

/// Of a quota less is left than a packet of usual length needs.
const LAST_BYTES: u64 = 1500;

fn state(usage: &GtpuUsageView) -> &'static str {
    let is_used_up = |quota: Option<u64>, bytes: u64| quota.is_some_and(|quota| bytes + LAST_BYTES > quota);
    let up = is_used_up(usage.uplink_quota, usage.uplink_bytes);
    let down = is_used_up(usage.downlink_quota, usage.downlink_bytes);
    match (up, down) {
        (false, false) => "open",
        (true, true) => "used up",
        (true, false) => "used up (uplink)",
        (false, true) => "used up (downlink)",
    }
}

pub fn peers(peers: &[GtpuPeerView]) -> String {
    let header = ["Peer", "Local", "Directions", "Received", "Idle s"];
    let row = |peer: &GtpuPeerView| {
        vec![
            peer.peer.clone(),
            peer.local_address.clone(),
            peer.directions.to_string(),
            peer.received.to_string(),
            peer.idle_s.map_or("-".to_owned(), |seconds| seconds.to_string()),
        ]
    };
    format!("{}\n", table(&header, peers.iter().map(row).collect()))
}

pub fn statistics(view: &GtpuView) -> String {
    let counts = &view.counts;
    if counts.limit == 0 {
        return "There is no user plane: `services gtp-u` is not configured.\n".to_owned();
    }
    let mut text = format!(
        "{} sessions, {} of them by configuration; room for {}\n{} peers\n",
        counts.sessions, counts.by_configuration, counts.limit, counts.peers
    );
    let rows = |view: &GtpuView| {
        let row = |i: &sluice_control::api::GtpuInterfaceView| {
            vec![i.unit.clone(), i.role.clone(), i.addresses.join(" ")]
        };
        view.interfaces.iter().map(row).collect()
    };
    text += &format!("{}\n", table(&["Interface", "Role", "Addresses"], rows(view)));
    let pools = view.pools.iter();
    let pools = pools.map(|pool| vec![pool.name.clone(), pool.interface.clone(), pool.prefixes.join(" ")]);
    text += &format!("{}\n", table(&["Pool", "Interface", "Prefixes"], pools.collect()));
    if !counts.spread.is_empty() {
        let cpus = counts.spread.iter();
        let cpus =
            cpus.map(|own| vec![own.cpu.to_string(), own.packets.to_string(), own.waiting.to_string()]);
        text += &format!("{}\n", table(&["Spread to CPU", "Packets", "Waiting"], cpus.collect()));
    }
    if view.drops.is_empty() {
        return text + "No packet of a tunnel was dropped.\n";
    }
    let drops = view.drops.iter();
    let drops = drops.map(|drop| vec![drop.reason.clone(), drop.packets.to_string(), drop.help.clone()]);
    text + &format!("{}\n", table(&["Dropped for", "Packets", "Meaning"], drops.collect()))
}
