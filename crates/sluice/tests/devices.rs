//! Devices that cannot carry what the configuration asks of them, and what others do with them: refused or told by name.

use crate::common;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use common::{BASE, BINARY, Site, accepted, listeners, refused, stderr, wait_until};
use sluice_lab::gateway::Gateway;
use sluice_lab::helpers::{Tags, tag_with};
use sluice_lab::netns::Netns;

const PATIENCE: Duration = Duration::from_secs(5);

fn in_mode(site: &Site, mode: &str, more: &str) -> PathBuf {
    let modes = format!("set interfaces left0 mode {mode}\nset interfaces right0 mode {mode}\n");
    site.write_all(&format!("{mode}.conf"), &format!("{BASE}{modes}{more}"))
}

fn notes(gateway: &Gateway, name: &str) -> String {
    let views = gateway.json("/api/interfaces").unwrap();
    views.as_array().unwrap().iter().find(|view| view["name"] == name).unwrap()["notes"].to_string()
}

fn enslaves(gateway: &Netns, kind: &str) {
    gateway.ip(&format!("link add over0 type {kind}")).unwrap();
    gateway.ip("link set right0 down").unwrap();
    gateway.ip("link set right0 master over0").unwrap();
}

/// Refused by its name, and told of when it happens under a running gateway.
#[test]
fn ports_of_other_devices_are_named() {
    for (number, kind) in ["bridge", "vrf table 7", "bond mode active-backup"].into_iter().enumerate() {
        let site = Site::new(&format!("port{number}"));
        let gateway = &site.gateway;
        if gateway.ip(&format!("link add over0 type {kind}")).is_err() {
            eprintln!("NOT TESTED: this kernel has no {kind}");
            continue;
        }
        gateway.ip("link delete over0").unwrap();
        let conf = in_mode(&site, "tc", "");
        let running = site.start(&conf);
        enslaves(gateway, kind);
        let kind = kind.split(' ').next().unwrap();
        let told = format!("has become a port of {kind} over0");
        wait_until("show interfaces tells", PATIENCE, || notes(&running, "right0.0").contains(&told));
        wait_until("the log tells", PATIENCE, || running.last_words().contains(&told));
        let refusal = refused(&site.commit(&conf), 2);
        assert!(refusal.contains(&format!("interface right0 is a port of {kind} over0")), "{refusal}");
        gateway.ip("link set right0 nomaster").unwrap();
        gateway.ip("link delete over0").unwrap();
        gateway.ip("link set right0 up").unwrap();
        wait_until("it works again", PATIENCE, || site.pings(&site.left, "10.71.2.2"));
        accepted(&site.commit(&conf));
    }
}

#[test]
fn devices_that_others_live_on_are_named() {
    let site = Site::new("carries");
    let conf = in_mode(&site, "tc", "");
    let _running = site.start(&conf);
    for kind in ["vlan id 5", "macvlan", "ipvlan", "macsec"] {
        if site.gateway.ip(&format!("link add link right0 name upper0 type {kind}")).is_err() {
            eprintln!("NOT TESTED: this kernel has no {kind}");
            continue;
        }
        let kind = kind.split(' ').next().unwrap();
        let refusal = refused(&site.commit(&conf), 2);
        assert!(refusal.contains(&format!("interface right0 carries {kind} device upper0")), "{refusal}");
        site.gateway.ip("link delete upper0").unwrap();
    }
    accepted(&site.commit(&conf));
}

const OFF: [&str; 8] = ["-K", "eth0", "tx", "off", "txvlan", "off", "tx-vlan-stag-hw-insert", "off"];

fn offload_off(site: &Site) {
    [&site.left, &site.right].iter().for_each(|host| drop(host.run("ethtool", OFF).unwrap()));
}

fn takes_tags_out(site: &Site) -> bool {
    let features = site.gateway.run("ethtool", ["-k", "left0"]).unwrap();
    features.lines().any(|line| line.trim().starts_with("rx-vlan-offload: on"))
}

