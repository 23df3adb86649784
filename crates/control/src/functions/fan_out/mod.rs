//! Fan-out in a commit: sockets of its listeners and of its metrics, shares in the tables.

pub mod positions;
mod report;
pub mod service;

use std::net::IpAddr;

use sluice_fanout::metrics::Bound;
use sluice_language::config::Unit;
use sluice_language::{Config, fan_out as language};
use sluice_plan::{Environment, IngressHook, Plan};

use self::service::FanOutService;
use crate::functions::function::{Candidate, CommitError, Function, remaining};

pub struct FanOut {
    service: FanOutService,
    metrics: Option<Bound>,
}

impl FanOut {
    pub fn new(service: &FanOutService) -> Self {
        Self { service: service.clone(), metrics: None }
    }
}

impl Function for FanOut {
    fn name(&self) -> &'static str {
        "fan-out"
    }

    fn resolve(&self, config: &mut Config) {
        self.service.resolve(config);
    }

    fn prepare(&mut self, candidate: &mut Candidate<'_>) -> Result<(), CommitError> {
        let wanted = possible(candidate.config, &candidate.plan.environment);
        self.metrics = self.service.prepare_metrics(&wanted).map_err(CommitError::input)?;
        self.service.apply_user(&wanted).map_err(CommitError::input)
    }

    fn apply(&mut self, candidate: &mut Candidate<'_>) -> Result<(), CommitError> {
        self.service.overlay(&mut candidate.plan, &candidate.config.fan_out);
        Ok(())
    }

    fn abort(&mut self, candidate: &Candidate<'_>) -> Result<(), CommitError> {
        self.metrics = None;
        self.service.abandon(candidate.old.map(|old| &old.plan));
        let old = candidate.old.map(|old| possible(&old.config, &old.plan.environment)).unwrap_or_default();
        self.service.apply_user(&old).map_err(CommitError::machine)
    }

    fn retire(&mut self, candidate: &Candidate<'_>) -> Vec<String> {
        let wanted = possible(candidate.config, &candidate.plan.environment);
        self.service.finish(&candidate.plan, &wanted);
        log(&candidate.plan);
        let put = self.service.put_metrics(&wanted, self.metrics.take());
        remaining(put.map_err(|error| format!("the commit stands, but not its metrics: {error}")))
    }
}

/// Without what asks the kernel for interfaces that are not here, or for their addresses.
pub fn possible(config: &Config, environment: &Environment) -> language::FanOut {
    let absent = || config.interfaces.iter().filter(|interface| environment.is_absent(&interface.name));
    let has = |unit: &Unit, ip: IpAddr| unit.addresses().any(|own| own.addr == ip);
    let is_away = |ip: IpAddr| absent().flat_map(|interface| &interface.units).any(|unit| has(unit, ip));
    let leaves = |listener: &language::Listener| {
        let by = listener.interface.as_deref().map(|unit| unit.split('.').next().unwrap_or(unit));
        is_away(listener.bind.ip()) || absent().any(|interface| by == Some(interface.name.as_str()))
    };
    let mut wanted = config.fan_out.clone();
    wanted.listeners.retain(|listener| listener.mode.is_kernel() || !leaves(listener));
    wanted.metrics = wanted.metrics.filter(|address| !is_away(address.ip()));
    wanted
}

/// In the manner of those who come from simpler tools.
fn log(plan: &Plan) {
    for info in &plan.fan_out {
        let report = match info.hook {
            IngressHook::Tc => "tc",
            IngressHook::XdpNative => "native",
            IngressHook::XdpGeneric => "generic",
        };
        tracing::info!(listener = info.name, bind = %info.bind, receivers = info.receivers.len(), "registered listener");
        tracing::info!(interface = info.unit, mode = report, "attached fan-out program");
        if info.hook == IngressHook::Tc {
            tracing::info!(
                interface = info.unit,
                "on tc a burst that its sender left whole (UDP_SEGMENT over veth or tap) goes to one receiver; `ethtool -K DEVICE tx-udp-segmentation off` at its end, or mode xdp, spreads it"
            );
        }
        let ours = plan.units.iter().flat_map(|unit| &unit.addresses).any(|a| a.addr == info.bind.ip())
            || plan.kernel.addresses.iter().any(|(_, prefix)| prefix.addr == info.bind.ip());
        if !ours {
            tracing::warn!(
                listener = info.name,
                address = %info.bind.ip(),
                "no configured interface has this address: a router must send it here, or `answer-arp` has the kernel answer for it"
            );
        }
    }
}
