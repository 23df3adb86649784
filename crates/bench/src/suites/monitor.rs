//! The monitor on capture files: packets a second on one core, beside reading and walking the same file.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use serde::Serialize;
use sluice_monitor::generate::{Mix, Options, Size, generate};
use sluice_monitor::summary::Summary;

use crate::method::affinity::{bench_cpu, keep_on};
use crate::method::chart::{Axis, Bar, Bars, Chart, LineChart, Point, Role, Series};
use crate::method::checks;
use crate::method::result::{Better, Check, Figure, SuiteResult, Table};
use crate::method::rounds::interleave;
use crate::method::stats::estimate;
use crate::method::suite::{Context, Suite};
use crate::testbed::gateway::CAPTURES as FOLDER;

mod live;
mod memory;

pub const SUITE: Suite = Suite {
    name: "monitor",
    help: "Captures analysed a second: frame sizes, channels, workers, database, beside a bare walk of the file",
    says: "How many packets of a capture file `sluice monitor` analyses in full (loss, reordering, copies, rekeys of every \
        channel) on one core, database included, with the file in the page cache. Captures are generated with planted faults \
        and as of a 10 Gb/s link at line rate; every packet is distinct and read once. The walk is the least that any reader of the same file does: read() into a \
        buffer that stays in the second-level cache, a step from record to record, and a look at the first 48 and last 8 \
        bytes of each frame, where headers and ICV are. Times are whole processes less the same command on an empty \
        capture. The live rows play a capture at its own times through a veth into a tap, and account for every frame. \
        Memory by size of the capture: the peak of a process beside that on a sixteenth of the frames, of as many channels.",
    silent: &[
        "Everything is warm: each capture is walked, and so in the page cache, before it is analysed. One that is not comes as \
        fast as its disk gives it.",
        "Live taps pay for the kernel's packet socket besides, about 300 ns a packet.",
        "More channels than fit the caches cost memory accesses: the two rows of channels show how much.",
    ],
    run: suite,
};

/// A capture and how it is analysed.
struct Case {
    name: &'static str,
    capture: usize,
    workers: u16,
    database: bool,
}

/// What is generated: frames, channels, size, mix.
struct Capture {
    name: &'static str,
    size: Size,
    flows: u32,
    quick: u64,
    full: u64,
    mix: Mix,
}

const CAPTURES: [Capture; 5] = [
    capture("64 B", Size::Fixed(64), 10_000, (2_000_000, 10_000_000), Mix::Macsec),
    capture("IMIX", Size::Imix, 10_000, (1_000_000, 5_000_000), Mix::Macsec),
    capture("1500 B", Size::Fixed(1500), 10_000, (300_000, 3_000_000), Mix::Macsec),
    capture("64 B, all protocols", Size::Fixed(64), 10_000, (1_000_000, 5_000_000), Mix::Mixed),
    capture("64 B, 1,000,000 channels", Size::Fixed(64), MANY, (3_000_000, 30_000_000), Mix::Macsec),
];

/// Takes too long for a quick run.
const MANY: u32 = 1_000_000;

const fn capture(name: &'static str, size: Size, flows: u32, packets: (u64, u64), mix: Mix) -> Capture {
    Capture { name, size, flows, quick: packets.0, full: packets.1, mix }
}

/// A case for every capture, then what differs from the first in one thing only.
const CASES: [Case; 8] = [
    case("64 B", 0, 1, true),
    case("IMIX", 1, 1, true),
    case("1500 B", 2, 1, true),
    case("64 B, all protocols", 3, 1, true),
    case("64 B, 1,000,000 channels", 4, 1, true),
    case("64 B, no database", 0, 1, false),
    case("64 B, two workers, no database", 0, 2, false),
    case("64 B, again", 0, 1, true),
];
const NO_DATABASE: usize = 5;
const TWO_WORKERS: usize = 6;
const AGAIN: usize = 7;
/// Other cases are told over these.
const NEEDED_BY_OTHERS: [usize; 3] = [0, NO_DATABASE, AGAIN];

/// Some figure of the case is.
fn is_promised(context: &Context, case: &str) -> bool {
    let begins = |name: &String| name.strip_prefix(case).is_some_and(|rest| rest.starts_with(':'));
    context.wanted.is_empty() || context.wanted.iter().any(begins)
}

