//! What is wrong is said once, with its line, exit code 2, and nothing is attached.

use std::net::UdpSocket;

use super::bed::{LISTENER, site, yaml};
use crate::common::{Site, refused};

fn refusal(site: &Site, text: &str) -> String {
    let config = site.write_all("config.yaml", text);
    let said = refused(&site.sluice(&["fanout", "--config", &config.display().to_string()]), 2);
    assert!(!site.pins().exists(), "something is attached");
    said.lines().filter(|line| line.starts_with("sluice: ")).collect::<Vec<_>>().join("\n")
}

#[test]
fn of_the_machine() {
    let site = site("fan-wrong");
    let has = |text: &str, parts: &[&str]| {
        let said = refusal(&site, text);
        for part in parts {
            assert!(said.contains(part), "{part} is not in: {said}");
        }
    };
    let user = yaml("userspace", "");
    let taken = site.gateway.enter(|| UdpSocket::bind(LISTENER).unwrap()).unwrap();
    has(&user, &["config.yaml:5:", LISTENER, "in use"]);
    drop(taken);
    has(&user.replace("left0", "left9"), &["config.yaml:5:", "left9", "does not exist"]);
    has(&yaml("xdp", "").replace("left0", "left9"), &["left9", "does not exist"]);
    has(&user.replace(LISTENER, "10.9.9.9:514"), &["config.yaml:5:", "10.9.9.9:514"]);
    has(&user.replace("127.0.0.1:9090", "10.9.9.9:9090"), &["10.9.9.9:9090"]);
    has(&yaml("xdp", "").replace("10.71.2.12:5514", "10.71.2.1:5514"), &["config.yaml:5:", "this host"]);
}

#[test]
fn of_the_text() {
    let site = site("fan-text");
    let xdp = yaml("xdp", "");
    for (from, to, place) in [
        ("mode: xdp", "mode: warp", ":4:"),
        ("name: r1", "name: r0", ":8:"),
        ("10.71.2.12:5514", LISTENER, ":8:"),
        ("interface: left0", "interfaces: left0", ":3:"),
        ("downstream:", "downstream: 7", ":6:"),
        ("log_level: info", "log_level: [1]", ":11:"),
    ] {
        let said = refusal(&site, &xdp.replace(from, to));
        assert!(said.contains(&format!("config.yaml{place}")), "{from} -> {to}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}
