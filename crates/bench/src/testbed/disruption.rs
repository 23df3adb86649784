//! A running gateway under a numbered stream of packets, and what may happen to it meanwhile.

use std::fs;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use sluice_lab::branch::{Branch, HOST_DEVICE, Hook, Site};
use sluice_lab::demo::configuration_text;
use sluice_lab::gateway::Gateway;
use sluice_lab::state::StateDirectory;
use sluice_lab::stream::{Account, Arrivals, Shape, Stream};

const FLOWS: u32 = 1000;
/// Every so many packets one goes where the policies allow nobody.
const DENIED_EVERY: u32 = 16;
const GENERATOR_CPU: usize = 0;
/// The stream runs undisturbed before and after.
const CALM: Duration = Duration::from_millis(60);

/// What happens to the gateway while packets flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Nothing: what the machine does by itself in the same time.
    Nothing,
    Restart,
    /// SIGKILL, then a start.
    Kill,
    /// A commit that moves every rule.
    Reload,
    /// Another binary takes over.
    Upgrade,
    /// Every program leaves its device for a moment: what the others must not look like.
    Outage,
}

impl Event {
    pub fn name(self) -> &'static str {
        match self {
            Event::Nothing => "control",
            Event::Restart => "restart",
            Event::Kill => "kill",
            Event::Reload => "reload",
            Event::Upgrade => "upgrade",
            Event::Outage => "outage",
        }
    }
}

/// One stream through the gateway, from its first packet to its last.
#[derive(Debug, Clone)]
pub struct Passage {
    pub event: Event,
    pub account: Account,
    pub arrivals: Arrivals,
    /// When the event began and ended, seen from the start of the stream.
    pub began: Duration,
    pub ended: Duration,
}

/// The branch with its daemon on one hook.
pub struct Field {
    state: StateDirectory,
    branch: Branch,
    hook: Hook,
    configurations: [PathBuf; 2],
    programs: [PathBuf; 2],
}

impl Field {
    /// `program` is the sluice binary.
    pub fn new(hook: Hook, program: &Path) -> Result<Field> {
        let state = StateDirectory::new(&format!("bench-{}", hook.name()))?;
        let branch = Branch::create(Some(hook))?;
        let configurations = write_configurations(state.path(), hook)?;
        let programs = [program.to_owned(), rebuilt(program, state.path())?];
        Ok(Field { state, branch, hook, configurations, programs })
    }

    /// Runs `work` with the daemon up.
    pub fn with_gateway<T>(&self, work: impl FnOnce(&mut Station<'_>) -> Result<T>) -> Result<T> {
        let directory = self.state.of_gateway(self.hook.name());
        let mut gateway =
            Gateway::new(&self.programs[0], &self.branch.gateway, &self.configurations[0], &directory)?;
        gateway.start()?;
        let trust = self.branch.host(Site::Trust);
        // Neighbours are resolved before anything is counted.
        trust.run("ping", ["-c1", "-W2", &Site::Dmz.host4().to_string()])?;
        // Frames made in the kernel reach a veth without an XDP program only when it polls.
        self.branch.gateway.run("ethtool", ["-K", &Site::Trust.device(), "gro", "on"])?;
        let mut station = Station { field: self, gateway, changes: 0 };
        let result = work(&mut station)?;
        station.gateway.finish()?;
        Ok(result)
    }

    fn shape(&self) -> Result<Shape> {
        Ok(Shape {
            flows: FLOWS,
            denied_every: DENIED_EVERY,
            ifindex: self.branch.host(Site::Trust).ifindex(HOST_DEVICE)?,
            source_mac: Site::Trust.host_mac(),
            destination_mac: Site::Trust.gateway_mac(),
            source: Site::Trust.host4(),
            destination: Site::Dmz.host4(),
        })
    }
}

/// A field whose daemon runs.
pub struct Station<'a> {
    field: &'a Field,
    pub gateway: Gateway<'a>,
    changes: usize,
}