/// A frame of a VLAN that no unit has is nobody's, wherever its tag travels: beside the frame, or in it.
#[test]
fn tags_beside_a_frame_are_seen_or_refused() {
    for (mode, in_frame) in [("auto", false), ("tc", false), ("tc", true), ("xdp", true), ("generic", true)] {
        let site = Site::new(&format!("beside{mode}"));
        if in_frame {
            offload_off(&site);
        }
        let running = site.start(&in_mode(&site, mode, ""));
        assert_eq!(takes_tags_out(&site), !matches!(mode, "xdp" | "generic"), "{mode}");
        assert!(!notes(&running, "left0.0").contains("VLAN"), "{mode}: {}", notes(&running, "left0.0"));
        tag_with(&site.left, "eth0", Tags { outer: 666, service: false, inner: None }).unwrap();
        assert!(site.silent(&site.left, "10.71.2.2"), "{mode}: VLAN 666 has no unit");
        let drops = running.json("/api/stats").unwrap()["drops"].to_string();
        assert!(drops.contains("unknown_unit"), "{mode}: {drops}");
    }
}

/// What XDP needs off is as it was when the device leaves XDP, however it does.
#[test]
fn offloads_come_back_behind_xdp() {
    for mode in ["xdp", "generic"] {
        let site = Site::new(&format!("back{mode}"));
        offload_off(&site);
        let (xdp, tc) = (in_mode(&site, mode, ""), in_mode(&site, "tc", ""));
        site.gateway.run("ethtool", ["-K", "right0", "rxvlan", "off"]).unwrap();
        let right = || site.gateway.run("ethtool", ["-k", "right0"]).unwrap();
        let mut running = site.start(&xdp);
        assert!(!takes_tags_out(&site), "{mode}");
        site.gateway.run("ethtool", ["-K", "left0", "rxvlan", "on"]).unwrap();
        wait_until("off again", PATIENCE, || !takes_tags_out(&site));
        accepted(&site.commit(&xdp));
        accepted(&site.commit(&tc));
        assert!(takes_tags_out(&site), "{mode}: another hook");
        assert!(right().contains("rx-vlan-offload: off"), "{mode}: what was off before stays off");
        site.gateway.run("ethtool", ["-K", "left0", "rxvlan", "off"]).unwrap();
        accepted(&site.commit(&tc));
        assert!(!takes_tags_out(&site), "{mode}: it is its operator's again");
        site.gateway.run("ethtool", ["-K", "left0", "rxvlan", "on"]).unwrap();
        accepted(&site.commit(&xdp));
        assert!(!takes_tags_out(&site), "{mode}");
        running.kill().unwrap();
        accepted(&site.sluice(&["cleanup"]));
        assert!(takes_tags_out(&site), "{mode}: cleanup");
    }
}

/// A device's own filters know nothing of tagged units: it receives what these are sent as long as it has some, and is then what its
/// operator has made it.
#[test]
fn filters_of_devices_with_tagged_units_are_off() {
    let site = Site::new("filters");
    offload_off(&site);
    let tagged = "set interfaces right0 vlan-tagging\nset interfaces right0 unit 0 vlan-id 8\nset interfaces right0 unit 7 vlan-id 7\n\
                  set interfaces right0 unit 7 family inet address 10.71.7.1/24\n\
                  set security zones security-zone right interfaces right0.7\n";
    let (plain, tagged) = (in_mode(&site, "tc", ""), in_mode(&site, "xdp", tagged));
    let flags = |device: &str| {
        let shown = site.gateway.ip(&format!("link show {device}")).unwrap();
        ["PROMISC", "ALLMULTI"].map(|flag| shown.contains(flag))
    };
    site.gateway.ip("link set left0 promisc on").unwrap();
    let mut running = site.start(&plain);
    assert_eq!(flags("right0"), [false, false]);
    accepted(&site.commit(&tagged));
    assert_eq!(flags("right0"), [false, true], "all groups; veth has no filter of VLANs");
    accepted(&site.commit(&tagged));
    accepted(&site.commit(&plain));
    assert_eq!((flags("right0"), flags("left0")), ([false, false], [true, false]));
    site.gateway.ip("link set right0 allmulticast on").unwrap();
    accepted(&site.commit(&tagged));
    accepted(&site.commit(&plain));
    assert_eq!(flags("right0"), [false, true], "its operator's");
    site.gateway.ip("link set right0 allmulticast off").unwrap();
    accepted(&site.commit(&tagged));
    site.gateway.ip("link set right0 allmulticast off").unwrap();
    wait_until("all groups again", PATIENCE, || flags("right0") == [false, true]);
    running.kill().unwrap();
    accepted(&site.sluice(&["cleanup"]));
    assert_eq!((flags("right0"), flags("left0")), ([false, false], [true, false]), "cleanup");
}

