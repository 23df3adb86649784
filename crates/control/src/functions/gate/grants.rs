//! The gate from the daemon's side: grants over HTTP and by configuration, their audit, what ended by itself.
//!
//! The data plane enforces every limit alone. What happens here is giving, taking back, and writing down.

use std::io;
use std::time::Instant;

use sluice_dataplane::{Dataplane, GrantKey, GrantRecord, GrantSpec, Pick, Refused};
use sluice_language::config::{MAX_IDLE_S, Prefix};
use sluice_plan::{GatePlan, GrantWant};

use crate::api::prefix;
use crate::api::{GrantRequest, Granted, RevokeRequest, Revoked};
use crate::functions::gate::audit::{Act, Audit, lines, service_name};

/// Grants that one answer lists unless asked otherwise.
pub const LISTED: usize = 1000;

/// What ends because something else takes its place: by its limit, or because the configuration has it no more.
const FORMER: Act<'static> = Act { event: "revoke", by: "configuration", reason: None };

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

/// The gate's grants, by the services of a plan.
pub struct Grants<'a> {
    pub dataplane: &'a Dataplane,
    pub audit: &'a Audit,
    pub plan: &'a GatePlan,
}

impl Grants<'_> {
    /// Gives all grants that are asked for, or none of them.
    pub fn grant(&self, requests: &[GrantRequest], by: &str) -> Result<Granted, GateError> {
        let gate = self.plan;
        let specs = requests.iter().zip(1..).map(|(request, number)| {
            spec(request, gate).map_err(|reason| GateError::Request { number, reason })
        });
        let specs: Vec<GrantSpec> = specs.collect::<Result<_, _>>()?;
        let grants = self.dataplane.grants();
        let now = self.dataplane.now_jiffies()?;
        let given = grants.give(&specs, now)?;
        self.note(&grants.untold(), FORMER);
        let given = given?;
        let records: Vec<GrantRecord> = specs
            .iter()
            .zip(&given)
            .map(|(spec, given)| record_of(spec, given.handle, now, self.dataplane.hz()))
            .collect();
        let (renewed, new): (Vec<usize>, Vec<usize>) =
            (0..given.len()).partition(|n| given[*n].renewed.is_some());
        let mut text = vec![];
        for (event, which) in [("grant", &new), ("renew", &renewed)] {
            let records: Vec<GrantRecord> = which.iter().map(|n| records[*n].clone()).collect();
            text.extend(lines(&records, gate, self.dataplane.hz().into(), Act { event, by, reason: None }));
        }
        if let Err(error) = self.audit.write(&text) {
            // Nobody holds what is not written down, and nobody loses what was.
            grants.withdraw(&given);
            return Err(GateError::Audit(error));
        }
        Ok(Granted {
            granted: new.len() as u64,
            renewed: renewed.len() as u64,
            grants: given.iter().take(LISTED).map(|given| given.handle).collect(),
        })
    }

    /// Ends grants; what programs see has happened before anything is written down.
    pub fn revoke(&self, request: &RevokeRequest, by: &str) -> Result<Revoked, GateError> {
        let pick = pick(request, self.plan).map_err(GateError::Bad)?;
        let begun = Instant::now();
        let ended = self.dataplane.grants().revoke(&pick, self.dataplane.now_jiffies()?)?;
        let took_us = begun.elapsed().as_micros() as u64;
        self.note(&ended, Act { event: "revoke", by, reason: None });
        Ok(Revoked { revoked: ended.len() as u64, took_us })
    }

    /// Takes out and writes down what has ended by itself.
    pub fn expire(&self) -> Result<(), GateError> {
        let ended = self.dataplane.grants().collect_ended(self.dataplane.now_jiffies()?)?;
        self.note(&ended, Act { event: "expire", by: "limit", reason: None });
        self.note(&self.dataplane.grants().untold(), FORMER);
        if let Err(error) = self.audit.settle() {
            tracing::debug!(%error, "ends of grants wait for the audit");
        }
        Ok(())
    }

    /// What a commit with this plan would be refused for.
    pub fn rehearse(&self) -> Result<(), GateError> {
        let services = self.plan.services.keys().map(|id| *id as u16).collect();
        let now = self.dataplane.now_jiffies()?;
        Ok(self.dataplane.grants().rehearse(&self.wanted(), &services, now)?)
    }

    fn wanted(&self) -> Vec<GrantSpec> {
        let spec = |want: &GrantWant| GrantSpec {
            key: GrantKey { source: want.source.addr, length: want.source.len, service: want.service as u16 },
            user: want.user.clone(),
            idle_s: want.idle_s,
            absolute_s: want.absolute_s,
        };
        self.plan.grants.iter().map(spec).collect()
    }

    /// After a commit: grants of services that are gone end, the configuration's own become what it says. With
    /// `falls_back` nobody has asked for it: operators' grants wait for one that has their services. Says what is not given.
    pub fn reconcile(&self, falls_back: bool) -> Result<Vec<String>, GateError> {
        let Self { dataplane, audit, plan: gate } = self;
        let now = dataplane.now_jiffies()?;
        let (grants, hz) = (dataplane.grants(), u64::from(dataplane.hz()));
        let gone = match falls_back {
            true => vec![],
            false => {
                let known = gate.services.keys().map(|id| *id as u16).collect();
                grants.revoke(&Pick::ServicesBut(known), now)?
            }
        };
        let changed = grants.reconcile(&self.wanted(), now)?;
        self.note(&gone, Act { reason: Some("service removed"), ..FORMER });
        self.note(&grants.untold(), FORMER);
        let changed = changed?;
        self.note(&changed.ended, FORMER);
        let text = lines(&changed.given, gate, hz, Act { event: "grant", ..FORMER });
        if let Err(error) = audit.write(&text) {
            grants.withdraw(&changed.handed);
            return Err(GateError::Audit(error));
        }
        Ok(changed.refused.iter().map(|refused| format!("services gate grant: {refused}")).collect())
    }

    /// What has ended is written down; if that fails, it has ended nevertheless.
    fn note(&self, ended: &[GrantRecord], act: Act) {
        if ended.is_empty() {
            return;
        }
        let text = lines(ended, self.plan, self.dataplane.hz().into(), act);
        if let Err(error) = self.audit.note(&text) {
            let count = ended.len();
            tracing::error!(%error, count, "the audit cannot be written; ends of grants are when it can");
        }
    }
}

