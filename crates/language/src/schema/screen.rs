//! `security screen`

use super::{Key, Kind, Statement, block, flag, keyed, leaf, list};

pub const SCREEN: Statement = block(
    "screen",
    "Checks against attacks, made before anything else.",
    &[keyed(
        "ids-option",
        "A set of checks that zones name with `screen`.",
        &[Key::Value(Kind::Name("name"))],
        &[
            leaf("description", "Free text.", Kind::Text),
            flag("alarm-without-drop", "Counts and logs what the checks find, but lets it pass."),
            ICMP,
            IP,
            LIMIT_SESSION,
            TCP,
            UDP,
        ],
    )
    .refuses(&["aggregation", "match-direction"])],
)
.refuses(&["traceoptions", "trap", "white-list"]);

const fn packets(help: &'static str) -> Statement {
    leaf("threshold", help, Kind::Number { min: 1, max: 1_000_000 })
}

/// Ten of something within this time are too many.
const fn interval(help: &'static str) -> Statement {
    leaf("threshold", help, Kind::Number { min: 1000, max: 1_000_000 })
}

const ICMP: Statement = block(
    "icmp",
    "Checks of ICMP and ICMPv6 packets.",
    &[
        block(
            "flood",
            "Drops what one address gets beyond so many ICMP packets a second.",
            &[packets("Packets a second to one address; 1000 when left out.")],
        ),
        flag("fragment", "Drops fragments of ICMP messages."),
        flag("icmpv6-malformed", "Drops ICMPv6 messages that RFC 4443 or RFC 4861 does not allow."),
        block(
            "ip-sweep",
            "Drops echo requests of a source that has asked ten addresses in too short a time.",
            &[interval("Microseconds in which ten addresses are too many; 5000 when left out.")],
        ),
        flag("large", "Drops ICMP packets of more than 1024 bytes."),
        flag("ping-death", "Drops ICMP fragments that end beyond the longest IP packet."),
    ],
);

const IP: Statement = block(
    "ip",
    "Checks of the IP header. Options are those of IPv4.",
    &[
        flag("bad-option", "Drops packets with malformed options."),
        flag("block-frag", "Drops fragments."),
        flag("loose-source-route-option", "Drops packets with the option loose source route."),
        flag("record-route-option", "Drops packets with the option record route."),
        flag("security-option", "Drops packets with the option security."),
        flag("source-route-option", "Drops packets with the option loose or strict source route."),
        block(
            "spoofing",
            "Drops first packets whose source is not routed back to the interface they came from.",
            &[flag("zone-based", "The route back may leave through any interface of the zone.")],
        ),
        flag("stream-option", "Drops packets with the option stream id."),
        flag("strict-source-route-option", "Drops packets with the option strict source route."),
        flag("tear-drop", "Drops fragments that overlap, or cannot be part of a packet."),
        flag("timestamp-option", "Drops packets with the option timestamp."),
        flag("unknown-protocol", "Drops packets of protocols from 146 on, which are not assigned."),
    ],
)
.refuses(&["ipv6-extension-header", "ipv6-extension-header-limit", "ipv6-malformed-header", "tunnel"]);

const TCP: Statement = block(
    "tcp",
    "Checks of TCP packets.",
    &[
        flag("fin-no-ack", "Drops packets with FIN and without ACK."),
        flag("land", "Drops packets whose source and destination are the same."),
        block(
            "port-scan",
            "Drops SYNs of a source that has asked ten ports of one address in too short a time.",
            &[interval("Microseconds in which ten ports are too many; 5000 when left out.")],
        ),
        flag("syn-fin", "Drops packets with both SYN and FIN."),
        SYN_FLOOD,
        flag("syn-frag", "Drops fragments of a SYN."),
        flag("tcp-no-flag", "Drops packets without any flag."),
        block(
            "tcp-sweep",
            "Drops SYNs of a source that has asked ten addresses in too short a time.",
            &[interval("Microseconds in which ten addresses are too many; 5000 when left out.")],
        ),
        flag("winnuke", "Drops urgent data for port 139."),
    ],
)
.refuses(&["syn-ack-ack-proxy"]);

const SYN_FLOOD: Statement = block(
    "syn-flood",
    "Holds back floods of SYNs. What is left out has its default.",
    &[
        leaf(
            "alarm-threshold",
            "SYNs a second to one address and port from which on they are told; 512 when left out.",
            Kind::Number { min: 1, max: 1_000_000 },
        ),
        leaf(
            "attack-threshold",
            "SYNs a second to one address and port beyond which they are answered with cookies; 200 when left out.",
            Kind::Number { min: 1, max: 1_000_000 },
        ),
        leaf(
            "destination-threshold",
            "SYNs a second to one address beyond which they are dropped; 2048 when left out.",
            Kind::Number { min: 4, max: 1_000_000 },
        ),
        leaf(
            "queue-size",
            "Connections that Junos keeps half open. It has no effect: cookies need no queue.",
            Kind::Number { min: 200, max: 20_000 },
        ),
        leaf(
            "source-threshold",
            "SYNs a second from one address beyond which they are dropped; 1024 when left out.",
            Kind::Number { min: 4, max: 1_000_000 },
        ),
        leaf(
            "timeout",
            "Seconds a cookie may take to come back; 20 when left out.",
            Kind::Number { min: 1, max: 50 },
        ),
        keyed(
            "white-list",
            "SYNs of these sources for these destinations know no threshold.",
            &[Key::Value(Kind::Name("white-list"))],
            &[
                list("destination-address", "Destinations; any when left out.", Kind::BookPrefix),
                list("source-address", "Sources; any when left out.", Kind::BookPrefix),
            ],
        ),
    ],
);

const UDP: Statement = block(
    "udp",
    "Checks of UDP packets.",
    &[
        block(
            "flood",
            "Drops what one address and port get beyond so many UDP packets a second.",
            &[packets("Packets a second to one address and port; 1000 when left out.")],
        )
        .refuses(&["white-list"]),
        block(
            "port-scan",
            "Drops first packets of a source that has asked ten ports of one address in too short a time.",
            &[interval("Microseconds in which ten ports are too many; 5000 when left out.")],
        ),
        block(
            "udp-sweep",
            "Drops first packets of a source that has asked ten addresses in too short a time.",
            &[interval("Microseconds in which ten addresses are too many; 5000 when left out.")],
        ),
    ],
);

const LIMIT_SESSION: Statement = block(
    "limit-session",
    "Sessions that one address may have at a time.",
    &[
        leaf("destination-ip-based", "To one destination address.", Kind::Number { min: 1, max: 2_000_000 }),
        leaf("source-ip-based", "From one source address.", Kind::Number { min: 1, max: 2_000_000 }),
    ],
);
