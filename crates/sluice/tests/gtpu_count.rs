//! Usage against a count taken outside of the gateway, while sessions change all the time and the daemon is killed: packets go both
//! ways from both CPUs through tunnels that switch between two sets of rules. Each that leaves has all of the one or all of the
//! other, none is lost, and in the end usage is what arrived, to the byte.

use crate::common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{Site, accepted, balances};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, setsockopt, socket, sockopt,
};
use nix::unistd::Pid;
use serde_json::{Value, json};
use sluice_lab::gateway::Gateway;
use sluice_lab::netns::{Netns, VethEnd, veth_of_queues};
use sluice_lab::niceness;
use sluice_wire::checksum::Pseudo;
use sluice_wire::fields::{be16, be32};
use sluice_wire::{gtpu, ipv4, ipv6, protocol, udp};

pub const SUBSCRIBERS: usize = 32;
/// Of inner packets; the mobile unit takes 1400 bytes.
const LENGTHS: std::ops::Range<usize> = 60..1400;
/// Packets of a direction that are under way at one time: what takes more room is lost in queues that are not the gateway's.
const WINDOW: u64 = 128;
/// Without anything that arrives, what is under way is lost.
const LOST: Duration = Duration::from_secs(5);
const SERVER_PORT: u16 = 9000;

/// What all packets have that meet one of the two sets of rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rules {
    name: &'static str,
    qfi: u8,
    dscp: u8,
    peer: Ipv4Addr,
    /// Of the first subscriber.
    teid: u32,
}

const BOTH: [Rules; 2] = [
    Rules { name: "old", qfi: 5, dscp: 10, peer: Ipv4Addr::new(10, 71, 1, 2), teid: 0xa000_0000 },
    Rules { name: "new", qfi: 9, dscp: 18, peer: Ipv4Addr::new(10, 71, 1, 3), teid: 0xb000_0000 },
];

pub const PLANE: &str = "\
set interfaces mif unit 0 family inet address 10.45.0.1/16
set interfaces mif unit 0 family inet mtu 1400
set interfaces mif unit 0 family inet6 mtu 1400
set security zones security-zone mobile interfaces mif.0
set security policies from-zone mobile to-zone right policy out match source-address any
set security policies from-zone mobile to-zone right policy out match destination-address any
set security policies from-zone mobile to-zone right policy out match application any
set security policies from-zone mobile to-zone right policy out then permit
set security policies from-zone right to-zone mobile policy in match source-address any
set security policies from-zone right to-zone mobile policy in match destination-address any
set security policies from-zone right to-zone mobile policy in match application any
set security policies from-zone right to-zone mobile policy in then permit
set services gtp-u interface left0.0 role n3
set services gtp-u sessions-maximum 1000
set services gtp-u pool subscribers prefix 10.45.0.0/16
set services gtp-u pool subscribers prefix 2001:db8:45::/48
set services gtp-u pool subscribers mobile-interface mif.0
set services gtp-u rules old qfi 5
set services gtp-u rules old uplink dscp af11
set services gtp-u rules old downlink dscp af11
set services gtp-u rules new qfi 9
set services gtp-u rules new uplink dscp af21
set services gtp-u rules new downlink dscp af21
";

pub fn address4(subscriber: usize) -> Ipv4Addr {
    [10, 45, 1, subscriber as u8].into()
}

fn prefix(subscriber: usize) -> String {
    format!("2001:db8:45:{:x}::", subscriber + 0x100)
}

fn address6(subscriber: usize) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0x45, subscriber as u16 + 0x100, 0, 0, 0, 7)
}

fn name(subscriber: usize) -> String {
    format!("ue-{subscriber}")
}

/// Where a session leads by these rules.
fn towards(subscriber: usize, rules: Rules) -> Value {
    json!({ "name": name(subscriber), "peer": rules.peer.to_string(), "peer_teid": rules.teid + subscriber as u32,
            "rules": rules.name })
}

#[derive(Debug, Default)]
struct Count {
    bytes: AtomicU64,
    packets: AtomicU64,
}

