//! `sluice monitor` as a command: how it ends and with which exit code, what its messages say, and the forms in which its
//! predecessor was called.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sluice_lab::netns::Netns;
use sluice_monitor::results::Reader;

use crate::common::Running;

const BINARY: &str = env!("CARGO_BIN_EXE_sluice");
const PATIENCE: Duration = Duration::from_secs(30);

/// A folder with captures, whole and not.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        let folder = Folder(tempfile::tempdir().unwrap());
        let made = folder.sluice(&[
            "pcap",
            "generate",
            "--packets",
            "3000",
            "--loss",
            "0",
            "--output",
            "whole.pcap",
        ]);
        assert!(made.status.success(), "{made:?}");
        let whole = std::fs::read(folder.path("whole.pcap")).unwrap();
        folder.write("cut.pcap", &whole[..whole.len() - 5]);
        folder.write("header.pcap", &whole[..10]);
        folder.write("record.pcap", &whole[..30]);
        folder.write("empty.pcap", &whole[..24]);
        let mut damaged = whole.clone();
        damaged[24 + 11] = 0x7f;
        folder.write("damaged.pcap", &damaged);
        folder.write("text.pcap", b"#!/bin/sh\necho no capture\n");
        // Two frames an hour apart.
        let mut slow = whole[..24].to_vec();
        for seconds in [1_700_000_000u32, 1_700_003_600] {
            for word in [seconds, 0, 60, 60] {
                slow.extend(word.to_le_bytes());
            }
            slow.extend([0; 60]);
        }
        folder.write("slow.pcap", &slow);
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.path(name), bytes).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(BINARY);
        command.args(arguments).current_dir(self.0.path()).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn sluice(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn interfaces() -> Netns {
    let netns = Netns::create("monitor").unwrap();
    netns.run("ip", ["link", "add", "tap0", "type", "veth", "peer", "name", "tap1"]).unwrap();
    for name in ["tap0", "tap1"] {
        netns.run("ip", ["link", "set", name, "up"]).unwrap();
    }
    netns
}

/// Every kind of source with every way to end it: what has no end is whole wherever it is stopped.
#[test]
fn every_source_ends_in_every_way_with_its_exit_code() {
    let (folder, netns) = (Folder::new(), interfaces());
    let sources: [(&str, &[&str], i32); 6] = [
        ("an interface", &["tap0"], 0),
        ("two interfaces", &["tap0", "tap1"], 0),
        ("a pipe", &["-"], 0),
        ("a pipe, paced", &["-", "--replay", "real"], 0),
        ("a file, paced", &["slow.pcap", "--replay", "real"], 1),
        ("two files, paced", &["whole.pcap", "slow.pcap", "--replay", "real"], 1),
    ];
    let ends = [("SIGINT", Some(Signal::SIGINT)), ("SIGTERM", Some(Signal::SIGTERM)), ("--duration", None)];
    for (source, arguments, code) in sources {
        for (end, signal) in ends {
            let (name, lines) = (format!("{source}, {end}"), folder.path("lines"));
            let _ = std::fs::remove_file(&lines);
            let mut command = folder.command(&[&["monitor", "--jsonl", "lines", "-q"], arguments].concat());
            if signal.is_none() {
                command.args(["--duration", "300ms"]);
            }
            command.stdin(Stdio::piped());
            let mut child = netns.enter(move || Running::spawn(&mut command)).unwrap();
            // Kept open, so that the pipe does not end.
            let mut pipe = child.stdin.take().unwrap();
            let _ = pipe.write_all(&std::fs::read(folder.path("slow.pcap")).unwrap());
            wait_until(&name, || lines.exists());
            if let Some(signal) = signal {
                kill(Pid::from_raw(child.id() as i32), signal).unwrap();
            }
            let output = child.ended(&name, PATIENCE);
            assert_eq!(output.status.code(), Some(code), "{name}: {output:?}");
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert_eq!(text.to_lowercase().contains("stopped on request"), code == 1, "{name}: {text}");
        }
    }
}

fn busy_port() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    (listener, port)
}

/// Options that a message names.
fn options(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
    words.filter(|word| word.starts_with("--") && word.len() > 3).map(str::to_owned).collect()
}

