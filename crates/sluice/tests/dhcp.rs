//! Clients of DHCP (RFC 2131) and DHCPv6 (RFC 8415), against dnsmasq and Kea, and against servers that lie.

use crate::common;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use common::{Running, Site, accepted, installed, refused, stdout, wait_until};
use serde_json::Value;
use sluice_lab::netns::Netns;

pub(crate) const DNSMASQ: &str = "/usr/sbin/dnsmasq";
pub(crate) const KEA4: &str = "/usr/sbin/kea-dhcp4";
pub(crate) const KEA6: &str = "/usr/sbin/kea-dhcp6";
const RADVD: &str = "/usr/sbin/radvd";
const PYTHON: &str = "/usr/bin/python3";
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// left may go out by wan, whose address a server gives.
pub(crate) const WAN: &str = "\
set interfaces wan0 unit 0 family inet dhcp
set security zones security-zone wan interfaces wan0.0
set security policies from-zone left to-zone wan policy out match source-address any
set security policies from-zone left to-zone wan policy out match destination-address any
set security policies from-zone left to-zone wan policy out match application any
set security policies from-zone left to-zone wan policy out then permit
set security nat source rule-set out from zone left
set security nat source rule-set out to zone wan
set security nat source rule-set out rule all match source-address 0.0.0.0/0
set security nat source rule-set out rule all then source-nat interface
";

pub(crate) fn provider(site: &Site, label: &str, device: &str) -> Netns {
    let provider = Netns::create(label).unwrap();
    site.connect(&provider, device, &["10.72.0.254/24", "10.72.9.254/24", "2001:db8:72::254/64"]);
    for (netns, device) in [(&provider, "eth0"), (&site.gateway, device)] {
        netns.run("ethtool", ["-K", device, "tx", "off", "gro", "on"]).unwrap();
    }
    provider
}

pub(crate) fn spawn(netns: &Netns, program: &str, arguments: &[&str]) -> Running {
    let mut command = netns.command(program);
    Running::spawn(command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null()))
}

pub(crate) fn dnsmasq(site: &Site, provider: &Netns, more: &[&str]) -> Running {
    fs::create_dir_all(site.state()).unwrap();
    let leases = format!("--dhcp-leasefile={}", site.dir().join("dnsmasq.leases").display());
    let mut arguments = vec![
        "--keep-in-foreground",
        "--conf-file=/dev/null",
        "--port=0",
        "--interface=eth0",
        "--bind-interfaces",
        "--no-ping",
        "--user=root",
        &leases,
        "--pid-file=",
    ];
    arguments.extend(more);
    spawn(provider, DNSMASQ, &arguments)
}

pub(crate) const RANGE: &[&str] =
    &["--dhcp-range=10.72.0.50,10.72.0.60,120s", "--dhcp-option=3,10.72.0.254", "--dhcp-option=6,10.72.0.53"];

fn bindings(site: &Site, operation: &str) -> Value {
    serde_json::from_str(&stdout(&site.sluice(&["api", operation]))).unwrap_or_default()
}

pub(crate) fn binding(site: &Site, operation: &str, interface: &str) -> Value {
    let list = bindings(site, operation);
    let found = list.as_array().and_then(|list| list.iter().find(|one| one["interface"] == interface));
    found.cloned().unwrap_or_default()
}

pub(crate) fn is_bound(site: &Site) -> bool {
    binding(site, "dhcp-clients", "wan0.0")["state"] == "bound"
}

pub(crate) fn ask(site: &Site, command: &str) -> String {
    accepted(&site.sluice(&["cli", "-c", command]))
}

