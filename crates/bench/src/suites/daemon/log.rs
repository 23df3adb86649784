//! What the session log costs: CPU time of the daemon, and what forwarding loses.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use nix::sys::socket::{setsockopt, sockopt};

use super::{Bench, CHUNK, cpu_seconds};
use crate::generator::frames::Frames;
use crate::generator::harness::Hook;
use crate::generator::link::Target;
use crate::generator::packets::Tuple;
use crate::method::result::{Better, Check, Figure, SuiteResult};
use crate::method::suite::Context;
use crate::testbed::gateway::{Action, configuration};

const LOGGED_PPS: f64 = 100_000.0;
const COLLECTOR: &str = "127.0.0.1:5514";
/// A collector that gets no CPU for a while loses nothing.
const COLLECTOR_BYTES: usize = 256 << 20;

/// Frames of one pass, each of a session of its own: so many are under way between two calls of the kernel.
const PASS: usize = 120_000;
const PASSES: usize = 8;

fn logged() -> String {
    configuration(Hook::Xdp.into(), Action::Permit)
        .replace("then { permit; }", "then { permit; log { session-init; } }")
        + "security { log { rate-cap 1000000; stream here { host { 127.0.0.1; port 5514; } } } }\n"
}

pub fn session_log(bench: &Bench<'_>, context: &Context, result: &mut SuiteResult) -> Result<()> {
    bench.site.gateway.ip("link set lo up")?;
    let collector = bench.site.gateway.enter(|| UdpSocket::bind(COLLECTOR))?.context("cannot collect")?;
    setsockopt(&collector, sockopt::RcvBufForce, &COLLECTOR_BYTES)?;
    collector.set_read_timeout(Some(Duration::from_millis(50)))?;
    bench.commit_text(&logged())?;
    let cpus = thread::available_parallelism()?.get() as f64;
    let (mut shares, mut told) = (vec![], vec![]);
    let mut frames = Frames::load()?;
    for _ in 0..context.rounds {
        bench.gateway.sluice(&["clear", "sessions"])?;
        frames.aim_entries(&bench.site.lan, CHUNK, |template, i| {
            template.entry4(Tuple::of_session(i), false)
        })?;
        let before = cpu_seconds(bench.pid()?)?;
        let (arrived, sent) = collecting(&collector, || {
            frames.run_for(&bench.site.lan_host, 60, Some(LOGGED_PPS), Duration::from_secs(1))
        })?;
        shares.push(100.0 * (cpu_seconds(bench.pid()?)? - before) / cpus);
        told.push((arrived, sent.0));
    }
    let text = format!("{told:?}: collected, sent");
    let all = told.iter().all(|(arrived, _)| *arrived >= CHUNK as u64 * 95 / 100);
    let figure = Figure::new("log 100000", "%", Better::Lower, shares);
    result.figures.push(figure.check(Check::new("log arrives", all, text)));
    forwarding(bench, &collector, frames, context, result)
}

/// What arrived while something was done, and what came of that.
fn collecting<T>(collector: &UdpSocket, work: impl FnOnce() -> Result<T>) -> Result<(u64, T)> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let collecting = scope.spawn(|| collect(collector, &stop));
        let done = work();
        // what is under way is told within a moment
        thread::sleep(Duration::from_millis(300));
        stop.store(true, Ordering::Relaxed);
        let arrived = collecting.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok((arrived, done?))
    })
}

/// Messages until told to stop.
fn collect(socket: &UdpSocket, stop: &AtomicBool) -> Result<u64> {
    let (mut room, mut count) = ([0; 4096], 0);
    loop {
        match socket.recv(&mut room) {
            Ok(_) => count += 1,
            Err(_) if stop.load(Ordering::Relaxed) => return Ok(count),
            Err(_) => {}
        }
    }
}

/// The same packets with and without a log, turn by turn: nearly all of established sessions, and so many first ones
/// among them that 100,000 sessions begin a second.
fn forwarding(
    bench: &Bench<'_>,
    collector: &UdpSocket,
    mut frames: Frames,
    context: &Context,
    result: &mut SuiteResult,
) -> Result<()> {
    let host = &bench.site.wan_host;
    let _sink = frames.attach("frames_sink", host, bench.site.wan.host_ifindex, Target::XdpNative)?;
    let silent = configuration(Hook::Xdp.into(), Action::Permit);
    bench.commit_text(&silent)?;
    // as many as to find out how fast packets pass here
    bench.establish(&mut frames)?;
    let pace = 1e9 / bench.mixed_passes(&mut frames, PASS / 20)?;
    let first = ((PASS as f64 * LOGGED_PPS / pace) as usize).clamp(1, PASS / 2);
    let (mut losses, mut told) = (vec![], vec![]);
    for _ in 0..context.rounds {
        bench.commit_text(&silent)?;
        bench.establish(&mut frames)?;
        let without = bench.mixed_passes(&mut frames, first)?;
        bench.commit_text(&logged())?;
        // what is told of these is none of what is counted next
        collecting(collector, || bench.establish(&mut frames))?;
        let (arrived, with) = collecting(collector, || bench.mixed_passes(&mut frames, first))?;
        losses.push(100.0 * (1.0 - without / with));
        told.push((arrived, PASSES * first));
    }
    let text = format!("{told:?}: collected, begun; {first} of {PASS} packets begin a session");
    let all = told.iter().all(|(arrived, begun)| *arrived as usize >= begun * 95 / 100);
    let figure = Figure::new("log 100000 forwarding", "%", Better::Lower, losses);
    result.figures.push(figure.check(Check::new("log arrives", all, text)));
    Ok(())
}

impl Bench<'_> {
    /// Nothing but the sessions that are established from here on.
    fn establish(&self, frames: &mut Frames) -> Result<()> {
        self.gateway.sluice(&["clear", "sessions"])?;
        self.pass(frames, |i| i)?;
        Ok(())
    }

    /// Nanoseconds a packet, of passes in each of which `first` packets begin a session and the others have one.
    fn mixed_passes(&self, frames: &mut Frames, first: usize) -> Result<f64> {
        let step = PASS / first;
        let mut ns = 0.0;
        for pass in 1..=PASSES {
            let begins = |i: usize| i.is_multiple_of(step) && i / step < first;
            ns += self.pass(frames, |i| if begins(i) { pass * PASS + i } else { i })?;
        }
        Ok(ns / PASSES as f64)
    }

    /// Nanoseconds a packet of one pass: a frame of each of these sessions, all of which arrive.
    fn pass(&self, frames: &mut Frames, session: impl Fn(usize) -> usize) -> Result<f64> {
        frames.aim_entries(&self.site.lan, PASS, |template, i| {
            template.entry4(Tuple::of_session(session(i)), false)
        })?;
        let (sent, arrived) = (frames.sent(), frames.total_arrived());
        let each = frames.send(&self.site.lan_host, PASS as u32)?.as_secs_f64() * 1e9;
        frames.account(sent, arrived, PASS as u32)?;
        ensure!(each > 0.0, "the kernel did not say how long it took");
        Ok(each)
    }
}
