//! Days on which something is missing: room on the disk, a whole file, a configuration that can be used, the daemon.

use crate::common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use common::{
    EXTRA, Running, Site, accepted, demanded, leaves, listeners, refused, stderr, stdout, wait_until,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sluice_lab::gateway::Gateway;
use sluice_lab::netns::Netns;

use crate::fragments::NAT64;
use crate::gate::GATE;
use crate::nat::POOL;
use crate::screens::SCREEN;

/// A small file system, as long as this lives.
struct Disk(PathBuf);

impl Disk {
    fn at(place: &Path) -> Disk {
        fs::create_dir_all(place).unwrap();
        let mount =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=512k", "tmpfs"]).arg(place).status();
        assert!(mount.unwrap().success());
        Disk(place.to_owned())
    }

    /// Until nothing goes in any more.
    fn fill(&self) -> PathBuf {
        let filler = self.0.join("filler");
        for size in [65_536, 4096, 1] {
            let bytes = [&*fs::read(&filler).unwrap_or_default(), &vec![0; 1 << 20]].concat();
            let _ = fs::write(&filler, &bytes[..bytes.len() - bytes.len() % size]);
        }
        assert!(fs::write(self.0.join("one-more"), [0; 4096]).is_err(), "the disk is full");
        let _ = fs::remove_file(self.0.join("one-more"));
        let _ = fs::write(self.0.join("rest"), [0; 65_536]);
        filler
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn sessions(gateway: &Gateway<'_>) -> u64 {
    gateway.json("/api/sessions").unwrap()["total"].as_u64().unwrap()
}

#[test]
fn a_full_disk_keeps_nobody_from_starting() {
    let site = Site::new("full");
    let disk = Disk::at(&site.state());
    let conf = site.write("a.conf", "");
    let mut gateway = site.start(&conf);
    assert!(site.pings(&site.left, "10.71.2.2"));
    gateway.kill().unwrap();
    let filler = disk.fill();
    for _ in 0..2 {
        gateway.start().unwrap();
        assert!(sessions(&gateway) >= 1);
        assert!(site.pings(&site.left, "10.71.2.2"));
        gateway.kill().unwrap();
    }
    gateway.start().unwrap();
    let other = site.write("b.conf", "set system host-name other\n");
    let said = refused(&site.commit(&other), 1);
    assert!(said.contains("active.json") && said.contains("space"), "{said}");
    assert!(!accepted(&site.sluice(&["show", "configuration"])).contains("other"), "all of it or nothing");
    assert!(site.pings(&site.left, "10.71.2.2"));
    // what changes of itself is followed all the same
    site.gateway.ip("link del left0").unwrap();
    site.connect(&site.left, "left0", &["10.71.1.2/24", "fd71:1::2/64"]);
    site.left.ip("route add default via 10.71.1.1").unwrap();
    wait_until("the interface is back", Duration::from_secs(20), || site.pings(&site.left, "10.71.2.2"));
    fs::remove_file(filler).unwrap();
    accepted(&site.commit(&other));
    drop(gateway);
    drop(disk);
}

#[test]
fn a_damaged_commit_comes_from_its_copy() {
    let site = Site::new("damage");
    let mut gateway = site.start(&site.write("a.conf", ""));
    assert!(site.pings(&site.left, "10.71.2.2"));
    gateway.kill().unwrap();
    let path = site.state().join("active.json");
    let whole = fs::read_to_string(&path).unwrap();
    for damaged in ["", &whole[..whole.len() / 2], &whole.replace("left0", "left1")] {
        fs::write(&path, damaged).unwrap();
        gateway.start().unwrap();
        assert_eq!(sessions(&gateway), 1, "ids are what they were");
        let said = accepted(&site.sluice(&["show", "system"]));
        assert!(said.contains("active.json is damaged"), "{said}");
        gateway.kill().unwrap();
    }
}

/// The last commit, then the one before it: whatever works, and it is said. The file is only looked at where nothing was
/// committed yet.
#[test]
fn the_last_configuration_that_worked_is_started() {
    let site = Site::new("lastgood");
    let mut gateway = site.start(&site.write("a.conf", ""));
    let extra = Netns::create("lastgood-x").unwrap();
    site.connect(&extra, "extra0", &[]);
    let more = format!("set system host-name second\n{EXTRA}");
    accepted(&site.commit(&site.write("b.conf", &more)));
    gateway.kill().unwrap();
    site.write("a.conf", "this is no configuration\n");
    let system = || accepted(&site.sluice(&["show", "system"]));
    gateway.start().unwrap();
    let said = system();
    assert!(said.contains("host-name    second") && !said.contains("note"), "{said}");
    assert!(gateway.last_words().contains("a.conf is passed over"), "{}", gateway.last_words());
    assert!(site.pings(&site.left, "10.71.2.2"));
    gateway.kill().unwrap();
    site.gateway.ip("link del extra0").unwrap();
    gateway.start().unwrap();
    let said = system();
    assert!(
        said.contains("host-name    -") && said.contains("worked, ") && said.contains("extra0"),
        "{said}"
    );
    assert!(site.pings(&site.left, "10.71.2.2"));
    let generation = || gateway.json("/api/configuration").unwrap()["generation"].as_u64();
    let before = generation();
    site.gateway.ip("link set left0 mtu 1400").unwrap();
    wait_until("the daemon has followed it", Duration::from_secs(20), || generation() != before);
    assert!(system().contains("worked, "), "nobody has seen to it: {}", system());
    accepted(&site.commit(&site.write("a.conf", "")));
    assert!(!system().contains("note"), "a commit settles it");
}

/// A commit is accepted only if a start would be: what leads through a disabled interface is inactive in both.
#[test]
fn routes_through_a_disabled_unit_are_inactive() {
    let site = Site::new("inactive");
    let routes = "set routing-options static route 10.74.0.0/16 next-hop 10.71.2.2\n\
                  set routing-options rib inet6.0 static route fd74::/32 next-hop fd71:2::2\n\
                  set routing-options static route 10.75.0.0/16 next-hop [ 10.71.1.2 10.71.2.2 ]\n";
    let mut gateway = site.start(&site.write("a.conf", routes));
    let table = || site.gateway.ip("route show").unwrap() + &site.gateway.ip("-6 route show").unwrap();
    let all = ["10.74.0.0/16 ", "fd74::/32 ", "10.75.0.0/16 "];
    assert!(all.iter().all(|route| table().contains(route)), "{}", table());
    for disable in ["set interfaces right0 disable\n", "set interfaces right0 unit 0 disable\n"] {
        let conf = site.write("a.conf", &format!("{routes}{disable}"));
        let commit = site.commit(&conf);
        accepted(&commit);
        let said = stderr(&commit);
        for route in
            ["10.74.0.0/16: it is inactive", "fd74::/32: it is inactive", "10.75.0.0/16: one of its gateways"]
        {
            assert!(said.contains(route) && said.contains("right0.0"), "{route}: {said}");
        }
        assert!(
            !table().contains(all[0]) && !table().contains(all[1]) && table().contains(all[2]),
            "{}",
            table()
        );
        gateway.kill().unwrap();
        gateway.start().unwrap_or_else(|error| panic!("{error:#}"));
        assert!(!table().contains(all[0]) && table().contains(all[2]), "{}", table());
        accepted(&site.commit(&site.write("a.conf", routes)));
        assert!(all.iter().all(|route| table().contains(route)), "{}", table());
    }
}

/// What a commit accepts: its name, what it has besides [`common::BASE`], and whether left reaches right by it.
type Kind<'a> = (&'a str, &'a [&'a str], bool);

/// After each commit the daemon is killed, and the next one starts with what was stored, not with anything earlier.
fn start_again(label: &str, kinds: &[Kind]) {
    let site = Site::new(label);
    let third = Netns::create(&format!("{label}-t")).unwrap();
    site.connect_third(&third);
    for host in [&site.left, &site.right, &third] {
        host.run("ethtool", ["-K", "eth0", "tx", "off", "gro", "on"]).unwrap();
    }
    let mut gateway = site.start(&site.write("a.conf", ""));
    gateway.forget_file();
    let show = |what: &str| accepted(&site.sluice(&["show", what]));
    for (kind, statements, passes) in kinds {
        let commit = site.commit(&site.write("b.conf", &statements.concat()));
        assert!(commit.status.success(), "{kind}: {}", stderr(&commit));
        let committed = show("configuration");
        gateway.kill().unwrap();
        gateway.start().unwrap_or_else(|error| panic!("{kind}: {error:#}"));
        assert_eq!(show("configuration"), committed, "{kind}");
        let said = show("system");
        assert!(!said.contains("note"), "{kind}: {said}");
        wait_until(kind, Duration::from_secs(10), || site.pings(&site.left, "10.71.2.2") == *passes);
    }
}

const THIRD: &str = "set interfaces third0 unit 0 family inet address 10.71.3.1/24\n";
const MEMBER: &str = "set security zones security-zone third interfaces third0.0\n";

const ROUTES: &str = "\
set routing-options static route 10.74.0.0/16 next-hop 10.71.2.2
set routing-options rib inet6.0 static route fd74::/32 next-hop fd71:2::2
set routing-options static route 10.75.0.0/16 next-hop [ 10.71.1.2 10.71.2.2 ]
";

const TO_THIRD: &str = "set routing-options static route 10.76.0.0/16 next-hop third0.0\n";

const NOWHERE: &str = "\
set routing-options static route 10.77.0.0/16 discard
set routing-options static route 10.78.0.0/16 reject
";

const TAGGED: &str = "\
set interfaces third0 vlan-tagging
set interfaces third0 unit 5 vlan-id 5
set interfaces third0 unit 5 family inet address 10.71.3.1/24
set security zones security-zone third interfaces third0.5
set interfaces third0 unit 6 vlan-id 6
set interfaces third0 unit 6 family inet address 10.71.6.1/24
set interfaces third0 unit 6 disable
set security zones security-zone third interfaces third0.6
";

#[test]
fn commits_of_devices_and_routes_start_again() {
    let on = |mode: &str| {
        ["left0", "right0"].map(|device| format!("set interfaces {device} mode {mode}\n")).concat()
    };
    let (native, generic) = (on("xdp"), on("generic"));
    let kinds: [Kind; 14] = [
        ("static routes", &[ROUTES], true),
        ("routes through a disabled interface", &[ROUTES, "set interfaces right0 disable\n"], false),
        ("routes through a disabled unit", &[ROUTES, "set interfaces right0 unit 0 disable\n"], false),
        ("a route to a unit", &[THIRD, MEMBER, TO_THIRD], true),
        ("a route to a disabled unit", &[THIRD, MEMBER, TO_THIRD, "set interfaces third0 disable\n"], true),
        ("routes that end here", &[NOWHERE], true),
        ("an interface in no zone", &[THIRD], true),
        ("a unit that is inactive", &[THIRD, "deactivate interfaces third0 unit 0\n"], true),
        ("tagged units", &[TAGGED], true),
        ("addresses that others give", &["set interfaces third0 unit 0 family inet\n", MEMBER], true),
        ("too small for IPv6", &[THIRD, MEMBER, "set interfaces third0 mtu 1200\n"], true),
        ("native XDP", &[native.as_str()], true),
        ("generic XDP", &[generic.as_str()], true),
        ("nothing more", &[], true),
    ];
    start_again("again-devices", &kinds);
}

const SCHEDULES: &str = "\
set schedulers scheduler now start-date 2020-01-01.00:00 stop-date 2099-12-31.00:00
set schedulers scheduler past start-date 2020-01-01.00:00 stop-date 2020-01-02.00:00
";

const GONE: &str = "\
set security policies global policy gone match source-address any
set security policies global policy gone match destination-address any
set security policies global policy gone match application any
set security policies global policy gone then permit
set security policies global policy gone scheduler-name past
";

const OUT: &str = "set security policies from-zone left to-zone right policy out scheduler-name ";

const GROUPS: &str = "\
set groups site interfaces <right*> mtu 1400
set apply-groups site
set system host-name other
";

const METRICS: &str = "\
set services fan-out metrics address 127.0.0.1
set services fan-out metrics port 9091
";

#[test]
fn commits_of_policies_and_services_start_again() {
    let listeners = listeners("left0", "10.71.1.1");
    let kinds: [Kind; 10] = [
        ("schedules", &[SCHEDULES, GONE, OUT, "now\n"], true),
        ("a schedule that is over", &[SCHEDULES, OUT, "past\n"], false),
        ("everything is permitted", &["set security policies default-policy permit-all\n"], true),
        ("groups and a name", &[GROUPS], true),
        ("screens", &[SCREEN], true),
        ("a pool with proxied addresses", &[POOL], true),
        ("NAT64", &[NAT64], true),
        ("a gate", &[GATE], false),
        ("listeners and metrics", &[&listeners, METRICS], true),
        ("nothing more", &[], true),
    ];
    start_again("again-services", &kinds);
}

/// Addresses that the start itself gives are there for whoever listens on them.
#[test]
fn a_first_start_listens_where_it_gives_the_address() {
    let site = Site::new("first-listens");
    let metrics = "set services fan-out metrics address 10.71.1.1\n";
    let _gateway =
        site.start(&site.write("a.conf", &format!("{}{metrics}", listeners("left0", "10.71.1.1"))));
    let page = site.gateway.run("curl", ["-sf", "http://10.71.1.1:9090/metrics"]).unwrap();
    assert!(page.contains("listener=\"sockets\""), "{page}");
}

/// What only the daemon knows, and what is part of the program.
const NOT_IN_MAPS: [&str; 2] = ["show log", "show system"];
const NEED_NO_DAEMON: [&str; 2] = ["show pipeline", "show version"];

/// Every question while the daemon is stopped: a word within seconds, what the maps say, and failure.
#[test]
fn a_stopped_daemon_is_said_and_maps_are_read() {
    let site = Site::new("stopped");
    let gateway = site.start(&site.write("a.conf", ""));
    assert!(site.pings(&site.left, "10.71.2.2") && site.silent(&site.right, "10.71.1.2"));
    let pid = Pid::from_raw(gateway.json("/health").unwrap()["pid"].as_i64().unwrap() as i32);
    kill(pid, Signal::SIGSTOP).unwrap();
    let conf = site.write("b.conf", "set system host-name later\n");
    let mut commit = site.gateway.command(common::BINARY);
    commit.arg("commit").arg(&conf).arg("--state-dir").arg(site.state());
    let commit = Running::spawn(commit.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let begun = Instant::now();
    let site = &site;
    thread::scope(|scope| {
        for command in leaves(&["show"]) {
            scope.spawn(move || {
                let name = command.join(" ");
                let words: Vec<&str> = name.split(' ').chain(demanded(&name).split_whitespace()).collect();
                let output = site.sluice(&words);
                if NEED_NO_DAEMON.contains(&name.as_str()) {
                    return drop(accepted(&output));
                }
                let said = refused(&output, 1);
                assert!(said.contains("does not answer"), "{name}: {said}");
                let told = stdout(&output);
                let is_read = said.contains("read from the maps");
                assert_ne!(is_read, NOT_IN_MAPS.contains(&name.as_str()), "{name}: {said}");
                let expected = [
                    ("show sessions", "10.71.2.2"),
                    ("show drops", "policy_default"),
                    ("show policies", "out"),
                ];
                for (_, text) in expected.iter().filter(|(of, _)| *of == name) {
                    assert!(told.contains(text), "{name}: {told}");
                }
            });
        }
    });
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    thread::sleep(Duration::from_secs(12).saturating_sub(begun.elapsed()));
    kill(pid, Signal::SIGCONT).unwrap();
    let commit = commit.ended("the commit", Duration::from_secs(60));
    accepted(&commit);
    assert!(
        stderr(&commit).contains("waiting for 1") && stderr(&commit).contains("does not answer"),
        "{}",
        stderr(&commit)
    );
    assert!(site.pings(&site.left, "10.71.2.2"));
}
