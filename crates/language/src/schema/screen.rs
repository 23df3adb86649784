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
            block(
                "tcp",
                "Checks of TCP packets.",
                &[flag("land", "Drops packets whose source and destination are the same.")],
            )
            .refuses(&[
                "fin-no-ack",
                "port-scan",
                "syn-ack-ack-proxy",
                "syn-fin",
                "syn-flood",
                "syn-frag",
                "tcp-no-flag",
                "tcp-sweep",
                "winnuke",
            ]),
        ],
    )
    .refuses(&[
        "aggregation",
        "alarm-without-drop",
        "icmp",
        "ip",
        "limit-session",
        "match-direction",
        "udp",
    ])],
)
.refuses(&["traceoptions", "trap", "white-list"]);
