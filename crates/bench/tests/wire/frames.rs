//! What leaves the generator, and how fast.

use std::collections::HashSet;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use sluice_bench::generator::wire::frame::{RFC2544_SIZES, build, stride, tuple};
use sluice_bench::generator::wire::generator::Tempo;
use sluice_bench::generator::wire::pair::{Pair, mac};
use sluice_bench::generator::wire::pcap;
use sluice_bench::generator::wire::receiver::Role;
use sluice_bench::generator::wire::socket::{self, Kind, PacketSocket};
use sluice_bench::generator::wire::{Addresses, Device, Generator, Order, Size};
use sluice_lab::netns::{Netns, VethEnd, veth};

fn sizes() -> impl Iterator<Item = Size> {
    RFC2544_SIZES.map(Size::Bytes).into_iter().chain([Size::Imix])
}

#[test]
fn frames_of_every_size_come_whole_once_and_in_order() {
    let _alone = crate::alone();
    let mut pair = Pair::veth(Role::Judge).unwrap();
    for size in sizes() {
        for order in [pair.order(1000).size(size), pair.order(1000).size(size).stamped()] {
            let (sent, received) = pair.exchange(&order.limit(12_000)).unwrap();
            assert!(received.is_perfect() && received.corrupt() == 0, "{size:?} {received:?}");
            assert_eq!(received.bytes, sent.bytes);
            assert_eq!(
                sent.bytes,
                1000 * size.lengths().iter().map(|len| u64::from(*len)).sum::<u64>() * 12
                    / size.lengths().len() as u64
            );
        }
    }
}

#[test]
fn a_repeated_frame_is_told_from_distinct_ones() {
    let _alone = crate::alone();
    let mut pair = Pair::veth(Role::Judge).unwrap();
    let (_, received) = pair.exchange(&pair.order(1000).repeated().limit(5000)).unwrap();
    assert_eq!((received.received, received.distinct, received.duplicates), (5000, 1, 4999));
}

#[test]
fn requested_rates_are_held() {
    let _alone = crate::alone();
    let mut pair = Pair::veth(Role::Judge).unwrap();
    for rate in [10e3, 100e3, 777_777.0] {
        let order = pair.order(100).stamped().rate(rate).limit((rate * 0.4) as u64);
        // A machine that is busy with something else may need a second try.
        let held = (0..5).any(|_| {
            let (sent, received) = pair.exchange(&order).unwrap();
            assert!(received.is_perfect(), "{received:?}");
            let arrived = (received.received - 1) as f64 / received.seconds;
            (arrived / rate - 1.0).abs() < 0.01 && (sent.rate() / rate - 1.0).abs() < 0.01
        });
        assert!(held, "{rate}");
    }
}

#[test]
fn distinct_frames_cost_little_more_than_one_repeated() {
    let _alone = crate::alone();
    let mut pair = Pair::veth(Role::Drop).unwrap();
    let (settle, window) = (Duration::from_millis(50), Duration::from_millis(150));
    let mut ratios: Vec<f64> = (0..7)
        .map(|_| {
            let [floor, distinct] = [pair.order(1 << 20).repeated(), pair.order(1 << 20)].map(|order| {
                let found = pair.window(&order, settle, window).unwrap();
                assert_eq!(found.all.sent, found.all.received);
                found.received_pps
            });
            distinct / floor
        })
        .collect();
    ratios.sort_by(f64::total_cmp);
    assert!(ratios[3] > 0.8, "distinct frames reach {ratios:?} of the kernel's own rate");
}

#[test]
fn sockets_send_the_same_frames() {
    let _alone = crate::alone();
    let mut pair = Pair::veth(Role::Judge).unwrap();
    for kind in [Kind::Packet, Kind::Xdp] {
        for size in [64, 1518] {
            let order = pair.order(50).size(Size::Bytes(size)).stamped().limit(10_000);
            pair.receiver.expect(50, true).unwrap();
            let device = Device { netns: pair.netns(), ifindex: pair.from };
            let sent = socket::send(kind, device, &order, Duration::from_secs(20)).unwrap();
            pair.receiver.settle(sent.frames);
            let received = pair.receiver.report(sent.frames);
            assert!(sent.frames == 10_000 && received.is_perfect(), "{kind:?} {size} {received:?}");
            assert_eq!(received.latency.count(), 10_000);
        }
    }
}

