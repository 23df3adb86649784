//! Days on which something is missing: room on the disk, a whole file, a configuration that can be used, the daemon.

use crate::common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use common::{Running, Site, accepted, demanded, leaves, refused, stderr, stdout};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sluice_lab::gateway::Gateway;
use sluice_lab::netns::Netns;

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

/// The file, then the last commit, then the one before: whatever works, and it is said.
#[test]
fn the_last_configuration_that_worked_is_started() {
    let site = Site::new("lastgood");
    let mut gateway = site.start(&site.write("a.conf", ""));
    let extra = Netns::create("lastgood-x").unwrap();
    site.connect(&extra, "extra0", &[]);
    let more = "set system host-name second\nset interfaces extra0 unit 0 family inet address 10.71.9.1/24\n\
                set security zones security-zone right interfaces extra0.0\n";
    accepted(&site.commit(&site.write("b.conf", more)));
    gateway.kill().unwrap();
    site.write("a.conf", "this is no configuration\n");
    let system = || accepted(&site.sluice(&["show", "system"]));
    gateway.start().unwrap();
    let said = system();
    assert!(
        said.contains("host-name    second") && said.contains("b.conf") && said.contains("a.conf:15:"),
        "{said}"
    );
    assert!(site.pings(&site.left, "10.71.2.2"));
    gateway.kill().unwrap();
    site.gateway.ip("link del extra0").unwrap();
    gateway.start().unwrap();
    let said = system();
    assert!(
        said.contains("host-name    -") && said.contains("worked, ") && said.contains("a.conf:15:"),
        "{said}"
    );
    assert!(site.pings(&site.left, "10.71.2.2"));
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

/// What only the daemon knows, and what is part of the program.
const NOT_IN_MAPS: [&str; 2] = ["show log", "show system"];
const NEED_NO_DAEMON: [&str; 2] = ["show pipeline", "show version"];

/// Every question while the daemon is stopped: a word within seconds, what the maps say, and failure.
#[test]
fn a_stopped_daemon_is_said_and_maps_are_read() {
    let site = Site::new("stopped");
    let gateway = site.start(&site.write("a.conf", ""));
    assert!(site.pings(&site.left, "10.71.2.2") && !site.pings(&site.right, "10.71.1.2"));
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
