//! The plan: everything a configuration means to the data plane and to the kernel, computed without touching either.
//!
//! The same inputs give the same plan, and a plan prints as text, so what a commit will do can be read, compared and
//! tested (`tests/golden-plan`).

#![warn(missing_docs)]

pub mod balance;
pub mod classifier;
mod devices;
mod display;
mod environment;
pub mod fan_out;
mod frr;
mod gate;
mod gtpu;
mod hooks;
mod ids;
mod instances;
mod kernel;
mod lan_services;
pub mod nat;
mod numbers;
mod policies;
mod prefix;
mod screens;
mod terms;
mod units;
mod words;

use std::collections::{BTreeMap, BTreeSet};

use sluice_abi::stages::Stage;
use sluice_abi::tables::{FlowRules, GateRules, Tables};
use sluice_abi::{self as abi};
use sluice_language::config::Config;

use numbers::Numbers;

pub use devices::{Warning, passed_by_ipsec};
pub use display::action;
pub use environment::{Environment, NetDev, Sender};
pub use gate::{GatePlan, GrantWant};
pub use gtpu::{Copies, CopyWant, FlowsWant, GtpuPlan, SessionWant};
pub use hooks::depends_on_sender;
pub use ids::{Exhausted, Ids, Pool};
pub use instances::{FIRST_INSTANCE_TABLE, InstanceWant};
pub use kernel::{Gateway, KernelWants, LinkWant, MAIN_TABLE, RouteVia, RouteWant, VlanPair};
pub use policies::policy_key;
pub use prefix::{contains, is_host, network};
pub use units::{device_of, far_end, is_pair, least_mtu, unit_name};
pub use words::words;

/// What a commit will put in force.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Number the caller gave it; by it ids rest, see [`Pool`].
    pub generation: u32,
    /// The contents of every table a commit makes (`bpf/tables.def`).
    pub tables: Tables,
    /// What the rules want, list by list; `contexts[n]` is context n + 1 of the tables.
    pub contexts: Vec<classifier::Rules>,
    /// By number, as `Attachment::variant` names them; the first has no stage that only some devices need.
    pub variants: Vec<Variant>,
    /// One a netdev.
    pub attachments: Vec<Attachment>,
    /// What netlink and sysctls have to reach.
    pub kernel: KernelWants,
    /// Enabled units of a zone, in the order of the configuration.
    pub units: Vec<UnitInfo>,
    /// Configured devices without such a unit.
    pub null_zone: Vec<NullDevice>,
    /// What its operator should know, in the order of the configuration.
    pub warnings: Vec<Warning>,
    /// The devices as it was made for them.
    pub environment: Environment,
    /// Listeners that the data plane serves; those of other modes are not here.
    pub fan_out: Vec<fan_out::FanOutInfo>,
    /// Zone and policy names by id.
    pub zones: BTreeMap<u32, String>,
    /// By id.
    pub policies: BTreeMap<u32, PolicyInfo>,
    /// Services, and the grants that the configuration makes.
    pub gate: GatePlan,
    /// NAT rules and pools, by id.
    pub nat: nat::NatPlan,
    /// What sessions of the user plane are placed by.
    pub gtpu: GtpuPlan,
    /// Sessions that the configuration makes, by name.
    pub gtpu_sessions: Vec<(String, SessionWant)>,
    /// The configuration of FRR; empty when it has nothing to do.
    pub frr: String,
}

impl Plan {
    /// All that its operator should know.
    pub fn remarks(&self) -> impl Iterator<Item = &str> {
        let devices = self.warnings.iter().map(|warning| warning.text.as_str());
        devices.chain(self.kernel.inactive_routes.iter().map(String::as_str))
    }
}

/// A distinct set of optional stages; programs are loaded once for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variant {
    /// One bit a stage (`Stage::bit`).
    pub stage_mask: u32,
}

