//! Sessions in maps of the kernel, against a plain list of what is there.

use std::collections::BTreeMap;

use sluice_abi::{GTPU_REACH, cost_of_rate};

use super::*;

fn peer(last: u8) -> Peer {
    Peer {
        local: Ipv4Addr::new(192, 0, 2, 1).into(),
        remote: Ipv4Addr::new(192, 0, 2, last).into(),
        ifindex: 3,
    }
}

fn session(teid: u32, address: u32) -> GtpuSession {
    GtpuSession {
        teid,
        address: Some(Ipv4Addr::from(address)),
        prefix: None,
        tunnel: Tunnel { peer: peer(2), teid: teid + 1 },
        rules: GtpuRules { cost: [cost_of_rate(1_000_000), 0], ..Default::default() },
        quota: [None, Some(5_000_000)],
    }
}

/// Room for 512 sessions, in memory of this process.
fn gtpu() -> Gtpu {
    let slots = slots_for(512);
    let file = |bytes: usize| {
        let file = tempfile::tempfile().unwrap();
        file.set_len(bytes as u64).unwrap();
        file
    };
    let lines =
        || Lines::of(Array::of(file(64 * (slots + GTPU_REACH) as usize), slots + GTPU_REACH).unwrap());
    let room = |name| entries(name, slots);
    let gtpu = Gtpu {
        uplinks: lines().by_teid(),
        downlinks: lines(),
        rules: Array::of(file(64 * room("gtpu_rules") as usize), room("gtpu_rules")).unwrap(),
        peers: Array::of(file(64 * room("gtpu_peers") as usize), room("gtpu_peers")).unwrap(),
        slots,
        book: Mutex::new(Book::new(slots)),
    };
    gtpu.take_stock();
    gtpu
}

fn removed(gtpu: &Gtpu, numbers: &[u32]) -> Vec<GtpuRecord> {
    gtpu.remove(numbers, || Ok(())).unwrap()
}

/// What a process that starts finds is what the one before it had.
fn restarted(gtpu: Gtpu) -> Gtpu {
    let slots = gtpu.slots;
    let gtpu = Gtpu { book: Mutex::new(Book::new(slots)), ..gtpu };
    gtpu.take_stock();
    gtpu
}

#[test]
fn a_session_is_found_by_teid_and_by_each_address() {
    let gtpu = gtpu();
    let prefix: Ipv6Addr = "2001:db8:1:2::".parse().unwrap();
    let both = GtpuSession { prefix: Some(prefix), ..session(7, 0x0a00_0001) };
    let number = gtpu.add(&both).unwrap();
    assert_eq!(gtpu.get(number).unwrap().session, both);
    assert_eq!(gtpu.find_teid(7), Some(number));
    assert_eq!(gtpu.find_address("10.0.0.1".parse().unwrap()), Some(number));
    assert_eq!(gtpu.find_address("2001:db8:1:2:3:4:5:6".parse().unwrap()), Some(number));
    assert_eq!(gtpu.find_address("2001:db8:1:3::1".parse().unwrap()), None);
    // the prefix' line is counted where the address' is
    let [first, second] = [Key::Address(0x0100_000a), Key::Prefix(be_prefix(prefix))]
        .map(|key| gtpu.downlinks.find(key).unwrap());
    assert_eq!(
        (gtpu.downlinks.get(first).unwrap().teid, gtpu.downlinks.get(second).unwrap().teid),
        (0, first + 1)
    );
    gtpu.downlinks.write_usage(first, 1000, 2);
    gtpu.uplinks.write_usage(number, 60, 1);
    let usage = removed(&gtpu, &[number])[0].usage;
    assert_eq!(usage, GtpuUsage { bytes: [60, 1000], packets: [1, 2] });
    assert_eq!(
        (gtpu.find_teid(7), gtpu.find_address("10.0.0.1".parse().unwrap()), gtpu.len()),
        (None, None, 0)
    );
}

#[test]
fn what_belongs_to_another_session_is_refused_and_nothing_changes() {
    let gtpu = gtpu();
    let number = gtpu.add(&session(7, 0x0a00_0001)).unwrap();
    let other = session(8, 0x0a00_0002);
    let refused = |session: GtpuSession| gtpu.add(&session).unwrap_err();
    assert_eq!(refused(GtpuSession { teid: 7, ..other }), GtpuRefused::TeidInUse(7));
    assert_eq!(refused(GtpuSession { teid: 0, ..other }), GtpuRefused::NoTeid);
    let taken = Ipv4Addr::new(10, 0, 0, 1);
    assert_eq!(
        refused(GtpuSession { address: Some(taken), ..other }),
        GtpuRefused::AddressInUse(taken.into())
    );
    assert_eq!(refused(GtpuSession { address: None, ..other }), GtpuRefused::NoAddress);
    let strange = Tunnel { peer: Peer { remote: "::1".parse().unwrap(), ..peer(2) }, teid: 1 };
    assert!(matches!(refused(GtpuSession { tunnel: strange, ..other }), GtpuRefused::Families { .. }));
    let change = gtpu.change(number + 1, &other.tunnel, &other.rules, [None; 2]);
    assert_eq!(change, Err(GtpuRefused::NoSession(number + 1)));
    assert_eq!((gtpu.len(), gtpu.list(0, 10).len(), gtpu.peers().len()), (1, 1, 1));
    assert_eq!(gtpu.get(number).unwrap().session, session(7, 0x0a00_0001));
}

