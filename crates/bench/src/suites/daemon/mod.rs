//! Suite `daemon`: what it costs to operate a gateway: a long list, a commit behind a long history, the session log, and
//! the daemon while nothing is asked of it.

mod log;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use sluice_lab::gateway::Gateway;
use sluice_lab::state::StateDirectory;

use crate::generator::frames::Frames;
use crate::generator::harness::Hook;
use crate::generator::packets::Tuple;
use crate::generator::site::Site;
use crate::method::result::{Better, Check, Figure, SuiteResult};
use crate::method::rounds::alone;
use crate::method::suite::{Context, Suite};
use crate::testbed::gateway::{Action, configuration, ruled_configuration};
use crate::testbed::ruleset::Then;

pub const SUITE: Suite = Suite {
    name: "daemon",
    help: "Listing a million sessions, a commit behind fifty others, the session log, an idle daemon",
    says: "What operating costs, asked of a daemon as users run it, by the commands that they type. `list`: \
        `show security flow session` over a million sessions, to its first line and to its last, and what the daemon's memory grew by. \
        `commit 10000 behind 50`: a changed text of 10,000 policies becomes active with 50 such texts in the history. `idle`: memory \
        besides tables, and CPU time of a daemon that nobody asks anything. `log 100000`: CPU time of the daemon, as a share of the \
        machine's, while it tells a collector on this machine of 100,000 new sessions a second over UDP. `log 100000 forwarding`: what the \
        forwarding of established sessions on one CPU loses by that, against the same packets without a log.",
    silent: &[
        "The shell reads the list and throws it away: a terminal takes longer.",
        "What the data plane pays for an entry of the log stands in suite prog.",
    ],
    run: suite,
};

const SESSIONS: usize = 1_000_000;
/// Of one filling.
const CHUNK: usize = 100_000;
const POLICIES: usize = 10_000;
const HISTORY: usize = 50;

/// A daemon between two hosts.
struct Bench<'a> {
    site: &'a Site,
    gateway: Gateway<'a>,
    program: PathBuf,
    state: PathBuf,
}

fn suite(context: &Context) -> Result<SuiteResult> {
    let mut result = SuiteResult::new(SUITE.name);
    let site = Site::create("daemon")?;
    let directory = StateDirectory::new("bench-daemon")?;
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let state = directory.of_gateway("state");
    let file = directory.path().join("first.conf");
    fs::write(&file, configuration(Hook::Xdp.into(), Action::Permit))?;
    let mut gateway = Gateway::new(&program, &site.gateway, &file, &state)?;
    gateway.start()?;
    let bench = Bench { site: &site, gateway, program, state };
    type Part = fn(&Bench<'_>, &Context, &mut SuiteResult) -> Result<()>;
    let parts: [(&str, Part); 4] =
        [("idle", idle), ("log", log::session_log), ("list", list), ("commit", commit)];
    for (done, (name, part)) in parts.into_iter().enumerate() {
        context.progress.at(done as f64 / parts.len() as f64, name);
        if context.wanted.is_empty() || context.wanted.iter().any(|wanted| wanted.starts_with(name)) {
            part(&bench, context, &mut result).with_context(|| name.to_owned())?;
        }
    }
    bench.gateway.finish()?;
    Ok(result)
}

impl Bench<'_> {
    fn commit_text(&self, text: &str) -> Result<f64> {
        let file = self.state.with_extension("next");
        fs::write(&file, text)?;
        let began = Instant::now();
        self.gateway.commit(&file)?;
        Ok(began.elapsed().as_secs_f64())
    }

    fn pid(&self) -> Result<u32> {
        self.gateway.pid().context("the daemon is not running")
    }

    /// Puts sessions with these numbers into the table, by their first packets.
    fn open_sessions(&self, frames: &mut Frames, first: usize, count: usize) -> Result<()> {
        frames.aim_entries(&self.site.lan, count, |template, i| {
            template.entry4(Tuple::of_session(first + i), false)
        })?;
        frames.send(&self.site.lan_host, count as u32)?;
        frames.wait_for_quiet();
        Ok(())
    }

    fn sessions(&self) -> Result<u64> {
        let stats = self.gateway.json("/api/stats")?;
        stats["sessions"]["v4"].as_u64().context("/api/stats has no sessions.v4")
    }
}

/// Seconds of CPU that a process has taken.
fn cpu_seconds(pid: u32) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields = stat.rsplit_once(')').context("an odd /proc/PID/stat")?.1;
    let ticks = |n: usize| -> Result<f64> {
        Ok(fields.split_whitespace().nth(n).context("a short /proc/PID/stat")?.parse()?)
    };
    let hz = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK)?.context("no CLK_TCK")? as f64;
    Ok((ticks(11)? + ticks(12)?) / hz)
}