/// Where the programs of a device run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum IngressHook {
    /// tc ingress: any driver, and GSO packets stay whole.
    Tc,
    /// In the driver, before an skb is made.
    XdpNative,
    /// After the skb is made: for tests and drivers without native XDP.
    XdpGeneric,
}

impl IngressHook {
    /// As reports, metrics and the API spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tc => "tc",
            Self::XdpNative => "xdp-native",
            Self::XdpGeneric => "xdp-generic",
        }
    }
}

/// Where programs go on one netdev. Every one gets the egress program; host sides of tagged units get only that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// Name of the netdev.
    pub device: String,
    /// In the daemon's network namespace.
    pub ifindex: u32,
    /// None = the egress program alone.
    pub ingress: Option<IngressHook>,
    /// Index into `Plan::variants`.
    pub variant: u32,
}

/// A unit as reports show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitInfo {
    /// Index of its counters, kept by name from commit to commit.
    pub index: u32,
    /// As configuration and reports write it: `eth0.100`.
    pub name: String,
    /// The unit's own, else its interface's.
    pub description: Option<String>,
    /// Name of the security zone.
    pub zone: String,
    /// Netdev that frames arrive on, and the one that carries the addresses.
    pub physical: String,
    /// The unit's own netdev when it is tagged, else the physical one.
    pub device: String,
    /// None = untagged.
    pub vlan: Option<sluice_language::config::Vlan>,
    /// In bytes, without the Ethernet header and tags.
    pub mtu: u16,
    /// Of the physical netdev.
    pub hook: IngressHook,
    /// Of both families, IPv4 first, with the length of their subnets.
    pub addresses: Vec<sluice_language::config::Prefix>,
}

/// A device that passes nothing: the configuration names it and has no enabled unit of it in a zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NullDevice {
    /// Name of the netdev.
    pub device: String,
    /// In the daemon's network namespace.
    pub ifindex: u32,
    /// Of its counters.
    pub index: u32,
    /// What drops its packets.
    pub hook: IngressHook,
    /// In bytes, of the netdev.
    pub mtu: u16,
    /// Why it has no unit, for the warning.
    pub cause: &'static str,
}

/// A policy as reports show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyInfo {
    /// Unique within its zone pair only.
    pub name: String,
    /// From-zone and to-zone; None = global.
    pub context: Option<(String, String)>,
    /// Permit, deny or reject.
    pub action: sluice_language::config::Action,
    /// `then count`
    pub counts: bool,
    /// Inside the times of its scheduler, or without one.
    pub active: bool,
    /// Number in the order of evaluation: zone pair by zone pair, then the global ones.
    pub order: usize,
}

