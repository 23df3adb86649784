//! The user plane end to end: sessions by configuration and over the API, what is refused, what outlives the daemon.

use crate::common;

use std::net::{IpAddr, UdpSocket};
use std::time::Duration;

use common::{EXTRA, Site, accepted, balances, refused, stderr, wait_until};
use serde_json::{Value, json};
use sluice_lab::gateway::Gateway;
use sluice_lab::gnb::{DEVICE, Gnb, Tunnel};
use sluice_lab::netns::Netns;

/// Base stations are left, the data network is right.
pub const PLANE: &str = "\
set interfaces mif unit 0 family inet address 10.45.0.1/16
set interfaces mif unit 0 family inet mtu 1400
set security zones security-zone mobile interfaces mif.0
set security zones security-zone mobile host-inbound-traffic system-services ping
set security policies from-zone mobile to-zone right policy out match source-address any
set security policies from-zone mobile to-zone right policy out match destination-address any
set security policies from-zone mobile to-zone right policy out match application any
set security policies from-zone mobile to-zone right policy out then permit
set services gtp-u interface left0.0 role n3
set services gtp-u sessions-maximum 1000
set services gtp-u pool subscribers prefix 10.45.0.0/16
set services gtp-u pool subscribers prefix 2001:db8:45::/48
set services gtp-u pool subscribers mobile-interface mif.0
set services gtp-u rules gold qfi 9
set services gtp-u rules gold uplink maximum-bit-rate 10m
set services gtp-u rules plain qfi 9
";

pub const ALICE: &str = "\
set services gtp-u session alice teid 0x1001
set services gtp-u session alice address 10.45.0.2
set services gtp-u session alice peer address 10.71.1.2
set services gtp-u session alice peer teid 0x2001
set services gtp-u session alice rules plain
";

fn api(site: &Site, operation: &str, body: &Value) -> std::process::Output {
    let file = site.dir().join("body.json");
    std::fs::write(&file, body.to_string()).unwrap();
    site.sluice(&["api", operation, "--body", file.to_str().unwrap()])
}

pub fn changed(site: &Site, operation: &str, body: &Value) -> Value {
    serde_json::from_str(&accepted(&api(site, operation, body))).unwrap()
}

fn names(gateway: &Gateway) -> Vec<String> {
    let list = gateway.json("/api/gtp-u/sessions").unwrap();
    let name = |session: &Value| session["name"].as_str().unwrap().to_owned();
    let mut names: Vec<String> = list["sessions"].as_array().unwrap().iter().map(name).collect();
    names.sort();
    names
}

pub fn bob(teid: Option<u32>) -> Value {
    let mut bob = json!({ "name": "bob", "address": "10.45.0.3", "prefix": "2001:db8:45:3::/64",
                          "peer": "10.71.1.2", "peer_teid": 0x2002, "rules": "gold" });
    if let Some(teid) = teid {
        bob["teid"] = teid.into();
    }
    bob
}

