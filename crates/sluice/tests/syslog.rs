//! `security log`: rsyslog, with its own parser of structured data, says what collectors get; collectors that go away, and
//! one that never reads, say what is kept and what is counted.

use crate::common;

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{Running, Site, accepted, wait_until};
use serde_json::Value;
use sluice_lab::gateway::Gateway;

pub const PATIENCE: Duration = Duration::from_secs(20);

pub const LOGGED: &str = "\
set system host-name gw
set security policies from-zone left to-zone right policy out then log session-init
set security policies from-zone left to-zone right policy out then log session-close
set security policies global policy rest match source-address any
set security policies global policy rest match destination-address any
set security policies global policy rest match application any
set security policies global policy rest then deny
set security policies global policy rest then log session-init
set security nat source rule-set out from zone left
set security nat source rule-set out to zone right
set security nat source rule-set out rule hide match source-address 10.71.1.0/24
set security nat source rule-set out rule hide then source-nat interface
";

/// rsyslogd on the right host, which writes what its parser has understood, an object a message.
pub struct Collector<'a> {
    site: &'a Site,
    process: Option<Running>,
}

impl<'a> Collector<'a> {
    pub fn start(site: &'a Site, inputs: &str) -> Self {
        let mut collector = Self { site, process: None };
        fs::write(collector.path("rsyslog.conf"), collector.configuration(inputs)).unwrap();
        collector.again();
        collector
    }

    fn path(&self, name: &str) -> PathBuf {
        self.site.dir().join(name)
    }

    fn configuration(&self, inputs: &str) -> String {
        let dir = self.site.dir().display();
        let ruleset = |name: &str| {
            format!(
                "ruleset(name=\"{name}\") {{ action(type=\"mmpstrucdata\" sd_name.lowercase=\"off\")\n\
                 action(type=\"omfile\" file=\"{dir}/{name}.json\" template=\"judged\") }}\n"
            )
        };
        let quoted = |field: &str, property: &str| {
            format!(
                "constant(value=\"\\\"{field}\\\":\\\"\") property(name=\"{property}\" format=\"json\") constant(value=\"\\\",\")\n"
            )
        };
        [
            format!("global(workDirectory=\"{dir}\" net.enableDNS=\"off\" defaultNetstreamDriverCAFile=\"{dir}/ca.pem\"\n"),
            format!("defaultNetstreamDriverCertFile=\"{dir}/leaf.pem\" defaultNetstreamDriverKeyFile=\"{dir}/leaf.key\")\n"),
            "module(load=\"mmpstrucdata\")\nmodule(load=\"imudp\")\nmodule(load=\"imptcp\")\n".to_owned(),
            "module(load=\"imtcp\" StreamDriver.Name=\"ossl\" StreamDriver.Mode=\"1\" StreamDriver.AuthMode=\"anon\")\n".to_owned(),
            "template(name=\"judged\" type=\"list\") { constant(value=\"{\")\n".to_owned(),
            quoted("pri", "pri"),
            quoted("host", "hostname"),
            quoted("app", "app-name"),
            quoted("event", "msgid"),
            quoted("text", "msg"),
            "constant(value=\"\\\"sd\\\":\") property(name=\"$!rfc5424-sd\") constant(value=\"}\\n\") }\n".to_owned(),
            ruleset("udp"),
            ruleset("tcp"),
            ruleset("tls"),
            inputs.to_owned(),
        ]
        .concat()
    }

    /// Messages as its parser has understood them, by input.
    pub fn all(&self, input: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.path(&format!("{input}.json"))).unwrap_or_default();
        // nothing stands for structured data that is not there, and the last line may be under way
        let lines = text.lines().map(|line| line.replace("\"sd\":}", "\"sd\":null}"));
        lines.filter_map(|line| serde_json::from_str(&line).ok()).collect()
    }
}

impl Judge for Collector<'_> {
    fn again(&mut self) {
        let mut command = self.site.right.command("rsyslogd");
        command.arg("-n").arg("-i").arg(self.path("rsyslog.pid"));
        command.arg("-f").arg(self.path("rsyslog.conf")).stdin(Stdio::null()).stderr(Stdio::inherit());
        self.process = Some(Running::spawn(&mut command));
        let listens = || self.site.right.run("ss", ["-Hltun"]).unwrap().contains("10.71.2.2:");
        wait_until("rsyslogd listens", PATIENCE, listens);
    }

    fn end(&mut self) {
        let mut process = self.process.take().unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
    }

    fn messages(&self, input: &str, event: &str) -> Vec<BTreeMap<String, String>> {
        let all = self.all(input);
        let of_event = all.iter().filter(|message| message["event"] == event);
        of_event
            .map(|message| {
                assert_eq!((&message["pri"], &message["host"]), (&"14".into(), &"gw".into()), "{message}");
                serde_json::from_value(message["sd"]["sluice@32473"].clone()).unwrap()
            })
            .collect()
    }
}

