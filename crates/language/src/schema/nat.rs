//! `security nat`

use super::{Key, Kind, Statement, block, entry, flag, keyed, leaf, list};

const DESCRIPTION: Statement = leaf("description", "Free text.", Kind::Text);
const NAME: &[Key] = &[Key::Value(Kind::Name("name"))];
const PORT: Kind = Kind::Number { min: 0, max: 65_535 };
const POOL_PORT: Kind = Kind::Number { min: 1024, max: 65_535 };

const RULE_SET_HELP: &str = "Rules for packets between certain zones or interfaces. Of several rule-sets that speak of a \
                             packet, the one that names interfaces comes before those that name zones, and these before \
                             the routing-instance.";
const RULE_HELP: &str = "Rules are tried in the order of the text; the first that matches decides.";
const INSTANCE: Kind = Kind::Name("routing-instance");

const ENDS: &[Statement] = &[
    list("interface", "Interfaces and their units.", Kind::Unit),
    list("routing-instance", "All units of routing instances; `default` is the main one.", INSTANCE),
    list("zone", "Zones.", Kind::Name("zone")),
];

const FROM: Statement =
    block("from", "Where packets come from: interfaces, zones or the routing-instance.", ENDS)
        .exclusive(&["interface", "routing-instance", "zone"])
        .refuses(&["routing-group"])
        .on_one_line();
const TO: Statement = block("to", "Where packets leave: interfaces, zones or the routing-instance.", ENDS)
    .exclusive(&["interface", "routing-instance", "zone"])
    .refuses(&["routing-group"])
    .on_one_line();

const APPLICATION: Statement =
    list("application", "Names of applications or sets, or `any` alone.", Kind::Name("application"));
const SOURCE_ADDRESS: Statement = list("source-address", "Prefixes.", Kind::BookPrefix);
const SOURCE_NAME: Statement =
    list("source-address-name", "Names from the global address book.", Kind::Name("address"));
const DESTINATION_NAME: Statement =
    list("destination-address-name", "Names from the global address book.", Kind::Name("address"));

const fn ports(name: &'static str, help: &'static str, kind: Kind) -> Statement {
    // The kinds are constants, so that a table of keys can be.
    match kind {
        Kind::Number { min: 1024, .. } => {
            keyed(name, help, &[Key::Value(POOL_PORT)], LAST_POOL_PORT).on_one_line()
        }
        _ => keyed(name, help, &[Key::Value(PORT)], LAST_PORT).on_one_line(),
    }
}

const LAST_PORT: &[Statement] = &[leaf("to", "Last port of the range.", PORT)];
const LAST_POOL_PORT: &[Statement] = &[leaf("to", "Last port of the range.", POOL_PORT)];
const LAST_ADDRESS: &[Statement] = &[leaf("to", "Last address of the range.", Kind::BookPrefix)];

const SOURCE_PORT: Statement =
    ports("source-port", "Source port, or the first of a range; TCP and UDP only.", PORT);
const DESTINATION_PORT: Statement =
    ports("destination-port", "Destination port, or the first of a range; TCP and UDP only.", PORT);
const PROTOCOL: Statement = list("protocol", "IP protocols.", Kind::Protocol);

const SOURCE_POOL: Statement = keyed(
    "pool",
    "Addresses and ports that sources are translated to.",
    NAME,
    &[
        DESCRIPTION,
        leaf(
            "routing-instance",
            "The one that the addresses are in, `default` for the main one: sessions that leave there get them. Left out, that of each session.",
            INSTANCE,
        ),
        keyed(
            "address",
            "Address or prefix, or the first address of a range.",
            &[Key::Value(Kind::BookPrefix)],
            LAST_ADDRESS,
        )
        .on_one_line(),
        block(
            "address-pooling",
            "Whether a source keeps its address of the pool.",
            &[
                flag("no-paired", "Each session may get another address."),
                flag("paired", "All sessions of a source get the same address."),
            ],
        )
        .exclusive(&["no-paired", "paired"])
        .on_one_line(),
        leaf(
            "host-address-base",
            "This source gets the first address of the pool, the next one the next; ports stay as they are.",
            Kind::Address,
        ),
        block(
            "overflow-pool",
            "What is used when the pool has no free address or port.",
            &[
                flag("interface", "The address of the interface the packet leaves by."),
                entry("", "A pool with port translation.", &[Key::Value(Kind::Name("pool"))]),
            ],
        )
        .exclusive(&["", "interface"])
        .on_one_line(),
        block(
            "port",
            "Ports that are used; 1024 to 65535 when left out.",
            &[
                flag("no-translation", "Ports stay as they are; a source needs an address of its own."),
                flag("preserve-source", "The source's own port, if it is free. A Sluice extension of Junos."),
                ports("range", "First port, and last behind `to`.", POOL_PORT),
            ],
        )
        .refuses(&[
            "automatic",
            "block-allocation",
            "deterministic",
            "port-overloading",
            "port-overloading-factor",
            "preserve-parity",
            "preserve-range",
        ]),
    ],
)
.refuses(&[
    "address-persistent",
    "address-shared",
    "ei-mapping-timeout",
    "mapping-timeout",
    "pool-utilization-alarm",
]);

