//! What a later document of the interface takes away from clients of an earlier one.

use serde_json::{Map, Value, json};

/// Nothing, or whatever it likes where the first number of its version is another.
pub fn broken(earlier: &Map<String, Value>, later: &Map<String, Value>) -> Vec<String> {
    let major = |document: &Map<String, Value>| {
        let version = document["info"]["version"].as_str().unwrap_or_default();
        version.split('.').next().map(str::to_owned)
    };
    if major(earlier) != major(later) {
        return vec![];
    }
    let mut broken = vec![];
    for (path, methods) in members(&earlier["paths"]) {
        for (method, operation) in members(methods) {
            let name = format!("{} {path}", method.to_uppercase());
            match later["paths"][path].get(method) {
                None => broken.push(format!("{name} is gone")),
                Some(next) => broken.extend(parameters(&name, operation, next)),
            }
        }
    }
    let schemas = &later["components"]["schemas"];
    for (name, schema) in members(&earlier["components"]["schemas"]) {
        match schemas.get(name) {
            None => broken.push(format!("{name} is gone")),
            Some(next) => broken.extend(answer(name, schema, next)),
        }
    }
    broken
}

/// Whoever asks as before must be understood as before.
fn parameters(name: &str, earlier: &Value, later: &Value) -> Vec<String> {
    let list = |operation: &Value| {
        let query = operation["parameters"].as_array().cloned().unwrap_or_default();
        query.into_iter().chain(body(operation)).collect::<Vec<Value>>()
    };
    let find =
        |list: &[Value], wanted: &Value| list.iter().find(|one| one["name"] == wanted["name"]).cloned();
    let (before, after) = (list(earlier), list(later));
    let lost = before.iter().filter_map(|parameter| match find(&after, parameter) {
        None => Some(format!("{name} has no {}", parameter["name"])),
        Some(next) if kind(&next["schema"]) != kind(&parameter["schema"]) => {
            Some(format!("{name} has another type of {}", parameter["name"]))
        }
        Some(_) => None,
    });
    let is_required = |parameter: &Value| parameter["required"] == true;
    let demanded = after
        .iter()
        .filter(|next| is_required(next) && !find(&before, next).is_some_and(|p| is_required(&p)));
    lost.chain(demanded.map(|next| format!("{name} demands {}", next["name"]))).collect()
}

/// The members of the object in the body, as a query's parameters.
fn body(operation: &Value) -> Vec<Value> {
    let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
    let object = schema["oneOf"].get(0).unwrap_or(schema);
    let is_required = |member: &String| {
        object["required"].as_array().is_some_and(|required| required.iter().any(|name| name == member))
    };
    members(&object["properties"])
        .map(|(name, schema)| json!({ "name": name, "schema": schema, "required": is_required(name) }))
        .collect()
}

/// Whoever reads an answer must find in it what was there, as it was.
fn answer(name: &str, earlier: &Value, later: &Value) -> Vec<String> {
    let required = |schema: &Value, member: &str| {
        schema["required"].as_array().is_some_and(|required| required.iter().any(|name| name == member))
    };
    let lost = members(&earlier["properties"]).filter_map(|(member, schema)| {
        match later["properties"].get(member) {
            None => Some(format!("{name} has no {member}")),
            Some(next) if kind(next) != kind(schema) => Some(format!("{name}.{member} is of another type")),
            Some(_) if required(earlier, member) && !required(later, member) => {
                Some(format!("{name}.{member} may be missing"))
            }
            Some(_) => None,
        }
    });
    lost.collect()
}

fn members(object: &Value) -> impl Iterator<Item = (&String, &Value)> {
    object.as_object().into_iter().flatten()
}

/// A type without what is only said of it.
fn kind(schema: &Value) -> Value {
    let mut kind = schema.clone();
    if let Some(members) = kind.as_object_mut() {
        members.retain(|name, _| name != "description" && name != "default");
    }
    kind
}
