//! The same cases over real devices: frames go in at the far end of a veth pair and come out at others.
//!
//! Here the second equation is held too, against what the far ends really got.

pub mod socket;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use sluice_abi::stages::Hook as Direction;
use sluice_dataplane::{Attachment, Hook as On};
use sluice_plan::IngressHook;
use sluice_wire::text::{diff, dissect};

use crate::case::{Action, Case, PacketStep};
use crate::counters::{self, CounterId, Values};
use crate::forward;
use crate::gateway::{Gateway, Hook, far_end};
use crate::netns::ifindex;
use crate::table;
use socket::PacketSocket;

/// Longest time a packet and its counters may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(3);
/// Time in which nothing further may happen.
const QUIET: Duration = Duration::from_millis(3);

/// A gateway and the far ends of its veth pairs, with a socket on each.
pub struct Wire {
    /// Its programs are attached.
    pub gateway: Gateway,
    ports: Vec<Port>,
    /// Frames that all far ends got since the counters stood at `start`.
    captured: u64,
    start: Values,
    /// Frames that left by mobile units since then: they come back at the far end, and no socket is there.
    pub through_mobile: u64,
}

/// Frames and the devices at whose far ends they came out.
pub type Captured = Vec<(String, Vec<u8>)>;

struct Port {
    device: String,
    socket: PacketSocket,
}

impl Wire {
    /// Puts the programs on the devices and listens at the far ends.
    pub fn new(gateway: Gateway) -> Result<Wire> {
        for wanted in &gateway.plan.attachments {
            let hook = match wanted.ingress {
                Some(IngressHook::Tc) => On::Tc,
                Some(IngressHook::XdpNative) => On::XdpNative,
                Some(IngressHook::XdpGeneric) => On::XdpGeneric,
                None => On::EgressOnly,
            };
            let attachment = Attachment { ifindex: wanted.ifindex, hook, variant: wanted.variant };
            gateway
                .dataplane
                .attach_behind(&attachment, gateway.plan.gate.alone(&wanted.device))
                .with_context(|| format!("attaching to {}", wanted.device))?;
        }
        let devices: Vec<String> = gateway.world.devices.iter().map(|device| device.name.clone()).collect();
        let ports = gateway.outside.enter(|| {
            let open = |device: &String| {
                let socket = PacketSocket::open(ifindex(&far_end(device))?)?;
                Ok(Port { device: device.clone(), socket })
            };
            devices.iter().map(open).collect::<Result<Vec<_>>>()
        })??;
        let mut wire = Wire { gateway, ports, captured: 0, start: Values::new(), through_mobile: 0 };
        wire.settle()?;
        Ok(wire)
    }

    /// Waits until devices that just came up have said everything (multicast reports), and begins to count there.
    fn settle(&mut self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE * 3;
        let mut last = self.snapshot()?;
        loop {
            std::thread::sleep(QUIET * 20);
            let now = self.snapshot()?;
            if now == last {
                break;
            }
            ensure!(Instant::now() < deadline, "the devices do not become quiet");
            last = now;
        }
        for port in &self.ports {
            while port.socket.receive()?.is_some() {}
        }
        self.start = last;
        Ok(())
    }

    fn snapshot(&self) -> Result<Values> {
        counters::snapshot(&self.gateway.dataplane, &self.gateway.plan)
    }

    /// Runs a case; the error says at which line what differs.
    pub fn run(&mut self, case: &Case) -> Result<()> {
        self.gateway.clear_sessions()?;
        self.gateway.refill()?;
        self.gateway.begin_grants()?;
        for step in &case.steps {
            let result = match &step.action {
                Action::Packet(packet) if packet.egress => {
                    bail!("line {}: `out` cannot be run here", step.line)
                }
                Action::Packet(packet) => self.packet(packet),
                other => table::run_other(&mut self.gateway, other),
            };
            result.with_context(|| format!("line {}", step.line))?;
        }
        Ok(())
    }

    /// Puts a frame on a device's wire.
    pub fn inject(&self, device: &str, frame: &[u8]) -> Result<()> {
        self.port(device)?.socket.send(frame)
    }

    /// Frames that came out so far, and where.
    pub fn receive(&mut self) -> Result<Captured> {
        let mut frames = Vec::new();
        for port in &self.ports {
            while let Some(frame) = port.socket.receive()? {
                frames.push((port.device.clone(), frame));
            }
        }
        self.captured += frames.len() as u64;
        Ok(frames)
    }

    /// Waits for a frame at a device's far end; others that come meanwhile are counted and let go.
    pub fn expect(&mut self, device: &str, wanted: impl Fn(&[u8]) -> bool) -> Result<Vec<u8>> {
        let deadline = Instant::now() + PATIENCE;
        let mut others = Vec::new();
        while Instant::now() < deadline {
            for port in &self.ports {
                while let Some(frame) = port.socket.receive()? {
                    self.captured += 1;
                    if port.device == device && wanted(&frame) {
                        return Ok(frame);
                    }
                    others.push(format!("{}: {}", port.device, dissect(&frame)));
                }
            }
        }
        let since = counters::delta(&self.start, &self.snapshot()?);
        let counted = counters::describe(&since, &self.gateway.plan);
        bail!("the frame did not come out at {device}; instead {others:#?}\n  counted\n{counted}")
    }

    /// Both equations, over everything since the beginning.
    pub fn check_equations(&mut self) -> Result<()> {
        std::thread::sleep(QUIET * 10);
        for port in &self.ports {
            while port.socket.receive()?.is_some() {
                self.captured += 1;
            }
        }
        let since = counters::delta(&self.start, &self.snapshot()?);
        counters::first_equation(&since)?;
        self.second_equation(&since)
    }

