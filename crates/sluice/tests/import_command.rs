//! `sluice import`: what it writes where, and how it ends.

use crate::common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use common::{BINARY, accepted, ends, refused, stderr, stdout};

fn router(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/import").join(name)
}

fn import(arguments: &[&str]) -> Output {
    ends(Command::new(BINARY).arg("import").args(arguments).stdin(Stdio::null()))
}

#[test]
fn a_router_is_taken_over_and_passes_check() {
    let directory = tempfile::tempdir().unwrap();
    let result = directory.path().join("sluice.conf");
    let (branch, written) = (router("branch.conf"), result.display().to_string());
    let interfaces = "ge-0/0/0=wan0,ge-0/0/1=lan0,ge-0/0/2=dmz0";
    let output = import(&[&branch.display().to_string(), "--interfaces", interfaces, "-o", &written]);
    let told = refused(&output, 1);
    assert!(stdout(&output).is_empty());
    assert!(told.contains("ge-0/0/0 is wan0") && told.contains("no-social-widest"), "{told}");
    let ranks: Vec<usize> = ["security: ", "traffic: ", "service: ", "management: ", "form: "]
        .iter()
        .map(|rank| told.find(&format!("\n{rank}")).unwrap_or_else(|| panic!("no {rank}in {told}")))
        .collect();
    assert!(ranks.is_sorted(), "{told}");
    let text = fs::read_to_string(&result).unwrap();
    assert!(text.contains("# interface ge-0/0/2 = dmz0") && text.contains("dmz0.30;"), "{text}");
    let checked = ends(Command::new(BINARY).args(["check", "--no-interfaces", &written]));
    assert!(accepted(&checked).contains("ok (3 units"), "{}", stdout(&checked));
    // Again, there is nothing to do.
    let again = import(&[&written]);
    assert_eq!(accepted(&again), text);
    assert!(stderr(&again).contains("all of it is taken over"));
}

#[test]
fn exit_codes_tell_how_far_it_came() {
    let of = |name: &str, more: &[&str]| {
        let path = router(name).display().to_string();
        import(&[&[path.as_str()], more].concat())
    };
    assert!(accepted(&of("all-taken-over.conf", &["--interfaces", "ge-0/0/0=eth0"])).contains("eth0.0;"));
    assert!(refused(&of("all-taken-over.conf", &[]), 1).contains("`--interfaces ge-0/0/0=DEVICE` does"));
    assert!(refused(&of("fail-syntax.conf", &[]), 2).contains("fail-syntax.conf:3:5: a `;` is missing"));
    let wider = of("gateway-policies.conf", &[]);
    assert!(refused(&wider, 2).contains("--accept") && stdout(&wider).is_empty());
    let seen = of("gateway-policies.conf", &["--accept"]);
    assert!(
        refused(&seen, 1).contains("wider: more may pass") && stdout(&seen).contains("inactive: from-zone a")
    );
    assert!(refused(&of("nowhere.conf", &[]), 2).contains("cannot read"));
    assert!(refused(&of("branch.conf", &["--interfaces", "ge-0/0/0"]), 2).contains("NAME=DEVICE"));
    assert!(
        refused(&of("branch.conf", &["--interfaces", "ge-9/0/0=eth0"]), 2)
            .contains("no interface `ge-9/0/0`")
    );
}
