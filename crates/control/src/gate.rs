//! The gate from the daemon's side: grants over HTTP and by configuration, their audit, what ended by itself.
//!
//! The data plane enforces every limit alone. What happens here is giving, taking back, and writing down.

use std::io;
use std::time::Instant;

use sluice_dataplane::{Dataplane, Ended, GrantKey, GrantRecord, GrantSpec, Pick, Refused};
use sluice_language::config::Prefix;
use sluice_plan::GatePlan;

use crate::api::{
    GateServiceView, GateView, GrantFilter, GrantList, GrantRequest, GrantView, Granted, RevokeRequest,
    Revoked,
};
use crate::audit::{Act, Audit, lines, service_name, source_text};
use crate::error::AskError;
use crate::prefix;
use crate::shared::{Active, Shared, counted};

/// Grants that one answer lists unless asked otherwise.
const LISTED: usize = 1000;

#[derive(Debug, thiserror::Error)]
pub enum GateError {
    #[error("grant {number}: {reason}")]
    Request { number: usize, reason: String },
    #[error("{0}")]
    Bad(String),
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error(transparent)]
    Dataplane(#[from] sluice_dataplane::Error),
    #[error("the audit cannot be written: {0}; nothing was granted")]
    Audit(io::Error),
}

impl GateError {
    pub fn is_bad_input(&self) -> bool {
        matches!(self, Self::Request { .. } | Self::Bad(_))
    }

    pub fn is_full(&self) -> bool {
        matches!(self, Self::Refused(Refused::Full { .. }))
    }
}

fn read_prefix(text: &str) -> Result<Prefix, String> {
    let wrong = || format!("source `{text}` is no address or prefix; write it as 192.0.2.1 or 192.0.2.0/24");
    prefix::parse(text).ok_or_else(wrong)
}

fn spec(request: &GrantRequest, gate: &GatePlan) -> Result<GrantSpec, String> {
    let source = read_prefix(&request.source)?;
    if source.len == 0 && !request.any_source {
        let reason = format!("source `{}` is every host there is", request.source);
        return Err(format!("{reason}; if that is meant, say so with --any-source (`any_source` over HTTP)"));
    }
    let Some(service) = gate.service(&request.service) else {
        let known: Vec<&str> = gate.services.values().map(String::as_str).collect();
        return Err(format!("service `{}` is not configured; known: {}", request.service, known.join(", ")));
    };
    for (what, seconds) in
        [("idle_timeout_s", request.idle_timeout_s), ("absolute_timeout_s", request.absolute_timeout_s)]
    {
        if seconds.is_some_and(|s| !(1..=31_536_000).contains(&s)) {
            return Err(format!("{what}: a number from 1 to 31536000"));
        }
    }
    Ok(GrantSpec {
        key: GrantKey { source: source.addr, length: source.len, service: service as u16 },
        user: request.user.clone(),
        idle_s: request.idle_timeout_s,
        absolute_s: request.absolute_timeout_s,
    })
}

/// Gives all grants that are asked for, or none of them.
pub fn grant(shared: &Shared, requests: &[GrantRequest], by: &str) -> Result<Granted, GateError> {
    let active = shared.active();
    let gate = &active.plan.gate;
    let specs = requests
        .iter()
        .zip(1..)
        .map(|(request, number)| spec(request, gate).map_err(|reason| GateError::Request { number, reason }));
    let specs: Vec<GrantSpec> = specs.collect::<Result<_, _>>()?;
    let grants = shared.dataplane.grants();
    let now = shared.dataplane.now_jiffies()?;
    let given = grants.give(&specs, now)??;
    let records: Vec<GrantRecord> = specs
        .iter()
        .zip(&given)
        .map(|(spec, given)| record_of(spec, given.handle, now, shared.dataplane.hz()))
        .collect();
    let (renewed, new): (Vec<usize>, Vec<usize>) = (0..given.len()).partition(|n| given[*n].renewed);
    let mut text = vec![];
    for (event, which) in [("grant", &new), ("renew", &renewed)] {
        let records: Vec<GrantRecord> = which.iter().map(|n| records[*n].clone()).collect();
        text.extend(lines(&records, gate, shared.dataplane.hz().into(), Act { event, by, reason: None }));
    }
    if let Err(error) = shared.audit.write(&text) {
        // Nobody holds what is not written down.
        for given in &given {
            grants.revoke(&Pick::Handle(given.handle), now)?;
        }
        return Err(GateError::Audit(error));
    }
    Ok(Granted {
        granted: new.len() as u64,
        renewed: renewed.len() as u64,
        grants: given.iter().take(LISTED).map(|given| given.handle).collect(),
    })
}

