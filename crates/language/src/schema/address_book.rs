//! `security address-book`

use super::{Key, Kind, Statement, block, entry, keyed, leaf};

pub const ADDRESS_BOOK: Statement = block(
    "address-book",
    "Names of addresses for policies.",
    &[block(
        "global",
        "The address book of all zones.",
        &[
            leaf("description", "Free text.", Kind::Text),
            keyed(
                "address",
                "One prefix or range of addresses, IPv4 or IPv6.",
                &[Key::Value(Kind::Name("name"))],
                &[
                    leaf("description", "Free text.", Kind::Text),
                    entry(
                        "range-address",
                        "Every address from the first to the last.",
                        &[Key::Value(Kind::Address), Key::Word("to"), Key::Value(Kind::Address)],
                    ),
                    entry("", "Prefix; a bare address is that host.", &[Key::Value(Kind::BookPrefix)]),
                ],
            )
            .refuses(&["dns-name", "wildcard-address"])
            .on_one_line(),
            keyed(
                "address-set",
                "Several addresses under one name.",
                &[Key::Value(Kind::Name("name"))],
                &[
                    leaf("description", "Free text.", Kind::Text),
                    entry("address", "Address of the set.", &[Key::Value(Kind::Name("address"))]),
                    entry(
                        "address-set",
                        "Set whose addresses belong to this one too.",
                        &[Key::Value(Kind::Name("address-set"))],
                    ),
                ],
            ),
        ],
    )
    .refuses(&["attach"])],
);
