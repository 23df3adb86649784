//! `interfaces unit family`: clients of DHCP and DHCPv6.

use super::kind::Choices;
use super::{Kind, Statement, block, flag, leaf, list};

/// Of a route that DHCP gives, as Junos has it for access-internal routes.
pub const PREFERENCE: u32 = 12;

pub const CLIENT_TYPES: Choices = &[
    ("stateful", "Addresses and prefixes of the server; the default route is of router advertisements."),
    ("autoconfig", "Addresses by router advertisements; of the server what else is asked for."),
];

pub const IA_TYPES: Choices = &[
    ("ia-na", "An address (RFC 8415, section 6.2)."),
    ("ia-pd", "A prefix for networks behind this gateway (RFC 8415, section 6.3)."),
];

pub const DUID_TYPES: Choices = &[
    ("duid-ll", "The MAC address of the unit (RFC 8415, section 11.4)."),
    ("duid-llt", "A MAC address and a time, made once and kept (RFC 8415, section 11.2)."),
];

pub const ASKED: Choices = &[("dns-server", "Name servers (RFC 3646).")];

const PREFERENCE_LEAF: Statement = leaf(
    "preference",
    "Metric of the routes; 12 when left out.",
    Kind::Number { min: 1, max: 4_294_967_295 },
);

/// Under both of its names.
pub(super) const fn dhcp(name: &'static str) -> Statement {
    block(name, "The unit gets its address by DHCP (RFC 2131).", DHCP)
}

const DHCP: &[Statement] = &[
    block(
        "client-identifier",
        "Who the client says it is (option 61); made of what is kept in the state directory when left out (RFC 4361).",
        &[
            leaf("ascii", "Text; type 0 stands before it.", Kind::Text),
            leaf("hexadecimal", "Bytes, the type first: two digits each.", Kind::Name("hexadecimal")),
        ],
    )
    .exclusive(&["ascii", "hexadecimal"])
    .on_one_line(),
    leaf(
        "lease-time",
        "Seconds that the client asks for (option 51); the server decides.",
        Kind::Number { min: 60, max: 2_147_483_647 },
    ),
    leaf("server-address", "The only server whose offers are taken.", Kind::Address),
    leaf("vendor-id", "Vendor class (option 60).", Kind::Text),
    leaf(
        "retransmission-attempt",
        "Unanswered messages after which the client rests for a minute; 6 when left out.",
        Kind::Number { min: 1, max: 50_000 },
    ),
    leaf(
        "retransmission-interval",
        "Seconds to the first message that is sent again, 4 when left out; each later pause is twice as long, up to 64.",
        Kind::Number { min: 1, max: 64 },
    ),
    flag("no-dns-install", "Name servers of the lease are shown, and not written to `resolv.conf` of the state directory."),
    block("options", "What is left out of requests.", &[flag("no-hostname", "The host's name (option 12).")]).on_one_line(),
    flag("force-discover", "Begin with a new lease, even if one is kept from before."),
    flag("no-default-route", "Takes no default route of the server."),
    PREFERENCE_LEAF,
];

pub(super) const DHCPV6: Statement = block(
    "dhcpv6-client",
    "The unit gets addresses, prefixes or other things by DHCPv6 (RFC 8415), and a default route by router advertisements.",
    &[
        leaf(
            "client-type",
            "What is asked for; `stateful` when left out.",
            Kind::Choice("client-type", CLIENT_TYPES),
        ),
        list(
            "client-ia-type",
            "What the server is to give; with `stateful`, an address when left out.",
            Kind::Choice("ia-type", IA_TYPES),
        ),
        flag("rapid-commit", "Takes a server's first answer as binding (RFC 8415, section 21.14)."),
        block(
            "client-identifier",
            "Who the client says it is.",
            &[leaf(
                "duid-type",
                "Kind of its DUID; `duid-llt` when left out.",
                Kind::Choice("duid-type", DUID_TYPES),
            )],
        )
        .on_one_line(),
        list("req-option", "What else is asked for.", Kind::Choice("option", ASKED)),
        block(
            "prefix-delegating",
            "Lengths of prefixes.",
            &[
                leaf(
                    "preferred-prefix-length",
                    "Length that the client asks for.",
                    Kind::Number { min: 32, max: 64 },
                ),
                leaf(
                    "sub-prefix-length",
                    "Length that each unit gets; 64 when left out.",
                    Kind::Number { min: 48, max: 64 },
                ),
            ],
        ),
        block(
            "update-router-advertisement",
            "Units that each get a sub-prefix, and its first address, in the order in which they stand.",
            &[list("interface", "Such a unit.", Kind::Unit)],
        ),
        leaf(
            "retransmission-attempt",
            "Solicits without an answer after which the client rests for a minute; it never rests when left out.",
            Kind::Number { min: 1, max: 50_000 },
        ),
        flag("no-default-route", "Takes no default route of router advertisements."),
        PREFERENCE_LEAF,
    ],
);