/// What went one way.
#[derive(Debug, Default)]
struct Way {
    sent: AtomicU64,
    arrived: AtomicU64,
    by_subscriber: [Count; SUBSCRIBERS],
    /// Packets with all of the first rules, of the second, and of neither.
    met: [AtomicU64; 3],
}

impl Way {
    fn counts(&self, subscriber: usize, length: usize, met: usize) {
        let count = &self.by_subscriber[subscriber];
        count.bytes.fetch_add(length as u64, Ordering::Relaxed);
        count.packets.fetch_add(1, Ordering::Relaxed);
        self.met[met].fetch_add(1, Ordering::Relaxed);
        self.arrived.fetch_add(1, Ordering::Release);
    }

    fn under_way(&self) -> u64 {
        let arrived = self.arrived.load(Ordering::Acquire);
        self.sent.load(Ordering::Relaxed).saturating_sub(arrived)
    }
}

/// All that threads share.
#[derive(Debug, Default)]
struct Run {
    up: Way,
    down: Way,
    senders_end: AtomicBool,
    receivers_end: AtomicBool,
    changes: AtomicU64,
}

pub fn pin(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu).and_then(|()| sched_setaffinity(Pid::from_raw(0), &set)).expect("two CPUs");
}

/// A packet between a subscriber and the server.
pub fn inner(subscriber: usize, is_v4: bool, port: u16, length: usize) -> Vec<u8> {
    let header = udp::Builder { source_port: port, destination_port: SERVER_PORT, ..Default::default() };
    if is_v4 {
        let (source, destination) = (address4(subscriber), Ipv4Addr::new(10, 71, 2, 2));
        let datagram = header.build(&vec![0x5a; length - 28], Pseudo::V4(source, destination));
        ipv4::Builder { source, destination, protocol: protocol::UDP, ..Default::default() }.build(&datagram)
    } else {
        let (source, destination) = (address6(subscriber), "fd71:2::2".parse().unwrap());
        let datagram = header.build(&vec![0x5a; length - 48], Pseudo::V6(source, destination));
        let next_header = protocol::UDP;
        ipv6::Builder { source, destination, next_header, hop_limit: 64, ..Default::default() }
            .build(&datagram)
    }
}

/// A subscriber's packet, out of its tunnel's other end.
pub fn send_message(station: &UdpSocket, subscriber: usize, packet: &[u8]) {
    let mut message = vec![];
    gtpu::Builder { teid: 0x1000 + subscriber as u32, sequence: None }.append(packet.len(), &mut message);
    message.extend(packet);
    station.send_to(&message, ("10.71.1.1", gtpu::PORT)).unwrap();
}

/// Sends packet after packet, as long as others arrive; subscriber, family and length of each.
fn send(way: &Way, ends: &AtomicBool, cpu: usize, send_one: impl Fn(usize, bool, usize)) {
    pin(cpu);
    niceness::set(Pid::from_raw(0), niceness::BEHIND).unwrap();
    let span = LENGTHS.len();
    for number in cpu * 977.. {
        let begun = Instant::now();
        while way.under_way() >= WINDOW {
            // whoever waits for that finds it lost
            if begun.elapsed() > LOST {
                return;
            }
            // the daemon wants some time, too
            thread::sleep(Duration::from_micros(200));
        }
        if ends.load(Ordering::Relaxed) {
            return;
        }
        way.sent.fetch_add(1, Ordering::Relaxed);
        send_one(
            number % SUBSCRIBERS,
            (number / SUBSCRIBERS).is_multiple_of(2),
            LENGTHS.start + number * 31 % span,
        );
    }
}

fn send_up(run: &Run, socket: &UdpSocket, cpu: usize) {
    send(&run.up, &run.senders_end, cpu, |subscriber, is_v4, length| {
        let packet = inner(subscriber, is_v4, 2000 + cpu as u16, length);
        send_message(socket, subscriber, &packet);
    });
}

