//! What becomes of packets, as `sluice trace` and `sluice capture` tell it: real packets on both hooks, and nothing left
//! behind by an end of any kind.

use crate::common;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use common::{BINARY, Running, Site, accepted, bpftool, refused, stdout, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use sluice_lab::netns::Netns;
use sluice_lab::patience::patience;

/// Source NAT of IPv4 from left to right, and a policy that denies.
const RULES: &str = "\
set security nat source rule-set away from zone left
set security nat source rule-set away to zone right
set security nat source rule-set away rule hide match source-address 10.71.1.0/24
set security nat source rule-set away rule hide then source-nat interface
set security policies from-zone right to-zone left policy web match source-address any
set security policies from-zone right to-zone left policy web match destination-address any
set security policies from-zone right to-zone left policy web match application junos-http
set security policies from-zone right to-zone left policy web then deny
";

/// A command that tells of packets until it is ended.
pub(crate) struct Watch {
    child: Running,
    lines: Arc<Mutex<Vec<String>>>,
    words: Arc<Mutex<String>>,
}

impl Watch {
    pub(crate) fn new(site: &Site, arguments: &[&str]) -> Watch {
        let mut command = site.gateway.command(BINARY);
        command.args(arguments).arg("--state-dir").arg(site.state());
        let mut child = Running::spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
        let (lines, words) = (Arc::new(Mutex::new(vec![])), Arc::new(Mutex::new(String::new())));
        let (out, said) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let (to_lines, to_words) = (lines.clone(), words.clone());
        thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                to_lines.lock().unwrap().push(line);
            }
        });
        thread::spawn(move || {
            for line in BufReader::new(said).lines().map_while(Result::ok) {
                *to_words.lock().unwrap() += &format!("{line}\n");
            }
        });
        let watch = Watch { child, lines, words };
        let ready = || watch.words.lock().unwrap().contains("looking at packets");
        for _ in 0..3000 {
            if ready() {
                return watch;
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("{arguments:?} does not begin: {}", watch.words.lock().unwrap());
    }

    pub(crate) fn packets(&self) -> Vec<Value> {
        self.lines.lock().unwrap().iter().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The first packet that fits, once there is one.
    fn packet(&self, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        for _ in 0..500 {
            if let Some(found) = self.packets().into_iter().find(&fits) {
                return found;
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("{what} is not told: {:#?} {}", self.packets(), self.words.lock().unwrap());
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    /// Ended as by Ctrl-C; what it has said of it.
    fn end(mut self) -> String {
        self.signal(Signal::SIGINT);
        let status = self.child.wait().unwrap();
        thread::sleep(Duration::from_millis(50));
        let words = self.words.lock().unwrap().clone();
        assert!(status.success(), "{words}");
        words
    }
}

/// Ids of all programs in their places.
fn programs(site: &Site) -> [Value; 2] {
    ["programs_xdp", "programs_tc"].map(|map| {
        let pin = site.pins().join(map).display().to_string();
        bpftool(&["map", "dump", "pinned", &pin])
    })
}

/// Programs that wait for their places.
fn waiting(site: &Site) -> usize {
    fs::read_dir(site.pins().join("traced")).map_or(0, Iterator::count)
}

fn mode_of(mode: &str) -> String {
    format!("{RULES}set system services sluice mode {mode}\n")
}

fn started(site: &Site, mode: &str) -> PathBuf {
    // XDP redirects only to devices whose other end polls, and takes no checksums that are still to be made
    for host in [&site.left, &site.right] {
        host.run("ethtool", ["-K", "eth0", "gro", "on", "tx", "off"]).unwrap();
    }
    site.write("a.conf", &mode_of(mode))
}

fn place(configuration: &Path, words: &str) -> String {
    let text = fs::read_to_string(configuration).unwrap();
    let line = 1 + text.lines().position(|line| line.contains(words)).unwrap();
    format!("{}:{line}", configuration.display())
}

fn socket(netns: &Netns, address: &str) -> UdpSocket {
    netns.enter(|| UdpSocket::bind(address)).unwrap().unwrap()
}

/// One UDP datagram from a new socket.
fn datagram(from: &Netns, address: &str, to: &str) {
    socket(from, address).send_to(b"x", to).unwrap();
}

fn phases(packet: &Value) -> Vec<&str> {
    packet["phases"].as_array().unwrap().iter().map(|phase| phase["phase"].as_str().unwrap()).collect()
}

fn notes(packet: &Value, phase: &str) -> String {
    let all = packet["phases"].as_array().unwrap().iter().filter(|found| found["phase"] == phase);
    all.flat_map(|phase| phase["notes"].as_array().unwrap())
        .map(|note| note.as_str().unwrap())
        .collect::<Vec<_>>()
        .join("; ")
}

fn to_port(port: u16) -> impl Fn(&Value) -> bool {
    move |packet| packet["packet"]["destination_port"] == port
}

fn packets_are_told(mode: &str) {
    let site = Site::new("trace");
    let configuration = started(&site, mode);
    let _gateway = site.start(&configuration);
    wait_until("neighbours", Duration::from_secs(10), || {
        site.pings(&site.left, "10.71.2.2") && site.pings(&site.left, "fd71:2::2")
    });
    let own = programs(&site);
    let hook = if mode == "tc" { "tc" } else { "xdp" };
    let watch = Watch::new(&site, &["trace", "--json", "--count", "100000"]);
    assert_ne!(programs(&site), own);

    // a permitted first packet, and one of its session
    let receiver = socket(&site.right, "[fd71:2::2]:5001");
    let sender = socket(&site.left, "[fd71:1::2]:4001");
    sender.send_to(b"first", "[fd71:2::2]:5001").unwrap();
    let first = watch.packet("a first packet", to_port(5001));
    let text = |packet: &Value, name: &str| packet[name].as_str().unwrap_or("-").to_owned();
    let told =
        ["hook", "interface", "from_zone", "to_zone", "verdict", "policy", "out_interface", "next_hop"];
    assert_eq!(
        told.map(|name| text(&first, name)),
        [hook, "left0.0", "left", "right", "forwarded", "out", "right0.0", "fd71:2::2"],
        "{first:#}"
    );
    assert_eq!(phases(&first), ["admit", "judge", "record", "leave"], "{first:#}");
    assert_eq!(first["place"], place(&configuration, "policy out"), "{first:#}");
    assert!(notes(&first, "judge").contains(") permits"), "{first:#}");
    let session = first["session"].as_u64().unwrap();
    assert_eq!(notes(&first, "record"), format!("session {session} recorded"));
    assert_eq!(first["leaves_as"], Value::Null, "{first:#}");
    receiver.recv(&mut [0; 9]).unwrap();
    sender.send_to(b"second packet", "[fd71:2::2]:5001").unwrap();
    let second = watch.packet("an established packet", |p| to_port(5001)(p) && phases(p) == ["fast"]);
    assert_eq!(
        (&second["session"], &second["verdict"]),
        (&session.into(), &"forwarded".into()),
        "{second:#}"
    );
    assert_eq!(
        told[5..].iter().map(|name| text(&second, name)).collect::<Vec<_>>(),
        ["out", "right0.0", "fd71:2::2"],
        "{second:#}"
    );
    assert_eq!(second["place"], first["place"]);

    // translated, and its answer, which is translated back
    let receiver = socket(&site.right, "10.71.2.2:5002");
    let sender = socket(&site.left, "10.71.1.2:4002");
    sender.send_to(b"hello", "10.71.2.2:5002").unwrap();
    let away = watch.packet("a translated packet", to_port(5002));
    assert_eq!(
        (&away["packet"]["source"], &away["leaves_as"]["source"]),
        (&"10.71.1.2".into(), &"10.71.2.1".into()),
        "{away:#}"
    );
    assert_eq!(away["nat_source_rule"], "away hide", "{away:#}");
    let (_, back) = receiver.recv_from(&mut [0; 9]).unwrap();
    assert_eq!(away["leaves_as"]["source_port"], back.port());
    receiver.send_to(b"answer", back).unwrap();
    let answer = watch.packet("its answer", |p| p["packet"]["source_port"] == 5002);
    assert_eq!(
        (&answer["leaves_as"]["destination"], &answer["session"]),
        (&"10.71.1.2".into(), &away["session"]),
        "{answer:#}"
    );

    // denied by a rule, and by none
    let connect =
        site.right.command("timeout").args(["0.5", "bash", "-c", "exec 3<>/dev/tcp/10.71.1.2/80"]).status();
    assert!(!connect.unwrap().success());
    let denied = watch.packet("a denied packet", to_port(80));
    assert_eq!(
        (&denied["verdict"], &denied["reason"], &denied["policy"]),
        (&"dropped".into(), &"policy_deny".into(), &"web".into()),
        "{denied:#}"
    );
    assert_eq!(denied["place"], place(&configuration, "policy web"), "{denied:#}");
    assert_eq!(phases(&denied), ["admit", "judge", "leave"], "{denied:#}");
    assert!(notes(&denied, "judge").contains(") denies"), "{denied:#}");
    assert_eq!(denied["packet"]["tcp_flags"], "syn");
    datagram(&site.right, "[fd71:2::2]:4003", "[fd71:1::2]:5003");
    let unmatched = watch.packet("a packet without a policy", to_port(5003));
    assert_eq!(
        (&unmatched["reason"], &unmatched["policy"]),
        (&"policy_default".into(), &"default-policy".into()),
        "{unmatched:#}"
    );

    // for this host, admitted and not, and of this host
    assert!(site.pings(&site.left, "10.71.1.1"));
    let host = watch.packet("a packet for the host", |p| p["packet"]["destination"] == "10.71.1.1");
    assert_eq!((&host["verdict"], &host["to_zone"]), (&"delivered".into(), &"junos-host".into()), "{host:#}");
    assert!(notes(&host, "judge").contains("for this host"), "{host:#}");
    assert!(site.silent(&site.right, "10.71.2.1"));
    let refused = watch.packet("a packet that the host refuses", |p| p["reason"] == "host_inbound");
    assert_eq!((&refused["verdict"], &refused["stage"]), (&"dropped".into(), &"local".into()), "{refused:#}");
    assert!(site.pings(&site.gateway, "10.71.2.2"));
    let mine = watch.packet("a packet of the host", |p| {
        p["hook"] == "egress" && p["packet"]["destination"] == "10.71.2.2"
    });
    assert_eq!(
        (&mine["verdict"], &mine["from_zone"], &mine["out_interface"]),
        (&"sent".into(), &"junos-host".into(), &"right0.0".into()),
        "{mine:#}"
    );

    assert!(watch.end().contains(" packets"), "it says how many");
    assert_eq!((programs(&site), waiting(&site)), (own, 0));
    assert!(site.pings(&site.left, "10.71.2.2"));
}

#[test]
fn packets_are_told_on_tc() {
    packets_are_told("tc");
}

#[test]
fn packets_are_told_on_xdp() {
    packets_are_told("xdp");
}

fn filters_leave_others_out(mode: &str) {
    let site = Site::new("tracef");
    let _gateway = site.start(&started(&site, mode));
    wait_until("neighbours", Duration::from_secs(10), || site.pings(&site.left, "10.71.2.2"));
    let told = |arguments: &[&str], expected: &[u16]| {
        let watch = Watch::new(&site, &[&["trace", "--json", "--count", "1000"], arguments].concat());
        for (from, to) in [
            ("10.71.1.2:4011", "10.71.2.2:5011"),
            ("10.71.1.2:4012", "10.71.2.2:5012"),
            ("[fd71:1::2]:4013", "[fd71:2::2]:5013"),
        ] {
            datagram(&site.left, from, to);
        }
        datagram(&site.right, "10.71.2.2:4014", "10.71.1.2:5014");
        if let Some(last) = expected.last() {
            watch.packet("the last one", to_port(*last));
        }
        thread::sleep(Duration::from_millis(200));
        let mut ports: Vec<u64> =
            watch.packets().iter().filter_map(|p| p["packet"]["destination_port"].as_u64()).collect();
        ports.retain(|port| (5011..5015).contains(port));
        ports.dedup();
        watch.end();
        assert_eq!(ports, expected.iter().map(|port| u64::from(*port)).collect::<Vec<_>>(), "{arguments:?}");
    };
    told(&["--port", "5012"], &[5012]);
    told(&["--destination-port", "5011", "--protocol", "udp"], &[5011]);
    told(&["--source-port", "4012"], &[5012]);
    told(&["--prefix", "fd71:1::/64"], &[5013]);
    told(
        &["--source-prefix", "10.71.1.2", "--destination-prefix", "10.71.2.0/24", "--protocol", "17"],
        &[5011, 5012, 5014],
    );
    told(&["--interface", "right0"], &[5014]);
    told(&["--zone", "left"], &[5011, 5012, 5013]);
    told(&["--drops", "--protocol", "udp"], &[5014]);
    // what it is translated to fits as well
    told(&["--prefix", "10.71.2.1", "--port", "5011"], &[5011]);
}

#[test]
fn filters_leave_others_out_on_tc() {
    filters_leave_others_out("tc");
}

#[test]
fn filters_leave_others_out_on_xdp() {
    filters_leave_others_out("xdp");
}

fn captures_are_read_by_others(mode: &str) {
    let site = Site::new("capture");
    let configuration = started(&site, mode);
    let _gateway = site.start(&configuration);
    wait_until("neighbours", Duration::from_secs(10), || site.pings(&site.left, "10.71.2.2"));
    let file = site.dir().join("c.pcapng");
    let _receiver = socket(&site.right, "10.71.2.2:5021");
    let watch = Watch::new(&site, &["capture", "--protocol", "udp", "-w", file.to_str().unwrap()]);
    datagram(&site.left, "10.71.1.2:4021", "10.71.2.2:5021");
    datagram(&site.right, "10.71.2.2:4022", "10.71.1.2:5022");
    let read = || {
        let fields = [
            "frame.interface_name",
            "ip.src",
            "udp.dstport",
            "frame.packet_flags_direction",
            "frame.comment",
        ];
        let mut command = Command::new("tshark");
        command.args(["-r", file.to_str().unwrap(), "-T", "fields", "-E", "separator=|"]);
        command.args(fields.iter().flat_map(|field| ["-e", field]));
        stdout(&command.output().unwrap())
    };
    wait_until("three frames", Duration::from_secs(20), || read().lines().count() >= 3);
    watch.end();
    let rows = read();
    let rows: Vec<Vec<&str>> = rows.lines().map(|line| line.split('|').collect()).collect();
    assert_eq!(rows.len(), 3, "{rows:?}");
    assert_eq!(rows[0][..3], ["left0.0", "10.71.1.2", "5021"], "{rows:?}");
    assert_eq!(rows[1][..3], ["right0.0", "10.71.2.1", "5021"], "as it left: {rows:?}");
    assert_eq!(rows[2][..3], ["right0.0", "10.71.2.2", "5022"], "{rows:?}");
    assert_ne!(rows[0][3], rows[1][3], "inbound and outbound: {rows:?}");
    assert_eq!(rows[0][4], rows[1][4]);
    assert!(rows[0][4].starts_with("forwarded on right0.0 to 10.71.2.2 as 10.71.2.1:"), "{rows:?}");
    let out = format!("policy out ({})", place(&configuration, "policy out"));
    assert!(rows[0][4].contains(&out) && rows[0][4].ends_with("source NAT rule away hide"), "{rows:?}");
    assert_eq!(rows[2][4], "dropped: policy_default, default-policy", "{rows:?}");

    // drops alone, and a line a packet
    let watch = Watch::new(&site, &["capture", "--protocol", "udp", "--drops"]);
    datagram(&site.left, "10.71.1.2:4023", "10.71.2.2:5021");
    datagram(&site.right, "10.71.2.2:4024", "10.71.1.2:5024");
    wait_until("a drop", Duration::from_secs(5), || !watch.lines.lock().unwrap().is_empty());
    thread::sleep(Duration::from_millis(200));
    let lines = watch.lines.lock().unwrap().clone();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(
        lines[0].contains("udp 10.71.2.2:4024 > 10.71.1.2:5024")
            && lines[0].ends_with(": dropped: policy_default, default-policy"),
        "{lines:?}"
    );
    watch.end();
}

#[test]
fn captures_are_read_by_others_on_tc() {
    captures_are_read_by_others("tc");
}

#[test]
fn captures_are_read_by_others_on_xdp() {
    captures_are_read_by_others("xdp");
}

/// Traces begin, end and are killed while echo requests come every few milliseconds: none is lost.
#[test]
fn packets_go_on_while_traces_come_and_go() {
    for mode in ["tc", "xdp"] {
        let site = Site::new("tracego");
        let _gateway = site.start(&started(&site, mode));
        wait_until("neighbours", Duration::from_secs(10), || site.pings(&site.left, "fd71:2::2"));
        let own = programs(&site);
        let mut ping = site.left.command("ping");
        ping.args(["-n", "-i", "0.005", "-W", "5", "fd71:2::2"]).stdout(Stdio::piped());
        let mut ping = Running::spawn(&mut ping);
        for _ in 0..3 {
            let watch = Watch::new(&site, &["trace", "--count", "100000"]);
            wait_until("packets", Duration::from_secs(5), || !watch.lines.lock().unwrap().is_empty());
            watch.end();
            assert_eq!((programs(&site), waiting(&site)), (own.clone(), 0), "{mode}");
        }
        let watch = Watch::new(&site, &["trace", "--count", "100000"]);
        let second = refused(&site.sluice(&["trace"]), 1);
        assert!(second.contains("one can at a time"), "{second}");
        watch.signal(Signal::SIGKILL);
        // the daemon puts the gateway's own back
        wait_until("the gateway's programs", patience(Duration::from_secs(5)), || programs(&site) == own);
        wait_until("nothing left", Duration::from_secs(5), || waiting(&site) == 0);
        // it may be seen again
        Watch::new(&site, &["trace", "--count", "100000"]).end();
        kill(Pid::from_raw(ping.id() as i32), Signal::SIGINT).unwrap();
        let mut said = String::new();
        ping.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(said.contains(" 0% packet loss"), "{mode}: {said}");
    }
}

/// Packets are told by the commit that judged them, with its names; the daemon need not be there.
#[test]
fn a_trace_goes_on_over_commits_and_without_a_daemon() {
    let site = Site::new("tracec");
    let mut gateway = site.start(&started(&site, "tc"));
    wait_until("neighbours", Duration::from_secs(10), || site.pings(&site.left, "fd71:2::2"));
    let watch = Watch::new(&site, &["trace", "--json", "--protocol", "udp", "--count", "100000"]);
    for number in 0..3_u16 {
        let more = format!(
            "{}set security policies from-zone right to-zone left policy p{number} match source-address any destination-address any application any\n\
             set security policies from-zone right to-zone left policy p{number} then deny\n",
            mode_of("tc")
        );
        accepted(&site.commit(&site.write("b.conf", &more)));
        let port = 5030 + number;
        let name = format!("p{number}");
        let told = || {
            datagram(&site.right, &format!("10.71.2.2:{}", 4030 + number), &format!("10.71.1.2:{port}"));
            thread::sleep(Duration::from_millis(100));
            watch.packets().iter().any(|p| to_port(port)(p) && p["policy"] == name.as_str())
        };
        wait_until(&name, patience(Duration::from_secs(10)), told);
    }
    watch.end();
    let own = programs(&site);
    gateway.kill().unwrap();
    let watch = Watch::new(&site, &["trace", "--json", "--port", "5040", "--count", "1"]);
    datagram(&site.right, "10.71.2.2:4040", "10.71.1.2:5040");
    let told = watch.packet("a packet", to_port(5040));
    assert_eq!((&told["policy"], &told["reason"]), (&"p2".into(), &"policy_deny".into()), "{told:#}");
    let mut child = watch.child;
    assert!(child.wait().unwrap().success(), "it ends with its last packet");
    assert_eq!((programs(&site), waiting(&site)), (own, 0));
}

#[test]
fn a_trace_ends_with_its_gateway() {
    let site = Site::new("tracee");
    let mut gateway = site.start(&started(&site, "xdp"));
    let mut watch = Watch::new(&site, &["trace", "--count", "100000"]);
    gateway.kill().unwrap();
    accepted(&site.sluice(&["cleanup"]));
    assert_eq!(watch.child.wait().unwrap().code(), Some(1));
    wait_until("its words", Duration::from_secs(5), || {
        watch.words.lock().unwrap().contains("state was put away meanwhile")
    });
    assert!(!site.pins().exists());
}

#[test]
fn what_is_wrong_is_told() {
    let site = Site::new("tracew");
    let none = refused(&site.sluice(&["trace"]), 1);
    assert!(none.contains("there is no gateway to trace"), "{none}");
    let _gateway = site.start(&site.write("a.conf", ""));
    for (arguments, code, expected) in [
        (&["trace", "--prefix", "10.0.0.0/40"][..], 2, "10.0.0.0/40: expected an address or a prefix"),
        (&["trace", "--protocol", "smoke"], 2, "protocol smoke"),
        (&["trace", "--zone", "nowhere"], 2, "zone nowhere is not configured"),
        (&["trace", "--interface", "eth9"], 2, "interface eth9.0 is not in any zone"),
        (&["trace", "--port", "0"], 2, "port 0"),
        (&["trace", "--port", "70000"], 2, "70000 is not in 0..=65535"),
        (&["trace", "--count", "many"], 2, "many"),
        (&["capture", "--snaplen", "1"], 2, "1 is not in 64..="),
        (&["capture", "-w", "/nowhere/c.pcapng"], 2, "cannot write /nowhere/c.pcapng"),
    ] {
        let said = refused(&site.sluice(arguments), code);
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
    // the kernel's, and so ours
    let mut command = site.gateway.command("setpriv");
    command
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", BINARY, "trace", "--state-dir"])
        .arg(site.state());
    let said = command.output().unwrap();
    if said.status.code() != Some(127) {
        assert!(refused(&said, 1).contains("only root may look at packets"));
    }
    assert_eq!(waiting(&site), 0);
}

#[test]
fn the_shell_shows_packets() {
    let site = Site::new("tracesh");
    let _gateway = site.start(&started(&site, "tc"));
    wait_until("neighbours", Duration::from_secs(10), || site.pings(&site.left, "fd71:2::2"));
    let mut command = site.gateway.command(BINARY);
    command
        .args(["cli", "-c", "monitor security packet-trace protocol udp port 5050 count 1", "--state-dir"])
        .arg(site.state());
    let mut child = Running::spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    while child.try_wait().unwrap().is_none() {
        datagram(&site.left, "[fd71:1::2]:4050", "[fd71:2::2]:5050");
        thread::sleep(Duration::from_millis(50));
    }
    let output = child.ended("the shell", Duration::from_secs(10));
    let told = accepted(&output);
    assert!(
        told.contains("udp [fd71:1::2]:4050 > [fd71:2::2]:5050") && told.contains("forwarded on right0.0"),
        "{told}"
    );
    let wrong = site.sluice(&["cli", "-c", "monitor security packet-capture prefix 10.0.0.0/40"]);
    assert_eq!(wrong.status.code(), Some(1), "{}", stdout(&wrong));
}
