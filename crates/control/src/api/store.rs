//! What is said of configurations: the one in force, those before it, and the candidate.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The configuration in force.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct Configuration {
    /// Number of the commit in force.
    pub generation: u32,
    /// Name that the text was committed under, as error messages have it.
    pub file: String,
    /// As it was committed.
    pub text: String,
}

/// What a configuration to commit is called, and how it is committed.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CommitQuery {
    /// Name of the text in error messages.
    pub file: Option<String>,
    /// Find everything that can be refused, and change nothing.
    #[serde(default)]
    pub check: bool,
    /// Minutes after which the configuration before comes back, unless another commit or `confirm` comes first.
    pub confirmed: Option<u32>,
    /// Why, for the history.
    pub comment: Option<String>,
    /// What asks, for the history: `cli`, `api`.
    pub client: Option<String>,
    /// The connection over which somebody asks, as SSH_CONNECTION has it: address and port of the client, then of the server.
    pub connection: Option<String>,
    /// A configuration without a statement is meant.
    #[serde(default)]
    pub allow_empty: bool,
}

/// What a commit has done, or would do.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct Committed {
    /// Number of the generation.
    pub generation: u32,
    /// From the request to the answer, in milliseconds.
    pub took_ms: u64,
    /// What an operator should know; the commit stands.
    pub warnings: Vec<String>,
    /// How the configuration in force has changed, as `compare` says it; empty when it is the same.
    #[serde(default)]
    pub changes: String,
    /// Sessions that end because nothing permits them any more; None where that was not counted.
    #[serde(default)]
    pub sessions_ending: Option<u64>,
    /// When the configuration before comes back, in milliseconds since 1970.
    #[serde(default)]
    pub returns_unix_ms: Option<u64>,
}

/// Which part of the candidate, and how it is written.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CandidateQuery {
    /// Words that lead to it, as in a `set` command; all of it when not given.
    pub path: Option<String>,
    /// `text`, `set`, or `inheritance`: as text with what groups bring in.
    pub form: Option<String>,
}

/// The candidate, or a part of it.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct CandidateView {
    /// In the form that was asked for.
    pub text: String,
    /// Somebody has changed it since the last commit.
    pub changed: bool,
    /// User who made the last change; none where nothing was changed.
    pub changed_by: Option<String>,
    /// When that was, in milliseconds since 1970.
    pub changed_unix_ms: Option<u64>,
    /// Another configuration has been committed since it was begun: its commit takes that back.
    pub is_behind: bool,
    /// Who has it open.
    pub editors: Vec<EditorView>,
}

/// Somebody who has the candidate open.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EditorView {
    /// Name of the user.
    pub user: String,
    /// Of the process that opened it.
    pub pid: i32,
    /// What it came by: `cli`, `api`.
    pub client: String,
    /// When it was opened, in milliseconds since 1970.
    pub since_unix_ms: u64,
    /// Nobody else may change the candidate meanwhile.
    pub exclusive: bool,
}

/// Where commands and texts belong.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EditQuery {
    /// Words that stand before those of each command, as in a `set` command: the place that `edit` went to.
    pub path: Option<String>,
    /// What asks: `cli`, `api`.
    pub client: Option<String>,
}

/// How a text is loaded.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LoadQuery {
    /// `merge`, `override`, `replace` (what is marked `replace:` stands for what was there) or `set` (commands).
    pub mode: String,
    /// Words before those of each statement, as in a `set` command.
    pub path: Option<String>,
    /// Name of the text in error messages.
    pub file: Option<String>,
    /// What asks: `cli`, `api`.
    pub client: Option<String>,
}

/// What became of the candidate.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct Edited {
    /// It differs from the configuration in force.
    pub changed: bool,
    /// What was passed over, such as a `delete` of what is not there.
    pub warnings: Vec<String>,
}

/// How the candidate is opened.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OpenQuery {
    /// Nobody else may change it until this process closes it or ends.
    #[serde(default)]
    pub exclusive: bool,
    /// What asks: `cli`, `api`.
    pub client: Option<String>,
}

/// The candidate as it was found.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct Opened {
    /// Who else has it open.
    pub others: Vec<EditorView>,
    /// It holds changes that nobody has committed.
    pub changed: bool,
    /// User who made the last change; none where nothing was changed.
    pub changed_by: Option<String>,
}

/// How the candidate is closed.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CloseQuery {
    /// What was changed and not committed goes.
    #[serde(default)]
    pub discard: bool,
}

/// Which earlier configuration.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RollbackQuery {
    /// 0 is the one in force, 1 the one before it.
    pub number: Option<u32>,
    /// The rescue configuration.
    #[serde(default)]
    pub rescue: bool,
    /// What asks: `cli`, `api`.
    pub client: Option<String>,
}

/// Which two configurations to compare.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CompareQuery {
    /// Number in the history of the one that changes; 0, the one in force, when not given.
    pub from: Option<u32>,
    /// Number of the one that it is compared with; the candidate when not given.
    pub to: Option<u32>,
    /// Words that lead to the part to compare, as in a `set` command.
    pub path: Option<String>,
}

/// How one configuration becomes another.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    /// `[edit PATH]`, then lines with `-`, `+` and `!`; empty when nothing differs.
    pub text: String,
}

/// One commit of the history.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CommitView {
    /// 0 is in force.
    pub number: u32,
    /// When it was made, in milliseconds since 1970.
    pub unix_ms: u64,
    /// Name of the user.
    pub user: String,
    /// What it came by: `cli`, `api`, `file`, `confirm` (nobody confirmed the one before).
    pub client: String,
    /// Why it was made, as its user said.
    pub comment: Option<String>,
    /// Name that the text was committed under.
    pub file: String,
    /// It goes back to the one before at this time, unless it is confirmed; in milliseconds since 1970.
    pub returns_unix_ms: Option<u64>,
    /// Why it cannot be read.
    pub damage: Option<String>,
}

/// Which commit of the history.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CommitNumber {
    /// 0 is the one in force.
    pub number: u32,
}

/// An earlier configuration.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct StoredText {
    /// Name that the text was committed under.
    pub file: String,
    /// When it was committed, in milliseconds since 1970.
    pub unix_ms: u64,
    /// Name of the user.
    pub user: String,
    /// As it was committed.
    pub text: String,
}

/// What was done.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct Done {
    /// False: it was so already.
    pub done: bool,
}