/// Of Junos; ranges and defaults are its.
const PERSISTENT: Statement = block(
    "persistent-nat",
    "A source keeps its address and port whatever it talks to, and can be reached there.",
    &[
        leaf(
            "inactivity-timeout",
            "Seconds that a binding outlives its last session; 300 when left out.",
            Kind::Number { min: 60, max: 7200 },
        ),
        leaf(
            "max-session-number",
            "Sessions of one binding at one time; 30 when left out.",
            Kind::Number { min: 8, max: 65_536 },
        ),
        block(
            "permit",
            "Who reaches the source under the binding's address and port; policies judge them besides.",
            &[
                flag("any-remote-host", "Everybody."),
                flag("target-host", "Addresses that the source has sent to from there."),
                flag("target-host-port", "Addresses and ports that the source has sent to from there."),
            ],
        )
        .exclusive(&["any-remote-host", "target-host", "target-host-port"])
        .on_one_line(),
    ],
)
.refuses(&["address-mapping"]);

const SOURCE_RULE: Statement = keyed(
    "rule",
    RULE_HELP,
    NAME,
    &[
        DESCRIPTION,
        block(
            "match",
            "What the rule applies to; at least one of the addresses.",
            &[
                APPLICATION,
                list(
                    "destination-address",
                    "Prefixes, compared with the translated destination.",
                    Kind::BookPrefix,
                ),
                DESTINATION_NAME,
                DESTINATION_PORT,
                PROTOCOL,
                SOURCE_ADDRESS,
                SOURCE_NAME,
                SOURCE_PORT,
            ],
        ),
        block(
            "then",
            "What happens to the source of a packet that matches.",
            &[block(
                "source-nat",
                "One of interface, off and pool.",
                &[
                    block(
                        "interface",
                        "It becomes the address of the interface the packet leaves by.",
                        &[PERSISTENT],
                    ),
                    flag("off", "It stays as it is, and no further rule is tried."),
                    block(
                        "pool",
                        "It becomes an address of a pool.",
                        &[PERSISTENT, entry("", "Name of a source pool.", &[Key::Value(Kind::Name("pool"))])],
                    )
                    .exclusive(&[""])
                    .on_one_line(),
                ],
            )
            .exclusive(&["interface", "off", "pool"])
            .refuses(&["rule-session-count-alarm"])],
        ),
    ],
);

const SOURCE: Statement = block(
    "source",
    "Translation of source addresses and ports.",
    &[
        flag("address-persistent", "All sessions of a source get the same address of a pool, in every pool."),
        block(
            "interface",
            "Translation to the address of an interface.",
            &[
                block(
                    "port",
                    "Ports that are used; 1024 to 65535 when left out.",
                    &[
                        flag("preserve-source", "The source's own port, if it is free. A Sluice extension of Junos."),
                        ports("range", "First port, and last behind `to`. A Sluice extension of Junos.", POOL_PORT),
                    ],
                ),
            ],
        )
        .refuses(&["port-overloading", "port-overloading-factor"]),
        leaf(
            "max-bindings",
            "Bindings of persistent-nat there is room for, 65536 by default; fixed while they are kept. A Sluice extension of Junos.",
            Kind::Number { min: 16, max: 524_288 },
        ),
        SOURCE_POOL,
        ports("pool-default-port-range", "Ports of pools that say nothing of them: first, and last behind `to`.", POOL_PORT),
        block(
            "port-randomization",
            "Ports are chosen at random (RFC 6056 3.3.1) unless it is disabled; then they are handed out in turn.",
            &[flag("disable", "Ports are handed out in turn.")],
        )
        .on_one_line(),
        keyed("rule-set", RULE_SET_HELP, NAME, &[DESCRIPTION, FROM, TO, SOURCE_RULE]),
    ],
)
.refuses(&[
    "pool-default-twin-port-range",
    "pool-distribution",
    "pool-utilization-alarm",
    "port-round-robin",
    "port-scaling-enlargement",
    "session-drop-hold-down",
    "session-persistence-scan",
]);

const DESTINATION_POOL: Statement = keyed(
    "pool",
    "Addresses and the port that destinations are translated to.",
    NAME,
    &[
        DESCRIPTION,
        leaf(
            "routing-instance",
            "Whose routes decide where what was translated goes: another instance's, or `default`.",
            INSTANCE,
        ),
        keyed(
            "address",
            "Address or prefix, or the first address of a range.",
            &[Key::Value(Kind::BookPrefix)],
            &[
                leaf("port", "Port; it stays as it is when left out.", Kind::Number { min: 1, max: 65_535 }),
                leaf("to", "Last address of the range.", Kind::BookPrefix),
            ],
        )
        .on_one_line(),
    ],
);

