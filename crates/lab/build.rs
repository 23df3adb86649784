//! Compiles the lab's helper programs (`bpf/lab`) with clang.

use std::path::{Path, PathBuf};
use std::process::Command;

use libbpf_cargo::SkeletonBuilder;

const OLDEST_CLANG: u32 = 18;

fn main() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bpf/lab");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let clang = find_clang();
    println!("cargo:rerun-if-env-changed=CLANG");
    println!("cargo:rerun-if-env-changed=PATH");
    for name in ["vlan_tag", "stream"] {
        let source = sources.join(format!("{name}.bpf.c"));
        println!("cargo:rerun-if-changed={}", source.display());
        SkeletonBuilder::new()
            .source(&source)
            .clang(&clang)
            .clang_args(["-mcpu=v4", "-Wall", "-Werror", &multiarch_include()])
            .build_and_generate(out.join(format!("{name}.skel.rs")))
            .unwrap_or_else(|error| panic!("cannot compile {}: {error:?}", source.display()));
    }
}

/// `$CLANG`, else clang-19, else the newest other one that is new enough.
fn find_clang() -> String {
    let candidates = std::env::var("CLANG")
        .into_iter()
        .chain(["clang-19", "clang-22", "clang-21", "clang-20", "clang-18", "clang"].map(str::to_owned));
    for clang in candidates {
        if version(&clang).is_some_and(|version| version >= OLDEST_CLANG) {
            return clang;
        }
    }
    panic!("no clang {OLDEST_CLANG} or newer in PATH; run scripts/setup.sh or set CLANG")
}

fn version(clang: &str) -> Option<u32> {
    let output = Command::new(clang).arg("-dumpversion").output().ok()?;
    String::from_utf8(output.stdout).ok()?.split('.').next()?.trim().parse().ok()
}

/// <linux/types.h> needs <asm/types.h>, which Debian keeps under the machine's triplet.
fn multiarch_include() -> String {
    let arch = std::env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets CARGO_CFG_TARGET_ARCH");
    format!("-I/usr/include/{arch}-linux-gnu")
}
