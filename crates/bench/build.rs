//! Compiles the bench's programs (`bpf/bench`) with clang and generates the layouts they share with this crate.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use bindgen::callbacks::{DeriveInfo, ItemInfo, ParseCallbacks, TypeKind};
use libbpf_cargo::SkeletonBuilder;

const OLDEST_CLANG: u32 = 18;

fn main() {
    // asked for when it runs: a copied target directory must not compile another tree's programs
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR"));
    let bpf = manifest.join("../../bpf");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=CLANG");
    println!("cargo:rerun-if-changed={}", bpf.display());
    println!("cargo:rustc-env=SLUICE_BPF_SOURCES={}", hash(&bpf));
    layouts(&bpf).write_to_file(out.join("layouts.rs")).expect("cannot write layouts.rs");
    let clang = find_clang();
    for name in ["xdp", "tc", "frames", "mapops", "wire", "gtpu"] {
        let source = bpf.join("bench").join(format!("{name}.bpf.c"));
        SkeletonBuilder::new()
            .source(&source)
            .obj(out.join(format!("{name}.bpf.o")))
            .clang(&clang)
            .clang_args([
                "-mcpu=v4",
                "-Wall",
                "-Werror",
                &format!("-I{}", bpf.display()),
                &multiarch_include(),
            ])
            .build()
            .unwrap_or_else(|error| panic!("cannot compile {}: {error:?}", source.display()));
    }
}

/// Tells whether figures are of these programs: FNV-1a (RFC 9923) over every source's name and text.
fn hash(bpf: &Path) -> String {
    let mut files = vec![];
    let mut folders = vec![bpf.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("cannot read bpf/").flatten() {
            let path = entry.path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files.sort();
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for file in files {
        let name = file.strip_prefix(bpf).expect("a file below bpf/").display().to_string();
        let text = fs::read(&file).expect("cannot read a source of bpf/");
        for byte in name.bytes().chain(text) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
    format!("{hash:016x}")
}

fn layouts(bpf: &Path) -> bindgen::Bindings {
    bindgen::Builder::default()
        .header(bpf.join("bench/bench.h").display().to_string())
        .header(bpf.join("bench/mapops.h").display().to_string())
        .header(bpf.join("bench/gtpu.h").display().to_string())
        .header(bpf.join("bench/wire.h").display().to_string())
        .allowlist_file(r".*/bpf/bench/[a-z]+\.h")
        .generate_comments(false)
        .layout_tests(true)
        .derive_debug(false)
        .parse_callbacks(Box::new(Naming))
        .generate()
        .unwrap_or_else(|error| {
            panic!("cannot read bpf/bench/bench.h (libclang 18 or newer is needed): {error}")
        })
}

#[derive(Debug)]
struct Naming;

impl ParseCallbacks for Naming {
    /// `ring_entry4` becomes `RingEntry4`; constants keep their names.
    fn item_name(&self, item: ItemInfo) -> Option<String> {
        let snake = item.name.chars().all(|c| c == '_' || c.is_ascii_lowercase() || c.is_ascii_digit());
        (snake && !item.name.starts_with('_')).then(|| camel_case(item.name))
    }

    fn add_derives(&self, info: &DeriveInfo<'_>) -> Vec<String> {
        if info.kind != TypeKind::Struct {
            return vec![];
        }
        ["FromBytes", "IntoBytes", "Immutable", "KnownLayout"]
            .map(|name| format!("zerocopy::{name}"))
            .to_vec()
    }
}

fn camel_case(name: &str) -> String {
    let capital = |word: &str| word[..1].to_uppercase() + &word[1..];
    name.split('_').filter(|word| !word.is_empty()).map(capital).collect()
}

/// `$CLANG`, else clang-19, else another one that is new enough.
fn find_clang() -> String {
    let names = ["clang-19", "clang-22", "clang-21", "clang-20", "clang-18", "clang"];
    let mut candidates = env::var("CLANG").into_iter().chain(names.map(str::to_owned));
    candidates.find(|clang| version(clang).is_some_and(|version| version >= OLDEST_CLANG)).unwrap_or_else(
        || panic!("no clang {OLDEST_CLANG} or newer in PATH; run scripts/setup.sh or set CLANG"),
    )
}

fn version(clang: &str) -> Option<u32> {
    let output = Command::new(clang).arg("-dumpversion").output().ok()?;
    String::from_utf8(output.stdout).ok()?.split('.').next()?.trim().parse().ok()
}

/// <linux/types.h> needs <asm/types.h>, which Debian keeps under the machine's triplet; of another machine's packages, in
/// a directory of their own.
fn multiarch_include() -> String {
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets CARGO_CFG_TARGET_ARCH");
    let own = format!("/usr/include/{arch}-linux-gnu");
    let cross = format!("/usr/{arch}-linux-gnu/include");
    format!("-I{}", if std::path::Path::new(&own).join("asm").exists() { own } else { cross })
}
