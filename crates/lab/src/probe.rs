//! One question asked of the gateway with real traffic, and what came back.

use std::fmt;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::process::Output;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::Value;

use crate::hosts;
use crate::netns::Netns;
use crate::services::{IPERF_PORT, PAGE_BYTES};

/// Longer than any answer takes on a veth, short enough to wait for silence many times.
const PATIENCE: Duration = Duration::from_secs(1);

/// A refusal is worth its name only when it spares the sender the wait.
const AT_ONCE: Duration = Duration::from_millis(500);

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Probe {
    Ping,
    Web,
    TcpConnect(u16),
    Udp(u16),
    IperfTcp {
        streams: u8,
        reverse: bool,
    },
    IperfUdp,
    /// Addresses that must answer, in order.
    Traceroute(Vec<IpAddr>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    Passed,
    /// Nothing came back.
    Silent,
    /// A reset or an ICMP error came back at once.
    Refused,
    /// Something else: the text says what.
    Broken,
}

#[derive(Debug, Clone, Serialize)]
pub struct Seen {
    pub verdict: Verdict,
    pub text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gbps: Option<f64>,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.pad(match self {
            Verdict::Passed => "passes",
            Verdict::Silent => "no answer",
            Verdict::Refused => "refused",
            Verdict::Broken => "broken",
        })
    }
}

impl Seen {
    fn new(verdict: Verdict, text: impl Into<String>) -> Seen {
        Seen { verdict, text: text.into(), gbps: None }
    }

    fn broken(text: impl fmt::Display) -> Seen {
        Seen::new(Verdict::Broken, text.to_string())
    }
}

impl Probe {
    pub fn name(&self, v6: bool) -> String {
        match self {
            Probe::Ping if v6 => "ping6".to_owned(),
            Probe::Ping => "ping".to_owned(),
            Probe::Web if v6 => "curl v6".to_owned(),
            Probe::Web => "curl".to_owned(),
            Probe::TcpConnect(port) => format!("tcp/{port}{}", family(v6)),
            Probe::Udp(port) => format!("udp/{port}{}", family(v6)),
            Probe::IperfTcp { streams, reverse } => {
                let streams = if *streams > 1 { format!(" x{streams}") } else { String::new() };
                let reverse = if *reverse { " back" } else { "" };
                format!("iperf3 tcp{streams}{reverse}{}", family(v6))
            }
            Probe::IperfUdp => format!("iperf3 udp{}", family(v6)),
            Probe::Traceroute(_) => format!("traceroute{}", if v6 { " -6" } else { "" }),
        }
    }

    /// These measure throughput and so run one at a time.
    pub fn is_load(&self) -> bool {
        matches!(self, Probe::IperfTcp { .. } | Probe::IperfUdp)
    }

    /// `to` is the namespace of the host that is asked, if it is one.
    pub fn run(&self, from: &Netns, to: Option<&Netns>, target: IpAddr) -> Seen {
        match self {
            Probe::Ping => ping(from, target),
            Probe::Web => web(from, target),
            Probe::TcpConnect(port) => tcp_connect(from, SocketAddr::new(target, *port)),
            Probe::Udp(port) => udp(from, SocketAddr::new(target, *port)),
            Probe::IperfTcp { streams, reverse } => {
                let streams = streams.to_string();
                let mut args = vec!["-t", "2", "-P", &streams];
                args.extend(reverse.then_some("-R"));
                iperf(from, target, &args, || 0)
            }
            Probe::IperfUdp => iperf_udp(from, to, target),
            Probe::Traceroute(hops) => traceroute(from, target, hops),
        }
    }
}

fn family(v6: bool) -> &'static str {
    if v6 { " v6" } else { "" }
}

fn output(from: &Netns, program: &str, args: &[&str]) -> Result<Output, Seen> {
    from.command(program)
        .args(args)
        .output()
        .map_err(|error| Seen::broken(format!("cannot start {program}: {error}")))
}

fn ping(from: &Netns, target: IpAddr) -> Seen {
    let target = target.to_string();
    match output(from, "ping", &["-n", "-c3", "-i0.1", "-W1", &target]) {
        Ok(output) => read_ping(&String::from_utf8_lossy(&output.stdout)),
        Err(seen) => seen,
    }
}

