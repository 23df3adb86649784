//! The gate end to end: grants over the socket and by configuration, limits without a daemon, revocation of live
//! connections, restarts, kills and commits under flood, the audit.

use crate::common;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use common::{Site, accepted, is_soak, refused, wait_until};
use serde_json::{Value, json};
use sluice_lab::netns::Netns;

/// left demands grants; the services are right's, and the gateway's own ssh port.
pub const GATE: &str = "\
set services gate zone left
set services gate service db destination-address 10.71.2.2
set services gate service db destination-address fd71:2::2
set services gate service db protocol tcp
set services gate service db destination-port 5432
set services gate service feed destination-address 10.71.2.2
set services gate service feed protocol udp
set services gate service feed destination-port 7000
set services gate service ping destination-address 10.71.2.2
set services gate service ping protocol icmp
set services gate service own destination-address 10.71.1.1
set services gate service own protocol icmp
";

/// What a socket of a namespace needs is the moment of its making.
fn inside<T: Send>(netns: &Netns, work: impl FnOnce() -> T + Send) -> T {
    netns.enter(work).unwrap()
}

/// Answers every line with itself, on the database's port, as long as the process lives.
fn serve_echo(netns: &Netns) {
    let listener = inside(netns, || TcpListener::bind(("10.71.2.2", 5432)).unwrap());
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let (mut stream, mut buffer) = (stream, [0; 256]);
                while let Ok(read @ 1..) = stream.read(&mut buffer) {
                    if stream.write_all(&buffer[..read]).is_err() {
                        break;
                    }
                }
            });
        }
    });
}

fn connect(netns: &Netns) -> Option<TcpStream> {
    inside(netns, || {
        TcpStream::connect_timeout(&"10.71.2.2:5432".parse().unwrap(), Duration::from_millis(700)).ok()
    })
}

/// Whether a word comes back.
fn echoes(stream: &mut TcpStream, patience: Duration) -> bool {
    stream.set_read_timeout(Some(patience)).unwrap();
    let mut buffer = [0; 16];
    stream.write_all(b"select\n").is_ok() && matches!(stream.read(&mut buffer), Ok(1..))
}

fn grant(site: &Site, user: &str, source: &str, service: &str, more: &[&str]) -> String {
    let mut words = vec!["gate", "grant", "--user", user, "--source", source, "--service", service];
    words.extend(more);
    accepted(&site.sluice(&words))
}

