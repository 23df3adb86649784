//! One gateway a network namespace; whose pins are whose; where pins are found.

use crate::common;

use std::fs;
use std::io::Read;
use std::ops::Deref;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{BINARY, Running, Site, accepted, copy_program, ends, refused, stderr, wait_until};
use sluice_lab::gateway::{Gateway, remove_state};
use sluice_lab::netns::Netns;

/// A state directory that goes with the test, and with it pins that whoever was started there has left.
struct State(PathBuf);

impl State {
    fn make(path: PathBuf) -> State {
        fs::create_dir_all(&path).unwrap();
        State(path)
    }
}

impl Deref for State {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for State {
    fn drop(&mut self) {
        remove_state(&self.0);
    }
}

/// A state directory of the site whose last part is `name`.
fn state(site: &Site, name: &str) -> State {
    State::make(site.dir().join("in").join(name))
}

fn gateway<'a>(site: &'a Site, state: &Path) -> Gateway<'a> {
    Gateway::new(Path::new(BINARY), &site.gateway, &site.write("a.conf", ""), state).unwrap()
}

/// What a command that must fail says.
fn fails(site: &Site, words: &[&str], state: &Path) -> String {
    let mut command = site.gateway.command(BINARY);
    refused(&ends(command.args(words).arg("--state-dir").arg(state)), 1)
}

fn run(site: &Site, state: &Path) -> String {
    let conf = site.write("a.conf", "").display().to_string();
    fails(site, &["run", "--listen", "none", "--config", &conf], state)
}

fn unique(label: &str) -> String {
    format!("{label}-{}", std::process::id())
}

fn owner(pins: &Path) -> String {
    fs::read_link(pins.join("owner/is")).unwrap().display().to_string()
}

#[test]
fn directories_of_one_name_in_two_namespaces_leave_each_other_alone() {
    let (one, mut other) = (Site::new("same1"), Site::new("same2"));
    let name = unique("same");
    let (first, second) = (state(&one, &name), state(&other, &name));
    let mut running = gateway(&one, &first);
    running.start().unwrap();
    assert!(one.pings(&one.left, "10.71.2.2"));
    let links = |gateway: &Gateway<'_>| fs::read_dir(gateway.pins().join("links")).unwrap().count();
    let before = links(&running);
    for with_daemon in [true, false] {
        for said in [run(&other, &second), fails(&other, &["cleanup"], &second)] {
            assert!(
                said.contains("another network namespace") && said.contains(&first.display().to_string()),
                "{said}"
            );
        }
        assert_eq!(links(&running), before);
        assert!(
            one.pings(&one.left, "10.71.2.2"),
            "the first one is not disturbed, with daemon {with_daemon}"
        );
        if with_daemon {
            running.kill().unwrap();
        }
    }
    // its namespace goes, and with it its devices: nobody uses the pins any more
    drop(running);
    let mut again = gateway(&other, &second);
    again.start().unwrap();
    assert!(other.pings(&other.left, "10.71.2.2"));
    assert!(owner(&again.pins()).ends_with(&second.display().to_string()));
    again.kill().unwrap();
    // the gateway of a namespace that is gone has left its pins to whoever comes
    let pins = again.pins();
    let keep = pins.with_file_name(format!("{name}-kept"));
    fs::rename(&pins, &keep).unwrap();
    drop(again);
    fs::rename(&keep, &pins).unwrap();
    drop(std::mem::replace(&mut other.gateway, Netns::create("gone").unwrap()));
    let third = state(&one, &name);
    let mut last = gateway(&one, &third);
    wait_until("the links know that their devices are gone", Duration::from_secs(10), || {
        last.start().is_ok()
    });
    assert!(one.pings(&one.left, "10.71.2.2"));
}

