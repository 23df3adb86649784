//! `interfaces`

use super::{Key, Kind, Statement, block, dhcp, flag, keyed, leaf};

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
        dhcp::dhcp("dhcp"),
        dhcp::dhcp("dhcp-client"),
        dhcp::DHCPV6,
    ],
)
.refuses(&[
    "accounting",
    "any",
    "bridge",
    "ccc",
    "ethernet-switching",
    "filter",
    "iso",
    "mac-validate",
    "mlfr-end-to-end",
    "mpls",
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
    "tcc",
    "unnumbered-address",
    "vpls",
]);

const UNIT: Statement = keyed(
    "unit",
    "Logical interface. Without `vlan-tagging` only unit 0 exists; with it each unit is one VLAN, with `flexible-vlan-tagging` one VLAN or a pair of an outer and an inner one.",
    &[Key::Value(Kind::Number { min: 0, max: 16385 })],
    &[
        leaf("description", "Free text.", Kind::Text),
        flag("disable", "Takes the unit out of service."),
        leaf("vlan-id", "802.1Q tag of the unit.", Kind::Number { min: 1, max: 4094 }),
        block(
            "vlan-tags",
            "Two tags of the unit (QinQ), on interfaces with `flexible-vlan-tagging`; needs both.",
            &[
                leaf(
                    "outer",
                    "Tag next to the addresses; `0x88a8.` before it makes it one of 802.1ad.",
                    Kind::VlanTag { service: true },
                ),
                leaf("inner", "802.1Q tag behind the outer one.", Kind::VlanTag { service: false }),
            ],
        )
        .refuses(&["inner-list", "inner-range"]),
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
                "Largest IP packet of the device in bytes, as `ip link` shows it (not counting the Ethernet header and one tag). Units with two tags have 4 bytes less.",
                Kind::Number { min: 68, max: 65535 },
            ),
            flag("vlan-tagging", "Units are VLANs; untagged frames are dropped."),
            flag(
                "flexible-vlan-tagging",
                "As `vlan-tagging`, and units may have two tags (`vlan-tags`).",
            ),
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
        "esi",
        "ether-options",
        "ether-type",
        "fabric-options",
        "fastether-options",
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
