//! `protocols`: what FRR speaks beside the gateway.

use super::kind::Choices;
use super::router_advertisement::ROUTER_ADVERTISEMENT;
use super::{Key, Kind, Statement, block, flag, keyed, leaf, list};

pub const AS: Kind = Kind::Number { min: 1, max: u32::MAX as u64 };
const POLICY: Kind = Kind::Name("policy");
const GRACE: Kind = Kind::Number { min: 1, max: 600 };
const SECONDS: Kind = Kind::Number { min: 1, max: 65535 };

const BFD: Statement = block(
    "bfd-liveness-detection",
    "BFD (RFC 5880) finds within milliseconds that the other end is gone.",
    &[
        leaf(
            "minimum-interval",
            "Milliseconds between packets, both ways; 300 by default.",
            Kind::Number { min: 10, max: 60000 },
        ),
        leaf("multiplier", "Packets missed in a row; 3 by default.", Kind::Number { min: 2, max: 255 }),
    ],
)
.refuses(&[
    "authentication",
    "detection-time",
    "full-neighbors-only",
    "holddown-interval",
    "local-address",
    "minimum-receive-interval",
    "no-adaptation",
    "session-mode",
    "strict-bfd",
    "transmit-interval",
    "version",
]);

const UNICAST: Statement = block(
    "unicast",
    "Unicast routes.",
    &[block(
        "prefix-limit",
        "How many routes the neighbour may tell.",
        &[
            leaf("maximum", "So many; more are told to the log.", AS),
            flag("teardown", "More end the session."),
        ],
    )
    .refuses(&["drop-excess", "hide-excess"])],
)
.refuses(&["accepted-prefix-limit", "add-path", "loops", "rib-group"]);

const TYPES: Choices =
    &[("external", "Neighbours of another AS."), ("internal", "Neighbours of our own AS.")];

const REFUSED: &[&str] = &[
    "accept-remote-nexthop",
    "add-path",
    "advertise-external",
    "advertise-inactive",
    "advertise-peer-as",
    "as-override",
    "authentication-algorithm",
    "authentication-key-chain",
    "cluster",
    "damping",
    "forwarding-context",
    "graceful-shutdown",
    "include-mp-next-hop",
    "ipsec-sa",
    "keep",
    "local-interface",
    "local-preference",
    "log-updown",
    "metric-out",
    "mtu-discovery",
    "no-advertise-peer-as",
    "no-client-reflect",
    "out-delay",
    "outbound-route-filter",
    "passive",
    "preference",
    "remove-private",
    "tcp-mss",
    "traceoptions",
    "ttl",
];

/// Statements of a group that its neighbours may have for themselves.
macro_rules! of_neighbours {
    ($($more:expr,)*) => {
        &[
            leaf("authentication-key", "Password of TCP MD5 signatures (RFC 2385).", Kind::Text),
            BFD,
            leaf("description", "Free text.", Kind::Text),
            list("export", "Policies for what is told, in order; BGP's own routes by default.", POLICY),
            block("family", "Which routes; those of the neighbour's own family by default.", &[
                block("inet", "IPv4.", &[UNICAST]).refuses(&["any", "flow", "labeled-unicast", "multicast"]).on_one_line(),
                block("inet6", "IPv6.", &[UNICAST]).refuses(&["any", "flow", "labeled-unicast", "multicast"]).on_one_line(),
            ]).refuses(&["evpn", "inet-mdt", "inet-mvpn", "inet-vpn", "inet6-mvpn", "inet6-vpn", "iso-vpn", "l2vpn",
                "route-target", "traffic-engineering"]),
            block("graceful-restart", "Routes stay while the other end restarts (RFC 4724).", &[])
                .refuses(&["disable", "long-lived", "restart-time", "stale-routes-time"]),
            leaf("hold-time", "Seconds without a word; 90 by default, and three times the time between keepalives.",
                Kind::Number { min: 3, max: 65535 }),
            list("import", "Policies for what is taken, in order; all is by default.", POLICY),
            leaf("local-address", "Our end of the session.", Kind::Address),
            leaf("local-as", "Our AS for this neighbour.", AS),
            block("multihop", "The neighbour may be further away than a subnet.",
                &[leaf("ttl", "Hops at most; 64 by default.", Kind::Number { min: 2, max: 255 })])
                .refuses(&["no-nexthop-change"])
                .on_one_line(),
            leaf("peer-as", "The neighbour's AS.", AS),
            $($more,)*
        ]
    };
}

const BGP: Statement = block(
    "bgp",
    "BGP (RFC 4271).",
    &[
        block(
            "graceful-restart",
            "Routes and their traffic stay while BGP restarts, here or at the other end (RFC 4724).",
            &[
                flag("disable", "They do not, whatever `routing-options` says."),
                leaf(
                    "restart-time",
                    "Seconds that neighbours keep our routes meanwhile; 120 by default.",
                    GRACE,
                ),
                leaf("stale-routes-time", "Seconds that we keep theirs; 360 by default.", GRACE),
            ],
        )
        .refuses(&["long-lived"]),
        keyed(
            "group",
            "Neighbours that have something in common.",
            &[Key::Value(Kind::Name("group"))],
            of_neighbours![
                list("allow", "Any host of these prefixes may be a neighbour.", Kind::Prefix),
                flag(
                    "multipath",
                    "Routes of the same worth share the traffic; for all neighbours of the type."
                ),
                keyed(
                    "neighbor",
                    "A neighbour.",
                    &[Key::Value(Kind::Address)],
                    of_neighbours![flag("shutdown", "The session stays down."),],
                )
                .refuses(REFUSED),
                leaf("type", "External by default.", Kind::Choice("type", TYPES)),
            ],
        )
        .refuses(REFUSED),
    ],
)
.refuses(&[
    "advertise-inactive",
    "authentication-key",
    "bfd-liveness-detection",
    "export",
    "family",
    "hold-time",
    "import",
    "local-address",
    "local-as",
    "log-updown",
    "multipath",
    "path-selection",
    "precision-timers",
    "tcp-mss",
    "traceoptions",
]);

