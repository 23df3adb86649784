//! `routing-options`

use super::{Key, Kind, Statement, block, flag, keyed, leaf, list};

/// As a metric it stands in the kernel, where 0 means another one.
const PREFERENCE: Kind = Kind::Number { min: 1, max: u32::MAX as u64 };

const STATIC: Statement = block(
    "static",
    "Fixed routes, given to the kernel.",
    &[keyed(
        "route",
        "Destination prefix. IPv6 routes stand here or in `rib inet6.0`.",
        &[Key::Value(Kind::Prefix)],
        &[
            list("next-hop", "Gateway address, several for equal-cost paths, or one unit.", Kind::NextHop),
            keyed(
                "qualified-next-hop",
                "A next hop with a preference of its own: it is used while no better one is there.",
                &[Key::Value(Kind::NextHop)],
                &[
                    leaf(
                        "interface",
                        "Unit that the gateway is behind; a link-local gateway needs it.",
                        Kind::Unit,
                    ),
                    leaf("preference", "The lowest number wins; that of the route by default.", PREFERENCE),
                ],
            )
            .on_one_line(),
            flag("discard", "Drops what is sent there without a word."),
            flag("reject", "Drops what is sent there and tells the sender."),
            leaf(
                "preference",
                "The lowest number wins; 5 by default. The metric of the kernel's route.",
                PREFERENCE,
            ),
        ],
    )
    .exclusive(&["next-hop", "discard", "reject"])
    .refuses(&[
        "active",
        "as-path",
        "backup-pe-group",
        "bfd-liveness-detection",
        "color",
        "community",
        "install",
        "longest-match",
        "metric",
        "next-table",
        "no-install",
        "no-readvertise",
        "no-resolve",
        "no-retain",
        "passive",
        "preference2",
        "readvertise",
        "receive",
        "resolve",
        "retain",
        "static-lsp-next-hop",
        "tag",
    ])
    .on_one_line()],
)
.refuses(&["defaults", "rib-group"]);

pub const RIBS: &[(&str, &str)] = &[("inet.0", "IPv4 routes."), ("inet6.0", "IPv6 routes.")];

pub const ROUTING_OPTIONS: Statement = block(
    "routing-options",
    "Routes that do not come from a routing protocol.",
    &[
        keyed("rib", "One routing table.", &[Key::Value(Kind::Choice("table", RIBS))], &[STATIC])
            .refuses(&["inet.2", "inet.3", "inet6.2", "inet6.3", "mpls.0"]),
        STATIC,
    ],
)
.refuses(&[
    "aggregate",
    "auto-export",
    "autonomous-system",
    "bgp-orf-cisco-mode",
    "confederation",
    "dynamic-tunnels",
    "fate-sharing",
    "flow",
    "forwarding-table",
    "generate",
    "graceful-restart",
    "instance-export",
    "instance-import",
    "interface-routes",
    "martians",
    "maximum-paths",
    "maximum-prefixes",
    "multicast",
    "multipath",
    "nonstop-routing",
    "nsr-phantom-holdtime",
    "options",
    "ppm",
    "resolution",
    "rib-groups",
    "route-distinguisher-id",
    "route-record",
    "router-id",
    "source-routing",
    "traceoptions",
    "validation",
]);