#[test]
fn every_failure_has_its_exit_code_and_names_options_that_exist() {
    let folder = Folder::new();
    let (_listener, port) = busy_port();
    let run = folder.sluice(&["monitor", "whole.pcap", "--db", "made.db"]);
    assert_eq!(run.status.code(), Some(0), "{run:?}");
    let calls: Vec<(i32, Vec<&str>)> = vec![
        (0, vec!["whole.pcap"]),
        (0, vec!["empty.pcap"]),
        (0, vec!["whole.pcap", "empty.pcap"]),
        (0, vec!["compare", "whole.pcap", "whole.pcap"]),
        (0, vec!["export", "--db", "made.db", "--output", "tables.db"]),
        (0, vec!["slice", "whole.pcap", "--frame", "5", "--output", "slice.pcapng"]),
        (1, vec!["cut.pcap"]),
        (1, vec!["cut.pcap", "whole.pcap"]),
        (1, vec!["compare", "whole.pcap", "cut.pcap"]),
        (1, vec!["slice", "cut.pcap", "--frame", "2999", "--output", "cut.pcapng"]),
        (2, vec!["slice", "whole.pcap", "--channel", "0000000000000001", "--output", "none.pcapng"]),
        (2, vec!["slice", "whole.pcap", "--frame", "99999999", "--output", "none.pcapng"]),
        (2, vec!["missing.pcap"]),
        (2, vec!["./missing"]),
        (2, vec!["whole.pcap", "missing.pcap"]),
        (2, vec!["."]),
        (2, vec!["text.pcap"]),
        (2, vec!["header.pcap"]),
        (2, vec!["record.pcap"]),
        (2, vec!["damaged.pcap"]),
        (2, vec!["nosuch0"]),
        (2, vec!["nosuch0", "whole.pcap"]),
        (2, vec!["xdp:nosuch0"]),
        (2, vec!["made.db"]),
        (2, vec!["whole.pcap", "made.db", "--db", "other.db"]),
        (2, vec!["whole.pcap", "--db", "no/such/folder.db"]),
        (2, vec!["whole.pcap", "--jsonl", "no/such/folder"]),
        (2, vec!["whole.pcap", "--interval", "1us"]),
        (2, vec!["whole.pcap", "--no-such-option"]),
        (2, vec!["compare", "missing.pcap", "whole.pcap"]),
        (2, vec!["compare", "whole.pcap", "missing.pcap"]),
        (2, vec!["slice", "missing.pcap", "--frame", "5", "--output", "x.pcapng"]),
        (2, vec!["slice", "whole.pcap", "--output", "no/such/folder.pcapng", "--frame", "5"]),
        (2, vec!["export", "--db", "missing.db", "--output", "x.db"]),
        (2, vec!["export", "--db", "made.db", "--output", "made.db"]),
        (2, vec!["export", "--db", "made.db", "--run", "77", "--output", "x.db"]),
        (2, vec!["export", "--db", "whole.pcap", "--output", "x.db"]),
        (2, vec!["serve", "--db", "missing.db"]),
        (2, vec!["serve", "--db", "made.db", "--port", &port]),
    ];
    for (code, arguments) in calls {
        let output = folder.sluice(&[&["monitor"], &arguments[..]].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {output:?}");
        assert!(!said.contains("internal error"), "{arguments:?}: {said}");
        if code == 2 {
            assert!(said.contains("sluice monitor: ") || said.contains("error: "), "{arguments:?}: {said}");
        }
        let known: HashSet<String> = match arguments[0] {
            command @ ("compare" | "slice" | "export" | "serve") => {
                folder.sluice(&["monitor", command, "--help"])
            }
            _ => folder.sluice(&["monitor", "--help"]),
        }
        .stdout
        .utf8_chunks()
        .flat_map(|part| options(part.valid()))
        .collect();
        let also = ["--db".to_owned(), "--no-such-option".to_owned()];
        for option in options(&said).iter().filter(|option| !also.contains(option)) {
            assert!(known.contains(option), "{arguments:?}: there is no {option}: {said}");
        }
    }
    let impossible =
        folder.sluice(&["pcap", "generate", "--packets", "10", "--replay", "0.5", "--output", "x.pcap"]);
    assert_eq!(impossible.status.code(), Some(2), "{impossible:?}");
}

fn get(port: &str, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(format!("127.0.0.1:{port}")).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text)
}

/// Packets of the newest run.
fn frames_of(folder: &Folder, database: &str) -> u64 {
    let reader = Reader::open(&folder.path(database)).unwrap();
    reader.overview(reader.run(None).unwrap()).unwrap().counts.packets
}

/// `live_analyzer test.pcap results.db --replay --mode fast`, `pcap_generator.py`, `rest_api_server`, word for word behind
/// the command's name.
#[test]
fn the_forms_of_the_predecessor_work() {
    let folder = Folder::new();
    for line in [
        "pcap generate --packets 10000 --flows 1000 --protocol macsec --seed 42 --output test_100k.pcap",
        "pcap generate --packets 1000 --protocol macsec --output test.pcap",
        "pcap generate --packets 1000 --protocol ipsec --output test.pcap",
        "monitor test_100k.pcap results.db --replay --mode fast",
    ] {
        let output = folder.sluice(&line.split(' ').collect::<Vec<_>>());
        assert_eq!(output.status.code(), Some(0), "{line}: {output:?}");
    }
    assert_eq!(frames_of(&folder, "results.db"), 10_000);
    let other_forms = [
        vec!["monitor", "--replay", "--mode", "fast", "test_100k.pcap", "results.db"],
        vec!["monitor", "test_100k.pcap", "results.db", "--mode", "fast", "--replay"],
        vec!["monitor", "test_100k.pcap", "--replay", "fast", "--db", "results.db"],
        vec!["monitor", "test_100k.pcap", "new.sqlite"],
    ];
    for arguments in other_forms {
        let output = folder.sluice(&arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {output:?}");
    }
    assert_eq!(frames_of(&folder, "new.sqlite"), 10_000);
    let (listener, port) = busy_port();
    drop(listener);
    let mut server = folder.command(&["monitor", "serve", "--db", "results.db", "--port", &port]);
    let server = Running::spawn(&mut server);
    wait_until("the server answers", || {
        get(&port, "/api/v1/stats/summary").is_some_and(|text| text.starts_with("HTTP/1.1 200"))
    });
    kill(Pid::from_raw(server.id() as i32), Signal::SIGTERM).unwrap();
    assert_eq!(server.ended("the server", PATIENCE).status.code(), Some(0));
}
