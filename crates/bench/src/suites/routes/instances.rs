//! What routing instances cost packets: the first one of a session in an instance, and established ones where there are
//! many.

use std::fmt::Write as _;
use std::ops::Range;
use std::os::fd::AsFd;

use anyhow::{Context as _, Result, ensure};

use crate::generator::harness::{Hook, Target};
use crate::generator::packets::{Direction, Family, Protocol};
use crate::generator::site::{LAN, Site, WAN};
use crate::method::affinity::{bench_cpu, pin};
use crate::method::result::{Better, Figure, STEADY};
use crate::method::rounds::interleave;
use crate::method::stats::dispersion;
use crate::method::suite::Context;
use crate::testbed::bed::Bed;
use crate::testbed::gateway::{Action, Tally, configuration};

const HOOK: Hook = Hook::Xdp;
const CAPACITY: u32 = 1 << 16;
/// First packets of one look.
const FIRST: usize = 20_000;
/// Established sessions, spread over the instances.
const SESSIONS: usize = 10_000;
/// Instances that have many routes each.
const ROUTED: usize = 16;
const ROUTES: usize = 1000;
/// Instances in all, and how many of them have a unit: a unit needs a zone, of which there are 254.
const MANY: usize = 256;
const WITH_UNITS: usize = 250;
/// The table of instance n is this plus n.
const TABLE: usize = 1000;

/// Figures beside each other: what a first packet pays for its instance, and two of established packets.
pub fn figures(context: &Context) -> Result<Vec<Figure>> {
    let mut site = Site::create("inst")?;
    let main = configuration(HOOK.into(), Action::Permit);
    let alone = format!(
        "{main}routing-instances {{ alone {{ instance-type virtual-router; interface {LAN}.0; interface {WAN}.0; }} }}\n"
    );
    let links = vec![site.lan.ifindex];
    let first = site.gateway.enter(|| -> Result<Figure> {
        pin(bench_cpu())?;
        let mut main = Lane::new(&site, &main, links.clone())?;
        first_packets(&mut main, &mut Lane::new(&site, &alone, links.clone())?, context)
    })??;
    // the kernel reads its rules one after the other: those of many devices would be most of a first packet
    add_tenants(&mut site)?;
    let (site, mut figures) = (&site, vec![first]);
    figures.extend(site.gateway.enter(|| -> Result<Vec<Figure>> {
        pin(bench_cpu())?;
        let mut alone = Lane::new(site, &alone, links)?;
        let mut beside = |(instances, units)| {
            let mut many = Lane::new(site, &tenants(instances, units), indexes(site, 0..units))?;
            established(&mut many, &mut alone, instances, context)
        };
        [(ROUTED, ROUTED), (MANY, WITH_UNITS)].into_iter().map(&mut beside).collect()
    })??);
    Ok(figures)
}

/// A data plane of its own, and the devices that its sessions' packets come by.
struct Lane {
    bed: Bed,
    ingress: Vec<u32>,
}

impl Lane {
    fn new(site: &Site, text: &str, ingress: Vec<u32>) -> Result<Lane> {
        let bed = Bed::with(site, text, &[HOOK], Family::V4, Protocol::Udp, CAPACITY)?;
        Ok(Lane { bed, ingress })
    }

    /// Nanoseconds a packet, of packets that the data plane redirects: those of these sessions, which came by `ingress`.
    fn run(&mut self, sessions: Range<usize>, direction: Direction, laps: u32, ingress: u32) -> Result<Ran> {
        let root = self.bed.root(HOOK).try_clone()?;
        let before = Tally::read(&self.bed.sluice.dataplane)?;
        let harness = self.bed.harness(HOOK);
        harness.set_packets(Protocol::Udp, 0, sessions.start, sessions.len(), direction)?;
        harness.set_target(Target::Foreign(root.as_fd()))?;
        let packets = harness.distinct_packets() * laps;
        let sample = harness.run(packets, ingress)?;
        let tally = Tally::read(&self.bed.sluice.dataplane)?.since(before);
        ensure!(
            tally.redirected == u64::from(packets),
            "of {packets} packets the data plane counted {tally:?}; {}",
            self.bed.reasons()?
        );
        Ok(Ran { ns: sample.ns * f64::from(packets), packets: packets.into(), sessions: tally.sessions })
    }