/// Why no plan can be made of a configuration; nothing has been touched.
#[allow(missing_docs, reason = "its variants and their fields are what their messages name")]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    #[error("interface {name} does not exist here; create it or correct the name (present: {})", known.join(", "))]
    UnknownInterface { name: String, known: Vec<String> },
    #[error(
        "interface {interface}: mtu {mtu} is outside what its driver takes ({low} to {high}); choose one inside"
    )]
    MtuRefused { interface: String, mtu: u32, low: u32, high: u32 },
    #[error(
        "unit {unit}: mtu {mtu} is larger than the interface's {link}{}; raise `interfaces ... mtu` or lower this",
        if *two { ", from which the second tag takes 4 bytes" } else { "" }
    )]
    UnitMtu { unit: String, mtu: u32, link: u32, two: bool },
    #[error(
        "unit {unit}: it needs a device named {device}, longer than the 15 characters Linux takes; rename the interface"
    )]
    NameTooLong { unit: String, device: String },
    #[error(
        "interface {name}: driver {} has no native XDP; use mode tc, auto or generic",
        if driver.is_empty() { "(none)" } else { driver }
    )]
    NoNativeXdp { name: String, driver: String },
    #[error(
        "interface {name}{} has no Ethernet header in its packets, which Sluice reads: let another host end the tunnel or the \
         PPP session, or give the device to the zone `management`, which is not judged",
        if driver.is_empty() { String::new() } else { format!(" ({driver})") }
    )]
    NoEthernet { name: String, driver: String },
    #[error(
        "interface {name} is a port of {kind} {master}, which takes its packets; configure {master} instead, or take {name} out of \
         it (`ip link set {name} nomaster`)"
    )]
    Enslaved { name: String, master: String, kind: String },
    #[error(
        "interface {name} carries {kind} device {device}, which would lose its packets; remove {device} (for a VLAN: a tagged unit \
         instead of it), or configure {device} instead"
    )]
    Carries { name: String, device: String, kind: String },
    #[error(
        "interface {name}: its other end leaves VLAN tags beside the frame, where XDP does not see them, and it has tagged units; \
         `ethtool -K DEVICE txvlan off tx-vlan-stag-hw-insert off` there, or mode tc"
    )]
    TagsBeside { name: String },
    #[error(
        "{what}: {wanted} are configured, {free} fit ({quarantined} ids rest for two commits after their name went: rename fewer at \
         a time)"
    )]
    NoIds { what: &'static str, wanted: usize, free: u32, quarantined: usize },
    #[error(
        "{count} policies are in force (global ones count once for each list of zone pairs they apply to), at most {} fit",
        abi::MAX_RULES
    )]
    RuleTableFull { count: usize },
    #[error(
        "the zone pairs have more than {} different lists of policies; give global policies fewer from-zone and to-zone",
        abi::MAX_CONTEXTS - 1
    )]
    TooManyContexts,
    #[error(transparent)]
    Classifier(#[from] classifier::TooMuch),
    #[error(
        "from-zone {from} to-zone {to}: policies of junos-host are not supported yet; use host-inbound-traffic"
    )]
    HostPolicy { from: String, to: String },
    #[error(
        "{owner}: {count} host-inbound services, or applications whose timeouts differ, at most {limit} fit; use fewer"
    )]
    TooManyTerms { owner: String, count: usize, limit: usize },
    #[error("listener {listener}: unit {unit} belongs to no zone or is disabled; add it to a zone")]
    FanOutUnit { listener: String, unit: String },
    #[error(
        "listener {listener}: mode {mode}, but unit {unit} runs on {hook}; set `interfaces ... mode`, or use mode auto"
    )]
    FanOutMode { listener: String, mode: &'static str, unit: String, hook: &'static str },
    #[error(
        "the table of {listeners} fan-out listeners cannot be filled without collisions; configure fewer"
    )]
    FanOutTable { listeners: usize },
    #[error(
        "services gate host-only {interface}: not with {what}, which its packets would pass by; leave one of them out"
    )]
    HostOnly { interface: String, what: &'static str },
    #[error("the unit table has no room for {entries} entries; configure fewer tagged units")]
    UnitTableFull { entries: usize },
    #[error(
        "the NAT rule-sets make {count} entries (one for each first they apply to, two for a static rule, more for ranges that \
         are no prefixes), at most {} fit; use fewer rules, or prefixes",
        abi::MAX_NAT_RULES
    )]
    NatRules { count: usize },
    #[error(
        "the NAT rule-sets make more than {} different lists of rules; name zones instead of interfaces",
        abi::MAX_NAT_CONTEXTS
    )]
    NatContexts,
    #[error(
        "source NAT tells {rows} kinds of units that packets come from and {columns} that they go to, too many pairs; \
         name zones instead of interfaces"
    )]
    NatSources { rows: usize, columns: usize },
    #[error("more than {} source pools; use fewer, with several addresses", abi::MAX_NAT_POOLS)]
    NatPools,
    #[error(
        "source pools have {count} ranges of addresses, at most {} fit; use longer ones",
        abi::MAX_NAT_RANGES
    )]
    NatRanges { count: usize },
    #[error("{count} different NAT64 prefixes, at most {} fit; use fewer", abi::MAX_NAT_PREFIXES)]
    NatPrefixes { count: usize },
    #[error(
        "the white-lists of all zones make {count} pairs of source and destination, at most {} fit; use larger prefixes",
        abi::MAX_WHITE_TERMS
    )]
    WhiteLists { count: usize },
}

