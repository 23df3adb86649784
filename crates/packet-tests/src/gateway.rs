//! A gateway under test: private namespaces, veth devices, addresses, routes, neighbours, and the real programs.

use std::collections::BTreeMap;
use std::mem::offset_of;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use libbpf_rs::{MapCore, MapFlags, MapHandle, Object, ObjectBuilder, Xdp, XdpFlags};
use sluice_abi::{CookieTimes, RATE_BUCKETS, RateBucket, ScanCell};
use sluice_dataplane::{
    Dataplane, Family, Generation, GrantKey, GrantSpec, LocalKind, ObjectKind, Pick, Sizes, Variant,
};
use sluice_language::config::{Config, HookMode, Vlan};
use sluice_plan::{Environment, Ids, InstanceWant, NetDev, Plan, RouteVia, UnitInfo};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::case::GateStep;
use crate::netns::{Namespace, ifindex, ip, ip6, quiet_gateway, sysctl};
use crate::world::World;

const PINS: &str = "/sys/fs/bpf/sluice-packet-tests";
static HARNESS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/arrive.bpf.o"));
/// How much longer a second lasts where zones count packets of one.
const STRETCH: u32 = 100;
/// Value of an address of this host in the data plane's table, and of a subnet's broadcast address.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    /// tc ingress on every device.
    Tc,
    /// Native XDP on every device.
    Xdp,
    /// Native XDP, tc and generic XDP in turn, beginning with the given one.
    Mixed(usize),
}

impl Hook {
    /// Those that every case is run on.
    pub const BOTH: [Hook; 2] = [Hook::Tc, Hook::Xdp];

    /// As failures name it.
    pub fn name(self) -> &'static str {
        match self {
            Hook::Tc => "tc",
            Hook::Xdp => "xdp",
            Hook::Mixed(0) => "mixture xdp, tc, generic",
            Hook::Mixed(1) => "mixture tc, generic, xdp",
            Hook::Mixed(_) => "mixture generic, xdp, tc",
        }
    }

    /// Object whose programs a test run enters.
    pub fn object(self) -> ObjectKind {
        match self {
            Hook::Tc => ObjectKind::Tc,
            Hook::Xdp | Hook::Mixed(_) => ObjectKind::Xdp,
        }
    }

    fn mode(self, interface: usize) -> HookMode {
        match self {
            Hook::Tc => HookMode::Tc,
            Hook::Xdp => HookMode::Xdp,
            Hook::Mixed(first) => [HookMode::Xdp, HookMode::Tc, HookMode::Generic][(first + interface) % 3],
        }
    }
}

/// The calling thread lives in `inside` from when this is made.
pub struct Gateway {
    /// Where its programs run.
    pub hook: Hook,
    /// What is around it.
    pub world: World,
    /// Namespace with its devices.
    pub inside: Namespace,
    /// Where the far ends of the veth pairs are.
    pub outside: Namespace,
    /// Of the configuration in force.
    pub plan: Plan,
    /// With programs attached to the devices.
    pub dataplane: Dataplane,
    ids: Ids,
    generation: Generation,
    harness: Object,
    roots: BTreeMap<u32, OwnedFd>,
    /// Of devices before which the gate stands alone.
    gates: BTreeMap<String, OwnedFd>,
    /// The program that `arrive` calls.
    aimed: Option<RawFd>,
    /// Zone whose bucket of replies is emptied just before the next packet.
    pub drain_next: Option<String>,
    /// Frames that were forwarded by prog-run, as they came and as they left.
    pub forwarded: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Counters for as many units as a test's configurations have, where it does not ask for more: all of them are read
/// after each packet.
fn counting_few(sizes: Sizes, plan: &Plan) -> Sizes {
    let most = Sizes::default().units;
    let few = (2 * plan.units.len() as u32 + 8).min(most);
    if sizes.units == most { Sizes { units: few, ..sizes } } else { sizes }
}

/// Name of a device's far end.
pub fn far_end(device: &str) -> String {
    format!("{device}h")
}

impl Gateway {
    /// Of a world of tests/packet with its own configuration, for prog-run.
    pub fn of(world: &str, sizes: Sizes, hook: Hook) -> Result<Gateway> {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/packet");
        let world = World::read(&directory.join(world))?;
        let config = std::fs::read_to_string(&world.config)?;
        let gateway = Gateway::new(world, &config, sizes, hook)?;
        gateway.idle_near_ends()?;
        Ok(gateway)
    }

