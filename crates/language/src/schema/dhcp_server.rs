//! `system services dhcp-local-server` and `access address-assignment`

use super::{Key, Kind, Statement, block, flag, keyed, leaf, list};

/// An infinite lease is none that could be moved.
const LEASE: Kind = Kind::Number { min: 60, max: 4_294_967_294 };

const OPTION: Statement = keyed(
    "option",
    "An option by its number (RFC 2132), with one value.",
    &[Key::Value(Kind::Number { min: 1, max: 254 })],
    OPTION_VALUES,
)
.on_one_line();

const OPTION6: Statement = keyed(
    "option",
    "An option of DHCPv6 by its number, with one value.",
    &[Key::Value(Kind::Number { min: 1, max: 65_535 })],
    OPTION_VALUES,
)
.on_one_line();

const OPTION_VALUES: &[Statement] = &[
    leaf("byte", "A number of 8 bits.", Kind::Number { min: 0, max: 255 }),
    leaf("hex-string", "Bytes, two hexadecimal digits each.", Kind::Text),
    leaf("integer", "A number of 32 bits.", Kind::Number { min: 0, max: u32::MAX as u64 }),
    list("ip-address", "Addresses of the family.", Kind::Address),
    leaf("short", "A number of 16 bits.", Kind::Number { min: 0, max: 65_535 }),
    leaf("string", "A text.", Kind::Text),
];

const ATTRIBUTES: Statement = block(
    "dhcp-attributes",
    "What clients are told.",
    &[
        leaf("boot-file", "File to boot from (option 67).", Kind::Text),
        leaf("domain-name", "Domain of the clients (option 15).", Kind::HostName),
        leaf("maximum-lease-time", "Seconds that an address is lent for, 86400 by default.", LEASE),
        list("name-server", "Resolvers of DNS (option 6).", Kind::Address),
        OPTION,
        list("router", "Default routers (option 3); the unit's own address when left out.", Kind::Address),
        leaf(
            "server-identifier",
            "Address of this server as clients know it; the unit's own when left out.",
            Kind::Address,
        ),
        leaf("tftp-server", "Name or address of the server to boot from (option 66).", Kind::HostName),
    ],
)
.refuses(&[
    "boot-server",
    "dns-server",
    "grace-period",
    "netbios-node-type",
    "next-server",
    "option-match",
    "propagate-ppp-settings",
    "propagate-settings",
    "sip-server",
    "t1-percentage",
    "t2-percentage",
    "wins-server",
]);

const ATTRIBUTES6: Statement = block(
    "dhcp-attributes",
    "What clients are told.",
    &[
        list("dns-server", "Resolvers of DNS (option 23, RFC 3646).", Kind::Address),
        list("domain-name", "Domains that names are sought in (option 24, RFC 3646).", Kind::HostName),
        leaf("maximum-lease-time", "The same as `valid-lifetime`.", LEASE),
        OPTION6,
        leaf(
            "preferred-lifetime",
            "Seconds that what is lent serves for new connections; five eighths of the valid lifetime by default.",
            LEASE,
        ),
        leaf("valid-lifetime", "Seconds that addresses and prefixes are lent for, 86400 by default.", LEASE),
    ],
)
.refuses(&[
    "exclude-prefix-len",
    "grace-period",
    "option-match",
    "propagate-ppp-settings",
    "propagate-settings",
    "sip-server-address",
    "sip-server-domain-name",
    "t1-percentage",
    "t1-renewal-time",
    "t2-percentage",
    "t2-rebinding-time",
]);

const HOST6: Statement = keyed(
    "host",
    "A client that always gets the same address.",
    &[Key::Value(Kind::Name("host"))],
    &[
        leaf("duid", "Its DUID in hexadecimal digits, like `00:03:00:01:02:00:5e:10:00:01`.", Kind::Text),
        leaf("ip-address", "Its address, out of the prefix.", Kind::Address),
    ],
)
.refuses(&["hardware-address", "user-name"]);

const RANGE6: Statement = keyed(
    "range",
    "Addresses that are lent, the gateway's own left out; or, with `prefix-length`, the whole prefix in pieces.",
    &[Key::Value(Kind::Name("range"))],
    &[
        leaf("high", "The last one.", Kind::Address),
        leaf("low", "The first one.", Kind::Address),
        leaf("prefix-length", "Bits of the prefixes that are delegated.", Kind::Number { min: 16, max: 64 }),
    ],
)
.on_one_line();

