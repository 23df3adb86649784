//! BIRD in a namespace: a foreign neighbour of routing protocols.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::netns::Netns;
use crate::patience::until;
use crate::services::Service;

/// Where distributions have it.
pub const BIRD: &str = "/usr/sbin/bird";

const LISTEN: Duration = Duration::from_secs(30);

/// It ends with this value.
pub struct Bird<'a> {
    netns: &'a Netns,
    socket: String,
    _running: Service,
}

impl<'a> Bird<'a> {
    /// `directory` takes its files.
    pub fn start(netns: &'a Netns, directory: &Path, configuration: &str) -> Result<Bird<'a>> {
        fs::create_dir_all(directory)?;
        let path = |name: &str| directory.join(name).display().to_string();
        // one that was killed leaves it
        let _ = fs::remove_file(path("bird.ctl"));
        fs::write(path("bird.conf"), format!("timeformat protocol iso long ms;\n{configuration}"))?;
        let mut command = netns.command(BIRD);
        command.args(["-f", "-c", &path("bird.conf"), "-s", &path("bird.ctl"), "-P", &path("bird.pid")]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let running = Service(child.with_context(|| format!("cannot start {BIRD}"))?);
        until(LISTEN, || Ok(directory.join("bird.ctl").exists()), || "BIRD does not listen".to_owned())?;
        Ok(Bird { netns, socket: path("bird.ctl"), _running: running })
    }

    /// What birdc answers.
    pub fn ask(&self, question: &str) -> String {
        let mut command = self.netns.command("birdc");
        let output = command.args(["-r", "-s", &self.socket]).args(question.split(' ')).output();
        output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
    }

    /// When the session came up, to the millisecond: another time is a flap.
    pub fn since(&self, protocol: &str) -> Option<String> {
        let line = self.ask("show protocols").lines().find(|line| line.starts_with(protocol))?.to_owned();
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_up = line.contains("Established") || line.contains("Running");
        is_up.then(|| words.get(4..6).unwrap_or_default().join(" "))
    }

    /// Whether it has a route to this very prefix.
    pub fn has(&self, prefix: &str) -> bool {
        self.ask(&format!("show route {prefix}")).contains(&format!("\n{prefix} "))
    }
}