#[test]
fn a_relay_has_a_line_by_teid_alone() {
    let gtpu = gtpu();
    let rules = GtpuRules { flags: GTPU_TO_PEER as u16, ..Default::default() };
    let relay = GtpuSession { address: None, rules, quota: [Some(9), None], ..session(7, 1) };
    let number = gtpu.add(&relay).unwrap();
    let gtpu = restarted(gtpu);
    assert_eq!((gtpu.get(number).unwrap().session, gtpu.peers()[0].lines), (relay, 1));
    assert_eq!(removed(&gtpu, &[number])[0].session, relay);
    assert_eq!((gtpu.len(), gtpu.peers().len()), (0, 0));
}

/// Sets of rules and peers are shared, and free again when the last session leaves them.
#[test]
fn rules_and_peers_are_there_once() {
    let gtpu = gtpu();
    let numbers: Vec<u32> = (1..=100).map(|n| gtpu.add(&session(n, 0x0a00_0000 + n)).unwrap()).collect();
    let decision = |number: u32| gtpu_decided(gtpu.uplinks.get(number).unwrap().decision);
    assert!(numbers.iter().all(|n| decision(*n).1 == decision(numbers[0]).1));
    assert_eq!(gtpu.peers()[0].lines, 200);
    let rules = GtpuRules { qfi: 9, ..session(1, 1).rules };
    let moved = Tunnel { peer: peer(3), teid: 0xffff_ffff };
    gtpu.change(numbers[0], &moved, &rules, [Some(1), None]).unwrap();
    let now = gtpu.get(numbers[0]).unwrap().session;
    assert_eq!((now.tunnel, now.rules, now.quota), (moved, rules, [Some(1), None]));
    assert_ne!(decision(numbers[0]).1, decision(numbers[1]).1);
    assert_eq!(gtpu.peers().iter().map(|peer| peer.lines).collect::<Vec<_>>(), [198, 2]);
    removed(&gtpu, &numbers);
    let book = gtpu.book();
    assert!(book.rules.numbers.is_empty() && book.peers.numbers.is_empty());
    assert_eq!(book.rules.free.len() as u32, book.rules.limit());
}

/// Random sessions come, change and go, with restarts between; every key is found where a plain list has it.
#[test]
fn the_tables_are_what_a_plain_list_says() {
    let mut gtpu = gtpu();
    let mut plain: BTreeMap<u32, (u32, GtpuSession)> = BTreeMap::new();
    let mut state = 1u64;
    let mut random = move |below: u32| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) as u32) % below
    };
    for step in 0..20_000u32 {
        let teid = 1 + random(700);
        match plain.get(&teid).copied() {
            None => {
                let prefix = (random(2) == 0)
                    .then(|| Ipv6Addr::from((0x2001_0db8_0000_0000u64 as u128 + u128::from(teid)) << 64));
                let new = GtpuSession { prefix, ..session(teid, 0x0a00_0000 + teid) };
                match gtpu.add(&new) {
                    Ok(number) => assert!(plain.insert(teid, (number, new)).is_none()),
                    Err(refused) => {
                        assert_eq!(
                            (plain.len(), refused),
                            (512, GtpuRefused::Full { what: "session", limit: 512 })
                        );
                    }
                }
            }
            Some((number, old)) if random(3) == 0 => {
                let tunnel = Tunnel { peer: peer(random(5) as u8 + 2), teid: step };
                gtpu.change(number, &tunnel, &old.rules, old.quota).unwrap();
                plain.insert(teid, (number, GtpuSession { tunnel, ..old }));
            }
            Some((number, old)) => {
                assert_eq!(removed(&gtpu, &[number])[0].session, old);
                plain.remove(&teid);
            }
        }
        if step % 5_000 == 0 {
            gtpu = restarted(gtpu);
        }
    }
    let all: BTreeMap<u32, GtpuSession> =
        gtpu.list(0, 1000).into_iter().map(|r| (r.number, r.session)).collect();
    assert_eq!(all, plain.values().copied().collect());
    assert_eq!(gtpu.len() as usize, plain.len());
    for teid in 1..=700 {
        let number = plain.get(&teid).map(|(number, _)| *number);
        assert_eq!(
            (gtpu.find_teid(teid), gtpu.find_address(Ipv4Addr::from(0x0a00_0000 + teid).into())),
            (number, number)
        );
    }
}

/// A process that dies while it makes a session leaves nothing of it.
#[test]
fn half_a_session_is_removed_by_the_next_process() {
    let gtpu = gtpu();
    let whole = gtpu.add(&session(1, 0x0a00_0001)).unwrap();
    let half = gtpu.add(&session(2, 0x0a00_0002)).unwrap();
    gtpu.uplinks.remove(half);
    let other = gtpu.add(&session(3, 0x0a00_0003)).unwrap();
    gtpu.downlinks.remove(gtpu.downlinks.find(Key::Address(be_address(Ipv4Addr::new(10, 0, 0, 3)))).unwrap());
    let gtpu = restarted(gtpu);
    assert!(gtpu.get(other).is_some(), "whoever only reads leaves it there");
    gtpu.remove_halves();
    assert_eq!((gtpu.len(), gtpu.get(other)), (1, None));
    assert_eq!(gtpu.find_address(Ipv4Addr::new(10, 0, 0, 2).into()), None);
    assert_eq!((gtpu.get(whole).unwrap().number, gtpu.peers()[0].lines), (whole, 2));
    assert_eq!(GTPU_UPLINK, 0);
}
