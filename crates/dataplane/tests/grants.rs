//! Grants of the configuration beside those of operators, what a crash leaves of them, and who only reads.

use crate::common;

use std::mem::offset_of;
use std::net::Ipv4Addr;

use common::{Pin, SMALL};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use sluice_dataplane::abi::{GRANT_LIVE, GRANT_WAS_REVOKED, Grant};
use sluice_dataplane::{Dataplane, Ended, GrantKey, GrantSpec, Pick, Reconciled, Refused};

/// Of alice, for this host.
fn spec(host: u8, absolute_s: Option<u32>) -> GrantSpec {
    let key = GrantKey { source: Ipv4Addr::new(192, 0, 2, host).into(), length: 32, service: 3 };
    GrantSpec { key, user: "alice".to_owned(), idle_s: None, absolute_s }
}

fn of_bob(host: u8) -> GrantSpec {
    GrantSpec { user: "bob".to_owned(), ..spec(host, None) }
}

fn give(dataplane: &Dataplane, specs: &[GrantSpec], now: u64) {
    dataplane.grants().give(specs, now).unwrap().unwrap();
}

fn commit(dataplane: &Dataplane, specs: &[GrantSpec], now: u64) -> Reconciled {
    dataplane.grants().reconcile(specs, now).unwrap().unwrap()
}

/// Limits in seconds of alice's grant, where there is one.
fn limit(dataplane: &Dataplane, host: u8, now: u64) -> Option<Option<u64>> {
    let record = dataplane.grants().find(&spec(host, None).key, now)?;
    Some(record.deadline.map(|deadline| (deadline - record.created) / u64::from(dataplane.hz())))
}

fn revoke(dataplane: &Dataplane, host: u8, now: u64) {
    let pick = Pick::Source(spec(host, None).key.source, 32);
    assert_eq!(dataplane.grants().revoke(&pick, now).unwrap().len(), 1);
}

#[test]
fn one_that_an_operator_renewed_stays_the_configurations_own() {
    let pin = Pin::new();
    let mut dataplane = pin.open(SMALL);
    let now = dataplane.now_jiffies().unwrap();
    let wanted = [spec(1, Some(600)), spec(2, Some(600)), spec(3, Some(600))];
    commit(&dataplane, &wanted, now);
    give(&dataplane, &[spec(1, Some(60)), spec(2, Some(60)), spec(3, Some(60))], now);
    revoke(&dataplane, 2, now);
    for restarted in [false, true] {
        if restarted {
            drop(dataplane);
            dataplane = pin.open(SMALL);
        }
        let done = commit(&dataplane, &wanted, now);
        assert!(done.given.is_empty() && done.ended.is_empty(), "{done:?}");
        assert_eq!(limit(&dataplane, 1, now), Some(Some(60)), "the operator's limits hold on");
        assert_eq!(limit(&dataplane, 2, now), None, "revoked stays so");
    }
    let later = now + 61 * u64::from(dataplane.hz());
    assert_eq!(dataplane.grants().collect_ended(later).unwrap().len(), 2);
    assert!(commit(&dataplane, &wanted, later).given.is_empty(), "expired stays so");
    // what is written anew is given anew, and what is taken out ends
    let anew = [spec(1, Some(900)), spec(2, Some(900))];
    assert_eq!(commit(&dataplane, &anew, later).given.len(), 2);
    give(&dataplane, &anew, later);
    assert_eq!(commit(&dataplane, &[spec(1, Some(901))], later).ended.len(), 2);
    assert_eq!((limit(&dataplane, 1, later), limit(&dataplane, 2, later)), (Some(Some(901)), None));
    assert_eq!(dataplane.grants().live(), 1);
}

