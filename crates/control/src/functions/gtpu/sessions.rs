//! Sessions from the daemon's side: by configuration and over HTTP, by name, written down, and put into the data plane, which
//! alone knows what passed of them.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use sluice_abi::{GtpuFilters, GtpuRules};
use sluice_dataplane::{Dataplane, Gtpu, GtpuRecord, GtpuRefused, GtpuSession, Peer, Tunnel};
use sluice_language::Config;
use sluice_language::gtpu::{GtpU, MobileSession, Thresholds};
use sluice_plan::{Copies, CopyWant, FlowsWant, GtpuPlan, Plan, SessionWant};

use super::journal::{Journal, Line, Written};
use super::markers;
use super::meters::{Meter, Time, Told, is_metered};
use crate::api::{GtpuAdded, GtpuChangeRequest, GtpuChanged, GtpuRemoveRequest, GtpuSessionRequest, prefix};
use crate::kernel::clock::unix_ms;
use crate::state::store::{GTPU_SESSIONS, Store, StoreError};

/// Sessions that one answer lists unless asked otherwise.
pub const LISTED: usize = 1000;

#[derive(Debug, thiserror::Error)]
pub enum GtpuError {
    #[error("session {number}: {reason}")]
    Request { number: usize, reason: String },
    #[error("{0}")]
    Bad(String),
    #[error("there is no session `{0}`; `show services gtp-u sessions` lists them")]
    Unknown(String),
    #[error("there is a session `{0}` already; remove it first, or choose another name")]
    Twice(String),
    #[error("session `{0}` stands in the configuration; change it there, and commit")]
    Configured(String),
    #[error("there would be {wanted} sessions, and sessions-maximum is {room}; raise it, or end some")]
    Room { wanted: usize, room: u32 },
    #[error("session `{name}`: {source}")]
    Refused { name: String, source: GtpuRefused },
    #[error(transparent)]
    Dataplane(#[from] sluice_dataplane::Error),
    #[error("sessions cannot be written down: {0}; nothing was changed")]
    Journal(io::Error),
}

/// All sessions by name, and what of them is written down.
#[derive(Debug)]
pub struct Sessions(Mutex<Book>);

#[derive(Debug)]
struct Book {
    journal: Journal,
    /// Made over the API.
    made: BTreeMap<String, MobileSession>,
    /// And of those what has no place in the configuration that a start fell back to: only an operator's commit ends it.
    aside: Vec<MobileSession>,
    /// Of sessions whose usage is told of.
    meters: BTreeMap<String, Meter>,
    /// Since this process began.
    reports: u64,
    /// All that has passed of sessions that a commit has ended, to be told of.
    ended: Vec<Report>,
    /// Where the configuration in force has its own.
    configured: HashMap<String, usize>,
    /// Names by TEID.
    names: HashMap<u32, String>,
    /// How many sessions lead to each other end.
    ends: HashMap<End, u32>,
    /// The data plane's numbers of filters, by name of the rules that have flows.
    filters: HashMap<String, u16>,
    /// And of the other ends that copies go to, by name of their tunnel.
    copies: HashMap<String, u16>,
    config: GtpU,
    plan: GtpuPlan,
}

/// Where a session's packets come out, and by which TEID they are known there; whatever this gateway's own end is.
type End = (IpAddr, u32);

/// Of a session whose time is over.
const OVER: [Option<u64>; 2] = [Some(0); 2];

/// Quotas of the directions that the data plane has of a session: nobody looks for a relay's subscriber.
fn quotas(session: &GtpuSession, quota: [Option<u64>; 2]) -> [Option<u64>; 2] {
    let has_downlink = session.address.is_some() || session.prefix.is_some();
    [quota[0], quota[1].filter(|_| has_downlink)]
}

fn now() -> Time {
    unix_ms() / 1000
}

/// What is known of a session besides the data plane's own.
#[derive(Debug, Clone, Default)]
pub struct Known {
    pub name: String,
    pub by_configuration: bool,
    pub rules: Option<String>,
    pub interface: Option<String>,
    /// Of its rules, by precedence.
    pub flows: Vec<String>,
    /// How often its usage was told of, and what was told last.
    pub reports: u64,
    pub last: Option<Told>,
}

/// A session whose usage is to be told of.
#[derive(Debug)]
pub struct Report {
    pub name: String,
    pub teid: u32,
    /// How often its usage was told of, with this time.
    pub number: u64,
    pub told: Told,
    /// From when on its time counts, where it does.
    pub since: Option<Time>,
}

impl Report {
    fn of(teid: u32, meter: &Meter) -> Option<Report> {
        let told = meter.last.clone()?;
        Some(Report { name: meter.name.clone(), teid, number: meter.reports, told, since: Some(meter.since) })
    }
}

/// What was known of sessions before a commit, as far as it is not any more.
#[derive(Debug, Default)]
struct Former {
    names: HashMap<u32, String>,
    meters: HashMap<String, Meter>,
}

impl Sessions {
    /// Those of a state directory, as they were written down.
    pub fn of(store: &Store) -> Result<Self, StoreError> {
        let path = store.dir().join(GTPU_SESSIONS);
        let opened = Journal::open(store);
        let (journal, written) = opened.map_err(|source| StoreError::Io { action: "open", path, source })?;
        Ok(Self::with(journal, written))
    }

