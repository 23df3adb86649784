//! docs/bench.schema.json is what `--json` writes: generated from the types, judged by a validator that does not know them.

use std::path::{Path, PathBuf};
use std::process::Command;

use sluice_bench::method::document::RunDocument;
use sluice_bench::method::result::{Better, Check, Figure, Profile, SuiteResult};
use sluice_bench::method::run;

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/bench.schema.json")
}

#[test]
fn the_published_schema_is_the_types() {
    let mut schema = serde_json::to_value(schemars::schema_for!(RunDocument)).unwrap();
    schema["title"] = "What `sluice bench --json` writes".into();
    let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path(), &text).unwrap();
    }
    let published = std::fs::read_to_string(path()).unwrap_or_default();
    assert!(
        published == text,
        "docs/bench.schema.json is not up to date: UPDATE=1 cargo test -p sluice-bench --test all schema::"
    );
}

fn document() -> RunDocument {
    let mut suite = SuiteResult::new("prog");
    let figure =
        Figure::new("a", "ns/packet", Better::Lower, vec![1.0, 2.0, 3.0]).against("floor", &[1.0, 1.0, 1.0]);
    suite.figures.push(figure.check(Check::new("single pass", true, "3 of 3")));
    let mut document = run::begin(Profile::Quick);
    document.suites.push(suite);
    run::end(document, std::time::Instant::now())
}

/// Python's jsonschema, from the distribution.
fn valid(name: &str, document: &serde_json::Value) -> Result<(), String> {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&file, document.to_string()).unwrap();
    let program = "import json, sys, jsonschema\njsonschema.Draft202012Validator(json.load(open(sys.argv[1]))).validate(json.load(open(sys.argv[2])))";
    let output =
        Command::new("/usr/bin/python3").args(["-c", program]).arg(path()).arg(&file).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!error.contains("ModuleNotFound"), "python3-jsonschema is missing: scripts/setup.sh installs it");
    if output.status.success() { Ok(()) } else { Err(error) }
}

#[test]
fn results_are_valid_and_mutilated_ones_are_not() {
    let good = serde_json::to_value(document()).unwrap();
    valid("good.json", &good).unwrap();
    type Spoil = fn(&mut serde_json::Value);
    let spoiled: [(&str, Spoil); 4] = [
        ("no profile", |value| _ = value.as_object_mut().unwrap().remove("profile")),
        ("a word for a number", |value| value["suites"][0]["figures"][0]["estimate"]["low"] = "low".into()),
        ("a key nobody knows", |value| value["suites"][0]["figures"][0]["sloppy"] = true.into()),
        ("a profile nobody has", |value| value["profile"] = "sloppy".into()),
    ];
    for (what, spoil) in spoiled {
        let mut bad = good.clone();
        spoil(&mut bad);
        assert!(valid(&format!("{}.json", what.replace(' ', "-")), &bad).is_err(), "{what}");
    }
}

#[test]
fn what_is_written_is_read_back() {
    let text = serde_json::to_string(&document()).unwrap();
    let read: RunDocument = serde_json::from_str(&text).unwrap();
    assert_eq!(serde_json::to_string(&read).unwrap(), text);
}
