//! How long a change of one route has a million sessions judged again.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use sluice_lab::gateway::Gateway;

use super::{FRAME_BYTES, Lane};
use crate::generator::frames::Frames;
use crate::generator::site::WAN_HOST_ADDRESS;
use crate::method::result::{Better, Check, Figure};
use crate::method::rounds::alone;
use crate::method::suite::Context;

const SESSIONS: usize = 1_000_000;
/// Far more than it may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Ten times as many as are judged again.
const PPS: f64 = 1e6;
/// Between two looks at the counter.
const STEP: Duration = Duration::from_millis(100);

pub fn again(lane: &mut Lane<'_>, context: &Context) -> Result<Figure> {
    // the flows of before go with their generator, whose sink has the device's only place
    lane.sink = None;
    lane.frames = Frames::of_flows(SESSIONS as u32)?;
    lane.sink = Some(lane.sink()?);
    lane.gateway.sluice(&["clear", "sessions"])?;
    lane.pass(0, SESSIONS)?;
    let mut counted = vec![];
    let seconds = alone(context.rounds, |round| {
        // whatever has changed before
        until(lane, |_, more| more == 0)?;
        lane.site.gateway.ip(&format!("route add 11.255.{round}.0/24 via {WAN_HOST_ADDRESS}"))?;
        let began = Instant::now();
        counted.push(until(lane, |sum, _| sum >= SESSIONS as u64)?);
        Ok(began.elapsed().as_secs_f64())
    })?;
    let once = counted.iter().all(|count| *count < SESSIONS as u64 * 101 / 100);
    let figure = Figure::new(format!("{SESSIONS} sessions judged again"), "s", Better::Lower, seconds);
    Ok(figure.check(Check::new("each once", once, format!("{counted:?} were judged"))))
}

/// Sends packets of all sessions in turn, as fast as it goes, until so many were judged again; says how many were. `done` gets
/// the sum and what has come since the last look.
fn until(lane: &mut Lane<'_>, done: impl Fn(u64, u64) -> bool) -> Result<u64> {
    let Lane { site, gateway, frames, .. } = lane;
    let before = judged(gateway)?;
    let wait = || {
        let (began, mut sum) = (Instant::now(), 0);
        loop {
            thread::sleep(STEP);
            let now = judged(gateway)? - before;
            if done(now, now - sum) {
                return Ok(now);
            }
            ensure!(began.elapsed() < PATIENCE, "{now} sessions were judged again within {PATIENCE:?}");
            sum = now;
        }
    };
    Ok(frames.run_while(&site.lan_host, FRAME_BYTES, PPS, wait)?.0)
}

fn judged(gateway: &Gateway<'_>) -> Result<u64> {
    let stats = gateway.json("/api/stats")?;
    let units = stats["interfaces"].as_array().context("/api/stats has no interfaces")?;
    let of = |unit: &serde_json::Value| unit["counters"]["rejudged"].as_u64();
    units.iter().map(of).sum::<Option<u64>>().context("/api/stats does not count what is judged again")
}
