//! Routing protocols by FRR, against BIRD as a foreign neighbour: what neither commits nor the end of the daemon may disturb.

use crate::common;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use common::{Running, Site, accepted, installed, stderr, stdout, wait_until};
use nix::sys::signal::Signal;
use sluice_lab::bird::{BIRD, Bird};
use sluice_lab::frr::{Frr, KEEP_SECONDS};
use sluice_lab::gateway::Gateway;
use sluice_lab::netns::Netns;

const PATIENCE: Duration = Duration::from_secs(30);

/// FRR in the gateway's namespace, of which no daemon runs yet.
fn beside<'a>(netns: &'a Netns, label: &str) -> Frr<'a> {
    Frr::create(netns, &format!("sluice{}{label}", std::process::id())).unwrap()
}

fn gateway_of<'s>(frr: &Frr, site: &'s Site, conf: &Path) -> Gateway<'s> {
    let mut gateway = site.daemon(conf).with_options(&["--frr-pathspace", frr.name()]);
    gateway.start().unwrap_or_else(|error| panic!("{error:#}\n{}", gateway.last_words()));
    gateway
}

/// BIRD at the right host.
fn neighbour<'s>(site: &'s Site, configuration: &str) -> Bird<'s> {
    let common = "router id 10.71.2.2;\nprotocol device { scan time 1; }\n\
                  protocol kernel { ipv4 { import none; export where source != RTS_STATIC; }; }\n";
    Bird::start(&site.right, &site.dir().join("bird"), &format!("{common}{configuration}")).unwrap()
}

fn has_route(netns: &Netns, prefix: &str) -> bool {
    netns.ip(&format!("route show {prefix}")).unwrap().contains(prefix)
}

const NEIGHBOUR: &str = "
protocol static { ipv4; route 10.90.0.0/24 unreachable; route 10.91.0.0/24 unreachable; }
protocol bgp edge {
    local 10.71.2.2 as 65002;
    neighbor 10.71.2.1 as 65001;
    connect delay time 1; connect retry time 1; error wait time 1,2;
    ipv4 { import all; export where source = RTS_STATIC; };
}
";

const BGP: &str = "\
set security zones security-zone right host-inbound-traffic protocols bgp
set routing-options autonomous-system 65001
set routing-options router-id 10.71.2.1
set routing-options static route 10.98.0.0/16 next-hop 10.71.1.2
set routing-options static route 10.99.0.0/16 discard
set policy-options policy-statement out term statics from protocol static
set policy-options policy-statement out term statics then accept
set policy-options policy-statement in term no from route-filter 10.91.0.0/16 orlonger
set policy-options policy-statement in term no then reject
set protocols bgp group up type external
set protocols bgp group up peer-as 65002
set protocols bgp group up import in
set protocols bgp group up export out
set protocols bgp group up neighbor 10.71.2.2
";

