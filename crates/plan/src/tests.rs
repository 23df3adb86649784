//! Bounds, ids and the unit table: what goldens cannot show.

use std::fmt::Write as _;

use sluice_abi::{LEAVES_BY_KERNEL, UNIT_CROWDED, UNIT_HOST_SIDE, UNIT_TABLE_SLOTS, VLAN_GENERIC};
use sluice_language::Config;

use crate::{Environment, Ids, NetDev, Plan, PlanError, Sender, compile};

pub(crate) fn config(text: &str) -> Config {
    sluice_language::compile(&sluice_language::parse(text, "test").unwrap()).unwrap()
}

/// Every interface of the configuration, and what its tagged units need.
pub(crate) fn environment(config: &Config) -> Environment {
    let mut environment = Environment::default();
    let mut add = |name: String| {
        let ifindex = environment.netdevs.len() as u32 + 1;
        let netdev = NetDev {
            ifindex,
            mac: [2; 6],
            mtu: 1500,
            driver: "veth".to_owned(),
            mtu_range: None,
            ..Default::default()
        };
        environment.netdevs.insert(name, netdev);
    };
    for interface in &config.interfaces {
        add(interface.name.clone());
        for unit in interface.units.iter().filter(|unit| crate::is_pair(interface, unit)) {
            let device = crate::device_of(interface, unit);
            add(crate::far_end(interface, &device));
            add(device);
        }
    }
    environment
}

