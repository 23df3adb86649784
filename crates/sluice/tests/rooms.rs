//! Who may import whom, and that tests which nobody lists are not forgotten.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Crates by height: each imports only from rows above its own.
const ROWS: [&[&str]; 6] = [
    &["abi", "language", "memory", "netns", "wire"],
    &["plan", "xsk"],
    &["dataplane", "fanout"],
    &["control", "lab", "monitor"],
    &["bench"],
    &["packet-tests", "sluice"],
];

/// Crates whose files still import each other in circles. None may come to this list.
const IN_CIRCLES: [&str; 1] = ["bench"];

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// What a crate's programs import of the others; its tests may import what they like.
fn imports(name: &str) -> Vec<String> {
    let manifest = fs::read_to_string(crates().join(name).join("Cargo.toml")).unwrap();
    let manifest: toml::Table = manifest.parse().unwrap();
    let names = manifest.get("dependencies").and_then(|list| list.as_table()).unwrap().keys();
    names.filter_map(|name| name.strip_prefix("sluice-")).map(str::to_owned).collect()
}

fn picture() -> String {
    let mut picture = String::from("```\n");
    for name in ROWS.concat() {
        let imports = imports(name).join(", ");
        let line = format!("{name:<12} {} {imports}", if imports.is_empty() { "  " } else { "<-" });
        picture += line.trim_end();
        picture.push('\n');
    }
    picture + "```\n"
}

#[test]
fn crates_import_downwards_only_and_the_picture_is_true() {
    let here: BTreeSet<String> = fs::read_dir(crates())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let listed: BTreeSet<String> = ROWS.concat().into_iter().map(str::to_owned).collect();
    assert_eq!(here, listed, "every crate has its row");
    for (height, row) in ROWS.iter().enumerate() {
        for name in *row {
            for import in imports(name) {
                assert!(
                    ROWS[..height].concat().contains(&import.as_str()),
                    "{name} imports {import} upwards"
                );
            }
        }
    }
    let page = crates().parent().unwrap().join("docs/ARCHITECTURE.md");
    let text = fs::read_to_string(&page).unwrap();
    let (begin, end) =
        ("<!-- crates:begin, written by UPDATE=1 cargo test -p sluice -->\n", "<!-- crates:end -->");
    let (before, rest) = text.split_once(begin).expect("the page has the picture");
    let (now, after) = rest.split_once(end).expect("and its end");
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&page, format!("{before}{begin}{}{end}{after}", picture())).unwrap();
    } else {
        assert_eq!(now, picture(), "run UPDATE=1 cargo test -p sluice --test all rooms::");
    }
}

type Graph = BTreeMap<String, BTreeSet<String>>;

/// Which top modules of a crate name which others. What only tests import does not count.
fn modules(source: &Path) -> Graph {
    let tops: BTreeSet<String> = fs::read_dir(source)
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .filter(|name| name != "lib" && name != "main")
        .collect();
    let mut graph = Graph::new();
    for file in files(source) {
        let top = file.strip_prefix(source).unwrap().iter().next().unwrap();
        let top = Path::new(top).file_stem().unwrap().to_str().unwrap().to_owned();
        let is_tests = file.file_name().is_some_and(|name| name == "tests.rs");
        if !tops.contains(&top) || is_tests {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        let named = named(text).into_iter().filter(|name| tops.contains(name) && *name != top);
        graph.entry(top.clone()).or_default().extend(named);
    }
    graph
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] })
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect()
}

/// What stands behind `crate::`, also in braces.
fn named(text: &str) -> BTreeSet<String> {
    let code: String = text.lines().map(|line| line.split("//").next().unwrap().to_owned() + "\n").collect();
    let word = |text: &str| -> String {
        text.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
    };
    let mut names = BTreeSet::new();
    for behind in code.split("crate::").skip(1) {
        let Some(list) = behind.strip_prefix('{') else {
            names.insert(word(behind));
            continue;
        };
        let mut depth = 0;
        let mut begins = true;
        for (at, c) in list.char_indices() {
            if begins {
                names.insert(word(&list[at..]));
                begins = false;
            }
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => begins = true,
                _ => {}
            }
        }
    }
    names
}

fn reaches(graph: &Graph, from: &str, to: &str) -> bool {
    let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(module) = next.pop() {
        for import in graph.get(module).into_iter().flatten() {
            if import == to {
                return true;
            }
            if seen.insert(import) {
                next.push(import);
            }
        }
    }
    false
}

fn in_circles(name: &str) -> Vec<String> {
    let graph = modules(&crates().join(name).join("src"));
    graph.keys().filter(|module| reaches(&graph, module, module)).cloned().collect()
}

#[test]
fn modules_import_each_other_in_no_circle() {
    for name in ROWS.concat() {
        let circle = in_circles(name);
        if IN_CIRCLES.contains(&name) {
            assert!(!circle.is_empty(), "{name} has no circle any more: take it from the list");
        } else {
            assert!(circle.is_empty(), "{name}: {circle:?} import each other in a circle");
        }
    }
}

#[test]
fn a_circle_of_modules_is_found() {
    assert_eq!(
        named("use crate::a::B;\nuse crate::{b, c::{x, y}, d};\n// crate::e\n"),
        ["a", "b", "c", "d"].map(str::to_owned).into()
    );
    let graph = |edges: &[(&str, &str)]| {
        let mut graph = Graph::new();
        for (from, to) in edges {
            graph.entry((*from).to_owned()).or_default().insert((*to).to_owned());
        }
        graph
    };
    let straight = graph(&[("a", "b"), ("b", "c"), ("a", "c")]);
    assert!(!reaches(&straight, "a", "a") && reaches(&straight, "a", "c"));
    let round = graph(&[("a", "b"), ("b", "c"), ("c", "a")]);
    assert!(reaches(&round, "b", "b"));
}

/// A crate whose tests are one program names each file of them there, or as a program of its own.
#[test]
fn every_file_of_tests_is_run() {
    let mut looked_at = 0;
    for folder in fs::read_dir(crates()).unwrap().map(|entry| entry.unwrap().path()) {
        let Ok(list) = fs::read_to_string(folder.join("tests/all.rs")) else { continue };
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        for file in fs::read_dir(folder.join("tests")).unwrap().map(|entry| entry.unwrap().path()) {
            let name = file.file_stem().unwrap().to_str().unwrap();
            if file.extension().is_some_and(|extension| extension == "rs") && name != "all" {
                let own = manifest.contains(&format!("name = \"{name}\""));
                assert!(own || list.contains(&format!("mod {name};")), "{} is run by nobody", file.display());
                looked_at += 1;
            }
        }
    }
    assert!(looked_at > 60, "{looked_at} files");
}
