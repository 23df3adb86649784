//! Bounds, ids and the unit table: what goldens cannot show.

use std::fmt::Write as _;

use sluice_abi::{MAX_UNITS, UNIT_TABLE_SLOTS, unit_slot};
use sluice_language::Config;

use crate::{Environment, Ids, NetDev, Plan, PlanError, compile};

fn config(text: &str) -> Config {
    sluice_language::compile(&sluice_language::parse(text, "test").unwrap()).unwrap()
}

/// Every interface of the configuration, and what its tagged units need.
fn environment(config: &Config) -> Environment {
    let mut environment = Environment::default();
    let mut add = |name: String| {
        let ifindex = environment.netdevs.len() as u32 + 1;
        let netdev = NetDev { ifindex, mac: [2; 6], mtu: 1500, driver: "veth".to_owned(), mtu_range: None };
        environment.netdevs.insert(name, netdev);
    };
    for interface in &config.interfaces {
        add(interface.name.clone());
        for unit in interface.units.iter().filter(|u| u.vlan_id.is_some()) {
            add(crate::device_of(interface, unit));
            add(crate::device_of(interface, unit) + "p");
        }
    }
    environment
}

fn plan(text: &str, ids: &mut Ids, generation: u32) -> Result<Plan, PlanError> {
    let config = config(text);
    compile(&config, &environment(&config), ids, generation)
}

const ZONES: &str = "
    set interfaces a0 unit 0 family inet address 10.0.1.1/24
    set interfaces b0 unit 0 family inet address 10.0.2.1/24
    set security zones security-zone a interfaces a0.0
    set security zones security-zone b interfaces b0.0
";

fn policies(count: usize, context: &str) -> String {
    let mut text = String::new();
    for n in 0..count {
        let policy = format!("set security policies {context} policy p{n}");
        for part in [
            "match source-address any",
            "match destination-address any",
            "match application any",
            "then permit",
        ] {
            writeln!(text, "{policy} {part}").unwrap();
        }
    }
    text
}

#[test]
fn sixty_four_policies_a_zone_pair_and_no_more() {
    let pair = "from-zone a to-zone b";
    let full = format!("{ZONES}{}{}", policies(60, pair), policies(4, "global"));
    let plan_ = plan(&full, &mut Ids::default(), 1).unwrap();
    // the pair's 64, and the four global ones that the other pairs share
    assert_eq!(plan_.tables.rules.len(), 68);
    let over = format!("{ZONES}{}{}", policies(61, pair), policies(4, "global"));
    let error = plan(&over, &mut Ids::default(), 1).unwrap_err();
    let (from, to) = ("a".to_owned(), "b".to_owned());
    assert_eq!(error, PlanError::TooManyRules { from, to, count: 65, global: 4 });
    assert!(error.to_string().contains("from-zone a to-zone b: 65 policies"), "{error}");
}

#[test]
fn a_failed_plan_takes_no_ids() {
    let mut ids = Ids::default();
    plan(ZONES, &mut ids, 1).unwrap();
    let before = ids.clone();
    let over = format!("{ZONES}{}", policies(65, "from-zone a to-zone b"));
    plan(&over, &mut ids, 2).unwrap_err();
    assert_eq!(ids, before);
}

#[test]
fn ids_survive_reordering_and_storage() {
    let mut ids = Ids::default();
    let first = plan(ZONES, &mut ids, 1).unwrap();
    let stored = serde_json::to_string(&ids).unwrap();
    let mut ids: Ids = serde_json::from_str(&stored).unwrap();
    let turned = "
        set interfaces c0 unit 0 family inet address 10.0.3.1/24
        set interfaces b0 unit 0 family inet address 10.0.2.1/24
        set security zones security-zone c interfaces c0.0
        set security zones security-zone b interfaces b0.0
    ";
    let second = plan(turned, &mut ids, 2).unwrap();
    let id = |plan: &Plan, zone: &str| *plan.zones.iter().find(|(_, name)| *name == zone).unwrap().0;
    assert_eq!(id(&first, "b"), id(&second, "b"));
    assert_ne!(id(&first, "a"), id(&second, "c"), "an id rests before it names another zone");
    assert!(!second.zones.contains_key(&u32::from(sluice_abi::ZONE_HOST)));
}

