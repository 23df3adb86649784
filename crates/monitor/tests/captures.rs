//! Capture files in all their variants; cut, damaged and foreign files. Live pipes.

use crate::files;

use std::io::Write;
use std::path::{Path, PathBuf};

use files::{Endian, Pcap, PcapNg, options};
use proptest::prelude::*;
use sluice_monitor::capture::{self, CaptureError, Source};
use sluice_monitor::frame::{Batch, Frame, LinkType};

/// A frame as a source gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    time_ns: u64,
    interface: u32,
    wire_len: u32,
    link: LinkType,
    data: Vec<u8>,
    number: u64,
}

impl Seen {
    fn of(frame: &Frame<'_>) -> Seen {
        let Frame { time_ns, interface, wire_len, link, number, data } = *frame;
        Seen { time_ns, interface, wire_len, link, data: data.to_vec(), number }
    }
}

/// Everything a source gives, up to its end or error, and the drops it tells of.
struct Read {
    frames: Vec<Seen>,
    error: Option<CaptureError>,
    drops: u64,
}

fn read(path: &Path) -> Read {
    match capture::open(path.to_str().unwrap()) {
        Ok(mut source) => rest_of(source.as_mut()),
        Err(error) => Read { frames: vec![], error: Some(error), drops: 0 },
    }
}

fn rest_of(source: &mut dyn Source) -> Read {
    let (mut batch, mut frames, mut error) = (Batch::default(), vec![], None);
    loop {
        let more = source.next_batch(&mut batch);
        frames.extend(batch.frames().map(|frame| Seen::of(&frame)));
        match more {
            Ok(true) => {}
            Ok(false) => break,
            Err(failed) => {
                error = Some(failed);
                break;
            }
        }
    }
    Read { frames, error, drops: source.drops() }
}

fn stored(bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("some.capture");
    std::fs::write(&path, bytes).unwrap();
    (directory, path)
}

fn read_bytes(bytes: &[u8]) -> Read {
    let (_directory, path) = stored(bytes);
    read(&path)
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 3).unwrap()
}

/// A frame of a length of its own, which no other frame equals.
fn data(number: u32, length: usize) -> Vec<u8> {
    number.to_be_bytes().into_iter().cycle().take(length).collect()
}

const TIME_NS: u64 = 1_700_000_123_456_789_012;

#[test]
fn pcap_in_both_units_and_byte_orders_packed_and_not() {
    for (order, nano) in
        [Endian::Little, Endian::Big].into_iter().flat_map(|order| [(order, true), (order, false)])
    {
        let mut file = Pcap::new(order, nano, 1);
        for number in 0..1000u32 {
            let length = 60 + number as usize % 1400;
            file.frame(TIME_NS + u64::from(number) * 1000, &data(number, length), length as u32);
        }
        file.frame(TIME_NS, &data(7, 96), 1514);
        for bytes in [file.bytes.clone(), gzip(&file.bytes), zstd(&file.bytes)] {
            let read = read_bytes(&bytes);
            assert!(read.error.is_none(), "{:?}", read.error);
            assert_eq!(read.frames.len(), 1001);
            let unit = if nano { 1 } else { 1000 };
            for (number, frame) in read.frames[..1000].iter().enumerate() {
                assert_eq!(frame.data, data(number as u32, 60 + number % 1400));
                assert_eq!(frame.time_ns, (TIME_NS + number as u64 * 1000) / unit * unit);
                assert_eq!((frame.number, frame.interface), (number as u64 + 1, 0));
                assert_eq!((frame.wire_len as usize, frame.link), (frame.data.len(), LinkType::Ethernet));
            }
            assert_eq!(
                (read.frames[1000].data.len(), read.frames[1000].wire_len),
                (96, 1514),
                "cut by a snap length"
            );
        }
    }
}

