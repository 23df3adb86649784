//! `sluice monitor` and `sluice pcap`: what the command line says, and what is done then.

use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::{Args as ClapArgs, Subcommand, ValueEnum};

use crate::analysis::{Control, Options, analyze};
use crate::beside::not_a_source;
use crate::capture::{self, CaptureError};
use crate::compare::{self, CompareArgs};
use crate::generate::{GenerateArgs, generate};
use crate::replay::Paced;
use crate::report::{self, Live, Progress, terminal_width};
use crate::results::{Database, Detail, JsonLines, Outputs, Reader, RunInfo, TextFile, export};
use crate::serve::{self, Served};
use crate::slice::{self, SliceArgs, Span};
use crate::summary::Summary;

/// Watch MACsec, IPsec and GTP-U links without keys: loss, reordering, replays, rekeys (docs/MONITOR.md)
///
/// Exit code 0 when everything was analysed (a live watch: until it was ended), 1 when results are partial, 2 when nothing
/// came of it.
#[derive(ClapArgs, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    watch: WatchArgs,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Match the packets of two taps: where each was lost, and how long it took
    Compare(CompareArgs),
    /// Write a database's channels and their intervals into plain tables, for questions in SQL
    Export(ExportArgs),
    /// Serve a database over HTTP: REST and a page for the browser
    Serve(ServeArgs),
    /// Write the packets around an event, or of one channel, into a capture file
    Slice(SliceArgs),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// The database gets a row a channel and interval only where something happened
    Fast,
    /// It gets one for every channel and interval with packets
    #[default]
    Full,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Replay {
    /// In the time that it took when it was captured
    Real,
    #[default]
    Fast,
}

#[derive(ClapArgs, Debug)]
struct WatchArgs {
    /// Capture files (pcap, pcapng; gz, zst), read in the order of their first frames; `-` for standard input; or
    /// interfaces; xdp:eth1 takes the frames of a tap that nobody else uses (AF_XDP). A name that ends in .db behind them
    /// is what --db would name
    #[arg(required = true, value_name = "SOURCE")]
    sources: Vec<String>,
    /// Write results into this SQLite database, as a run of its own
    #[arg(long, value_name = "FILE")]
    db: Option<PathBuf>,
    /// How much of each channel's course the database keeps
    #[arg(long, value_enum, default_value_t)]
    mode: Mode,
    /// How fast capture files are played
    #[arg(long, value_enum, default_value_t, num_args = 0..=1, default_missing_value = "fast")]
    replay: Replay,
    /// Write results as JSON lines
    #[arg(long, value_name = "FILE")]
    jsonl: Option<PathBuf>,
    /// Keep a Prometheus text file up to date (for a textfile collector)
    #[arg(long, value_name = "FILE")]
    prometheus: Option<PathBuf>,
    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
    /// Threads that parse and keep channels; results do not depend on their number
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    workers: u16,
    /// Length of an interval of capture time
    #[arg(long, value_name = "D", default_value = "1s")]
    interval: Span,
    /// Channels kept at the same time; beyond that the longest silent ones are evicted and counted
    #[arg(long, value_name = "N", default_value_t = 1 << 20, value_parser = clap::value_parser!(u32).range(1024..))]
    max_channels: u32,
    /// User data in clear text is an anomaly on this link
    #[arg(long)]
    expect_protected: bool,
    /// All interfaces are members of one aggregated link, whose frames form one sequence
    #[arg(long)]
    merge_interfaces: bool,
    /// Longer frames are an anomaly
    #[arg(long, value_name = "BYTES")]
    mtu: Option<u32>,
    /// A pause between two keys of a busy sender is an anomaly from this length on
    #[arg(long, value_name = "D", default_value = "1s")]
    rekey_pause: Span,
    /// End after so long (live interfaces)
    #[arg(long, value_name = "D")]
    duration: Option<Span>,
    /// No progress bar and no live table
    #[arg(long, short)]
    quiet: bool,
}

#[derive(ClapArgs, Debug)]
struct ServeArgs {
    /// What `sluice monitor SOURCE --db` writes, also while it does
    #[arg(long, value_name = "FILE")]
    db: PathBuf,
    /// Address to listen on; nobody is asked for a password, so others than this machine must be wanted
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    bind: std::net::IpAddr,
    #[arg(long, default_value_t = 9999)]
    port: u16,
    /// Further names under which browsers may ask (Host header)
    #[arg(long = "name", value_name = "NAME")]
    names: Vec<String>,
}

#[derive(ClapArgs, Debug)]
struct ExportArgs {
    /// What `sluice monitor SOURCE --db` wrote
    #[arg(long, value_name = "FILE")]
    db: PathBuf,
    /// A new SQLite database with the tables channel and channel_interval
    #[arg(long, value_name = "FILE")]
    output: PathBuf,
    /// Number of the run; the newest without it
    #[arg(long, value_name = "N")]
    run: Option<i64>,
}