/// What XDP would not see is told; with tagged units it is refused until the sender's offload is off.
#[test]
fn what_senders_leave_to_xdp_is_told() {
    for mode in ["xdp", "generic"] {
        let site = Site::new(&format!("leave{mode}"));
        let plain = in_mode(&site, mode, "");
        let running = site.start(&plain);
        let checked =
            site.gateway.command(BINARY).args(["check", &plain.display().to_string()]).output().unwrap();
        for said in [stderr(&site.commit(&plain)), stderr(&checked), notes(&running, "left0.0")] {
            assert!(said.contains("leaves VLAN tags beside the frame"), "{mode}: {said}");
            assert!(said.contains("leaves checksums to be completed"), "{mode}: {said}");
        }
        let tagged = BASE.replace("left0 unit 0", "left0 unit 5").replace("left0.0", "left0.5");
        let tagged = format!(
            "{tagged}set interfaces left0 vlan-tagging\nset interfaces left0 unit 5 vlan-id 5\nset interfaces left0 mode {mode}\n"
        );
        let tagged = site.write_all("tagged.conf", &tagged);
        let refusal = refused(&site.commit(&tagged), 2);
        assert!(
            refusal.contains("interface left0: its other end leaves VLAN tags beside the frame"),
            "{refusal}"
        );
        offload_off(&site);
        accepted(&site.commit(&tagged));
        let quiet = stderr(&site.commit(&plain));
        assert!(!quiet.contains("leaves"), "{mode}: {quiet}");
    }
}

/// The guard keeps the kernel from routing, not a bridge from switching, also where bridged frames meet nftables.
#[test]
fn a_managed_bridge_switches() {
    let site = Site::new("switch");
    let gateway = &site.gateway;
    let hosts = ["a", "b"].map(|name| Netns::create(&format!("switch-{name}")).unwrap());
    gateway.ip("link add br0 type bridge forward_delay 0").unwrap();
    for (number, host) in hosts.iter().enumerate() {
        let (v4, v6) = (format!("10.71.4.{}/24", number + 2), format!("fd71:4::{}/64", number + 2));
        site.connect(host, &format!("port{number}"), &[&v4, &v6]);
        gateway.ip(&format!("link set port{number} master br0")).unwrap();
    }
    gateway.ip("link set br0 up").unwrap();
    for key in ["net/bridge/bridge-nf-call-iptables", "net/bridge/bridge-nf-call-ip6tables"] {
        if gateway.sysctl(key, "1").is_err() {
            return eprintln!("NOT TESTED: this kernel has no {key}");
        }
    }
    let _running = site.start(&site.write(
        "bridge.conf",
        "set interfaces br0 unit 0 family inet address 10.71.4.1/24\nset security zones security-zone left interfaces br0.0\n",
    ));
    assert!(site.pings(&hosts[0], "10.71.4.3"), "switched, not routed");
    assert!(site.pings(&hosts[0], "fd71:4::3"));
    let rules = gateway.run("nft", ["list", "table", "inet", "sluice_guard"]).unwrap();
    assert!(rules.contains("ether daddr !="), "{rules}");
}

