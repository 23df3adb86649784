//! What does not pass leaves nothing behind: no session, port or next hop, whoever refuses it and wherever it ends.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use sluice_dataplane::prog_run::{self, TcRun, XdpRun};
use sluice_dataplane::{Program, Sizes};
use sluice_packet_tests::gateway::{Gateway, Hook};
use sluice_packet_tests::netns::{ifindex, in_thread, ip};
use sluice_packet_tests::{counters, table};
use sluice_wire::text::bytes;

const PACKETS: usize = 40;
/// First packets that another CPU has to send.
const FLOOD: usize = 4_000;
/// Tuples that both ends open.
const PAIRS: usize = 3_000;
const XDP_REDIRECT: u32 = 4;
const TC_ACT_REDIRECT: u32 = 7;

fn gateway(world: &str, sessions: u32, hook: Hook) -> Gateway {
    let sizes = Sizes { sessions4: sessions, sessions6: sessions, ..Sizes::default() };
    Gateway::of(world, sizes, hook).unwrap()
}

/// UDP from the client of zone trust.
fn from_trust(destination: &str, port: usize) -> Vec<u8> {
    let ends = "eth(dst=02:00:00:00:01:01, src=02:00:00:00:01:64)";
    bytes(&format!("{ends}/ip(src=10.0.1.100, dst={destination})/udp(sport={port}, dport=9)")).unwrap()
}

/// The other way.
fn from_untrust(destination: &str) -> Vec<u8> {
    let ends = "eth(dst=02:00:00:00:02:01, src=02:00:00:00:02:64)";
    bytes(&format!("{ends}/ip(src=10.0.2.100, dst={destination})/udp(sport=1000, dport=9)")).unwrap()
}

/// How many of the packets ended for this reason, and how many went on.
fn send(gateway: &mut Gateway, device: &str, frames: &[Vec<u8>], reason: &str) -> (u64, u64) {
    let delta = table::count_frames(gateway, device, frames).unwrap();
    let went = counters::total(&delta, "redirected") + counters::total(&delta, "handed_off");
    (counters::total(&delta, reason), went)
}

/// Each program in turn is missing while first packets come that are to be translated.
fn without_a_program(hook: Hook) {
    let mut gateway = gateway("nat.world", 256, hook);
    let config = std::fs::read_to_string(&gateway.world.config).unwrap();
    let first = [Program::Fast, Program::Admit, Program::Judge, Program::Record, Program::Leave];
    for (turn, program) in first.into_iter().enumerate() {
        // the one port of this pool toward its destination: a second session finds none
        let frames: Vec<Vec<u8>> =
            (0..PACKETS).map(|n| from_trust("10.0.2.50", 2000 + 100 * turn + n)).collect();
        gateway.dataplane.remove_program(program).unwrap();
        let (ended, went) = send(&mut gateway, "trust0", &frames, "no_generation");
        assert_eq!((ended, went), (PACKETS as u64, 0), "{program:?} on {}", hook.name());
        assert_eq!(gateway.dataplane.sessions().count(), 0, "{program:?} on {}", hook.name());
        // the slot is filled again by the second commit from here
        for _ in 0..2 {
            gateway.commit(&config).unwrap();
        }
        let (full, went) = send(&mut gateway, "trust0", &frames, "nat_ports_exhausted");
        assert_eq!((full, went), (PACKETS as u64 - 1, 1), "{program:?} on {}: its port is free", hook.name());
        gateway.clear_sessions().unwrap();
    }
}

#[test]
fn a_missing_program_leaves_no_session_and_no_port() {
    for hook in Hook::BOTH {
        in_thread(move || without_a_program(hook));
    }
}

/// One packet through a root program: whether it was forwarded, and its source port by then.
fn pass(hook: Hook, root: &OwnedFd, ifindex: u32, frame: &[u8]) -> (bool, u16) {
    let (forwarded, out) = match hook {
        Hook::Xdp => {
            let seen = prog_run::xdp(root.as_fd(), &XdpRun::new(frame, ifindex)).unwrap();
            (seen.retval == XDP_REDIRECT, seen.data[seen.context.data as usize..].to_vec())
        }
        Hook::Tc | Hook::Mixed(_) => {
            let seen = prog_run::tc(root.as_fd(), &TcRun::new(frame, ifindex)).unwrap();
            (seen.retval == TC_ACT_REDIRECT, seen.data)
        }
    };
    (forwarded, u16::from_be_bytes([out[34], out[35]]))
}

