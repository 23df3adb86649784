//! Parameters of questions: what each may be, and the check of what came.

use std::collections::BTreeMap;

use axum::extract::{Query, RawPathParams};
use axum::http::{StatusCode, Uri};
use serde::de::DeserializeOwned;

use super::Failure;
use super::endpoints::Endpoint;
use crate::results::parse_id;

/// A parameter of the query.
pub struct Parameter {
    pub name: &'static str,
    pub kind: ParameterKind,
    pub help: &'static str,
}

/// What a parameter's value may be.
pub enum ParameterKind {
    Integer {
        least: u64,
        most: u64,
        default: Option<u64>,
    },
    Text {
        longest: usize,
    },
    Choice(fn() -> Vec<&'static str>),
    Flag,
    /// A channel's number: up to 16 hexadecimal digits.
    Id,
}

/// A question whose parameters were checked.
pub struct Question {
    endpoint: &'static Endpoint,
    /// Of paths with `{id}`.
    pub id: u64,
    values: BTreeMap<&'static str, String>,
}

impl Question {
    pub fn new(
        endpoint: &'static Endpoint,
        path: Option<&RawPathParams>,
        uri: &Uri,
    ) -> Result<Self, Failure> {
        let id = match endpoint.path.contains("{id}") {
            false => 0,
            true => path
                .and_then(|path| path.iter().next())
                .and_then(|(_, id)| parse_id(id))
                .ok_or_else(|| bad("id", "a channel's number has 1 to 16 hexadecimal digits"))?,
        };
        let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(uri)
            .map_err(|_| bad("query", "the query cannot be read: write it as name=value&name=value"))?;
        let mut values = BTreeMap::new();
        for (name, value) in pairs {
            let known = endpoint.parameters.iter().find(|parameter| parameter.name == name);
            let parameter = known.ok_or_else(|| {
                let names: Vec<_> = endpoint.parameters.iter().map(|parameter| parameter.name).collect();
                bad(&name, &format!("there is no such parameter; there are: {}", names.join(", ")))
            })?;
            check(parameter, &value)?;
            if values.insert(parameter.name, value).is_some() {
                return Err(bad(parameter.name, "give it once"));
            }
        }
        Ok(Question { endpoint, id, values })
    }

    pub fn integer(&self, name: &str) -> Option<u64> {
        let given = self.values.get(name).and_then(|value| value.parse().ok());
        given.or_else(|| {
            self.endpoint.parameters.iter().find(|parameter| parameter.name == name).and_then(|parameter| {
                match parameter.kind {
                    ParameterKind::Integer { default, .. } => default,
                    _ => None,
                }
            })
        })
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    pub fn flag(&self, name: &str) -> bool {
        self.text(name) == Some("true")
    }

    pub fn channel(&self, name: &str) -> Option<u64> {
        self.text(name).and_then(parse_id)
    }

    /// A choice as the type whose names it has.
    pub fn choice<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        self.text(name).and_then(|value| serde_json::from_value(value.into()).ok())
    }
}

fn check(parameter: &Parameter, value: &str) -> Result<(), Failure> {
    let wanted = match &parameter.kind {
        ParameterKind::Integer { least, most, .. } => {
            let digits = value.bytes().all(|byte| byte.is_ascii_digit());
            let fits = value.parse::<u64>().is_ok_and(|number| (*least..=*most).contains(&number));
            (!digits || !fits).then(|| format!("give a whole number from {least} to {most}"))
        }
        ParameterKind::Text { longest } => {
            (value.chars().count() > *longest).then(|| format!("give at most {longest} characters"))
        }
        ParameterKind::Choice(names) => {
            (!names().contains(&value)).then(|| format!("give one of: {}", names().join(", ")))
        }
        ParameterKind::Flag => (!matches!(value, "true" | "false")).then(|| "give true or false".to_owned()),
        ParameterKind::Id => parse_id(value).is_none().then(|| "give 1 to 16 hexadecimal digits".to_owned()),
    };
    wanted.map_or(Ok(()), |advice| Err(bad(parameter.name, &advice)))
}

fn bad(place: &str, advice: &str) -> Failure {
    Failure::new(StatusCode::BAD_REQUEST, "the question cannot be understood", place, advice)
}