/// Resident memory of a process in MiB, without the maps of the data plane that it sees.
fn resident_mib(pid: u32) -> Result<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps"))?;
    let (mut is_table, mut kib) = (false, 0.0);
    for line in text.lines() {
        match line.split_once(':') {
            Some(("Rss", rest)) if !is_table => {
                kib += rest.trim().trim_end_matches(" kB").parse::<f64>()?;
            }
            Some((name, _)) if !name.contains('-') => {}
            _ => is_table = line.contains("bpf-map"),
        }
    }
    Ok(kib / 1024.0)
}

fn idle(bench: &Bench<'_>, context: &Context, result: &mut SuiteResult) -> Result<()> {
    let (pid, length) = (bench.pid()?, context.pick(Duration::from_secs(3), Duration::from_secs(10)));
    thread::sleep(Duration::from_secs(1));
    let (mut memory, mut share) = (vec![], vec![]);
    for _ in 0..context.rounds {
        let (before, began) = (cpu_seconds(pid)?, Instant::now());
        thread::sleep(length);
        share.push(100.0 * (cpu_seconds(pid)? - before) / began.elapsed().as_secs_f64());
        memory.push(resident_mib(pid)?);
    }
    result.figures.push(Figure::new("idle memory", "MiB", Better::Lower, memory));
    result.figures.push(Figure::new("idle CPU", "%", Better::Lower, share));
    Ok(())
}

/// What a million sessions cost to list.
#[derive(Default)]
struct Listing {
    first_ms: Vec<f64>,
    whole_s: Vec<f64>,
    grown_mib: Vec<f64>,
}

fn list(bench: &Bench<'_>, context: &Context, result: &mut SuiteResult) -> Result<()> {
    bench.commit_text(&configuration(Hook::Xdp.into(), Action::Permit))?;
    let mut frames = Frames::load()?;
    bench.gateway.sluice(&["clear", "sessions"])?;
    for first in (0..SESSIONS).step_by(CHUNK) {
        bench.open_sessions(&mut frames, first, CHUNK)?;
    }
    let (pid, there) = (bench.pid()?, bench.sessions()?);
    let mut seen = Listing::default();
    let mut fewest = u64::MAX;
    for _ in 0..context.rounds {
        let before = resident_mib(pid)?;
        let (first, whole, listed) = bench.list_once()?;
        seen.first_ms.push(first * 1e3);
        seen.whole_s.push(whole);
        seen.grown_mib.push((resident_mib(pid)? - before).max(0.0));
        fewest = fewest.min(listed);
    }
    let all = || {
        let told = format!("{there} sessions stood, {fewest} or more were listed");
        // a few may have expired meanwhile
        Check::new("whole list", there >= SESSIONS as u64 && fewest >= SESSIONS as u64 * 99 / 100, told)
    };
    let name = |what: &str| format!("list {SESSIONS} {what}");
    let figure =
        |what: &str, unit, samples| Figure::new(name(what), unit, Better::Lower, samples).check(all());
    result.figures.push(figure("first line", "ms", seen.first_ms));
    result.figures.push(figure("whole", "s", seen.whole_s));
    result.figures.push(figure("memory", "MiB", seen.grown_mib));
    Ok(())
}

impl Bench<'_> {
    /// Seconds to the first line and to the end, and how many sessions the shell counted.
    fn list_once(&self) -> Result<(f64, f64, u64)> {
        let mut command = Command::new(&self.program);
        command.args(["cli", "-c", "show security flow session | no-more", "--state-dir"]).arg(&self.state);
        let began = Instant::now();
        let mut shell = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let mut reader = BufReader::with_capacity(1 << 20, shell.stdout.take().context("no output")?);
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let first = began.elapsed().as_secs_f64();
        let (mut room, mut last) = (vec![0; 1 << 20], vec![]);
        loop {
            let length = reader.read(&mut room)?;
            if length == 0 {
                break;
            }
            last.extend_from_slice(&room[..length]);
            last.drain(..last.len().saturating_sub(100));
        }
        let whole = began.elapsed().as_secs_f64();
        ensure!(shell.wait()?.success(), "the shell failed: {line}");
        let text = String::from_utf8_lossy(&last).into_owned();
        let total = text.trim_end().rsplit(' ').next().and_then(|word| word.parse().ok());
        Ok((first, whole, total.with_context(|| format!("no total at the end of the list: {text}"))?))
    }
}

fn commit(bench: &Bench<'_>, context: &Context, result: &mut SuiteResult) -> Result<()> {
    let text = |number: usize| {
        let own = format!("system {{ host-name gw{number}; }}\n");
        ruled_configuration(Hook::Xdp.into(), POLICIES, Then::Permit) + &own
    };
    for number in 0..HISTORY {
        bench.commit_text(&text(number))?;
    }
    let seconds = alone(context.rounds, |round| bench.commit_text(&text(HISTORY + round)))?;
    let name = format!("commit {POLICIES} behind {HISTORY}");
    result.figures.push(Figure::new(name, "s", Better::Lower, seconds));
    Ok(())
}
