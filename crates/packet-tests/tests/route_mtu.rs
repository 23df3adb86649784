//! Routes that share a next hop have each their own MTU (RFC 1191 6.2, RFC 8201 5.2), whichever was used first, and
//! whether the neighbour was known by then or not.

use std::net::IpAddr;

use sluice_dataplane::Sizes;
use sluice_packet_tests::gateway::{Gateway, Hook};
use sluice_packet_tests::netns::{ifindex, in_thread, ip};
use sluice_packet_tests::table;
use sluice_wire::text::bytes;

/// IP bytes of packets that fit the narrow route, and of those that fit the others.
const SMALL: usize = 1300;
const LARGE: usize = 1500;

struct Routes {
    narrow: &'static str,
    wide: &'static str,
    /// A neighbour that the kernel knows, and one that it does not.
    via: [&'static str; 2],
}

const V4: Routes = Routes { narrow: "198.51.100.1", wide: "198.51.101.1", via: ["10.0.2.100", "10.0.2.77"] };
const V6: Routes =
    Routes { narrow: "2001:db8:1::1", wide: "2001:db8:2::1", via: ["fd00:2::100", "fd00:2::77"] };

/// Does a packet of that size leave for the next hop, whose MAC address is the server's?
fn goes(gateway: &mut Gateway, destination: &str, size: usize) -> bool {
    let world = &gateway.world;
    let (near, far) = (world.unit_mac("trust0.0").unwrap(), world.host("client").unwrap().mac);
    let next = world.host("server").unwrap().mac;
    let (ip, headers) = if destination.contains(':') {
        (format!("ip6(src=fd00:1::100, dst={destination})"), 48)
    } else {
        (format!("ip(src=10.0.1.100, dst={destination}, df)"), 28)
    };
    let text = format!("eth(dst={near}, src={far})/{ip}/udp(sport=1, dport=2)/fill(n={})", size - headers);
    let seen = table::prog_run(gateway, "trust0", &bytes(&text).unwrap(), false).unwrap();
    seen.frame.starts_with(&next.0)
}

fn both_keep_theirs(gateway: &mut Gateway, routes: &Routes, known: bool, narrow_first: bool) {
    let via = routes.via[usize::from(!known)];
    let bits = if via.contains(':') { 128 } else { 32 };
    for (destination, mtu) in [(routes.narrow, format!("mtu lock {SMALL}")), (routes.wide, String::new())] {
        ip(&[format!("route replace {destination}/{bits} via {via} {mtu}")]).unwrap();
    }
    gateway.clear_sessions().unwrap();
    let mut order = [routes.narrow, routes.wide];
    if !narrow_first {
        order.reverse();
    }
    for destination in order {
        assert_eq!(goes(gateway, destination, SMALL), known, "{destination}");
    }
    if !known {
        let device = ifindex("untrust0").unwrap();
        let address: IpAddr = via.parse().unwrap();
        let mac = gateway.world.host("server").unwrap().mac;
        let entries = gateway.dataplane.find_nexthops(&[(device, address)]).unwrap().remove(0);
        assert_eq!(entries.len(), 2);
        for index in entries {
            gateway.dataplane.set_nexthop_mac(index, mac.0).unwrap();
        }
    }
    for destination in [order, [order[1], order[0]]].concat() {
        assert!(goes(gateway, destination, SMALL), "{destination}");
        let wide = destination == routes.wide;
        assert_eq!(
            goes(gateway, destination, LARGE),
            wide,
            "{destination}, {order:?}, neighbour known: {known}"
        );
    }
    let device = ifindex("untrust0").unwrap();
    for index in gateway.dataplane.find_nexthops(&[(device, via.parse().unwrap())]).unwrap().remove(0) {
        gateway.dataplane.unresolve_nexthop(index).unwrap();
    }
}

fn run(hook: Hook) {
    let sizes = Sizes { sessions4: 64, sessions6: 64, ..Sizes::default() };
    let mut gateway = Gateway::of("zones.world", sizes, hook).unwrap();
    for routes in [V4, V6] {
        for (known, narrow_first) in [(true, true), (true, false), (false, true), (false, false)] {
            both_keep_theirs(&mut gateway, &routes, known, narrow_first);
        }
    }
}

#[test]
fn routes_keep_their_mtu_on_tc() {
    in_thread(|| run(Hook::Tc));
}

#[test]
fn routes_keep_their_mtu_on_xdp() {
    in_thread(|| run(Hook::Xdp));
}