fn send_down(run: &Run, sockets: &[UdpSocket; 2], cpu: usize) {
    send(&run.down, &run.senders_end, cpu, |subscriber, is_v4, length| {
        let (socket, to, headers): (_, IpAddr, _) = match is_v4 {
            true => (&sockets[0], address4(subscriber).into(), 28),
            false => (&sockets[1], address6(subscriber).into(), 48),
        };
        socket.send_to(&vec![0xa5; length - headers], SocketAddr::new(to, 3000)).unwrap();
    });
}

/// Packets that come into a namespace, from the network header on.
struct Tap(OwnedFd);

impl Tap {
    fn open(protocol: SockProtocol) -> Tap {
        let tap =
            socket(AddressFamily::Packet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, protocol).unwrap();
        // what is lost here would be taken for lost in the gateway
        setsockopt(&tap, sockopt::RcvBufForce, &(64 << 20)).unwrap();
        Tap(tap)
    }

    /// Until the end, each packet.
    fn watch(&self, run: &Run, mut see: impl FnMut(&[u8])) {
        let mut buffer = [0; 2048];
        while !run.receivers_end.load(Ordering::Relaxed) {
            let mut ready = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
            if !matches!(poll(&mut ready, PollTimeout::from(100u8)), Ok(1..)) {
                continue;
            }
            while let Ok(length) = recv(self.0.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT) {
                see(&buffer[..length]);
            }
        }
    }
}

/// Whose packet this is, and how long; by its source or its destination.
fn subscriber_of(packet: &[u8], by_source: bool) -> Option<(usize, usize)> {
    if packet.first()? >> 4 == 4 {
        let ip = ipv4::View::new(packet).ok()?;
        let address = if by_source { ip.source() } else { ip.destination() };
        let subscriber = usize::from(address.octets()[3]);
        let is_one = subscriber < SUBSCRIBERS && address == address4(subscriber);
        return is_one.then(|| (subscriber, ip.total_length().into()));
    }
    let ip = ipv6::View::new(packet).ok()?;
    let address = if by_source { ip.source() } else { ip.destination() };
    let subscriber = usize::from(address.segments()[3]).checked_sub(0x100)?;
    let is_one = subscriber < SUBSCRIBERS && address == address6(subscriber);
    is_one.then(|| (subscriber, usize::from(ip.payload_length()) + 40))
}

fn dscp_of(packet: &[u8]) -> u8 {
    if packet[0] >> 4 == 4 { packet[1] >> 2 } else { (be16(packet, 0..2) >> 6 & 0x3f) as u8 }
}

/// The server: it has the subscribers' packets with the marking of their rules.
fn receive_up(run: &Run, tap: &Tap) {
    tap.watch(run, |packet| {
        let Some((subscriber, length)) = subscriber_of(packet, true) else { return };
        let met = BOTH.iter().position(|rules| rules.dscp == dscp_of(packet)).unwrap_or(2);
        run.up.counts(subscriber, length, met);
    });
}

/// Both base stations: a message has outer marking, address, TEID and QoS flow of the same rules.
fn receive_down(run: &Run, tap: &Tap) {
    tap.watch(run, |packet| {
        let is_message = packet[9] == protocol::UDP && be16(packet, 22..24) == gtpu::PORT;
        let Some(message) = packet.get(28..).filter(|_| is_message) else { return };
        let Some((subscriber, length)) = message.get(16..).and_then(|inner| subscriber_of(inner, false))
        else {
            return;
        };
        let has_all_of = |rules: &Rules| {
            dscp_of(packet) == rules.dscp
                && packet[16..20] == rules.peer.octets()
                && be32(message, gtpu::field::TEID) == rules.teid + subscriber as u32
                // TS 29.281 5.1, TS 38.415 5.5.2.1
                && message[..2] == [gtpu::VERSION_1 | gtpu::EXTENSION_PRESENT, gtpu::G_PDU]
                && message[8..16] == [0, 0, 0, 0x85, 1, 0, rules.qfi, 0]
                && usize::from(be16(message, gtpu::field::LENGTH)) == 8 + length
        };
        run.down.counts(subscriber, length, BOTH.iter().position(has_all_of).unwrap_or(2));
    });
}

