//! What a commit writes down, before programs switch over: sessions must never carry ids that a crash could make us forget.

use std::sync::Arc;

use crate::functions::function::{Candidate, CommitError, Function};
use crate::state::store::Store;

pub struct Written {
    store: Arc<Store>,
    is_new: bool,
}

impl Written {
    pub fn new(store: &Arc<Store>) -> Self {
        Self { store: store.clone(), is_new: false }
    }
}

impl Function for Written {
    fn name(&self) -> &'static str {
        "store"
    }

    fn apply(&mut self, candidate: &mut Candidate<'_>) -> Result<(), CommitError> {
        let (next, stored) = (&candidate.next, candidate.stored);
        match self.store.save(next, stored) {
            Ok(()) => {
                self.is_new = true;
                Ok(())
            }
            // what is stored already gives no id that is not written down: neither a start nor a commit of the daemon's own
            // needs room to write; the next one that finds some writes all of it
            Err(error)
                if (candidate.old.is_none() || candidate.is_again)
                    && stored.is_some_and(|stored| stored.text == next.text) =>
            {
                tracing::error!(%error, "what is in force once more is not written down; it is what the last commit was");
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    fn abort(&mut self, candidate: &Candidate<'_>) -> Result<(), CommitError> {
        if !std::mem::take(&mut self.is_new) {
            return Ok(());
        }
        match candidate.stored {
            Some(stored) => self.store.save(stored, None)?,
            None => self.store.clear()?,
        }
        Ok(())
    }

    fn retire(&mut self, _candidate: &Candidate<'_>) -> Vec<String> {
        self.is_new = false;
        vec![]
    }
}
