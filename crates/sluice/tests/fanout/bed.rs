//! A sender, a gateway with `sluice fanout`, and receivers, each in a namespace of its own.

use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sluice_lab::metrics::Metrics;
use sluice_lab::netns::Netns;

use crate::common::{BINARY, Running, Site, wait_until};

pub const LISTENER: &str = "10.71.1.1:514";
pub const MESSAGES: u32 = 90_000;
pub const PATIENCE: Duration = Duration::from_secs(30);

pub fn receiver(number: usize) -> String {
    format!("10.71.2.{}:5514", 11 + number)
}

/// Three receivers in the right namespace, the sender in the left one.
pub fn site(label: &str) -> Site {
    let site = Site::new(label);
    for (device, net) in [("left0", 1), ("right0", 2)] {
        site.gateway.ip(&format!("addr add 10.71.{net}.1/24 dev {device}")).unwrap();
        site.gateway.ip(&format!("addr add fd71:{net}::1/64 dev {device} nodad")).unwrap();
    }
    for number in 0..3 {
        site.right.ip(&format!("addr add 10.71.2.{}/24 dev eth0", 11 + number)).unwrap();
        site.right.ip(&format!("addr add fd71:2::{}/64 dev eth0 nodad", 11 + number)).unwrap();
    }
    // as physical devices have it: complete checksums, and NAPI for what XDP redirects
    for host in [&site.left, &site.right] {
        host.run("ethtool", ["-K", "eth0", "tx", "off", "gro", "on"]).unwrap();
    }
    site
}

/// The YAML of one listener with the three receivers.
pub fn yaml(mode: &str, more: &str) -> String {
    let mut text = format!(
        "listeners:\n  - name: test\n    interface: left0\n    mode: {mode}\n    bind: \"{LISTENER}\"\n    downstream:\n"
    );
    for number in 0..3 {
        text += &format!("      - {{name: r{number}, address: \"{}\"}}\n", receiver(number));
    }
    format!("{text}{more}metrics: {{bind: \"127.0.0.1:9090\"}}\nlog_level: info\n")
}

/// As `bytes.fromhex` reads it.
pub fn mac(netns: &Netns, device: &str) -> String {
    let text = netns.ip(&format!("-o link show dev {device}")).unwrap();
    text.split("link/ether ").nth(1).unwrap().split(' ').next().unwrap().replace(':', "")
}

/// A running `sluice fanout`.
pub struct FanOut<'a> {
    child: Running,
    pub site: &'a Site,
    pub log: PathBuf,
    pub config: PathBuf,
    /// What a shell does for it in a mount namespace of its own.
    before: Option<String>,
}