/// What the kernel says of deletions on a device meanwhile.
fn deleted(site: &Site, device: &str, work: impl FnOnce()) -> Vec<String> {
    let mut command = site.gateway.command("ip");
    let mut monitor = Running::spawn(command.args(["monitor", "address", "route"]).stdout(Stdio::piped()));
    let output = monitor.stdout.take().unwrap();
    let reader =
        std::thread::spawn(move || BufReader::new(output).lines().map_while(Result::ok).collect::<Vec<_>>());
    std::thread::sleep(Duration::from_millis(200));
    work();
    std::thread::sleep(Duration::from_millis(200));
    drop(monitor);
    let lines = reader.join().unwrap();
    let is_of = |line: &String| {
        line.starts_with("Deleted")
            && line.contains(device)
            && !line.contains("fe80")
            && !line.contains("ff00")
    };
    lines.into_iter().filter(is_of).collect()
}

/// Says back what it is told, until the test ends.
pub(crate) fn echo(netns: &Netns, address: &str) {
    let listener = netns.enter(|| TcpListener::bind(address)).unwrap().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let mut line = String::new();
                while reader.read_line(&mut line).is_ok_and(|read| read > 0) {
                    let peer = stream.peer_addr().unwrap().ip();
                    if writeln!(stream, "{peer}").is_err() {
                        break;
                    }
                    line.clear();
                }
            });
        }
    });
}

pub(crate) fn connect(netns: &Netns, to: &str) -> Option<TcpStream> {
    let to = to.parse().unwrap();
    let stream = netns.enter(|| TcpStream::connect_timeout(&to, Duration::from_secs(2))).unwrap().ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    Some(stream)
}

/// The first one that comes to pass, from the left host.
pub(crate) fn connected(site: &Site, to: &str) -> TcpStream {
    let mut stream = None;
    wait_until("a session", PATIENCE, || {
        stream = connect(&site.left, to);
        stream.is_some()
    });
    stream.unwrap()
}

/// Whom the other end sees.
pub(crate) fn seen(stream: &mut TcpStream) -> Option<String> {
    writeln!(stream, "who").ok()?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).ok()?;
    Some(line.trim().to_owned()).filter(|line| !line.is_empty())
}

/// RFC 2131: a lease, traffic by it, a renewal without any change, the daemon's end in every way, and a release.
fn a_lease_lasts(mode: &str) {
    if !installed(&[DNSMASQ]) {
        return;
    }
    let site = Site::new(&format!("client-{mode}"));
    let provider = provider(&site, &format!("client-{mode}-isp"), "wan0");
    let more = format!("{WAN}set interfaces wan0 mode {mode}\n");
    let conf = site.write("a.conf", &more);
    // what native XDP redirects must have its checksums, and needs a far end that polls
    site.left.run("ethtool", ["-K", "eth0", "tx", "off", "gro", "on"]).unwrap();
    let _server = dnsmasq(&site, &provider, &[RANGE, &["--dhcp-authoritative"]].concat());
    let mut gateway = site.start(&conf);
    wait_until("a lease", PATIENCE, || is_bound(&site));
    let first = binding(&site, "dhcp-clients", "wan0.0");
    let address = first["address"].as_str().unwrap().to_owned();
    assert!(address.starts_with("10.72.0.5") || address == "10.72.0.60/24", "{first}");
    assert_eq!(first["server"], "10.72.0.254");
    assert_eq!(first["name_servers"][0], "10.72.0.53");
    let route = site.gateway.ip("route show default").unwrap();
    assert!(
        route.contains("via 10.72.0.254") && route.contains("proto dhcp") && route.contains("metric 12"),
        "{route}"
    );
    let shown = site.gateway.ip("address show dev wan0").unwrap();
    assert!(
        shown.contains("valid_lft 1") && !shown.contains("valid_lft forever\n    inet6"),
        "ends by itself: {shown}"
    );
    let resolv = fs::read_to_string(site.state().join("resolv.conf")).unwrap();
    assert!(resolv.contains("nameserver 10.72.0.53"), "{resolv}");
    // by the leased address, which the data plane has to know by itself
    echo(&provider, "10.72.0.254:7");
    let mut session = connected(&site, "10.72.0.254:7");
    assert_eq!(seen(&mut session).as_deref(), address.split('/').next());
    let renewed = |before: u64| {
        wait_until("a renewal", PATIENCE, || {
            let now = binding(&site, "dhcp-clients", "wan0.0");
            now["state"] == "bound" && now["left_s"].as_u64().unwrap_or(0) > before
        });
    };
    let gone = deleted(&site, "wan0", || {
        std::thread::sleep(Duration::from_millis(1500));
        let before = binding(&site, "dhcp-clients", "wan0.0")["left_s"].as_u64().unwrap();
        ask(&site, "request dhcp client renew interface wan0.0");
        renewed(before);
        accepted(&site.commit(&conf));
        assert!(gateway.stop().unwrap().success());
        gateway.start().unwrap();
        renewed(110);
        gateway.kill().unwrap();
        assert!(site.addresses("wan0").contains(&address), "without a daemon");
        gateway.start().unwrap();
        renewed(110);
    });
    assert_eq!(gone, [""; 0], "nothing was taken away and put back");
    assert_eq!(binding(&site, "dhcp-clients", "wan0.0")["address"], *address);
    assert_eq!(seen(&mut session).as_deref(), address.split('/').next(), "the session goes on");
    assert!(ask(&site, "show dhcp client binding").contains(&address));
    ask(&site, "request dhcp client release interface wan0");
    wait_until("no address", PATIENCE, || !site.addresses("wan0").contains("10.72."));
    assert!(!site.gateway.ip("route show default").unwrap().contains("10.72.0.254"));
    let leases = site.dir().join("dnsmasq.leases");
    wait_until("the server knows", PATIENCE, || !fs::read_to_string(&leases).unwrap().contains("10.72.0."));
    ask(&site, "request dhcp client renew interface wan0.0");
    wait_until("a lease again", PATIENCE, || is_bound(&site));
    // without the statement the lease is given back
    let none = more.replace("family inet dhcp", "family inet");
    accepted(&site.commit(&site.write("b.conf", &none)));
    assert!(!site.addresses("wan0").contains("10.72."), "{}", site.addresses("wan0"));
    wait_until("the server knows", PATIENCE, || !fs::read_to_string(&leases).unwrap().contains("10.72.0."));
    let said = refused(&site.sluice(&["cli", "-c", "request dhcp client renew interface wan0.0"]), 1);
    assert!(said.contains("no DHCP client on `wan0.0`"), "{said}");
}

