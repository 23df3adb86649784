//! The session log as syslog-ng reads it: another parser of RFC 5424 than rsyslog's, and another one of its framing (RFC 6587,
//! RFC 5425).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::common::{Running, Site, accepted, wait_until};
use crate::syslog::{
    Judge, LOGGED, PATIENCE, certificates, connects, denied, has, misses_nothing, stream_to, told,
};

/// Structured data and what stands before it, an object a message.
const TEMPLATE: &str = "$(format-json pri=$PRI version=1 host=$HOST app=$PROGRAM pid=$PID event=$MSGID text=$MSG stamp=$S_ISODATE --key .SDATA.*)\\n";

/// What `make setup` for tests unpacks into target/syslog-ng: the package excludes rsyslog, and both are needed.
fn unpacked() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("syslog-ng");
    if !root.exists() && std::env::var_os("SLUICE_OFFLINE").is_some() {
        eprintln!("not tried: there is no {}", root.display());
        return None;
    }
    assert!(root.exists(), "no {}: SLUICE_TARGET=test scripts/setup.sh unpacks it", root.display());
    Some(root)
}

/// `3.38`: modules stand in a folder of this name.
fn version(root: &Path) -> String {
    let folders = fs::read_dir(root.join("usr/lib/syslog-ng")).unwrap();
    let mut names = folders.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.find(|name| name.starts_with(|c: char| c.is_ascii_digit())).unwrap()
}

/// syslog-ng on the right host, which writes what it has understood.
struct Collector<'a> {
    site: &'a Site,
    root: PathBuf,
    process: Option<Running>,
}

impl<'a> Collector<'a> {
    fn start(site: &'a Site, root: PathBuf) -> Self {
        let mut collector = Self { site, root, process: None };
        fs::write(collector.path("syslog-ng.conf"), collector.configuration()).unwrap();
        collector.again();
        collector
    }

    fn path(&self, name: &str) -> PathBuf {
        self.site.dir().join(name)
    }

    fn configuration(&self) -> String {
        let dir = self.site.dir().display();
        let input = |name: &str, port: u16, more: &str| {
            format!(
                "source s_{name} {{ syslog(ip(10.71.2.2) port({port}) transport(\"{name}\") {more}); }};\n\
                 destination d_{name} {{ file(\"{dir}/{name}.json\" template(\"{TEMPLATE}\")); }};\n\
                 log {{ source(s_{name}); destination(d_{name}); }};\n"
            )
        };
        let tls = format!(
            "tls(key-file(\"{dir}/leaf.key\") cert-file(\"{dir}/leaf.pem\") peer-verify(optional-untrusted))"
        );
        [
            format!("@version: {}\n", version(&self.root)),
            "options { keep-hostname(yes); use-dns(no); stats-freq(0); };\n".to_owned(),
            input("udp", 514, ""),
            input("tcp", 601, ""),
            input("tls", 6514, &tls),
        ]
        .concat()
    }
}

impl Judge for Collector<'_> {
    fn again(&mut self) {
        let libraries = self.root.join("usr/lib/syslog-ng");
        let mut command: Command = self.site.right.command(self.root.join("usr/sbin/syslog-ng"));
        command
            .env("LD_LIBRARY_PATH", &libraries)
            .arg("--module-path")
            .arg(libraries.join(version(&self.root)));
        command.args(["--foreground", "--no-caps", "--cfgfile"]).arg(self.path("syslog-ng.conf"));
        for (option, name) in [
            ("--persist-file", "syslog-ng.persist"),
            ("--pidfile", "syslog-ng.pid"),
            ("--control", "syslog-ng.ctl"),
        ] {
            command.arg(option).arg(self.path(name));
        }
        self.process = Some(Running::spawn(command.stdin(Stdio::null())));
        let listens = || {
            let sockets = self.site.right.run("ss", ["-Hltun"]).unwrap();
            [":514", ":601", ":6514"].iter().all(|port| sockets.contains(&format!("10.71.2.2{port}")))
        };
        wait_until("syslog-ng listens", PATIENCE, listens);
    }

    fn end(&mut self) {
        let mut process = self.process.take().unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
    }

    fn messages(&self, input: &str, event: &str) -> Vec<BTreeMap<String, String>> {
        let text = fs::read_to_string(self.path(&format!("{input}.json"))).unwrap_or_default();
        // the last line may be under way
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let of_event = lines.filter(|message| message["event"] == event);
        of_event
            .map(|message| {
                for (field, value) in [("pri", "14"), ("host", "gw"), ("app", "RT_FLOW")] {
                    assert_eq!(message[field], value, "{field} of {message}");
                }
                // nothing is left for the text
                assert!(message.get("text").is_none_or(|text| text == ""), "{message}");
                serde_json::from_value(message["_SDATA"]["sluice@32473"].clone()).unwrap()
            })
            .collect()
    }
}

#[test]
fn syslog_ng_reads_every_field_by_udp_tcp_and_tls() {
    let Some(root) = unpacked() else { return };
    let site = Site::new("syslogng");
    certificates(site.dir());
    let collector = Collector::start(&site, root);
    let streams = ["udp", "tcp", "tls"].map(stream_to).concat();
    let trusted = format!("set security log stream tls transport ca-file {}/ca.pem\n", site.dir().display());
    let gateway = site.start(&site.write("a.conf", &format!("{LOGGED}{streams}{trusted}")));
    connects(&site);
    assert!(site.pings(&site.left, "10.71.2.2"));
    denied(&site, 1);
    // not those of the host itself, by which the log travels
    accepted(&site.sluice(&["clear", "sessions", "--source-prefix", "10.71.1.0/24"]));
    for input in ["udp", "tcp", "tls"] {
        for (event, least) in
            [("RT_FLOW_SESSION_CREATE", 2), ("RT_FLOW_SESSION_CLOSE", 2), ("RT_FLOW_SESSION_DENY", 1)]
        {
            let come = || collector.messages(input, event).len() >= least;
            wait_until(&format!("{event} has come by {input}"), PATIENCE, come);
            assert_eq!(collector.messages(input, event), told(&gateway, event), "{input} {event}");
        }
    }
    let tcp = collector.messages("tls", "RT_FLOW_SESSION_CLOSE");
    let tcp = tcp.iter().find(|message| message["protocol-id"] == "6").unwrap();
    has(tcp, &[("source-address", "10.71.1.2"), ("service-name", "junos-http"), ("policy-name", "out")]);
}

#[test]
fn what_syslog_ng_misses_comes_when_it_is_back() {
    let Some(root) = unpacked() else { return };
    let site = Site::new("ngback");
    certificates(site.dir());
    let mut collector = Collector::start(&site, root);
    let gateway = site.start(&site.write("a.conf", &format!("{LOGGED}{}", stream_to("tcp"))));
    misses_nothing(&site, &gateway, &mut collector);
}