#[test]
fn sessions_are_made_changed_and_ended_over_the_api() {
    let site = Site::new("gtpu-api");
    let gateway = site.start(&site.write("a.conf", &format!("{PLANE}{ALICE}")));
    assert_eq!(names(&gateway), ["alice"]);
    let added = changed(&site, "add-gtp-u-sessions", &bob(None));
    let teid = added["teids"][0].as_u64().unwrap();
    assert!(teid != 0 && teid != 0x1001, "{added}");
    let list = gateway.json("/api/gtp-u/sessions?address=2001:db8:45:3::77").unwrap();
    let (total, session) = (&list["total"], &list["sessions"][0]);
    assert_eq!((total, &session["teid"], &session["name"]), (&1.into(), &teid.into(), &"bob".into()));
    assert_eq!((&session["qfi"], &session["interface"]), (&9.into(), &"mif.0".into()), "{session}");
    let change = json!({ "name": "bob", "rules": "", "peer_teid": 7, "downlink_quota": 5000 });
    assert_eq!(changed(&site, "change-gtp-u-session", &change)["changed"], 1);
    let session = &gateway.json("/api/gtp-u/sessions?name=bob").unwrap()["sessions"][0];
    assert_eq!((&session["qfi"], &session["peer_teid"]), (&Value::Null, &7.into()), "{session}");
    assert_eq!(session["usage"]["downlink_quota"], 5000, "{session}");
    let peers = gateway.json("/api/gtp-u/peers").unwrap();
    assert_eq!((&peers[0]["peer"], peers.as_array().unwrap().len()), (&"10.71.1.2".into(), 1), "{peers}");
    let view = gateway.json("/api/gtp-u").unwrap();
    assert_eq!((&view["counts"]["sessions"], &view["counts"]["by_configuration"]), (&2.into(), &1.into()));
    assert!(gateway.get("/metrics").unwrap().contains("sluice_gtpu_sessions{from=\"api\"} 1"));
    let removed = changed(&site, "remove-gtp-u-sessions", &json!({ "all": true }));
    assert_eq!((&removed["removed"], &removed["usage"][0]["name"]), (&1.into(), &"bob".into()), "{removed}");
    let relay = json!({ "name": "onward", "relay": true, "peer": "10.71.1.3", "peer_teid": 0x3001 });
    let teid = changed(&site, "add-gtp-u-sessions", &relay)["teids"][0].clone();
    let session = &gateway.json("/api/gtp-u/sessions?name=onward").unwrap()["sessions"][0];
    assert_eq!((&session["teid"], &session["peer_teid"]), (&teid, &0x3001.into()), "{session}");
    changed(&site, "remove-gtp-u-sessions", &json!({ "name": "onward" }));
    assert_eq!(names(&gateway), ["alice"], "the configuration's own stays");
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let site = Site::new("gtpu-wrong");
    let without = site.write("without.conf", "");
    let gateway = site.start(&without);
    let said = stderr(&api(&site, "add-gtp-u-sessions", &bob(None)));
    assert!(said.contains("services gtp-u") || said.contains("is in no pool"), "{said}");
    let conf = site.write("a.conf", &format!("{PLANE}{ALICE}"));
    accepted(&site.commit(&conf));
    let with = |key: &str, value: Value| {
        let mut bob = bob(Some(0x1002));
        bob[key] = value;
        bob
    };
    for (body, said) in [
        (with("teid", 0x1001.into()), "0x00001001 belongs to another session"),
        (with("address", "10.45.0.2".into()), "10.45.0.2 belongs to another session"),
        (with("address", "10.46.0.2".into()), "10.46.0.2 is in no pool"),
        (with("address", "10.45.0.1".into()), "where this gateway has 10.45.0.1"),
        (with("prefix", "2001:db8:45:3::/60".into()), "no IPv6 prefix of 64 bits"),
        (with("name", "alice".into()), "there is a session `alice` already"),
        (with("rules", "golden".into()), "did you mean `gold`"),
        (with("local_address", "fd71:1::1".into()), "of different families"),
        (with("peer", "10.71.1.1".into()), "this gateway itself"),
        (with("uplink_quota", 0.into()), "uplink_quota"),
        (json!([bob(Some(0x1002)), bob(Some(0x1003))]), "already"),
        (with("relay", true.into()), "it is a relay and has the subscriber"),
        (Value::Array(vec![bob(None); 1000]), "there would be 1001 sessions, and sessions-maximum is 1000"),
    ] {
        let output = api(&site, "add-gtp-u-sessions", &body);
        let text = stderr(&output);
        assert!(!output.status.success() && text.contains(said), "{body}: {text}");
    }
    for (operation, body, said) in [
        ("change-gtp-u-session", json!({ "name": "alice", "rules": "gold" }), "stands in the configuration"),
        ("remove-gtp-u-sessions", json!({ "name": "alice" }), "stands in the configuration"),
        ("remove-gtp-u-sessions", json!({ "name": "nobody" }), "there is no session `nobody`"),
        ("remove-gtp-u-sessions", json!({}), "exactly one of"),
    ] {
        let text = stderr(&api(&site, operation, &body));
        assert!(text.contains(said), "{body}: {text}");
    }
    assert_eq!(names(&gateway), ["alice"]);
    // a wrong commit says where
    let wrong =
        site.write("wrong.conf", &format!("{PLANE}{ALICE}set services gtp-u session carol teid 0x1001\n"));
    let said = refused(&site.commit(&wrong), 2);
    assert!(said.contains("carol") && said.contains("lacks"), "{said}");
    assert_eq!(names(&gateway), ["alice"]);
    // what has no place any more ends, and who commits is told
    changed(&site, "add-gtp-u-sessions", &bob(None));
    let other = PLANE.replace("rules gold", "rules silver");
    let done = site.commit(&site.write("other.conf", &format!("{other}{ALICE}")));
    accepted(&done);
    let told = common::stdout(&done) + &stderr(&done);
    assert!(told.contains("GTP-U session `bob` has ended") && told.contains("gold"), "{told}");
    assert_eq!(names(&gateway), ["alice"]);
    accepted(&site.commit(&without));
    assert!(names(&gateway).is_empty());
    assert!(!site.gateway.ip("link show").unwrap().contains("mif.0"), "its devices are gone");
}

