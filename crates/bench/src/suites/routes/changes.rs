//! Routes that are added, replaced and deleted, so many a second.

use std::io::Write as _;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use sluice_lab::netns::Netns;

use crate::generator::site::WAN_HOST_ADDRESS;

pub const A_SECOND: usize = 10_000;
/// They go to `ip` in portions.
const PORTION: usize = 48;
/// Prefixes that are changed; of these so many are on the way of the flows, whose servers are in 10.128.0.0/20.
const PREFIXES: usize = 160;
const USED: usize = 16;

/// `ip` at work in a namespace.
pub struct Changes {
    stop: Arc<AtomicBool>,
    writer: JoinHandle<Result<usize>>,
    ip: Child,
    began: Instant,
}

impl Changes {
    pub fn start(netns: &Netns) -> Result<Changes> {
        let mut command = netns.command("ip");
        command.args(["-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut ip = command.spawn().context("cannot start ip")?;
        let mut input = ip.stdin.take().context("ip takes nothing")?;
        let stop = Arc::new(AtomicBool::new(false));
        let (ends, began) = (stop.clone(), Instant::now());
        let writer = thread::spawn(move || {
            let mut made: usize = 0;
            // what was added is deleted before the end
            while !ends.load(Ordering::Relaxed) || !made.is_multiple_of(3 * PREFIXES) {
                let lines: String = (made..made + PORTION).map(line).collect();
                input.write_all(lines.as_bytes()).context("ip has ended")?;
                made += PORTION;
                let due = began + Duration::from_secs_f64(made as f64 / A_SECOND as f64);
                thread::sleep(due.saturating_duration_since(Instant::now()));
            }
            Ok(made)
        });
        Ok(Changes { stop, writer, ip, began })
    }

    /// So many a second were made, by a kernel that has answered each.
    pub fn stop(self) -> Result<f64> {
        self.stop.store(true, Ordering::Relaxed);
        let made = self.writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let output = self.ip.wait_with_output()?;
        let seconds = self.began.elapsed().as_secs_f64();
        ensure!(output.status.success(), "ip: {}", String::from_utf8_lossy(&output.stderr));
        Ok(made? as f64 / seconds)
    }
}

/// Each prefix is added, replaced and deleted in turn, a third of a cycle apart.
fn line(n: usize) -> String {
    let (prefix, step) = (n % PREFIXES, n / PREFIXES % 3);
    let verb = ["add", "replace", "del"][step];
    if prefix < USED {
        // by the same gateway, with another attribute: the flows go on
        let attribute = if step == 1 { " initcwnd 10" } else { "" };
        return format!("route {verb} 10.128.{prefix}.0/24 via {WAN_HOST_ADDRESS}{attribute}\n");
    }
    if prefix.is_multiple_of(2) {
        let gateway = if step == 0 { WAN_HOST_ADDRESS } else { "192.0.2.100" };
        return format!("route {verb} 10.200.{prefix}.0/24 via {gateway}\n");
    }
    let gateway = if step == 0 { "fd00:2::100" } else { "fd00:1::100" };
    format!("route {verb} fd00:200:{prefix:x}::/48 via {gateway}\n")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn every_prefix_is_there_before_it_is_replaced_and_gone_at_the_end() {
        assert_eq!(3 * PREFIXES % PORTION, 0, "a cycle ends with a portion");
        let mut there: BTreeMap<String, usize> = BTreeMap::new();
        for n in 0..6 * PREFIXES {
            let line = line(n);
            let words: Vec<&str> = line.split_whitespace().collect();
            let known = there.entry(words[2].to_owned()).or_default();
            *known = match (words[1], *known) {
                ("add", 0) => 1,
                ("replace", 1) => 2,
                ("del", 2) => 0,
                wrong => panic!("{wrong:?} {line}"),
            };
        }
        assert!(there.len() == PREFIXES && there.values().all(|state| *state == 0));
    }
}
