//! The gate alone with grants of single hosts, and a floor whose table has as many entries.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Context as _, Result, ensure};
use sluice_dataplane::abi::stages::Reason;
use sluice_dataplane::{GateAlone, GateEndpoint, GateOnly, GrantKey, GrantSpec, ObjectKind, Sizes};
use zerocopy::IntoBytes;

use crate::generator::harness::{Harness, Hook, Sample, Target};
use crate::generator::layouts::{RingEntry4, RingEntry6};
use crate::generator::packets::{Direction, Family, Protocol, sequence};
use crate::generator::site::Site;
use crate::method::affinity::{bench_cpu, pin};
use crate::testbed::gateway::{Action, Mode, Sluice, configuration};

const SERVICE: u16 = 1;
const SERVICE_NAME: &str = "database";
const PORT: u16 = 5432;
const CLIENT_PORT: u16 = 40_000;
const PLACE4: Ipv4Addr = Ipv4Addr::new(10, 128, 0, 1);
const PLACE6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x128, 0, 0, 0, 0, 0, 1);
const XDP_PASS: u32 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Traffic {
    /// Nobody has a grant.
    Drop,
    /// Everybody has one.
    Accept,
    /// Every other one.
    Mixed,
}

impl Traffic {
    pub const ALL: [Traffic; 3] = [Traffic::Drop, Traffic::Accept, Traffic::Mixed];

    pub fn name(self) -> &'static str {
        match self {
            Traffic::Drop => "drop",
            Traffic::Accept => "accept",
            Traffic::Mixed => "mixed",
        }
    }

    pub fn floor(self) -> &'static str {
        match self {
            Traffic::Drop => "parse + one HASH miss",
            Traffic::Accept => "parse + one HASH hit",
            Traffic::Mixed => "parse + one HASH lookup, half of them hits",
        }
    }

    fn is_granted(self, packet: usize) -> bool {
        match self {
            Traffic::Drop => false,
            Traffic::Accept => true,
            Traffic::Mixed => packet.is_multiple_of(2),
        }
    }
}

/// Both links demand grants for one service behind the gateway.
fn gated_configuration() -> String {
    configuration(Mode::Xdp, Action::Permit)
        + &format!(
            "services {{ gate {{ zone inside; service {SERVICE_NAME} {{ \
             destination-address [ {PLACE4} {PLACE6} ]; protocol udp; destination-port {PORT}; }} }} }}\n"
        )
}

/// Pinning and priorities must not outlast the work, nor must the namespace.
pub fn on_thread<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            pin(bench_cpu())?;
            work()
        });
        worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// The address of a host with a grant, or of one without.
fn client(family: Family, number: usize, granted: bool) -> IpAddr {
    let number = number as u32;
    match family {
        Family::V4 => Ipv4Addr::from(if granted { 0x0b00_0000 } else { 0x0c00_0000 } + number).into(),
        Family::V6 => {
            let net = if granted { 0xfd00_00aa } else { 0xfd00_00bb_u128 };
            Ipv6Addr::from(net << 96 | u128::from(number)).into()
        }
    }
}

pub fn specs(family: Family, grants: usize) -> Vec<GrantSpec> {
    let length = if family == Family::V4 { 32 } else { 128 };
    let spec = |number| GrantSpec {
        key: GrantKey { source: client(family, number, true), length, service: SERVICE },
        user: "bench".to_owned(),
        idle_s: Some(3600),
        absolute_s: Some(36_000),
    };
    (0..grants).map(spec).collect()
}

pub struct GateBed {
    pub sluice: Sluice,
    family: Family,
    harness: Harness,
    /// The floor once more, with a table of its own (A/A).
    again: Harness,
    gate: GateOnly,
    /// The gateway's own program: the gate among its stages.
    root: OwnedFd,
    ingress: u32,
    /// Namespaces and devices; last, so that it goes last.
    site: Site,
}

