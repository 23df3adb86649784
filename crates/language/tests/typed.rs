//! What configurations mean, once names are resolved.

use std::net::{IpAddr, Ipv4Addr};

use sluice_language::{
    Action, AddressMatch, ApplicationMatch, Config, HookMode, HostInbound, NextHop, Policy, Prefix,
    RouteTarget, Service, Tree, compile, parse,
};

fn config(text: &str) -> Config {
    let tree = parse(text, "test").unwrap_or_else(|errors| panic!("{errors}"));
    compile(&tree).unwrap_or_else(|errors| panic!("{errors}"))
}

fn golden(name: &str) -> Config {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    config(&std::fs::read_to_string(root.join(name)).unwrap())
}

fn ports(protocol: u8, low: u16, high: u16) -> Service {
    Service {
        protocol: Some(protocol),
        source_port: (0, 65535),
        destination_port: (low, high),
        icmp_type: None,
        icmp_code: None,
        inactivity_timeout_s: None,
    }
}

fn icmp(protocol: u8, kind: u8) -> Service {
    Service { icmp_type: Some((kind, kind)), ..ports(protocol, 0, 65535) }
}

fn v4(low: &str, high: &str) -> (Ipv4Addr, Ipv4Addr) {
    (low.parse().unwrap(), high.parse().unwrap())
}

#[test]
fn a_byte_order_mark_is_not_part_of_the_text() {
    let text = "set system host-name a\n";
    assert_eq!(config(&format!("\u{feff}{text}")).system, config(text).system);
    let error =
        parse("\u{feff}set systen\n", "test").and_then(|tree| compile(&tree)).unwrap_err().to_string();
    assert!(error.contains("test:1:5"), "{error}");
}

#[test]
fn the_branch_gateway() {
    let config = golden("examples/branch.conf");
    let names: Vec<&str> = config.interfaces.iter().map(|interface| interface.name.as_str()).collect();
    assert_eq!(names, ["trust0", "untrust0", "dmz0", "tunnel0", "wan0"]);
    let wan = &config.interfaces[4];
    assert!(wan.vlan_tagging);
    assert_eq!((wan.units[0].number, wan.units[0].vlan), (100, Some(100.into())));
    let address = |text: &str| text.parse::<IpAddr>().unwrap();
    assert_eq!(wan.units[0].inet, [Prefix { addr: address("203.0.113.1"), len: 24 }]);
    assert_eq!(wan.units[0].inet6, [Prefix { addr: address("fd00:113::1"), len: 64 }]);
    let trust = &config.zones[0];
    assert_eq!((trust.name.as_str(), trust.interfaces[0].unit.as_str()), ("trust", "trust0.0"));
    let inbound = [icmp(1, 8), icmp(58, 128), ports(6, 22, 22), ports(17, 33434, 33534)];
    assert_eq!(trust.host_inbound, HostInbound { any: false, services: inbound.to_vec() });
    assert_eq!(config.zones[4].screen.as_deref(), Some("edge"));
    let pairs: Vec<(&str, &str)> =
        config.policies.iter().map(|set| (set.from_zone.as_str(), set.to_zone.as_str())).collect();
    assert_eq!(pairs.len(), 8);
    assert_eq!(pairs[3], ("untrust", "trust"));
    let web = &config.policies[3].policies[0];
    let host = AddressMatch::Ranges {
        v4: vec![v4("10.0.1.100", "10.0.1.100")],
        v6: vec![("fd00:1::100".parse().unwrap(), "fd00:1::100".parse().unwrap())],
        excluded: false,
    };
    assert_eq!((&web.source, &web.destination), (&AddressMatch::Any, &host));
    assert_eq!(web.application, ApplicationMatch::Services(vec![ports(6, 80, 80), ports(6, 443, 443)]));
    assert_eq!((web.action, web.log_init, web.log_close, web.count), (Action::Permit, true, false, true));
    assert!(!config.default_permit);
    assert_eq!(config.static_routes[0].next_hop, via("203.0.113.100"));
    assert_eq!(config.static_routes[1].next_hop, via("fd00:113::100"));
}

