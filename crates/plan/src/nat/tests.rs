//! What the tables answer, and what goldens cannot show.

use std::net::IpAddr;

use sluice_abi as abi;

use crate::classifier::{Lookup, Subject};
use crate::nat::{Question, Translation, translate};
use crate::tests::{environment, plan};
use crate::{Ids, Plan, compile};

const BASE: &str = "
    set interfaces a0 unit 0 family inet address 10.0.1.1/24
    set interfaces a0 unit 0 family inet6 address fd00:1::1/64
    set interfaces b0 unit 0 family inet address 203.0.113.1/24
    set interfaces c0 unit 0 family inet address 10.0.3.1/24
    set security zones security-zone in interfaces a0.0
    set security zones security-zone in interfaces c0.0
    set security zones security-zone out interfaces b0.0
    set security nat proxy-arp interface b0.0 address 203.0.113.8/29
";

fn of(text: &str) -> Plan {
    plan(&format!("{BASE}{text}"), &mut Ids::default(), 1).unwrap()
}

fn subject(from: &str, to: &str, destination_port: u16) -> Subject {
    Subject {
        source: from.parse().unwrap(),
        destination: to.parse().unwrap(),
        protocol: 6,
        source_port: 40000,
        destination_port,
        icmp_type: 0,
        icmp_code: 0,
    }
}

