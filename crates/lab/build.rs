//! Compiles the lab's helper programs (`bpf/lab`) with clang.

use std::path::PathBuf;

use libbpf_cargo::SkeletonBuilder;

mod clang;

fn main() {
    let sources =
        PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("../../bpf/lab");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let clang = clang::find_clang();
    println!("cargo:rerun-if-env-changed=CLANG");
    println!("cargo:rerun-if-env-changed=PATH");
    for name in ["vlan_tag", "stream"] {
        let source = sources.join(format!("{name}.bpf.c"));
        println!("cargo:rerun-if-changed={}", source.display());
        SkeletonBuilder::new()
            .source(&source)
            .clang(&clang)
            .clang_args(["-mcpu=v4", "-Wall", "-Werror", &clang::multiarch_include()])
            .build_and_generate(out.join(format!("{name}.skel.rs")))
            .unwrap_or_else(|error| panic!("cannot compile {}: {error:?}", source.display()));
    }
}
