//! The user plane: which units tunnels end on, which lead to subscribers, and what a session is to the data plane.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sluice_abi::stages::Stage;
use sluice_abi::tables::Spread;
use sluice_abi::{self as abi, FlowMatch, GtpuFilters, GtpuInterface, GtpuRules};
use sluice_language::config::{Config, Interface, Unit};
use sluice_language::gtpu::{
    DirectionRules, FlowFilter, GtpU, MobileSession, SessionFlow, SessionRules, TunnelInterface,
};
use sluice_language::schema::kind::{first_address, last_address};

use crate::devices::Warning;
use crate::units::{Managed, tunnel_lengths};
use crate::{Environment, IngressHook, PlanError, UnitInfo, device_of, unit_name, words};

/// Devices by unit, which sessions are placed by.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GtpuPlan {
    /// Of units that tunnels end on: the device that has their addresses.
    pub tunnels: BTreeMap<String, u32>,
    /// Of mobile units.
    pub mobiles: BTreeMap<String, u32>,
    /// By name of the rules that have flows.
    pub filters: BTreeMap<String, FlowsWant>,
    /// Tunnels that copies go into, by name.
    pub copies: BTreeMap<String, CopyWant>,
}

/// Whom packets in tunnels are spread to.
pub(crate) fn spread(config: &Config) -> Spread {
    let of = |spread: &sluice_language::gtpu::Spread| Spread {
        cpus: spread.processors.clone(),
        queue: spread.queue_size,
    };
    config.gtp_u.spread.as_ref().map(of).unwrap_or_default()
}

/// Only native XDP leaves packets to other CPUs.
pub(crate) fn spread_warning(config: &Config, interface: &Interface, hook: IngressHook) -> Option<Warning> {
    let name = &interface.name;
    let has_tunnels =
        |unit: &Unit| config.gtp_u.interfaces.iter().any(|own| own.unit == format!("{name}.{}", unit.number));
    let is_spread = config.gtp_u.spread.is_some() && interface.units.iter().any(has_tunnels);
    (is_spread && hook != IngressHook::XdpNative).then(|| Warning {
        device: name.clone(),
        text: format!(
            "interface {name}: `services gtp-u spread` has no effect on it: only XDP in the driver leaves packets to other CPUs; \
             receive packet steering of the kernel (rps_cpus) does on tc"
        ),
    })
}

/// Names of tunnels that copies go into ([`GtpuPlan::copies`]), uplink first.
pub type Copies = [Option<String>; 2];

/// Flows of a set of rules as the data plane wants them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowsWant {
    /// But for the numbers of the other ends of copies.
    pub filters: Box<GtpuFilters>,
    /// Of each flow, in order of precedence.
    pub copies: Vec<Copies>,
}

/// The ends of a tunnel that copies go into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyWant {
    /// This end.
    pub local: IpAddr,
    /// The other end.
    pub remote: IpAddr,
    /// Device whose unit has the local address.
    pub ifindex: u32,
}

/// A session as the data plane wants it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionWant {
    /// That this gateway is reached under.
    pub teid: u32,
    /// Of the subscriber.
    pub address: Option<Ipv4Addr>,
    /// First 64 bits of its addresses.
    pub prefix: Option<Ipv6Addr>,
    /// This end of the tunnel.
    pub local: IpAddr,
    /// The other end.
    pub remote: IpAddr,
    /// Device whose unit has the local address.
    pub ifindex: u32,
    /// That the other end is reached under.
    pub remote_teid: u32,
    /// What its packets meet, but for the numbers of the filters and of the other ends of copies.
    pub rules: GtpuRules,
    /// The tunnels that copies of its packets go into, of flows without their own.
    pub copies: Copies,
    /// The rules whose filters they are looked at by ([`GtpuPlan::filters`]).
    pub filters: Option<String>,
    /// Bytes from the subscriber and to it, in all.
    pub quota: [Option<u64>; 2],
}

impl GtpuPlan {
    /// What a session becomes; None = it has no place in the configuration any more.
    pub fn session(&self, config: &GtpU, session: &MobileSession) -> Option<SessionWant> {
        let (interface, local) = config.local(session)?;
        let ifindex = *self.tunnels.get(&interface.unit)?;
        let mobile = if session.relay { 0 } else { *self.mobiles.get(config.mobile(session)?)? };
        let named = session.rules.as_ref().and_then(|name| config.rules(name));
        Some(SessionWant {
            teid: session.teid,
            address: session.address,
            prefix: session.prefix,
            local,
            remote: session.peer,
            ifindex,
            remote_teid: session.peer_teid,
            rules: rules(config, session, mobile)?,
            copies: named.map_or([None, None], |rules| copies([&rules.uplink, &rules.downlink])),
            filters: session.rules.clone().filter(|name| self.filters.contains_key(name)),
            quota: [session.uplink_quota, session.downlink_quota],
        })
    }
}

