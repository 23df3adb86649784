//! Sessions and their log.

use schemars::JsonSchema;

use super::failure::{Failure, Fault};
use super::operation::{About, Act, Body, Gateway, NoArguments, Operation, Order};
use crate::api::{Cleared, LogEntry, LogQuery, SessionFilter, SessionList};
use crate::commit::Shared;
use crate::views::sessions::{self, Matcher};

const WRONG_FILTER: &[(Fault, &str)] = &[(
    Fault::Arguments,
    "the filter cannot be read, or names a zone, interface, policy or application that is not configured",
)];

const WRONG_PART: &[(Fault, &str)] = &[(
    Fault::Arguments,
    "the filter cannot be read, names a zone, interface, policy or application that is not configured, or a part of a list; \
     no session ended",
)];

/// Who talks to whom.
pub static SESSIONS: Operation<SessionFilter, SessionList> = Operation {
    about: About {
        faults: WRONG_FILTER,
        ..About::question("sessions", "/api/sessions", "Established sessions")
    },
    act: Act::Read(list),
};

/// Ends sessions.
pub static CLEAR_SESSIONS: Operation<NoArguments, Cleared> = Operation {
    about: About {
        faults: WRONG_PART,
        ..About::change(
            "clear-sessions",
            "/api/sessions/clear",
            "End sessions; their next packet must be permitted anew",
            Body::Filter(SessionFilter::json_schema),
        )
    },
    act: Act::Change(clear),
};

/// Who has talked to whom.
pub static LOG: Operation<LogQuery, Vec<LogEntry>> = Operation {
    about: About::question(
        "log",
        "/api/log",
        "Sessions that policies with `then log` permitted, ended or denied",
    ),
    act: Act::Say(|shared, query| shared.log.last(query.last)),
};

fn list(shared: &Shared, filter: &SessionFilter) -> Result<SessionList, Failure> {
    let matcher = Matcher::new(filter, &shared.active()).map_err(Failure::arguments)?;
    Ok(sessions::list(shared, filter, &matcher)?)
}

fn clear(gateway: &Gateway, _: &NoArguments, order: Order) -> Result<Cleared, Failure> {
    let filter: SessionFilter = order.filter()?;
    if filter.is_part_of_a_list() {
        return Err(Failure::arguments(
            "`from`, `offset` and `limit` say which part of a list is meant; every session that matches ends, so leave them out",
        ));
    }
    let matcher = Matcher::new(&filter, &gateway.shared.active()).map_err(Failure::arguments)?;
    Ok(Cleared { cleared: sessions::clear(&gateway.shared, &matcher)? })
}
