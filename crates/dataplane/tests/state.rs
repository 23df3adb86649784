//! Pinned state: created, found again, refused.

use crate::common;

use std::fs;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use common::{OPTIONAL, Pin, SMALL, activate, full_mask, tables};
use sluice_dataplane::abi::maps::StateMap;
use sluice_dataplane::abi::stages::Stage;
use sluice_dataplane::abi::tables::Table;
use sluice_dataplane::abi::{NAT_PERSISTENT_TARGET_HOST, NatPool};
use sluice_dataplane::{Dataplane, Error, Hooks, LocalKind, ObjectKind, Program, Sizes, Variant};

const MOST_INSTRUCTIONS: u32 = 200_000;
const MOST_FAST_BYTES: u32 = 16 << 10;

#[test]
fn state_outlives_the_process_that_made_it() {
    let pin = Pin::new();
    let address: IpAddr = "192.0.2.1".parse().unwrap();
    let (slot, epoch) = {
        let first = pin.open(SMALL);
        assert!(first.is_new() && !first.has_generation());
        first.add_local_address(7, address, LocalKind::Address).unwrap();
        activate(&first, &tables(1), 1);
        (first.active_slot(), first.epoch())
    };
    let second = pin.open(SMALL);
    assert!(!second.is_new() && second.has_generation());
    assert_eq!((second.active_slot(), second.epoch()), (slot, epoch));
    assert_eq!(second.local_addresses(), [(7, address)]);
}

#[test]
fn other_sizes_are_refused() {
    let pin = Pin::new();
    drop(pin.open(SMALL));
    let error = Dataplane::open(pin.path(), Sizes { sessions4: 128, ..SMALL }).unwrap_err();
    assert!(matches!(&error, Error::Incompatible { found: 64, wanted: 128, .. }), "{error}");
    assert!(error.to_string().contains("sluice cleanup"), "{error}");
    assert!(matches!(Dataplane::open(pin.path(), Sizes { sessions4: 0, ..SMALL }), Err(Error::Sizes { .. })));
}

#[test]
fn half_made_state_is_made_anew() {
    let pin = Pin::new();
    drop(pin.open(SMALL));
    fs::remove_file(pin.path().join("active")).unwrap();
    let again = pin.open(Sizes { sessions4: 128, ..SMALL });
    assert!(again.is_new());
}

#[test]
fn missing_pins_are_named() {
    let pin = Pin::new();
    drop(pin.open(SMALL));
    fs::remove_file(pin.path().join("lines4")).unwrap();
    let error = Dataplane::open(pin.path(), SMALL).unwrap_err().to_string();
    assert!(error.contains("lines4") && error.contains("sluice cleanup"), "{error}");
}

#[test]
fn pins_need_a_bpf_file_system() {
    let error = Dataplane::open(std::path::Path::new("/tmp/sluice-no-bpffs"), SMALL).unwrap_err();
    assert!(matches!(error, Error::NotBpffs { .. }), "{error}");
}

/// All of the optional stages, none, each by itself and all but each; `make soak` loads every combination.
#[test]
fn every_variant_loads_within_the_limits() {
    let pin = Pin::new();
    let dataplane = pin.open(SMALL);
    let all = OPTIONAL.len() as u32;
    let is_tried = |choice: &u32| {
        [0, 1, all - 1, all].contains(&choice.count_ones()) || std::env::var_os("SLUICE_SOAK").is_some()
    };
    let combinations: Vec<u32> = (0..1u32 << all)
        .filter(is_tried)
        .map(|choice| {
            let off = (0..OPTIONAL.len()).filter(|bit| choice >> bit & 1 != 0).map(|bit| OPTIONAL[bit].bit());
            full_mask() & !off.sum::<u32>()
        })
        .collect();
    for masks in combinations.chunks(4) {
        let variant =
            |mask: &u32| Variant { hooks: Hooks { xdp: true, tc: true, cpu: true }, ..Variant::new(*mask) };
        let variants: Vec<Variant> = masks.iter().map(variant).collect();
        // persistent-nat is no stage of its own, but code that the verifier leaves out where no pool has it
        let mut tables = tables(1);
        tables.nat.pools = vec![NatPool { persistent: NAT_PERSISTENT_TARGET_HOST, ..Default::default() }];
        let generation = dataplane.load(&tables, &variants, 1).unwrap();
        let programs = generation.programs().unwrap();
        // on XDP, on tc, and behind a CPUMAP where packets in tunnels are spread
        let of = |mask: &u32| {
            let both = Program::ALL.iter().filter(|p| !p.is_tc_only() && p.needs().bit() & mask != 0);
            both.count() * if mask & Stage::Gtpu.bit() != 0 { 3 } else { 2 }
        };
        assert_eq!(programs.len(), masks.iter().map(of).sum::<usize>() + 1);
        for program in programs {
            let size = (program.verified_instructions, program.jited_bytes);
            println!("{:<12} {:>7} verified {:>6} bytes", program.name, size.0, size.1);
            assert!(size.0 <= MOST_INSTRUCTIONS, "{program:?}");
            assert!(!program.name.ends_with("_fast") || size.1 <= MOST_FAST_BYTES, "{program:?}");
        }
    }
}

