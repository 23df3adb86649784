//! What is said of configurations that are not, or not only, in force.

use sluice_language::Tree;
use sluice_language::follows::{Follows, follows};

use crate::api::{CandidateView, CommitView, StoredText};
use crate::commit::Shared;
use crate::state::archive::{Commit, Earlier};

/// The candidate, or what stands below a path of it. Err says what is wrong with the question.
pub fn candidate(shared: &Shared, path: &[String], form: Option<&str>) -> Result<CandidateView, String> {
    let active = shared.active();
    let draft = shared.drafts.draft();
    let (text, file) = match &draft {
        Some(draft) => (draft.text.clone(), "candidate"),
        None => (active.text.clone(), active.file.as_str()),
    };
    Ok(CandidateView {
        text: written(&text, file, path, form)?,
        changed: draft.is_some(),
        changed_by: draft.as_ref().map(|draft| draft.changed_by.clone()),
        changed_unix_ms: draft.as_ref().map(|draft| draft.changed_unix_ms),
        is_behind: draft.is_some_and(|draft| draft.base != active.commit.serial),
        editors: shared.drafts.editors(),
    })
}

/// A part of a configuration in one of the forms; empty where nothing stands.
fn written(text: &str, file: &str, path: &[String], form: Option<&str>) -> Result<String, String> {
    let tree = tree(text, file)?;
    let part = |tree: &Tree| tree.text_at(path).unwrap_or_default();
    match form.unwrap_or("text") {
        "text" => Ok(part(&tree)),
        "set" => Ok(tree.set_at(path).unwrap_or_default()),
        "inheritance" => tree.inherited_at(path).map_err(|errors| errors.to_string()),
        form => Err(format!("form `{form}` is none of text, set, inheritance")),
    }
}

fn tree(text: &str, file: &str) -> Result<Tree, String> {
    sluice_language::parse(text, file).map_err(|errors| errors.to_string())
}

/// How configuration `from` of the history becomes `to`, or the candidate.
pub fn compare(
    shared: &Shared,
    from: Option<u32>,
    to: Option<u32>,
    path: &[String],
) -> Result<String, String> {
    let active = shared.active();
    let committed = |number: u32| -> Result<(String, String), String> {
        let earlier = earlier(shared, number)?;
        Ok((earlier.text, earlier.commit.file))
    };
    let (old, old_file) = committed(from.unwrap_or(0))?;
    let (new, new_file) = match to {
        Some(number) => committed(number)?,
        None => shared.drafts.text(&active),
    };
    let (old, new) = (tree(&old, &old_file)?, tree(&new, &new_file)?);
    let words: Vec<&str> = path.iter().map(String::as_str).collect();
    // where nothing stands yet nothing differs
    let is_there = old.text_at(path).is_some() || new.text_at(path).is_some();
    if !is_there && follows(&words) == Follows::Unknown {
        return Err(format!("`{}` leads to no statement that there is", path.join(" ")));
    }
    Ok(old.compare_at(&new, path))
}

/// Number 0 is the one in force.
pub fn earlier(shared: &Shared, number: u32) -> Result<Earlier, String> {
    let active = shared.active();
    match number {
        0 => Ok(Earlier { commit: active.commit.clone(), text: active.text.clone() }),
        number => {
            shared.drafts.archive.earlier(active.commit.serial, number).map_err(|error| error.to_string())
        }
    }
}

/// Every commit that is remembered, the one in force first.
pub fn history(shared: &Shared) -> Vec<CommitView> {
    let active = shared.active();
    let returns = shared.commits.confirm().map(|confirm| confirm.deadline.unix_ms);
    let first = CommitView { returns_unix_ms: returns, ..commit(0, Ok(active.commit.clone())) };
    let earlier = shared.drafts.archive.list(active.commit.serial);
    std::iter::once(first).chain((1..).zip(earlier).map(|(number, found)| commit(number, found))).collect()
}

fn commit(number: u32, found: Result<Commit, String>) -> CommitView {
    let (commit, damage) = match found {
        Ok(commit) => (commit, None),
        Err(why) => (Commit::default(), Some(why)),
    };
    CommitView {
        number,
        unix_ms: commit.unix_ms,
        user: commit.user,
        client: commit.client,
        comment: commit.comment,
        file: commit.file,
        returns_unix_ms: None,
        damage,
    }
}

pub fn stored_text(earlier: Earlier) -> StoredText {
    let Earlier { commit, text } = earlier;
    StoredText { file: commit.file, unix_ms: commit.unix_ms, user: commit.user, text }
}
