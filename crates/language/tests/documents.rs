//! Configurations in the documents (fenced as `junos`) are complete and compile.

use std::fs;
use std::path::{Path, PathBuf};

use sluice_language::{compile, parse};

fn documents() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut paths: Vec<PathBuf> =
        fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.push(root.join("README.md"));
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    paths
}

fn configurations(text: &str) -> impl Iterator<Item = &str> {
    text.split("\n```junos\n").skip(1).map(|rest| rest.split("\n```").next().unwrap_or(rest))
}

#[test]
fn configurations_in_documents_compile() {
    let mut found = 0;
    for path in documents() {
        for configuration in configurations(&fs::read_to_string(&path).unwrap()) {
            found += 1;
            let name = path.to_string_lossy();
            let compiled = parse(configuration, &name).and_then(|tree| compile(&tree));
            compiled.unwrap_or_else(|errors| panic!("{name}: {errors}\n{configuration}"));
        }
    }
    assert!(found >= 2, "only {found} configurations found: are they still fenced as junos?");
}
