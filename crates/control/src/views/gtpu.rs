//! `show services gtp-u`: sessions, what passed of them, the other ends of tunnels, and the user plane as a whole.

use std::net::IpAddr;

use sluice_abi::stages::Reason;
use sluice_dataplane::{FlowUsage, Gtpu, GtpuRecord, SpreadCpu};

use crate::api::{
    DropView, GtpuCounts, GtpuFilter, GtpuFlowView, GtpuInterfaceView, GtpuPeerView, GtpuPoolView,
    GtpuRemoved, GtpuReportView, GtpuSessionList, GtpuSessionView, GtpuSpreadView, GtpuUsageList,
    GtpuUsageView, GtpuView,
};
use crate::commit::Shared;
use crate::functions::gtpu::sessions::{Known, LISTED};
use crate::state::error::AskError;

/// Sessions that are looked at together.
const CHUNK: usize = 4096;

/// What fits a filter: how many, and of the part that was asked for what `tell` makes of each. `all` sees every one.
fn walk<T>(
    shared: &Shared,
    filter: &GtpuFilter,
    tell: impl Fn(&GtpuRecord, Known) -> T,
    mut all: impl FnMut(&GtpuRecord),
) -> (u64, Vec<T>) {
    let (mut total, mut listed) = (0, vec![]);
    let Ok(gtpu) = shared.dataplane.gtpu() else { return (0, listed) };
    let (offset, limit) = (filter.offset.unwrap_or(0), filter.limit.unwrap_or(LISTED));
    for records in chunks(gtpu, shared, filter) {
        let of = |record: &GtpuRecord, known: Known| {
            Some((record.clone(), known)).filter(|(r, k)| fits(r, k, filter))
        };
        for (record, known) in shared.gtpu.known(&records, of).into_iter().flatten() {
            all(&record);
            if total >= offset && listed.len() < limit {
                listed.push(tell(&record, known));
            }
            total += 1;
        }
    }
    (total as u64, listed)
}

/// Sessions among which those are that fit: one at most, where name, TEID or address say which.
fn chunks<'a>(
    gtpu: &'a Gtpu,
    shared: &Shared,
    filter: &GtpuFilter,
) -> Box<dyn Iterator<Item = Vec<GtpuRecord>> + 'a> {
    let teid = match &filter.name {
        Some(name) => Some(shared.gtpu.teid(name).unwrap_or(0)),
        None => filter.teid,
    };
    let number = match (teid, filter.address) {
        (Some(teid), _) => gtpu.find_teid(teid),
        (None, Some(address)) => gtpu.find_address(address),
        (None, None) => {
            let mut from = 0;
            return Box::new(std::iter::from_fn(move || {
                let records = gtpu.list(from, CHUNK);
                from = records.last()?.number + 1;
                Some(records)
            }));
        }
    };
    let found: Vec<GtpuRecord> = number.and_then(|number| gtpu.get(number)).into_iter().collect();
    Box::new(std::iter::once(found))
}

fn fits(record: &GtpuRecord, known: &Known, filter: &GtpuFilter) -> bool {
    let session = &record.session;
    let has = |address: IpAddr| match address {
        IpAddr::V4(address) => session.address == Some(address),
        IpAddr::V6(address) => {
            session.prefix.is_some_and(|prefix| prefix.to_bits() >> 64 == address.to_bits() >> 64)
        }
    };
    filter.name.as_ref().is_none_or(|name| known.name == *name)
        && filter.teid.is_none_or(|teid| session.teid == teid)
        && filter.address.is_none_or(has)
        && filter.peer.is_none_or(|peer| session.tunnel.peer.remote == peer)
        && filter.rules.as_ref().is_none_or(|rules| known.rules.as_ref() == Some(rules))
}

pub fn sessions(shared: &Shared, filter: &GtpuFilter) -> GtpuSessionList {
    let (total, sessions) = walk(shared, filter, session, |_| {});
    GtpuSessionList { total, sessions }
}

fn session(record: &GtpuRecord, known: Known) -> GtpuSessionView {
    let own = &record.session;
    let has_container = u32::from(own.rules.flags) & sluice_abi::GTPU_CONTAINER != 0;
    GtpuSessionView {
        name: known.name.clone(),
        by_configuration: known.by_configuration,
        teid: own.teid,
        address: own.address.map(|address| address.to_string()),
        prefix: own.prefix.map(|prefix| format!("{prefix}/64")),
        local_address: own.tunnel.peer.local.to_string(),
        peer: own.tunnel.peer.remote.to_string(),
        peer_teid: own.tunnel.teid,
        interface: known.interface.clone(),
        rules: known.rules.clone(),
        qfi: has_container.then_some(own.rules.qfi),
        usage: usage_with(record, known),
    }
}