    /// Makes devices, addresses and routes of a world, and commits `config`.
    pub fn new(world: World, config: &str, sizes: Sizes, hook: Hook) -> Result<Gateway> {
        let config = compile(config, hook)?;
        let (inside, outside) = (Namespace::new()?, Namespace::new()?);
        outside.enter(|| sysctl("net/ipv6/conf/default/disable_ipv6", "1"))??;
        inside.enter_for_good()?;
        make_devices(&world, &config, &outside)?;
        let environment = environment(&world, &config)?;
        let mut ids = Ids::default();
        let plan = sluice_plan::compile(&config, &environment, &mut ids, 1)?;
        apply_kernel(&world, &plan)?;
        let mut dataplane = Dataplane::open(&fresh_pin()?, counting_few(sizes, &plan))?;
        if counts(&plan) {
            dataplane.pretend_hz(dataplane.hz() * STRETCH);
        }
        let generation = load(&dataplane, &plan)?;
        let harness = ObjectBuilder::default().open_memory(HARNESS)?.load().context("loading the harness")?;
        let gateway = Gateway {
            hook,
            world,
            inside,
            outside,
            plan,
            dataplane,
            ids,
            generation,
            harness,
            roots: BTreeMap::new(),
            gates: BTreeMap::new(),
            aimed: None,
            drain_next: None,
            forwarded: Vec::new(),
        };
        gateway.set_local_addresses(&config)?;
        gateway.settle_grants()?;
        // a tagged unit's device takes what XDP redirects to its other end only when it polls
        let tagged =
            tagged_devices(&config).into_iter().filter(|(_, device)| !gateway.world.imagines(device));
        tagged.into_iter().try_for_each(|(_, device)| gateway.idle(&device))?;
        // and so do both ends of a mobile unit's pair
        let mut mobile = mobile_devices(&config).into_iter().flat_map(|(device, far)| [device, far]);
        mobile.try_for_each(|device| gateway.idle(&device))?;
        gateway.idle_far_ends()?;
        Ok(gateway)
    }

    /// Puts another configuration in force, as a commit does. Devices, addresses and routes stay.
    pub fn commit(&mut self, config: &str) -> Result<()> {
        let config = compile(config, self.hook)?;
        let environment = environment(&self.world, &config)?;
        let number = self.plan.generation + 1;
        let plan = sluice_plan::compile(&config, &environment, &mut self.ids, number)?;
        let links = plan.kernel.links.iter();
        let mtus = links.filter_map(|link| Some(format!("link set {} mtu {}", link.device, link.mtu?)));
        ip(&mtus.collect::<Vec<_>>())?;
        self.dataplane.retire_idle()?;
        self.generation = load(&self.dataplane, &plan)?;
        self.plan = plan;
        self.roots.clear();
        self.gates.clear();
        self.aimed = None;
        self.settle_grants()
    }

    /// Ends every session and binding, as `clear sessions` and `clear nat persistent-nat-table` do.
    pub fn clear_sessions(&self) -> Result<()> {
        let ids: Vec<_> = self.dataplane.sessions().map(|session| session.id).collect();
        self.dataplane.delete_sessions(&ids)?;
        self.dataplane.end_bindings(&self.dataplane.bindings()?)?;
        Ok(())
    }

    /// Time passes: every session had its last packets so much earlier, and every binding its last session.
    pub fn let_pass(&self, seconds: u64) -> Result<()> {
        let jiffies = (seconds * u64::from(self.dataplane.hz())) as u32;
        self.bindings_age(jiffies)?;
        let records = [
            (Family::V4, "lines4", offset_of!(sluice_abi::FlowLine4, state)),
            (Family::V6, "lines6", offset_of!(sluice_abi::FlowLine6, state)),
        ];
        for (family, name, state) in records {
            let map = MapHandle::from_pinned_path(self.dataplane.pin().join(name))?;
            let at = state + offset_of!(sluice_abi::FlowState, last_seen);
            let of_family = self.dataplane.sessions().filter(|session| session.id.family == family);
            for line in of_family.flat_map(|session| [2 * session.id.number, 2 * session.id.number + 1]) {
                let mut bytes = map.lookup(&line.to_ne_bytes(), MapFlags::ANY)?.context("a line")?;
                let seen = u32::from_ne_bytes(bytes[at..at + 4].try_into()?);
                bytes[at..at + 4].copy_from_slice(&seen.wrapping_sub(jiffies).to_ne_bytes());
                map.update(&line.to_ne_bytes(), &bytes, MapFlags::ANY)?;
            }
        }
        Ok(())
    }

