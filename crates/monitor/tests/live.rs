//! The live tap on a veth pair between two namespaces. Needs root.

#![allow(unsafe_code, reason = "sending frames through a packet socket")]

use crate::packets;

use std::collections::HashSet;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::sched::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use nix::unistd::Pid;
use packets::*;
use sluice_lab::devices;
use sluice_lab::netns::{Netns, VethEnd, veth};
use sluice_monitor::analysis::{Control, Options, analyze};
use sluice_monitor::capture::{self, CaptureError, Source};
use sluice_monitor::frame::Batch;
use sluice_monitor::protocol;
use sluice_monitor::summary::{Sink, Summary, Update};

const IPV4: u16 = 0x0800;
/// Frames that a veth holds until its receiver has a turn.
const BURST: usize = 32;

/// A sender, a listener, and the wire between them.
struct Wire {
    sender: OwnedFd,
    listener: Netns,
    other: Netns,
}

impl Wire {
    fn new() -> Wire {
        let (left, right) = (Netns::create("send").unwrap(), Netns::create("tap").unwrap());
        let end = |netns, name| VethEnd { netns, name, mac: None, addresses: &[] };
        veth(end(&left, "out0"), end(&right, "tap0")).unwrap();
        // Nothing but the test's frames: no IPv6, so no router solicitations and no multicast reports.
        for (netns, name) in [(&left, "out0"), (&right, "tap0")] {
            netns.sysctl(&format!("net.ipv6.conf.{name}.disable_ipv6"), "1").unwrap();
        }
        let index = left.ifindex("out0").unwrap();
        let sender = left.enter(move || packet_socket(index)).unwrap();
        Wire { sender, listener: right, other: left }
    }

    /// Frames that the veth has dropped since its receiver had no turn: nobody behind it can know of them.
    fn lost(&self) -> u64 {
        devices::count(&self.other, "out0", "tx/dropped").unwrap()
    }

    /// A second pair between the same namespaces: what is sent by the wire that is returned comes on `tap1`.
    fn second(&self) -> OwnedFd {
        let end = |netns, name| VethEnd { netns, name, mac: None, addresses: &[] };
        veth(end(&self.other, "out1"), end(&self.listener, "tap1")).unwrap();
        for (netns, name) in [(&self.other, "out1"), (&self.listener, "tap1")] {
            netns.sysctl(&format!("net.ipv6.conf.{name}.disable_ipv6"), "1").unwrap();
        }
        let index = self.other.ifindex("out1").unwrap();
        self.other.enter(move || packet_socket(index)).unwrap()
    }

    /// Both taps side by side.
    fn both(&self) -> Box<dyn Source> {
        let names = ["tap0".to_owned(), "tap1".to_owned()];
        self.listener.enter(move || capture::open_all(&names, false)).unwrap().unwrap()
    }

    fn tap(&self) -> Box<dyn Source> {
        self.listener.enter(|| capture::open("tap0")).unwrap().unwrap()
    }

    /// From one CPU: on another one a packet socket goes on in another queue of the device, and queues have no order
    /// among them.
    fn send(&self, frames: impl IntoIterator<Item = Vec<u8>>) {
        let (this, mut here) = (Pid::from_raw(0), CpuSet::new());
        let before = sched_getaffinity(this).unwrap();
        here.set(sched_getcpu().unwrap()).unwrap();
        sched_setaffinity(this, &here).unwrap();
        for (number, frame) in frames.into_iter().enumerate() {
            send_one(&self.sender, &frame);
            if number % BURST == BURST - 1 {
                std::thread::yield_now();
            }
        }
        sched_setaffinity(this, &before).unwrap();
    }

