//! `system syslog`

use super::kind::Choices;
use super::{Key, Kind, Statement, block, flag, keyed, leaf};

const SEVERITIES: Choices = &[
    ("alert", "It must be seen to at once."),
    ("any", "All of them."),
    ("critical", "Something is lost."),
    ("emergency", "Nothing works."),
    ("error", "Something has failed."),
    ("info", "What happens."),
    ("none", "None of them, where `any` would have some."),
    ("notice", "What is out of the ordinary."),
    ("warning", "What an operator should know."),
];

const TRANSPORTS: Choices = &[
    ("tcp", "RFC 6587, each message behind its length."),
    ("tls", "RFC 5425."),
    ("udp", "RFC 5426, a datagram each."),
];

/// Facilities of Junos; the gateway itself sends of `change-log` and `daemon`.
macro_rules! of_facilities {
    ($($more:expr,)*) => {
        &[
            facility("any", "Messages of this severity and graver ones, of every facility that is not named."),
            facility("authorization", "Who was let in; the gateway sends none."),
            facility("change-log", "Commits: who, when, why, and those that were refused."),
            facility("conflict-log", "Configurations that contradict the machine; the gateway sends none."),
            facility("daemon", "Everything else that the gateway says."),
            facility("dfc", "The gateway sends none."),
            facility("external", "The gateway sends none."),
            facility("firewall", "The gateway sends none: sessions are told by `security log`."),
            facility("ftp", "The gateway sends none."),
            facility("interactive-commands", "The gateway sends none."),
            facility("kernel", "The gateway sends none."),
            facility("ntp", "The gateway sends none."),
            facility("pfe", "The gateway sends none."),
            facility("security", "The gateway sends none."),
            facility("user", "The gateway sends none."),
            flag("structured-data", "What belongs to a message stands in its structured data, not behind its text."),
            $($more,)*
        ]
    };
}

const fn facility(name: &'static str, help: &'static str) -> Statement {
    leaf(name, help, Kind::Choice("severity", SEVERITIES))
}

pub const SYSLOG: Statement = block(
    "syslog",
    "Where the gateway's own messages go, besides its standard error: commits, interfaces, what is wrong.",
    &[FILE, HOST, leaf("source-address", "Address that hosts are sent from.", Kind::Address)],
)
.refuses(&[
    "allow-duplicates",
    "archive",
    "console",
    "log-rotate-frequency",
    "routing-instance",
    "server",
    "time-format",
    "user",
]);

const FILE: Statement = keyed(
    "file",
    "A file of messages, one a line; `show log NAME` shows it. When it has 10 MB another one is begun; 10 are kept.",
    &[Key::Value(Kind::Name("file"))],
    of_facilities!(leaf(
        "path",
        "Directory it stands in; /var/log when left out. A Sluice extension of Junos.",
        Kind::Text
    ),),
)
.refuses(&["allow-duplicates", "archive", "explicit-priority", "match", "match-strings"]);

const HOST: Statement = keyed(
    "host",
    "A collector that messages are sent to.",
    &[Key::Value(Kind::Address)],
    of_facilities!(
        leaf("port", "Its port; 514, with TLS 6514, when left out.", Kind::Number { min: 1, max: 65535 }),
        leaf("source-address", "Address that it is sent from; that of all hosts when left out.", Kind::Address),
        leaf("transport", "How messages travel; `udp` when left out.", Kind::Choice("transport", TRANSPORTS)),
        leaf(
            "ca-file",
            "Certificates, one of which must have signed a TLS collector's; those of this machine when left out. A \
             Sluice extension of Junos.",
            Kind::Text,
        ),
        leaf(
            "server-name",
            "Name that a TLS collector's certificate must have; its address when left out. A Sluice extension of \
             Junos.",
            Kind::HostName,
        ),
    ),
)
.refuses(&[
    "allow-duplicates",
    "exclude-hostname",
    "explicit-priority",
    "facility-override",
    "log-prefix",
    "match",
    "match-strings",
    "routing-instance",
    "tlsdetails",
]);
