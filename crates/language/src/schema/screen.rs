//! `security screen`

use super::{Key, Kind, Statement, block, flag, keyed, leaf};

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
        ],
    )
    .refuses(&["aggregation", "match-direction", "udp"])],
)
.refuses(&["traceoptions", "trap", "white-list"]);

const ICMP: Statement = block(
    "icmp",
    "Checks of ICMP and ICMPv6 packets.",
    &[
        flag("fragment", "Drops fragments of ICMP messages."),
        flag("icmpv6-malformed", "Drops ICMPv6 messages that RFC 4443 or RFC 4861 does not allow."),
        flag("large", "Drops ICMP packets of more than 1024 bytes."),
        flag("ping-death", "Drops ICMP fragments that end beyond the longest IP packet."),
    ],
)
.refuses(&["flood", "ip-sweep"]);

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
        flag("stream-option", "Drops packets with the option stream id."),
        flag("strict-source-route-option", "Drops packets with the option strict source route."),
        flag("tear-drop", "Drops fragments that overlap, or cannot be part of a packet."),
        flag("timestamp-option", "Drops packets with the option timestamp."),
        flag("unknown-protocol", "Drops packets of protocols from 146 on, which are not assigned."),
    ],
)
.refuses(&[
    "ipv6-extension-header",
    "ipv6-extension-header-limit",
    "ipv6-malformed-header",
    "spoofing",
    "tunnel",
]);

const TCP: Statement = block(
    "tcp",
    "Checks of TCP packets.",
    &[
        flag("fin-no-ack", "Drops packets with FIN and without ACK."),
        flag("land", "Drops packets whose source and destination are the same."),
        flag("syn-fin", "Drops packets with both SYN and FIN."),
        flag("syn-frag", "Drops fragments of a SYN."),
        flag("tcp-no-flag", "Drops packets without any flag."),
        flag("winnuke", "Drops urgent data for port 139."),
    ],
)
.refuses(&["port-scan", "syn-ack-ack-proxy", "syn-flood", "tcp-sweep"]);

const LIMIT_SESSION: Statement = block(
    "limit-session",
    "Sessions that one address may have at a time.",
    &[
        leaf("destination-ip-based", "To one destination address.", Kind::Number { min: 1, max: 2_000_000 }),
        leaf("source-ip-based", "From one source address.", Kind::Number { min: 1, max: 2_000_000 }),
    ],
);