    /// What a daemon has left, for who only reads.
    pub fn look(dir: &Path, config: &Config, plan: &Plan) -> io::Result<Self> {
        let (journal, written) = Journal::look(dir)?;
        let sessions = Self::with(journal, written);
        sessions.book().learn(config, plan);
        Ok(sessions)
    }

    fn with(journal: Journal, written: Written) -> Self {
        let (configured, names) = (HashMap::new(), HashMap::new());
        let (filters, copies) = (HashMap::new(), HashMap::new());
        let (config, plan) = (GtpU::default(), GtpuPlan::default());
        let session = |request: GtpuSessionRequest| match read(&request) {
            Ok(session) => Some((request.name, session)),
            Err(why) => {
                tracing::error!(session = request.name, %why, "a session that was written down is passed over");
                None
            }
        };
        let made = written.sessions.into_values().filter_map(session).collect();
        let meters = written.meters;
        Self(Mutex::new(Book {
            journal,
            made,
            aside: vec![],
            meters,
            reports: 0,
            ended: vec![],
            configured,
            names,
            ends: HashMap::new(),
            filters,
            copies,
            config,
            plan,
        }))
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sessions that there would be with a configuration.
    pub fn wanted(&self, config: &Config) -> usize {
        let book = self.book();
        let stays = |session: &&MobileSession| config.gtp_u.place(session).is_ok();
        config.gtp_u.sessions.len() + book.written().filter(stays).count()
    }

    /// Makes all sessions that are asked for, or none of them.
    pub fn add(
        &self,
        dataplane: &Dataplane,
        requests: Vec<GtpuSessionRequest>,
    ) -> Result<GtpuAdded, GtpuError> {
        let mut book = self.book();
        let gtpu = dataplane.gtpu()?;
        let (wanted, room) = (book.made.len() + book.configured.len() + requests.len(), book.config.room());
        if wanted > room as usize {
            return Err(GtpuError::Room { wanted, room });
        }
        let mut made: Vec<(MobileSession, SessionWant)> = vec![];
        let (mut names, mut teids) = (HashSet::new(), HashSet::new());
        for (number, mut request) in (1..).zip(requests) {
            let bad = |reason: String| GtpuError::Request { number, reason };
            if book.is_known(&request.name) || !names.insert(request.name.clone()) {
                return Err(GtpuError::Twice(request.name));
            }
            let teid = *request.teid.get_or_insert_with(|| vacant(gtpu, |teid| teids.contains(&teid)));
            teids.insert(teid);
            let session = read(&request).map_err(bad)?;
            let want = book.place(&session).map_err(bad)?;
            debug_assert_eq!(want.teid, teid);
            made.push((session, want));
        }
        let mut numbers = vec![];
        for (session, want) in &made {
            match gtpu.add(&book.asked(want)) {
                Ok(number) => numbers.push(number),
                Err(source) => {
                    dataplane.remove_gtpu(&numbers)?;
                    return Err(GtpuError::Refused { name: session.name.clone(), source });
                }
            }
        }
        let now = now();
        let metered = made.iter().filter(|(session, _)| is_metered(session));
        let meters: Vec<Meter> = metered.map(|(session, _)| Meter::new(session, now)).collect();
        let lines = made.iter().map(|(session, _)| Line::Put(request_of(session)));
        let lines: Vec<Line> = lines.chain(meters.iter().cloned().map(Line::Meter)).collect();
        if let Err(error) = book.journal.write(&lines) {
            // nobody would know of it after a restart
            dataplane.remove_gtpu(&numbers)?;
            return Err(GtpuError::Journal(error));
        }
        let teids = made.iter().map(|(_, want)| want.teid).take(LISTED).collect();
        let added = made.len() as u64;
        for (session, want) in made {
            book.names.insert(want.teid, session.name.clone());
            book.put_made(session);
        }
        book.keep(meters);
        Ok(GtpuAdded { added, teids })
    }

    /// Changes sessions that were made over the API, all that are named or none of them.
    pub fn change(
        &self,
        dataplane: &Dataplane,
        changes: Vec<GtpuChangeRequest>,
    ) -> Result<GtpuChanged, GtpuError> {
        let mut book = self.book();
        let gtpu = dataplane.gtpu()?;
        let mut names = HashSet::new();
        let mut steps = vec![];
        for change in changes {
            if !names.insert(change.name.clone()) {
                return Err(GtpuError::Bad(format!(
                    "session `{}` is named twice; once is enough",
                    change.name
                )));
            }
            steps.push(book.step(gtpu, change)?);
        }
        // all of them, though one may fail
        let back = |done: &[Step]| {
            let back = done.iter().map(|step| put(gtpu, step.number, &step.before, &step.after.name));
            back.fold(Ok(()), Result::and)
        };
        for (done, step) in steps.iter().enumerate() {
            if let Err(error) = put(gtpu, step.number, &book.asked(&step.want), &step.after.name) {
                back(&steps[..done])?;
                return Err(error);
            }
        }
        let now = now();
        let meters: Vec<Meter> =
            steps.iter().filter_map(|step| book.new_meter(Some(gtpu), &step.after, now)).collect();
        let lines = steps.iter().map(|step| Line::Put(request_of(&step.after)));
        let lines: Vec<Line> = lines.chain(meters.iter().cloned().map(Line::Meter)).collect();
        if let Err(error) = book.journal.write(&lines) {
            back(&steps)?;
            return Err(GtpuError::Journal(error));
        }
        let changed = steps.len() as u64;
        let left: Vec<Tunnel> =
            steps.iter().filter_map(|step| left(&step.before, &book.asked(&step.want))).collect();
        for step in steps {
            book.put_made(step.after);
        }
        book.keep(meters);
        book.tidy();
        drop(book);
        if !left.is_empty() {
            // others may change sessions meanwhile, and lead one there again
            await_last_packets(dataplane);
            self.book().tell_old_ends(left);
        }
        Ok(GtpuChanged { changed })
    }

    /// Ends sessions that were made over the API; what is returned is all that passed of them.
    pub fn remove(
        &self,
        dataplane: &Dataplane,
        request: &GtpuRemoveRequest,
    ) -> Result<Vec<(Known, GtpuRecord)>, GtpuError> {
        let mut book = self.book();
        let names = book.picked(request)?;
        let lines: Vec<Line> = names.iter().map(|name| Line::End(name.clone())).collect();
        if lines.is_empty() {
            return Ok(vec![]);
        }
        book.journal.write(&lines).map_err(GtpuError::Journal)?;
        let ended: Vec<MobileSession> =
            names.iter().filter_map(|name| book.made.get(name).cloned()).collect();
        let teids: Vec<u32> = ended.iter().map(|session| session.teid).collect();
        let mut known: HashMap<u32, Known> = teids.iter().map(|teid| (*teid, book.known(*teid))).collect();
        names.iter().for_each(|name| {
            book.drop_made(name);
            book.meters.remove(name);
        });
        let names: HashSet<String> = names.into_iter().collect();
        book.aside.retain(|session| !names.contains(&session.name));
        let gtpu = dataplane.gtpu()?;
        let numbers: Vec<u32> = teids.iter().filter_map(|teid| gtpu.find_teid(*teid)).collect();
        let records = dataplane.remove_gtpu(&numbers)?;
        let with_name = |record: GtpuRecord| (known.remove(&record.session.teid).unwrap_or_default(), record);
        let usage = records.into_iter().map(with_name).collect();
        teids.iter().for_each(|teid| drop(book.names.remove(teid)));
        book.tidy();
        Ok(usage)
    }

    /// After a commit, and when the daemon starts: the data plane has the sessions of the configuration, and those made over the
    /// API that have a place in it. Those that stay as they are go on; says which have ended, and what could not be done.
    /// With `falls_back` nobody has asked for this configuration, and what has no place in it is only put aside.
    pub fn reconcile(
        &self,
        dataplane: &Dataplane,
        (config, plan): (&Config, &Plan),
        falls_back: bool,
    ) -> Vec<String> {
        let mut book = self.book();
        let mut former = Former { names: std::mem::take(&mut book.names), ..Former::default() };
        let mut remains = book.put_back();
        remains.extend(book.end_misfits(config, &mut former, falls_back));
        book.learn(config, plan);
        book.meter_configured(dataplane.gtpu().ok(), now(), &mut former);
        let wants = book.wants(plan);
        match dataplane.gtpu() {
            Ok(gtpu) => {
                remains.extend(book.number_shared(gtpu).err().map(|error| error.to_string()));
                let wanted = wants.iter().map(|want| (want.teid, book.asked(want))).collect();
                remains.extend(bring_about(dataplane, &wanted, &mut book, &former));
            }
            Err(_) if wants.is_empty() => {}
            Err(error) => remains.push(error.to_string()),
        }
        remains
    }

    /// The TEID of a session.
    pub fn teid(&self, name: &str) -> Option<u32> {
        let book = self.book();
        let configured = book.configured.get(name).map(|index| book.config.sessions[*index].teid);
        configured.or_else(|| Some(book.made.get(name)?.teid))
    }

    /// Once a second: ends sessions whose time is over, and says of which there is something to tell. That is written down before,
    /// so that nobody is told twice.
    pub fn meter(&self, dataplane: &Dataplane, now: Time) -> Vec<Report> {
        let mut book = self.book();
        let Ok(gtpu) = dataplane.gtpu() else { return vec![] };
        let (mut noted, mut reports) = (vec![], std::mem::take(&mut book.ended));
        book.reports += reports.len() as u64;
        let ended = reports.len();
        for (name, meter) in &book.meters {
            let Some(session) = book.session(name) else { continue };
            let Some(record) = gtpu.find_teid(session.teid).and_then(|number| gtpu.get(number)) else {
                continue;
            };
            let over = quotas(&record.session, OVER);
            if meter.is_over(session, now) && record.session.quota != over {
                let GtpuSession { tunnel, rules, .. } = record.session;
                if let Err(error) = gtpu.change(record.number, &tunnel, &rules, over) {
                    tracing::error!(%error, session = name, "its time is over, and it does not end");
                }
            }
            let mut after = meter.clone();
            if after.note(session, &record.usage, now) {
                if after.reports != meter.reports {
                    reports.extend(Report::of(session.teid, &after));
                }
                noted.push(after);
            }
        }
        if noted.is_empty() {
            return reports;
        }
        let lines: Vec<Line> = noted.iter().cloned().map(Line::Meter).collect();
        if let Err(error) = book.journal.write(&lines) {
            tracing::error!(%error, "usage cannot be written down; it is told of later");
            reports.truncate(ended);
            return reports;
        }
        book.reports += (reports.len() - ended) as u64;
        book.keep(noted);
        book.tidy();
        reports
    }

    /// Reports since this process began.
    pub fn reports(&self) -> u64 {
        self.book().reports
    }

    /// What is known of sessions, by TEID.
    pub fn known<T>(&self, records: &[GtpuRecord], tell: impl Fn(&GtpuRecord, Known) -> T) -> Vec<T> {
        let book = self.book();
        records.iter().map(|record| tell(record, book.known(record.session.teid))).collect()
    }

    /// How many the configuration has.
    pub fn configured(&self) -> usize {
        self.book().configured.len()
    }
}

/// What the data plane shall have, by TEID.
type Wanted = BTreeMap<u32, GtpuSession>;

/// What becomes of a session that is changed.
struct Step {
    number: u32,
    before: GtpuSession,
    after: MobileSession,
    want: SessionWant,
}

impl Book {
    fn step(&self, gtpu: &Gtpu, change: GtpuChangeRequest) -> Result<Step, GtpuError> {
        let name = change.name.clone();
        let after = changed(request_of(self.made_by_name(&name)?), change);
        let bad = |reason| GtpuError::Bad(format!("session `{name}`: {reason}"));
        let after = read(&after).map_err(bad)?;
        let mut want = self.place(&after).map_err(bad)?;
        self.end_in_time(&after, &mut want, now());
        let number = gtpu.find_teid(want.teid).ok_or_else(|| GtpuError::Unknown(after.name.clone()))?;
        let old = gtpu.get(number).ok_or_else(|| GtpuError::Unknown(after.name.clone()))?;
        Ok(Step { number, before: old.session, after, want })
    }

