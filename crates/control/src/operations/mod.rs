//! The list of operations: everything that a gateway can be asked or told, each with its words, its place in HTTP, its role,
//! its arguments, its answer and the function that gives it.
//!
//! Routes, the client's requests, the OpenAPI document and docs/API.md are made of [`OPERATIONS`]. A new operation is a
//! `static` in the file of its subject and a line in that list.

pub mod configuration;
mod description;
mod failure;
pub mod gate;
pub mod interfaces;
pub mod nat;
mod openapi;
mod operation;
#[cfg(test)]
mod page;
pub mod policies;
pub mod sessions;
pub mod system;
#[cfg(test)]
mod tests;
pub mod zones;

use std::sync::LazyLock;

use serde_json::{Map, Value};

pub use self::failure::{Failure, Fault};
pub(crate) use self::operation::Act;
pub use self::operation::{
    About, Body, Gateway, LARGEST_BODY, Listed, Method, NoArguments, Operation, Order, Reply, Role,
};

/// All of them, in the order in which documents have them.
pub static OPERATIONS: &[&dyn Listed] = &[
    &system::HEALTH,
    &system::METRICS,
    &OPENAPI,
    &system::STATS,
    &system::PIPELINE,
    &interfaces::INTERFACES,
    &zones::ZONES,
    &zones::SCREENS,
    &policies::POLICIES,
    &policies::MATCH_POLICIES,
    &nat::NAT,
    &nat::NAT_BINDINGS,
    &nat::CLEAR_NAT_BINDINGS,
    &sessions::SESSIONS,
    &sessions::CLEAR_SESSIONS,
    &sessions::LOG,
    &gate::GATE,
    &gate::GRANTS,
    &gate::GRANT,
    &gate::REVOKE,
    &configuration::CONFIGURATION,
    &configuration::COMMIT,
];

/// Stands here because its answer is the list.
pub static OPENAPI: Operation<NoArguments, Map<String, Value>> = Operation {
    about: About::question("openapi", "/api/openapi.json", "This interface as an OpenAPI 3.1 document"),
    act: Act::Say(|_, _| DOCUMENT.clone()),
};

static DOCUMENT: LazyLock<Map<String, Value>> = LazyLock::new(|| openapi::document(OPERATIONS));
