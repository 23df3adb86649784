//! `policy-options`: which routes are taken and told, for the protocols that FRR speaks.

use super::kind::Choices;
use super::{Key, Kind, Statement, block, entry, flag, keyed, leaf, list};

/// A name by which FRR has it, too.
const NAME: Kind = Kind::Name("name");

const PROTOCOLS: Choices = &[
    ("bgp", "What BGP neighbours told."),
    ("direct", "Subnets of this gateway's own addresses."),
    ("ospf", "What OSPF found, IPv4."),
    ("ospf3", "What OSPF found, IPv6."),
    ("static", "`routing-options static`."),
];

const FAMILIES: Choices = &[("inet", "IPv4 routes."), ("inet6", "IPv6 routes.")];

const ONWARDS: Choices = &[
    ("policy", "The policy behind this one decides, or the protocol's default."),
    ("term", "The term behind this one decides."),
];

const FROM: Statement = block(
    "from",
    "Which routes; without it, all. Each kind of condition must hold, by any of its values.",
    &[
        list("as-path", "AS path that the whole of the route's must match.", NAME),
        list("community", "Community whose members the route has, all of them.", NAME),
        leaf("family", "Routes of one family.", Kind::Choice("family", FAMILIES)),
        list("neighbor", "BGP neighbour that told the route; for imports.", Kind::Address),
        list("prefix-list", "The route's prefix stands there, with the same length.", NAME),
        list("protocol", "Where the route comes from; for exports.", Kind::Choice("protocol", PROTOCOLS)),
        keyed(
            "route-filter",
            "Routes to this prefix, or within.",
            &[Key::Value(Kind::Prefix)],
            &[
                flag("exact", "The prefix itself."),
                flag("longer", "Within, without the prefix itself."),
                flag("orlonger", "The prefix itself and all within."),
                leaf(
                    "prefix-length-range",
                    "Within, with a length between two, such as /20-/24.",
                    Kind::Name("/length-/length"),
                ),
                leaf("upto", "Within, up to a length such as /24.", Kind::Name("/length")),
            ],
        )
        .exclusive(&["exact", "longer", "orlonger", "prefix-length-range", "upto"])
        .refuses(&["address-mask", "through"])
        .on_one_line(),
    ],
)
.refuses(&[
    "aggregate-contributor",
    "area",
    "as-path-group",
    "as-path-neighbors",
    "as-path-origins",
    "color",
    "condition",
    "external",
    "instance",
    "interface",
    "level",
    "local-preference",
    "metric",
    "multicast-scope",
    "next-hop",
    "nlri-route-type",
    "origin",
    "policy",
    "preference",
    "prefix-list-filter",
    "rib",
    "route-type",
    "source-address-filter",
    "state",
    "tag",
    "validation-database",
]);

const THEN: Statement = block(
    "then",
    "What becomes of them.",
    &[
        flag("accept", "The route is taken or told, and nothing behind asked."),
        leaf("as-path-prepend", "AS numbers that the path gets in front.", Kind::Text),
        block(
            "community",
            "Communities of the route.",
            &[
                list("add", "They come to those it has.", NAME),
                list("delete", "It loses them; one name a term.", NAME),
                list("set", "They are all it has.", NAME),
            ],
        )
        .on_one_line(),
        leaf("local-preference", "The highest wins within the AS.", NUMBER),
        leaf("metric", "MED of BGP, metric of OSPF.", NUMBER),
        leaf("next", "The term changes the route and another decides.", Kind::Choice("next", ONWARDS)),
        leaf(
            "next-hop",
            "`self` (for exports), `peer-address` (for imports) or an address.",
            Kind::Name("next-hop"),
        ),
        flag("reject", "The route is not taken or not told."),
    ],
)
.exclusive(&["accept", "reject", "next"])
.refuses(&[
    "aggregate-bandwidth",
    "as-path-expand",
    "class",
    "color",
    "color2",
    "cos-next-hop-map",
    "damping",
    "default-action",
    "destination-class",
    "external",
    "forwarding-class",
    "install-nexthop",
    "load-balance",
    "map-to-interface",
    "metric2",
    "metric3",
    "metric4",
    "origin",
    "preference",
    "preference2",
    "priority",
    "source-class",
    "ssm-source",
    "tag",
    "tag2",
    "trace",
    "validation-state",
]);

const NUMBER: Kind = Kind::Number { min: 0, max: u32::MAX as u64 };

pub const POLICY_OPTIONS: Statement = block(
    "policy-options",
    "Which routes the protocols take and tell.",
    &[
        entry(
            "as-path",
            "A regular expression over AS numbers; `.` is any of them.",
            &[Key::Value(NAME), Key::Value(Kind::Text)],
        ),
        keyed(
            "community",
            "Communities by a name.",
            &[Key::Value(NAME)],
            &[list(
                "members",
                "`65000:100`, `no-export`, `no-advertise` or `no-export-subconfed`.",
                Kind::Name("community"),
            )],
        )
        .refuses(&["invert-match"])
        .on_one_line(),
        keyed(
            "policy-statement",
            "Terms in order; the first one that accepts or rejects decides.",
            &[Key::Value(NAME)],
            &[
                FROM,
                keyed("term", "A condition and what follows from it.", &[Key::Value(NAME)], &[FROM, THEN])
                    .refuses(&["to"]),
                THEN,
            ],
        )
        .refuses(&["defaults", "dynamic-db", "to"]),
        keyed(
            "prefix-list",
            "Prefixes by a name.",
            &[Key::Value(NAME)],
            &[entry("", "A prefix.", &[Key::Value(Kind::BookPrefix)])],
        )
        .refuses(&["apply-path", "dynamic-db"]),
    ],
)
.refuses(&[
    "application-maps",
    "as-list",
    "as-list-group",
    "as-path-group",
    "condition",
    "damping",
    "defaults",
    "redundancy-policy",
    "resolution-map",
    "route-distinguisher",
    "route-filter-list",
    "rtf-prefix-list",
    "tunnel-attribute",
    "vrf-import",
]);
