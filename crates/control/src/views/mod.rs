//! Answers to the questions of [`crate::api`], from counters, sessions and the active plan.

pub mod bindings;
pub mod drops;
pub mod gate;
pub mod gtpu;
pub mod matching;
pub mod metrics;
pub mod nat;
pub mod preview;
pub mod routes;
pub mod routing;
pub mod sessions;
pub mod store;
pub mod trace;

use std::collections::BTreeMap;

use sluice_abi::DropCounters;
use sluice_abi::counters::Role;
use sluice_abi::stages::Reason;
use sluice_dataplane::{Attached, Counters as Table, Hook};
use sluice_plan::{NullDevice, UnitInfo};

use crate::api::{
    Configuration, Counters, DropView, Equation, Equations, Health, InterfaceView, PolicyView, ScreenView,
    SessionCounts, Stats, ZoneView,
};
use crate::commit::Shared;
use crate::events::watch;
use crate::kernel::devices::DeviceCounts;
use crate::kernel::{Address, Link};
use crate::state::active::Active;
use crate::state::error::AskError;

pub const VERSION: &str = env!("CARGO_PKG_VERSION");

type Result<T> = std::result::Result<T, AskError>;

/// One consistent reading of everything that counts.
struct Reading {
    active: std::sync::Arc<Active>,
    table: Table,
    links: Vec<Link>,
    addresses: Vec<Address>,
    attached: Vec<Attached>,
}

impl Reading {
    fn take(shared: &Shared) -> Result<Self> {
        Ok(Self {
            active: shared.active(),
            table: shared.dataplane.counters()?,
            links: shared.kernel.links()?,
            addresses: shared.kernel.addresses()?,
            attached: shared.dataplane.attached()?,
        })
    }

    /// What a device counted since Sluice manages it.
    fn device(&self, physical: &str) -> DeviceCounts {
        let link = self.links.iter().find(|l| l.name == physical);
        link.map_or_else(DeviceCounts::default, |l| self.active.devices.since(l))
    }

    /// Of all managed devices, each counted once, and of those that were.
    fn all_devices(&self) -> DeviceCounts {
        self.active.devices.look(&self.links);
        self.active.devices.total()
    }

    /// The kernel sends for generic XDP without a count: what was redirected is taken as sent.
    fn sent_by_generic_xdp(&self) -> u64 {
        let generic = |unit: &&UnitInfo| {
            let link = self.links.iter().find(|link| link.name == unit.physical);
            let attached = link.and_then(|link| self.attached.iter().find(|a| a.ifindex == link.index));
            attached.is_some_and(|attached| attached.hook == Hook::XdpGeneric)
        };
        let units = self.active.plan.units.iter().filter(generic);
        units.map(|unit| self.counters(unit.index as u16)).map(|c| c.redirected + c.replies).sum()
    }

    fn counters(&self, unit: u16) -> Counters {
        Counters::new(&self.table.unit(unit), &self.table.unit_drops(unit))
    }

    fn interface(&self, unit: &UnitInfo) -> InterfaceView {
        let drops = self.table.unit_drops(unit.index as u16);
        let link = self.links.iter().find(|l| l.name == unit.device);
        let physical = self.links.iter().find(|l| l.name == unit.physical);
        let attached = physical.and_then(|l| self.attached.iter().find(|a| a.ifindex == l.index));
        InterfaceView {
            name: unit.name.clone(),
            index: unit.index,
            zone: unit.zone.clone(),
            description: unit.description.clone(),
            device: unit.device.clone(),
            physical: unit.physical.clone(),
            vlan: unit.vlan.map_or(0, |vlan| vlan.id),
            inner_vlan: unit.vlan.and_then(|vlan| vlan.inner).unwrap_or(0),
            mtu: unit.mtu,
            mode: attached.map_or("detached", |a| a.hook.name()).to_owned(),
            up: link.is_some_and(|l| l.up),
            link: link.is_some_and(|l| l.running),
            device_mtu: link.map_or(0, |l| l.mtu),
            addresses: link.map_or_else(Vec::new, |l| self.addresses(l.index, unit)),
            configured: unit.addresses.iter().map(|p| format!("{}/{}", p.addr, p.len)).collect(),
            counters: self.counters(unit.index as u16),
            drops: named(&drops),
            device_drops: self.device(&unit.physical).dropped,
            notes: self.notes(&unit.physical),
        }
    }