    fn is_known(&self, name: &str) -> bool {
        self.made.contains_key(name) || self.configured.contains_key(name) || self.is_aside(name)
    }

    fn is_aside(&self, name: &str) -> bool {
        self.aside.iter().any(|session| session.name == name)
    }

    /// Made over the API, whether or not they have a place.
    fn written(&self) -> impl Iterator<Item = &MobileSession> {
        self.made.values().chain(&self.aside)
    }

    fn made_by_name(&self, name: &str) -> Result<&MobileSession, GtpuError> {
        if self.configured.contains_key(name) {
            return Err(GtpuError::Configured(name.to_owned()));
        }
        self.made.get(name).ok_or_else(|| GtpuError::Unknown(name.to_owned()))
    }

    fn place(&self, session: &MobileSession) -> Result<SessionWant, String> {
        self.config.place(session).map_err(|misfit| misfit.to_string())?;
        let want = self.plan.session(&self.config, session);
        want.ok_or_else(|| "its units have no devices; commit the configuration anew".to_owned())
    }

    /// Names of the sessions that shall end.
    fn picked(&self, request: &GtpuRemoveRequest) -> Result<Vec<String>, GtpuError> {
        match (&request.name, &request.peer, request.all) {
            (Some(name), None, false) if self.is_aside(name) => Ok(vec![name.clone()]),
            (Some(name), None, false) => self.made_by_name(name).map(|_| vec![name.clone()]),
            (None, Some(peer), false) => {
                let peer: IpAddr = address(peer, "peer").map_err(GtpuError::Bad)?;
                let leads_there = |session: &&MobileSession| session.peer == peer;
                Ok(self.written().filter(leads_there).map(|session| session.name.clone()).collect())
            }
            (None, None, true) => Ok(self.written().map(|session| session.name.clone()).collect()),
            _ => Err(GtpuError::Bad("name exactly one of name, peer and all".to_owned())),
        }
    }

