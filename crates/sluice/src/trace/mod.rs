//! `sluice trace` and `sluice capture`: packets on their way through the gateway, as they come.

mod pcapng;
mod text;

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use nix::unistd::geteuid;
use sluice_control::api::trace::{TraceFilter, TracedPacket};
use sluice_control::{TraceError, TraceOptions, Traced, Tracer};

use crate::Instance;
use crate::arguments::Given;
use crate::exit::{Failure, Outcome};
use crate::interrupt;

pub use text::{block, line};

/// Of a frame, for its headers.
const HEADERS: u32 = 192;
/// The kernel hands over no more of one.
pub const LONGEST: u32 = 60_000;
/// Packets a second and CPU that are explained one by one, and that are written down.
const TRACED: u32 = 1000;
const CAPTURED: u32 = 20_000;

#[derive(Args)]
pub struct TraceArgs {
    #[command(flatten)]
    filter: Given<TraceFilter>,
    #[command(flatten)]
    end: End,
    /// Only packets that are dropped
    #[arg(long)]
    drops: bool,
    /// A JSON object a line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    instance: Instance,
}

#[derive(Args)]
pub struct CaptureArgs {
    #[command(flatten)]
    filter: Given<TraceFilter>,
    /// End after so many packets
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// End after so many seconds
    #[arg(long, value_name = "S")]
    duration: Option<u64>,
    /// Only packets that are dropped, as they are then
    #[arg(long)]
    drops: bool,
    /// Write frames and verdicts here, for Wireshark and tshark; `-` is standard output
    #[arg(short, long = "write", value_name = "FILE.pcapng")]
    write: Option<PathBuf>,
    /// Bytes of each frame
    #[arg(long, value_name = "BYTES", default_value_t = LONGEST, value_parser = clap::value_parser!(u32).range(64..=i64::from(LONGEST)))]
    snaplen: u32,
    #[command(flatten)]
    instance: Instance,
}

/// When a trace ends by itself.
#[derive(Args, Clone, Copy)]
pub struct End {
    /// End after so many packets
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub count: u64,
    /// End after so many seconds
    #[arg(long, value_name = "S")]
    pub duration: Option<u64>,
}

/// What is wanted of the packets of a shell, or of a command.
pub struct Wanted<'a> {
    pub state_dir: &'a Path,
    pub filter: TraceFilter,
    pub drops: bool,
    /// Bytes of a frame; only its headers, if none are given.
    pub snaplen: Option<u32>,
    pub count: Option<u64>,
    pub duration: Option<u64>,
}

pub fn trace(args: &TraceArgs) -> Outcome {
    interrupt::install_all().map_err(Failure::failed)?;
    let wanted = Wanted {
        state_dir: &args.instance.state_dir,
        filter: (*args.filter.0).clone(),
        drops: args.drops,
        snaplen: None,
        count: Some(args.end.count),
        duration: args.end.duration,
    };
    let mut out = io::stdout().lock();
    let told = follow(&wanted, announce, |packet, _| {
        if args.json {
            serde_json::to_writer(&mut out, packet)?;
            writeln!(out)?;
        } else {
            writeln!(out, "{}", block(packet))?;
        }
        out.flush()
    })?;
    eprintln!("sluice: {told}");
    Ok(ExitCode::SUCCESS)
}

pub fn capture(args: &CaptureArgs) -> Outcome {
    interrupt::install_all().map_err(Failure::failed)?;
    let wanted = Wanted {
        state_dir: &args.instance.state_dir,
        filter: (*args.filter.0).clone(),
        drops: args.drops,
        snaplen: args.write.as_ref().map(|_| args.snaplen),
        count: args.count,
        duration: args.duration,
    };
    let told = match &args.write {
        Some(file) => write(&wanted, file)?,
        None => {
            let mut out = io::stdout().lock();
            follow(&wanted, announce, |packet, _| {
                writeln!(out, "{}", line(packet)).and_then(|()| out.flush())
            })?
        }
    };
    eprintln!("sluice: {told}");
    Ok(ExitCode::SUCCESS)
}

fn announce() {
    eprintln!("sluice: looking at packets; Ctrl-C ends it");
}

/// Into a file, which is there before any packet is looked at.
pub fn write(wanted: &Wanted<'_>, file: &Path) -> Result<Told, Failure> {
    may_trace()?;
    let cannot = |error: io::Error| {
        Failure::bad_input(format!("cannot write {}: {error}; check the path", file.display()))
    };
    let out: Box<dyn Write> = match file.as_os_str() == "-" {
        true => Box::new(io::stdout()),
        false => Box::new(File::create(file).map_err(cannot)?),
    };
    let mut writer =
        pcapng::Writer::new(BufWriter::new(out), wanted.snaplen.unwrap_or(LONGEST)).map_err(cannot)?;
    let told = follow(wanted, announce, |packet, traced| writer.packet(packet, traced))?;
    writer.finish().map_err(Failure::failed)?;
    Ok(told)
}

/// How many packets were told, and how many were not.
pub struct Told {
    packets: u64,
    rate: u64,
    lost: u64,
    most: u32,
}

impl std::fmt::Display for Told {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} packets", self.packets)?;
        if self.rate != 0 {
            write!(
                f,
                "; {} more were left out, beyond {} a second and CPU: narrow the filter",
                self.rate, self.most
            )?;
        }
        if self.lost != 0 {
            write!(f, "; {} parts were lost, which found the buffer full", self.lost)?;
        }
        Ok(())
    }
}

fn may_trace() -> Result<(), Failure> {
    match geteuid().is_root() {
        true => Ok(()),
        false => {
            Err(Failure::failed("only root may look at packets: the kernel lets nobody else load programs"))
        }
    }
}

/// Packets one by one, until there are enough, the time is over, somebody interrupts, or nobody wants to see more.
pub fn follow(
    wanted: &Wanted<'_>,
    begun: impl FnOnce(),
    mut show: impl FnMut(&TracedPacket, &Traced) -> io::Result<()>,
) -> Result<Told, Failure> {
    may_trace()?;
    let failed = |error: TraceError| match error.is_bad_input() {
        true => Failure::bad_input(error),
        false => Failure::failed(error),
    };
    let most = if wanted.snaplen.is_some() { CAPTURED } else { TRACED };
    let options = TraceOptions {
        filter: wanted.filter.clone(),
        snaplen: wanted.snaplen.unwrap_or(HEADERS),
        rate: most,
        drops: wanted.drops,
    };
    let (packets, is_over) = (Cell::new(0), Cell::new(false));
    let mut ended = Ok(());
    let tracer = Tracer::open(wanted.state_dir).map_err(failed)?;
    let start = Instant::now();
    let go_on = || {
        wanted.count.is_none_or(|count| packets.get() < count)
            && wanted.duration.is_none_or(|most| start.elapsed() < Duration::from_secs(most))
            && !interrupt::requested()
            && !is_over.get()
    };
    let untold = tracer.run(&options, begun, go_on, |packet, traced| {
        packets.set(packets.get() + 1);
        ended = show(&packet, traced);
        is_over.set(ended.is_err());
    });
    let untold = untold.map_err(failed)?;
    match ended {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::failed(error)),
        _ => Ok(Told { packets: packets.get(), rate: untold.rate, lost: untold.lost, most }),
    }
}
