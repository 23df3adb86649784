//! The threads that see to the DHCP servers, one for each family: Kea runs while the configuration has something to serve, is told what has changed,
//! and is started again when it ends.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use sluice_language::dhcp_server::Family;

use super::delegated::DelegatedRoutes;
use crate::commit::Shared;
use crate::functions::dhcp_server::kea;
use crate::functions::dhcp_server::process::{self, Place};
use crate::kernel::{Address, Link};
use crate::state::dhcp_server::ServerState;

const PERIOD: Duration = Duration::from_millis(500);

/// Between two starts: the first, twice as much each time, the longest. Who ran as long as that begins anew.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

pub fn start(shared: &Arc<Shared>, state_dir: &Path) -> std::io::Result<()> {
    Family::ALL.into_iter().try_for_each(|family| {
        let mut supervisor = Supervisor::new(state_dir, family);
        let shared = shared.clone();
        thread::Builder::new()
            .name(supervisor.place.names().directory.to_owned())
            .spawn(move || {
                loop {
                    supervisor.look(&shared);
                    thread::sleep(PERIOD);
                }
            })
            .map(drop)
    })
}

struct Running {
    pid: u32,
    since: Instant,
    text: String,
}

struct Supervisor {
    place: Place,
    state_dir: PathBuf,
    /// In the log.
    title: &'static str,
    running: Option<Running>,
    /// Devices and addresses that Kea has its sockets for.
    devices: Option<Vec<(u32, String)>>,
    pause: Duration,
    not_before: Option<Instant>,
    error: Option<String>,
    /// Nothing is to be served, and nothing remains.
    idle: bool,
    /// To what clients of DHCPv6 have got; the other server delegates nothing.
    routes: Option<DelegatedRoutes>,
}

impl Supervisor {
    fn new(state_dir: &Path, family: Family) -> Self {
        let place = Place::of(state_dir, family);
        Self {
            title: place.names().title,
            place,
            state_dir: state_dir.to_owned(),
            running: None,
            devices: None,
            pause: FIRST_PAUSE,
            not_before: None,
            error: None,
            idle: false,
            routes: (family == Family::Inet6).then(DelegatedRoutes::default),
        }
    }

    fn look(&mut self, shared: &Shared) {
        let active = shared.active();
        let config = &active.config;
        let links = shared.kernel.links().unwrap_or_default();
        let is_here = |device: &str| {
            !active.plan.environment.is_absent(device) && links.iter().any(|link| link.name == device)
        };
        match kea::text(config, is_here, &self.place) {
            // what cannot be read now is read at the next look
            _ if links.is_empty() => {}
            Ok(Some(text)) => {
                self.idle = false;
                self.serve(shared, &links, text);
            }
            Ok(None) if !self.idle => self.end(),
            Ok(None) => {}
            Err(error) => self.fail(format!("its files cannot be written: {error}")),
        }
        let routes = self.routes.as_mut().map(|routes| routes.look(shared, config, &self.place));
        shared.dhcp_server.set(
            self.place.family(),
            ServerState {
                state_dir: Some(self.state_dir.clone()),
                pid: self.running.as_ref().map(|running| running.pid),
                error: self.error.clone(),
                routes: routes.unwrap_or_default(),
            },
        );
    }

    fn serve(&mut self, shared: &Shared, links: &[Link], text: String) {
        self.notice_end();
        if self.running.is_none() {
            self.adopt();
        }
        let devices = devices(shared, links, &text, self.place.family());
        match &self.running {
            Some(running) if running.text != text => self.reload(text, "the configuration has changed"),
            Some(_) if self.devices != devices && self.devices.is_some() => {
                self.reload(text, "devices or their addresses have changed");
            }
            Some(_) => {}
            None => self.begin(text),
        }
        self.devices = devices;
    }