    /// What the kernel has on a device, the configured ones first; those of the link alone are left out.
    fn addresses(&self, ifindex: u32, unit: &UnitInfo) -> Vec<String> {
        let here = || self.addresses.iter().filter(|address| address.ifindex == ifindex);
        let configured = unit
            .addresses
            .iter()
            .filter(|p| here().any(|a| (a.prefix.addr, a.prefix.len) == (p.addr, p.len)));
        let others = here().filter(|a| {
            a.lasting && !unit.addresses.iter().any(|p| (p.addr, p.len) == (a.prefix.addr, a.prefix.len))
        });
        let prefixes = configured.chain(others.map(|address| &address.prefix));
        prefixes.map(|prefix| format!("{}/{}", prefix.addr, prefix.len)).collect()
    }

    /// What the commit said of a device, and what has happened to it since.
    fn notes(&self, device: &str) -> Vec<String> {
        let said = self.active.plan.warnings.iter().filter(|warning| warning.device == device);
        let mut notes: Vec<String> = said.map(|warning| warning.text.clone()).collect();
        notes.extend(
            watch::enslaved(&self.active.plan, &self.links)
                .filter(|(name, _)| name == device)
                .map(|(_, text)| text),
        );
        notes
    }

    fn null_device(&self, null: &NullDevice) -> InterfaceView {
        let link = self.links.iter().find(|l| l.name == null.device);
        let attached = link.and_then(|l| self.attached.iter().find(|a| a.ifindex == l.index));
        InterfaceView {
            name: null.device.clone(),
            index: null.index,
            zone: "null".to_owned(),
            device: null.device.clone(),
            physical: null.device.clone(),
            mtu: null.mtu,
            mode: attached.map_or("detached", |a| a.hook.name()).to_owned(),
            up: link.is_some_and(|l| l.up),
            link: link.is_some_and(|l| l.running),
            device_mtu: link.map_or(0, |l| l.mtu),
            counters: self.counters(null.index as u16),
            drops: named(&self.table.unit_drops(null.index as u16)),
            device_drops: self.device(&null.device).dropped,
            notes: self.notes(&null.device),
            ..Default::default()
        }
    }

    /// Every unit of the plan, devices in the null zone, and slot 0: what arrived where no unit is.
    fn interfaces(&self) -> Vec<InterfaceView> {
        let plan = &self.active.plan;
        let mut list: Vec<InterfaceView> = plan.units.iter().map(|u| self.interface(u)).collect();
        list.extend(plan.null_zone.iter().map(|null| self.null_device(null)));
        let unknown = self.counters(0);
        if unknown != Counters::default() {
            list.push(InterfaceView {
                name: "(unknown)".to_owned(),
                mode: "none".to_owned(),
                counters: unknown,
                drops: named(&self.table.unit_drops(0)),
                ..Default::default()
            });
        }
        list
    }

    fn zones(&self) -> Vec<ZoneView> {
        let ids: BTreeMap<&str, u32> =
            self.active.plan.zones.iter().map(|(id, n)| (n.as_str(), *id)).collect();
        let zone = |zone: &sluice_language::Zone| {
            let units: Vec<&UnitInfo> =
                self.active.plan.units.iter().filter(|u| u.zone == zone.name).collect();
            let sum =
                units.iter().fold(Counters::default(), |sum, unit| sum + self.counters(unit.index as u16));
            ZoneView {
                name: zone.name.clone(),
                id: ids.get(zone.name.as_str()).copied().unwrap_or(0),
                interfaces: units.iter().map(|u| u.name.clone()).collect(),
                screen: zone.screen.clone(),
                counters: sum,
            }
        };
        self.active.config.zones.iter().map(zone).collect()
    }

