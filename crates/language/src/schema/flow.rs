//! `security flow`

use super::kind::Choices;
use super::{Kind, Statement, block, leaf};

/// `syn-proxy` would have to hold half-open connections.
const SYN_MODES: Choices = &[("syn-cookie", "With a cookie; nothing is kept for them.")];

pub const FLOW: Statement = block(
    "flow",
    "The session table.",
    &[
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
    ],
)
.refuses(&[
    "advanced-options",
    "aging",
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
    "tcp-session",
    "traceoptions",
]);
