//! What a large configuration takes of the daemon's memory is given back with it, and one beyond all bounds is refused by words.

use crate::common;

use std::fmt::Write as _;
use std::fs;

use common::{BASE, Site, accepted, is_soak, refused};
use sluice_lab::gateway::Gateway;

const MIB: u64 = 1 << 20;

fn policies(count: usize) -> String {
    let mut text = format!("{BASE}security {{ address-book {{ global {{\n");
    for n in 0..5000 {
        writeln!(text, "address a{n} 10.{}.{}.0/24;", n >> 8, n & 255).unwrap();
    }
    text += "} } policies { from-zone left to-zone right {\n";
    for n in 0..count {
        let (from, to) = (n % 5000, n * 7 % 5000);
        writeln!(
            text,
            "policy p{n} {{ match {{ source-address a{from}; destination-address a{to}; application junos-http; }} \
             then {{ permit; }} }}"
        )
        .unwrap();
    }
    text + "} } }\n"
}

/// Memory of the daemon's own, without files and maps.
fn own(gateway: &Gateway) -> u64 {
    let pid = gateway.json("/health").unwrap()["pid"].as_u64().unwrap();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

#[test]
fn what_a_large_commit_took_is_given_back() {
    let site = Site::new("memory");
    let small = site.write("small.conf", "");
    let (policies_of_large, rounds) = if is_soak() { (50_000, 3) } else { (20_000, 1) };
    let large = site.write_all("large.conf", &policies(policies_of_large));
    let gateway = site.start(&small);
    accepted(&site.commit(&small));
    let before = own(&gateway);
    let most = 40 * MIB * policies_of_large as u64 / 50_000;
    for round in 1..=rounds {
        accepted(&site.commit(&large));
        assert!(own(&gateway) - before > most, "a large one takes more than may stay");
        accepted(&site.commit(&small));
        let kept = own(&gateway).saturating_sub(before);
        assert!(kept < most, "round {round}: {} MiB more than before", kept / MIB);
    }
    let beyond = site.write_all("beyond.conf", &policies(150_000));
    let said = refused(&site.commit(&beyond), 1);
    assert!(said.contains("more than the daemon takes"), "{said}");
}
