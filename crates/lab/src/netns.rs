//! Namespaces, veth pairs and commands inside them.
//!
//! A [`Netns`] is removed when it is dropped, together with the processes that run in it. Its name carries the pid
//! of its maker, so [`remove_leftovers`] can tell what a killed run left behind from what a live one still uses.
//!
//! Commands run through `nsenter --net`, not `ip netns exec`: the latter mounts a fresh /sys, in which pinned BPF
//! objects are invisible.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Where named namespaces are bound, by the convention of iproute2.
pub const DIRECTORY: &str = "/run/netns";

/// First part of every name made here.
const PREFIX: &str = "slu";

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "cannot {action} network namespace {name}: {source}; run as root with CAP_SYS_ADMIN and CAP_NET_ADMIN"
    )]
    Namespace { action: &'static str, name: String, source: io::Error },
    #[error("cannot start `{command}`: {source}; `scripts/setup.sh` installs what the lab needs")]
    Start { command: String, source: io::Error },
    #[error("`{command}` failed in {place} ({status}): {stderr}")]
    Command { command: String, place: String, status: ExitStatus, stderr: String },
    #[error("cannot set {key}={value} in {name}: {source}")]
    Sysctl { key: String, value: String, name: String, source: io::Error },
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A named network namespace. Dropping an owned one ends the processes in it and removes it.
#[derive(Debug)]
pub struct Netns {
    name: String,
    owned: bool,
}

/// One end of a veth pair.
#[derive(Debug, Clone, Copy)]
pub struct VethEnd<'a> {
    pub netns: &'a Netns,
    pub name: &'a str,
    /// `02:00:00:00:00:01`; None lets the kernel choose.
    pub mac: Option<&'a str>,
    /// `10.0.1.100/24`, `fd00:1::100/64`
    pub addresses: &'a [&'a str],
}

