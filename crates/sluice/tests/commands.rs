//! What the commands print and how they end.

use crate::common;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use common::{BINARY, Site, accepted, copy_program, ends, refused, stdout};
use serde_json::Value;
use sluice_lab::patience::patience;
use sluice_metrics::judge;

fn json(site: &Site, what: &str) -> Value {
    serde_json::from_str(&accepted(&site.sluice(&["show", what, "--json"]))).unwrap()
}

#[test]
fn shows_what_is_configured_and_counted() {
    let site = Site::new("show");
    let _gateway = site.start(&site.write("a.conf", ""));
    assert!(site.pings(&site.left, "10.71.2.2"), "left to right is permitted");
    assert!(site.pings(&site.left, "fd71:2::2"), "also in IPv6");
    assert!(site.silent(&site.right, "10.71.1.2"), "right to left is not");
    assert!(site.pings(&site.left, "10.71.1.1"), "host-inbound-traffic admits ping");
    assert!(site.silent(&site.right, "10.71.2.1"), "and only from left");

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
    judge::read(metrics.strip_suffix("\n200").unwrap()).unwrap();
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
    let check = |path: &Path, more: &[&str]| {
        let path = path.display().to_string();
        site.gateway.command(BINARY).args(["check", &path]).args(more).output().unwrap()
    };
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

/// `check` as it sees the machine after mounts of its own.
fn check_after(site: &Site, before: &str, file: &Path) -> Output {
    let script = format!("{before} && exec \"$@\"");
    let mut command = site.gateway.command("unshare");
    command.args(["--mount", "sh", "-c", &script, "sh", BINARY, "check"]).arg(file);
    command.output().unwrap()
}

/// `check` loads what a commit would, where it can, says so where it cannot, and leaves nothing.
fn programs_are_tried(site: &Site, file: &Path) {
    for (before, said) in [("true", false), ("mount -t tmpfs none /sys/fs/bpf", true)] {
        let output = check_after(site, before, file);
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

/// Every program `nft` that the daemon could find.
fn nft_programs() -> BTreeSet<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/local/sbin:/usr/sbin:/sbin";
    path.split(':').filter_map(|folder| Path::new(folder).join("nft").canonicalize().ok()).collect()
}

/// What a gateway needs of the kernel and does not find is named, one after the other.
#[test]
fn check_names_what_the_machine_lacks() {
    let site = Site::new("lacks");
    let file = site.write("a.conf", "");
    let instead = |name: &str, text: &str, of: &str| {
        format!("mount --bind {} {of}", site.write_all(name, text).display())
    };
    let nft = nft_programs();
    assert!(!nft.is_empty(), "scripts/setup.sh installs it");
    let no_nft: Vec<String> =
        nft.iter().map(|nft| format!("mount --bind /dev/null {}", nft.display())).collect();
    // a kernel that is PREEMPT_RT may have been built to bear it, and says so in its configuration
    let realtime = format!(
        "for file in /proc/config.gz /boot/config-* /lib/modules/*/config; do \
         test ! -f $file || mount --bind /dev/null $file || exit; done; {}",
        instead("version", "#1 SMP PREEMPT_RT Thu Jan  1 00:00:00 UTC 2026\n", "/proc/sys/kernel/version")
    );
    let lacking = [
        ("mount -t tmpfs none /sys/kernel/btf".to_owned(), "no BTF at /sys/kernel/btf/vmlinux"),
        (no_nft.join(" && "), "no program `nft`"),
        (instead("release", "6.7.12-old\n", "/proc/sys/kernel/osrelease"), "kernel 6.7.12-old is too old"),
        (realtime, "this is a PREEMPT_RT kernel"),
    ];
    for (before, wanted) in lacking {
        let said = refused(&check_after(&site, &before, &file), 1);
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    accepted(&check_after(&site, "true", &file));
}

/// Seconds as `times` of a shell tells them: `0m1.250s`.
fn seconds(word: &str) -> f64 {
    let (minutes, seconds) = word.trim_end_matches('s').split_once('m').unwrap();
    60.0 * minutes.parse::<f64>().unwrap() + seconds.parse::<f64>().unwrap()
}

/// Of its own processor time, most of which is the verifier's. What others do on the machine lengthens it least, and they may do
/// so twice.
#[test]
fn check_takes_less_than_two_seconds() {
    let site = Site::new("quick");
    let file = site.write("a.conf", "");
    let took = || {
        let mut command = site.gateway.command("sh");
        // the last line is of what the shell has run: user and system
        command.args(["-c", "\"$@\" >&2 && times", "sh", BINARY, "check"]).arg(&file).env("LC_ALL", "C");
        let said = accepted(&command.output().unwrap());
        said.lines().last().unwrap().split_whitespace().map(seconds).sum::<f64>()
    };
    let most = patience(Duration::from_secs(2)).as_secs_f64();
    let is_quick = (0..3).map(|_| took()).inspect(|took| println!("{took} s")).any(|took| took < most);
    assert!(is_quick, "{most} s are not enough");
}

#[test]
fn says_that_no_daemon_runs() {
    let site = Site::new("none");
    let message = refused(&site.sluice(&["show", "interfaces"]), 1);
    assert!(message.contains("sluice.sock") && message.contains("sluice run"), "{message}");
    let usage = Command::new(BINARY).args(["show", "nothing"]).output().unwrap();
    refused(&usage, 2);
    let pipeline = Command::new(BINARY).args(["show", "pipeline"]).output().unwrap();
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
    let copy = site.dir().join("copy");
    copy_program(BINARY, &copy);
    let state = std::env::temp_dir().join("sluice-nobody").display().to_string();
    let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"];
    let run = ["run", "--config", &conf, "--state-dir", &state];
    let message = refused(&ends(Command::new("setpriv").args(nobody).arg(&copy).args(run)), 1);
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