/// Whether a packet of this length passes, which nobody may divide.
fn passes_whole(site: &Site, length: u32) -> bool {
    let data = (length - 28).to_string();
    let ping = ["-c", "1", "-W", "0.5", "-n", "-M", "do", "-s", &data, "10.71.2.2"];
    site.left.command("ping").args(ping).output().unwrap().status.success()
}

/// The kernel takes IPv6 and its settings from a device that is too small for it (RFC 8200 section 5): IPv4 passes, up to the
/// last byte.
#[test]
fn small_devices_carry_ipv4() {
    for (mode, hook) in [("tc", "tc"), ("xdp", "xdp-native")] {
        let site = Site::new(&format!("small{mode}"));
        offload_off(&site);
        for host in [&site.left, &site.right] {
            host.run("ethtool", ["-K", "eth0", "gro", "on"]).unwrap();
        }
        let ipv4 = BASE.replace("set interfaces right0 unit 0 family inet6 address fd71:2::1/64\n", "");
        let of_size = |mtu: u32| {
            let size = format!("set interfaces right0 mtu {mtu}\n");
            let modes = ["left0", "right0"].map(|device| format!("set interfaces {device} mode {mode}\n"));
            site.write_all(&format!("{mtu}.conf"), &format!("{ipv4}{}{size}", modes.concat()))
        };
        let running = site.start(&of_size(1500));
        // downward: a host remembers what it has been told of a path
        for mtu in [1500, 1279, 576] {
            accepted(&site.commit(&of_size(mtu)));
            let views = running.json("/api/interfaces").unwrap();
            let right = views.as_array().unwrap().iter().find(|view| view["name"] == "right0.0").unwrap();
            assert_eq!((&right["mode"], &right["mtu"]), (&hook.into(), &mtu.into()), "{right}");
            wait_until(&format!("{mtu} bytes on {mode}"), PATIENCE, || passes_whole(&site, mtu));
            assert!(!passes_whole(&site, mtu + 1), "{mtu} on {mode}");
            let has_ipv6 = || Path::new("/proc/sys/net/ipv6/conf/right0").exists();
            assert_eq!(site.gateway.enter(has_ipv6).unwrap(), mtu >= 1280);
        }
    }
}

/// With the programs gone and the devices under other names, the kernel still forwards nothing.
#[test]
fn the_guard_holds_after_a_rename() {
    let site = Site::new("rename");
    let gateway = &site.gateway;
    let mut running = site.start(&in_mode(&site, "tc", ""));
    assert!(site.pings(&site.left, "10.71.2.2"));
    running.kill().unwrap();
    for (number, device) in ["left0", "right0"].into_iter().enumerate() {
        gateway.ip(&format!("link set {device} down")).unwrap();
        gateway.ip(&format!("link set {device} name other{number}")).unwrap();
        gateway.ip(&format!("link set other{number} up")).unwrap();
    }
    fs::remove_dir_all(site.pins()).unwrap();
    // a link that is not up yet would hold back what the guard lets pass
    for (host, address) in [(&site.left, "10.71.1.1"), (&site.right, "10.71.2.1")] {
        wait_until("the links are up again", PATIENCE, || site.pings(host, address));
    }
    assert!(site.silent(&site.left, "10.71.2.2"), "the kernel forwards in the gateway's place");
    gateway.run("nft", ["delete", "table", "inet", "sluice_guard"]).unwrap();
    assert!(site.pings(&site.left, "10.71.2.2"), "without the guard it would");
}

