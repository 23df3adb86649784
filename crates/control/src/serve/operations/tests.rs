//! The list is sound, and what is published of it is up to date.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::description::{arguments, members, object};
use super::{Body, Method, OPERATIONS, Role, compatible, openapi, page};

/// The document in docs.
fn published() -> Map<String, Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// docs/NAME says this; `UPDATE=1` writes it.
fn is_published(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let published = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        published == text,
        "docs/{name} is not up to date: UPDATE=1 cargo test -p sluice-control --lib operations"
    );
}

#[test]
fn the_page_is_the_list() {
    is_published("API.md", &page::markdown(OPERATIONS));
}

#[test]
fn the_document_is_the_list() {
    let document = openapi::document(OPERATIONS);
    let broken = compatible::broken(&published(), &document);
    assert!(broken.is_empty(), "raise the first number of openapi::VERSION, or leave as it was: {broken:#?}");
    is_published("openapi.json", &(serde_json::to_string_pretty(&document).unwrap() + "\n"));
    let mut described = 0;
    for about in OPERATIONS.iter().map(|operation| operation.about()) {
        let operation = &document["paths"][about.path][about.method.name().to_lowercase()];
        assert_eq!(operation["operationId"], about.name);
        described += 1;
    }
    let paths = document["paths"].as_object().unwrap();
    let methods = paths.values().filter_map(Value::as_object).map(serde_json::Map::len);
    assert_eq!(methods.sum::<usize>(), described, "the document has others");
}

#[test]
fn every_reference_of_the_document_leads_somewhere() {
    let document = Value::Object(openapi::document(OPERATIONS));
    let text = document.to_string();
    let references = text.split("\"$ref\":\"").skip(1).map(|rest| rest.split('"').next().unwrap());
    let mut followed = 0;
    for reference in references {
        let place = reference.strip_prefix('#').expect("it is in the document");
        assert!(document.pointer(place).is_some(), "{reference}");
        followed += 1;
    }
    assert!(followed > 20, "{followed} references");
}

#[test]
fn names_and_requests_are_unique() {
    let abouts = || OPERATIONS.iter().map(|operation| operation.about());
    let names: BTreeSet<&str> = abouts().map(|about| about.name).collect();
    let requests: BTreeSet<_> = abouts().map(|about| (about.path, about.method.name())).collect();
    assert_eq!((names.len(), requests.len()), (OPERATIONS.len(), OPERATIONS.len()));
}

/// What decides who is heard: a question that changes something, or a change for others than owners, is a mistake.
#[test]
fn changes_are_for_owners_alone() {
    for about in OPERATIONS.iter().map(|operation| operation.about()) {
        assert_eq!(about.method == Method::Post, about.role == Role::Owner, "{}", about.name);
        assert!(about.method == Method::Post || matches!(about.body, Body::Nothing), "{}", about.name);
    }
}

/// A word that nobody reads would make a change wider than was meant.
#[test]
fn nothing_unknown_is_passed_over() {
    for operation in OPERATIONS {
        let name = operation.about().name;
        let query = operation.arguments(&mut schemars::SchemaGenerator::default()).to_value();
        for schema in [Some(query), object(operation.about().body)].into_iter().flatten() {
            assert_eq!(schema["additionalProperties"], false, "{name}: deny_unknown_fields is missing");
        }
    }
}

/// Pages and commands show arguments as words, numbers and flags, each with its help.
#[test]
fn arguments_are_plain_and_explained() {
    for operation in OPERATIONS {
        let object = object(operation.about().body);
        for argument in arguments(*operation).into_iter().chain(object.iter().flat_map(members)) {
            let name = format!("{} {}", operation.about().name, argument.name);
            assert!(!argument.help.is_empty(), "{name} has no help");
            let kind = argument.schema["type"].as_str().unwrap_or_default();
            assert!(["string", "integer", "boolean"].contains(&kind), "{name}: {}", argument.schema);
        }
    }
}

/// A client of the published document must find all of it in the next one of the same first number.
#[test]
fn what_clients_rely_on_stays() {
    let published = published();
    assert_eq!(compatible::broken(&published, &published), [""; 0]);
    let broken = |change: fn(&mut Value)| {
        let mut next = Value::Object(published.clone());
        change(&mut next);
        compatible::broken(&published, next.as_object().unwrap())
    };
    let gone = broken(|next| drop(next["paths"].as_object_mut().unwrap().remove("/api/stats")));
    assert_eq!(gone, ["GET /api/stats is gone"]);
    let member = broken(|next| {
        drop(next["components"]["schemas"]["Health"]["properties"].as_object_mut().unwrap().remove("pid"));
    });
    assert_eq!(member, ["Health has no pid"]);
    let other =
        broken(|next| next["components"]["schemas"]["Health"]["properties"]["pid"]["type"] = json!("string"));
    assert_eq!(other, ["Health.pid is of another type"]);
    let demanded =
        broken(|next| next["paths"]["/api/sessions"]["get"]["parameters"][0]["required"] = json!(true));
    assert_eq!(demanded.len(), 1, "{demanded:?}");
    let raised = broken(|next| {
        drop(next["paths"].as_object_mut().unwrap().remove("/api/stats"));
        next["info"]["version"] = json!("999.0");
    });
    assert_eq!(raised, [""; 0]);
}
