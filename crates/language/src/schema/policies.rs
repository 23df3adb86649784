//! `security policies`

use super::{Key, Kind, Statement, block, flag, keyed, leaf, list};

const SOURCE_ADDRESS: Statement = list(
    "source-address",
    "Names from the address book, or `any`, `any-ipv4`, `any-ipv6`.",
    Kind::Name("address"),
);
const DESTINATION_ADDRESS: Statement = list(
    "destination-address",
    "Names from the address book, or `any`, `any-ipv4`, `any-ipv6`.",
    Kind::Name("address"),
);
const SOURCE_EXCLUDED: Statement =
    flag("source-address-excluded", "Every source address matches but those of `source-address`.");
const DESTINATION_EXCLUDED: Statement = flag(
    "destination-address-excluded",
    "Every destination address matches but those of `destination-address`.",
);
const APPLICATION: Statement =
    list("application", "Names of applications or sets, or `any` alone.", Kind::Name("application"));

const MATCH: Statement = block(
    "match",
    "What the policy applies to; source-address, destination-address and application are required.",
    &[SOURCE_ADDRESS, SOURCE_EXCLUDED, DESTINATION_ADDRESS, DESTINATION_EXCLUDED, APPLICATION],
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

const GLOBAL_MATCH: Statement = block(
    "match",
    "What the policy applies to; source-address, destination-address and application are required.",
    &[
        list("from-zone", "Zones the session comes from; all when left out, or `any`.", Kind::Name("zone")),
        list("to-zone", "Zones the session goes to; all when left out, or `any`.", Kind::Name("zone")),
        SOURCE_ADDRESS,
        SOURCE_EXCLUDED,
        DESTINATION_ADDRESS,
        DESTINATION_EXCLUDED,
        APPLICATION,
    ],
)
.refuses(&[
    "destination-l3vpn-vrf-group",
    "dynamic-application",
    "source-end-user-profile",
    "source-identity",
    "source-l3vpn-vrf-group",
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
)
.exclusive(&["permit", "deny", "reject"]);

const DESCRIPTION: Statement = leaf("description", "Free text.", Kind::Text);
const SCHEDULER_NAME: Statement = leaf(
    "scheduler-name",
    "The policy is skipped while this scheduler is not active.",
    Kind::Name("scheduler"),
);

const POLICY_HELP: &str = "Policies are tried in the order of the text; the first that matches decides.";

const POLICY: Statement = keyed(
    "policy",
    POLICY_HELP,
    &[Key::Value(Kind::Name("name"))],
    &[DESCRIPTION, SCHEDULER_NAME, MATCH, THEN],
);

const GLOBAL_POLICY: Statement = keyed(
    "policy",
    POLICY_HELP,
    &[Key::Value(Kind::Name("name"))],
    &[DESCRIPTION, SCHEDULER_NAME, GLOBAL_MATCH, THEN],
);

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
        block(
            "global",
            "Policies of several or all zone pairs, tried after those of the pair.",
            &[GLOBAL_POLICY],
        ),
        block(
            "default-policy",
            "What happens to sessions that no policy matches; deny when left out.",
            &[flag("permit-all", "Lets them through."), flag("deny-all", "Drops them.")],
        )
        .exclusive(&["permit-all", "deny-all"]),
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
