//! What no program may do, looked for in the sources.

use std::fs;
use std::path::{Path, PathBuf};

fn sources(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect()
}

/// It runs the other device's egress programs at once: they would find the memory of this CPU in use by the packet that
/// is being copied.
#[test]
fn no_program_sends_a_copy_from_within() {
    let sources = sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bpf"));
    let mut calls = 0;
    for source in &sources {
        let text = fs::read_to_string(source).unwrap();
        assert!(!text.contains("bpf_clone_redirect"), "{}: bpf_clone_redirect", source.display());
        calls += text.matches("bpf_redirect").count();
    }
    assert!(calls > 0, "the programs of {} files are not what was searched", sources.len());
}