#[test]
fn link_types_are_told_and_a_frame_check_sequence_is_taken_off() {
    let types = [
        (0, LinkType::Null),
        (1, LinkType::Ethernet),
        (12, LinkType::RawIp),
        (101, LinkType::RawIp),
        (113, LinkType::LinuxCooked),
        (228, LinkType::RawIp),
        (229, LinkType::RawIp),
        (276, LinkType::LinuxCooked2),
        (105, LinkType::Other),
    ];
    for (number, link) in types {
        let mut file = Pcap::new(Endian::Little, true, number);
        file.frame(TIME_NS, &data(1, 64), 64);
        assert_eq!(read_bytes(&file.bytes).frames[0].link, link, "{number}");
        let mut file = PcapNg::new(Endian::Big);
        file.interface(number as u16, &[]).frame(0, TIME_NS / 1000, &data(1, 64), &[]);
        assert_eq!(read_bytes(&file.bytes).frames[0].link, link, "{number}");
    }
    // The F bit, and two units of two bytes.
    let mut file = Pcap::new(Endian::Little, true, 1 | 1 << 26 | 2 << 28);
    file.frame(TIME_NS, &data(1, 64), 64).frame(TIME_NS, &data(2, 40), 64);
    let frames = read_bytes(&file.bytes).frames;
    assert_eq!((frames[0].data.len(), frames[0].wire_len), (60, 60));
    assert_eq!(frames[1].data.len(), 40, "it was cut before its FCS");
    let mut file = PcapNg::new(Endian::Little);
    file.interface(1, &options(Endian::Little, &[(13, &[4])])).frame(0, 1, &data(1, 64), &[]);
    assert_eq!(read_bytes(&file.bytes).frames[0].data.len(), 60);
}

#[test]
fn pcapng_times_of_every_resolution() {
    // if_tsresol, ticks, nanoseconds; if_tsoffset adds 5 s to each.
    let cases: [(Option<u8>, u64, u64); 9] = [
        (None, 1_700_000_000_000_001, 1_700_000_000_000_001_000),
        (Some(6), 1_700_000_000_000_001, 1_700_000_000_000_001_000),
        (Some(9), 1_700_000_000_000_000_001, 1_700_000_000_000_000_001),
        (Some(3), 1_700_000_000_001, 1_700_000_000_001_000_000),
        (Some(0), 1_700_000_000, 1_700_000_000_000_000_000),
        (Some(12), 1_700_000_000_123, 1_700_000_000),
        (Some(0x80), 1_700_000_000, 1_700_000_000_000_000_000),
        (Some(0x80 | 10), 1_700_000_000 << 10 | 512, 1_700_000_000_500_000_000),
        (Some(0x80 | 30), 1_700_000_000 << 30 | 1, 1_700_000_000_000_000_000),
    ];
    for order in [Endian::Little, Endian::Big] {
        for (resolution, ticks, ns) in cases {
            let resolution = resolution.map(|byte| [byte]);
            let mut list: Vec<(u16, &[u8])> = resolution.iter().map(|byte| (9, &byte[..])).collect();
            let mut file = PcapNg::new(order);
            file.interface(1, &options(order, &list)).frame(0, ticks, &data(1, 64), &[]);
            let offset = order.u64(5);
            list.push((14, &offset));
            file.interface(1, &options(order, &list)).frame(1, ticks, &data(1, 64), &[]);
            let times: Vec<_> = read_bytes(&file.bytes).frames.iter().map(|frame| frame.time_ns).collect();
            assert_eq!(times, [ns, ns + 5_000_000_000], "resolution {resolution:?}, {order:?}");
        }
    }
}

#[test]
fn pcapng_blocks_of_every_kind() {
    for order in [Endian::Little, Endian::Big] {
        let mut file = PcapNg::new(order);
        file.interface(1, &[]).interface(101, &[]);
        // Name resolution, journal, secrets, custom: passed over.
        for kind in [4, 9, 10, 0xbad, 0x8000_0001] {
            file.push(kind, &[1, 2, 3, 4, 5, 6, 7, 8]);
        }
        file.frame(0, 1, &data(1, 61), &[]).frame(
            1,
            2,
            &data(2, 62),
            &options(order, &[(1, b"a comment"), (2, &[0; 4])]),
        );
        file.obsolete(0, 3, 3, &data(3, 63)).simple(&data(4, 64), 64);
        let read = read_bytes(&file.bytes);
        assert!(read.error.is_none(), "{:?}", read.error);
        let seen: Vec<_> = read
            .frames
            .iter()
            .map(|frame| (frame.interface, frame.link, frame.time_ns, frame.data.len(), frame.number))
            .collect();
        use LinkType::{Ethernet, RawIp};
        let expected = [(0, Ethernet, 1000, 61, 1), (1, RawIp, 2000, 62, 2), (0, Ethernet, 3000, 63, 3)];
        assert_eq!(seen[..3], expected);
        assert_eq!(seen[3], (0, Ethernet, 3000, 64, 4), "a simple packet has no time of its own");
        assert_eq!(read.drops, 3);
    }
}

