//! Configurations of routers in `tests/import`, each with what becomes of it beside: `.imported` and `.left`, or `.fail`.

use std::fs;
use std::path::{Path, PathBuf};

use sluice_language::import::{Cost, Import, ImportError, Imported, is_port};
use sluice_language::{compile, parse};

use crate::fuzz::import_holds;
use crate::golden::compare;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/import")
}

/// With devices `eth0`, `eth1` and so on in the order of the text.
fn import(text: &str, file: &str) -> Result<Imported, ImportError> {
    let import = Import::read(text, file)?;
    let ports = import.ports().into_iter().enumerate();
    let devices: Vec<(String, String)> = ports.map(|(n, port)| (port.name, format!("eth{n}"))).collect();
    import.finish(&devices)
}

fn taken_over(text: &str) -> Imported {
    import(text, "test").unwrap_or_else(|error| panic!("{error}"))
}

fn left(imported: &Imported) -> String {
    let line = |finding: &sluice_language::import::Finding| {
        let (at, cost) = (&finding.location, finding.cost.name());
        let left = if finding.left_out { "left out" } else { "changed" };
        format!("{cost}, {left}: {}:{}: {}: {}\n", at.line, at.column, finding.what, finding.why)
    };
    imported.findings.iter().map(line).collect()
}

#[test]
fn routers_are_taken_over_as_written_beside_them() {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(directory()).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "conf"));
    paths.sort();
    assert!(paths.len() >= 15, "only {} found", paths.len());
    let mut problems = Vec::new();
    for path in paths {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).unwrap();
        let result = import(&text, &name);
        let failed = result.as_ref().err().map(|error| format!("{error}\n"));
        compare(&path.with_extension("fail"), failed.as_deref(), &mut problems);
        let imported = result.as_ref().ok();
        compare(
            &path.with_extension("imported"),
            imported.map(|imported| imported.text.as_str()),
            &mut problems,
        );
        compare(&path.with_extension("left"), imported.map(left).as_deref(), &mut problems);
        if let Some(imported) = imported {
            import_holds(&imported.text).unwrap_or_else(|why| panic!("{name}: {why}"));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn the_router_of_the_page_becomes_what_stands_there() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/OPERATE.md");
    let page = fs::read_to_string(page).unwrap();
    let block = |from: &str, fence: &str| {
        let rest = from.split(&format!("\n```{fence}\n")).nth(1).unwrap().to_owned();
        let end = rest.find("\n```").unwrap();
        (rest[..=end].to_owned(), rest[end..].to_owned())
    };
    let (router, rest) = block(&page, "router");
    let (expected, _) = block(&rest, "junos");
    let devices = [("ge-0/0/0".to_owned(), "lan0".to_owned())];
    let imported = Import::read(&router, "old.conf").and_then(|import| import.finish(&devices)).unwrap();
    assert_eq!(imported.text, expected);
}

fn policy(name: &str, matching: &str, then: &str) -> String {
    format!(
        "policy {name} {{ match {{ source-address any; destination-address any; application any; {matching} }} \
         then {{ {then} }} }}"
    )
}

fn pair(policies: &[String]) -> String {
    format!(
        "security {{ zones {{ security-zone a; security-zone b; }} policies {{ from-zone a to-zone b {{ {} }} }} }}",
        policies.concat()
    )
}

fn actions(imported: &Imported) -> Vec<(String, String)> {
    let config = compile(&parse(&imported.text, "imported").unwrap()).unwrap();
    let all = config.policies.iter().flat_map(|set| &set.policies).chain(&config.global_policies);
    all.map(|policy| (policy.name.clone(), format!("{:?}", policy.action))).collect()
}

