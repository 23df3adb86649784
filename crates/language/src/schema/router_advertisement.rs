//! `protocols router-advertisement`

use super::kind::Choices;
use super::{Key, Kind, Statement, block, flag, keyed, leaf};

pub const PREFERENCES: Choices =
    &[("high", "Before other routers."), ("low", "Behind other routers."), ("medium", "The default.")];

/// 4294967295 is infinity (RFC 4861 4.6.2).
const LIFETIME: Kind = Kind::Number { min: 0, max: u32::MAX as u64 };

const PREFIX: Statement = keyed(
    "prefix",
    "A prefix of the link. Without any, those of the device's global addresses are advertised, with the lifetimes that they have.",
    &[Key::Value(Kind::Prefix)],
    &[
        flag("autonomous", "Hosts make addresses of it (SLAAC); the default."),
        flag("no-autonomous", "Hosts make no addresses of it."),
        flag("no-on-link", "Says nothing of where its addresses are."),
        flag("on-link", "Its addresses are on the link; the default."),
        leaf(
            "preferred-lifetime",
            "Seconds that addresses of it are preferred for, 604800 by default.",
            LIFETIME,
        ),
        leaf("valid-lifetime", "Seconds that it is valid for, 2592000 by default.", LIFETIME),
    ],
);

const LIFETIME_OF_OPTION: &[Statement] =
    &[leaf("lifetime", "Seconds, three times the longest interval by default.", LIFETIME)];

const INTERFACE: Statement = keyed(
    "interface",
    "Unit that this gateway advertises itself on.",
    &[Key::Value(Kind::Unit)],
    &[
        leaf("current-hop-limit", "Hop limit that hosts send with; 0 says nothing. 64 by default.", Kind::Number { min: 0, max: 255 }),
        leaf(
            "default-lifetime",
            "Seconds that this gateway is a default router for, three times the longest interval by default; 0 = it is none.",
            Kind::Number { min: 0, max: 9_000 },
        ),
        keyed("dns-search-label", "Domain that hosts look up names in (RFC 8106 5.2).", &[Key::Value(Kind::HostName)], LIFETIME_OF_OPTION),
        keyed("dns-server-address", "Resolver of DNS (RFC 8106 5.1).", &[Key::Value(Kind::Address)], LIFETIME_OF_OPTION),
        leaf("link-mtu", "MTU that hosts take for the link.", Kind::Number { min: 1_280, max: 65_535 }),
        flag("managed-configuration", "Addresses are to be had by DHCPv6."),
        leaf("max-advertisement-interval", "Longest time between two advertisements, 600 seconds by default.", Kind::Number { min: 4, max: 1_800 }),
        leaf("min-advertisement-interval", "Shortest time between two, a third of the longest by default.", Kind::Number { min: 3, max: 1_350 }),
        keyed(
            "nat-prefix",
            "Prefix that IPv4 addresses are reached behind by NAT64 (PREF64, RFC 8781): 96, 64, 56, 48, 40 or 32 bits long.",
            &[Key::Value(Kind::Prefix)],
            &[leaf("lifetime", "Seconds, three times the longest interval by default; hosts are told multiples of 8.", Kind::Number { min: 0, max: 65_528 })],
        ),
        flag("other-stateful-configuration", "All but addresses is to be had by DHCPv6."),
        leaf("preference", "Of this gateway among the routers of the link (RFC 4191).", Kind::Choice("preference", PREFERENCES)),
        PREFIX,
        leaf("reachable-time", "Milliseconds that a neighbour is reachable after it was heard; 0, the default, says nothing.", Kind::Number { min: 0, max: 3_600_000 }),
        leaf("retransmit-timer", "Milliseconds between two neighbour solicitations; 0, the default, says nothing.", Kind::Number { min: 0, max: u32::MAX as u64 }),
    ],
)
.refuses(&[
    "no-link-mtu",
    "no-managed-configuration",
    "no-other-stateful-configuration",
    "solicit-router-advertisement-unicast",
    "virtual-router-only",
]);

pub const ROUTER_ADVERTISEMENT: Statement = block(
    "router-advertisement",
    "This gateway tells hosts of itself and of the prefixes of their links (RFC 4861).",
    &[INTERFACE],
)
.refuses(&["traceoptions"]);
