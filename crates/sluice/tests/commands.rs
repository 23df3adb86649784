//! What the commands print and how they end.

use crate::common;

use std::process::Command;
use std::time::Duration;

use common::{Site, accepted, refused, stdout};
use serde_json::Value;

fn json(site: &Site, what: &str) -> Value {
    serde_json::from_str(&accepted(&site.sluice(&["show", what, "--json"]))).unwrap()
}

#[test]
fn shows_what_is_configured_and_counted() {
    let site = Site::new("show");
    let _gateway = site.start(&site.write("a.conf", ""));
    assert!(site.pings(&site.left, "10.71.2.2"), "left to right is permitted");
    assert!(site.pings(&site.left, "fd71:2::2"), "also in IPv6");
    assert!(!site.pings(&site.right, "10.71.1.2"), "right to left is not");
    assert!(site.pings(&site.left, "10.71.1.1"), "host-inbound-traffic admits ping");
    assert!(!site.pings(&site.right, "10.71.2.1"), "and only from left");

    let interfaces = json(&site, "interfaces");
    let left = interfaces.as_array().unwrap().iter().find(|i| i["name"] == "left0.0").unwrap();
    assert_eq!((left["zone"].as_str(), left["mode"].as_str()), (Some("left"), Some("tc")));
    let sessions = json(&site, "sessions");
    let echo =
        sessions["sessions"].as_array().unwrap().iter().find(|s| s["destination"] == "10.71.2.2").unwrap();
    assert_eq!((echo["policy"].as_str(), echo["from_zone"].as_str()), (Some("out"), Some("left")));
    assert!(json(&site, "policies")[0]["sessions"].as_u64().unwrap() >= 2);
    assert_eq!(json(&site, "zones")[1]["name"], "right");

    let stats = json(&site, "drops");
    for equation in ["ingress", "egress"] {
        assert_eq!(stats["equations"][equation]["difference"], 0, "{stats:#}");
    }
    let table = accepted(&site.sluice(&["show", "drops"]));
    assert!(table.contains("policy_default") && table.contains("host_inbound"), "{table}");
    assert!(accepted(&site.sluice(&["show", "configuration"])).contains("max-sessions 4096"));
    for what in ["interfaces", "sessions", "zones", "policies"] {
        assert!(accepted(&site.sluice(&["show", what])).lines().count() > 1, "show {what}");
    }
}

#[test]
fn clears_the_sessions_that_match() {
    let site = Site::new("clear");
    let _gateway = site.start(&site.write("a.conf", ""));
    assert!(site.pings(&site.left, "10.71.2.2") && site.pings(&site.left, "fd71:2::2"));
    let clear = |arguments: &[&str]| accepted(&site.sluice(&[&["clear", "sessions"], arguments].concat()));
    assert_eq!(clear(&["--destination-prefix", "10.99.0.0/16"]), "0 sessions cleared\n");
    assert_eq!(
        clear(&["--destination-prefix", "10.71.2.0/24", "--protocol", "icmp"]),
        "1 sessions cleared\n"
    );
    assert_eq!(clear(&["--zone", "right", "--source-prefix", "fd71:1::/64"]), "1 sessions cleared\n");
    assert!(site.pings(&site.left, "10.71.2.2"), "a new session takes its place");
    let wrong = refused(&site.sluice(&["clear", "sessions", "--zone", "nowhere"]), 2);
    assert!(wrong.contains("zone nowhere is not configured"), "{wrong}");
    let wrong = refused(&site.sluice(&["clear", "sessions", "--source-prefix", "10.0.0.0/40"]), 2);
    assert!(wrong.contains("10.0.0.0/40"), "{wrong}");
}