fn usage_with(record: &GtpuRecord, known: Known) -> GtpuUsageView {
    let usage = usage_of(record, &known);
    let last = known.last.map(|told| GtpuReportView {
        unix_s: told.at,
        trigger: told.trigger,
        uplink_bytes: told.bytes[0],
        downlink_bytes: told.bytes[1],
    });
    GtpuUsageView { reports: known.reports, last_report: last, ..usage }
}

fn usage_of(record: &GtpuRecord, known: &Known) -> GtpuUsageView {
    let (usage, quota) = (&record.usage, &record.session.quota);
    let flows = known.flows.iter().zip(&record.flows);
    let flow = |(name, usage): (&String, &FlowUsage)| GtpuFlowView {
        name: name.clone(),
        uplink_bytes: usage.bytes[0],
        downlink_bytes: usage.bytes[1],
    };
    GtpuUsageView {
        name: known.name.clone(),
        uplink_bytes: usage.bytes[0],
        uplink_packets: usage.packets[0],
        uplink_quota: quota[0],
        downlink_bytes: usage.bytes[1],
        downlink_packets: usage.packets[1],
        downlink_quota: quota[1],
        flows: flows.map(flow).collect(),
        ..GtpuUsageView::default()
    }
}

pub fn usage(shared: &Shared, filter: &GtpuFilter) -> GtpuUsageList {
    let mut sum = GtpuUsageList::default();
    let add = |record: &GtpuRecord| {
        sum.uplink_bytes += record.usage.bytes[0];
        sum.uplink_packets += record.usage.packets[0];
        sum.downlink_bytes += record.usage.bytes[1];
        sum.downlink_packets += record.usage.packets[1];
    };
    let (total, sessions) = walk(shared, filter, usage_with, add);
    GtpuUsageList { total, sessions, ..sum }
}

/// All that passed of sessions that have ended.
pub fn removed(ended: &[(Known, GtpuRecord)]) -> GtpuRemoved {
    let removed = ended.len() as u64;
    let usage = ended.iter().take(LISTED).map(|(known, record)| usage_of(record, known)).collect();
    GtpuRemoved { removed, usage }
}

pub fn peers(shared: &Shared) -> Result<Vec<GtpuPeerView>, AskError> {
    let Ok(gtpu) = shared.dataplane.gtpu() else { return Ok(vec![]) };
    let (now, hz) = (shared.dataplane.now_jiffies()?, u64::from(shared.dataplane.hz()));
    let mut peers = gtpu.peers();
    peers.sort_unstable_by_key(|peer| peer.peer);
    let view = |record: sluice_dataplane::PeerRecord| GtpuPeerView {
        peer: record.peer.remote.to_string(),
        local_address: record.peer.local.to_string(),
        directions: record.lines,
        received: record.received,
        idle_s: (record.last_received != 0).then(|| now.saturating_sub(record.last_received) / hz),
    };
    Ok(peers.into_iter().map(view).collect())
}

pub fn counts(shared: &Shared) -> GtpuCounts {
    let Ok(gtpu) = shared.dataplane.gtpu() else { return GtpuCounts::default() };
    GtpuCounts {
        sessions: gtpu.len().into(),
        by_configuration: shared.gtpu.configured() as u64,
        limit: gtpu.capacity().into(),
        peers: gtpu.peers().len() as u64,
        reports: shared.gtpu.reports(),
        spread: shared.dataplane.spread().unwrap_or_default().iter().map(spread_view).collect(),
    }
}

fn spread_view(own: &SpreadCpu) -> GtpuSpreadView {
    GtpuSpreadView { cpu: own.cpu, packets: own.packets, waiting: own.waiting }
}

/// Reasons of the user plane begin so.
const REASONS: &str = "gtpu_";

pub fn overview(shared: &Shared) -> Result<GtpuView, AskError> {
    let active = shared.active();
    let config = &active.config.gtp_u;
    let interfaces = config.interfaces.iter().map(|interface| {
        let own = [interface.v4.map(IpAddr::V4), interface.v6.map(IpAddr::V6)];
        GtpuInterfaceView {
            unit: interface.unit.clone(),
            role: interface.role.name().to_owned(),
            addresses: own.into_iter().flatten().map(|address| address.to_string()).collect(),
        }
    });
    let pools = config.pools.iter().map(|pool| GtpuPoolView {
        name: pool.name.clone(),
        prefixes: pool.prefixes.iter().map(|prefix| format!("{}/{}", prefix.addr, prefix.len)).collect(),
        interface: pool.interface.clone(),
    });
    let table = shared.dataplane.counters()?;
    let drops = Reason::ALL.into_iter().filter(|reason| reason.name().starts_with(REASONS));
    let drops = drops.map(|reason| DropView {
        stage: reason.stage().name().to_owned(),
        reason: reason.name().to_owned(),
        packets: table.drops(reason),
        help: reason.help().to_owned(),
    });
    Ok(GtpuView {
        counts: counts(shared),
        interfaces: interfaces.collect(),
        pools: pools.collect(),
        drops: drops.filter(|drop| drop.packets != 0).collect(),
    })
}
