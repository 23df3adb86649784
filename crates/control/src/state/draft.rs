//! The candidate while a daemon runs: one for all, as in Junos, and who has it open.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use sluice_language::{Error, Errors, Tree};

use crate::api::{Edited, EditorView, Opened};
use crate::kernel::clock::unix_ms;
use crate::kernel::process::Process;
use crate::state::active::Active;
use crate::state::archive::{Archive, Draft, Earlier};
use crate::state::error::StoreError;

/// Name of the candidate in error messages.
const FILE: &str = "candidate";

#[derive(Debug, thiserror::Error)]
pub enum DraftError {
    #[error(
        "{} (pid {}, {}) has the candidate open exclusively for {minutes} min; ask there, or wait until that process ends",
        by.user, by.pid, by.client
    )]
    Exclusive { by: Box<EditorView>, minutes: u64 },
    #[error(
        "only a process that this host can see may have the candidate open exclusively: use the unix socket"
    )]
    Unseen,
    #[error("{0}")]
    Language(#[from] Errors),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Who edits.
#[derive(Debug, Clone)]
pub struct Editor {
    pub user: String,
    pub client: String,
    /// None where the kernel does not tell.
    pub process: Option<Process>,
}

#[derive(Debug)]
struct Seat {
    editor: Editor,
    since_unix_ms: u64,
    exclusive: bool,
}

/// The candidate.
#[derive(Debug)]
pub struct Drafts {
    pub archive: Archive,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    draft: Option<Draft>,
    /// What `draft` says, as long as somebody edits it.
    tree: Option<Tree>,
    /// The generation in force, likewise.
    active: Option<(u32, Tree)>,
    seats: Vec<Seat>,
}

impl Drafts {
    /// What an earlier daemon has left; Err says why it cannot be used.
    pub fn load(dir: &Path) -> (Self, Option<String>) {
        let archive = Archive::at(dir);
        let (draft, damage) = match archive.draft() {
            Ok(draft) => (draft, None),
            Err(why) => (None, Some(why)),
        };
        (Self { archive, held: Mutex::new(Held { draft, ..Held::default() }) }, damage)
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.seats.retain(|seat| seat.editor.process.is_some_and(Process::is_alive));
        held
    }

    /// What was changed and not committed.
    pub fn draft(&self) -> Option<Draft> {
        self.held().draft.clone()
    }

    pub fn editors(&self) -> Vec<EditorView> {
        self.held().seats.iter().map(Seat::view).collect()
    }

    pub fn open(&self, editor: Editor, exclusive: bool) -> Result<Opened, DraftError> {
        let mut held = self.held();
        if exclusive && editor.process.is_none() {
            return Err(DraftError::Unseen);
        }
        held.may_change(&editor)?;
        held.seats.retain(|seat| seat.editor.process != editor.process);
        let others = held.seats.iter().map(Seat::view).collect();
        if editor.process.is_some() {
            held.seats.push(Seat { editor, since_unix_ms: unix_ms(), exclusive });
        }
        let changed_by = held.draft.as_ref().map(|draft| draft.changed_by.clone());
        Ok(Opened { others, changed: changed_by.is_some(), changed_by })
    }

    /// False when it was not open.
    pub fn close(&self, editor: &Editor, discard: bool) -> Result<bool, DraftError> {
        let mut held = self.held();
        if discard {
            held.may_change(editor)?;
            self.archive.save_draft(None)?;
            held.put(None, None);
        }
        let before = held.seats.len();
        held.seats.retain(|seat| seat.editor.process != editor.process);
        let was_open = held.seats.len() < before;
        held.rest();
        Ok(was_open)
    }

    /// Refuses who may not change the candidate, or what is in force past it.
    pub fn may_change(&self, editor: &Editor) -> Result<(), DraftError> {
        self.held().may_change(editor)
    }

    /// Does something to the candidate's tree; `change` says what it passed over.
    pub fn change(
        &self,
        active: &Active,
        editor: &Editor,
        change: impl FnOnce(&mut Tree) -> Result<Vec<Error>, Errors>,
    ) -> Result<Edited, DraftError> {
        let mut held = self.held();
        held.may_change(editor)?;
        let mut tree = held.tree(active)?.clone();
        let result = change(&mut tree);
        let edited = result.map_err(DraftError::from).and_then(|warnings| {
            let changed = self.put(&mut held, active, editor, tree)?;
            Ok(Edited { changed, warnings: warnings.iter().map(ToString::to_string).collect() })
        });
        held.rest();
        edited
    }

    /// Makes the candidate another configuration; None is the one in force.
    pub fn replace(
        &self,
        active: &Active,
        editor: &Editor,
        earlier: Option<Earlier>,
    ) -> Result<Edited, DraftError> {
        let mut held = self.held();
        held.may_change(editor)?;
        let tree = match earlier {
            None => held.active(active)?.clone(),
            Some(earlier) => sluice_language::parse(&earlier.text, &earlier.commit.file)?,
        };
        let changed = self.put(&mut held, active, editor, tree);
        held.rest();
        Ok(Edited { changed: changed?, warnings: vec![] })
    }

    fn put(&self, held: &mut Held, active: &Active, editor: &Editor, tree: Tree) -> Result<bool, DraftError> {
        let text = tree.to_commented_text();
        let same = text == held.active(active)?.to_commented_text();
        let base = held.draft.as_ref().map_or(active.commit.serial, |draft| draft.base);
        let draft = (!same).then(|| Draft {
            text,
            base,
            changed_by: editor.user.clone(),
            changed_unix_ms: unix_ms(),
        });
        self.archive.save_draft(draft.as_ref())?;
        held.put(draft, Some(tree));
        Ok(!same)
    }

    /// What a commit of the candidate would put in force, and its name.
    pub fn to_commit(&self, active: &Active, editor: &Editor) -> Result<(String, String), DraftError> {
        let held = self.held();
        held.may_change(editor)?;
        Ok(match &held.draft {
            Some(draft) => (draft.text.clone(), FILE.to_owned()),
            None => (active.text.clone(), active.file.clone()),
        })
    }

    /// The candidate as text, and its name.
    pub fn text(&self, active: &Active) -> (String, String) {
        match self.draft() {
            Some(draft) => (draft.text, FILE.to_owned()),
            None => (active.text.clone(), active.file.clone()),
        }
    }

    /// `text` is in force: a candidate that says the same is none any more. Says so if there is another one.
    pub fn committed(&self, text: &str) -> Option<String> {
        let mut held = self.held();
        held.active = None;
        let draft = held.draft.as_ref()?;
        if draft.text != text {
            return Some(format!(
                "the candidate holds changes of {} that this configuration has not; `sluice compare` shows them",
                draft.changed_by
            ));
        }
        let removed = self.archive.save_draft(None);
        held.put(None, None);
        removed.err().map(|error| format!("the candidate is in force, and its file remains: {error}"))
    }
}

impl Held {
    /// Nobody else may have it exclusively.
    fn may_change(&self, editor: &Editor) -> Result<(), DraftError> {
        let other = |seat: &&Seat| seat.exclusive && seat.editor.process != editor.process;
        match self.seats.iter().find(other) {
            None => Ok(()),
            Some(seat) => {
                let minutes = unix_ms().saturating_sub(seat.since_unix_ms) / 60_000;
                Err(DraftError::Exclusive { by: Box::new(seat.view()), minutes })
            }
        }
    }

    fn active(&mut self, active: &Active) -> Result<&Tree, DraftError> {
        let known = self.active.take().filter(|(generation, _)| *generation == active.generation);
        let known = match known {
            Some(known) => known,
            None => (active.generation, sluice_language::parse(&active.text, &active.file)?),
        };
        Ok(&self.active.insert(known).1)
    }

    fn tree(&mut self, active: &Active) -> Result<&Tree, DraftError> {
        let Some(draft) = &self.draft else { return self.active(active) };
        let tree = match self.tree.take() {
            Some(tree) => tree,
            None => sluice_language::parse(&draft.text, FILE)?,
        };
        Ok(self.tree.insert(tree))
    }

    fn put(&mut self, draft: Option<Draft>, tree: Option<Tree>) {
        self.tree = tree.filter(|_| draft.is_some());
        self.draft = draft;
    }

    /// Parsed trees are freed while no one edits, to save memory.
    fn rest(&mut self) {
        if self.seats.is_empty() {
            (self.tree, self.active) = (None, None);
        }
    }
}

impl Seat {
    fn view(&self) -> EditorView {
        EditorView {
            user: self.editor.user.clone(),
            pid: self.editor.process.map_or(0, |process| process.pid),
            client: self.editor.client.clone(),
            since_unix_ms: self.since_unix_ms,
            exclusive: self.exclusive,
        }
    }
}