#[test]
fn tunnels_take_xdp_on_veth_where_nothing_is_lost_by_it() {
    let site = Site::new("gtpu-hook");
    let conf = site.write("a.conf", &format!("{PLANE}{ALICE}"));
    let gateway = site.start(&conf);
    let modes = || {
        let stats = gateway.json("/api/stats").unwrap();
        let mode = |name: &str| {
            let of = |interface: &&Value| interface["name"] == name;
            stats["interfaces"].as_array().unwrap().iter().find(of).unwrap()["mode"].clone()
        };
        [mode("left0.0"), mode("right0.0")].map(|mode| mode.as_str().unwrap_or_default().to_owned())
    };
    assert_eq!(modes(), ["tc", "tc"]);
    let done = site.commit(&conf);
    let told = accepted(&done) + &stderr(&done);
    assert!(told.contains("mode auto would take XDP") && told.contains("tx off"), "{told}");
    site.left.run("ethtool", ["-K", "eth0", "tx", "off"]).unwrap();
    let done = site.commit(&conf);
    let told = accepted(&done) + &stderr(&done);
    assert!(told.contains("left0 takes no frames that XDP redirects") && told.contains("gro on"), "{told}");
    for host in [&site.left, &site.right] {
        host.run("ethtool", ["-K", "eth0", "gro", "on"]).unwrap();
    }
    let done = site.commit(&conf);
    let told = accepted(&done) + &stderr(&done);
    assert!(!told.contains("would take XDP"), "{told}");
    wait_until("the hook of left0", Duration::from_secs(5), || modes() == ["xdp-native", "tc"]);
}

/// What the session log has told of usage: whose, why, bytes from and to the subscriber.
fn reported(gateway: &Gateway) -> Vec<(String, String, u64, u64)> {
    let log = gateway.json("/api/log?last=1000").unwrap();
    let entries = log.as_array().expect("entries").iter();
    let of = |entry: &Value| {
        let fields = entry["fields"].as_array().expect("fields");
        let field = |name: &str| {
            let found = fields.iter().find(|field| field[0] == name);
            found.and_then(|field| field[1].as_str()).unwrap_or_default().to_owned()
        };
        let number = |name: &str| field(name).parse().expect("a number");
        (field("session-name"), field("reason"), number("bytes-from-client"), number("bytes-from-server"))
    };
    entries.filter(|entry| entry["event"] == "RT_GTPU_USAGE_REPORT").map(of).collect()
}

