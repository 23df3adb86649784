//! Tests that nobody lists are not run.

use std::fs;
use std::path::Path;

/// A crate whose tests are one program names each file of them there, or as a program of its own.
#[test]
fn every_file_of_tests_is_run() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut looked_at = 0;
    for folder in fs::read_dir(crates).unwrap().map(|entry| entry.unwrap().path()) {
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
