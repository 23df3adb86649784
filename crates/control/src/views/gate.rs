//! `show gate` and `show gate grants`.

use std::sync::atomic::{AtomicU64, Ordering};

use sluice_dataplane::{Ended, GrantRecord};
use sluice_language::config::Prefix;

use crate::api::{GateServiceView, GateView, GrantFilter, GrantList, GrantView};
use crate::commit::Shared;
use crate::functions::gate::audit::{service_name, source_text};
use crate::functions::gate::grants::{LISTED, read_prefix, read_service};
use crate::state::active::Active;
use crate::state::error::AskError;

/// A filter with its fields understood.
pub struct Matcher {
    user: Option<String>,
    service: Option<u16>,
    source: Option<Prefix>,
}

impl Matcher {
    /// Err says which field is wrong and what it takes.
    pub fn new(filter: &GrantFilter, active: &Active) -> Result<Self, String> {
        let service = filter.service.as_ref().map(|name| read_service(name, &active.plan.gate));
        let source = filter.source.as_ref().map(|text| read_prefix(text));
        Ok(Self { user: filter.user.clone(), service: service.transpose()?, source: source.transpose()? })
    }

    fn matches(&self, record: &GrantRecord) -> bool {
        let key = &record.key;
        self.user.as_ref().is_none_or(|user| record.user == *user)
            && self.service.is_none_or(|service| key.service == service)
            && self.source.is_none_or(|Prefix { addr, len }| (key.source, key.length) == (addr, len))
    }
}

pub fn list(shared: &Shared, filter: &GrantFilter, matcher: &Matcher) -> Result<GrantList, AskError> {
    let active = shared.active();
    let now = shared.dataplane.now_jiffies()?;
    let mut records = shared.dataplane.grants().list(now);
    records.retain(|record| matcher.matches(record));
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
    let counted = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
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
