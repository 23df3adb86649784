//! Pinned state that another program has made.

use crate::common;

use std::fs;
use std::net::IpAddr;

use common::{Netns, Pin, SMALL, activate, full_mask, run, tables, udp_frame};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};
use sluice_dataplane::abi::stages::Reason;
use sluice_dataplane::abi::{FlowMatch, GtpuFilters, GtpuRules};
use sluice_dataplane::prog_run::TcRun;
use sluice_dataplane::{
    Attachment, Dataplane, Error, FlowUsage, GrantKey, GrantSpec, GtpuSession, Hook, Peer, Sizes, Tables,
    Tunnel, Variant,
};
use sluice_libbpf::map::NewMap;

/// Has the state be one of a program that this one knows nothing of.
fn disown(pin: &Pin, state: &str) {
    let map = MapHandle::from_pinned_path(pin.path().join(state).join("identity")).unwrap();
    let mut value = map.lookup(&[0; 4], MapFlags::ANY).unwrap().unwrap();
    value[0] ^= 0xff;
    map.update(&[0; 4], &value, MapFlags::ANY).unwrap();
}

fn names(pin: &Pin) -> Vec<String> {
    let entries = fs::read_dir(pin.path()).unwrap();
    let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn grant(source: &str) -> GrantSpec {
    let source: IpAddr = source.parse().unwrap();
    let key = GrantKey { source, length: 32, service: 7 };
    GrantSpec { key, user: "alice".to_owned(), absolute_s: None, idle_s: None }
}

fn links(pin: &Pin) -> String {
    let path = pin.path().join("links").display().to_string();
    let files = run(&["ls", &path]);
    files.lines().map(|file| run(&["bpftool", "link", "show", "pinned", &format!("{path}/{file}")])).collect()
}

#[test]
fn the_old_state_is_in_force_until_links_lead_to_the_new_one() {
    let netns = Netns::enter();
    let ifindex = netns.veth("v0");
    let pin = Pin::new();
    let wanted = Attachment { ifindex, hook: Hook::Tc, variant: 0 };
    let epoch = {
        let first = pin.open(SMALL);
        activate(&first, &tables(ifindex), 1);
        first.attach(&wanted).unwrap();
        first.grants().give(&[grant("192.0.2.1")], first.now_jiffies().unwrap()).unwrap().unwrap();
        first.epoch()
    };
    disown(&pin, "");
    let before = names(&pin);

    // prepared, and never used: nothing of it remains
    let second = pin.open(SMALL);
    assert!(!second.is_new() && !second.has_generation());
    assert!(names(&pin).contains(&"state_1".to_owned()) && pin.path().join("programs_tc").exists());
    assert!(!pin.path().join("state_1/active").exists(), "it does not count yet");
    drop(second);
    assert_eq!(names(&pin), before);

    let third = pin.open(SMALL);
    activate(&third, &tables(ifindex), 2);
    third.attach(&wanted).unwrap();
    assert!(pin.path().join("state_1/active").exists(), "it counts");
    assert!(pin.path().join("programs_tc").exists(), "links may still lead to the old one");
    third.grace().unwrap();
    third.retire_idle().unwrap();
    assert_eq!(names(&pin), ["active", "links", "state_1"]);
    assert_eq!(third.epoch(), epoch.wrapping_add(1), "epochs count on");
    assert_eq!(third.grants().live(), 1);
    let attached = links(&pin);
    drop(third);

    let fourth = pin.open(SMALL);
    assert!(fourth.has_generation() && fourth.grants().live() == 1);
    activate(&fourth, &tables(ifindex), 3);
    fourth.attach(&wanted).unwrap();
    fourth.grace().unwrap();
    fourth.retire_idle().unwrap();
    assert_eq!(
        (names(&pin), links(&pin)),
        (vec!["active".into(), "links".into(), "state_1".into()], attached)
    );
}

#[test]
fn a_state_goes_only_when_no_device_needs_it() {
    let netns = Netns::enter();
    let (one, two) = (netns.veth("v0"), netns.veth("v1"));
    let pin = Pin::new();
    let wanted = [one, two].map(|ifindex| Attachment { ifindex, hook: Hook::Tc, variant: 0 });
    {
        let first = pin.open(SMALL);
        activate(&first, &tables(one), 1);
        wanted.iter().for_each(|wanted| first.attach(wanted).unwrap());
    }
    disown(&pin, "");
    let second = pin.open(SMALL);
    activate(&second, &tables(one), 2);
    second.attach(&wanted[0]).unwrap();
    second.grace().unwrap();
    second.retire_idle().unwrap();
    assert!(pin.path().join("programs_tc").exists(), "v1 still calls programs there");

    // who starts now finds both, and puts both away
    drop(second);
    disown(&pin, "state_1");
    let third = pin.open(SMALL);
    activate(&third, &tables(one), 3);
    wanted.iter().for_each(|wanted| third.attach(wanted).unwrap());
    third.grace().unwrap();
    third.retire_idle().unwrap();
    assert_eq!(names(&pin), ["active", "links", "state_2"]);
}

#[test]
fn what_cannot_be_carried_is_named_and_stays() {
    let pin = Pin::new();
    drop(pin.open(SMALL));
    let path = pin.path().join("watermarks");
    fs::remove_file(&path).unwrap();
    let other =
        NewMap { kind: MapType::Array, name: "watermarks", key_size: 4, value_size: 48, max_entries: 1 };
    let mut other = other.create_mmapable().unwrap();
    other.pin(&path).unwrap();
    disown(&pin, "");
    let before = names(&pin);
    let error = Dataplane::open(pin.path(), SMALL).unwrap_err();
    assert!(matches!(&error, Error::Uncarried { map, .. } if map == "watermarks"), "{error}");
    let text = error.to_string();
    assert!(text.contains("48 bytes") && text.contains("sluice cleanup"), "{text}");
    assert_eq!(names(&pin), before);
}

/// Counters are for as many units as there were when they were made; who starts with more makes more, and keeps all else.
#[test]
fn more_units_get_more_counters() {
    let netns = Netns::enter();
    let ifindex = netns.veth("v0");
    let pin = Pin::new();
    let wanted = Attachment { ifindex, hook: Hook::Tc, variant: 0 };
    let mut many = tables(ifindex);
    many.units[0].1.index = 600;
    let mut stray = udp_frame();
    stray[5] = 0x77;
    {
        let first = pin.open(SMALL);
        activate(&first, &tables(ifindex), 1);
        first.attach(&wanted).unwrap();
        first.run_tc_root(0, &TcRun { repeat: 7, ..TcRun::new(&stray, ifindex) }).unwrap();
        first.grants().give(&[grant("192.0.2.1")], first.now_jiffies().unwrap()).unwrap().unwrap();
        assert_eq!(first.counters().unwrap().unit_drops(1).of(Reason::OtherHost), 7);
        let error = first.load(&many, &[Variant::new(full_mask())], 2).unwrap_err();
        assert!(matches!(error, Error::NoCounters { what: "units", highest: 600, room: 256 }), "{error}");
        assert!(error.to_string().contains("start the daemon again"), "{error}");
    }
    let second = pin.open(SMALL.with_room(601, 40));
    assert_eq!((second.sizes().units, second.sizes().zones), (2048, 128));
    activate(&second, &many, 2);
    second.attach(&wanted).unwrap();
    second.grace().unwrap();
    second.retire_idle().unwrap();
    assert_eq!(second.grants().live(), 1);
    let unit = |index| second.counters().unwrap().unit_drops(index).of(Reason::OtherHost);
    assert_eq!((unit(1), unit(600)), (7, 0), "what was counted is carried over");
    second.run_tc_root(0, &TcRun { repeat: 3, ..TcRun::new(&stray, ifindex) }).unwrap();
    assert_eq!((unit(1), unit(600)), (7, 3));
    drop(second);
    let third = pin.open(SMALL);
    assert_eq!(third.sizes().units, 2048, "they are not made less");
    assert!(third.has_generation());
}

/// Versions from before there were extensions have no such map; others may have made no room yet.
#[test]
fn room_for_extensions_is_made_in_the_new_state() {
    let netns = Netns::enter();
    let ifindex = netns.veth("v0");
    let wanted = Attachment { ifindex, hook: Hook::Tc, variant: 0 };
    let extended = Sizes { extended: true, ..SMALL };
    let all = SMALL.sessions4 + SMALL.sessions6 + 1;
    for known in [false, true] {
        let pin = Pin::new();
        let entries = |state: &str| {
            let path = pin.path().join(state).join("flow_extensions");
            path.exists().then(|| MapHandle::from_pinned_path(path).unwrap().max_entries())
        };
        let id = |state: &str, name: &str| {
            MapHandle::from_pinned_path(pin.path().join(state).join(name)).unwrap().info().unwrap().info.id
        };
        let first = pin.open(SMALL);
        activate(&first, &tables(ifindex), 1);
        first.attach(&wanted).unwrap();
        drop(first);
        assert_eq!(entries(""), Some(1));
        if !known {
            fs::remove_file(pin.path().join("flow_extensions")).unwrap();
        }
        disown(&pin, "");
        let before = entries("");
        let second = pin.open(extended);
        assert_eq!((entries(""), entries("state_1")), (before, Some(all)));
        assert_eq!(id("", "lines4"), id("state_1", "lines4"), "sessions stay where they are");
        activate(&second, &tables(ifindex), 2);
        second.attach(&wanted).unwrap();
        second.grace().unwrap();
        second.retire_idle().unwrap();
        drop(second);
        // whoever has them keeps them, without a word
        let (map, third) = (id("state_1", "flow_extensions"), pin.open(SMALL));
        let memory = third.memory().unwrap();
        let told = memory.iter().find(|map| map.name == "flow_extensions").unwrap();
        assert_eq!((told.entries, id("state_1", "flow_extensions")), (all, map));
        // and so does the next version
        drop(third);
        disown(&pin, "state_1");
        let fourth = pin.open(SMALL);
        assert_eq!(id("state_2", "flow_extensions"), map);
        drop(fourth);
    }
}

/// Sessions of the user plane are the next version's as they were, and their room stays what it is.
#[test]
fn sessions_of_the_user_plane_go_on_in_the_new_state() {
    user_plane_goes_on(SMALL, 4096);
}

/// A version that had as many places for addresses as for TEIDs: a key stands where that many places put it.
#[test]
fn sessions_of_a_version_with_fewer_places_are_found() {
    user_plane_goes_on(Sizes { gtpu_slots: 2048, gtpu_downlink_slots: 2048, ..SMALL }, 2048);
}

fn user_plane_goes_on(sizes: Sizes, downlink_slots: u32) {
    let netns = Netns::enter();
    let ifindex = netns.veth("v0");
    let pin = Pin::new();
    let wanted = |sessions: u32| Tables { gtpu_sessions: sessions, gtpu_flows: true, ..tables(ifindex) };
    let flow = |port| {
        let asked = FlowMatch { remote_ports: vec![(port, port)], ..FlowMatch::default() };
        (asked, GtpuRules { qfi: port as u8, ..Default::default() })
    };
    let filters = GtpuFilters::new(&[flow(53), flow(5)]).unwrap();
    let first = pin.open(sizes);
    assert_eq!(matches!(first.gtpu(), Err(Error::NoTunnels)), sizes.gtpu_slots == 0);
    activate(&first, &wanted(1000), 1);
    let peer = Peer { local: [192, 0, 2, 1].into(), remote: [192, 0, 2, 2].into(), ifindex };
    let numbers = first.gtpu().unwrap().keep_filters([&*filters]).unwrap();
    let session = GtpuSession {
        teid: 7,
        address: Some([10, 45, 0, 2].into()),
        prefix: None,
        tunnel: Tunnel { peer, teid: 9 },
        rules: GtpuRules { qfi: 9, ifindex, filters: numbers[0], ..Default::default() },
        quota: [None, Some(1000)],
    };
    let number = first.gtpu().unwrap().add(&session).unwrap();
    assert_eq!(first.gtpu().unwrap().get(number).unwrap().flows.len(), 2);
    // as if a packet of the second flow had passed: its state is the second one of all
    let states = MapHandle::from_pinned_path(pin.path().join("gtpu_flows")).unwrap();
    let passed = [0u64, 0, 70, 0].map(u64::to_ne_bytes).concat();
    states.update(&1u32.to_ne_bytes(), &passed, MapFlags::ANY).unwrap();
    drop(first);
    disown(&pin, "");
    let second = pin.open(SMALL);
    let gtpu = second.gtpu().unwrap();
    assert_eq!((gtpu.get(number).unwrap().session, gtpu.len(), gtpu.capacity()), (session, 1, 1024));
    let bytes = |flow: &FlowUsage| flow.bytes;
    let flows: Vec<_> = gtpu.get(number).unwrap().flows.iter().map(bytes).collect();
    assert_eq!(flows, [[0, 0], [70, 0]]);
    assert_eq!(gtpu.find_address([10, 45, 0, 2].into()), Some(number));
    assert_eq!(second.sizes().gtpu_downlink_slots, downlink_slots);
    // the filters are what they were, so they keep their number
    assert_eq!(gtpu.keep_filters([&*filters]).unwrap(), numbers);
    activate(&second, &wanted(1024), 2);
    let refused = second.load(&wanted(1025), &[Variant::new(0)], 3);
    assert!(matches!(refused, Err(Error::TunnelRoom { wanted: 1025, room: 1024 })));
    assert_eq!(second.remove_gtpu(&[number, 99]).unwrap().len(), 1);
    assert!(second.gtpu().unwrap().is_empty());
}
