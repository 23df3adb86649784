//! A machine that starts, and one that gets its first configuration: what is forwarded, who is let in, what systemd hears.

use crate::common;

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::process::Stdio;
use std::time::Duration;

use common::{BINARY, Running, Site, accepted, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sluice_lab::netns::Netns;

const PATIENCE: Duration = Duration::from_secs(30);
/// Of the unit.
const CAPABILITIES: &str = "-all,+bpf,+net_admin,+net_raw,+perfmon,+sys_admin,+net_bind_service";

const THIRD: &str = "\
set interfaces third0 unit 0 family inet address 10.71.3.1/24
set security zones security-zone third interfaces third0.0
";

/// What systemd would hear, until it hears `state`.
fn hears(socket: &UnixDatagram, state: &str) {
    let mut buffer = [0; 4096];
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    loop {
        let length = socket.recv(&mut buffer).unwrap_or_else(|error| panic!("{state} was not said: {error}"));
        if String::from_utf8_lossy(&buffer[..length]).lines().any(|line| line == state) {
            return;
        }
    }
}

fn guard_of(site: &Site) -> String {
    site.gateway.run("nft", ["list", "table", "inet", "sluice_guard"]).unwrap_or_default()
}

#[test]
fn a_daemon_with_the_capabilities_of_its_unit_waits_for_a_late_interface() {
    assert!(include_str!("../../../contrib/systemd/sluice.service").contains(
        "CapabilityBoundingSet=CAP_BPF CAP_NET_ADMIN CAP_NET_RAW CAP_PERFMON CAP_SYS_ADMIN CAP_NET_BIND_SERVICE\n"
    ));
    let site = Site::new("late");
    site.gateway.enable_forwarding().unwrap();
    for (device, address) in [("left0", "10.71.1.1/24"), ("right0", "10.71.2.1/24")] {
        site.gateway.ip(&format!("address add {address} dev {device}")).unwrap();
    }
    wait_until("the kernel forwards", PATIENCE, || site.pings(&site.left, "10.71.2.2"));
    let heard = UnixDatagram::bind(site.dir().join("notify")).unwrap();
    let with_third = site.write("a.conf", THIRD);
    let start = || {
        let mut command = site.gateway.command("setpriv");
        command.arg(format!("--bounding-set={CAPABILITIES}")).arg("--inh-caps=-all").arg("--no-new-privs");
        command.args([BINARY, "run", "--wait", "--listen", "none", "--config"]).arg(&with_third);
        command.arg("--state-dir").arg(site.state()).stdin(Stdio::null());
        command.env("NOTIFY_SOCKET", site.dir().join("notify")).env("WATCHDOG_USEC", "900000");
        Running::spawn(&mut command)
    };
    let stop = |daemon: Running| {
        kill(Pid::from_raw(daemon.id() as i32), Signal::SIGTERM).unwrap();
        hears(&heard, "STOPPING=1");
        assert!(daemon.ended("the daemon", PATIENCE).status.success());
    };
    let daemon = start();
    hears(&heard, "STATUS=waiting for interface third0");
    assert!(guard_of(&site).contains("\"third0\""), "{}", guard_of(&site));
    assert!(site.silent(&site.left, "10.71.2.2"), "the kernel forwards while the gateway waits");

    let third = Netns::create("late-t").unwrap();
    site.connect(&third, "third0", &["10.71.3.2/24"]);
    hears(&heard, "READY=1");
    wait_until("the gateway forwards", PATIENCE, || site.pings(&site.left, "10.71.2.2"));
    hears(&heard, "WATCHDOG=1");

    // A restart finds what is there, and changes nothing of it.
    assert!(site.silent(&site.left, "10.71.3.2"), "no policy lets it through");
    let denied = || {
        let drops = accepted(&site.sluice(&["show", "drops"]));
        drops.lines().find(|line| line.contains("policy_default")).map(str::to_owned)
    };
    let before = denied();
    assert!(before.is_some(), "{before:?}");
    stop(daemon);
    let daemon = start();
    hears(&heard, "READY=1");
    assert_eq!(denied(), before);

    // An earlier commit that needs no late interface does not take the place of one that does.
    accepted(&site.commit(&site.write("b.conf", "")));
    accepted(&site.commit(&with_third));
    stop(daemon);
    drop(third);
    let daemon = start();
    hears(&heard, "STATUS=waiting for interface third0");
    let third = Netns::create("late-t").unwrap();
    site.connect(&third, "third0", &["10.71.3.2/24"]);
    hears(&heard, "READY=1");
    wait_until("the third interface", PATIENCE, || site.pings(&site.gateway, "10.71.3.2"));
    stop(daemon);

    // The next boot: the guard stands before there is a daemon, and a daemon that finds it takes it over.
    site.gateway.run("nft", ["delete", "table", "inet", "sluice_guard"]).unwrap();
    let said = accepted(&site.sluice(&["guard"]));
    assert!(said.contains("left0") && said.contains("third0"), "{said}");
    assert!(guard_of(&site).contains("\"left0\""), "{}", guard_of(&site));
    accepted(&site.sluice(&["cleanup", "--keep-commits"]));
    assert_eq!(guard_of(&site), "");
    assert!(accepted(&site.sluice(&["guard"])).contains("third0"), "the commit was not kept");
    accepted(&site.sluice(&["cleanup"]));
    let said = accepted(&site.sluice(&["guard"]));
    assert!(said.contains("nothing was committed") && guard_of(&site).is_empty(), "{said}");
}

/// Answers what it is sent, as a shell over SSH does.
fn echoes(listener: TcpListener) {
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut buffer = [0; 64];
                while let Ok(length @ 1..) = stream.read(&mut buffer) {
                    if stream.write_all(&buffer[..length]).is_err() {
                        return;
                    }
                }
            });
        }
    });
}