    fn bindings_age(&self, jiffies: u32) -> Result<()> {
        let map = MapHandle::from_pinned_path(self.dataplane.pin().join("nat_bindings"))?;
        let record = |number: u32| map.lookup(&number.to_ne_bytes(), MapFlags::ANY)?.context("a binding");
        let word = |bytes: &[u8], at: usize| u32::from_ne_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        let highest = word(&record(0)?, offset_of!(sluice_abi::NatBinding, counted));
        let at = offset_of!(sluice_abi::NatBinding, last_used);
        for number in 1..=highest {
            let mut bytes = record(number)?;
            let used = word(&bytes, at).wrapping_sub(jiffies);
            bytes[at..at + 4].copy_from_slice(&used.to_ne_bytes());
            map.update(&number.to_ne_bytes(), &bytes, MapFlags::ANY)?;
        }
        Ok(())
    }

    /// Device and tags of a unit, as frames have them outside.
    pub fn port(&self, unit: &str) -> Result<(String, Option<Vlan>)> {
        let info = self.plan.units.iter().find(|info| info.name == unit);
        let info = info.ok_or_else(|| anyhow!("the configuration has no unit {unit} in a zone"))?;
        Ok((info.physical.clone(), info.vlan))
    }

    /// 0 for a unit that is in no zone.
    pub fn unit_index(&self, unit: &str) -> usize {
        self.plan.units.iter().find(|info| info.name == unit).map_or(0, |info| info.index as usize)
    }

    /// Id of a unit's zone.
    pub fn zone_of(&self, unit: &str) -> Result<u32> {
        let info = self.plan.units.iter().find(|info| info.name == unit);
        let zone = info.and_then(|info| self.plan.zones.iter().find(|(_, name)| **name == info.zone));
        zone.map(|(id, _)| *id).ok_or_else(|| anyhow!("no unit {unit} in a zone"))
    }

    /// The root program that frames of a device meet.
    pub fn root(&mut self, device: &str) -> Result<&OwnedFd> {
        let attachment = self.plan.attachments.iter().find(|a| a.device == device);
        let variant = attachment.map_or(0, |a| a.variant);
        if let Some(alone) = self.plan.gate.alone(device) {
            if !self.gates.contains_key(device) {
                let gate = self.dataplane.gate_only(self.hook.object(), variant, alone)?;
                self.gates.insert(device.to_owned(), gate.program().try_clone_to_owned()?);
            }
            return Ok(&self.gates[device]);
        }
        if let std::collections::btree_map::Entry::Vacant(slot) = self.roots.entry(variant) {
            slot.insert(self.dataplane.root_program(self.hook.object(), variant)?);
        }
        Ok(&self.roots[&variant])
    }

    /// The program that takes a frame's tag out as the kernel does, aimed at the tc root of a device.
    pub fn arrive(&mut self, device: &str) -> Result<OwnedFd> {
        let target = self.root(device)?.as_raw_fd();
        if self.aimed != Some(target) {
            let map = self.harness.maps().find(|map| map.name() == "target").context("harness map")?;
            MapHandle::try_from(&map)?.update(&0u32.to_ne_bytes(), &target.to_ne_bytes(), MapFlags::ANY)?;
            self.aimed = Some(target);
        }
        let program = self.harness.progs().find(|program| program.name() == "arrive").context("program")?;
        Ok(program.as_fd().try_clone_to_owned()?)
    }

    /// Empties a zone's bucket of replies. It was last filled a second from now, as by a CPU whose clock is ahead: until
    /// then it gets nothing.
    pub fn drain(&self, zone: &str) -> Result<()> {
        self.leave_replies(zone, 0, 0)
    }

