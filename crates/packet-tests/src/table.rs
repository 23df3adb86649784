//! Runs cases by prog-run, and says what every step must do to the packet and to the counters.

use std::net::IpAddr;
use std::os::fd::AsFd;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail, ensure};
use sluice_dataplane::prog_run::{self, TcRun, XdpRun};
use sluice_wire::text::{Kind, Layer, Packet, Value, diff, dissect};
use sluice_wire::{eth, ethertype, ipv4, ipv6};

use crate::case::{Action, Case, File, PacketStep, Verdict};
use crate::counters::{self, CounterId, Values};
use crate::forward;
use crate::gateway::{Gateway, Hook};
use crate::netns::{ifindex, ip};
use crate::told;

/// Return codes of the two hooks (linux/bpf.h, linux/pkt_cls.h).
const XDP_DROP: u32 = 1;
const XDP_PASS: u32 = 2;
const XDP_REDIRECT: u32 = 4;
const TC_SHOT: u32 = 2;
const TC_UNSPEC: u32 = u32::MAX;
const TC_REDIRECT: u32 = 7;
/// Length of `struct handoff`.
const HANDOFF: usize = size_of::<sluice_abi::Handoff>();

/// Runs a case from an empty session table; the error says at which line what differs.
pub fn run(gateway: &mut Gateway, case: &Case) -> Result<()> {
    begin(gateway)?;
    for step in &case.steps {
        run_step(gateway, &step.action).with_context(|| format!("line {}", step.line))?;
    }
    Ok(())
}

/// What a case before left is gone.
pub fn begin(gateway: &mut Gateway) -> Result<()> {
    gateway.clear_sessions()?;
    gateway.refill()?;
    gateway.clear_counts()?;
    gateway.begin_grants()
}

/// Steps in the words of a `.case` file, as one case.
pub fn run_text(gateway: &mut Gateway, steps: &str) -> Result<()> {
    let file = File::parse(Path::new("steps"), &format!("case \"steps\"\n{steps}"))?;
    run(gateway, &file.cases[0]).with_context(|| steps.to_owned())
}

/// A step of a case, whatever it is.
pub fn run_step(gateway: &mut Gateway, action: &Action) -> Result<()> {
    match action {
        Action::Packet(step) => run_packet(gateway, step),
        other => run_other(gateway, other),
    }
}

/// Steps that are no packets.
pub fn run_other(gateway: &mut Gateway, action: &Action) -> Result<()> {
    match action {
        Action::Packet(_) => bail!("a packet is not run here"),
        Action::Sessions(wanted) => {
            let live = gateway.dataplane.sessions().count();
            ensure!(live == *wanted, "expected {wanted} sessions, there are {live}");
            Ok(())
        }
        Action::Drain(zone) => {
            gateway.drain_next = Some(zone.clone());
            Ok(())
        }
        Action::Commit(path) => gateway.commit(&std::fs::read_to_string(path)?),
        Action::Gate(step) => gateway.change_grants(step),
        Action::Ip(command) => Ok(ip(std::slice::from_ref(command))?),
        Action::Routes => {
            gateway.dataplane.ask_routes_again();
            Ok(())
        }
        Action::Wait(time) => gateway.wait(*time),
    }
}

/// The frame of a step, with the headers that the case left out.
pub fn frame_of(gateway: &Gateway, step: &PacketStep) -> Result<Vec<u8>> {
    let mut layers = step.packet.layers.clone();
    if !step.raw && step.packet.find(Kind::Eth).is_none() {
        let (_, vlan) = gateway.port(&step.unit)?;
        let own = gateway.world.unit_mac(&step.unit).context("unit without device")?;
        let far = source_of(&step.packet).and_then(|source| gateway.world.owner_on(&step.unit, source));
        let far = far.or(gateway.world.any_host_on(&step.unit));
        let far = far.map(|host| host.mac).unwrap_or_default();
        let (to, from) = if step.egress { (far, own) } else { (own, far) };
        let header = Layer::new(Kind::Eth).with("dst", Value::Mac(to)).with("src", Value::Mac(from));
        layers.insert(0, header);
        let tags = forward::tags_of(vlan.filter(|_| !step.egress));
        return Ok(forward::tagged(&Packet { layers }.to_bytes()?, &tags));
    }
    Ok(Packet { layers }.to_bytes()?)
}

fn source_of(packet: &Packet) -> Option<IpAddr> {
    packet.layers.iter().find_map(|layer| match layer.get("src") {
        Some(Value::V4(addr)) => Some(IpAddr::V4(*addr)),
        Some(Value::V6(addr)) => Some(IpAddr::V6(*addr)),
        _ => None,
    })
}

