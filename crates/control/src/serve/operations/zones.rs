//! Zones and their screens.

use super::operation::{About, Act, NoArguments, Operation};
use crate::api::{ScreenView, ZoneView};
use crate::views;

/// Every zone.
pub static ZONES: Operation<NoArguments, Vec<ZoneView>> = Operation {
    about: About::open("zones", "/api/zones", "Zones and what passed through them"),
    act: Act::Read(|shared, _| Ok(views::zones(shared)?)),
};

/// Every check of every zone that has a screen.
pub static SCREENS: Operation<NoArguments, Vec<ScreenView>> = Operation {
    about: About::open(
        "screens",
        "/api/screens",
        "Screens of each zone and how many packets they recognised",
    ),
    act: Act::Read(|shared, _| Ok(views::screens(shared)?)),
};
