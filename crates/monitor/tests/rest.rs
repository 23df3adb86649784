//! The REST interface, over real connections.

use crate::common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use common::{Link, store};
use serde_json::Value;
use sluice_metrics::judge;
use sluice_monitor::results::{Database, Detail, RunInfo};
use sluice_monitor::serve::{ENDPOINTS, Served, document, serve};
use sluice_monitor::summary::{Sink, Summary, Update};

/// A server on a port of its own, as long as it lives.
struct Server {
    address: SocketAddr,
    _runtime: tokio::runtime::Runtime,
}

impl Server {
    fn new(database: &Path) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let served = Served::new(database);
        runtime.spawn(async move { serve(listener, &served).await.unwrap() });
        Server { address, _runtime: runtime }
    }

    /// Status, headers, body.
    fn send(&self, request: &str) -> (u16, String, String) {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head[9..12].parse().unwrap(), head.to_lowercase(), body.to_owned())
    }

    fn ask(&self, method: &str, path: &str) -> (u16, String, String) {
        self.send(&format!("{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.address))
    }

    fn get(&self, path: &str) -> Value {
        let (status, head, body) = self.ask("GET", path);
        assert_eq!(status, 200, "{path}: {body}");
        assert!(head.contains("content-type: application/json"), "{path}: {head}");
        serde_json::from_str(&body).unwrap()
    }

    /// Asserts an error that says what, where and what to do.
    fn refuses(&self, status: u16, method: &str, path: &str, place: &str) {
        let (found, _, body) = self.ask(method, path);
        assert_eq!(found, status, "{path}: {body}");
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(body["error"]["where"], place, "{path}");
        for part in ["what", "advice"] {
            assert!(body["error"][part].as_str().unwrap().len() > 5, "{path}: {body}");
        }
    }
}

fn database(folder: &Path) -> PathBuf {
    let path = folder.join("results.db");
    store(&mut Link::new(40, 60_000, 1_000_000).troubled(), &path, Detail::Full);
    path
}

/// Whether a value is what its schema says, so far as these schemas go.
fn conforms(value: &Value, schema: &Value, at: &str) {
    if let Some(name) = schema["$ref"].as_str() {
        let name = name.trim_start_matches("#/components/schemas/");
        return conforms(value, &document()["components"]["schemas"][name], at);
    }
    if let Some(either) = schema["anyOf"].as_array() {
        let chosen = either.iter().find(|schema| (schema["type"] == "null") == value.is_null());
        return conforms(value, chosen.expect("null is one of them"), at);
    }
    let kinds = match &schema["type"] {
        Value::Array(kinds) => kinds.clone(),
        kind => vec![kind.clone()],
    };
    let is = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    assert!(
        kinds.iter().any(|kind| kind == is || (kind == "number" && is == "integer")),
        "{at}: {value} is no {kinds:?}"
    );
    if let Some(items) = value.as_array() {
        items.iter().for_each(|item| conforms(item, &schema["items"], &format!("{at}[]")));
    }
    if let (Some(members), Some(properties)) = (value.as_object(), schema["properties"].as_object()) {
        for name in schema["required"].as_array().unwrap() {
            assert!(members.contains_key(name.as_str().unwrap()), "{at}: {name} is missing");
        }
        for (name, member) in members {
            let schema = properties.get(name).unwrap_or_else(|| panic!("{at}: {name} is not described"));
            conforms(member, schema, &format!("{at}.{name}"));
        }
    }
    if let Some(allowed) = schema["enum"].as_array() {
        assert!(allowed.contains(value), "{at}: {value}");
    }
}

#[test]
fn every_path_answers_as_described() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::new(&database(folder.path()));
    let flows = server.get("/api/v1/flows?limit=3");
    let id = flows["items"][0]["id"].as_str().unwrap();
    let described = server.get("/openapi.json");
    assert_eq!(described, document());
    for endpoint in ENDPOINTS.iter().filter(|endpoint| !endpoint.schema.is_empty()) {
        let answer = server.get(&endpoint.path.replace("{id}", id));
        conforms(&answer, &described["components"]["schemas"][endpoint.schema], endpoint.path);
    }
    // Empty lists would conform to anything.
    for path in ["anomalies", "rekeys", "flows"] {
        assert!(!server.get(&format!("/api/v1/{path}"))["items"].as_array().unwrap().is_empty(), "{path}");
    }
    let (status, head, body) = server.ask("GET", "/metrics");
    assert!(
        status == 200
            && head.contains("text/plain; version=0.0.4")
            && body.contains("sluice_monitor_packets_total")
    );
    judge::read(&body).unwrap();
}

