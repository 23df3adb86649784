//! Threads of the fan-out: shares move as health has it, receivers as the DNS has them.

use std::io;
use std::sync::Arc;
use std::thread::{Builder, sleep};
use std::time::{Duration, Instant};

use sluice_fanout::metrics;

use crate::commit::Shared;
use crate::functions::fan_out::positions::InForce;
use crate::functions::fan_out::possible;
use crate::functions::fan_out::service::FanOutService;

/// How often shares move, and what changed is put into the tables of the data plane.
const TICK: Duration = Duration::from_millis(20);
/// How often it is looked whether receivers are others, by their names or since they have drained.
const LOOK: Duration = Duration::from_millis(200);
/// How often it is looked whether receivers are behind other devices.
const LOOK_AROUND: Duration = Duration::from_secs(1);
/// How long after a failure it is tried again.
const RETRY: Duration = Duration::from_secs(5);

/// The configuration in force, committed once more.
pub trait Again: Send + 'static {
    /// It would be another one by now.
    fn is_behind(&self) -> bool;

    /// False if it could not be.
    fn commit(&self) -> bool;
}

/// Keeps the data plane's tables as health has them, and receivers as the DNS has them.
pub fn start(
    shared: Arc<Shared>,
    service: FanOutService,
    in_force: InForce,
    again: impl Again,
) -> io::Result<()> {
    let (own, of) = (shared.clone(), service.clone());
    Builder::new().name("fan-out".into()).spawn(move || keep_positions(&own, &of, &in_force))?;
    // on a thread of its own: a commit takes long, and receivers fall meanwhile
    Builder::new().name("fan-receivers".into()).spawn(move || keep_receivers(&shared, &service, &again))?;
    Ok(())
}

fn keep_positions(shared: &Shared, service: &FanOutService, in_force: &InForce) {
    let mut failed: Option<Instant> = None;
    loop {
        sleep(TICK);
        if failed.is_some_and(|at| at.elapsed() < RETRY) {
            continue;
        }
        let active = shared.active();
        let news = service.news(&active.plan);
        if news.is_empty() {
            continue;
        }
        failed = match in_force.write_positions(active.generation, &news, &shared.dataplane) {
            Ok(true) => {
                service.written(active.generation, news);
                None
            }
            // another generation is in force; it is asked for next
            Ok(false) => None,
            Err(error) => {
                tracing::error!(%error, "the listeners keep their receivers; it is tried again");
                Some(Instant::now())
            }
        };
    }
}

fn keep_receivers(shared: &Shared, service: &FanOutService, again: &impl Again) {
    let (mut failed, mut looked): (Option<Instant>, Instant) = (None, Instant::now());
    loop {
        sleep(LOOK);
        let active = shared.active();
        service.want(&active.named);
        if failed.is_some_and(|at| at.elapsed() < RETRY) {
            continue;
        }
        let mut is_behind = service.resolved(&active.named) != active.config.fan_out;
        if !is_behind && looked.elapsed() > LOOK_AROUND {
            is_behind = again.is_behind();
            looked = Instant::now();
        }
        if is_behind {
            // its result is logged by the engine
            failed = (!again.commit()).then(Instant::now);
        }
    }
}

/// What the listeners count, where the configuration wants its metrics.
pub fn serve_metrics(shared: &Arc<Shared>, service: &FanOutService) -> io::Result<()> {
    let (own, of) = (shared.clone(), service.clone());
    let source: metrics::Source = Arc::new(move || of.report(&own.dataplane, &own.active().plan));
    let active = shared.active();
    service.serve_metrics(source, &possible(&active.config, &active.plan.environment))
}