fn rules(config: &GtpU, session: &MobileSession, ifindex: u32) -> Option<GtpuRules> {
    let own = if session.relay { abi::GTPU_TO_PEER as u16 } else { 0 };
    let Some(name) = &session.rules else {
        return Some(GtpuRules { ifindex, flags: own, ..Default::default() });
    };
    let wanted = config.rules(name)?;
    let rules = entry([&wanted.uplink, &wanted.downlink], wanted.qfi, wanted.reflective);
    let copy_teid = copy_teids(config, [&wanted.uplink, &wanted.downlink]);
    Some(GtpuRules { ifindex, flags: rules.flags | own, copy_teid, ..rules })
}

fn copies(directions: [&DirectionRules; 2]) -> Copies {
    directions.map(|direction| direction.duplicate.clone())
}

/// Of the tunnels that copies go into; 0 = there are none.
fn copy_teids(config: &GtpU, directions: [&DirectionRules; 2]) -> [u32; 2] {
    let tunnel = |name: &Option<String>| config.duplicate(name.as_ref()?);
    directions.map(|direction| tunnel(&direction.duplicate).map_or(0, |tunnel| tunnel.peer_teid))
}

/// What packets meet, of a flow or of none.
fn entry(directions: [&DirectionRules; 2], qfi: Option<u8>, reflective: bool) -> GtpuRules {
    let [uplink, downlink] = directions;
    let ((cost_up, tolerance_up), (cost_down, tolerance_down)) = (policer(uplink), policer(downlink));
    let flags = [
        (uplink.closed, abi::GTPU_UPLINK_CLOSED),
        (downlink.closed, abi::GTPU_DOWNLINK_CLOSED),
        (uplink.discard, abi::GTPU_UPLINK_DROP),
        (downlink.discard, abi::GTPU_DOWNLINK_DROP),
        (qfi.is_some(), abi::GTPU_CONTAINER),
        (reflective, abi::GTPU_REFLECTIVE),
        (uplink.dscp.is_some(), abi::GTPU_MARK_UPLINK),
        (downlink.dscp.is_some(), abi::GTPU_MARK_DOWNLINK),
    ];
    GtpuRules {
        cost: [cost_up, cost_down],
        tolerance: [tolerance_up, tolerance_down],
        flags: flags.iter().filter(|(on, _)| *on).fold(0, |all, (_, flag)| all | *flag as u16),
        qfi: qfi.unwrap_or(0),
        dscp_uplink: uplink.dscp.unwrap_or(0),
        dscp_downlink: downlink.dscp.unwrap_or(0),
        ..Default::default()
    }
}

/// Filters of all rules that have flows. How many there may be was checked where they were read.
fn filters(config: &GtpU) -> BTreeMap<String, FlowsWant> {
    let with_flows = config.rules.iter().filter(|rules| !rules.flows.is_empty());
    let of = |rules: &SessionRules| {
        let met = |flow: &SessionFlow| (asked(&flow.filter), met(config, rules, flow));
        let flows: Vec<_> = rules.flows.iter().map(met).collect();
        let copies = rules.flows.iter().map(|flow| copies([&flow.uplink, &flow.downlink])).collect();
        Some((rules.name.clone(), FlowsWant { filters: GtpuFilters::new(&flows).ok()?, copies }))
    };
    with_flows.filter_map(of).collect()
}

/// A flow without a QFI has that of its rules: behind N3 all packets have one (TS 38.415 5.5.2.1).
fn met(config: &GtpU, rules: &SessionRules, flow: &SessionFlow) -> GtpuRules {
    let directions = [&flow.uplink, &flow.downlink];
    let met = match flow.qfi {
        None => entry(directions, rules.qfi, rules.reflective),
        qfi => entry(directions, qfi, flow.reflective),
    };
    GtpuRules { copy_teid: copy_teids(config, directions), ..met }
}

fn asked(filter: &FlowFilter) -> FlowMatch {
    FlowMatch {
        protocol: filter.protocol,
        remote: filter
            .remote_addresses
            .iter()
            .map(|prefix| (first_address(*prefix), last_address(*prefix)))
            .collect(),
        remote_ports: filter.remote_ports.clone(),
        local_ports: filter.local_ports.clone(),
        dscp: filter.dscp,
    }
}

