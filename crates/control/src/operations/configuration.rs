//! The configuration in force, and the next one.

use std::sync::PoisonError;

use super::failure::{Failure, Fault};
use super::operation::{About, Act, Body, Gateway, NoArguments, Operation, Order, Role};
use crate::api::{CommitQuery, Committed, Configuration};
use crate::commit::Source;
use crate::views;

/// How the network is protected.
pub static CONFIGURATION: Operation<NoArguments, Configuration> = Operation {
    about: About {
        role: Role::Group,
        ..About::question(
            "configuration",
            "/api/configuration",
            "The active configuration, as it was committed",
        )
    },
    act: Act::Read(|shared, _| Ok(views::configuration(shared))),
};

/// Makes the gateway use a configuration.
pub static COMMIT: Operation<CommitQuery, Committed> = Operation {
    about: About {
        faults: &[(
            Fault::Refused,
            "the configuration has errors, or this gateway cannot do what it wants; nothing has changed",
        )],
        ..About::change(
            "commit",
            "/api/commit",
            "Use a configuration: all of it or, on any error, nothing",
            Body::Text("the configuration"),
        )
    },
    act: Act::Change(commit),
};

fn commit(gateway: &Gateway, query: &CommitQuery, order: Order) -> Result<Committed, Failure> {
    let text = order.body;
    let file = query.file.clone().unwrap_or_else(|| "(commit)".to_owned());
    gateway.fan_out.learn(&text, &file);
    let mut engine = gateway.engine.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(engine.commit(Source { text, file }, &gateway.shared)?)
}