#[test]
fn what_denies_is_never_handed_to_what_permits() {
    let odd = "dynamic-application junos:X;";
    for (then, stands) in [
        ("deny;", "Deny"),
        ("reject;", "Reject"),
        ("permit { tunnel { ipsec-vpn v; } }", "Deny"),
        ("permit { application-services { idp; } }", "Deny"),
        ("deny; log { session-init; } count;", "Deny"),
    ] {
        let imported = taken_over(&pair(&[policy("one", odd, then), policy("two", "", "permit;")]));
        let expected = [("one-widest", stands), ("two", "Permit")];
        let expected = expected.map(|(name, action)| (name.to_owned(), action.to_owned()));
        assert_eq!(actions(&imported), expected, "{then}: {}", imported.text);
        assert!(imported.is_partial() && !imported.is_wider());
        assert_eq!(imported.findings[0].cost, Cost::Security);
        assert!(imported.findings[0].why.contains("`two` may permit less"), "{}", imported.findings[0].why);
    }
}

#[test]
fn a_policy_needs_no_stand_in_where_nothing_gets_wider() {
    let odd = "dynamic-application junos:X;";
    let permits = taken_over(&pair(&[policy("one", odd, "permit;"), policy("two", "", "permit;")]));
    assert_eq!(actions(&permits).len(), 1, "{}", permits.text);
    let last = taken_over(&pair(&[policy("one", "", "permit;"), policy("two", odd, "deny;")]));
    assert_eq!(actions(&last).len(), 1, "{}", last.text);
    // A policy of all zones, or the default, stands behind the last of a pair.
    let global = format!("security {{ policies {{ global {{ {} }} }} }}", policy("g", "", "permit;"));
    let before_global = taken_over(&(pair(&[policy("two", odd, "deny;")]) + &global));
    assert_eq!(actions(&before_global)[0].0, "two-widest");
    let open =
        pair(&[policy("two", odd, "deny;")]) + "security { policies { default-policy { permit-all; } } }";
    assert_eq!(actions(&taken_over(&open))[0].0, "two-widest");
}

#[test]
fn a_stand_in_matches_what_is_understood_and_any_of_the_rest() {
    let text = "security { address-book { global { address bad { dns-name x.example; } address good 10.0.0.0/8; } } \
                zones { security-zone a; security-zone b; } policies { from-zone a to-zone b { \
                policy p { match { source-address [ good bad ]; destination-address good; application junos-http; \
                source-address-excluded; } then { deny; } } policy q { match { source-address any; \
                destination-address any; application any; } then { permit; } } } } }";
    let imported = taken_over(text);
    let config = compile(&parse(&imported.text, "imported").unwrap()).unwrap();
    let stand_in = &config.policies[0].policies[0];
    assert_eq!(stand_in.name, "p-widest");
    assert_eq!(stand_in.source, sluice_language::AddressMatch::Any, "{}", imported.text);
    assert_ne!(stand_in.destination, sluice_language::AddressMatch::Any);
}

#[test]
fn a_set_never_loses_a_member_alone() {
    let text = "security { address-book { global { address bad { dns-name x.example; } address good 10.0.0.0/8; \
                address-set both { address bad; address good; } } } zones { security-zone a; security-zone b; } \
                policies { from-zone a to-zone b { policy p { match { source-address both; destination-address any; \
                application any; } then { permit; } } } } }";
    let imported = taken_over(text);
    assert!(actions(&imported).is_empty(), "{}", imported.text);
    assert!(imported.text.contains("inactive: address-set both"), "{}", imported.text);
}

#[test]
fn denials_about_the_gateway_itself_are_told_as_wider() {
    let text = "security { zones { security-zone a; } policies { from-zone a to-zone junos-host { policy p { match { \
                source-address any; destination-address any; application any; } then { deny; } } } } }";
    assert!(taken_over(text).is_wider());
    assert!(!taken_over(&text.replace("deny", "permit")).is_wider());
}