    fn packet(&mut self, step: &PacketStep) -> Result<()> {
        let frame = table::frame_of(&self.gateway, step)?;
        let device = if step.raw { step.unit.clone() } else { self.gateway.port(&step.unit)?.0 };
        let mut expected = table::expected_counters(&self.gateway, step, &frame)?;
        let leaving = table::expected_frame(&self.gateway, step, &frame)?;
        if let Some((unit, out)) = &leaving {
            self.add_sent(&mut expected, &device, unit, out)?;
        }
        let wanted = leaving
            .map(|(unit, out)| Ok::<_, anyhow::Error>((self.gateway.port(&unit)?.0, out)))
            .transpose()?;
        let before = self.snapshot()?;
        self.port(&device)?.socket.send(&frame)?;
        let (delta, frames) = self.collect(&before, &expected, usize::from(wanted.is_some()))?;
        let complaints = self.judge(&frame, &expected, &delta, wanted, &frames)?;
        if complaints.is_empty() {
            return Ok(());
        }
        Err(anyhow!("in {}\n{}", dissect(&frame), complaints.join("\n")))
    }

    /// tc frames pass the egress program, which counts them without the outer tag; XDP frames pass nothing there.
    fn add_sent(&self, expected: &mut Values, from: &str, unit: &str, out: &[u8]) -> Result<()> {
        let arrived = self.gateway.plan.units.iter().find(|info| info.physical == from);
        if arrived.is_some_and(|info| info.hook == IngressHook::Tc) {
            let index = self.gateway.unit_index(unit);
            expected.insert(CounterId::Unit(index, counters::slot("sent")?), 1);
            let bytes = forward::without_outer(out).len() as u64;
            expected.insert(CounterId::Unit(index, counters::slot("sent_bytes")?), bytes);
        }
        Ok(())
    }

    fn port(&self, device: &str) -> Result<&Port> {
        self.ports.iter().find(|port| port.device == device).with_context(|| format!("no device {device}"))
    }

    /// Waits for counters and frames, then a little longer for what must not come.
    fn collect(&mut self, before: &Values, expected: &Values, count: usize) -> Result<(Values, Captured)> {
        let deadline = Instant::now() + PATIENCE;
        let mut frames = Vec::new();
        let mut quiet_since = None;
        loop {
            for port in &self.ports {
                while let Some(frame) = port.socket.receive()? {
                    frames.push((port.device.clone(), frame));
                }
            }
            let delta = counters::delta(before, &self.snapshot()?);
            let now = Instant::now();
            let complete = delta == *expected && frames.len() >= count;
            match (complete, quiet_since) {
                (true, None) => quiet_since = Some(now),
                (true, Some(since)) if now - since >= QUIET => {
                    self.captured += frames.len() as u64;
                    return Ok((delta, frames));
                }
                (false, _) if now >= deadline => {
                    self.captured += frames.len() as u64;
                    return Ok((delta, frames));
                }
                _ => {}
            }
        }
    }

    fn judge(
        &self,
        came: &[u8],
        expected: &Values,
        delta: &Values,
        wanted: Option<(String, Vec<u8>)>,
        frames: &[(String, Vec<u8>)],
    ) -> Result<Vec<String>> {
        let mut complaints = Vec::new();
        let plan = &self.gateway.plan;
        if expected != delta {
            complaints.push(format!(
                "  counters expected\n{}  counters seen\n{}",
                counters::describe(expected, plan),
                counters::describe(delta, plan)
            ));
        }
        match (wanted, frames) {
            (None, []) => {}
            (Some((device, frame)), [(at, seen)]) => {
                if device != *at {
                    complaints.push(format!("  left through {at}, expected {device}"));
                }
                let (frame, seen) = forward::comparable(came, frame, seen.clone());
                complaints.extend(diff(&frame, &seen).map(|text| format!("  packet out\n{text}")));
            }
            (wanted, frames) => {
                let expected =
                    wanted.map_or("nothing".to_owned(), |(at, frame)| format!("{at}: {}", dissect(&frame)));
                let seen: Vec<String> =
                    frames.iter().map(|(at, f)| format!("{at}: {}", dissect(f))).collect();
                complaints.push(format!("  expected {expected}\n  captured {seen:#?}"));
            }
        }
        let since = counters::delta(&self.start, &self.snapshot()?);
        let first = counters::first_equation(&since).err();
        let second = self.second_equation(&since).err();
        complaints.extend(first.into_iter().chain(second).map(|error| format!("  {error}")));
        Ok(complaints)
    }

    /// With what the far ends got in the place of `sent`, which XDP frames do not pass.
    fn second_equation(&self, since: &Values) -> Result<()> {
        let made = ["resolved", "unjudged", "pieces", "replies", "duplicated", "gtpu_returned", "originated"];
        let names = ["redirected", "handed_off"].into_iter().chain(made);
        let parts: Vec<u64> = names.map(|name| counters::total(since, name)).collect();
        let (queued, dropped) = (counters::total(since, "queued"), counters::drops(since, Direction::Egress));
        ensure!(
            parts.iter().sum::<u64>() == self.captured + self.through_mobile + queued + dropped,
            "second equation: redirected, handed off, resolved, unjudged, pieces, replies, duplicated, returned, originated are {parts:?}, \
             the far ends got {}, {queued} were queued and {dropped} dropped at egress",
            self.captured
        );
        if self.gateway.hook == Hook::Tc {
            counters::second_equation(since, 0)?;
        }
        Ok(())
    }
}
