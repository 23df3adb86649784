//! The candidate: what is being written, until it is committed.

use super::configuration::commit_text;
use super::failure::{Failure, Fault};
use super::operation::{About, Act, Body, Gateway, NoArguments, Operation, Order, Role, Text};
use crate::api::{
    CandidateQuery, CandidateView, CloseQuery, CommitQuery, Committed, CompareQuery, Comparison, Done,
    EditQuery, Edited, LoadQuery, OpenQuery, Opened, RollbackQuery,
};
use crate::commit::Shared;
use crate::state::draft::DraftError;
use crate::views::store;

/// Changes of the candidate are refused alike.
const FAULTS: &[(Fault, &str)] = &[
    (Fault::Conflict, "somebody else has the candidate open exclusively; nothing was done"),
    (Fault::Refused, "the commands or the text have errors; nothing was done"),
];

/// What is being written.
pub static CANDIDATE: Operation<CandidateQuery, CandidateView> = Operation {
    about: About {
        role: Role::Group,
        ..About::question("candidate", "/api/candidate", "The candidate configuration, and who has it open")
    },
    act: Act::Read(view),
};

/// Configuration mode is entered.
pub static OPEN_CANDIDATE: Operation<OpenQuery, Opened> = Operation {
    about: About {
        faults: FAULTS,
        ..About::change(
            "open-candidate",
            "/api/candidate/open",
            "Say that this process edits the candidate, perhaps exclusively",
            Body::Nothing,
        )
    },
    act: Act::Change(open),
};

/// Configuration mode is left.
pub static CLOSE_CANDIDATE: Operation<CloseQuery, Done> = Operation {
    about: About {
        faults: FAULTS,
        ..About::change(
            "close-candidate",
            "/api/candidate/close",
            "Say that this process edits the candidate no more",
            Body::Nothing,
        )
    },
    act: Act::Change(close),
};

/// `set`, `delete` and the others.
pub static EDIT_CANDIDATE: Operation<EditQuery, Edited> = Operation {
    about: About {
        faults: FAULTS,
        ..About::change(
            "edit-candidate",
            "/api/candidate/edit",
            "Change the candidate by commands of configuration mode: all of them or, on any error, none",
            Body::Text(Text {
                what: "commands, one a line: set, delete, activate, deactivate, insert, rename, copy, annotate, \
                       replace, and edit, up, top and exit, which say where the others are done",
                example: "set system host-name gw\n",
                may_be_empty: false,
            }),
        )
    },
    act: Act::Change(edit),
};

/// `load`
pub static LOAD_CANDIDATE: Operation<LoadQuery, Edited> = Operation {
    about: About {
        faults: FAULTS,
        ..About::change(
            "load-candidate",
            "/api/candidate/load",
            "Load a text into the candidate: all of it or, on any error, nothing",
            Body::Text(Text {
                what: "the configuration, or a part of one",
                example: "system { host-name gw; }\n",
                may_be_empty: true,
            }),
        )
    },
    act: Act::Change(load),
};

/// `rollback N`
pub static ROLLBACK: Operation<RollbackQuery, Edited> = Operation {
    about: About {
        faults: FAULTS,
        ..About::change(
            "rollback",
            "/api/candidate/rollback",
            "Make the candidate what was committed earlier, or the rescue configuration",
            Body::Nothing,
        )
    },
    act: Act::Change(rollback),
};

/// `rollback 0`
pub static DISCARD_CANDIDATE: Operation<NoArguments, Edited> = Operation {
    about: About {
        faults: FAULTS,
        ..About::change(
            "discard-candidate",
            "/api/candidate/discard",
            "Make the candidate what is in force",
            Body::Nothing,
        )
    },
    act: Act::Change(|gateway, _, order| {
        rollback(gateway, &RollbackQuery { number: Some(0), ..RollbackQuery::default() }, order)
    }),
};

/// `show | compare`
pub static COMPARE: Operation<CompareQuery, Comparison> = Operation {
    about: About {
        role: Role::Group,
        faults: &[(Fault::Arguments, "no such commit, or no such path")],
        ..About::question(
            "compare",
            "/api/compare",
            "How one configuration of the history becomes another, or the candidate",
        )
    },
    act: Act::Read(compare),
};