impl GateBed {
    /// As many grants, and room for as many packets.
    pub fn new(family: Family, grants: usize, packets: usize) -> Result<GateBed> {
        GateBed::with_room(family, grants, grants, packets)
    }

    /// The same with room for more grants.
    pub fn with_room(family: Family, grants: usize, room: usize, packets: usize) -> Result<GateBed> {
        let site = Site::create("gate")?;
        let ingress = site.lan.ifindex;
        let macs = (site.lan.mac, site.lan.host_mac);
        let keys_of_floor = grants.max(1) as u32;
        let room = (room as u32).max(5_000);
        let sizes = Sizes { sessions4: 1024, sessions6: 1024, grants: room, ..Sizes::default() };
        let (sluice, harness, again) = site.gateway.enter(|| -> Result<_> {
            let sluice = Sluice::start_with(&site, &gated_configuration(), sizes, false)?;
            // its table has just the room that the grants take
            let harness = || Harness::for_grants(Hook::Xdp, family, keys_of_floor, packets as u32, macs);
            Ok((sluice, harness()?, harness()?))
        })??;
        let endpoint = GateEndpoint {
            service: SERVICE,
            udp: true,
            ports: (PORT, PORT),
            v4: Some(PLACE4),
            v6: Some(PLACE6),
        };
        let lan = sluice.plan.units.iter().find(|unit| unit.physical == site.lan.device);
        let unit = lan.context("the plan has no such unit")?.index as u16;
        let zone =
            sluice.plan.zones.iter().find(|(_, name)| *name == "inside").map_or(0, |(id, _)| *id as u16);
        let root = sluice.root(Hook::Xdp)?;
        ensure!(sluice.plan.gate.service(SERVICE_NAME) == Some(SERVICE.into()), "the service has another id");
        let gate = sluice.dataplane.gate_only(
            ObjectKind::Xdp,
            0,
            &GateAlone { unit, zone, endpoints: vec![endpoint] },
        )?;
        let now = sluice.dataplane.now_jiffies()?;
        sluice.dataplane.grants().give(&specs(family, grants), now)??;
        let bed = GateBed { sluice, family, harness, again, gate, root, ingress, site };
        let keys: Vec<u8> = (0..grants).flat_map(|n| bed.floor_key(n)).collect();
        bed.harness.fill_grants(&keys)?;
        bed.again.fill_grants(&keys)?;
        Ok(bed)
    }

    /// What the floor makes of a granted client's packet.
    fn floor_key(&self, number: usize) -> Vec<u8> {
        let mut key = match client(self.family, number, true) {
            IpAddr::V4(client) => client.octets().to_vec(),
            IpAddr::V6(client) => client.octets().to_vec(),
        };
        key.extend_from_slice(&PORT.to_be_bytes());
        key.extend_from_slice(&[17, 0]);
        key
    }

    /// So many distinct packets in random order.
    pub fn set_traffic(&mut self, traffic: Traffic, packets: usize) -> Result<()> {
        let template = self.harness.template(Protocol::Udp, 0);
        let order = sequence(0, packets, Direction::Initiator, 0x9a7e ^ packets as u64);
        let source = |(index, (number, _)): (usize, &(usize, bool))| {
            client(self.family, *number, traffic.is_granted(index))
        };
        let sources = order.iter().enumerate().map(source);
        let (be_sport, be_dport) = (CLIENT_PORT.to_be(), PORT.to_be());
        if self.family == Family::V4 {
            let entry = |source: IpAddr| {
                let IpAddr::V4(source) = source else { unreachable!("of the bed's family") };
                template.entry4_between(source.octets(), PLACE4.octets(), CLIENT_PORT, PORT)
            };
            let entries: Vec<RingEntry4> = sources.map(entry).collect();
            self.again.set_entries4(template.clone(), &entries)?;
            return self.harness.set_entries4(template, &entries);
        }
        let entry = |source: IpAddr| {
            let IpAddr::V6(source) = source else { unreachable!("of the bed's family") };
            RingEntry6 {
                be_saddr: words(source),
                be_daddr: words(PLACE6),
                be_sport,
                be_dport,
                be_l4_check: 0,
                zero: 0,
            }
        };
        let entries: Vec<RingEntry6> = sources.map(entry).collect();
        self.again.set_entries6(template.clone(), &entries)?;
        self.harness.set_entries6(template, &entries)
    }

