//! docs/API.md, printed from the list of operations.

use serde_json::Value;

use super::description::{Argument, Kind, answers, arguments, faults, help, members, object};
use super::failure::Fault;
use super::operation::{About, Body, Listed, Role};

/// The whole page.
pub fn markdown(operations: &[&dyn Listed]) -> String {
    let mut page = INTRODUCTION.to_owned();
    page += "\n## Roles\n\n| role | who |\n|---|---|\n";
    for role in Role::ALL {
        page += &row(&[role.name(), role.help()]);
    }
    page += "\n## Operations\n\n| operation | request | role | what it does | answer | errors |\n|---|---|---|---|---|---|\n";
    for operation in operations {
        page += &of_operation(*operation);
    }
    page += "\n## Arguments\n\nWhat is not *required* may be left out.\n\n\
             | operation | argument | in | type | meaning |\n|---|---|---|---|---|\n";
    for operation in operations {
        page += &of_arguments(*operation);
    }
    page += "\n## Errors\n\n| status | meaning |\n|---|---|\n";
    for fault in Fault::ALL {
        page += &row(&[fault.status().as_str(), fault.help()]);
    }
    page +=
        "\nWhere a status means something of its own:\n\n| operation | status | meaning |\n|---|---|---|\n";
    for about in operations.iter().map(|operation| operation.about()) {
        for (fault, help) in about.faults {
            page += &row(&[&format!("`{}`", about.name), fault.status().as_str(), help]);
        }
    }
    page
}

const INTRODUCTION: &str = "\
# The daemon's interface

<!-- Printed from the list of operations; `UPDATE=1 cargo test -p sluice-control --lib operations` writes it anew. -->

HTTP/1.1 with JSON, on the unix socket `sluice.sock` of the state directory (`--state-dir`) and, for questions, over TCP
(`run --listen`, 127.0.0.1:8080 by default). The kernel says who is at the other end of the socket; over TCP nobody does, so
only what is for anyone is answered there, and only to who asks for this host by one of its names. Every command of `sluice`
that talks to the daemon speaks this, and `sluice api NAME` knows every operation:

```
sluice api sessions --zone trust --limit 5
curl --unix-socket STATE_DIR/sluice.sock http://sluice/api/sessions?limit=5
curl http://127.0.0.1:8080/api/stats
```

Types of answers, with every member, are in [openapi.json](openapi.json), which a daemon serves as `/api/openapi.json`. An
error has a status and a JSON object with the member `error`, a sentence. Arguments that an operation does not have, or that
stand in the query where it reads the body, are an error.
";

fn of_operation(operation: &dyn Listed) -> String {
    let about = operation.about();
    let statuses: Vec<String> =
        faults(operation).iter().map(|(fault, _)| fault.status().as_str().to_owned()).collect();
    row(&[
        &format!("`{}`", about.name),
        &format!("`{} {}`", about.method.name(), about.path),
        about.role.name(),
        about.help,
        &answer(operation),
        &statuses.join(", "),
    ])
}

fn of_arguments(operation: &dyn Listed) -> String {
    let about = operation.about();
    let query = arguments(operation);
    query.iter().map(|argument| of_argument(about, "query", argument)).collect::<String>() + &of_body(about)
}

fn of_argument(about: &About, place: &str, argument: &Argument) -> String {
    let required = if argument.is_required { ", *required*" } else { "" };
    let kind = kind(argument.kind()).to_owned() + required;
    row(&[&format!("`{}`", about.name), &format!("`{}`", argument.name), place, &kind, &argument.help])
}

/// The body as a whole, and its members.
fn of_body(about: &About) -> String {
    let kind = match about.body {
        Body::Nothing => return String::new(),
        Body::Text(text) if text.may_be_empty => "text",
        Body::Text(_) => "text, *required*",
        Body::Filter(_) => "JSON object",
        Body::Object(_) => "JSON object, *required*",
        Body::Objects(_) => "JSON object or a list of them, *required*",
    };
    let object = object(about.body).unwrap_or_default();
    let help = match about.body {
        Body::Text(text) => text.what.to_owned(),
        _ => help(&object),
    };
    let members = members(&object);
    row(&[&format!("`{}`", about.name), "", "body", kind, &help])
        + &members.iter().map(|member| of_argument(about, "body", member)).collect::<String>()
}

/// What the answer is: a type of the document, a list of them, or something without a name.
fn answer(operation: &dyn Listed) -> String {
    let name = |schema: &Value| {
        let reference = schema["$ref"].as_str()?;
        Some(format!("`{}`", reference.rsplit('/').next()?))
    };
    let Some(schema) = operation.answer(&mut answers()) else { return "text".to_owned() };
    let schema = schema.to_value();
    let list = || Some(format!("list of {}", name(&schema["items"])?));
    name(&schema).or_else(list).unwrap_or_else(|| "JSON object".to_owned())
}

/// A type in words.
fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Flag => "true or false",
        Kind::Number(255) => "0 to 255",
        Kind::Number(65_535) => "0 to 65,535",
        Kind::Number(_) => "number",
        Kind::Address => "address",
        Kind::Text => "text",
    }
}

fn row(cells: &[&str]) -> String {
    let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
    format!("| {} |\n", cells.join(" | "))
}
