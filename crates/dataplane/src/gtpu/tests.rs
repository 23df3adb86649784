//! Sessions in maps of the kernel, against a plain list of what is there.

use std::collections::BTreeMap;

use sluice_abi::{FlowMatch, GTPU_REACH, GtpuFilters, GtpuFlow, cost_of_rate, gtpu_block};

use super::flows::{Blocks, place};
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
    let lines = |slots: u32| {
        Lines::of(Array::of(file(64 * (slots + GTPU_REACH) as usize), slots + GTPU_REACH).unwrap())
    };
    let room = |name| entries(name, [slots; 2]);
    let gtpu = Gtpu {
        uplinks: lines(slots).by_teid(),
        downlinks: lines(downlink_slots_for(512)),
        rules: Array::of(file(64 * room("gtpu_rules") as usize), room("gtpu_rules")).unwrap(),
        peers: Array::of(file(64 * room("gtpu_peers") as usize), room("gtpu_peers")).unwrap(),
        flows: OnceLock::new(),
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
    gtpu.finish();
    assert_eq!((gtpu.len(), gtpu.get(other)), (1, None));
    assert_eq!(gtpu.find_address(Ipv4Addr::new(10, 0, 0, 2).into()), None);
    assert_eq!((gtpu.get(whole).unwrap().number, gtpu.peers()[0].lines), (whole, 2));
    assert_eq!(GTPU_UPLINK, 0);
}

fn both(number: u32) -> GtpuSession {
    // scattered, as leases are after some time
    let bits = u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let prefix = Ipv6Addr::from(u128::from(bits | 1) << 64);
    let address = Ipv4Addr::from((bits >> 32) as u32 | 1);
    GtpuSession { address: Some(address), prefix: Some(prefix), ..session(number, 1) }
}

fn places_below(gtpu: &Gtpu, number: u32) -> Vec<u32> {
    let below = gtpu.below(&gtpu.uplinks.get(number).unwrap()).unwrap();
    below.into_iter().map(|(place, _)| place).collect()
}

/// They are closed first, and then line by line removed: neither keys nor places may stay anybody's.
#[test]
fn sessions_whose_removal_was_cut_short_are_removed_by_the_next_process() {
    let gtpu = gtpu();
    let numbers = [1, 2, 3, 4].map(|teid| gtpu.add(&both(teid)).unwrap());
    let closed = |number: u32| {
        let below = places_below(&gtpu, number);
        gtpu.uplinks.close(number);
        below.iter().for_each(|place| gtpu.downlinks.close(*place));
        below
    };
    closed(numbers[0]);
    gtpu.downlinks.remove(closed(numbers[1])[0]);
    closed(numbers[2]).into_iter().for_each(|place| gtpu.downlinks.remove(place));
    let gtpu = restarted(gtpu);
    gtpu.finish();
    assert_eq!((gtpu.len(), gtpu.peers()[0].lines), (1, 3));
    for teid in [1, 2, 3] {
        assert!(gtpu.add(&both(teid)).is_ok(), "{teid} can be had again");
    }
    assert_eq!(gtpu.get(numbers[3]).unwrap().session, both(4));
}

/// Lines by address may say what was before; the next process has them follow.
#[test]
fn a_change_that_was_cut_short_is_finished_by_the_next_process() {
    let gtpu = with_flows();
    let set = kept(&gtpu, &[&filters(3, 1)])[0];
    let number = gtpu.add(&both(1)).unwrap();
    let before = places_below(&gtpu, number);
    let old: Vec<GtpuLine> = before.iter().map(|place| gtpu.downlinks.get(*place).unwrap()).collect();
    let new = with_filters(GtpuSession { tunnel: Tunnel { peer: peer(9), teid: 77 }, ..both(1) }, set);
    gtpu.change(number, &new.tunnel, &new.rules, new.quota).unwrap();
    // as if it had come no further than to the first of them
    gtpu.downlinks.decide(before[1], old[1].decision, lines::block_of(&old[1]), old[1].quota);
    let gtpu = restarted(gtpu);
    gtpu.finish();
    let lines: Vec<GtpuLine> = before.iter().map(|place| gtpu.downlinks.get(*place).unwrap()).collect();
    let up = gtpu.uplinks.get(number).unwrap();
    assert!(lines.iter().all(|line| (line.decision, line.flows) == (up.decision, up.flows)), "{lines:?}");
    assert_eq!(gtpu.get(number).unwrap().session, new);
    removed(&gtpu, &[number]);
    assert_eq!((gtpu.len(), gtpu.peers()), (0, vec![]), "nobody uses the old peer, or the new one");
}

