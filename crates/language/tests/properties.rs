//! Properties that hold for any text: nothing panics, and what is printed reads back as the same tree.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use sluice_language::{Tree, compile, parse, schema};

use crate::fuzz;

/// Words with a meaning somewhere in the schema, and some with none.
const WORDS: &str = "
    system host-name services sluice mode tc interfaces trust0 unit 0 100 family inet inet6 address
    10.0.0.1/24 fd00::1/64 mtu 1500 vlan-tagging vlan-id disable description security zones security-
    zone trust screen host-inbound-traffic system-services ping all except protocols trust0.0 address-
    book global address-set range-address to 10.0.0.9 policies from-zone to-zone policy match source-
    address destination-address application any then permit deny log session-init count applications
    term protocol tcp destination-port 80-90 application-set routing-options static route 0.0.0.0/0
    next-hop discard rib inet6.0 bgp group neighbor x y flow max-sessions default-policy permit-all ids-
    option land groups apply-groups apply-groups-except <*> <lan*> schedulers scheduler daily start-time
    stop-time 08:00 all-day scheduler-name source-address-excluded insert before attach nat source pool rule-
    set rule source-nat destination-nat static-nat prefix mapped-port inet off interface range port overflow-
    pool proxy-arp 64:ff9b::/96 persistent-nat
";

/// Words that are hard to print.
const ODD: &[&str] = &[
    "\"\"",
    "\"a b\"",
    "\"inactive:\"",
    "\"set\"",
    "\"#x\"",
    "\"/*\"",
    r#""\\""#,
    r#""q\"q""#,
    "\"{;}\"",
    "é",
    "set",
    "delete",
    "\"[\"",
    "a\\b",
];

fn word() -> impl Strategy<Value = String> {
    let words: Vec<&str> = WORDS.split_whitespace().collect();
    prop_oneof![12 => select(words).prop_map(str::to_owned), 1 => select(ODD).prop_map(str::to_owned)]
}

/// Paths of the schema, followed by completion, so that known statements are met often.
fn known_path() -> impl Strategy<Value = Vec<String>> {
    vec((any::<prop::sample::Index>(), word()), 1..12).prop_map(|choices| {
        let mut path: Vec<String> = Vec::new();
        for (index, value) in choices {
            let words: Vec<&str> = path.iter().map(String::as_str).collect();
            let next = schema::complete(&words);
            if next.is_empty() {
                break;
            }
            let (name, _) = &next[index.index(next.len())];
            path.push(if name.starts_with('<') { value } else { name.clone() });
        }
        path
    })
}

fn header() -> impl Strategy<Value = String> {
    let plain =
        (vec(word(), 1..5), prop::option::weighted(0.2, vec(word(), 1..4)), prop::bool::weighted(0.15))
            .prop_map(|(words, list, inactive)| {
                let mark = if inactive { "inactive: " } else { "" };
                let list = list.map(|list| format!(" [ {} ]", list.join(" "))).unwrap_or_default();
                format!("{mark}{}{list}", words.join(" "))
            });
    let known = (known_path(), prop::bool::weighted(0.15)).prop_map(|(path, inactive)| {
        format!("{}{}", if inactive { "inactive: " } else { "" }, path.join(" "))
    });
    prop_oneof![plain, known]
}

fn statement() -> impl Strategy<Value = String> {
    let leaf = header().prop_map(|header| format!("{header};\n"));
    leaf.prop_recursive(5, 40, 5, |inner| {
        (header(), vec(inner, 0..5)).prop_map(|(header, body)| format!("{header} {{\n{}}}\n", body.concat()))
    })
}

/// `set` lines, of which some are deactivated or deleted again.
fn commands() -> impl Strategy<Value = String> {
    (
        vec(prop_oneof![known_path(), vec(word(), 1..7)], 1..8),
        vec((any::<prop::sample::Index>(), 0..3usize, 1..6usize), 0..4),
    )
        .prop_map(|(paths, changes)| {
            let mut text: String = paths.iter().map(|path| format!("set {}\n", path.join(" "))).collect();
            for (index, verb, length) in changes {
                let path = &paths[index.index(paths.len())];
                let path = path[..length.min(path.len())].join(" ");
                text.push_str(&format!("{} {path}\n", ["deactivate", "activate", "delete"][verb]));
            }
            text
        })
}

fn configuration() -> impl Strategy<Value = String> {
    vec(prop_oneof![3 => statement(), 2 => commands()], 1..6).prop_map(|parts| parts.concat())
}