    /// Sessions made over the API that have no place in a configuration, or collide with one that it has.
    fn end_misfits(&mut self, config: &Config, former: &mut Former, falls_back: bool) -> Vec<String> {
        let own = &config.gtp_u.sessions;
        let names: HashMap<&str, &MobileSession> = own.iter().map(|own| (own.name.as_str(), own)).collect();
        let teids: HashMap<u32, &str> = own.iter().map(|own| (own.teid, own.name.as_str())).collect();
        let mut subscribers: HashMap<IpAddr, &str> = HashMap::new();
        for session in own {
            subscribers.extend(subscriber(session).map(|address| (address, session.name.as_str())));
        }
        let cause = |session: &MobileSession| -> Option<String> {
            if names.contains_key(session.name.as_str()) {
                return Some("the configuration has a session of this name".to_owned());
            }
            if let Some(other) = teids.get(&session.teid) {
                return Some(format!("session `{other}` of the configuration has its TEID"));
            }
            if let Some(other) = subscriber(session).find_map(|address| subscribers.get(&address)) {
                return Some(format!("session `{other}` of the configuration has its address"));
            }
            config.gtp_u.place(session).err().map(|misfit| misfit.to_string())
        };
        let ended: Vec<(String, String)> =
            self.made.values().filter_map(|session| Some((session.name.clone(), cause(session)?))).collect();
        if falls_back {
            for (name, _) in &ended {
                let session = self.drop_made(name);
                former.names.extend(session.iter().map(|session| (session.teid, session.name.clone())));
                self.aside.extend(session);
            }
            let text = |(name, why): &(String, String)| {
                format!("GTP-U session `{name}` waits for a commit that has a place for it: {why}")
            };
            return ended.iter().map(text).collect();
        }
        self.write_ends(ended.iter().map(|(name, _)| name));
        for (name, _) in &ended {
            former.names.extend(self.drop_made(name).map(|session| (session.teid, session.name)));
            former.meters.extend(self.meters.remove_entry(name));
        }
        let text = |(name, why): &(String, String)| format!("GTP-U session `{name}` has ended: {why}");
        ended.iter().map(text).collect()
    }

