//! Slices: the right packets, byte for byte, with their times, interfaces and a comment that says what they show.

use crate::packets;
use crate::reference;

use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;

use sluice_monitor::capture::{CaptureError, Source};
use sluice_monitor::frame::{Batch, LinkType, Record};
use sluice_monitor::generate::{Mix, Options, Synthetic};
use sluice_monitor::slice::{Event, Request, Slice, SliceArgs, Span, run, slice};

#[derive(Clone, Debug, PartialEq)]
struct Kept {
    time_ns: u64,
    interface: u32,
    wire_len: u32,
    data: Vec<u8>,
}

/// Frames from memory, a few at a time; the end is what a damaged file looks like, or not.
struct Frames {
    frames: Vec<Kept>,
    next: usize,
    cut: bool,
}

impl Source for Frames {
    fn next_batch(&mut self, batch: &mut Batch) -> Result<bool, CaptureError> {
        batch.reset(self.next as u64 + 1);
        batch.buffer().clear();
        for frame in self.frames[self.next..].iter().take(7) {
            let Kept { time_ns, interface, wire_len, .. } = *frame;
            let record = Record {
                time_ns,
                wire_len,
                interface: interface as u16,
                link: LinkType::Ethernet,
                ..Record::default()
            };
            batch.push_copy(record, &frame.data);
            self.next += 1;
        }
        match (self.next < self.frames.len(), self.cut) {
            (false, true) => {
                Err(CaptureError::Cut { name: "memory".to_owned(), at: 1, frames: self.next as u64 })
            }
            (more, _) => Ok(more),
        }
    }

    fn name(&self) -> &str {
        "memory.pcap"
    }

    fn progress(&self) -> (u64, Option<u64>) {
        (0, None)
    }
}

/// 500 frames, a millisecond apart, from two interfaces; every tenth was cut by the snap length.
fn frames() -> Vec<Kept> {
    let options =
        Options { packets: 500, flows: 4, protocol: Mix::Mixed, rate: Some(1000), ..Options::default() };
    let (mut source, mut batch) = (Synthetic::new(options).unwrap(), Batch::default());
    assert!(!source.next_batch(&mut batch).unwrap());
    let frame = |(at, frame): (usize, sluice_monitor::frame::Frame<'_>)| Kept {
        time_ns: frame.time_ns,
        interface: (at % 3 == 0).into(),
        wire_len: frame.wire_len,
        data: frame.data[..if at % 10 == 0 { 50 } else { frame.data.len() }].to_vec(),
    };
    batch.frames().enumerate().map(frame).collect()
}

fn cut(frames: Vec<Kept>, request: Request, output: &Path) -> anyhow::Result<Slice> {
    let mut source = Frames { frames, next: 0, cut: false };
    slice(&mut source, reference::observe, &request, output, &AtomicBool::new(false))
}

fn around(event: Event) -> Request {
    Request { channel: None, merged: false, event: Some(event), before_ns: 20_000_000, after_ns: 10_000_000 }
}

/// Packets of a pcapng file, their interface by its name, and the comments (draft-ietf-opsawg-pcapng 4).
fn read(path: &Path) -> (Vec<Kept>, Vec<String>) {
    let bytes = std::fs::read(path).unwrap();
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let options = |mut at: usize, end: usize, code: u32| -> Option<String> {
        while at + 4 <= end {
            let length = (word(at) >> 16) as usize;
            if word(at) & 0xffff == code {
                return Some(String::from_utf8(bytes[at + 4..at + 4 + length].to_vec()).unwrap());
            }
            at += 4 + length.next_multiple_of(4);
        }
        None
    };
    let (mut at, mut packets, mut comments, mut interfaces) = (0, Vec::new(), Vec::new(), Vec::new());
    while at < bytes.len() {
        let (kind, length) = (word(at), word(at + 4) as usize);
        assert_eq!(word(at + length - 4) as usize, length, "lengths around the block");
        let end = at + length - 4;
        match kind {
            1 => interfaces.push(options(at + 16, end, 2).unwrap()),
            6 => {
                let captured = word(at + 20) as usize;
                let name = &interfaces[word(at + 8) as usize];
                packets.push(Kept {
                    time_ns: u64::from(word(at + 12)) << 32 | u64::from(word(at + 16)),
                    interface: name.strip_prefix("interface ").unwrap().parse().unwrap(),
                    wire_len: word(at + 24),
                    data: bytes[at + 28..at + 28 + captured].to_vec(),
                });
                comments.extend(options(at + 28 + captured.next_multiple_of(4), end, 1));
            }
            other => assert_eq!(other, 0x0a0d_0d0a),
        }
        at += length;
    }
    (packets, comments)
}

