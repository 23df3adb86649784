//! `security flow`

use super::kind::Choices;
use super::{Kind, Statement, block, flag, leaf};

/// `syn-proxy` would have to hold half-open connections.
const SYN_MODES: Choices = &[("syn-cookie", "With a cookie; nothing is kept for them.")];

pub const FLOW: Statement = block(
    "flow",
    "The session table.",
    &[
        AGING,
        flag(
            "allow-reverse-across-zones",
            "Lets answers leave into another zone than their session came from. A Sluice extension of Junos.",
        ),
        leaf(
            "icmp-timeout",
            "Idle seconds after which an ICMP session ends. A Sluice extension of Junos.",
            TIMEOUT,
        ),
        leaf(
            "ip-timeout",
            "Idle seconds after which a session of other protocols ends. A Sluice extension of Junos.",
            TIMEOUT,
        ),
        leaf(
            "max-sessions",
            "IPv4 sessions the table holds; fixed while sessions are kept. A Sluice extension of Junos.",
            Kind::Number { min: 16, max: 16_777_216 },
        ),
        leaf(
            "max-sessions-v6",
            "IPv6 sessions the table holds; fixed while sessions are kept. A Sluice extension of Junos.",
            Kind::Number { min: 16, max: 16_777_216 },
        ),
        leaf(
            "max-unanswered",
            "Percent of the table that sessions without an answer may take. A Sluice extension of Junos.",
            Kind::Number { min: 1, max: 100 },
        ),
        leaf(
            "syn-flood-protection-mode",
            "How SYNs beyond `attack-threshold` are answered.",
            Kind::Choice("mode", SYN_MODES),
        ),
        block(
            "tcp-mss",
            "Lowers the maximum segment size that TCP connections through the gateway announce.",
            &[block(
                "all-tcp",
                "Of every connection, in both directions.",
                &[leaf("mss", "Largest value a SYN leaves with.", Kind::Number { min: 64, max: 65_535 })],
            )],
        )
        .refuses(&["gre-in", "gre-out", "ipsec-vpn"]),
        TCP_SESSION,
        leaf(
            "udp-timeout",
            "Idle seconds after which a UDP session ends. A Sluice extension of Junos.",
            TIMEOUT,
        ),
    ],
)
.refuses(&[
    "advanced-options",
    "allow-dns-reply",
    "allow-embedded-icmp",
    "allow-reverse-ecmp",
    "bridge",
    "enable-reroute-uniform-link-check",
    "ethernet-switching",
    "fast-path",
    "force-ip-reassembly",
    "gre-performance-acceleration",
    "ipsec-performance-acceleration",
    "load-distribution",
    "mcast-buffer-enhance",
    "packet-ordering-mode",
    "pending-sess-queue-length",
    "power-mode-disable",
    "preserve-incoming-fragment-size",
    "route-change-timeout",
    "sync-icmp-session",
    "traceoptions",
]);

const TIMEOUT: Kind = Kind::Number { min: 4, max: 65_534 };

const AGING: Statement = block(
    "aging",
    "Shorter idle times while a session table is too full.",
    &[
        leaf(
            "early-ageout",
            "Idle seconds after which any session ends while a table is too full.",
            Kind::Number { min: 1, max: 65_535 },
        ),
        leaf(
            "high-watermark",
            "Percent of a table from which on it is too full.",
            Kind::Number { min: 0, max: 100 },
        ),
        leaf(
            "low-watermark",
            "Percent of a table below which it is not any more.",
            Kind::Number { min: 0, max: 100 },
        ),
    ],
);

const TCP_SESSION: Statement = block(
    "tcp-session",
    "How TCP sessions are followed.",
    &[
        flag("no-sequence-check", "Lets segments outside of the window pass."),
        leaf(
            "tcp-initial-timeout",
            "Seconds that opening a connection may take.",
            Kind::Number { min: 4, max: 300 },
        ),
        block(
            "time-wait-state",
            "Sessions that both sides have closed, or that were reset.",
            &[
                flag("apply-to-half-close-state", "The same time for sessions that one side has closed."),
                leaf(
                    "session-timeout",
                    "Idle seconds after which they end.",
                    Kind::Number { min: 2, max: 600 },
                ),
            ],
        )
        .refuses(&["session-ageout"]),
    ],
)
.refuses(&[
    "aggressive-tcp-ack",
    "fin-invalidate-session",
    "maximum-window",
    "no-syn-check",
    "no-syn-check-in-tunnel",
    "rst-invalidate-session",
    "rst-sequence-check",
    "strict-syn-check",
    "tcp-fast-open",
    "tcp-selective-ack",
]);