/// TS 29.244 5.2.2.2, 5.2.2.3: each multiple is told once, also over a daemon that is killed; a time quota ends a session.
#[test]
fn thresholds_are_told_and_time_ends_a_session() {
    let site = Site::new("gtpu-told");
    let own = "set services gtp-u session alice threshold uplink 1000\n";
    let mut gateway = site.start(&site.write("a.conf", &format!("{PLANE}{ALICE}{own}")));
    let (subscribers, _gnb) = radio(&site, "gtpu-told-ue");
    // the first reading, of nothing
    std::thread::sleep(Duration::from_millis(1200));
    let more = |packets: &str| {
        let words = ["-c", packets, "-i", "0.01", "-W", "1", "-n", "-s", "72", "10.71.2.2"];
        assert!(subscribers.command("ping").args(words).output().unwrap().status.success());
    };
    let told = |gateway: &Gateway, count: u64| {
        let reports =
            || gateway.json("/api/gtp-u/usage?name=alice").unwrap()["sessions"][0]["reports"].clone();
        wait_until("a report", Duration::from_secs(5), || reports() == count);
    };
    more("9");
    std::thread::sleep(Duration::from_millis(1200));
    assert_eq!(reported(&gateway), [], "900 bytes");
    more("1");
    told(&gateway, 1);
    wait_until("the log", Duration::from_secs(2), || reported(&gateway).len() == 1);
    assert_eq!(reported(&gateway), [("alice".into(), "volume-threshold".into(), 1000, 1000)]);
    let usage = &gateway.json("/api/gtp-u/usage?name=alice").unwrap()["sessions"][0];
    assert_eq!(
        (&usage["last_report"]["trigger"], &usage["last_report"]["uplink_bytes"]),
        (&"volume-threshold".into(), &1000.into())
    );
    assert!(gateway.get("/metrics").unwrap().contains("sluice_gtpu_usage_reports_total 1"));
    // what passes while nobody reads is told afterwards, and nothing twice
    gateway.kill().unwrap();
    more("25");
    gateway.start().unwrap();
    told(&gateway, 2);
    std::thread::sleep(Duration::from_millis(1200));
    assert_eq!(reported(&gateway), [("alice".into(), "volume-threshold".into(), 3500, 3500)]);
    // over the API, with a quota of time
    let mut bob = bob(Some(0x1002));
    (bob["time_threshold_s"], bob["time_quota_s"]) = (1.into(), 3.into());
    changed(&site, "add-gtp-u-sessions", &bob);
    let of_bob = |gateway: &Gateway| {
        gateway.json("/api/gtp-u/sessions?name=bob").unwrap()["sessions"][0]["usage"].clone()
    };
    wait_until("the end of bob's time", Duration::from_secs(8), || of_bob(&gateway)["uplink_quota"] == 0);
    let why = |gateway: &Gateway| {
        reported(gateway).into_iter().filter(|told| told.0 == "bob").map(|told| told.1).collect::<Vec<_>>()
    };
    wait_until("bob's reports", Duration::from_secs(5), || {
        why(&gateway).iter().any(|why| why.contains("time-quota"))
    });
    assert!(why(&gateway).iter().any(|why| why == "time-threshold"), "{:?}", why(&gateway));
    gateway.kill().unwrap();
    gateway.start().unwrap();
    assert_eq!(of_bob(&gateway)["uplink_quota"], 0, "it is over after a restart, too");
    changed(&site, "change-gtp-u-session", &json!([{ "name": "bob", "time_quota_s": 0 }]));
    assert_eq!(of_bob(&gateway)["uplink_quota"], Value::Null, "it goes on");
    // its time counts from when it was made, whether or not anything was asked of it meanwhile, and whoever has been told
    let nothing = json!([{ "name": "bob", "time_quota_s": 0, "time_threshold_s": 0 }]);
    changed(&site, "change-gtp-u-session", &nothing);
    for restarts in [false, true] {
        if restarts {
            gateway.kill().unwrap();
            gateway.start().unwrap();
        }
        changed(&site, "change-gtp-u-session", &json!([{ "name": "bob", "time_quota_s": 3 }]));
        assert_eq!(of_bob(&gateway)["uplink_quota"], 0, "restarts: {restarts}");
        changed(&site, "change-gtp-u-session", &nothing);
    }
    let wrong = json!({ "name": "bob", "peer_teid": 0 });
    let said = stderr(&api(&site, "change-gtp-u-session", &json!([wrong, { "name": "bob" }])));
    assert!(said.contains("peer_teid"), "{said}");
    let said = stderr(&api(&site, "change-gtp-u-session", &json!([{ "name": "bob" }, { "name": "bob" }])));
    assert!(said.contains("`bob` is named twice"), "{said}");
}

