//! What tests compare pages with: pages kept in tests/metrics, and Python's prometheus_client, which knows nothing of our writer.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write as _};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde::Deserialize;

/// A family as prometheus_client has read it. Names of counters are without `_total`, those of their samples with it.
#[derive(Debug, Deserialize)]
pub struct Family {
    /// Without `_total`.
    pub name: String,
    /// `counter` or `gauge`.
    pub kind: String,
    /// What it says of itself.
    pub help: String,
    /// In the order of the page.
    pub samples: Vec<Sample>,
}

/// One line of a page.
#[derive(Debug, Deserialize)]
pub struct Sample {
    /// With `_total`, where it is a counter.
    pub name: String,
    /// Values by name.
    pub labels: BTreeMap<String, String>,
    /// What was counted or measured.
    pub value: f64,
}

/// Reads a page from the standard input and writes it as JSON.
const PROGRAM: &str = r#"
import json, sys
from prometheus_client.parser import text_string_to_metric_families

def sample(sample):
    return {"name": sample.name, "labels": sample.labels, "value": sample.value}

def family(family):
    samples = [sample(one) for one in family.samples]
    return {"name": family.name, "kind": family.type, "help": family.documentation, "samples": samples}

page = sys.stdin.buffer.read().decode("utf-8")
print(json.dumps([family(one) for one in text_string_to_metric_families(page)]))
"#;

/// Has prometheus_client read a page. An error is its complaint, or says what it read otherwise than the page's lines tell.
pub fn read(page: &str) -> Result<Vec<Family>, String> {
    let output = python(page).map_err(|error| format!("/usr/bin/python3: {error}"))?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    if complaint.contains("ModuleNotFoundError") {
        return Err("python3-prometheus-client is missing: scripts/setup.sh installs it".to_owned());
    }
    if !output.status.success() {
        return Err(complaint.into_owned());
    }
    let families: Vec<Family> = serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
    // it takes samples that nobody announced, as a family without a type
    if let Some(family) = families.iter().find(|family| family.kind == "unknown") {
        return Err(format!("{} has no type", family.name));
    }
    let announced = page.lines().filter(|line| line.starts_with("# TYPE ")).count();
    let told = page.lines().filter(|line| !line.starts_with('#')).count();
    let samples: usize = families.iter().map(|family| family.samples.len()).sum();
    if (families.len(), samples) != (announced, told) {
        return Err(format!(
            "{announced} families and {told} samples were read as {} and {samples}",
            families.len()
        ));
    }
    if let Some(twice) = twice(&families) {
        return Err(format!("{} {:?} is there twice", twice.name, twice.labels));
    }
    Ok(families)
}

/// prometheus_client takes a series that stands there twice; Prometheus refuses the whole page for it.
fn twice(families: &[Family]) -> Option<&Sample> {
    let mut seen = BTreeSet::new();
    let mut samples = families.iter().flat_map(|family| &family.samples);
    samples.find(|sample| !seen.insert((&sample.name, &sample.labels)))
}

/// The system's Python: that is where the package puts its module.
fn python(page: &str) -> io::Result<Output> {
    let mut child = Command::new("/usr/bin/python3")
        .args(["-c", PROGRAM])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    // it reads all before it writes
    child.stdin.take().expect("it is piped").write_all(page.as_bytes())?;
    child.wait_with_output()
}

/// Panics unless tests/metrics/NAME.prom is this page; `UPDATE=1` writes it anew.
pub fn golden(name: &str, page: &str) {
    let file =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/metrics").join(name).with_extension("prom");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&file, page).unwrap();
    }
    let kept = std::fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(page, kept, "{} differs: run the test with UPDATE=1 and read the difference", file.display());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A judge that lets everything pass would be none.
    #[test]
    fn what_is_wrong_is_refused() {
        let good = "# HELP a_total x\n# TYPE a_total counter\na_total{l=\"v\"} 1\n";
        read(good).unwrap();
        let spoiled = [
            ("a word for a number", good.replace("} 1", "} one")),
            ("a label that does not end", good.replace("\"}", "")),
            ("a type nobody knows", good.replace(" counter", " thing")),
            ("a sample nobody announced", format!("{good}b 1\n")),
            ("a family announced twice", format!("{good}{good}")),
            ("a sample twice", format!("{good}a_total{{l=\"v\"}} 2\n")),
        ];
        for (what, page) in spoiled {
            assert!(read(&page).is_err(), "{what}");
        }
    }
}
