//! `security policies`

use super::{Key, Kind, Statement, block, flag, keyed, leaf, list};

const MATCH: Statement = block(
    "match",
    "What the policy applies to; all three parts are required.",
    &[
        list(
            "source-address",
            "Names from the address book, or `any`, `any-ipv4`, `any-ipv6`.",
            Kind::Name("address"),
        ),
        list(
            "destination-address",
            "Names from the address book, or `any`, `any-ipv4`, `any-ipv6`.",
            Kind::Name("address"),
        ),
        flag("source-address-excluded", "Every source address matches but those of `source-address`."),
        flag(
            "destination-address-excluded",
            "Every destination address matches but those of `destination-address`.",
        ),
        list("application", "Names of applications or sets, or `any`.", Kind::Name("application")),
    ],
)
.refuses(&[
    "destination-l3vpn-vrf-group",
    "dynamic-application",
    "from-zone",
    "source-end-user-profile",
    "source-identity",
    "source-l3vpn-vrf-group",
    "to-zone",
    "url-category",
]);

const THEN: Statement = block(
    "then",
    "What happens to a session that matches: exactly one of permit, deny and reject.",
    &[
        block("permit", "Lets the session through.", &[]).refuses(&[
            "application-services",
            "destination-address",
            "firewall-authentication",
            "services-offload",
            "tcp-options",
            "tunnel",
        ]),
        flag("deny", "Drops without a word."),
        block("reject", "Drops and tells the sender (TCP reset or ICMP unreachable).", &[]).refuses(&[
            "application-services",
            "profile",
            "ssl-proxy",
        ]),
        block(
            "log",
            "Logs sessions of this policy.",
            &[
                flag("session-init", "When they begin, or when they are refused."),
                flag("session-close", "When they end."),
            ],
        ),
        block("count", "Counts sessions of this policy.", &[]).refuses(&["alarm"]),
    ],
);

const POLICY: Statement = keyed(
    "policy",
    "Policies are tried in the order of the text; the first that matches decides.",
    &[Key::Value(Kind::Name("name"))],
    &[leaf("description", "Free text.", Kind::Text), MATCH, THEN],
)
.refuses(&["scheduler-name"]);

pub const POLICIES: Statement = block(
    "policies",
    "Which sessions may pass from zone to zone.",
    &[
        keyed(
            "from-zone",
            "Policies of sessions from one zone to another, or within one zone.",
            &[Key::Value(Kind::Name("zone")), Key::Word("to-zone"), Key::Value(Kind::Name("zone"))],
            &[POLICY],
        ),
        block("global", "Policies of all zone pairs, tried after those of the pair.", &[POLICY]),
        block(
            "default-policy",
            "What happens to sessions that no policy matches; deny when left out.",
            &[flag("permit-all", "Lets them through."), flag("deny-all", "Drops them.")],
        ),
    ],
)
.refuses(&[
    "policy-rematch",
    "policy-stats",
    "pre-id-default-policy",
    "stateful",
    "traceoptions",
    "unified-policy",
]);
