//! `system services dhcp-local-server` and `access address-assignment`

use super::{Key, Kind, Statement, block, keyed, leaf, list};

/// An infinite lease is none that could be moved.
const LEASE: Kind = Kind::Number { min: 60, max: 4_294_967_294 };

const OPTION: Statement = keyed(
    "option",
    "An option by its number (RFC 2132), with one value.",
    &[Key::Value(Kind::Number { min: 1, max: 254 })],
    &[
        leaf("byte", "A number of 8 bits.", Kind::Number { min: 0, max: 255 }),
        leaf("hex-string", "Bytes, two hexadecimal digits each.", Kind::Text),
        leaf("integer", "A number of 32 bits.", Kind::Number { min: 0, max: u32::MAX as u64 }),
        list("ip-address", "IPv4 addresses.", Kind::Address),
        leaf("short", "A number of 16 bits.", Kind::Number { min: 0, max: 65_535 }),
        leaf("string", "A text.", Kind::Text),
    ],
)
.on_one_line();

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
                &[block(
                    "inet",
                    "IPv4.",
                    &[
                        ATTRIBUTES,
                        HOST,
                        leaf("network", "Network of its addresses, that of a unit.", Kind::Prefix),
                        RANGE,
                    ],
                )
                .refuses(&["excluded-address", "excluded-range", "xauth-attributes"])],
            )
            .refuses(&["inet6"])],
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

pub const DHCP_LOCAL_SERVER: Statement = block(
    "dhcp-local-server",
    "DHCP server (RFC 2131), by Kea.",
    &[keyed(
        "group",
        "Units that are served.",
        &[Key::Value(Kind::Name("group"))],
        &[keyed("interface", "A unit.", &[Key::Value(Kind::Unit)], &[])],
    )
    .refuses(&["authentication", "dynamic-profile", "liveness-detection", "overrides", "reconfigure"])],
)
.refuses(&[
    "authentication",
    "dhcpv6",
    "duplicate-clients-on-interface",
    "dynamic-profile",
    "forward-snooped-clients",
    "liveness-detection",
    "overrides",
    "pool-match-order",
    "reconfigure",
]);
