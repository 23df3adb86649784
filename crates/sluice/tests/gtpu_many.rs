//! As many sessions as there is room for: filled over the API, refused beyond that, kept over a commit and over a daemon that is
//! killed. `make soak` does it with a million.

use crate::common;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Instant;

use common::{Site, accepted};
use serde_json::{Value, json};
use sluice_lab::gateway::Gateway;

/// Sessions of a request; some more do not fit into a body.
const AT_ONCE: usize = 50_000;

fn plane(sessions: usize, more: &str) -> String {
    format!(
        "\
set interfaces mif unit 0 family inet address 100.64.0.1/10
set interfaces mif unit 0 family inet mtu 1400
set security zones security-zone mobile interfaces mif.0
set services gtp-u interface left0.0 role n3
set services gtp-u sessions-maximum {sessions}
set services gtp-u pool subscribers prefix 100.64.0.0/10
set services gtp-u pool subscribers mobile-interface mif.0
set services gtp-u rules gold qfi 9
set services gtp-u rules silver qfi 8
{more}"
    )
}

/// The session of this number; one in ten thousand leads to another base station.
fn session(number: usize) -> Value {
    let address = std::net::Ipv4Addr::from(0x6440_0100 + number as u32);
    let peer = format!("10.71.1.{}", 2 + number / 10_000 % 100);
    let rules = if number.is_multiple_of(2) { "gold" } else { "silver" };
    json!({ "name": format!("ue-{number}"), "teid": number + 1, "address": address.to_string(), "peer": peer,
            "peer_teid": number + 1, "rules": rules })
}

/// What is answered: its status, and its body.
fn asks(socket: &Path, path: &str, body: &Value) -> (u16, Value) {
    let body = body.to_string();
    let mut stream = UnixStream::connect(socket).unwrap();
    let head = format!(
        "POST {path} HTTP/1.0\r\nHost: sluice\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").expect("an HTTP answer");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, serde_json::from_str(body).unwrap_or_default())
}

fn add(site: &Site, sessions: &[Value]) -> (u16, Value) {
    asks(&site.state().join("sluice.sock"), "/api/gtp-u/sessions/add", &Value::from(sessions))
}

fn count(gateway: &Gateway) -> u64 {
    gateway.json("/api/gtp-u").unwrap()["counts"]["sessions"].as_u64().unwrap()
}

/// Of so many things, and how long each took.
struct Times(Vec<String>);

impl Times {
    fn of<T>(&mut self, what: &str, work: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let done = work();
        self.0.push(format!("{what} {:.2} s", begun.elapsed().as_secs_f64()));
        done
    }
}

fn fill(site: &Site, sessions: usize) {
    for first in (0..sessions).step_by(AT_ONCE) {
        let last = (first + AT_ONCE).min(sessions);
        let some: Vec<Value> = (first..last).map(session).collect();
        let (status, answer) = add(site, &some);
        assert_eq!((status, &answer["added"]), (200, &(last - first).into()), "{answer}");
    }
}

/// What has no room, or belongs to another, says so and changes nothing, wherever in a list it stands.
fn refusals(site: &Site, gateway: &Gateway, sessions: usize) {
    let free = [sessions - 2, sessions - 1].map(session);
    let other = |number: usize, key: &str, of: usize| {
        let mut wrong = session(number);
        wrong[key] = session(of)[key].clone();
        wrong
    };
    let last = sessions - 1;
    for (wrong, status, said) in [
        (other(last, "teid", 5), 409, "TEID 0x00000006 belongs to another session"),
        (other(last, "address", 5), 409, "100.64.1.5 belongs to another session"),
        (other(last, "name", 5), 409, "there is a session `ue-5` already"),
        (other(last, "teid", sessions - 2), 409, "belongs to another session"),
        (other(last, "address", sessions - 2), 409, "belongs to another session"),
        (other(last, "name", sessions - 2), 409, "already"),
    ] {
        let (seen, answer) = add(site, &[free[0].clone(), wrong.clone()]);
        assert!(seen == status && answer.to_string().contains(said), "{wrong}: {seen} {answer}");
        assert_eq!(count(gateway), sessions as u64 - 2);
    }
    let three = [free[0].clone(), free[1].clone(), session(sessions)];
    let (seen, answer) = add(site, &three);
    let said =
        format!("there would be {} sessions, and sessions-maximum is {sessions}; raise it", sessions + 1);
    assert!(seen == 507 && answer.to_string().contains(&said), "{seen} {answer}");
    assert_eq!(count(gateway), sessions as u64 - 2);
    assert_eq!(add(site, &free).0, 200);
    let (seen, answer) = add(site, &[session(sessions)]);
    assert!(seen == 507 && answer.to_string().contains("end some"), "{seen} {answer}");
}

/// The last session is as it was asked for.
fn is_there(gateway: &Gateway, sessions: usize) {
    assert_eq!(count(gateway), sessions as u64);
    let last = session(sessions - 1);
    let found =
        gateway.json(&format!("/api/gtp-u/sessions?name={}", last["name"].as_str().unwrap())).unwrap();
    for key in ["name", "teid", "address", "peer", "peer_teid", "rules"] {
        assert_eq!(found["sessions"][0][key], last[key], "{found}");
    }
}

fn lives_with(sessions: usize) {
    let site = Site::new("gtpu-many");
    let conf = site.write("a.conf", &plane(sessions, ""));
    let mut gateway = site.start(&conf);
    let mut times = Times(vec![]);
    times.of("filled in", || fill(&site, sessions - 2));
    refusals(&site, &gateway, sessions);
    let memory = gateway.pid().map(resident).unwrap_or_default();
    is_there(&gateway, sessions);
    times.of("usage of all in", || {
        assert_eq!(gateway.json("/api/gtp-u/usage?limit=1").unwrap()["total"], sessions);
    });
    let other = site.write("b.conf", &plane(sessions, "set services gtp-u rules bronze qfi 7\n"));
    times.of("a commit in", || accepted(&site.commit(&other)));
    is_there(&gateway, sessions);
    gateway.kill().unwrap();
    times.of("a start in", || gateway.start().unwrap());
    is_there(&gateway, sessions);
    let change = json!({ "name": "ue-7", "peer_teid": 9, "rules": "bronze" });
    let socket = site.state().join("sluice.sock");
    times.of("a change in", || assert_eq!(asks(&socket, "/api/gtp-u/sessions/change", &change).0, 200));
    let all =
        times.of("all ended in", || asks(&socket, "/api/gtp-u/sessions/remove", &json!({ "all": true })));
    assert_eq!((all.0, &all.1["removed"]), (200, &sessions.into()), "{}", all.1);
    assert_eq!(count(&gateway), 0);
    println!("{sessions} sessions: {}; the daemon has {memory} MB", times.0.join(", "));
}

/// Megabytes of a process.
fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kib.unwrap_or(0) / 1024
}

#[test]
fn a_full_table_refuses_and_keeps_what_it_has() {
    lives_with(if common::is_soak() { 1_000_000 } else { 20_000 });
}
