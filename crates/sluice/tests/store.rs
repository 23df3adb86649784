//! The store of configurations: candidate, history, commits that wait for a word, and days on which something breaks.

use crate::common;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use common::{Running, Site, accepted, ends, is_soak, refused, stderr, wait_until};
use serde_json::Value;
use sluice_control::Client;
use sluice_control::api::{CloseQuery, OpenQuery};
use sluice_control::operations::candidate::{CLOSE_CANDIDATE, OPEN_CANDIDATE};
use sluice_lab::gateway::Gateway;

pub fn host_name(site: &Site) -> String {
    let text = accepted(&site.sluice(&["show", "configuration"]));
    let found = text
        .lines()
        .find_map(|line| line.split_once("host-name ").map(|(_, name)| name.trim_end_matches(';')));
    found.unwrap_or("-").to_owned()
}

pub fn history(site: &Site) -> Vec<Value> {
    let text = accepted(&site.sluice(&["history", "--json"]));
    serde_json::from_str::<Value>(&text).unwrap().as_array().unwrap().clone()
}

/// Changes the candidate by commands.
fn load_set(site: &Site, commands: &str) -> Output {
    let file = site.write_all("commands", commands);
    site.sluice(&["load", "set", &file.display().to_string()])
}

fn named(site: &Site, name: &str) -> Output {
    site.commit(&site.write(&format!("{name}.conf"), &format!("set system host-name {name}\n")))
}

#[test]
fn changes_are_loaded_compared_committed_and_taken_back() {
    let site = Site::new("store");
    let _gateway = site.start(&site.write("a.conf", "set system host-name first\n"));
    let said = accepted(&load_set(&site, "set system host-name second\ndelete system services"));
    assert!(said.contains("sluice compare"), "{said}");
    let compared = accepted(&site.sluice(&["compare"]));
    assert_eq!(compared, "[edit system]\n-  host-name first;\n+  host-name second;\n");
    assert_eq!(host_name(&site), "first", "nothing is in force before its commit");
    let said = accepted(&site.sluice(&["commit", "--check"]));
    assert!(
        said.ends_with("configuration check succeeds\n") && said.contains("+  host-name second;"),
        "{said}"
    );
    assert_eq!((host_name(&site), history(&site).len()), ("first".into(), 1));
    let said = accepted(&site.sluice(&["commit", "--comment", "a better name"]));
    assert!(said.contains("+  host-name second;\ncommit complete: generation 2"), "{said}");
    assert_eq!(host_name(&site), "second");

    let commits = history(&site);
    assert_eq!(commits.len(), 2);
    assert_eq!((&commits[0]["comment"], &commits[0]["client"]), (&"a better name".into(), &"cli".into()));
    assert_eq!((&commits[1]["client"], &commits[0]["user"]), (&"file".into(), &"root".into()));
    accepted(&site.sluice(&["rescue", "save"]));
    accepted(&site.sluice(&["rollback", "1"]));
    assert_eq!(
        accepted(&site.sluice(&["compare"])),
        "[edit system]\n-  host-name second;\n+  host-name first;\n"
    );
    accepted(&site.sluice(&["commit"]));
    assert_eq!(host_name(&site), "first");
    assert_eq!(
        accepted(&site.sluice(&["compare", "1", "0"])),
        "[edit system]\n-  host-name second;\n+  host-name first;\n"
    );
    accepted(&site.sluice(&["rescue", "load"]));
    accepted(&site.sluice(&["commit"]));
    assert_eq!((host_name(&site), history(&site).len()), ("second".into(), 4));
    accepted(&site.sluice(&["rescue", "delete"]));
    assert!(refused(&site.sluice(&["rescue", "load"]), 2).contains("no rescue configuration"));
    let said = refused(&site.sluice(&["rollback", "9"]), 2);
    assert!(said.contains("there is no commit 9; the history has 0 to 3"), "{said}");
    let said = refused(&load_set(&site, "set system host-name x\nfly away"), 2);
    assert!(said.contains("commands:2:1: `fly` is no command"), "{said}");
    assert_eq!(accepted(&site.sluice(&["compare"])), "", "an error changes nothing");
}

#[test]
fn the_history_has_fifty_commits() {
    let site = Site::new("fifty");
    let _gateway = site.start(&site.write("a.conf", ""));
    for n in 0..53 {
        accepted(&named(&site, &format!("n{n}")));
    }
    let commits = history(&site);
    assert_eq!((commits.len(), commits[50]["file"].as_str().unwrap().ends_with("n2.conf")), (51, true));
    assert_eq!(fs::read_dir(site.state().join("history")).unwrap().count(), 50);
}