fn ask(plan: &Plan, units: (&str, &str), subject: Subject) -> Translation {
    let tables = &plan.tables;
    let lookup = Lookup {
        classes: &|line| tables.classes[line as usize],
        rows: &|line| tables.rows[line as usize],
        context: &|number| tables.contexts[number as usize],
    };
    let unit = |name: &str| plan.units.iter().find(|unit| unit.name == name).unwrap().index;
    let question = Question { subject, ingress: unit(units.0), egress: Some(unit(units.1)) };
    translate(&lookup, &tables.nat, &question)
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn destinations_change_before_the_source_is_looked_at() {
    let plan = of("
        set security nat destination pool web address 10.0.3.80/32 port 8080
        set security nat destination rule-set d from zone [ in out ]
        set security nat destination rule-set d rule web match destination-address 203.0.113.10
        set security nat destination rule-set d rule web match destination-port 80
        set security nat destination rule-set d rule web then destination-nat pool web
        set security nat source rule-set hairpin from zone in
        set security nat source rule-set hairpin to zone in
        set security nat source rule-set hairpin rule r match source-address 10.0.0.0/8
        set security nat source rule-set hairpin rule r match destination-address 10.0.3.80
        set security nat source rule-set hairpin rule r then source-nat interface
    ");
    let hairpin = ask(&plan, ("a0.0", "c0.0"), subject("10.0.1.5", "203.0.113.10", 80));
    assert_eq!((hairpin.destination, hairpin.destination_port), (ip("10.0.3.80"), 8080));
    let pool = &plan.tables.nat.pools[hairpin.pool.unwrap()];
    assert_eq!(pool.flags & abi::NAT_POOL_INTERFACE, abi::NAT_POOL_INTERFACE);
    let outside = ask(&plan, ("b0.0", "c0.0"), subject("192.0.2.1", "203.0.113.10", 80));
    assert_eq!((outside.destination, outside.pool), (ip("10.0.3.80"), None));
    let other = ask(&plan, ("b0.0", "c0.0"), subject("192.0.2.1", "203.0.113.10", 81));
    assert_eq!((other.destination_rule, other.destination_port), (None, 81));
}

#[test]
fn static_rules_come_before_the_others_and_hold_both_ways() {
    let plan = of("
        set security nat static rule-set s from zone out
        set security nat static rule-set s rule r match destination-address 203.0.113.8/30
        set security nat static rule-set s rule r then static-nat prefix 10.0.3.4/30
        set security nat static rule-set s rule p match destination-address 203.0.113.12
        set security nat static rule-set s rule p match destination-port 8000 to 8009
        set security nat static rule-set s rule p then static-nat prefix 10.0.3.9
        set security nat static rule-set s rule p then static-nat prefix mapped-port 80 to 89
        set security nat destination pool d address 10.0.3.99
        set security nat destination rule-set d from zone out
        set security nat destination rule-set d rule r match destination-address 203.0.113.8/29
        set security nat destination rule-set d rule r then destination-nat pool d
        set security nat source rule-set o from zone in
        set security nat source rule-set o to zone out
        set security nat source rule-set o rule r match source-address 0.0.0.0/0
        set security nat source rule-set o rule r then source-nat interface
    ");
    let inward = |to: &str, port| ask(&plan, ("b0.0", "c0.0"), subject("192.0.2.1", to, port));
    assert_eq!(inward("203.0.113.10", 1).destination, ip("10.0.3.6"));
    assert_eq!(
        (inward("203.0.113.12", 8003).destination, inward("203.0.113.12", 8003).destination_port),
        (ip("10.0.3.9"), 83)
    );
    assert_eq!(
        (inward("203.0.113.12", 8010).destination, inward("203.0.113.12", 8010).destination_port),
        (ip("10.0.3.99"), 8010)
    );
    let outward = |from: &str, port| {
        let subject = Subject { source_port: port, ..subject(from, "192.0.2.1", 443) };
        ask(&plan, ("c0.0", "b0.0"), subject)
    };
    assert_eq!(outward("10.0.3.7", 5).source, Some((ip("203.0.113.11"), 5)));
    assert_eq!(outward("10.0.3.9", 83).source, Some((ip("203.0.113.12"), 8003)));
    assert_eq!((outward("10.0.3.9", 90).source, outward("10.0.3.9", 90).pool), (None, Some(0)));
    assert!(ask(&plan, ("c0.0", "a0.0"), subject("10.0.3.7", "10.0.1.5", 1)).source_rule.is_none());
}

#[test]
fn nat64_looks_for_the_source_by_both_families() {
    let plan = of("
        set security nat static rule-set s from zone in
        set security nat static rule-set s rule r match destination-address 64:ff9b::/96
        set security nat static rule-set s rule r then static-nat inet
        set security nat source pool four address 203.0.113.9
        set security nat source rule-set o from zone in
        set security nat source rule-set o to zone out
        set security nat source rule-set o rule off match source-address fd00:1::/64
        set security nat source rule-set o rule off match destination-address 192.0.2.128/25
        set security nat source rule-set o rule off then source-nat off
        set security nat source rule-set o rule r match source-address fd00:1::/64
        set security nat source rule-set o rule r then source-nat pool four
    ");
    let ask = |to: &str| ask(&plan, ("a0.0", "b0.0"), subject("fd00:1::5", to, 80));
    let found = ask("64:ff9b::192.0.2.33");
    assert_eq!((found.destination, found.pool), (ip("192.0.2.33"), Some(0)));
    assert_eq!(
        (ask("64:ff9b::192.0.2.200").destination, ask("64:ff9b::192.0.2.200").pool),
        (ip("192.0.2.200"), None)
    );
    assert_eq!(ask("2001:db8::1").source_rule, None, "IPv6 gets no address of an IPv4 pool");
}

#[test]
fn rules_and_pools_keep_their_ids() {
    let rule = |name: &str| {
        format!(
            "set security nat source rule-set o rule {name} match source-address 10.0.0.0/8\n\
             set security nat source rule-set o rule {name} then source-nat pool {name}\n\
             set security nat source pool {name} address 203.0.113.{}\n",
            if name == "a" { 8 } else { 9 }
        )
    };
    let set =
        "set security nat source rule-set o from zone in\nset security nat source rule-set o to zone out\n";
    let mut ids = Ids::default();
    let both = plan(&format!("{BASE}{set}{}{}", rule("a"), rule("b")), &mut ids, 1).unwrap();
    let stored = serde_json::to_string(&ids).unwrap();
    let mut ids: Ids = serde_json::from_str(&stored).unwrap();
    let one = plan(&format!("{BASE}{set}{}", rule("b")), &mut ids, 2).unwrap();
    let id = |plan: &Plan, name: &str| {
        plan.nat.rules.iter().find(|(_, info)| info.name == name).map(|(id, _)| *id)
    };
    let pool = |plan: &Plan, name: &str| {
        plan.nat.pools.iter().find(|(_, info)| info.name.as_deref() == Some(name)).map(|(id, _)| *id)
    };
    assert_eq!((id(&both, "b"), pool(&both, "b")), (id(&one, "b"), pool(&one, "b")));
    assert_eq!((one.tables.nat.rules[0].id, one.tables.nat.pools[0].id), (2, 3));
    // What an older daemon stored knows nothing of NAT.
    let old: serde_json::Value = serde_json::from_str(&stored).unwrap();
    let mut old = old.as_object().unwrap().clone();
    old.retain(|name, _| !name.starts_with("nat"));
    let old: Ids = serde_json::from_value(old.into()).unwrap();
    assert_eq!(old.nat_rules, Ids::default().nat_rules);
}

/// Tables hold what the language admits.
const _: () = {
    let nat = sluice_language::nat::MAX_NAT_RULES;
    assert!(2 * nat < abi::MAX_NAT_RULES && sluice_language::nat::MAX_NAT_POOLS < abi::MAX_NAT_POOLS);
    assert!(sluice_language::nat::MAX_NAT_RANGES <= abi::MAX_NAT_RANGES);
    assert!(sluice_language::nat::MAX_NAT_POOL_RANGES <= abi::MAX_NAT_POOL_RANGES);
    assert!(sluice_language::nat::MAX_NAT_PREFIXES <= abi::MAX_NAT_PREFIXES);
};

#[test]
fn too_many_entries_are_refused() {
    let mut config = crate::tests::config(&format!(
        "{BASE}set security nat source rule-set o from zone in\nset security nat source rule-set o to zone out\n\
         set security nat source rule-set o rule r match source-address 10.0.0.0/8\n\
         set security nat source rule-set o rule r then source-nat off\n"
    ));
    let rules = &mut config.nat.source.rule_sets[0].rules;
    let rule = rules[0].clone();
    *rules = (0..abi::MAX_NAT_RULES)
        .map(|n| sluice_language::nat::NatRule { name: format!("r{n}"), ..rule.clone() })
        .collect();
    let error = compile(&config, &environment(&config), &mut Ids::default(), 1).unwrap_err();
    assert!(error.to_string().starts_with("NAT rules: "), "{error}");
}