#[test]
fn clears_by_policy_interface_application_and_zone() {
    let site = Site::new("clearby");
    let inwards = "set security policies from-zone right to-zone left policy in match source-address any\n\
                   set security policies from-zone right to-zone left policy in match destination-address any\n\
                   set security policies from-zone right to-zone left policy in match application any\n\
                   set security policies from-zone right to-zone left policy in then permit\n";
    let _gateway = site.start(&site.write("a.conf", inwards));
    assert!(site.pings(&site.left, "10.71.2.2"), "neighbours are known");
    let clear = |arguments: &[&str]| accepted(&site.sluice(&[&["clear", "sessions"], arguments].concat()));
    clear(&[]);
    let socket = |netns: &sluice_lab::netns::Netns, own: &str| {
        netns.enter(|| std::net::UdpSocket::bind((own, 4000)).unwrap()).unwrap()
    };
    let (left, right) = (socket(&site.left, "10.71.1.2"), socket(&site.right, "10.71.2.2"));
    let ask = |from: &std::net::UdpSocket, to: (&str, u16)| {
        // an earlier port unreachable may be told now
        let _ = from.send_to(b"?", to).or_else(|_| from.send_to(b"?", to));
        std::thread::sleep(std::time::Duration::from_millis(100));
    };
    ask(&left, ("10.71.2.2", 53));
    ask(&left, ("10.71.2.2", 123));
    ask(&right, ("10.71.1.2", 53));
    assert_eq!(clear(&["--policy", "in"]), "1 sessions cleared\n");
    ask(&right, ("10.71.1.2", 53));
    assert_eq!(
        clear(&["--interface", "right0.0"]),
        "1 sessions cleared\n",
        "where the first packet came from"
    );
    assert_eq!(clear(&["--application", "junos-ntp"]), "1 sessions cleared\n");
    assert_eq!(clear(&["--application", "junos-ntp"]), "0 sessions cleared\n");
    assert_eq!(
        clear(&["--zone", "left", "--policy", "in"]),
        "0 sessions cleared\n",
        "all that is given must match"
    );
    assert_eq!(clear(&["--zone", "left"]), "1 sessions cleared\n");
    assert_eq!(clear(&[]), "0 sessions cleared\n");
}

#[test]
fn answers_over_http() {
    let site = Site::new("http");
    let gateway = site.start(&site.write("a.conf", ""));
    let curl = |arguments: &[&str]| {
        let all = ["-sS", "-o", "/dev/stdout", "-w", "\n%{http_code}"];
        stdout(&site.gateway.command("curl").args(all).args(arguments).output().unwrap())
    };
    let tcp = "http://127.0.0.1:8080";
    assert!(curl(&[&format!("{tcp}/health")]).contains("\"status\":\"ok\""));
    let metrics = curl(&[&format!("{tcp}/metrics")]);
    assert!(
        metrics.contains("sluice_attach_mode{unit=\"left0.0\",zone=\"left\",device=\"left0\",mode=\"tc\"} 1")
    );
    for path in ["stats", "interfaces", "zones", "policies", "pipeline"] {
        assert!(curl(&[&format!("{tcp}/api/{path}")]).ends_with("\n200"), "{path}");
    }
    assert!(
        curl(&["-X", "POST", &format!("{tcp}/api/commit")]).ends_with("\n404"),
        "TCP answers questions only"
    );
    let socket = site.state().join("sluice.sock").display().to_string();
    for (path, status) in [("sessions?limit=5", 200), ("sessions?protocol=ipx", 400)] {
        let answer = curl(&["--unix-socket", &socket, &format!("http://sluice/api/{path}")]);
        assert!(answer.ends_with(&format!("\n{status}")), "{path}: {answer}");
    }
    let as_nobody = |arguments: &[&str]| {
        let nobody =
            ["--reuid=65534", "--regid=65534", "--clear-groups", "curl", "-sS", "-w", "\n%{http_code}"];
        let output =
            Command::new("setpriv").args(nobody).args(["--unix-socket", &socket]).args(arguments).output();
        stdout(&output.unwrap())
    };
    assert!(as_nobody(&["http://sluice/health"]).ends_with("\n200"), "anybody may ask");
    let refused = as_nobody(&["-X", "POST", "http://sluice/api/sessions/clear"]);
    assert!(refused.ends_with("\n403"), "only root may change: {refused}");
    assert_eq!(gateway.json("/api/configuration").unwrap()["generation"], 1);
}