    /// One frame many times, as fast as a core can: many a call, past the queueing discipline.
    fn flood(&self, frame: &[u8], count: usize) {
        let on: i32 = 1;
        let length = size_of_val(&on) as libc::socklen_t;
        let (level, name) = (libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS);
        // SAFETY: pointer and length describe `on`.
        let set =
            unsafe { libc::setsockopt(self.sender.as_raw_fd(), level, name, (&raw const on).cast(), length) };
        assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
        let mut part = libc::iovec { iov_base: frame.as_ptr().cast_mut().cast(), iov_len: frame.len() };
        // SAFETY: all-zero bytes are a valid mmsghdr.
        let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
        message.msg_hdr.msg_iov = &raw mut part;
        message.msg_hdr.msg_iovlen = 1;
        let mut messages = [message; BURST];
        for _ in 0..count / BURST {
            let (fd, first) = (self.sender.as_raw_fd(), messages.as_mut_ptr());
            // SAFETY: the messages and what they point to live until the call returns, which only reads the frame.
            let sent = unsafe { libc::sendmmsg(fd, first, BURST as u32, 0) };
            assert_eq!(sent, BURST as i32, "{}", std::io::Error::last_os_error());
        }
    }
}

fn packet_socket(index: u32) -> OwnedFd {
    // SAFETY: no pointers; the descriptor is ours. All-zero bytes are a valid sockaddr_ll.
    let (socket, mut address): (OwnedFd, libc::sockaddr_ll) = unsafe {
        let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
        assert!(fd >= 0, "{}", std::io::Error::last_os_error());
        (OwnedFd::from_raw_fd(fd), std::mem::zeroed())
    };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_ifindex = index as i32;
    // SAFETY: pointer and length describe `address`.
    let bound = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            size_of::<libc::sockaddr_ll>() as libc::socklen_t,
        )
    };
    assert_eq!(bound, 0, "{}", std::io::Error::last_os_error());
    socket
}