#[test]
fn the_description_has_exactly_the_paths_that_answer() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::new(&database(folder.path()));
    let described = document();
    let mut paths: Vec<_> = described["paths"].as_object().unwrap().keys().map(String::as_str).collect();
    let mut served: Vec<_> =
        ENDPOINTS.iter().map(|endpoint| endpoint.path).chain(["/", "/openapi.json"]).collect();
    paths.sort_unstable();
    served.sort_unstable();
    assert_eq!(paths, served);
    let id = server.get("/api/v1/flows?limit=1")["items"][0]["id"].as_str().unwrap().to_owned();
    for path in paths {
        assert_eq!(server.ask("GET", &path.replace("{id}", &id)).0, 200, "{path}");
        server.refuses(405, "POST", path, path);
    }
}

#[test]
fn figures_agree_with_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::new(&database(folder.path()));
    let summary = server.get("/api/v1/stats/summary");
    let series = server.get("/api/v1/stats/series?points=13");
    let sum =
        |list: &Value, pick: &dyn Fn(&Value) -> i64| list.as_array().unwrap().iter().map(pick).sum::<i64>();
    for name in ["packets", "lost", "late", "duplicates"] {
        let whole = summary["counts"][name].as_i64().unwrap();
        assert_eq!(sum(&series["points"], &|point| point[name].as_i64().unwrap()), whole, "{name}");
        let flows = server.get("/api/v1/flows?limit=1000");
        assert_eq!(sum(&flows["items"], &|flow| flow["counts"][name].as_i64().unwrap()), whole, "{name}");
    }
    let lost = server.get("/api/v1/flows?sort=lost&limit=5");
    let first = &lost["items"][0];
    let gaps = server.get(&format!("/api/v1/flows/{}/gaps?limit=2&offset=1", first["id"].as_str().unwrap()));
    assert_eq!((gaps["items"].as_array().unwrap().len(), &gaps["total"]), (2, &first["gaps"]));
    let ascending = server.get("/api/v1/flows?sort=lost&order=asc&limit=1");
    assert!(ascending["items"][0]["counts"]["lost"].as_i64() < first["counts"]["lost"].as_i64());
    let macsec = server.get("/api/v1/flows?protocol=macsec&limit=1000");
    assert!(macsec["items"].as_array().unwrap().iter().all(|flow| flow["protocol"] == "macsec"));
    let grave = server.get("/api/v1/anomalies?severity=warning&limit=1000");
    assert!(grave["items"].as_array().unwrap().iter().all(|item| item["severity"] != "info"));
}

#[test]
fn bad_questions_are_refused_with_advice() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::new(&database(folder.path()));
    server.refuses(404, "GET", "/nothing", "/nothing");
    server.refuses(404, "GET", "/api/v1/flows/0000000000000001", "id");
    server.refuses(404, "GET", "/api/v1/stats/summary?run=99", "database");
    server.refuses(400, "GET", "/api/v1/flows/xyz", "id");
    server.refuses(400, "GET", "/api/v1/flows/%ff", "id");
    for (question, place) in [
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=-1", "limit"),
        ("limit=+5", "limit"),
        ("limit=", "limit"),
        ("offset=99999999999999999999", "offset"),
        ("sort=colour", "sort"),
        ("sort=lost;DROP", "sort"),
        ("protocol=ipx", "protocol"),
        ("troubled=maybe", "troubled"),
        ("limit=5&limit=6", "limit"),
        ("colour=red", "colour"),
    ] {
        server.refuses(400, "GET", &format!("/api/v1/flows?{question}"), place);
    }
    assert_eq!(server.get("/api/v1/flows?search=%27%20OR%201%3D1")["total"], 0);
    assert_eq!(server.get("/api/v1/flows?offset=1000000")["items"].as_array().unwrap().len(), 0);
}

#[test]
fn other_names_are_refused_and_answers_are_guarded() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::new(&database(folder.path()));
    for host in ["Host: evil.example\r\n", "Host: 127.0.0.1.evil.example:80\r\n"] {
        let (status, _, body) =
            server.send(&format!("GET /health HTTP/1.1\r\n{host}Connection: close\r\n\r\n"));
        assert!(status == 421 && body.contains("Host header"), "{status} {body}");
    }
    let (_, head, page) = server.ask("GET", "/");
    let (_, _, again) = server.ask("GET", "/");
    assert!(
        head.contains("default-src 'none'") && head.contains("nosniff") && head.contains("no-store"),
        "{head}"
    );
    assert!(!head.contains("unsafe-inline") && page != again, "every answer has a nonce of its own");
    assert!(!page.contains("NONCE"));
}

#[test]
fn it_says_when_there_is_no_database_and_finds_one_that_comes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("results.db");
    let server = Server::new(&path);
    server.refuses(503, "GET", "/health", "database");
    let path = database(folder.path());
    assert_eq!(server.get("/health")["status"], "ok");
    // Another file in its place.
    for end in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{end}", path.display()));
    }
    store(&mut Link::new(4, 1000, 1_000_000), &path, Detail::Full);
    assert_eq!(server.get("/api/v1/stats/summary")["counts"]["packets"], 1000);
}