fn tagged(count: usize) -> String {
    let mut text = "set interfaces t0 vlan-tagging\n".to_owned();
    for vlan in 1..=count {
        writeln!(text, "set interfaces t0 unit {vlan} vlan-id {vlan}").unwrap();
        writeln!(
            text,
            "set interfaces t0 unit {vlan} family inet address 10.{}.{}.1/24",
            vlan / 256,
            vlan % 256
        )
        .unwrap();
        writeln!(text, "set security zones security-zone z interfaces t0.{vlan}").unwrap();
    }
    text
}

#[test]
fn units_have_slots_of_their_own() {
    for count in [1, 8, 64, MAX_UNITS - 1] {
        let plan = plan(&tagged(count), &mut Ids::default(), 1).unwrap();
        let tables = &plan.tables;
        assert_eq!(tables.units.len(), 2 * count);
        assert_eq!(tables.unit_multiplier & 1, 1);
        let mut taken = vec![false; UNIT_TABLE_SLOTS];
        for (slot, entry) in &tables.units {
            assert_eq!(*slot, unit_slot(entry.ifindex, entry.vlan, tables.unit_multiplier));
            assert!(!std::mem::replace(&mut taken[*slot], true), "two entries in slot {slot}");
        }
    }
}

#[test]
fn ids_at_rest_are_not_handed_out() {
    let zones = |letter: char| {
        (0..20).fold(String::new(), |mut text, n| {
            writeln!(text, "set interfaces i{n} unit 0 family inet address 10.0.{n}.1/24").unwrap();
            writeln!(text, "set security zones security-zone {letter}{n} interfaces i{n}.0").unwrap();
            text
        })
    };
    let mut ids = Ids::default();
    plan(&zones('a'), &mut ids, 1).unwrap();
    let error = plan(&zones('b'), &mut ids, 2).unwrap_err();
    assert_eq!(error, PlanError::NoIds { what: "zones", wanted: 20, free: 30, quarantined: 20 });
    plan("", &mut ids, 2).unwrap();
    plan("", &mut ids, 3).unwrap();
    assert_eq!(plan(&zones('b'), &mut ids, 4).unwrap().zones.len(), 20);
}

#[test]
fn tables_pass_the_data_planes_own_check() {
    plan(&tagged(3), &mut Ids::default(), 1).unwrap().tables.check().unwrap();
}

#[test]
fn a_policy_outside_its_schedule_keeps_its_id_and_has_no_rule() {
    let text = format!(
        "{ZONES}{}{}set security policies from-zone a to-zone b policy p0 scheduler-name noon\n\
         set security policies global policy p0 scheduler-name noon\n\
         set schedulers scheduler noon daily start-time 12:00 stop-time 13:00\n",
        policies(2, "from-zone a to-zone b"),
        policies(1, "global")
    );
    let mut config = config(&text);
    let environment = environment(&config);
    let mut ids = Ids::default();
    let mut at = |hour: i64, generation: u32| {
        config.set_time(hour * 3600);
        compile(&config, &environment, &mut ids, generation).unwrap()
    };
    let rules = |plan: &Plan, pair: (u16, u16)| {
        plan.tables.zone_pairs[sluice_abi::zone_pair_index(pair.0, pair.1)].count
    };
    let (noon, night) = (at(12, 1), at(23, 2));
    let zone = |name: &str| *noon.zones.iter().find(|(_, zone)| *zone == name).unwrap().0 as u16;
    let (own, other) = ((zone("a"), zone("b")), (zone("b"), zone("a")));
    assert_eq!((rules(&noon, own), rules(&noon, other)), (3, 1));
    assert_eq!((rules(&night, own), rules(&night, other)), (1, 0));
    let states = |plan: &Plan| plan.policies.iter().map(|(id, info)| (*id, info.active)).collect::<Vec<_>>();
    assert_eq!(states(&noon), [(1, true), (2, true), (3, true)]);
    assert_eq!(states(&night), [(1, false), (2, true), (3, false)]);
}
