//! Every path of the interface, with its parameters, its answer and what computes it.

use axum::http::StatusCode;
use serde::Serialize;
use serde_json::{Value, json};

use super::Failure;
use super::parameters::{Parameter, ParameterKind, Question};
use crate::anomaly::Kind;
use crate::observation::Protocol;
use crate::results::{AnomalyQuery, Flow, FlowOrder, FlowQuery, Page, Reader, Run, Window, prometheus};

/// A path that answers questions.
pub struct Endpoint {
    pub path: &'static str,
    pub summary: &'static str,
    pub parameters: &'static [Parameter],
    /// Name of the answer's schema; empty for plain text.
    pub schema: &'static str,
    pub answer: fn(&Reader, &Question) -> Result<Answer, Failure>,
}

/// What a question is answered with.
pub enum Answer {
    Json(Value),
    Text(String),
}

const fn integer(
    name: &'static str,
    least: u64,
    most: u64,
    default: Option<u64>,
    help: &'static str,
) -> Parameter {
    Parameter { name, kind: ParameterKind::Integer { least, most, default }, help }
}

const RUN: Parameter = integer("run", 1, i64::MAX as u64, None, "Number of a run; the newest without it.");
const OFFSET: Parameter = integer("offset", 0, i64::MAX as u64, Some(0), "Entries to skip.");
const LIMIT: Parameter = integer("limit", 1, 1000, Some(50), "Most entries in the answer.");
const FROM: Parameter =
    integer("from_ns", 0, i64::MAX as u64, Some(0), "Start, nanoseconds since the epoch.");
const TO: Parameter =
    integer("to_ns", 0, i64::MAX as u64, Some(i64::MAX as u64), "End, nanoseconds since the epoch.");
const POINTS: Parameter =
    integer("points", 1, 5000, Some(600), "Most points; intervals are added up to come to so few.");

fn protocols() -> Vec<&'static str> {
    Protocol::ALL.map(Protocol::name).to_vec()
}

fn orders() -> Vec<&'static str> {
    FlowOrder::ALL.map(FlowOrder::name).to_vec()
}

fn kinds() -> Vec<&'static str> {
    Kind::ALL.iter().map(|kind| kind.name()).collect()
}

