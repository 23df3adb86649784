//! How long a walk over all sessions takes.

use anyhow::{Result, ensure};
use sluice_dataplane::abi::SWEEP_PASS_NS;

use crate::generator::harness::Hook;
use crate::generator::packets::{Family, Protocol};
use crate::generator::site::Site;
use crate::method::affinity::{bench_cpu, pin};
use crate::method::result::{Better, Figure, SuiteResult};
use crate::method::rounds::alone;
use crate::method::suite::{Context, Suite};
use crate::testbed::bed::Bed;

pub const SUITE: Suite = Suite {
    name: "sweep",
    help: "Milliseconds of one pass over a million sessions that looks for idle ones",
    says: "CPU time of a whole pass over established sessions of which none is idle too long: what the kernel's timer \
        spends about once a second, in parts of 2,048 sessions, to end those that are. The share is that time over the time from pass to pass.",
    silent: &[
        "Ending sessions comes on top; a tick of the timer ends at most 128.",
        "The pass runs in one piece here, so its caches are warmer than between packets.",
    ],
    run: suite,
};

const SESSIONS: usize = 1_000_000;

fn suite(context: &Context) -> Result<SuiteResult> {
    let mut result = SuiteResult::new(SUITE.name);
    let samples = measure(SESSIONS, context.rounds)?;
    let share = samples.iter().map(|ms| 100.0 * ms * 1e6 / f64::from(SWEEP_PASS_NS)).collect();
    result.figures.push(Figure::new(format!("{SESSIONS} sessions, none idle"), "ms", Better::Lower, samples));
    result.figures.push(Figure::new(
        format!("{SESSIONS} sessions, share of a CPU"),
        "%",
        Better::Lower,
        share,
    ));
    Ok(result)
}

/// Milliseconds of each round.
pub fn measure(sessions: usize, rounds: usize) -> Result<Vec<f64>> {
    let site = Site::create("sweep")?;
    site.gateway.enter(|| {
        pin(bench_cpu())?;
        let capacity = sessions.next_power_of_two() as u32;
        let mut bed = Bed::new(&site, &[Hook::Xdp], Family::V4, Protocol::Udp, capacity)?;
        bed.fill(sessions)?;
        let dataplane = &bed.sluice.dataplane;
        let pass = |_| {
            let report = dataplane.sweep_once(dataplane.now_jiffies()?)?;
            ensure!(report.live4 as usize == sessions, "the sweep found {} sessions", report.live4);
            Ok(report.took.as_secs_f64() * 1e3)
        };
        alone(rounds, pass)
    })?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_over_a_small_table_is_measured() {
        let samples = measure(1000, 2).unwrap();
        assert!(samples.len() == 2 && samples.iter().all(|ms| (0.0..20.0).contains(ms)), "{samples:?}");
    }
}