/// `commit`
pub static COMMIT_CANDIDATE: Operation<CommitQuery, Committed> = Operation {
    about: About {
        faults: &[
            (Fault::Conflict, "somebody else has the candidate open exclusively; nothing has changed"),
            (
                Fault::Refused,
                "the configuration has errors, or this gateway cannot do what it wants; nothing has changed",
            ),
        ],
        ..About::change(
            "commit-candidate",
            "/api/candidate/commit",
            "Use the candidate: all of it or, on any error, nothing",
            Body::Nothing,
        )
    },
    act: Act::Change(commit),
};

impl From<DraftError> for Failure {
    fn from(error: DraftError) -> Self {
        let fault = match &error {
            DraftError::Exclusive { .. } => Fault::Conflict,
            DraftError::Store(_) => Fault::Internal,
            _ => Fault::Refused,
        };
        Self::new(fault, error)
    }
}

fn path(words: Option<&String>) -> Result<Vec<String>, Failure> {
    words.map_or_else(|| Ok(vec![]), |words| sluice_language::words(words).map_err(Failure::arguments))
}

fn view(shared: &Shared, query: &CandidateQuery) -> Result<CandidateView, Failure> {
    let path = path(query.path.as_ref())?;
    store::candidate(shared, &path, query.form.as_deref()).map_err(Failure::arguments)
}

fn open(gateway: &Gateway, query: &OpenQuery, order: Order) -> Result<Opened, Failure> {
    let shared = &gateway.shared;
    let editor = order.editor(query.client.as_deref());
    Ok(shared.drafts.open(editor, query.exclusive)?)
}

fn close(gateway: &Gateway, query: &CloseQuery, order: Order) -> Result<Done, Failure> {
    let done = gateway.shared.drafts.close(&order.editor(None), query.discard)?;
    Ok(Done { done })
}

fn edit(gateway: &Gateway, query: &EditQuery, order: Order) -> Result<Edited, Failure> {
    let (path, shared) = (path(query.path.as_ref())?, &gateway.shared);
    let editor = order.editor(query.client.as_deref());
    let change = |tree: &mut sluice_language::Tree| tree.edit(&path, &order.body, "command");
    Ok(shared.drafts.change(&shared.active(), &editor, change)?)
}

fn load(gateway: &Gateway, query: &LoadQuery, order: Order) -> Result<Edited, Failure> {
    let (path, shared) = (path(query.path.as_ref())?, &gateway.shared);
    let editor = order.editor(query.client.as_deref());
    let mode = sluice_language::Load::parse(&query.mode).ok_or_else(|| {
        Failure::arguments(format!("mode `{}` is none of merge, override, replace, set", query.mode))
    })?;
    let file = query.file.as_deref().unwrap_or("(load)");
    let change = |tree: &mut sluice_language::Tree| tree.load(&path, mode, &order.body, file);
    Ok(shared.drafts.change(&shared.active(), &editor, change)?)
}

fn rollback(gateway: &Gateway, query: &RollbackQuery, order: Order) -> Result<Edited, Failure> {
    let shared = &gateway.shared;
    let editor = order.editor(query.client.as_deref());
    let active = shared.active();
    let earlier = match (query.rescue, query.number) {
        (true, None) => Some(shared.drafts.archive.rescue()?),
        (false, Some(0)) => None,
        (false, Some(number)) => Some(shared.drafts.archive.earlier(active.commit.serial, number)?),
        _ => return Err(Failure::arguments("give either a number or `rescue`")),
    };
    Ok(shared.drafts.replace(&active, &editor, earlier)?)
}

fn compare(shared: &Shared, query: &CompareQuery) -> Result<Comparison, Failure> {
    let path = path(query.path.as_ref())?;
    let text = store::compare(shared, query.from, query.to, &path).map_err(Failure::arguments)?;
    Ok(Comparison { text })
}

fn commit(gateway: &Gateway, query: &CommitQuery, order: Order) -> Result<Committed, Failure> {
    let (shared, editor) = (&gateway.shared, order.editor(query.client.as_deref()));
    let (text, file) = shared.drafts.to_commit(&shared.active(), &editor)?;
    gateway.fan_out.learn(&text, &file);
    let mut engine = gateway.engine();
    // another commit may have taken it meanwhile
    let (text, file) = shared.drafts.to_commit(&shared.active(), &editor)?;
    let base = shared.drafts.draft().map(|draft| draft.base);
    let is_behind = base.is_some_and(|base| base != shared.active().commit.serial);
    let mut done =
        commit_text(gateway, &mut engine, query, &editor, text, query.file.clone().unwrap_or(file))?;
    if is_behind {
        let warning = "another configuration was committed since the candidate was begun, and this commit takes it back";
        done.warnings.push(warning.to_owned());
    }
    Ok(done)
}
