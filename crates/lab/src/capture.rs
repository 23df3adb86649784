//! What a host receives, and another program's word on it: tshark, which shares no line with us, checks every sum that
//! it can: of IPv4 headers (quoted ones too), TCP, UDP, ICMP and ICMPv6. Fragments count as the datagram they make.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::netns::Netns;
use crate::services::IPERF_PORT;

/// A sum that is wrong. The checksum in a TCP or UDP packet that an ICMP error quotes is not verified (RFC 5508 REQ-3).
pub const WRONG_CHECKSUM: &str = "ip.checksum.status == 0 || icmp.checksum.status == 0 \
                                  || icmpv6.checksum.status == 0 || ((tcp.checksum.status == 0 \
                                  || udp.checksum.status == 0) && !icmp && !icmpv6)";
const CHECKS: [&str; 4] =
    ["ip.check_checksum:TRUE", "tcp.check_checksum:TRUE", "udp.check_checksum:TRUE", "ip.defragment:TRUE"];
/// Time in which what is still on its way arrives, and tcpdump sees it.
const SETTLE: Duration = Duration::from_millis(300);

/// Number and summary of the frames of a capture that a filter selects, with every checksum checked.
pub fn tshark(file: &Path, filter: &str) -> Result<Vec<(usize, String)>> {
    let mut command = Command::new("tshark");
    command.arg("-n").arg("-r").arg(file).args(CHECKS.iter().flat_map(|check| ["-o", check]));
    let output = command
        .args(["-Y", filter])
        .stdin(Stdio::null())
        .output()
        .context("cannot start tshark; scripts/setup.sh installs it")?;
    ensure!(output.status.success(), "tshark: {}", String::from_utf8_lossy(&output.stderr));
    let numbered = |line: &str| {
        let number = line.split_whitespace().next().unwrap_or_default();
        Ok((number.parse().with_context(|| format!("tshark says {line}"))?, line.trim().to_owned()))
    };
    String::from_utf8_lossy(&output.stdout).lines().map(numbered).collect()
}

/// tcpdump on a device, until it is judged or dropped.
#[derive(Debug)]
pub struct Capture {
    child: Child,
    file: PathBuf,
    host: String,
}

/// What tshark thinks of the frames of a capture.
#[derive(Debug, Default)]
pub struct Judged {
    /// A generator and a sink that know each packet by flow and sequence number (`bpf/lab/stream.bpf.c`).
    pub frames: usize,
    /// What it found wrong with them, a line a frame.
    pub wrong: Vec<String>,
}

impl Capture {
    /// Frames that `host` receives on `device`; `directory` takes the file.
    ///
    /// Checksums are complete there only if no sender leaves them to the next device: see [`complete_checksums`].
    /// What iperf3's server still sends after its client has gone is left out: where GRO joins such segments, the sum of
    /// the whole stands in none.
    pub fn start(host: &Netns, device: &str, directory: &Path) -> Result<Capture> {
        let file = directory.join(format!("{}-{device}.pcap", host.name()));
        let mut command = host.command("tcpdump");
        command
            .args(["-n", "-U", "--immediate-mode", "-s", "0", "-Z", "root", "-Q", "in", "-i", device, "-w"])
            .arg(&file)
            .arg(format!("not tcp port {IPERF_PORT}"));
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        let child = child.context("cannot start tcpdump; scripts/setup.sh installs it")?;
        let mut capture = Capture { child, file, host: host.name().to_owned() };
        let said = capture.child.stderr.take().context("standard error is piped")?;
        let mut lines = BufReader::new(said).lines();
        while let Some(line) = lines.next().transpose()? {
            if line.contains("listening on") {
                // whatever it says at its end must not block it
                thread::spawn(move || lines.count());
                return Ok(capture);
            }
        }
        bail!("tcpdump on {device} of {} ended before it listened", capture.host)
    }

    /// Ends it and has every frame judged.
    pub fn judge(mut self) -> Result<Judged> {
        thread::sleep(SETTLE);
        kill(Pid::from_raw(self.child.id() as i32), Signal::SIGINT)?;
        self.child.wait()?;
        let frames = tshark(&self.file, "frame")?.len();
        let wrong = tshark(&self.file, WRONG_CHECKSUM)?;
        let named = |(_, line): (usize, String)| format!("{}: {line}", self.host);
        Ok(Judged { frames, wrong: wrong.into_iter().map(named).collect() })
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        // It has ended where it was judged.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Has a namespace complete the checksums, and cut the long packets, of all that leaves by its devices.
pub fn complete_checksums(netns: &Netns, devices: &[&str]) -> Result<()> {
    for device in devices {
        netns.run("ethtool", ["-K", device, "tx", "off"])?;
    }
    Ok(())
}

/// Runs `traffic` and judges what the hosts receive on eth0 meanwhile. Whether all is right, and what was seen.
pub fn judged(hosts: &[&Netns], directory: &Path, traffic: impl FnOnce()) -> Result<(bool, String)> {
    let captures = hosts.iter().map(|host| Capture::start(host, "eth0", directory));
    let captures = captures.collect::<Result<Vec<_>>>()?;
    traffic();
    let judged = captures.into_iter().map(Capture::judge).collect::<Result<Vec<_>>>()?;
    let frames: Vec<usize> = judged.iter().map(|one| one.frames).collect();
    let wrong: Vec<String> = judged.into_iter().flat_map(|one| one.wrong).collect();
    let all_saw = frames.iter().all(|count| *count > 0);
    let seen =
        format!("{} frames{}", frames.iter().sum::<usize>(), if all_saw { "" } else { ", a host saw none" });
    let named = wrong.first().map_or(String::new(), |first| format!(", {} wrong: {first}", wrong.len()));
    Ok((all_saw && wrong.is_empty(), seen + &named))
}