/// TS 29.281 7.3.2: an End Marker, and none where the tunnel stays.
#[test]
fn the_old_end_is_told_when_a_session_moves() {
    let site = Site::new("gtpu-moved");
    let n9 = "set services gtp-u interface right0.0 role n9\n";
    let gateway = site.start(&site.write("a.conf", &format!("{PLANE}{n9}")));
    site.left.ip("addr add 10.71.1.3/24 dev eth0").unwrap();
    let bind = |own: &str| site.left.enter(|| UdpSocket::bind(own).unwrap()).unwrap();
    let ends = ["10.71.1.2:2152", "10.71.1.3:2152"].map(bind);
    let hears = |end: &UdpSocket, patience: u64| {
        end.set_read_timeout(Some(Duration::from_millis(patience))).unwrap();
        let mut bytes = [0; 64];
        end.recv(&mut bytes).ok().map(|length| bytes[..length].to_vec())
    };
    changed(&site, "add-gtp-u-sessions", &bob(Some(0x1002)));
    changed(&site, "change-gtp-u-session", &json!({ "name": "bob", "rules": "plain", "uplink_quota": 7 }));
    assert_eq!(hears(&ends[0], 300), None, "the tunnel stays");
    let moved = json!({ "name": "bob", "peer": "10.71.1.3", "peer_teid": 0x77 });
    changed(&site, "change-gtp-u-session", &moved);
    assert_eq!(hears(&ends[0], 5000), Some(vec![0x30, 254, 0, 0, 0, 0, 0x20, 0x02]));
    let back = json!({ "name": "bob", "peer_teid": 0x78 });
    changed(&site, "change-gtp-u-session", &back);
    assert_eq!(hears(&ends[1], 5000), Some(vec![0x30, 254, 0, 0, 0, 0, 0, 0x77]));
    assert_eq!((hears(&ends[0], 300), hears(&ends[1], 300)), (None, None), "once");
    // another end here is none there; one that another session takes over stays in use
    let carol = json!({ "name": "carol", "address": "10.45.0.4", "peer": "10.71.1.2", "peer_teid": 0x2004 });
    changed(&site, "add-gtp-u-sessions", &carol);
    let elsewhere = json!({ "name": "bob", "local_address": "10.71.2.1" });
    changed(&site, "change-gtp-u-session", &elsewhere);
    let after = json!([{ "name": "bob", "peer": "10.71.1.2", "peer_teid": 0x2005 },
                       { "name": "carol", "peer": "10.71.1.3", "peer_teid": 0x78 }]);
    changed(&site, "change-gtp-u-session", &after);
    assert_eq!(hears(&ends[0], 5000), Some(vec![0x30, 254, 0, 0, 0, 0, 0x20, 0x04]), "carol's old end");
    assert_eq!((hears(&ends[0], 300), hears(&ends[1], 300)), (None, None), "in use");
    // 7.3.1: the new end does not know the tunnel any more
    let elements = [16, 0, 0, 0, 0x78, 133, 0, 4, 10, 71, 1, 3];
    let indication = [&[0x32, 26, 0, 16, 0, 0, 0, 0, 0, 1, 0, 0][..], &elements].concat();
    ends[1].send_to(&indication, "10.71.1.1:2152").unwrap();
    let told = || {
        let log = gateway.json("/api/log?last=100").unwrap();
        let mut entries = log.as_array().unwrap().clone();
        entries.retain(|entry| entry["event"] == "RT_GTPU_ERROR_INDICATION");
        entries
    };
    wait_until("the error in the log", Duration::from_secs(5), || !told().is_empty());
    let fields = [
        ("peer-address", "10.71.1.3"),
        ("peer-teid", "0x00000078"),
        ("tunnel-address", "10.71.1.3"),
        ("source-zone-name", "left"),
        ("interface-name", "left0.0"),
    ];
    assert_eq!(told()[0]["fields"], json!(fields));
}