impl Netns {
    /// Makes `slu-<pid>-<n>-<label>` with loopback up and without duplicate address detection or router discovery,
    /// so that IPv6 addresses work at once and nothing but the test sends packets.
    pub fn create(label: &str) -> Result<Netns> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        Netns::create_named(&format!("{PREFIX}-{}-{n}-{label}", std::process::id()))
    }

    /// Makes a namespace with exactly this name; fails when it exists.
    pub fn create_named(name: &str) -> Result<Netns> {
        if !nix::unistd::geteuid().is_root() {
            let source = io::Error::from(io::ErrorKind::PermissionDenied);
            return Err(Error::Namespace { action: "make", name: name.to_owned(), source });
        }
        run(Command::new("ip").args(["netns", "add", name]), "the root namespace")?;
        let netns = Netns { name: name.to_owned(), owned: true };
        for scope in ["default", "all"] {
            netns.sysctl(&format!("net.ipv6.conf.{scope}.accept_dad"), "0")?;
            netns.sysctl(&format!("net.ipv6.conf.{scope}.accept_ra"), "0")?;
            netns.sysctl(&format!("net.ipv6.conf.{scope}.router_solicitations"), "0")?;
        }
        netns.ip("link set lo up")?;
        Ok(netns)
    }

    /// Refers to an existing namespace; dropping it removes nothing.
    pub fn open(name: &str) -> Result<Netns> {
        let netns = Netns { name: name.to_owned(), owned: false };
        match fs::metadata(netns.path()) {
            Ok(_) => Ok(netns),
            Err(source) => Err(Error::Namespace { action: "find", name: name.to_owned(), source }),
        }
    }

    /// Keeps the namespace when this value is dropped (`sluice lab up`).
    pub fn keep(mut self) {
        self.owned = false;
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn path(&self) -> PathBuf {
        Path::new(DIRECTORY).join(&self.name)
    }

    /// A command that will run in this namespace, with nothing on its standard input.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.path().display())).arg(program).stdin(Stdio::null());
        command
    }

    /// Runs a program to its end and returns its standard output; an exit code other than 0 is an error.
    pub fn run<I, S>(&self, program: &str, args: I) -> Result<String>
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        run(self.command(program).args(args), &self.name)
    }

    /// `ip` with arguments separated by blanks: `netns.ip("link set trust0 up")`.
    pub fn ip(&self, arguments: &str) -> Result<String> {
        self.run("ip", arguments.split_whitespace())
    }

    /// Every device that carries also counts as up, so that IPv6 has its routes. The kernel hands on news of
    /// carriers once a second for all its namespaces together (net/core/link_watch.c): until then IPv4 works and
    /// IPv6 does not know its own addresses.
    pub fn is_settled(&self) -> Result<bool> {
        let links = self.ip("-oneline link show up")?;
        // of a veth whose other end has another number the kernel says LOWERLAYERDOWN
        let waits = |line: &str| line.contains("LOWER_UP") && line.contains("DOWN mode ");
        Ok(!links.lines().any(waits))
    }

    /// Many `ip` commands, one a line, in one process.
    pub fn ip_batch(&self, lines: &str) -> Result<()> {
        let mut child = spawn(
            self.command("ip")
                .args(["-batch", "-"])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped()),
        )?;
        if let Some(mut stdin) = child.stdin.take() {
            // A child that died early shows in its exit status.
            let _ = stdin.write_all(lines.as_bytes());
        }
        let output = child
            .wait_with_output()
            .map_err(|source| Error::Start { command: "ip -batch".to_owned(), source })?;
        checked(output, || format!("ip -batch: {}", lines.trim().replace('\n', "; ")), &self.name).map(drop)
    }

    /// Sets `net.ipv4.ip_forward` and the like, as this namespace sees it. Interface names must not contain dots
    /// here; use slashes throughout for those (`net/ipv4/conf/wan0.100/forwarding`).
    pub fn sysctl(&self, key: &str, value: &str) -> Result<()> {
        let file = sysctl_path(key);
        self.enter(|| fs::write(file, value))?.map_err(|source| Error::Sysctl {
            key: key.to_owned(),
            value: value.to_owned(),
            name: self.name.clone(),
            source,
        })
    }

    /// Turns on forwarding of both families, also for devices that exist already.
    pub fn enable_forwarding(&self) -> Result<()> {
        self.sysctl("net.ipv4.ip_forward", "1")?;
        self.sysctl("net.ipv6.conf.all.forwarding", "1")
    }

    /// Runs a closure on a thread of its own inside this namespace. Sockets it opens stay in the namespace.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        let fail = |source| Error::Namespace { action: "enter", name: self.name.clone(), source };
        let file = File::open(self.path()).map_err(fail)?;
        thread::scope(|scope| {
            let worker = scope.spawn(move || {
                setns(&file, CloneFlags::CLONE_NEWNET).map_err(io::Error::from)?;
                Ok(work())
            });
            match worker.join() {
                Ok(result) => result.map_err(fail),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }

    /// Index of a device.
    pub fn ifindex(&self, device: &str) -> Result<u32> {
        let found = self.enter(|| nix::net::if_::if_nametoindex(device))?;
        found.map_err(|errno| Error::Namespace {
            action: "find a device in",
            name: format!("{} ({device})", self.name),
            source: errno.into(),
        })
    }

    /// Pids of the processes whose main thread is in this namespace, without our own.
    pub fn pids(&self) -> Vec<i32> {
        let Ok(output) = Command::new("ip").args(["netns", "pids", &self.name]).output() else {
            return vec![];
        };
        let own = std::process::id() as i32;
        String::from_utf8_lossy(&output.stdout)
            .lines()
            .filter_map(|line| line.trim().parse().ok())
            .filter(|pid| *pid != own)
            .collect()
    }

    /// Ends the processes in the namespace and removes it; what cannot be removed is reported, not fatal.
    pub fn remove(&self) {
        end_processes(&self.pids());
        if let Err(error) = run(Command::new("ip").args(["netns", "del", &self.name]), "the root namespace") {
            eprintln!("sluice lab: {error}");
        }
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        if self.owned && self.path().exists() {
            self.remove();
        }
    }
}

/// Makes a veth pair with one end in each namespace, sets addresses and brings both ends up.
pub fn veth(left: VethEnd, right: VethEnd) -> Result<()> {
    veth_of_queues(left, right, None)
}

/// The same with so many queues a direction at both ends; None: as many as the kernel opens by itself.
pub fn veth_of_queues(left: VethEnd, right: VethEnd, queues: Option<u32>) -> Result<()> {
    let places = queues.map(|n| format!("numrxqueues {n} numtxqueues {n}")).unwrap_or_default();
    let words = |end: &VethEnd| format!("name {} {} {places}", end.name, mac_words(end.mac));
    let (own, peer) = (words(&left), words(&right));
    left.netns.ip(&format!("link add {own} type veth peer {peer} netns {}", right.netns.name))?;
    for end in [&left, &right] {
        if let Some(n) = queues.map(|n| n.to_string()) {
            end.netns.run("ethtool", ["-L", end.name, "rx", &n, "tx", &n])?;
        }
    }
    for end in [left, right] {
        let mut lines = String::new();
        for address in end.addresses {
            let nodad = if address.contains(':') { "nodad" } else { "" };
            lines += &format!("address add {address} dev {} {nodad}\n", end.name);
        }
        lines += &format!("link set {} up\n", end.name);
        end.netns.ip_batch(&lines)?;
    }
    Ok(())
}

/// Removes the namespaces of runs that were killed before they could clean up: those whose maker does not live.
/// Returns their names.
pub fn remove_leftovers() -> Vec<String> {
    let mut removed = vec![];
    for name in names() {
        if maker(&name).is_some_and(|pid| !is_alive(pid)) {
            Netns { name: name.clone(), owned: false }.remove();
            removed.push(name);
        }
    }
    removed
}

/// Removes every namespace whose name begins with `prefix`, whoever made it. Returns their names.
pub fn remove_by_prefix(prefix: &str) -> Vec<String> {
    let found: Vec<String> = names().into_iter().filter(|name| name.starts_with(prefix)).collect();
    for name in &found {
        Netns { name: name.clone(), owned: false }.remove();
    }
    found
}

/// Names of all bound namespaces.
pub fn names() -> Vec<String> {
    let Ok(entries) = fs::read_dir(DIRECTORY) else { return vec![] };
    let mut names: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// SIGTERM, a second of patience, then SIGKILL.
fn end_processes(pids: &[i32]) {
    let signal = |signal| {
        for pid in pids {
            // One that has ended meanwhile is what we want.
            let _ = kill(Pid::from_raw(*pid), signal);
        }
    };
    if pids.is_empty() {
        return;
    }
    signal(Signal::SIGTERM);
    let deadline = Instant::now() + Duration::from_secs(1);
    while pids.iter().any(|pid| is_alive(*pid)) && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(10));
    }
    signal(Signal::SIGKILL);
}

