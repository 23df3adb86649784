//! `security log`

use super::kind::Choices;
use super::{Key, Kind, Statement, block, entry, keyed, leaf};

const MODES: Choices =
    &[("stream", "The daemon sends its entries to the streams, and writes the file, itself.")];
const FORMATS: Choices = &[("sd-syslog", "RFC 5424 with structured data.")];
const PROTOCOLS: Choices = &[
    ("tcp", "RFC 6587, each message behind its length."),
    ("tls", "RFC 5425."),
    ("udp", "RFC 5426, a datagram each."),
];

pub const LOG: Statement = block(
    "log",
    "Where entries of the session log go. Without a stream or a file the daemon writes them to its standard error.",
    &[
        leaf("mode", "How entries leave; `stream` when left out.", Kind::Choice("mode", MODES)),
        leaf("format", "Form of the entries; `sd-syslog` when left out.", Kind::Choice("format", FORMATS)),
        leaf(
            "rate-cap",
            "Entries a second beyond which the rest is counted instead of sent; 100000 when left out.",
            Kind::Number { min: 1, max: 1_000_000 },
        ),
        leaf("source-address", "Address that streams are sent from.", Kind::Address),
        FILE,
        STREAM,
    ],
);

const FILE: Statement = block(
    "file",
    "A file of entries, one a line.",
    &[
        leaf("name", "Its name.", Kind::Name("file")),
        leaf("path", "Directory it stands in; /var/log when left out.", Kind::Text),
        leaf(
            "size",
            "Megabytes after which another one is begun; 10 when left out.",
            Kind::Number { min: 1, max: 1024 },
        ),
        leaf(
            "files",
            "How many are kept, the one that is written included; 10 when left out.",
            Kind::Number { min: 2, max: 1000 },
        ),
    ],
);

const STREAM: Statement = keyed(
    "stream",
    "A collector that entries are sent to.",
    &[Key::Value(Kind::Name("stream"))],
    &[
        block(
            "host",
            "Where it listens.",
            &[
                entry("", "Its address.", &[Key::Value(Kind::Address)]),
                leaf(
                    "port",
                    "Its port; 514, with TLS 6514, when left out.",
                    Kind::Number { min: 1, max: 65535 },
                ),
            ],
        ),
        block(
            "transport",
            "How messages travel.",
            &[
                leaf("protocol", "`udp` when left out.", Kind::Choice("protocol", PROTOCOLS)),
                leaf(
                    "ca-file",
                    "Certificates, one of which must have signed a TLS collector's; those of this machine when left \
                     out. A Sluice extension of Junos.",
                    Kind::Text,
                ),
                leaf(
                    "server-name",
                    "Name that a TLS collector's certificate must have; its address when left out. A Sluice extension \
                     of Junos.",
                    Kind::HostName,
                ),
            ],
        ),
    ],
);