#[test]
fn one_that_has_ended_is_given_again_by_an_operator_to_the_same_user_alone() {
    let pin = Pin::new();
    let dataplane = pin.open(SMALL);
    let now = dataplane.now_jiffies().unwrap();
    let wanted = [spec(1, None)];
    commit(&dataplane, &wanted, now);
    revoke(&dataplane, 1, now);
    let refused = dataplane.grants().give(&[of_bob(1)], now).unwrap();
    assert!(matches!(&refused, Err(Refused::Configured { user, .. }) if user == "alice"), "{refused:?}");
    give(&dataplane, &[spec(1, Some(60))], now);
    let done = commit(&dataplane, &wanted, now);
    assert!(done.given.is_empty() && done.ended.is_empty(), "{done:?}");
    assert_eq!(limit(&dataplane, 1, now), Some(Some(60)));
    revoke(&dataplane, 1, now);
    assert!(commit(&dataplane, &wanted, now).given.is_empty(), "revoked once more, it stays so");
    // out of the configuration, it is anybody's
    commit(&dataplane, &[], now);
    give(&dataplane, &[of_bob(1)], now);
    assert!(commit(&dataplane, &[], now).ended.is_empty(), "and no more the configuration's");
}

#[test]
fn an_ended_grant_that_a_list_names_twice_is_freed_once() {
    let pin = Pin::new();
    let dataplane = pin.open(SMALL);
    let now = dataplane.now_jiffies().unwrap();
    give(&dataplane, &[spec(1, Some(1))], now);
    let later = now + 2 * u64::from(dataplane.hz());
    let twice = dataplane.grants().give(&[spec(1, None), spec(1, None)], later).unwrap();
    assert!(matches!(twice, Err(Refused::Taken { .. })), "{twice:?}");
    let both = dataplane.grants().give(&[spec(2, None), spec(3, None)], later).unwrap().unwrap();
    assert_ne!(both[0].handle, both[1].handle);
    assert_eq!(dataplane.grants().revoke(&Pick::All, later).unwrap().len(), 2);
}

#[test]
fn what_ends_on_the_way_to_something_else_is_told() {
    let pin = Pin::new();
    let dataplane = pin.open(SMALL);
    let now = dataplane.now_jiffies().unwrap();
    let later = now + 2 * u64::from(dataplane.hz());
    give(&dataplane, &[spec(1, Some(1)), of_bob(3)], now);
    give(&dataplane, &[spec(1, None)], later);
    let ends = |dataplane: &Dataplane| {
        let ends = dataplane.grants().untold().into_iter();
        ends.map(|record| (record.key, record.ended)).collect::<Vec<_>>()
    };
    assert_eq!(ends(&dataplane), [(spec(1, None).key, Some(Ended::Expired))]);
    assert_eq!(ends(&dataplane), []);
}

#[test]
fn what_another_has_is_left_out_of_a_commit_alone() {
    let pin = Pin::new();
    let dataplane = pin.open(SMALL);
    let now = dataplane.now_jiffies().unwrap();
    give(&dataplane, &[of_bob(3)], now);
    commit(&dataplane, &[spec(2, None)], now);
    let wanted = [spec(2, Some(5)), spec(3, None), spec(4, None)];
    let refused = dataplane.grants().rehearse(&wanted, &[3].into(), now);
    assert!(matches!(&refused, Err(Refused::Taken { user, .. }) if user == "bob"), "{refused:?}");
    assert_eq!(limit(&dataplane, 2, now), Some(None), "what is only asked changes nothing");
    let done = commit(&dataplane, &wanted, now);
    assert!(matches!(&done.refused[..], [Refused::Taken { user, .. }] if user == "bob"), "{done:?}");
    assert_eq!((done.ended.len(), done.given.len()), (1, 2), "{done:?}");
    assert_eq!((limit(&dataplane, 2, now), limit(&dataplane, 4, now)), (Some(Some(5)), Some(None)));
    assert_eq!(dataplane.grants().rehearse(&wanted[..1], &[3].into(), now), Ok(()));
    assert_eq!(
        dataplane.grants().rehearse(&wanted, &[].into(), now),
        Ok(()),
        "its service goes, and it with it"
    );
}