/// Each program goes and comes while another CPU sends first packets: who was forwarded has a session, nobody else.
fn emptied_under_load(hook: Hook) {
    let mut gateway = gateway("nat.world", 1 << 14, hook);
    let config = std::fs::read_to_string(&gateway.world.config).unwrap();
    let root = match hook {
        Hook::Xdp => gateway.root("trust0").unwrap().try_clone().unwrap(),
        Hook::Tc | Hook::Mixed(_) => gateway.arrive("trust0").unwrap(),
    };
    let ifindex = ifindex("trust0").unwrap();
    let frames: Vec<Vec<u8>> = (0..FLOOD).map(|n| from_trust("10.0.2.100", 2000 + n)).collect();
    let (sent, allowed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let before = counters::snapshot(&gateway.dataplane, &gateway.plan).unwrap();
    // those that write; the walk through all is the same on both hooks
    let programs: &[Program] = match hook {
        Hook::Xdp => &[Program::Fast, Program::Admit, Program::Judge, Program::Record, Program::Leave],
        Hook::Tc | Hook::Mixed(_) => &[Program::Record, Program::Leave],
    };
    let forwarded = std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let mut forwarded = 0;
            for (n, frame) in frames.iter().enumerate() {
                while allowed.load(Ordering::Relaxed) <= n {
                    std::thread::sleep(Duration::from_micros(200));
                }
                forwarded += usize::from(pass(hook, &root, ifindex, frame).0);
                sent.store(n + 1, Ordering::Relaxed);
                // some are left when the program goes
                std::thread::sleep(Duration::from_micros(100));
            }
            forwarded
        });
        for (turn, program) in programs.iter().enumerate() {
            let begin = turn * FLOOD / programs.len();
            let reach = |packets: usize| {
                while sent.load(Ordering::Relaxed) < begin + packets {
                    std::thread::sleep(Duration::from_micros(200));
                }
            };
            allowed.store(begin + FLOOD / programs.len(), Ordering::Relaxed);
            reach(PACKETS);
            gateway.dataplane.remove_program(*program).unwrap();
            reach(2 * PACKETS);
            for _ in 0..2 {
                gateway.commit(&config).unwrap();
            }
        }
        sender.join().unwrap()
    });
    let delta = counters::delta(&before, &counters::snapshot(&gateway.dataplane, &gateway.plan).unwrap());
    counters::first_equation(&delta).unwrap();
    let missing = counters::total(&delta, "no_generation") as usize;
    assert!(missing > 0 && forwarded > 0, "{missing} packets missed a program, {forwarded} did not");
    assert_eq!(forwarded + missing, FLOOD, "on {}: {delta:?}", hook.name());
    assert_eq!(gateway.dataplane.sessions().count(), forwarded, "sessions on {}", hook.name());
    gateway.clear_sessions().unwrap();
    assert_eq!(gateway.dataplane.sessions().count(), 0);
    // ports are preserved where they are free
    for (n, frame) in frames.iter().enumerate() {
        let seen = pass(hook, &root, ifindex, frame);
        assert_eq!(seen, (true, 2000 + n as u16), "packet {n} on {}", hook.name());
    }
}

#[test]
fn programs_that_go_under_load_leave_no_session_and_no_port() {
    for hook in Hook::BOTH {
        in_thread(move || emptied_under_load(hook));
    }
}