/// A driver's own words and what helps, at the start and at a commit, which changes nothing.
#[test]
fn what_a_driver_refuses_is_told_in_its_words() {
    let site = Site::new("words");
    let gateway = &site.gateway;
    gateway.ip("link del right0").unwrap();
    gateway
        .ip(&format!(
            "link add right0 numrxqueues 2 type veth peer name eth0 numtxqueues 2 netns {}",
            site.right.name()
        ))
        .unwrap();
    for (netns, device) in [(gateway, "right0"), (&site.right, "eth0")] {
        netns.ip(&format!("link set {device} up")).unwrap();
    }
    site.right.ip("addr add 10.71.2.2/24 dev eth0").unwrap();
    site.right.ip("route add default via 10.71.2.1").unwrap();
    site.right.run("ethtool", ["-L", "eth0", "tx", "2"]).unwrap();
    for host in [&site.left, &site.right] {
        host.run("ethtool", ["-K", "eth0", "gro", "on"]).unwrap();
    }
    gateway.run("ethtool", ["-L", "right0", "rx", "1"]).unwrap();
    let xdp = in_mode(&site, "xdp", "");
    let told = |said: &str| {
        for part in ["attach native XDP to right0", "rx queues", "ethtool -L right0 rx N", "mode tc"] {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert!(!said.contains("MTU"), "{said}");
    };
    let mut refused_start = site.daemon(&xdp);
    assert!(refused_start.start().is_err());
    told(&refused_start.last_words());
    drop(refused_start);
    let _running = site.start(&in_mode(&site, "auto", ""));
    told(&refused(&site.commit(&xdp), 1));
    assert!(site.pings(&site.left, "10.71.2.2"), "the refused commit has changed nothing");
    gateway.run("ethtool", ["-L", "right0", "rx", "2"]).unwrap();
    accepted(&site.commit(&xdp));
    wait_until("the cure helps", PATIENCE, || site.pings(&site.left, "10.71.2.2"));
}

/// Forwarded packets never meet the policies of IPsec: whoever relies on them is told, also when they come later.
#[test]
fn tunnels_that_forwarded_packets_pass_by_are_named() {
    let site = Site::new("ipsec");
    let add = |source: &str| {
        let template = "tmpl src 10.71.2.1 dst 10.71.2.2 proto esp reqid 1 mode tunnel";
        site.gateway
            .ip(&format!("xfrm policy add src {source} dst 10.99.0.0/16 dir out {template}"))
            .unwrap();
    };
    let conf = in_mode(&site, "tc", "");
    add("10.71.1.0/24");
    // this host's own packets are the kernel's
    add("10.71.1.1/32");
    let gateway = site.start(&conf);
    let done = site.commit(&conf);
    accepted(&done);
    let told = stderr(&done);
    assert!(told.contains("10.71.1.0/24 to 10.99.0.0/16") && !told.contains("10.71.1.1/32"), "{told}");
    let checked = stderr(&site.gateway.command(BINARY).arg("check").arg(&conf).output().unwrap());
    assert!(checked.contains("10.71.1.0/24 to 10.99.0.0/16"), "{checked}");
    add("10.71.7.0/24");
    wait_until("the log tells", PATIENCE, || gateway.last_words().contains("10.71.7.0/24 to 10.99.0.0/16"));
}

/// Addresses, MTU and carrier are the kernel's; what differs from the configuration is marked.
#[test]
fn interfaces_are_shown_as_the_kernel_has_them() {
    let site = Site::new("shown");
    let _running = site.start(&in_mode(&site, "tc", ""));
    let line = |device: &str| {
        let shown = accepted(&site.sluice(&["show", "interfaces"]));
        let lines = shown.lines().skip_while(|line| !line.contains(device));
        let lines = lines.enumerate().take_while(|(number, line)| *number == 0 || !line.contains("0.0 "));
        lines.map(|(_, line)| line.to_owned()).collect::<Vec<_>>().join("\n")
    };
    assert!(line("left0.0").contains("10.71.1.1/24") && !line("left0.0").contains("configured"));
    site.gateway.ip("address add 10.9.9.9/24 dev left0").unwrap();
    site.right.ip("link set eth0 down").unwrap();
    wait_until("both are shown", PATIENCE, || {
        line("left0.0").contains("10.9.9.9/24 (not configured)") && line("right0.0").contains("down")
    });
    let view = |name: &str| {
        let views = accepted(&site.sluice(&["show", "interfaces", "--json"]));
        let views: serde_json::Value = serde_json::from_str(&views).unwrap();
        views.as_array().unwrap().iter().find(|view| view["name"] == name).unwrap().clone()
    };
    let right = view("right0.0");
    assert_eq!((&right["up"], &right["link"]), (&true.into(), &false.into()), "{right}");
    assert_eq!(view("left0.0")["configured"].as_array().unwrap().len(), 2);
}

/// A third zone behind an interface of its own and a tagged unit of another one, with a static route.
const THIRD: &str = "\
set interfaces third0 unit 0 family inet address 10.71.3.1/24
set interfaces trunk0 vlan-tagging
set interfaces trunk0 unit 7 vlan-id 7 family inet address 10.71.7.1/24
set routing-options static route 10.99.0.0/16 next-hop [ 10.71.3.2 10.71.2.2 ]
set security zones security-zone third interfaces third0.0
set security zones security-zone third interfaces trunk0.7
set security zones security-zone third host-inbound-traffic system-services ping
";

/// What native XDP at the other end asks of a host.
fn for_xdp(host: &Netns) {
    host.run("ethtool", OFF).unwrap();
    host.run("ethtool", ["-K", "eth0", "gro", "on"]).unwrap();
}

/// An interface that is away holds up neither commits, nor others that come back, nor a start.
#[test]
fn an_interface_that_is_away_holds_up_no_other() {
    for mode in ["tc", "xdp"] {
        let site = Site::new(&format!("away{mode}"));
        let third = || {
            let host = Netns::create(&format!("away{mode}-3")).unwrap();
            site.connect(&host, "third0", &["10.71.3.2/24"]);
            for_xdp(&host);
            site.gateway.ip("link add trunk0 type veth peer name trunk1").unwrap();
            site.gateway.run("ethtool", [&["-K", "trunk1"], &OFF[2..]].concat()).unwrap();
            site.gateway.ip("link set trunk1 up").unwrap();
            host
        };
        let host = third();
        [&site.left, &site.right].into_iter().for_each(for_xdp);
        let with_third = in_mode(
            &site,
            mode,
            &format!("{THIRD}set interfaces third0 mode {mode}\nset interfaces trunk0 mode {mode}\n"),
        );
        let mut running = site.start(&with_third);
        drop(host);
        site.gateway.ip("link delete trunk0").unwrap();
        for gone in ["third0", "trunk0"] {
            wait_until("the log tells", PATIENCE, || running.last_words().contains(gone));
        }

        // with its device IPv4 takes the whole route away, unasked
        let routes = || site.gateway.ip("route show 10.99.0.0/16").unwrap();
        wait_until("the other gateway is left", PATIENCE, || routes().contains("via 10.71.2.2"));
        let commit = site.commit(&with_third);
        accepted(&commit);
        let said = stderr(&commit);
        assert!(said.contains("interface third0 is not here"), "{mode}: {said}");
        assert!(said.contains("10.71.3.2 is behind third0.0, which is not here"), "{mode}: {said}");
        assert!(site.pings(&site.left, "10.71.2.2"), "{mode}");
        let strange = in_mode(&site, mode, &THIRD.replace("third0", "fourth0"));
        let refusal = refused(&site.commit(&strange), 2);
        assert!(refusal.contains("interface fourth0 does not exist here"), "{mode}: {refusal}");

        site.gateway.ip("link delete left0").unwrap();
        site.connect(&site.left, "left0", &["10.71.1.2/24"]);
        for_xdp(&site.left);
        site.left.ip("route replace default via 10.71.1.1").unwrap();
        wait_until("the other one is attached again", PATIENCE, || site.pings(&site.left, "10.71.2.2"));

        running.kill().unwrap();
        accepted(&site.sluice(&["cleanup", "--keep-commits"]));
        let running = site.start(&with_third);
        assert!(site.pings(&site.left, "10.71.2.2"), "{mode}: after a start");
        assert!(notes(&running, "third0.0").contains("is not here"), "{mode}");

        let host = third();
        wait_until("the third one", PATIENCE, || site.pings(&host, "10.71.3.1"));
        wait_until("it is there", PATIENCE, || notes(&running, "third0.0") == "[]");
        wait_until("both gateways", PATIENCE, || {
            ["10.71.3.2", "10.71.2.2"].iter().all(|gateway| routes().contains(&format!("via {gateway}")))
        });
        let has_tagged =
            || site.gateway.ip("address show dev trunk0.7").is_ok_and(|a| a.contains("10.71.7.1"));
        wait_until("the tagged one", PATIENCE, has_tagged);
    }
}

const ALONE: &str = "\
set interfaces third0 unit 0 family inet address 10.71.3.1/24
set interfaces third0 unit 0 family inet6 address fd71:3::1/64
";

const OFFICE: &str = "\
set system services dhcp-local-server group lan interface third0.0
set access address-assignment pool office family inet network 10.71.3.0/24
set access address-assignment pool office family inet range all low 10.71.3.20 high 10.71.3.200
set access address-assignment pool office family inet dhcp-attributes router 10.71.3.1
set protocols router-advertisement interface third0.0 prefix fd71:3::/64
";

const TRANSLATED: &str = "\
set security nat source rule-set out from zone left
set security nat source rule-set out to interface third0.0
set security nat source rule-set out rule all match source-address 0.0.0.0/0
set security nat source rule-set out rule all then source-nat interface
set security nat proxy-arp interface third0.0 address 10.71.3.80/28
";

const MEMBER: &str = "set security zones security-zone third interfaces third0.0\n";

const CLIENT: &str = "\
set interfaces third0 unit 0 family inet dhcp
";

const TUNNELS: &str = "\
set interfaces mif unit 0 family inet address 10.60.0.1/16
set security zones security-zone mobile interfaces mif.0
set services gtp-u interface third0.0 role n3
set services gtp-u pool subscribers prefix 10.61.0.0/16
set services gtp-u pool subscribers mobile-interface mif.0
set services gtp-u session alice teid 0x1001
set services gtp-u session alice address 10.61.0.2
set services gtp-u session alice peer address 10.71.3.2
set services gtp-u session alice peer teid 0x2001
";

const INSTANCE: &str = "\
set routing-instances office instance-type virtual-router
set routing-instances office interface third0.0
set routing-instances office routing-options static route 10.98.0.0/16 next-hop 10.71.3.2
";

/// Whatever an interface is used for, it may go and come back.
#[test]
fn what_uses_an_interface_that_is_away_waits_for_it() {
    let site = Site::new("awaits");
    let third = || {
        let host = Netns::create("awaits-3").unwrap();
        site.connect(&host, "third0", &["10.71.3.2/24"]);
        host
    };
    let leave = |host: Netns| {
        site.gateway.ip("link delete third0").unwrap();
        drop(host);
    };
    let mut running = site.start(&in_mode(&site, "tc", ""));
    running.forget_file();
    let metrics = "set services fan-out metrics address 10.71.3.1\n";
    let listeners = listeners("third0", "10.71.3.1") + metrics;
    for (kind, text) in [
        ("addresses of hosts", [ALONE, OFFICE]),
        ("translation", [ALONE, TRANSLATED]),
        ("listeners", [ALONE, &listeners]),
        ("leases", ["", CLIENT]),
        ("tunnels", [ALONE, TUNNELS]),
        ("an instance", [ALONE, INSTANCE]),
    ] {
        if text.contains(&INSTANCE) && site.gateway.ip("link add vrf0 type vrf table 7").is_err() {
            eprintln!("NOT TESTED: this kernel has no vrf");
            continue;
        }
        let host = third();
        // a start without `--wait` prefers the commit before where that needs no interface that is away
        let conf = in_mode(&site, "tc", &format!("set system host-name other\n{MEMBER}{}", text.concat()));
        accepted(&site.commit(&conf));
        let conf = in_mode(&site, "tc", &format!("{MEMBER}{}", text.concat()));
        accepted(&site.commit(&conf));
        leave(host);
        let is_told = |running: &Gateway| notes(running, "third0.0").contains("is not here");
        wait_until(kind, PATIENCE, || {
            accepted(&site.commit(&conf));
            is_told(&running)
        });
        assert!(site.pings(&site.left, "10.71.2.2"), "{kind}");
        running.kill().unwrap();
        running.start().unwrap_or_else(|error| panic!("{kind}: {error:#}"));
        let host = third();
        wait_until(kind, PATIENCE, || !is_told(&running));
        accepted(&site.commit(&conf));
        leave(host);
    }
}

/// Their packets begin with the IP header, and what is read as an Ethernet header would be part of it.
#[test]
fn devices_without_an_ethernet_header_are_refused() {
    let site = Site::new("headerless");
    let _running = site.start(&in_mode(&site, "tc", ""));
    for (name, make) in [
        ("tun0", "tuntap add tun0 mode tun"),
        ("wg7", "link add wg7 type wireguard"),
        ("gre7", "link add gre7 type gre local 10.71.2.1 remote 10.71.2.2"),
    ] {
        if site.gateway.ip(make).is_err() {
            eprintln!("NOT TESTED: this kernel has no {name}");
            continue;
        }
        let unit = format!("set interfaces {name} unit 0 family inet address 10.71.8.1/30\n");
        let member = format!("set security zones security-zone third interfaces {name}.0\n");
        for text in [format!("{unit}{member}"), unit.clone()] {
            let refusal = refused(&site.commit(&in_mode(&site, "tc", &text)), 2);
            assert!(refusal.contains(&format!("interface {name}")), "{refusal}");
            assert!(refusal.contains("has no Ethernet header"), "{refusal}");
        }
        let management = "set security zones functional-zone management interfaces ";
        accepted(&site.commit(&in_mode(&site, "tc", &format!("{unit}{management}{name}.0\n"))));
    }
}

/// A device keeps its number in another network namespace, and a new one here may have the same.
#[test]
fn a_device_with_the_number_of_one_that_has_left_is_attached() {
    for mode in ["tc", "xdp"] {
        let site = Site::new(&format!("number{mode}"));
        let gateway = &site.gateway;
        [&site.left, &site.right].into_iter().for_each(for_xdp);
        let _running = site.start(&in_mode(&site, mode, ""));
        wait_until("it works", PATIENCE, || site.pings(&site.left, "10.71.2.2"));
        let index = index_of(gateway, "right0");
        let elsewhere = Netns::create(&format!("number{mode}-e")).unwrap();
        gateway.ip(&format!("link set right0 netns {}", elsewhere.name())).unwrap();
        site.right.ip("link set eth0 name old0").unwrap();
        let peer = format!("type veth peer name eth0 netns {}", site.right.name());
        gateway.ip(&format!("link add right0 index {index} {peer}")).unwrap();
        for_xdp(&site.right);
        for line in ["address flush dev old0", "address add 10.71.2.2/24 dev eth0", "link set eth0 up"] {
            site.right.ip(line).unwrap();
        }
        site.right.ip("route replace default via 10.71.2.1 onlink dev eth0").unwrap();
        wait_until(mode, PATIENCE, || site.pings(&site.left, "10.71.2.2"));
        assert_eq!(index_of(gateway, "right0"), index);
        let left = elsewhere.ip("-details link show dev right0").unwrap();
        assert!(!left.contains("prog/xdp"), "{mode}: {left}");
    }
}

fn index_of(netns: &Netns, device: &str) -> String {
    let shown = netns.ip(&format!("-oneline link show dev {device}")).unwrap();
    shown.split(':').next().unwrap().to_owned()
}
