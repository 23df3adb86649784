//! The DHCP server: clients of another make get leases, reservations and options of it, whatever ends.

use crate::common;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use common::{Site, accepted, refused, stderr, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use sluice_lab::gateway::Gateway;
use sluice_lab::netns::Netns;

const PATIENCE: Duration = Duration::from_secs(20);

const SERVED: &str = "\
set interfaces lan0 unit 0 family inet address 10.71.9.1/24
set security zones security-zone left interfaces lan0.0 host-inbound-traffic system-services dhcp
set security zones security-zone left interfaces lan0.0 host-inbound-traffic system-services ping
set system services dhcp-local-server group lan interface lan0.0
set access address-assignment pool office family inet network 10.71.9.0/24
set access address-assignment pool office family inet range all low 10.71.9.1 high 10.71.9.3
set access address-assignment pool office family inet dhcp-attributes name-server 10.71.9.1
set access address-assignment pool office family inet dhcp-attributes name-server 10.71.2.2
set access address-assignment pool office family inet dhcp-attributes domain-name corp.example
set access address-assignment pool office family inet dhcp-attributes maximum-lease-time 3600
set access address-assignment pool office family inet dhcp-attributes option 42 ip-address 10.71.9.123
set access address-assignment pool office family inet host printer hardware-address 02:00:5e:10:00:01
set access address-assignment pool office family inet host printer ip-address 10.71.9.77
";

/// False, and said: a machine without them goes without this test.
fn installed() -> bool {
    let missing: Vec<_> = ["/usr/sbin/kea-dhcp4", "/usr/bin/udhcpc"]
        .into_iter()
        .filter(|program| {
            !Path::new(program).exists() && !Path::new(&program.replace("/usr/bin", "/usr/sbin")).exists()
        })
        .collect();
    if !missing.is_empty() {
        eprintln!("NOT TESTED: {missing:?} cannot be found; run scripts/setup.sh");
    }
    missing.is_empty()
}

/// The server outlives the daemon, and must not outlive the test.
pub(crate) struct Ended(PathBuf);

impl Ended {
    fn with(site: &Site) -> Self {
        Self::of(site, "dhcp-server")
    }

    /// The one that has its files there.
    pub(crate) fn of(site: &Site, directory: &str) -> Self {
        Self(site.state().join(directory).join("started.pid"))
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        let pid = fs::read_to_string(&self.0).ok().and_then(|text| text.trim().parse().ok());
        if let Some(pid) = pid {
            // it may have ended by itself
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

/// What a client is told as soon as it is served: a server that has just begun may open its sockets a second later.
fn served(site: &Site, host: &Netns, mac: &str, what: &str) -> String {
    let mut told = None;
    wait_until(what, PATIENCE, || {
        told = lease(site, host, mac);
        told.is_some()
    });
    told.unwrap()
}

/// A client with this hardware address; what it was told, a line each.
fn lease(site: &Site, host: &Netns, mac: &str) -> Option<String> {
    host.ip("link set eth0 down").unwrap();
    host.ip(&format!("link set eth0 address {mac}")).unwrap();
    host.ip("link set eth0 up").unwrap();
    let script = site.dir().join("udhcpc.sh");
    let text = "#!/bin/sh\n[ \"$1\" = bound ] || exit 0\n\
        ip address flush dev $interface scope global\nip address add $ip/$mask dev $interface\nip route replace default via $router\n\
        set > \"$TOLD\"\n";
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let told = site.dir().join("told");
    let _ = fs::remove_file(&told);
    let mut command = host.command("udhcpc");
    command
        .args(["-f", "-q", "-n", "-t", "5", "-T", "1", "-i", "eth0", "-O", "ntpsrv", "-F", "desk", "-s"])
        .arg(&script);
    let output = command.env("TOLD", &told).output().unwrap();
    output.status.success().then(|| fs::read_to_string(&told).unwrap())
}

fn view(gateway: &Gateway) -> Value {
    gateway.json("/api/dhcp-server").unwrap()
}

fn pid(gateway: &Gateway) -> Option<u64> {
    view(gateway)["pid"].as_u64()
}

fn bound(gateway: &Gateway, address: &str) -> bool {
    view(gateway)["bindings"].as_array().unwrap().iter().any(|binding| binding["address"] == address)
}

pub(crate) fn is_alive(pid: u64) -> bool {
    fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty())
}

fn clients_are_served(label: &str, mode: &str) {
    if !installed() {
        return;
    }
    let site = Site::new(label);
    let host = Netns::create(&format!("{label}-h")).unwrap();
    site.connect(&host, "lan0", &[]);
    for end in [&site.left, &site.right, &host] {
        // what native XDP redirects must have its checksums, and needs a far end that polls
        end.run("ethtool", ["-K", "eth0", "tx", "off", "gro", "on"]).unwrap();
    }
    let modes: String =
        ["left0", "right0", "lan0"].map(|device| format!("set interfaces {device} mode {mode}\n")).concat();
    let conf = site.write("a.conf", &format!("{SERVED}{modes}"));
    let mut gateway = site.start(&conf);
    let _ended = Ended::with(&site);
    wait_until("the server runs", PATIENCE, || pid(&gateway).is_some());
    let told = served(&site, &host, "02:00:5e:10:00:09", "a lease");
    for word in [
        "ip='10.71.9.2'",
        "mask='24'",
        "router='10.71.9.1'",
        "dns='10.71.9.1 10.71.2.2'",
        "domain='corp.example'",
        "lease='3600'",
        "ntpsrv='10.71.9.123'",
    ] {
        assert!(
            told.contains(word),
            "`{word}` is missing (the gateway's own address is lent to nobody):\n{told}"
        );
    }
    assert!(site.pings(&host, "10.71.2.2"), "what it was told leads through the gateway");
    wait_until("the lease is shown", PATIENCE, || bound(&gateway, "10.71.9.2"));
    let first = pid(&gateway).unwrap();
    // the daemon is killed: the same server goes on, and the next daemon with it
    gateway.kill().unwrap();
    let told = served(&site, &host, "02:00:5e:10:00:01", "a lease without the daemon");
    assert!(told.contains("ip='10.71.9.77'"), "the reserved one:\n{told}");
    gateway.start().unwrap();
    wait_until("the daemon has found it", PATIENCE, || pid(&gateway) == Some(first));
    // the server is killed: another one comes, with the leases
    kill(Pid::from_raw(first as i32), Signal::SIGKILL).unwrap();
    wait_until("another server runs", PATIENCE, || pid(&gateway).is_some_and(|pid| pid != first));
    wait_until("its leases are those of before", PATIENCE, || {
        bound(&gateway, "10.71.9.2") && bound(&gateway, "10.71.9.77")
    });
    let told = served(&site, &host, "02:00:5e:10:00:09", "a lease after the crash");
    assert!(told.contains("ip='10.71.9.2'"), "{told}");
    // another configuration is read, not begun with
    let second = pid(&gateway).unwrap();
    let other = SERVED.replace("corp.example", "lab.example");
    accepted(&site.commit(&site.write("b.conf", &format!("{other}{modes}"))));
    let dir = site.state().join("dhcp-server");
    wait_until("the text is written", PATIENCE, || {
        fs::read_to_string(dir.join("kea-dhcp4.conf"))
            .unwrap()
            .contains(&"lab.example".bytes().map(|b| format!("{b:02x}")).collect::<String>())
    });
    wait_until("and in force", PATIENCE, || {
        lease(&site, &host, "02:00:5e:10:00:09").is_some_and(|told| told.contains("domain='lab.example'"))
    });
    assert_eq!(pid(&gateway), Some(second));
    // a lease is given back by hand
    let cleared = site.sluice(&["cli", "-c", "clear dhcp server binding 10.71.9.77"]);
    assert!(accepted(&cleared).contains("has ended"));
    assert!(!bound(&gateway, "10.71.9.77"));
    let shown = accepted(&site.sluice(&["cli", "-c", "show dhcp server binding"]));
    assert!(
        shown.contains("10.71.9.2") && shown.contains("office") && shown.contains("02:00:5e:10:00:09"),
        "{shown}"
    );
    // the statement goes, and the server with it
    accepted(&site.commit(&site.write("c.conf", "set interfaces lan0 unit 0 family inet address 10.71.9.1/24\nset security zones security-zone left interfaces lan0.0\n")));
    wait_until("no server", PATIENCE, || !is_alive(second) && pid(&gateway).is_none());
    accepted(&site.commit(&conf));
    wait_until("a server again", PATIENCE, || pid(&gateway).is_some());
    let last = pid(&gateway).unwrap();
    assert!(gateway.stop().unwrap().success());
    assert!(is_alive(last), "it serves while the daemon is away");
    // as if it had just begun
    let _ = fs::remove_file(dir.join("kea-dhcp4.kea-dhcp4.pid"));
    accepted(&site.sluice(&["cleanup"]));
    assert!(!is_alive(last) && !dir.exists());
}

/// As above, on a second network.
const SECOND: &str = "\
set interfaces lan1 unit 0 family inet address 10.71.10.1/24
set security zones security-zone left interfaces lan1.0 host-inbound-traffic system-services dhcp
set system services dhcp-local-server group lan interface lan1.0
set access address-assignment pool second family inet network 10.71.10.0/24
set access address-assignment pool second family inet range all low 10.71.10.2 high 10.71.10.9
";

/// One that could not be told so soon behind its start is told again, and not ended.
const BEGUN: Duration = Duration::from_secs(6);

#[test]
fn a_network_that_goes_away_leaves_the_others_served() {
    if !installed() {
        return;
    }
    let site = Site::new("lan-goes");
    let [host, other] = ["h", "o"].map(|end| Netns::create(&format!("lan-goes-{end}")).unwrap());
    site.connect(&host, "lan0", &[]);
    site.connect(&other, "lan1", &[]);
    let gateway = site.start(&site.write("a.conf", &format!("{SERVED}{SECOND}")));
    let _ended = Ended::with(&site);
    served(&site, &host, "02:00:5e:10:00:09", "a lease");
    served(&site, &other, "02:00:5e:10:00:0a", "a lease of the second");
    std::thread::sleep(BEGUN);
    let kea = pid(&gateway).unwrap();
    site.gateway.ip("link delete lan1").unwrap();
    wait_until("it is told of one network alone", PATIENCE, || {
        let text = fs::read_to_string(site.state().join("dhcp-server/kea-dhcp4.conf"));
        text.is_ok_and(|text| !text.contains("lan1") && text.contains("lan0"))
    });
    served(&site, &host, "02:00:5e:10:00:09", "it is served on");
    assert_eq!(pid(&gateway), Some(kea), "by the same server");
}

#[test]
#[ignore = "the same on the other hook; runs with make soak"]
fn clients_are_served_on_tc() {
    clients_are_served("dhcpd-tc", "tc");
}

#[test]
fn clients_are_served_on_xdp() {
    clients_are_served("dhcpd-xdp", "xdp");
}

#[test]
fn wrong_pools_are_refused_by_line() {
    let site = Site::new("dhcpd-wrong");
    let gateway = site.start(&site.write("a.conf", ""));
    let _ended = Ended::with(&site);
    let served = "set system services dhcp-local-server group g interface left0.0\n";
    let pool = "set access address-assignment pool p family inet";
    let network = format!("{pool} network 10.71.1.0/24\n");
    let wrong = [
        (served.to_owned(), "no pool has the network of `left0.0`"),
        ("set system services dhcp-local-server group g interface lan9.0\n".to_owned(), "`lan9.0` in"),
        (
            format!("{network}{pool} range r low 10.71.1.9 high 10.71.2.9\n"),
            "`10.71.2.9` is no address of a host in 10.71.1.0/24",
        ),
        (format!("{network}{pool} range r low 10.71.1.9 high 10.71.1.8\n"), "behind its end"),
        (format!("{network}{pool} range r low 10.71.1.9\n"), "lacks `low` or `high`"),
        (
            format!(
                "{network}{pool} host h hardware-address 02:00:5e:10:00:01\n{pool} host h ip-address 10.71.3.1\n"
            ),
            "`10.71.3.1` is no address",
        ),
        (
            format!(
                "{network}{pool} host h hardware-address 02:00:5e:10:00\n{pool} host h ip-address 10.71.1.5\n"
            ),
            "no hardware address",
        ),
        (
            format!("{network}set access address-assignment pool q family inet network 10.71.1.0/25\n"),
            "are of one network",
        ),
        (format!("{network}{pool} dhcp-attributes option 53 byte 1\n"), "the server makes it itself"),
        (format!("{pool} dhcp-attributes domain-name a.example\n"), "has no `network`"),
    ];
    for (text, says) in &wrong {
        let said = refused(&site.commit(&site.write("b.conf", text)), 2);
        assert!(said.contains(says) && said.contains("b.conf:"), "{said}");
    }
    let deaf = site.commit(
        &site.write("c.conf", &format!("{served}{network}{pool} range r low 10.71.1.9 high 10.71.1.20\n")),
    );
    assert!(stderr(&deaf).contains("host-inbound-traffic system-services dhcp"), "{}", stderr(&deaf));
    accepted(&deaf);
    if installed() {
        wait_until("a server", PATIENCE, || pid(&gateway).is_some());
        accepted(&site.commit(&site.write("d.conf", "")));
        wait_until("no server", PATIENCE, || pid(&gateway).is_none());
    }
}