#[test]
fn a_capture_is_played_once() {
    let _alone = crate::alone();
    let mut pair = Pair::veth(Role::Judge).unwrap();
    let lengths = Size::Imix.lengths();
    let frame = |i: u32| build(&pair.addresses, lengths[i as usize % 12], i % 100, i / 100, 0);
    let records: Vec<_> = (0..2000).map(|i| (Duration::from_micros(100 * u64::from(i)), frame(i))).collect();
    let records = pcap::parse(&pcap::write(&records)).unwrap();
    let mut generator = Generator::of_capture(&records).unwrap();
    for tempo in [Tempo::AsFastAsItGoes, Tempo::Recorded] {
        pair.receiver.expect(100, true).unwrap();
        let device = Device { netns: pair.netns(), ifindex: pair.from };
        let sent = generator.replay(device, 2000, tempo).unwrap().finish(Duration::from_secs(20)).unwrap();
        pair.receiver.settle(2000);
        let received = pair.receiver.report(2000);
        assert!(received.is_perfect() && sent.frames == 2000, "{received:?}");
        if tempo == Tempo::Recorded {
            assert!((0.199..0.3).contains(&sent.seconds), "{} s of 0.2", sent.seconds);
        }
    }
    pair.receiver.expect(100, true).unwrap();
    let device = Device { netns: pair.netns(), ifindex: pair.from };
    let frames: Vec<&[u8]> = records.iter().map(|(_, frame)| &frame[..]).collect();
    device.enter(|| PacketSocket::open(device.ifindex).unwrap().send_all(&frames).unwrap()).unwrap();
    pair.receiver.settle(2000);
    assert!(pair.receiver.report(2000).is_perfect());
}

/// Rate, fields and checksums, by somebody who shares no line with us.
#[test]
fn a_capture_of_others_agrees() {
    let _alone = crate::alone();
    const RATE: f64 = 10_000.0;
    let netns = Netns::create("judge").unwrap();
    netns.sysctl("net.ipv6.conf.default.disable_ipv6", "1").unwrap();
    let end = |name, mac| VethEnd { netns: &netns, name, mac: Some(mac), addresses: &[] };
    let (from, to) = ("02:be:00:00:05:01", "02:be:00:00:05:02");
    veth(end("from0", from), end("to0", to)).unwrap();
    netns.run("ethtool", ["-K", "to0", "gro", "on"]).unwrap();
    let addresses = Addresses::of_link(mac(from).unwrap(), mac(to).unwrap());
    // A capture under load is late by turns; over 0.4 s that is a few milliseconds, and on a busy machine more.
    let mut rates = vec![];
    let held = (0..5).any(|_| {
        let Some(lines) = captured(&netns, &addresses, RATE) else { return false };
        judge(&lines, &addresses);
        let time = |line: &[String]| line[0].parse::<f64>().unwrap();
        rates.push((lines.len() - 1) as f64 / (time(&lines[lines.len() - 1]) - time(&lines[0])));
        (rates[rates.len() - 1] / RATE - 1.0).abs() < 0.02
    });
    assert!(held, "the captures say {rates:?} frames a second, not {RATE}");
}

