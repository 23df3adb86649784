//! IPv4 packets without DF that are too long for the IPv6 side leave in fragments (RFC 7915 4): every size around the
//! edges, every protocol, whole packets and fragments, both hooks. What the programs hand to the daemon is cut as the
//! daemon does it, put together again, and compared with the packet that a wider link would have taken.

use std::cell::Cell;
use std::path::Path;

use sluice_dataplane::{Oversize, Sizes};
use sluice_packet_tests::counters::{self, Values, total};
use sluice_packet_tests::gateway::{Gateway, Hook};
use sluice_packet_tests::netns::in_thread;
use sluice_packet_tests::table;
use sluice_packet_tests::world::World;
use sluice_wire::text::bytes;

/// Around what an IPv6 link of 1,280 and one of 1,500 bytes takes, with an IPv6 header and with a Fragment header.
const SIZES: [usize; 13] = [1232, 1240, 1241, 1252, 1253, 1260, 1261, 1472, 1473, 1480, 1481, 1492, 1500];
/// `lowest-ipv6-mtu`, and what packets are cut to on a link of 1,500 bytes.
const LIMITS: [(Option<u16>, usize); 4] =
    [(None, 1280), (Some(1280), 1280), (Some(1400), 1400), (Some(9999), 1500)];
const LINK: usize = 1500;
/// Bytes that a ring of 1 MiB takes of packets of the usual size, each with 8 bytes of its own.
const RING: u64 = (1 << 20) / (2048 + 16 + 8);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Udp,
    /// Whose checksum is to be computed (RFC 7915 4.5).
    UdpUnchecked,
    Tcp,
    Echo,
    /// Of a datagram of UDP.
    FirstFragment,
    MiddleFragment,
    LastFragment,
}

impl Kind {
    const ALL: [Kind; 7] = [
        Kind::Udp,
        Kind::UdpUnchecked,
        Kind::Tcp,
        Kind::Echo,
        Kind::FirstFragment,
        Kind::MiddleFragment,
        Kind::LastFragment,
    ];

    fn is_fragment(self) -> bool {
        matches!(self, Kind::FirstFragment | Kind::MiddleFragment | Kind::LastFragment)
    }

    /// Offset and flag as the Fragment header has them.
    fn place(self) -> u16 {
        match self {
            Kind::FirstFragment => 1,
            Kind::MiddleFragment => 1480 | 1,
            Kind::LastFragment => 2960,
            _ => 0,
        }
    }

    /// What stands behind the IP header of a packet of so many bytes; `to6` = with the tuple that it gets.
    fn transport(self, size: usize, to6: bool) -> String {
        let room = size - 20;
        match self {
            Kind::Udp => format!("udp(sport=53, dport=20200)/fill(n={})", room - 8),
            Kind::UdpUnchecked if to6 => format!("udp(sport=53, dport=20200)/fill(n={})", room - 8),
            Kind::UdpUnchecked => format!("udp(sport=53, dport=20200, csum=0)/fill(n={})", room - 8),
            Kind::Tcp => {
                format!("tcp(sport=80, dport=20201, flags=A, seq=501, ack=101)/fill(n={})", room - 20)
            }
            Kind::Echo if to6 => format!("icmp6(type=echo-reply, id=20202, seq=1)/fill(n={})", room - 8),
            Kind::Echo => format!("icmp(type=echo-reply, id=20202, seq=1)/fill(n={})", room - 8),
            Kind::FirstFragment => {
                format!("udp(sport=53, dport=20200, len=4000, csum=0x1234)/fill(n={})", room - 8)
            }
            Kind::MiddleFragment | Kind::LastFragment => format!("fill(n={room})"),
        }
    }

    fn fields(self) -> &'static str {
        match self {
            Kind::FirstFragment => ", mf",
            Kind::MiddleFragment => ", mf, frag=185, proto=udp",
            Kind::LastFragment => ", frag=370, proto=udp",
            _ => "",
        }
    }
}

struct Bench {
    gateway: Gateway,
    before: Values,
}

