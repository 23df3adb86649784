//! The OpenAPI document, made from the list of endpoints.

use serde_json::{Map, Value, json};

use super::endpoints::{ENDPOINTS, Endpoint};
use super::parameters::{Parameter, ParameterKind};
use crate::anomaly::Kind;
use crate::observation::Protocol;
use crate::results::Flow;
use crate::summary::{DEPTHS, REPLAY_WINDOWS};

/// The interface as OpenAPI 3.1.
pub fn document() -> Value {
    let mut paths: Map<String, Value> = ENDPOINTS
        .iter()
        .map(|endpoint| (endpoint.path.to_owned(), json!({ "get": operation(endpoint) })))
        .collect();
    let own = json!({ "get": {
        "summary": "This document.",
        "responses": { "200": { "description": "The interface.", "content": { "application/json": { "schema": { "type": "object" } } } } },
    } });
    paths.insert("/openapi.json".to_owned(), own);
    let page = json!({ "get": {
        "summary": "The web page.",
        "responses": { "200": { "description": "One page without parts elsewhere.", "content": { "text/html": { "schema": { "type": "string" } } } } },
    } });
    paths.insert("/".to_owned(), page);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Sluice monitor",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Results of passive analysis. Times are nanoseconds since the epoch; identities are 16 hexadecimal digits.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "paths": paths,
        "components": { "schemas": schemas() },
    })
}

fn operation(endpoint: &Endpoint) -> Value {
    let mut parameters: Vec<Value> = endpoint.parameters.iter().map(parameter).collect();
    if endpoint.path.contains("{id}") {
        parameters.insert(0, json!({
            "name": "id", "in": "path", "required": true, "description": "Number of the channel.", "schema": id(),
        }));
    }
    let content = match endpoint.schema {
        "" => json!({ "text/plain": { "schema": { "type": "string" } } }),
        name => json!({ "application/json": { "schema": reference(name) } }),
    };
    let mut responses = Map::new();
    responses.insert("200".to_owned(), json!({ "description": "The answer.", "content": content }));
    for (status, description) in [
        ("400", "A parameter cannot be understood."),
        ("404", "There is no such run or channel."),
        ("500", "The database is damaged."),
        ("503", "The database is not there or locked."),
    ] {
        let content = json!({ "application/json": { "schema": reference("Error") } });
        responses.insert(status.to_owned(), json!({ "description": description, "content": content }));
    }
    json!({ "summary": endpoint.summary, "parameters": parameters, "responses": responses })
}

fn parameter(parameter: &Parameter) -> Value {
    let schema = match &parameter.kind {
        ParameterKind::Integer { least, most, default } => {
            let mut schema = json!({ "type": "integer", "minimum": least, "maximum": most });
            if let Some(default) = default {
                schema["default"] = (*default).into();
            }
            schema
        }
        ParameterKind::Text { longest } => json!({ "type": "string", "maxLength": longest }),
        ParameterKind::Choice(names) => json!({ "type": "string", "enum": names() }),
        ParameterKind::Flag => json!({ "type": "boolean" }),
        ParameterKind::Id => id(),
    };
    json!({ "name": parameter.name, "in": "query", "required": false, "description": parameter.help, "schema": schema })
}