const fn case(name: &'static str, capture: usize, workers: u16, database: bool) -> Case {
    Case { name, capture, workers, database }
}

/// Bits a second of the link that captures are of; 20 bytes of preamble and gap and 4 of FCS a frame (802.3).
const LINE: f64 = 10e9;
const OVERHEAD: f64 = 24.0;

/// Captures and databases of one run; removed at its end.
struct Shelf {
    path: PathBuf,
    /// What was generated and how: with the same options, the same frames would be.
    taken: Mutex<HashMap<String, (Options, Taken)>>,
}

impl Drop for Shelf {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            eprintln!("sluice bench: cannot remove {}: {error}", self.path.display());
        }
    }
}

/// The one that is in use.
static SHELF: Mutex<Weak<Shelf>> = Mutex::new(Weak::new());

/// Captures stay as long as what this returns, for a run that measures the suite several times.
pub fn keep_captures() -> Result<impl Sized> {
    Shelf::get()
}

impl Shelf {
    fn get() -> Result<Arc<Shelf>> {
        let mut last = SHELF.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shelf) = last.upgrade() {
            return Ok(shelf);
        }
        let path = std::env::temp_dir().join(format!("{FOLDER}{}", std::process::id()));
        let shelf = Arc::new(Shelf::at(path)?);
        *last = Arc::downgrade(&shelf);
        Ok(shelf)
    }

    fn at(path: PathBuf) -> Result<Shelf> {
        std::fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Shelf { path, taken: Mutex::default() })
    }

    fn capture(&self, name: &str, options: Options) -> Result<Taken> {
        let mut all = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, taken)) = all.get(name).filter(|(of, _)| *of == options) {
            return Ok(taken.clone());
        }
        let path = self.path.join(format!("{}.pcap", name.replace(' ', "_")));
        let made = generate(options.clone(), &path)
            .with_context(|| format!("cannot generate {}", path.display()))?;
        let taken = Taken { path, copies: made.totals.duplicates + made.totals.replays };
        all.insert(name.to_owned(), (options, taken.clone()));
        Ok(taken)
    }
}

/// A capture in a file.
#[derive(Clone)]
struct Taken {
    path: PathBuf,
    /// Frames that were planted a second time.
    copies: u64,
}

/// One run of the monitor.
#[derive(Debug, Clone, Serialize)]
struct Run {
    seconds: f64,
    frames: u64,
    channels: u64,
    memory: u64,
    /// Frames whose numbers had come before, and how many of them are the capture's own.
    seen_before: u64,
    copies: u64,
}

impl Run {
    fn new(seconds: f64, summary: &Summary, copies: u64) -> Run {
        let Summary { frames, channels, peak_memory_bytes: memory, counts, .. } = *summary;
        let seen_before = counts.duplicates + counts.replays + counts.reused + counts.too_old;
        Run { seconds, frames, channels, memory, seen_before, copies }
    }

    /// Whether each frame was read once: numbers that come again are told by the monitor itself.
    fn single_pass(&self) -> Check {
        let again = self.seen_before.abs_diff(self.copies).min(self.frames);
        checks::single_pass(self.frames, self.frames - again)
    }
}