    /// The same of any of its buckets (`REPLY_BUCKET_*`), but for so many replies.
    pub fn leave_replies(&self, zone: &str, bucket: u32, replies: u32) -> Result<()> {
        let id = self.plan.zones.iter().find(|(_, name)| *name == zone).map(|(id, _)| *id);
        let id = id.ok_or_else(|| anyhow!("no zone {zone}"))?;
        let hz = self.dataplane.hz();
        self.set_tokens(id + bucket, replies * hz, hz)
    }

    /// Fills every zone's bucket, so that a case does not feel the one before.
    pub fn refill(&self) -> Result<()> {
        let full = sluice_abi::REPLY_RATE_PER_ZONE * self.dataplane.hz();
        const BUCKETS: [u32; 4] = [
            0,
            sluice_abi::REPLY_BUCKET_TOO_BIG,
            sluice_abi::REPLY_BUCKET_ECHO,
            sluice_abi::REPLY_BUCKET_ERROR,
        ];
        self.plan
            .zones
            .keys()
            .flat_map(|zone| BUCKETS.map(|first| zone + first))
            .try_for_each(|bucket| self.set_tokens(bucket, full, 0))
    }

    /// Lets time pass. Where zones count packets of a second, seconds are long, and what was counted grows older instead.
    pub fn wait(&self, time: Duration) -> Result<()> {
        if !self.counts() {
            std::thread::sleep(time);
            return Ok(());
        }
        let jiffies = (time.as_secs_f64() * f64::from(self.dataplane.hz())) as u32;
        let us = time.as_micros() as u64 * u64::from(STRETCH);
        aged::<RateBucket>(&self.dataplane, "screen_rates", |number, bucket| {
            for cell in bucket.cells.iter_mut().filter(|cell| cell.tag != 0) {
                // a second begins, or a source is known until: the upper half, or the lower
                let shift = if number < RATE_BUCKETS { 32 } else { 0 };
                let at = ((cell.word >> shift) as u32).wrapping_sub(jiffies);
                cell.word = cell.word & !(u64::from(u32::MAX) << shift) | u64::from(at) << shift;
            }
        })?;
        aged::<ScanCell>(&self.dataplane, "screen_scans", |_, cell| {
            let (old, new) = (cell.start_us, cell.start_us.wrapping_sub(us));
            for seen in cell.seen.iter_mut().filter(|seen| (**seen >> 32) as u32 == old as u32) {
                *seen = (new & u64::from(u32::MAX)) << 32 | *seen & u64::from(u32::MAX);
            }
            cell.start_us = new;
        })?;
        aged::<CookieTimes>(&self.dataplane, "cookie_times", |_, times| {
            if times.sent != 0 {
                times.sent = times.sent.wrapping_sub(jiffies);
            }
        })
    }

    /// Whether a zone has screens that count.
    pub fn counts(&self) -> bool {
        counts(&self.plan)
    }

    /// Screens that count begin anew.
    pub fn clear_counts(&self) -> Result<()> {
        for name in ["screen_rates", "screen_scans", "cookie_times"] {
            if !self.counts() {
                break;
            }
            let map = MapHandle::from_pinned_path(self.dataplane.pin().join(name))?;
            let empty = vec![0; map.value_size() as usize];
            for entry in 0..map.max_entries() {
                map.update(&entry.to_ne_bytes(), &empty, MapFlags::ANY)?;
            }
        }
        Ok(())
    }

    /// Only the configuration's grants, as if it had just been committed for the first time.
    pub fn begin_grants(&self) -> Result<()> {
        if self.plan.gate.services.is_empty() && self.dataplane.grants().live() == 0 {
            return Ok(());
        }
        let now = self.dataplane.now_jiffies()?;
        self.dataplane.grants().revoke(&Pick::All, now)?;
        self.dataplane.grants().reconcile(&[], now)??;
        self.settle_grants()
    }