fn id() -> Value {
    json!({ "type": "string", "pattern": "^[0-9a-fA-F]{1,16}$" })
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

/// An object whose members all appear, but for those in `optional`.
fn object(members: &[(&str, Value)], optional: &[&str]) -> Value {
    let required: Vec<_> =
        members.iter().map(|(name, _)| *name).filter(|name| !optional.contains(name)).collect();
    let properties: Map<String, Value> =
        members.iter().map(|(name, schema)| ((*name).to_owned(), schema.clone())).collect();
    json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
}

fn unsigned() -> Value {
    json!({ "type": "integer", "minimum": 0 })
}

fn text() -> Value {
    json!({ "type": "string" })
}

fn or_null(mut schema: Value) -> Value {
    if schema.get("$ref").is_some() {
        return json!({ "anyOf": [schema, { "type": "null" }] });
    }
    schema["type"] = json!([schema["type"], "null"]);
    if let Some(choices) = schema.get_mut("enum").and_then(Value::as_array_mut) {
        choices.push(Value::Null);
    }
    schema
}

fn list(schema: Value) -> Value {
    json!({ "type": "array", "items": schema })
}

fn page_of(name: &str) -> Value {
    object(
        &[
            ("total", unsigned()),
            ("offset", unsigned()),
            ("limit", unsigned()),
            ("items", list(reference(name))),
        ],
        &[],
    )
}

fn severity() -> Value {
    json!({ "type": "string", "enum": ["info", "warning", "critical"] })
}

fn kind() -> Value {
    json!({ "type": "string", "enum": Kind::ALL.iter().map(|kind| kind.name()).collect::<Vec<_>>() })
}

fn protocol() -> Value {
    json!({ "type": "string", "enum": Protocol::ALL.map(Protocol::name) })
}

/// The counts, in line with others' members.
fn counts() -> Vec<(&'static str, Value)> {
    let mut counts = vec![(
        "lost",
        json!({ "type": "integer", "description": "Below 0 in an interval in which late packets gave back more than was lost." }),
    )];
    let names = ["packets", "bytes", "late", "duplicates", "replays", "reused", "too_old", "stray"];
    counts.extend(names.map(|name| (name, unsigned())));
    counts
}

fn schemas() -> Value {
    let number = json!({ "type": "number" });
    let flag = json!({ "type": "boolean" });
    let fault = object(&[("what", text()), ("where", text()), ("advice", text())], &[]);
    json!({
        "Error": object(&[("error", fault)], &[]),
        "Health": object(&[("status", text()), ("version", text()), ("run", or_null(unsigned()))], &[]),
        "Run": run(&flag),
        "Runs": list(reference("Run")),
        "Counts": object(&counts(), &[]),
        "Reorder": reorder(),
        "Overview": overview(&number),
        "Series": object(&[("step_ns", unsigned()), ("points", list(reference("Point")))], &[]),
        "Point": object(
            &[
                &[("start_ns", unsigned()), ("unknown", unsigned()), ("active", unsigned()), ("capture_drops", unsigned())],
                &counts()[..],
            ].concat(),
            &[],
        ),
        "Flow": flow(&number, &flag),
        "FlowPage": page_of("Flow"),
        "Gap": object(
            &[
                ("channel", id()), ("first", unsigned()), ("last", unsigned()), ("lost", unsigned()),
                ("before_ns", unsigned()), ("after_ns", unsigned()), ("frame", unsigned()),
            ],
            &[],
        ),
        "GapPage": page_of("Gap"),
        "Anomaly": anomaly(),
        "AnomalyPage": page_of("Anomaly"),
        "Rekey": object(
            &[
                ("from", id()), ("to", id()), ("from_name", text()), ("to_name", text()), ("at_ns", unsigned()),
                ("pause_ns", json!({ "type": "integer", "description": "Below 0 while both keys were in use." })),
                ("lost", unsigned()),
            ],
            &[],
        ),
        "RekeyPage": page_of("Rekey"),
    })
}

fn run(flag: &Value) -> Value {
    object(
        &[
            ("number", unsigned()),
            ("source", text()),
            ("started_ms", unsigned()),
            ("sluice", text()),
            ("interval_ns", unsigned()),
            ("mode", json!({ "type": "string", "enum": ["fast", "full"] })),
            ("finished", flag.clone()),
            ("partial", or_null(text())),
            ("version", unsigned()),
        ],
        &[],
    )
}

fn reorder() -> Value {
    let fixed =
        |count: usize| json!({ "type": "array", "items": unsigned(), "minItems": count, "maxItems": count });
    object(
        &[("depths", fixed(DEPTHS)), ("max_depth", unsigned()), ("would_drop", fixed(REPLAY_WINDOWS.len()))],
        &[],
    )
}

fn overview(number: &Value) -> Value {
    let by_kind = object(
        &[("kind", kind()), ("severity", severity()), ("channels", unsigned()), ("count", unsigned())],
        &[],
    );
    let by_protocol = [&[("protocol", protocol()), ("channels", unsigned())], &counts()[..]].concat();
    object(
        &[
            ("run", reference("Run")),
            ("first_ns", unsigned()),
            ("last_ns", unsigned()),
            ("counts", reference("Counts")),
            ("loss_ratio", number.clone()),
            ("unknown_frames", unsigned()),
            ("capture_drops", unsigned()),
            ("channels", unsigned()),
            ("active", unsigned()),
            ("gaps", unsigned()),
            ("rekeys", unsigned()),
            ("reorder", reference("Reorder")),
            ("protocols", list(object(&by_protocol, &[]))),
            ("anomalies", list(by_kind)),
            (
                "summary",
                json!({ "type": ["object", "null"], "description": "What only the end of a run knows." }),
            ),
        ],
        &[],
    )
}

fn flow(number: &Value, flag: &Value) -> Value {
    let exhaustion =
        object(&[("rate_pps", number.clone()), ("remaining", unsigned()), ("seconds", number.clone())], &[]);
    let identity = [
        ("id", id()),
        ("name", text()),
        ("protocol", protocol()),
        ("interface", unsigned()),
        ("outer_vlan", unsigned()),
        ("vlan", unsigned()),
        ("sci", text()),
        ("source", text()),
        ("destination", text()),
        ("key_id", unsigned()),
        ("group", id()),
    ];
    let numbers = [
        "first_ns",
        "last_ns",
        "first_frame",
        "first_sequence",
        "highest_sequence",
        "sequence_bits",
        "restarts",
        "jumps",
        "gaps",
        "jitter_ns",
        "min_payload",
        "max_payload",
        "lives",
        "trouble",
    ];
    let mut members = identity.to_vec();
    members.extend(numbers.map(|name| (name, unsigned())));
    members.extend([
        ("counts", reference("Counts")),
        ("reorder", reference("Reorder")),
        ("extended", flag.clone()),
        ("protection", json!({ "type": "string", "enum": ["none", "encrypted", "integrity_only", "mixed"] })),
        ("length_mismatches", flag.clone()),
        ("exhaustion", or_null(exhaustion)),
        ("one_way", or_null(flag.clone())),
        ("evicted", flag.clone()),
        ("no_counter", flag.clone()),
        ("loss_ratio", number.clone()),
        ("rate_pps", or_null(number.clone())),
    ]);
    // Null while the run is at work.
    for (_, schema) in members.iter_mut().filter(|(name, _)| Flow::OF_STATE.contains(name)) {
        *schema = or_null(schema.take());
    }
    object(&members, &["sci", "source", "destination"])
}

fn anomaly() -> Value {
    object(
        &[
            ("kind", kind()),
            ("severity", severity()),
            ("meaning", text()),
            ("advice", text()),
            ("channel", id()),
            ("channel_name", text()),
            ("count", unsigned()),
            ("first_ns", unsigned()),
            ("last_ns", unsigned()),
            ("first_sequence", unsigned()),
            ("last_sequence", unsigned()),
            ("frame", unsigned()),
            ("detail", text()),
        ],
        &[],
    )
}