/// A base station on the left with alice behind it, whom it has told of.
pub fn radio(site: &Site, label: &str) -> (Netns, Gnb) {
    let subscribers = Netns::create(label).unwrap();
    for host in [&site.left, &site.right] {
        host.run("ethtool", ["-K", "eth0", "gro", "on", "tx", "off", "gso", "off", "tso", "off"]).unwrap();
    }
    let address = |text: &str| text.parse::<IpAddr>().unwrap();
    let gnb = Gnb::start(&site.left, &subscribers, address("10.71.1.2"), address("10.71.1.1")).unwrap();
    subscribers.ip(&format!("link set {DEVICE} mtu 1400 up")).unwrap();
    subscribers.ip(&format!("addr add 10.45.0.2/32 dev {DEVICE}")).unwrap();
    subscribers.ip(&format!("route add default dev {DEVICE}")).unwrap();
    gnb.set(Tunnel { subscriber: address("10.45.0.2"), uplink: 0x1001, downlink: 0x2001 });
    (subscribers, gnb)
}

fn pings(from: &Netns, to: &str) -> bool {
    let words = ["-c", "5", "-i", "0.05", "-W", "1", "-n", to];
    from.command("ping").args(words).output().unwrap().status.success()
}

/// Bytes and packets from alice.
fn used(gateway: &Gateway, name: &str) -> (u64, u64) {
    let usage = &gateway.json(&format!("/api/gtp-u/usage?name={name}")).unwrap()["sessions"][0];
    (usage["uplink_bytes"].as_u64().unwrap_or(0), usage["uplink_packets"].as_u64().unwrap_or(0))
}

#[test]
fn sessions_and_usage_outlive_a_daemon_that_is_killed() {
    let site = Site::new("gtpu-killed");
    let conf = site.write("a.conf", &format!("{PLANE}{ALICE}"));
    let mut gateway = site.start(&conf);
    let (subscribers, _gnb) = radio(&site, "gtpu-ue");
    assert!(pings(&subscribers, "10.71.2.2"), "through the gateway");
    assert!(pings(&subscribers, "10.45.0.1"), "the gateway itself");
    assert_eq!(used(&gateway, "alice"), (840, 10));
    assert!(site.pings(&site.gateway, "10.45.0.2"), "of the host's own");
    changed(&site, "add-gtp-u-sessions", &bob(Some(0x1002)));
    gateway.kill().unwrap();
    assert!(pings(&subscribers, "10.71.2.2"), "without a daemon");
    let offline = common::stdout(&site.sluice(&["api", "gtp-u-usage"]));
    gateway.start().unwrap();
    assert_eq!(used(&gateway, "alice"), (840 + 84 + 420, 16), "{offline}");
    assert_eq!(names(&gateway), ["alice", "bob"]);
    // a commit that changes nothing of it leaves it alone; another rule counts on
    accepted(&site.commit(&conf));
    let other = ALICE.replace("rules plain", "rules gold");
    accepted(&site.commit(&site.write("b.conf", &format!("{PLANE}{other}"))));
    assert!(pings(&subscribers, "10.71.2.2"));
    wait_until("the last packet is counted", Duration::from_secs(2), || used(&gateway, "alice").1 == 21);
    // whatever ends by a commit is told of, for nobody can ask any more
    let (bytes, _) = used(&gateway, "alice");
    let anew = other.replace("10.45.0.2", "10.45.0.9");
    let done = site.commit(&site.write("c.conf", &format!("{PLANE}{anew}")));
    let said = accepted(&done) + &stderr(&done);
    assert!(said.contains("`alice` has another address: its usage begins anew"), "{said}");
    accepted(&site.commit(&site.write("d.conf", &PLANE.replace("rules gold", "rules silver"))));
    let ended = |name: &str, bytes| (name.to_owned(), "session-ended".to_owned(), bytes, bytes);
    wait_until("the reports", Duration::from_secs(5), || reported(&gateway).len() == 3);
    let mut told = reported(&gateway);
    told.sort();
    assert_eq!(told, [ended("alice", 0), ended("alice", bytes), ended("bob", 0)]);
    balances(&gateway);
}

