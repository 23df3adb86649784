//! `routing-options`

use super::{Key, Kind, Statement, block, flag, keyed, leaf, list};

/// As a metric it stands in the kernel, where 0 means another one.
const PREFERENCE: Kind = Kind::Number { min: 1, max: u32::MAX as u64 };

pub(super) const STATIC: Statement = block(
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
            leaf(
                "next-table",
                "Another table decides: `inet.0`, or `NAME.inet.0` of a routing instance.",
                Kind::Name("table"),
            ),
            flag("discard", "Drops what is sent there without a word."),
            flag("reject", "Drops what is sent there and tells the sender."),
            leaf(
                "preference",
                "The lowest number wins; 5 by default. The metric of the kernel's route.",
                PREFERENCE,
            ),
        ],
    )
    .exclusive(&["next-hop", "next-table", "discard", "reject"])
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
        leaf("autonomous-system", "Our AS, for BGP.", super::protocols::AS),
        block(
            "graceful-restart",
            "Routes stay while a routing protocol restarts, of those that can: BGP.",
            &[flag("disable", "They do not, whatever protocols say.")],
        )
        .refuses(&["restart-duration"]),
        leaf("router-id", "What routing protocols know this gateway by.", Kind::Address),
    ],
)
.refuses(STATIC_REFUSED);

/// Beside static routes, at the top and in instances.
pub(super) const STATIC_REFUSED: &[&str] = &[
    "aggregate",
    "auto-export",
    "bgp-orf-cisco-mode",
    "confederation",
    "dynamic-tunnels",
    "fate-sharing",
    "flow",
    "forwarding-table",
    "generate",
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
    "source-routing",
    "traceoptions",
    "validation",
];
