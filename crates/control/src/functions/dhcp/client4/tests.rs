use sluice_language::config::Prefix;
use sluice_netns::Netns;
use socket2::{Domain, Protocol, Type as SocketType};

use super::super::lease::Net;
use super::super::tried::{PATIENCE, alone, link};
use super::*;
use crate::kernel::lease::{LeasedRoute, LeasedVia};

#[test]
fn pauses_double_up_to_a_minute() {
    let pauses: Vec<u64> = (1..8).map(|sent| backoff(4, sent).as_secs()).collect();
    assert_eq!(pauses, [4, 8, 16, 32, 64, 64, 64]);
    assert_eq!(backoff(64, 1_000_000), LONGEST_PAUSE);
}

const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

fn config() -> DhcpClient {
    DhcpClient {
        identifier: Some(b"\0branch".to_vec()),
        attempts: 6,
        interval_s: 4,
        default_route: true,
        preference: 12,
        ..DhcpClient::default()
    }
}

fn lease(device: &str, host: u8) -> Lease4 {
    let [ends, t1, t2] = [3600, 1800, 3150].map(Until::after);
    let everywhere = Net { addr: Ipv4Addr::UNSPECIFIED.into(), len: 0 };
    Lease4 {
        device: device.to_owned(),
        address: Ipv4Addr::new(192, 0, 2, host),
        length: 24,
        server: SERVER,
        ends,
        t1,
        t2,
        routes: vec![(everywhere, SERVER)],
        dns: vec![],
    }
}

/// A client with a lease that the kernel has.
fn bound(device: &str, host: u8, around: &Around<'_>) -> Client4 {
    let mut client = Client4::new(format!("{device}.0"), device.to_owned(), config(), None);
    client.look(Some(&link(around.kernel, device)), around);
    client.bind(lease(device, host), "bound", around);
    client
}

fn addresses(kernel: &Kernel) -> Vec<Prefix> {
    kernel.leased().unwrap().into_iter().map(|leased| leased.prefix).collect()
}

/// RFC 2131, section 4.4.5: a client may ask for other things before T1.
#[test]
fn what_is_asked_for_besides_is_asked_with_the_lease() {
    alone("asks-otherwise", |around, _| {
        let mut client = bound("v0", 9, around);
        let changes: [fn(&mut DhcpClient); 4] = [
            |config| config.vendor = Some("sluice".to_owned()),
            |config| config.lease_s = Some(7200),
            |config| config.host_name = Some("branch".to_owned()),
            |config| config.server = Some(SERVER),
        ];
        for change in changes {
            client.state = State::Bound;
            let mut other = client.config.clone();
            change(&mut other);
            client.configure(&other, around);
            assert_eq!(client.lease.as_ref().map(|lease| lease.address), Some([192, 0, 2, 9].into()));
            assert_eq!((client.state, addresses(around.kernel).len()), (State::Renewing, 1));
        }
        // neither is asked for what a commit leaves, nor what only says what becomes of the lease
        client.state = State::Bound;
        let other = DhcpClient { preference: 30, discover: true, ..client.config.clone() };
        client.configure(&other, around);
        assert_eq!(client.state, State::Bound);
        // an exchange under way begins anew
        client.enter(State::Rebooting);
        let before = client.xid;
        client.configure(&DhcpClient { lease_s: None, ..client.config.clone() }, around);
        assert_ne!(client.xid, before);
        assert!(client.lease.is_some());
    });
}

/// What arrives at the other end for a UDP port, if anything does before the socket's patience ends.
fn arrived(socket: &Socket, port: u16) -> Option<Vec<u8>> {
    let mut buffer = [std::mem::MaybeUninit::uninit(); 2048];
    loop {
        let (length, _) = socket.recv_from(&mut buffer).ok()?;
        // SAFETY: the kernel has written so many octets.
        #[allow(unsafe_code, reason = "socket2 reads into memory that is not set")]
        let packet: Vec<u8> = buffer[..length].iter().map(|octet| unsafe { octet.assume_init() }).collect();
        if packet.get(9) == Some(&17) && packet.get(22..24) == Some(&port.to_be_bytes()) {
            return packet.get(28..).map(<[u8]>::to_vec);
        }
    }
}