/// Computes the plan of `generation`. `ids` changes only on success.
pub fn compile(
    config: &Config,
    environment: &Environment,
    ids: &mut Ids,
    generation: u32,
) -> Result<Plan, PlanError> {
    let mut next = ids.clone();
    next.widen();
    let plan = compile_with(config, environment, &mut next, generation)?;
    *ids = next;
    Ok(plan)
}

fn compile_with(
    config: &Config,
    environment: &Environment,
    ids: &mut Ids,
    generation: u32,
) -> Result<Plan, PlanError> {
    // Interfaces that do not exist are what a reader wants to hear of first.
    let mut wired = config.interfaces.iter().filter(|own| !own.mobile);
    wired.try_for_each(|own| units::netdev(environment, &own.name).map(drop))?;
    let managed = units::managed(config);
    let unit_names: Vec<String> = managed.iter().map(|m| unit_name(m.interface, m.unit)).collect();
    let null_names = units::in_null_zone(config).into_iter().map(|interface| interface.name.clone());
    let counted: Vec<String> = unit_names.iter().cloned().chain(null_names).collect();
    let numbers = Numbers::assign(config, &counted, ids, generation)?;
    devices::refuse_owned(config, environment)?;
    let hooks = hooks::hooks(config, environment)?;
    let indexed: Vec<(&units::Managed, u32)> =
        managed.iter().zip(&unit_names).map(|(unit, name)| (unit, numbers.units[name])).collect();
    let mut terms = terms::Terms::default();
    let gtpu = gtpu::Interfaces::new(config, &managed);
    let (mut entries, mut infos) = (vec![], vec![]);
    for (unit, index) in &indexed {
        let hook = hooks[&unit.interface.name];
        let (zone, xdp) = (numbers.zones[&unit.zone.name], hook != IngressHook::Tc);
        let mtu = units::mtu(config, environment, unit.interface, unit.unit)? as u16;
        let info = unit_info(unit, *index, hook, mtu);
        let instance = instances::number_of(config, numbers.instances(), &info.name);
        let numbers = units::Numbers {
            index: *index as u16,
            zone: zone as u16,
            mtu,
            gtpu: gtpu.number(&info.name),
            instance,
        };
        entries.extend(units::entries(unit, environment, numbers, xdp, &mut terms)?);
        infos.push(info);
    }
    let null_zone = null_zone(config, environment, &numbers, &hooks)?;
    for null in &null_zone {
        entries.push(units::null_entry(units::netdev(environment, &null.device)?, null.index));
    }
    let mut kernel = kernel::wants(config, environment, numbers.instances())?;
    entries.extend(instances::leaks(environment, &kernel.instances));
    hooks::tell_reach(environment, config.gtp_u.spread.is_some(), &hooks, &mut entries);
    let mut warnings = warnings(config, environment, &hooks, &null_zone)?;
    warnings.extend(gtpu::warnings(config, environment, &infos)?);
    warnings.extend(frr::warnings(config));
    warnings.extend(lan_services::warnings(config, &infos));
    let on_xdp = hooks.iter().filter(|(_, hook)| **hook != IngressHook::Tc);
    let on_xdp = on_xdp.filter(|(name, _)| !environment.is_absent(name));
    kernel.tags_in_frames = on_xdp.map(|(name, _)| name.clone()).collect();
    let mut proxies = nat::proxies(config, &managed);
    proxies.retain(|(device, _)| !environment.is_absent(device));
    kernel::add_proxies(&mut kernel, &proxies);
    let services = gate::wanted(config, &numbers.services);
    let rules = policies::compile(config, &numbers.zones, &numbers.policies, &mut terms, services)?;
    let nat = nat::compile(config, &indexed, &numbers.nat, rules.contexts.len() as u32 + 1)?;
    let alone = gate::alone(config, &indexed, &numbers.services, &numbers.zones)?;
    let lists = [rules.contexts.as_slice(), nat.plan.contexts.as_slice()].concat();
    let classifier = classifier::compile(&lists)?;
    let (fan_out, fan_out_infos) =
        fan_out::compile(config, &infos, (&numbers.listeners, &numbers.receivers), &ids.fan_out_receivers)?;
    let always_on =
        nat_stages(nat::is_used(config), &nat.tables) | gate::stage_mask(config) | gtpu::stage_mask(config);
    let (variants, mut attachments) =
        attachments(config, &managed, &infos, &fan_out_infos, environment, always_on)?;
    attachments.extend(null_zone.iter().map(|null| Attachment {
        device: null.device.clone(),
        ifindex: null.ifindex,
        ingress: Some(null.hook),
        variant: 0,
    }));
    attachments.retain(|attachment| !environment.is_absent(&attachment.device));
    let units = units::UnitTable::new(&entries)?;
    let (screen_limits, white_terms) = screens::limits(config, &numbers.zones)?;
    let tables = Tables {
        units: units.slots,
        unit_multiplier: units.multiplier,
        unit_shift: units.shift,
        tcp_mss: config.flow.tcp_mss.unwrap_or(0),
        lowest_ipv6_mtu: config.nat.lowest_ipv6_mtu.unwrap_or(abi::NAT64_IPV6_MTU_MIN as u16),
        zone_pairs: rules.zone_pairs,
        rules: rules.rules,
        contexts: classifier.contexts,
        classes: classifier.classes,
        rows: classifier.rows,
        service_terms: terms.entries,
        screen_limits,
        white_terms,
        zone_limits: screens::zone_limits(config, &numbers.zones),
        nat: nat.tables,
        flow: flow_rules(&config.flow),
        fan_out,
        gate: GateRules { context: rules.gate.into(), zones: gate::zone_bits(config, &numbers.zones) },
        gtpu_interfaces: gtpu.entries,
        routing_instances: instances::entries(environment, &kernel.instances),
        gtpu_sessions: config.gtp_u.room(),
        gtpu_flows: config.gtp_u.rules.iter().any(|rules| !rules.flows.is_empty()),
        spread: gtpu::spread(config),
    };
    let gtpu = gtpu::plan(config, environment);
    let gtpu_sessions = config.gtp_u.sessions.iter();
    let gtpu_sessions = gtpu_sessions
        .filter_map(|session| Some((session.name.clone(), gtpu.session(&config.gtp_u, session)?)))
        .collect();
    Ok(Plan {
        generation,
        tables,
        variants,
        attachments,
        contexts: rules.contexts,
        kernel,
        units: infos,
        null_zone,
        warnings,
        environment: environment.clone(),
        fan_out: fan_out_infos,
        zones: numbers.zones.into_iter().map(|(name, id)| (id, name)).collect(),
        policies: policy_infos(config, &numbers.policies),
        gate: gate::plan(config, &numbers.services, alone),
        nat: nat.plan,
        gtpu,
        gtpu_sessions,
        frr: frr::text(config),
    })
}

