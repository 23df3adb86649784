//! Walks `tests/golden`: every NAME.conf is read, printed and compiled, and compared with the files beside it.
//!
//! | file | holds |
//! |---|---|
//! | NAME.ok | the configuration printed as hierarchical text |
//! | NAME.set | the same as `set` commands |
//! | NAME.inherited | what `display inheritance` shows, if groups are applied |
//! | NAME.fail | the errors, one a line |
//!
//! `fail-*` must be refused and has only a `.fail`; `syntax-*` holds Junos that Sluice reads and prints but does not
//! support, and has all three; anything else must compile. `UPDATE=1` writes the files anew: read the difference.

use std::fs;
use std::path::{Path, PathBuf};

use sluice_language::{Tree, compile, parse, schema};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn updating() -> bool {
    std::env::var_os("UPDATE").is_some_and(|value| value == "1")
}

/// Compares `text` with a file; `None` means that the file must not exist.
pub fn compare(path: &Path, text: Option<&str>, problems: &mut Vec<String>) {
    let found = fs::read_to_string(path).ok();
    if found.as_deref() == text {
        return;
    }
    if updating() {
        match text {
            Some(text) => fs::write(path, text).unwrap(),
            None => fs::remove_file(path).unwrap(),
        }
        return;
    }
    let name = path.display();
    problems.push(match (found, text) {
        (None, _) => format!("{name} is missing; it should hold:\n{}", text.unwrap_or_default()),
        (Some(_), None) => format!("{name} exists, but nothing should be there"),
        (Some(found), Some(text)) => format!("{name} differs at {}", first_difference(&found, text)),
    });
}

fn first_difference(expected: &str, seen: &str) -> String {
    let (mut expected, mut seen) = (expected.lines(), seen.lines());
    for line in 1.. {
        let (a, b) = (expected.next(), seen.next());
        if a != b || a.is_none() {
            return format!(
                "line {line}:\n  expected: {}\n  seen:     {}",
                a.unwrap_or("<end>"),
                b.unwrap_or("<end>")
            );
        }
    }
    unreachable!()
}

/// Printing is a fixed point of parsing, and both forms give the same tree; what is refused may hold several of which
/// one stands for all, and of those the `set` form keeps the last.
fn round_trip(tree: &Tree, name: &str, refused: bool, problems: &mut Vec<String>) {
    let text = tree.to_text();
    for (form, printed) in [("text", text.clone()), ("set", tree.to_set())] {
        match parse(&printed, name) {
            Ok(again) => {
                if again != *tree && !(form == "set" && refused) {
                    problems.push(format!("{name}: printed as {form}, it reads back as another tree"));
                } else if form == "text" && again.to_text() != text {
                    problems.push(format!("{name}: printing is not a fixed point of parsing"));
                }
            }
            Err(errors) => problems.push(format!("{name}: printed as {form}, it does not parse: {errors}")),
        }
    }
}

fn check(conf: &Path, problems: &mut Vec<String>) {
    let name = conf.file_stem().unwrap().to_string_lossy().into_owned();
    let file = format!("{name}.conf");
    let text = fs::read_to_string(conf).unwrap();
    let parsed = parse(&text, &file);
    let errors = match &parsed {
        Ok(tree) => {
            let errors = compile(tree).err();
            round_trip(tree, &file, errors.is_some(), problems);
            errors
        }
        Err(errors) => Some(errors.clone()),
    };
    let refused = name.starts_with("fail-") || name.starts_with("syntax-");
    if let Some(errors) = errors.as_ref().filter(|_| !refused) {
        problems.push(format!("{file} must compile:\n{errors}"));
    }
    if errors.is_none() && refused {
        problems.push(format!("{file} must be refused, and is not"));
    }
    let tree = parsed.as_ref().ok().filter(|_| !name.starts_with("fail-"));
    compare(&conf.with_extension("ok"), tree.map(Tree::to_text).as_deref(), problems);
    compare(&conf.with_extension("set"), tree.map(Tree::to_set).as_deref(), problems);
    let inherited = tree.filter(|_| errors.is_none() && text.contains("apply-groups")).map(|tree| {
        let inherited = tree.to_inherited_text().unwrap();
        let again = parse(&inherited, &file).unwrap();
        if compile(&again) != compile(tree) {
            problems.push(format!("{file}: what it inherits, written out, means something else"));
        }
        inherited
    });
    compare(&conf.with_extension("inherited"), inherited.as_deref(), problems);
    compare(&conf.with_extension("fail"), errors.map(|errors| format!("{errors}\n")).as_deref(), problems);
}

#[test]
fn golden() {
    let mut configurations: Vec<PathBuf> = fs::read_dir(root().join("tests/golden"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "conf"))
        .collect();
    configurations.sort();
    assert!(configurations.len() >= 120, "only {} goldens found", configurations.len());
    let refused = configurations.iter().filter(|path| path.with_extension("fail").exists()).count();
    assert!(3 * refused >= configurations.len(), "only {refused} goldens must fail");
    let mut problems = Vec::new();
    for conf in &configurations {
        check(conf, &mut problems);
    }
    assert!(problems.is_empty(), "{} of the goldens differ:\n{}", problems.len(), problems.join("\n"));
}

#[test]
fn examples_compile_and_are_printed_as_written() {
    for entry in fs::read_dir(root().join("examples")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "conf") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let tree = parse(&text, &path.to_string_lossy()).unwrap_or_else(|errors| panic!("{errors}"));
        compile(&tree).unwrap_or_else(|errors| panic!("{errors}"));
        let uncommented: String =
            text.lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect();
        let differs = first_difference(&uncommented, &tree.to_text());
        assert!(tree.to_text() == uncommented, "{} is not printed as written: {differs}", path.display());
    }
}

#[test]
fn the_reference_is_up_to_date() {
    let mut problems = Vec::new();
    compare(&root().join("docs/CONFIGURATION.md"), Some(&schema::markdown()), &mut problems);
    assert!(problems.is_empty(), "{}; run UPDATE=1 cargo test -p sluice-language", problems.join("\n"));
}