fn read_ping(text: &str) -> Seen {
    let Some(summary) = text.lines().find(|line| line.contains("packets transmitted")) else {
        return Seen::broken(format!("ping said: {}", text.trim()));
    };
    let numbers: Vec<u32> = summary.split([' ', ',', '+']).filter_map(|word| word.parse().ok()).collect();
    let (sent, received) = (numbers.first().copied().unwrap_or(0), numbers.get(1).copied().unwrap_or(0));
    if sent > 0 && received == sent {
        let average =
            text.lines().find(|line| line.starts_with("rtt")).and_then(|line| line.split('/').nth(4));
        return Seen::new(Verdict::Passed, average.map(|ms| format!("{ms} ms")).unwrap_or_default());
    }
    if received > 0 {
        return Seen::broken(format!("{received} of {sent} answered"));
    }
    let refusal = ["Packet filtered", "rohibited", "nreachable"].iter().find(|word| text.contains(**word));
    match refusal {
        // The sender's own stack says "Host Unreachable" when nobody answers ARP: that is not the gateway's word.
        Some(_) if text.contains("Destination Host Unreachable") => {
            Seen::broken("host unreachable (no ARP answer)")
        }
        Some(_) => Seen::new(Verdict::Refused, icmp_text(text)),
        None => Seen::new(Verdict::Silent, ""),
    }
}

/// What ping prints of the first ICMP error: the text after `icmp_seq=1`.
fn icmp_text(text: &str) -> String {
    let line = text.lines().find(|line| line.contains("icmp_seq=1 ")).unwrap_or_default();
    line.split("icmp_seq=1 ").nth(1).unwrap_or("ICMP error").trim().to_lowercase()
}

