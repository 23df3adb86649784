//! Options made from the types of the daemon's arguments: what a type says of its members is their help, so that a member
//! added there is an option here.

use std::marker::PhantomData;
use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, value_parser};
use schemars::{JsonSchema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use sluice_control::operations::{Argument, Body, Kind, members, object};

use crate::exit::{Failure, read_or_stdin};

/// The option by which an argument is given, such as `--idle-timeout <S>` for `idle_timeout_s`.
pub fn option(argument: &Argument) -> Arg {
    let (long, value) = words(&argument.name);
    let default = argument.schema["default"].as_u64().map(|default| format!(" [default: {default}]"));
    let help = argument.help.trim_end_matches('.').replace('`', "") + &default.unwrap_or_default();
    let mut option = Arg::new(argument.name.clone()).long(long).help(help);
    if let Some(whose) = argument.name.strip_suffix("_address") {
        // Junos' word
        option = option.visible_alias(format!("{whose}-ip"));
    }
    match argument.kind() {
        Kind::Flag => return option.action(ArgAction::SetTrue),
        Kind::Number(most) => option.value_parser(value_parser!(u64).range(..=most)),
        Kind::Address => option.value_parser(value_parser!(IpAddr)),
        Kind::Text => option.value_parser(value_parser!(String)),
    }
    .value_name(value)
    .required(argument.is_required)
}

/// What was given of these arguments, as the object that requests have.
pub fn given(arguments: &[Argument], matches: &ArgMatches) -> Map<String, Value> {
    let value = |argument: &Argument| {
        let name = argument.name.as_str();
        match argument.kind() {
            Kind::Flag => matches.get_flag(name).then_some(Value::Bool(true)),
            Kind::Number(_) => matches.get_one::<u64>(name).map(|number| Value::from(*number)),
            Kind::Address => matches.get_one::<IpAddr>(name).map(|address| Value::from(address.to_string())),
            Kind::Text => matches.get_one::<String>(name).map(|text| Value::from(text.as_str())),
        }
    };
    arguments.iter().filter_map(|argument| Some((argument.name.clone(), value(argument)?))).collect()
}

/// What comes with a request besides its arguments.
pub enum Sent {
    /// Nobody would read it.
    Nothing,
    /// What a file has.
    File(PathBuf),
    /// An object of what was given as options.
    Object(Map<String, Value>),
}

impl Sent {
    /// By the options of [`body`].
    pub fn given(body: Body, file: &str, matches: &ArgMatches) -> Self {
        match (body, matches.try_get_one::<PathBuf>(file)) {
            (Body::Nothing, _) => Self::Nothing,
            (_, Ok(Some(file))) => Self::File(file.clone()),
            _ => Self::Object(given(&of_object(body), matches)),
        }
    }

    /// As it is sent.
    pub fn text(&self) -> Result<String, Failure> {
        match self {
            Self::Nothing => Ok(String::new()),
            Self::File(file) => read_or_stdin(file),
            Self::Object(object) => serde_json::to_string(object).map_err(Failure::failed),
        }
    }
}

/// Options for a request's body: the members of its object, or, called `file`, the file that has it.
pub fn body(command: Command, body: Body, file: &'static str) -> Command {
    let option_of_file = Arg::new(file).long(file).value_name("FILE").value_parser(value_parser!(PathBuf));
    let list = match body {
        Body::Nothing => return command,
        Body::Text(text) => {
            let help = format!("File with {}; `-` is standard input", text.what);
            return command.arg(option_of_file.required(true).help(help));
        }
        Body::Objects(_) => ", or a list of them: all or none",
        Body::Filter(_) | Body::Object(_) => "",
    };
    let members = of_object(body);
    let members = members.iter().map(|member| match member.is_required {
        true => option(member).required(false).required_unless_present(file).conflicts_with(file),
        false => option(member).conflicts_with(file),
    });
    let names: Vec<String> = of_object(body).iter().map(|member| format!("\"{}\"", member.name)).collect();
    let help = format!("File with a JSON object of {}{list}; `-` is standard input", names.join(", "));
    command.args(members).arg(option_of_file.help(help))
}

fn of_object(body: Body) -> Vec<Argument> {
    object(body).iter().flat_map(members).collect()
}

/// An option's name, and what stands for its value: the unit, or the last word.
fn words(name: &str) -> (String, String) {
    let (name, unit) = match name.rsplit_once('_') {
        Some((name, unit @ ("s" | "ms"))) => (name, Some(unit)),
        _ => (name, None),
    };
    let last = unit.unwrap_or_else(|| name.rsplit('_').next().unwrap_or(name));
    let value = if last == "ip" { "address" } else { last };
    (name.replace('_', "-"), value.to_uppercase())
}

/// A type's members as options.
pub struct Given<T>(pub Box<T>);

/// The same without those that say which part of a list is meant.
pub struct Filter<T>(pub Box<T>);

/// The members of a type, but for some of them.
struct Members<T> {
    all: Vec<Argument>,
    of: PhantomData<T>,
}

impl<T: JsonSchema + DeserializeOwned> Members<T> {
    fn without(names: &[&str]) -> Self {
        let mut all = members(&T::json_schema(&mut SchemaGenerator::default()).to_value());
        all.retain(|argument| !names.contains(&argument.name.as_str()));
        Self { all, of: PhantomData }
    }

    fn augment(&self, command: Command) -> Command {
        command.args(self.all.iter().map(option))
    }

    fn read(&self, matches: &ArgMatches) -> Result<Box<T>, clap::Error> {
        let object = Value::Object(given(&self.all, matches));
        serde_json::from_value(object)
            .map_err(|error| clap::Error::raw(clap::error::ErrorKind::InvalidValue, error))
    }
}

macro_rules! options {
    ($name:ident without $names:expr) => {
        impl<T: JsonSchema + DeserializeOwned> Args for $name<T> {
            fn augment_args(command: Command) -> Command {
                Members::<T>::without($names).augment(command)
            }

            fn augment_args_for_update(command: Command) -> Command {
                Self::augment_args(command)
            }
        }

        impl<T: JsonSchema + DeserializeOwned> FromArgMatches for $name<T> {
            fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
                Members::without($names).read(matches).map(Self)
            }

            fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
                *self = Self::from_arg_matches(matches)?;
                Ok(())
            }
        }
    };
}