fn is_answered(mut stream: &TcpStream) {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"ls\n").unwrap();
    let mut buffer = [0; 3];
    stream.read_exact(&mut buffer).unwrap();
    assert_eq!(&buffer, b"ls\n");
}

#[test]
fn the_first_configuration_lets_in_where_it_was_typed() {
    let site = Site::new("first");
    for (device, address) in [("left0", "10.71.1.1/24"), ("right0", "10.71.2.1/24")] {
        site.gateway.ip(&format!("address add {address} dev {device}")).unwrap();
    }
    wait_until("left0 is up", PATIENCE, || site.pings(&site.left, "10.71.1.1"));
    site.gateway.ip("route add default via 10.71.2.2").unwrap();
    let listen = |port| site.gateway.enter(|| TcpListener::bind(("10.71.1.1", port)).unwrap()).unwrap();
    echoes(listen(22));
    echoes(listen(23));
    let session = site.left.enter(|| TcpStream::connect("10.71.1.1:22").unwrap()).unwrap();
    is_answered(&session);
    let conf = site.dir().join("first.conf");
    // as under sudo, which keeps the session's variable from what it runs
    let setup = |more: &[&str]| {
        let mut command = site.gateway.command("sh");
        command.args(["-c", "env -i PATH=\"$PATH\" \"$@\"; exit $?", "sh", BINARY, "setup", "--output"]);
        command.arg(&conf).args(more).stdin(Stdio::null());
        let client = session.local_addr().unwrap();
        command.env("SSH_CONNECTION", format!("{} {} 10.71.1.1 22", client.ip(), client.port()));
        common::ends(&mut command)
    };
    assert!(common::refused(&setup(&[]), 1).contains("--yes") && !conf.exists());
    let shown = accepted(&setup(&["--yes"]));
    let written = fs::read_to_string(&conf).unwrap();
    assert!(shown.contains(&written), "{shown}");
    assert!(common::refused(&setup(&["--yes"]), 2).contains("--force"));

    let _gateway = site.start(&conf);
    is_answered(&session);
    let reaches = |host: &Netns, address: &str| {
        let address: SocketAddr = address.parse().unwrap();
        host.enter(|| TcpStream::connect_timeout(&address, Duration::from_secs(2)).is_ok()).unwrap()
    };
    assert!(reaches(&site.left, "10.71.1.1:22"));
    assert!(!reaches(&site.left, "10.71.1.1:23"), "more than SSH is let in");
    assert!(!reaches(&site.right, "10.71.1.1:22"), "SSH is let in from outside");
    assert!(site.pings(&site.left, "10.71.2.2"), "the inside does not reach the outside");
    assert!(site.silent(&site.right, "10.71.1.2"), "the outside reaches the inside");
}

/// A bridge is a device like any other; its ports, and what macvlan devices live on, are not.
#[test]
fn the_first_configuration_is_one_that_check_takes() {
    let site = Site::new("owned");
    for command in [
        "link add br0 type bridge",
        "link set left0 master br0",
        "link set br0 up",
        "address add 10.71.1.1/24 dev br0",
        "address add 10.71.2.1/24 dev right0",
        "link add mac0 link right0 type macvlan",
        "address add 10.71.2.9/24 dev mac0",
        "link set mac0 up",
    ] {
        site.gateway.ip(command).unwrap();
    }
    let has_address = || site.addresses("left0").contains("fe80:");
    wait_until("the port has an address", PATIENCE, has_address);
    let conf = site.dir().join("first.conf");
    let mut setup = site.gateway.command(BINARY);
    setup.args(["setup", "--yes", "--output"]).arg(&conf).stdin(Stdio::null());
    let setup = common::ends(&mut setup);
    accepted(&setup);
    let (written, said) = (fs::read_to_string(&conf).unwrap(), common::stderr(&setup));
    assert!(written.contains("br0") && written.contains("mac0"), "{written}");
    assert!(said.contains("left0 is left out: it is a port of br0 (bridge)"), "{said}");
    assert!(said.contains("right0 is left out: mac0 (macvlan) lives on it"), "{said}");
    let mut check = site.gateway.command(BINARY);
    accepted(&common::ends(check.arg("check").arg(&conf)));
}