/// One request on a connection that stays; None where the daemon is gone.
fn asks(stream: &mut BufReader<UnixStream>, path: &str, body: &str) -> Option<u16> {
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: sluice\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    );
    stream.get_mut().write_all(format!("{head}{body}").as_bytes()).ok()?;
    let (mut status, mut length) = (None, 0);
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line == "\r\n" {
            break;
        }
        status = status.or_else(|| line.split(' ').nth(1)?.parse().ok());
        if let Some((field, value)) = line.split_once(':')
            && field.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().ok()?;
        }
    }
    stream.read_exact(&mut vec![0; length]).ok()?;
    status
}

/// Switches all sessions in one request: a thousand of them a second, or as often as the daemon can write that down.
fn change(run: &Run, socket: &Path) {
    let mut connection: Option<BufReader<UnixStream>> = None;
    let begun = Instant::now();
    let mut tries = 0;
    while !run.senders_end.load(Ordering::Relaxed) {
        let Some(stream) = &mut connection else {
            connection = UnixStream::connect(socket).ok().map(BufReader::new);
            thread::sleep(Duration::from_millis(1));
            continue;
        };
        let change = |subscriber: usize| towards(subscriber, BOTH[(subscriber + tries) % 2]);
        let body = Value::from_iter((0..SUBSCRIBERS).map(change)).to_string();
        match asks(stream, "/api/gtp-u/sessions/change", &body) {
            Some(200) => drop(run.changes.fetch_add(SUBSCRIBERS as u64, Ordering::Relaxed)),
            Some(other) => panic!("changes are answered with {other}"),
            // what a killed daemon owes is asked for again
            None => {
                connection = None;
                continue;
            }
        }
        tries += 1;
        let due = Duration::from_millis((tries * SUBSCRIBERS) as u64);
        thread::sleep(due.saturating_sub(begun.elapsed()));
    }
}

/// The hosts' devices have a queue for each CPU, so that the programs run on both at once.
pub fn site(label: &str) -> Site {
    let site = Site::new(label);
    for (host, device, net) in [(&site.left, "left0", 1), (&site.right, "right0", 2)] {
        site.gateway.ip(&format!("link del {device}")).unwrap();
        let (own4, own6) = (format!("10.71.{net}.2/24"), format!("fd71:{net}::2/64"));
        let addresses: &[&str] = &[&own4, &own6, "10.71.1.3/24"];
        let addresses = if net == 1 { addresses } else { &addresses[..2] };
        let near = VethEnd { netns: &site.gateway, name: device, mac: None, addresses: &[] };
        veth_of_queues(near, VethEnd { netns: host, name: "eth0", mac: None, addresses }, Some(2)).unwrap();
        host.ip(&format!("route add default via 10.71.{net}.1")).unwrap();
        host.ip(&format!("-6 route add default via fd71:{net}::1")).unwrap();
        host.run("ethtool", ["-K", "eth0", "gro", "on", "tx", "off", "gso", "off", "tso", "off"]).unwrap();
    }
    site
}

pub fn bound(host: &Netns, address: &str) -> UdpSocket {
    host.enter(|| UdpSocket::bind(address).unwrap()).unwrap()
}

pub fn sessions(site: &Site) {
    let all: Vec<Value> = (0..SUBSCRIBERS)
        .map(|subscriber| {
            let mut session = towards(subscriber, BOTH[subscriber % 2]);
            session["teid"] = (0x1000 + subscriber).into();
            session["address"] = address4(subscriber).to_string().into();
            session["prefix"] = format!("{}/64", prefix(subscriber)).into();
            session
        })
        .collect();
    let file = site.dir().join("sessions.json");
    std::fs::write(&file, Value::from(all).to_string()).unwrap();
    accepted(&site.sluice(&["api", "add-gtp-u-sessions", "--body", file.to_str().unwrap()]));
}