#[test]
fn a_lease_lasts_on_tc() {
    a_lease_lasts("tc");
}

#[test]
#[ignore = "as on tc; `make soak` runs it"]
fn a_lease_lasts_on_xdp() {
    a_lease_lasts("xdp");
}

/// RFC 3442: option 121 instead of option 3. RFC 2131 section 3.1 (6): a NAK means another address; sessions by the old
/// one end, new ones work.
#[test]
fn routes_of_the_server_and_another_address_after_a_refusal() {
    if !installed(&[DNSMASQ]) {
        return;
    }
    let site = Site::new("routes121");
    let provider = provider(&site, "routes121-isp", "wan0");
    let more = WAN.replace("family inet dhcp", "family inet dhcp preference 30");
    let classless = "--dhcp-option=121,10.99.0.0/16,10.72.0.254,0.0.0.0/0,10.72.0.254,10.98.0.0/16,192.0.2.1";
    let server = dnsmasq(
        &site,
        &provider,
        &["--dhcp-range=10.72.0.50,10.72.0.60,120s", "--dhcp-option=3,10.72.0.1", classless],
    );
    let _gateway = site.start(&site.write("a.conf", &more));
    wait_until("a lease", PATIENCE, || is_bound(&site));
    let routes = site.gateway.ip("route show proto dhcp").unwrap();
    assert!(
        routes.contains("default via 10.72.0.254") && routes.contains("10.99.0.0/16 via 10.72.0.254"),
        "{routes}"
    );
    assert!(
        routes.contains("metric 30") && !routes.contains("10.72.0.1 ") && !routes.contains("10.98."),
        "{routes}"
    );
    let now = binding(&site, "dhcp-clients", "wan0.0");
    assert!(now["note"].as_str().unwrap().contains("10.98.0.0/16"), "{now}");
    echo(&provider, "10.72.9.254:7");
    let mut session = connected(&site, "10.72.9.254:7");
    assert!(seen(&mut session).unwrap().starts_with("10.72.0."));
    // the default route goes with a commit, and nothing else
    let without = more.replace(
        "dhcp preference 30",
        "dhcp preference 30\nset interfaces wan0 unit 0 family inet dhcp no-default-route",
    );
    let gone = deleted(&site, "wan0", || {
        accepted(&site.commit(&site.write("b.conf", &without)));
    });
    assert!(gone.iter().all(|line| line.contains("default")) && !gone.is_empty(), "{gone:?}");
    accepted(&site.commit(&site.write("a.conf", &more)));
    // another server, of another network: it refuses the old address
    drop(server);
    let _ = fs::remove_file(site.dir().join("dnsmasq.leases"));
    provider.ip("address delete 10.72.0.254/24 dev eth0").unwrap();
    let other =
        ["--dhcp-range=10.72.9.50,10.72.9.60,120s", "--dhcp-option=3,10.72.9.254", "--dhcp-authoritative"];
    let _server = dnsmasq(&site, &provider, &other);
    // its carrier was away meanwhile: the client asks for what it had (section 4.3.2, INIT-REBOOT)
    provider.ip("link set eth0 down").unwrap();
    wait_until("no carrier", PATIENCE, || binding(&site, "dhcp-clients", "wan0.0")["state"] == "down");
    assert!(site.addresses("wan0").contains("10.72.0."), "the lease still holds");
    provider.ip("link set eth0 up").unwrap();
    wait_until("another address", PATIENCE, || site.addresses("wan0").contains("10.72.9."));
    assert!(!site.addresses("wan0").contains("10.72.0."), "{}", site.addresses("wan0"));
    let mut new = None;
    let took = wait_until("a new session", PATIENCE, || {
        new = connect(&site.left, "10.72.9.254:7");
        new.is_some()
    });
    assert!(took < Duration::from_secs(3), "{took:?}");
    assert!(seen(&mut new.unwrap()).unwrap().starts_with("10.72.9."));
    assert!(seen(&mut session).is_none_or(|seen| !seen.starts_with("10.72.9.")), "of the old address");
}