/// Nobody has asked for that configuration, and the next commit may be the one that was meant.
#[test]
fn a_start_that_falls_back_puts_sessions_aside() {
    let site = Site::new("gtpu-back");
    let mut gateway = site.start(&site.write("a.conf", ""));
    let extra = Netns::create("gtpu-back-x").unwrap();
    site.connect(&extra, "extra0", &[]);
    let whole = site.write("b.conf", &format!("{PLANE}{EXTRA}"));
    accepted(&site.commit(&whole));
    let carol = json!({ "name": "carol", "address": "10.45.0.4", "peer": "10.71.1.2", "peer_teid": 0x2004 });
    changed(&site, "add-gtp-u-sessions", &json!([bob(Some(0x1002)), carol]));
    gateway.kill().unwrap();
    site.gateway.ip("link del extra0").unwrap();
    for _ in 0..2 {
        gateway.start().unwrap();
        let said = accepted(&site.sluice(&["show", "system"]));
        assert!(said.contains("worked, ") || names(&gateway).is_empty(), "{said}");
        assert!(names(&gateway).is_empty());
        gateway.kill().unwrap();
    }
    gateway.start().unwrap();
    changed(&site, "remove-gtp-u-sessions", &json!({ "name": "carol" }));
    site.connect(&extra, "extra0", &[]);
    accepted(&site.commit(&whole));
    assert_eq!(names(&gateway), ["bob"]);
    let session = &gateway.json("/api/gtp-u/sessions?name=bob").unwrap()["sessions"][0];
    assert_eq!((&session["teid"], &session["qfi"]), (&0x1002.into(), &9.into()), "{session}");
    // what an operator commits ends them
    accepted(&site.commit(&site.write("c.conf", "")));
    accepted(&site.commit(&whole));
    assert!(names(&gateway).is_empty());
}

const APART: &str = "\
set services gtp-u rules apart qfi 5
set services gtp-u rules apart flow far precedence 5
set services gtp-u rules apart flow far match remote-address 10.99.0.0/16
set services gtp-u rules apart flow ping precedence 10
set services gtp-u rules apart flow ping match protocol icmp
set services gtp-u rules apart flow ping match remote-address [ 10.71.2.0/24 2001:db8::/32 ]
set services gtp-u rules apart flow ping qfi 9
set services gtp-u rules apart flow ping downlink maximum-bit-rate 10m
";

/// Bytes of a session's flows, by name.
fn flows(gateway: &Gateway, name: &str) -> Vec<(String, u64, u64)> {
    let usage = &gateway.json(&format!("/api/gtp-u/usage?name={name}")).unwrap()["sessions"][0];
    let bytes = |flow: &Value, of: &str| flow[of].as_u64().unwrap();
    let flow = |flow: &Value| {
        let name = flow["name"].as_str().unwrap().to_owned();
        (name, bytes(flow, "uplink_bytes"), bytes(flow, "downlink_bytes"))
    };
    usage["flows"].as_array().into_iter().flatten().map(flow).collect()
}