#[test]
fn a_simple_packet_is_cut_at_the_snap_length_of_the_first_interface() {
    let mut file = PcapNg::new(Endian::Little);
    file.push(1, &[1, 0, 0, 0, 50, 0, 0, 0]).simple(&data(1, 52), 1000);
    let frames = read_bytes(&file.bytes).frames;
    assert_eq!((frames[0].data.len(), frames[0].wire_len), (50, 1000));
}

#[test]
fn sections_have_byte_orders_and_interfaces_of_their_own() {
    let section = |order, name: &[u8], drops: u64| {
        let mut file = PcapNg::new(order);
        file.interface(1, &options(order, &[(2, name)])).interface(1, &options(order, &[(2, b"other")]));
        file.frame(0, 1, &data(1, 60), &[]).frame(1, 2, &data(2, 61), &[]);
        file.statistics(0, &options(order, &[(4, &order.u64(99)), (5, &order.u64(drops / 2))]));
        // The last one holds: counters are absolute.
        file.statistics(0, &options(order, &[(5, &order.u64(drops)), (7, &order.u64(1))]));
        file.bytes
    };
    let mut bytes = section(Endian::Little, b"eth0", 10);
    bytes.extend(section(Endian::Big, b"eth0", 20));
    bytes.extend(section(Endian::Little, b"eth7", 40));
    let read = read_bytes(&bytes);
    assert!(read.error.is_none(), "{:?}", read.error);
    let interfaces: Vec<_> = read.frames.iter().map(|frame| frame.interface).collect();
    assert_eq!(interfaces, [0, 1, 0, 1, 2, 1], "an interface is known by its place and name");
    assert_eq!(read.drops, 73);
}

#[test]
fn drops_beside_packets_and_in_statistics_are_not_added_up() {
    let order = Endian::Little;
    let mut file = PcapNg::new(order);
    file.interface(1, &[]).frame(0, 1, &data(1, 60), &options(order, &[(4, &order.u64(5))]));
    file.frame(0, 2, &data(2, 60), &options(order, &[(4, &order.u64(6))]));
    assert_eq!(read_bytes(&file.bytes).drops, 11);
    file.statistics(0, &options(order, &[(5, &order.u64(12))]));
    assert_eq!(read_bytes(&file.bytes).drops, 12);
}

#[test]
fn joined_compressed_files_are_one() {
    let mut file = Pcap::new(Endian::Little, true, 1);
    for number in 0..5000 {
        file.frame(TIME_NS, &data(number, 300), 300);
    }
    let (head, tail) = file.bytes.split_at(700_001);
    assert_eq!(read_bytes(&[gzip(head), gzip(tail)].concat()).frames.len(), 5000);
    assert_eq!(read_bytes(&[zstd(head), zstd(tail)].concat()).frames.len(), 5000);
}

/// Files larger than every buffer, with frames that are read, mapped, and longer than what is read at once.
#[test]
fn long_files_of_every_frame_length() {
    for (count, length) in [(60_000, 64), (40_000, 1500), (300, 200_000), (20_000, 577)] {
        let mut file = Pcap::new(Endian::Little, true, 1);
        let mut pcapng = PcapNg::new(Endian::Little);
        pcapng.interface(1, &options(Endian::Little, &[(9, &[9])]));
        for number in 0..count {
            // Lengths change, so that records lie across every edge of buffers, pages and mappings.
            let data = data(number, length + number as usize % 13);
            file.frame(TIME_NS + u64::from(number), &data, data.len() as u32);
            pcapng.frame(0, TIME_NS + u64::from(number), &data, &[]);
        }
        for bytes in [file.bytes, pcapng.bytes] {
            let read = read_bytes(&bytes);
            assert!(read.error.is_none(), "{:?}", read.error);
            assert_eq!(read.frames.len(), count as usize);
            for (number, frame) in read.frames.iter().enumerate() {
                assert_eq!(frame.data, data(number as u32, length + number % 13));
                assert_eq!((frame.number, frame.time_ns), (number as u64 + 1, TIME_NS + number as u64));
            }
        }
    }
}