/// Both ends of a tuple open it at the same moment, each on a CPU of its own: one session, and nobody is dropped.
fn both_open_at_once(hook: Hook) {
    let mut gateway = gateway("zones.world", 1 << 14, hook);
    let config = std::fs::read_to_string(&gateway.world.config).unwrap();
    gateway
        .commit(&config.replace("default-policy { deny-all; }", "default-policy { permit-all; }"))
        .unwrap();
    let ends = [
        "eth(dst=02:00:00:00:01:01, src=02:00:00:00:01:64)/ip(src=10.0.1.100, dst=10.0.30.100)",
        "eth(dst=02:00:00:00:30:01, src=02:00:00:00:30:64)/ip(src=10.0.30.100, dst=10.0.1.100)",
    ];
    let roots = ["trust0", "dmz0"]
        .map(|device| (gateway.root(device).unwrap().try_clone().unwrap(), ifindex(device).unwrap()));
    let frame = |side: usize, n: usize| {
        let (one, other) = (1000 + n, 9);
        let (sport, dport) = if side == 0 { (one, other) } else { (other, one) };
        bytes(&format!("{}/udp(sport={sport}, dport={dport})", ends[side])).unwrap()
    };
    let before = counters::snapshot(&gateway.dataplane, &gateway.plan).unwrap();
    let arrived = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for (side, (root, ifindex)) in roots.iter().enumerate() {
            let (arrived, frame) = (&arrived, &frame);
            scope.spawn(move || {
                for n in 0..PAIRS {
                    let frame = frame(side, n);
                    arrived.fetch_add(1, Ordering::Relaxed);
                    while arrived.load(Ordering::Relaxed) < 2 * (n + 1) {
                        std::hint::spin_loop();
                    }
                    pass(hook, root, *ifindex, &frame);
                }
            });
        }
    });
    let delta = counters::delta(&before, &counters::snapshot(&gateway.dataplane, &gateway.plan).unwrap());
    counters::first_equation(&delta).unwrap();
    let went = counters::total(&delta, "redirected") + counters::total(&delta, "handed_off");
    // A softirq ends before another task runs on its CPU; these runs can lose theirs while they hold a bucket.
    let busy = counters::total(&delta, "session_busy");
    assert!(busy <= PAIRS as u64 / 1000, "on {}: {busy} found a bucket locked", hook.name());
    assert_eq!(went + busy, 2 * PAIRS as u64, "on {}: {delta:?}", hook.name());
    assert_eq!(gateway.dataplane.sessions().count(), PAIRS, "on {}", hook.name());
}

#[test]
fn ends_that_open_at_once_share_a_session() {
    for hook in Hook::BOTH {
        in_thread(move || both_open_at_once(hook));
    }
}

fn refused(hook: Hook) {
    let next_hops = |gateway: &Gateway| gateway.dataplane.nexthops().unwrap().len();

    // policy
    let mut zones = gateway("zones.world", 64, hook);
    let frames: Vec<Vec<u8>> = (2..2 + PACKETS).map(|host| from_untrust(&format!("10.0.1.{host}"))).collect();
    assert_eq!(send(&mut zones, "untrust0", &frames, "policy_default"), (PACKETS as u64, 0));
    assert_eq!(next_hops(&zones), 0, "policy on {}", hook.name());

    // full table of sessions
    let mut full = gateway("zones.world", 4, hook);
    let frames: Vec<Vec<u8>> =
        (2..2 + PACKETS).map(|host| from_trust(&format!("10.0.2.{host}"), 1000)).collect();
    let (ended, went) = send(&mut full, "trust0", &frames, "session_table_full");
    assert_eq!(ended + went, PACKETS as u64);
    assert!(ended > 0 && next_hops(&full) as u64 == went, "full table on {}", hook.name());

    // no port left
    let mut nat = gateway("nat.world", 256, hook);
    let frames: Vec<Vec<u8>> = (0..PACKETS).map(|n| from_trust("10.0.2.50", 1000 + n)).collect();
    assert_eq!(send(&mut nat, "trust0", &frames, "nat_ports_exhausted"), (PACKETS as u64 - 1, 1));
    assert_eq!(next_hops(&nat), 1, "ports on {}", hook.name());

    // no grant
    let mut gate = gateway("gate.world", 64, hook);
    let frames: Vec<Vec<u8>> =
        (2..2 + PACKETS).map(|host| from_trust(&format!("10.0.2.{host}"), 1000)).collect();
    assert_eq!(send(&mut gate, "trust0", &frames, "redirected").1, 0);
    assert_eq!(next_hops(&gate), 0, "gate on {}", hook.name());
}

#[test]
fn what_is_refused_takes_no_next_hop() {
    for hook in Hook::BOTH {
        in_thread(move || refused(hook));
    }
}