/// The frame that must leave, and on which unit; None where nothing leaves.
pub fn expected_frame(
    gateway: &Gateway,
    step: &PacketStep,
    frame: &[u8],
) -> Result<Option<(String, Vec<u8>)>> {
    match &step.verdict {
        Verdict::Redirect { unit, via, packet } => {
            let out = match packet {
                Some(packet) if packet.find(Kind::Eth).is_some() => packet.to_bytes()?,
                Some(packet) => {
                    // the next hop holds the destination it leaves with
                    let changed = replace_network(frame, &packet.to_bytes()?)?;
                    let whole = expected_redirect(gateway, unit, via.as_deref(), &changed)?;
                    replace_network(&whole, &packet.to_bytes()?)?
                }
                None => expected_redirect(gateway, unit, via.as_deref(), frame)?,
            };
            Ok(Some((unit.clone(), out)))
        }
        Verdict::Reply { packet, .. } => {
            let header = eth::View::new(frame)?;
            let swapped = [&header.source().0[..], &header.destination().0[..], &frame[12..]].concat();
            Ok(Some((step.unit.clone(), replace_network(&swapped, &packet.to_bytes()?)?)))
        }
        _ => Ok(None),
    }
}

/// The frame with this packet in it, if there is one.
fn changed(frame: &[u8], packet: Option<&Packet>) -> Result<Vec<u8>> {
    packet.map_or_else(|| Ok(frame.to_vec()), |packet| replace_network(frame, &packet.to_bytes()?))
}

/// The headers of `frame` up to the network layer, then `packet`.
fn replace_network(frame: &[u8], packet: &[u8]) -> Result<Vec<u8>> {
    let (l3, ..) = forward::network_layer(frame).context("no Ethernet header")?;
    Ok(with_network(&frame[..l3], packet))
}

/// A packet behind a link header, which names its family.
fn with_network(link: &[u8], packet: &[u8]) -> Vec<u8> {
    let mut out = [link, packet].concat();
    let ethertype = match packet.first().map(|byte| byte >> 4) {
        Some(4) => ethertype::IPV4,
        Some(6) => ethertype::IPV6,
        _ => return out,
    };
    out[link.len() - 2..link.len()].copy_from_slice(&ethertype.to_be_bytes());
    out
}

fn expected_redirect(gateway: &Gateway, unit: &str, via: Option<&str>, frame: &[u8]) -> Result<Vec<u8>> {
    let (_, vlan) = gateway.port(unit)?;
    let from = gateway.world.unit_mac(unit).context("unit without device")?;
    let next = match via {
        Some(name) => gateway.world.host(name),
        None => destination_of(frame)
            .and_then(|address| gateway.world.owner_on(unit, address).or(gateway.world.owner(address))),
    };
    let next = next.ok_or_else(|| anyhow!("no host holds the destination; say `via HOST`"))?;
    ensure!(next.unit == unit, "host {} is on {}, not on {unit}", next.name, next.unit);
    Ok(forward::forwarded(frame, next.mac, from, vlan))
}

fn destination_of(frame: &[u8]) -> Option<IpAddr> {
    let (l3, _, ethertype) = forward::network_layer(frame)?;
    match ethertype {
        ethertype::IPV4 => Some(ipv4::View::new_unchecked(&frame[l3..]).ok()?.destination().into()),
        ethertype::IPV6 => Some(ipv6::View::new_unchecked(&frame[l3..]).ok()?.destination().into()),
        _ => None,
    }
}

/// The unit a step's frame belongs to, if any.
fn unit_of(gateway: &Gateway, step: &PacketStep, frame: &[u8]) -> Option<String> {
    if !step.raw {
        return Some(step.unit.clone());
    }
    let vlan = forward::vlan_of(&forward::network_layer(frame)?.1);
    let mut units = gateway.plan.units.iter();
    units.find(|info| info.physical == step.unit && info.vlan == vlan).map(|info| info.name.clone())
}

fn is_tagged(gateway: &Gateway, step: &PacketStep, frame: &[u8]) -> bool {
    let unit = unit_of(gateway, step, frame);
    unit.and_then(|unit| gateway.port(&unit).ok()).is_some_and(|(_, vlan)| vlan.is_some())
}

/// Drops of source NAT, which stands behind the policies.
const NAT_SOURCE_DROPS: [&str; 5] =
    ["nat_ports_exhausted", "nat_no_address", "nat_bindings_full", "nat_binding_sessions", "nat_changed"];