/// So long, with a daemon that is killed so often, and commits the next of these files after it; how often it was.
fn kills(gateway: &mut Gateway, files: &[PathBuf], long: Duration, every: Duration) -> usize {
    let begun = Instant::now();
    let mut kills = 0;
    while begun.elapsed() + every < long {
        thread::sleep(every);
        gateway.kill().unwrap();
        gateway.start().unwrap();
        if let Some(file) = files.get(kills % files.len().max(1)) {
            gateway.commit(file).unwrap();
        }
        kills += 1;
    }
    thread::sleep(long.saturating_sub(begun.elapsed()));
    kills
}

fn is_lost(way: &Way) -> bool {
    let (begun, mut arrived) = (Instant::now(), way.arrived.load(Ordering::Acquire));
    let mut since = begun;
    while way.under_way() > 0 {
        let now = way.arrived.load(Ordering::Acquire);
        if now != arrived {
            (arrived, since) = (now, Instant::now());
        }
        if since.elapsed() > LOST {
            return true;
        }
        thread::sleep(Duration::from_millis(2));
    }
    false
}

/// What the gateway says of a session and what arrived of it: bytes and packets of both directions.
fn differences(gateway: &Gateway, run: &Run) -> Vec<String> {
    let usage = gateway.json("/api/gtp-u/usage").unwrap();
    let told = usage["sessions"].as_array().unwrap();
    let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let of = |subscriber: usize| {
        let usage = told.iter().find(|usage| usage["name"] == name(subscriber)).expect("a session");
        let fields = ["uplink_bytes", "uplink_packets", "downlink_bytes", "downlink_packets"];
        let told = fields.map(|field| usage[field].as_u64().unwrap());
        let (up, down) = (&run.up.by_subscriber[subscriber], &run.down.by_subscriber[subscriber]);
        let counted = [&up.bytes, &up.packets, &down.bytes, &down.packets].map(read);
        (told != counted).then(|| format!("{}: told {told:?}, counted {counted:?}", name(subscriber)))
    };
    (0..SUBSCRIBERS).filter_map(of).collect()
}