const HOLDER: &str = "
import socket, sys, time
connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
connection.send(b'POST /api/candidate/open?exclusive=true HTTP/1.1\\r\\nHost: sluice\\r\\nContent-Length: 0\\r\\n\\r\\n')
print(connection.recv(65536).decode().split('\\r\\n')[0], flush=True)
time.sleep(1000)
";

#[test]
fn one_editor_has_the_candidate_alone() {
    let site = Site::new("exclusive");
    let _gateway = site.start(&site.write("a.conf", ""));
    let client = Client::new(&site.state());
    let open = OpenQuery { exclusive: true, client: Some("test".to_owned()) };
    assert!(client.ask(&OPEN_CANDIDATE, &open).unwrap().others.is_empty());
    for output in [load_set(&site, "set system host-name x"), named(&site, "x")] {
        let said = refused(&output, 1);
        let pid = format!("root (pid {}, test) has the candidate open exclusively", std::process::id());
        assert!(said.contains(&pid), "{said}");
    }
    assert!(client.ask(&CLOSE_CANDIDATE, &CloseQuery::default()).unwrap().done);
    accepted(&load_set(&site, "set system host-name x"));

    // the lock of a process that has ended is free
    let socket = site.state().join("sluice.sock");
    let mut holder = Command::new("/usr/bin/python3");
    let mut holder = Running::spawn(
        holder.args(["-c", HOLDER]).arg(&socket).stdout(Stdio::piped()).stderr(Stdio::piped()),
    );
    let mut line = String::new();
    BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("200"), "{line}");
    assert!(refused(&site.sluice(&["commit"]), 1).contains("exclusively"));
    drop(holder);
    accepted(&site.sluice(&["commit"]));
    assert_eq!(host_name(&site), "x");
}

#[test]
fn the_store_counts_and_a_file_only_seeds_it() {
    let site = Site::new("seeds");
    let conf = site.write("a.conf", "set system host-name first\n");
    let mut gateway = site.start(&conf);
    accepted(&named(&site, "committed"));
    for (written, expected) in [("first", "committed"), ("changed", "committed")] {
        site.write("a.conf", &format!("set system host-name {written}\n"));
        gateway.stop().unwrap();
        gateway.start().unwrap();
        assert_eq!(host_name(&site), expected);
    }
    assert!(gateway.last_words().contains("a.conf is passed over"), "{}", gateway.last_words());
    gateway.stop().unwrap();
    let mut run = site.gateway.command(common::BINARY);
    run.args(["run", "--listen", "none", "--override", "--config"])
        .arg(&conf)
        .arg("--state-dir")
        .arg(site.state());
    let daemon = Running::spawn(run.stdout(Stdio::null()).stderr(Stdio::null()));
    wait_until("the file is in force", Duration::from_secs(30), || {
        site.sluice(&["history"]).status.success() && host_name(&site) == "changed"
    });
    drop(daemon);
}

#[test]
fn a_text_without_a_statement_is_refused() {
    let site = Site::new("empty");
    for (name, text) in [("zero.conf", ""), ("comment.conf", "# nothing\n/* here */\n")] {
        let conf = site.write_all(name, text).display().to_string();
        let said = refused(&site.run(&["--config", &conf]), 2);
        assert!(said.contains(&format!("{name} holds no statement")), "{said}");
        assert!(
            refused(&ends(site.gateway.command(common::BINARY).args(["check", &conf])), 2)
                .contains("holds no statement")
        );
    }
    let _gateway = site.start(&site.write("a.conf", ""));
    let zero = site.write_all("zero.conf", "");
    let said = refused(&site.commit(&zero), 2);
    assert!(said.contains("--allow-empty"), "{said}");
    assert!(site.pings(&site.left, "10.71.2.2"));
    // what else keeps it from being in force has its own words
    let meant = stderr(&site.sluice(&["commit", &zero.display().to_string(), "--allow-empty"]));
    assert!(meant.contains("security flow") && !meant.contains("holds no statement"), "{meant}");
}

