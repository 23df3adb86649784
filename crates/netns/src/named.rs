//! A namespace by its name, and commands inside it.
//!
//! Commands run through `nsenter --net`, not `ip netns exec`: the latter mounts a fresh /sys, in which pinned BPF
//! objects are invisible.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::command::{checked, run, run_on};
use crate::leftovers::{PREFIX, end_processes};
use crate::{DIRECTORY, Error, Namespace, Result, here};

/// A named network namespace. Dropping an owned one ends the processes in it and removes it. Its name carries the pid of its
/// maker, so [`remove_leftovers`](crate::remove_leftovers) can tell what a killed run left behind from what a live one
/// still uses.
#[derive(Debug)]
pub struct Netns {
    name: String,
    owned: bool,
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
        let netns = Netns::of(name);
        match fs::metadata(netns.path()) {
            Ok(_) => Ok(netns),
            Err(source) => Err(Error::Namespace { action: "find", name: name.to_owned(), source }),
        }
    }

    /// What has this name, if anything has; dropping it removes nothing.
    pub(crate) fn of(name: &str) -> Netns {
        Netns { name: name.to_owned(), owned: false }
    }

    /// Keeps the namespace when this value is dropped (`sluice lab up`).
    pub fn keep(mut self) {
        self.owned = false;
    }

    /// The name it was made with.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it is bound: `/run/netns/NAME`.
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
        let output = run_on(self.command("ip").args(["-batch", "-"]), lines)?;
        checked(output, || format!("ip -batch: {}", lines.trim().replace('\n', "; ")), &self.name).map(drop)
    }

    /// Sets `net.ipv4.ip_forward` and the like, as this namespace sees it. Interface names must not contain dots
    /// here; use slashes throughout for those (`net/ipv4/conf/wan0.100/forwarding`).
    pub fn sysctl(&self, key: &str, value: &str) -> Result<()> {
        self.enter(|| here::write(key, value))?.map_err(|source| Error::Sysctl {
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

    /// Its descriptor, for a thread that shall enter it.
    pub fn descriptor(&self) -> Result<Namespace> {
        Namespace::open(&self.path(), &self.name).map_err(|source| Error::Namespace {
            action: "enter",
            name: self.name.clone(),
            source,
        })
    }

    /// Runs a closure on a thread of its own inside this namespace. Sockets it opens stay in the namespace.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        self.descriptor()?.enter(work)
    }

    /// Index of a device.
    pub fn ifindex(&self, device: &str) -> Result<u32> {
        self.enter(|| here::index(device))?.map_err(|source| Error::Device {
            device: device.to_owned(),
            name: self.name.clone(),
            source,
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
            eprintln!("sluice: {error}");
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
