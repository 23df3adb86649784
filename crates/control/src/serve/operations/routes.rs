//! Routes and routing instances.

use super::operation::{About, Act, NoArguments, Operation};
use crate::api::routes::{RoutingInstanceView, StaticRouteView};
use crate::state::error::AskError;
use crate::views::routes;

/// What the configuration in force wants the kernel to have.
pub static STATIC_ROUTES: Operation<NoArguments, Vec<StaticRouteView>> = Operation {
    about: About::open(
        "static-routes",
        "/api/routes/static",
        "Static routes, and whether the kernel has them",
    ),
    act: Act::Ask(|shared, _| Ok(routes::statics(shared).map_err(AskError::from)?)),
};

/// VRF devices, and their ports.
pub static ROUTING_INSTANCES: Operation<NoArguments, Vec<RoutingInstanceView>> = Operation {
    about: About::open(
        "routing-instances",
        "/api/routing-instances",
        "Routing instances: tables, interfaces, and whether the kernel has them so",
    ),
    act: Act::Ask(|shared, _| Ok(routes::instances(shared).map_err(AskError::from)?)),
};