    fn write_ends<'a>(&mut self, names: impl Iterator<Item = &'a String>) {
        let lines: Vec<Line> = names.cloned().map(Line::End).collect();
        if !lines.is_empty()
            && let Err(error) = self.journal.write(&lines)
        {
            tracing::error!(%error, "sessions that have ended are still written down");
        }
    }

    /// Sessions that were put aside are there again, but for those whose TEID or address another one has by now.
    fn put_back(&mut self) -> Vec<String> {
        let aside = std::mem::take(&mut self.aside);
        if aside.is_empty() {
            return vec![];
        }
        let teids: HashSet<u32> = self.made.values().map(|session| session.teid).collect();
        let subscribers: HashSet<IpAddr> = self.made.values().flat_map(subscriber).collect();
        let (taken, free): (Vec<MobileSession>, Vec<MobileSession>) =
            aside.into_iter().partition(|session| {
                teids.contains(&session.teid) || subscriber(session).any(|own| subscribers.contains(&own))
            });
        free.into_iter().for_each(|session| self.put_made(session));
        self.write_ends(taken.iter().map(|session| &session.name));
        let text = |session: &MobileSession| {
            format!("GTP-U session `{}` has ended: another one has its TEID or address by now", session.name)
        };
        taken.iter().map(text).collect()
    }

    fn learn(&mut self, config: &Config, plan: &Plan) {
        (self.config, self.plan) = (config.gtp_u.clone(), plan.gtpu.clone());
        let own = config.gtp_u.sessions.iter();
        self.configured = own.clone().map(|session| session.name.clone()).zip(0..).collect();
        let made = self.made.values().map(|session| (session.teid, session.name.clone()));
        let configured = own.clone().map(|session| (session.teid, session.name.clone()));
        self.names = made.chain(configured).collect();
        self.ends.clear();
        for session in own.chain(self.made.values()) {
            *self.ends.entry(end_of(session)).or_default() += 1;
        }
    }

    fn put_made(&mut self, session: MobileSession) {
        *self.ends.entry(end_of(&session)).or_default() += 1;
        if let Some(before) = self.made.insert(session.name.clone(), session) {
            self.leave_end(end_of(&before));
        }
    }

    fn drop_made(&mut self, name: &str) -> Option<MobileSession> {
        let session = self.made.remove(name)?;
        self.leave_end(end_of(&session));
        Some(session)
    }

    fn leave_end(&mut self, end: End) {
        if let Entry::Occupied(mut sessions) = self.ends.entry(end) {
            *sessions.get_mut() -= 1;
            if *sessions.get() == 0 {
                sessions.remove();
            }
        }
    }

    /// Those that some session leads to are in use: their peer would discard what still comes (TS 29.281 7.3.2).
    fn tell_old_ends(&self, mut left: Vec<Tunnel>) {
        left.retain(|tunnel| !self.ends.contains_key(&(tunnel.peer.remote, tunnel.teid)));
        markers::send(&left);
    }

    fn wants(&self, plan: &Plan) -> Vec<SessionWant> {
        let now = now();
        let made = self.made.values().filter_map(|session| {
            let mut want = self.plan.session(&self.config, session)?;
            self.end_in_time(session, &mut want, now);
            Some(want)
        });
        let own = plan.gtpu_sessions.iter().map(|(name, want)| {
            let mut want = want.clone();
            self.session(name).iter().for_each(|session| self.end_in_time(session, &mut want, now));
            want
        });
        own.chain(made).collect()
    }

    /// A session by its name, wherever it stands.
    fn session(&self, name: &str) -> Option<&MobileSession> {
        let configured = self.configured.get(name).and_then(|index| self.config.sessions.get(*index));
        configured.or_else(|| self.made.get(name))
    }

    /// What is over has a quota of nothing.
    fn end_in_time(&self, session: &MobileSession, want: &mut SessionWant, now: Time) {
        if self.meters.get(&session.name).is_some_and(|meter| meter.is_over(session, now)) {
            want.quota = OVER;
        }
    }