fn small_files() -> [Vec<u8>; 2] {
    let mut pcap = Pcap::new(Endian::Little, true, 1);
    let mut pcapng = PcapNg::new(Endian::Big);
    pcapng.interface(1, &options(Endian::Big, &[(2, b"eth0"), (9, &[9])]));
    for number in 0..6 {
        pcap.frame(TIME_NS, &data(number, 60 + number as usize), 99);
        pcapng.frame(0, TIME_NS, &data(number, 60 + number as usize), &[]);
    }
    [pcap.bytes, pcapng.bytes]
}

#[test]
fn a_file_cut_anywhere_keeps_the_frames_before_the_cut_and_says_so() {
    for bytes in small_files() {
        let whole = read_bytes(&bytes).frames;
        assert_eq!(whole.len(), 6);
        let mut clean = 0;
        for length in 0..bytes.len() {
            let read = read_bytes(&bytes[..length]);
            assert_eq!(read.frames, whole[..read.frames.len()], "cut at {length}");
            match read.error {
                // Between two records nothing is missing.
                None => clean += 1,
                Some(CaptureError::Cut { at, frames, .. }) => {
                    assert!(length >= 4 && at <= length as u64, "cut at {length}, said {at}");
                    assert_eq!(frames as usize, read.frames.len());
                }
                Some(CaptureError::NotACapture { .. }) => assert!(length < 4, "cut at {length}"),
                Some(error) => panic!("cut at {length}: {error}"),
            }
        }
        assert!((6..=9).contains(&clean), "{clean}");
    }
}

#[test]
fn a_compressed_file_cut_anywhere_says_so() {
    let mut file = Pcap::new(Endian::Little, true, 1);
    // More than a block of zstd, which comes out as a whole.
    for number in 0..10_000u32 {
        file.frame(TIME_NS, &data(number.wrapping_mul(0x9e37_79b9), 60), 60);
    }
    let whole = read_bytes(&file.bytes).frames;
    for bytes in [gzip(&file.bytes), zstd(&file.bytes)] {
        let mut most = 0;
        for length in (4..40).chain((40..bytes.len()).step_by(bytes.len() / 50)).chain([bytes.len() - 1]) {
            let read = read_bytes(&bytes[..length]);
            assert_eq!(read.frames, whole[..read.frames.len()]);
            most = most.max(read.frames.len());
            let error =
                read.error.unwrap_or_else(|| panic!("cut at {length} of {} and content", bytes.len()));
            assert!(matches!(error, CaptureError::Cut { .. }), "cut at {length}: {error}");
            assert!(error.is_partial());
        }
        assert!(most > 0, "frames before the cut are kept");
    }
}

#[test]
fn damage_is_named_with_its_place_and_frames_before_it_are_kept() {
    let [pcap, pcapng] = small_files();
    // The captured length of the third frame; the length of the third packet block.
    let place = 24 + 16 + 60 + 16 + 61 + 8;
    for mut bytes in [pcap.clone(), gzip(&pcap), zstd(&pcap)] {
        let is_packed = bytes.len() != pcap.len();
        if is_packed {
            let mut plain = pcap.clone();
            plain[place + 3] = 0x7f;
            bytes = if bytes[0] == 0x1f { gzip(&plain) } else { zstd(&plain) };
        } else {
            bytes[place + 3] = 0x7f;
        }
        let read = read_bytes(&bytes);
        assert_eq!(read.frames.len(), 2);
        match read.error.unwrap() {
            CaptureError::Damaged { at, frames, .. } => assert_eq!((at, frames), (place as u64 - 8, 2)),
            error => panic!("{error}"),
        }
    }
    let third = pcapng.windows(4).enumerate().filter(|(_, word)| *word == [0, 0, 0, 6]).nth(2).unwrap().0;
    for (at, value) in [(third + 4, 0x7f), (third + 7, 3), (third + 8, 9), (third + 20, 9)] {
        let mut bytes = pcapng.clone();
        bytes[at] = value;
        let read = read_bytes(&bytes);
        assert_eq!(read.frames.len(), 2);
        match read.error.unwrap() {
            CaptureError::Damaged { at, frames, .. } => assert_eq!((at, frames), (third as u64, 2)),
            error => panic!("{error}"),
        }
    }
}

