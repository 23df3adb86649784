//! `services gtp-u`

use super::kind::Choices;
use super::{Key, Kind, Statement, block, flag, keyed, leaf, list};

pub const ROLES: Choices = &[
    ("n3", "To 5G base stations."),
    ("n9", "To other user planes."),
    ("s1-u", "To 4G base stations and gateways."),
];

pub const GATES: Choices =
    &[("open", "Packets pass; the default."), ("closed", "Packets are dropped and counted.")];

const BURST_SIZE: Statement = leaf(
    "burst-size",
    "Bytes that may come at once, however fast; what 10 ms of the rate bring when left out, and 15000 at least.",
    Kind::Amount { unit: "bytes", min: 1_500, max: 1_000_000_000 },
);
const DISCARD: Statement = flag("discard", "Drops every packet (forwarding action DROP, TS 29.244 5.2.1).");
const DSCP: Statement =
    leaf("dscp", "Marking that packets leave with; as they came when left out.", Kind::Dscp);
const GATE: Statement = leaf("gate", "Whether packets pass (TS 29.244 5.4.3).", Kind::Choice("gate", GATES));
const MAXIMUM_BIT_RATE: Statement = leaf(
    "maximum-bit-rate",
    "Bits of inner IP packets a second; more is dropped.",
    Kind::Amount { unit: "bits per second", min: 64_000, max: 400_000_000_000 },
);

const DIRECTION: &[Statement] = &[
    BURST_SIZE,
    DISCARD,
    DSCP,
    leaf(
        "duplicate",
        "A copy of every packet that passes goes into this tunnel (forwarding action DUPL, TS 29.244 5.2.1); of a flow without one into that of the rules.",
        Kind::Name("duplicate"),
    ),
    GATE,
    MAXIMUM_BIT_RATE,
];

const MATCH: &[Statement] = &[
    leaf("dscp", "Differentiated services code point of the packet in the tunnel.", Kind::Dscp),
    list(
        "local-port",
        "Ports of the subscriber: source of uplink packets, destination of downlink ones.",
        Kind::Ports,
    ),
    leaf("protocol", "IP protocol; behind extension headers of IPv6, up to six of them.", Kind::Protocol),
    list(
        "remote-address",
        "Prefixes on the other side, as the subscriber sees it: destination of uplink packets, source of downlink ones.",
        Kind::BookPrefix,
    ),
    list("remote-port", "Ports on the other side.", Kind::Ports),
];

const FLOW: Statement = keyed(
    "flow",
    "Packets that meet something else than the others (an SDF filter, TS 29.244 5.2.1): each belongs to the first flow that it matches.",
    &[Key::Value(Kind::Name("flow"))],
    &[
        block(
            "downlink",
            "Of its packets to the subscriber; besides, all meet the rate of the rules.",
            DIRECTION,
        ),
        block("match", "What its packets have, all of it; every packet when left out.", MATCH),
        leaf(
            "precedence",
            "Its place among the flows of these rules: the lowest number is asked first.",
            Kind::Number { min: 0, max: 4_294_967_295 },
        ),
        leaf(
            "qfi",
            "QoS flow identifier of its packets to the peer; that of the rules when left out.",
            Kind::Number { min: 0, max: 63 },
        ),
        flag("reflective-qos", "Its container asks for reflective QoS."),
        block(
            "uplink",
            "Of its packets from the subscriber; besides, all meet the rate of the rules.",
            DIRECTION,
        ),
    ],
);

const RULES: Statement = keyed(
    "rules",
    "What packets of sessions meet that name these rules.",
    &[Key::Value(Kind::Name("rules"))],
    &[
        block("downlink", "Of packets to the subscriber.", DIRECTION),
        FLOW,
        leaf(
            "qfi",
            "QoS flow identifier: packets to the peer have a PDU Session Container with it (TS 38.415); none when left out.",
            Kind::Number { min: 0, max: 63 },
        ),
        flag("reflective-qos", "That container asks for reflective QoS."),
        block("uplink", "Of packets from the subscriber.", DIRECTION),
    ],
);