    /// What the daemon does after a commit.
    fn settle_grants(&self) -> Result<()> {
        let now = self.dataplane.now_jiffies()?;
        let known = self.plan.gate.services.keys().map(|id| *id as u16).collect();
        self.dataplane.grants().revoke(&Pick::ServicesBut(known), now)?;
        let wanted = self.plan.gate.grants.iter().map(|want| GrantSpec {
            key: GrantKey { source: want.source.addr, length: want.source.len, service: want.service as u16 },
            user: want.user.clone(),
            idle_s: want.idle_s,
            absolute_s: want.absolute_s,
        });
        self.dataplane.grants().reconcile(&wanted.collect::<Vec<_>>(), now)??;
        Ok(())
    }

    /// As `sluice gate` would do it.
    pub fn change_grants(&self, step: &GateStep) -> Result<()> {
        let now = self.dataplane.now_jiffies()?;
        let service = |name: &str| -> Result<u16> {
            Ok(self.plan.gate.service(name).with_context(|| format!("no service {name}"))? as u16)
        };
        let prefix = |text: &str| -> Result<(IpAddr, u8)> {
            let (address, length) = text.split_once('/').unwrap_or((text, ""));
            let address: IpAddr = address.parse()?;
            let whole = if address.is_ipv4() { 32 } else { 128 };
            Ok((address, if length.is_empty() { whole } else { length.parse()? }))
        };
        match step {
            GateStep::Grant { user, source, service: name, idle_s, absolute_s } => {
                let (source, length) = prefix(source)?;
                let key = GrantKey { source, length, service: service(name)? };
                let spec = GrantSpec { key, user: user.clone(), idle_s: *idle_s, absolute_s: *absolute_s };
                self.dataplane.grants().give(&[spec], now)??;
            }
            GateStep::Revoke(what, which) => {
                let pick = match what.as_str() {
                    "all" => Pick::All,
                    "user" => Pick::User(which.clone()),
                    "service" => Pick::Service(service(which)?),
                    "source" => {
                        let (address, length) = prefix(which)?;
                        Pick::Source(address, length)
                    }
                    _ => bail!("revoke all, user, service or source; not `{what}`"),
                };
                let ended = self.dataplane.grants().revoke(&pick, now)?;
                ensure!(!ended.is_empty(), "nothing was revoked");
                // packets of live sessions learn of it within the period in which they ask
                std::thread::sleep(Duration::from_millis(40));
            }
        }
        Ok(())
    }

    /// As if it was last filled so many jiffies from now.
    fn set_tokens(&self, bucket: u32, tokens: u32, ahead: u32) -> Result<()> {
        let map = MapHandle::from_pinned_path(self.dataplane.pin().join("reply_tokens"))?;
        let tick = (self.dataplane.now_jiffies()? as u32).wrapping_add(ahead);
        let filled = [tokens, tick, 0, 0].map(u32::to_ne_bytes).concat();
        Ok(map.update(&bucket.to_ne_bytes(), &filled, MapFlags::ANY)?)
    }

    fn set_local_addresses(&self, config: &Config) -> Result<()> {
        let units = config.interfaces.iter().flat_map(|interface| {
            interface.units.iter().map(move |unit| (sluice_plan::device_of(interface, unit), unit))
        });
        let prefixes: Vec<_> = units
            .flat_map(|(device, unit)| {
                let number = self.plan.kernel.instance_of(&device).map_or(0, |own| own.number);
                unit.addresses().map(move |prefix| (number, *prefix))
            })
            .collect();
        // what is several things at once is most of all an address
        for (instance, prefix) in &prefixes {
            match (prefix.addr, prefix.len) {
                (IpAddr::V4(addr), 1..=30) => {
                    let broadcast = IpAddr::V4((u32::from(addr) | u32::MAX >> prefix.len).into());
                    let of = self.plan.units.iter().find(|info| info.addresses.contains(prefix));
                    let entry = |info: &UnitInfo| {
                        let units = &self.plan.tables.units;
                        units.iter().find(|(_, unit)| u32::from(unit.index) == info.index)
                    };
                    let ifindex = of.and_then(entry).map(|(_, unit)| unit.host_ifindex);
                    let kind = LocalKind::Broadcast { ifindex };
                    self.dataplane.add_local_address(*instance, broadcast, kind)?;
                }
                // the subnet-router anycast address (RFC 4291 section 2.6.1)
                (IpAddr::V6(addr), 1..=126) => {
                    let anycast = IpAddr::V6((u128::from(addr) & !(u128::MAX >> prefix.len)).into());
                    self.dataplane.add_local_address(*instance, anycast, LocalKind::Address)?;
                }
                _ => {}
            }
        }
        prefixes.iter().try_for_each(|(instance, prefix)| {
            Ok(self.dataplane.add_local_address(*instance, prefix.addr, LocalKind::Address)?)
        })
    }

