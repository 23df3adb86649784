//! What takes a port and what gives it back: the end of a session by any way, and sockets of this host.

use std::net::{TcpListener, UdpSocket};
use std::time::Duration;

use sluice_abi::stages::Reason;
use sluice_dataplane::{Sizes, Timeouts};
use sluice_packet_tests::gateway::{Gateway, Hook};
use sluice_packet_tests::netns::in_thread;
use sluice_packet_tests::{scenario, table};
use sluice_wire::text::Packet;

const CONFIG: &str = "
set interfaces a0 unit 0 family inet address 10.1.0.1/24
set interfaces b0 unit 0 family inet address 10.2.0.1/24
set security zones security-zone alpha interfaces a0.0
set security zones security-zone beta interfaces b0.0
set security flow max-unanswered 100
set security policies from-zone alpha to-zone beta policy out match source-address any destination-address any application any
set security policies from-zone alpha to-zone beta policy out then permit
set routing-options static route 198.51.100.0/24 discard
set routing-options static route 10.9.0.0/16 next-hop 10.1.0.100
set security nat source interface port range 5000 to 5003
set security nat source pool tiny address 198.51.100.1/32
set security nat source rule-set out from zone alpha
set security nat source rule-set out to zone beta
set security nat source rule-set out rule tiny match destination-address 10.2.0.100/32
set security nat source rule-set out rule tiny then source-nat pool tiny
set security nat source rule-set out rule rest match source-address 0.0.0.0/0
set security nat source rule-set out rule rest then source-nat interface
";
const PORTS: u16 = 16;
const ROUNDS: u16 = 10;

/// The pool has sixteen ports from here on.
fn config(low: u16) -> String {
    format!("{CONFIG}set security nat source pool tiny port range {low} to {}\n", low + PORTS - 1)
}

struct Bench {
    gateway: Gateway,
    /// Packets that found the pool full.
    refused: u64,
}

impl Bench {
    fn new(hook: Hook) -> Bench {
        let world = scenario::two_zones();
        let sizes = Sizes { sessions4: 256, sessions6: 64, ..Sizes::default() };
        let gateway = Gateway::new(world, &config(6000), sizes, hook).expect("a gateway");
        gateway.idle_near_ends().expect("devices take XDP");
        Bench { gateway, refused: 0 }
    }

    /// What an IP packet that arrives on a device becomes.
    fn send(&mut self, device: &str, packet: &str) -> Option<Vec<u8>> {
        let unit = format!("{device}.0");
        let world = &self.gateway.world;
        let (to, from) = (world.unit_mac(&unit).unwrap(), world.any_host_on(&unit).unwrap().mac);
        let packet = Packet::parse(packet).unwrap().to_bytes().unwrap();
        let frame = [&to.0[..], &from.0[..], &[8, 0], &packet].concat();
        let seen = table::prog_run(&mut self.gateway, device, &frame, false).expect("a run");
        let redirect = if self.gateway.hook == Hook::Tc { 7 } else { 4 };
        (seen.retval == redirect).then_some(seen.frame)
    }

    /// A client opens a connection; the port it gets.
    fn open(&mut self, sport: u16) -> Option<u16> {
        let syn =
            format!("ip(src=10.9.0.7, dst=10.2.0.100)/tcp(sport={sport}, dport=80, flags=S, seq={sport})");
        self.send("a0", &syn).map(|frame| u16::from_be_bytes([frame[34], frame[35]]))
    }

    /// Takes every port from `low` on, each once, and sees that there is no other.
    fn fill(&mut self, low: u16) -> Vec<u16> {
        let given: Vec<u16> = (0..PORTS).filter_map(|n| self.open(1000 + n)).collect();
        let mut sorted = given.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (low..low + PORTS).collect::<Vec<_>>());
        assert_eq!(self.open(3000), None, "a seventeenth");
        self.refused += 1;
        assert_eq!(self.drops(Reason::NatPortsExhausted), self.refused);
        given
    }

    fn drops(&self, reason: Reason) -> u64 {
        self.gateway.dataplane.counters().unwrap().drops(reason)
    }

    /// Nothing is left, and the memory of a full pool (NAT_FULL_MS) fades.
    fn empty(&self) {
        assert_eq!(self.gateway.dataplane.sessions().count(), 0);
        std::thread::sleep(Duration::from_millis(u64::from(sluice_abi::NAT_FULL_MS) + 20));
    }

    fn sweep_after(&self, seconds: u64) {
        self.gateway.let_pass(seconds).unwrap();
        let now = self.gateway.dataplane.now_jiffies().unwrap();
        self.gateway.dataplane.sweep(now, &Timeouts::default()).unwrap();
    }
}

#[test]
fn expiry_frees_ports() {
    in_thread(|| {
        let mut bench = Bench::new(Hook::Xdp);
        for _ in 0..ROUNDS {
            bench.fill(6000);
            bench.sweep_after(u64::from(Timeouts::default().tcp_initial_s) + 1);
            bench.empty();
        }
    });
}