#[test]
fn sessions_stay_where_programs_cannot_be_waited_for() {
    let gtpu = gtpu();
    let number = gtpu.add(&both(1)).unwrap();
    assert!(gtpu.remove(&[number], || Err(Error::NoTunnels)).is_err());
    let line = gtpu.uplinks.get(number).unwrap();
    assert!(gtpu.whole(&line).is_some());
    assert_eq!((gtpu.get(number).unwrap().session, gtpu.len()), (both(1), 1));
}

/// As many as there is room for, each with both kinds of addresses.
#[test]
fn every_session_may_have_an_address_and_a_prefix() {
    let gtpu = gtpu();
    for teid in 1..=gtpu.capacity() {
        assert_eq!(gtpu.add(&both(teid)).map(drop), Ok(()), "{teid}");
    }
    let full = gtpu.add(&both(gtpu.capacity() + 1));
    assert_eq!(full, Err(GtpuRefused::Full { what: "session", limit: 512 }));
}

/// What is owed at one rate is no debt at another.
#[test]
fn another_rate_begins_anew() {
    let gtpu = gtpu();
    let old = session(1, 0x0a00_0001);
    let number = gtpu.add(&old).unwrap();
    let arrival = || gtpu.uplinks.get(number).unwrap().arrival;
    gtpu.uplinks.write_arrival(number, 1 << 50);
    let tunnel = Tunnel { peer: peer(3), teid: 9 };
    gtpu.change(number, &tunnel, &old.rules, old.quota).unwrap();
    assert_eq!(arrival(), 1 << 50, "another tunnel is no other rate");
    let rules = GtpuRules { cost: [cost_of_rate(50_000_000), 0], ..old.rules };
    gtpu.change(number, &tunnel, &rules, old.quota).unwrap();
    assert_eq!(arrival(), 0);
}

/// The same, with room for 512 flows and 15 sets of them.
fn with_flows() -> Gtpu {
    let file = |bytes: usize| {
        let file = tempfile::tempfile().unwrap();
        file.set_len(bytes as u64).unwrap();
        file
    };
    let filters = Array::of(file(16 * size_of::<GtpuFilters>()), 16).unwrap();
    let states = Array::of(file(512 * size_of::<GtpuFlow>()), 512).unwrap();
    let gtpu = gtpu();
    let _ = gtpu.flows.set(Flows { filters, states });
    restarted(gtpu)
}

/// So many flows, of which the first has this QFI.
fn filters(flows: u8, qfi: u8) -> Box<GtpuFilters> {
    let of =
        |n| (FlowMatch { protocol: Some(n), ..Default::default() }, GtpuRules { qfi, ..Default::default() });
    GtpuFilters::new(&(0..flows).map(of).collect::<Vec<_>>()).unwrap()
}

fn kept(gtpu: &Gtpu, sets: &[&GtpuFilters]) -> Vec<u16> {
    gtpu.keep_filters(sets.iter().copied()).unwrap()
}

fn with_filters(session: GtpuSession, filters: u16) -> GtpuSession {
    GtpuSession { rules: GtpuRules { filters, ..session.rules }, ..session }
}

impl Gtpu {
    /// As if so many bytes of the session's flow had passed.
    fn write_flow(&self, number: u32, flow: u32, bytes: u64) {
        let block = lines::block_of(&self.uplinks.get(number).unwrap());
        let passed = GtpuFlow { uplink_bytes: bytes, downlink_bytes: 2 * bytes, ..Default::default() };
        self.flows.get().unwrap().states.write(sluice_abi::gtpu_block_flow(block, flow), passed);
    }

    fn flow_bytes(&self, number: u32) -> Vec<u64> {
        let flows = self.get(number).unwrap().flows;
        assert!(flows.iter().all(|flow| flow.bytes[1] == 2 * flow.bytes[0]));
        flows.iter().map(|flow| flow.bytes[0]).collect()
    }
}

