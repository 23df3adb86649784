//! The mutants that `tests/mutants/run` has refused: each patch applies to this tree, and no stage is without one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use sluice_dataplane::abi::stages::Stage;

/// Of `make mutants`, and those that take back what closed a hole (`make mutants FIXES=1`).
const MUTANTS: &str = "tests/mutants";
const FIXES: &str = "tests/mutants/fixes";

fn patches(folder: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(super::path(folder)).unwrap().flatten();
    let mut patches: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    patches.retain(|path| path.extension().is_some_and(|extension| extension == "patch"));
    patches.sort();
    patches
}

/// What stands before the patch itself.
fn head(path: &Path, field: &str) -> String {
    let text = std::fs::read_to_string(path).unwrap();
    let head = text.split("diff --git").next().unwrap();
    let line = head.lines().find_map(|line| line.strip_prefix(&format!("{field}: ")));
    line.unwrap_or_else(|| panic!("{} has no line `{field}:`", path.display())).to_owned()
}

/// A row for each detector, in Markdown: what it refuses.
pub fn table() -> String {
    let mut refused: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for patch in patches(MUTANTS) {
        let name = patch.file_stem().unwrap().to_string_lossy().into_owned();
        let what = format!("`{name}`: {}", head(&patch, "Mutant"));
        refused.entry(head(&patch, "Detector")).or_default().push(what);
    }
    let rows = refused.iter().map(|(detector, what)| format!("| `{detector}` | {} |\n", what.join("<br>")));
    format!("| `cargo test` | what it refuses |\n|---|---|\n{}", rows.collect::<String>())
}

#[test]
fn every_mutant_applies_to_this_tree() {
    for patch in patches(MUTANTS).into_iter().chain(patches(FIXES)) {
        let output =
            Command::new("git").args(["apply", "--check"]).arg(&patch).current_dir(super::path("")).output();
        let output = output.expect("git is installed");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{} does not apply any more: {said}", patch.display());
    }
}

#[test]
fn every_stage_has_a_mutant_and_every_mutant_a_detector() {
    let (fixes, patches) = (patches(FIXES), patches(MUTANTS));
    assert!(patches.len() >= 26 && fixes.len() >= 20, "{} mutants and {} fixes", patches.len(), fixes.len());
    for patch in patches.iter().chain(&fixes) {
        for field in ["Mutant", "Detector", "Refused"] {
            assert!(!head(patch, field).is_empty(), "{}: {field}", patch.display());
        }
    }
    let stages: BTreeSet<String> = patches.iter().map(|patch| head(patch, "Stage")).collect();
    for stage in Stage::ALL {
        assert!(stages.contains(stage.name()), "no mutant of stage {}", stage.name());
    }
}