#[test]
fn nothing_means_nothing() {
    assert_eq!(config(""), Config::default());
    assert_eq!(compile(&Tree::default()).unwrap(), Config::default());
}

#[test]
fn inactive_statements_have_no_effect() {
    let config = golden("tests/golden/inactive.conf");
    assert_eq!(config.system.host_name, None);
    assert!(config.static_routes.is_empty());
    let policies: Vec<&Policy> = config.policies.iter().flat_map(|set| &set.policies).collect();
    assert_eq!(policies.len(), 1);
    assert_eq!((policies[0].name.as_str(), policies[0].log_init), ("now", false));
}

#[test]
fn an_interface_has_its_own_mode_or_the_default() {
    let modes = |config: Config| config.interfaces.iter().map(|interface| interface.mode).collect::<Vec<_>>();
    let expected = [HookMode::Tc, HookMode::Auto, HookMode::Xdp, HookMode::Generic];
    assert_eq!(modes(golden("tests/golden/interface-modes.conf")), expected);
    assert_eq!(modes(config("set interfaces lan0 unit 0")), [HookMode::Auto]);
}

#[test]
fn an_interface_replaces_the_host_inbound_traffic_of_its_zone() {
    let config = golden("tests/golden/host-inbound.conf");
    let [lan, wan] = config.zones.as_slice() else { panic!("two zones") };
    assert!(lan.host_inbound.services.contains(&ports(6, 179, 179)));
    assert!(lan.host_inbound.services.contains(&ports(112, 0, 65535)));
    assert_eq!(lan.interfaces[0].host_inbound, Some(HostInbound { any: true, services: Vec::new() }));
    assert_eq!(wan.host_inbound, HostInbound::default());
    assert_eq!(wan.interfaces[0].unit, "wan0.0");
    let ping = HostInbound { any: false, services: vec![icmp(1, 8), icmp(58, 128)] };
    assert_eq!(wan.interfaces[0].host_inbound, Some(ping));
}

#[test]
fn all_is_everything_unless_something_is_excepted() {
    let all = golden("tests/golden/host-inbound-all.conf");
    assert!(all.zones[0].host_inbound.any);
    let except = golden("tests/golden/host-inbound-except.conf");
    let inbound = &except.zones[0].host_inbound;
    assert!(!inbound.any);
    assert!(inbound.services.contains(&ports(6, 22, 22)));
    assert!(!inbound.services.contains(&ports(6, 23, 23)));
}

#[test]
fn address_sets_flatten_and_join() {
    let config = golden("tests/golden/address-sets.conf");
    let policy = &config.policies[0].policies[0];
    let joined = vec![v4("10.1.0.0", "10.1.255.255")];
    assert!(matches!(&policy.source, AddressMatch::Ranges { v4, v6, .. } if *v4 == joined && v6.len() == 1));
    assert_eq!(policy.destination, AddressMatch::Ranges { v4: joined, v6: Vec::new(), excluded: false });
}

#[test]
fn any_of_one_family_is_its_whole_range() {
    let config = golden("tests/golden/policies.conf");
    let out = &config.policies[1].policies[0];
    let all = vec![v4("0.0.0.0", "255.255.255.255")];
    assert_eq!(out.source, AddressMatch::Ranges { v4: all, v6: Vec::new(), excluded: false });
}

#[test]
fn policies_keep_the_order_of_the_text() {
    let config = golden("tests/golden/policy-order.conf");
    let names: Vec<(&str, Action)> =
        config.policies[0].policies.iter().map(|policy| (policy.name.as_str(), policy.action)).collect();
    assert_eq!(names, [("c", Action::Deny), ("a", Action::Permit), ("b", Action::Reject)]);
}

