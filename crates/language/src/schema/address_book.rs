//! `security address-book`, and the address book of a zone

use super::{Key, Kind, Statement, block, entry, keyed, leaf};

const DESCRIPTION: Statement = leaf("description", "Free text.", Kind::Text);

const ADDRESS: Statement = keyed(
    "address",
    "One prefix or range of addresses, IPv4 or IPv6.",
    &[Key::Value(Kind::Name("name"))],
    &[
        DESCRIPTION,
        entry(
            "range-address",
            "Every address from the first to the last.",
            &[Key::Value(Kind::Address), Key::Word("to"), Key::Value(Kind::Address)],
        ),
        entry("", "Prefix; a bare address is that host.", &[Key::Value(Kind::BookPrefix)]),
    ],
)
.refuses(&["dns-name", "wildcard-address"])
.exclusive(&["", "range-address"])
.on_one_line();

const ADDRESS_SET: Statement = keyed(
    "address-set",
    "Several addresses of the same book under one name.",
    &[Key::Value(Kind::Name("name"))],
    &[
        DESCRIPTION,
        entry("address", "Address of the set.", &[Key::Value(Kind::Name("address"))]),
        entry(
            "address-set",
            "Set whose addresses belong to this one too.",
            &[Key::Value(Kind::Name("address-set"))],
        ),
    ],
);

pub const ADDRESS_BOOK: Statement = block(
    "address-book",
    "Names of addresses for policies.",
    &[keyed(
        "",
        "A book: `global` is the book of all zones, any other that of the zones it is attached to.",
        &[Key::Value(Kind::Name("book"))],
        &[
            DESCRIPTION,
            block(
                "attach",
                "Zones whose policies find their addresses here before they look into the global book.",
                &[entry("zone", "Zone the book is attached to.", &[Key::Value(Kind::Name("zone"))])],
            ),
            ADDRESS,
            ADDRESS_SET,
        ],
    )],
);

/// `security zones security-zone NAME address-book`
pub const ZONE_ADDRESS_BOOK: Statement = block(
    "address-book",
    "The zone's own address book, looked into before the global one.",
    &[ADDRESS, ADDRESS_SET],
);