options!(Given without &[]);
options!(Filter without &["from", "offset", "limit"]);

#[cfg(test)]
mod tests {
    use sluice_control::api::{GrantRequest, SessionFilter};

    use super::*;

    fn read<T: Args>(words: &[&str]) -> Result<T, clap::Error> {
        let command = T::augment_args(Command::new("test").no_binary_name(true));
        T::from_arg_matches(&command.try_get_matches_from(words)?)
    }

    #[test]
    fn members_are_options() {
        let Given(filter) =
            read::<Given<SessionFilter>>(&["--source-prefix", "fd00::/8", "--nat", "--limit", "7"]).unwrap();
        assert_eq!(
            (filter.source_prefix.as_deref(), filter.nat, filter.limit),
            (Some("fd00::/8"), true, Some(7))
        );
        assert!(!read::<Given<SessionFilter>>(&[]).unwrap().0.nat);
        let error = |words: &[&str]| read::<Given<SessionFilter>>(words).err().unwrap().to_string();
        assert!(error(&["--source-port", "65536"]).contains("65536 is not in 0..=65535"));
        for part in ["--limit", "--offset", "--from"] {
            let read = read::<Filter<SessionFilter>>(&[part, "7"]);
            assert!(read.is_err(), "what is cleared is no part of a list: {part}");
        }
    }

    #[test]
    fn units_stand_for_values() {
        let words = ["--user", "u", "--source", "10.0.0.1", "--service", "ssh", "--idle-timeout", "30"];
        assert_eq!(read::<Given<GrantRequest>>(&words).unwrap().0.idle_timeout_s, Some(30));
        let help = Given::<GrantRequest>::augment_args(Command::new("test")).render_help().to_string();
        assert!(help.contains("--idle-timeout <S>"), "{help}");
        assert!(read::<Given<GrantRequest>>(&words[2..]).is_err(), "the user is required");
    }
}
