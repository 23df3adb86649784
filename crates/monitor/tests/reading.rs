//! What reading and parsing cost, without channels. Run with
//! `cargo test --release -p sluice-monitor --test all reading:: -- --ignored --nocapture`.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Instant;

use sluice_monitor::capture;
use sluice_monitor::frame::Batch;
use sluice_monitor::protocol;

/// A frame of `length` bytes with `number` as its sequence number: one of MACsec, ESP, ESP in UDP, GTP-U.
fn frame(kind: u64, number: u32, length: usize) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    let ip = |frame: &mut Vec<u8>, protocol: u8| {
        frame.extend([0x08, 0x00, 0x45, 0]);
        frame.extend((length as u16 - 14).to_be_bytes());
        frame.extend([0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    };
    let udp = |frame: &mut Vec<u8>, port: u16| {
        frame.extend(port.to_be_bytes().repeat(2));
        frame.extend((length as u16 - 34).to_be_bytes());
        frame.extend([0, 0]);
    };
    match kind {
        0 => {
            frame.extend([0x88, 0xe5, 0x2c, 0]);
            frame.extend(number.to_be_bytes());
            frame.extend([2, 0, 0, 0, 0, 2, 0, 1]);
        }
        1 => ip(&mut frame, 50),
        2 => {
            ip(&mut frame, 17);
            udp(&mut frame, 4500);
        }
        _ => {
            ip(&mut frame, 17);
            udp(&mut frame, 2152);
            frame.extend([0x32, 255]);
            frame.extend((length as u16 - 50).to_be_bytes());
        }
    }
    if kind > 0 {
        frame.extend([0, 0, 0x12, 0x34]);
        frame.extend(number.to_be_bytes());
    }
    frame.resize(length, number as u8);
    frame
}

/// `kinds` protocols in turn.
fn write(path: &Path, frames: u32, length: usize, kinds: u64) {
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path).unwrap());
    let words = |file: &mut BufWriter<File>, words: &[u32]| {
        words.iter().for_each(|word| file.write_all(&word.to_le_bytes()).unwrap());
    };
    words(&mut file, &[0xa1b2_3c4d, 0x0004_0002, 0, 0, 262_144, 1]);
    // Protocols come in no order that a processor could learn.
    let mut random = 0x2545_f491_4f6c_dd1du64;
    for number in 0..frames {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        words(&mut file, &[1_700_000_000, number, length as u32, length as u32]);
        file.write_all(&frame(random % kinds, number, length)).unwrap();
    }
    file.flush().unwrap();
}

/// Nanoseconds a frame for reading alone and for reading and parsing, the best of five.
fn measure(path: &Path) -> (f64, f64) {
    let mut best = (f64::MAX, f64::MAX);
    for round in 0..10 {
        let mut source = capture::open(path.to_str().unwrap()).unwrap();
        let (mut batch, mut frames, mut sum) = (Batch::default(), 0u64, 0u64);
        let start = Instant::now();
        loop {
            let more = source.next_batch(&mut batch).unwrap();
            for frame in batch.frames() {
                sum += match round % 2 {
                    0 => u64::from(frame.data[0]),
                    _ => protocol::observe(&frame)
                        .map_or(0, |seen| seen.sequence + u64::from(seen.fingerprint)),
                };
            }
            frames += batch.len() as u64;
            if !more {
                break;
            }
        }
        let ns = start.elapsed().as_nanos() as f64 / frames as f64;
        assert!(sum > 0);
        match round % 2 {
            0 => best.0 = ns.min(best.0),
            _ => best.1 = ns.min(best.1),
        }
    }
    best
}

/// Nanoseconds of parsing alone: one batch that stays in the cache.
fn observe_alone(path: &Path) -> f64 {
    let mut source = capture::open(path.to_str().unwrap()).unwrap();
    let mut batch = Batch::default();
    source.next_batch(&mut batch).unwrap();
    let mut best = f64::MAX;
    for _ in 0..200 {
        let start = Instant::now();
        let mut sum = 0;
        for frame in batch.frames() {
            sum += protocol::observe(&frame).map_or(0, |seen| seen.sequence + u64::from(seen.fingerprint));
        }
        assert!(sum > 0);
        best = (start.elapsed().as_nanos() as f64 / batch.len() as f64).min(best);
    }
    best
}

#[test]
#[ignore = "a measurement: needs a release build and a quiet machine"]
fn reading_and_parsing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("frames.pcap");
    for (length, frames, kinds) in
        [(64, 4_000_000, 1), (64, 4_000_000, 4), (128, 3_000_000, 4), (350, 1_500_000, 4), (1500, 400_000, 4)]
    {
        write(&path, frames, length, kinds);
        let (walk, parse) = measure(&path);
        println!(
            "{length} bytes, {kinds} protocols: walk {walk:.1} ns, with parsing {parse:.1} ns a frame = \
             {:.1} Mpps, {:.2} of the walk; parsing alone {:.1} ns",
            1000.0 / parse,
            walk / parse,
            observe_alone(&path)
        );
        assert!(parse < 1000.0, "{parse:.1} ns a frame");
    }
}