/// Certificates of the collector at 10.71.2.2, and of who has signed them.
pub fn certificates(dir: &Path) {
    let script = "\
        new='-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes'\n\
        openssl req -x509 $new -keyout ca.key -out ca.pem -subj /CN=signer -days 2\n\
        openssl req $new -keyout leaf.key -out leaf.csr -subj /CN=collector\n\
        echo subjectAltName=IP:10.71.2.2 >leaf.ext\n\
        openssl x509 -req -in leaf.csr -CA ca.pem -CAkey ca.key -out leaf.pem -days 2 -extfile leaf.ext\n";
    let done = Command::new("bash").args(["-ec", script]).current_dir(dir).output().unwrap();
    assert!(done.status.success(), "{done:?}");
}

/// A stream to the right host that is named like its transport.
pub fn stream_to(transport: &str) -> String {
    let port = if transport == "tcp" { "set security log stream tcp host port 601\n" } else { "" };
    format!(
        "set security log stream {transport} host 10.71.2.2\n{port}\
         set security log stream {transport} transport protocol {transport}\n"
    )
}

/// One connection from left to port 80 of right and back; gives the port it came from, on either side.
pub fn connects(site: &Site) -> (u16, u16) {
    let listener = site.right.enter(|| TcpListener::bind("10.71.2.2:80").unwrap()).unwrap();
    let client = site.left.enter(|| TcpStream::connect("10.71.2.2:80").unwrap()).unwrap();
    let (server, seen) = listener.accept().unwrap();
    let own = client.local_addr().unwrap().port();
    drop((client, server));
    (own, seen.port())
}

/// First packets that the policy `rest` denies and logs.
pub fn denied(site: &Site, count: u32) {
    site.right
        .enter(|| {
            let socket = UdpSocket::bind("10.71.2.2:0").unwrap();
            for number in 0..count {
                let port = 10_000 + number % 40_000;
                socket.send_to(b"x", ("10.71.1.2", port as u16)).unwrap();
            }
        })
        .unwrap();
}

pub fn output(gateway: &Gateway, name: &str) -> Value {
    let stats = gateway.json("/api/stats").unwrap();
    let outputs = stats["log_outputs"].as_array().unwrap();
    outputs.iter().find(|output| output["name"] == name).cloned().unwrap_or_default()
}

pub fn count(gateway: &Gateway, name: &str, field: &str) -> u64 {
    output(gateway, name)[field].as_u64().unwrap_or(0)
}

/// What the daemon itself tells of an event.
pub fn told(gateway: &Gateway, event: &str) -> Vec<BTreeMap<String, String>> {
    let log = gateway.json("/api/log?last=1000").unwrap();
    let entries = log.as_array().unwrap().iter().filter(|entry| entry["event"] == event);
    let fields = |entry: &Value| {
        let pairs: Vec<(String, String)> = serde_json::from_value(entry["fields"].clone()).unwrap();
        pairs.into_iter().collect()
    };
    entries.map(fields).collect()
}

pub fn has(message: &BTreeMap<String, String>, fields: &[(&str, &str)]) {
    for (name, value) in fields {
        assert_eq!(message.get(*name).map(String::as_str), Some(*value), "{name} of {message:?}");
    }
}