impl FanOut<'_> {
    pub fn start<'a>(site: &'a Site, text: &str) -> FanOut<'a> {
        FanOut::start_after(site, text, None)
    }

    /// With a /etc/resolv.conf of its own.
    pub fn start_asking<'a>(site: &'a Site, text: &str, resolv: &Path) -> FanOut<'a> {
        FanOut::start_after(site, text, Some(format!("mount --bind {} /etc/resolv.conf", resolv.display())))
    }

    /// After mounts of its own.
    pub fn start_after<'a>(site: &'a Site, text: &str, before: Option<String>) -> FanOut<'a> {
        let config = site.write_all("config.yaml", text);
        let log = site.dir().join("fanout.log");
        let child = FanOut::spawn(site, &config, &log, before.as_deref());
        let mut running = FanOut { child, site, log, config, before };
        running.wait_ready();
        running
    }

    fn spawn(site: &Site, config: &Path, log: &Path, before: Option<&str>) -> Running {
        let file = std::fs::File::create(log).unwrap();
        let mut command = match before {
            None => site.gateway.command(BINARY),
            Some(before) => {
                let script = format!("{before} && exec \"$@\"");
                let mut command = site.gateway.command("unshare");
                command.args(["--mount", "sh", "-c", &script, "sh", BINARY]);
                command
            }
        };
        command.args(["fanout", "--config", &config.display().to_string()]);
        command.args(["--state-dir", &site.state().display().to_string()]);
        Running::spawn(command.stdout(Stdio::null()).stderr(file))
    }

    fn wait_ready(&mut self) {
        wait_until("ready", PATIENCE, || {
            assert!(self.child.try_wait().unwrap().is_none(), "ended: {}", self.words());
            self.words().contains("ready")
        });
    }

    /// SIGTERM, a good end, and a new start.
    pub fn restart(&mut self) {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.pid()), nix::sys::signal::Signal::SIGTERM)
            .unwrap();
        wait_until("end", PATIENCE, || self.child.try_wait().unwrap().is_some());
        self.child = FanOut::spawn(self.site, &self.config, &self.log, self.before.as_deref());
        self.wait_ready();
    }

    pub fn words(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    pub fn rewrite(&self, text: &str) {
        // as editors do it: never half a file
        let next = self.config.with_extension("next");
        std::fs::write(&next, text).unwrap();
        std::fs::rename(next, &self.config).unwrap();
    }

    pub fn metrics(&self) -> String {
        self.read_metrics().0
    }

    pub fn read_metrics(&self) -> Metrics {
        Metrics::read(&self.site.gateway, "127.0.0.1:9090").unwrap()
    }

    /// Sum of a family's samples whose labels contain `with`.
    pub fn sum(&self, family: &str, with: &str) -> u64 {
        self.read_metrics().sum(family, &[with]).unwrap()
    }

    pub fn dropped(&self, reason: &str) -> u64 {
        self.sum("sluice_fanout_dropped_packets_total", &format!("reason=\"{reason}\""))
    }

    /// received = sent + dropped, exactly, once nothing is under way.
    pub fn assert_balanced(&self) {
        let sums = || {
            let sum = |family| self.sum(&format!("sluice_fanout_{family}"), "");
            (
                sum("received_packets_total"),
                sum("sent_packets_total"),
                sum("dropped_packets_total"),
                sum("waiting_messages"),
            )
        };
        let begun = Instant::now();
        loop {
            let (received, sent, dropped, waiting) = sums();
            if received == sent + dropped && waiting == 0 {
                return;
            }
            assert!(
                begun.elapsed() < Duration::from_secs(5),
                "{received} received, {sent} sent, {dropped} dropped, {waiting} wait\n{}",
                self.metrics()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// SIGTERM, and a good end.
    pub fn end(mut self) {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.pid()), nix::sys::signal::Signal::SIGTERM)
            .unwrap();
        let mut status = None;
        wait_until("end", PATIENCE, || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        assert!(status.unwrap().success(), "{}", self.words());
    }
}

/// Which numbered messages arrived at a receiver, and from whom.
#[derive(Default)]
pub struct Sink {
    pub count: Arc<AtomicU64>,
    pub seen: Arc<Mutex<Vec<u32>>>,
    pub sources: Arc<Mutex<std::collections::BTreeSet<SocketAddr>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Sink {
    pub fn udp(netns: &Netns, address: &str) -> Sink {
        let socket = netns.enter(|| UdpSocket::bind(address).unwrap()).unwrap();
        nix::sys::socket::setsockopt(&socket, nix::sys::socket::sockopt::RcvBufForce, &(64 << 20)).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let mut sink = Sink::default();
        let (count, seen, sources, stop) =
            (sink.count.clone(), sink.seen.clone(), sink.sources.clone(), sink.stop.clone());
        sink.thread = Some(std::thread::spawn(move || {
            let mut buffer = vec![0; 65_536];
            while !stop.load(Ordering::Acquire) {
                let Ok((length, from)) = socket.recv_from(&mut buffer) else { continue };
                count.fetch_add(1, Ordering::Relaxed);
                seen.lock().unwrap().extend(number_of(&buffer[..length]));
                sources.lock().unwrap().insert(from);
            }
        }));
        sink
    }

    /// Lines over any number of connections.
    pub fn tcp(netns: &Netns, address: &str) -> Sink {
        let listener = netns.enter(|| TcpListener::bind(address).unwrap()).unwrap();
        listener.set_nonblocking(true).unwrap();
        let mut sink = Sink::default();
        let (count, seen, stop) = (sink.count.clone(), sink.seen.clone(), sink.stop.clone());
        sink.thread = Some(std::thread::spawn(move || {
            let mut streams: Vec<(TcpStream, Vec<u8>)> = vec![];
            let mut buffer = vec![0; 1 << 16];
            while !stop.load(Ordering::Acquire) {
                if let Ok((stream, _)) = listener.accept() {
                    stream.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
                    streams.push((stream, vec![]));
                }
                for (stream, rest) in &mut streams {
                    let Ok(length) = stream.read(&mut buffer) else { continue };
                    rest.extend(&buffer[..length]);
                    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                        let line: Vec<u8> = rest.drain(..=end).collect();
                        count.fetch_add(1, Ordering::Relaxed);
                        seen.lock().unwrap().extend(number_of(&line));
                    }
                }
                if streams.is_empty() {
                    std::thread::sleep(Duration::from_millis(2));
                }
            }
        }));
        sink
    }

    pub fn got(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// One at each of the three receivers.
pub fn sinks_at(site: &Site, address: impl Fn(usize) -> String) -> Vec<Sink> {
    (0..3).map(|n| Sink::udp(&site.right, &address(n))).collect()
}

pub fn total(sinks: &[Sink]) -> u64 {
    sinks.iter().map(Sink::got).sum()
}

/// Each of so many takers (CPUs, queues, workers) takes the receivers by turns.
pub fn assert_by_turns(sinks: &[Sink], takers: u64, taker: &str) {
    let shares: Vec<u64> = sinks.iter().map(Sink::got).collect();
    let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
    assert!(most - least <= takers, "{shares:?}: at most one a {taker}");
}

/// `<14>1 - host app - - - message NUMBER ...`
pub fn message(number: u32, length: usize) -> Vec<u8> {
    let mut text = format!("<14>1 - host app - - - message {number} ").into_bytes();
    text.resize(length.max(text.len()), b'x');
    text
}

fn number_of(message: &[u8]) -> Option<u32> {
    let text = String::from_utf8_lossy(message);
    text.split("message ").nth(1)?.split(' ').next()?.trim().parse().ok()
}

/// Each of the first `messages` numbers exactly once.
pub fn assert_each_once(mut numbers: Vec<u32>, messages: u32) {
    numbers.sort_unstable();
    let total = numbers.len();
    numbers.dedup();
    let missing = (0..messages).filter(|n| numbers.binary_search(n).is_err()).count();
    assert!(
        total == messages as usize && missing == 0,
        "{total} arrived of {messages}, {} more than once, {missing} never",
        total - numbers.len()
    );
}

/// Every message exactly once, at whichever receiver.
pub fn assert_all_once(sinks: &[Sink], messages: u32) {
    assert_each_once(sinks.iter().flat_map(|sink| sink.seen.lock().unwrap().clone()).collect(), messages);
}

/// Sends numbered messages from `ports` sockets, at about a rate.
pub fn send(
    netns: &Netns,
    to: &str,
    numbers: std::ops::Range<u32>,
    rate: u32,
    ports: usize,
) -> Vec<SocketAddr> {
    let to: SocketAddr = to.parse().unwrap();
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let work = || {
        let sockets: Vec<UdpSocket> = (0..ports).map(|_| UdpSocket::bind(any).unwrap()).collect();
        sockets.iter().for_each(|socket| socket.connect(to).unwrap());
        let (begun, first) = (Instant::now(), numbers.start);
        for number in numbers {
            let due = Duration::from_secs_f64(f64::from(number - first) / f64::from(rate));
            while begun.elapsed() < due {
                std::thread::sleep(due.saturating_sub(begun.elapsed()).min(Duration::from_micros(500)));
            }
            // an ICMP error about an earlier one is reported here and means nothing to this one
            let socket = &sockets[number as usize % ports];
            let message = message(number, 64 + number as usize % 3);
            while socket.send(&message).is_err() {}
        }
        sockets.iter().map(|socket| socket.local_addr().unwrap()).collect()
    };
    netns.enter(work).unwrap()
}

/// rsyslogd that writes what it receives into a file, a line a message.
pub struct Rsyslog {
    _child: Running,
    pub file: PathBuf,
}

impl Rsyslog {
    pub fn start(netns: &Netns, dir: &Path, number: usize, module: &str) -> Rsyslog {
        let address = receiver(number);
        let (ip, port) = address.split_once(':').unwrap();
        let file = dir.join(format!("messages-{number}"));
        let (load, options) = match module {
            "imudp" => ("module(load=\"imudp\" TimeRequery=\"100\")", "rcvbufSize=\"32m\""),
            _ => ("module(load=\"imptcp\")", "SupportOctetCountedFraming=\"on\""),
        };
        let text = format!(
            "global(net.enableDNS=\"off\")\n{load}\ninput(type=\"{module}\" address=\"{ip}\" port=\"{port}\" {options})\n\
             template(name=\"line\" type=\"string\" string=\"%msg%\\n\")\n\
             action(type=\"omfile\" file=\"{}\" template=\"line\" flushOnTXEnd=\"on\")\n",
            file.display()
        );
        let config = dir.join(format!("rsyslog-{number}.conf"));
        std::fs::write(&config, text).unwrap();
        let pid = dir.join(format!("rsyslog-{number}.pid"));
        let mut command = netns.command("rsyslogd");
        command.args(["-n", "-f", &config.display().to_string(), "-i", &pid.display().to_string()]);
        let child = Running::spawn(command.stdout(Stdio::null()).stderr(Stdio::null()));
        wait_until("rsyslogd", PATIENCE, || {
            let table = if module == "imudp" { "-lun" } else { "-ltn" };
            netns.run("ss", [table]).unwrap().contains(&address)
        });
        Rsyslog { _child: child, file }
    }

    pub fn numbers(&self) -> Vec<u32> {
        let text = std::fs::read_to_string(&self.file).unwrap_or_default();
        // the last line may be on its way
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().filter_map(|line| number_of(line.as_bytes())).collect()
    }
}