/// Bytes of a burst that no statement gives: what 10 ms of the rate bring, and some packets at least.
const LEAST_BURST: u64 = 15_000;

fn policer(of: &DirectionRules) -> (u64, u64) {
    let Some(rate) = of.rate_bps else { return (0, 0) };
    let cost = abi::cost_of_rate(rate);
    let burst = of.burst_bytes.unwrap_or_else(|| (rate / 8 / 100).max(LEAST_BURST));
    (cost, abi::tolerance_of_burst(burst, cost))
}

/// The table of units that have to do with tunnels, by unit name; entries count from 1.
pub(crate) struct Interfaces {
    pub entries: Vec<GtpuInterface>,
    numbers: BTreeMap<String, u8>,
}

impl Interfaces {
    pub(crate) fn new(config: &Config, managed: &[Managed]) -> Interfaces {
        let (mut entries, mut numbers) = (vec![], BTreeMap::new());
        for unit in managed {
            let name = unit_name(unit.interface, unit.unit);
            let role = config.gtp_u.interfaces.iter().find(|interface| interface.unit == name);
            let entry = match role {
                Some(interface) => tunnels(interface),
                None if unit.interface.mobile => {
                    GtpuInterface { kind: abi::GTPU_MOBILE as u8, ..Default::default() }
                }
                None => continue,
            };
            entries.push(entry);
            numbers.insert(name, entries.len() as u8);
        }
        Interfaces { entries, numbers }
    }

    /// 0 = none.
    pub(crate) fn number(&self, unit: &str) -> u8 {
        self.numbers.get(unit).copied().unwrap_or(0)
    }
}

fn tunnels(interface: &TunnelInterface) -> GtpuInterface {
    GtpuInterface {
        kind: abi::GTPU_TUNNELS as u8,
        be_addr4: interface.v4.map_or(0, |address| u32::from_ne_bytes(address.octets())),
        be_addr6: interface.v6.map_or([0; 4], |address| words(address.octets())),
        ..Default::default()
    }
}

/// Every device runs the stage: packets to subscribers arrive from any.
pub(crate) fn stage_mask(config: &Config) -> u32 {
    if config.gtp_u.is_empty() { 0 } else { Stage::Gtpu.bit() }
}

pub(crate) fn plan(config: &Config, environment: &Environment) -> GtpuPlan {
    let mut plan = GtpuPlan { filters: filters(&config.gtp_u), ..GtpuPlan::default() };
    for interface in &config.interfaces {
        for unit in &interface.units {
            let name = unit_name(interface, unit);
            let Some(device) = environment.netdevs.get(&device_of(interface, unit)) else { continue };
            if interface.mobile {
                plan.mobiles.insert(name, device.ifindex);
            } else if config.gtp_u.interfaces.iter().any(|own| own.unit == name) {
                plan.tunnels.insert(name, device.ifindex);
            }
        }
    }
    for duplicate in &config.gtp_u.duplicates {
        let end = config.gtp_u.local_end(duplicate.peer, duplicate.local);
        let Some((interface, local)) = end else { continue };
        let Some(ifindex) = plan.tunnels.get(&interface.unit).copied() else { continue };
        let want = CopyWant { local, remote: duplicate.peer, ifindex };
        plan.copies.insert(duplicate.name.clone(), want);
    }
    plan
}

pub(crate) fn warnings(
    config: &Config,
    environment: &Environment,
    infos: &[UnitInfo],
) -> Result<Vec<Warning>, PlanError> {
    let mut warnings = vec![];
    let lengths = tunnel_lengths(config, environment)?;
    let is_mobile = |info: &&UnitInfo| config.interfaces.iter().any(|i| i.mobile && is_of(i, info));
    for info in infos.iter().filter(is_mobile) {
        let (mtu, device) = (u32::from(info.mtu), info.device.clone());
        if let Some((unit, length)) = lengths.iter().find(|(_, length)| *length < mtu) {
            let text = format!(
                "unit {device}: packets of its mtu {mtu} do not fit into tunnels over {unit}, which takes {length} bytes; raise the \
                 mtu there, or lower this"
            );
            warnings.push(Warning { device, text });
        }
    }
    let has_role = |info: &&UnitInfo| ends_tunnels(config, &info.name);
    // what is routed to subscribers is cut by the mobile interface's device
    for info in infos.iter().filter(has_role).filter(|info| info.hook == IngressHook::Tc) {
        let name = &info.physical;
        let text = format!(
            "interface {name}: on tc, messages of tunnels that were joined before (GRO here, GSO of a veth pair's other end) have one \
             header for all and are dropped as `gtpu_gso`; `ethtool -K {name} gro off lro off` here and `gso off tso off` there, or mode xdp"
        );
        if !warnings.iter().any(|warning| warning.text == text) {
            warnings.push(Warning { device: name.clone(), text });
        }
    }
    Ok(warnings)
}