/// Every counter that must change, and by how much.
pub fn expected_counters(gateway: &Gateway, step: &PacketStep, frame: &[u8]) -> Result<Values> {
    let mut values = Values::new();
    let unit = unit_of(gateway, step, frame).map_or(0, |unit| gateway.unit_index(&unit));
    for (name, count) in unit_counters(gateway, step, frame) {
        let slot = counters::slot(name)?;
        if count != 0 {
            *values.entry(CounterId::Unit(unit, slot)).or_default() += count;
        }
    }
    for name in &step.words.counts {
        *values.entry(CounterId::Unit(unit, counters::slot(name)?)).or_default() += 1;
    }
    let refused = match &step.verdict {
        Verdict::Drop { reason } | Verdict::Reply { reason, .. } => Some(reason.as_str()),
        _ => None,
    };
    let dropped = refused.and_then(counters::screen);
    let alarms = step.words.alarms.iter();
    let alarms: Vec<_> = alarms
        .map(|name| counters::screen(name).ok_or_else(|| anyhow!("`{name}` is no screen")))
        .collect::<Result<_>>()?;
    for screen in dropped.into_iter().chain(alarms) {
        let zone = gateway.zone_of(&step.unit)?;
        *values.entry(CounterId::Screen(zone, screen as usize)).or_default() += 1;
    }
    if let Some(policy) = &step.words.policy {
        let id = counters::policy_id(&gateway.plan, policy)?;
        let counter = if is_permitted(&step.verdict) {
            CounterId::PolicySessions(id)
        } else {
            CounterId::PolicyDenied(id)
        };
        values.insert(counter, 1);
    }
    counters::expect_nat(&gateway.plan, &step.words, refused, &mut values)?;
    Ok(values)
}

/// What a packet adds to the counters of its unit.
fn unit_counters<'a>(gateway: &Gateway, step: &'a PacketStep, frame: &[u8]) -> Vec<(&'a str, u64)> {
    let mut bytes = stated_length(frame);
    let mut counts = match &step.verdict {
        Verdict::Redirect { .. } => vec![("redirected", 1), ("redirected_bytes", bytes)],
        Verdict::Local { .. } => vec![("delivered_local", 1)],
        Verdict::Drop { reason } | Verdict::Reply { reason, .. } | Verdict::Withheld { reason } => {
            if ["unknown_unit", "vlan_stack", "other_host", "no_generation"].contains(&reason.as_str()) {
                bytes = 0; // the IP header was not looked at
            }
            vec![(reason.as_str(), 1)]
        }
        Verdict::Handoff { .. } => vec![("handed_off", 1), ("queued", 1)],
        Verdict::Sent { .. } => vec![("originated", 1)],
    };
    match &step.verdict {
        Verdict::Reply { .. } => counts.push(("replies", 1)),
        Verdict::Withheld { .. } => counts.push(("replies_withheld", 1)),
        _ => {}
    }
    if !step.egress {
        counts.extend([("received", 1), ("received_bytes", bytes), ("slow", u64::from(!step.words.fast))]);
    } else if !matches!(step.verdict, Verdict::Sent { .. }) {
        counts.push(("originated", 1));
    } else if !is_tagged(gateway, step, frame) {
        // a tagged unit's frames are counted when they leave the device below
        counts.extend([("sent", 1), ("sent_bytes", frame.len() as u64)]);
    }
    counts.push(("sessions", u64::from(step.words.new && !step.egress)));
    counts.push(("icmp_related", u64::from(step.words.related)));
    counts.push(("rejudged", u64::from(step.words.rejudged)));
    counts
}

/// Whether the policy that a packet met has permitted it.
fn is_permitted(verdict: &Verdict) -> bool {
    match verdict {
        Verdict::Redirect { .. } | Verdict::Handoff { .. } => true,
        // policy spoke before the table did
        Verdict::Drop { reason } => {
            reason == "fragment_table_full"
                || NAT_SOURCE_DROPS.contains(&reason.as_str())
                || sluice_abi::stages::Stage::Create.reasons().any(|r| r.name() == reason)
        }
        _ => false,
    }
}

/// Length of the IP packet as its header states it; zero where there is no whole header, or none of its version.
fn stated_length(frame: &[u8]) -> u64 {
    let Some((l3, _, ethertype)) = forward::network_layer(frame) else { return 0 };
    let packet = &frame[l3.min(frame.len())..];
    match ethertype {
        ethertype::IPV4 => ipv4::View::new_unchecked(packet).map_or(0, |view| view.total_length().into()),
        ethertype::IPV6 => match ipv6::View::new_unchecked(packet) {
            Ok(view) if view.version() == 6 => ipv6::field::HEADER as u64 + u64::from(view.payload_length()),
            _ => 0,
        },
        _ => 0,
    }
}