#[test]
fn memory_is_accounted_for_map_by_map() {
    let pin = Pin::new();
    let dataplane = pin.open(SMALL);
    let filled = tables(1);
    let generation = activate(&dataplane, &filled, 1);
    let account = dataplane.memory().unwrap();
    for map in StateMap::pinned() {
        let Some(row) = account.iter().find(|row| row.name == map.name()) else {
            panic!("{} has no row", map.name())
        };
        assert!(row.bytes > 0 && row.entries > 0, "{row:?}");
    }
    let bytes = |name: &str| account.iter().find(|row| row.name == name).unwrap().bytes;
    // 128 lines of 64 bytes and two more
    assert!((130 * 64..130 * 64 + 8192).contains(&bytes("lines4")), "{}", bytes("lines4"));
    // a slot's memory is what its tables take, or the least there is
    assert!(bytes("tables_0") >= 1 << 20 && bytes("tables_1") < (1 << 20) + 8192);
    let tables = generation.tables_account();
    let of = |wanted: Table| tables.iter().find(|(table, _, _)| *table == wanted).copied().unwrap();
    let (_, places, bytes) = of(Table::Units);
    assert!(places > filled.units[0].0 && bytes == places * 64, "{places} places, {bytes} bytes");
    assert_eq!(of(Table::ZonePairs), (Table::ZonePairs, 16, 128));
    assert_eq!(of(Table::NatSources), (Table::NatSources, 0, 0));
}

/// A map that is declared elsewhere would be pinned nowhere and accounted for nowhere.
#[test]
fn every_pin_is_on_the_list() {
    let pin = Pin::new();
    drop(pin.open(SMALL));
    let mut others = vec![];
    for entry in fs::read_dir(pin.path()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if !StateMap::pinned().any(|map| map.name() == name) {
            others.push(name);
        }
    }
    others.sort_unstable();
    let known = [
        "active",
        "generation_0",
        "generation_1",
        "links",
        "loaded",
        "programs_cpu",
        "programs_tc",
        "programs_xdp",
    ];
    let known: Vec<&str> = known.into_iter().chain(["spread_cpus", "tables_0", "tables_1"]).collect();
    assert_eq!(others, known);
}

#[test]
fn four_variants_fill_the_slot() {
    let pin = Pin::new();
    let dataplane = pin.open(SMALL);
    let variants = [Variant::new(full_mask()); 4];
    let generation = dataplane.load(&tables(1), &variants, 1).unwrap();
    dataplane.switch(&generation);
    assert!(generation.program(ObjectKind::Xdp, 3, Program::Admit).is_some());
    assert!(generation.program(ObjectKind::Tc, 1, Program::Egress).is_none());
    let error = dataplane.load(&tables(1), &[variants[0]; 5], 2).unwrap_err();
    assert!(matches!(error, Error::Variants { count: 5, limit: 4 }), "{error}");
    assert!(dataplane.has_generation());
}

#[test]
fn clock_runs_at_hz() {
    let pin = Pin::new();
    let dataplane = pin.open(SMALL);
    let begin = (Instant::now(), dataplane.now_jiffies().unwrap());
    std::thread::sleep(Duration::from_millis(200));
    let ticks = dataplane.now_jiffies().unwrap() - begin.1;
    let expected = begin.0.elapsed().as_secs_f64() * f64::from(dataplane.hz());
    assert!((ticks as f64 - expected).abs() <= 3.0, "{ticks} ticks, {expected} expected");
}

#[test]
fn grace_takes_a_while_and_cleanup_leaves_nothing() {
    let pin = Pin::new();
    let dataplane = pin.open(SMALL);
    dataplane.grace().unwrap();
    dataplane.grace().unwrap();
    sluice_dataplane::cleanup(pin.path()).unwrap();
    assert!(!pin.path().exists());
    sluice_dataplane::cleanup(pin.path()).unwrap();
}
