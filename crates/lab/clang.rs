//! Finds clang and headers, for build scripts.

use std::process::Command;

const OLDEST_CLANG: u32 = 18;

/// `$CLANG`, else clang-19, else the newest other one that is new enough.
pub fn find_clang() -> String {
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

/// <linux/types.h> needs <asm/types.h>, which Debian keeps under the machine's triplet; of another machine's packages, in
/// a directory of their own.
pub fn multiarch_include() -> String {
    let arch = std::env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets CARGO_CFG_TARGET_ARCH");
    let own = format!("/usr/include/{arch}-linux-gnu");
    let cross = format!("/usr/{arch}-linux-gnu/include");
    format!("-I{}", if std::path::Path::new(&own).join("asm").exists() { own } else { cross })
}