/// A session that comes from left, where only ping is admitted.
#[test]
fn who_would_be_cut_off_is_warned() {
    let site = Site::new("cut");
    let ssh = "set security zones security-zone left host-inbound-traffic system-services ssh\n";
    let gateway = site.start(&site.write("a.conf", ssh));
    assert!(site.pings(&site.left, "10.71.2.2"));
    let commit = |more: &str, arguments: &[&str]| {
        let conf = site.write("b.conf", more);
        let mut command = site.gateway.command(common::BINARY);
        command.env("SSH_CONNECTION", "10.71.1.2 50022 10.71.1.1 22").arg("commit").arg(conf).args(arguments);
        command.arg("--state-dir").arg(site.state()).output().unwrap()
    };
    let kept = commit(&format!("{ssh}set system host-name other\n"), &[]);
    accepted(&kept);
    assert!(!stderr(&kept).contains("connection"), "{}", stderr(&kept));
    let cut = commit("", &["--check"]);
    accepted(&cut);
    let said = stderr(&cut);
    assert!(
        said.contains("from 10.71.1.2 to 10.71.1.1:22 on left0")
            && said.contains("security-zone left does not admit TCP port 22"),
        "{said}"
    );
    let denied = format!("{ssh}deactivate security policies from-zone left to-zone right policy out\n");
    let ended = accepted(&commit(&denied, &["--check"]));
    assert!(ended.contains("1 sessions would end"), "{ended}");
    assert_eq!(gateway.json("/api/sessions").unwrap()["total"], 1, "a check ends none");
    // counted while it lives, also when its next packet ends it at once
    let mut ping = site.left.command("ping");
    let _traffic = Running::spawn(ping.args(["-i", "0.01", "10.71.2.2"]).stdout(Stdio::null()));
    wait_until("sessions", Duration::from_secs(5), || gateway.json("/api/sessions").unwrap()["total"] == 2);
    let ended = accepted(&commit(&denied, &[]));
    assert!(ended.contains("2 sessions end: no policy permits them"), "{ended}");
}

/// The candidate was read before its commit had its turn, and so was what it would take back.
#[test]
fn who_waits_for_another_commit_is_told_that_it_is_taken_back() {
    let site = Site::new("twice");
    let gateway = site.start(&site.write("a.conf", "set system host-name first\n"));
    accepted(&load_set(&site, "set system host-name second"));
    let other = site.write("other.conf", "set system host-name other\n");
    thread::scope(|scope| {
        let first = scope.spawn(|| accepted(&site.commit(&other)));
        wait_until("the other commit has begun", Duration::from_secs(5), || {
            gateway.json("/health").unwrap()["under_way"].is_string() || host_name(&site) == "other"
        });
        let said = site.sluice(&["commit"]);
        let changes = accepted(&said);
        assert!(stderr(&said).contains("this commit takes it back"), "{}", stderr(&said));
        assert!(changes.contains("-  host-name other;\n+  host-name second;"), "{changes}");
        first.join().unwrap();
    });
}

#[test]
fn a_damaged_history_is_said_and_the_rest_is_there() {
    let site = Site::new("rotten");
    let mut gateway = site.start(&site.write("a.conf", "set system host-name first\n"));
    accepted(&named(&site, "second"));
    accepted(&named(&site, "third"));
    let file = site.state().join("history/00000002.gz");
    let whole = fs::read(&file).unwrap();
    for damaged in [vec![], whole[..whole.len() / 3].to_vec(), vec![7; whole.len()]] {
        fs::write(&file, &damaged).unwrap();
        let commits = history(&site);
        assert_eq!(commits.len(), 3);
        assert!(commits[1]["damage"].is_string() && commits[2]["damage"].is_null(), "{commits:?}");
        let said = refused(&site.sluice(&["rollback", "1"]), 1);
        assert!(said.contains("commit 1 is damaged") && said.contains("00000002.gz"), "{said}");
        accepted(&site.sluice(&["rollback", "2"]));
        accepted(&site.sluice(&["rollback", "0"]));
    }
    fs::write(site.state().join("candidate.json"), "{").unwrap();
    gateway.kill().unwrap();
    gateway.start().unwrap();
    assert_eq!(host_name(&site), "third");
    assert_eq!(accepted(&site.sluice(&["compare"])), "");
}

/// Attaches to a daemon until it is dropped; `what` says which call, counted in its thread, does not end well.
fn trace(site: &Site, gateway: &Gateway<'_>, calls: &str, what: &str) -> Running {
    let pid = gateway.json("/health").unwrap()["pid"].to_string();
    let log = site.dir().join("strace.log");
    let mut strace = Command::new("strace");
    strace.args(["-f", "-p", &pid, "-e", &format!("trace={calls}"), "-e", &format!("inject={what}")]);
    strace.arg("-P").arg(site.state().join("history")).arg("-o").arg(&log);
    for name in ["active.json", "active.json.new", "active.json.copy", "active.json.copy.new"] {
        strace.arg("-P").arg(site.state().join(name));
    }
    for name in ["history/00000001.gz", "history/00000001.gz.new"] {
        strace.arg("-P").arg(site.state().join(name));
    }
    let mut strace = Running::spawn(strace.arg("-P").arg(site.state()).stderr(Stdio::piped()));
    let mut line = String::new();
    let mut said = BufReader::new(strace.stderr.take().unwrap());
    while !line.contains("attached") {
        line.clear();
        assert!(said.read_line(&mut line).unwrap() > 0, "strace ended");
    }
    thread::spawn(move || said.lines().for_each(drop));
    strace
}