/// Addresses of a scan, behind one device, and how many a second its zone may ask for.
const SCANNED: usize = 1_000;
const RATE: u64 = sluice_abi::NEIGHBOUR_RATE_PER_ZONE as u64;

/// From a host of a zone to somebody else's neighbour.
fn datagram(v4: bool, near: &str, far: &str, source: &str, destination: &str) -> Vec<u8> {
    let kind = if v4 { "ip" } else { "ip6" };
    let text =
        format!("eth(dst={near}, src={far})/{kind}(src={source}, dst={destination})/udp(sport=9, dport=9)");
    bytes(&text).unwrap()
}

/// A permitted scan takes next hops at a bounded rate, and none from others: not from the other zones, not from what its
/// own zone has asked for before, nor from neighbours that the kernel knows.
fn scanned(hook: Hook, v4: bool) {
    let mut gateway = gateway("zones.world", 4096, hook);
    let (scan, scanner, partner) = if v4 {
        ("172.20.0.0/16 dev untrust0", "10.0.1.100", "192.0.2.100")
    } else {
        ("2001:db8:20::/64 dev untrust0", "fd00:1::100", "fd00:192::100")
    };
    ip(&[format!("route add {scan}")]).unwrap();
    let scanned = |n: usize| match v4 {
        true => format!("172.20.{}.{}", n / 256, n % 256),
        false => format!("2001:db8:20::{n:x}"),
    };
    let (known, asked, other) = if v4 {
        ("10.0.2.100", "10.0.2.77", "10.0.1.77")
    } else {
        ("fd00:2::100", "fd00:2::77", "fd00:1::77")
    };
    let trust = |to: &str| datagram(v4, "02:00:00:00:01:01", "02:00:00:00:01:64", scanner, to);
    assert_eq!(send(&mut gateway, "trust0", &[trust(asked)], "neighbour_limit"), (0, 1));

    let frames: Vec<Vec<u8>> = (1..=SCANNED).map(|n| trust(&scanned(n))).collect();
    let began = Instant::now();
    let (ended, went) = send(&mut gateway, "trust0", &frames, "neighbour_limit");
    let may = RATE + RATE * (began.elapsed().as_millis() as u64 + 50) / 1000;
    assert_eq!(ended + went, SCANNED as u64);
    assert!((RATE - 1..=may).contains(&went), "{went} of the scan went, {may} may, on {}", hook.name());
    assert_eq!(gateway.dataplane.nexthops().unwrap().len() as u64, went + 1);
    assert_eq!(gateway.dataplane.sessions().count() as u64, went + 1, "what is refused keeps no session");

    // its own zone, to whom it knows and to whom it has asked for
    gateway.clear_sessions().unwrap();
    assert_eq!(send(&mut gateway, "trust0", &[trust(known), trust(asked)], "neighbour_limit"), (0, 2));
    // another zone, to somebody new
    let frame = datagram(v4, "02:00:00:00:00:01", "02:00:00:00:22:64", partner, other);
    let tagged = [&frame[..12], &[0x81, 0, 0, 200], &frame[12..]].concat();
    assert_eq!(send(&mut gateway, "wan0", &[tagged], "neighbour_limit"), (0, 1), "on {}", hook.name());
}

#[test]
fn a_permitted_scan_leaves_neighbours_to_others() {
    for hook in Hook::BOTH {
        [true, false].into_iter().for_each(|v4| in_thread(move || scanned(hook, v4)));
    }
}