fn commits_leave_a_foreign_neighbour_alone(label: &str, mode: &str, commits: usize) {
    if !installed(&["/usr/lib/frr/bgpd", BIRD]) {
        return;
    }
    let site = Site::new(label);
    if mode == "xdp" {
        for host in [&site.left, &site.right] {
            // what native XDP redirects must have its checksums, and needs a far end that polls
            host.run("ethtool", ["-K", "eth0", "tx", "off", "gro", "on"]).unwrap();
        }
    }
    site.right.ip("address add 10.90.0.1/32 dev lo").unwrap();
    let mut frr = beside(&site.gateway, label);
    frr.start(&["zebra", "bgpd"]).unwrap();
    frr.ask("configure\ninterface left0\ndescription by hand\nend").unwrap();
    let bird = neighbour(&site, NEIGHBOUR);
    let bgp = format!("set system services sluice mode {mode}\n{BGP}");
    let conf = site.write("a.conf", &bgp);
    let mut gateway = gateway_of(&frr, &site, &conf);
    // of others, and so not told
    site.gateway.ip("route add 10.97.0.0/16 via 10.71.1.2").unwrap();

    wait_until("the session", PATIENCE, || bird.since("edge").is_some());
    wait_until("what the neighbour tells", PATIENCE, || has_route(&site.gateway, "10.90.0.0/24"));
    wait_until("what it is told", PATIENCE, || bird.has("10.98.0.0/16") && bird.has("10.99.0.0/16"));
    for not_told in ["10.97.0.0/16", "10.71.1.0/24", "10.90.1.0/24"] {
        assert!(!bird.has(not_told), "{not_told}: {}", bird.ask("show route"));
    }
    assert!(!has_route(&site.gateway, "10.91.0.0/24"), "a policy rejects it");
    wait_until("packets take the learnt way", PATIENCE, || site.pings(&site.left, "10.90.0.1"));
    let neighbors = gateway.json("/api/routing/bgp").unwrap();
    assert_eq!(
        (&neighbors[0]["neighbor"], &neighbors[0]["families"][0]["accepted"]),
        (&"10.71.2.2".into(), &1.into())
    );

    let since = bird.since("edge").unwrap();
    let same = |when: &str| {
        let now = bird.since("edge");
        let state =
            || bird.ask("show protocols all edge") + &frr.ask("show bgp neighbors 10.71.2.2").unwrap();
        assert_eq!(now.as_ref(), Some(&since), "the session has flapped: {when}\n{}", state());
    };
    // policies change, and what they say is done
    let wider =
        bgp.replace("10.91.0.0/16", "10.92.0.0/16").replace("protocol static", "protocol [ static direct ]");
    accepted(&site.commit(&site.write("wider.conf", &wider)));
    wait_until("the import is wider", PATIENCE, || has_route(&site.gateway, "10.91.0.0/24"));
    wait_until("the export is wider", PATIENCE, || bird.has("10.71.1.0/24"));
    same("after a commit with another policy");
    let fewer = bgp.replace("set routing-options static route 10.98.0.0/16 next-hop 10.71.1.2\n", "");
    accepted(&site.commit(&site.write("fewer.conf", &fewer)));
    wait_until("the route is not told any more", PATIENCE, || {
        !bird.has("10.98.0.0/16") && !bird.has("10.71.1.0/24")
    });
    wait_until("the import is narrower again", PATIENCE, || !has_route(&site.gateway, "10.91.0.0/24"));
    for number in 0..commits {
        let text =
            if number % 2 == 0 { format!("{wider}set system host-name h{number}\n") } else { bgp.clone() };
        accepted(&site.commit(&site.write("n.conf", &text)));
        same(&format!("after commit {number}"));
    }
    accepted(&site.commit(&conf));
    gateway.kill().unwrap();
    same("after kill -9");
    gateway.start().unwrap();
    same("after a crash and a start");
    assert!(has_route(&site.gateway, "10.90.0.0/24") && site.pings(&site.left, "10.90.0.1"));

    frr.kill("bgpd");
    wait_until("the neighbour knows", PATIENCE, || bird.since("edge").is_none());
    frr.start(&["bgpd"]).unwrap();
    wait_until("FRR has its configuration again", PATIENCE, || {
        frr.ask("show running-config").unwrap().contains("router bgp 65001")
    });
    wait_until("and the route", PATIENCE, || {
        has_route(&site.gateway, "10.90.0.0/24") && bird.has("10.99.0.0/16")
    });

    accepted(&site.commit(&site.write("none.conf", "")));
    let left = frr.ask("show running-config").unwrap();
    for ours in ["router bgp", "route-map", "prefix-list"] {
        assert!(!left.contains(ours), "{left}");
    }
    assert!(left.contains("description by hand"), "{left}");
    wait_until("its routes are gone", PATIENCE, || !has_route(&site.gateway, "10.90.0.0/24"));
}

#[test]
fn commits_and_crashes_leave_a_foreign_neighbour_alone() {
    commits_leave_a_foreign_neighbour_alone("bgp", "tc", 4);
}

#[test]
#[ignore = "a minute; SLUICE_SOAK runs it"]
fn a_hundred_commits_leave_a_foreign_neighbour_alone() {
    commits_leave_a_foreign_neighbour_alone("bgptc", "tc", 100);
    commits_leave_a_foreign_neighbour_alone("bgpxdp", "xdp", 100);
}