/// Make captures
#[derive(ClapArgs, Debug)]
pub struct PcapArgs {
    #[command(subcommand)]
    command: PcapCommand,
}

#[derive(Subcommand, Debug)]
enum PcapCommand {
    Generate(GenerateArgs),
}

const PARTIAL: u8 = 1;
const NOTHING: u8 = 2;

/// An error behind which there are results.
#[derive(Debug, thiserror::Error)]
#[error("{0:#}")]
struct Partway(anyhow::Error);

/// Runs `sluice monitor ...`.
pub fn main(args: Args) -> Result<ExitCode> {
    let result = match args.command {
        None => watch(args.watch),
        Some(Command::Compare(args)) => compared(&args),
        Some(Command::Serve(args)) => {
            let address = SocketAddr::from((args.bind, args.port));
            let served = Served { names: args.names, ..Served::new(&args.db) };
            serve::run(&served, address).map(|()| ExitCode::SUCCESS)
        }
        Some(Command::Export(args)) => exported(&args),
        Some(Command::Slice(args)) => sliced(&args),
    };
    result.or_else(|error| Ok(failed("monitor", &error)))
}

/// Says an error; its exit code.
fn failed(command: &str, error: &anyhow::Error) -> ExitCode {
    match error.downcast_ref::<CaptureError>() {
        // Says its cause itself.
        Some(capture) => eprintln!("sluice {command}: {capture}"),
        None => eprintln!("sluice {command}: {error:#}"),
    }
    ExitCode::from(if error.is::<Partway>() { PARTIAL } else { NOTHING })
}

/// Runs `sluice pcap ...`.
pub fn pcap(args: &PcapArgs) -> Result<ExitCode> {
    let PcapCommand::Generate(args) = &args.command;
    let start = Instant::now();
    let made = match generate(args.options(), &args.output) {
        Ok(made) => made,
        Err(error) => return Ok(failed("pcap", &error)),
    };
    println!(
        "{}: {} frames, {} channels, {:.1} s; the truth about them: {}",
        args.output.display(),
        made.totals.frames,
        made.totals.channels,
        start.elapsed().as_secs_f64(),
        made.truth.display()
    );
    Ok(ExitCode::SUCCESS)
}

fn watch(mut args: WatchArgs) -> Result<ExitCode> {
    take_database(&mut args)?;
    let args = &args;
    let mut source = capture::open_all(&args.sources, args.expect_protected)?;
    let control = Arc::new(Control::default());
    if args.replay == Replay::Real {
        source = Box::new(Paced::new(source, Arc::clone(&control)));
    }
    stop_on_signal(&control, args.duration)?;
    let mut outputs = outputs(args, source.name())?;
    let is_file = source.progress().1.is_some();
    let bar = (is_file && !args.quiet && args.replay == Replay::Fast)
        .then(|| Progress::start(Arc::clone(&control), source.name()));
    if bar.is_none() && !args.quiet {
        outputs.extend(Live::on_terminal());
    }
    let mut summary = analyze(source.as_mut(), &options(args), &mut outputs, &control).map_err(partway)?;
    summary.peak_memory_bytes = peak_memory().unwrap_or(0);
    drop(bar);
    print(&summary, args.json).map_err(partway)?;
    for error in &outputs.errors {
        eprintln!("sluice monitor: {error:#}");
    }
    Ok(match (summary.partial, outputs.errors.is_empty()) {
        // Who stops it does not know whether a frame has come yet: that is partial either way.
        (Some(what), _) if summary.frames == 0 && !control.stop.load(Ordering::Relaxed) => {
            eprintln!("sluice monitor: {what}");
            ExitCode::from(NOTHING)
        }
        (None, true) => ExitCode::SUCCESS,
        _ => ExitCode::from(PARTIAL),
    })
}

/// What a source cannot be read for ends a run before there are results, anything else behind some.
fn partway(error: anyhow::Error) -> anyhow::Error {
    if error.is::<CaptureError>() { error } else { Partway(error).into() }
}

/// A file of results, or the name of one to be made.
fn is_database(path: &Path) -> bool {
    let named =
        path.extension().is_some_and(|end| ["db", "sqlite", "sqlite3"].iter().any(|known| end == *known));
    let mut start = [0; 16];
    let is_made = match File::open(path) {
        Ok(mut file) => {
            file.read(&mut start).is_ok_and(|length| length == 0 || start == *b"SQLite format 3\0")
        }
        Err(_) => true,
    };
    named && is_made
}