/// Lines of both directions lead to one block, which a restart finds again.
#[test]
fn flows_of_a_session_have_a_block_and_outlive_the_process() {
    let gtpu = with_flows();
    let (five, three) = (filters(5, 1), filters(3, 2));
    let numbers = kept(&gtpu, &[&five, &three]);
    let prefix: Ipv6Addr = "2001:db8:1:2::".parse().unwrap();
    let asked = with_filters(session(1, 0x0a00_0001), numbers[0]);
    let one = gtpu.add(&GtpuSession { prefix: Some(prefix), ..asked }).unwrap();
    let two = gtpu.add(&with_filters(session(2, 0x0a00_0002), numbers[1])).unwrap();
    let plain = gtpu.add(&session(3, 0x0a00_0003)).unwrap();
    for (number, flow) in [(one, 0), (one, 4), (two, 2)] {
        gtpu.write_flow(number, flow, u64::from(100 * number + flow));
    }
    let line = gtpu.uplinks.get(one).unwrap();
    let below = gtpu.below(&line).unwrap();
    let blocks = below.iter().map(|(_, down)| lines::block_of(down));
    assert_eq!(blocks.collect::<Vec<_>>(), [lines::block_of(&line); 2]);
    let expected = |gtpu: &Gtpu| {
        let (first, second) = (u64::from(100 * one), u64::from(100 * two));
        assert_eq!(gtpu.flow_bytes(one), [first, 0, 0, 0, first + 4]);
        assert_eq!((gtpu.flow_bytes(two), gtpu.flow_bytes(plain)), (vec![0, 0, second + 2], vec![]));
        // eight and four
        assert_eq!(gtpu.book().flows.blocks.free(), 512 - 12);
    };
    expected(&gtpu);
    let gtpu = restarted(gtpu);
    expected(&gtpu);
    // the configuration is the same: so are the numbers
    assert_eq!(kept(&gtpu, &[&three, &five]), [numbers[1], numbers[0]]);
    let records = removed(&gtpu, &[one]);
    assert_eq!((records[0].flows.len(), records[0].flows[4].bytes[0]), (5, u64::from(100 * one + 4)));
    let gtpu = restarted(gtpu);
    assert_eq!(gtpu.book().flows.blocks.free(), 512 - 4);
}

/// Usage goes on where the flows are the same ones, and begins anew where they are others.
#[test]
fn a_change_keeps_the_block_of_the_same_flows() {
    let gtpu = with_flows();
    let (five, six) = (filters(5, 1), filters(6, 1));
    let numbers = kept(&gtpu, &[&five, &six]);
    let asked = with_filters(session(1, 0x0a00_0001), numbers[0]);
    let number = gtpu.add(&asked).unwrap();
    gtpu.write_flow(number, 3, 7);
    let change = |rules: &GtpuRules| gtpu.change(number, &asked.tunnel, rules, [None; 2]);
    change(&GtpuRules { qfi: 3, ..asked.rules }).unwrap();
    assert_eq!(gtpu.flow_bytes(number), [0, 0, 0, 7, 0]);
    change(&GtpuRules { filters: numbers[1], ..asked.rules }).unwrap();
    assert_eq!(gtpu.flow_bytes(number), [0; 6]);
    change(&GtpuRules { filters: 0, ..asked.rules }).unwrap();
    assert_eq!(gtpu.flow_bytes(number), []);
    assert_eq!(gtpu.get(number).unwrap().session.rules.filters, 0);
    assert_eq!(change(&GtpuRules { filters: 9, ..asked.rules }), Err(GtpuRefused::NoFilters));
    assert_eq!(gtpu.book().peers.users[1].0, 2, "a refused change leaves nothing");
    // programs may still count on the old ones
    assert_eq!(gtpu.book().flows.blocks.free(), 512 - 16);
    assert_eq!(restarted(gtpu).book().flows.blocks.free(), 512);
}

