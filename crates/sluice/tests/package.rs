//! The Debian package, without the time that a clean system takes (`tests/chroot/deb` takes it): what is in it, and whether
//! systemd and the shell take its units and scripts.

use crate::common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{BINARY, accepted, ends, stdout};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn the_package_has_what_a_gateway_needs() {
    let dir = std::env::temp_dir().join(format!("sluice-package-{}", std::process::id()));
    let mut make = Command::new(root().join("scripts/deb"));
    make.args(["--binary", BINARY, "--version", "9.8.7", "--output"]).arg(&dir);
    let made = accepted(&ends(make.env("DPKG_DEB_COMPRESSOR_TYPE", "none")));
    let package = made.trim();
    let field = |name: &str| stdout(&ends(Command::new("dpkg-deb").args(["--field", package, name])));
    assert_eq!((field("Package").trim(), field("Version").trim()), ("sluice", "9.8.7"));
    assert!(field("Depends").contains("nftables") && field("Depends").contains("libc6 (>= 2."));
    let extracted = dir.join("extracted");
    accepted(&ends(Command::new("dpkg-deb").args(["--raw-extract", package]).arg(&extracted)));
    for file in [
        "usr/bin/sluice",
        "usr/share/doc/sluice/copyright",
        "usr/share/doc/sluice/examples/branch.conf",
        "usr/share/doc/sluice/grafana/fanout.json",
        "DEBIAN/md5sums",
    ] {
        assert!(extracted.join(file).exists(), "{file}");
    }
    for script in ["postinst", "prerm", "postrm"] {
        accepted(&ends(Command::new("sh").arg("-n").arg(extracted.join("DEBIAN").join(script))));
    }
    // the daemon may wait for an interface for as long as it takes: who installs does not
    let postinst = fs::read_to_string(extracted.join("DEBIAN/postinst")).unwrap();
    assert!(postinst.contains("--no-block restart sluice.service"), "{postinst}");
    assert!(!postinst.lines().any(|line| line.contains("invoke") && line.contains(" sluice.service")));
    // with the path that the binary has here
    for unit in ["sluice.service", "sluice-guard.service"] {
        let path = extracted.join("usr/lib/systemd/system").join(unit);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains("ExecStart=/usr/bin/sluice "), "{text}");
        fs::write(&path, text.replace("/usr/bin/sluice", BINARY)).unwrap();
        let mut verify = Command::new("systemd-analyze");
        let said = ends(verify.args(["verify", "--man=no"]).arg(&path));
        assert!(said.status.success() && said.stderr.is_empty(), "{said:?}");
    }
    fs::remove_dir_all(&dir).unwrap();
}