fn send_one(socket: &OwnedFd, frame: &[u8]) {
    // SAFETY: pointer and length describe `frame`.
    let sent = unsafe { libc::send(socket.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
    assert_eq!(sent, frame.len() as isize, "{}", std::io::Error::last_os_error());
}

fn esp_frame(sequence: u32, payload: usize) -> Vec<u8> {
    eth(IPV4, &ip4(50, &esp(0x77, sequence, &vec![sequence as u8; payload])))
}

/// Reads until `wanted` frames came, or a second passed without any.
fn collect(tap: &mut dyn Source, wanted: usize) -> Vec<(u64, u32, Vec<u8>)> {
    let (mut batch, mut all) = (Batch::default(), vec![]);
    let mut last = Instant::now();
    while all.len() < wanted && last.elapsed() < Duration::from_secs(1) {
        assert!(tap.next_batch(&mut batch).unwrap());
        if !batch.is_empty() {
            last = Instant::now();
            assert_eq!(batch.first_number(), all.len() as u64 + 1);
        }
        all.extend(batch.frames().map(|frame| (frame.time_ns, frame.wire_len, frame.data.to_vec())));
    }
    all
}

fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64
}

#[test]
fn a_hundred_thousand_frames_are_counted_exactly() {
    let wire = Wire::new();
    let mut tap = wire.tap();
    let frames = 100_000;
    let reader = std::thread::scope(|scope| {
        let reader = scope.spawn(|| collect(&mut *tap, frames));
        wire.send((0..frames as u32).map(|sequence| esp_frame(sequence, 24)));
        reader.join().unwrap()
    });
    assert_eq!(tap.drops(), 0, "the capture's own losses");
    assert_eq!(reader.len() as u64 + wire.lost(), frames as u64);
    if reader.len() == frames {
        for (number, (_, wire_len, data)) in reader.iter().enumerate() {
            assert_eq!(*data, esp_frame(number as u32, 24));
            assert_eq!(*wire_len as usize, data.len());
        }
    }
    assert_eq!(tap.progress().0, (reader.len() * esp_frame(0, 24).len()) as u64);
}

#[test]
fn times_are_those_of_the_kernel() {
    let wire = Wire::new();
    let mut tap = wire.tap();
    let before = now_ns();
    wire.send([esp_frame(1, 24)]);
    let after = now_ns();
    std::thread::sleep(Duration::from_millis(100));
    let frames = collect(&mut *tap, 1);
    assert!((before..=after).contains(&frames[0].0), "{before} {} {after}", frames[0].0);
    // A silent wire gives the word back.
    let mut batch = Batch::default();
    assert!(tap.next_batch(&mut batch).unwrap());
    assert!(batch.is_empty());
}

/// The kernel takes the outer tag off before anyone sees the frame.
#[test]
fn vlan_tags_are_where_they_were() {
    let wire = Wire::new();
    let mut tap = wire.tap();
    let packet = ip4(50, &esp(0x77, 5, &[0x5a; 24]));
    let frames = [
        eth(0x8100, &tag(0xa064, IPV4, &packet)),
        eth(0x88a8, &tag(200, 0x8100, &tag(100, IPV4, &packet))),
        eth(0x8100, &tag(0, IPV4, &packet)),
        eth(IPV4, &packet),
    ];
    wire.send(frames.clone());
    let seen = collect(&mut *tap, frames.len());
    for (seen, frame) in seen.iter().zip(&frames) {
        assert_eq!(seen.2, *frame, "as it was on the wire");
        assert_eq!(seen.1 as usize, frame.len());
    }
    let names: Vec<_> = seen.iter().map(|frame| observe(&frame.2).unwrap().key.to_string()).collect();
    let name = "esp 10.0.0.1 > 10.0.0.2 SPI 0x00000077";
    assert_eq!(names, [format!("{name} vlan 100"), format!("{name} vlan 200.100"), name.into(), name.into()]);
}

/// Frames for other stations than the tap's.
#[test]
fn the_tap_is_promiscuous() {
    let wire = Wire::new();
    let flags = || wire.listener.ip("-d link show tap0");
    assert!(flags().unwrap().contains("promiscuity 0"));
    let tap = wire.tap();
    assert!(flags().unwrap().contains("promiscuity 1"));
    drop(tap);
    assert!(flags().unwrap().contains("promiscuity 0"), "as before");
}

/// By AF_XDP as well: the network card filters before any program sees a frame.
#[test]
fn a_declared_tap_is_promiscuous() {
    let wire = Wire::new();
    let flags = || wire.listener.ip("-d link show tap0").unwrap();
    assert!(flags().contains("promiscuity 0"));
    let tap = wire.listener.enter(|| capture::open("xdp:tap0")).unwrap().unwrap();
    assert!(flags().contains("promiscuity 1"), "{}", flags());
    drop(tap);
    assert!(flags().contains("promiscuity 0"), "as before");
}

/// A packet socket on the loopback device sees each frame as it goes and as it comes.
#[test]
fn a_frame_on_the_loopback_device_is_one() {
    let wire = Wire::new();
    wire.listener.ip("link set lo up").unwrap();
    let mut tap = wire.listener.enter(|| capture::open("lo")).unwrap().unwrap();
    let sent = wire.listener.enter(|| {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        (0..10).all(|_| socket.send_to(&[0x5a; 32], "127.0.0.1:4500").is_ok())
    });
    assert!(sent.unwrap());
    let udp = |frame: &(u64, u32, Vec<u8>)| frame.2.get(23) == Some(&17);
    assert_eq!(collect(&mut *tap, 30).iter().filter(|frame| udp(frame)).count(), 10);
}

/// What the ring cannot hold is counted, frame by frame.
#[test]
fn the_captures_own_losses_are_named() {
    let wire = Wire::new();
    let mut tap = wire.tap();
    let frames = 80_000;
    wire.send((0..frames).map(|sequence| esp_frame(sequence, 1400)));
    let seen = collect(&mut *tap, frames as usize);
    assert!(tap.drops() > 1000, "{} of {frames} did not fit", tap.drops());
    assert_eq!(seen.len() as u64 + tap.drops(), u64::from(frames));
    let sequences: HashSet<_> = seen.iter().map(|frame| observe(&frame.2).unwrap().sequence).collect();
    assert_eq!(sequences.len(), seen.len(), "none came twice");
}

/// Keeps nothing but the end.
#[derive(Default)]
struct Keep {
    lost: i64,
}

impl Sink for Keep {
    fn update(&mut self, update: Update) -> anyhow::Result<()> {
        self.lost += update.deltas.iter().map(|delta| delta.counts.lost).sum::<i64>();
        Ok(())
    }

    fn finish(&mut self, _: &Summary) -> anyhow::Result<()> {
        Ok(())
    }
}

#[test]
fn planted_loss_is_found_on_a_live_wire() {
    let wire = Wire::new();
    let mut tap = wire.tap();
    let planted: HashSet<u32> =
        (10..100_000).filter(|number| number % 997 == 0 || number % 9973 < 3).collect();
    let sent = 100_000 - 1 - planted.len();
    let (control, mut sink) = (Control::default(), Keep::default());
    let summary = std::thread::scope(|scope| {
        let run = scope.spawn(|| analyze(&mut *tap, &Options::default(), &mut sink, &control));
        wire.send(
            (1..100_000).filter(|number| !planted.contains(number)).map(|number| esp_frame(number, 24)),
        );
        let start = Instant::now();
        while control.frames.load(Ordering::Relaxed) < sent as u64 && start.elapsed() < Duration::from_secs(5)
        {
            std::thread::sleep(Duration::from_millis(10));
        }
        control.stop.store(true, Ordering::Relaxed);
        run.join().unwrap().unwrap()
    });
    assert_eq!((summary.frames, summary.capture_drops), (sent as u64, 0));
    assert_eq!((summary.counts.lost, sink.lost), (planted.len() as i64, planted.len() as i64));
    assert_eq!(summary.counts.late + summary.counts.duplicates + summary.counts.stray, 0);
    assert_eq!(summary.partial, None, "a live watch has no other end than being stopped");
    assert!(summary.unknown.is_empty(), "{:?}", summary.unknown);
}

/// A tap that is declared for AF_XDP takes the frames: all of them, whole, and away from everybody else.
#[test]
fn a_declared_tap_takes_frames_by_af_xdp() {
    let wire = Wire::new();
    let mut beside = wire.tap();
    let mut tap = wire.listener.enter(|| capture::open("xdp:tap0")).unwrap().unwrap();
    let frames = 100_000;
    let seen = std::thread::scope(|scope| {
        let reader = scope.spawn(|| collect(&mut *tap, frames));
        wire.send((0..frames as u32).map(|sequence| esp_frame(sequence, 24)));
        reader.join().unwrap()
    });
    let lost = tap.drops() + wire.lost();
    assert_eq!(seen.len() as u64 + lost, frames as u64, "every loss is named");
    if lost == 0 {
        for (number, (_, wire_len, data)) in seen.iter().enumerate() {
            assert_eq!((data, *wire_len as usize), (&esp_frame(number as u32, 24), data.len()));
        }
    }
    assert!(collect(&mut *beside, 1).is_empty(), "the frames were taken");
    drop(tap);
    wire.send([esp_frame(7, 24)]);
    assert_eq!(collect(&mut *beside, 1).len(), 1, "and are not any more");
    let missing = wire.listener.enter(|| capture::open("xdp:nothing").err().unwrap()).unwrap();
    assert!(matches!(&missing, CaptureError::NoInterface { .. }), "{missing}");
}

#[test]
fn an_interface_that_goes_is_an_error_in_words() {
    let wire = Wire::new();
    let mut tap = wire.tap();
    wire.send([esp_frame(1, 24)]);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(collect(&mut *tap, 1).len(), 1);
    wire.listener.ip("link del tap0").unwrap();
    let mut batch = Batch::default();
    let error = (0..10).find_map(|_| tap.next_batch(&mut batch).err()).expect("it is gone");
    assert!(error.is_partial() && error.to_string().starts_with("tap0: "), "{error}");
    let missing = wire.listener.enter(|| capture::open("tap0").err().unwrap()).unwrap();
    assert!(matches!(&missing, CaptureError::NoInterface { known, .. } if known == "lo"), "{missing}");
}

/// Members of an aggregated link: one frame here, the next one there.
#[test]
fn frames_of_several_interfaces_come_in_the_order_of_their_times() {
    let wire = Wire::new();
    let second = wire.second();
    let mut taps = wire.both();
    let frames = 2000u32;
    let seen = std::thread::scope(|scope| {
        let reader = scope.spawn(|| collect(&mut *taps, frames as usize));
        for number in 0..frames {
            send_one(if number % 2 == 0 { &wire.sender } else { &second }, &esp_frame(number, 24));
            if number % 20 == 0 {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        reader.join().unwrap()
    });
    assert_eq!((seen.len(), taps.drops()), (frames as usize, 0));
    assert!(
        seen.is_sorted_by_key(|frame| frame.0),
        "{} steps back",
        seen.windows(2).filter(|two| two[1].0 < two[0].0).count()
    );
}

/// Nothing comes on the second interface: the first one's frames must not wait for that.
#[test]
fn a_silent_interface_does_not_hold_up_the_other() {
    let wire = Wire::new();
    let second = wire.second();
    let mut taps = wire.both();
    let (frames, mut empty) = (20_000, 0);
    wire.send((0..frames).map(|sequence| esp_frame(sequence, 1400)));
    let wanted = u64::from(frames) - wire.lost();
    let (mut batch, mut seen) = (Batch::default(), 0);
    while seen < wanted && empty < 100 {
        assert!(taps.next_batch(&mut batch).unwrap());
        empty += usize::from(batch.is_empty());
        assert!(batch.is_empty() || batch.first_number() == seen + 1);
        assert!(batch.frames().all(|frame| frame.interface == 0));
        seen += batch.len() as u64;
    }
    assert_eq!((seen, taps.drops()), (wanted, 0));
    assert!(empty <= 2, "{empty} waits for the silent interface");
    send_one(&second, &esp_frame(7, 24));
    let interfaces = (0..20).find_map(|_| {
        assert!(taps.next_batch(&mut batch).unwrap());
        batch.frames().next().map(|frame| frame.interface)
    });
    assert_eq!(interfaces, Some(1));
}

#[test]
fn an_interface_that_goes_beside_a_busy_one_is_an_error_in_words() {
    let wire = Wire::new();
    let _second = wire.second();
    let mut taps = wire.both();
    wire.listener.ip("link del tap1").unwrap();
    let (mut batch, start) = (Batch::default(), Instant::now());
    let error = loop {
        wire.send((0..2000).map(|sequence| esp_frame(sequence, 1400)));
        if let Err(error) = taps.next_batch(&mut batch) {
            break error;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "it is gone");
    };
    assert!(error.is_partial() && error.to_string().starts_with("tap1: "), "{error}");
}

/// What the tap takes when frames come as fast as one core can send them. Run with
/// `cargo test --release -p sluice-monitor --test all live:: -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement: needs a release build and a quiet machine"]
fn live_rate() {
    let wire = Wire::new();
    let mut tap = wire.tap();
    let frames = 2_000_000usize;
    assert_eq!(frames % BURST, 0);
    let (mut seen, mut observed) = (0, 0);
    let start = Instant::now();
    let mut end = start;
    std::thread::scope(|scope| {
        scope.spawn(|| wire.flood(&esp_frame(1, 24), frames));
        let mut batch = Batch::default();
        while seen as u64 + tap.drops() < frames as u64 && end.elapsed() < Duration::from_secs(2) {
            assert!(tap.next_batch(&mut batch).unwrap());
            seen += batch.len();
            observed += batch.frames().filter(|frame| protocol::observe(frame).is_ok()).count();
            if !batch.is_empty() {
                end = Instant::now();
            }
        }
    });
    let mpps = frames as f64 / (end - start).as_secs_f64() / 1e6;
    println!("{mpps:.2} Mpps sent, {seen} seen, {} dropped by the capture", tap.drops());
    assert_eq!(observed, seen);
    assert_eq!(seen as u64 + tap.drops(), frames as u64, "every loss is named");
}
