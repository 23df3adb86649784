//! The thread that sees to the DHCP server: Kea runs while the configuration has something to serve, is told what has changed,
//! and is started again when it ends.

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::commit::Shared;
use crate::functions::dhcp_server::kea;
use crate::functions::dhcp_server::process::{self, Place};
use crate::state::dhcp_server::ServerState;

const PERIOD: Duration = Duration::from_millis(500);

/// Between two starts: the first, twice as much each time, the longest. Who ran as long as that begins anew.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

pub fn start(shared: Arc<Shared>, state_dir: &Path) -> std::io::Result<()> {
    let mut supervisor = Supervisor {
        place: Place::of(state_dir),
        running: None,
        devices: None,
        pause: FIRST_PAUSE,
        not_before: None,
        error: None,
        idle: false,
    };
    thread::Builder::new()
        .name("dhcp-server".to_owned())
        .spawn(move || {
            loop {
                supervisor.look(&shared);
                thread::sleep(PERIOD);
            }
        })
        .map(drop)
}

struct Running {
    pid: u32,
    since: Instant,
    text: String,
}

struct Supervisor {
    place: Place,
    running: Option<Running>,
    /// Devices and addresses that Kea has its sockets for.
    devices: Option<Vec<(u32, String)>>,
    pause: Duration,
    not_before: Option<Instant>,
    error: Option<String>,
    /// Nothing is to be served, and nothing remains.
    idle: bool,
}

impl Supervisor {
    fn look(&mut self, shared: &Shared) {
        let text = kea::text(&shared.active().config, self.place.dir());
        match text {
            Some(text) => {
                self.idle = false;
                self.serve(shared, text);
            }
            None if !self.idle => self.end(),
            None => {}
        }
        let pid = self.running.as_ref().map(|running| running.pid);
        let dir = Some(self.place.dir().to_owned());
        shared.dhcp_server.set(ServerState { dir, pid, error: self.error.clone() });
    }

    fn serve(&mut self, shared: &Shared, text: String) {
        self.notice_end();
        if self.running.is_none() {
            self.adopt();
        }
        let devices = devices(shared, &text);
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
        tracing::error!(pid = running.pid, "the DHCP server has ended: {words}");
        self.error = Some(format!("Kea has ended: {words}"));
        self.not_before = Some(Instant::now() + self.pause);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }

    /// One that an earlier daemon has started goes on.
    fn adopt(&mut self) {
        let Some(pid) = self.place.running() else { return };
        tracing::info!(pid, "the DHCP server goes on");
        let text = self.place.configuration().unwrap_or_default();
        self.running = Some(Running { pid, since: Instant::now(), text });
        self.error = None;
    }

    fn begin(&mut self, text: String) {
        if self.not_before.is_some_and(|at| at > Instant::now()) {
            return;
        }
        let Some(program) = process::program() else {
            return self
                .fail("Kea is not installed; `apt install kea-dhcp4-server`, and it starts".to_owned());
        };
        match self.place.write(&text).and_then(|()| self.place.start(&program)) {
            Ok(pid) => {
                tracing::info!(pid, "the DHCP server has started");
                self.running = Some(Running { pid, since: Instant::now(), text });
                self.error = None;
            }
            Err(error) => self.fail(format!("Kea cannot be started: {error}")),
        }
    }

    fn fail(&mut self, why: String) {
        if self.error.as_ref() != Some(&why) {
            tracing::error!("the DHCP server does not run: {why}");
        }
        self.error = Some(why);
        self.not_before = Some(Instant::now() + FIRST_PAUSE);
    }

    /// Without an interruption, where Kea can be told; else it begins anew.
    fn reload(&mut self, text: String, why: &str) {
        let Some(running) = &mut self.running else { return };
        let told =
            self.place.write(&text).map_err(|error| error.to_string()).and_then(|()| self.place.reload());
        match told {
            Ok(()) => {
                tracing::info!(pid = running.pid, "the DHCP server has read its configuration again: {why}");
                running.text = text;
                self.error = None;
            }
            // it may be that it has just begun, and does not listen yet
            Err(error) if running.since.elapsed() < Duration::from_secs(5) => {
                tracing::debug!(%error, "the DHCP server is told again");
                running.text.clear();
            }
            Err(error) => {
                tracing::warn!("the DHCP server begins anew, as it could not be told: {error}");
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
            tracing::info!(pid, "the DHCP server has ended: nothing is to be served");
        }
        if let Err(error) = self.place.tidy() {
            tracing::warn!(%error, "files of the DHCP server remain");
        }
        (self.error, self.devices, self.not_before, self.pause) = (None, None, None, FIRST_PAUSE);
        self.idle = true;
    }
}

/// Indices and addresses of the devices that are served; None = they cannot be read now.
fn devices(shared: &Shared, text: &str) -> Option<Vec<(u32, String)>> {
    let links = shared.kernel.links().ok()?;
    let served = links.iter().filter(|link| link.up && text.contains(&format!("\"{}\"", link.name)));
    let indices: Vec<u32> = served.map(|link| link.index).collect();
    let addresses = shared.kernel.addresses().ok()?;
    let own = addresses.iter().filter(|own| own.prefix.addr.is_ipv4() && indices.contains(&own.ifindex));
    let mut found: Vec<(u32, String)> = own.map(|own| (own.ifindex, own.prefix.addr.to_string())).collect();
    found.sort();
    Some(found)
}