#[test]
fn sets_of_flows_and_blocks_run_out_by_name() {
    let gtpu = with_flows();
    let sets: Vec<_> = (1..=16).map(|qfi| filters(64, qfi)).collect();
    let all: Vec<&GtpuFilters> = sets.iter().map(|set| &**set).collect();
    let what = "set of rules with flows";
    assert_eq!(gtpu.keep_filters(all.iter().copied()), Err(GtpuRefused::Full { what, limit: 15 }));
    let numbers = kept(&gtpu, &all[..15]);
    let made: Vec<u32> = (1..=8)
        .map(|n| gtpu.add(&with_filters(session(n, 0x0a00_0000 + n), numbers[n as usize])).unwrap())
        .collect();
    let ninth = with_filters(session(9, 0x0a00_0009), numbers[1]);
    assert_eq!(gtpu.add(&ninth), Err(GtpuRefused::Full { what: "flow", limit: 512 }));
    assert_eq!(gtpu.len(), 8);
    // a block is free a second after its session ended; whoever comes before waits for it
    removed(&gtpu, &made[..1]);
    gtpu.write_flow(made[1], 0, 5);
    let number = gtpu.add(&ninth).unwrap();
    assert_eq!((gtpu.flow_bytes(number).len(), gtpu.flow_bytes(number)[0]), (64, 0));
    // sets that sessions have stay, whatever the configuration is
    assert_eq!(kept(&gtpu, &[]), []);
    assert_eq!(gtpu.get(made[7]).unwrap().session.rules.filters, numbers[8]);
    assert_eq!(gtpu.book().flows.filters.numbers.len(), 8);
}

/// Blocks of all kinds, taken and left at random, never overlap.
#[test]
fn blocks_do_not_overlap() {
    let mut blocks = flows::Blocks::new(4096);
    let mut owner = vec![0u32; 4096];
    let mut there: Vec<(u32, u32)> = vec![];
    let mut state = 7u64;
    for step in 1..20_000u32 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let random = (state >> 33) as u32;
        let cells = |block: u32| {
            let room = sluice_abi::gtpu_block_room(block);
            (0..room).map(move |flow| sluice_abi::gtpu_block_flow(block, flow) as usize)
        };
        if random.is_multiple_of(3) && !there.is_empty() {
            let (block, own) = there.swap_remove(random as usize % there.len());
            cells(block).for_each(|cell| assert_eq!(std::mem::take(&mut owner[cell]), own));
            blocks.put_back(block);
        } else if let Some(block) = blocks.take(1 + random % 64) {
            assert!(sluice_abi::gtpu_block_room(block) > random % 64);
            cells(block).for_each(|cell| assert_eq!(std::mem::replace(&mut owner[cell], step), 0));
            there.push((block, step));
        }
    }
    let free = owner.iter().filter(|own| **own == 0).count();
    assert_eq!(blocks.free() as usize, free);
}

/// A line has 24 bits for one: of the smallest kind there are more, which are left to larger ones.
#[test]
fn lines_can_tell_all_blocks_apart() {
    let mut blocks = Blocks::new(1 << 24);
    let mut taken = vec![0u64; 1 << 16];
    for number in 0..(1 << 21) - 500 {
        let block = gtpu_block(1, number);
        blocks.mark(block);
        taken[place(block).0] |= place(block).1;
    }
    for _ in 0..1000 {
        let block = blocks.take(4).unwrap();
        let (word, bits) = place(block);
        assert!(block < 1 << 24 && taken[word] & bits == 0, "{block:#x}");
        taken[word] |= bits;
    }
}

/// A device that was made anew has another number: copies leave by it, and the flows are those of before.
#[test]
fn a_change_keeps_the_block_where_copies_leave_elsewhere() {
    let gtpu = with_flows();
    let set = |copy_peer: u16, protocol: u8| {
        let met = GtpuRules { copy_peer: [copy_peer, 0], copy_teid: [7, 0], ..GtpuRules::default() };
        let asked = FlowMatch { protocol: Some(protocol), ..Default::default() };
        GtpuFilters::new(&[(asked, met)]).unwrap()
    };
    let anew = Peer { ifindex: 77, ..peer(9) };
    let peers = gtpu.keep_copies([peer(9), anew]).unwrap();
    let sets = [set(peers[0], 6), set(peers[1], 6), set(peers[1], 17)];
    let numbers = kept(&gtpu, &[&sets[0], &sets[1], &sets[2]]);
    let asked = with_filters(session(1, 0x0a00_0001), numbers[0]);
    let number = gtpu.add(&asked).unwrap();
    gtpu.write_flow(number, 0, 7);
    for (filters, bytes) in [(numbers[1], 7), (numbers[0], 7), (numbers[2], 0)] {
        let rules = GtpuRules { filters, ..asked.rules };
        gtpu.change(number, &asked.tunnel, &rules, [None; 2]).unwrap();
        assert_eq!((gtpu.get(number).unwrap().session.rules, gtpu.flow_bytes(number)), (rules, vec![bytes]));
    }
}