#[test]
fn devices_are_named_once_and_as_linux_names_them() {
    let text = "interfaces { ge-0/0/0 { unit 0 { family inet { address 192.0.2.1/24; } } } \
                ge-0/0/1 { unit 0 { family inet { address 198.51.100.1/24; } } } }";
    let finish = |devices: &[(&str, &str)]| {
        let devices: Vec<_> = devices.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
        Import::read(text, "f")
            .unwrap()
            .finish(&devices)
            .map(|imported| imported.text)
            .map_err(|e| e.to_string())
    };
    let error = |devices: &[(&str, &str)]| finish(devices).unwrap_err();
    assert!(error(&[("ge-0/0/7", "eth0")]).contains("no interface `ge-0/0/7`"));
    assert!(error(&[("ge-0/0/0", "eth0"), ("ge-0/0/1", "eth0")]).contains("each interface needs its own"));
    let there = "interfaces { ge-0/0/0 { unit 0; } eth0 { unit 0; } }";
    let taken = [("ge-0/0/0".to_owned(), "eth0".to_owned())];
    let error_there = Import::read(there, "f").unwrap().finish(&taken).unwrap_err().to_string();
    assert!(error_there.contains("device `eth0` for `eth0` and `ge-0/0/0`"), "{error_there}");
    assert!(error(&[("ge-0/0/0", "a-name-of-17-chars")]).contains("15 characters"));
    assert!(error(&[("ge-0/0/0", "reth0")]).contains("Junos"));
    let one = finish(&[("ge-0/0/0", "eth0")]).unwrap();
    assert!(one.contains("    eth0 {") && one.contains("inactive: ge-0/0/1"), "{one}");
    assert!(is_port("ge-0/0/0") && !is_port("eth0"));
}

#[test]
fn what_is_no_configuration_is_named() {
    let error = |text: &str| Import::read(text, "f").map(drop).unwrap_err().to_string();
    assert!(error("").contains("no statement in it"));
    assert!(error("# only a comment\n").contains("no statement in it"));
    assert!(error("<?xml version=\"1.0\"?>\n<configuration/>\n").starts_with("f:1:1: this line is XML"));
    assert!(
        error("[edit system]\n-  host-name a;\n+  host-name b;\n")
            .starts_with("f:2:1: this line is part of a difference")
    );
    assert!(
        error("system {\n    ...\n}\n").starts_with("f:2:5: this line is a mark for text that was left out")
    );
    let errors = error(&"}\n".repeat(300));
    assert!(errors.lines().count() == 101 && errors.ends_with("\nand 200 further errors"), "{errors}");
}

#[test]
fn a_route_that_loses_its_next_hop_discards_and_takes_no_second_way() {
    for ways in [
        "",
        "inactive: discard;",
        "discard;",
        "reject;",
        "qualified-next-hop 192.0.2.9 { preference 10; }",
        "next-table other.inet.0;",
    ] {
        let text = format!(
            "interfaces {{ ge-0/0/0 {{ unit 0 {{ family inet {{ address 192.0.2.1/24; }} }} }} }} \
             routing-options {{ static {{ route 10.0.0.0/8 {{ next-hop st0.0; {ways} }} }} }}"
        );
        let imported = taken_over(&text);
        let config = compile(&parse(&imported.text, "imported").unwrap()).unwrap();
        assert_eq!(config.static_routes.len(), 1, "{ways}: {}", imported.text);
        assert_eq!(config.static_routes[0].next_hop, sluice_language::RouteTarget::Discard, "{ways}");
        assert!(imported.is_partial(), "{}", imported.text);
        import_holds(&imported.text).unwrap_or_else(|why| panic!("{why}"));
    }
}

#[test]
fn what_a_stand_in_inherits_does_not_hold_the_import_up() {
    for part in ["application junos-https;", "source-address corp;", "source-address-excluded;"] {
        let groups = format!(
            "groups {{ std {{ security {{ policies {{ from-zone <*> to-zone <*> {{ policy <*> {{ match {{ {part} }} }} }} }} }} }} }} \
             apply-groups std; security {{ address-book {{ global {{ address corp 10.0.0.0/8; }} }} }}"
        );
        let odd = "match { source-address any; destination-address any; dynamic-application junos:X; } then { deny; }";
        let text = groups
            + &pair(&[
                format!("policy one {{ {odd} }}"),
                "policy two { match { destination-address any; } then { permit; } }".to_owned(),
            ]);
        let imported = taken_over(&text);
        assert!(actions(&imported)[0] == ("one-widest".to_owned(), "Deny".to_owned()), "{}", imported.text);
        import_holds(&imported.text).unwrap_or_else(|why| panic!("{why}"));
    }
}

