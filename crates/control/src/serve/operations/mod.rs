//! The list of operations: everything that a gateway can be asked or told, each with its words, its place in HTTP, its role,
//! its arguments, its answer and the function that gives it.
//!
//! Routes, the client's requests, `sluice api` with its help, completion and manual pages, the OpenAPI document and docs/API.md
//! are made of [`OPERATIONS`]. A new operation is a `static` in the file of its subject and a line in that list.

pub mod candidate;
pub mod capacity;
#[cfg(test)]
mod compatible;
pub mod configuration;
mod description;
pub mod dhcp;
pub mod dhcp_server;
pub mod drops;
mod failure;
pub mod gate;
pub mod gtpu;
pub mod interfaces;
pub mod nat;
mod openapi;
mod operation;
#[cfg(test)]
mod page;
pub mod policies;
pub mod rescue;
pub mod router_advertisement;
pub mod routes;
pub mod routing;
pub mod sessions;
pub mod system;
#[cfg(test)]
mod tests;
pub mod zones;

use std::sync::LazyLock;

use serde_json::{Map, Value};

pub use self::description::{Argument, Kind, arguments, members, object};
pub use self::failure::{Failure, Fault};
pub(crate) use self::operation::Act;
pub use self::operation::{
    About, Body, Gateway, LARGEST_BODY, Listed, Method, NoArguments, Operation, Order, Reply, Role, Text,
};

/// All of them, in the order in which documents have them.
pub static OPERATIONS: &[&dyn Listed] = &[
    &system::HEALTH,
    &system::METRICS,
    &OPENAPI,
    &system::STATS,
    &system::PIPELINE,
    &capacity::CAPACITY,
    &interfaces::INTERFACES,
    &routes::STATIC_ROUTES,
    &routes::ROUTING_INSTANCES,
    &router_advertisement::ROUTER_ADVERTISEMENT,
    &dhcp_server::DHCP_SERVER,
    &dhcp_server::CLEAR_DHCP_BINDING,
    &dhcp_server::DHCPV6_SERVER,
    &dhcp_server::CLEAR_DHCPV6_BINDING,
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
    &drops::RECENT_DROPS,
    &dhcp::DHCP_CLIENTS,
    &dhcp::RENEW_DHCP,
    &dhcp::RELEASE_DHCP,
    &dhcp::DHCPV6_CLIENTS,
    &dhcp::RENEW_DHCPV6,
    &dhcp::RELEASE_DHCPV6,
    &gate::GATE,
    &gate::GRANTS,
    &gate::GRANT,
    &gate::REVOKE,
    &gtpu::GTPU,
    &gtpu::GTPU_SESSIONS,
    &gtpu::GTPU_USAGE,
    &gtpu::GTPU_PEERS,
    &gtpu::ADD_GTPU_SESSIONS,
    &gtpu::CHANGE_GTPU_SESSION,
    &gtpu::REMOVE_GTPU_SESSIONS,
    &routing::BGP,
    &routing::OSPF,
    &routing::OSPF_INTERFACES,
    &routing::OSPF3,
    &routing::BFD,
    &routing::CLEAR_BGP,
    &configuration::CONFIGURATION,
    &configuration::COMMIT,
    &configuration::CONFIRM,
    &configuration::HISTORY,
    &configuration::EARLIER,
    &candidate::CANDIDATE,
    &candidate::OPEN_CANDIDATE,
    &candidate::CLOSE_CANDIDATE,
    &candidate::EDIT_CANDIDATE,
    &candidate::LOAD_CANDIDATE,
    &candidate::ROLLBACK,
    &candidate::DISCARD_CANDIDATE,
    &candidate::COMPARE,
    &candidate::COMMIT_CANDIDATE,
    &rescue::RESCUE,
    &rescue::SAVE_RESCUE,
    &rescue::DELETE_RESCUE,
];

/// Stands here because its answer is the list.
pub static OPENAPI: Operation<NoArguments, Map<String, Value>> = Operation {
    about: About::open("openapi", "/api/openapi.json", "This interface as an OpenAPI 3.1 document"),
    act: Act::Say(|_, _| DOCUMENT.clone()),
};

static DOCUMENT: LazyLock<Map<String, Value>> = LazyLock::new(|| openapi::document(OPERATIONS));
