//! Static routes: preferences, and what takes the place of a next hop whose link is gone.

use crate::common;

use std::time::Duration;

use common::{Site, accepted, refused, wait_until};
use sluice_lab::netns::Netns;

const FLOATING: &str = "\
set routing-options static route 10.99.0.0/16 next-hop 10.71.1.2
set routing-options static route 10.99.0.0/16 qualified-next-hop 10.71.2.2 preference 10
set routing-options static route 10.99.0.0/16 qualified-next-hop right0.0 preference 20
set routing-options static route fd99::/32 qualified-next-hop fe80::99 interface left0.0
set routing-options static route fd99::/32 qualified-next-hop fd71:2::2 preference 10
set routing-options static route 10.98.0.0/16 discard
set routing-options static route 10.98.0.0/16 preference 200
";

const PATIENCE: Duration = Duration::from_secs(10);

/// The device that the kernel sends a packet by.
fn device(gateway: &Netns, to: &str) -> String {
    let text = gateway.ip(&format!("route get {to}")).unwrap_or_default();
    let mut words = text.split_whitespace().skip_while(|word| *word != "dev");
    words.nth(1).unwrap_or_default().to_owned()
}

#[test]
fn a_next_hop_whose_link_is_gone_is_passed_over_until_it_is_back() {
    let site = Site::new("floating");
    let conf = site.write("a.conf", FLOATING);
    let _gateway = site.start(&conf);
    let routes = site.gateway.ip("route show 10.99.0.0/16").unwrap();
    for wanted in
        ["via 10.71.1.2 dev left0", "metric 5", "via 10.71.2.2 dev right0", "metric 10", "metric 20"]
    {
        assert!(routes.contains(wanted), "{routes}");
    }
    let routes = site.gateway.ip("-6 route show fd99::/32").unwrap();
    assert!(routes.contains("via fe80::99 dev left0") && routes.contains("metric 10"), "{routes}");
    assert!(site.gateway.ip("route show 10.98.0.0/16").unwrap().contains("blackhole 10.98.0.0/16"));
    let both = || [device(&site.gateway, "10.99.0.1"), device(&site.gateway, "fd99::1")];
    assert_eq!(both(), ["left0", "left0"]);
    for _ in 0..2 {
        // the carrier goes: the kernel keeps the route and its device is still up
        site.left.ip("link set eth0 down").unwrap();
        wait_until("the second next hop", PATIENCE, || both() == ["right0", "right0"]);
        site.left.ip("link set eth0 up").unwrap();
        wait_until("the first one again", PATIENCE, || both() == ["left0", "left0"]);
    }
    // the device itself: the kernel drops its routes, which come back with it
    site.gateway.ip("link set left0 down").unwrap();
    wait_until("the second next hop", PATIENCE, || both() == ["right0", "right0"]);
    site.gateway.ip("link set left0 up").unwrap();
    wait_until("the first one again", PATIENCE, || both() == ["left0", "left0"]);
    // another preference is another route for the kernel: none of the old ones is left
    let other = FLOATING.replace("preference 10", "preference 3").replace("preference 200", "preference 7");
    accepted(&site.commit(&site.write("b.conf", &other)));
    let routes = site.gateway.ip("route show 10.99.0.0/16").unwrap();
    assert!(routes.contains("metric 3") && !routes.contains("metric 10"), "{routes}");
    assert_eq!(device(&site.gateway, "10.99.0.1"), "right0");
    assert!(!site.gateway.ip("route show 10.98.0.0/16").unwrap().contains("metric 200"));
    accepted(&site.commit(&site.write("none.conf", "")));
    let left = site.gateway.ip("route show").unwrap() + &site.gateway.ip("-6 route show").unwrap();
    assert!(!left.contains("10.99.0.0") && !left.contains("fd99::") && !left.contains("10.98.0.0"), "{left}");
}

#[test]
fn wrong_next_hops_are_refused_by_line() {
    let site = Site::new("hops");
    let wrong = "set routing-options static route fd99::/32 qualified-next-hop fe80::99\n\
                 set routing-options static route 10.99.0.0/16 qualified-next-hop 10.71.1.2 preference 0\n";
    let _gateway = site.start(&site.write("a.conf", ""));
    let said = refused(&site.commit(&site.write("b.conf", wrong)), 2);
    assert!(said.contains("interface NAME.UNIT") && said.contains("a number from 1 to"), "{said}");
}