    pub fn distinct(&self) -> u32 {
        self.harness.distinct_packets()
    }

    pub fn run_own(&mut self, program: &str, repeat: u32) -> Result<Sample> {
        self.harness.set_target(Target::Own(program))?;
        self.harness.run(repeat, self.ingress)
    }

    /// The floor, and proof that it hit and missed as it must.
    pub fn run_floor(&mut self, traffic: Traffic, again: bool, repeat: u32) -> Result<f64> {
        let harness = if again { &mut self.again } else { &mut self.harness };
        harness.set_target(Target::Own(&harness.floor("grant")))?;
        let sample = harness.run(repeat, self.ingress)?;
        let share = match traffic {
            Traffic::Drop => 0.0,
            Traffic::Accept => 1.0,
            Traffic::Mixed => 0.5,
        };
        let hits = sample.hits as f64 / f64::from(repeat);
        ensure!((hits - share).abs() < 0.01, "hit rate of the floor is {hits}, not {share}");
        Ok(sample.ns)
    }

    /// The whole gateway refuses every packet, and says why.
    pub fn run_inside(&mut self, repeat: u32) -> Result<f64> {
        let before = self.verdicts()?;
        let (harness, root, ingress) = (&mut self.harness, self.root.as_fd(), self.ingress);
        // where its routes are
        let sample = self.site.gateway.enter(|| {
            harness.set_target(Target::Foreign(root))?;
            harness.run(repeat, ingress)
        })??;
        let after = self.verdicts()?;
        let counted = (after.0 - before.0, after.1 - before.1);
        ensure!(counted == (0, repeat.into()), "{counted:?} of {repeat} packets were refused");
        Ok(sample.ns)
    }

    /// Packets accepted and refused so far, by whichever program.
    fn verdicts(&self) -> Result<(u64, u64)> {
        let counters = self.sluice.dataplane.counters()?;
        Ok((counters.total().delivered_local, counters.drops(Reason::GateNoGrant)))
    }

    /// The gate alone, and proof of what it did with every packet.
    pub fn run_gate(&mut self, traffic: Traffic, repeat: u32) -> Result<f64> {
        let before = self.verdicts()?;
        self.harness.set_target(Target::Foreign(self.gate.program()))?;
        let sample = self.harness.run(repeat, self.ingress)?;
        let after = self.verdicts()?;
        let (accepted, refused) = (after.0 - before.0, after.1 - before.1);
        ensure!(accepted + refused == u64::from(repeat), "{accepted} + {refused} packets of {repeat}");
        match traffic {
            Traffic::Drop => ensure!(accepted == 0, "{accepted} packets were accepted"),
            Traffic::Accept => ensure!(
                refused == 0 && sample.returned == XDP_PASS,
                "{refused} packets were refused; the last one returned {}",
                sample.returned
            ),
            Traffic::Mixed => {
                ensure!(accepted.abs_diff(refused) <= 1 + u64::from(repeat) / 50, "{accepted} of {repeat}")
            }
        }
        Ok(sample.ns)
    }
}

fn words(address: Ipv6Addr) -> [u32; 4] {
    let octets = address.octets();
    std::array::from_fn(|word| u32::from_ne_bytes(std::array::from_fn(|byte| octets[4 * word + byte])))
}

/// The key of a grant, for bare map operations.
pub fn bare_key(number: usize) -> Vec<u8> {
    let IpAddr::V4(address) = client(Family::V4, number, true) else { unreachable!("of this family") };
    let be_addr = u32::from_ne_bytes(address.octets());
    let what = sluice_dataplane::abi::grant_what(SERVICE, 4, 32);
    [be_addr, what].as_bytes().to_vec()
}
