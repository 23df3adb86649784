//! Independent judges: scapy makes protected packets and says what they are, tshark reads them; all three must agree.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use sluice_monitor::capture;
use sluice_monitor::frame::Batch;
use sluice_monitor::observation::{Flags, Observation, Protocol, Unknown};
use sluice_monitor::protocol;

/// A frame as the monitor sees it.
type Seen = Result<Observation, Unknown>;

fn scapy(directory: &Path) -> Vec<Value> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/judges/make.py");
    // The system's Python: that is where the package puts scapy.
    let output = Command::new("/usr/bin/python3").arg(script).arg(directory).output();
    let output = output.expect("python3 is installed (scripts/setup.sh)");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "scapy is installed (scripts/setup.sh) and makes the packets: {errors}");
    let truth = std::fs::read_to_string(directory.join("judged.json")).unwrap();
    truth.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// First value of each field, a row a frame; numbers are read however tshark prints them.
fn tshark(capture: &Path, fields: &[&str]) -> Vec<Vec<Option<String>>> {
    let mut command = Command::new("tshark");
    command
        .args([
            "-o",
            "ip.defragment:FALSE",
            "-o",
            "ipv6.defragment:FALSE",
            "-n",
            "-T",
            "fields",
            "-E",
            "occurrence=f",
            "-E",
            "separator=|",
            "-r",
        ])
        .arg(capture);
    fields.iter().for_each(|field| {
        command.args(["-e", field]);
    });
    let output = command.output().expect("tshark is installed (scripts/setup.sh)");
    assert!(output.status.success(), "tshark: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let value = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    text.lines().map(|line| line.split('|').map(value).collect()).collect()
}

fn number(text: &str) -> u64 {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).unwrap(),
        None => text.parse().unwrap_or_else(|_| panic!("{text} is no number")),
    }
}

fn observe(capture: &Path) -> Vec<Seen> {
    let mut source = capture::open(capture.to_str().unwrap()).unwrap();
    let (mut batch, mut all) = (Batch::default(), vec![]);
    let mut more = true;
    while more {
        more = source.next_batch(&mut batch).unwrap();
        all.extend(batch.frames().map(|frame| protocol::observe(&frame)));
    }
    all
}

/// What scapy knows of a packet that it made.
fn agrees_with_its_maker(seen: &Seen, truth: &Value) {
    let seen = match (seen, truth["unknown"].as_str()) {
        (Err(reason), Some(unknown)) => return assert_eq!(reason.to_string(), unknown),
        (Ok(seen), None) => seen,
        other => panic!("{other:?}"),
    };
    let protocol = seen.key.protocol();
    assert_eq!(protocol.name(), truth["protocol"]);
    if let Some(id) = truth["id"].as_u64() {
        assert_eq!(u64::from(seen.key.id()), id);
    }
    assert_eq!((seen.bits > 0).then_some(seen.sequence), truth["sequence"].as_u64());
    assert_eq!(seen.key.sci(), truth["sci"].as_u64());
    let vlans = seen.key.vlans();
    let tag = |name: &str| truth[name].as_u64().unwrap_or(0);
    assert_eq!((u64::from(vlans.inner), u64::from(vlans.outer)), (tag("vlan"), tag("outer")));
    if let Some(version) = truth["version"].as_u64() {
        let (source, destination) = seen.key.addresses().unwrap();
        let wanted = match (version, protocol) {
            (6, _) => ("2001:db8::1", "2001:db8::2"),
            (_, Protocol::GtpU) if seen.key.id() != 0 || source.to_string() == "10.1.0.1" => {
                ("10.1.0.1", "10.1.0.2")
            }
            _ => ("10.0.0.1", "10.0.0.2"),
        };
        assert_eq!((source.to_string().as_str(), destination.to_string().as_str()), wanted);
    }
    if let Some(encrypted) = truth["encrypted"].as_bool() {
        assert_eq!(seen.flags.has(Flags::ENCRYPTED), encrypted);
        assert_eq!(seen.flags.has(Flags::INTEGRITY_ONLY), !encrypted);
    }
    assert!(!seen.flags.has(Flags::LENGTH_MISMATCH));
}

const FIELDS: [&str; 18] = [
    "macsec.AN",
    "macsec.PN",
    "macsec.SL",
    "macsec.SCI.system_identifier",
    "macsec.SCI.port_identifier",
    "macsec.TCI.E",
    "esp.spi",
    "esp.sequence",
    "ah.spi",
    "ah.sequence",
    "gtp.teid",
    "gtp.seq_number",
    "gtp.message",
    "mka.sci",
    "mka.actor_mn",
    "udpencap.nat_keepalive",
    "isakmp.ispi",
    "frame.len",
];