/// Anything at all: tokens in the wrong places, unfinished quotes, odd bytes.
fn soup() -> impl Strategy<Value = String> {
    const PIECES: &[&str] =
        &["{", "}", "[", "]", ";", "\"", "\n", "/*", "*/", "#", "inactive: ", "set ", "delete ", " "];
    let piece = prop_oneof![
        4 => word(),
        4 => select(PIECES).prop_map(str::to_owned),
        1 => any::<String>(),
    ];
    vec(piece, 0..60).prop_map(|pieces| pieces.join(" "))
}

fn prints_back(tree: &Tree) -> Result<(), TestCaseError> {
    fuzz::fixed_point(tree, compile(tree).is_err()).map_err(TestCaseError::fail)
}

/// A block that is printed on one line with its only leaf: either may be inactive, or both.
#[test]
fn marks_of_one_line_blocks_read_back() {
    for marks in [("", "inactive: "), ("inactive: ", ""), ("inactive: ", "inactive: ")] {
        let (block, leaf) = marks;
        let text =
            format!("security {{ nat {{ source {{ {block}port-randomization {{ {leaf}disable; }} }} }} }}");
        prints_back(&parse(&text, "marks").unwrap()).unwrap_or_else(|error| panic!("{marks:?}: {error}"));
    }
}

/// Of a choice, one may stand active and others inactive, in any order; several active ones are refused, and the `set`
/// form of what is refused keeps the last.
#[test]
fn inactive_ones_of_a_choice_read_back() {
    let book = |body: &str| format!("security {{ address-book {{ global {{ address a {{ {body} }} }} }} }}");
    for body in [
        "inactive: 10.0.0.1/32; range-address 10.0.0.1 { to { 10.0.0.9; } }",
        "10.0.0.1/32; inactive: range-address 10.0.0.1 { to { 10.0.0.9; } }",
        "inactive: 10.0.0.1/32; inactive: 10.0.0.2/32; 10.0.0.3/32;",
    ] {
        let tree = parse(&book(body), "choice").unwrap();
        compile(&tree).unwrap_or_else(|errors| panic!("{body}: {errors}"));
        prints_back(&tree).unwrap_or_else(|error| panic!("{body}: {error}"));
    }
    let tree = parse(&book("system; range-address;"), "choice").unwrap();
    assert!(compile(&tree).is_err());
    prints_back(&tree).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn printing_reads_back(text in configuration()) {
        if let Ok(tree) = parse(&text, "generated") {
            prints_back(&tree)?;
            // Whether it compiles or not, it must say so without panic, and both forms must agree.
            if let Ok(compiled) = compile(&tree) {
                prop_assert_eq!(compile(&parse(&tree.to_set(), "set").unwrap()).ok(), Some(compiled));
            }
        }
    }

    #[test]
    fn nothing_panics_on_soup(text in soup()) {
        let mut tree = Tree::default();
        if tree.read(&text, "soup").is_ok() {
            prints_back(&tree)?;
        }
        let _ = (tree.to_text(), tree.to_set(), compile(&tree));
    }

    #[test]
    fn nothing_panics_on_bytes(bytes in vec(any::<u8>(), 0..400)) {
        let text = String::from_utf8_lossy(&bytes);
        if let Ok(tree) = parse(&text, "bytes") {
            prints_back(&tree)?;
        }
    }
}

#[test]
fn deep_and_long_texts_are_refused_or_read_quickly() {
    let deep = format!("{}{}", "a {".repeat(100_000), "}".repeat(100_000));
    assert!(parse(&deep, "deep").unwrap_err().to_string().contains("deep"));
    let unclosed = "a {".repeat(100_000);
    assert!(parse(&unclosed, "unclosed").is_err());
    let long = format!("set {}\n", "a ".repeat(100_000));
    assert!(parse(&long, "long").unwrap_err().to_string().contains("at most 64 words deep"));
    assert!(parse(&"x".repeat((32 << 20) + 1), "large").unwrap_err().to_string().contains("32 MiB"));
    assert!(parse(&"]".repeat(1_000_000), "closers").unwrap_err().len() <= 100);
    let wide: String =
        (0..100_000).map(|i| format!("set security address-book global address a{i} 10.0.0.0/8\n")).collect();
    let tree = parse(&wide, "wide").unwrap();
    assert_eq!(tree.to_set(), wide);
    compile(&tree).unwrap();
}
