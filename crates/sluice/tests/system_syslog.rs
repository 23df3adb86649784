//! `system syslog`: rsyslog gets what the gateway says of itself, each host and file what it asks for.

use crate::common;

use std::fs;

use common::{Site, accepted, refused, wait_until};
use serde_json::Value;

use crate::syslog::{Collector, Judge, PATIENCE, certificates, count, output};

const INPUTS: &str = "\
    input(type=\"imudp\" port=\"514\" address=\"10.71.2.3\" ruleset=\"udp\")\n\
    input(type=\"imptcp\" port=\"601\" address=\"10.71.2.2\" ruleset=\"tcp\")\n\
    input(type=\"imtcp\" port=\"6514\" address=\"10.71.2.2\" ruleset=\"tls\")\n";

/// Facility and severity, as rsyslog has them.
const COMMIT_INFO: &str = "182";
const DAEMON_WARNING: &str = "28";

/// UDP at an address of its own: a host is named by its address alone.
fn collector(site: &Site) -> Collector<'_> {
    certificates(site.dir());
    site.right.ip("address add 10.71.2.3/24 dev eth0").unwrap();
    Collector::start(site, INPUTS)
}

fn with(messages: &[Value], text: &str) -> Vec<Value> {
    let has = |message: &&Value| message["text"].as_str().unwrap().contains(text);
    messages.iter().filter(has).cloned().collect()
}

#[test]
fn hosts_and_files_get_what_they_ask_for() {
    let site = Site::new("ownlog");
    let collector = collector(&site);
    let dir = site.dir().display();
    let wanted = format!(
        "set system host-name gw\n\
         set system syslog source-address 10.71.2.1\n\
         set system syslog host 10.71.2.3 any info\n\
         set system syslog host 10.71.2.2 any info\nset system syslog host 10.71.2.2 change-log none\n\
         set system syslog host 10.71.2.2 transport tls\nset system syslog host 10.71.2.2 structured-data\n\
         set system syslog host 10.71.2.2 ca-file {dir}/ca.pem\n\
         set system syslog file grave any warning\nset system syslog file grave path {dir}\n\
         set system syslog file changes change-log info\nset system syslog file changes path {dir}\n"
    );
    let gateway = site.start(&site.write("a.conf", &wanted));

    // who has committed what, and why
    let next = site.write("b.conf", &format!("{wanted}set security flow udp-timeout 77\n"));
    let next = next.display().to_string();
    accepted(&site.sluice(&["commit", &next, "--comment", "longer \"calls\""]));
    let commits = || with(&collector.all("udp"), "longer");
    wait_until("the commit is told", PATIENCE, || commits().len() == 1);
    let commit = &commits()[0];
    let told = [("pri", COMMIT_INFO), ("host", "gw"), ("app", "sluice"), ("event", "-")];
    told.iter().for_each(|(field, value)| assert_eq!(commit[field], *value, "{commit}"));
    let text = commit["text"].as_str().unwrap();
    assert!(text.contains("commit complete generation=\"2\"") && text.contains("user=\"root\""), "{text}");
    assert!(text.contains("comment=\"longer \\\"calls\\\"\""), "{text}");
    let wrong = site.write("c.conf", "set interfaces nowhere0 unit 0 family inet address 10.9.0.1/24\n");
    refused(&site.commit(&wrong), 2);
    wait_until("a refusal is told", PATIENCE, || with(&collector.all("udp"), "commit refused").len() == 1);

    // interfaces
    let lines = |name: &str| fs::read_to_string(site.dir().join(name)).unwrap_or_default();
    site.right.ip("link set eth0 down").unwrap();
    wait_until("it is seen", PATIENCE, || lines("grave").contains("the interface is down"));
    site.right.ip("link set eth0 up").unwrap();
    let of_tls = |text: &str| with(&collector.all("tls"), text);
    wait_until("the interface is told", PATIENCE, || !of_tls("the interface is up").is_empty());
    let down = &of_tls("the interface is down")[0];
    assert_eq!(
        (&down["pri"], &down["sd"]["sluice@32473"]["interface"]),
        (&DAEMON_WARNING.into(), &"right0".into())
    );
    assert_eq!(down["text"].as_str().unwrap().trim(), "the interface is down");

    // each has what it asks for, and nothing else
    assert!(of_tls("commit").is_empty(), "{:?}", of_tls("commit"));
    assert!(lines("grave").contains("the interface is down interface=\"right0\""), "{}", lines("grave"));
    assert!(lines("grave").contains("commit refused") && !lines("grave").contains("commit complete"));
    assert_eq!(lines("changes").matches("commit complete").count(), 2, "{}", lines("changes"));
    assert!(!lines("changes").contains("the interface"));
    assert!(count(&gateway, "system syslog host 10.71.2.3", "sent") >= 3);
    assert_eq!(output(&gateway, "system syslog file grave")["transport"], "file");
    sluice_metrics::judge::read(&gateway.get("/metrics").unwrap()).unwrap();
}

#[test]
fn a_host_that_is_away_is_told_of_elsewhere_and_gets_what_was_kept() {
    let site = Site::new("ownback");
    let mut collector = collector(&site);
    let dir = site.dir().display();
    let wanted = format!(
        "set security log stream sessions host 10.71.2.2\nset security log stream sessions host port 601\n\
         set security log stream sessions transport protocol tcp\n\
         set security policies from-zone left to-zone right policy out then log session-init\n\
         set system syslog host 10.71.2.2 any info\nset system syslog host 10.71.2.2 transport tcp\n\
         set system syslog host 10.71.2.2 port 601\n\
         set system syslog file messages any info\nset system syslog file messages path {dir}\n"
    );
    let gateway = site.start(&site.write("a.conf", &wanted));
    let come = |collector: &Collector, text: &str| with(&collector.all("tcp"), text).len();
    wait_until("the start has come", PATIENCE, || come(&collector, "ready") == 1);
    collector.end();
    let commit = |comment: &str| {
        let file = site.write("a.conf", &wanted).display().to_string();
        accepted(&site.sluice(&["commit", &file, "--comment", comment]));
    };
    for number in 0..20 {
        commit(&format!("while-away-{number}"));
    }
    assert!(site.pings(&site.left, "10.71.2.2"));
    let file = || fs::read_to_string(site.dir().join("messages")).unwrap();
    wait_until("the file has it", PATIENCE, || {
        file().contains("the session log does not get through output=\"sessions\"")
    });
    let host = || output(&gateway, "system syslog host 10.71.2.2");
    wait_until("the gateway has noticed", PATIENCE, || !host()["error"].is_null());
    // how its own messages fare is not one of them
    assert!(!file().contains("messages do not get through"), "{}", file());
    assert_eq!(come(&collector, "while-away"), 0);
    collector.again();
    wait_until("all have come", PATIENCE, || come(&collector, "while-away") == 20);
    wait_until("no error is left", PATIENCE, || host()["error"].is_null());
}
