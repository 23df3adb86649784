//! An interface of the configuration without an enabled unit in a zone is in the null zone: nobody reaches the host or
//! anything behind it through that interface, whatever happens to the daemon.

use crate::common;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use common::{BASE, Site, accepted};
use sluice_lab::gateway::Gateway;
use sluice_lab::netns::Netns;

/// What a host behind the third interface asks: its own gateway address, that of another zone, a host there.
const ASKED: [(&str, &str); 6] = [
    ("own address", "10.71.3.1:2222"),
    ("own address", "[fd71:3::1]:2222"),
    ("address of another zone", "10.71.1.1:2222"),
    ("address of another zone", "[fd71:1::1]:2222"),
    ("transit", "10.71.1.2:2222"),
    ("transit", "[fd71:1::2]:2222"),
];

const UNIT: &str = "set interfaces third0 unit 0 family inet address 10.71.3.1/24
set interfaces third0 unit 0 family inet6 address fd71:3::1/64
";
const MEMBER: &str = "set security zones security-zone third interfaces third0.0\n";

/// Why the interface is in the null zone, and the statements that say so.
fn causes() -> [(&'static str, String); 4] {
    [
        ("no unit of it is in a zone", UNIT.to_owned()),
        ("it has no active unit", format!("{UNIT}deactivate interfaces third0 unit 0\n")),
        ("it is disabled", format!("{UNIT}{MEMBER}set interfaces third0 disable\n")),
        ("its units are disabled", format!("{UNIT}{MEMBER}set interfaces third0 unit 0 disable\n")),
    ]
}

fn configuration(mode: &str, third: &str) -> String {
    format!(
        "{BASE}set interfaces left0 mode {mode}\nset interfaces right0 mode {mode}\nset interfaces third0 mode {mode}\n\
         set security zones security-zone third host-inbound-traffic system-services any-service\n\
         set security policies from-zone third to-zone left policy in match source-address any\n\
         set security policies from-zone third to-zone left policy in match destination-address any\n\
         set security policies from-zone third to-zone left policy in match application any\n\
         set security policies from-zone third to-zone left policy in then permit\n{third}"
    )
}

struct Scene {
    site: Site,
    third: Netns,
}

impl Scene {
    fn new(label: &str) -> Scene {
        let site = Site::new(label);
        let third = Netns::create(&format!("{label}-t")).unwrap();
        site.connect_third(&third);
        for host in [&site.left, &third] {
            host.run("ethtool", ["-K", "eth0", "tx", "off", "gro", "on"]).unwrap();
        }
        Scene { site, third }
    }

    /// The gateway has its addresses whatever the configuration says, and the host knows the way to them.
    fn open_the_way(&self) {
        let gateway = &self.site.gateway;
        gateway.ip("link set third0 up").unwrap();
        gateway.ip("address replace 10.71.3.1/24 dev third0").unwrap();
        gateway.ip("address replace fd71:3::1/64 dev third0 nodad").unwrap();
        let link = gateway.ip("-brief link show dev third0").unwrap();
        let mac = link.split_whitespace().nth(2).unwrap().to_owned();
        for address in ["10.71.3.1", "fd71:3::1"] {
            self.third.ip(&format!("neigh replace {address} lladdr {mac} nud permanent dev eth0")).unwrap();
        }
    }

    /// Who of [`ASKED`] answers.
    fn answers(&self) -> Vec<(&'static str, &'static str)> {
        let ask = |to: &'static str| {
            let to: SocketAddr = to.parse().unwrap();
            self.third.enter(|| TcpStream::connect_timeout(&to, Duration::from_millis(400)).is_ok()).unwrap()
        };
        let asked = thread::scope(|scope| {
            let threads = ASKED.map(|(what, to)| (what, to, scope.spawn(move || ask(to))));
            threads.map(|(what, to, thread)| (what, to, thread.join().unwrap()))
        });
        asked.into_iter().filter(|(_, _, answered)| *answered).map(|(what, to, _)| (what, to)).collect()
    }

    /// Address resolution gets no answer either.
    fn resolves(&self) -> bool {
        self.third.ip("neigh flush all nud permanent").unwrap();
        ["10.71.3.1", "fd71:3::1"].iter().any(|to| self.site.pings(&self.third, to))
    }
}

fn listen(netns: &Netns) -> Vec<TcpListener> {
    netns.enter(|| vec![TcpListener::bind("[::]:2222").unwrap()]).unwrap()
}

/// Packets that the null zone has dropped; both equations hold.
fn dropped(gateway: &Gateway) -> u64 {
    let stats = common::balances(gateway);
    let interfaces = stats["interfaces"].as_array().unwrap();
    let third = interfaces.iter().find(|view| view["name"] == "third0").expect("it is shown");
    assert_eq!(third["zone"], "null");
    third["drops"]["null_zone"].as_u64().unwrap_or(0)
}

fn passes_nothing(label: &str, mode: &str) {
    let scene = Scene::new(label);
    let site = &scene.site;
    let _listeners = [listen(&site.gateway), listen(&site.left)];
    let zoned = site.write_all("zoned.conf", &configuration(mode, &format!("{UNIT}{MEMBER}")));
    let running = site.write_all("run.conf", &configuration(mode, &format!("{UNIT}{MEMBER}")));
    let mut gateway = site.start(&running);
    scene.open_the_way();
    assert_eq!(scene.answers(), ASKED, "in a zone everything answers");
    for (number, (cause, statements)) in causes().iter().enumerate() {
        let null = site.write_all(&format!("null{number}.conf"), &configuration(mode, statements));
        let done = site.commit(&null);
        accepted(&done);
        assert!(common::stderr(&done).contains(cause), "{cause}: {}", common::stderr(&done));
        scene.open_the_way();
        let before = dropped(&gateway);
        assert_eq!(scene.answers(), [], "{cause}");
        assert!(dropped(&gateway) >= before + ASKED.len() as u64, "{cause}");
        if number == 0 {
            gateway.kill().unwrap();
            assert_eq!(scene.answers(), [], "{cause}, without the daemon");
            std::fs::copy(&null, site.dir().join("run.conf")).unwrap();
            gateway.start().unwrap();
            scene.open_the_way();
            assert_eq!(scene.answers(), [], "{cause}, after a start");
            assert!(!scene.resolves(), "{cause}");
        }
        accepted(&site.commit(&zoned));
        scene.open_the_way();
        assert_eq!(scene.answers(), ASKED, "back in its zone: {cause}");
    }
}

#[test]
fn nothing_passes_the_null_zone_on_tc() {
    passes_nothing("nulltc", "tc");
}

#[test]
fn nothing_passes_the_null_zone_on_xdp() {
    passes_nothing("nullxdp", "xdp");
}
