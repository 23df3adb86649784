//! `services gate`

use crate::gate::MAX_IDLE_S;

use super::{Key, Kind, Statement, block, keyed, leaf, list};

const SECONDS: Kind = Kind::Number { min: 1, max: 31_536_000 };
const IDLE_SECONDS: Kind = Kind::Number { min: 1, max: MAX_IDLE_S as u64 };

pub const GATE: Statement = block(
    "gate",
    "Services that certain zones reach with a grant only. A Sluice extension of Junos.",
    &[
        keyed(
            "grant",
            "A grant that holds while it stands here; others are made with `sluice gate grant`.",
            &[Key::Value(Kind::Name("name"))],
            &[
                leaf("absolute-timeout", "Seconds after which it ends; never when left out.", SECONDS),
                leaf(
                    "idle-timeout",
                    "Seconds without a packet of its source after which it ends; never when left out.",
                    IDLE_SECONDS,
                ),
                list("service", "Services it opens.", Kind::Name("service")),
                leaf("source-address", "Host or network it is given to.", Kind::BookPrefix),
                leaf("user", "Whom it is given to; its own name when left out.", Kind::Name("user")),
            ],
        ),
        list(
            "host-only",
            "Interfaces on which packets for services of this host are decided by one lookup, without sessions.",
            Kind::Interface,
        ),
        leaf(
            "max-grants",
            "Grants there is room for, 131072 by default; fixed while grants are kept.",
            Kind::Number { min: 16, max: 1_048_575 },
        ),
        keyed(
            "service",
            "What a grant opens: addresses, one protocol, ports. The first one that fits a packet is its service.",
            &[Key::Value(Kind::Name("name"))],
            &[
                leaf("description", "Free text.", Kind::Text),
                list(
                    "destination-address",
                    "Where it is, after destination translation; also addresses of the gateway itself.",
                    Kind::BookPrefix,
                ),
                list(
                    "destination-port",
                    "Ports or ranges of protocols that have ports; any when left out.",
                    Kind::Ports,
                ),
                leaf("protocol", "IP protocol.", Kind::Protocol),
            ],
        ),
        list(
            "zone",
            "Zones from which nothing passes without a grant, neither through the gateway nor to it.",
            Kind::Name("zone"),
        ),
    ],
);