fn warnings(
    config: &Config,
    environment: &Environment,
    hooks: &BTreeMap<String, IngressHook>,
    null_zone: &[NullDevice],
) -> Result<Vec<Warning>, PlanError> {
    let mut warnings: Vec<Warning> = devices::passed_by_ipsec(environment);
    for null in null_zone {
        let (device, cause) = (null.device.clone(), null.cause);
        let text = format!(
            "interface {device} is in the null zone, which passes nothing, also not to this host: {cause}"
        );
        warnings.push(Warning { device, text });
    }
    warnings.extend(devices::absent(config, environment));
    for interface in config.interfaces.iter().filter(|interface| !interface.mobile) {
        let hook =
            hooks.get(&interface.name).filter(|_| !null_zone.iter().any(|n| n.device == interface.name));
        if let Some(hook) = hook {
            warnings.extend(devices::sender_warnings(interface, environment, *hook)?);
            warnings.extend(devices::refused_xdp(interface, environment)?);
            warnings.extend(hooks::refused_xdp_for_tunnels(config, environment, interface)?);
            warnings.extend(gtpu::spread_warning(config, interface, *hook));
        }
    }
    Ok(warnings)
}

fn null_zone(
    config: &Config,
    environment: &Environment,
    numbers: &Numbers,
    hooks: &BTreeMap<String, IngressHook>,
) -> Result<Vec<NullDevice>, PlanError> {
    let device = |interface: &sluice_language::config::Interface| {
        let netdev = units::netdev(environment, &interface.name)?;
        Ok(NullDevice {
            device: interface.name.clone(),
            ifindex: netdev.ifindex,
            index: numbers.units[&interface.name],
            hook: hooks[&interface.name],
            mtu: interface.mtu.map_or(netdev.mtu, u32::from).min(u16::MAX.into()) as u16,
            cause: units::null_cause(config, interface),
        })
    };
    units::in_null_zone(config).into_iter().map(device).collect()
}