const QUOTA: Kind = Kind::Amount { unit: "bytes", min: 1, max: 1_000_000_000_000_000_000 };

/// TS 29.244 8.2.50, 8.2.51: up to 2^32 - 1.
const SECONDS: Kind = Kind::Number { min: 1, max: 4_294_967_295 };

const LOCAL_ADDRESS: Statement = leaf(
    "local-address",
    "Address of this gateway that its tunnel has; the first that fits the peer when left out.",
    Kind::Address,
);
const PEER: Statement = block(
    "peer",
    "The other end of its tunnel.",
    &[
        leaf("address", "Its address.", Kind::Address),
        leaf("teid", "TEID that it is reached under.", Kind::Teid),
    ],
);

const DUPLICATE: Statement = keyed(
    "duplicate",
    "Tunnel that copies of packets go into where rules say so (Duplicating Parameters, TS 29.244 5.2.1).",
    &[Key::Value(Kind::Name("duplicate"))],
    &[LOCAL_ADDRESS, PEER],
);

const SESSION: Statement = keyed(
    "session",
    "A session that lasts as long as it stands here; others are made over the API.",
    &[Key::Value(Kind::Name("session"))],
    &[
        leaf("address", "IPv4 address of its subscriber, out of a pool.", Kind::Address),
        LOCAL_ADDRESS,
        PEER,
        leaf("prefix", "IPv6 prefix of its subscriber, 64 bits long, out of a pool.", Kind::Prefix),
        block(
            "quota",
            "What may pass in all, in bytes of inner IP packets, and how long; the rest is dropped.",
            &[
                leaf("downlink", "To the subscriber.", QUOTA),
                leaf("time", "Seconds since it was made, after which the daemon ends what passes.", SECONDS),
                leaf("uplink", "From the subscriber.", QUOTA),
            ],
        ),
        flag(
            "relay",
            "What comes under its TEID goes on into the peer's tunnel as it is (N9 in the middle): it has no subscriber here.",
        ),
        leaf("rules", "Rules that its packets meet; none when left out.", Kind::Name("rules")),
        leaf("teid", "TEID that this gateway is reached under.", Kind::Teid),
        block(
            "threshold",
            "The session log tells each time that another so much has passed (TS 29.244 5.2.2.2).",
            &[
                leaf("downlink", "Bytes to the subscriber.", QUOTA),
                leaf("time", "Seconds since it was made.", SECONDS),
                leaf("total", "Bytes of both directions.", QUOTA),
                leaf("uplink", "Bytes from the subscriber.", QUOTA),
            ],
        ),
    ],
);

pub const GTP_U: Statement = block(
    "gtp-u",
    "User plane of a mobile network: GTP-U tunnels (TS 29.281) end here. A Sluice extension of Junos.",
    &[
        DUPLICATE,
        keyed(
            "interface",
            "Unit that tunnels end on, at its own addresses.",
            &[Key::Value(Kind::Unit)],
            &[leaf("role", "What is at the other end.", Kind::Choice("role", ROLES))],
        ),
        keyed(
            "pool",
            "Addresses of subscribers.",
            &[Key::Value(Kind::Name("pool"))],
            &[
                leaf("mobile-interface", "Unit of `interfaces mif` that they are behind.", Kind::Unit),
                list("prefix", "Prefixes that sessions have addresses of.", Kind::Prefix),
            ],
        ),
        RULES,
        SESSION,
        leaf(
            "sessions-maximum",
            "Sessions there is room for, 65536 by default; fixed while sessions are kept.",
            Kind::Number { min: 16, max: 4_000_000 },
        ),
        block(
            "spread",
            "Packets in tunnels go on at the CPU of their flow, whatever CPU takes the base station's from the device (XDP alone).",
            &[
                list(
                    "processors",
                    "CPUs that share them; all that are online when left out.",
                    Kind::Number { min: 0, max: 4095 },
                ),
                leaf(
                    "queue-size",
                    "Packets that may wait for each of them, 2048 by default; more are dropped.",
                    Kind::Number { min: 64, max: 16_000 },
                ),
            ],
        ),
    ],
);