    /// An XDP program on a veth lets the other end redirect into it.
    fn idle_far_ends(&self) -> Result<()> {
        let devices: Vec<String> = self.world.devices.iter().map(|device| far_end(&device.name)).collect();
        self.outside.enter(|| devices.iter().try_for_each(|device| self.idle(device)))?
    }

    /// For prog-run: its XDP context must name a device whose queues know XDP.
    pub fn idle_near_ends(&self) -> Result<()> {
        self.world.devices.iter().try_for_each(|device| self.idle(&device.name))
    }

    /// Puts the empty XDP program on a device of the calling thread's namespace.
    pub fn idle(&self, device: &str) -> Result<()> {
        let program = self.harness.progs().find(|program| program.name() == "idle").context("program")?;
        let index = ifindex(device)? as i32;
        Xdp::new(program.as_fd())
            .attach(index, XdpFlags::DRV_MODE)
            .with_context(|| format!("XDP on {device}"))
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if let Err(error) = sluice_dataplane::cleanup(self.dataplane.pin()) {
            eprintln!("removing {}: {error}", self.dataplane.pin().display());
        }
    }
}

/// Parses a configuration and puts every interface on one hook.
pub fn compile(text: &str, hook: Hook) -> Result<Config> {
    let tree = sluice_language::parse(text, "test.conf").map_err(|errors| anyhow!("{errors}"))?;
    let mut config = sluice_language::compile(&tree).map_err(|errors| anyhow!("{errors}"))?;
    for (number, interface) in config.interfaces.iter_mut().enumerate() {
        interface.mode = hook.mode(number);
    }
    Ok(config)
}

fn counts(plan: &Plan) -> bool {
    !plan.tables.screen_limits.is_empty()
}

/// Changes every entry of a pinned map.
fn aged<T: FromBytes + IntoBytes + Immutable>(
    dataplane: &Dataplane,
    name: &str,
    change: impl Fn(u32, &mut T),
) -> Result<()> {
    let map = MapHandle::from_pinned_path(dataplane.pin().join(name))?;
    for number in 0..map.max_entries() {
        let bytes = map.lookup(&number.to_ne_bytes(), MapFlags::ANY)?.context("an entry")?;
        let mut entry = T::read_from_bytes(&bytes).ok().with_context(|| format!("an entry of {name}"))?;
        change(number, &mut entry);
        if entry.as_bytes() != bytes {
            map.update(&number.to_ne_bytes(), entry.as_bytes(), MapFlags::ANY)?;
        }
    }
    Ok(())
}

fn load(dataplane: &Dataplane, plan: &Plan) -> Result<Generation> {
    let variants: Vec<Variant> = plan.variants.iter().map(|v| Variant::new(v.stage_mask)).collect();
    let mut tables = plan.tables.clone();
    for limits in &mut tables.screen_limits {
        for us in [
            &mut limits.ip_sweep_us,
            &mut limits.tcp_sweep_us,
            &mut limits.udp_sweep_us,
            &mut limits.port_scan_us,
            &mut limits.udp_port_scan_us,
        ] {
            *us *= STRETCH;
        }
    }
    let generation = dataplane.load(&tables, &variants, plan.generation)?;
    dataplane.switch(&generation);
    dataplane.grace()?;
    Ok(generation)
}

/// A directory of pins of our own; those of processes that are gone are removed first.
fn fresh_pin() -> Result<PathBuf> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    for entry in std::fs::read_dir(PINS).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name.split('-').next().unwrap_or_default().to_owned();
        if !Path::new("/proc").join(owner).exists() {
            sluice_dataplane::cleanup(&entry.path())?;
        }
    }
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    Ok(Path::new(PINS).join(format!("{}-{number}", std::process::id())))
}

fn tagged_devices(config: &Config) -> Vec<(String, String)> {
    let tagged = config.interfaces.iter().filter(|interface| interface.vlan_tagging);
    tagged
        .flat_map(|i| i.units.iter().map(|u| (i.name.clone(), format!("{}.{}", i.name, u.number))))
        .collect()
}

