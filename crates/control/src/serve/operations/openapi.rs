//! The OpenAPI document, made from the list of operations.

use schemars::SchemaGenerator;
use serde_json::{Map, Value, json};

use super::description::{Argument, answers, arguments, faults, object};
use super::operation::{Body, Listed, Text};
use crate::api::ErrorBody;

/// Of the interface, not of the program. The first number is raised when what a client relies on goes or changes, the second when
/// something is added; `UPDATE=1` refuses to publish a document that takes away what the published one of the same first number has.
pub const VERSION: &str = "1.0";

/// The interface as OpenAPI 3.1.
pub fn document(operations: &[&dyn Listed]) -> Map<String, Value> {
    let mut generator = answers();
    let mut paths = Map::new();
    for operation in operations {
        let about = operation.about();
        let methods = paths.entry(about.path).or_insert_with(|| json!({}));
        methods[about.method.name().to_lowercase()] = described(*operation, &mut generator);
    }
    let info = json!({
        "title": "Sluice",
        "version": VERSION,
        "description": "The gateway daemon. On the unix socket of its state directory everything is served, over TCP the \
                        questions for anyone. Sizes are bytes; names of members end with their unit.",
        "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
    });
    let components = json!({ "schemas": generator.take_definitions(true) });
    Map::from_iter([
        ("openapi".to_owned(), json!("3.1.0")),
        ("info".to_owned(), info),
        ("paths".to_owned(), Value::Object(paths)),
        ("components".to_owned(), components),
    ])
}

fn described(operation: &dyn Listed, generator: &mut SchemaGenerator) -> Value {
    let about = operation.about();
    let answer = match operation.answer(generator) {
        Some(schema) => json!({ "application/json": { "schema": schema } }),
        None => text(),
    };
    let mut responses = Map::new();
    responses.insert("200".to_owned(), json!({ "description": "the answer", "content": answer }));
    let arguments = arguments(operation);
    for (fault, help) in faults(operation) {
        let content = json!({ "application/json": { "schema": generator.subschema_for::<ErrorBody>() } });
        let status = fault.status().as_str().to_owned();
        responses.insert(status, json!({ "description": help, "content": content }));
    }
    let mut described = json!({
        "operationId": about.name,
        "summary": about.help,
        "description": format!("For {}.", about.role.help()),
        "x-role": about.role.name(),
        "parameters": arguments.into_iter().map(parameter).collect::<Vec<_>>(),
        "responses": responses,
    });
    if let Some(body) = body(about.body) {
        described["requestBody"] = body;
    }
    described
}

fn text() -> Value {
    json!({ "text/plain": { "schema": { "type": "string" } } })
}

fn parameter(argument: Argument) -> Value {
    let Argument { name, is_required, help, schema } = argument;
    json!({ "name": name, "in": "query", "required": is_required, "description": help, "schema": schema })
}

fn body(body: Body) -> Option<Value> {
    let Some(object) = object(body) else {
        let Body::Text(Text { what, example, may_be_empty }) = body else { return None };
        let mut content = text();
        content["text/plain"]["example"] = json!(example);
        return Some(json!({ "required": !may_be_empty, "description": what, "content": content }));
    };
    let schema = match body {
        Body::Objects(_) => json!({ "oneOf": [object, { "type": "array", "items": object }] }),
        _ => object,
    };
    let is_required = !matches!(body, Body::Filter(_));
    Some(json!({ "required": is_required, "content": { "application/json": { "schema": schema } } }))
}