fn flow_rules(flow: &sluice_language::config::FlowOptions) -> FlowRules {
    let default = FlowRules::default();
    FlowRules {
        sequence_check: !flow.no_sequence_check,
        reverse_across_zones: flow.reverse_across_zones,
        unanswered_percent: flow.max_unanswered.unwrap_or(default.unanswered_percent),
    }
}

fn unit_info(managed: &units::Managed, index: u32, hook: IngressHook, mtu: u16) -> UnitInfo {
    let (interface, unit) = (managed.interface, managed.unit);
    UnitInfo {
        index,
        name: unit_name(interface, unit),
        zone: managed.zone.name.clone(),
        physical: units::physical(interface, unit),
        device: device_of(interface, unit),
        vlan: unit.vlan,
        mtu,
        hook,
        addresses: unit.addresses().copied().collect(),
        description: unit.description.clone().or_else(|| interface.description.clone()),
    }
}

/// Statements of one zone pair may stand apart; they are tried together.
fn policy_infos(config: &Config, ids: &BTreeMap<String, u32>) -> BTreeMap<u32, PolicyInfo> {
    let mut first: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for (number, set) in config.policies.iter().enumerate() {
        first.entry((&set.from_zone, &set.to_zone)).or_insert(number);
    }
    let mut sets: Vec<_> = config.policies.iter().collect();
    sets.sort_by_key(|set| first[&(set.from_zone.as_str(), set.to_zone.as_str())]);
    let of_pairs = sets.into_iter().flat_map(|set| {
        let context = (set.from_zone.as_str(), set.to_zone.as_str());
        set.policies.iter().map(move |policy| (Some(context), policy))
    });
    let global = config.global_policies.iter().map(|policy| (None, policy));
    of_pairs
        .chain(global)
        .enumerate()
        .map(|(order, (context, policy))| {
            let id = ids[&policy_key(context, &policy.name)];
            (id, policy_info(policy, context, order))
        })
        .collect()
}

fn policy_info(
    policy: &sluice_language::config::Policy,
    context: Option<(&str, &str)>,
    order: usize,
) -> PolicyInfo {
    PolicyInfo {
        name: policy.name.clone(),
        context: context.map(|(from, to)| (from.to_owned(), to.to_owned())),
        action: policy.action,
        counts: policy.count,
        active: policy.active,
        order,
    }
}

/// A session may be re-evaluated from either of its ends, so every variant has these stages or none has.
fn nat_stages(used: bool, tables: &abi::tables::NatTables) -> u32 {
    let any = if used { Stage::NatDestination.bit() | Stage::NatSource.bit() } else { 0 };
    any | if tables.prefixes.is_empty() { 0 } else { Stage::Nat64.bit() }
}