    /// The same of every session, in so many parts, each by the next device.
    fn all(&mut self, parts: usize, direction: Direction, laps: u32) -> Result<Ran> {
        let each = SESSIONS / parts;
        let mut sum = Ran::default();
        for part in 0..parts {
            let ingress = self.ingress[part % self.ingress.len()];
            let ran = self.run(part * each..(part + 1) * each, direction, laps, ingress)?;
            sum.ns += ran.ns;
            sum.packets += ran.packets;
            sum.sessions += ran.sessions;
        }
        Ok(sum)
    }

    /// No other sessions than those, and both directions of them known.
    fn establish(&mut self, parts: usize) -> Result<()> {
        self.bed.sluice.close_all()?;
        let opened = self.all(parts, Direction::Initiator, 1)?.sessions;
        ensure!(opened == (SESSIONS / parts * parts) as u64, "{opened} sessions were opened");
        self.all(parts, Direction::Responder, 1)?;
        Ok(())
    }

    /// Of packets that no target takes.
    fn wrapper(&mut self) -> Result<f64> {
        let ingress = self.ingress[0];
        let harness = self.bed.harness(HOOK);
        harness.set_packets(Protocol::Udp, 0, 0, SESSIONS, Direction::Both)?;
        harness.set_target(Target::Own("empty"))?;
        Ok(harness.run(harness.distinct_packets(), ingress)?.ns)
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Ran {
    ns: f64,
    packets: u64,
    sessions: u64,
}

fn first_packets(main: &mut Lane, alone: &mut Lane, context: &Context) -> Result<Figure> {
    let times = interleave(2, context.rounds, |contestant, _| {
        let lane = if contestant == 0 { &mut *main } else { &mut *alone };
        lane.bed.sluice.close_all()?;
        let ran = lane.run(0..FIRST, Direction::Initiator, 1, lane.ingress[0])?;
        ensure!(ran.sessions == FIRST as u64, "{} sessions were opened", ran.sessions);
        Ok(ran.ns / ran.packets as f64)
    })?;
    let more = times[0].iter().zip(&times[1]).map(|(main, alone)| alone - main).collect();
    let name = "xdp first packet, more in an instance";
    let mut figure = Figure::new(name, "ns/packet", Better::Lower, more);
    // a difference near nothing: what matters is how steady its two sides are
    figure.unsteady = dispersion(&times[0]).max(dispersion(&times[1])) > STEADY;
    Ok(figure)
}

fn established(many: &mut Lane, one: &mut Lane, instances: usize, context: &Context) -> Result<Figure> {
    let parts = many.ingress.len();
    many.establish(parts)?;
    one.establish(parts)?;
    let laps = context.pick(4, 16);
    let times = interleave(4, context.rounds, |contestant, _| {
        let lane = if contestant == 0 { &mut *many } else { &mut *one };
        if contestant == 3 {
            return lane.wrapper();
        }
        let ran = lane.all(parts, Direction::Both, laps)?;
        ensure!(ran.sessions == 0, "{} sessions were opened", ran.sessions);
        Ok(ran.ns / ran.packets as f64)
    })?;
    let rates = |of: usize| -> Vec<f64> {
        times[of].iter().zip(&times[3]).map(|(ns, wrapper)| 1e3 / (ns - wrapper)).collect()
    };
    let routes = if instances == ROUTED { format!(" of {ROUTES} routes") } else { String::new() };
    let name = format!("xdp established, {instances} instances{routes}");
    let figure = Figure::new(name, "Mpps", Better::Higher, rates(0));
    Ok(figure.against("1 instance", &rates(1)).same(&rates(1), &rates(2)))
}

fn device(n: usize) -> String {
    format!("t{n}")
}

/// So many instances, the first of which have a unit each: all of the same addresses, which zones and policies of their own
/// let through.
fn tenants(instances: usize, units: usize) -> String {
    let mut text = String::new();
    let mut put = |line: String| writeln!(text, "{line}").expect("memory");
    for n in 0..instances {
        let (name, zone) = (device(n), format!("z{n}"));
        let member = if n < units { format!("interface {name}.0;") } else { String::new() };
        put(format!("routing-instances {{ i{n} {{ instance-type virtual-router; {member} }} }}"));
        if n >= units {
            continue;
        }
        put(format!(
            "interfaces {{ {name} {{ mode xdp; unit 0 {{ family inet {{ address 192.0.2.1/24; }} }} }} }}"
        ));
        put(format!("security {{ zones {{ security-zone {zone} {{ interfaces {{ {name}.0; }} }} }} }}"));
        put(format!(
            "security {{ policies {{ from-zone {zone} to-zone {zone} {{ policy all {{ \
             match {{ source-address any; destination-address any; application any; }} then {{ permit; }} }} }} }} }}"
        ));
    }
    put("security { flow { max-unanswered 100; } }".to_owned());
    text
}

fn indexes(site: &Site, of: Range<usize>) -> Vec<u32> {
    site.tenants[of].iter().map(|(_, ifindex, _)| *ifindex).collect()
}

/// A device each, with clients and servers behind it, and a table each that the kernel asks for what comes by the device: what a
/// VRF device is to routes, on kernels without.
fn add_tenants(site: &mut Site) -> Result<()> {
    let hex = |mac: [u8; 6]| mac.map(|byte| format!("{byte:02x}")).join(":");
    let (mac, host_mac) = (hex(site.lan.mac), hex(site.lan.host_mac));
    let mut lines = String::new();
    for n in 0..WITH_UNITS {
        let (device, table) = (device(n), TABLE + n);
        writeln!(
            lines,
            "link add {device} address {mac} type veth peer name {device}p\nlink set {device} up\n\
             link set {device}p up\naddr add 192.0.2.1/24 dev {device} noprefixroute\n\
             neigh replace 192.0.2.100 lladdr {host_mac} dev {device} nud permanent\n\
             route add 10.64.0.0/16 via 192.0.2.100 dev {device} onlink table {table}\n\
             route add 10.128.0.0/16 via 192.0.2.100 dev {device} onlink table {table}"
        )?;
        for route in (0..ROUTES).filter(|_| n < ROUTED) {
            let (high, low) = (route >> 8, route & 255);
            writeln!(
                lines,
                "route add 11.{high}.{low}.0/24 via 192.0.2.100 dev {device} onlink table {table}"
            )?;
        }
    }
    for n in 0..WITH_UNITS {
        writeln!(lines, "rule add pref 1000 iif {} lookup {}", device(n), TABLE + n)?;
    }
    site.gateway.ip_batch(&lines).context("cannot make the instances' devices")?;
    let found = (0..WITH_UNITS).map(|n| {
        let name = device(n);
        let ifindex = site.gateway.ifindex(&name)?;
        Ok((name, ifindex, site.lan.mac))
    });
    site.tenants = found.collect::<Result<_>>()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_instance_is_there_and_those_with_units_have_a_zone() {
        let tree = sluice_language::parse(&tenants(MANY, WITH_UNITS), "bench.conf").unwrap();
        let config = sluice_language::compile(&tree).unwrap();
        assert_eq!(config.routing_instances.len(), MANY);
        assert_eq!(config.zones.len(), WITH_UNITS);
        assert_eq!(config.interfaces.len(), WITH_UNITS);
    }
}