#[test]
fn checks_without_touching_anything() {
    let site = Site::new("check");
    let check = |path: &std::path::Path, more: &[&str]| {
        let path = path.display().to_string();
        site.gateway.command(BINARY).args(["check", &path]).args(more).output().unwrap()
    };
    use common::BINARY;
    let good = site.write("good.conf", "");
    assert!(accepted(&check(&good, &[])).contains("ok (2 units, 2 zones, 1 policies)"));
    assert!(accepted(&check(&good, &["--plan"])).contains("attach left0"));
    let elsewhere =
        site.write("elsewhere.conf", "set interfaces eth77 unit 0 family inet address 10.0.0.1/24\n");
    assert!(refused(&check(&elsewhere, &[]), 2).contains("interface eth77 does not exist here"));
    accepted(&check(&elsewhere, &["--no-interfaces"]));
    let typo = refused(&check(&site.write("typo.conf", "set security zone x\n"), &[]), 2);
    assert!(typo.contains("typo.conf:15:14"), "{typo}");
    assert!(refused(&check(&site.state().join("missing.conf"), &[]), 2).contains("missing.conf"));
    assert!(!site.pins().exists() && !site.addresses("left0").contains("10.71.1.1"));
    programs_are_tried(&site, &good);
}

/// `check` loads what a commit would, where it can, says so where it cannot, and leaves nothing.
fn programs_are_tried(site: &Site, file: &std::path::Path) {
    let hide = "mount -t tmpfs none /sys/fs/bpf && exec \"$@\"";
    for (script, said) in [("exec \"$@\"", false), (hide, true)] {
        let mut command = site.gateway.command("unshare");
        command.args(["--mount", "sh", "-c", script, "sh", common::BINARY, "check"]).arg(file);
        let output = command.output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        accepted(&output);
        assert_eq!(errors.contains("was not tried"), said, "{errors}");
    }
    // others may be checking right now
    let left = || {
        let names = std::fs::read_dir("/sys/fs/bpf").unwrap().flatten().map(|entry| entry.file_name());
        names.filter(|name| name.to_string_lossy().starts_with("sluice-check-")).count()
    };
    common::wait_until("checks leave their pins", Duration::from_secs(10), || left() == 0);
}

#[test]
fn says_that_no_daemon_runs() {
    let site = Site::new("none");
    let message = refused(&site.sluice(&["show", "interfaces"]), 1);
    assert!(message.contains("sluice.sock") && message.contains("sluice run"), "{message}");
    let usage = Command::new(common::BINARY).args(["show", "nothing"]).output().unwrap();
    refused(&usage, 2);
    let pipeline = Command::new(common::BINARY).args(["show", "pipeline"]).output().unwrap();
    let text = accepted(&pipeline);
    for stage in sluice_abi::stages::Stage::ALL {
        assert!(text.contains(stage.name()), "{stage:?}");
    }
}

#[test]
fn needs_privileges() {
    let site = Site::new("priv");
    let conf = site.write("a.conf", "").display().to_string();
    // The binary may lie where nobody else can read; a copy does not.
    let copy = std::env::temp_dir().join(format!("sluice-test-{}", std::process::id()));
    std::fs::copy(common::BINARY, &copy).unwrap();
    let state = std::env::temp_dir().join("sluice-nobody").display().to_string();
    let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"];
    let run = ["run", "--config", &conf, "--state-dir", &state];
    let output = Command::new("setpriv").args(nobody).arg(&copy).args(run).output();
    std::fs::remove_file(&copy).unwrap();
    let message = refused(&output.unwrap(), 1);
    assert!(message.contains("needs root") && message.contains("CAP_BPF"), "{message}");
}

#[test]
fn what_groups_bring_in_is_shown_with_its_group() {
    let site = Site::new("groups");
    let more = "set groups site interfaces <right*> mtu 1400\nset apply-groups site\n";
    let _gateway = site.start(&site.write("a.conf", more));
    let text = accepted(&site.sluice(&["show", "configuration", "--display", "inheritance"]));
    let inherited = "        ## 'mtu' was inherited from group 'site'\n        mtu 1400;\n";
    assert!(text.contains(inherited) && !text.contains("groups"), "{text}");
    let right = json(&site, "interfaces");
    let right = right.as_array().unwrap().iter().find(|i| i["name"] == "right0.0").unwrap();
    assert_eq!(right["mtu"].as_u64(), Some(1400));
}