/// What a run left behind.
pub struct Seen {
    /// What the program returned: `XDP_*` or `TC_ACT_*`.
    pub retval: u32,
    /// As the program left it.
    pub frame: Vec<u8>,
    /// Metadata before the frame.
    pub meta: Vec<u8>,
}

/// One frame through the root program of a device. On tc it comes with its sum, as from a device that offloads
/// checksums, and must leave with the right one.
pub fn prog_run_summed(gateway: &mut Gateway, device: &str, frame: &[u8]) -> Result<Seen> {
    if gateway.hook == Hook::Xdp {
        return prog_run(gateway, device, frame, false);
    }
    let index = ifindex(device)?;
    let program = gateway.arrive(device)?;
    let run = TcRun { summed: true, ..TcRun::new(frame, index) };
    let outcome = prog_run::tc(program.as_fd(), &run)
        .with_context(|| format!("the sum of the packet's bytes, behind {}", dissect(frame)))?;
    Ok(Seen { retval: outcome.retval, frame: outcome.data, meta: Vec::new() })
}

/// One frame through the root program of a device, or through its egress program.
pub fn prog_run(gateway: &mut Gateway, device: &str, frame: &[u8], egress: bool) -> Result<Seen> {
    let index = ifindex(device)?;
    if egress {
        let program = gateway.dataplane.egress_program()?;
        let outcome = prog_run::tc(program.as_fd(), &TcRun::new(frame, index))?;
        return Ok(Seen { retval: outcome.retval, frame: outcome.data, meta: Vec::new() });
    }
    if gateway.hook == Hook::Tc {
        let program = gateway.arrive(device)?;
        let outcome = prog_run::tc(program.as_fd(), &TcRun::new(frame, index))?;
        return Ok(Seen { retval: outcome.retval, frame: outcome.data, meta: Vec::new() });
    }
    let root = gateway.root(device)?;
    let outcome = prog_run::xdp(root.as_fd(), &XdpRun::new(frame, index))?;
    let (meta, frame) = outcome.data.split_at(outcome.context.data as usize);
    Ok(Seen { retval: outcome.retval, frame: frame.to_vec(), meta: meta.to_vec() })
}

/// Frames one after the other, and what they have counted, of which each is accounted for.
pub fn count_frames<F: AsRef<[u8]>>(gateway: &mut Gateway, device: &str, frames: &[F]) -> Result<Values> {
    let before = counters::snapshot(&gateway.dataplane, &gateway.plan)?;
    for frame in frames {
        prog_run(gateway, device, frame.as_ref(), false)?;
    }
    let delta = counters::delta(&before, &counters::snapshot(&gateway.dataplane, &gateway.plan)?);
    counters::first_equation(&delta)?;
    Ok(delta)
}

fn run_packet(gateway: &mut Gateway, step: &PacketStep) -> Result<()> {
    let frame = frame_of(gateway, step)?;
    let device = match (step.raw, step.egress) {
        (true, _) => step.unit.clone(),
        (false, false) => gateway.port(&step.unit)?.0,
        (false, true) => {
            let (physical, vlan) = gateway.port(&step.unit)?;
            if vlan.is_some() { step.unit.clone() } else { physical }
        }
    };
    let before = counters::snapshot(&gateway.dataplane, &gateway.plan)?;
    if let Some(zone) = gateway.drain_next.take() {
        if gateway.hook == Hook::Tc {
            gateway.arrive(&device).map(drop)?
        } else {
            gateway.root(&device).map(drop)?
        }
        gateway.drain(&zone)?;
    }
    told::begin(&gateway.dataplane)?;
    let seen = prog_run(gateway, &device, &frame, step.egress)
        .with_context(|| format!("running {}", dissect(&frame)))?;
    if matches!(step.verdict, Verdict::Redirect { .. }) {
        gateway.forwarded.push((frame.clone(), seen.frame.clone()));
    }
    let after = counters::snapshot(&gateway.dataplane, &gateway.plan)?;
    let mut complaints = Vec::new();
    check_counters(gateway, step, &frame, &before, &after, &mut complaints)?;
    let counted = counters::delta(&before, &after);
    told::check(&gateway.dataplane, &gateway.plan, &counted, &frame, &mut complaints)?;
    check_retval(gateway, step, &frame, seen.retval, &mut complaints);
    check_frame(gateway, step, &frame, &seen, &mut complaints)?;
    if complaints.is_empty() {
        return Ok(());
    }
    Err(anyhow!("in {}\n{}", dissect(&frame), complaints.join("\n")))
}