/// What a lying server says; each is refused with its reason, and the honest offer behind it is taken.
#[test]
fn servers_that_lie_are_refused_by_reason() {
    if !installed(&[PYTHON]) {
        return;
    }
    let site = Site::new("liar");
    let provider = provider(&site, "liar-isp", "wan0");
    // who has 10.72.0.66 says so, which is a conflict (RFC 5227)
    provider.ip("address add 10.72.0.66/24 dev eth0").unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/dhcp_liar.py");
    let log = site.dir().join("liar.log").display().to_string();
    let _server = spawn(&provider, PYTHON, &[script.to_str().unwrap(), "eth0", &log]);
    wait_until("the server listens", PATIENCE, || Path::new(&log).exists());
    let fast = "set interfaces wan0 unit 0 family inet dhcp retransmission-interval 1\n\
                set interfaces wan0 unit 0 family inet dhcp retransmission-attempt 100\n";
    let _gateway = site.start(&site.write("a.conf", &format!("{WAN}{fast}")));
    let told = || fs::read_to_string(&log).unwrap();
    wait_until("every lie is told", Duration::from_secs(60), || {
        // an operator who does not wait for pauses that double
        ask(&site, "request dhcp client renew interface wan0.0");
        std::thread::sleep(Duration::from_millis(150));
        told().contains("lie conflict")
    });
    wait_until("the conflict is declined", PATIENCE, || told().contains("DECLINE 10.72.0.66"));
    let words = fs::read_to_string(site.state().join("daemon.log")).unwrap();
    for why in [
        "lease time is 0 s",
        "lease time is 1 s",
        "subnet mask is none",
        "127.0.0.1 is no address of a host",
        "224.0.0.5 is no address of a host",
        "0.0.0.0 is no address of a host",
        "10.72.0.255 is the network's own or its broadcast",
        "10.71.1.1/24 overlaps",
        "conflict",
    ] {
        assert!(words.contains(why), "{why}: {words}");
    }
    // no sooner than ten seconds after a DECLINE (RFC 2131, section 3.1 (5)) unless somebody asks
    assert_eq!(binding(&site, "dhcp-clients", "wan0.0")["state"], "init");
    ask(&site, "request dhcp client renew interface wan0.0");
    wait_until("the honest offer", PATIENCE, || is_bound(&site));
    let lease = binding(&site, "dhcp-clients", "wan0.0");
    assert_eq!(lease["address"], "10.72.0.77/24");
    // T2 before T1, options in all three places, a router that is not on the link
    assert_eq!(lease["routes"], serde_json::json!([]), "{lease}");
    let (t1, t2) = (lease["renew_s"].as_u64().unwrap(), lease["rebind_s"].as_u64().unwrap());
    assert!((295..=300).contains(&t1) && (520..=525).contains(&t2), "{lease}");
    assert!(lease["note"].as_str().unwrap().contains("on the link"), "{lease}");
    // NAKs without end: asked less and less often
    fs::write(format!("{log}.nak"), "").unwrap();
    let before = told().lines().count();
    ask(&site, "request dhcp client renew interface wan0.0");
    wait_until("the address is gone", PATIENCE, || !site.addresses("wan0").contains("10.72.0.77"));
    std::thread::sleep(Duration::from_secs(4));
    let asked = told().lines().skip(before).filter(|line| line.starts_with("REQUEST")).count();
    assert!((2..6).contains(&asked), "{asked} requests in 4 s");
}