/// Every call of a commit that writes something down, ended by SIGKILL or by a full disk: the old or the new configuration is
/// in force afterwards, and the history can be read. `make test` tries every fourth of them.
#[test]
fn a_commit_that_is_cut_short_leaves_the_old_or_the_new() {
    let site = Site::new("cutshort");
    let conf = site.write("a.conf", "set system host-name old\n");
    let new = site.write("b.conf", "set system host-name new\n");
    let mut outcomes = std::collections::BTreeSet::new();
    for (calls, fault) in [
        ("write", "signal=SIGKILL"),
        ("fsync", "signal=SIGKILL"),
        ("rename", "signal=SIGKILL"),
        ("write", "error=ENOSPC"),
        ("fsync", "error=ENOSPC"),
        ("rename", "error=ENOSPC"),
    ] {
        for turn in (1..40).step_by(if is_soak() { 1 } else { 4 }) {
            let _ = fs::remove_dir_all(site.pins());
            let _ = fs::remove_dir_all(site.state());
            fs::create_dir_all(site.state()).unwrap();
            let mut gateway = site.start(&conf);
            let strace = trace(&site, &gateway, calls, &format!("{calls}:{fault}:when={turn}"));
            let done = site.commit(&new).status.success();
            let hit = fs::read_to_string(site.dir().join("strace.log")).unwrap_or_default();
            let hit = hit.contains("(INJECTED)") || hit.contains("killed by SIGKILL");
            drop(strace);
            if fault.contains("KILL") && hit {
                // it is dead already, and only has to be collected
                let _ = gateway.kill();
                gateway.start().unwrap_or_else(|error| panic!("{calls} {fault} {turn}: {error:#}"));
            }
            let found = host_name(&site);
            assert!(["old", "new"].contains(&found.as_str()), "{calls} {fault} {turn}: {found}");
            assert!(!done || found == "new", "{calls} {fault} {turn}: what was acknowledged stays");
            let commits = history(&site);
            assert!(
                commits.iter().all(|commit| commit["damage"].is_null()),
                "{calls} {fault} {turn}: {commits:?}"
            );
            assert_eq!(commits.len(), if found == "new" { 2 } else { 1 }, "{calls} {fault} {turn}");
            outcomes.insert((fault, found));
            if !hit {
                assert!(turn > 1, "{calls}: nothing was cut short");
                break;
            }
        }
    }
    assert_eq!(outcomes.len(), 4, "both outcomes of both faults: {outcomes:?}");
}

#[test]
fn files_are_for_their_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let site = Site::new("modes");
    let _gateway = site.start(&site.write("a.conf", ""));
    accepted(&named(&site, "second"));
    accepted(&site.sluice(&["rescue", "save"]));
    accepted(&load_set(&site, "set system host-name third"));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let state = site.state();
    for name in ["active.json", "active.json.copy", "candidate.json", "rescue.json", "history/00000001.gz"] {
        assert_eq!(mode(&state.join(name)), 0o600, "{name}");
    }
    assert_eq!(mode(&state.join("history")), 0o700);
}

/// docs/OPERATE.md, block by block, as somebody would type it.
#[test]
fn every_command_of_the_page_works() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/OPERATE.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, section) = page.split_once("## Change the configuration").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let site = Site::new("page");
    let _gateway = site.start(&site.write("a.conf", "set system host-name gw\n"));
    let prepare = format!(
        "set -e; cd {}; sluice() {{ {} \"$@\" --state-dir {}; }}\n",
        site.dir().display(),
        common::BINARY,
        site.state().display()
    );
    let mut blocks = 0;
    for block in section.split("```sh\n").skip(1) {
        let script = block.split("```").next().unwrap();
        let output = site.gateway.command("sh").arg("-c").arg(format!("{prepare}{script}")).output().unwrap();
        assert!(output.status.success(), "{script}{}{}", common::stdout(&output), stderr(&output));
        if blocks == 0 {
            assert!(common::stdout(&output).contains("[edit system]\n-  host-name gw;\n+  host-name gw1;\n"));
        }
        blocks += 1;
    }
    assert!(blocks >= 6, "{blocks} blocks");
}