#[test]
fn what_is_no_capture_is_refused_in_words() {
    let text = |bytes: &[u8]| read_bytes(bytes).error.unwrap();
    for bytes in
        [&b""[..], b"abc", b"#!/bin/sh\nexit 0 # and more\n", &gzip(b"hello, world, this is no capture")]
    {
        let error = text(bytes);
        assert!(matches!(error, CaptureError::NotACapture { .. }) && !error.is_partial(), "{error}");
    }
    assert!(text(b"GIF89a..................").to_string().contains("47 49 46 38"));
    assert!(text(b"").to_string().contains("starts with nothing"));
    let error = |name: &str| capture::open(name).err().unwrap().to_string();
    assert!(error("/no/such/file.pcap").contains("/no/such/file.pcap: No such file"));
    assert!(error("nosuchfile.pcap").contains("No such file"));
    let missing = error("nosuch0");
    assert!(missing.contains("no interface nosuch0") && missing.contains("lo"), "{missing}");
    assert!(error("/").contains("directory"));
}

/// A capture in some format, of `count` frames of about `length` bytes, and where each record ends.
fn long_file(kind: &str, count: u32, length: usize) -> (Vec<u8>, Vec<usize>) {
    let mut pcap = Pcap::new(Endian::Little, true, 1);
    let mut pcapng = PcapNg::new(Endian::Little);
    pcapng.interface(1, &options(Endian::Little, &[(9, &[9])]));
    let (mut ends, mut noise) = (vec![], 0x2545_f491_4f6c_dd1du64);
    for number in 0..count {
        let time_ns = TIME_NS + u64::from(number);
        let mut data = data(number, length + number as usize % 13);
        // What compresses well would be read ahead as a whole.
        for byte in &mut data[4..] {
            noise ^= noise << 13;
            noise ^= noise >> 7;
            noise ^= noise << 17;
            *byte = noise as u8;
        }
        pcap.frame(time_ns, &data, data.len() as u32);
        pcapng.frame(0, time_ns, &data, &[]);
        ends.push(if kind == "pcapng" { pcapng.bytes.len() } else { pcap.bytes.len() });
    }
    match kind {
        "pcapng" => (pcapng.bytes, ends),
        "gzip" => (gzip(&pcap.bytes), vec![]),
        "zstd" => (zstd(&pcap.bytes), vec![]),
        _ => (pcap.bytes, ends),
    }
}

/// Log rotation by copying truncates a file while it is read: what came before is kept, and the end is called a cut. Files
/// with long frames are mapped, and the kernel ends whoever touches a mapped page behind the end.
#[test]
fn a_file_that_is_truncated_while_it_is_read_is_cut() {
    for (kind, length) in [
        ("pcap", 64),
        ("pcap", 1500),
        ("pcapng", 64),
        ("pcapng", 1500),
        ("gzip", 64),
        ("gzip", 1500),
        ("zstd", 1500),
    ] {
        let (bytes, ends) = long_file(kind, 4_000_000 / length as u32, length);
        let at_record = ends.iter().copied().find(|end| *end > bytes.len() / 2);
        for (left, before) in [
            (Some(bytes.len() / 2 + 7), 2),
            (at_record, 2),
            (Some(0), 2),
            (Some(bytes.len() - 1), 2),
            (Some(5000), 1),
        ] {
            let Some(left) = left else { continue };
            let name = format!("{kind}, frames of {length}, {left} of {} bytes left", bytes.len());
            let (_directory, path) = stored(&bytes);
            let whole = read(&path).frames;
            let mut source = capture::open(path.to_str().unwrap()).unwrap();
            let (mut batch, mut frames) = (Batch::default(), vec![]);
            for _ in 0..before {
                assert!(source.next_batch(&mut batch).unwrap(), "{name}");
                frames.extend(batch.frames().map(|frame| Seen::of(&frame)));
            }
            let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
            file.set_len(left as u64).unwrap();
            // The batch that is still there shows bytes or zeros.
            let shown: usize =
                batch.frames().map(|frame| frame.data.iter().filter(|byte| **byte != 0).count()).sum();
            assert!(shown <= batch.frames().map(|frame| frame.data.len()).sum(), "{name}");
            let rest = rest_of(source.as_mut());
            frames.extend(rest.frames);
            // The last bytes of a compressed file hold no frame.
            assert!(frames.len() < whole.len() || ends.is_empty(), "{name}");
            assert!(frames == whole[..frames.len()], "{name}: {} frames", frames.len());
            match rest.error {
                Some(CaptureError::Cut { frames: said, .. }) => {
                    assert_eq!(said as usize, frames.len(), "{name}")
                }
                other => panic!("{name}: {other:?}"),
            }
        }
    }
}

