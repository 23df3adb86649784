//! Commits: all of a configuration or nothing of it.

use crate::common;

use std::time::Duration;

use common::{BASE, Site, accepted, refused, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

fn generation(gateway: &sluice_lab::gateway::Gateway) -> u64 {
    gateway.json("/api/configuration").unwrap()["generation"].as_u64().unwrap()
}

#[test]
fn a_good_commit_replaces_everything() {
    let site = Site::new("good");
    let first = "set interfaces left0 unit 0 family inet address 10.71.3.1/24\n\
                 set routing-options static route 10.72.0.0/16 next-hop 10.71.2.2\n";
    let gateway = site.start(&site.write("a.conf", first));
    assert!(site.addresses("left0").contains("10.71.3.1/24"));
    assert!(site.gateway.ip("route show").unwrap().contains("10.72.0.0/16 via 10.71.2.2"));
    assert!(site.silent(&site.right, "10.71.1.2"));

    let second = "set security policies default-policy permit-all\n\
                  set interfaces left0 unit 0 family inet address 10.71.4.1/24\n\
                  set routing-options static route 10.73.0.0/16 discard\n";
    let said = accepted(&site.commit(&site.write("b.conf", second)));
    assert!(said.contains("generation 2"), "{said}");
    assert!(site.pings(&site.right, "10.71.1.2"), "the new policy is in force");
    let addresses = site.addresses("left0");
    assert!(addresses.contains("10.71.4.1/24") && !addresses.contains("10.71.3.1/24"), "{addresses}");
    let routes = site.gateway.ip("route show").unwrap();
    assert!(routes.contains("blackhole 10.73.0.0/16") && !routes.contains("10.72.0.0/16"), "{routes}");
    assert_eq!(generation(&gateway), 2);
}

#[test]
fn a_bad_commit_changes_nothing() {
    let site = Site::new("bad");
    let gateway = site.start(&site.write("a.conf", ""));
    site.gateway.ip("tuntap add tap0 mode tap").unwrap();
    let before =
        (site.addresses("left0"), site.gateway.ip("route show").unwrap(), site.links(), site.active());
    let cases = [
        ("set security zones security-zone left screen missing\n", 2, "x.conf:15:"),
        ("set interfaces eth9 unit 0 family inet address 10.9.0.1/24\n", 2, "interface eth9 does not exist"),
        ("set security flow max-sessions 8192\n", 2, "security flow"),
        // Refused by the kernel when the address stands already: it must go again.
        (
            "set interfaces left0 unit 0 family inet address 10.71.9.1/24\n\
             set routing-options static route 10.74.0.0/16 next-hop 192.0.2.77\n",
            1,
            "add route 10.74.0.0/16 via 192.0.2.77",
        ),
        ("set interfaces tap0 mtu 65535\n", 2, "interface tap0: mtu 65535"),
    ];
    for (more, code, wanted) in cases {
        let mut text = format!("{BASE}{more}");
        if more.contains("flow") {
            text = text.replace("max-sessions 4096\n", "\n");
        }
        let message = refused(&site.commit(&site.write_all("x.conf", &text)), code);
        assert!(message.contains(wanted), "{more}: {message}");
    }
    assert_eq!(generation(&gateway), 1);
    let after = (site.addresses("left0"), site.gateway.ip("route show").unwrap(), site.links());
    assert_eq!((&before.0, &before.1, &before.2), (&after.0, &after.1, &after.2));
    assert_eq!(before.3 & 1, site.active() & 1, "the same generation runs");
    assert!(site.pings(&site.left, "10.71.2.2") && site.silent(&site.right, "10.71.1.2"));
    assert_eq!(gateway.json("/api/stats").unwrap()["commits_failed"], 5);
}

#[test]
fn a_commit_may_add_and_remove_tagged_units() {
    let site = Site::new("vlan");
    let route = "set routing-options static route 10.75.0.0/16 next-hop 10.71.2.2\n\
                 set routing-options static route 10.76.0.0/16 next-hop [ 10.71.2.2 10.71.2.3 ]\n";
    let trunk = BASE
        .replace("set interfaces right0 unit 0", "set interfaces right0 unit 100")
        .replace("right0.0", "right0.100")
        + "set interfaces right0 vlan-tagging\nset interfaces right0 unit 100 vlan-id 100\n"
        + route;
    let _gateway = site.start(&site.write("a.conf", route));
    let routes = || site.gateway.ip("route show").unwrap().replace('\n', " ");
    let via = |device: &str| {
        let text = routes();
        text.contains(&format!("10.75.0.0/16 via 10.71.2.2 dev {device} "))
            && text.contains(&format!("nexthop via 10.71.2.2 dev {device} "))
            && text.contains(&format!("nexthop via 10.71.2.3 dev {device} "))
    };
    assert!(via("right0"), "{}", routes());
    accepted(&site.commit(&site.write_all("trunk.conf", &trunk)));
    assert!(site.addresses("right0.100").contains("10.71.2.1/24"));
    assert!(!site.addresses("right0").contains("10.71.2.1/24"));
    assert!(via("right0.100"), "routes follow their subnet: {}", routes());
    sluice_lab::helpers::tag_with_vlan(&site.right, "eth0", 100).unwrap();
    assert!(site.pings(&site.left, "10.71.2.2"), "frames are tagged on the way out and back");
    assert!(site.pings(&site.gateway, "10.71.2.2"), "also the gateway's own");
    accepted(&site.commit(&site.write("a.conf", route)));
    assert!(via("right0"), "{}", routes());
    assert!(site.gateway.ip("link show dev right0.100").is_err(), "the pair is gone");
    assert!(site.addresses("right0").contains("10.71.2.1/24"));
}

#[test]
fn sighup_reads_the_file_again() {
    let site = Site::new("hup");
    let gateway = site.start(&site.write("a.conf", ""));
    site.write("a.conf", "set security policies default-policy permit-all\n");
    let pid = gateway.json("/health").unwrap()["pid"].as_i64().unwrap() as i32;
    let hup = || kill(Pid::from_raw(pid), Signal::SIGHUP).unwrap();
    hup();
    wait_until("the file is committed", Duration::from_secs(5), || generation(&gateway) == 2);
    assert!(site.pings(&site.right, "10.71.1.2"));
    site.write("a.conf", "this is no configuration\n");
    hup();
    wait_until("the bad file is refused", Duration::from_secs(5), || {
        gateway.json("/api/stats").unwrap()["commits_failed"] == 1
    });
    assert_eq!(generation(&gateway), 2);
}

/// A program that is not ours on the XDP hook: named, with what to do; nothing half applied.
#[test]
fn a_taken_hook_is_named() {
    let site = Site::new("taken");
    let dir = site.state();
    std::fs::create_dir_all(&dir).unwrap();
    let (source, object) = (dir.join("pass.c"), dir.join("pass.o"));
    let text = "__attribute__((section(\"xdp\"), used)) int pass(void *c) { return 2; }\n\
                char l[] __attribute__((section(\"license\"), used)) = \"GPL\";\n";
    std::fs::write(&source, text).unwrap();
    let clang = std::process::Command::new("clang-19")
        .args(["-O2", "-target", "bpf", "-g", "-c"])
        .args([&source, std::path::Path::new("-o"), &object])
        .status();
    assert!(clang.unwrap().success());
    let gateway = site.start(&site.write("a.conf", ""));
    site.gateway.ip(&format!("link set dev right0 xdp obj {} sec xdp", object.display())).unwrap();
    let before = site.links();
    let message = refused(&site.commit(&site.write("xdp.conf", "set interfaces right0 mode xdp\n")), 1);
    assert!(message.contains("right0 is taken"), "{message}");
    assert_eq!(generation(&gateway), 1);
    assert_eq!(site.links(), before);
    let stats = gateway.json("/api/stats").unwrap();
    assert_eq!(stats["interfaces"][1]["mode"], "tc");
    site.gateway.ip("link set dev right0 xdp off").unwrap();
    assert!(site.pings(&site.left, "10.71.2.2"), "the old generation forwards");
    accepted(&site.commit(&site.write("xdp.conf", "set interfaces right0 mode xdp\n")));
    assert_eq!(gateway.json("/api/stats").unwrap()["interfaces"][1]["mode"], "xdp-native");
}

#[test]
fn an_interface_that_leaves_is_let_go() {
    let site = Site::new("leave");
    site.gateway.ip("link add extra0 type veth peer name extra1").unwrap();
    let extra = "set interfaces extra0 unit 0 family inet address 10.71.5.1/24\n\
                 set security zones security-zone left interfaces extra0.0\n";
    let gateway = site.start(&site.write("a.conf", extra));
    let forwarding = || site.gateway.run("cat", ["/proc/sys/net/ipv4/conf/extra0/forwarding"]).unwrap();
    let guard = || site.gateway.run("nft", ["list", "table", "inet", "sluice_guard"]).unwrap();
    assert_eq!(forwarding().trim(), "1");
    assert!(guard().contains("extra0"));
    let links = site.links().len();
    accepted(&site.commit(&site.write("b.conf", "")));
    assert_eq!(site.links().len(), links - 2, "its programs are gone");
    assert_eq!(forwarding().trim(), "0", "the kernel must not forward in our place");
    assert!(!guard().contains("extra0") && !site.addresses("extra0").contains("10.71.5.1"));
    assert_eq!(gateway.json("/api/interfaces").unwrap().as_array().unwrap().len(), 2);
}

#[test]
fn an_mtu_comes_back_when_its_statement_goes() {
    let site = Site::new("mtu");
    let mtu = |device: &str| {
        let link = site.gateway.ip(&format!("link show dev {device}")).unwrap();
        let words: Vec<&str> = link.split_whitespace().collect();
        let at = words.iter().position(|word| *word == "mtu").unwrap();
        words[at + 1].parse::<u32>().unwrap()
    };
    let wanted = "set interfaces left0 mtu 2000\nset interfaces right0 mtu 1800\n";
    let gateway = site.start(&site.write("a.conf", wanted));
    assert_eq!((mtu("left0"), mtu("right0")), (2000, 1800));
    accepted(&site.commit(&site.write("b.conf", "set interfaces right0 mtu 1700\n")));
    assert_eq!((mtu("left0"), mtu("right0")), (1500, 1700));
    gateway.finish().unwrap();
    assert_eq!((mtu("left0"), mtu("right0")), (1500, 1500), "cleanup leaves what was found");
}

#[test]
fn a_policy_counts_only_inside_its_schedule() {
    let site = Site::new("sched");
    let until = chrono::Local::now() + chrono::Duration::seconds(8);
    let more = format!(
        "set schedulers scheduler soon start-date 2020-01-01.00:00 stop-date {}\n\
         set schedulers scheduler past start-date 2020-01-01.00:00 stop-date 2020-01-02.00:00\n\
         set security policies from-zone left to-zone right policy out scheduler-name soon\n\
         set security policies global policy gone match source-address any\n\
         set security policies global policy gone match destination-address any\n\
         set security policies global policy gone match application any\n\
         set security policies global policy gone then permit\n\
         set security policies global policy gone scheduler-name past\n",
        until.format("%Y-%m-%d.%H:%M:%S")
    );
    let gateway = site.start(&site.write("a.conf", &more));
    let first = generation(&gateway);
    assert!(chrono::Local::now() < until, "the gateway took too long to start");
    assert!(site.pings(&site.left, "10.71.2.2"), "inside the schedule");
    assert!(site.silent(&site.right, "10.71.1.2"), "a schedule of the past");
    let active = |policy: &str| {
        let policies = gateway.json("/api/policies").unwrap();
        let found = policies.as_array().unwrap().iter().find(|p| p["name"] == policy).unwrap().clone();
        found["active"].as_bool().unwrap()
    };
    assert!(active("out") && !active("gone"));
    wait_until("the end of the schedule", Duration::from_secs(20), || generation(&gateway) == first + 1);
    assert!(!active("out"));
    assert!(site.silent(&site.left, "10.71.2.2"), "outside of the schedule");
}

/// As they are evaluated: pair by pair, in the order of the text, then the global ones. What a name that left has
/// counted is not the next one's.
#[test]
fn policies_are_listed_as_they_are_tried() {
    let site = Site::new("order");
    let policy = |place: &str, name: &str| {
        ["source-address any", "destination-address any", "application any"]
            .map(|part| format!("set security policies {place} policy {name} match {part}\n"))
            .concat()
            + &format!("set security policies {place} policy {name} then permit\n")
    };
    let (pair, back) = ("from-zone left to-zone right", "from-zone right to-zone left");
    let others =
        [policy("global", "last"), policy(back, "zulu"), policy(back, "alpha"), policy(pair, "after")]
            .concat();
    let gateway = site.start(&site.write("a.conf", &others));
    let listed = || {
        let list = gateway.json("/api/policies").unwrap();
        let entry =
            |p: &serde_json::Value| (p["name"].as_str().unwrap().to_owned(), p["sessions"].as_u64().unwrap());
        list.as_array().unwrap().iter().map(entry).collect::<Vec<_>>()
    };
    let names = || listed().into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    assert_eq!(names(), ["out", "after", "zulu", "alpha", "last"]);
    assert!(site.pings(&site.left, "10.71.2.2"));
    assert_eq!(listed()[0], ("out".to_owned(), 1));

    // a new policy in front has a higher number than those behind it; an id goes to another name two commits later
    let first = BASE.replace("policy out", "policy new") + &others;
    for _ in 0..2 {
        accepted(&site.commit(&site.write_all("b.conf", &first)));
    }
    assert_eq!(names(), ["new", "after", "zulu", "alpha", "last"]);
    let third = BASE.replace("policy out", "policy other") + &others;
    accepted(&site.commit(&site.write_all("c.conf", &third)));
    assert_eq!(listed()[0], ("other".to_owned(), 0), "not what `out` has counted");
}