/// TS 29.244 5.2.1: by configuration and over the API, in a commit that changes them, and while no daemon is there.
#[test]
fn flows_of_a_session_outlive_a_daemon_and_follow_commits() {
    let site = Site::new("gtpu-flows");
    let alice = ALICE.replace("rules plain", "rules apart");
    let conf = site.write("a.conf", &format!("{PLANE}{APART}{alice}"));
    let mut gateway = site.start(&conf);
    let subscribers = Netns::create("gtpu-flows-ue").unwrap();
    for host in [&site.left, &site.right] {
        host.run("ethtool", ["-K", "eth0", "tx", "off", "gso", "off", "tso", "off"]).unwrap();
    }
    let address = |text: &str| text.parse::<IpAddr>().unwrap();
    let gnb = Gnb::start(&site.left, &subscribers, address("10.71.1.2"), address("10.71.1.1")).unwrap();
    subscribers.ip(&format!("link set {DEVICE} mtu 1400 up")).unwrap();
    subscribers.ip(&format!("addr add 10.45.0.2/32 dev {DEVICE}")).unwrap();
    subscribers.ip(&format!("route add default dev {DEVICE}")).unwrap();
    gnb.set(Tunnel { subscriber: address("10.45.0.2"), uplink: 0x1001, downlink: 0x2001 });
    let expected = |bytes: u64| vec![("far".to_owned(), 0, 0), ("ping".to_owned(), bytes, bytes)];
    // this base station takes packets of QFI 9 alone, so none of the gateway itself, which is in no flow
    assert!(pings(&subscribers, "10.71.2.2") && !pings(&subscribers, "10.45.0.1"));
    assert_eq!(flows(&gateway, "alice"), expected(420));
    gateway.kill().unwrap();
    assert!(pings(&subscribers, "10.71.2.2"), "without a daemon");
    gateway.start().unwrap();
    assert_eq!(flows(&gateway, "alice"), expected(840));
    assert_eq!(used(&gateway, "alice"), (1260, 15));
    accepted(&site.commit(&conf));
    assert_eq!(flows(&gateway, "alice"), expected(840), "the same flows go on");
    for what in ["sessions", "usage"] {
        let text = accepted(&site.sluice(&["cli", "-c", &format!("show services gtp-u {what}")]));
        assert!(text.lines().any(|line| line.contains("ping") && line.contains("840")), "{text}");
    }
    // others begin anew
    let closed = format!("{APART}set services gtp-u rules apart flow ping uplink gate closed\n");
    accepted(&site.commit(&site.write("b.conf", &format!("{PLANE}{closed}{alice}"))));
    assert!(!pings(&subscribers, "10.71.2.2"));
    assert_eq!(flows(&gateway, "alice"), expected(0));
    let drops = gateway.json("/api/gtp-u").unwrap()["drops"].clone();
    assert!(drops.to_string().contains("\"gtpu_gate\""), "{drops}");
    let mut bob = bob(None);
    bob["rules"] = "apart".into();
    changed(&site, "add-gtp-u-sessions", &bob);
    assert_eq!(flows(&gateway, "bob"), expected(0));
    changed(&site, "change-gtp-u-session", &json!({ "name": "bob", "rules": "gold" }));
    assert_eq!(flows(&gateway, "bob"), []);
    changed(&site, "change-gtp-u-session", &json!({ "name": "bob", "rules": "apart" }));
    let removed = changed(&site, "remove-gtp-u-sessions", &json!({ "name": "bob" }));
    assert_eq!(removed["usage"][0]["flows"][1]["name"], "ping", "{removed}");
    let relay =
        json!({ "name": "onward", "relay": true, "peer": "10.71.1.3", "peer_teid": 1, "rules": "apart" });
    let text = stderr(&api(&site, "add-gtp-u-sessions", &relay));
    assert!(text.contains("rules `apart` have flows, and it is a relay"), "{text}");
    accepted(&site.commit(&site.write("c.conf", &format!("{PLANE}{ALICE}"))));
    assert!(pings(&subscribers, "10.71.2.2") && flows(&gateway, "alice").is_empty());
    balances(&gateway);
}