/// Variants are the distinct stage masks of the devices; a device runs every stage that one of its units needs.
fn attachments(
    config: &Config,
    managed: &[units::Managed],
    infos: &[UnitInfo],
    fan_out: &[fan_out::FanOutInfo],
    environment: &Environment,
    chosen: u32,
) -> Result<(Vec<Variant>, Vec<Attachment>), PlanError> {
    let always =
        Stage::ALL.iter().filter(|stage| !stage.is_asked()).fold(0, |mask, stage| mask | stage.bit());
    let plain = always | chosen;
    let wanted = |unit: &units::Managed, info: &UnitInfo| {
        let listens = fan_out.iter().any(|listener| listener.unit == info.name);
        let listens = if listens { Stage::Fanout.bit() } else { 0 };
        plain | listens | unit.screen.map_or(0, screens::stage_mask)
    };
    let mobile = managed.iter().zip(infos).filter(|(unit, _)| unit.interface.mobile);
    let out_of_tunnels = mobile.fold(0, |mask, (unit, info)| mask | wanted(unit, info));
    let mut masks: BTreeMap<&str, u32> = BTreeMap::new();
    for (unit, info) in managed.iter().zip(infos) {
        // what was in a tunnel goes on in the programs of the device that it came by
        let inside = if gtpu::ends_tunnels(config, &info.name) { out_of_tunnels } else { 0 };
        *masks.entry(info.physical.as_str()).or_default() |= wanted(unit, info) | inside;
    }
    // The plain mask always is variant 0: the egress program belongs to it, and numbers keep their meaning when
    // screens come and go.
    let others = masks.values().copied().filter(|mask| *mask != plain).collect();
    let mut distinct = vec![plain];
    distinct.extend(merge_masks(others, abi::MAX_VARIANTS - 1));
    let mut attachments: Vec<Attachment> = vec![];
    for (unit, info) in managed.iter().zip(infos) {
        let mask = masks[info.physical.as_str()];
        let variant = smallest_superset(&distinct, mask);
        let mut add = |device: &str, ingress: Option<IngressHook>| -> Result<(), PlanError> {
            if !attachments.iter().any(|a| a.device == device) {
                let ifindex = units::netdev(environment, device)?.ifindex;
                attachments.push(Attachment { device: device.to_owned(), ifindex, ingress, variant });
            }
            Ok(())
        };
        if unit.interface.mobile {
            add(&info.device, None)?;
            // what the host sends to subscribers comes out there
            add(&units::far_end(unit.interface, &info.device), Some(info.hook))?;
            continue;
        }
        add(&info.physical, Some(info.hook))?;
        if info.vlan.is_some() {
            add(&info.device, None)?;
        }
    }
    let variants = distinct.into_iter().map(|stage_mask| Variant { stage_mask }).collect();
    Ok((variants, attachments))
}

/// A stage that no unit of a device asks for costs time and does nothing, so when there are too many sets of stages those
/// that differ least become one.
fn merge_masks(mut masks: BTreeSet<u32>, most: usize) -> BTreeSet<u32> {
    while masks.len() > most {
        let pairs = masks.iter().flat_map(|a| masks.range(a + 1..).map(move |b| (*a, *b)));
        let Some((a, b)) = pairs.min_by_key(|(a, b)| (a ^ b).count_ones()) else { break };
        masks.remove(&a);
        masks.remove(&b);
        masks.insert(a | b);
    }
    masks
}

fn smallest_superset(masks: &[u32], wanted: u32) -> u32 {
    let fitting = masks.iter().enumerate().filter(|(_, mask)| *mask & wanted == wanted);
    fitting.min_by_key(|(_, mask)| mask.count_ones()).map_or(0, |(index, _)| index as u32)
}

#[cfg(test)]
mod tests;
