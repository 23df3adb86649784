//! Two devices with a wire between them: a veth pair in a namespace of its own, or real ones.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use sluice_lab::netns::{Netns, VethEnd, veth};

use super::Device;
use super::frame::Addresses;
use super::generator::{Generator, Order, Sent};
use super::receiver::{Received, Receiver, Role};
use crate::generator::link::Target;

const A: &str = "here0";
const B: &str = "there0";
const A_MAC: &str = "02:be:00:00:03:01";
const B_MAC: &str = "02:be:00:00:03:02";

/// A generator, a wire, and a receiver at its other end.
pub struct Pair {
    /// At one end.
    pub generator: Generator,
    /// At the other end.
    pub receiver: Receiver,
    /// From the generator to the receiver.
    pub addresses: Addresses,
    netns: Option<Netns>,
    /// Index of the device that is sent by.
    pub from: u32,
    /// Index of the device that is received on.
    pub to: u32,
}

/// Flows that a receiver of a pair tells apart.
pub const MOST_FLOWS: u32 = 1 << 20;

impl Pair {
    /// A veth pair. Nothing but the generator sends: IPv6 is off.
    pub fn veth(role: Role) -> Result<Pair> {
        let netns = Netns::create("pair")?;
        let end = |name: &'static str, mac: &'static str| VethEnd {
            netns: &netns,
            name,
            mac: Some(mac),
            addresses: &[],
        };
        netns.sysctl("net.ipv6.conf.default.disable_ipv6", "1")?;
        veth(end(A, A_MAC), end(B, B_MAC))?;
        let (from, to) = (netns.ifindex(A)?, netns.ifindex(B)?);
        let addresses = Addresses::of_link(mac(A_MAC)?, mac(B_MAC)?);
        Pair::ready(Some(netns), from, to, addresses, role, Target::XdpNative)
    }

    /// Devices of the calling thread's namespace.
    pub fn of_devices(from: &str, to: &str, role: Role, target: Target) -> Result<Pair> {
        let addresses = Addresses::of_rfc2544(device_mac(from)?, device_mac(to)?);
        Pair::ready(None, index(from)?, index(to)?, addresses, role, target)
    }

    fn ready(
        netns: Option<Netns>,
        from: u32,
        to: u32,
        addresses: Addresses,
        role: Role,
        target: Target,
    ) -> Result<Pair> {
        let mut receiver = Receiver::load(MOST_FLOWS)?;
        let device = |ifindex| Device { netns: netns.as_ref(), ifindex };
        receiver.attach(device(to), role, target)?;
        // Some drivers send redirected frames only when the sending device carries a program too.
        receiver.attach(device(from), Role::Pass, target)?;
        Ok(Pair { generator: Generator::load()?, receiver, addresses, netns, from, to })
    }

    /// Where both devices are; None = the caller's namespace.
    pub fn netns(&self) -> Option<&Netns> {
        self.netns.as_ref()
    }

    /// 64-byte frames from one end to the other, as fast as they go.
    pub fn order(&self, flows: u32) -> Order {
        Order::new(self.addresses, flows)
    }

    /// Sends a whole order and judges what came.
    pub fn exchange(&mut self, order: &Order) -> Result<(Sent, Received)> {
        self.receiver.expect(order.flows, order.stamped)?;
        let from = Device { netns: self.netns.as_ref(), ifindex: self.from };
        let sent = self.generator.send(from, order)?;
        self.receiver.settle(sent.frames);
        Ok((sent, self.receiver.report(sent.frames)))
    }

    /// Frames a second that arrived in a window in the middle of a run without end, and the account of all of it.
    pub fn window(&mut self, order: &Order, settle: Duration, window: Duration) -> Result<Window> {
        self.receiver.expect(order.flows, false)?;
        let from = Device { netns: self.netns.as_ref(), ifindex: self.from };
        let running = self.generator.start(from, order)?;
        running.wait_for_first()?;
        thread::sleep(settle);
        let (began, sent, received) = (Instant::now(), running.sent(), self.receiver.received());
        thread::sleep(window);
        let (seconds, sent, received) =
            (began.elapsed().as_secs_f64(), running.sent() - sent, self.receiver.received() - received);
        let total = running.stop()?;
        self.receiver.settle(total.frames);
        let received = received as f64 / seconds;
        Ok(Window {
            sent_pps: sent as f64 / seconds,
            received_pps: received,
            all: self.receiver.report(total.frames),
        })
    }
}

/// What a stretch in the middle of a run showed.
#[derive(Debug, Clone)]
pub struct Window {
    /// Frames that the generator made.
    pub sent_pps: f64,
    /// Frames that arrived.
    pub received_pps: f64,
    /// Of the whole run, window or not.
    pub all: Received,
}

fn index(device: &str) -> Result<u32> {
    nix::net::if_::if_nametoindex(device).with_context(|| format!("there is no device {device}"))
}

/// In the calling thread's namespace, which /sys need not show.
pub fn device_mac(device: &str) -> Result<[u8; 6]> {
    let mut found = nix::ifaddrs::getifaddrs()?.filter(|address| address.interface_name == device);
    let mac = found.find_map(|address| address.address?.as_link_addr()?.addr());
    mac.with_context(|| format!("there is no device {device}, or it has no MAC address"))
}

/// `02:be:00:00:03:01`
pub fn mac(text: &str) -> Result<[u8; 6]> {
    let bytes: Vec<u8> = text
        .split(':')
        .map(|word| u8::from_str_radix(word, 16))
        .collect::<Result<_, _>>()
        .unwrap_or_default();
    bytes.try_into().ok().with_context(|| format!("{text} is no MAC address"))
}