    fn equations(&self) -> Equations {
        let total = Counters::new(&self.table.total(), &self.table.total_drops());
        let ends = total.sum(&[Role::Passed, Role::Stayed]) + total.dropped_ingress;
        let mut devices = self.all_devices();
        devices.xdp_sent += self.sent_by_generic_xdp();
        let sent = total.sum(&[Role::Left]) + devices.xdp_sent + total.dropped_egress + devices.xdp_refused;
        Equations {
            ingress: Equation::new(total.sum(&[Role::Arrived]), ends),
            egress: Equation::new(total.sum(&[Role::Passed, Role::Made]), sent),
        }
    }
}

pub fn stats(shared: &Shared) -> Result<Stats> {
    let reading = Reading::take(shared)?;
    let drop = |reason: Reason| DropView {
        stage: reason.stage().name().to_owned(),
        reason: reason.name().to_owned(),
        packets: reading.table.drops(reason),
        help: reason.help().to_owned(),
    };
    let (commits, commits_failed) = shared.commits.counts();
    Ok(Stats {
        version: VERSION.to_owned(),
        generation: reading.active.generation,
        uptime_s: shared.started.elapsed().as_secs(),
        sessions: session_counts(shared),
        interfaces: reading.interfaces(),
        zones: reading.zones(),
        drops: Reason::ALL.into_iter().map(drop).filter(|d| d.packets != 0).collect(),
        equations: reading.equations(),
        sweeps: shared.dataplane.swept().passes,
        commits,
        commits_failed,
        gate: gate::overview(shared)?,
        gtpu: gtpu::counts(shared),
        log_outputs: shared.log.outputs(),
    })
}

/// Counted now, not at the last sweep.
pub fn session_counts(shared: &Shared) -> SessionCounts {
    let (sizes, swept) = (shared.dataplane.sizes(), shared.dataplane.swept());
    let mut counts = SessionCounts {
        limit4: sizes.sessions4.into(),
        limit6: sizes.sessions6.into(),
        expired: swept.expired,
        unanswered4: swept.unanswered4.into(),
        unanswered6: swept.unanswered6.into(),
        ..Default::default()
    };
    for session in shared.dataplane.sessions() {
        match session.id.family {
            sluice_dataplane::Family::V4 => counts.v4 += 1,
            sluice_dataplane::Family::V6 => counts.v6 += 1,
        }
    }
    counts
}

pub fn interfaces(shared: &Shared) -> Result<Vec<InterfaceView>> {
    Ok(Reading::take(shared)?.interfaces())
}

pub fn zones(shared: &Shared) -> Result<Vec<ZoneView>> {
    Ok(Reading::take(shared)?.zones())
}

/// Every check of every zone that has a screen, with what it has seen.
pub fn screens(shared: &Shared) -> Result<Vec<ScreenView>> {
    let active = shared.active();
    let mut views = Vec::new();
    for (id, name) in &active.plan.zones {
        let zone = active.config.zones.iter().find(|zone| zone.name == *name);
        let wanted = zone.and_then(|zone| zone.screen.as_deref());
        let Some(screen) = active.config.screens.iter().find(|screen| Some(screen.name.as_str()) == wanted)
        else {
            continue;
        };
        let counters = shared.dataplane.screen_counters(&[*id])?;
        let limits = [
            (Reason::SourceSessionLimit, screen.source_sessions),
            (Reason::DestinationSessionLimit, screen.destination_sessions),
        ];
        let limited = |reason| limits.iter().any(|(of, limit)| *of == reason && limit.is_some());
        let checks = Reason::ALL
            .into_iter()
            .filter(|reason| screen.checks.contains(&reason.name()) || limited(*reason));
        views.extend(checks.map(|reason| ScreenView {
            zone: name.clone(),
            screen: screen.name.clone(),
            check: reason.name().to_owned(),
            help: reason.help().to_owned(),
            action: if screen.alarm_without_drop { "alarm-without-drop" } else { "drop" }.to_owned(),
            packets: counters.iter().map(|counters| counters.hits[reason as usize]).sum(),
        }));
    }
    Ok(views)
}