const WAN6: &str = "\
set interfaces wan0 unit 0 family inet6 dhcpv6-client client-type stateful
set interfaces wan0 unit 0 family inet6 dhcpv6-client client-ia-type [ ia-na ia-pd ]
set interfaces wan0 unit 0 family inet6 dhcpv6-client prefix-delegating preferred-prefix-length 60
set interfaces wan0 unit 0 family inet6 dhcpv6-client req-option dns-server
set interfaces wan0 unit 0 family inet6 dhcpv6-client update-router-advertisement interface [ left0.0 right0.0 ]
set security zones security-zone wan interfaces wan0.0
";

fn kea6(site: &Site, provider: &Netns, prefix: &str) -> Running {
    let pools = format!(
        "\"pools\": [{{\"pool\": \"2001:db8:72::1000 - 2001:db8:72::1fff\"}}],
         \"pd-pools\": [{{\"prefix\": \"{prefix}\", \"prefix-len\": 48, \"delegated-len\": 60}}]"
    );
    kea6_of(site, provider, &pools, [100, 200, 300, 400])
}

/// `times`: seconds to T1 and T2, and of what is given, how long it is preferred and valid.
pub(crate) fn kea6_of(site: &Site, provider: &Netns, subnet: &str, times: [u32; 4]) -> Running {
    let [renew, rebind, preferred, valid] = times;
    let text = format!(
        "{{\"Dhcp6\": {{\"interfaces-config\": {{\"interfaces\": [\"eth0\"]}},
          \"lease-database\": {{\"type\": \"memfile\", \"persist\": false, \"name\": \"{}\"}},
          \"server-id\": {{\"type\": \"LL\", \"identifier\": \"020000000072\", \"persist\": false}},
          \"renew-timer\": {renew}, \"rebind-timer\": {rebind}, \"preferred-lifetime\": {preferred}, \"valid-lifetime\": {valid},
          \"option-data\": [{{\"name\": \"dns-servers\", \"data\": \"2001:db8:72::53\"}}],
          \"subnet6\": [{{\"id\": 1, \"subnet\": \"2001:db8:72::/64\", \"interface\": \"eth0\", {subnet}}}]}}}}",
        site.dir().join("kea6.leases").display()
    );
    kea(site, provider, KEA6, "kea6.conf", &text)
}