/// Names of the devices that stand for mobile units, and of their far ends.
fn mobile_devices(config: &Config) -> Vec<(String, String)> {
    let mobile = config.interfaces.iter().filter(|interface| interface.mobile);
    let units =
        mobile.flat_map(|own| own.units.iter().map(move |unit| (own, sluice_plan::device_of(own, unit))));
    units.map(|(own, device)| (device.clone(), sluice_plan::far_end(own, &device))).collect()
}

fn mobile_mac(number: usize) -> sluice_wire::Mac {
    sluice_wire::Mac([2, 0, 0, 0, 0x45, number as u8])
}

fn make_devices(world: &World, config: &Config, outside: &Namespace) -> Result<()> {
    quiet_gateway()?;
    let mut lines = vec!["link set lo up".to_owned()];
    for device in &world.devices {
        let (name, mac, mtu) = (&device.name, device.mac, device.mtu);
        let far = far_end(name);
        lines.push(format!(
            "link add {name} address {mac} mtu {mtu} type veth peer name {far} mtu {mtu} netns {}",
            outside.path()
        ));
    }
    for (parent, device) in tagged_devices(config).into_iter().filter(|(parent, _)| !world.imagines(parent)) {
        let mac =
            world.devices.iter().find(|d| d.name == parent).context("tagged device without parent")?.mac;
        lines.push(format!("link add {device} address {mac} type veth peer name {device}p"));
    }
    for (number, (device, far)) in mobile_devices(config).iter().enumerate() {
        let mac = mobile_mac(number);
        lines.push(format!("link add {device} address {mac} type veth peer name {far}"));
        lines.push(format!("link set {device} arp off"));
    }
    // in the place of a VRF device, which this kernel may not have: routes are asked by it
    let instances = config.routing_instances.iter();
    lines.extend(instances.map(|own| format!("link add {0} type veth peer name {0}p", own.name)));
    ip(&lines)?;
    for (_, far) in mobile_devices(config) {
        sysctl(&format!("net/ipv6/conf/{far}/disable_ipv6"), "1")?;
    }
    // devices that carry no addresses of their own keep quiet
    let tagged = tagged_devices(config).into_iter().filter(|(parent, _)| !world.imagines(parent));
    let peers = tagged.map(|(_, device)| format!("{device}p"));
    let plain = |name: &String| config.interfaces.iter().any(|i| i.name == *name && !i.vlan_tagging);
    let bare = world.devices.iter().map(|device| device.name.clone()).filter(|name| !plain(name));
    for device in peers.chain(bare) {
        sysctl(&format!("net/ipv6/conf/{device}/disable_ipv6"), "1")?;
    }
    let ups = world.devices.iter().map(|device| format!("link set {} up", far_end(&device.name)));
    let ups: Vec<String> = ups.collect();
    Ok(outside.enter(|| ip(&ups))??)
}

fn environment(world: &World, config: &Config) -> Result<Environment> {
    let mut environment = Environment::default();
    let mut add = |name: &str, mac: sluice_wire::Mac, mtu: u32| -> Result<()> {
        let netdev = NetDev {
            ifindex: ifindex(name)?,
            mac: mac.0,
            mtu,
            driver: "veth".to_owned(),
            mtu_range: Some((68, 65535)),
            ..Default::default()
        };
        environment.netdevs.insert(name.to_owned(), netdev);
        Ok(())
    };
    for device in &world.devices {
        add(&device.name, device.mac, device.mtu)?;
    }
    for (parent, device) in tagged_devices(config).into_iter().filter(|(parent, _)| !world.imagines(parent)) {
        let below =
            world.devices.iter().find(|d| d.name == parent).context("tagged device without parent")?;
        add(&device, below.mac, below.mtu)?;
        add(&format!("{device}p"), below.mac, below.mtu)?;
    }
    for (number, (device, far)) in mobile_devices(config).iter().enumerate() {
        add(device, mobile_mac(number), 1500)?;
        add(far, mobile_mac(number), 1500)?;
    }
    add("lo", sluice_wire::Mac([0; 6]), 65536)?;
    for instance in &config.routing_instances {
        add(&instance.name, sluice_wire::Mac([0; 6]), 1500)?;
    }
    imagine(world, config, &mut environment);
    Ok(environment)
}

