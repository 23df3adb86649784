//! FRR's daemons in a namespace, by a pathspace of their own, so that `vtysh` finds them.

use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Group, Pid, User};

use crate::netns::Netns;
use crate::patience::until;
use crate::services::Service;

/// Where distributions have FRR's daemons.
pub const DAEMONS: &str = "/usr/lib/frr";

/// How long the next zebra keeps the routes of one that ended.
pub const KEEP_SECONDS: u32 = 20;

const LISTEN: Duration = Duration::from_secs(30);

/// They end with this value, and nothing of them remains.
pub struct Frr<'a> {
    netns: &'a Netns,
    name: String,
    daemons: Vec<(String, Service)>,
}

impl<'a> Frr<'a> {
    /// `name` is the pathspace (`-N`). No daemon runs yet.
    pub fn create(netns: &'a Netns, name: &str) -> Result<Frr<'a>> {
        let frr = Frr { netns, name: name.to_owned(), daemons: vec![] };
        let owner = User::from_name("frr")?.map(|user| user.uid.as_raw());
        let group = Group::from_name("frr")?.map(|group| group.gid.as_raw());
        for directory in frr.directories() {
            fs::create_dir_all(&directory)?;
            chown(&directory, owner, group)?;
        }
        fs::write(frr.directories()[0].join("vtysh.conf"), "service integrated-vtysh-config\n")?;
        Ok(frr)
    }

    /// The pathspace.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn directories(&self) -> [PathBuf; 2] {
        ["/etc/frr", "/var/run/frr"].map(|base| Path::new(base).join(&self.name))
    }

    fn socket(&self, daemon: &str) -> PathBuf {
        self.directories()[1].join(format!("{daemon}.vty"))
    }

    /// Starts daemons; each listens before the next one begins.
    pub fn start(&mut self, daemons: &[&str]) -> Result<()> {
        // from version 10 on it has the configuration of interfaces for zebra
        let with_it = daemons.contains(&"zebra") && Path::new(DAEMONS).join("mgmtd").exists();
        let first = (with_it && !self.socket("mgmtd").exists()).then_some(&"mgmtd");
        for daemon in first.into_iter().chain(daemons) {
            let mut command = self.netns.command(format!("{DAEMONS}/{daemon}"));
            command.args(["-N", &self.name, "-A", "127.0.0.1", "-P", "0"]);
            if *daemon == "zebra" {
                // what docs/ROUTING.md advises
                command.args(["-K", &KEEP_SECONDS.to_string()]);
            }
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let child = command.spawn().with_context(|| format!("cannot start {daemon}"))?;
            self.daemons.push(((*daemon).to_owned(), Service(child)));
            let socket = self.socket(daemon);
            until(LISTEN, || Ok(socket.exists()), || format!("{daemon} does not listen"))?;
        }
        Ok(())
    }

    /// As a crash would.
    pub fn kill(&mut self, daemon: &str) {
        self.daemons.retain(|(name, _)| name != daemon);
        // a killed daemon leaves it, and the next one is waited for by it
        let _ = fs::remove_file(self.socket(daemon));
    }

    /// Stops a daemon, or has it go on.
    pub fn signal(&self, daemon: &str, signal: Signal) -> Result<()> {
        let running = self.daemons.iter().find(|(name, _)| name == daemon);
        let (_, service) = running.with_context(|| format!("{daemon} does not run"))?;
        Ok(kill(Pid::from_raw(service.0.id().cast_signed()), signal)?)
    }

    /// What vtysh answers.
    pub fn ask(&self, command: &str) -> Result<String> {
        let output = Command::new("vtysh").args(["-N", &self.name, "-c", command]).output();
        Ok(String::from_utf8_lossy(&output.context("cannot run vtysh")?.stdout).into_owned())
    }
}

impl Drop for Frr<'_> {
    fn drop(&mut self) {
        self.daemons.clear();
        self.directories().iter().for_each(|directory| drop(fs::remove_dir_all(directory)));
    }
}
