//! Learnt routes and what goes by them, while the gateway is upgraded.

use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use sluice_lab::bird::{BIRD, Bird};
use sluice_lab::frr::{DAEMONS, Frr};

use crate::common::{BINARY, Running, Site, installed, stdout, wait_until};
use crate::trees;

const PATIENCE: Duration = Duration::from_secs(30);
/// A hundred a second.
const ECHOES: u32 = 6000;

const BGP: &str = "\
set security zones security-zone right host-inbound-traffic protocols bgp
set routing-options autonomous-system 65001
set routing-options router-id 10.71.2.1
set protocols bgp graceful-restart restart-time 60
set protocols bgp group up type external
set protocols bgp group up peer-as 65002
set protocols bgp group up neighbor 10.71.2.2
";

const NEIGHBOUR: &str = "
router id 10.71.2.2;
protocol device { scan time 1; }
protocol static { ipv4; route 10.90.0.0/24 unreachable; }
protocol bgp edge {
    local 10.71.2.2 as 65002;
    neighbor 10.71.2.1 as 65001;
    connect delay time 1; connect retry time 1; error wait time 1,2;
    ipv4 { import all; export where source = RTS_STATIC; };
}
";

/// RFC 4724 has nothing to do: the session never ends, and no packet is lost.
#[test]
#[ignore = "builds other versions of Sluice: make upgrades"]
fn an_upgrade_is_nothing_to_a_bgp_neighbour() {
    if !installed(&[&format!("{DAEMONS}/bgpd"), BIRD]) {
        return;
    }
    let (own, twin) = (Path::new(BINARY), trees::twin());
    let site = Site::new("learnt");
    site.right.ip("address add 10.90.0.1/32 dev lo").unwrap();
    let mut frr = Frr::create(&site.gateway, &format!("sluice{}learnt", std::process::id())).unwrap();
    frr.start(&["zebra", "bgpd"]).unwrap();
    let bird = Bird::start(&site.right, &site.dir().join("bird"), NEIGHBOUR).unwrap();
    let conf = site.write("a.conf", BGP);
    let mut gateway = site.daemon(&conf).with_options(&["--frr-pathspace", frr.name()]);
    gateway.start().unwrap_or_else(|error| panic!("{error:#}\n{}", gateway.last_words()));
    wait_until("packets take the learnt way", PATIENCE, || site.pings(&site.left, "10.90.0.1"));
    let since = bird.since("edge").expect("the session is up");
    let mut ping = site.left.command("ping");
    ping.args(["-q", "-i", "0.01", "-c", &ECHOES.to_string(), "10.90.0.1"]);
    let echoes = Running::spawn(ping.stdout(Stdio::piped()).stderr(Stdio::piped()));
    for program in [twin.as_path(), own, twin.as_path()] {
        thread::sleep(Duration::from_secs(1));
        gateway.stop().unwrap();
        gateway.set_program(program);
        gateway.start().unwrap_or_else(|error| panic!("{error:#}\n{}", gateway.last_words()));
        assert_eq!(bird.since("edge").as_ref(), Some(&since), "the session has flapped");
    }
    let text = stdout(&echoes.ended("ping", Duration::from_secs(120)));
    assert!(text.contains(&format!("{ECHOES} received")), "{text}");
    gateway.finish().unwrap();
}