    /// The time of a session counts from when it was made, or first had something that is told of, whatever it has since.
    fn new_meter(&self, gtpu: Option<&Gtpu>, session: &MobileSession, now: Time) -> Option<Meter> {
        if !is_metered(session) || self.meters.contains_key(&session.name) {
            return None;
        }
        let is_there = gtpu.is_some_and(|gtpu| gtpu.find_teid(session.teid).is_some());
        Some(if is_there { Meter::later(session, now) } else { Meter::new(session, now) })
    }

    /// Nobody asks any more what has passed of sessions that a commit has ended. Says which of them begin anew.
    fn note_ended(&mut self, ended: &[GtpuRecord], wanted: &Wanted, former: &Former) -> Vec<String> {
        let now = now();
        let mut anew = vec![];
        for record in ended {
            let teid = record.session.teid;
            let name = former.names.get(&teid).or_else(|| self.names.get(&teid));
            let name = name.cloned().unwrap_or_else(|| "-".to_owned());
            if wanted.contains_key(&teid) && self.names.get(&teid) == Some(&name) {
                anew.push(format!("GTP-U session `{name}` has another address: its usage begins anew"));
            }
            let meter = former.meters.get(&name).or_else(|| self.meters.get(&name));
            let (bytes, packets) = (record.usage.bytes, record.usage.packets);
            let told = Told { at: now, trigger: "session-ended".to_owned(), bytes, packets };
            let (number, since) =
                (1 + meter.map_or(0, |meter| meter.reports), meter.map(|meter| meter.since));
            self.ended.push(Report { name, teid, number, told, since });
        }
        anew
    }

    fn keep(&mut self, meters: Vec<Meter>) {
        self.meters.extend(meters.into_iter().map(|meter| (meter.name.clone(), meter)));
    }

    /// Meters of the configuration's sessions; those of sessions that are no more go.
    fn meter_configured(&mut self, gtpu: Option<&Gtpu>, now: Time, former: &mut Former) {
        let own = &self.config.sessions;
        let new: Vec<Meter> = own.iter().filter_map(|session| self.new_meter(gtpu, session, now)).collect();
        let aside: HashSet<&String> = self.aside.iter().map(|session| &session.name).collect();
        let is_gone = |name: &&String| self.session(name).is_none() && !aside.contains(name);
        let gone: Vec<String> = self.meters.keys().filter(is_gone).cloned().collect();
        let ends = gone.iter().cloned().map(Line::End);
        let lines: Vec<Line> = ends.chain(new.iter().cloned().map(Line::Meter)).collect();
        if !lines.is_empty()
            && let Err(error) = self.journal.write(&lines)
        {
            tracing::error!(%error, "since when sessions are there, and which have ended, cannot be written down");
        }
        former.meters.extend(gone.iter().filter_map(|name| self.meters.remove_entry(name)));
        self.keep(new);
    }

    /// What the configuration's rules ask of packets is the data plane's from here on, and whom their copies are for.
    fn number_shared(&mut self, gtpu: &Gtpu) -> Result<(), GtpuRefused> {
        let ends = |want: &CopyWant| Peer { local: want.local, remote: want.remote, ifindex: want.ifindex };
        let numbers = gtpu.keep_copies(self.plan.copies.values().map(ends))?;
        self.copies = self.plan.copies.keys().cloned().zip(numbers).collect();
        let sets: Vec<_> = self.plan.filters.values().map(|want| self.filters_of(want)).collect();
        let numbers = gtpu.keep_filters(sets.iter().map(|set| &**set))?;
        self.filters = self.plan.filters.keys().cloned().zip(numbers).collect();
        Ok(())
    }

    fn filters_of(&self, want: &FlowsWant) -> Box<GtpuFilters> {
        let mut filters = want.filters.clone();
        for (rules, names) in filters.rules.iter_mut().zip(&want.copies) {
            rules.copy_peer = self.copy_peers(names);
        }
        filters
    }

    /// 0 = there are no copies.
    fn copy_peers(&self, names: &Copies) -> [u16; 2] {
        names
            .each_ref()
            .map(|name| name.as_ref().and_then(|name| self.copies.get(name)).copied().unwrap_or(0))
    }

    fn asked(&self, want: &SessionWant) -> GtpuSession {
        let peer = Peer { local: want.local, remote: want.remote, ifindex: want.ifindex };
        let filters = want.filters.as_ref().and_then(|name| self.filters.get(name)).copied();
        let copy_peer = self.copy_peers(&want.copies);
        let session = GtpuSession {
            teid: want.teid,
            address: want.address,
            prefix: want.prefix,
            tunnel: Tunnel { peer, teid: want.remote_teid },
            rules: GtpuRules { filters: filters.unwrap_or(0), copy_peer, ..want.rules },
            quota: want.quota,
        };
        GtpuSession { quota: quotas(&session, session.quota), ..session }
    }

    fn known(&self, teid: u32) -> Known {
        let Some(name) = self.names.get(&teid) else {
            return Known { name: "-".to_owned(), ..Known::default() };
        };
        let session = self.session(name);
        let meter = self.meters.get(name);
        let rules = session.and_then(|session| session.rules.clone());
        let flows = rules.as_ref().and_then(|name| self.config.rules(name)).map(|rules| &rules.flows[..]);
        let flows = flows.unwrap_or_default().iter().map(|flow| flow.name.clone()).collect();
        Known {
            name: name.clone(),
            by_configuration: self.configured.contains_key(name),
            rules,
            interface: session.and_then(|session| self.config.mobile(session)).map(str::to_owned),
            flows,
            reports: meter.map_or(0, |meter| meter.reports),
            last: meter.and_then(|meter| meter.last.clone()),
        }
    }

