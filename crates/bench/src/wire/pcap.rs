//! Captures in the pcap format (draft-ietf-opsawg-pcap), as `tcpdump -w` and `editcap -F pcap` write them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::Device;
use super::generator::{Generator, Tempo};
use super::socket::PacketSocket;

/// A frame and when it was taken.
pub type Record = (Duration, Vec<u8>);

const MICROSECONDS: u32 = 0xa1b2_c3d4;
const NANOSECONDS: u32 = 0xa1b2_3c4d;
const PCAPNG: u32 = 0x0a0d_0d0a;
const FILE_HEADER: usize = 24;
const RECORD_HEADER: usize = 16;
const ETHERNET: u32 = 1;

pub fn read(path: &Path) -> Result<Vec<Record>> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    parse(&bytes).with_context(|| format!("{} cannot be replayed", path.display()))
}

pub fn parse(bytes: &[u8]) -> Result<Vec<Record>> {
    ensure!(bytes.len() >= FILE_HEADER, "{} bytes are too few for a capture", bytes.len());
    let little = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|i| bytes[at + i]));
    let big = |at: usize| u32::from_be_bytes([0, 1, 2, 3].map(|i| bytes[at + i]));
    let (word, nanoseconds): (&dyn Fn(usize) -> u32, bool) = match (little(0), big(0)) {
        (MICROSECONDS, _) => (&little, false),
        (NANOSECONDS, _) => (&little, true),
        (_, MICROSECONDS) => (&big, false),
        (_, NANOSECONDS) => (&big, true),
        (PCAPNG, _) => bail!("it is a pcapng file; `editcap -F pcap IN OUT` converts it"),
        _ => bail!("it is no pcap file"),
    };
    let link = word(20) & 0x0fff_ffff;
    ensure!(link == ETHERNET, "its link type is {link}, not Ethernet (1)");
    let (mut records, mut at) = (vec![], FILE_HEADER);
    while at < bytes.len() {
        let number = records.len() + 1;
        ensure!(at + RECORD_HEADER <= bytes.len(), "record {number} is cut off");
        let (seconds, fraction, kept, length) = (word(at), word(at + 4), word(at + 8), word(at + 12));
        ensure!(
            kept == length,
            "record {number} holds {kept} of {length} bytes: capture whole frames (`-s 0`)"
        );
        at += RECORD_HEADER;
        let frame = bytes.get(at..at + kept as usize);
        let frame = frame.with_context(|| format!("record {number} is cut off"))?;
        at += kept as usize;
        let nanos = if nanoseconds { fraction } else { fraction.saturating_mul(1000) };
        records
            .push((Duration::from_secs(seconds.into()) + Duration::from_nanos(nanos.into()), frame.to_vec()));
    }
    Ok(records)
}

/// A capture with nanoseconds.
pub fn write(records: &[Record]) -> Vec<u8> {
    let mut bytes = [NANOSECONDS, 4 << 16 | 2, 0, 0, 262_144, ETHERNET].map(u32::to_le_bytes).concat();
    for (time, frame) in records {
        let length = frame.len() as u32;
        bytes.extend(
            [time.as_secs() as u32, time.subsec_nanos(), length, length].map(u32::to_le_bytes).concat(),
        );
        bytes.extend(frame);
    }
    bytes
}

/// Play a capture (pcap, Ethernet) out of a device, every packet once
#[derive(Debug, Clone, clap::Args)]
pub struct ReplayArgs {
    /// The capture; `editcap -F pcap` makes one of a pcapng file
    pub capture: PathBuf,
    /// The device that the packets leave by
    #[arg(long = "if", value_name = "DEVICE")]
    pub device: String,
    /// At the times of the capture instead of as fast as it goes
    #[arg(long)]
    pub recorded: bool,
    /// By a packet socket: slower, and for any device
    #[arg(long, conflicts_with = "recorded")]
    pub socket: bool,
}

pub fn command(args: &ReplayArgs) -> Result<ExitCode> {
    let records = read(&args.capture)?;
    let ifindex = nix::net::if_::if_nametoindex(args.device.as_str())
        .with_context(|| format!("there is no device {}", args.device))?;
    let bytes: usize = records.iter().map(|(_, frame)| frame.len()).sum();
    let began = Instant::now();
    if args.socket {
        let frames: Vec<&[u8]> = records.iter().map(|(_, frame)| &frame[..]).collect();
        PacketSocket::open(ifindex)?.send_all(&frames)?;
    } else {
        let tempo = if args.recorded { Tempo::Recorded } else { Tempo::AsFastAsItGoes };
        let span = records
            .last()
            .zip(records.first())
            .map_or(Duration::ZERO, |(last, first)| last.0.saturating_sub(first.0));
        let mut generator = Generator::of_capture(&records)?;
        let running = generator.replay(Device { netns: None, ifindex }, records.len(), tempo)?;
        running.finish(2 * span + Duration::from_secs(30))?;
    }
    let seconds = began.elapsed().as_secs_f64();
    println!("{} packets, {bytes} bytes, each once, in {seconds:.3} s", records.len());
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records() -> Vec<Record> {
        vec![(Duration::new(5, 1), vec![1; 60]), (Duration::new(6, 999_999_999), vec![2; 1514])]
    }

    #[test]
    fn what_is_written_is_read() {
        assert_eq!(parse(&write(&records())).unwrap(), records());
        assert_eq!(parse(&write(&[])).unwrap(), []);
    }

    #[test]
    fn either_order_of_bytes_and_either_fraction_is_read() {
        let file = [0xa1b2_c3d4, 2 << 16 | 4, 0, 0, 65_535, 1, 7, 250, 14, 14].map(u32::to_be_bytes).concat();
        let found = parse(&[&file[..], &[9; 14]].concat()).unwrap();
        assert_eq!(found, [(Duration::new(7, 250_000), vec![9; 14])]);
    }

    #[test]
    fn damaged_captures_are_refused_with_the_record() {
        let whole = write(&records());
        let refused = |bytes: &[u8]| parse(bytes).unwrap_err().to_string();
        assert!(refused(&whole[..whole.len() - 1]).contains("record 2 is cut off"));
        assert!(refused(&whole[..10]).contains("too few"));
        let mut short = whole.clone();
        short[36] = 99;
        assert!(refused(&short).contains("record 1 holds 60 of 99 bytes"));
        let mut wifi = whole.clone();
        wifi[20] = 105;
        assert!(refused(&wifi).contains("link type is 105"));
        let mut ng = whole;
        ng[..4].copy_from_slice(&PCAPNG.to_le_bytes());
        assert!(refused(&ng).contains("editcap"));
    }
}