fn record_of(spec: &GrantSpec, handle: u32, now: u64, hz: u32) -> GrantRecord {
    let jiffies = |seconds: u32| u64::from(seconds) * u64::from(hz);
    GrantRecord {
        handle,
        key: spec.key,
        user: spec.user.clone(),
        by_configuration: false,
        created: now,
        deadline: spec.absolute_s.map(|s| now + jiffies(s)),
        idle: spec.idle_s.map(|s| jiffies(s) as u32),
        last_use: now,
        sessions: 0,
        ended: None,
    }
}

/// Grants of the configuration that open a service to everybody; whoever commits them is told.
pub fn open_to_all(plan: &GatePlan) -> Vec<String> {
    let all = plan.grants.iter().filter(|grant| grant.source.len == 0);
    all.map(|grant| {
        let service = service_name(plan, grant.service as u16);
        format!("a grant for {}/0 opens service `{service}` to every host", grant.source.addr)
    })
    .collect()
}

/// Ends grants; what programs see has happened before anything is written down.
pub fn revoke(shared: &Shared, request: &RevokeRequest, by: &str) -> Result<Revoked, GateError> {
    let active = shared.active();
    let pick = pick(request, &active.plan.gate).map_err(GateError::Bad)?;
    let begun = Instant::now();
    let ended = shared.dataplane.grants().revoke(&pick, shared.dataplane.now_jiffies()?)?;
    let took_us = begun.elapsed().as_micros() as u64;
    note(shared, &ended, &active.plan.gate, Act { event: "revoke", by, reason: None });
    Ok(Revoked { revoked: ended.len() as u64, took_us })
}

fn pick(request: &RevokeRequest, gate: &GatePlan) -> Result<Pick, String> {
    let RevokeRequest { all, user, service, grant, source } = request;
    let mut picks = vec![];
    if *all {
        picks.push(Pick::All);
    }
    if let Some(user) = user {
        picks.push(Pick::User(user.clone()));
    }
    if let Some(name) = service {
        let id = gate.service(name).ok_or_else(|| format!("service `{name}` is not configured"))?;
        picks.push(Pick::Service(id as u16));
    }
    if let Some(handle) = grant {
        picks.push(Pick::Handle(*handle));
    }
    if let Some(source) = source {
        let Prefix { addr, len } = read_prefix(source)?;
        picks.push(Pick::Source(addr, len));
    }
    match <[Pick; 1]>::try_from(picks) {
        Ok([pick]) => Ok(pick),
        Err(_) => Err("name exactly one of user, service, grant, source and all".to_owned()),
    }
}

/// What has ended is written down; if that fails, it has ended nevertheless.
fn note(shared: &Shared, ended: &[GrantRecord], gate: &GatePlan, act: Act) {
    if ended.is_empty() {
        return;
    }
    let text = lines(ended, gate, shared.dataplane.hz().into(), act);
    if let Err(error) = shared.audit.write(&text) {
        tracing::error!(%error, count = ended.len(), "the audit cannot be written");
    }
}

/// Writes down and tidies what has ended by itself.
pub fn tidy(shared: &Shared) -> Result<(), GateError> {
    let ended = shared.dataplane.grants().tidy(shared.dataplane.now_jiffies()?)?;
    note(shared, &ended, &shared.active().plan.gate, Act { event: "expire", by: "limit", reason: None });
    Ok(())
}

