//! `show match-policies` and `test policy`: the same answer as a packet gets, before and after a commit.

use crate::common;

use std::path::Path;
use std::process::{Command, Output};

use common::{BASE, Site, accepted, refused};

const MORE: &str = "\
set applications application web protocol tcp
set applications application web destination-port 443
set security policies global policy web match source-address any
set security policies global policy web match destination-address any
set security policies global policy web match application web
set security policies global policy web then permit
set security policies global policy web then log session-init
";

/// From the right to the left, where no policy of the pair stands.
const WEB: [&str; 14] = [
    "--from-zone",
    "right",
    "--to-zone",
    "left",
    "--source-ip",
    "10.71.2.2",
    "--destination-ip",
    "10.71.1.2",
    "--protocol",
    "tcp",
    "--source-port",
    "40000",
    "--destination-port",
    "443",
];

fn test_policy(file: &Path, packet: &[&str]) -> Output {
    let mut command = Command::new(common::BINARY);
    command.args(["test", "policy"]).arg(file).args(packet).output().unwrap()
}

#[test]
fn the_answer_is_what_the_packet_path_does() {
    let site = Site::new("matching");
    let base = site.write("a.conf", "");
    let _gateway = site.start(&base);
    let ask = |packet: &[&str]| accepted(&site.sluice(&[&["show", "match-policies"], packet].concat()));
    let echo = ["--from-zone", "left", "--to-zone", "right", "--protocol", "icmp"];
    let v4 = ["--source-ip", "10.71.1.2", "--destination-ip", "10.71.2.2"];
    let v6 = ["--source-ip", "fd71:1::2", "--destination-ip", "fd71:2::2"];
    for addresses in [v4, v6] {
        let answer = ask(&[&echo[..], &addresses].concat());
        assert!(answer.contains("policy out") && answer.contains("permit"), "{answer}");
    }
    // as the packet path: any other message opens nothing, whatever applications say
    for (addresses, protocol, kind) in
        [(v4, "icmp", "13"), (v4, "icmp", "0"), (v6, "icmp6", "139"), (v6, "icmp6", "129")]
    {
        let packet =
            ["--from-zone", "left", "--to-zone", "right", "--protocol", protocol, "--icmp-type", kind];
        let answer = ask(&[&packet[..], &addresses].concat());
        assert!(answer.contains("dropped as icmp_no_session"), "{answer}");
    }
    let echo6 = ["--from-zone", "left", "--to-zone", "right", "--protocol", "icmp6"];
    assert!(ask(&[&echo6[..], &v6].concat()).contains("policy out"));
    assert_eq!(ask(&WEB), "from-zone right to-zone left: no policy matches; default-policy: deny\n");
    let changed = site.write_all("b.conf", &format!("{BASE}{MORE}"));
    let offline = accepted(&test_policy(&changed, &WEB));
    accepted(&site.commit(&changed));
    let answer = ask(&WEB);
    assert!(answer.contains("policy web") && answer.contains("number 1 of the global policies"), "{answer}");
    assert!(answer.contains("permit, log session-init"), "{answer}");
    let lines = |text: &str| text.lines().take(2).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(lines(&offline), lines(&answer), "a file is judged like the gateway that runs it");
}

#[test]
fn a_wrong_question_says_what_is_wrong() {
    let site = Site::new("questions");
    let file = site.write("a.conf", "");
    let ask = |change: (&str, &str)| {
        let packet = WEB.map(|word| if word == change.0 { change.1 } else { word });
        refused(&test_policy(&file, &packet), 2)
    };
    let wrong = [
        (("right", "nowhere"), "zone nowhere is not configured; zones are "),
        (("10.71.2.2", "10.71.2"), "source-ip `10.71.2` is not an IPv4 or IPv6 address"),
        (("10.71.2.2", "fd71::1"), "of different families"),
        (("tcp", "tpc"), "expected tcp, udp"),
    ];
    for (change, message) in wrong {
        let text = ask(change);
        assert!(text.contains(message), "{text}");
    }
}
