//! Binaries of other versions: one of an earlier commit, and a twin of this one whose tables are all a little otherwise.
//! They are built once, into a directory of their own below `target`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};

/// The last version whose state is one piece.
const BEFORE: &str = "defe1e3";

/// What another developer adds: a counter, a reason in the midst of the others, a longer record of a cache, a table, and fields of
/// records that must not be lost. File, text and what it becomes; each must be there.
const TWIN: [(&str, &str, &str); 9] = [
    (
        "bpf/reasons/entry.def",
        "REASON(ENTRY, UNKNOWN_UNIT,",
        "REASON(ENTRY, TWIN, twin, \"for what only the twin drops\")\nREASON(ENTRY, UNKNOWN_UNIT,",
    ),
    (
        "bpf/counters.def",
        "COUNTER(sent, LEFT,",
        "COUNTER(twin, NONE, twin, \"What only the twin counts\")\nCOUNTER(sent, LEFT,",
    ),
    ("bpf/abi/nexthop.h", "struct nexthop {\n", "struct nexthop {\n\t__u64 twin[4];\n"),
    ("bpf/abi/nexthop.h", "struct nexthop) == 32", "struct nexthop) == 64"),
    ("bpf/abi/flow.h", "\t__u32 spare[3];\n", "\t__u32 twin;\n\t__u32 spare[2];\n"),
    ("bpf/abi/gate.h", "struct grant {\n", "struct grant {\n\t__u64 twin[8];\n"),
    ("bpf/abi/gate.h", "struct grant) == 64", "struct grant) == 128"),
    (
        "crates/dataplane/src/grants.rs",
        "            zero: 0,\n",
        "            zero: 0,\n            twin: [0; 8],\n",
    ),
    (
        "bpf/maps.def",
        "MAP(NUMBERS, ARRAY, watermarks,",
        "MAP(RECORDS(), ARRAY, twin_table, __u32, struct sweep, 8, BPF_F_MMAPABLE, \"what only the twin has\")\n\
         MAP(NUMBERS, ARRAY, watermarks,",
    ),
];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn place() -> PathBuf {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("upgrade");
    fs::create_dir_all(&place).unwrap();
    place
}

/// The earlier version, or the binary that `SLUICE_BEFORE` names; None where its sources cannot be had, which is said.
pub fn before() -> Option<PathBuf> {
    if let Some(binary) = std::env::var_os("SLUICE_BEFORE") {
        return Some(binary.into());
    }
    static BINARY: OnceLock<Option<PathBuf>> = OnceLock::new();
    let make = || {
        let tree = place().join("before");
        let archive = place().join("before.tar");
        let git = |arguments: &[&str]| {
            let done = Command::new("git").arg("-C").arg(repository()).args(arguments).status();
            done.is_ok_and(|status| status.success())
        };
        if !tree.join("Cargo.toml").exists() {
            let output = archive.display().to_string();
            if !git(&["archive", "--output", &output, BEFORE]) {
                eprintln!(
                    "SKIPPED: {BEFORE} is not in this clone's history; `git fetch --unshallow` brings it"
                );
                return None;
            }
            fs::create_dir_all(&tree).unwrap();
            let unpacked = Command::new("tar").arg("xf").arg(&archive).arg("-C").arg(&tree).status().unwrap();
            assert!(unpacked.success(), "tar cannot unpack {}", archive.display());
        }
        Some(build(&tree, "before"))
    };
    BINARY.get_or_init(make).clone()
}

/// This version with [`TWIN`].
pub fn twin() -> PathBuf {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    let make = || {
        let tree = place().join("twin");
        let root = repository();
        for part in ["bpf", "crates", "contrib", "docs", "examples", "tests", "Cargo.toml", "Cargo.lock"] {
            copy(&root.join(part), &tree.join(part), Path::new(part));
        }
        build(&tree, "twin")
    };
    BINARY.get_or_init(make).clone()
}

/// Files that are as they must be stay untouched, so that nothing is built twice.
fn copy(from: &Path, to: &Path, name: &Path) {
    if from.is_dir() {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let file = entry.unwrap().file_name();
            copy(&from.join(&file), &to.join(&file), &name.join(&file));
        }
        return;
    }
    let mut bytes = fs::read(from).unwrap();
    let changes: Vec<_> = TWIN.iter().filter(|(file, _, _)| Path::new(file) == name).collect();
    if !changes.is_empty() {
        let mut text = String::from_utf8(bytes).unwrap();
        for (file, old, new) in changes {
            assert!(text.contains(old), "{file} has no `{old}` any more: the twin must change otherwise");
            text = text.replacen(old, new, 1);
        }
        bytes = text.into_bytes();
    }
    if fs::read(to).is_ok_and(|there| there == bytes) {
        return;
    }
    fs::write(to, bytes).unwrap();
}

/// The binary of a tree, under a name of its own.
fn build(tree: &Path, name: &str) -> PathBuf {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    // of its own: cargo takes equally named crates of two trees for the same
    let (target, binary) = (place().join(format!("build-{name}")), place().join(format!("sluice-{name}")));
    let done = Command::new(env!("CARGO"))
        .args(["build", "--locked", "-p", "sluice", "--bin", "sluice"])
        .current_dir(tree)
        .env("CARGO_TARGET_DIR", &target)
        // an older tree is not measured by the lints of today
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .status()
        .unwrap();
    assert!(done.success(), "{} does not build", tree.display());
    let built = target.join("debug/sluice");
    if !fs::read(&built).is_ok_and(|new| fs::read(&binary).is_ok_and(|old| old == new)) {
        let next = binary.with_extension("next");
        fs::copy(&built, &next).unwrap();
        fs::rename(&next, &binary).unwrap();
    }
    binary
}