impl Bench {
    fn new(hook: Hook, lowest: Option<u16>) -> Bench {
        let world = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/packet/nat64.world");
        let world = World::read(&world).expect("a world");
        let config = std::fs::read_to_string(&world.config).expect("a configuration");
        let statement = lowest.map_or(String::new(), |bytes| format!("lowest-ipv6-mtu {bytes};"));
        let config = config.replacen("lowest-ipv6-mtu 9999;", &statement, 1);
        let config =
            config.replacen("security {", "security {\n    flow { tcp-session { no-sequence-check; } }", 1);
        let sizes = Sizes { sessions4: 64, sessions6: 64, ..Sizes::default() };
        let gateway = Gateway::new(world, &config, sizes, hook).expect("a gateway");
        gateway.idle_near_ends().expect("devices take XDP");
        let before = counters::snapshot(&gateway.dataplane, &gateway.plan).unwrap();
        Bench { gateway, before }
    }

    fn send(&mut self, device: &str, packet: &str) -> table::Seen {
        let host = if device == "six0" { "client" } else { "server" };
        let world = &self.gateway.world;
        let (near, far) = (world.unit_mac(device).unwrap(), world.host(host).unwrap().mac);
        let frame = bytes(&format!("eth(dst={near}, src={far})/{packet}")).unwrap();
        table::prog_run(&mut self.gateway, device, &frame, false).unwrap()
    }

    fn server(&mut self, kind: Kind, size: usize, df: bool) -> table::Seen {
        let df = if df { ", df" } else { "" };
        let (fields, transport) = (kind.fields(), kind.transport(size, false));
        let ip = format!("ip(src=198.51.100.33, dst=203.0.113.9, id=0x1234{df}{fields})");
        self.send("four0", &format!("{ip}/{transport}"))
    }

    fn open(&mut self) {
        let to = "ip6(src=2001:db8:6::64, dst=64:ff9b::198.51.100.33)";
        for transport in [
            "udp(sport=20200, dport=53)/\"query\"",
            "tcp(sport=20201, dport=80, flags=S, seq=100)",
            "icmp6(type=echo-request, id=20202, seq=1)/\"x\"",
        ] {
            self.send("six0", &format!("{to}/{transport}"));
        }
        self.send(
            "four0",
            "ip(src=198.51.100.33, dst=203.0.113.9)/tcp(sport=80, dport=20201, flags=SA, seq=500, ack=101)",
        );
        self.send("six0", &format!("{to}/tcp(sport=20201, dport=80, flags=A, seq=101, ack=501)"));
        self.since();
    }

    /// What has been counted since the last call.
    fn since(&mut self) -> Values {
        let now = counters::snapshot(&self.gateway.dataplane, &self.gateway.plan).unwrap();
        let delta = counters::delta(&self.before, &now);
        counters::first_equation(&delta).unwrap();
        self.before = now;
        delta
    }

    /// What waits to be cut.
    fn oversize(&self) -> Vec<Oversize> {
        let (mut waiting, turns) = (Vec::new(), Cell::new(0));
        let once = || turns.replace(1) == 0;
        self.gateway.dataplane.watch_oversize(once, |packet| waiting.extend(packet.ok())).unwrap();
        waiting
    }
}

/// The pieces of one packet put together: its place in the datagram, its identification, and its transport bytes.
fn together(pieces: &[Vec<u8>], limit: usize) -> (u16, u32, Vec<u8>) {
    let word = |bytes: &[u8]| u16::from_be_bytes([bytes[0], bytes[1]]);
    let first = word(&pieces[0][42..]);
    let mut whole = Vec::new();
    for (index, piece) in pieces.iter().enumerate() {
        let place = word(&piece[42..]);
        assert!(piece.len() <= limit, "{} bytes", piece.len());
        assert_eq!(usize::from(word(&piece[4..])), piece.len() - 40);
        assert_eq!(piece[..4], pieces[0][..4]);
        assert_eq!((piece[6], piece[7], &piece[8..40]), (44, 63, &pieces[0][8..40]));
        assert_eq!(usize::from(place & !7), usize::from(first & !7) + whole.len());
        assert!(index + 1 == pieces.len() || place & 1 == 1);
        whole.extend(&piece[48..]);
    }
    let last = word(&pieces[pieces.len() - 1][42..]);
    let id = pieces[0][44..48].try_into().unwrap();
    (first & !7 | last & 1, u32::from_be_bytes(id), whole)
}

