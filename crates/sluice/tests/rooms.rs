//! Who may import whom, and that tests which nobody lists are not forgotten.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Crates by height: each imports only from rows above its own.
const ROWS: [&[&str]; 6] = [
    &["abi", "language", "libbpf", "memory", "metrics", "netlink", "netns", "wire"],
    &["plan", "xsk"],
    &["dataplane", "fanout"],
    &["control", "lab", "monitor"],
    &["bench"],
    &["packet-tests", "sluice"],
];

/// Rooms of crates that have some, by height: each imports only from rooms before its own. Every module of such a crate is a
/// room or stands in one, and modules of one room import each other in no circle either.
const ROOMS: [(&str, &[&str]); 2] = [
    ("bench", &["method", "report", "generator", "testbed", "suites", "args"]),
    ("control", &["api", "kernel", "state", "functions", "commit", "events", "views", "serve", "daemon"]),
];

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

/// Words between back quotes in which something is only an example.
const EXAMPLES: [&str; 2] = ["NAME", "SUBJECT"];

/// Whatever the page names as a file or a folder of this tree is there, and so is every page that it leads to.
#[test]
fn what_the_page_names_exists() {
    let top = crates().parent().unwrap().to_owned();
    let text = fs::read_to_string(top.join("docs/ARCHITECTURE.md")).unwrap();
    let quoted = text.split('`').skip(1).step_by(2).filter(|quoted| !quoted.contains(char::is_whitespace));
    let is_path = |word: &&str| {
        let first = word.split('/').next().unwrap();
        let file = word
            .rsplit_once('.')
            .is_some_and(|(_, end)| ["rs", "h", "def", "md", "case", "conf"].contains(&end));
        file || word.contains('/') && !first.is_empty() && !first.contains('<') && top.join(first).is_dir()
    };
    let real = |word: &&str| !EXAMPLES.iter().any(|example| word.contains(example)) && !word.contains('*');
    let paths: BTreeSet<&str> = quoted.filter(is_path).filter(real).collect();
    let gone: Vec<&&str> = paths.iter().filter(|path| !top.join(path).exists()).collect();
    assert!(gone.is_empty(), "docs/ARCHITECTURE.md names what is not there: {gone:?}");
    assert!(paths.len() > 100, "{} paths are named", paths.len());
    let links: Vec<&str> =
        text.split("](").skip(1).map(|rest| rest.split([')', '#']).next().unwrap()).collect();
    let gone: Vec<&&str> = links.iter().filter(|link| !top.join("docs").join(link).exists()).collect();
    assert!(!links.is_empty() && gone.is_empty(), "docs/ARCHITECTURE.md leads nowhere: {gone:?}");
}

type Graph = BTreeMap<String, BTreeSet<String>>;

/// Which modules of a crate name which others: those of its top, and those below its rooms as `room::module`. What only tests
/// import does not count.
fn modules(name: &str) -> Graph {
    let source = crates().join(name).join("src");
    let mut known = modules_in(&source);
    for room in rooms_of(name) {
        known.extend(modules_in(&source.join(room)).iter().map(|module| format!("{room}::{module}")));
    }
    let mut graph = Graph::new();
    for file in files(&source) {
        let own = path_of(file.strip_prefix(&source).unwrap());
        let Some(module) = module_of(&own, &known).filter(|_| !file.ends_with("tests.rs")) else { continue };
        let text = fs::read_to_string(&file).unwrap();
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        let mut paths = named(text, &own);
        if file.ends_with("mod.rs") {
            paths.extend(children_named(text, &own, &known));
        }
        let imports = paths.iter().filter_map(|path| module_of(path, &known)).filter(|name| *name != module);
        graph.entry(module.clone()).or_default().extend(imports);
    }
    graph
}

fn rooms_of(name: &str) -> &'static [&'static str] {
    ROOMS.iter().find(|(of, _)| *of == name).map_or(&[], |(_, rooms)| rooms)
}

/// Of a folder; a room that is one file has none.
fn modules_in(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path());
    let names = entries.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned());
    names.filter(|name| !["lib", "main", "mod"].contains(&name.as_str())).collect()
}

/// `a/b.rs` and `a/b/mod.rs` are `a::b`.
fn path_of(file: &Path) -> Vec<String> {
    let names = file.with_extension("");
    let names = names.iter().map(|name| name.to_str().unwrap().to_owned());
    names.filter(|name| name != "mod").collect()
}

/// The module that a path leads into, or its room where the room itself has what is named.
fn module_of(path: &[String], known: &BTreeSet<String>) -> Option<String> {
    let front = |length: usize| path.get(..length).map(|names| names.join("::"));
    [front(2), front(1)].into_iter().flatten().find(|name| known.contains(name))
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] })
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect()
}

