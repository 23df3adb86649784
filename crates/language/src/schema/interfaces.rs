//! `interfaces`

use super::{Key, Kind, Statement, block, flag, keyed, leaf};

pub const MODES: &[(&str, &str)] = &[
    ("auto", "Native XDP where the driver and every egress can take it, else tc."),
    ("tc", "The tc (tcx) hook: keeps large GSO packets whole, best on veth, tap and bridges."),
    ("xdp", "Native XDP: best for small packets on real network cards."),
    ("generic", "Generic XDP; works everywhere and is slow."),
];

pub const FAMILIES: &[(&str, &str)] = &[("inet", "IPv4."), ("inet6", "IPv6.")];

const FAMILY: Statement = keyed(
    "family",
    "Addresses of one protocol family.",
    &[Key::Value(Kind::Choice("family", FAMILIES))],
    &[
        keyed(
            "address",
            "Address of this gateway on the unit, with the length of its subnet.",
            &[Key::Value(Kind::InterfaceAddress)],
            &[],
        )
        .refuses(&[
            "arp",
            "broadcast",
            "eui-64",
            "master-only",
            "ndp",
            "preferred",
            "primary",
            "virtual-gateway-address",
            "vrrp-group",
            "vrrp-inet6-group",
            "web-authentication",
        ]),
        leaf(
            "mtu",
            "Largest IP packet of the unit in bytes; the interface's when left out. One value a unit.",
            Kind::Number { min: 68, max: 65535 },
        ),
    ],
)
.refuses(&[
    "accounting",
    "dhcp",
    "dhcp-client",
    "dhcpv6-client",
    "filter",
    "mac-validate",
    "nd6-stale-time",
    "no-neighbor-learn",
    "no-redirects",
    "policer",
    "primary",
    "rpf-check",
    "sampling",
    "service",
    "simple-filter",
    "targeted-broadcast",
    "unnumbered-address",
]);

const UNIT: Statement = keyed(
    "unit",
    "Logical interface. Without `vlan-tagging` only unit 0 exists; with it each unit is one VLAN.",
    &[Key::Value(Kind::Number { min: 0, max: 16385 })],
    &[
        leaf("description", "Free text.", Kind::Text),
        flag("disable", "Takes the unit out of service."),
        leaf("vlan-id", "802.1Q tag of the unit.", Kind::Number { min: 1, max: 4094 }),
        FAMILY,
    ],
)
.refuses(&[
    "accept-source-mac",
    "accounting-profile",
    "alias",
    "apply-groups",
    "arp-resp",
    "backup-options",
    "bandwidth",
    "clear-dont-fragment-bit",
    "copy-tos-to-outer-ip-header",
    "demux-source",
    "encapsulation",
    "inner-vlan-id-range",
    "input-vlan-map",
    "keepalives",
    "mac",
    "multipoint",
    "native-inner-vlan-id",
    "no-traps",
    "output-vlan-map",
    "point-to-point",
    "ppp-options",
    "pppoe-options",
    "proxy-arp",
    "rpm",
    "swap-by-poppush",
    "traps",
    "tunnel",
    "vlan-id-list",
    "vlan-id-range",
    "vlan-tags",
]);

pub const INTERFACES: Statement = block(
    "interfaces",
    "Network devices that Sluice takes over. Devices not listed are never touched.",
    &[keyed(
        "",
        "Name of the network device as Linux shows it.",
        &[Key::Value(Kind::Interface)],
        &[
            leaf("description", "Free text.", Kind::Text),
            flag("disable", "Takes the device and all its units out of service."),
            leaf(
                "mtu",
                "Largest IP packet of the device in bytes, as `ip link` shows it (not counting the Ethernet header).",
                Kind::Number { min: 68, max: 65535 },
            ),
            flag("vlan-tagging", "Units are VLANs; untagged frames are dropped."),
            leaf(
                "mode",
                "Hook that handles frames of this device. A Sluice extension of Junos.",
                Kind::Choice("mode", MODES),
            ),
            UNIT,
        ],
    )
    .refuses(&[
        "accounting-profile",
        "aggregated-ether-options",
        "apply-groups",
        "cascade-port",
        "disable-ether-oam",
        "encapsulation",
        "ether-options",
        "ether-type",
        "esi",
        "fabric-options",
        "fastether-options",
        "flexible-vlan-tagging",
        "framing",
        "gigether-options",
        "gratuitous-arp-reply",
        "hold-time",
        "link-mode",
        "mac",
        "native-vlan-id",
        "no-gratuitous-arp-reply",
        "no-gratuitous-arp-request",
        "no-traps",
        "passive-monitor-mode",
        "redundant-ether-options",
        "redundant-pseudo-interface-options",
        "speed",
        "stacked-vlan-tagging",
        "traceoptions",
        "traps",
        "unidirectional",
        "vlan-offload",
    ])],
)
.refuses(&["apply-groups", "interface-range", "interface-set", "traceoptions"]);
