//! What an operation's types say of its arguments, its answer and its failures: what documents are made of.

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::Value;

use super::failure::Fault;
use super::operation::{Body, Listed, Role};

/// Of a query, or a member of a body.
pub struct Argument {
    /// As requests have it: words joined by underscores, the unit last.
    pub name: String,
    /// Whoever leaves it out is refused.
    pub is_required: bool,
    /// What it is for, in a line.
    pub help: String,
    /// Of its value.
    pub schema: Value,
}

/// What the value of an argument may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// true or false.
    Flag,
    /// A whole number from 0 to this one.
    Number(u64),
    /// An IPv4 or IPv6 address.
    Address,
    /// Any text.
    Text,
}

impl Argument {
    /// What its value may be.
    pub fn kind(&self) -> Kind {
        match (self.schema["type"].as_str(), self.schema["format"].as_str()) {
            (Some("boolean"), _) => Kind::Flag,
            (Some("integer"), Some("uint8")) => Kind::Number(u8::MAX.into()),
            (Some("integer"), Some("uint16")) => Kind::Number(u16::MAX.into()),
            (Some("integer"), Some("uint32")) => Kind::Number(u32::MAX.into()),
            (Some("integer"), _) => Kind::Number(u64::MAX),
            (Some("string"), Some("ip")) => Kind::Address,
            _ => Kind::Text,
        }
    }
}

/// What stands in an operation's query.
pub fn arguments(operation: &dyn Listed) -> Vec<Argument> {
    members(&operation.arguments(&mut SchemaGenerator::default()).to_value())
}

/// The schema of the JSON object that a request has in its body.
pub fn object(body: Body) -> Option<Value> {
    match body {
        Body::Nothing | Body::Text(_) => None,
        Body::Filter(make) | Body::Object(make) | Body::Objects(make) => {
            Some(make(&mut SchemaGenerator::default()).to_value())
        }
    }
}

/// What an object has.
pub fn members(object: &Value) -> Vec<Argument> {
    let required = object["required"].as_array().map_or(&[][..], Vec::as_slice);
    let members = object["properties"].as_object().into_iter().flatten();
    members
        .map(|(name, schema)| Argument {
            name: name.clone(),
            is_required: required.iter().any(|required| required == name),
            help: help(schema),
            schema: without_null(schema),
        })
        .collect()
}

/// What a schema says that it is for.
pub fn help(schema: &Value) -> String {
    schema["description"].as_str().unwrap_or_default().replace('\n', " ")
}

/// Makes schemas of answers, which stand among the document's components.
pub fn answers() -> SchemaGenerator {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    settings.with(|settings| settings.definitions_path = "/components/schemas".into()).into_generator()
}

/// Every failure that an operation may end with, by status, and what it means there.
pub fn faults(operation: &dyn Listed) -> Vec<(Fault, &'static str)> {
    let about = operation.about();
    let common = [
        // an argument that there is not is none that can be understood
        (Fault::Arguments, true),
        (Fault::Denied, about.role != Role::Anyone),
        (Fault::Large, !matches!(about.body, Body::Nothing)),
        // changes are not served over TCP
        (Fault::Elsewhere, about.role != Role::Owner),
        (Fault::Internal, operation.takes_time()),
    ];
    let own = |fault: Fault| about.faults.iter().any(|(known, _)| *known == fault);
    let common = common.into_iter().filter(|(fault, applies)| *applies && !own(*fault));
    let mut faults: Vec<_> = common.map(|(fault, _)| (fault, fault.help())).collect();
    faults.extend(about.faults);
    faults.sort_by_key(|(fault, _)| fault.status());
    faults
}

/// What may be left out is left out instead: a query knows no `null`. Its words stand beside the schema.
fn without_null(schema: &Value) -> Value {
    let mut schema = schema.clone();
    let types = schema["type"].as_array();
    let types = types.map(|types| types.iter().filter(|kind| *kind != "null").cloned().collect::<Vec<_>>());
    if let Some([only]) = types.as_deref() {
        schema["type"] = only.clone();
    }
    if let Some(members) = schema.as_object_mut() {
        members.remove("description");
    }
    schema
}
