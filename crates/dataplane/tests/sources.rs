//! What no program may do, looked for in the sources.

use std::fs;
use std::path::{Path, PathBuf};

fn sources(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect()
}

/// `bpf_clone_redirect` runs the other device's egress programs at once: they would find the memory of this CPU in use by the packet
/// that is being copied. Copies of GTP-U sessions alone are sent so: those programs write `struct packet`, of which nothing is
/// needed any more where copies are made.
#[test]
fn no_program_sends_a_copy_from_within_but_of_tunnels() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bpf");
    let calls = |of: &str| -> Vec<String> {
        let is_in = |path: &PathBuf| fs::read_to_string(path).unwrap().contains(&format!("{of}("));
        let mut found: Vec<String> = sources(&root)
            .into_iter()
            .filter(is_in)
            .map(|path| path.strip_prefix(&root).unwrap().display().to_string())
            .collect();
        found.sort();
        found
    };
    assert_eq!(calls("bpf_clone_redirect"), ["lib/hook_tc.h"]);
    assert_eq!(calls("hook_send_copy"), ["lib/hook_tc.h", "tc.bpf.c"]);
    assert_eq!(calls("hook_copy"), ["gtpu/duplicate.h", "lib/hook_tc.h", "lib/hook_xdp.h"]);
    for file in ["gtpu/decap.h", "gtpu/duplicate.h", "gtpu/encap.h"] {
        let text = fs::read_to_string(root.join(file)).unwrap();
        assert!(!text.contains("struct packet ") && !text.contains("->packet"), "{file} has a struct packet");
    }
}