/// Who copies go to is there as long as rules name it, or the configuration.
#[test]
fn copies_have_peers_that_rules_keep() {
    let gtpu = gtpu();
    let far = |gtpu: &Gtpu| gtpu.peers().iter().filter(|record| record.peer == peer(9)).count();
    let numbers = gtpu.keep_copies([peer(9)]).unwrap();
    let rules = GtpuRules { copy_peer: [0, numbers[0]], copy_teid: [0, 7], ..session(1, 1).rules };
    let one = gtpu.add(&GtpuSession { rules, ..session(1, 0x0a00_0001) }).unwrap();
    let two = gtpu.add(&GtpuSession { rules, ..session(2, 0x0a00_0002) }).unwrap();
    assert_eq!(gtpu.get(one).unwrap().session.rules, rules);
    // the configuration has them no more, and the sessions still do
    assert_eq!(gtpu.keep_copies([]), Ok(vec![]));
    removed(&gtpu, &[one]);
    assert_eq!(far(&gtpu), 1);
    // a process that starts finds them
    let gtpu = restarted(gtpu);
    assert_eq!((far(&gtpu), gtpu.keep_copies([peer(9)]).unwrap()), (1, numbers.clone()));
    gtpu.change(two, &session(2, 0).tunnel, &session(2, 0).rules, [None; 2]).unwrap();
    assert_eq!(far(&gtpu), 1);
    assert_eq!(gtpu.keep_copies([]), Ok(vec![]));
    assert_eq!(far(&gtpu), 0);
    // nobody has it
    let refused = gtpu.add(&GtpuSession { rules, ..session(3, 0x0a00_0003) });
    assert_eq!(refused, Err(GtpuRefused::NoCopies));
    assert_eq!((gtpu.len(), gtpu.peers().len()), (1, 1));
}

/// And as long as a flow of a set of filters does that rules name, or the configuration.
#[test]
fn copies_have_peers_that_flows_keep() {
    let gtpu = with_flows();
    let far = |gtpu: &Gtpu| gtpu.peers().iter().filter(|record| record.peer == peer(9)).count();
    let flow = |copy_peer| {
        let met = GtpuRules { copy_peer, copy_teid: [7, 0], ..GtpuRules::default() };
        GtpuFilters::new(&[(FlowMatch::default(), met)]).unwrap()
    };
    let number = gtpu.keep_copies([peer(9)]).unwrap()[0];
    // one of another user plane is refused, and what is shared until then is given back
    let [good, bad] = [[number, 0], [number, 77]].map(flow);
    assert_eq!(gtpu.keep_filters([&*good, &*bad]), Err(GtpuRefused::NoCopies));
    let filters = gtpu.keep_filters([&*good]).unwrap()[0];
    let rules = GtpuRules { filters, ..session(1, 1).rules };
    let one = gtpu.add(&GtpuSession { rules, ..session(1, 0x0a00_0001) }).unwrap();
    // the configuration has neither any more, and the session still does
    assert_eq!((gtpu.keep_filters([]), gtpu.keep_copies([])), (Ok(vec![]), Ok(vec![])));
    assert_eq!(far(&gtpu), 1);
    // a process that starts finds both
    let gtpu = restarted(gtpu);
    assert_eq!((far(&gtpu), gtpu.keep_copies([peer(9)]).unwrap()), (1, vec![number]));
    assert_eq!((gtpu.keep_filters([&*good]), gtpu.keep_copies([])), (Ok(vec![filters]), Ok(vec![])));
    removed(&gtpu, &[one]);
    assert_eq!(far(&gtpu), 1);
    assert_eq!((gtpu.keep_filters([]), far(&gtpu)), (Ok(vec![]), 0));
    assert_eq!(gtpu.keep_filters([&*good]), Err(GtpuRefused::NoCopies));
}