fn one(bench: &mut Bench, kind: Kind, size: usize, df: bool, limit: usize) {
    let what = format!("{kind:?} of {size} bytes, DF {df}, cut to {limit}, {}", bench.gateway.hook.name());
    let length = size + if kind.is_fragment() { 28 } else { 20 };
    let seen = bench.server(kind, size, df);
    let counted = bench.since();
    let outcomes = ["redirected", "oversize", "too_big"].map(|name| total(&counted, name));
    if !df && length > limit {
        assert_eq!(outcomes, [0, 1, 0], "{what}");
        let waiting = bench.oversize();
        assert_eq!(waiting.len(), 1, "{what}");
        let pieces = waiting[0].pieces();
        let (place, id, transport) = together(&pieces, limit);
        let text = format!(
            "eth()/ip6(src=64:ff9b::198.51.100.33, dst=2001:db8:6::64)/{}",
            kind.transport(size, true)
        );
        let wanted = bytes(&text).unwrap();
        assert_eq!((place, id), (kind.place(), 0x1234), "{what}");
        assert_eq!(pieces[0][8..40], wanted[22..54], "{what}");
        assert_eq!(transport.len(), size - 20, "{what}");
        let skipped = if kind == Kind::FirstFragment { 8 } else { 0 };
        assert_eq!(transport[skipped..], wanted[54 + skipped..], "{what}");
    } else if length <= LINK {
        assert_eq!(outcomes, [1, 0, 0], "{what}");
        assert_eq!(seen.frame.len(), 14 + length, "{what}");
    } else {
        assert_eq!(outcomes, [0, 0, 1], "{what}");
    }
}

fn sizes_kinds_and_limits(hook: Hook) {
    for (lowest, limit) in LIMITS {
        let mut bench = Bench::new(hook, lowest);
        bench.open();
        for kind in Kind::ALL {
            for size in SIZES {
                // the pieces of a datagram hold multiples of 8 bytes, but the last
                let size = if matches!(kind, Kind::FirstFragment | Kind::MiddleFragment) {
                    size - (size - 20) % 8
                } else {
                    size
                };
                for df in [false, true] {
                    one(&mut bench, kind, size, df && !kind.is_fragment(), limit);
                }
            }
        }
    }
}

/// With nobody to cut them, packets that the link takes go whole; others end by name. Nothing is lost from the count.
fn a_daemon_that_is_gone(hook: Hook) {
    let mut bench = Bench::new(hook, None);
    bench.open();
    for _ in 0..400 {
        bench.server(Kind::Udp, 1400, false);
    }
    let counted = bench.since();
    let [kept, whole] = ["oversize", "redirected"].map(|name| total(&counted, name));
    assert!(kept + whole == 400 && (RING / 4..RING / 4 + 3).contains(&kept), "{kept} kept, {whole} whole");
    for _ in 0..600 {
        bench.server(Kind::Udp, 1500, false);
    }
    let counted = bench.since();
    let [more, dropped] = ["oversize", "nat64_cut_limit"].map(|name| total(&counted, name));
    assert!(
        more + dropped == 600 && kept + more <= RING && kept + more > RING - 3,
        "{more}, {dropped} dropped"
    );
    assert_eq!(bench.oversize().len() as u64, kept + more, "{}", hook.name());
    one(&mut bench, Kind::Udp, 1500, false, 1280);
}

#[test]
fn what_is_too_long_leaves_in_fragments_on_tc() {
    in_thread(|| sizes_kinds_and_limits(Hook::Tc));
}

#[test]
fn what_is_too_long_leaves_in_fragments_on_xdp() {
    in_thread(|| sizes_kinds_and_limits(Hook::Xdp));
}

#[test]
fn what_the_link_takes_goes_whole_while_nobody_cuts_on_tc() {
    in_thread(|| a_daemon_that_is_gone(Hook::Tc));
}

#[test]
fn what_the_link_takes_goes_whole_while_nobody_cuts_on_xdp() {
    in_thread(|| a_daemon_that_is_gone(Hook::Xdp));
}