#[test]
fn a_renewal_that_is_taken_back_leaves_what_was_there() {
    let pin = Pin::new();
    let dataplane = pin.open(SMALL);
    let grants = dataplane.grants();
    let now = dataplane.now_jiffies().unwrap();
    let later = now + u64::from(dataplane.hz());
    commit(&dataplane, &[spec(1, Some(600))], now);
    let idle = |host| GrantSpec { idle_s: Some(50), ..spec(host, Some(700)) };
    give(&dataplane, &[idle(2)], now);
    let before = [1, 2].map(|host| grants.find(&spec(host, None).key, later).unwrap());
    let asked = [spec(1, Some(60)), spec(2, None), spec(2, Some(9)), spec(3, None)];
    let given = grants.give(&asked, later).unwrap().unwrap();
    grants.withdraw(&given);
    assert_eq!([1, 2].map(|host| grants.find(&spec(host, None).key, later).unwrap()), before);
    assert_eq!(grants.live(), 2);
    let done = commit(&dataplane, &[spec(1, Some(600))], later);
    assert!(done.given.is_empty() && done.ended.is_empty(), "it is the configuration's as before: {done:?}");
}

#[test]
fn what_the_configuration_gave_and_was_withdrawn_comes_again() {
    let pin = Pin::new();
    let dataplane = pin.open(SMALL);
    let now = dataplane.now_jiffies().unwrap();
    let wanted = [spec(1, None), spec(2, None)];
    for _ in 0..2 {
        let done = commit(&dataplane, &wanted, now);
        assert_eq!(done.given.len(), 2);
        dataplane.grants().withdraw(&done.handed);
        assert_eq!(dataplane.grants().live(), 0);
    }
}

/// A map's values, by number.
fn values(map: &MapHandle) -> Vec<Vec<u8>> {
    let value = |number: u32| map.lookup(&number.to_ne_bytes(), MapFlags::ANY).unwrap().unwrap();
    (0..map.max_entries()).map(value).collect()
}

fn pinned(pin: &Pin, name: &str) -> MapHandle {
    MapHandle::from_pinned_path(pin.path().join(name)).unwrap()
}

#[test]
fn a_process_that_dies_while_it_revokes_has_revoked() {
    let pin = Pin::new();
    let dataplane = pin.open(SMALL);
    let now = dataplane.now_jiffies().unwrap();
    let wanted = [spec(1, None), spec(2, None)];
    commit(&dataplane, &wanted, now);
    let number = (dataplane.grants().find(&wanted[0].key, now).unwrap().handle & 0xff).to_ne_bytes();
    drop(dataplane);
    let map = pinned(&pin, "grants");
    let mut record = map.lookup(&number, MapFlags::ANY).unwrap().unwrap();
    assert_eq!(record[offset_of!(Grant, ended)], GRANT_LIVE as u8);
    record[offset_of!(Grant, ended)] = GRANT_WAS_REVOKED as u8;
    map.update(&number, &record, MapFlags::ANY).unwrap();
    let dataplane = pin.open(SMALL);
    assert_eq!(dataplane.grants().live(), 1);
    assert_eq!(map.lookup(&number, MapFlags::ANY).unwrap().unwrap()[..4], [0; 4], "it holds no more");
    assert!(commit(&dataplane, &wanted, now).given.is_empty());
}

/// What looks like damage may be a change that the daemon is making.
#[test]
fn who_only_reads_writes_nothing() {
    let pin = Pin::new();
    let dataplane = pin.open(SMALL);
    let now = dataplane.now_jiffies().unwrap();
    let prefix = GrantKey { source: Ipv4Addr::new(198, 51, 100, 0).into(), length: 24, service: 3 };
    give(&dataplane, &[spec(1, None), spec(2, None), GrantSpec { key: prefix, ..spec(3, None) }], now);
    let maps = ["grants", "grant_users", "grant_lengths", "grant_index", "grant_sources"];
    for name in &maps[2..] {
        let map = pinned(&pin, name);
        for (number, value) in (0u32..).zip(values(&map)) {
            let odd: Vec<u8> = value.iter().map(|byte| byte ^ 0x41).collect();
            map.update(&number.to_ne_bytes(), &odd, MapFlags::ANY).unwrap();
        }
    }
    let before = maps.map(|name| values(&pinned(&pin, name)));
    let reader = Dataplane::read(pin.path(), SMALL).unwrap().unwrap();
    assert_eq!(reader.grants().list(now).len(), 3);
    for (name, before) in maps.iter().zip(before) {
        assert_eq!(values(&pinned(&pin, name)), before, "{name}");
    }
}
