//! Generated captures: the same bytes for the same seed, and valid for tshark, which finds the same losses.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use sluice_monitor::capture::Source;
use sluice_monitor::frame::Batch;
use sluice_monitor::generate::truth::{Event, Kind};
use sluice_monitor::generate::{Generator, Mix, Options, OptionsError, Size, Synthetic, Truth, generate};
use sluice_monitor::observation::Protocol;

const ALL: [Mix; 4] = [Mix::Macsec, Mix::Ipsec, Mix::Mixed, Mix::Gtpu];

fn faulty(protocol: Mix, packets: u64, flows: u32) -> Options {
    Options {
        packets,
        flows,
        protocol,
        loss: 0.02,
        reorder: 0.02,
        duplicate: 0.01,
        replay: 0.01,
        rekey: if protocol == Mix::Gtpu { 0 } else { 150 },
        ..Options::default()
    }
}

fn read_truth(path: &Path) -> Truth {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// All frames, and the truth.
fn in_memory(options: Options) -> (Vec<(u64, Vec<u8>)>, Truth) {
    let mut source = Synthetic::new(options).unwrap();
    let (mut frames, mut batch) = (Vec::new(), Batch::default());
    loop {
        let more = source.next_batch(&mut batch).unwrap();
        frames.extend(batch.frames().map(|frame| (frame.time_ns, frame.data.to_vec())));
        if !more {
            return (frames, source.truth());
        }
    }
}

#[test]
fn the_same_seed_makes_the_same_bytes() {
    let directory = tempfile::tempdir().unwrap();
    for protocol in ALL {
        let make = |name: &str, seed| {
            let path = directory.path().join(name);
            let made = generate(Options { seed, ..faulty(protocol, 20_000, 8) }, &path).unwrap();
            (std::fs::read(&path).unwrap(), std::fs::read(made.truth).unwrap())
        };
        let (first, again, other) = (make("a.pcap", 7), make("b.pcap", 7), make("c.pcap", 8));
        assert!(first == again, "{protocol:?}: seed 7 twice");
        assert!(first.0 != other.0 && first.1 != other.1, "{protocol:?}: another seed");
    }
}

/// Guards the bytes themselves: a seed that is quoted in a report must mean the same capture later.
#[test]
fn a_seed_means_the_same_capture_in_every_version() {
    let (frames, _) = in_memory(faulty(Mix::Mixed, 5000, 16));
    let mut digest = 0xcbf2_9ce4_8422_2325u64;
    for byte in
        frames.iter().flat_map(|(time_ns, data)| time_ns.to_le_bytes().into_iter().chain(data.clone()))
    {
        digest = (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    assert_eq!(format!("{digest:016x}"), "0b65c21f2f0b3598");
}

#[test]
fn the_written_truth_is_the_one_in_memory() {
    let directory = tempfile::tempdir().unwrap();
    for protocol in ALL {
        let path = directory.path().join("x.pcapng.zst");
        let made = generate(faulty(protocol, 30_000, 10), &path).unwrap();
        assert_eq!(made.truth, directory.path().join("x.truth.json"));
        let (frames, truth) = in_memory(faulty(protocol, 30_000, 10));
        let written = read_truth(&made.truth);
        assert!(written.command.contains("--packets 30000 --flows 10"), "{}", written.command);
        assert_eq!(Truth { command: String::new(), ..written }, truth);
        assert_eq!(frames.len(), 30_000);
    }
}

#[test]
fn sums_agree_with_events_and_shares_are_about_as_asked() {
    for protocol in ALL {
        let (frames, truth) = in_memory(Options { rekey: 0, ..faulty(protocol, 60_000, 10) });
        let rekeyed = in_memory(faulty(protocol, 60_000, 10)).1.totals.rekeys;
        assert_eq!(rekeyed > 50, protocol != Mix::Gtpu, "{protocol:?}: {rekeyed} rekeys");
        let count = |kind| truth.events.iter().filter(|event| event.kind == kind).count() as u64;
        let sum = |of: fn(&sluice_monitor::generate::truth::Channel) -> u64| {
            truth.channels.iter().map(of).sum::<u64>()
        };
        let totals = truth.totals;
        assert_eq!((totals.late, sum(|channel| channel.late)), (count(Kind::Late), count(Kind::Late)));
        assert_eq!(totals.duplicates, sum(|channel| channel.duplicates));
        assert_eq!(totals.replays, count(Kind::Replay));
        assert_eq!(totals.lost, sum(|channel| channel.lost));
        assert_eq!(totals.rekeys, count(Kind::Rekey));
        assert_eq!(totals.channels, truth.channels.len() as u64);
        let clear = truth.clear;
        let others = clear.arp + clear.icmp + clear.tcp + clear.udp + totals.ike + totals.keepalives;
        assert_eq!(others > 0, protocol == Mix::Mixed);
        assert_eq!(sum(|channel| channel.packets) + others, 60_000);
        assert_eq!(frames.iter().map(|(_, data)| data.len() as u64).sum::<u64>(), totals.bytes);
        for channel in &truth.channels {
            let fresh = channel.packets - channel.duplicates - channel.replays;
            assert_eq!(fresh + channel.lost, channel.last - channel.first + 1, "{}", channel.name);
        }
        let share = |part: u64| part as f64 / 60_000.0;
        for (name, is, asked) in [
            ("loss", share(totals.lost), 0.02),
            ("late", share(totals.late), 0.02),
            ("duplicate", share(totals.duplicates), 0.01),
            ("replay", share(totals.replays), 0.01),
        ] {
            assert!((asked * 0.5..asked * 1.3).contains(&is), "{protocol:?}: {name} {is} instead of {asked}");
        }
    }
}

#[test]
fn times_rise_and_keep_the_rate() {
    for rate in [1, 777, 1_000_000, 1_000_000_000] {
        let options = Options { rate: Some(rate), packets: 5000, ..Options::default() };
        let (frames, truth) = in_memory(options);
        assert!(frames.windows(2).all(|pair| pair[0].0 <= pair[1].0), "at {rate} packets/s");
        let span = truth.totals.last_ns - truth.totals.first_ns;
        let expected = 5000.0 * 1e9 / rate as f64;
        assert!((span as f64 / expected - 1.0).abs() < 0.01, "at {rate} packets/s: {span} ns");
    }
}

#[test]
fn what_cannot_be_made_is_refused() {
    let refused = |options| Generator::new(options).err().expect("refused");
    let base = Options { packets: 1000, ..Options::default() };
    assert_eq!(refused(Options { flows: 0, ..base.clone() }), OptionsError::Flows(0));
    assert_eq!(refused(Options { loss: 0.3, ..base.clone() }), OptionsError::Share("loss", 0.3));
    assert_eq!(refused(Options { rekey: 5, ..base.clone() }), OptionsError::Rekey(5));
    assert_eq!(refused(Options { rekey: 500, protocol: Mix::Gtpu, ..base.clone() }), OptionsError::NoKeys);
    assert_eq!(refused(Options { vlans: vec![0], ..base.clone() }), OptionsError::Vlans);
    assert!(matches!(
        refused(Options { replay: 0.1, rate: Some(1_000_000), ..base.clone() }),
        OptionsError::TooShortForReplay { .. }
    ));
    let error = generate(base, Path::new("x.txt")).unwrap_err().to_string();
    assert!(error.contains(".pcapng"), "{error}");
}

/// Rows of fields that tshark prints for the frames of a filter.
fn tshark(capture: &Path, filter: &str, fields: &[&str]) -> Vec<Vec<String>> {
    let mut command = Command::new("tshark");
    command.args(["-n", "-r"]).arg(capture).args([
        "-o",
        "ip.check_checksum:TRUE",
        "-o",
        "tcp.check_checksum:TRUE",
    ]);
    command.args(["-o", "udp.check_checksum:TRUE", "-Y", filter, "-T", "fields"]);
    fields.iter().for_each(|field| {
        command.args(["-e", field]);
    });
    let output = command.output().expect("tshark is installed (scripts/setup.sh)");
    assert!(output.status.success(), "tshark: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
}

fn captures(directory: &Path) -> Vec<(Mix, PathBuf, Truth)> {
    let sizes = [Size::Fixed(64), Size::Imix, Size::Imix, Size::Fixed(1500)];
    let vlans = [vec![100], vec![100, 200], vec![], vec![7]];
    let each = ALL.into_iter().zip(sizes).zip(vlans);
    each.map(|((protocol, size), vlans)| {
        let path = directory.join(format!("{protocol:?}.pcapng"));
        let made = generate(Options { size, vlans, ..faulty(protocol, 12_000, 32) }, &path).unwrap();
        (protocol, path, read_truth(&made.truth))
    })
    .collect()
}

#[test]
fn tshark_finds_no_fault_in_any_frame() {
    let directory = tempfile::tempdir().unwrap();
    for (protocol, path, truth) in captures(directory.path()) {
        // Severity error; sequence faults are planted and only warned of.
        let bad = tshark(
            &path,
            "_ws.malformed || _ws.expert.severity >= 8388608 || ip.checksum.status == 0 || tcp.checksum.status == 0 \
             || icmp.checksum.status == 0 || _ws.short",
            &["frame.number", "frame.protocols", "udp.port", "_ws.expert.message", "udp.payload"],
        );
        assert!(bad.is_empty(), "{protocol:?}: {} bad frames, {:?}", bad.len(), &bad[..bad.len().min(9)]);
        let rows = tshark(&path, "frame", &["frame.time_epoch"]);
        assert_eq!(rows.len() as u64, truth.totals.frames);
        let nanoseconds: u64 = rows[0][0].replace('.', "").parse().unwrap();
        assert_eq!(nanoseconds, truth.totals.first_ns, "{protocol:?}: times in nanoseconds");
    }
}

#[test]
fn tshark_sees_every_protocol() {
    let directory = tempfile::tempdir().unwrap();
    for (protocol, path, truth) in captures(directory.path()) {
        let packets = |of: Protocol| -> u64 {
            truth
                .channels
                .iter()
                .filter(|channel| channel.protocol == of)
                .map(|channel| channel.packets)
                .sum()
        };
        let seen = |filter: &str| tshark(&path, filter, &["frame.number"]).len() as u64;
        assert_eq!(seen("macsec"), packets(Protocol::Macsec), "{protocol:?}");
        assert_eq!(seen("esp && !udp"), packets(Protocol::Esp), "{protocol:?}");
        assert_eq!(seen("esp && udp.port == 4500"), packets(Protocol::EspUdp), "{protocol:?}");
        assert_eq!(seen("ah"), packets(Protocol::Ah), "{protocol:?}");
        assert_eq!(seen("gtp.message == 0xff"), packets(Protocol::GtpU), "{protocol:?}");
        assert_eq!(seen("isakmp"), truth.totals.ike, "{protocol:?}");
        let implied = seen("macsec.TCI.SC == 0 && macsec");
        assert_eq!(implied > 0, protocol == Mix::Mixed);
        let tagged = seen("vlan");
        assert_eq!(tagged == truth.totals.frames, matches!(protocol, Mix::Macsec | Mix::Ipsec | Mix::Gtpu));
        assert!(tagged > 0);
    }
}

#[test]
fn tshark_counts_the_same_esp_losses() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("esp.pcap");
    // Only losses: tshark takes the packet before as the measure, so that a late one counts twice with it.
    let options =
        Options { packets: 20_000, flows: 12, protocol: Mix::Ipsec, loss: 0.03, ..Options::default() };
    let truth = read_truth(&generate(options, &path).unwrap().truth);
    let rows = tshark(
        &path,
        "esp.sequence-analysis.wrong-sequence-number",
        &["frame.number", "esp.sequence", "esp.sequence-analysis.previous-frame"],
    );
    let found: BTreeMap<u64, u64> =
        rows.iter().map(|row| (row[0].parse().unwrap(), row[1].parse().unwrap())).collect();
    let planted = |event: &Event| (event.frame, event.last + 1);
    let expected: BTreeMap<u64, u64> = truth.events.iter().map(planted).collect();
    assert!(expected.len() > 200);
    assert_eq!(found, expected, "frames that reveal a loss, and their numbers");
    let sequences = tshark(&path, "esp", &["esp.spi", "esp.sequence"]);
    let mut highest: BTreeMap<&str, u64> = BTreeMap::new();
    let mut lost = 0;
    for row in &sequences {
        let number: u64 = row[1].parse().unwrap();
        let before = highest.insert(&row[0], number).unwrap_or(number - 1);
        lost += number - before - 1;
    }
    assert_eq!(lost, truth.totals.lost);
}

/// Run with `cargo test --release -p sluice-monitor --test all -- --ignored generate:: --nocapture`.
#[test]
#[ignore = "a measurement: needs a release build and a quiet machine"]
fn generation_is_fast_and_takes_the_same_memory_however_long() {
    let resident = || {
        let text = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = text.lines().find(|line| line.starts_with("VmHWM")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
    };
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = directory.path().join("x.pcap");
    let mut peaks = Vec::new();
    for packets in [3_000_000, 9_000_000] {
        let options = Options {
            size: Size::Fixed(64),
            rekey: 0,
            loss: 0.001,
            reorder: 0.001,
            duplicate: 0.001,
            replay: 0.0001,
            ..faulty(Mix::Macsec, packets, 10_000)
        };
        let start = std::time::Instant::now();
        generate(options, &path).unwrap();
        let rate = packets as f64 / start.elapsed().as_secs_f64() / 1e6;
        peaks.push(resident());
        println!("{packets} packets: {rate:.2} Mpps, {} kB at most", peaks.last().unwrap());
        assert!(rate > 3.0, "{rate:.2} Mpps");
    }
    assert!(peaks[1] < peaks[0] * 3 / 2, "{peaks:?}");
}