fn audit(site: &Site) -> Vec<Value> {
    let text = std::fs::read_to_string(site.state().join("gate-audit.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn events(site: &Site) -> Vec<(String, String)> {
    let word = |line: &Value, name: &str| line[name].as_str().unwrap_or("").to_owned();
    audit(site).iter().map(|line| (word(line, "event"), word(line, "user"))).collect()
}

fn drops(gateway: &sluice_lab::gateway::Gateway, reason: &str) -> u64 {
    let stats = gateway.json("/api/stats").unwrap();
    let drops = stats["drops"].as_array().unwrap();
    drops.iter().find(|d| d["reason"] == reason).map_or(0, |d| d["packets"].as_u64().unwrap())
}

#[test]
fn a_database_denied_granted_used_revoked_live() {
    let site = Site::new("gatedb");
    serve_echo(&site.right);
    let gateway = site.start(&site.write("a.conf", GATE));
    assert!(connect(&site.left).is_none(), "denied");
    assert!(drops(&gateway, "gate_no_grant") > 0);
    assert!(
        site.silent(&site.left, "10.71.2.2") && site.silent(&site.left, "10.71.1.1"),
        "nor anything else"
    );

    assert!(grant(&site, "alice", "10.71.1.2", "db", &["--idle-timeout", "600"]).contains("given"));
    let mut stream = connect(&site.left).expect("granted");
    assert!(echoes(&mut stream, Duration::from_secs(2)), "used");
    assert!(site.silent(&site.left, "10.71.2.2"), "a grant opens its service and nothing else");
    let list = accepted(&site.sluice(&["gate", "list"]));
    assert!(list.contains("alice") && list.contains("10.71.1.2/32"), "{list}");

    assert!(accepted(&site.sluice(&["gate", "revoke", "--user", "alice"])).starts_with("1 grants"));
    assert!(!echoes(&mut stream, Duration::from_millis(500)), "revoked live");
    assert!(connect(&site.left).is_none());
    assert!(drops(&gateway, "grant_revoked") > 0);

    let wanted = [("grant", "alice"), ("revoke", "alice")].map(|(e, u)| (e.to_owned(), u.to_owned()));
    assert_eq!(events(&site), wanted);
    let line = &audit(&site)[0];
    assert_eq!(
        (&line["service"], &line["by"], &line["idle_timeout_s"]),
        (&json!("db"), &json!("uid 0"), &json!(600))
    );
    let denials = || accepted(&site.sluice(&["show", "log"])).contains("RT_GATE_DENY");
    wait_until("a denial is logged", Duration::from_secs(3), denials);
    let stats = gateway.json("/api/stats").unwrap();
    assert_eq!(stats["equations"]["ingress"]["difference"], 0);
    let metrics = site.gateway.run(
        "curl",
        ["-s", "--unix-socket", &site.state().join("sluice.sock").display().to_string(), "http://x/metrics"],
    );
    if let Ok(text) = metrics {
        assert!(text.contains("sluice_grants_ended_total{cause=\"revoked\"} 1"), "{text}");
    }
    drop(stream);
}

#[test]
fn wrong_grants_are_refused_by_name() {
    let site = Site::new("gatebad");
    let _gateway = site.start(&site.write("a.conf", &format!("{GATE}set services gate max-grants 16\n")));
    let ask = |source: &str, service: &str, user: &str| {
        site.sluice(&["gate", "grant", "--user", user, "--source", source, "--service", service])
    };
    assert!(refused(&ask("10.71.1.2", "dbb", "a"), 2).contains("service `dbb` is not configured; known: "));
    assert!(refused(&ask("10.71.1.300", "db", "a"), 2).contains("no address or prefix"));
    assert!(refused(&ask("10.71.1.2/24", "db", "a"), 1).contains("host bits"));
    assert!(refused(&ask("10.71.1.2", "db", ""), 1).contains("user name"));
    accepted(&ask("10.71.1.2", "db", "alice"));
    assert!(accepted(&ask("10.71.1.2", "db", "alice")).contains("renewed"));
    assert!(refused(&ask("10.71.1.2", "db", "bob"), 1).contains("given to alice"));
    refused(&site.sluice(&["gate", "revoke", "--service", "dbb"]), 2);
    everybody_is_not_granted_by_mistake(&site);

    // the table refuses when it is full, and takes nothing away
    let list: Vec<Value> =
        (0..16).map(|n| json!({"user": "many", "source": format!("10.72.0.{n}"), "service": "db"})).collect();
    let file = site.write_all("many.json", &Value::from(list.clone()).to_string()).display().to_string();
    let message = refused(&site.sluice(&["gate", "grant", "--file", &file]), 1);
    assert!(message.contains("16 new grants, and there is room for 15 of 16"), "{message}");
    let file =
        site.write_all("many.json", &Value::from(list[..15].to_vec()).to_string()).display().to_string();
    assert!(accepted(&site.sluice(&["gate", "grant", "--file", &file])).contains("15 grants given"));
    assert!(refused(&ask("10.71.1.3", "db", "late"), 1).contains("room for 0 of 16"));
    let show = accepted(&site.sluice(&["show", "gate"]));
    assert!(show.contains("16 grants, room for 16") && show.contains("17 found no room"), "{show}");
}

fn everybody_is_not_granted_by_mistake(site: &Site) {
    for all in ["0.0.0.0/0", "::/0"] {
        let words = ["gate", "grant", "--user", "all", "--source", all, "--service", "db"];
        assert!(refused(&site.sluice(&words), 2).contains("--any-source"));
        let file = |any: bool| {
            let mut grant = json!({"user": "all", "source": all, "service": "db"});
            if any {
                grant["any_source"] = true.into();
            }
            site.write_all("all.json", &Value::from(vec![grant]).to_string()).display().to_string()
        };
        assert!(refused(&site.sluice(&["gate", "grant", "--file", &file(false)]), 2).contains("any_source"));
        accepted(&site.sluice(&["gate", "grant", "--file", &file(true)]));
        accepted(&site.sluice(&[&words[..], &["--any-source"]].concat()));
        accepted(&site.sluice(&["gate", "revoke", "--source", all]));
    }
    let all =
        "set services gate grant all source-address 0.0.0.0/0\nset services gate grant all service db\n";
    let committed =
        site.commit(&site.write("all.conf", &format!("{GATE}set services gate max-grants 16\n{all}")));
    let said = accepted(&committed) + &common::stderr(&committed);
    assert!(said.contains("opens service `db` to every host"), "{said}");
    accepted(&site.commit(&site.write("none.conf", &format!("{GATE}set services gate max-grants 16\n"))));
}

/// Limits hold to the second while no daemon lives, on both hooks.
fn limits_without_a_daemon(label: &str, mode: &str) {
    let site = Site::new(label);
    for host in [&site.left, &site.right] {
        host.run("ethtool", ["-K", "eth0", "gro", "on"]).unwrap();
    }
    let more = format!("{GATE}set system services sluice mode {mode}\n");
    let mut gateway = site.start(&site.write("a.conf", &more));
    assert!(site.silent(&site.left, "10.71.2.2"));
    grant(&site, "capped", "10.71.1.2", "ping", &["--absolute-timeout", "8"]);
    let given = Instant::now();
    grant(&site, "idle", "10.71.1.2", "own", &["--idle-timeout", "3"]);
    assert!(site.pings(&site.left, "10.71.1.1"));
    let used = Instant::now();
    gateway.kill().unwrap();
    sleep(Duration::from_millis(1500));
    assert!(site.pings(&site.left, "10.71.1.1"), "used within its idle time");
    let used_again = Instant::now();
    assert!(
        used.elapsed() < Duration::from_millis(2900),
        "this machine is too slow to tell: {:?}",
        used.elapsed()
    );
    let until = |moment: Instant, ms: u64| sleep(Duration::from_millis(ms).saturating_sub(moment.elapsed()));
    until(given, 6800);
    assert!(site.pings(&site.left, "10.71.2.2"), "a second before its end");
    assert!(
        given.elapsed() < Duration::from_millis(7800),
        "this machine is too slow to tell: {:?}",
        given.elapsed()
    );
    until(used_again, 3400);
    assert!(site.silent(&site.left, "10.71.1.1"), "idle for more than 3 s");
    until(given, 8100);
    assert!(site.silent(&site.left, "10.71.2.2"), "8 s are over");

    gateway.start().unwrap();
    assert!(site.silent(&site.left, "10.71.2.2") && site.silent(&site.left, "10.71.1.1"));
    let over = || events(&site).iter().filter(|(event, _)| event == "expire").count() == 2;
    wait_until("both ends are written down", Duration::from_secs(4), over);
    let reasons: Vec<Value> = audit(&site).iter().map(|line| line["reason"].clone()).collect();
    assert!(reasons.contains(&json!("absolute-timeout")) && reasons.contains(&json!("idle-timeout")));
}

#[test]
fn limits_hold_without_a_daemon_on_tc() {
    limits_without_a_daemon("gateexptc", "tc");
}

#[test]
fn limits_hold_without_a_daemon_on_xdp() {
    limits_without_a_daemon("gateexpxdp", "xdp");
}

#[test]
fn grants_survive_restarts_and_unrelated_commits_and_end_with_their_service() {
    let site = Site::new("gatekeep");
    serve_echo(&site.right);
    let conf = site.write("a.conf", &format!("{GATE}set services gate grant admin source-address 10.71.1.2\nset services gate grant admin service own\n"));
    let mut gateway = site.start(&conf);
    grant(&site, "alice", "10.71.1.2", "db", &[]);
    let mut stream = connect(&site.left).unwrap();
    for crash in [false, true] {
        if crash {
            gateway.kill().unwrap();
        } else {
            assert!(gateway.stop().unwrap().success());
        }
        assert!(echoes(&mut stream, Duration::from_secs(2)), "without a daemon");
        gateway.start().unwrap();
        assert!(echoes(&mut stream, Duration::from_secs(2)), "with the next one");
        assert!(connect(&site.left).is_some() && site.pings(&site.left, "10.71.1.1"));
    }
    let text = std::fs::read_to_string(&conf).unwrap();
    accepted(&site.commit(&site.write_all("b.conf", &format!("{text}set system host-name other\n"))));
    assert!(echoes(&mut stream, Duration::from_secs(2)) && connect(&site.left).is_some());
    assert_eq!(gateway.json("/api/gate").unwrap()["grants"], 2);

    // a configured grant that was revoked stays so, until it is written anew
    accepted(&site.sluice(&["gate", "revoke", "--user", "admin"]));
    accepted(&site.commit(&conf));
    assert!(site.silent(&site.left, "10.71.1.1"));
    accepted(&site.commit(&site.write_all("c.conf", &text.replace("admin", "boss"))));
    assert!(site.pings(&site.left, "10.71.1.1"));

    let without: String =
        text.lines().filter(|l| !l.contains("service db")).map(|l| format!("{l}\n")).collect();
    accepted(&site.commit(&site.write_all("d.conf", &without)));
    assert!(!echoes(&mut stream, Duration::from_millis(500)), "its service is gone");
    accepted(&site.commit(&conf));
    assert!(connect(&site.left).is_none(), "and its grants with it");
    let last = audit(&site);
    assert!(last.iter().any(|line| line["reason"] == "service removed" && line["user"] == "alice"));
}

/// 100,000 grants within two seconds, and live traffic of one of them stopped within 100 ms by whatever name it goes.
#[test]
fn a_hundred_thousand_grants() {
    let site = Site::new("gatemany");
    let gateway = site.start(&site.write("a.conf", GATE));
    let feed = UdpFeed::start(&site);
    let list = |user: &str| -> Vec<u8> {
        let one = |n: u32| {
            let source = Ipv4Addr::from(0x0a49_0000 + n);
            format!("{{\"user\":\"{user}\",\"source\":\"{source}\",\"service\":\"feed\"}}")
        };
        let live = format!("{{\"user\":\"{user}\",\"source\":\"10.71.1.2\",\"service\":\"feed\"}}");
        let all: Vec<String> = (0..99_999).map(one).chain([live]).collect();
        format!("[{}]", all.join(",")).into_bytes()
    };
    let file = site.dir().join("many.json");
    std::fs::write(&file, list("crowd")).unwrap();
    let file = file.display().to_string();
    for by in [["--user", "crowd"], ["--service", "feed"], ["--all", ""]] {
        let begun = Instant::now();
        let done = accepted(&site.sluice(&["gate", "grant", "--file", &file]));
        let took = begun.elapsed();
        assert!(done.starts_with("100000 grants given"), "{done}");
        println!("100,000 grants over the socket in {took:?}");
        assert!(took < Duration::from_secs(20), "{took:?}");
        wait_until("the feed arrives", Duration::from_secs(2), || feed.is_fresh());
        let words: Vec<&str> = by.into_iter().filter(|word| !word.is_empty()).collect();
        let begun = Instant::now();
        let answer = accepted(&site.sluice(&[&["gate", "revoke", "--json"], &words[..]].concat()));
        let stopped = feed.last_seen();
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(answer["revoked"], 100_000);
        println!(
            "revoked by {by:?}: {} us, last packet {:?} after",
            answer["took_us"],
            stopped.saturating_duration_since(begun)
        );
        sleep(Duration::from_millis(100));
        let before = feed.count();
        sleep(Duration::from_millis(300));
        assert_eq!(feed.count(), before, "nothing passes any more");
    }
    // by number, among many
    accepted(&site.sluice(&["gate", "grant", "--file", &file]));
    wait_until("the feed arrives", Duration::from_secs(2), || feed.is_fresh());
    let own = gateway.json("/api/gate/grants?source=10.71.1.2").unwrap();
    let number = own["grants"][0]["grant"].to_string();
    accepted(&site.sluice(&["gate", "revoke", "--grant", &number]));
    sleep(Duration::from_millis(100));
    let before = feed.count();
    sleep(Duration::from_millis(300));
    assert_eq!(feed.count(), before);
    assert_eq!(gateway.json("/api/gate").unwrap()["grants"], 99_999, "the others hold");
}

/// Datagrams from left to right without a pause, and when the last one arrived.
struct UdpFeed {
    stop: Arc<AtomicBool>,
    count: Arc<AtomicU64>,
    /// Nanoseconds after `begun`.
    last: Arc<AtomicU64>,
    begun: Instant,
    threads: Vec<thread::JoinHandle<()>>,
}

impl UdpFeed {
    fn start(site: &Site) -> UdpFeed {
        let sink = inside(&site.right, || UdpSocket::bind("10.71.2.2:7000").unwrap());
        let source = inside(&site.left, || UdpSocket::bind("10.71.1.2:7001").unwrap());
        sink.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let (stop, count, last) =
            (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
        let begun = Instant::now();
        let (stop1, stop2, count1, last1) = (stop.clone(), stop.clone(), count.clone(), last.clone());
        let send = thread::spawn(move || {
            while !stop1.load(Ordering::Relaxed) {
                // refused by an ICMP error or not: the next one is sent
                let _ = source.send_to(b"tick", "10.71.2.2:7000");
                sleep(Duration::from_micros(500));
            }
        });
        let take = thread::spawn(move || {
            let mut buffer = [0; 64];
            while !stop2.load(Ordering::Relaxed) {
                if sink.recv(&mut buffer).is_ok() {
                    count1.fetch_add(1, Ordering::Relaxed);
                    last1.store(begun.elapsed().as_nanos() as u64, Ordering::Relaxed);
                }
            }
        });
        UdpFeed { stop, count, last, begun, threads: vec![send, take] }
    }

    fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    fn last_seen(&self) -> Instant {
        self.begun + Duration::from_nanos(self.last.load(Ordering::Relaxed))
    }

    fn is_fresh(&self) -> bool {
        self.count() > 0 && self.last_seen().elapsed() < Duration::from_millis(20)
    }
}

impl Drop for UdpFeed {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // a thread that panicked has said so
            let _ = thread.join();
        }
    }
}

/// Not one packet without a grant gets through while the daemon restarts, is killed and commits, 100 times in all.
#[test]
fn nothing_leaks_over_restarts_kills_and_commits() {
    let site = Site::new("gateleak");
    let conf = site.write("a.conf", GATE);
    let mut gateway = site.start(&conf);
    let feed = UdpFeed::start(&site);
    sleep(Duration::from_millis(200));
    for round in 0..if is_soak() { 100 } else { 20 } {
        match round % 4 {
            0 => assert!(gateway.stop().unwrap().success()),
            1 => drop(gateway.kill().unwrap()),
            _ => {
                accepted(&site.commit(&conf));
                continue;
            }
        }
        gateway.start().unwrap();
    }
    assert_eq!(feed.count(), 0, "packets without a grant arrived");
    assert!(drops(&gateway, "gate_no_grant") > 1000, "and they were sent");
    grant(&site, "late", "10.71.1.2", "feed", &[]);
    wait_until("with a grant they arrive", Duration::from_secs(2), || feed.is_fresh());
}