#[test]
fn a_run_at_work_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("results.db");
    let info = RunInfo { source: "eth9".to_owned(), interval_ns: common::SECOND, detail: Detail::Full };
    let database = Database::create(&path, &info).unwrap();
    let server = Server::new(&path);
    let summary = server.get("/api/v1/stats/summary");
    assert_eq!((&summary["run"]["finished"], &summary["counts"]["packets"]), (&false.into(), &0.into()));
    assert_eq!(server.get("/api/v1/stats/series")["points"].as_array().unwrap().len(), 0);
    drop(database);
    let partial = server.get("/api/v1/stats/summary")["run"]["partial"].clone();
    assert!(partial.as_str().unwrap().contains("ended before its summary"), "{partial}");
}

/// Thousands of generated questions, sound and unsound. `make setup` for tests installs schemathesis into target/venv, and
/// SCHEMATHESIS names another one.
#[test]
fn schemathesis_finds_nothing() {
    let venv = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("venv/bin/schemathesis");
    let tool = std::env::var_os("SCHEMATHESIS").map_or(venv, PathBuf::from);
    if !tool.exists() && std::env::var_os("SLUICE_OFFLINE").is_some() {
        eprintln!("not tried: there is no {}", tool.display());
        return;
    }
    assert!(tool.exists(), "no {}: SLUICE_TARGET=test scripts/setup.sh installs it", tool.display());
    let folder = tempfile::tempdir().unwrap();
    let server = Server::new(&database(folder.path()));
    let output = Command::new(tool)
        .arg("run")
        .arg(format!("http://{}/openapi.json", server.address))
        .args(["--checks", "all", "--max-examples", "60", "--seed", "1", "--no-color"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
}

/// Clients that connect and say nothing take no seat from those that ask.
#[test]
fn clients_that_say_nothing_lock_nobody_out() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::new(&database(folder.path()));
    let silent: Vec<_> = (0..1500).map(|_| TcpStream::connect(server.address).unwrap()).collect();
    let start = std::time::Instant::now();
    assert_eq!(server.ask("GET", "/health").0, 200);
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    let is_closed = |mut stream: &TcpStream| {
        stream.set_nonblocking(true).unwrap();
        match stream.read(&mut [0; 1]) {
            Ok(length) => length == 0,
            Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
        }
    };
    let open = silent.iter().filter(|stream| !is_closed(stream)).count();
    assert!((1..=300).contains(&open), "{open} hold a place");
}

/// A client that reads nothing, and one that sends a byte at a time, give up their place.
#[test]
fn slow_clients_are_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::new(&database(folder.path()));
    let mut slow = TcpStream::connect(server.address).unwrap();
    slow.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let start = std::time::Instant::now();
    let cut = loop {
        assert!(start.elapsed() < Duration::from_secs(20), "it still holds its place");
        if slow.write_all(b"G").is_err() {
            break start.elapsed();
        }
        match slow.read(&mut [0; 64]) {
            Ok(0) => break start.elapsed(),
            Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => break start.elapsed(),
            _ => {}
        }
    };
    assert!(cut > Duration::from_secs(2), "{cut:?}: it was given no time");
}

/// While a run is at work, its channels' states are not known: nothing is said of them.
#[test]
fn what_is_not_known_yet_is_null() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("results.db");
    let mut sink = Running(
        Database::create(
            &path,
            &RunInfo { source: "x".to_owned(), interval_ns: 1_000_000_000, detail: Detail::Full },
        )
        .unwrap(),
    );
    common::run(&mut Link::new(40, 60_000, 1_000_000).troubled(), &mut sink);
    std::thread::sleep(Duration::from_millis(700));
    let server = Server::new(&path);
    let page = server.get("/api/v1/flows?limit=5");
    let flow = &page["items"][0];
    assert!(flow["counts"]["packets"].as_u64().unwrap() > 0 && flow["lives"] == 0, "{flow}");
    for name in ["first_ns", "protection", "gaps", "min_payload", "reorder", "restarts", "no_counter"] {
        assert!(flow[name].is_null(), "{name}: {}", flow[name]);
    }
    conforms(&page, &serde_json::json!({ "$ref": "#/components/schemas/FlowPage" }), "flows");
    let one = server.get(&format!("/api/v1/flows/{}", flow["id"].as_str().unwrap()));
    assert!(one["protection"].is_null(), "{one}");
}

/// Takes what comes during a run, and not its end.
struct Running(Database);

impl Sink for Running {
    fn update(&mut self, mut update: Update) -> anyhow::Result<()> {
        update.channels.clear();
        self.0.update(update)
    }

    fn finish(&mut self, _: &Summary) -> anyhow::Result<()> {
        Ok(())
    }
}