const HOST: Statement = keyed(
    "host",
    "A client that always gets the same address.",
    &[Key::Value(Kind::Name("host"))],
    &[
        leaf("hardware-address", "Its MAC address, like `02:00:5e:10:00:01`.", Kind::Name("mac-address")),
        leaf("ip-address", "Its address, out of the network.", Kind::Address),
    ],
)
.refuses(&["user-name"]);

const RANGE: Statement = keyed(
    "range",
    "Addresses that are lent; the gateway's own are left out.",
    &[Key::Value(Kind::Name("range"))],
    &[leaf("high", "The last one.", Kind::Address), leaf("low", "The first one.", Kind::Address)],
)
.on_one_line();

pub const ACCESS: Statement = block(
    "access",
    "Addresses that are lent to hosts.",
    &[block(
        "address-assignment",
        "Pools of addresses.",
        &[keyed(
            "pool",
            "A pool; it serves the units of the server that have an address in its network.",
            &[Key::Value(Kind::Name("pool"))],
            &[block(
                "family",
                "Whose addresses.",
                &[
                    block(
                        "inet",
                        "IPv4.",
                        &[
                            ATTRIBUTES,
                            HOST,
                            leaf("network", "Network of its addresses, that of a unit.", Kind::Prefix),
                            RANGE,
                        ],
                    )
                    .refuses(&["excluded-address", "excluded-range", "xauth-attributes"]),
                    block(
                        "inet6",
                        "IPv6.",
                        &[
                            ATTRIBUTES6,
                            HOST6,
                            leaf(
                                "prefix",
                                "Prefix of its addresses, that of a unit; or what is delegated in pieces.",
                                Kind::Prefix,
                            ),
                            RANGE6,
                        ],
                    )
                    .refuses(&["excluded-address", "excluded-range", "xauth-attributes"]),
                ],
            )],
        )
        .refuses(&["active-drain", "hold-down", "link"])],
    )
    .refuses(&["abated-utilization", "high-utilization", "neighbor-discovery-router-advertisement"])],
)
.refuses(&[
    "address-pool",
    "address-protection",
    "domain",
    "firewall-authentication",
    "gx-plus",
    "ldap-options",
    "ldap-server",
    "ppp-options",
    "profile",
    "radius-options",
    "radius-server",
    "securid-server",
    "terminate-code",
]);

const OVERRIDES: Statement = block(
    "overrides",
    "How clients are served.",
    &[
        leaf("delegated-pool", "The pool that prefixes are delegated from.", Kind::Name("pool")),
        flag("rapid-commit", "Two messages instead of four for clients that ask for it."),
    ],
)
.refuses(&[
    "asymmetric-lease-time",
    "asymmetric-prefix-lease-time",
    "client-negotiation-match",
    "delete-binding-on-renegotiation",
    "interface-client-limit",
    "multi-address-embedded-option-response",
    "process-inform",
]);

const DHCPV6: Statement = block(
    "dhcpv6",
    "DHCPv6 server (RFC 8415), by Kea.",
    &[
        keyed(
            "group",
            "Units that are served.",
            &[Key::Value(Kind::Name("group"))],
            &[keyed("interface", "A unit.", &[Key::Value(Kind::Unit)], &[OVERRIDES]), OVERRIDES],
        )
        .refuses(&["authentication", "dynamic-profile", "liveness-detection", "reconfigure"]),
        OVERRIDES,
    ],
)
.refuses(&[
    "authentication",
    "duplicate-clients",
    "dynamic-profile",
    "liveness-detection",
    "pool-match-order",
    "reconfigure",
]);

pub const DHCP_LOCAL_SERVER: Statement = block(
    "dhcp-local-server",
    "Servers of DHCP (RFC 2131) and DHCPv6, by Kea.",
    &[
        DHCPV6,
        keyed(
            "group",
            "Units that are served.",
            &[Key::Value(Kind::Name("group"))],
            &[keyed("interface", "A unit.", &[Key::Value(Kind::Unit)], &[])],
        )
        .refuses(&[
            "authentication",
            "dynamic-profile",
            "liveness-detection",
            "overrides",
            "reconfigure",
        ]),
    ],
)
.refuses(&[
    "authentication",
    "duplicate-clients-on-interface",
    "dynamic-profile",
    "forward-snooped-clients",
    "liveness-detection",
    "overrides",
    "pool-match-order",
    "reconfigure",
]);