fn judge(gateway: &Gateway, run: &Run) {
    for (what, way) in [("uplink", &run.up), ("downlink", &run.down)] {
        let drops = gateway.json("/api/gtp-u").unwrap()["drops"].clone();
        assert!(!is_lost(way), "{what}: {} packets are lost; drops {drops}", way.under_way());
        let met = [0, 1, 2].map(|which| way.met[which].load(Ordering::Relaxed));
        assert!(met[0] > 0 && met[1] > 0 && met[2] == 0, "{what}: old, new and neither {met:?}");
    }
    let equal = || differences(gateway, run).is_empty();
    if !equal() {
        // what has arrived is counted
        thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(differences(gateway, run), Vec::<String>::new(), "usage is not what arrived");
    balances(gateway);
}

/// Neighbours are known, and each of both paths has been gone.
fn begin(gateway: &Gateway, run: &Run, up: &UdpSocket, down: &[UdpSocket; 2]) {
    for is_v4 in [true, false] {
        let packet = inner(0, is_v4, 1999, 100);
        send_message(up, 0, &packet);
        run.up.sent.fetch_add(1, Ordering::Relaxed);
        arrives("the first packet of a subscriber", gateway, &run.up);
    }
    for subscriber in 0..2 {
        down[0].send_to(&[0; 72], SocketAddr::new(address4(subscriber).into(), 3000)).unwrap();
        run.down.sent.fetch_add(1, Ordering::Relaxed);
        arrives(&format!("the first packet to {}", name(subscriber)), gateway, &run.down);
    }
}

fn arrives(what: &str, gateway: &Gateway, way: &Way) {
    let begun = Instant::now();
    while way.under_way() > 0 {
        assert!(begun.elapsed() < LOST, "{what} does not arrive; {}", gateway.get("/api/stats").unwrap());
        thread::sleep(Duration::from_millis(2));
    }
}

/// `more` are statements of the first configuration, and of those that are committed later.
fn usage_is_what_arrived(mode: &str, more: &[&str], long: Duration, every: Duration) {
    let site = site(&format!("gtpu-n-{mode}{}", more.len()));
    let write = |(number, more): (usize, &&str)| {
        let text = format!("{PLANE}set system services sluice mode {mode}\n{more}\n");
        site.write(&format!("{number}.conf"), &text)
    };
    let files: Vec<PathBuf> = more.iter().enumerate().map(write).collect();
    let mut gateway = site.start(&files[0]);
    sessions(&site);
    let run = Run::default();
    let up = ["10.71.1.2:2152", "10.71.1.3:2152"].map(|own| bound(&site.left, own));
    let down = ["10.71.2.2:9000", "[fd71:2::2]:9000"].map(|own| bound(&site.right, own));
    let tap = |host: &Netns, protocol| host.enter(|| Tap::open(protocol)).unwrap();
    let stations = tap(&site.left, SockProtocol::EthIp);
    let servers = [SockProtocol::EthIp, SockProtocol::EthIpv6].map(|protocol| tap(&site.right, protocol));
    let path = site.state().join("sluice.sock");
    let (kills, took) = thread::scope(|scope| {
        let run = &run;
        // however it ends, so do they
        let _ends = Ends(run);
        scope.spawn(|| receive_down(run, &stations));
        servers.iter().for_each(|server| drop(scope.spawn(move || receive_up(run, server))));
        begin(&gateway, run, &up[0], &down);
        for cpu in [0, 1] {
            let (up, down) = (&up[cpu], &down);
            scope.spawn(move || send_up(run, up, cpu));
            scope.spawn(move || send_down(run, down, cpu));
        }
        scope.spawn(|| change(run, &path));
        let begun = Instant::now();
        let kills = kills(&mut gateway, &files[1..], long, every);
        run.senders_end.store(true, Ordering::Relaxed);
        let took = begun.elapsed().as_secs_f64();
        judge(&gateway, run);
        (kills, took)
    });
    let changes = run.changes.load(Ordering::Relaxed);
    let arrived = [&run.up, &run.down].map(|way| way.arrived.load(Ordering::Relaxed));
    println!(
        "{mode}: {took:.0} s, {} packets up and {} down, {changes} changes ({:.0} a second), {kills} times killed",
        arrived[0],
        arrived[1],
        changes as f64 / took
    );
    // beside other tests the daemon has less of the CPUs
    let wanted = if soak().is_some() { 900.0 } else { 20.0 };
    assert!(changes as f64 / took > wanted, "{changes} changes in {took} s");
}

struct Ends<'a>(&'a Run);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.senders_end.store(true, Ordering::Relaxed);
        self.0.receivers_end.store(true, Ordering::Relaxed);
    }
}

/// `make soak`: on both hooks, ten seconds for each of what SLUICE_SOAK says.
fn soak() -> Option<u64> {
    std::env::var("SLUICE_SOAK").ok().map(|times| times.parse().expect("SLUICE_SOAK is a number"))
}

fn on(mode: &str, more: &[&str]) {
    match soak() {
        Some(times) => {
            usage_is_what_arrived(mode, more, Duration::from_secs(10 * times), Duration::from_secs(5))
        }
        None => usage_is_what_arrived(mode, more, Duration::from_secs(5), Duration::from_secs(2)),
    }
}

#[test]
fn usage_is_what_arrived_on_xdp() {
    on("xdp", &[""]);
}

/// Half of what each CPU takes from the device goes on at the other one, then all of it where it came, then at the second.
#[test]
fn usage_is_what_arrived_where_flows_are_spread() {
    let spread = "set services gtp-u spread";
    let other = "set services gtp-u spread processors 1\nset services gtp-u spread queue-size 1024";
    on("xdp", &[spread, "", other, spread]);
}

#[test]
fn usage_is_what_arrived_on_tc() {
    on("tc", &[""]);
}