    /// It has ended, or somebody has ended it.
    fn notice_end(&mut self) {
        let Some(running) = self.running.take_if(|running| !self.place.is_ours(running.pid)) else { return };
        if running.since.elapsed() > LONGEST_PAUSE {
            self.pause = FIRST_PAUSE;
        }
        let words = self.place.last_words();
        tracing::error!(pid = running.pid, "{} has ended: {words}", self.title);
        self.error = Some(format!("Kea has ended: {words}"));
        self.not_before = Some(Instant::now() + self.pause);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }

    /// One that an earlier daemon has started goes on.
    fn adopt(&mut self) {
        let Some(pid) = self.place.running() else { return };
        tracing::info!(pid, "{} goes on", self.title);
        let text = self.place.configuration().unwrap_or_default();
        self.running = Some(Running { pid, since: Instant::now(), text });
        self.error = None;
    }

    fn begin(&mut self, text: String) {
        if self.not_before.is_some_and(|at| at > Instant::now()) {
            return;
        }
        let Some(program) = process::program(self.place.family()) else {
            let package = self.place.names().package;
            return self.fail(format!("Kea is not installed; `apt install {package}`, and it starts"));
        };
        match self.place.write(&text).and_then(|()| self.place.start(&program)) {
            Ok(pid) => {
                tracing::info!(pid, "{} has started", self.title);
                self.running = Some(Running { pid, since: Instant::now(), text });
                self.error = None;
            }
            Err(error) => self.fail(format!("Kea cannot be started: {error}")),
        }
    }

    fn fail(&mut self, why: String) {
        if self.error.as_ref() != Some(&why) {
            tracing::error!("{} does not run: {why}", self.title);
        }
        self.error = Some(why);
        self.not_before = Some(Instant::now() + FIRST_PAUSE);
    }

    /// Without an interruption, where Kea can be told; else it begins anew.
    fn reload(&mut self, text: String, why: &str) {
        let Some(running) = &mut self.running else { return };
        if running.text != text
            && let Err(error) = self.place.write(&text)
        {
            // it serves on with what it has
            let why = format!("its configuration cannot be written: {error}");
            if self.error.as_ref() != Some(&why) {
                tracing::error!("{} is not told: {why}", self.title);
            }
            self.error = Some(why);
            return;
        }
        match self.place.reload() {
            Ok(()) => {
                tracing::info!(pid = running.pid, "{} has read its configuration again: {why}", self.title);
                running.text = text;
                self.error = None;
            }
            // it may be that it has just begun, and does not listen yet
            Err(error) if running.since.elapsed() < Duration::from_secs(5) => {
                tracing::debug!(%error, "{} is told again", self.title);
                running.text.clear();
            }
            Err(error) => {
                tracing::warn!("{} begins anew, as it could not be told: {error}", self.title);
                let pid = running.pid;
                self.place.stop(pid);
                self.running = None;
                self.begin(text);
            }
        }
    }

    fn end(&mut self) {
        let running = self.running.take().map(|running| running.pid).or_else(|| self.place.running());
        if let Some(pid) = running {
            self.place.stop(pid);
            tracing::info!(pid, "{} has ended: nothing is to be served", self.title);
        }
        if let Err(error) = self.place.tidy() {
            tracing::warn!(%error, "files of {} remain", self.title);
        }
        (self.error, self.devices, self.not_before, self.pause) = (None, None, None, FIRST_PAUSE);
        self.idle = true;
    }
}

/// Indices and addresses of the devices that are served; None = they cannot be read now.
fn devices(shared: &Shared, links: &[Link], text: &str, family: Family) -> Option<Vec<(u32, String)>> {
    let served = links.iter().filter(|link| link.up && text.contains(&format!("\"{}\"", link.name)));
    let indices: Vec<u32> = served.map(|link| link.index).collect();
    let addresses = shared.kernel.addresses().ok()?;
    let is_served = |own: &&Address| Family::of(own.prefix.addr) == family && indices.contains(&own.ifindex);
    let own = addresses.iter().filter(is_served);
    let mut found: Vec<(u32, String)> = own.map(|own| (own.ifindex, own.prefix.addr.to_string())).collect();
    found.sort();
    Some(found)
}
