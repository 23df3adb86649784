//! What an operation is, and how one of any types is run.

use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::extract::Query;
use axum::http::Uri;
use nix::unistd::User;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::failure::{Failure, Fault};
use crate::commit::Engine;
use crate::commit::Shared;
use crate::functions::fan_out::service::FanOutService;
use crate::kernel::process::Process;
use crate::state::draft::Editor;

/// A configuration of this size has tens of thousands of policies.
pub const LARGEST_BODY: usize = 16 << 20;

/// What a gateway can be asked or told: `A` are its arguments, `T` is its answer.
pub struct Operation<A, T> {
    /// What can be said of it without its types.
    pub about: About,
    pub(crate) act: Act<A, T>,
}

/// An operation's words, and its place in HTTP.
pub struct About {
    /// Different from all others'; words are joined by dashes.
    pub name: &'static str,
    /// How HTTP asks for it.
    pub method: Method,
    /// Where HTTP asks for it.
    pub path: &'static str,
    /// What it is for, in a line.
    pub help: &'static str,
    /// Who may ask for it.
    pub role: Role,
    /// What it is told besides its arguments.
    pub body: Body,
    /// Failures that mean something of their own here.
    pub faults: &'static [(Fault, &'static str)],
}

impl About {
    /// Of a question that owners and their group may ask.
    pub const fn question(name: &'static str, path: &'static str, help: &'static str) -> Self {
        let (method, role, body) = (Method::Get, Role::Group, Body::Nothing);
        Self { name, method, path, help, role, body, faults: &[] }
    }

    /// Of a question that everybody may ask, also over TCP.
    pub const fn open(name: &'static str, path: &'static str, help: &'static str) -> Self {
        Self { role: Role::Anyone, ..Self::question(name, path, help) }
    }

    /// Whoever puts arguments where they are not read would be done another thing than is meant, perhaps more of it.
    fn is_sent_as_told(&self, uri: &Uri, body: &str) -> Result<(), Failure> {
        let query = uri.query().unwrap_or_default();
        let wrong = match self.body {
            Body::Text(Text { what, may_be_empty: false, .. }) if body.is_empty() => {
                format!("the body is empty; expected there: {what}")
            }
            Body::Nothing if !body.trim().is_empty() => {
                format!("{} reads no body; put its arguments into the query", self.name)
            }
            Body::Filter(_) | Body::Object(_) | Body::Objects(_) if !query.is_empty() => {
                format!("{} reads no query; put its arguments into the body, as JSON", self.name)
            }
            _ => return Ok(()),
        };
        Err(Failure::arguments(wrong))
    }

    /// Of a change, which is for owners.
    pub const fn change(name: &'static str, path: &'static str, help: &'static str, body: Body) -> Self {
        Self { name, method: Method::Post, path, help, role: Role::Owner, body, faults: &[] }
    }
}

/// Methods of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Questions: they change nothing.
    Get,
    /// Changes.
    Post,
}

impl Method {
    /// As a request has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
        }
    }
}

/// Who may ask for an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Everybody, also over TCP.
    Anyone,
    /// Owners and their group: how the network is protected, who its users are, and who talks to whom.
    Group,
    /// Root and the daemon's own user, over the unix socket only.
    Owner,
}

impl Role {
    /// All of them, from many to few.
    pub const ALL: [Self; 3] = [Self::Anyone, Self::Group, Self::Owner];

    /// As documents have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Anyone => "anyone",
            Self::Group => "group",
            Self::Owner => "owner",
        }
    }

    /// Who that is.
    pub fn help(self) -> &'static str {
        match self {
            Self::Anyone => "everybody on this machine, and over TCP whoever reaches the address",
            Self::Group => "root, the daemon's own user and its group, over the unix socket",
            Self::Owner => "root and the daemon's own user, over the unix socket",
        }
    }
}

/// Makes the schema of a JSON object.
pub type MakeSchema = fn(&mut SchemaGenerator) -> Schema;

/// What the body of a request may be.
#[derive(Clone, Copy, Debug)]
pub enum Body {
    /// There is none.
    Nothing,
    /// A text.
    Text(Text),
    /// A JSON object; nothing is one without members.
    Filter(MakeSchema),
    /// A JSON object.
    Object(MakeSchema),
    /// A JSON object or a list of them.
    Objects(MakeSchema),
}

/// What the text in a body is.
#[derive(Clone, Copy, Debug)]
pub struct Text {
    /// What it says.
    pub what: &'static str,
    /// One that is understood.
    pub example: &'static str,
    /// Nothing is a text, too.
    pub may_be_empty: bool,
}

/// How an operation comes to its answer.
pub(crate) enum Act<A, T> {
    /// The daemon alone knows it, and says it at once.
    Say(fn(&Shared, &A) -> T),
    /// Likewise, but it has to be looked up, and there may be no answer to the question.
    Ask(fn(&Shared, &A) -> Result<T, Failure>),
    /// It is read from what outlives the daemon: its last commit, the data plane, the kernel. That takes time, and can be done
    /// without it.
    Read(fn(&Shared, &A) -> Result<T, Failure>),
    /// Likewise, in the text format of Prometheus.
    Metrics(fn(&Shared) -> Result<String, Failure>),
    /// Something is changed.
    Change(fn(&Gateway, &A, Order) -> Result<T, Failure>),
}

