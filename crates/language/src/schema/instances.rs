//! `routing-instances`

use super::routing::{STATIC, STATIC_REFUSED};
use super::{Key, Kind, Statement, block, entry, keyed, leaf};

const TYPES: &[(&str, &str)] =
    &[("virtual-router", "A routing table of its own."), ("vrf", "The same: VPN routes are not exchanged.")];

const RIB: Statement = keyed(
    "rib",
    "One of its routing tables: `NAME.inet.0`, or `NAME.inet6.0`.",
    &[Key::Value(Kind::Name("table"))],
    &[STATIC],
);

pub const ROUTING_INSTANCES: Statement = block(
    "routing-instances",
    "Routing tables of their own, for units whose networks must not meet others.",
    &[keyed(
        "",
        "An instance. Its name is that of the kernel's VRF device.",
        &[Key::Value(Kind::Name("routing-instance"))],
        &[
            leaf("description", "Free text.", Kind::Text),
            leaf("instance-type", "Required.", Kind::Choice("instance-type", TYPES)),
            entry(
                "interface",
                "A unit whose packets are routed here. All units of a zone are in one instance.",
                &[Key::Value(Kind::Unit)],
            ),
            block("routing-options", "Routes of the instance.", &[RIB, STATIC]).refuses(STATIC_REFUSED),
        ],
    )
    .refuses(&[
        "access",
        "bridge-domains",
        "forwarding-options",
        "igmp-snooping-options",
        "l2vpn-id",
        "multicast-snooping-options",
        "no-local-switching",
        "no-vrf-advertise",
        "no-vrf-propagate-ttl",
        "protocols",
        "provider-tunnel",
        "route-distinguisher",
        "routing-interface",
        "services",
        "switch-options",
        "system",
        "vlan-id",
        "vlan-tags",
        "vlans",
        "vrf-export",
        "vrf-import",
        "vrf-propagate-ttl",
        "vrf-table-label",
        "vrf-target",
        "vtep-source-interface",
    ])],
);
