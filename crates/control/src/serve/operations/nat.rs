//! Network address translation.

use schemars::JsonSchema;

use super::failure::{Failure, Fault};
use super::operation::{About, Act, Body, Gateway, NoArguments, Operation, Order};
use crate::api::Cleared;
use crate::api::nat::{NatBindingFilter, NatBindingsView, NatView};
use crate::functions::bindings::table;
use crate::state::error::AskError;
use crate::views::{bindings, nat};

/// Rules and pools.
pub static NAT: Operation<NoArguments, NatView> = Operation {
    about: About::open("nat", "/api/nat", "Network address translation: rules, pools and their counters"),
    act: Act::Read(|shared, _| Ok(nat::view(shared)?)),
};

/// The table of persistent-nat.
pub static NAT_BINDINGS: Operation<NoArguments, NatBindingsView> = Operation {
    about: About::question(
        "nat-bindings",
        "/api/nat/bindings",
        "Inside endpoints that keep their outside ones (persistent-nat)",
    ),
    act: Act::Read(|shared, _| Ok(bindings::view(shared)?)),
};

/// Forgets bindings; sessions go on, those that began outside until routes change.
pub static CLEAR_NAT_BINDINGS: Operation<NoArguments, Cleared> = Operation {
    about: About {
        faults: &[(Fault::Arguments, "the filter cannot be read")],
        ..About::change(
            "clear-nat-bindings",
            "/api/nat/bindings/clear",
            "Forget which outside endpoints inside ones have; sessions go on, those that began outside until routes change",
            Body::Filter(NatBindingFilter::json_schema),
        )
    },
    act: Act::Change(clear),
};

fn clear(gateway: &Gateway, _: &NoArguments, order: Order) -> Result<Cleared, Failure> {
    let filter: NatBindingFilter = order.filter()?;
    Ok(Cleared { cleared: table::clear(&gateway.shared.dataplane, &filter).map_err(AskError::from)? })
}
