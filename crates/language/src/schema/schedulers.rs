//! `schedulers`

use super::{Key, Kind, Statement, block, entry, flag, keyed, leaf};

const TIMES: &[Statement] = &[
    entry(
        "start-time",
        "Active from one time of the day to another; several may be given. A window ends on its day.",
        &[Key::Value(Kind::Time), Key::Word("stop-time"), Key::Value(Kind::Time)],
    ),
    flag("all-day", "Active the whole day."),
    flag("exclude", "Not active on this day."),
];

const fn day(name: &'static str, help: &'static str) -> Statement {
    block(name, help, TIMES).exclusive(&["start-time", "all-day", "exclude"])
}

pub const SCHEDULERS: Statement = block(
    "schedulers",
    "Times at which policies are active, in the local time of the host.",
    &[keyed(
        "scheduler",
        "A scheduler. A day's own statement replaces `daily`; without any days it is active at all times.",
        &[Key::Value(Kind::Name("name"))],
        &[
            leaf("description", "Free text.", Kind::Text),
            entry(
                "start-date",
                "Never active outside of these dates; several may be given.",
                &[Key::Value(Kind::Date), Key::Word("stop-date"), Key::Value(Kind::Date)],
            ),
            day("daily", "Every day that has no statement of its own."),
            day("sunday", "Every Sunday."),
            day("monday", "Every Monday."),
            day("tuesday", "Every Tuesday."),
            day("wednesday", "Every Wednesday."),
            day("thursday", "Every Thursday."),
            day("friday", "Every Friday."),
            day("saturday", "Every Saturday."),
        ],
    )],
);