/// The paths behind `crate::` and `super::` in a file of the module `own`, also in braces.
fn named(text: &str, own: &[String]) -> BTreeSet<Vec<String>> {
    let code: String = text.lines().map(|line| line.split("//").next().unwrap().to_owned() + "\n").collect();
    let mut paths = BTreeSet::new();
    let mut add = |above: &[String], behind: &str| {
        for path in use_tree(behind) {
            let names = path.split("::").filter(|name| !name.is_empty()).map(str::to_owned);
            paths.insert(above.iter().cloned().chain(names).collect());
        }
    };
    code.split("crate::").skip(1).for_each(|behind| add(&[], behind));
    let mut up = 0;
    for behind in code.split("super::").skip(1) {
        up += 1;
        // `super::super::` goes on
        if !behind.is_empty() {
            add(&own[..own.len().saturating_sub(up)], behind);
            up = 0;
        }
    }
    paths
}

/// A module names its children without any word before them.
fn children_named(text: &str, own: &[String], known: &BTreeSet<String>) -> Vec<Vec<String>> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let child = |name: &str| own.iter().cloned().chain([name.to_owned()]).collect::<Vec<_>>();
    let words = text.split(|c: char| !is_part(c)).filter_map(|path| path.split_once("::"));
    words.map(|(first, _)| child(first)).filter(|path| known.contains(&path.join("::"))).collect()
}

/// The paths of a text that begins with them: `a::{b, c::D}` is `a::b` and `a::c::D`.
fn use_tree(text: &str) -> Vec<String> {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':').unwrap_or(text.len());
    let (front, rest) = text.split_at(end);
    let Some(list) = rest.strip_prefix('{') else { return vec![front.to_owned()] };
    let branches = branches(list).into_iter().flat_map(use_tree);
    branches.map(|path| format!("{front}{path}")).collect()
}

/// What stands between the commas of a list that has been opened.
fn branches(list: &str) -> Vec<&str> {
    let (mut branches, mut begin, mut depth) = (vec![], 0, 0);
    for (at, c) in list.char_indices() {
        match c {
            ',' | '}' if depth == 0 => {
                branches.push(list[begin..at].trim());
                begin = at + 1;
                if c == '}' {
                    break;
                }
            }
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
    }
    branches
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

fn in_circles(graph: &Graph) -> Vec<&String> {
    graph.keys().filter(|module| reaches(graph, module, module)).collect()
}

#[test]
fn modules_import_each_other_in_no_circle() {
    for name in ROWS.concat() {
        let graph = modules(name);
        let circle = in_circles(&graph);
        assert!(circle.is_empty(), "{name}: {circle:?} import each other in a circle");
    }
}

/// What climbs, as sentences.
fn upwards(graph: &Graph, rooms: &[&str]) -> Vec<String> {
    let height = |module: &str| {
        let room = module.split("::").next().unwrap();
        rooms.iter().position(|name| *name == room).unwrap_or_else(|| panic!("{module} stands in no room"))
    };
    let edges = graph.iter().flat_map(|(from, imports)| imports.iter().map(move |to| (from, to)));
    let climbs = edges.filter(|(from, to)| height(to) > height(from));
    climbs.map(|(from, to)| format!("{from} imports {to}")).collect()
}

#[test]
fn rooms_import_downwards_only() {
    for (name, rooms) in ROOMS {
        let graph = modules(name);
        let imports: usize = graph.values().map(BTreeSet::len).sum();
        assert!(imports > graph.len(), "{name}: {imports} imports of {} modules are too few", graph.len());
        assert_eq!(upwards(&graph, rooms), [""; 0], "{name}");
    }
}

#[test]
fn a_circle_and_a_way_up_are_found() {
    let path = |text: &str| -> Vec<String> { text.split("::").map(str::to_owned).collect() };
    let text = "use crate::a::B;\nuse crate::{b, c::{x, y::Z}, d};\n// crate::e\nuse super::{f::G, h};\nsuper::i();\nsuper::super::j();\n";
    assert_eq!(
        named(text, &path("room::own")),
        ["a::B", "b", "c::x", "c::y::Z", "d", "room::f::G", "room::h", "room::i", "j"].map(path).into()
    );
    let known = ["room", "room::f", "d"].map(str::to_owned).into();
    assert_eq!(module_of(&path("room::f::G"), &known).as_deref(), Some("room::f"));
    assert_eq!(module_of(&path("room::LIST"), &known).as_deref(), Some("room"));
    assert_eq!(module_of(&path("anyhow::Result"), &known), None);
    assert_eq!(children_named("[f::SUITE, x::Y]", &path("room"), &known), [path("room::f")]);
    assert_eq!(
        [path_of(Path::new("a/b.rs")), path_of(Path::new("a/b/mod.rs"))],
        [path("a::b"), path("a::b")]
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
    assert_eq!(in_circles(&round), ["a", "b", "c"]);
    let climbs = graph(&[("low::a", "high::b"), ("high::b", "low::c"), ("high::b", "high::d")]);
    assert_eq!(upwards(&climbs, &["low", "high"]), ["low::a imports high::b"]);
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