/// Pid in a name made by [`Netns::create`].
fn maker(name: &str) -> Option<i32> {
    let rest = name.strip_prefix(PREFIX)?.strip_prefix('-')?;
    rest.split('-').next()?.parse().ok()
}

/// A zombie does not count: it runs nothing and holds nothing.
pub fn is_alive(pid: i32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().next());
    state.is_some_and(|state| state != "Z")
}

fn sysctl_path(key: &str) -> PathBuf {
    let path = if key.contains('/') { key.to_owned() } else { key.replace('.', "/") };
    Path::new("/proc/sys").join(path)
}

fn mac_words(mac: Option<&str>) -> String {
    mac.map(|mac| format!("address {mac}")).unwrap_or_default()
}

fn describe(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

fn spawn(command: &mut Command) -> Result<Child> {
    command.spawn().map_err(|source| Error::Start { command: describe(command), source })
}

fn run(command: &mut Command, place: &str) -> Result<String> {
    let output = command.output().map_err(|source| Error::Start { command: describe(command), source })?;
    checked(output, || describe(command), place)
}

fn checked(output: Output, command: impl FnOnce() -> String, place: &str) -> Result<String> {
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(Error::Command {
        command: command(),
        place: place.to_owned(),
        status: output.status,
        stderr: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}

#[cfg(test)]
mod tests;