pub fn policies(shared: &Shared) -> Result<Vec<PolicyView>> {
    let active = shared.active();
    let ids: Vec<u32> = active.plan.policies.keys().copied().collect();
    let live = live_traffic(shared, &active);
    let counters = shared.dataplane.policy_counters(&ids)?;
    let view = |((id, policy), counted): ((&u32, &sluice_plan::PolicyInfo), sluice_abi::PolicyCounters)| {
        let (from, to) = policy.context.clone().unwrap_or_else(|| ("any".to_owned(), "any".to_owned()));
        let (packets, bytes) = live.get(id).copied().unwrap_or_default();
        PolicyView {
            id: *id,
            name: policy.name.clone(),
            from_zone: from,
            to_zone: to,
            action: action(policy.action).to_owned(),
            active: policy.active,
            sessions: counted.sessions,
            denied: counted.denied,
            packets: policy.counts.then_some(counted.packets + packets),
            bytes: policy.counts.then_some(counted.bytes + bytes),
        }
    };
    let mut listed: Vec<_> = active.plan.policies.iter().zip(counters).collect();
    listed.sort_by_key(|((_, policy), _)| policy.order);
    Ok(listed.into_iter().map(view).collect())
}

/// Packets and bytes of the sessions that live, by policy that counts. Sessions that have ended are in the counters.
fn live_traffic(shared: &Shared, active: &Active) -> BTreeMap<u32, (u64, u64)> {
    let mut traffic = BTreeMap::new();
    if !active.plan.policies.values().any(|policy| policy.counts) {
        return traffic;
    }
    for session in shared.dataplane.sessions() {
        let (packets, bytes) = traffic.entry(session.policy).or_insert((0, 0));
        for side in [&session.initiator, &session.responder] {
            *packets += side.packets;
            *bytes += side.bytes;
        }
    }
    traffic
}

fn action(action: sluice_language::Action) -> &'static str {
    match action {
        sluice_language::Action::Permit => "permit",
        sluice_language::Action::Deny => "deny",
        sluice_language::Action::Reject => "reject",
    }
}

pub fn configuration(shared: &Shared) -> Configuration {
    let active = shared.active();
    Configuration { generation: active.generation, file: active.file.clone(), text: active.text.clone() }
}

pub fn health(shared: &Shared) -> Health {
    Health {
        host_name: shared.active().config.system.host_name.clone(),
        status: "ok".to_owned(),
        version: VERSION.to_owned(),
        generation: shared.active().generation,
        pid: std::process::id(),
        uptime_s: shared.started.elapsed().as_secs(),
        under_way: shared.commits.under_way(),
        notes: shared.commits.notes(),
    }
}

fn named(raw: &DropCounters) -> BTreeMap<String, u64> {
    raw.named().map(|(reason, count)| (reason.name().to_owned(), count)).collect()
}

#[cfg(test)]
mod tests {
    use sluice_abi::UnitCounters;

    use super::*;

    #[test]
    fn drops_count_on_the_side_of_their_stage() {
        let mut drops = DropCounters::default();
        drops.packets[Reason::NoRoute as usize] = 3;
        drops.packets[Reason::NoVerdict as usize] = 4;
        let counted = Counters::new(&UnitCounters::default(), &drops);
        assert_eq!((counted.dropped_ingress, counted.dropped_egress), (3, 4));
        assert_eq!(named(&drops)["no_route"], 3);
    }
}