/// After a commit: grants of services that are gone end, the configuration's own become what it says.
pub fn settle(dataplane: &Dataplane, audit: &Audit, gate: &GatePlan) -> Result<(), GateError> {
    let now = dataplane.now_jiffies()?;
    let (grants, hz) = (dataplane.grants(), u64::from(dataplane.hz()));
    let known = gate.services.keys().map(|id| *id as u16).collect();
    let gone = grants.revoke(&Pick::ServicesBut(known), now)?;
    let specs: Vec<GrantSpec> = gate
        .grants
        .iter()
        .map(|want| GrantSpec {
            key: GrantKey { source: want.source.addr, length: want.source.len, service: want.service as u16 },
            user: want.user.clone(),
            idle_s: want.idle_s,
            absolute_s: want.absolute_s,
        })
        .collect();
    let changed = grants.reconcile(&specs, now)?;
    let act = |event, reason| Act { event, by: "configuration", reason };
    let mut text = lines(&gone, gate, hz, act("revoke", Some("service removed")));
    let result = match changed {
        Ok(changed) => {
            text.extend(lines(&changed.ended, gate, hz, act("revoke", None)));
            text.extend(lines(&changed.given, gate, hz, act("grant", None)));
            Ok(())
        }
        Err(refused) => Err(refused.into()),
    };
    audit.write(&text).map_err(GateError::Audit)?;
    result
}

pub fn list(shared: &Shared, filter: &GrantFilter) -> Result<GrantList, AskError> {
    let active = shared.active();
    let now = shared.dataplane.now_jiffies()?;
    let mut records = shared.dataplane.grants().list(now);
    let matches = |record: &GrantRecord| {
        filter.user.as_ref().is_none_or(|user| record.user == *user)
            && filter
                .service
                .as_ref()
                .is_none_or(|s| service_name(&active.plan.gate, record.key.service) == s)
            && filter.source.as_ref().is_none_or(|s| {
                prefix::parse(s)
                    .is_some_and(|Prefix { addr, len }| record.key.source == addr && record.key.length == len)
            })
    };
    records.retain(matches);
    records.sort_unstable_by_key(|record| (record.created, record.handle));
    let hz = u64::from(shared.dataplane.hz());
    let page = records.iter().skip(filter.offset.unwrap_or(0)).take(filter.limit.unwrap_or(LISTED));
    Ok(GrantList {
        total: records.len() as u64,
        grants: page.map(|record| view(record, &active, now, hz)).collect(),
    })
}

fn view(record: &GrantRecord, active: &Active, now: u64, hz: u64) -> GrantView {
    let since = |jiffies: u64| now.saturating_sub(jiffies) / hz;
    GrantView {
        grant: record.handle,
        user: record.user.clone(),
        source: source_text(&record.key),
        service: service_name(&active.plan.gate, record.key.service).to_owned(),
        by_configuration: record.by_configuration,
        age_s: since(record.created),
        idle_s: since(record.last_use),
        idle_timeout_s: record.idle.map(|jiffies| u64::from(jiffies) / hz),
        expires_in_s: record.deadline.map(|end| end.saturating_sub(now).div_ceil(hz)),
        sessions: record.sessions,
        state: match record.ended {
            None => "live",
            Some(Ended::Revoked) => "revoked",
            Some(Ended::Expired) => "expired",
            Some(Ended::Idle) => "idle",
        }
        .to_owned(),
    }
}

pub fn overview(shared: &Shared) -> Result<GateView, AskError> {
    let active = shared.active();
    let grants = shared.dataplane.grants();
    let by_service = grants.count_by_service();
    let services = active.config.gate.services.iter().map(|service| {
        let id = active.plan.gate.service(&service.name).unwrap_or(0);
        let ports = service.terms.iter().map(|term| match term.destination_port {
            (0, u16::MAX) => "any".to_owned(),
            (low, high) if low == high => low.to_string(),
            (low, high) => format!("{low}-{high}"),
        });
        GateServiceView {
            name: service.name.clone(),
            id,
            destinations: service.destinations.iter().map(|p| format!("{}/{}", p.addr, p.len)).collect(),
            protocol: service.terms.first().and_then(|term| term.protocol).unwrap_or(0),
            ports: ports.collect(),
            grants: by_service.get(&(id as u16)).copied().unwrap_or(0),
        }
    });
    let totals = &grants.totals;
    Ok(GateView {
        zones: active.plan.gate.zones.clone(),
        services: services.collect(),
        grants: grants.live() as u64,
        limit: grants.capacity().into(),
        given: counted(&totals.given),
        renewed: counted(&totals.renewed),
        revoked: counted(&totals.revoked),
        expired: counted(&totals.expired),
        idle: counted(&totals.idle),
        refused_full: counted(&totals.refused_full),
    })
}
