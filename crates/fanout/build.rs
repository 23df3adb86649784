//! Compiles the XDP program of fan-out over rings (`bpf/rings`) with clang.

use std::path::PathBuf;

use libbpf_cargo::SkeletonBuilder;

#[path = "../lab/clang.rs"]
mod clang;

fn main() {
    let sources =
        PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("../../bpf/rings");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    println!("cargo:rerun-if-env-changed=CLANG");
    println!("cargo:rerun-if-env-changed=PATH");
    println!("cargo:rerun-if-changed={}", sources.display());
    let source = sources.join("rings.bpf.c");
    SkeletonBuilder::new()
        .source(&source)
        .obj(out.join("rings.bpf.o"))
        .clang(clang::find_clang())
        .clang_args(["-mcpu=v4", "-Wall", "-Werror", &clang::multiarch_include()])
        .build()
        .unwrap_or_else(|error| panic!("cannot compile {}: {error:?}", source.display()));
}
