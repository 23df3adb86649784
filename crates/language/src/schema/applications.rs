//! `applications`

use super::{Key, Kind, Statement, block, entry, keyed, leaf};

const PROTOCOL: Statement = leaf("protocol", "IP protocol.", Kind::Protocol);
const SOURCE_PORT: Statement = leaf("source-port", "Source port or range; any when left out.", Kind::Ports);
const DESTINATION_PORT: Statement =
    leaf("destination-port", "Destination port or range; any when left out.", Kind::Ports);
const ICMP_TYPE: Statement = leaf("icmp-type", "ICMP type; any when left out.", Kind::IcmpType);
const ICMP_CODE: Statement =
    leaf("icmp-code", "ICMP code; any when left out. A name belongs to its type.", Kind::IcmpCode);
const ICMP6_TYPE: Statement =
    leaf("icmp6-type", "The same as `icmp-type`, with `protocol icmp6`.", Kind::IcmpType);
const ICMP6_CODE: Statement =
    leaf("icmp6-code", "The same as `icmp-code`, with `protocol icmp6`.", Kind::IcmpCode);
const INACTIVITY_TIMEOUT: Statement = leaf(
    "inactivity-timeout",
    "Seconds after which an idle session of this application ends.",
    Kind::InactivityTimeout,
);

const TERM_UNSUPPORTED: &[&str] =
    &["alg", "application-protocol", "do-not-translate-A-query-to-AAAA-query", "rpc-program-number", "uuid"];

pub const APPLICATIONS: Statement = block(
    "applications",
    "What policies call an application: protocol and ports. Names beginning with `junos-` are predefined.",
    &[
        keyed(
            "application",
            "An application, described directly or by terms of which any may match.",
            &[Key::Value(Kind::Name("name"))],
            &[
                leaf("description", "Free text.", Kind::Text),
                PROTOCOL,
                SOURCE_PORT,
                DESTINATION_PORT,
                ICMP_TYPE,
                ICMP_CODE,
                ICMP6_TYPE,
                ICMP6_CODE,
                INACTIVITY_TIMEOUT,
                keyed(
                    "term",
                    "One of several alternatives; cannot stand beside a direct description.",
                    &[Key::Value(Kind::Name("name"))],
                    &[
                        PROTOCOL,
                        SOURCE_PORT,
                        DESTINATION_PORT,
                        ICMP_TYPE,
                        ICMP_CODE,
                        ICMP6_TYPE,
                        ICMP6_CODE,
                        INACTIVITY_TIMEOUT,
                    ],
                )
                .refuses(TERM_UNSUPPORTED)
                .on_one_line(),
            ],
        )
        .refuses(&[
            "alg",
            "application-protocol",
            "do-not-translate-A-query-to-AAAA-query",
            "do-not-translate-AAAA-query-to-A-query",
            "ether-type",
            "rpc-program-number",
            "uuid",
        ]),
        keyed(
            "application-set",
            "Several applications under one name.",
            &[Key::Value(Kind::Name("name"))],
            &[
                leaf("description", "Free text.", Kind::Text),
                entry("application", "Application of the set.", &[Key::Value(Kind::Name("application"))]),
                entry(
                    "application-set",
                    "Set whose applications belong to this one too.",
                    &[Key::Value(Kind::Name("application-set"))],
                ),
            ],
        ),
    ],
);
