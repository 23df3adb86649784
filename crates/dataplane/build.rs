//! Compiles the two BPF objects, each once more as they are while somebody traces, the one that carries counters over, and
//! those that tests stress the flow table, probe the tables and ask the clock with. `SLUICE_SLIM` leaves debug data out of the
//! objects of a gateway.

use std::env;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use flate2::Compression;
use flate2::write::ZlibEncoder;

const OLDEST_CLANG: u32 = 18;
const NEWEST_CLANG: u32 = 30;

fn main() {
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let libbpf = env::var_os("DEP_BPF_INCLUDE").expect("libbpf-sys tells where its headers are");
    let bpf = manifest.join("../../bpf").canonicalize().expect("cannot find the directory bpf");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=CLANG");
    println!("cargo:rerun-if-env-changed=SLUICE_SLIM");
    watch(&bpf);

    let clang = find_clang();
    for (source, name) in [
        ("xdp", "xdp"),
        ("tc", "tc"),
        ("carry/carry", "carry"),
        ("stress/stress", "stress"),
        ("stress/tables", "tables"),
        ("stress/clock", "clock"),
    ] {
        compile(&clang, &bpf, Path::new(&libbpf), source, &[], &out.join(format!("{name}.bpf.o")));
    }
    for hook in ["xdp", "tc"] {
        let object = out.join(format!("{hook}_traced.bpf.o"));
        compile(&clang, &bpf, Path::new(&libbpf), hook, &["-DSLUICE_TRACE"], &object);
    }
    if env::var_os("SLUICE_SLIM").is_some() {
        for name in ["xdp", "tc", "xdp_traced", "tc_traced"] {
            slim(&out.join(format!("{name}.bpf.o")));
        }
    }
    for name in ["xdp", "tc", "xdp_traced", "tc_traced"] {
        pack(&out.join(format!("{name}.bpf.o")));
    }
}

/// A fifth of the room, until it is loaded.
fn pack(object: &Path) {
    let bytes = std::fs::read(object).expect("the object was just made");
    let mut packed = ZlibEncoder::new(Vec::new(), Compression::best());
    packed.write_all(&bytes).expect("there is memory");
    let packed = packed.finish().expect("there is memory");
    std::fs::write(object.with_extension("o.zz"), packed).expect("cannot write beside the object");
}

/// More than half of an object is DWARF, of which the kernel and libbpf read nothing; linking it alone leaves that out.
fn slim(object: &Path) {
    let whole = object.with_extension("whole");
    std::fs::rename(object, &whole).expect("the object was just made");
    let status = Command::new("bpftool").args(["gen", "object"]).arg(object).arg(&whole).status();
    assert!(status.is_ok_and(|status| status.success()), "bpftool could not link {}", whole.display());
}

/// The sources themselves, not the directories of benches and labs beside them.
fn watch(bpf: &Path) {
    let lists = ["stages.def", "programs.def", "counters.def", "reasons", "tables.def", "maps.def"];
    for part in ["abi", "lib", "stage", "fanout", "gate", "nat", "nat64", "gtpu", "carry", "stress", "trace"]
        .into_iter()
        .chain(lists)
    {
        println!("cargo:rerun-if-changed={}", bpf.join(part).display());
    }
    for entry in std::fs::read_dir(bpf).expect("cannot list bpf").flatten() {
        if entry.path().extension().is_some_and(|extension| extension == "h" || extension == "c") {
            println!("cargo:rerun-if-changed={}", entry.path().display());
        }
    }
}

/// `$CLANG`, else clang-19, else the newest other one that is new enough.
fn find_clang() -> String {
    if let Ok(clang) = env::var("CLANG") {
        return clang;
    }
    let numbered = [19].into_iter().chain((OLDEST_CLANG..=NEWEST_CLANG).rev()).map(|n| format!("clang-{n}"));
    numbered.chain(["clang".to_owned()]).find(|clang| version(clang) >= Some(OLDEST_CLANG)).unwrap_or_else(|| {
        panic!(
            "no clang {OLDEST_CLANG} or newer found to compile bpf/*.bpf.c; install clang-19 or set CLANG to one"
        )
    })
}

fn version(clang: &str) -> Option<u32> {
    let output = Command::new(clang).arg("--version").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.split_once("clang version ")?.1.split('.').next()?.parse().ok()
}

fn compile(clang: &str, bpf: &Path, libbpf: &Path, name: &str, more: &[&str], object: &Path) {
    let source = bpf.join(format!("{name}.bpf.c"));
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets it");
    let status = Command::new(clang)
        .args([
            "-target",
            "bpf",
            "-O2",
            "-g",
            "-mcpu=v4",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-Wno-unused-parameter",
        ])
        .args(more)
        .arg(format!("-ffile-prefix-map={}=bpf", bpf.display()))
        .arg("-I")
        .arg(bpf)
        .arg("-isystem")
        .arg(libbpf)
        .args(["-idirafter", &format!("/usr/include/{arch}-linux-gnu")])
        // of another machine's packages
        .args(["-idirafter", &format!("/usr/{arch}-linux-gnu/include"), "-c"])
        .arg(&source)
        .arg("-o")
        .arg(object)
        .status()
        .unwrap_or_else(|error| panic!("cannot run {clang}: {error}"));
    assert!(status.success(), "{clang} refuses {}; its messages stand above", source.display());
}
