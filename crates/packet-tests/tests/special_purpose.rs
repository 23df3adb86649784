//! Every special-purpose prefix of RFC 6890 and of the registries that it made, as source and as destination: what is
//! forwarded, and what is dropped by which name. The list is the one in docs/FIREWALL.md.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sluice_dataplane::Sizes;
use sluice_packet_tests::counters;
use sluice_packet_tests::gateway::{Gateway, Hook};
use sluice_packet_tests::netns::in_thread;
use sluice_packet_tests::table;
use sluice_wire::text::bytes;

const GOES: &str = "redirected";
const BAD: &str = "bad_address";
const MAPPED: &str = "mapped_address";
const INBOUND: &str = "host_inbound";

/// Prefix, what becomes of packets from there, and of packets to there.
type Row = (&'static str, &'static str, &'static str);

/// RFC 6890 2.2.2, and what the registry has had since. Forwardable False, but for documentation, is dropped.
const IPV4: [Row; 30] = [
    ("0.0.0.0/32", BAD, BAD),      // this host on this network
    ("0.0.0.0/8", BAD, BAD),       // this network, RFC 791 3.2
    ("10.0.0.0/8", GOES, GOES),    // private use, RFC 1918
    ("100.64.0.0/10", GOES, GOES), // shared address space, RFC 6598
    ("127.0.0.0/8", BAD, BAD),     // loopback, RFC 1122 3.2.1.3
    ("169.254.0.0/16", BAD, BAD),  // link-local, RFC 3927
    ("172.16.0.0/12", GOES, GOES),
    ("192.0.0.0/29", GOES, GOES),  // IPv4 service continuity, RFC 7335
    ("192.0.0.8/32", BAD, BAD),    // dummy address, RFC 7600
    ("192.0.0.9/32", GOES, GOES),  // PCP anycast, RFC 7723
    ("192.0.0.10/32", GOES, GOES), // TURN anycast, RFC 8155
    ("192.0.0.11/32", BAD, BAD),   // 192.0.0.0/24, IETF protocol assignments, but for those above
    ("192.0.0.16/28", BAD, BAD),
    ("192.0.0.128/25", BAD, BAD),
    ("192.0.0.170/31", BAD, BAD),    // NAT64 discovery, RFC 7050
    ("192.0.2.0/24", GOES, GOES),    // documentation, RFC 5737: for a policy to drop
    ("192.31.196.0/24", GOES, GOES), // AS112, RFC 7535
    ("192.52.193.0/24", GOES, GOES), // AMT, RFC 7450
    ("192.88.99.0/24", GOES, GOES),  // 6to4 relays, RFC 7526
    ("192.168.0.0/16", GOES, GOES),
    ("192.175.48.0/24", GOES, GOES), // AS112, RFC 7534
    ("198.18.0.0/15", GOES, GOES),   // benchmarking, RFC 2544
    ("198.51.100.0/24", GOES, GOES), // documentation
    ("203.0.113.0/24", GOES, GOES),  // documentation
    ("224.0.0.0/4", BAD, INBOUND),   // multicast
    ("240.0.0.0/5", BAD, BAD),       // reserved, RFC 1112 4
    ("248.0.0.0/6", BAD, BAD),
    ("254.0.0.0/8", BAD, BAD),
    ("255.255.255.254/32", BAD, BAD),
    ("255.255.255.255/32", BAD, INBOUND), // limited broadcast, RFC 8190
];

/// RFC 6890 2.2.3, and what the registry has had since. Of 2001::/23 more and more is assigned: nothing is dropped.
const IPV6: [Row; 22] = [
    ("::1/128", BAD, BAD),             // loopback
    ("::/128", BAD, BAD),              // unspecified
    ("64:ff9b::/96", GOES, GOES),      // RFC 6052
    ("64:ff9b:1::/48", GOES, GOES),    // RFC 8215
    ("::ffff:0:0/96", MAPPED, MAPPED), // RFC 4291 2.5.5.2
    ("100::/64", GOES, GOES),          // discard-only, RFC 6666: a route decides
    ("2001::/32", GOES, GOES),         // Teredo, RFC 4380
    ("2001::/23", GOES, GOES),         // IETF protocol assignments
    ("2001:1::1/128", GOES, GOES),     // PCP anycast, RFC 7723
    ("2001:1::2/128", GOES, GOES),     // TURN anycast, RFC 8155
    ("2001:2::/48", GOES, GOES),       // benchmarking, RFC 5180
    ("2001:3::/32", GOES, GOES),       // AMT, RFC 7450
    ("2001:4:112::/48", GOES, GOES),   // AS112, RFC 7535
    ("2001:10::/28", GOES, GOES),      // ORCHID, given back
    ("2001:20::/28", GOES, GOES),      // ORCHIDv2, RFC 7343
    ("2001:db8::/32", GOES, GOES),     // documentation, RFC 3849: for a policy to drop
    ("2002::/16", GOES, GOES),         // 6to4, RFC 3056
    ("2620:4f:8000::/48", GOES, GOES), // AS112, RFC 7534
    ("fc00::/7", GOES, GOES),          // unique-local, RFC 4193
    ("fe80::/10", BAD, BAD),           // link-local, RFC 4291 2.5.6
    ("ff02::/16", BAD, INBOUND),       // multicast
    ("ff0e::/16", BAD, INBOUND),
];

/// The first and the last address of a prefix, and two between them.
fn addresses(prefix: &str) -> Vec<IpAddr> {
    let (base, length) = prefix.split_once('/').unwrap();
    let (base, length): (IpAddr, u32) = (base.parse().unwrap(), length.parse().unwrap());
    let (bits, first) = match base {
        IpAddr::V4(base) => (32, u128::from(u32::from(base))),
        IpAddr::V6(base) => (128, u128::from(base)),
    };
    let last = (1u128 << (bits - length)).wrapping_sub(1);
    [0, last / 3, last / 2, last]
        .map(|at| first | at)
        .map(|address| match bits {
            32 => IpAddr::from(Ipv4Addr::from(address as u32)),
            _ => IpAddr::from(Ipv6Addr::from(address)),
        })
        .to_vec()
}

/// The name under which one packet is counted.
fn becomes(gateway: &mut Gateway, from: IpAddr, to: IpAddr, port: u16) -> String {
    let world = &gateway.world;
    let (near, far) = (world.unit_mac("in0.0").unwrap(), world.host("near").unwrap().mac);
    let ip = if from.is_ipv4() { "ip" } else { "ip6" };
    let frame = bytes(&format!(
        "eth(dst={near}, src={far})/{ip}(src={from}, dst={to})/udp(sport={port}, dport=4000)"
    ));
    let delta = table::count_frames(gateway, "in0", &[frame.unwrap()]).unwrap();
    let names = [GOES, BAD, MAPPED, INBOUND];
    let name = names.into_iter().find(|name| counters::total(&delta, name) == 1);
    name.map_or_else(|| counters::describe(&delta, &gateway.plan), str::to_owned)
}

fn every_prefix(hook: Hook) {
    let sizes = Sizes { sessions4: 1024, sessions6: 1024, ..Sizes::default() };
    let mut gateway = Gateway::of("special.world", sizes, hook).unwrap();
    let mut port = 1024;
    let mut wrong = Vec::new();
    for (prefix, source, destination) in IPV4.into_iter().chain(IPV6) {
        for address in addresses(prefix) {
            let (near, far) =
                if address.is_ipv4() { ("12.0.0.2", "8.8.8.8") } else { ("2600:1::2", "2606::8") };
            let (near, far): (IpAddr, IpAddr) = (near.parse().unwrap(), far.parse().unwrap());
            for (from, to, wanted) in [(address, far, source), (near, address, destination)] {
                port += 1;
                let seen = becomes(&mut gateway, from, to, port);
                if seen != wanted {
                    wrong.push(format!("{prefix}: {from} to {to}: {seen}, not {wanted}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}\n{}", hook.name(), wrong.join("\n"));
}

#[test]
fn special_purpose_prefixes_on_tc() {
    in_thread(|| every_prefix(Hook::Tc));
}

#[test]
fn special_purpose_prefixes_on_xdp() {
    in_thread(|| every_prefix(Hook::Xdp));
}