/// Of a grant, as requests have it.
pub fn read_prefix(text: &str) -> Result<Prefix, String> {
    let wrong = || format!("source `{text}` is no address or prefix; write it as 192.0.2.1 or 192.0.2.0/24");
    prefix::parse(text).ok_or_else(wrong)
}

/// The same of its service, as grants know it.
pub fn read_service(name: &str, gate: &GatePlan) -> Result<u16, String> {
    gate.service(name).map(|id| id as u16).ok_or_else(|| {
        let known: Vec<&str> = gate.services.values().map(String::as_str).collect();
        format!("service `{name}` is not configured; known: {}", known.join(", "))
    })
}

fn spec(request: &GrantRequest, gate: &GatePlan) -> Result<GrantSpec, String> {
    let source = read_prefix(&request.source)?;
    if source.len == 0 && !request.any_source {
        let reason = format!("source `{}` is every host there is", request.source);
        return Err(format!("{reason}; if that is meant, say so with --any-source (`any_source` over HTTP)"));
    }
    let service = read_service(&request.service, gate)?;
    for (what, seconds, most) in [
        ("idle_timeout_s", request.idle_timeout_s, MAX_IDLE_S),
        ("absolute_timeout_s", request.absolute_timeout_s, 31_536_000),
    ] {
        if seconds.is_some_and(|s| !(1..=most).contains(&s)) {
            return Err(format!("{what}: a number from 1 to {most}"));
        }
    }
    Ok(GrantSpec {
        key: GrantKey { source: source.addr, length: source.len, service },
        user: request.user.clone(),
        idle_s: request.idle_timeout_s,
        absolute_s: request.absolute_timeout_s,
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
        picks.push(Pick::Service(read_service(name, gate)?));
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

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use sluice_dataplane::{Sizes, cleanup};
    use sluice_language::config::Prefix;

    use super::*;

    struct Pin(PathBuf);

    impl Drop for Pin {
        fn drop(&mut self) {
            let _ = cleanup(&self.0);
        }
    }

    #[test]
    fn what_a_commit_grants_and_cannot_write_down_nobody_holds_until_it_can() {
        let pin = Pin(format!("/sys/fs/bpf/sluice-grants-{}", std::process::id()).into());
        let dataplane =
            Dataplane::open(&pin.0, Sizes { sessions4: 64, sessions6: 32, grants: 64, ..Sizes::default() });
        let dataplane = dataplane.unwrap();
        let source = Prefix { addr: "10.0.1.2".parse().unwrap(), len: 32 };
        let want = GrantWant { source, service: 3, user: "alice".to_owned(), idle_s: None, absolute_s: None };
        let plan =
            GatePlan { services: [(3, "db".to_owned())].into(), grants: vec![want], ..Default::default() };
        for (file, live) in [("/dev/full", 0), ("/dev/null", 1)] {
            let audit = Audit::open(file.as_ref()).unwrap();
            let done = Grants { dataplane: &dataplane, audit: &audit, plan: &plan }.reconcile(false);
            assert_eq!((done.is_ok(), dataplane.grants().live()), (live == 1, live), "{file}");
        }
    }

    #[test]
    fn a_renewal_that_cannot_be_written_down_leaves_the_grant_as_it_was() {
        let pin = Pin(format!("/sys/fs/bpf/sluice-renewal-{}", std::process::id()).into());
        let sizes = Sizes { sessions4: 64, sessions6: 32, grants: 64, ..Sizes::default() };
        let dataplane = Dataplane::open(&pin.0, sizes).unwrap();
        let plan = GatePlan { services: [(3, "db".to_owned())].into(), ..Default::default() };
        let ask = |file: &str, seconds| {
            let audit = Audit::open(file.as_ref()).unwrap();
            let request = GrantRequest {
                source: "10.0.1.2".to_owned(),
                service: "db".to_owned(),
                user: "alice".to_owned(),
                absolute_timeout_s: Some(seconds),
                ..GrantRequest::default()
            };
            Grants { dataplane: &dataplane, audit: &audit, plan: &plan }.grant(&[request], "uid 0").is_ok()
        };
        let held = || {
            let list = dataplane.grants().list(dataplane.now_jiffies().unwrap());
            list.into_iter().map(|record| (record.created, record.deadline)).collect::<Vec<_>>()
        };
        assert!(ask("/dev/null", 600));
        let before = held();
        assert!(!ask("/dev/full", 60));
        assert_eq!((before.len(), held()), (1, before));
    }

    /// Nobody has asked for a configuration that a start falls back to.
    #[test]
    fn grants_of_services_that_a_fallback_lacks_wait_for_them() {
        let pin = Pin(format!("/sys/fs/bpf/sluice-fallback-{}", std::process::id()).into());
        let sizes = Sizes { sessions4: 64, sessions6: 32, grants: 64, ..Sizes::default() };
        let dataplane = Dataplane::open(&pin.0, sizes).unwrap();
        let key = GrantKey { source: "10.0.1.2".parse().unwrap(), length: 32, service: 3 };
        let spec = GrantSpec { key, user: "alice".to_owned(), idle_s: None, absolute_s: None };
        dataplane.grants().give(&[spec], dataplane.now_jiffies().unwrap()).unwrap().unwrap();
        let audit = Audit::open("/dev/null".as_ref()).unwrap();
        let grants = Grants { dataplane: &dataplane, audit: &audit, plan: &GatePlan::default() };
        for (falls_back, live) in [(true, 1), (false, 0)] {
            grants.reconcile(falls_back).unwrap();
            assert_eq!(dataplane.grants().live(), live, "{falls_back}");
        }
    }
}
