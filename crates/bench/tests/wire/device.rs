//! A device in the middle, in user space: takes frames at one end, does what a plan says, and gives them out at the other.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, recv, setsockopt, socket,
    sockopt::{RcvBufForce, ReceiveTimeout},
};
use nix::sys::time::{TimeVal, TimeValLike};
use sluice_bench::Target;
use sluice_bench::generator::wire::frame::set_udp_check;
use sluice_bench::generator::wire::pair::mac;
use sluice_bench::generator::wire::receiver::Role;
use sluice_bench::generator::wire::socket::{PacketSocket, bind};
use sluice_bench::generator::wire::{Addresses, Device, Generator, Order, Received, Receiver, Sent};
use sluice_lab::netns::{Netns, VethEnd, veth};

const FROM_MAC: &str = "02:be:00:00:04:01";
const TO_MAC: &str = "02:be:00:00:04:02";
const ETH_P_ALL: u16 = 3;

/// What happens to a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Pass,
    Drop,
    Double,
    /// Goes after this many frames that came later.
    HoldBack(usize),
    /// A bit of the payload.
    Corrupt,
    /// A bit of the payload beyond the first 18 bytes, under a checksum computed anew.
    CorruptWell,
    /// A bit of the IP header.
    CorruptHeader,
    Delay(Duration),
}

pub struct Middle {
    netns: Netns,
    pub receiver: Receiver,
    addresses: Addresses,
    from: u32,
    inside: u32,
    outside: u32,
}

impl Middle {
    pub fn new() -> Middle {
        let netns = Netns::create("faulty").unwrap();
        netns.sysctl("net.ipv6.conf.default.disable_ipv6", "1").unwrap();
        let end = |name, mac| VethEnd { netns: &netns, name, mac: Some(mac), addresses: &[] };
        veth(end("from0", FROM_MAC), end("in0", "02:be:00:00:04:03")).unwrap();
        veth(end("out0", "02:be:00:00:04:04"), end("to0", TO_MAC)).unwrap();
        // NAPI on the device that live frames are redirected to.
        netns.run("ethtool", ["-K", "in0", "gro", "on"]).unwrap();
        let index = |name| netns.ifindex(name).unwrap();
        let (from, inside, outside, to) = (index("from0"), index("in0"), index("out0"), index("to0"));
        let mut receiver = Receiver::load(1 << 16).unwrap();
        receiver.attach(Device::new(&netns, to), Role::Judge, Target::XdpNative).unwrap();
        let addresses = Addresses::of_link(mac(FROM_MAC).unwrap(), mac(TO_MAC).unwrap());
        Middle { netns, receiver, addresses, from, inside, outside }
    }

    pub fn order(&self, flows: u32) -> Order {
        Order::new(self.addresses, flows)
    }

    /// Sends an order through the device. `fate` is asked for every frame, by its number from 0.
    pub fn run(&mut self, order: &Order, fate: impl Fn(usize) -> Fate + Sync) -> (Sent, Received) {
        self.receiver.expect(order.flows, true).unwrap();
        let (ready, over) = (AtomicBool::new(false), AtomicBool::new(false));
        let (netns, inside, outside, from) = (&self.netns, self.inside, self.outside, self.from);
        let sent = thread::scope(|scope| {
            let device = scope.spawn(|| {
                netns.enter(|| {
                    let (input, mut output) = (listen(inside), PacketSocket::open(outside).unwrap());
                    ready.store(true, Ordering::Release);
                    forward(&input, &mut output, &fate, &over)
                })
            });
            while !ready.load(Ordering::Acquire) {
                thread::sleep(Duration::from_millis(1));
            }
            let sent = Generator::load().unwrap().send(Device::new(netns, from), order).unwrap();
            thread::sleep(Duration::from_millis(300));
            over.store(true, Ordering::Release);
            let taken = device.join().unwrap().unwrap();
            assert_eq!(taken, sent.frames as usize, "the device itself lost frames: the test says nothing");
            sent
        });
        self.receiver.settle(sent.frames);
        (sent, self.receiver.report(sent.frames))
    }
}

fn listen(ifindex: u32) -> OwnedFd {
    let input = socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, None).unwrap();
    setsockopt(&input, RcvBufForce, &(256 << 20)).unwrap();
    setsockopt(&input, ReceiveTimeout, &TimeVal::milliseconds(1)).unwrap();
    bind(&input, ifindex, ETH_P_ALL).unwrap();
    input
}

/// A frame that waits: for so many others, or for a time.
struct Waiting {
    frame: Vec<u8>,
    after: usize,
    due: Instant,
}

fn forward(
    input: &OwnedFd,
    output: &mut PacketSocket,
    fate: &(impl Fn(usize) -> Fate + Sync),
    over: &AtomicBool,
) -> usize {
    let mut buffer = [0; 2048];
    let (mut number, mut waiting): (usize, Vec<Waiting>) = (0, vec![]);
    while !over.load(Ordering::Acquire) {
        let now = Instant::now();
        let (ready, rest) =
            waiting.into_iter().partition(|frame: &Waiting| number > frame.after && now >= frame.due);
        waiting = rest;
        for frame in ready {
            output.send_all(&[&frame.frame]).unwrap();
        }
        let Ok(length) = recv(input.as_raw_fd(), &mut buffer, MsgFlags::empty()) else { continue };
        let mut frame = buffer[..length].to_vec();
        match fate(number) {
            Fate::Pass => output.send_all(&[&frame]).unwrap(),
            Fate::Drop => {}
            Fate::Double => output.send_all(&[&frame, &frame]).unwrap(),
            Fate::HoldBack(frames) => waiting.push(Waiting { frame, after: number + frames, due: now }),
            // it was waited for
            Fate::Delay(time) => waiting.push(Waiting { frame, after: 0, due: Instant::now() + time }),
            Fate::Corrupt => send_changed(output, &mut frame, 52, false),
            Fate::CorruptWell => send_changed(output, &mut frame, 100, true),
            Fate::CorruptHeader => send_changed(output, &mut frame, 27, false),
        }
        number += 1;
    }
    number
}

fn send_changed(output: &mut PacketSocket, frame: &mut [u8], at: usize, well: bool) {
    frame[at] ^= 4;
    if well {
        set_udp_check(frame);
    }
    output.send_all(&[frame]).unwrap();
}