#[test]
fn applications_become_terms() {
    let services = |name: &str| {
        let text = format!(
            "set security zones security-zone a\n{}\nset security policies from-zone a to-zone a policy p match \
             source-address any destination-address any application {name}\nset security policies from-zone a to-zone a \
             policy p then permit\n",
            std::fs::read_to_string(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/../../tests/golden/applications.conf"
            ))
            .unwrap()
        );
        match config(&text).policies.remove(0).policies.remove(0).application {
            ApplicationMatch::Services(services) => services,
            ApplicationMatch::Any => panic!("{name} is not any"),
        }
    };
    let range = Service { source_port: (1024, 65535), ..ports(17, 5000, 5010) };
    assert_eq!(services("range"), std::slice::from_ref(&range));
    assert_eq!(services("timeout"), [Service { inactivity_timeout_s: Some(3600), ..ports(6, 22, 22) }]);
    assert_eq!(services("ping"), [Service { icmp_code: Some((0, 0)), ..icmp(1, 8) }]);
    assert_eq!(services("ping6"), [icmp(58, 128)]);
    assert_eq!(services("several").len(), 2);
    assert_eq!(services("all"), [range, ports(6, 8080, 8080), ports(6, 443, 443), ports(6, 80, 80)]);
    assert_eq!(services("junos-icmp-all"), [ports(1, 0, 65535)]);
}

#[test]
fn routes_lead_somewhere() {
    let config = golden("tests/golden/routes.conf");
    let hops: Vec<&RouteTarget> = config.static_routes.iter().map(|route| &route.next_hop).collect();
    assert!(matches!(hops[1], RouteTarget::Gateways(gateways) if gateways.len() == 2));
    assert_eq!((hops[2], hops[3]), (&RouteTarget::Discard, &RouteTarget::Reject));
    assert_eq!(hops[4], &RouteTarget::Interface("lan0.0".into()));
    let floating: Vec<(u32, &RouteTarget)> = config
        .static_routes
        .iter()
        .filter(|route| route.destination.len == 17)
        .map(|route| (route.preference, &route.next_hop))
        .collect();
    let lan = RouteTarget::Interface("lan0.0".into());
    let RouteTarget::Gateways(second) = floating[1].1 else { panic!("{floating:?}") };
    assert_eq!((floating[0], floating[1].0, second.len()), ((10, &via("192.0.2.254")), 20, 2));
    assert_eq!(floating[2], (30, &lan));
    let local = config.static_routes.iter().find(|route| route.destination.len == 49).unwrap();
    let hop = NextHop { address: "fe80::1".parse().unwrap(), interface: Some("wan0.0".into()) };
    assert_eq!((local.preference, &local.next_hop), (5, &RouteTarget::Gateways(vec![hop])));
    let short = config.static_routes.iter().find(|route| route.destination.len == 12).unwrap();
    assert_eq!(short.destination.addr, "172.16.0.0".parse::<IpAddr>().unwrap());
}

#[test]
fn later_sources_merge_into_earlier_ones() {
    let mut tree = parse("interfaces { lan0 { mtu 1500; unit 0; } }", "base").unwrap();
    tree.read("set interfaces lan0 mtu 1400\nset system host-name gw", "overlay").unwrap();
    let config = compile(&tree).unwrap();
    assert_eq!((config.interfaces[0].mtu, config.system.host_name.as_deref()), (Some(1400), Some("gw")));
    let errors = tree.read("set interfaces lan0 {", "wrong").unwrap_err();
    assert!(errors.to_string().starts_with("wrong:1:21: "), "{errors}");
}

#[test]
fn a_zone_reads_its_own_book_before_the_global_one() {
    let config = golden("tests/golden/address-book-order.conf");
    let policy = &config.policies[0].policies[0];
    let host =
        |text: &str| AddressMatch::Ranges { v4: vec![v4(text, text)], v6: Vec::new(), excluded: false };
    assert_eq!((&policy.source, &policy.destination), (&host("10.0.1.1"), &host("192.0.2.1")));
}

#[test]
fn excluded_addresses_match_everything_else() {
    let config = golden("tests/golden/address-excluded.conf");
    let policy = &config.policies[0].policies[0];
    let source = policy.source.matching().unwrap();
    assert_eq!(source.v4, [v4("0.0.0.0", "9.255.255.255"), v4("11.0.0.0", "255.255.255.255")]);
    assert_eq!(
        source.v6[0].1,
        "fcff:ffff:ffff:ffff:ffff:ffff:ffff:ffff".parse::<std::net::Ipv6Addr>().unwrap()
    );
    let inside = vec![v4("10.0.0.0", "10.255.255.255")];
    assert_eq!(policy.destination, AddressMatch::Ranges { v4: inside, v6: Vec::new(), excluded: false });
}

