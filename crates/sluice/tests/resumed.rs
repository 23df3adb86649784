//! TCP connections of the gateway itself that are older than their sessions: they go on where new ones may be opened.

use crate::common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use common::{Site, accepted, wait_until};
use sluice_lab::netns::Netns;

/// SSH is let in from the left, nothing else; the host itself may open what it wants.
const SSH: &str = "set security zones security-zone left host-inbound-traffic system-services ssh\n";

/// What may arrive does so long before; what may not is sent again by TCP within this time.
const SHORT: Duration = Duration::from_millis(1500);

/// Both ends of a connection: of the gateway, and of the host beside it.
struct Connection {
    gateway: TcpStream,
    host: TcpStream,
}

impl Connection {
    fn between(from: &Netns, to: &Netns, address: &str) -> (TcpStream, TcpStream) {
        let address: SocketAddr = address.parse().unwrap();
        let listener = to.enter(|| TcpListener::bind(address)).unwrap().unwrap();
        let near =
            from.enter(|| TcpStream::connect_timeout(&address, Duration::from_secs(10))).unwrap().unwrap();
        let (far, _) = listener.accept().unwrap();
        // a port that is listened on is one that others connect to
        std::thread::spawn(move || listener.accept());
        (near, far)
    }

    fn to_gateway(site: &Site, host: &Netns, address: &str) -> Connection {
        let (host, gateway) = Connection::between(host, &site.gateway, address);
        Connection { gateway, host }
    }

    fn of_gateway(site: &Site, host: &Netns, address: &str) -> Connection {
        let (gateway, host) = Connection::between(&site.gateway, host, address);
        Connection { gateway, host }
    }

    fn gateway_is_heard(&mut self) -> bool {
        arrives(&mut self.gateway, &mut self.host)
    }

    fn host_is_heard(&mut self) -> bool {
        arrives(&mut self.host, &mut self.gateway)
    }

    /// Both ways, whoever speaks first, in more than one window without scaling.
    fn goes_on(&mut self, gateway_first: bool) -> Result<(), &'static str> {
        if gateway_first {
            self.gateway_is_heard().then_some(()).ok_or("what the gateway says first")?;
        }
        self.host_is_heard().then_some(()).ok_or("what the host says")?;
        self.gateway_is_heard().then_some(()).ok_or("what the gateway says")?;
        many(&self.gateway, &self.host).then_some(()).ok_or("much from the gateway")?;
        many(&self.host, &self.gateway).then_some(()).ok_or("much from the host")
    }
}

fn arrives(from: &mut TcpStream, to: &mut TcpStream) -> bool {
    to.set_read_timeout(Some(SHORT)).unwrap();
    from.write_all(b"word").unwrap();
    to.read_exact(&mut [0; 4]).is_ok()
}

fn many(mut from: &TcpStream, mut to: &TcpStream) -> bool {
    const BYTES: usize = 400_000;
    to.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || from.write_all(&[7; BYTES]).unwrap());
        to.read_exact(&mut [0; BYTES]).is_ok()
    })
}

fn connections_go_on(label: &str, mode: &str) {
    let site = Site::new(label);
    for host in [&site.left, &site.right, &site.gateway] {
        let devices: &[&str] =
            if host.name() == site.gateway.name() { &["left0", "right0"] } else { &["eth0"] };
        for device in devices {
            host.run("ethtool", ["-K", device, "gro", "on", "tx", "off"]).unwrap();
        }
    }
    for (device, net) in [("left0", "1"), ("right0", "2")] {
        site.gateway.ip(&format!("address add 10.71.{net}.1/24 dev {device}")).unwrap();
        site.gateway.ip(&format!("address add fd71:{net}::1/64 dev {device} nodad")).unwrap();
    }
    wait_until("the hosts are there", Duration::from_secs(10), || {
        site.pings(&site.left, "10.71.1.1") && site.pings(&site.right, "fd71:2::1")
    });
    let to_gateway = |port: u16| {
        [format!("10.71.1.1:{port}"), format!("[fd71:1::1]:{port}")]
            .map(|address| Connection::to_gateway(&site, &site.left, &address))
    };
    let of_gateway = || {
        ["10.71.2.2:6514", "[fd71:2::2]:6514"]
            .map(|address| Connection::of_gateway(&site, &site.right, address))
    };
    let (mut shells, mut shut, mut own) = (to_gateway(22), to_gateway(23), of_gateway());

    let conf = |more: &str| site.write("a.conf", &format!("{more}set system services sluice mode {mode}\n"));
    let _gateway = site.start(&conf(SSH));
    let again = |shells: &mut [Connection; 2], own: &mut [Connection; 2], when: &str| {
        for (n, shell) in shells.iter_mut().enumerate() {
            assert_eq!(shell.goes_on(n == 0), Ok(()), "shell {n} {when}");
        }
        for (n, connection) in own.iter_mut().enumerate() {
            assert_eq!(connection.goes_on(n == 0), Ok(()), "own {n} {when}");
        }
    };
    again(&mut shells, &mut own, "after the start");
    accepted(&site.sluice(&["clear", "sessions"]));
    again(&mut shells, &mut own, "after their sessions were cleared");
    for (n, connection) in shut.iter_mut().enumerate() {
        assert!(!connection.host_is_heard(), "{n}: host-inbound-traffic does not admit it");
        // leaves, and opens nothing for what would come back
        connection.gateway_is_heard();
        assert!(!connection.host_is_heard(), "{n}: taken for a connection of the host's own");
    }

    accepted(&site.commit(&conf("")));
    for (n, shell) in shells.iter_mut().enumerate() {
        shell.gateway_is_heard();
        assert!(!shell.host_is_heard(), "{n}: nothing admits it any more");
    }
    for connection in &mut own {
        assert_eq!(connection.goes_on(false), Ok(()), "own, after a commit");
    }
}

#[test]
fn connections_go_on_on_tc() {
    connections_go_on("resumed-tc", "tc");
}

#[test]
fn connections_go_on_on_xdp() {
    connections_go_on("resumed-xdp", "xdp");
}
