//! `show bgp`, `show ospf`, `show ospf3`, `show bfd` and `clear bgp`, in words.

use sluice_control::api::{
    BfdSessionView, BgpCleared, BgpFilter, BgpNeighborView, ClearBgpRequest, OspfInterfaceView,
    OspfNeighborView,
};
use sluice_control::operations::NoArguments;
use sluice_control::operations::routing::{BGP, CLEAR_BGP};

use super::grammar::{Argument, Given, Value, alone, flag};
use super::out::{Done, Out};
use super::shell::Shell;
use crate::exit::Failure;
use crate::output::table;

const NEIGHBOR: Argument = alone("neighbor", "Only this one", Value::Address);
pub const NEIGHBORS: &[Argument] = &[NEIGHBOR];
pub const CLEARED: &[Argument] =
    &[flag("all", "All of them"), flag("soft", "Have policies asked once more; no session ends"), NEIGHBOR];

fn time(seconds: Option<u64>) -> String {
    let Some(seconds) = seconds else { return "-".to_owned() };
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match days {
        0 => format!("{hours}:{minutes:02}:{:02}", seconds % 60),
        _ => format!("{days}d {hours}:{minutes:02}"),
    }
}

fn dash(text: Option<&String>) -> String {
    text.cloned().unwrap_or_else(|| "-".to_owned())
}

pub fn bgp_summary(shell: &mut Shell, _: &Given, out: &mut Out) -> Done {
    out.show(&shell.ask(&BGP, &BgpFilter::default())?, |list| summary(list))
}

fn summary(list: &[BgpNeighborView]) -> String {
    let up = list.iter().filter(|neighbor| neighbor.up_s.is_some()).count();
    let header = ["Peer", "AS", "InPkt", "OutPkt", "Flaps", "Up", "State", "Accepted", "Sent"];
    let row = |neighbor: &BgpNeighborView| {
        let count = |of: fn(&sluice_control::api::BgpFamilyView) -> u64| {
            neighbor.families.iter().map(of).sum::<u64>().to_string()
        };
        vec![
            neighbor.neighbor.clone(),
            neighbor.peer_as.to_string(),
            neighbor.messages_received.to_string(),
            neighbor.messages_sent.to_string(),
            neighbor.flaps.to_string(),
            time(neighbor.up_s),
            neighbor.state.clone(),
            count(|family| family.accepted),
            count(|family| family.sent),
        ]
    };
    let rows = list.iter().map(row).collect();
    format!("Peers: {}, down: {}\n{}\n", list.len(), list.len() - up, table(&header, rows))
}

pub fn bgp_neighbor(shell: &mut Shell, given: &Given, out: &mut Out) -> Done {
    let filter = BgpFilter { neighbor: given.number("neighbor") };
    let list = shell.ask(&BGP, &filter)?;
    if let (Some(neighbor), true) = (filter.neighbor, list.is_empty()) {
        let message = format!("{neighbor} is no BGP neighbour; `show bgp summary` lists those that are");
        return Err(Failure::failed(message).into());
    }
    out.show(&list, |list| list.iter().map(neighbor).collect::<Vec<_>>().join("\n"))
}

fn neighbor(view: &BgpNeighborView) -> String {
    let mut text = format!(
        "Peer: {} AS {}    Local: {} AS {}\n",
        view.neighbor,
        view.peer_as,
        dash(view.local_address.as_ref()),
        view.local_as
    );
    text += &view.description.iter().map(|words| format!("  Description: {words}\n")).collect::<String>();
    text += &format!("  State: {}    Up: {}    Flaps: {}\n", view.state, time(view.up_s), view.flaps);
    text += &view.last_reset.iter().map(|why| format!("  Last reset: {why}\n")).collect::<String>();
    text += &format!(
        "  Hold time: {} s    Messages: {} received, {} sent\n",
        view.hold_time_s, view.messages_received, view.messages_sent
    );
    for family in &view.families {
        text += &format!("  {}: {} routes accepted, {} sent\n", family.family, family.accepted, family.sent);
    }
    text
}

pub fn clear_bgp(shell: &mut Shell, given: &Given, out: &mut Out) -> Done {
    let request = ClearBgpRequest {
        neighbor: given.number("neighbor"),
        all: given.has("all"),
        soft: given.has("soft"),
    };
    let body = serde_json::to_string(&request).map_err(Failure::failed)?;
    let done = shell.order(&CLEAR_BGP, &NoArguments {}, &body)?;
    out.show(&done, |done: &BgpCleared| format!("{} neighbors cleared\n", done.neighbors))
}

pub fn ospf_neighbors(list: &[OspfNeighborView]) -> String {
    let header = ["Address", "Interface", "State", "ID", "Pri", "Dead"];
    let row = |neighbor: &OspfNeighborView| {
        vec![
            dash(neighbor.address.as_ref()),
            neighbor.interface.clone(),
            neighbor.state.clone(),
            neighbor.router_id.clone(),
            neighbor.priority.to_string(),
            neighbor.dead_s.map_or("-".to_owned(), |seconds| seconds.to_string()),
        ]
    };
    format!("{}\n", table(&header, list.iter().map(row).collect()))
}

pub fn ospf_interfaces(list: &[OspfInterfaceView]) -> String {
    let header = ["Interface", "State", "Area", "Cost", "Nbrs", "Adjacent"];
    let row = |one: &OspfInterfaceView| {
        vec![
            one.interface.clone(),
            one.state.clone(),
            one.area.clone(),
            one.cost.to_string(),
            one.neighbors.to_string(),
            one.adjacent.to_string(),
        ]
    };
    format!("{}\n", table(&header, list.iter().map(row).collect()))
}

pub fn bfd(list: &[BfdSessionView]) -> String {
    let header = ["Address", "State", "Interface", "Up", "Transmit ms", "Receive ms", "Multiplier"];
    let row = |one: &BfdSessionView| {
        vec![
            one.peer.clone(),
            one.state.clone(),
            dash(one.interface.as_ref()),
            time(one.up_s),
            one.transmit_ms.to_string(),
            one.receive_ms.to_string(),
            one.multiplier.to_string(),
        ]
    };
    format!("{}\n", table(&header, list.iter().map(row).collect()))
}