#[test]
fn a_namespace_has_one_gateway() {
    let site = Site::new("one");
    let (first, second) = (state(&site, &unique("one-a")), state(&site, &unique("one-b")));
    let mut running = gateway(&site, &first);
    running.start().unwrap();
    let pid = running.json("/health").unwrap()["pid"].as_u64().unwrap();
    for said in [run(&site, &second), fails(&site, &["cleanup"], &second)] {
        assert!(said.contains(&format!("pid {pid}")) && said.contains("namespace"), "{said}");
    }
    assert!(site.pings(&site.left, "10.71.2.2"));
    running.kill().unwrap();
    for said in [run(&site, &second), fails(&site, &["cleanup"], &second)] {
        assert!(said.contains(&first.display().to_string()) && said.contains("cleanup"), "{said}");
    }
    assert!(site.pings(&site.left, "10.71.2.2"), "its data plane goes on");
    running.start().unwrap();
    running.stop().unwrap();
    accepted(&site.gateway.command(BINARY).arg("cleanup").arg("--state-dir").arg(&*first).output().unwrap());
    let mut instead = gateway(&site, &second);
    instead.start().unwrap();
    assert!(site.pings(&site.left, "10.71.2.2"));
}

#[test]
fn pins_stay_with_their_gateway() {
    let mut site = Site::new("stay");
    let name = unique("stay");
    let first = state(&site, &name);
    let mut running = gateway(&site, &first);
    running.start().unwrap();
    assert!(site.pings(&site.left, "10.71.2.2"));
    let sessions = |gateway: &Gateway<'_>| gateway.json("/api/sessions").unwrap()["total"].as_u64().unwrap();
    let record = owner(&running.pins());
    running.stop().unwrap();
    // as a version leaves them that knows of no owner
    fs::remove_dir_all(running.pins().join("owner")).unwrap();
    running.start().unwrap();
    assert_eq!((sessions(&running), owner(&running.pins())), (1, record));
    running.stop().unwrap();
    // a second directory of that name is refused as long as the first one is there
    let second = State::make(site.dir().join("elsewhere").join(&name));
    let said = run(&site, &second);
    assert!(said.contains(&first.display().to_string()), "{said}");
    // moved, it is the same gateway
    fs::remove_dir_all(&*second).unwrap();
    fs::rename(&*first, &*second).unwrap();
    let mut moved = gateway(&site, &second);
    moved.start().unwrap();
    assert_eq!(sessions(&moved), 1);
    assert!(owner(&moved.pins()).ends_with(&second.display().to_string()));
    drop(moved);
    drop(running);
    site.gateway = Netns::create("end").unwrap();
}

