//! What `sluice show nat` prints of the view in tests/show/nat/view.json. `UPDATE=1` writes the files anew.

use std::fs;
use std::path::PathBuf;

use super::*;

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/show/nat").join(name)
}

fn is_as_written(name: &str, what: &What) {
    let view = fs::read_to_string(file("view.json")).unwrap();
    let view: NatView = serde_json::from_str(&view).unwrap();
    is_text(name, &report(what, &view));
}

fn is_text(name: &str, report: &str) {
    // tables pad their last column
    let report: String = report.lines().map(|line| line.trim_end().to_owned() + "\n").collect();
    if std::env::var("UPDATE").is_ok() {
        fs::write(file(name), &report).unwrap();
    }
    assert_eq!(report, fs::read_to_string(file(name)).unwrap(), "{name}");
}

#[test]
fn source() {
    is_as_written("source-summary.txt", &What::Source { part: SourceParts::Common(WithPools::Summary) });
    is_as_written(
        "source-rule.txt",
        &What::Source { part: SourceParts::Common(WithPools::Rule { name: None }) },
    );
    is_as_written(
        "source-rule-one.txt",
        &What::Source { part: SourceParts::Common(WithPools::Rule { name: Some("rest".into()) }) },
    );
    is_as_written(
        "source-pool.txt",
        &What::Source { part: SourceParts::Common(WithPools::Pool { name: None }) },
    );
    is_as_written(
        "source-pool-one.txt",
        &What::Source { part: SourceParts::Common(WithPools::Pool { name: Some("many".into()) }) },
    );
}

#[test]
fn destination() {
    is_as_written("destination-summary.txt", &What::Destination { part: WithPools::Summary });
    is_as_written("destination-rule.txt", &What::Destination { part: WithPools::Rule { name: None } });
    is_as_written("destination-pool.txt", &What::Destination { part: WithPools::Pool { name: None } });
}

#[test]
fn static_and_nat64_and_proxy() {
    is_as_written("static-summary.txt", &What::Static { part: Rules::Summary });
    is_as_written("static-rule.txt", &What::Static { part: Rules::Rule { name: None } });
    is_as_written("nat64-summary.txt", &What::Nat64 { part: Rules::Summary });
    is_as_written("nat64-rule.txt", &What::Nat64 { part: Rules::Rule { name: None } });
    is_as_written("proxy.txt", &What::Proxy);
}

#[test]
fn persistent_nat_table() {
    let text = fs::read_to_string(file("bindings.json")).unwrap();
    let view: NatBindingsView = serde_json::from_str(&text).unwrap();
    for (name, part) in [("bindings-summary.txt", TableParts::Summary), ("bindings-all.txt", TableParts::All)]
    {
        is_text(name, &bindings(&part, &view));
    }
}
