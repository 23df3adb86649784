//! The gate and its grants.

use schemars::JsonSchema;

use super::failure::{Failure, Fault};
use super::operation::{About, Act, Body, Gateway, NoArguments, Operation, Order};
use crate::api::{GateView, GrantFilter, GrantList, GrantRequest, Granted, RevokeRequest, Revoked};
use crate::commit::Shared;
use crate::views::gate::{self, Matcher};

/// The gate as a whole.
pub static GATE: Operation<NoArguments, GateView> = Operation {
    about: About::open("gate", "/api/gate", "The gate: zones, services, how many grants"),
    act: Act::Read(|shared, _| Ok(gate::overview(shared)?)),
};

/// Who may use what.
pub static GRANTS: Operation<GrantFilter, GrantList> = Operation {
    about: About {
        faults: &[(
            Fault::Arguments,
            "an argument is unknown or cannot be understood, or names a service that is not configured",
        )],
        ..About::question("grants", "/api/gate/grants", "Grants, the oldest first")
    },
    act: Act::Read(list),
};

/// Gives grants, all of a list or none.
pub static GRANT: Operation<NoArguments, Granted> = Operation {
    about: About {
        faults: &[
            (
                Fault::Refused,
                "a grant cannot be read, or names an unknown service or a wrong address; nothing was granted",
            ),
            (
                Fault::Conflict,
                "the source has this grant for another user, or a prefix has host bits or a ninth length; nothing was \
                 granted",
            ),
            (Fault::Full, "there is no room for all of the list; nothing was granted"),
        ],
        ..About::change(
            "grant",
            "/api/gate/grant",
            "Let sources use services; a grant that is there already gets the new limits, counted from now",
            Body::Objects(GrantRequest::json_schema),
        )
    },
    act: Act::Change(grant),
};

/// Takes grants back.
pub static REVOKE: Operation<NoArguments, Revoked> = Operation {
    about: About {
        faults: &[(
            Fault::Refused,
            "the request cannot be read, names nothing or more than one thing, or an unknown service; nothing was done",
        )],
        ..About::change(
            "revoke",
            "/api/gate/revoke",
            "End grants; sessions that live by them end with their next packet",
            Body::Object(RevokeRequest::json_schema),
        )
    },
    act: Act::Change(revoke),
};

fn list(shared: &Shared, filter: &GrantFilter) -> Result<GrantList, Failure> {
    let matcher = Matcher::new(filter, &shared.active()).map_err(Failure::arguments)?;
    Ok(gate::list(shared, filter, &matcher)?)
}

fn grant(gateway: &Gateway, _: &NoArguments, order: Order) -> Result<Granted, Failure> {
    // read as what it is: an error then names the field
    let requests: Vec<GrantRequest> = match order.body.trim_start().starts_with('[') {
        true => order.objects("grants")?,
        false => vec![order.object("grants")?],
    };
    Ok(gateway.shared.grants(&gateway.shared.active()).grant(&requests, &order.by)?)
}

fn revoke(gateway: &Gateway, _: &NoArguments, order: Order) -> Result<Revoked, Failure> {
    let request: RevokeRequest = order.object("request")?;
    Ok(gateway.shared.grants(&gateway.shared.active()).revoke(&request, &order.by)?)
}
