//! Interfaces.

use super::operation::{About, Act, NoArguments, Operation};
use crate::api::InterfaceView;
use crate::views;

/// Every unit, and every device in the null zone.
pub static INTERFACES: Operation<NoArguments, Vec<InterfaceView>> = Operation {
    about: About::open("interfaces", "/api/interfaces", "Interfaces: zone, attach mode, packets"),
    act: Act::Read(|shared, _| Ok(views::interfaces(shared)?)),
};