/// RFC 4724: BIRD helps by default, FRR by `graceful-restart`. A static route leads to the left host's other network, which the
/// neighbour has no other way to.
const GRACEFUL: &str = "\
set routing-options graceful-restart
set protocols bgp graceful-restart restart-time 60
set protocols bgp graceful-restart stale-routes-time 90
";

const ECHOES: u32 = 4500;

/// Neither the end of the gateway's daemon nor that of one of FRR's costs a packet of either direction.
#[test]
#[ignore = "a minute; `make soak` runs it"]
fn traffic_by_learnt_routes_outlives_daemons() {
    if !installed(&["/usr/lib/frr/bgpd", BIRD]) {
        return;
    }
    let site = Site::new("graceful");
    site.right.ip("address add 10.90.0.1/32 dev lo").unwrap();
    site.right.ip("route del default").unwrap();
    site.left.ip("address add 10.98.0.1/32 dev lo").unwrap();
    let mut frr = beside(&site.gateway, "graceful");
    frr.start(&["zebra", "bgpd"]).unwrap();
    let bird = neighbour(&site, NEIGHBOUR);
    let conf = site.write("a.conf", &format!("{BGP}{GRACEFUL}"));
    let mut gateway = gateway_of(&frr, &site, &conf);
    let both = || has_route(&site.gateway, "10.90.0.0/24") && has_route(&site.right, "10.98.0.0/16");
    wait_until("routes of either end", PATIENCE, both);
    has_all(&frr, &site, &conf, "with graceful restart");
    let since = bird.since("edge").expect("the session is up");
    wait_until("packets take them", PATIENCE, || {
        let mut ping = site.left.command("ping");
        ping.args(["-c1", "-W1", "-I", "10.98.0.1", "10.90.0.1"]).output().unwrap().status.success()
    });
    let mut ping = site.left.command("ping");
    ping.args(["-q", "-i", "0.01", "-c", &ECHOES.to_string(), "-I", "10.98.0.1", "10.90.0.1"]);
    let echoes = Running::spawn(ping.stdout(Stdio::piped()).stderr(Stdio::piped()));
    sleep(Duration::from_secs(1));
    gateway.kill().unwrap();
    gateway.start().unwrap();
    assert_eq!(bird.since("edge").as_ref(), Some(&since), "the end of the gateway's daemon is none of BGP's");
    frr.kill("bgpd");
    wait_until("the neighbour knows", PATIENCE, || bird.since("edge").is_none());
    assert!(both(), "routes stay: {}\n{}", bird.ask("show route all"), site.gateway.ip("route").unwrap());
    frr.start(&["bgpd"]).unwrap();
    let back = || bird.since("edge").is_some_and(|now| now != since);
    wait_until("another session", PATIENCE, back);
    let is_told = || !bird.ask("show protocols all edge").contains("graceful restart active");
    wait_until("all is told again (RFC 4724 section 4.1)", PATIENCE, is_told);
    // watchfrr has all of them begin anew where zebra ends
    let since = bird.since("edge");
    frr.kill("zebra");
    frr.kill("bgpd");
    wait_until("the neighbour knows", PATIENCE, || bird.since("edge").is_none());
    assert!(both(), "routes are the kernel's");
    frr.start(&["zebra", "bgpd"]).unwrap();
    wait_until("a third session", PATIENCE, || bird.since("edge").is_some_and(|now| Some(now) != since));
    // what zebra did not learn again goes now
    sleep(Duration::from_secs(u64::from(KEEP_SECONDS) + 2));
    let told = echoes.ended("ping", Duration::from_secs(90));
    let text = stdout(&told);
    assert!(text.contains(&format!("{ECHOES} received")), "{text}");
    assert!(both());
    // it was this that kept them
    assert!(
        bird.ask("show protocols all edge").contains("Graceful restart"),
        "{}",
        bird.ask("show protocols all edge")
    );
}