/// Every field that tshark shows of a protocol, and none where the monitor sees another one.
fn agrees_with_tshark(seen: &Seen, row: &[Option<String>]) {
    let field = |name: &str| row[FIELDS.iter().position(|field| *field == name).unwrap()].as_deref();
    let value = |name: &str| field(name).map(number);
    let protocol = seen.as_ref().ok().map(|seen| seen.key.protocol());
    let is = |wanted: Protocol| protocol == Some(wanted);
    assert_eq!(is(Protocol::Macsec), field("macsec.PN").is_some());
    assert_eq!(is(Protocol::Mka), field("mka.sci").is_some());
    assert_eq!(is(Protocol::GtpU), field("gtp.teid").is_some());
    assert_eq!(is(Protocol::Ike), field("isakmp.ispi").is_some());
    let Ok(seen) = seen else { return };
    let (id, sequence) = (Some(u64::from(seen.key.id())), Some(seen.sequence));
    match seen.key.protocol() {
        Protocol::Macsec => {
            assert_eq!((value("macsec.AN"), value("macsec.PN")), (id, sequence));
            assert_eq!(field("macsec.TCI.E") == Some("1"), seen.flags.has(Flags::ENCRYPTED));
            let sl = value("macsec.SL").unwrap();
            assert!(if sl == 0 { seen.payload_len >= 48 } else { u64::from(seen.payload_len) == sl });
            assert_eq!(field("macsec.SCI.port_identifier").is_none(), seen.flags.has(Flags::IMPLIED_SCI));
            if let Some(system) = field("macsec.SCI.system_identifier") {
                let port = value("macsec.SCI.port_identifier").unwrap();
                let system = number(&format!("0x{}", system.replace(':', "")));
                assert_eq!(seen.key.sci(), Some(system << 16 | port));
            }
        }
        Protocol::Esp | Protocol::EspUdp if seen.bits == 0 => assert!(field("esp.spi").is_none()),
        Protocol::Esp | Protocol::EspUdp => {
            assert_eq!((value("esp.spi"), value("esp.sequence")), (id, sequence));
        }
        Protocol::Ah => assert_eq!((value("ah.spi"), value("ah.sequence")), (id, sequence)),
        Protocol::GtpU => {
            assert_eq!(value("gtp.teid"), id);
            assert_eq!(value("gtp.message") != Some(255), seen.flags.has(Flags::CONTROL));
            if value("gtp.message") == Some(255) {
                assert_eq!(value("gtp.seq_number"), sequence.filter(|_| seen.bits > 0));
            }
        }
        Protocol::Mka => {
            let hex = |name: &str| field(name).map(|text| number(&format!("0x{text}")));
            assert_eq!((hex("mka.sci"), hex("mka.actor_mn")), (seen.key.sci(), sequence));
        }
        Protocol::Ike => {}
    }
}

#[test]
fn scapy_tshark_and_the_monitor_agree_on_every_frame() {
    let directory = tempfile::tempdir().unwrap();
    let truth = scapy(directory.path());
    let capture = directory.path().join("judged.pcap");
    let (seen, rows) = (observe(&capture), tshark(&capture, &FIELDS));
    assert_eq!((seen.len(), rows.len()), (truth.len(), truth.len()));
    for (at, ((seen, truth), row)) in seen.iter().zip(&truth).zip(&rows).enumerate() {
        let case = std::panic::catch_unwind(|| {
            agrees_with_its_maker(seen, truth);
            agrees_with_tshark(seen, row);
        });
        assert!(case.is_ok(), "frame {}: {seen:?}\nscapy: {truth}\ntshark: {row:?}", at + 1);
    }
    for protocol in Protocol::ALL {
        let count = seen.iter().flatten().filter(|seen| seen.key.protocol() == protocol).count();
        assert!(count >= 2, "{count} frames of {protocol}");
    }
}

/// But for what was put into several VLANs or outer headers without encryption, and packets that were filled by hand.
#[test]
fn really_encrypted_packets_have_fingerprints_of_their_own() {
    let directory = tempfile::tempdir().unwrap();
    scapy(directory.path());
    let seen = observe(&directory.path().join("judged.pcap"));
    let data: Vec<_> = seen
        .iter()
        .flatten()
        .filter(|seen| seen.bits > 0 && seen.key.protocol().is_keyed())
        .filter(|seen| seen.key.vlans().inner == 0 && ![0x1003, 0x4001].contains(&seen.key.id()))
        .collect();
    let mut fingerprints: Vec<_> =
        data.iter().map(|seen| (seen.key, seen.sequence, seen.fingerprint)).collect();
    assert!(fingerprints.iter().all(|(.., fingerprint)| *fingerprint != 0));
    fingerprints.sort_unstable_by_key(|(.., fingerprint)| *fingerprint);
    let twice = fingerprints.windows(2).filter(|pair| pair[0].2 == pair[1].2 && pair[0] != pair[1]).count();
    assert_eq!(twice, 0, "of {}", fingerprints.len());
}

/// Editions of one capture: whatever wireshark's own tools write is read the same.
#[test]
fn every_edition_of_a_capture_is_read_alike() {
    let directory = tempfile::tempdir().unwrap();
    scapy(directory.path());
    let original = directory.path().join("judged.pcap");
    let wanted = observe(&original);
    for format in ["pcap", "nsecpcap", "pcapng", "modpcap"] {
        let edition = directory.path().join(format);
        let output = Command::new("editcap").args(["-F", format]).arg(&original).arg(&edition).output();
        let output = output.expect("editcap is installed with tshark (scripts/setup.sh)");
        assert!(output.status.success(), "editcap: {}", String::from_utf8_lossy(&output.stderr));
        if format == "modpcap" {
            // A dialect of the nineties with longer record headers.
            assert!(capture::open(edition.to_str().unwrap()).is_err());
        } else {
            assert_eq!(observe(&edition), wanted, "{format}");
        }
    }
}