#[test]
fn global_policies_speak_of_their_zones() {
    let config = golden("tests/golden/global-zones.conf");
    let [some, from_any, to_some] = config.global_policies.as_slice() else { panic!("three policies") };
    assert!(some.applies_between("lan", "wan") && some.applies_between("dmz", "wan"));
    assert!(!some.applies_between("wan", "wan") && !some.applies_between("lan", "dmz"));
    assert!(from_any.applies_between("wan", "dmz"));
    assert!(to_some.applies_between("wan", "lan") && !to_some.applies_between("lan", "wan"));
}

#[test]
fn schedulers_make_policies_active() {
    let mut config = golden("tests/golden/scheduler-policies.conf");
    let active = |config: &Config| config.all_policies().map(|policy| policy.active).collect::<Vec<_>>();
    assert_eq!(active(&config), [true, true]);
    // 1970-01-01 at noon, then at 23:00
    assert!(!config.is_of_time(12 * 3600));
    config.set_time(12 * 3600);
    assert_eq!((active(&config), config.is_of_time(12 * 3600)), (vec![false, false], true));
    assert!(!config.is_of_time(23 * 3600));
    config.set_time(23 * 3600);
    assert_eq!(active(&config), [true, true]);
}

#[test]
fn predefined_sets_are_their_members() {
    let one = |application: &str| {
        let text = format!(
            "set security zones security-zone a\nset security policies from-zone a to-zone a policy p match \
             source-address any destination-address any application {application}\nset security policies from-zone a \
             to-zone a policy p then permit\n"
        );
        config(&text).policies.remove(0).policies.remove(0).application
    };
    assert_eq!(one("junos-cifs"), ApplicationMatch::Services(vec![ports(6, 139, 139), ports(6, 445, 445)]));
    assert_eq!(
        one("junos-ms-rpc-any"),
        ApplicationMatch::Services(vec![ports(6, 135, 135), ports(17, 135, 135)])
    );
    assert_eq!(one("any"), ApplicationMatch::Any);
}

#[test]
fn groups_mean_what_they_would_mean_written_out() {
    let inherited = golden("tests/golden/groups-wildcards.conf");
    let mtus: Vec<_> = inherited.interfaces.iter().map(|i| (i.mtu, i.units[0].mtu)).collect();
    assert_eq!(mtus, [(Some(4000), Some(1400)), (Some(9000), Some(1400)), (Some(1500), None)]);
    let policies = golden("tests/golden/groups-whole-policy.conf").policies;
    let names: Vec<Vec<&str>> =
        policies.iter().map(|set| set.policies.iter().map(|p| p.name.as_str()).collect()).collect();
    assert_eq!(names, [vec!["first", "last"], vec!["last"]]);
}

fn via(gateway: &str) -> RouteTarget {
    RouteTarget::Gateways(vec![NextHop { address: gateway.parse().unwrap(), interface: None }])
}

#[test]
fn sets_in_sets_end_at_a_bound_in_either_order() {
    let of = |kind: &str, member: &str, count: usize, turned: bool| {
        let mut sets: Vec<String> =
            (1..count).map(|n| format!("{kind} s{n} {{ {kind} s{}; }}\n", n + 1)).collect();
        sets.push(format!("{kind} s{count} {{ {member}; }}\n"));
        if turned {
            sets.reverse();
        }
        sets.concat()
    };
    for turned in [false, true] {
        for count in [64, 65, 4000] {
            let addresses = of("address-set", "address a", count, turned);
            let applications = of("application-set", "application junos-ssh", count, turned);
            for text in [
                format!("security {{ address-book {{ global {{ address a 10.0.0.0/8; {addresses} }} }} }}"),
                format!("applications {{ {applications} }}"),
            ] {
                let compiled = compile(&parse(&text, "test").unwrap()).map_err(|errors| errors.to_string());
                match compiled {
                    Ok(_) => assert_eq!(count, 64),
                    Err(why) => assert!(count > 64 && why.contains("inside of each other"), "{why}"),
                }
            }
        }
    }
}