#[test]
fn collectors_by_udp_tcp_and_tls_and_a_file_get_every_field() {
    let site = Site::new("syslog");
    certificates(site.dir());
    let collector = Collector::start(
        &site,
        "input(type=\"imudp\" port=\"514\" address=\"10.71.2.2\" ruleset=\"udp\")\n\
         input(type=\"imptcp\" port=\"601\" address=\"10.71.2.2\" ruleset=\"tcp\")\n\
         input(type=\"imtcp\" port=\"6514\" address=\"10.71.2.2\" ruleset=\"tls\")\n",
    );
    let streams = format!(
        "{streams}set security log stream tls transport ca-file {dir}/ca.pem\n\
         set security log source-address 10.71.2.1\n\
         set security log file name sessions\nset security log file path {dir}\n",
        streams = ["udp", "tcp", "tls"].map(stream_to).concat(),
        dir = site.dir().display()
    );
    let gateway = site.start(&site.write("a.conf", &format!("{LOGGED}{streams}")));
    let (own, seen) = connects(&site);
    assert!(site.pings(&site.left, "10.71.2.2"));
    denied(&site, 1);
    // not those of the host itself, by which the log travels
    accepted(&site.sluice(&["clear", "sessions", "--source-prefix", "10.71.1.0/24"]));

    for input in ["udp", "tcp", "tls"] {
        let all = || {
            let of = |event: &str| collector.messages(input, event).len();
            of("RT_FLOW_SESSION_CREATE") >= 2
                && of("RT_FLOW_SESSION_CLOSE") >= 2
                && of("RT_FLOW_SESSION_DENY") >= 1
        };
        wait_until(&format!("{input} has come"), PATIENCE, all);
        for event in ["RT_FLOW_SESSION_CREATE", "RT_FLOW_SESSION_CLOSE", "RT_FLOW_SESSION_DENY"] {
            assert_eq!(collector.messages(input, event), told(&gateway, event), "{input} {event}");
        }
    }
    let (own, seen) = (own.to_string(), seen.to_string());
    let translated = [
        ("source-address", "10.71.1.2"),
        ("source-port", &*own),
        ("destination-address", "10.71.2.2"),
        ("destination-port", "80"),
        ("service-name", "junos-http"),
        ("nat-source-address", "10.71.2.1"),
        ("nat-source-port", &*seen),
        ("nat-destination-address", "10.71.2.2"),
        ("nat-destination-port", "80"),
        ("src-nat-rule-type", "source rule"),
        ("src-nat-rule-name", "hide"),
        ("dst-nat-rule-type", "N/A"),
        ("dst-nat-rule-name", "N/A"),
        ("protocol-id", "6"),
        ("policy-name", "out"),
        ("source-zone-name", "left"),
        ("destination-zone-name", "right"),
        ("application", "UNKNOWN"),
        ("packet-incoming-interface", "left0.0"),
    ];
    for event in ["RT_FLOW_SESSION_CREATE", "RT_FLOW_SESSION_CLOSE"] {
        let messages = collector.messages("tls", event);
        has(messages.iter().find(|m| m["protocol-id"] == "6").unwrap(), &translated);
        // the identifier stands at the side that asks, and nothing at the other
        let ping = messages.iter().find(|m| m["protocol-id"] == "1").unwrap();
        has(ping, &[("destination-port", "0"), ("service-name", "icmp"), ("nat-destination-port", "0")]);
        assert_ne!(ping["source-port"], "0");
    }
    let none = [("policy-name", "rest"), ("destination-port", "10000"), ("reason", "Denied by policy")];
    has(&collector.messages("tls", "RT_FLOW_SESSION_DENY")[0], &none);
    let lines = fs::read_to_string(site.dir().join("sessions")).unwrap();
    assert_eq!(lines.lines().count() as u64, count(&gateway, "sessions", "sent"));
    assert!(lines.lines().all(|line| line.starts_with("<14>1 ") && line.ends_with("\"]")), "{lines}");
    let metrics = gateway.get("/metrics").unwrap();
    assert!(metrics.contains("sluice_log_sent_total{output=\"tls\",transport=\"tls\"}"), "{metrics}");

    // A commit that leaves the streams alone leaves them running; beyond the rate entries are counted instead of sent.
    let sent = count(&gateway, "tcp", "sent");
    let capped = format!("{LOGGED}{streams}set security log rate-cap 10\n");
    accepted(&site.commit(&site.write("b.conf", &capped)));
    assert!(count(&gateway, "tcp", "sent") >= sent && sent > 0);
    denied(&site, 500);
    let left_out = || collector.messages("tcp", "RT_LOG_LEFT_OUT");
    wait_until("the collector is told", PATIENCE, || !left_out().is_empty());
    let told: u64 = left_out().iter().map(|message| message["count"].parse::<u64>().unwrap()).sum();
    has(&left_out()[0], &[("cause", "rate")]);
    assert!(told >= 400 && count(&gateway, "tcp", "lost_rate") >= told, "{told}");
}

/// A collector that writes down what it has understood.
pub trait Judge {
    /// It listens, from here on or again.
    fn again(&mut self);
    /// It dies.
    fn end(&mut self);
    /// Fields of the messages that it has understood, by input and event.
    fn messages(&self, input: &str, event: &str) -> Vec<BTreeMap<String, String>>;
}