/// `sluice monitor link.pcap link.db`: the database may stand behind the sources.
fn take_database(args: &mut WatchArgs) -> Result<()> {
    let Some(last) = args.sources.pop_if(|last| is_database(Path::new(last))) else { return Ok(()) };
    ensure!(
        !args.sources.is_empty(),
        "{last} is a database for results: name a capture or an interface before it, or serve it with \
         `sluice monitor serve --db {last}`"
    );
    if let Some(db) = &args.db {
        bail!("two databases for results, --db {} and {last}: give one", db.display());
    }
    args.db = Some(last.into());
    Ok(())
}

fn options(args: &WatchArgs) -> Options {
    Options {
        workers: args.workers.into(),
        interval_ns: args.interval.0,
        max_channels: args.max_channels as usize,
        expect_protected: args.expect_protected,
        merge_interfaces: args.merge_interfaces,
        mtu: args.mtu,
        rekey_pause_ns: args.rekey_pause.0,
    }
}

fn outputs(args: &WatchArgs, source: &str) -> Result<Outputs> {
    ensure!(args.interval.0 >= 1_000_000, "--interval: at least 1ms");
    let sources: Vec<&str> = args.sources.iter().map(String::as_str).collect();
    for (option, path) in [("--jsonl", &args.jsonl), ("--prometheus", &args.prometheus)] {
        path.as_ref().map_or(Ok(()), |path| not_a_source(option, path, &sources))?;
    }
    let mut outputs = Outputs::default();
    if let Some(path) = &args.db {
        let detail = if args.mode == Mode::Fast { Detail::Fast } else { Detail::Full };
        let info = RunInfo { source: source.to_owned(), interval_ns: args.interval.0, detail };
        outputs.push(Box::new(Database::create(path, &info)?));
    }
    if let Some(path) = &args.jsonl {
        outputs.push(Box::new(JsonLines::create(path)?));
    }
    if let Some(path) = &args.prometheus {
        outputs.push(Box::new(TextFile::create(path)?));
    }
    Ok(outputs)
}

fn print(found: &Summary, json: bool) -> Result<()> {
    if json {
        println!("{}", serde_json::to_string_pretty(found)?);
    } else {
        print!("{}", report::text(found, terminal_width()));
    }
    Ok(())
}

fn compared(args: &CompareArgs) -> Result<ExitCode> {
    let found = compare::run(args)?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&found)?);
    } else {
        print!("{}", compare::print(&found));
    }
    let whole = found.a.partial.is_none() && found.b.partial.is_none();
    Ok(if whole { ExitCode::SUCCESS } else { ExitCode::from(PARTIAL) })
}

fn exported(args: &ExportArgs) -> Result<ExitCode> {
    let reader = Reader::open(&args.db)?;
    let run = reader.run(args.run)?;
    let written = export(&reader, &run, &args.output)?;
    println!(
        "{}: {} rows in channel, {} in channel_interval, of run {} ({})",
        args.output.display(),
        written.channels,
        written.intervals,
        run.number,
        run.source
    );
    Ok(ExitCode::SUCCESS)
}

fn sliced(args: &SliceArgs) -> Result<ExitCode> {
    let control = Arc::new(Control::default());
    stop_on_signal(&control, None)?;
    let slice = slice::run(args, &control.stop)?;
    if slice.frames == 0 {
        let what = anyhow!("no packet matched, so {} was written without any", slice.output.display());
        return Err(Partway(what).into());
    }
    println!(
        "{}: {} frames, {} to {} of {}",
        slice.output.display(),
        slice.frames,
        slice.first_frame,
        slice.last_frame,
        args.sources.join(", ")
    );
    if slice.left_out > 0 {
        eprintln!(
            "sluice monitor: {} earlier frames before the event did not fit into memory",
            slice.left_out
        );
    }
    match slice.partial {
        None => Ok(ExitCode::SUCCESS),
        Some(what) => Err(Partway(anyhow!(what)).into()),
    }
}

/// `VmHWM` of proc_pid_status(5).
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// Ends the run in good order on SIGINT, SIGTERM, or after a time; a second signal ends it as usual.
fn stop_on_signal(control: &Arc<Control>, duration: Option<Span>) -> Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let control = Arc::clone(control);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // Before anything is analysed, not when the thread has a turn.
    let (mut interrupt, mut terminate) = {
        let _within = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
    };
    let wait = move || {
        runtime.block_on(async {
            let after = duration.map_or(Duration::MAX, |span| Duration::from_nanos(span.0));
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                () = tokio::time::sleep(after) => {}
            }
            control.stop.store(true, Ordering::Relaxed);
            tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
            std::process::exit(130);
        });
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(wait).context("cannot wait for signals")?;
    Ok(())
}