#[test]
fn a_slice_around_a_frame_is_what_was_there() {
    let directory = tempfile::tempdir().unwrap();
    let (path, all) = (directory.path().join("x.pcapng"), frames());
    for number in [1, 2, 77, 250, 499, 500] {
        let made = cut(all.clone(), around(Event::Frame(number)), &path).unwrap();
        let event_ns = all[number as usize - 1].time_ns;
        let near = |frame: &&Kept| {
            (event_ns.saturating_sub(20_000_000)..=event_ns + 10_000_000).contains(&frame.time_ns)
        };
        let expected: Vec<Kept> = all.iter().filter(near).cloned().collect();
        assert!(expected.len() > 8, "frame {number}: {}", expected.len());
        let (found, comments) = read(&path);
        assert_eq!(found, expected, "around frame {number}");
        assert_eq!(made.frames, expected.len() as u64);
        assert_eq!(all[made.first_frame as usize - 1], expected[0]);
        assert_eq!(all[made.last_frame as usize - 1], *expected.last().unwrap());
        let comment = format!(
            "packets around frame {number} of memory.pcap, 0.02 s before to 0.01 s after; this is its frame {}",
            made.first_frame
        );
        assert_eq!(comments, [comment]);
    }
}

#[test]
fn a_slice_around_a_time_is_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let (one, other, all) = (directory.path().join("1.pcapng"), directory.path().join("2.pcapng"), frames());
    cut(all.clone(), around(Event::Frame(100)), &one).unwrap();
    cut(all.clone(), around(Event::Time(all[99].time_ns)), &other).unwrap();
    assert_eq!(read(&one).0, read(&other).0);
}

#[test]
fn a_slice_of_a_channel_has_all_its_packets() {
    let directory = tempfile::tempdir().unwrap();
    let (path, all) = (directory.path().join("x.pcapng"), frames());
    let mut source = Frames { frames: all.clone(), next: 0, cut: false };
    let (mut batch, mut wanted, mut expected) = (Batch::default(), None, Vec::new());
    let mut key = None;
    loop {
        let more = source.next_batch(&mut batch).unwrap();
        for frame in batch.frames() {
            let Ok(observation) = reference::observe(&frame) else { continue };
            let channel = observation.key.channel_id();
            if *wanted.get_or_insert(channel) == channel {
                key.get_or_insert(observation.key);
                expected.push(all[frame.number as usize - 1].clone());
            }
        }
        if !more {
            break;
        }
    }
    let request = Request { channel: wanted, merged: false, event: None, before_ns: 0, after_ns: 0 };
    cut(all.clone(), request, &path).unwrap();
    let (found, comments) = read(&path);
    assert!(found.len() > 50);
    assert_eq!(found, expected);
    assert!(comments[0].starts_with(&format!("packets of {} in memory.pcap", key.unwrap())), "{comments:?}");

    let request = Request { channel: wanted, ..around(Event::Frame(200)) };
    let made = cut(all.clone(), request, &path).unwrap();
    let (found, _) = read(&path);
    assert!(made.frames < 40 && found.iter().all(|frame| expected.contains(frame) || *frame == all[199]));
    assert!(found.contains(&all[199]), "the event is shown, whatever its channel");
}

#[test]
fn tshark_reads_a_slice() {
    let directory = tempfile::tempdir().unwrap();
    let (path, all) = (directory.path().join("x.pcapng"), frames());
    let made = cut(all.clone(), around(Event::Frame(300)), &path).unwrap();
    let output = Command::new("tshark")
        .args([
            "-n",
            "-T",
            "fields",
            "-e",
            "frame.time_epoch",
            "-e",
            "frame.interface_name",
            "-e",
            "frame.len",
        ])
        .args(["-e", "frame.cap_len", "-e", "frame.comment", "-r"])
        .arg(&path)
        .output()
        .expect("tshark is installed (scripts/setup.sh)");
    let text = String::from_utf8(output.stdout).unwrap();
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!(rows.len() as u64, made.frames, "{}", String::from_utf8_lossy(&output.stderr));
    for (row, frame) in rows.iter().zip(&all[made.first_frame as usize - 1..]) {
        assert_eq!(row[0].replace('.', ""), frame.time_ns.to_string());
        assert_eq!(row[1], format!("interface {}", frame.interface));
        assert_eq!((row[2], row[3]), (&*frame.wire_len.to_string(), &*frame.data.len().to_string()));
    }
    assert!(rows[0][4].contains("around frame 300 of memory.pcap"), "{:?}", rows[0]);
}