/// All of them but the page and the OpenAPI document.
pub const ENDPOINTS: &[Endpoint] = &[
    Endpoint {
        path: "/health",
        summary: "Whether the database can be read.",
        parameters: &[],
        schema: "Health",
        answer: |reader, _| {
            let run = reader.runs()?.into_iter().next().map(|run| run.number);
            json(&json!({ "status": "ok", "version": env!("CARGO_PKG_VERSION"), "run": run }))
        },
    },
    Endpoint {
        path: "/metrics",
        summary: "Totals of the newest run in the Prometheus text format.",
        parameters: &[],
        schema: "",
        answer: |reader, _| Ok(Answer::Text(prometheus::text(&reader.totals(reader.run(None)?)?))),
    },
    Endpoint {
        path: "/api/v1/runs",
        summary: "The runs in the database, newest first.",
        parameters: &[],
        schema: "Runs",
        answer: |reader, _| json(&reader.runs()?),
    },
    Endpoint {
        path: "/api/v1/stats/summary",
        summary: "A run in figures, also while it is at work.",
        parameters: &[RUN],
        schema: "Overview",
        answer: |reader, question| json(&reader.overview(run(reader, question)?)?),
    },
    Endpoint {
        path: "/api/v1/stats/series",
        summary: "The link's course over time.",
        parameters: &[RUN, FROM, TO, POINTS],
        schema: "Series",
        answer: |reader, question| json(&reader.series(&run(reader, question)?, &window(question))?),
    },
    Endpoint {
        path: "/api/v1/flows",
        summary: "Secure channels with their figures.",
        parameters: &[
            RUN,
            Parameter {
                name: "protocol",
                kind: ParameterKind::Choice(protocols),
                help: "Only this protocol.",
            },
            Parameter {
                name: "search",
                kind: ParameterKind::Text { longest: 200 },
                help: "Part of the name.",
            },
            Parameter {
                name: "troubled",
                kind: ParameterKind::Flag,
                help: "Only flows with something amiss.",
            },
            Parameter {
                name: "sort",
                kind: ParameterKind::Choice(orders),
                help: "What to sort by; trouble without it.",
            },
            Parameter {
                name: "order",
                kind: ParameterKind::Choice(|| vec!["asc", "desc"]),
                help: "desc without it.",
            },
            OFFSET,
            LIMIT,
        ],
        schema: "FlowPage",
        answer: |reader, question| {
            let Page { total, offset, limit, items } =
                reader.flows(&run(reader, question)?, &flow_query(question))?;
            let items = items.iter().map(known).collect::<Result<_, _>>()?;
            json(&Page::<Value> { total, offset, limit, items })
        },
    },
    Endpoint {
        path: "/api/v1/flows/{id}",
        summary: "One secure channel.",
        parameters: &[RUN],
        schema: "Flow",
        answer: |reader, question| {
            let flow = reader.flow(&run(reader, question)?, question.id)?;
            found(flow.as_ref().map(known).transpose()?, question)
        },
    },
    Endpoint {
        path: "/api/v1/flows/{id}/gaps",
        summary: "The ranges of numbers that a channel lost, in the order of time.",
        parameters: &[RUN, OFFSET, LIMIT],
        schema: "GapPage",
        answer: |reader, question| {
            let (offset, limit) = page(question);
            found(reader.gaps(&run(reader, question)?, question.id, offset, limit)?, question)
        },
    },
    Endpoint {
        path: "/api/v1/flows/{id}/series",
        summary: "A channel's course over time; steps without a point had nothing to report.",
        parameters: &[RUN, FROM, TO, POINTS],
        schema: "Series",
        answer: |reader, question| {
            found(reader.channel_series(&run(reader, question)?, question.id, &window(question))?, question)
        },
    },
    Endpoint {
        path: "/api/v1/anomalies",
        summary: "What an operator should look at, the gravest first.",
        parameters: &[
            RUN,
            Parameter { name: "kind", kind: ParameterKind::Choice(kinds), help: "Only this kind." },
            Parameter {
                name: "severity",
                kind: ParameterKind::Choice(|| vec!["info", "warning", "critical"]),
                help: "At least so grave.",
            },
            Parameter { name: "channel", kind: ParameterKind::Id, help: "Only this channel; 0 is the link." },
            OFFSET,
            LIMIT,
        ],
        schema: "AnomalyPage",
        answer: |reader, question| {
            let (offset, limit) = page(question);
            let wanted = AnomalyQuery {
                kind: question.choice("kind"),
                severity: question.choice("severity"),
                channel: question.channel("channel"),
                offset,
                limit,
            };
            json(&reader.anomalies(&run(reader, question)?, &wanted)?)
        },
    },
    Endpoint {
        path: "/api/v1/rekeys",
        summary: "Changes of AN or SPI in the order of time.",
        parameters: &[RUN, OFFSET, LIMIT],
        schema: "RekeyPage",
        answer: |reader, question| {
            let (offset, limit) = page(question);
            json(&reader.rekeys(&run(reader, question)?, offset, limit)?)
        },
    },
];

/// A channel without what is not known of it yet.
fn known(flow: &Flow) -> Result<Value, Failure> {
    let mut value = to_value(flow)?;
    if flow.lives == 0 {
        Flow::OF_STATE.iter().for_each(|name| value[*name] = Value::Null);
    }
    Ok(value)
}

fn json(value: &impl Serialize) -> Result<Answer, Failure> {
    to_value(value).map(Answer::Json)
}

fn to_value(value: &impl Serialize) -> Result<Value, Failure> {
    serde_json::to_value(value).map_err(|error| {
        let advice = "report this with the server's log";
        Failure::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string(), "answer", advice)
    })
}

fn found<T: Serialize>(value: Option<T>, question: &Question) -> Result<Answer, Failure> {
    match value {
        Some(value) => json(&value),
        None => {
            let what = format!("there is no channel {:016x} in this run", question.id);
            Err(Failure::new(StatusCode::NOT_FOUND, what, "id", "ask /api/v1/flows which channels there are"))
        }
    }
}

fn run(reader: &Reader, question: &Question) -> Result<Run, Failure> {
    Ok(reader.run(question.integer("run").map(|number| number as i64))?)
}

fn page(question: &Question) -> (u64, u64) {
    (question.integer("offset").unwrap_or(0), question.integer("limit").unwrap_or(50))
}

fn window(question: &Question) -> Window {
    Window {
        from_ns: question.integer("from_ns").unwrap_or(0),
        to_ns: question.integer("to_ns").unwrap_or(i64::MAX as u64),
        points: question.integer("points").unwrap_or(600),
    }
}

fn flow_query(question: &Question) -> FlowQuery {
    let (offset, limit) = page(question);
    FlowQuery {
        protocol: question.choice("protocol"),
        search: question.text("search").map(str::to_owned),
        troubled: question.flag("troubled"),
        order: question.choice("sort").unwrap_or_default(),
        ascending: question.text("order") == Some("asc"),
        offset,
        limit,
    }
}
