//! host-inbound-traffic as a product: every kind of destination, of frame, of zone and of service. Exactly what the zone
//! names reaches the host, and everything else is dropped by a name that says why.

use sluice_dataplane::Sizes;
use sluice_packet_tests::counters;
use sluice_packet_tests::gateway::{Gateway, Hook};
use sluice_packet_tests::netns::in_thread;
use sluice_packet_tests::table;
use sluice_wire::text::bytes;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum To {
    /// An address of this host, whichever unit has it.
    Host,
    /// All hosts of a group, of the link, or of the unit's own subnet.
    Group,
    /// The broadcast address of another unit's subnet (RFC 2644).
    OtherSubnet,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Frame {
    Unicast,
    Broadcast,
    Multicast,
    SomebodyElses,
}

const FRAMES: [Frame; 4] = [Frame::Unicast, Frame::Broadcast, Frame::Multicast, Frame::SomebodyElses];

/// Unit, a host on its link, and which of [`SERVICES`] its zone admits (tests/packet/zones.conf).
const ZONES: [(&str, &str, [bool; 3]); 3] = [
    ("trust0", "client", [true, true, false]),
    ("untrust0", "server", [true, false, false]),
    ("dmz0", "www", [false, false, false]),
];

/// Ping, ssh, and what no zone names.
const SERVICES: [[&str; 2]; 3] = [
    ["icmp(type=echo-request, id=PORT)", "icmp6(type=echo-request, id=PORT)"],
    ["tcp(sport=PORT, dport=22, flags=S, seq=1)", "tcp(sport=PORT, dport=22, flags=S, seq=1)"],
    ["udp(sport=PORT, dport=4444)/\"x\"", "udp(sport=PORT, dport=4444)/\"x\""],
];

const HOSTS: [&str; 5] = ["10.0.1.1", "10.0.2.1", "10.0.30.1", "203.0.113.1", "192.0.2.1"];
const HOSTS6: [&str; 3] = ["fd00:1::1", "fd00:2::1", "fd00:30::1"];
const GROUPS: [&str; 5] = ["255.255.255.255", "224.0.0.1", "224.0.0.251", "239.1.2.3", "232.0.0.1"];
const GROUPS6: [&str; 6] = ["ff02::1", "ff02::2", "ff02::1:ff00:1", "ff05::2", "ff0e::1", "ff01::1"];
const BROADCASTS: [(&str, &str); 5] = [
    ("trust0", "10.0.1.255"),
    ("untrust0", "10.0.2.255"),
    ("dmz0", "10.0.30.255"),
    ("wan0", "203.0.113.255"),
    ("wan0", "192.0.2.255"),
];

fn destinations(device: &str) -> Vec<(&'static str, To)> {
    let of = |list: &[&'static str], to| list.iter().map(|text| (*text, to)).collect::<Vec<_>>();
    let broadcast = |(owner, address): (&str, &'static str)| {
        (address, if owner == device { To::Group } else { To::OtherSubnet })
    };
    [
        of(&HOSTS, To::Host),
        of(&HOSTS6, To::Host),
        of(&GROUPS, To::Group),
        of(&GROUPS6, To::Group),
        BROADCASTS.map(broadcast).to_vec(),
    ]
    .concat()
}

/// What must become of it: the counter's name.
fn expected(to: To, frame: Frame, admitted: bool) -> &'static str {
    match (to, frame) {
        (_, Frame::SomebodyElses) => "other_host",
        // RFC 1122 3.3.6: unicast in a frame for several
        (To::Host, Frame::Broadcast | Frame::Multicast) => "link_broadcast",
        (To::OtherSubnet, _) => "directed_broadcast",
        _ if admitted => "delivered_local",
        _ => "host_inbound",
    }
}

const OUTCOMES: [&str; 5] =
    ["other_host", "link_broadcast", "directed_broadcast", "delivered_local", "host_inbound"];

fn product(hook: Hook) {
    let sizes = Sizes { sessions4: 2048, sessions6: 2048, ..Sizes::default() };
    let mut gateway = Gateway::of("zones.world", sizes, hook).unwrap();
    let (mut wrong, mut port) = (Vec::new(), 1024);
    for (device, host, admits) in ZONES {
        let near = gateway.world.unit_mac(&format!("{device}.0")).unwrap();
        let host = gateway.world.host(host).unwrap();
        let (far, sources) = (host.mac, host.addresses.clone());
        for (to, kind) in destinations(device) {
            let v6 = to.contains(':');
            let source = sources.iter().find(|source| source.is_ipv6() == v6).unwrap();
            for frame in FRAMES {
                let mac = match frame {
                    Frame::Unicast => near.to_string(),
                    Frame::Broadcast => "ff:ff:ff:ff:ff:ff".to_owned(),
                    Frame::Multicast => "01:00:5e:00:00:01".to_owned(),
                    Frame::SomebodyElses => "02:00:00:00:77:77".to_owned(),
                };
                for (service, admitted) in SERVICES.iter().zip(admits) {
                    port += 1;
                    let ip = if v6 { "ip6" } else { "ip" };
                    let l4 = service[usize::from(v6)].replace("PORT", &port.to_string());
                    let text = format!("eth(dst={mac}, src={far})/{ip}(src={source}, dst={to})/{l4}");
                    let frames = [bytes(&text).unwrap()];
                    let delta = table::count_frames(&mut gateway, device, &frames).unwrap();
                    let seen = OUTCOMES.into_iter().find(|name| counters::total(&delta, name) == 1);
                    let wanted = expected(kind, frame, admitted);
                    if seen != Some(wanted) {
                        wrong.push(format!("{device}, {frame:?}: {text}: {seen:?}, not {wanted}"));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}, {} wrong\n{}", hook.name(), wrong.len(), wrong.join("\n"));
}

#[test]
fn exactly_what_a_zone_names_is_delivered_on_tc() {
    in_thread(|| product(Hook::Tc));
}

#[test]
fn exactly_what_a_zone_names_is_delivered_on_xdp() {
    in_thread(|| product(Hook::Xdp));
}