/// A name that anybody can take keeps nobody from starting.
#[test]
fn another_user_with_the_name_of_the_lock_is_passed_over() {
    let site = Site::new("squat");
    let copy = site.dir().join("squat");
    copy_program(std::env::current_exe().unwrap(), &copy);
    let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups"];
    let mut command = site.gateway.command("setpriv");
    command
        .args(nobody)
        .arg(&copy)
        .args(["--exact", "instances::squat", "--ignored"])
        .env("SQUAT", site.dir());
    fs::set_permissions(site.dir(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let _squatter = Running::spawn(command.stdin(Stdio::piped()).stdout(Stdio::null()));
    wait_until("the name is taken", Duration::from_secs(10), || site.dir().join("taken").exists());
    let gateway = site.start(&site.write("a.conf", ""));
    assert!(gateway.last_words().contains("@sluice-gateway"), "{}", gateway.last_words());
}

#[test]
#[ignore = "a part of the test above"]
fn squat() {
    let Some(dir) = std::env::var_os("SQUAT") else { return };
    let _held = UnixListener::bind_addr(&SocketAddr::from_abstract_name("sluice-gateway").unwrap()).unwrap();
    fs::write(Path::new(&dir).join("taken"), "").unwrap();
    let _ = std::io::stdin().read(&mut [0]);
}

/// `ip netns exec` mounts a /sys of its own, without a BPF file system.
#[test]
fn pins_are_found_behind_another_sys() {
    let site = Site::new("sys");
    let conf = site.write("a.conf", "").display().to_string();
    let state = site.state().display().to_string();
    let inside = |words: &[&str]| {
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", site.gateway.name(), BINARY])
            .args(words)
            .args(["--state-dir", &state]);
        command
    };
    let log = fs::File::create(site.dir().join("log")).unwrap();
    let mut daemon = Running::spawn(inside(&["run", "--listen", "none", "--config", &conf]).stderr(log));
    wait_until("it answers", Duration::from_secs(60), || site.sluice(&["show", "version"]).stdout.len() > 20);
    assert!(site.pings(&site.left, "10.71.2.2"), "{}", fs::read_to_string(site.dir().join("log")).unwrap());
    assert!(site.pins().join("active").exists(), "pins stand where everybody finds them");
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    assert!(site.pings(&site.left, "10.71.2.2"), "and outlive the daemon");
    accepted(&inside(&["cleanup"]).output().unwrap());
    assert!(!site.pins().exists());
}

/// Without any BPF file system in sight, one is mounted; another one is named by --bpffs.
#[test]
fn another_bpf_file_system_may_be_named_or_made() {
    let site = Site::new("bpffs");
    let conf = site.write("a.conf", "").display().to_string();
    let said = refused(&site.run(&["--config", &conf, "--bpffs", "/tmp"]), 1);
    assert!(said.contains("mount -t bpf bpf /tmp"), "{said}");
    let own = site.dir().join("pins");
    fs::create_dir(&own).unwrap();
    let own = own.display().to_string();
    let ways = [
        // a mount namespace in which nobody has one, not even the first process
        ("umount -l /sys/fs/bpf; exec", "", "/sys/fs/bpf"),
        (&format!("mount -t bpf bpf {own}; exec"), &*format!("--bpffs {own}"), &*own),
    ];
    for (before, more, place) in ways {
        let state = site.state().display().to_string();
        let script =
            format!("{before} {BINARY} run --listen none --config {conf} --state-dir {state} {more}");
        let mut command = site.gateway.command("unshare");
        command.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", &script]);
        let mut daemon = Running::spawn(command.stderr(Stdio::piped()));
        wait_until("it answers", Duration::from_secs(60), || {
            site.sluice(&["show", "version"]).stdout.len() > 20 || daemon.try_wait().unwrap().is_some()
        });
        let up = daemon.try_wait().unwrap().is_none() && site.pings(&site.left, "10.71.2.2");
        assert!(!site.pins().exists(), "{place} is not the usual one");
        let _ = daemon.kill();
        let output = daemon.ended(place, Duration::from_secs(10));
        assert!(up, "{place}: {}", stderr(&output));
        assert_eq!(
            stderr(&output).contains("mounted a BPF file system"),
            more.is_empty(),
            "{}",
            stderr(&output)
        );
        wait_until("devices are free again", Duration::from_secs(10), || {
            let links = site.gateway.run("bpftool", ["net", "show"]).unwrap();
            !links.contains("tcx")
        });
    }
}

/// Commands that look at pins without the daemon need not be told where they are.
#[test]
fn the_bpf_file_system_that_was_named_is_remembered() {
    let site = Site::new("bpffs-known");
    let own = site.dir().join("pins");
    fs::create_dir(&own).unwrap();
    let conf = site.write("a.conf", "");
    let script = format!(
        "set -e; mount -t bpf bpf {own}; state=$1; shift
         sluice() {{ command=$1; shift; {BINARY} $command \"$@\" --state-dir $state; }}
         {BINARY} run --listen none --config {conf} --state-dir $state --bpffs {own} & daemon=$!
         until sluice show version | grep -q runs; do kill -0 $daemon; sleep 0.1; done
         kill -STOP $daemon; sluice show zones || true
         kill -KILL $daemon; wait $daemon || true; sluice rollback --if-unconfirmed; test -d {own}/sluice/*/links
         sluice cleanup; test ! -e $state/bpffs; test ! -e {own}/sluice/*/links",
        own = own.display(),
        conf = conf.display()
    );
    let mut command = site.gateway.command("unshare");
    command.args(["--mount", "sh", "-c", &script, "sh"]).arg(site.state());
    let said = accepted(&common::ends(&mut command));
    assert!(said.contains("left0.0") && !site.pins().exists(), "{said}");
}