    fn tidy(&mut self) {
        let Self { journal, made, aside, meters, .. } = self;
        let sessions = made.values().chain(&*aside).map(|session| Line::Put(request_of(session)));
        let meters = meters.values().cloned().map(Line::Meter);
        if let Err(error) = journal.tidy(made.len() + aside.len() + meters.len(), sessions.chain(meters)) {
            tracing::warn!(%error, "the list of GTP-U sessions could not be written anew");
        }
    }
}

fn subscriber(session: &MobileSession) -> impl Iterator<Item = IpAddr> + use<> {
    [session.address.map(IpAddr::V4), session.prefix.map(IpAddr::V6)].into_iter().flatten()
}

fn end_of(session: &MobileSession) -> End {
    (session.peer, session.peer_teid)
}

/// The tunnel that a session has left; one that begins elsewhere here is the same to its other end.
fn left(before: &GtpuSession, after: &GtpuSession) -> Option<Tunnel> {
    let end = |session: &GtpuSession| (session.tunnel.peer.remote, session.tunnel.teid);
    (end(before) != end(after)).then_some(before.tunnel)
}

/// By when every program sends to where sessions lead now.
fn await_last_packets(dataplane: &Dataplane) {
    if let Err(error) = dataplane.grace() {
        tracing::warn!(%error, "End Markers may overtake the last packets");
    }
}

/// Changes nothing of sessions that are as they should be.
fn bring_about(dataplane: &Dataplane, wanted: &Wanted, book: &mut Book, former: &Former) -> Vec<String> {
    let mut remains = vec![];
    let Ok(gtpu) = dataplane.gtpu() else { return remains };
    let is_same_subscriber =
        |a: &GtpuSession, b: &GtpuSession| a.address == b.address && a.prefix == b.prefix;
    let there = gtpu.list(0, usize::MAX);
    let stays = |record: &&GtpuRecord| {
        wanted.get(&record.session.teid).is_some_and(|want| is_same_subscriber(want, &record.session))
    };
    let gone: Vec<u32> = there.iter().filter(|record| !stays(record)).map(|record| record.number).collect();
    if !gone.is_empty() {
        match dataplane.remove_gtpu(&gone) {
            Ok(records) => remains.extend(book.note_ended(&records, wanted, former)),
            Err(error) => {
                remains.push(format!("GTP-U sessions that are no more could not be ended: {error}"))
            }
        }
    }
    let name = |teid: u32| book.names.get(&teid).cloned().unwrap_or_default();
    let (mut here, mut moved) = (HashMap::new(), vec![]);
    for record in there.iter().filter(stays) {
        here.insert(record.session.teid, ());
        let want = &wanted[&record.session.teid];
        if *want == record.session {
            continue;
        }
        match put(gtpu, record.number, want, &name(want.teid)) {
            Ok(()) => moved.extend(left(&record.session, want)),
            Err(error) => remains.push(error.to_string()),
        }
    }
    for want in wanted.values().filter(|want| !here.contains_key(&want.teid)) {
        if let Err(error) = gtpu.add(want) {
            remains.push(format!("GTP-U session `{}` is not there: {error}", name(want.teid)));
        }
    }
    if !moved.is_empty() {
        await_last_packets(dataplane);
        book.tell_old_ends(moved);
    }
    remains
}

fn put(gtpu: &Gtpu, number: u32, session: &GtpuSession, name: &str) -> Result<(), GtpuError> {
    let done = gtpu.change(number, &session.tunnel, &session.rules, session.quota);
    done.map_err(|source| GtpuError::Refused { name: name.to_owned(), source })
}

/// A TEID that nobody has. Others cannot foresee it.
fn vacant(gtpu: &Gtpu, is_taken: impl Fn(u32) -> bool) -> u32 {
    let random = RandomState::new();
    let teids = (0u64..).map(|number| random.hash_one(number) as u32);
    let mut free = teids.filter(|teid| *teid != 0 && gtpu.find_teid(*teid).is_none() && !is_taken(*teid));
    free.next().unwrap_or(0)
}

/// A session as it was asked for.
fn request_of(session: &MobileSession) -> GtpuSessionRequest {
    let Thresholds { uplink, downlink, total, time_s } = session.thresholds;
    GtpuSessionRequest {
        name: session.name.clone(),
        teid: Some(session.teid),
        address: session.address.map(|address| address.to_string()),
        prefix: session.prefix.map(|prefix| format!("{prefix}/64")),
        relay: session.relay,
        peer: session.peer.to_string(),
        peer_teid: session.peer_teid,
        local_address: session.local.map(|local| local.to_string()),
        rules: session.rules.clone(),
        uplink_quota: session.uplink_quota,
        downlink_quota: session.downlink_quota,
        time_quota_s: session.time_quota_s,
        uplink_threshold: uplink,
        downlink_threshold: downlink,
        total_threshold: total,
        time_threshold_s: time_s,
    }
}

fn changed(before: GtpuSessionRequest, change: GtpuChangeRequest) -> GtpuSessionRequest {
    let quota = |new: Option<u64>, old: Option<u64>| match new {
        None => old,
        Some(0) => None,
        Some(bytes) => Some(bytes),
    };
    // a tunnel to a peer of the other family has another end here
    let moves = change.peer.as_ref().is_some_and(|peer| peer.contains(':') != before.peer.contains(':'));
    GtpuSessionRequest {
        peer: change.peer.unwrap_or(before.peer),
        peer_teid: change.peer_teid.unwrap_or(before.peer_teid),
        local_address: change.local_address.or(before.local_address.filter(|_| !moves)),
        rules: match change.rules {
            None => before.rules,
            Some(name) => Some(name).filter(|name| !name.is_empty()),
        },
        uplink_quota: quota(change.uplink_quota, before.uplink_quota),
        downlink_quota: quota(change.downlink_quota, before.downlink_quota),
        time_quota_s: quota(change.time_quota_s, before.time_quota_s),
        uplink_threshold: quota(change.uplink_threshold, before.uplink_threshold),
        downlink_threshold: quota(change.downlink_threshold, before.downlink_threshold),
        total_threshold: quota(change.total_threshold, before.total_threshold),
        time_threshold_s: quota(change.time_threshold_s, before.time_threshold_s),
        ..before
    }
}

fn address(text: &str, what: &str) -> Result<IpAddr, String> {
    text.parse().map_err(|_| format!("{what} `{text}` is no address; write it as 192.0.2.1 or 2001:db8::1"))
}

/// A request in the language's types.
fn read(request: &GtpuSessionRequest) -> Result<MobileSession, String> {
    let valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | '/');
    let name = &request.name;
    if name.is_empty() || name.len() > 63 || name.starts_with('-') || !name.chars().all(valid) {
        return Err(format!("name `{name}`: up to 63 letters, digits, `-`, `_`, `.`, `:` and `/`"));
    }
    let teid = request.teid.filter(|teid| *teid != 0);
    let teid = teid.ok_or("teid: a number from 1 to 4294967295; or leave it out, and one is chosen")?;
    if request.peer_teid == 0 {
        return Err("peer_teid: a number from 1 to 4294967295".to_owned());
    }
    let own4 = request.address.as_deref().map(|text| match address(text, "address")? {
        IpAddr::V4(address) => Ok(address),
        IpAddr::V6(_) => Err(format!("address `{text}`: of IPv6 a subscriber has a prefix")),
    });
    for (what, limit, unit) in [
        ("uplink_quota", request.uplink_quota, "bytes"),
        ("downlink_quota", request.downlink_quota, "bytes"),
        ("time_quota_s", request.time_quota_s, "seconds"),
        ("uplink_threshold", request.uplink_threshold, "bytes"),
        ("downlink_threshold", request.downlink_threshold, "bytes"),
        ("total_threshold", request.total_threshold, "bytes"),
        ("time_threshold_s", request.time_threshold_s, "seconds"),
    ] {
        if limit == Some(0) {
            return Err(format!("{what}: a number of {unit}; leave it out where there is no limit"));
        }
    }
    Ok(MobileSession {
        name: name.clone(),
        teid,
        address: own4.transpose()?,
        prefix: request.prefix.as_deref().map(own6).transpose()?,
        relay: request.relay,
        peer: address(&request.peer, "peer")?,
        peer_teid: request.peer_teid,
        local: request.local_address.as_deref().map(|text| address(text, "local_address")).transpose()?,
        rules: request.rules.clone(),
        uplink_quota: request.uplink_quota,
        downlink_quota: request.downlink_quota,
        time_quota_s: request.time_quota_s,
        thresholds: Thresholds {
            uplink: request.uplink_threshold,
            downlink: request.downlink_threshold,
            total: request.total_threshold,
            time_s: request.time_threshold_s,
        },
    })
}

fn own6(text: &str) -> Result<Ipv6Addr, String> {
    match prefix::parse(text).map(|prefix| (prefix.addr, prefix.len)) {
        Some((IpAddr::V6(addr), 64)) if addr.to_bits() as u64 == 0 => Ok(addr),
        _ => Err(format!("prefix `{text}` is no IPv6 prefix of 64 bits; write it as 2001:db8:45:1::/64")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is asked of a relay is what the data plane says of it then: nothing is done twice.
    #[test]
    fn a_relay_has_no_quota_downlink() {
        let peer = Peer { local: [192, 0, 2, 1].into(), remote: [192, 0, 2, 2].into(), ifindex: 1 };
        let relay = GtpuSession {
            teid: 1,
            address: None,
            prefix: None,
            tunnel: Tunnel { peer, teid: 2 },
            rules: GtpuRules::default(),
            quota: [None; 2],
        };
        assert_eq!(quotas(&relay, OVER), [Some(0), None]);
        let subscriber = GtpuSession { address: Some([10, 45, 0, 2].into()), ..relay };
        assert_eq!(quotas(&subscriber, [None, Some(7)]), [None, Some(7)]);
    }
}
