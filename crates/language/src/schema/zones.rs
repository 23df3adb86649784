//! `security zones`

use super::address_book::ZONE_ADDRESS_BOOK;
use super::{Key, Kind, Statement, block, flag, keyed, leaf};
use crate::services::{PROTOCOLS, SYSTEM_SERVICES};

const EXCEPT: &[Statement] = &[flag("except", "Leaves it out of `all`.")];

const HOST_INBOUND_TRAFFIC: Statement = block(
    "host-inbound-traffic",
    "What may reach the gateway itself. On an interface it replaces the zone's. Nothing is admitted when left out.",
    &[
        block(
            "system-services",
            "Services of the gateway that may be reached.",
            &[keyed("", "Service.", &[Key::Value(Kind::Choice("service", SYSTEM_SERVICES))], EXCEPT)],
        ),
        block(
            "protocols",
            "Routing and control protocols that may be spoken to the gateway.",
            &[keyed("", "Protocol.", &[Key::Value(Kind::Choice("protocol", PROTOCOLS))], EXCEPT)],
        ),
    ],
);

const ZONE_INTERFACES: Statement = block(
    "interfaces",
    "Units that belong to the zone. A unit belongs to one zone; without one it passes nothing.",
    &[keyed(
        "",
        "Unit of the zone; a bare interface name means its unit 0.",
        &[Key::Value(Kind::Unit)],
        &[HOST_INBOUND_TRAFFIC],
    )],
)
.refuses(&["all"]);

const FUNCTIONAL_ZONE: Statement = block(
    "functional-zone",
    "Units that no policy is about.",
    &[block(
        "management",
        "Interfaces that reach the gateway alone, such as one for its administrators: Sluice gives them addresses and looks at \
         none of their packets, so what the host's own filters admit is admitted. Nothing is forwarded from or to them.",
        &[block(
            "interfaces",
            "Units of the zone. None of their interface's other units may stand in a security zone.",
            &[keyed(
                "",
                "Unit; a bare interface name means its unit 0.",
                &[Key::Value(Kind::Unit)],
                &[],
            )],
        )
        .refuses(&["all"])],
    )
    .refuses(&["description", "host-inbound-traffic", "screen"])],
);

pub const ZONES: Statement = block(
    "zones",
    "Groups of units that are trusted alike.",
    &[
        keyed(
            "security-zone",
            "A zone. At most 254.",
            &[Key::Value(Kind::Name("zone"))],
            &[
                leaf("description", "Free text.", Kind::Text),
                leaf("screen", "Screen applied to what the zone receives.", Kind::Name("screen")),
                flag("tcp-rst", "Resets TCP from the zone that belongs to no session and is no SYN."),
                ZONE_ADDRESS_BOOK,
                HOST_INBOUND_TRAFFIC,
                ZONE_INTERFACES,
            ],
        )
        .refuses(&[
            "advance-connection-tracking",
            "advance-policy-based-routing-profile",
            "application-tracking",
            "enable-reverse-reroute",
            "source-identity-log",
            "unidirectional-session-refreshing",
        ]),
        FUNCTIONAL_ZONE,
    ],
);