#[test]
fn clearing_frees_ports() {
    in_thread(|| {
        let mut bench = Bench::new(Hook::Tc);
        for _ in 0..ROUNDS {
            bench.fill(6000);
            bench.gateway.clear_sessions().unwrap();
            bench.empty();
        }
    });
}

/// A server that refuses; the session goes after the ten seconds that one after a reset has.
#[test]
fn resets_free_ports() {
    in_thread(|| {
        let mut bench = Bench::new(Hook::Tc);
        for _ in 0..ROUNDS {
            let given = bench.fill(6000);
            for (n, port) in (0..PORTS).zip(given) {
                let refusal = format!(
                    "ip(src=10.2.0.100, dst=198.51.100.1)/tcp(sport=80, dport={port}, flags=RA, seq=0, ack={})",
                    1001 + n
                );
                assert!(bench.send("b0", &refusal).is_some(), "the client hears of it");
            }
            bench.sweep_after(u64::from(Timeouts::default().tcp_reset_s) + 1);
            bench.empty();
        }
    });
}

/// A commit that moves the pool's ports: what has others than it yields ends with its next packet.
#[test]
fn commits_free_ports() {
    in_thread(|| {
        let mut bench = Bench::new(Hook::Xdp);
        for round in 0..ROUNDS {
            let (now, next) = if round % 2 == 0 { (6000, 7000) } else { (7000, 6000) };
            bench.fill(now);
            bench.gateway.commit(&config(next)).unwrap();
            for n in 0..PORTS {
                let sport = 1000 + n;
                let again = format!(
                    "ip(src=10.9.0.7, dst=10.2.0.100)/tcp(sport={sport}, dport=80, flags=S, seq={sport})"
                );
                assert!(bench.send("a0", &again).is_none());
            }
            assert_eq!(bench.drops(Reason::NatChanged), u64::from((round + 1) * PORTS));
            bench.empty();
        }
    });
}

/// A pool that has nothing counts so, and what the overflow pool had in its place; that one counts what it had not.
#[test]
fn pools_count_what_they_had_not() {
    in_thread(|| {
        let mut bench = Bench::new(Hook::Xdp);
        let pools = [
            "set security nat source pool tiny port range 6000 to 6000",
            "set security nat source pool tiny overflow-pool other",
            "set security nat source pool other address 198.51.100.2/32",
            "set security nat source pool other port range 6000 to 6000",
        ];
        bench.gateway.commit(&format!("{CONFIG}{}\n", pools.join("\n"))).unwrap();
        let given: Vec<bool> = (0..4).map(|n| bench.open(1000 + n).is_some()).collect();
        assert_eq!(given, [true, true, false, false]);
        let counted = |name: &str| {
            let pools = &bench.gateway.plan.nat.pools;
            let (id, _) = pools.iter().find(|(_, pool)| pool.name.as_deref() == Some(name)).unwrap();
            let counts = bench.gateway.dataplane.nat_pool_counters(&[*id as u16]).unwrap();
            (counts[0].exhausted, counts[0].overflow)
        };
        assert_eq!([counted("tiny"), counted("other")], [(3, 1), (2, 0)]);
    });
}

/// Ports of this host's own sockets are not given to others, as long as it has them.
fn sockets_keep_their_ports(hook: Hook) {
    let mut bench = Bench::new(hook);
    let mut taken = |transport: &str| {
        let ask = |n: u16| format!("ip(src=10.9.0.{n}, dst=10.2.0.101)/{transport}");
        let mut ports: Vec<u16> = (1..=4)
            .filter_map(|n| bench.send("a0", &ask(n)))
            .map(|frame| u16::from_be_bytes([frame[34], frame[35]]))
            .collect();
        ports.sort_unstable();
        bench.gateway.clear_sessions().unwrap();
        bench.empty();
        ports
    };
    let (udp, tcp) = ("udp(sport=900, dport=53)/\"q\"", "tcp(sport=900, dport=80, flags=S, seq=1)");
    // this thread lives in the gateway's namespace
    let bound = UdpSocket::bind("10.2.0.1:5001").unwrap();
    let any = UdpSocket::bind("0.0.0.0:5003").unwrap();
    let listener = TcpListener::bind("10.2.0.1:5002").unwrap();
    assert_eq!(taken(udp), [5000, 5002]);
    assert_eq!(taken(tcp), [5000, 5001, 5003]);
    drop((bound, any, listener));
    assert_eq!(taken(udp), [5000, 5001, 5002, 5003]);
    assert_eq!(taken(tcp), [5000, 5001, 5002, 5003]);
}

#[test]
fn sockets_of_this_host_keep_their_ports() {
    Hook::BOTH.into_iter().for_each(|hook| in_thread(move || sockets_keep_their_ports(hook)));
}