/// What is sent by TCP while the collector is away comes when it is back.
pub fn misses_nothing<J: Judge>(site: &Site, gateway: &Gateway, collector: &mut J) {
    let arrived = |collector: &J| collector.messages("tcp", "RT_FLOW_SESSION_DENY").len();
    denied(site, 5);
    wait_until("the first have come", PATIENCE, || arrived(collector) == 5);
    collector.end();
    denied(site, 300);
    wait_until("the gateway has noticed", PATIENCE, || !output(gateway, "tcp")["error"].is_null());
    assert_eq!(arrived(collector), 5);
    collector.again();
    wait_until("all have come", PATIENCE, || arrived(collector) == 305);
    assert_eq!(count(gateway, "tcp", "lost_full"), 0);
}

#[test]
fn what_a_collector_misses_comes_when_it_is_back() {
    let site = Site::new("sysback");
    certificates(site.dir());
    let input = "input(type=\"imptcp\" port=\"601\" address=\"10.71.2.2\" ruleset=\"tcp\")\n";
    let mut collector = Collector::start(&site, input);
    let stream = stream_to("tcp");
    let gateway = site.start(&site.write("a.conf", &format!("{LOGGED}{stream}")));
    misses_nothing(&site, &gateway, &mut collector);
    wait_until("no error is left", PATIENCE, || output(&gateway, "tcp")["error"].is_null());
}

/// Messages of a stream, each behind its length (RFC 6587 3.4.1); the last one may be under way.
fn frames(mut stream: &[u8]) -> Vec<&str> {
    let mut frames = vec![];
    while let Some(space) = stream.iter().position(|byte| *byte == b' ') {
        let length: usize = std::str::from_utf8(&stream[..space]).unwrap().parse().unwrap();
        let Some(frame) = stream.get(space + 1..space + 1 + length) else { break };
        frames.push(std::str::from_utf8(frame).unwrap());
        stream = &stream[space + 1 + length..];
    }
    frames
}

#[test]
fn a_collector_that_never_reads_holds_nobody_up() {
    const FLOOD: u32 = 60_000;
    let site = Site::new("sysstuck");
    let listener = site.right.enter(|| TcpListener::bind("10.71.2.2:601").unwrap()).unwrap();
    let stream = stream_to("tcp");
    let gateway = site.start(&site.write("a.conf", &format!("{LOGGED}{stream}")));
    denied(&site, 1);
    let (mut stuck, _) = listener.accept().unwrap();
    denied(&site, FLOOD);
    // what a busy machine does not read in time is lost before it
    wait_until("the buffer is full", PATIENCE, || {
        let is_full = count(&gateway, "tcp", "lost_full") > 0;
        if !is_full {
            denied(&site, FLOOD / 10);
        }
        is_full
    });
    assert!(accepted(&site.sluice(&["show", "log", "--last", "1"])).contains("RT_FLOW_SESSION_DENY"));

    // Once it reads, it gets what has waited, and is told of the rest.
    stuck.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let (mut stream, mut chunk) = (vec![], vec![0; 1 << 20]);
    let mut read = |stream: &mut Vec<u8>| {
        while let Ok(count @ 1..) = stuck.read(&mut chunk) {
            stream.extend_from_slice(&chunk[..count]);
        }
    };
    wait_until("all that has waited has come", Duration::from_secs(60), || {
        read(&mut stream);
        count(&gateway, "tcp", "waiting_bytes") == 0
    });
    denied(&site, 1);
    let notice = |stream: &[u8]| {
        frames(stream).into_iter().find(|frame| frame.contains("RT_LOG_LEFT_OUT")).map(str::to_owned)
    };
    wait_until("it is told", PATIENCE, || {
        read(&mut stream);
        notice(&stream).is_some()
    });
    let lost = count(&gateway, "tcp", "lost_full");
    let told = notice(&stream).unwrap();
    assert!(told.contains(&format!("cause=\"full\" count=\"{lost}\"")), "{told}, lost {lost}");
    // each event is in the stream, or counted: by the output, or before it by the data plane
    let policies = gateway.json("/api/policies").unwrap();
    let rest = policies.as_array().unwrap().iter().find(|policy| policy["name"] == "rest").unwrap().clone();
    let stats = gateway.json("/api/stats").unwrap();
    let units = stats["interfaces"].as_array().unwrap().iter();
    let unread: u64 = units.map(|unit| unit["counters"]["events_lost"].as_u64().unwrap()).sum();
    let came = |stream: &[u8]| frames(stream).iter().filter(|f| f.contains("RT_FLOW_SESSION_DENY")).count();
    wait_until("the last one has come", PATIENCE, || {
        read(&mut stream);
        came(&stream) as u64 + lost + unread == rest["denied"].as_u64().unwrap()
    });
}