#[test]
fn comments_at_the_top_are_kept_as_they_are_the_second_time() {
    import_holds(&taken_over("# old router \u{1}\nsystem { host-name a; }\n").text).unwrap();
}

#[test]
fn what_a_group_holds_does_not_permit_in_place_of_the_own_policy() {
    let group = |body: &str| {
        format!(
            "groups {{ base {{ security {{ policies {{ from-zone a to-zone b {{ {body} }} }} }} }} }} apply-groups base; "
        )
    };
    let odd = "policy web { match { dynamic-application junos:HTTP; } then { permit; } }";
    let own = taken_over(&(group(&policy("web", "", "permit;")) + &pair(&[odd.to_owned()])));
    let first = &actions(&own)[0];
    assert!(*first == ("web-widest".to_owned(), "Deny".to_owned()), "{}", own.text);
    assert!(own.findings[0].why.contains("`web` of a group may permit less"), "{}", own.findings[0].why);
    import_holds(&own.text).unwrap();
    // The other way round the group's narrows the router's own.
    let narrowed = taken_over(&(group(odd) + &pair(&[policy("web", "", "permit;")])));
    assert!(narrowed.is_wider(), "{}", narrowed.text);
}

#[test]
fn a_group_that_is_not_there_takes_no_other_with_it() {
    let text = format!(
        "groups {{ deny {{ security {{ policies {{ from-zone a to-zone b {{ {} }} }} }} }} }} \
         security {{ policies {{ apply-groups [ deny junos-defaults ]; global {{ {} }} }} }} {}",
        policy("no", "", "deny;"),
        policy("g", "", "permit;"),
        pair(&[policy("x", "", "deny;")]),
    );
    let imported = taken_over(&text);
    let no = ("no".to_owned(), "Deny".to_owned());
    assert!(actions(&imported).contains(&no), "{}", imported.text);
    assert!(imported.findings[0].why.contains("group `junos-defaults` is not defined"));
    import_holds(&imported.text).unwrap();
    let inside = text
        .replace("groups { deny {", "groups { outer { security { policies { apply-groups deny; } } } deny {");
    assert!(!imported.is_wider() && taken_over(&inside).is_wider());
}

#[test]
fn what_is_told_of_many_policies_grows_with_them_alone() {
    let odd = policy("x", "dynamic-application junos:X;", "deny;");
    let policies: Vec<String> = (0..60)
        .flat_map(|n| {
            [odd.replace("policy x", &format!("policy d{n}")), policy(&format!("p{n}"), "", "permit;")]
        })
        .collect();
    let imported = taken_over(&pair(&policies));
    assert!(
        imported.findings[0].why.ends_with("`p3`, `p4` and 55 more may permit less"),
        "{}",
        imported.findings[0].why
    );
}