fn web(from: &Netns, target: IpAddr) -> Seen {
    let url = format!("http://{}/", SocketAddr::new(target, 80));
    let args = ["-s", "-o", "/dev/null", "-w", "%{http_code} %{size_download}", "--connect-timeout", "1"];
    let mut args = args.to_vec();
    args.extend(["--max-time", "5", &url]);
    let output = match output(from, "curl", &args) {
        Ok(output) => output,
        Err(seen) => return seen,
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let expected = format!("200 {PAGE_BYTES}");
    match output.status.code() {
        Some(0) if text == expected => Seen::new(Verdict::Passed, format!("200, {} KiB", PAGE_BYTES / 1024)),
        Some(7) => Seen::new(Verdict::Refused, "connection refused"),
        Some(28) if text.starts_with("000") => Seen::new(Verdict::Silent, ""),
        code => Seen::broken(format!("curl exit {code:?}, status and bytes {text}, wanted {expected}")),
    }
}

fn tcp_connect(from: &Netns, target: SocketAddr) -> Seen {
    let started = Instant::now();
    match from.enter(|| TcpStream::connect_timeout(&target, PATIENCE).map(drop)) {
        Ok(Ok(())) => Seen::new(Verdict::Passed, "connected"),
        Ok(Err(error)) => refusal(error, started.elapsed()),
        Err(error) => Seen::broken(error),
    }
}

fn udp(from: &Netns, target: SocketAddr) -> Seen {
    let started = Instant::now();
    let any = if target.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" };
    let asked = from.enter(|| {
        let socket = UdpSocket::bind(any)?;
        socket.connect(target)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.send(b"sluice")?;
        socket.recv(&mut [0; 64])
    });
    match asked {
        Ok(Ok(_)) => Seen::new(Verdict::Passed, "answered"),
        Ok(Err(error)) => refusal(error, started.elapsed()),
        Err(error) => Seen::broken(error),
    }
}

fn refusal(error: std::io::Error, took: Duration) -> Seen {
    match error.kind() {
        ErrorKind::TimedOut | ErrorKind::WouldBlock => Seen::new(Verdict::Silent, ""),
        ErrorKind::ConnectionRefused
        | ErrorKind::HostUnreachable
        | ErrorKind::NetworkUnreachable
        | ErrorKind::PermissionDenied => {
            let text = format!("{} in {} ms", short(&error), took.as_millis());
            if took < AT_ONCE { Seen::new(Verdict::Refused, text) } else { Seen::broken(text) }
        }
        _ => Seen::broken(error),
    }
}

/// `Connection refused (os error 111)` without the number.
fn short(error: &std::io::Error) -> String {
    error.to_string().split(" (os").next().unwrap_or_default().to_lowercase()
}

/// A receiver that gets no CPU loses datagrams in its socket and says how many; every other one counts.
fn iperf_udp(from: &Netns, to: Option<&Netns>, target: IpAddr) -> Seen {
    let overflows = || to.map_or(0, hosts::udp_overflows);
    let before = overflows();
    iperf(from, target, &["-u", "-t", "1", "-b", "100M", "-l", "1200"], || overflows() - before)
}

fn iperf(from: &Netns, target: IpAddr, args: &[&str], excused: impl Fn() -> u64) -> Seen {
    let (target, port) = (target.to_string(), IPERF_PORT.to_string());
    let mut all = vec!["-c", &target, "-p", &port, "-J", "--connect-timeout", "1000"];
    all.extend(args);
    let deadline = Instant::now() + PATIENCE;
    loop {
        let seen = match output(from, "iperf3", &all) {
            Ok(output) => read_iperf(&output.stdout, excused()),
            Err(seen) => seen,
        };
        // The server takes a moment to end the test before.
        if !seen.text.contains("server is busy") || Instant::now() > deadline {
            return seen;
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// `excused` datagrams were lost in the receiver's socket.
fn read_iperf(stdout: &[u8], excused: u64) -> Seen {
    let Ok(report) = serde_json::from_slice::<Value>(stdout) else {
        return Seen::broken("iperf3 gave no JSON");
    };
    if let Some(error) = report["error"].as_str() {
        let silent = error.contains("timed out") || error.contains("unable to connect");
        let verdict = if silent { Verdict::Silent } else { Verdict::Broken };
        return Seen::new(verdict, error);
    }
    let end = &report["end"];
    let udp = report["start"]["test_start"]["protocol"] == "UDP";
    let sum = if udp { &end["sum"] } else { &end["sum_received"] };
    let gbps = sum["bits_per_second"].as_f64().unwrap_or(0.0) / 1e9;
    let lost = if udp { sum["lost_packets"].as_u64().unwrap_or(u64::MAX) } else { 0 };
    let text = match (udp, lost) {
        (true, 0) => format!("{gbps:.2} Gb/s, none lost"),
        (true, _) => format!("{gbps:.2} Gb/s, {lost} lost, {excused} of them in the receiver's socket"),
        (false, _) => format!("{gbps:.2} Gb/s"),
    };
    let verdict = if lost <= excused && gbps > 0.0 { Verdict::Passed } else { Verdict::Broken };
    Seen { verdict, text, gbps: Some(gbps) }
}

fn traceroute(from: &Netns, target: IpAddr, expected: &[IpAddr]) -> Seen {
    let target = target.to_string();
    let output = match output(from, "traceroute", &["-n", "-q1", "-w1", "-m5", &target]) {
        Ok(output) => output,
        Err(seen) => return seen,
    };
    let hops = read_traceroute(&String::from_utf8_lossy(&output.stdout));
    let wanted: Vec<String> = expected.iter().map(IpAddr::to_string).collect();
    let verdict = if hops == wanted { Verdict::Passed } else { Verdict::Broken };
    Seen::new(verdict, hops.join(" > "))
}

/// Second column of every line but the heading.
fn read_traceroute(text: &str) -> Vec<String> {
    text.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1)).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ping_outputs_are_told_apart() {
        let passed = "3 packets transmitted, 3 received, 0% packet loss, time 202ms\n\
                      rtt min/avg/max/mdev = 0.030/0.036/0.043/0.005 ms";
        let seen = read_ping(passed);
        assert_eq!((seen.verdict, seen.text.as_str()), (Verdict::Passed, "0.036 ms"));
        let lost = read_ping("3 packets transmitted, 2 received, 33% packet loss, time 2ms");
        assert_eq!(lost.verdict, Verdict::Broken);
        let silent = read_ping("3 packets transmitted, 0 received, 100% packet loss, time 204ms");
        assert_eq!(silent.verdict, Verdict::Silent);
        let refused = read_ping(
            "From 10.0.30.1 icmp_seq=1 Packet filtered\n\
             3 packets transmitted, 0 received, +3 errors, 100% packet loss, time 204ms",
        );
        assert_eq!((refused.verdict, refused.text.as_str()), (Verdict::Refused, "packet filtered"));
        let nobody = read_ping(
            "From 10.0.30.100 icmp_seq=1 Destination Host Unreachable\n\
             3 packets transmitted, 0 received, +3 errors, 100% packet loss, time 204ms",
        );
        assert_eq!(nobody.verdict, Verdict::Broken);
    }

    #[test]
    fn iperf_errors_are_not_throughput() {
        let read = |text: &str, excused| read_iperf(text.as_bytes(), excused);
        assert_eq!(read("not json", 0).verdict, Verdict::Broken);
        let refused = r#"{"start":{},"error":"unable to connect to server: Connection timed out"}"#;
        assert_eq!(read(refused, 0).verdict, Verdict::Silent);
        let tcp =
            r#"{"start":{"test_start":{"protocol":"TCP"}},"end":{"sum_received":{"bits_per_second":2e9}}}"#;
        assert_eq!((read(tcp, 0).verdict, read(tcp, 0).gbps), (Verdict::Passed, Some(2.0)));
        let udp = r#"{"start":{"test_start":{"protocol":"UDP"}},
                      "end":{"sum":{"bits_per_second":1e8,"lost_packets":3}}}"#;
        assert_eq!(read(udp, 2).verdict, Verdict::Broken);
        assert_eq!(read(udp, 3).verdict, Verdict::Passed);
    }

    #[test]
    fn traceroute_lines_become_hops() {
        let text = "traceroute to 203.0.113.100 (203.0.113.100), 5 hops max\n 1  10.0.1.1  0.1 ms\n 2  *\n";
        assert_eq!(read_traceroute(text), ["10.0.1.1", "*"]);
    }
}