pub(crate) fn plan(text: &str, ids: &mut Ids, generation: u32) -> Result<Plan, PlanError> {
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

/// A configuration with that many policies between two zones.
fn crowded(count: usize) -> Config {
    let mut config = config(&format!("{ZONES}{}", policies(1, "from-zone a to-zone b")));
    let policies = &mut config.policies[0].policies;
    let first = policies[0].clone();
    *policies = (0..count)
        .map(|n| sluice_language::config::Policy { name: format!("p{n}"), ..first.clone() })
        .collect();
    config
}

#[test]
fn the_rule_table_has_a_bound() {
    let full = crowded(sluice_abi::MAX_RULES - 1);
    let plan = compile(&full, &environment(&full), &mut Ids::default(), 1).unwrap();
    plan.tables.check().unwrap();
    assert!(plan.tables.rows.len() < 1000, "rules that want the same share their rows");
}

#[test]
fn a_failed_plan_takes_no_ids() {
    let mut ids = Ids::default();
    plan(ZONES, &mut ids, 1).unwrap();
    let before = ids.clone();
    let over = crowded(sluice_abi::MAX_RULES);
    let error = compile(&over, &environment(&over), &mut ids, 2).unwrap_err();
    assert!(matches!(error, PlanError::NoIds { what: "policies", .. }), "{error:?}");
    assert_eq!(ids, before);
}

#[test]
fn global_policies_are_one_context_for_all_pairs_they_treat_alike() {
    let limited = "set security policies global policy p0 match from-zone a\n";
    let text = format!("{ZONES}{}{limited}", policies(2, "global"));
    let plan = plan(&text, &mut Ids::default(), 1).unwrap();
    let (a, b) = (zone(&plan, "a"), zone(&plan, "b"));
    let context = |from, to| plan.tables.zone_pairs[sluice_abi::zone_pair_index(from, to)].global;
    assert_eq!((context(a, a), context(b, a)), (context(a, b), context(b, b)));
    let rules = |number: u16| plan.tables.contexts[usize::from(number)].rules;
    assert_eq!((rules(context(a, b)), rules(context(b, a))), (2, 1));
    assert_eq!(plan.tables.rules.len(), 3);
}

fn zone(plan: &Plan, name: &str) -> u16 {
    *plan.zones.iter().find(|(_, zone)| *zone == name).unwrap().0 as u16
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

/// Every entry is found, in as many steps as the data plane takes; what is no unit is not.
#[test]
fn units_are_found_where_they_stand() {
    for count in [1, 8, 64, 255, 1000, 4094] {
        let plan = plan(&tagged(count), &mut Ids::default(), 1).unwrap();
        let tables = &plan.tables;
        assert_eq!(tables.units.len(), 2 * count);
        assert_eq!(tables.unit_multiplier & 1, 1);
        let crowded = tables.units.iter().filter(|(_, entry)| entry.flags & UNIT_CROWDED != 0).count();
        assert!(count > 255 || crowded == 0, "{crowded} of {count} entries");
        assert!(crowded <= count / 2, "{crowded} of {count} entries");
        let slots: std::collections::BTreeSet<usize> = tables.units.iter().map(|(slot, _)| *slot).collect();
        assert_eq!(slots.len(), 2 * count, "each has a slot of its own");
        assert!(slots.last().unwrap() < &UNIT_TABLE_SLOTS.min(64 * (count + 8)), "memory follows the count");
        for (_, entry) in &tables.units {
            let vlan = if entry.flags & UNIT_HOST_SIDE == 0 { entry.vlan } else { 0 };
            assert_eq!(crate::units::find(tables, entry.ifindex, vlan), Some(*entry));
        }
        assert_eq!(crate::units::find(tables, 1, 4095), None);
    }
}

/// Source NAT of many units takes as much memory as there are kinds of them.
#[test]
fn units_that_rules_treat_alike_share_their_contexts() {
    let mut text = tagged(1000);
    text += "set interfaces out unit 0 family inet address 198.51.100.1/24\n\
             set security zones security-zone wan interfaces out.0\n\
             set security nat source rule-set all from zone z\n\
             set security nat source rule-set all to zone wan\n\
             set security nat source rule-set all rule r match source-address 0.0.0.0/0\n\
             set security nat source rule-set all rule r then source-nat interface\n\
             set security nat source rule-set one from interface t0.7\n\
             set security nat source rule-set one to zone wan\n\
             set security nat source rule-set one rule r match source-address 0.0.0.0/0\n\
             set security nat source rule-set one rule r then source-nat off\n";
    let plan = plan(&text, &mut Ids::default(), 1).unwrap();
    let nat = &plan.tables.nat;
    assert_eq!(nat.sources.len(), 1);
    let index = |name: &str| plan.units.iter().find(|unit| unit.name == name).unwrap().index as usize;
    let context = |from, to| nat.source_context(index(from), index(to));
    let (all, one) = (context("t0.1", "out.0"), context("t0.7", "out.0"));
    assert!(all != 0 && one != 0 && all != one);
    assert_eq!(context("t0.1000", "out.0"), all);
    assert_eq!((context("out.0", "t0.1"), context("t0.1", "t0.2"), context("t0.7", "t0.1")), (0, 0, 0));
}

#[test]
fn there_is_a_pair_for_each_zone_of_254() {
    let mut text = String::new();
    for n in 0..254 {
        writeln!(text, "set interfaces i{n} unit 0 family inet address 10.0.{n}.1/24").unwrap();
        writeln!(text, "set security zones security-zone z{n} interfaces i{n}.0").unwrap();
    }
    text += "set security policies from-zone z0 to-zone z253 policy p match source-address any\n\
             set security policies from-zone z0 to-zone z253 policy p match destination-address any\n\
             set security policies from-zone z0 to-zone z253 policy p match application any\n\
             set security policies from-zone z0 to-zone z253 policy p then permit\n";
    let plan = plan(&text, &mut Ids::default(), 1).unwrap();
    let id = |name: &str| *plan.zones.iter().find(|(_, zone)| *zone == name).unwrap().0 as u16;
    let own = |from, to| plan.tables.zone_pairs[sluice_abi::zone_pair_index(id(from), id(to))].context;
    assert!(own("z0", "z253") != 0);
    assert_eq!((own("z253", "z0"), own("z0", "z252")), (0, 0));
    assert_eq!(plan.tables.zone_pairs.len(), 256 * 256);
}

#[test]
fn what_was_committed_before_refuses_nothing() {
    let zones = |letter: char| {
        (0..200).fold(String::new(), |mut text, n| {
            writeln!(text, "set interfaces i{n} unit 0 family inet address 10.0.{n}.1/24").unwrap();
            writeln!(text, "set security zones security-zone {letter}{n} interfaces i{n}.0").unwrap();
            text
        })
    };
    let mut ids = Ids::default();
    plan(&zones('a'), &mut ids, 1).unwrap();
    for (letter, generation) in [('b', 2), ('c', 3), ('d', 4)] {
        assert_eq!(plan(&zones(letter), &mut ids, generation).unwrap().zones.len(), 200, "all renamed");
    }
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
        let pair = plan.tables.zone_pairs[sluice_abi::zone_pair_index(pair.0, pair.1)];
        let rules = |context: u16| plan.tables.contexts[usize::from(context)].rules;
        rules(pair.context) + rules(pair.global)
    };
    let (noon, night) = (at(12, 1), at(23, 2));
    let (a, b) = (zone(&noon, "a"), zone(&noon, "b"));
    let (own, other) = ((a, b), (b, a));
    assert_eq!((rules(&noon, own), rules(&noon, other)), (3, 1));
    assert_eq!((rules(&night, own), rules(&night, other)), (1, 0));
    let states = |plan: &Plan| plan.policies.iter().map(|(id, info)| (*id, info.active)).collect::<Vec<_>>();
    assert_eq!(states(&noon), [(1, true), (2, true), (3, true)]);
    assert_eq!(states(&night), [(1, false), (2, true), (3, false)]);
}

#[test]
fn too_many_sets_of_stages_become_fewer_larger_ones() {
    let masks = |list: &[u32]| list.iter().copied().collect::<std::collections::BTreeSet<_>>();
    assert_eq!(super::merge_masks(masks(&[0b001, 0b010]), 3), masks(&[0b001, 0b010]));
    assert_eq!(super::merge_masks(masks(&[0b0001, 0b0011, 0b1100, 0b1000]), 2), masks(&[0b0011, 0b1100]));
    assert_eq!(super::smallest_superset(&[0b0000, 0b1111, 0b0011], 0b0001), 2);
    assert_eq!(super::smallest_superset(&[0b0000, 0b1111, 0b0011], 0b0000), 0);
}

/// A device that has refused native XDP can be no redirect's target either, so all that may choose take tc; what is asked for
/// stays.
#[test]
fn auto_takes_tc_where_native_xdp_was_refused() {
    let text = format!(
        "{ZONES}set interfaces c0 mode xdp\nset interfaces c0 unit 0 family inet address 10.0.3.1/24\nset security zones security-zone b interfaces c0.0\n"
    );
    let config = config(&text);
    let mut environment = environment(&config);
    environment.netdevs.values_mut().for_each(|netdev| netdev.driver = "ena".to_owned());
    let hooks = |environment: &Environment| {
        let plan = compile(&config, environment, &mut Ids::default(), 1).unwrap();
        let hooks: Vec<&str> = plan.attachments.iter().map(|a| a.ingress.unwrap().name()).collect();
        (hooks, plan.remarks().map(str::to_owned).collect::<Vec<_>>().join("\n"))
    };
    assert_eq!(hooks(&environment), (vec!["xdp-native"; 3], String::new()));
    let why = "the current MTU is larger than the maximum allowed MTU";
    environment.netdevs.get_mut("b0").unwrap().xdp_refused = Some(why.to_owned());
    let (hooks, remarks) = hooks(&environment);
    assert_eq!(hooks, ["tc", "tc", "xdp-native"]);
    assert!(remarks.contains("interface b0: mode auto takes tc") && remarks.contains(why), "{remarks}");
}

/// Tunnels take XDP on veth where it loses nothing; what stands against it is said.
#[test]
fn units_with_tunnels_take_xdp_on_veth_too() {
    let text = format!(
        "{ZONES}set interfaces mif unit 0 family inet mtu 1400\nset security zones security-zone c interfaces mif.0\n\
         set services gtp-u interface a0.0 role n3\n\
         set services gtp-u pool p prefix 10.45.0.0/16\nset services gtp-u pool p mobile-interface mif.0\n"
    );
    let config = config(&text);
    let mut environment = environment(&config);
    let whole = Sender { checksums_left: false, tags_beside: false };
    environment.netdevs.get_mut("a0").unwrap().sender = Some(whole);
    environment.netdevs.values_mut().for_each(|netdev| netdev.takes_redirected = true);
    let hook = |change: &dyn Fn(&mut Environment)| {
        let mut environment = environment.clone();
        change(&mut environment);
        let plan = compile(&config, &environment, &mut Ids::default(), 1).unwrap();
        let of = |name: &str| plan.attachments.iter().find(|a| a.device == name).unwrap().ingress.unwrap();
        assert_eq!(of("b0").name(), "tc");
        // only messages of tunnels may not come joined
        let told: Vec<&str> = plan.remarks().filter(|text| text.contains("gtpu_gso")).collect();
        assert_eq!(told.len(), usize::from(of("a0").name() == "tc"), "{told:?}");
        assert!(told.iter().all(|text| text.contains("interface a0:")), "{told:?}");
        (of("a0").name(), plan.remarks().filter(|text| text.contains("XDP")).collect::<Vec<_>>().join("\n"))
    };
    fn a0(environment: &mut Environment) -> &mut NetDev {
        environment.netdevs.get_mut("a0").unwrap()
    }
    assert_eq!(hook(&|_| ()), ("xdp-native", String::new()));
    let left = Sender { checksums_left: true, ..whole };
    type Change<'a> = &'a dyn Fn(&mut Environment);
    let against: [(Change<'_>, &str); 4] = [
        (&|e| a0(e).sender = None, "cannot be seen"),
        (&|e| a0(e).sender = Some(left), "ethtool -K DEVICE tx off"),
        (
            &|e| e.netdevs.get_mut("b0").unwrap().takes_redirected = false,
            "b0 takes no frames that XDP redirects",
        ),
        (&|e| a0(e).xdp_refused = Some("no room".to_owned()), "native XDP was refused: no room"),
    ];
    for (change, why) in against {
        let (hook, remarks) = hook(change);
        assert!(hook == "tc" && remarks.contains(why), "{hook} {remarks}");
    }
}

/// A device of a driver that takes no redirected frames is sent to by the kernel, but not from generic XDP, which reaches all.
#[test]
fn what_xdp_cannot_reach_leaves_by_the_kernel() {
    let text = format!(
        "{ZONES}set interfaces a0 mode xdp\nset interfaces b0 mode generic\nset interfaces c0 mode tc\n\
         set interfaces c0 unit 0 family inet address 10.0.3.1/24\nset security zones security-zone b interfaces c0.0\n"
    );
    let entries = |text: &str, driver: &str, takes: bool| {
        let config = config(text);
        let mut environment = environment(&config);
        for name in ["a0", "b0", "c0"] {
            let netdev = environment.netdevs.get_mut(name).unwrap();
            netdev.driver = if name == "a0" { "virtio_net" } else { driver }.to_owned();
            netdev.takes_redirected = takes;
        }
        let index = |name: &str| environment.netdevs[name].ifindex;
        let plan = compile(&config, &environment, &mut Ids::default(), 1).unwrap();
        let find = |ifindex: u32, vlan: u32| {
            let mut units = plan.tables.units.iter().map(|(_, unit)| unit);
            units.find(|unit| (unit.ifindex, unit.vlan) == (ifindex, vlan)).copied()
        };
        let by_kernel = ["a0", "b0", "c0"]
            .map(|name| find(index(name), 0).unwrap().phys_ifindex == index(name) | LEAVES_BY_KERNEL);
        (by_kernel, ["a0", "b0", "c0"].map(|name| find(index(name), VLAN_GENERIC).is_some()))
    };
    let without = ([false; 3], [false; 3]);
    let with = ([false, true, true], [false, true, false]);
    assert_eq!(entries(&text, "e1000e", false), with);
    assert_eq!(entries(&text, "macvlan", true), without);
    // a driver that takes them only behind a program of its own
    assert_eq!(entries(&text, "mlx5_core", true), with);
    // its other end is told to poll
    assert_eq!(entries(&text, "veth", false), without);
    // nothing is redirected by native XDP
    assert_eq!(entries(&text.replace("mode xdp", "mode tc"), "e1000e", false), without);
}