const DESTINATION: Statement = block(
    "destination",
    "Translation of destination addresses and ports, before the route is looked up and policies are asked.",
    &[
        DESTINATION_POOL,
        keyed(
            "rule-set",
            RULE_SET_HELP,
            NAME,
            &[
                DESCRIPTION,
                FROM,
                keyed(
                    "rule",
                    RULE_HELP,
                    NAME,
                    &[
                        DESCRIPTION,
                        block(
                            "match",
                            "What the rule applies to; a destination is required.",
                            &[
                                APPLICATION,
                                list("destination-address", "Prefixes.", Kind::BookPrefix),
                                DESTINATION_NAME,
                                DESTINATION_PORT,
                                PROTOCOL,
                                SOURCE_ADDRESS,
                                SOURCE_NAME,
                            ],
                        ),
                        block(
                            "then",
                            "What happens to the destination of a packet that matches.",
                            &[block(
                                "destination-nat",
                                "One of off and pool.",
                                &[
                                    flag("off", "It stays as it is, and no further rule is tried."),
                                    block(
                                        "pool",
                                        "It becomes an address of a pool.",
                                        &[entry(
                                            "",
                                            "Name of a destination pool.",
                                            &[Key::Value(Kind::Name("pool"))],
                                        )],
                                    )
                                    .exclusive(&[""])
                                    .on_one_line(),
                                ],
                            )
                            .exclusive(&["off", "pool"])
                            .refuses(&["rule-session-count-alarm"])],
                        ),
                    ],
                ),
            ],
        ),
    ],
)
.refuses(&["port-forwarding"]);

const STATIC_NAT: Statement = block(
    "static-nat",
    "One of inet, nptv6-prefix, prefix and prefix-name.",
    &[
        flag(
            "inet",
            "NAT64: the IPv4 address that the destination holds behind the matched prefix (RFC 6052).",
        ),
        leaf("nptv6-prefix", "The prefix is exchanged so that no checksum changes (RFC 6296).", Kind::Prefix),
        block(
            "prefix",
            "The prefix is exchanged for this one, of the same length.",
            &[
                ports("mapped-port", "Port, or the first of a range, that the matched ports become.", PORT),
                leaf(
                    "routing-instance",
                    "The one that the prefix is in: another one than the matched prefix, or `default`.",
                    INSTANCE,
                ),
                entry("", "Prefix; a bare address is that host.", &[Key::Value(Kind::BookPrefix)]),
            ],
        )
        .exclusive(&[""])
        .on_one_line(),
        leaf("prefix-name", "The prefix of this name in the global address book.", Kind::Name("address")),
    ],
)
.exclusive(&["inet", "nptv6-prefix", "prefix", "prefix-name"])
.refuses(&["rule-session-count-alarm"]);

const STATIC: Statement = block(
    "static",
    "Translation of prefixes one to one, in both directions, before all other translation.",
    &[
        leaf(
            "lowest-ipv6-mtu",
            "NAT64: IPv4 packets without DF leave as IPv6 packets of at most so many bytes, fragmented where they have more (RFC 7915 4); 1280 when left out. A Sluice extension of Junos.",
            Kind::Number { min: 1280, max: 9999 },
        ),
        keyed(
            "rule-set",
            RULE_SET_HELP,
            NAME,
            &[
                DESCRIPTION,
                FROM,
                keyed(
                    "rule",
                    RULE_HELP,
                    NAME,
                    &[
                        DESCRIPTION,
                        block(
                            "match",
                            "What the rule applies to; a destination is required.",
                            &[
                                leaf(
                                    "destination-address",
                                    "Prefix; a bare address is that host.",
                                    Kind::BookPrefix,
                                ),
                                leaf(
                                    "destination-address-name",
                                    "The prefix of this name in the global address book.",
                                    Kind::Name("address"),
                                ),
                                DESTINATION_PORT,
                                SOURCE_ADDRESS,
                                SOURCE_NAME,
                                SOURCE_PORT,
                            ],
                        )
                        .exclusive(&["destination-address", "destination-address-name"]),
                        block("then", "What the destination becomes.", &[STATIC_NAT]),
                    ],
                ),
            ],
        ),
    ],
);

const PROXIED: &[Statement] = &[keyed(
    "address",
    "Address or prefix, or the first address of a range.",
    &[Key::Value(Kind::BookPrefix)],
    LAST_ADDRESS,
)
.on_one_line()];

pub const NAT: Statement = block(
    "nat",
    "Network address translation.",
    &[
        DESTINATION,
        block(
            "proxy-arp",
            "IPv4 addresses that this host answers for, besides its own.",
            &[keyed("interface", "Where it is asked for them.", &[Key::Value(Kind::Unit)], PROXIED)],
        ),
        block(
            "proxy-ndp",
            "IPv6 addresses that this host answers for, besides its own.",
            &[keyed("interface", "Where it is asked for them.", &[Key::Value(Kind::Unit)], PROXIED)],
        ),
        SOURCE,
        STATIC,
    ],
)
.refuses(&["allow-overlapping-pools", "natv6v4", "traceoptions"]);