fn check_counters(
    gateway: &Gateway,
    step: &PacketStep,
    frame: &[u8],
    before: &Values,
    after: &Values,
    complaints: &mut Vec<String>,
) -> Result<()> {
    let expected = expected_counters(gateway, step, frame)?;
    let seen = counters::delta(before, after);
    if expected != seen {
        complaints.push(format!(
            "  counters expected\n{}  counters seen\n{}",
            counters::describe(&expected, &gateway.plan),
            counters::describe(&seen, &gateway.plan)
        ));
    }
    if let Err(error) = counters::first_equation(&seen) {
        complaints.push(format!("  first equation: {error}"));
    }
    Ok(())
}

fn check_retval(
    gateway: &Gateway,
    step: &PacketStep,
    frame: &[u8],
    retval: u32,
    complaints: &mut Vec<String>,
) {
    let tagged = is_tagged(gateway, step, frame);
    let tc = gateway.hook == Hook::Tc || step.egress;
    let (drop, pass, redirect) =
        if tc { (TC_SHOT, TC_UNSPEC, TC_REDIRECT) } else { (XDP_DROP, XDP_PASS, XDP_REDIRECT) };
    let expected = match &step.verdict {
        Verdict::Redirect { .. } | Verdict::Reply { .. } => redirect,
        Verdict::Local { .. } | Verdict::Sent { .. } if tagged => redirect,
        Verdict::Local { .. } | Verdict::Sent { .. } => pass,
        Verdict::Drop { .. } | Verdict::Withheld { .. } => drop,
        Verdict::Handoff { .. } if tc => redirect,
        Verdict::Handoff { .. } => pass,
    };
    if retval != expected {
        complaints.push(format!("  program returned {}, expected {}", retval as i32, expected as i32));
    }
}

fn check_frame(
    gateway: &Gateway,
    step: &PacketStep,
    frame: &[u8],
    seen: &Seen,
    complaints: &mut Vec<String>,
) -> Result<()> {
    // On tc the outer tag stands beside the frame, where prog-run does not show it; the MAC addresses tell the
    // interface, and the runs over real devices see the tag.
    let tc = gateway.hook == Hook::Tc || step.egress;
    let visible = |frame: Vec<u8>| if tc { forward::without_outer(&frame) } else { frame };
    let expected = match &step.verdict {
        Verdict::Drop { .. } | Verdict::Withheld { .. } => return Ok(()),
        Verdict::Sent { packet } => {
            let frame = changed(frame, packet.as_ref())?;
            forward::tagged(&frame, &forward::tags_of(gateway.port(&step.unit)?.1))
        }
        Verdict::Local { packet } if is_tagged(gateway, step, frame) => {
            forward::untagged(&changed(frame, packet.as_ref())?)
        }
        Verdict::Local { packet } => changed(frame, packet.as_ref())?,
        Verdict::Handoff { unit } => {
            check_handoff(gateway, unit, seen, complaints)?;
            forward::untagged(&forward::one_hop(frame))
        }
        _ => expected_frame(gateway, step, frame)?.map(|(_, frame)| frame).unwrap_or_default(),
    };
    // what the host gets keeps its tag in the skb as well
    let (expected, seen) = forward::comparable(frame, expected, seen.frame.clone());
    if let Some(text) = diff(&visible(expected), &seen) {
        complaints.push(format!("  packet out\n{text}"));
    }
    Ok(())
}

/// XDP leaves its verdict in front of the frame for the tc program of the same device.
fn check_handoff(gateway: &Gateway, unit: &str, seen: &Seen, complaints: &mut Vec<String>) -> Result<()> {
    if gateway.hook == Hook::Tc {
        return Ok(());
    }
    let (physical, vlan) = gateway.port(unit)?;
    let device = if vlan.is_some() { unit.to_owned() } else { physical };
    // all of them are on the unit's own link: the neighbour is whom the packet is for
    let (family, address) = match seen.frame.get(12..14) {
        Some([0x08, 0x00]) => (4u32, seen.frame.get(30..34)),
        _ => (6, seen.frame.get(38..54)),
    };
    let words = [sluice_abi::HANDOFF_MAGIC, ifindex(&device)?, family].map(u32::to_ne_bytes);
    let mut expected = [words.as_flattened(), address.unwrap_or_default()].concat();
    expected.resize(HANDOFF, 0);
    if seen.meta != expected {
        complaints.push(format!("  metadata is {:02x?}, expected {expected:02x?}", seen.meta));
    }
    Ok(())
}
