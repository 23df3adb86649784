//! The configuration in force, those before it, and the next one.

use std::time::Duration;

use super::failure::{Failure, Fault};
use super::operation::{About, Act, Body, Gateway, NoArguments, Operation, Order, Role, Text};
use crate::api::{CommitNumber, CommitQuery, CommitView, Committed, Configuration, Done, StoredText};
use crate::commit::{Author, Checked, Engine, Source};
use crate::functions::CommitError;
use crate::state::config::CheckError;
use crate::state::draft::Editor;
use crate::views::preview::{self, Operator};
use crate::views::{self, store};

/// How the network is protected.
pub static CONFIGURATION: Operation<NoArguments, Configuration> = Operation {
    about: About::question(
        "configuration",
        "/api/configuration",
        "The active configuration, as it was committed",
    ),
    act: Act::Read(|shared, _| Ok(views::configuration(shared))),
};

/// Makes the gateway use a configuration.
pub static COMMIT: Operation<CommitQuery, Committed> = Operation {
    about: About {
        faults: &[
            (Fault::Conflict, "somebody has the candidate open exclusively; nothing has changed"),
            (
                Fault::Refused,
                "the configuration has errors, or this gateway cannot do what it wants; nothing has changed",
            ),
        ],
        ..About::change(
            "commit",
            "/api/commit",
            "Use a configuration: all of it or, on any error, nothing",
            Body::Text(Text {
                what: "the configuration",
                example: "system { host-name gw; }\n",
                may_be_empty: true,
            }),
        )
    },
    act: Act::Change(commit),
};

/// `commit confirmed` was a good idea.
pub static CONFIRM: Operation<NoArguments, Done> = Operation {
    about: About::change(
        "confirm",
        "/api/commit/confirm",
        "Let the configuration in force stay, after a commit that waits for this word",
        Body::Nothing,
    ),
    act: Act::Change(|gateway, _, _| Ok(Done { done: gateway.engine().keep(&gateway.shared)? })),
};

/// Who changed what when.
pub static HISTORY: Operation<NoArguments, Vec<CommitView>> = Operation {
    about: About {
        role: Role::Group,
        ..About::question("history", "/api/history", "Commits, the one in force first: who, when, why")
    },
    act: Act::Read(|shared, _| Ok(store::history(shared))),
};

/// `show configuration` of an earlier commit.
pub static EARLIER: Operation<CommitNumber, StoredText> = Operation {
    about: About {
        role: Role::Group,
        faults: &[(Fault::Arguments, "there is no commit of this number, or its file is damaged")],
        ..About::question("earlier", "/api/history/text", "A configuration of the history")
    },
    act: Act::Read(|shared, query| {
        store::earlier(shared, query.number).map(store::stored_text).map_err(Failure::arguments)
    }),
};

fn commit(gateway: &Gateway, query: &CommitQuery, mut order: Order) -> Result<Committed, Failure> {
    let text = std::mem::take(&mut order.body);
    let file = query.file.clone().unwrap_or_else(|| "(commit)".to_owned());
    let editor = order.editor(query.client.as_deref());
    gateway.shared.drafts.may_change(&editor)?;
    gateway.fan_out.learn(&text, &file);
    let mut engine = gateway.engine();
    commit_text(gateway, &mut engine, query, &editor, text, file)
}

/// Longer than a year is no commit that waits for a word.
const LONGEST: u32 = 366 * 24 * 60;

/// What both ways to commit have in common. Nobody else commits meanwhile, so that what is in force is what it replaces.
pub(super) fn commit_text(
    gateway: &Gateway,
    engine: &mut Engine,
    query: &CommitQuery,
    editor: &Editor,
    text: String,
    file: String,
) -> Result<Committed, Failure> {
    let within = match query.confirmed {
        Some(minutes @ 1..=LONGEST) => Some(Duration::from_secs(u64::from(minutes) * 60)),
        None => None,
        Some(minutes) => {
            return Err(Failure::arguments(format!("{minutes} minutes are not within 1 to {LONGEST}")));
        }
    };
    let author = Author {
        user: editor.user.clone(),
        client: editor.client.clone(),
        comment: query.comment.clone(),
        confirm_within: within,
    };
    let (shared, old) = (&gateway.shared, gateway.shared.active());
    let operator = query.connection.as_ref().and_then(|connection| Operator::find(shared, connection));
    // what cannot be read is refused, with the reasons, by the commit itself
    let tree = sluice_language::parse(&text, &file).ok();
    if tree.as_ref().is_some_and(|tree| tree.is_empty()) && !query.allow_empty {
        return Err(CommitError::from(CheckError::Empty { file }).into());
    }
    let changes = tree.map_or_else(String::new, |tree| preview::changes(&old, &tree));
    let source = Source { text: text.clone(), file, by: Some(author) };
    if query.check {
        let Checked { config, plan, remarks } = engine.check(&source, shared)?;
        let cut = operator.and_then(|operator| operator.cut_off(&old.plan, &config, &plan));
        let sessions_ending = preview::sessions_ending(shared, &old.plan, &plan);
        let warnings = cut.into_iter().chain(remarks).collect();
        let generation = old.generation + 1;
        return Ok(Committed { generation, warnings, changes, sessions_ending, ..Committed::default() });
    }
    let mut sessions_ending = None;
    let mut done = engine.commit_seen(source, shared, &mut |plan| {
        // while they live
        sessions_ending = preview::sessions_ending(shared, &old.plan, plan);
    })?;
    let active = shared.active();
    let cut = operator.and_then(|operator| operator.cut_off(&old.plan, &active.config, &active.plan));
    done.warnings.splice(..0, cut);
    done.warnings.extend(shared.drafts.committed(&text));
    done.changes = changes;
    done.sessions_ending = sessions_ending;
    done.returns_unix_ms = shared.commits.confirm().map(|confirm| confirm.deadline.unix_ms);
    // both configurations were held until here
    drop((old, active));
    sluice_dataplane::give_back_freed();
    Ok(done)
}