/// None when the capture did not get everything, as happens to it under load.
fn captured(netns: &Netns, addresses: &Addresses, rate: f64) -> Option<Vec<Vec<String>>> {
    const FRAMES: u64 = 4000;
    let file = std::env::temp_dir().join(format!("sluice-wire-{}.pcap", std::process::id()));
    let mut capture = netns
        .command("tcpdump")
        .args(["-i", "to0", "-U", "--immediate-mode", "-B", "65536", "-c", &FRAMES.to_string(), "-w"])
        .arg(&file)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("scripts/setup.sh installs tcpdump");
    // Its file's header says that it listens.
    let deadline = Instant::now() + Duration::from_secs(10);
    while std::fs::metadata(&file).map_or(0, |file| file.len()) == 0 {
        assert!(Instant::now() < deadline, "tcpdump does not start");
        thread::sleep(Duration::from_millis(20));
    }
    thread::sleep(Duration::from_millis(100));
    let order = Order::new(*addresses, 1500).stamped().size(Size::Imix).rate(rate).limit(FRAMES);
    let device = Device::new(netns, netns.ifindex("from0").unwrap());
    let sent = Generator::load().unwrap().send(device, &order).unwrap();
    assert_eq!(sent.frames, FRAMES);
    let deadline = Instant::now() + Duration::from_secs(3);
    while capture.try_wait().unwrap().is_none() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(20));
    }
    // It has ended unless frames are missing.
    let _ = capture.kill();
    let complete = capture.wait().unwrap().success();
    let lines = fields(&file);
    std::fs::remove_file(&file).unwrap();
    complete.then(|| {
        assert_eq!(lines.len(), FRAMES as usize);
        lines
    })
}

fn fields(file: &std::path::Path) -> Vec<Vec<String>> {
    const FIELDS: &str = "frame.time_epoch frame.len eth.dst eth.src ip.src ip.dst ip.ttl ip.checksum.status udp.srcport \
        udp.dstport udp.checksum.status udp.length ip.flags.df";
    let mut command = Command::new("tshark");
    command
        .args(["-n", "-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE", "-T", "fields", "-r"])
        .arg(file);
    for field in FIELDS.split_whitespace() {
        command.args(["-e", field]);
    }
    let output = command.output().expect("scripts/setup.sh installs tshark");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
}

fn judge(lines: &[Vec<String>], addresses: &Addresses) {
    const GOOD: &str = "1";
    let lengths = Size::Imix.lengths();
    let dotted = |ip: [u8; 4]| ip.map(|byte| byte.to_string()).join(".");
    for (i, line) in lines.iter().enumerate() {
        let flow = (i as u64 * u64::from(stride(1500)) % 1500) as u32;
        let (source, destination, sport, dport) = tuple(addresses, flow);
        let length = lengths[i % lengths.len()];
        let expected = [
            length.to_string(),
            "02:be:00:00:05:02".to_owned(),
            "02:be:00:00:05:01".to_owned(),
            dotted(source),
            dotted(destination),
            "64".to_owned(),
            GOOD.to_owned(),
            sport.to_string(),
            dport.to_string(),
            GOOD.to_owned(),
            (length - 34).to_string(),
        ];
        assert_eq!(line[1..12], expected, "frame {i}");
        assert!(["1", "True"].contains(&line[12].as_str()), "{line:?}");
    }
    let flows: HashSet<_> = lines.iter().map(|line| (&line[4], &line[5], &line[8], &line[9])).collect();
    assert_eq!(flows.len(), 1500);
}

/// A veth whose other end does not poll drops what XDP gives it, and the kernel calls that sent.
#[test]
fn a_replay_that_the_device_drops_fails_and_names_the_socket() {
    let netns = Netns::create("replay").unwrap();
    netns.sysctl("net.ipv6.conf.default.disable_ipv6", "1").unwrap();
    let end = |name| VethEnd { netns: &netns, name, mac: None, addresses: &[] };
    veth(end("here0"), end("there0")).unwrap();
    let capture = std::env::temp_dir().join(format!("sluice-bench-replay-{}.pcap", std::process::id()));
    let records: Vec<pcap::Record> = (0..100).map(|n| (Duration::from_micros(n), vec![7; 60])).collect();
    std::fs::write(&capture, pcap::write(&records)).unwrap();
    let replay = |socket| {
        let device = "here0".to_owned();
        let args = pcap::ReplayArgs { capture: capture.clone(), device, recorded: false, socket };
        netns.enter(|| pcap::command(&args).map_err(|error| format!("{error:#}"))).unwrap()
    };
    let said = replay(false).unwrap_err();
    assert!(said.contains("here0 counts 0 of 100 packets") && said.contains("--socket"), "{said}");
    replay(true).unwrap();
    netns.run("ethtool", ["-K", "there0", "gro", "on"]).unwrap();
    replay(false).unwrap();
    std::fs::remove_file(&capture).unwrap();
}