/// Pings for this host in the name of hosts that another zone's link may have: its stack looks for as many of them, to
/// answer, as a zone may ask for, and those that are known cost nothing.
fn forged(hook: Hook, v4: bool) {
    let mut gateway = gateway("zones.world", 4096, hook);
    if v4 {
        ip(&["route add 172.20.0.0/16 dev trust0".to_owned()]).unwrap();
    }
    let ping = |link: &str, source: &str, to: &str, id: usize| {
        let ends = format!("eth(dst=02:00:00:00:{link}:01, src=02:00:00:00:{link}:64)");
        let (kind, echo) = if v4 { ("ip", "icmp") } else { ("ip6", "icmp6") };
        bytes(&format!("{ends}/{kind}(src={source}, dst={to})/{echo}(type=echo-request, id={id})")).unwrap()
    };
    let near = if v4 { ["10.0.1.1", "10.0.2.1"] } else { ["fd00:1::1", "fd00:2::1"] };
    let neighbours = if v4 { ["10.0.1.100", "10.0.2.100"] } else { ["fd00:1::100", "fd00:2::100"] };
    let unused = if v4 { "10.0.1.77" } else { "fd00:1::77" };
    let name =
        |n: usize| if v4 { format!("172.20.{}.{}", n / 256, n % 256) } else { format!("fd00:1::9:{n:x}") };
    let lets_in = |gateway: &mut Gateway, device: &str, frames: &[Vec<u8>]| {
        let delta = table::count_frames(gateway, device, frames).unwrap();
        (counters::total(&delta, "delivered_local"), counters::total(&delta, "neighbour_limit"))
    };

    let frames: Vec<Vec<u8>> = (1..=SCANNED).map(|n| ping("02", &name(n), near[1], n)).collect();
    let began = Instant::now();
    let (came, ended) = lets_in(&mut gateway, "untrust0", &frames);
    let may = RATE + RATE * (began.elapsed().as_millis() as u64 + 50) / 1000;
    assert_eq!(came + ended, SCANNED as u64);
    assert!((RATE - 1..=may).contains(&came), "{came} were let in, {may} may, on {}", hook.name());
    assert_eq!(gateway.dataplane.sessions().count() as u64, came, "what is refused keeps no session");
    gateway.clear_sessions().unwrap();

    let known: Vec<Vec<u8>> = (1..=SCANNED).map(|n| ping("02", neighbours[1], near[1], n)).collect();
    assert_eq!(lets_in(&mut gateway, "untrust0", &known), (SCANNED as u64, 0), "on {}", hook.name());
    let others = [ping("01", neighbours[0], near[0], 1), ping("01", unused, near[0], 1)];
    assert_eq!(lets_in(&mut gateway, "trust0", &others), (2, 0), "on {}", hook.name());
}

#[test]
fn forged_sources_leave_neighbours_to_others() {
    for hook in Hook::BOTH {
        [true, false].into_iter().for_each(|v4| in_thread(move || forged(hook, v4)));
    }
}

/// What the limit refuses keeps no outside endpoint, and counts under none.
fn refused_keep_no_binding(hook: Hook) {
    let mut gateway = gateway("nat-persistent.world", 4096, hook);
    ip(&["route add 172.20.0.0/16 dev untrust0".to_owned()]).unwrap();
    let frame = |port: usize, to: &str| {
        let ends = "eth(dst=02:00:00:00:01:01, src=02:00:00:00:01:65)";
        bytes(&format!("{ends}/ip(src=10.0.1.101, dst={to})/udp(sport={port}, dport=9)")).unwrap()
    };
    let scan: Vec<Vec<u8>> =
        (0..SCANNED).map(|n| frame(20_000 + n, &format!("172.20.{}.{}", n / 256, n % 256))).collect();
    let (ended, went) = send(&mut gateway, "trust0", &scan, "neighbour_limit");
    assert_eq!(ended + went, SCANNED as u64);
    assert!(ended > 0, "on {}", hook.name());
    assert_eq!(u64::from(gateway.dataplane.binding_count()), went, "on {}", hook.name());

    // one that has a session keeps its endpoint
    assert_eq!(send(&mut gateway, "trust0", &[frame(9_000, "10.0.2.100")], "neighbour_limit"), (0, 1));
    let scan: Vec<Vec<u8>> = (0..20).map(|n| frame(9_000, &format!("172.20.200.{n}"))).collect();
    let (ended, went) = send(&mut gateway, "trust0", &scan, "neighbour_limit");
    assert_eq!(ended + went, 20);
    let bindings = gateway.dataplane.bindings().unwrap();
    let own = bindings.iter().find(|binding| binding.inside.1 == 9_000).expect("it has a session");
    assert_eq!(u64::from(own.sessions), 1 + went, "on {}", hook.name());
}

#[test]
fn what_is_refused_keeps_no_binding() {
    for hook in Hook::BOTH {
        in_thread(move || refused_keep_no_binding(hook));
    }
}