/// Devices that are not there, with numbers that no device has.
fn imagine(world: &World, config: &Config, environment: &mut Environment) {
    let tagged = tagged_devices(config).into_iter().filter(|(parent, _)| world.imagines(parent));
    let names = tagged.flat_map(|(_, device)| [format!("{device}p"), device]);
    for (ifindex, name) in (1_000_000..).zip(world.imagined.iter().cloned().chain(names)) {
        let netdev = NetDev {
            ifindex,
            mac: [2, 0, 0, 0, 0xff, 0xff],
            mtu: 1500,
            driver: "veth".to_owned(),
            mtu_range: Some((68, 65535)),
            ..Default::default()
        };
        environment.netdevs.insert(name, netdev);
    }
}

/// What a VRF device is to the kernel's routes: whatever arrives on it or its ports is looked for in its table.
fn instance_rules(instance: &InstanceWant) -> Vec<String> {
    let devices = instance.ports.iter().chain([&instance.device]);
    devices.map(|port| format!("rule add pref 1000 iif {port} lookup {}", instance.table)).collect()
}

/// What the daemon would do for the plan, then what the world wants on top.
fn apply_kernel(world: &World, plan: &Plan) -> Result<()> {
    let mut lines = Vec::new();
    for pair in plan.kernel.vlan_pairs.iter().filter(|pair| !world.imagines(&pair.peer)) {
        lines.push(format!("link set {} up", pair.peer));
    }
    for link in plan.kernel.links.iter().filter(|link| !world.imagines(&link.device)) {
        let mtu = link.mtu.map(|mtu| format!(" mtu {mtu}")).unwrap_or_default();
        lines.push(format!("link set {}{mtu} {}", link.device, if link.up { "up" } else { "down" }));
    }
    for (device, prefix) in plan.kernel.addresses.iter().filter(|(device, _)| !world.imagines(device)) {
        let now = if prefix.addr.is_ipv6() { " nodad" } else { "" };
        let instance = plan.kernel.instance_of(device);
        let route = if instance.is_some() { " noprefixroute" } else { "" };
        lines.push(format!("addr add {}/{} dev {device}{now}{route}", prefix.addr, prefix.len));
        lines.extend(instance.map(|own| {
            let subnet = sluice_plan::network(*prefix);
            format!("route add {}/{} dev {device} table {}", subnet.addr, subnet.len, own.table)
        }));
    }
    lines.extend(plan.kernel.instances.iter().map(|own| format!("link set {} up", own.device)));
    let rules: Vec<String> = plan.kernel.instances.iter().flat_map(instance_rules).collect();
    if !rules.is_empty() {
        ip(&rules)?;
        ip6(&rules)?;
    }
    for host in &world.hosts {
        let info = plan.units.iter().find(|info| info.name == host.unit);
        let device = &info.with_context(|| format!("host {}: no unit {}", host.name, host.unit))?.device;
        let neighbour =
            |a: &IpAddr| format!("neigh replace {a} lladdr {} dev {device} nud permanent", host.mac);
        lines.extend(host.addresses.iter().map(neighbour));
    }
    for route in &plan.kernel.routes {
        let destination = format!("{}/{}", route.destination.addr, route.destination.len);
        let target = match &route.target {
            RouteVia::Gateways(gateways) => format!("{destination} via {}", gateways[0].addr),
            RouteVia::Device(device) => format!("{destination} dev {device}"),
            RouteVia::Discard => format!("blackhole {destination}"),
            RouteVia::Reject => format!("unreachable {destination}"),
            RouteVia::Instance(None) => format!("throw {destination}"),
            RouteVia::Instance(Some(device)) => format!("{destination} dev {device}"),
        };
        lines.push(format!("route add {target} metric {} table {}", route.preference, route.table));
    }
    lines.extend(world.commands.iter().cloned());
    ip(&lines)?;
    let there =
        plan.kernel.sysctls.iter().filter(|(path, _)| !path.split('/').any(|part| world.imagines(part)));
    Ok(there.into_iter().try_for_each(|(path, value)| sysctl(path, value))?)
}
