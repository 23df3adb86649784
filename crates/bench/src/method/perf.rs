//! CPU samples by perf: who had the CPU, called by whom. Needs no hardware counters (`cpu-clock` is a timer).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::method::chart::Frame;

/// Samples a second; no divisor of anything the kernel does periodically.
const FREQUENCY: u32 = 997;

/// A call chain, outermost first, and how often it was met.
pub type Chains = BTreeMap<Vec<String>, u64>;

/// perf at work.
pub struct Recording {
    child: Child,
    file: Removed,
}

/// Removed with the value.
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        // It may never have been written.
        let _ = fs::remove_file(&self.0);
    }
}

pub fn is_installed() -> bool {
    let run = Command::new("perf").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    run.is_ok_and(|status| status.success())
}

impl Recording {
    /// Samples one CPU until [`Recording::end`].
    pub fn start(cpu: usize, label: &str) -> Result<Recording> {
        let name = format!("sluice-bench-{}-{label}.perf", std::process::id());
        let file = Removed(std::env::temp_dir().join(name));
        let child = Command::new("perf")
            .args(["record", "-q", "-e", "cpu-clock", "-g", "-F", &FREQUENCY.to_string()])
            .args(["-C", &cpu.to_string(), "-o"])
            .arg(&file.0)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start perf; scripts/setup-bench.sh installs it")?;
        let recording = Recording { child, file };
        recording.wait_until_ready();
        Ok(recording)
    }

    /// A generator that runs ahead of everything would keep perf from ever starting.
    fn wait_until_ready(&self) {
        let deadline = Instant::now() + Duration::from_secs(5);
        while fs::metadata(&self.file.0).map_or(0, |file| file.len()) == 0 && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(20));
        }
        thread::sleep(Duration::from_millis(300));
    }

    /// Stops perf and reads what it saw.
    pub fn end(mut self) -> Result<Chains> {
        let pid = nix::unistd::Pid::from_raw(self.child.id() as i32);
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT)?;
        self.child.wait()?;
        script(&self.file.0)
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        // It has ended, or what made us go has gone wrong.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn script(file: &Path) -> Result<Chains> {
    let output = Command::new("perf")
        .args(["script", "-F", "comm,ip,sym", "-i"])
        .arg(file)
        .stdin(Stdio::null())
        .output()
        .context("cannot start perf script")?;
    if !output.status.success() {
        bail!("perf script failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let chains = parse(&String::from_utf8_lossy(&output.stdout));
    ensure!(!chains.is_empty(), "perf recorded no sample: is kernel.perf_event_paranoid above 1?");
    Ok(chains)
}

/// A sample is a line with the command, one line a function (address, symbol), innermost first, and an empty line.
fn parse(text: &str) -> Chains {
    let mut chains = Chains::new();
    for sample in text.split("\n\n") {
        let mut lines = sample.lines().filter(|line| !line.is_empty());
        let Some(command) = lines.next() else { continue };
        let mut chain: Vec<String> = lines.filter_map(symbol).collect();
        if chain.is_empty() {
            continue;
        }
        chain.push(command.trim().to_owned());
        chain.reverse();
        *chains.entry(chain).or_default() += 1;
    }
    chains
}

fn symbol(line: &str) -> Option<String> {
    let (_, name) = line.trim().split_once(' ')?;
    let name = name.trim();
    let name = name.split_once('+').map_or(name, |(name, _)| name);
    Some(readable(name))
}

/// The kernel calls a program `bpf_prog_<tag>_<name>`.
fn readable(symbol: &str) -> String {
    let Some(rest) = symbol.strip_prefix("bpf_prog_") else { return symbol.to_owned() };
    match rest.split_once('_') {
        Some((tag, name)) if tag.len() == 16 && tag.chars().all(|c| c.is_ascii_hexdigit()) => {
            format!("bpf: {name}")
        }
        _ => format!("bpf: {rest}"),
    }
}

pub fn is_bpf(symbol: &str) -> bool {
    symbol.starts_with("bpf: ")
}

/// Samples in which each function itself had the CPU, most first.
pub fn by_symbol(chains: &Chains) -> Vec<(String, u64)> {
    let mut own: BTreeMap<&str, u64> = BTreeMap::new();
    for (chain, count) in chains {
        if let Some(last) = chain.last() {
            *own.entry(last).or_default() += count;
        }
    }
    let mut sorted: Vec<(String, u64)> =
        own.into_iter().map(|(name, count)| (name.to_owned(), count)).collect();
    sorted.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
    sorted
}

pub fn total(chains: &Chains) -> u64 {
    chains.values().sum()
}

/// The call tree; branches below `least` of all samples are left out.
pub fn tree(chains: &Chains, least: f64) -> Frame {
    let mut root = Frame { name: "all".to_owned(), ..Frame::default() };
    for (chain, count) in chains {
        let mut at = &mut root;
        at.samples += count;
        for name in chain {
            let found = at.children.iter().position(|child| child.name == *name);
            let i = found.unwrap_or_else(|| {
                at.children.push(Frame { name: name.clone(), bpf: is_bpf(name), ..Frame::default() });
                at.children.len() - 1
            });
            at = &mut at.children[i];
            at.samples += count;
        }
    }
    let least = (least * root.samples as f64).ceil() as u64;
    prune(&mut root, least);
    root
}

fn prune(frame: &mut Frame, least: u64) {
    frame.children.retain(|child| child.samples >= least);
    frame.children.iter_mut().for_each(|child| prune(child, least));
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRIPT: &str = "\
generator
\tffffffffc0201234 bpf_prog_0123456789abcdef_xdp_fast+0x12
\tffffffff81a00000 veth_poll+0x80
\tffffffff81b00000 net_rx_action

generator
\tffffffff81a00010 veth_poll+0x90
\tffffffff81b00000 net_rx_action

swapper
\tffffffff81c00000 default_idle
";

    #[test]
    fn samples_become_chains_with_programs_named() {
        let chains = parse(SCRIPT);
        assert_eq!(total(&chains), 3);
        let fast = ["generator", "net_rx_action", "veth_poll", "bpf: xdp_fast"].map(str::to_owned).to_vec();
        assert_eq!(chains.get(&fast), Some(&1), "{chains:?}");
        assert_eq!(by_symbol(&chains).iter().map(|(_, count)| count).sum::<u64>(), 3);
        assert!(by_symbol(&chains).contains(&("veth_poll".to_owned(), 1)));
    }

    #[test]
    fn the_tree_counts_children_into_parents() {
        let root = tree(&parse(SCRIPT), 0.0);
        let generator = root.children.iter().find(|frame| frame.name == "generator").unwrap();
        assert_eq!((root.samples, generator.samples, generator.children[0].samples), (3, 2, 2));
        assert!(generator.children[0].children[0].children[0].bpf);
        assert_eq!(tree(&parse(SCRIPT), 0.5).children.len(), 1);
    }

    #[test]
    fn a_symbol_without_a_tag_is_still_a_program() {
        assert_eq!(readable("bpf_prog_6deef7357e7b4530"), "bpf: 6deef7357e7b4530");
        assert_eq!(readable("htab_map_hash"), "htab_map_hash");
    }
}
