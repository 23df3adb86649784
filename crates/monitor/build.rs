//! Compiles the programs that make copies on a gateway's ports (`bpf/monitor`) with clang.

use std::path::PathBuf;

use libbpf_cargo::SkeletonBuilder;

#[path = "../lab/clang.rs"]
mod clang;

fn main() {
    let sources = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"))
        .join("../../bpf/monitor");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    println!("cargo:rerun-if-env-changed=CLANG");
    println!("cargo:rerun-if-env-changed=PATH");
    println!("cargo:rerun-if-changed={}", sources.display());
    let source = sources.join("copies.bpf.c");
    SkeletonBuilder::new()
        .source(&source)
        .obj(out.join("copies.bpf.o"))
        .clang(clang::find_clang())
        .clang_args(["-mcpu=v4", "-Wall", "-Werror", &clang::multiarch_include()])
        .build()
        .unwrap_or_else(|error| panic!("cannot compile {}: {error:?}", source.display()));
}
