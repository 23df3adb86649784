//! Compiles the helper programs of the harness.

use std::env;
use std::path::PathBuf;
use std::process::Command;

/// Objects of `bpf/`.
const OBJECTS: [&str; 2] = ["arrive", "yardstick"];

fn main() {
    println!("cargo:rerun-if-env-changed=CLANG");
    OBJECTS.iter().for_each(|object| compile(object));
}

fn compile(object: &str) {
    let directory = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("bpf");
    let source = directory.join(object).with_extension("bpf.c");
    let object = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join(object);
    let object = object.with_extension("bpf.o");
    let libbpf = env::var_os("DEP_BPF_INCLUDE").expect("libbpf-sys tells where its headers are");
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets it");
    println!("cargo:rerun-if-changed={}", source.display());
    let wanted = env::var("CLANG").ok().into_iter();
    let known = ["clang-19", "clang-22", "clang-21", "clang-20", "clang-18", "clang"].map(str::to_owned);
    for clang in wanted.chain(known) {
        let status = Command::new(&clang)
            .args(["-target", "bpf", "-O2", "-g", "-mcpu=v4", "-Wall", "-Werror", "-isystem"])
            .arg(&libbpf)
            .args(["-idirafter", &format!("/usr/include/{arch}-linux-gnu")])
            // of another machine's packages
            .args(["-idirafter", &format!("/usr/{arch}-linux-gnu/include"), "-c"])
            .arg(&source)
            .arg("-o")
            .arg(&object)
            .status();
        match status {
            Ok(status) if status.success() => return,
            Ok(_) => panic!("{clang} refuses {}", source.display()),
            Err(_) => {}
        }
    }
    panic!("no clang found to compile {}; install clang-19 or set CLANG", source.display());
}