/// Whether tunnels end on a unit of the interface.
pub(crate) fn has_role(config: &Config, interface: &Interface) -> bool {
    let mut names = interface.units.iter().map(|unit| unit_name(interface, unit));
    names.any(|name| ends_tunnels(config, &name))
}

/// Whether tunnels end on the unit.
pub(crate) fn ends_tunnels(config: &Config, unit: &str) -> bool {
    config.gtp_u.interfaces.iter().any(|own| own.unit == unit)
}

fn is_of(interface: &Interface, info: &UnitInfo) -> bool {
    interface.units.iter().any(|unit| unit_name(interface, unit) == info.name)
}

impl Display for SessionWant {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "TEID {:#010x}", self.teid)?;
        self.address.iter().try_for_each(|address| write!(f, " address {address}"))?;
        self.prefix.iter().try_for_each(|prefix| write!(f, " prefix {prefix}/64"))?;
        write!(f, " from {} to {} TEID {:#010x}", self.local, self.remote, self.remote_teid)?;
        write!(f, " by ifindex {}", self.ifindex)?;
        let rules = &self.rules;
        write!(f, " mobile {}", rules.ifindex)?;
        write_rules(f, rules)?;
        self.filters.iter().try_for_each(|name| write!(f, " flows of {name}"))?;
        write_copies(f, &self.copies, rules)?;
        let quota = self.quota.map(|quota| quota.map_or("none".to_owned(), |bytes| bytes.to_string()));
        write!(f, " quota {} {}", quota[0], quota[1])
    }
}

fn write_rules(f: &mut Formatter<'_>, rules: &GtpuRules) -> fmt::Result {
    write!(f, " flags {:#05x} qfi {}", rules.flags, rules.qfi)?;
    write!(f, " dscp {} {}", rules.dscp_uplink, rules.dscp_downlink)?;
    write!(f, " cost {:?} tolerance {:?}", rules.cost, rules.tolerance)
}

fn write_copies(f: &mut Formatter<'_>, names: &Copies, rules: &GtpuRules) -> fmt::Result {
    for ((name, way), teid) in names.iter().zip(["uplink", "downlink"]).zip(rules.copy_teid) {
        name.iter().try_for_each(|name| write!(f, " copies {way} to {name} TEID {teid:#010x}"))?;
    }
    Ok(())
}

impl Display for GtpuPlan {
    /// Flows by precedence, and the numbers at which what filters ask for changes.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (name, CopyWant { local, remote, ifindex }) in &self.copies {
            writeln!(f, "gtp-u copies {name}: from {local} to {remote} by ifindex {ifindex}")?;
        }
        for (name, FlowsWant { filters, copies }) in &self.filters {
            writeln!(
                f,
                "gtp-u flows of {name}: asks {:#04x}, {:#x} for no port",
                filters.asks, filters.portless
            )?;
            for (number, (rules, copies)) in filters.rules.iter().zip(copies).enumerate() {
                write!(f, "  flow {number}")?;
                write_rules(f, rules)?;
                write_copies(f, copies, rules)?;
                writeln!(f)?;
            }
            let four = filters.remote4.map(|key| Ipv4Addr::from(key).to_string());
            write_intervals(f, "remote", &four, &filters.remote4_flows)?;
            let six = filters.remote6_upper.iter().zip(&filters.remote6_lower);
            let six = six.map(|(upper, lower)| u128::from(*upper) << 64 | u128::from(*lower));
            let six: Vec<_> = six.map(|key| Ipv6Addr::from(key).to_string()).collect();
            write_intervals(f, "remote", &six, &filters.remote6_flows)?;
            write_intervals(f, "remote port", &filters.remote_port, &filters.remote_port_flows)?;
            write_intervals(f, "local port", &filters.local_port, &filters.local_port_flows)?;
        }
        Ok(())
    }
}

/// Keys that stand there again are filling.
fn write_intervals<T: Display + PartialEq>(
    f: &mut Formatter<'_>,
    what: &str,
    keys: &[T],
    rows: &[u64],
) -> fmt::Result {
    write!(f, "  {what} from")?;
    let mut before = None;
    for (key, row) in keys.iter().zip(rows) {
        if before != Some(key) {
            write!(f, " {key} {row:#x}")?;
        }
        before = Some(key);
    }
    writeln!(f)
}