const INTERFACE_TYPES: Choices = &[("p2p", "One router is at the other end, and none is elected.")];

const DEAD: Statement =
    leaf("dead-interval", "Seconds without a word; four times hello-interval by default.", SECONDS);
const HELLO: Statement = leaf("hello-interval", "Seconds between hellos; 10 by default.", SECONDS);
const TYPE: Statement =
    leaf("interface-type", "A broadcast network by default.", Kind::Choice("type", INTERFACE_TYPES));
const METRIC: Statement =
    leaf("metric", "Cost; reference bandwidth through the device's by default.", SECONDS);
const PASSIVE: Statement = flag("passive", "Its subnets are told, and no neighbour looked for.");

const AUTHENTICATION: Statement = block(
    "authentication",
    "Packets are signed (RFC 2328 appendix D).",
    &[keyed(
        "md5",
        "A key by its number.",
        &[Key::Value(Kind::Number { min: 1, max: 255 })],
        &[leaf("key", "At most 16 characters.", Kind::Text)],
    )
    .on_one_line()],
)
.refuses(&["simple-password"])
.on_one_line();

const INTERFACE_REFUSED: &[&str] = &[
    "bandwidth-based-metrics",
    "demand-circuit",
    "disable",
    "dynamic-neighbors",
    "flood-reduction",
    "ipsec-sa",
    "ldp-synchronization",
    "link-protection",
    "neighbor",
    "no-interface-state-traps",
    "no-neighbor-down-notification",
    "node-link-protection",
    "poll-interval",
    "priority",
    "retransmit-interval",
    "secondary",
    "te-metric",
    "topology",
    "transit-delay",
];

const AREA_REFUSED: &[&str] = &[
    "area-range",
    "authentication-type",
    "network-summary-export",
    "network-summary-import",
    "sham-link-remote",
    "virtual-link",
];

const STUB: Statement =
    block("stub", "No external routes come in.", &[flag("no-summaries", "Nor those of other areas.")])
        .refuses(&["default-metric", "summaries"]);

const NSSA: Statement = block(
    "nssa",
    "External routes only from within (RFC 3101).",
    &[flag("no-summaries", "Nor those of other areas.")],
)
.refuses(&["area-range", "default-lsa", "summaries"]);

const REFUSED_OSPF: &[&str] = &[
    "database-protection",
    "disable",
    "domain-id",
    "external-preference",
    "forwarding-address-to-broadcast",
    "graceful-restart",
    "import",
    "lsa-refresh-interval",
    "no-nssa-abr",
    "no-rfc-1583",
    "overload",
    "preference",
    "prefix-export-limit",
    "realm",
    "rib-group",
    "sham-link",
    "spf-options",
    "topology",
    "traceoptions",
    "traffic-engineering",
];

const AREA_KEY: &[Key] = &[Key::Value(Kind::Name("area"))];
const UNIT_KEY: &[Key] = &[Key::Value(Kind::Unit)];
const EXPORT: Statement =
    list("export", "Policies for what is told from elsewhere, in order; nothing by default.", POLICY);
const BANDWIDTH: Statement = leaf(
    "reference-bandwidth",
    "Bits a second that cost 1; 100m by default.",
    Kind::Amount { unit: "bits a second", min: 1_000_000, max: 4_294_967_000_000 },
);

/// What both versions have, with the statements of an interface.
macro_rules! ospf {
    ($($interface:expr),+) => {
        &[
            keyed(
                "area",
                "An area, by number or as an address.",
                AREA_KEY,
                &[
                    keyed("interface", "A unit of the area.", UNIT_KEY, &[$($interface),+])
                        .refuses(INTERFACE_REFUSED),
                    NSSA,
                    STUB,
                ],
            )
            .refuses(AREA_REFUSED),
            EXPORT,
            BANDWIDTH,
        ]
    };
}

const OSPF: Statement = block(
    "ospf",
    "OSPF for IPv4 (RFC 2328).",
    ospf![AUTHENTICATION, BFD, DEAD, HELLO, TYPE, METRIC, PASSIVE],
)
.refuses(REFUSED_OSPF);

const OSPF3: Statement =
    block("ospf3", "OSPF for IPv6 (RFC 5340).", ospf![BFD, DEAD, HELLO, TYPE, METRIC, PASSIVE])
        .refuses(REFUSED_OSPF);

pub const PROTOCOLS: Statement = block(
    "protocols",
    "Routing protocols, spoken by FRR beside the gateway, and router advertisements.",
    &[BGP, OSPF, OSPF3, ROUTER_ADVERTISEMENT],
)
.refuses(&[
    "bfd",
    "connections",
    "dot1x",
    "dvmrp",
    "esis",
    "evpn",
    "gvrp",
    "igmp",
    "igmp-host",
    "igmp-snooping",
    "isis",
    "l2-learning",
    "l2circuit",
    "l2iw",
    "l2vpn",
    "layer2-control",
    "ldp",
    "link-management",
    "lldp",
    "lldp-med",
    "loop-detect",
    "mld",
    "mpls",
    "msdp",
    "mstp",
    "mvpn",
    "neighbor-discovery",
    "oam",
    "pim",
    "pim-snooping",
    "ppp-service",
    "pppoe",
    "protection-group",
    "r2cp",
    "rip",
    "ripng",
    "router-discovery",
    "rstp",
    "rsvp",
    "sap",
    "sflow",
    "stp",
    "vpls",
    "vrrp",
    "vstp",
]);