fn suite(context: &Context) -> Result<SuiteResult> {
    let shelf = Shelf::get()?;
    let run = std::thread::scope(|scope| {
        // Children inherit the one CPU.
        let measure = || keep_on(bench_cpu()).and_then(|()| measure(context, &shelf));
        scope.spawn(measure).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    run.with_context(|| format!("with captures in {} (TMPDIR names another place)", shelf.path.display()))
}

fn measure(context: &Context, shelf: &Shelf) -> Result<SuiteResult> {
    let mut result = SuiteResult::new(SUITE.name);
    let empty = Taken { path: shelf.path.join("empty.pcap"), copies: 0 };
    std::fs::write(&empty.path, EMPTY)?;
    let is_long = |n: usize| context.quick() && CAPTURES[n].flows == MANY;
    let is_wanted = |n: usize| NEEDED_BY_OTHERS.contains(&n) || is_promised(context, CASES[n].name);
    let wanted: Vec<usize> =
        (0..CASES.len()).filter(|n| is_wanted(*n) && !is_long(CASES[*n].capture)).collect();
    let needed = |n: usize| wanted.iter().any(|case| CASES[*case].capture == n);
    let mut files = vec![];
    for (n, capture) in CAPTURES.iter().enumerate() {
        context.progress.at(0.3 * n as f64 / CAPTURES.len() as f64, &format!("generating {}", capture.name));
        let packets = context.pick(capture.quick, capture.full);
        files.push(needed(n).then(|| shelf.capture(capture.name, options(capture, packets))).transpose()?);
    }
    let mut runs: Vec<Vec<Run>> = CASES.iter().map(|_| vec![]).collect();
    // each file twice (A/A)
    let mut walks: [Vec<Vec<f64>>; 2] = [(); 2].map(|()| CASES.iter().map(|_| vec![]).collect());
    let total = (wanted.len() * context.rounds) as f64;
    let mut done = 0.0;
    let samples = interleave(wanted.len(), context.rounds, |i, _| {
        let n = wanted[i];
        let (case, file) = (&CASES[n], files[CASES[n].capture].as_ref().context("a capture that is needed")?);
        context.progress.at(0.3 + 0.6 * done / total, case.name);
        done += 1.0;
        let startup = analyse(shelf, &empty, case)?.seconds;
        let (frames, walked) = walk(&file.path)?;
        let run = analyse(shelf, file, case)?;
        ensure!(run.frames == frames, "{}: {} frames of {frames}", case.name, run.frames);
        let seconds = run.seconds - startup;
        let (_, again) = walk(&file.path)?;
        walks[0][n].push(frames as f64 / walked / 1e6);
        walks[1][n].push(frames as f64 / again / 1e6);
        runs[n].push(run);
        Ok(frames as f64 / seconds / 1e6)
    })?;
    let by_case = |n: usize| wanted.iter().position(|w| *w == n).map(|i| &samples[i][..]);
    for (n, case) in CASES.iter().enumerate() {
        let Some(mine) = by_case(n) else { continue };
        result.figures.extend(figures(case, n, mine, [&walks[0][n], &walks[1][n]], &runs[n], &by_case));
    }
    result.tables.push(table(&by_case, &runs));
    result.tables.push(line_rates(&by_case));
    if context.quick() {
        result.notes.push("1,000,000 channels belong to the full profile".to_owned());
    }
    result.charts.push(bars(&result.figures));
    context.progress.at(0.92, "sizes of captures");
    if context.wanted.is_empty() {
        scaling(context, shelf, &mut result)?;
    }
    result.figures.extend(memory::measure(context, shelf, &runs[0])?);
    context.progress.at(0.96, "live taps");
    live::measure(context, &shelf.path, &mut result)?;
    result.rows = serde_json::to_value(&runs)?;
    Ok(result)
}

fn options(capture: &Capture, packets: u64) -> Options {
    let bytes = match capture.size {
        Size::Fixed(bytes) => bytes as f64,
        Size::Imix => IMIX_MEAN,
    };
    Options {
        packets,
        flows: capture.flows,
        protocol: capture.mix,
        size: capture.size,
        loss: 0.001,
        reorder: 0.001,
        duplicate: 0.0002,
        replay: 0.0,
        rekey: 0,
        vlans: vec![],
        seed: 7,
        rate: Some((LINE / 8.0 / (bytes + OVERHEAD)) as u64),
    }
}

/// 7 of 64, 4 of 594, 1 of 1518, without FCS.
const IMIX_MEAN: f64 = 357.0;

/// The header of a pcap file of Ethernet frames without any.
const EMPTY: [u8; 24] =
    [0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 1, 0, 0, 0];

/// A whole process.
fn analyse(shelf: &Shelf, capture: &Taken, case: &Case) -> Result<Run> {
    let database = shelf.path.join("results.db");
    for name in ["results.db", "results.db-wal", "results.db-shm"] {
        // Usually there is none.
        let _ = std::fs::remove_file(shelf.path.join(name));
    }
    let program = std::env::current_exe().context("cannot find this program again")?;
    let mut command = if case.workers > 1 {
        let mut command = Command::new("taskset");
        command.arg("-c").arg(format!("0-{}", case.workers - 1)).arg(program);
        command
    } else {
        Command::new(program)
    };
    command.arg("monitor").arg(&capture.path).args([
        "--json",
        "--quiet",
        "--workers",
        &case.workers.to_string(),
    ]);
    command.args(["--max-channels", "2097152"]);
    if case.database {
        command.arg("--db").arg(&database);
    }
    let start = Instant::now();
    let output = command.stdin(Stdio::null()).output().context("cannot start the monitor")?;
    let seconds = start.elapsed().as_secs_f64();
    if !output.status.success() {
        bail!("the monitor failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let summary: Summary = serde_json::from_slice(&output.stdout).context("the monitor's summary")?;
    Ok(Run::new(seconds, &summary, capture.copies))
}

/// Reads a file, steps from record to record and looks at each frame; frames and seconds.
fn walk(path: &Path) -> Result<(u64, f64)> {
    let start = Instant::now();
    let mut file = File::open(path)?;
    let mut buffer = vec![0; 256 << 10];
    let (mut frames, mut skip) = (0, 24);
    let (mut kept, mut seen) = (0, 0);
    loop {
        let read = file.read(&mut buffer[kept..])?;
        let filled = kept + read;
        if read == 0 {
            break;
        }
        let mut at = skip;
        while let Some(header) = buffer[..filled].get(at..).and_then(|rest| rest.first_chunk::<16>()) {
            let length = u32::from_le_bytes([header[8], header[9], header[10], header[11]]) as usize;
            let Some(frame) = buffer[..filled].get(at + 16..at + 16 + length) else { break };
            seen ^= looked_at(frame);
            at += 16 + length;
            frames += 1;
        }
        buffer.copy_within(at..filled, 0);
        (kept, skip) = (filled - at, 0);
    }
    std::hint::black_box(seen);
    Ok((frames, start.elapsed().as_secs_f64()))
}

/// Of a frame, what no analyser can do without: its headers and its end.
#[inline(always)]
fn looked_at(frame: &[u8]) -> u64 {
    let word = |bytes: &[u8]| bytes.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
    let headers = frame[..frame.len().min(48)].chunks_exact(8).fold(0, |seen, bytes| seen ^ word(bytes));
    headers ^ frame.last_chunk().map_or(0, |word| u64::from_le_bytes(*word))
}

fn figures<'a>(
    case: &Case,
    n: usize,
    mine: &[f64],
    walks: [&[f64]; 2],
    runs: &[Run],
    by_case: &dyn Fn(usize) -> Option<&'a [f64]>,
) -> Vec<Figure> {
    let name = |what: &str| format!("{}: {what}", case.name);
    let passes: Vec<Check> = runs.iter().map(Run::single_pass).collect();
    let worst = passes.iter().find(|check| !check.passed).or(passes.first());
    let mut figure = Figure::new(name("analysed"), "Mpps", Better::Higher, mine.to_vec());
    figure = worst.cloned().into_iter().fold(figure, Figure::check);
    figure = match (n, by_case(0), by_case(NO_DATABASE)) {
        (TWO_WORKERS, _, Some(one)) => figure.against("one worker", one),
        (4, Some(few), _) => figure.against("10,000 channels", few),
        (NO_DATABASE, Some(with), _) => figure.against("with the database", with),
        _ => figure.against("read and walk", walks[0]).same(walks[0], walks[1]),
    };
    // the floor of every figure that is beside another run of the monitor: the first case twice
    let equals = by_case(0).zip(by_case(AGAIN));
    let mut all = vec![figure];
    if n == TWO_WORKERS {
        all[0].headline = false;
        all.extend(ratio(name("of one worker"), mine, by_case(NO_DATABASE), equals));
    }
    match n {
        0..=2 => {
            all.extend(ratio(name("of read and walk"), mine, Some(walks[0]), Some((walks[0], walks[1]))))
        }
        4 => all.extend(ratio(name("of 10,000 channels"), mine, by_case(0), equals)),
        NO_DATABASE => {
            let cost = |(without, with): (&f64, &f64)| 100.0 * (1.0 - with / without);
            let samples = by_case(0).map(|with| mine.iter().zip(with).map(cost).collect());
            all.extend(
                samples.map(|cost| Figure::new("64 B: cost of the database", "%", Better::Lower, cost)),
            );
        }
        _ => {}
    }
    if n == 4 {
        let bytes = runs.iter().map(|run| run.memory as f64 / run.channels as f64).collect();
        all.push(Figure::new(name("memory"), "bytes/channel", Better::Lower, bytes));
    }
    all[0].headline = n < 2;
    all
}

/// `equals`: what the figure is beside, measured twice.
fn ratio(
    name: String,
    mine: &[f64],
    floor: Option<&[f64]>,
    equals: Option<(&[f64], &[f64])>,
) -> Option<Figure> {
    let samples = mine.iter().zip(floor?).map(|(mine, floor)| mine / floor).collect();
    let figure = Figure::new(name, "x", Better::Higher, samples);
    Some(match equals {
        Some((once, again)) => figure.same(once, again),
        None => figure,
    })
}

fn table<'a>(by_case: &dyn Fn(usize) -> Option<&'a [f64]>, runs: &[Vec<Run>]) -> Table {
    let row = |(n, case): (usize, &Case)| {
        let mpps = estimate(by_case(n)?);
        let bytes = mean_bytes(case);
        let run = &runs[n][0];
        Some(vec![
            case.name.to_owned(),
            run.frames.to_string(),
            run.channels.to_string(),
            format!("{:.2}", mpps.value),
            format!("{:.1}", mpps.value * 1e6 * 8.0 * (bytes + OVERHEAD) / 1e9),
            format!("{:.0}", run.memory as f64 / 1e6),
        ])
    };
    Table {
        title: "Captures analysed".to_owned(),
        header: ["capture", "frames", "channels", "Mpps", "line rate, Gb/s", "memory, MB"].map(str::to_owned).to_vec(),
        rows: CASES.iter().enumerate().filter_map(row).collect(),
        note: "One core; the database, where there is one, writes on the same core. Line rate: the link that this many packets \
            fill, with preamble and gap."
            .to_owned(),
    }
}

/// Links that one core keeps up with, at line rate of full frames, by size.
fn line_rates<'a>(by_case: &dyn Fn(usize) -> Option<&'a [f64]>) -> Table {
    const LINKS: [f64; 6] = [1.0, 2.5, 10.0, 25.0, 40.0, 100.0];
    let row = |gbps: f64| {
        let mut cells = vec![format!("{gbps} Gb/s")];
        for (n, case) in CASES.iter().enumerate().take(3) {
            let needed = gbps * 1e3 / 8.0 / (mean_bytes(case) + OVERHEAD);
            let times = by_case(n).map(|samples| estimate(samples).value / needed);
            cells.push(times.map_or_else(String::new, |times| {
                format!("{needed:.2} Mpps: {} ({times:.1} x)", if times >= 1.0 { "yes" } else { "no" })
            }));
        }
        cells
    };
    Table {
        title: "Achievable line rates".to_owned(),
        header: ["link", "64 B", "IMIX", "1500 B"].map(str::to_owned).to_vec(),
        rows: LINKS.into_iter().map(row).collect(),
        note: "Packets a second of a full link in one direction, and how many times that one core analysed, from a capture in \
            the page cache, database on."
            .to_owned(),
    }
}

fn mean_bytes(case: &Case) -> f64 {
    match CAPTURES[case.capture].size {
        Size::Fixed(bytes) => bytes as f64,
        Size::Imix => IMIX_MEAN,
    }
}

fn bars(figures: &[Figure]) -> Chart {
    let bar = |figure: &Figure| Bar {
        name: figure.name.trim_end_matches(": analysed").to_owned(),
        role: Role::Subject,
        estimate: figure.estimate,
    };
    Chart::Bars(Bars {
        title: "Packets analysed a second".to_owned(),
        unit: "Mpps".to_owned(),
        bars: figures.iter().filter(|figure| figure.unit == "Mpps").map(bar).collect(),
        note: "One core except where two workers are named.".to_owned(),
    })
}

/// Rates over the size of the capture: whole processes, start-up taken off.
fn scaling(context: &Context, shelf: &Shelf, result: &mut SuiteResult) -> Result<()> {
    let sizes: &[u64] = context.pick(
        &[1000, 10_000, 50_000, 100_000, 250_000, 500_000, 5_000_000],
        &[1000, 10_000, 50_000, 100_000, 250_000, 500_000, 5_000_000, 50_000_000],
    );
    let empty = Taken { path: shelf.path.join("empty.pcap"), copies: 0 };
    let (mut rows, mut points) = (vec![], vec![]);
    for packets in sizes {
        let capture = Capture { flows: (packets / 10).clamp(10, 1000) as u32, ..CAPTURES[0] };
        let file = shelf.capture("scaling", options(&capture, *packets))?;
        let rounds = if *packets > 1_000_000 { 1 } else { context.rounds };
        let mut seconds = vec![];
        let mut startup = vec![];
        for _ in 0..rounds {
            startup.push(analyse(shelf, &empty, &CASES[0])?.seconds);
            seconds.push(analyse(shelf, &file, &CASES[0])?.seconds);
        }
        std::fs::remove_file(&file.path)?;
        let (whole, start) = (estimate(&seconds).value, estimate(&startup).value);
        // A difference of two times that are nearly equal says nothing.
        let rate = (whole - start > start / 4.0).then(|| *packets as f64 / (whole - start) / 1e6);
        points.extend(rate.map(|rate| Point::new(*packets as f64, rate)));
        rows.push(vec![
            packets.to_string(),
            format!("{:.1}", whole * 1e3),
            format!("{:.1}", start * 1e3),
            rate.map_or_else(|| "too short to tell".to_owned(), |rate| format!("{rate:.2}")),
        ]);
    }
    result.tables.push(Table {
        title: "Distinct packets of one capture, one pass".to_owned(),
        header: ["packets", "process, ms", "start-up, ms", "Mpps without start-up"].map(str::to_owned).to_vec(),
        rows,
        note: "64-byte MACsec, up to 1,000 channels, database on. Below some 100,000 packets start-up is most of the time, and \
            the difference of two times is uncertain."
            .to_owned(),
    });
    result.charts.push(Chart::Line(LineChart {
        title: "Rate over the size of the capture".to_owned(),
        x: Axis::log("packets"),
        y: Axis::linear("Mpps, start-up taken off"),
        series: vec![Series { name: "sluice monitor".to_owned(), role: Role::Subject, points }],
        note: String::new(),
    }));
    Ok(())
}

#[cfg(test)]
mod tests {
    use sluice_monitor::analysis::{self, Control, analyze};
    use sluice_monitor::capture;
    use sluice_monitor::results::Outputs;

    use super::*;

    /// What the monitor says of a capture file.
    fn analysed(path: &Path, copies: u64) -> Run {
        let mut source = capture::open(path.to_str().unwrap()).unwrap();
        let options = analysis::Options::default();
        let summary = analyze(&mut *source, &options, &mut Outputs::default(), &Control::default()).unwrap();
        Run::new(1.0, &summary, copies)
    }

    #[test]
    fn a_capture_in_which_frames_come_again_is_no_single_pass() {
        let path = std::env::temp_dir().join(format!("sluice-bench-looped-{}", std::process::id()));
        let shelf = Shelf::at(path).unwrap();
        let few = Capture { flows: 50, ..CAPTURES[0] };
        let plain = shelf.capture("plain", options(&few, 50_000)).unwrap();
        let run = analysed(&plain.path, plain.copies);
        assert!(run.single_pass().passed && run.seen_before > 0, "{run:?}");
        assert!(!Run { copies: run.copies + 1, ..run.clone() }.single_pass().passed);
        // The same records once more behind themselves.
        let once = std::fs::read(&plain.path).unwrap();
        let looped = shelf.path.join("looped.pcap");
        std::fs::write(&looped, [&once[..], &once[EMPTY.len()..]].concat()).unwrap();
        let check = analysed(&looped, plain.copies).single_pass();
        assert!(!check.passed, "{check:?}");
        assert!(!analysed(&looped, 0).single_pass().passed);
    }

    #[test]
    fn the_walk_finds_every_frame() {
        let shelf = Shelf::get().unwrap();
        let walked = shelf.capture("walked", options(&CAPTURES[1], 20_000)).unwrap();
        assert_eq!(walk(&walked.path).unwrap().0, 20_000);
        let empty = shelf.path.join("empty.pcap");
        std::fs::write(&empty, EMPTY).unwrap();
        assert_eq!(walk(&empty).unwrap().0, 0);
    }
}