#[test]
fn many_lines_of_comments_are_read_in_time_that_grows_with_them() {
    let text = "# a line of a comment, as they stand in front of configurations\n".repeat(100_000);
    let began = std::time::Instant::now();
    let tree = parse(&format!("{text}system {{ host-name a; }}\n"), "test").unwrap();
    assert!(began.elapsed().as_secs() < 5, "{:?}", began.elapsed());
    assert!(tree.to_commented_text().len() > text.len());
}

#[test]
fn numbers_are_written_in_one_way() {
    let text = |unit: &str, tag: &str| {
        format!(
            "interfaces {{ trunk0 {{ vlan-tagging; unit 10 {{ vlan-id 10; }} unit {unit} {{ vlan-id {tag}; }} }} }}"
        )
    };
    config(&text("20", "20"));
    for (unit, tag) in [("010", "11"), ("20", "011")] {
        let errors = compile(&parse(&text(unit, tag), "test").unwrap()).unwrap_err().to_string();
        assert!(errors.contains("begins with 0"), "{errors}");
    }
}

#[test]
fn one_area_of_ospf_stands_once() {
    let text = "interfaces { a { unit 0 { family inet { address 192.0.2.1/24; } } } } routing-options { router-id 192.0.2.1; } \
                protocols { ospf { area 0 { interface a.0; } area 0.0.0.0 { interface a.0; } } }";
    let errors = compile(&parse(text, "test").unwrap()).unwrap_err().to_string();
    assert!(errors.contains("`0.0.0.0` is the area 0.0.0.0, which stands there already"), "{errors}");
}

#[test]
fn addresses_published_by_name_need_somebody_who_answers_for_them() {
    let text = |matching: &str, proxy: &str| {
        format!(
            "interfaces {{ lan0 {{ unit 0 {{ family inet {{ address 10.0.0.1/24; }} }} }} \
             wan0 {{ unit 0 {{ family inet {{ address 192.0.2.1/24; }} }} }} }} \
             security {{ address-book {{ global {{ address pub 192.0.2.5/32; address-set pubs {{ address pub; }} }} }} \
             zones {{ security-zone lan {{ interfaces {{ lan0.0; }} }} security-zone wan {{ interfaces {{ wan0.0; }} }} }} \
             nat {{ {proxy} destination {{ pool p {{ address 10.0.0.5/32; }} rule-set r {{ from zone wan; \
             rule a {{ match {{ {matching}; }} then {{ destination-nat pool p; }} }} }} }} }} }}"
        )
    };
    let proxy = "proxy-arp { interface wan0.0 { address 192.0.2.5/32; } }";
    for matching in
        ["destination-address 192.0.2.5/32", "destination-address-name pub", "destination-address-name pubs"]
    {
        let errors = compile(&parse(&text(matching, ""), "test").unwrap()).unwrap_err().to_string();
        assert!(errors.contains("nobody answers ARP for `192.0.2.5`"), "{matching}: {errors}");
        config(&text(matching, proxy));
    }
}

/// Rings see the tag on the wire, not the number of the unit.
#[test]
fn a_listener_has_the_tag_of_its_unit() {
    let interfaces = "set interfaces up0 vlan-tagging\nset interfaces up0 unit 5 vlan-id 100\n\
                      set security zones security-zone z interfaces up0.5\n";
    let tag = |interface: &str| {
        let l = "set services fan-out listener l";
        let text = format!(
            "{interfaces}{l} interface {interface}\n{l} mode af-xdp\n{l} address 192.0.2.1\n{l} port 514\n\
             {l} receiver r address 192.0.2.2\n{l} receiver r port 514\n"
        );
        config(&text).fan_out.listeners[0].vlan
    };
    assert_eq!(["up0.5", "up1.7", "up1"].map(tag), [Some(100), Some(7), None]);
}