/// Kea with a configuration, which is written to a file of this name. It looks once whether its device runs, as it starts.
pub(crate) fn kea(site: &Site, provider: &Netns, program: &str, name: &str, text: &str) -> Running {
    wait_until("the provider's device is up", PATIENCE, || provider.is_settled().unwrap());
    let conf = site.dir().join(name);
    fs::write(&conf, text).unwrap();
    let mut command = provider.command(program);
    command
        .args(["-c", conf.to_str().unwrap()])
        .env("KEA_PIDFILE_DIR", site.dir())
        .env("KEA_LOCKFILE_DIR", "none");
    Running::spawn(command.stdout(Stdio::null()).stderr(Stdio::null()))
}

/// RFC 8415: an address and a prefix, sub-prefixes on units, what outlives the daemon; RFC 9096: another prefix.
#[test]
fn a_delegated_prefix_reaches_units_and_its_successor_deprecates_it() {
    if !installed(&[KEA6, RADVD]) {
        return;
    }
    let site = Site::new("pd");
    let provider = provider(&site, "pd-isp", "wan0");
    let radvd = site.dir().join("radvd.conf");
    fs::write(&radvd, "interface eth0 { AdvSendAdvert on; AdvManagedFlag on; MaxRtrAdvInterval 10; };\n")
        .unwrap();
    provider.sysctl("net/ipv6/conf/all/forwarding", "1").unwrap();
    let pid = site.dir().join("radvd.pid").display().to_string();
    let _router = spawn(&provider, RADVD, &["-n", "-m", "none", "-p", &pid, "-C", radvd.to_str().unwrap()]);
    let server = kea6(&site, &provider, "2001:db8:1000::");
    let conf = site.write("a.conf", WAN6);
    let mut gateway = site.start(&conf);
    let now = || binding(&site, "dhcpv6-clients", "wan0.0");
    wait_until("a lease", PATIENCE, || now()["state"] == "bound");
    let first = now();
    let address = first["address"]["prefix"].as_str().unwrap().to_owned();
    let prefix = first["prefix"]["prefix"].as_str().unwrap().to_owned();
    assert!(address.starts_with("2001:db8:72::1") && address.ends_with("/128"), "{first}");
    assert!(prefix.starts_with("2001:db8:1000:") && prefix.ends_with("/60"), "{first}");
    assert_eq!(first["name_servers"][0], "2001:db8:72::53");
    let subs: Vec<String> = first["sub_prefixes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|sub| format!("{} {}", sub["device"].as_str().unwrap(), sub["address"].as_str().unwrap()))
        .collect();
    assert!(subs.len() == 2 && subs[0].starts_with("left0 ") && subs[1].starts_with("right0 "), "{subs:?}");
    for sub in &subs {
        let (device, address) = sub.split_once(' ').unwrap();
        assert!(site.addresses(device).contains(address), "{sub}: {}", site.addresses(device));
    }
    let routes = site.gateway.ip("-6 route show proto dhcp").unwrap();
    assert!(routes.contains("unreachable 2001:db8:1000:"), "{routes}");
    wait_until("a default route by router advertisements", PATIENCE, || {
        site.gateway.ip("-6 route show default").unwrap().contains("proto ra")
    });
    let gone = deleted(&site, "0 ", || {
        accepted(&site.commit(&conf));
        gateway.kill().unwrap();
        gateway.start().unwrap();
        wait_until("a renewal", PATIENCE, || {
            now()["address"]["valid_s"].as_u64().is_some_and(|left| left > 390)
        });
        ask(&site, "request dhcpv6 client renew interface wan0.0");
        wait_until("another", PATIENCE, || now()["state"] == "bound");
    });
    let ours: Vec<_> =
        gone.iter().filter(|line| line.contains("2001:db8:1000") || line.contains(&address)).collect();
    assert!(ours.is_empty(), "{ours:?}");
    assert_eq!(now()["prefix"]["prefix"], *prefix);
    // the carrier goes and comes back: with a prefix it is Rebind that asks (RFC 8415, section 18.2.12)
    provider.ip("link set eth0 down").unwrap();
    wait_until("down", PATIENCE, || now()["state"] == "down");
    provider.ip("link set eth0 up").unwrap();
    provider.ip("address replace 2001:db8:72::254/64 dev eth0 nodad").unwrap();
    wait_until("bound again", PATIENCE, || now()["state"] == "bound");
    assert_eq!(now()["prefix"]["prefix"], *prefix);
    drop(server);
    let _server = kea6(&site, &provider, "2001:db8:2000::");
    wait_until("another prefix", PATIENCE, || {
        ask(&site, "request dhcpv6 client renew interface wan0.0");
        std::thread::sleep(Duration::from_millis(300));
        now()["prefix"]["prefix"].as_str().is_some_and(|prefix| prefix.starts_with("2001:db8:2000:"))
    });
    let shown = site.gateway.ip("-6 address show dev left0").unwrap();
    let old = shown.lines().find(|line| line.contains("2001:db8:1000:")).unwrap_or_default();
    assert!(old.contains("deprecated"), "{shown}");
    assert!(shown.contains("2001:db8:2000:"), "{shown}");
    let has_router = || site.gateway.ip("-6 route show default").unwrap().contains("proto ra");
    wait_until("a default route again", PATIENCE, has_router);
    // without any statement the device is the kernel's again, which may ask for the next one at once
    let none = format!("{WAN6}set interfaces wan0 unit 0 family inet6 dhcpv6-client no-default-route\n");
    accepted(&site.commit(&site.write("no-route.conf", &none)));
    assert!(!has_router(), "it goes with what asks for it");
    accepted(&site.commit(&site.write("none.conf", "")));
    let left =
        site.gateway.ip("-6 address show").unwrap() + &site.gateway.ip("-6 route show proto dhcp").unwrap();
    assert!(
        !left.contains("2001:db8:1000") && !left.contains("2001:db8:2000") && !left.contains("2001:db8:72"),
        "{left}"
    );
}

/// The same from Kea, which also is told another identifier; `sluice cleanup` leaves nothing.
#[test]
fn a_lease_of_kea_goes_with_a_cleanup() {
    if !installed(&[KEA4]) {
        return;
    }
    let site = Site::new("kea4");
    let provider = provider(&site, "kea4-isp", "wan0");
    let text = "{\"Dhcp4\": {\"interfaces-config\": {\"interfaces\": [\"eth0/10.72.0.254\"], \"dhcp-socket-type\": \"raw\"},
      \"lease-database\": {\"type\": \"memfile\", \"persist\": false}, \"valid-lifetime\": 600,
      \"subnet4\": [{\"id\": 1, \"subnet\": \"10.72.0.0/24\", \"interface\": \"eth0\",
        \"reservations\": [{\"client-id\": \"00:62:72:61:6e:63:68\", \"ip-address\": \"10.72.0.42\"}],
        \"option-data\": [{\"name\": \"routers\", \"data\": \"10.72.0.254\"}]}]}}";
    let _server = kea(&site, &provider, KEA4, "kea4.conf", text);
    let more = "set interfaces wan0 unit 0 family inet dhcp-client client-identifier ascii branch\n\
                set security zones security-zone wan interfaces wan0.0\n\
                set security zones security-zone wan host-inbound-traffic system-services ping\n";
    let mut gateway = site.start(&site.write("a.conf", more));
    wait_until("a lease", PATIENCE, || is_bound(&site));
    assert_eq!(binding(&site, "dhcp-clients", "wan0.0")["address"], "10.72.0.42/24");
    wait_until("it answers", PATIENCE, || site.pings(&provider, "10.72.0.42"));
    assert!(gateway.stop().unwrap().success());
    assert!(site.addresses("wan0").contains("10.72.0.42"), "a stop releases nothing");
    accepted(&site.sluice(&["cleanup"]));
    let left = site.gateway.ip("address show").unwrap() + &site.gateway.ip("route show").unwrap();
    assert!(!left.contains("10.72.0."), "{left}");
}