/// Whom FRR refuses a configuration that the language takes (its lines have room for 4096 characters), nothing changes.
#[test]
fn what_frr_refuses_is_refused_in_its_words() {
    if !installed(&["/usr/lib/frr/bgpd"]) {
        return;
    }
    let site = Site::new("refused");
    let mut frr = beside(&site.gateway, "refused");
    frr.start(&["zebra", "bgpd"]).unwrap();
    let conf = site.write("a.conf", BGP);
    let _gateway = gateway_of(&frr, &site, &conf);
    has_all(&frr, &site, &conf, "before");
    let before = (frr.ask("show running-config").unwrap(), site.active());
    let members: String = (0..500).map(|n| format!(" 65001:{}", 10_000 + n)).collect();
    let long = format!(
        "{BGP}set policy-options community MANY members [{members} ]\n\
         set policy-options policy-statement out term statics then community add MANY\n\
         set system host-name other\n"
    );
    let file = site.write("long.conf", &long);
    let check = site.gateway.command(common::BINARY).arg("check").arg(&file).output().unwrap();
    for output in [site.commit(&file), check] {
        let said = common::refused(&output, 2);
        assert!(
            said.contains("FRR refuses the configuration: line ") && said.contains("Unknown command"),
            "{said}"
        );
        assert!(said.len() < 3000, "{said}");
    }
    assert_eq!((frr.ask("show running-config").unwrap(), site.active()), before);
    let shown = accepted(&site.sluice(&["cli", "-c", "show configuration"]));
    assert!(!shown.contains("MANY") && !shown.contains("other"), "{shown}");
    // where FRR is not installed, a check says that nobody was asked
    let mut check = Command::new("/usr/bin/nsenter");
    check.arg(format!("--net={}", site.gateway.path().display())).args([common::BINARY, "check"]).arg(&file);
    let output = check.env("PATH", site.dir()).output().unwrap();
    accepted(&output);
    assert!(stderr(&output).contains("FRR was not asked"), "{}", stderr(&output));
}

/// What the plan has for FRR, but what FRR does not print because it is the default.
fn planned(site: &Site, conf: &Path) -> Vec<String> {
    let output = site.gateway.command(common::BINARY).arg("check").arg("--plan").arg(conf).output().unwrap();
    let lines = accepted(&output);
    let ours = lines.lines().filter_map(|line| line.strip_prefix("frr | "));
    ours.filter(|line| !line.contains("detect-multiplier 3")).map(|line| line.trim().to_owned()).collect()
}

/// FRR prints what it was told, word by word: were it otherwise, a take-over of what it has would say too much.
/// Daemons are told as they come, so the last line may take a moment.
fn has_all(frr: &Frr, site: &Site, conf: &Path, when: &str) {
    let planned = planned(site, conf);
    let missing = || {
        let running = frr.ask("show running-config").unwrap();
        let has: Vec<&str> = running.lines().map(str::trim).collect();
        let missing = planned.iter().find(|line| !has.contains(&line.as_str()));
        missing.map(|line| format!("`{line}` is not in\n{running}"))
    };
    let end = Instant::now() + PATIENCE;
    while let Some(missing) = missing() {
        assert!(Instant::now() < end, "{when}: {missing}");
        sleep(Duration::from_millis(200));
    }
}