/// As shells list what `tcpdump -C` and `-G` leave behind.
#[test]
fn rotated_files_are_one_capture_in_whatever_order_they_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let mut names: Vec<String> = vec![];
    for part in 0..12u32 {
        let mut file = Pcap::new(Endian::Little, true, 1);
        for number in part * 100..(part + 1) * 100 {
            file.frame(TIME_NS + u64::from(number) * 1000, &data(number + 1, 60), 60);
        }
        let number = if part == 0 { String::new() } else { part.to_string() };
        let path = directory.path().join(format!("link.pcap{number}"));
        let bytes = match part % 3 {
            0 => file.bytes,
            1 => gzip(&file.bytes),
            _ => zstd(&file.bytes),
        };
        std::fs::write(&path, bytes).unwrap();
        names.push(path.to_str().unwrap().to_owned());
    }
    // One that was just begun.
    let empty = directory.path().join("link.pcap12").to_str().unwrap().to_owned();
    std::fs::write(&empty, Pcap::new(Endian::Little, true, 1).bytes).unwrap();
    names.push(empty);
    let mut listed = names.clone();
    listed.sort();
    assert_ne!(names, listed);
    let backwards = names.iter().rev().cloned().collect();
    for names in [names, listed, backwards] {
        let mut source = capture::open_all(&names, false).unwrap();
        let read = rest_of(source.as_mut());
        assert!(read.error.is_none(), "{:?}", read.error);
        let times: Vec<u64> = read.frames.iter().map(|frame| frame.time_ns).collect();
        assert_eq!(times.len(), 1200);
        assert!(times.is_sorted(), "{names:?}");
        let numbers: Vec<u64> = read.frames.iter().map(|frame| frame.number).collect();
        assert_eq!(numbers, (1..=1200).collect::<Vec<_>>());
    }
}

/// One that is cut and one that is damaged in the middle of others: all are read, and both are named.
#[test]
fn a_broken_file_does_not_end_the_run_over_the_others() {
    let directory = tempfile::tempdir().unwrap();
    let mut names: Vec<String> = vec![];
    for part in 0..5u32 {
        let mut file = Pcap::new(Endian::Little, true, 1);
        for number in part * 100..(part + 1) * 100 {
            file.frame(TIME_NS + u64::from(number) * 1000, &data(number + 1, 60), 60);
        }
        let mut bytes = file.bytes;
        match part {
            1 => bytes.truncate(bytes.len() - 10),
            3 => bytes[24 + 50 * 76 + 8..][..4].copy_from_slice(&[0xff; 4]),
            _ => {}
        }
        let path = directory.path().join(format!("link{part}.pcap"));
        std::fs::write(&path, bytes).unwrap();
        names.push(path.to_str().unwrap().to_owned());
    }
    let mut source = capture::open_all(&names, false).unwrap();
    let read = rest_of(source.as_mut());
    assert_eq!(read.frames.len(), 100 + 99 + 100 + 50 + 100);
    assert!(read.frames.iter().map(|frame| frame.number).eq(1..=449));
    let error = read.error.expect("two are broken").to_string();
    for (part, what) in [(1, "cut in the middle"), (3, "damaged at byte")] {
        assert!(error.contains(&format!("{} is {what}", names[part])), "{error}");
    }
    let (done, total) = source.progress();
    assert!(done <= total.unwrap(), "{done} of {total:?}");
}