/// The far end of the device, once packets arrive there; a neighbour stands for the server.
fn far_end(netns: &Netns) -> Socket {
    netns.ip(&format!("neigh replace {SERVER} lladdr 02:00:00:00:00:09 dev v0 nud permanent")).unwrap();
    let protocol = Protocol::from(i32::from((libc::ETH_P_IP as u16).to_be()));
    let socket = Socket::new(Domain::PACKET, SocketType::DGRAM, Some(protocol)).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let probe = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    let begun = Instant::now();
    while probe.send_to(&[0], (SERVER, 9)).is_err() || arrived(&socket, 9).is_none() {
        assert!(begun.elapsed() < PATIENCE, "nothing arrives");
    }
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

#[test]
fn another_client_gives_the_lease_back_as_the_one_that_got_it() {
    alone("another-client", |around, netns| {
        let mut client = bound("v0", 9, around);
        let socket = far_end(netns);
        let other = DhcpClient { identifier: Some(b"\0other".to_vec()), ..config() };
        client.configure(&other, around);
        assert_eq!((client.state, &client.lease), (State::Selecting, &None));
        assert_eq!(addresses(around.kernel), []);
        let release = arrived(&socket, 67).expect("a message to the server");
        let has = |option: &[u8]| release.windows(option.len()).any(|window| window == option);
        assert!(has(&[53, 1, Type::Release as u8]) && has(b"\x3d\x07\0branch"), "{release:?}");
        // nor may it come from a server that is not listened to any more
        let mut client = bound("v0", 9, around);
        client.configure(&DhcpClient { server: Some([192, 0, 2, 2].into()), ..config() }, around);
        assert_eq!((client.state, &client.lease), (State::Selecting, &None));
    });
}

/// One route of a destination and a metric: who has it keeps it.
#[test]
fn routes_are_not_taken_from_another_client() {
    alone("same-routes", |around, _| {
        let devices = || -> Vec<u32> {
            let of = |route: LeasedRoute| match route.via {
                LeasedVia::Device { ifindex, .. } => ifindex,
                LeasedVia::Unreachable => 0,
            };
            around.kernel.leased_routes().unwrap().into_iter().map(of).collect()
        };
        let mut first = bound("v0", 9, around);
        let mut second = bound("v2", 10, around);
        let [v0, v2] = ["v0", "v2"].map(|device| link(around.kernel, device).index);
        assert_eq!((devices(), &*first.held), (vec![v0], ""));
        assert_eq!(second.held, "others have a route to 0.0.0.0/0 of metric 12");
        first.place(around, false);
        second.place(around, false);
        assert_eq!(devices(), [v0]);
        // its own route is changed with its address
        let mut other = lease("v0", 11);
        other.routes[0].1 = [192, 0, 2, 2].into();
        first.bind(other, "bound", around);
        assert_eq!((devices(), &*first.held), (vec![v0], ""));
        first.release(around);
        second.place(around, false);
        assert_eq!((devices(), &*second.held), (vec![v2], ""));
    });
}

#[test]
fn what_is_given_back_goes_without_a_carrier_too() {
    alone("no-carrier", |around, _| {
        let mut client = bound("v0", 9, around);
        client.look(None, around);
        client.place(around, false);
        assert_eq!((client.state, addresses(around.kernel).len()), (State::Down, 1));
        client.release(around);
        assert_eq!(addresses(around.kernel), []);
    });
}

/// Sections 3.2 and 4.3.2, RFC 5227 section 2.1: what was lent before may be another host's by now.
#[test]
fn a_lease_of_before_is_used_once_it_is_proven() {
    alone("of-before", |around, _| {
        let mut client = Client4::new("v0.0".to_owned(), "v0".to_owned(), config(), Some(lease("v0", 9)));
        client.look(Some(&link(around.kernel, "v0")), around);
        client.place(around, false);
        assert_eq!((client.state, addresses(around.kernel)), (State::Rebooting, vec![]));
        client.sent = REQUESTS;
        (0..=PROBES).for_each(|_| {
            assert_eq!(addresses(around.kernel), []);
            client.due(around);
        });
        client.due(around);
        assert_eq!((client.state, addresses(around.kernel).len()), (State::Bound, 1));
    });
}

#[test]
fn without_a_link_nothing_is_due() {
    alone("unlinked", |around, _| {
        let mut client = Client4::new("v0.0".to_owned(), "v0".to_owned(), config(), None);
        client.look(Some(&link(around.kernel, "v0")), around);
        client.rest();
        client.look(None, around);
        client.renew_now();
        client.turn(around);
        assert_eq!((client.state, client.next()), (State::Down, None));
        client.look(Some(&link(around.kernel, "v0")), around);
        assert_eq!(client.state, State::Selecting);
        // one that could not listen tries again
        client.socket = None;
        client.look(Some(&link(around.kernel, "v0")), around);
        assert!(client.socket.is_some());
    });
}

/// Section 4.4.5: messages are lost, also those of a lease without an end.
#[test]
fn a_lease_for_ever_is_asked_for_again() {
    alone("for-ever", |around, _| {
        let mut client = bound("v0", 9, around);
        let forever = || Until::after(u32::MAX);
        client.lease =
            client.lease.map(|lease| Lease4 { ends: forever(), t1: forever(), t2: forever(), ..lease });
        client.renew_now();
        client.turn(around);
        assert!(client.next.unwrap() <= Instant::now() + LONGEST_RENEWAL);
    });
}