#[test]
fn keys_are_written_in_clear_and_those_that_cannot_be_read_are_left_out_whole() {
    let text = |key: &str, authentication: &str| {
        format!(
            "interfaces {{ ge-0/0/0 {{ unit 0 {{ family inet {{ address 192.0.2.1/24; }} }} }} }} \
             security {{ zones {{ security-zone wan {{ interfaces {{ ge-0/0/0.0; }} }} }} }} \
             routing-options {{ autonomous-system 65000; router-id 192.0.2.1; }} \
             protocols {{ bgp {{ group up {{ type external; peer-as 65001; neighbor 192.0.2.2 {{ authentication-key \"{key}\"; }} }} }} \
             ospf {{ area 0.0.0.0 {{ interface ge-0/0/0.0 {{ authentication {{ {authentication}; }} }} }} }} }}"
        )
    };
    let keys = |imported: &Imported| {
        let protocols = compile(&parse(&imported.text, "imported").unwrap()).unwrap().protocols;
        let neighbors: Vec<_> =
            protocols.bgp.iter().flat_map(|bgp| &bgp.neighbors).map(|n| n.key.clone()).collect();
        let areas = protocols.ospf.iter().flat_map(|ospf| &ospf.areas);
        let links: Vec<_> = areas.flat_map(|area| &area.interfaces).map(|link| link.md5.clone()).collect();
        (neighbors, links)
    };
    let read = taken_over(&text("$9$LbHX-wg4Z", "md5 1 key \"$9$41JDk5T3CpBFnCuB1rl8X7-VYq.5\""));
    assert_eq!(keys(&read), (vec![Some("lc".to_owned())], vec![vec![(1, "netscreen".to_owned())]]));
    assert!(!read.is_partial() && !left(&read).contains("netscreen"), "{}", left(&read));
    for authentication in ["md5 1 key \"$9$AbC\"", "simple-password \"$9$LbHX-wg4Z\""] {
        let odd = taken_over(&text("$9$aBc", authentication));
        assert_eq!(keys(&odd), (vec![], vec![]), "{}", odd.text);
        assert_eq!(
            odd.findings.iter().filter(|found| found.cost == Cost::Security).count(),
            2,
            "{}",
            left(&odd)
        );
        import_holds(&odd.text).unwrap();
    }
}

#[test]
fn two_dhcp_clients_take_their_default_routes_one_after_the_other() {
    let text = "interfaces { ge-0/0/0 { unit 0 { family inet { dhcp; } } } \
                ge-0/0/1 { unit 0 { family inet { dhcp-client { preference 12; } } } } \
                ge-0/0/2 { unit 0 { family inet { dhcp; } } } } \
                routing-options { static { route 10.0.0.0/8 { discard; preference 13; } } }";
    let imported = taken_over(text);
    let config = compile(&parse(&imported.text, "imported").unwrap()).unwrap();
    let clients =
        config.interfaces.iter().map(|interface| interface.units[0].dhcp.as_ref().unwrap().preference);
    assert_eq!(clients.collect::<Vec<_>>(), [12, 14, 15], "{}", imported.text);
    assert!(!imported.is_partial() && imported.text.contains("`preference 14` here"), "{}", imported.text);
    import_holds(&imported.text).unwrap();
}

#[test]
fn mtus_of_all_interfaces_lose_the_bytes_of_the_longest_header() {
    let text = "groups { jumbo { interfaces { <*> { mtu 9192; } } } } apply-groups jumbo; \
                interfaces { ge-0/0/0 { unit 0 { family inet { address 192.0.2.1/24; } } } TAGGED }";
    let mtu = |text: &str| {
        let imported = taken_over(text);
        import_holds(&imported.text).unwrap();
        compile(&parse(&imported.text, "imported").unwrap()).unwrap().interfaces[0].mtu
    };
    assert_eq!(mtu(&text.replace("TAGGED", "")), Some(9178));
    let tagged = "ge-0/0/1 { vlan-tagging; unit 5 { vlan-id 5; family inet { address 192.0.3.1/24; } } }";
    assert_eq!(mtu(&text.replace("TAGGED", tagged)), Some(9174));
}

#[test]
fn a_set_of_which_a_group_has_a_part_is_left_out_with_that() {
    let set = |member: &str| format!("address-set both {{ address {member}; }}");
    let addresses = "address bad { dns-name x.example; } address good 10.0.0.0/8;";
    for (in_group, own) in [("good", "bad"), ("bad", "good")] {
        let text = format!(
            "groups {{ base {{ security {{ address-book {{ global {{ {} }} }} }} }} }} apply-groups base; \
             security {{ address-book {{ global {{ {addresses} {} }} }} }} {}",
            set(in_group),
            set(own),
            pair(&[
                policy("p", "", "deny;").replace("source-address any", "source-address both"),
                policy("q", "", "permit;")
            ]),
        );
        let imported = taken_over(&text);
        assert_eq!(actions(&imported)[0].0, "p-widest", "{}", imported.text);
        import_holds(&imported.text).unwrap();
    }
}