/// More files than a process may have open.
#[test]
fn rotated_files_are_opened_one_after_the_other() {
    let directory = tempfile::tempdir().unwrap();
    let files = 300u32;
    let names: Vec<String> = (0..files)
        .map(|part| {
            let mut file = Pcap::new(Endian::Little, true, 1);
            file.frame(TIME_NS + u64::from(part) * 1000, &data(part + 1, 60), 60);
            let path = directory.path().join(format!("link{part}.pcap"));
            std::fs::write(&path, file.bytes).unwrap();
            path.to_str().unwrap().to_owned()
        })
        .collect();
    let ours = || {
        let links = std::fs::read_dir("/proc/self/fd")
            .unwrap()
            .filter_map(|entry| entry.unwrap().path().read_link().ok());
        links.filter(|path| path.starts_with(directory.path())).count()
    };
    let mut source = capture::open_all(&names, false).unwrap();
    assert!(ours() <= 2, "{} are open", ours());
    assert_eq!(rest_of(source.as_mut()).frames.len(), files as usize);
}

/// `tcpdump -i any` with LINKTYPE_LINUX_SLL2: the header says which interface.
#[test]
fn interfaces_of_a_cooked_capture_are_told_apart() {
    let cooked = |ifindex: u8| {
        let mut frame = vec![8, 0, 0, 0, 0, 0, 0, ifindex, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0];
        frame.extend([0x45; 40]);
        frame
    };
    let mut file = Pcap::new(Endian::Little, true, 276);
    for (number, ifindex) in [9, 4, 9, 4, 7].into_iter().enumerate() {
        file.frame(TIME_NS + number as u64, &cooked(ifindex), 60);
    }
    let (_directory, path) = stored(&file.bytes);
    let mut source = capture::open(path.to_str().unwrap()).unwrap();
    let mut batch = Batch::default();
    source.next_batch(&mut batch).unwrap();
    let interfaces: Vec<_> = batch.frames().map(|frame| frame.interface).collect();
    assert_eq!(interfaces, [0, 1, 0, 1, 2]);
}

/// Thousands of interfaces, and sections that describe them all again.
#[test]
fn many_interfaces_cost_no_more_each() {
    let order = Endian::Little;
    let mut bytes = vec![];
    for _ in 0..2 {
        let mut section = PcapNg::new(order);
        for number in 0..60_000u32 {
            section.interface(1, &options(order, &[(2, format!("eth{number}").as_bytes())]));
        }
        bytes.extend(section.bytes);
    }
    let start = std::time::Instant::now();
    assert!(read_bytes(&bytes).error.is_none());
    assert!(start.elapsed() < std::time::Duration::from_secs(2), "{:?}", start.elapsed());
}

/// Frames come out of a pipe while its writer still writes.
#[test]
fn a_pipe_is_read_as_it_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pipe");
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let writer = std::thread::spawn({
        let path = path.clone();
        move || {
            let mut pipe = std::fs::OpenOptions::new().write(true).open(path).unwrap();
            let mut file = Pcap::new(Endian::Little, true, 1);
            file.frame(TIME_NS, &data(1, 60), 60);
            let (now, later) = file.bytes.split_at(file.bytes.len() - 10);
            pipe.write_all(now).unwrap();
            wait.recv().unwrap();
            pipe.write_all(later).unwrap();
            wait.recv().unwrap();
        }
    });
    let mut source = capture::open(path.to_str().unwrap()).unwrap();
    let mut batch = Batch::default();
    for _ in 0..3 {
        assert!(source.next_batch(&mut batch).unwrap(), "an open pipe has not ended");
        assert!(batch.is_empty());
    }
    go.send(()).unwrap();
    while batch.is_empty() {
        assert!(source.next_batch(&mut batch).unwrap());
    }
    assert_eq!(batch.frame(0).data, data(1, 60));
    go.send(()).unwrap();
    while source.next_batch(&mut batch).unwrap() {
        assert!(batch.is_empty());
    }
    assert_eq!(source.progress(), (24 + 16 + 60, None));
    writer.join().unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn random_damage_never_panics(
        which in 0usize..6,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        end in any::<prop::sample::Index>(),
    ) {
        let [pcap, pcapng] = small_files();
        let mut bytes = match which {
            0 => pcap,
            1 => pcapng,
            2 => gzip(&pcap),
            3 => gzip(&pcapng),
            4 => zstd(&pcap),
            _ => zstd(&pcapng),
        };
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        bytes.truncate(4 + end.index(bytes.len() - 4));
        let read = read_bytes(&bytes);
        for frame in read.frames {
            prop_assert!(frame.data.len() <= frame.wire_len as usize);
        }
    }
}