#[test]
fn frr_that_is_not_there_is_told_when_it_comes() {
    if !installed(&["/usr/lib/frr/bgpd", "/usr/lib/frr/ospfd", "/usr/lib/frr/ospf6d", "/usr/lib/frr/bfdd"]) {
        return;
    }
    let site = Site::new("late");
    let mut frr = beside(&site.gateway, "late");
    let conf = site.write("a.conf", BGP);
    let gateway = gateway_of(&frr, &site, &conf);
    let said = site.commit(&site.write("b.conf", &format!("{BGP}set system host-name late\n")));
    accepted(&said);
    assert!(stderr(&said).contains("waits for FRR: zebra, bgpd"), "{}", stderr(&said));
    frr.start(&["zebra", "bgpd"]).unwrap();
    wait_until("it is told", PATIENCE, || {
        frr.ask("show running-config").unwrap().contains("neighbor 10.71.2.2 remote-as 65002")
    });
    has_all(&frr, &site, &conf, "after it has come");

    // everything at once, with daemons that come one by one
    let all = site.write("all.conf", &format!("{BGP}{EVERYTHING}"));
    let said = site.commit(&all);
    accepted(&said);
    assert!(stderr(&said).contains("waits for FRR: ospfd, ospf6d, bfdd"), "{}", stderr(&said));
    assert!(stderr(&said).contains("zone left lets no ospf in on left0.0"), "{}", stderr(&said));
    frr.start(&["ospfd", "ospf6d", "bfdd"]).unwrap();
    wait_until("they are told", PATIENCE, || {
        let running = frr.ask("show running-config").unwrap();
        ["router ospf\n", "router ospf6\n", "profile sluice-50x3"].iter().all(|line| running.contains(line))
    });
    has_all(&frr, &site, &all, "with everything");
    let other = fs::read_to_string(&all).unwrap().replace("metric 5", "metric 6").replace("no-summaries", "");
    let other = site.write_all(
        "other.conf",
        &other.replace("add CUST", "set CUST").replace("hold-time 30", "hold-time 9"),
    );
    accepted(&site.commit(&other));
    has_all(&frr, &site, &other, "after changes");
    accepted(&site.commit(&conf));
    has_all(&frr, &site, &conf, "with less");
    let running = frr.ask("show running-config").unwrap();
    for gone in ["ospf", "profile", "10.71.1.2", "community"] {
        assert!(!running.contains(gone), "{gone} remains in\n{running}");
    }
    drop(gateway);
}

/// Longer than a stopped daemon's socket has room for connections of a look a second.
const HANGS: Duration = Duration::from_secs(9);

#[test]
fn a_daemon_that_hangs_holds_up_no_commit() {
    if !installed(&["/usr/lib/frr/bgpd"]) {
        return;
    }
    let site = Site::new("hangs");
    let mut frr = beside(&site.gateway, "hangs");
    frr.start(&["zebra", "bgpd"]).unwrap();
    let conf = site.write("a.conf", BGP);
    let _gateway = gateway_of(&frr, &site, &conf);
    has_all(&frr, &site, &conf, "before");
    frr.signal("bgpd", Signal::SIGSTOP).unwrap();
    sleep(HANGS);
    let begun = Instant::now();
    let other = site.write("b.conf", &BGP.replace("65002", "65007"));
    let said = site.commit(&other);
    accepted(&said);
    let (took, warned) = (begun.elapsed(), stderr(&said));
    assert!(took < PATIENCE / 2, "{took:?}");
    assert!(warned.contains("bgpd not reached") && warned.contains("it hangs"), "{warned}");
    assert!(warned.contains("FRR has not got its configuration yet"), "{warned}");
    frr.signal("bgpd", Signal::SIGCONT).unwrap();
    wait_until("it is told", PATIENCE, || {
        frr.ask("show running-config").unwrap().contains("neighbor 10.71.2.2 remote-as 65007")
    });
}

const EVERYTHING: &str = "\
set policy-options prefix-list some 10.99.0.0/16
set policy-options prefix-list some fd99::/32
set policy-options community CUST members [ 65001:200 65001:100 ]
set policy-options as-path NEAR \"65003 .{0,2}\"
set policy-options policy-statement inner term a from prefix-list some
set policy-options policy-statement inner term a then metric 5
set policy-options policy-statement inner term a then community add CUST
set policy-options policy-statement inner term b from protocol bgp
set policy-options policy-statement inner term b from as-path NEAR
set policy-options policy-statement inner term b from community CUST
set policy-options policy-statement inner term b then as-path-prepend \"65001 65001\"
set policy-options policy-statement inner term b then community delete CUST
set policy-options policy-statement inner term b then next-hop self
set policy-options policy-statement inner term b then accept
set policy-options policy-statement tell term a from protocol [ static bgp ]
set policy-options policy-statement tell term a then metric 5
set policy-options policy-statement tell term a then accept
set protocols bgp group inner type internal
set protocols bgp group inner hold-time 30
set protocols bgp group inner export inner
set protocols bgp group inner local-address 10.71.1.1
set protocols bgp group inner graceful-restart
set protocols bgp group inner family inet unicast prefix-limit maximum 100
set protocols bgp group inner family inet6 unicast
set protocols bgp group inner bfd-liveness-detection minimum-interval 50
set protocols bgp group inner neighbor 10.71.1.2 description \"another router\"
set protocols bgp group inner neighbor 10.71.1.2 authentication-key s3cret
set protocols bgp group any peer-as 65009
set protocols bgp group any multihop ttl 3
set protocols bgp group any allow 10.71.1.128/25
set protocols ospf reference-bandwidth 10g
set protocols ospf export tell
set protocols ospf area 0 interface left0.0 metric 5
set protocols ospf area 0 interface left0.0 hello-interval 2
set protocols ospf area 0 interface left0.0 interface-type p2p
set protocols ospf area 0 interface left0.0 authentication md5 1 key k3y
set protocols ospf area 0 interface left0.0 bfd-liveness-detection minimum-interval 100
set protocols ospf area 7 nssa no-summaries
set protocols ospf area 7 interface right0.0 passive
set protocols ospf3 area 0 interface left0.0
set protocols ospf3 area 1 stub
set protocols ospf3 area 1 interface right0.0 metric 5
";