impl Station<'_> {
    /// A stream with an event in its middle; `pause` is how long nothing lasts.
    pub fn pass(&mut self, event: Event, pause: Duration) -> Result<Passage> {
        let Field { branch, .. } = self.field;
        let mut storage = MaybeUninit::uninit();
        let mut stream = Stream::load(&mut storage, self.field.shape()?)?;
        let _sink = stream.sink(branch.host(Site::Dmz), HOST_DEVICE)?;
        let running = stream.start(branch.host(Site::Trust), GENERATOR_CPU, None)?;
        let start = Instant::now();
        thread::sleep(CALM);
        let before = stream.sent_total();
        let began = start.elapsed();
        let done = self.disrupt(event, pause);
        let ended = start.elapsed();
        let during = stream.sent_total() - before;
        thread::sleep(CALM);
        let account = stream.finish(running)?;
        done.with_context(|| {
            format!("{}; the daemon's last words:\n{}", event.name(), self.gateway.last_words())
        })?;
        let least = 1000 * u64::from(event != Event::Outage);
        ensure!(
            account.sent_denied > 0 && during >= least,
            "only {during} packets were sent during the {}, too few to see anything",
            event.name()
        );
        Ok(Passage { event, account, arrivals: stream.arrivals()?, began, ended })
    }

    fn disrupt(&mut self, event: Event, pause: Duration) -> Result<()> {
        self.changes += 1;
        match event {
            Event::Nothing => {
                thread::sleep(pause);
                Ok(())
            }
            Event::Restart => self.restart(),
            Event::Kill => {
                self.gateway.kill()?;
                self.gateway.start()
            }
            Event::Reload => self.gateway.commit(&self.field.configurations[self.changes % 2]),
            Event::Upgrade => {
                self.gateway.set_program(&self.field.programs[self.changes % 2]);
                self.restart()
            }
            Event::Outage => {
                self.gateway.kill()?;
                for link in fs::read_dir(self.gateway.pins().join("links"))? {
                    fs::remove_file(link?.path())?;
                }
                thread::sleep(Duration::from_millis(100));
                self.gateway.start()
            }
        }
    }

    fn restart(&mut self) -> Result<()> {
        let status = self.gateway.stop()?;
        ensure!(status.success(), "the daemon ended with {status}");
        self.gateway.start()
    }
}

/// The same program in another file: what an upgrade installs.
fn rebuilt(program: &Path, directory: &Path) -> Result<PathBuf> {
    let copy = directory.join("sluice-rebuilt");
    fs::copy(program, &copy).with_context(|| format!("cannot copy {}", program.display()))?;
    // Bytes behind the end of an ELF file change nothing but what the file is.
    let mut bytes = fs::OpenOptions::new().append(true).open(&copy)?;
    std::io::Write::write_all(&mut bytes, b"rebuilt")?;
    Ok(copy)
}

/// The branch with a policy that denies the stream's marked packets; the second one has another policy before it, so
/// that every rule moves.
fn write_configurations(directory: &Path, hook: Hook) -> Result<[PathBuf; 2]> {
    let branch = configuration_text(hook, None)?;
    let anchor = "policy office-to-servers {";
    ensure!(branch.contains(anchor), "the branch has no `{anchor}` any more: adapt the bench");
    let deny = policy("no-discard", "any", "discard", "deny");
    let moved = policy("unrelated", "web-host-v6", "junos-ftp", "reject");
    let applications = "applications { application discard { protocol udp; destination-port 9; } }\n";
    let write = |name: &str, policies: String| {
        let file = directory.join(name);
        fs::write(&file, branch.replace(anchor, &format!("{policies}{anchor}")) + applications)?;
        anyhow::Ok(file)
    };
    Ok([write("a.conf", deny.clone())?, write("b.conf", moved + &deny)?])
}

fn policy(name: &str, source: &str, application: &str, action: &str) -> String {
    format!(
        "policy {name} {{ match {{ source-address {source}; destination-address any; application {application}; }} \
         then {{ {action}; }} }}\n"
    )
}