#[test]
fn what_is_not_there_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let (path, all) = (directory.path().join("x.pcapng"), frames());
    let say = |request, path: &Path| cut(frames(), request, path).unwrap_err().to_string();
    assert_eq!(say(around(Event::Frame(501)), &path), "memory.pcap has no frame 501");
    assert_eq!(say(around(Event::Time(5)), &path), "memory.pcap has no packets around that time");
    let nobody = Request { channel: Some(0xab), merged: false, event: None, before_ns: 0, after_ns: 0 };
    assert_eq!(say(nobody, &path), "memory.pcap: no packets of channel 00000000000000ab there");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "an empty slice is not left behind");
    std::fs::write(&path, "another's").unwrap();
    assert_eq!(say(around(Event::Frame(501)), &path), "memory.pcap has no frame 501");
    assert_eq!(std::fs::read(&path).unwrap(), b"another's", "what was there stays");
    assert!(say(around(Event::Frame(1)), &directory.path().join("x.pcap")).contains(".pcapng"));

    let mut source = Frames { frames: all, next: 0, cut: true };
    let go_on = AtomicBool::new(false);
    let made = slice(&mut source, reference::observe, &around(Event::Frame(500)), &path, &go_on).unwrap();
    assert!(made.frames > 10 && made.partial.unwrap().contains("cut in the middle"));
}

/// By its own name, a link to it and another name of it.
#[test]
fn a_slice_does_not_take_the_place_of_its_source() {
    let directory = tempfile::tempdir().unwrap();
    let name = |name: &str| directory.path().join(name);
    let source = name("a.pcapng");
    cut(frames(), around(Event::Frame(50)), &source).unwrap();
    let before = std::fs::read(&source).unwrap();
    std::os::unix::fs::symlink(&source, name("link.pcapng")).unwrap();
    std::fs::hard_link(&source, name("other.pcapng")).unwrap();
    for output in ["a.pcapng", "link.pcapng", "other.pcapng"] {
        let args = SliceArgs {
            sources: vec![source.display().to_string()],
            channel: None,
            merge_interfaces: false,
            frame: Some(1),
            time: None,
            before: Span(0),
            after: Span(0),
            output: name(output),
        };
        let said = run(&args, &AtomicBool::new(false)).unwrap_err().to_string();
        assert!(said.contains("is the capture") && said.contains("name another file"), "{said}");
        assert_eq!(std::fs::read(&source).unwrap(), before, "{output}");
    }
}

/// A run over the files or the members of a link gave the number of the frame and of the channel.
#[test]
fn a_slice_is_of_the_capture_that_was_analysed() {
    let directory = tempfile::tempdir().unwrap();
    let name = |name: &str| directory.path().join(name).display().to_string();
    let file = |name: &str, from: u64| {
        let packet = |number: u64| {
            let packet = packets::ip4(50, &packets::esp(7, number as u32, &[0x5a; 40]));
            let data = packets::eth(0x0800, &packet);
            let time_ns = 1_700_000_000_000_000_000 + number * 1_000_000;
            let interface = (number % 2) as u32;
            Kept { time_ns, interface, wire_len: data.len() as u32, data }
        };
        let mut source = Frames { frames: (from..from + 50).map(packet).collect(), next: 0, cut: false };
        let request = around(Event::Frame(25));
        let request = Request { before_ns: 1 << 40, after_ns: 1 << 40, ..request };
        let output = Path::new(name);
        slice(&mut source, reference::observe, &request, output, &AtomicBool::new(false)).unwrap();
    };
    // The shell lists them the other way round.
    let (first, second) = (name("b.pcapng"), name("a.pcapng"));
    file(&first, 0);
    file(&second, 50);
    let args = |channel, merge_interfaces, output: &str| SliceArgs {
        sources: vec![second.clone(), first.clone()],
        channel,
        merge_interfaces,
        frame: Some(61),
        time: None,
        before: Span(4_000_000),
        after: Span(4_000_000),
        output: directory.path().join(output),
    };
    let cut = |args: &SliceArgs| run(args, &AtomicBool::new(false)).unwrap();
    let all = cut(&args(None, false, "all.pcapng"));
    assert_eq!((all.frames, all.first_frame, all.last_frame), (9, 57, 65));
    let location = |interface| sluice_monitor::observation::Location::new(interface, Default::default());
    let key = |interface| {
        let protocol = sluice_monitor::observation::Protocol::Esp;
        let (from, to) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        sluice_monitor::observation::ChannelKey::ipv4(protocol, from, to, 7, location(interface)).channel_id()
    };
    assert_eq!(cut(&args(Some(key(0)), false, "one.pcapng")).frames, 5);
    assert_eq!(cut(&args(Some(key(0)), true, "merged.pcapng")).frames, 9);
    let error = run(&args(None, false, "x.pcapng"), &AtomicBool::new(true)).map(|slice| slice.partial);
    assert!(error.is_err() || error.is_ok_and(|partial| partial.is_some()), "it was stopped");
    let left = std::fs::read_dir(directory.path()).unwrap();
    let hidden = left.filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with('.'));
    assert_eq!(hidden.count(), 0);
}