const OSPF: &str = "\
set security zones security-zone right host-inbound-traffic protocols ospf
set security zones security-zone right host-inbound-traffic protocols bfd
set routing-options router-id 10.71.2.1
set routing-options static route 10.99.0.0/16 discard
set policy-options policy-statement tell term a from protocol static
set policy-options policy-statement tell term a then metric 77
set policy-options policy-statement tell term a then accept
set protocols ospf export tell
set protocols ospf area 0 interface left0.0 passive
set protocols ospf area 0 interface right0.0 hello-interval 1
set protocols ospf area 0 interface right0.0 bfd-liveness-detection minimum-interval 100
";

#[test]
#[ignore = "half a minute; SLUICE_SOAK runs it"]
fn ospf_and_bfd_with_a_foreign_neighbour() {
    if !installed(&["/usr/lib/frr/ospfd", "/usr/lib/frr/bfdd", BIRD]) {
        return;
    }
    let site = Site::new("ospf");
    site.right.ip("address add 10.90.0.1/32 dev lo").unwrap();
    let mut frr = beside(&site.gateway, "ospf");
    frr.start(&["zebra", "ospfd", "bfdd"]).unwrap();
    let bird = neighbour(
        &site,
        "protocol bfd { interface \"eth0\" { min rx interval 100 ms; min tx interval 100 ms; multiplier 3; }; }\n\
         protocol ospf v2 edge { ipv4 { import all; }; area 0 {\n\
         interface \"eth0\" { hello 1; dead 4; bfd; }; interface \"lo\" { stub; }; }; }\n",
    );
    let conf = site.write("a.conf", OSPF);
    let mut gateway = gateway_of(&frr, &site, &conf);
    wait_until("what the neighbour tells", 2 * PATIENCE, || has_route(&site.gateway, "10.90.0.1"));
    wait_until("what it is told", PATIENCE, || bird.has("10.99.0.0/16") && bird.has("10.71.1.0/24"));
    assert!(
        bird.ask("show route 10.99.0.0/16 all").contains("77"),
        "{}",
        bird.ask("show route 10.99.0.0/16 all")
    );
    wait_until("packets take the learnt way", PATIENCE, || site.pings(&site.left, "10.90.0.1"));
    wait_until("BFD is up", PATIENCE, || gateway.json("/api/routing/bfd").unwrap()[0]["state"] == "up");
    let neighbors = gateway.json("/api/routing/ospf").unwrap();
    assert!(neighbors[0]["state"].as_str().unwrap().starts_with("Full"), "{neighbors}");
    assert_eq!(neighbors[0]["interface"], "right0");
    let interfaces = gateway.json("/api/routing/ospf/interfaces").unwrap();
    assert_eq!(interfaces.as_array().unwrap().len(), 2, "{interfaces}");
    let since = bird.since("edge");
    gateway.kill().unwrap();
    gateway.start().unwrap();
    accepted(&site.commit(&site.write("b.conf", &format!("{OSPF}set system host-name b\n"))));
    assert_eq!(bird.since("edge"), since);
    assert!(has_route(&site.gateway, "10.90.0.1"));
}
