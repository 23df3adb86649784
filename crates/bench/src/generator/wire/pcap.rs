//! Captures to play, which the monitor's reader reads: pcap and pcapng, compressed or not, of whole Ethernet frames.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use nix::sys::memfd::{MFdFlags, memfd_create};
use sluice_lab::devices::count_here;
use sluice_monitor::capture::{CaptureError, FileSource, Source};
use sluice_monitor::frame::{Batch, LinkType};

use super::Device;
use super::generator::{Generator, Tempo};
use super::receiver::{Receiver, Role};
use super::socket::PacketSocket;
use crate::generator::link::Target;

/// A frame and when it was taken.
pub type Record = (Duration, Vec<u8>);

/// Frames that left, as the driver counts.
const TRANSMITTED: &str = "tx/packets";
/// Drivers count what they have sent a little later.
const COUNTED: Duration = Duration::from_secs(1);
const NANOSECONDS: u32 = 0xa1b2_3c4d;
const ETHERNET: u32 = 1;

/// Every frame of a pcap or pcapng file of Ethernet.
pub fn read(path: &Path) -> Result<Vec<Record>> {
    records_of(path).with_context(|| format!("{} cannot be replayed", path.display()))
}

/// Reads a capture that is in memory.
pub fn parse(bytes: &[u8]) -> Result<Vec<Record>> {
    let mut file = File::from(memfd_create("capture", MFdFlags::MFD_CLOEXEC)?);
    file.write_all(bytes)?;
    records_of(Path::new(&format!("/proc/self/fd/{}", file.as_raw_fd())))
}

fn records_of(path: &Path) -> Result<Vec<Record>> {
    let name = path.to_str().context("its name is no UTF-8")?;
    let mut source = FileSource::open(name).map_err(fatal)?;
    let (mut records, mut batch) = (vec![], Batch::default());
    loop {
        let more = source.next_batch(&mut batch).map_err(fatal)?;
        for frame in batch.frames() {
            let (number, link, kept) = (frame.number, frame.link, frame.data.len());
            ensure!(link == LinkType::Ethernet, "record {number} is no Ethernet frame: {link:?}");
            ensure!(
                !frame.is_cut(),
                "record {number} holds {kept} of {} bytes: capture whole frames (`-s 0`)",
                frame.wire_len
            );
            records.push((Duration::from_nanos(frame.time_ns), frame.data.to_vec()));
        }
        if !more {
            return Ok(records);
        }
    }
}

/// The monitor keeps what stands before an error; of a capture that is played, all must be there.
fn fatal(error: CaptureError) -> anyhow::Error {
    match error {
        CaptureError::Cut { frames, .. } => anyhow!("record {} is cut off", frames + 1),
        CaptureError::Damaged { at, what, .. } => anyhow!("it is damaged at byte {at}: {what}"),
        other => other.into(),
    }
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

/// Play a capture of Ethernet frames out of a device, every packet once
#[derive(Debug, Clone, clap::Args)]
pub struct ReplayArgs {
    /// The capture: pcap or pcapng, also compressed by gzip or zstd
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

/// `sluice bench replay`
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
        let device = Device { netns: None, ifindex };
        let mut generator = Generator::of_capture(&records)?;
        let mut receiver = Receiver::load(1)?;
        // Some drivers send redirected frames only when the sending device carries a program too; that has its own already.
        let _ = receiver.attach(device, Role::Pass, Target::XdpNative);
        let before = count_here(&args.device, TRANSMITTED)?;
        let running = generator.replay(device, records.len(), tempo)?;
        running.finish(2 * span + Duration::from_secs(30))?;
        all_left(&args.device, before, records.len() as u64)?;
    }
    let seconds = began.elapsed().as_secs_f64();
    println!("{} packets, {bytes} bytes, each once, in {seconds:.3} s", records.len());
    Ok(ExitCode::SUCCESS)
}

/// The kernel takes frames that a device then drops: one without XDP transmission, or a veth whose peer does not poll.
fn all_left(device: &str, before: u64, records: u64) -> Result<()> {
    let deadline = Instant::now() + COUNTED;
    loop {
        let left = count_here(device, TRANSMITTED)?.saturating_sub(before);
        if left >= records {
            return Ok(());
        }
        ensure!(
            Instant::now() < deadline,
            "{device} counts {left} of {records} packets as sent and dropped the others: its driver, or the other end of a \
             veth, takes no frames from XDP; --socket sends by any device"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
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
    fn pcapng_is_read() {
        let section = [0x0a0d_0d0a, 28, 0x1a2b_3c4d, 1, u32::MAX, u32::MAX, 28];
        let interface = [1, 20, ETHERNET, 0, 20];
        let packet = [6, 48, 0, 0, 7_000_250, 14, 14];
        let head = [&section[..], &interface, &packet].concat();
        let mut file: Vec<u8> = head.into_iter().flat_map(u32::to_le_bytes).collect();
        file.extend([9; 14].into_iter().chain([0; 2]).chain(48u32.to_le_bytes()));
        assert_eq!(parse(&file).unwrap(), [(Duration::new(7, 250_000), vec![9; 14])]);
    }

    #[test]
    fn damaged_captures_are_refused_with_the_record() {
        let whole = write(&records());
        let refused = |bytes: &[u8]| parse(bytes).unwrap_err().to_string();
        assert!(refused(&whole[..whole.len() - 1]).contains("record 2 is cut off"));
        assert!(refused(&whole[..10]).contains("record 1 is cut off"));
        assert!(refused(b"no capture").contains("not a capture"));
        let mut short = whole.clone();
        short[36] = 99;
        assert!(refused(&short).contains("record 1 holds 60 of 99 bytes"));
        let mut wifi = whole;
        wifi[20] = 105;
        assert!(refused(&wifi).contains("record 1 is no Ethernet frame"));
    }
}
