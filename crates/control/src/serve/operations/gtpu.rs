//! The user plane and its sessions.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use super::failure::{Failure, Fault};
use super::operation::{About, Act, Body, Gateway, NoArguments, Operation, Order};
use crate::api::{
    GtpuAdded, GtpuChangeRequest, GtpuChanged, GtpuFilter, GtpuPeerView, GtpuRemoveRequest, GtpuRemoved,
    GtpuSessionList, GtpuSessionRequest, GtpuUsageList, GtpuView,
};
use crate::views::gtpu;

/// The user plane as a whole.
pub static GTPU: Operation<NoArguments, GtpuView> = Operation {
    about: About::open(
        "gtp-u",
        "/api/gtp-u",
        "The user plane of mobile networks: how many sessions, where tunnels end, pools, drops",
    ),
    act: Act::Read(|shared, _| Ok(gtpu::overview(shared)?)),
};

/// Whose tunnels lead where.
pub static GTPU_SESSIONS: Operation<GtpuFilter, GtpuSessionList> = Operation {
    about: About::question("gtp-u-sessions", "/api/gtp-u/sessions", "Sessions of the user plane"),
    act: Act::Read(|shared, filter| Ok(gtpu::sessions(shared, filter))),
};

/// What passed of sessions.
pub static GTPU_USAGE: Operation<GtpuFilter, GtpuUsageList> = Operation {
    about: About::question(
        "gtp-u-usage",
        "/api/gtp-u/usage",
        "Bytes and packets of sessions of the user plane, and their quotas",
    ),
    act: Act::Read(|shared, filter| Ok(gtpu::usage(shared, filter))),
};

/// Who is at the other end of tunnels.
pub static GTPU_PEERS: Operation<NoArguments, Vec<GtpuPeerView>> = Operation {
    about: About::question("gtp-u-peers", "/api/gtp-u/peers", "The other ends of tunnels"),
    act: Act::Read(|shared, _| Ok(gtpu::peers(shared)?)),
};

const WRONG: (Fault, &str) = (
    Fault::Refused,
    "a session cannot be read, or has no place in the configuration (pool, rules, addresses of tunnels); nothing was changed",
);
const FULL: (Fault, &str) = (Fault::Full, "there is no room for all of it; nothing was changed");

/// Makes sessions, all of a list or none.
pub static ADD_GTPU_SESSIONS: Operation<NoArguments, GtpuAdded> = Operation {
    about: About {
        faults: &[
            WRONG,
            (Fault::Conflict, "another session has this name, TEID or address; nothing was made"),
            FULL,
        ],
        ..About::change(
            "add-gtp-u-sessions",
            "/api/gtp-u/sessions/add",
            "Make sessions of the user plane; they are written down and last until they are removed",
            Body::Objects(GtpuSessionRequest::json_schema),
        )
    },
    act: Act::Change(add),
};

/// Changes sessions.
pub static CHANGE_GTPU_SESSION: Operation<NoArguments, GtpuChanged> = Operation {
    about: About {
        faults: &[WRONG, (Fault::Conflict, "the configuration has the session; nothing was changed"), FULL],
        ..About::change(
            "change-gtp-u-session",
            "/api/gtp-u/sessions/change",
            "Give sessions other tunnels, rules or quotas; each packet meets the old tunnel and rules or the new ones; \
             quotas change just before",
            Body::Objects(GtpuChangeRequest::json_schema),
        )
    },
    act: Act::Change(change),
};

/// Ends sessions.
pub static REMOVE_GTPU_SESSIONS: Operation<NoArguments, GtpuRemoved> = Operation {
    about: About {
        faults: &[
            (
                Fault::Refused,
                "the request cannot be read, or names nothing, more than one thing, or no session; nothing was done",
            ),
            (Fault::Conflict, "the configuration has the session; nothing was done"),
        ],
        ..About::change(
            "remove-gtp-u-sessions",
            "/api/gtp-u/sessions/remove",
            "End sessions of the user plane; the answer has all that passed of the first 1,000",
            Body::Object(GtpuRemoveRequest::json_schema),
        )
    },
    act: Act::Change(remove),
};

fn add(gateway: &Gateway, _: &NoArguments, order: Order) -> Result<GtpuAdded, Failure> {
    let requests: Vec<GtpuSessionRequest> = one_or_all(&order, ["session", "sessions"])?;
    Ok(gateway.shared.gtpu.add(&gateway.shared.dataplane, requests)?)
}

fn change(gateway: &Gateway, _: &NoArguments, order: Order) -> Result<GtpuChanged, Failure> {
    let requests: Vec<GtpuChangeRequest> = one_or_all(&order, ["change", "changes"])?;
    Ok(gateway.shared.gtpu.change(&gateway.shared.dataplane, requests)?)
}

/// A list, or the only one of it; read as what it is: an error then names the field.
fn one_or_all<T: DeserializeOwned>(order: &Order, [one, all]: [&str; 2]) -> Result<Vec<T>, Failure> {
    match order.body.trim_start().starts_with('[') {
        true => order.objects(all),
        false => Ok(vec![order.object(one)?]),
    }
}

fn remove(gateway: &Gateway, _: &NoArguments, order: Order) -> Result<GtpuRemoved, Failure> {
    let request: GtpuRemoveRequest = order.object("request")?;
    Ok(gtpu::removed(&gateway.shared.gtpu.remove(&gateway.shared.dataplane, &request)?))
}