/// What operations act on.
#[derive(Clone)]
pub struct Gateway {
    pub(crate) shared: Arc<Shared>,
    /// One commit at a time; the others wait.
    pub(crate) engine: Arc<Mutex<Engine>>,
    pub(crate) fan_out: FanOutService,
}

impl Gateway {
    /// Waits until it is one's turn to commit.
    pub(crate) fn engine(&self) -> MutexGuard<'_, Engine> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What comes with a request besides its arguments.
#[derive(Debug, Default)]
pub struct Order {
    /// As it was sent.
    pub body: String,
    /// Who asks, as the audit names it.
    pub by: String,
    /// Who that is for the kernel.
    pub(crate) uid: Option<u32>,
    /// Which of its processes.
    pub(crate) process: Option<Process>,
}

impl Order {
    /// Who asks, as the history names it; `client` is what it calls itself.
    pub(crate) fn editor(&self, client: Option<&str>) -> Editor {
        let known = self.uid.and_then(|uid| User::from_uid(uid.into()).ok().flatten());
        let user = known.map_or_else(|| self.by.clone(), |user| user.name);
        Editor { user, client: client.unwrap_or("api").to_owned(), process: self.process }
    }

    /// A filter; an empty body is one that everything passes.
    pub(crate) fn filter<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        let body = if self.body.trim().is_empty() { "{}" } else { &self.body };
        let Object(filter) = serde_json::from_str(body)
            .map_err(|error| Failure::arguments(format!("the filter cannot be read: {error}")))?;
        Ok(filter)
    }

    /// What a change is about; `what` says so to who has written it wrong.
    pub(crate) fn object<T: DeserializeOwned>(&self, what: &str) -> Result<T, Failure> {
        let Object(object) = self.read(what)?;
        Ok(object)
    }

    /// Several of them.
    pub(crate) fn objects<T: DeserializeOwned>(&self, what: &str) -> Result<Vec<T>, Failure> {
        let objects: Vec<Object<T>> = self.read(what)?;
        Ok(objects.into_iter().map(|Object(object)| object).collect())
    }

    fn read<T: DeserializeOwned>(&self, what: &str) -> Result<T, Failure> {
        serde_json::from_str(&self.body)
            .map_err(|error| Failure::new(Fault::Refused, format!("the {what} cannot be read: {error}")))
    }
}

/// An answer on its way out.
#[derive(Debug)]
pub struct Reply {
    /// Its content type.
    pub form: &'static str,
    /// Its text.
    pub body: Vec<u8>,
}

impl Reply {
    fn json(answer: &impl Serialize) -> Result<Self, Failure> {
        let body = serde_json::to_vec(answer).map_err(|error| Failure::new(Fault::Internal, error))?;
        Ok(Self { form: "application/json", body })
    }
}

/// A JSON object: a list of its members, which serde would take as well, is none.
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ReadObject(PhantomData))
    }
}

struct ReadObject<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ReadObject<T> {
    type Value = Object<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<Object<T>, M::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Object)
    }
}

/// There is nothing to say but the operation's name.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoArguments {}

/// An operation of whatever types, as the list has it.
pub trait Listed: Sync {
    /// What can be said of it.
    fn about(&self) -> &About;

    /// The schema of its query.
    fn arguments(&self, generator: &mut SchemaGenerator) -> Schema;

    /// The schema of its answer; None for a text.
    fn answer(&self, generator: &mut SchemaGenerator) -> Option<Schema>;

    /// It asks the kernel or takes long, and must not hold up the tasks that serve connections.
    fn takes_time(&self) -> bool;

    /// Does what a request wants.
    fn run(&self, gateway: &Gateway, uri: &Uri, order: Order) -> Result<Reply, Failure>;
}

impl<A, T> Listed for Operation<A, T>
where
    A: DeserializeOwned + JsonSchema,
    T: Serialize + JsonSchema,
{
    fn about(&self) -> &About {
        &self.about
    }

    fn arguments(&self, generator: &mut SchemaGenerator) -> Schema {
        A::json_schema(generator)
    }

    fn answer(&self, generator: &mut SchemaGenerator) -> Option<Schema> {
        let is_text = matches!(self.act, Act::Metrics(_));
        (!is_text).then(|| generator.subschema_for::<T>())
    }

    fn takes_time(&self) -> bool {
        !matches!(self.act, Act::Say(_))
    }

    fn run(&self, gateway: &Gateway, uri: &Uri, order: Order) -> Result<Reply, Failure> {
        self.about.is_sent_as_told(uri, &order.body)?;
        let Query(arguments) = Query::<A>::try_from_uri(uri)?;
        match self.act {
            Act::Say(say) => Reply::json(&say(&gateway.shared, &arguments)),
            Act::Read(read) | Act::Ask(read) => Reply::json(&read(&gateway.shared, &arguments)?),
            Act::Metrics(tell) => {
                let body = tell(&gateway.shared)?.into_bytes();
                Ok(Reply { form: sluice_metrics::CONTENT_TYPE, body })
            }
            Act::Change(change) => Reply::json(&change(gateway, &arguments, order)?),
        }
    }
}
