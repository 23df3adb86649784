//! The rescue configuration: one that is known to work, beside the history.

use super::failure::{Failure, Fault};
use super::operation::{About, Act, Body, NoArguments, Operation, Role};
use crate::api::{Done, StoredText};
use crate::state::archive::{ArchiveError, Earlier};
use crate::views::store::stored_text;

impl From<ArchiveError> for Failure {
    fn from(error: ArchiveError) -> Self {
        let fault = match &error {
            ArchiveError::NoCommit { .. } | ArchiveError::NoRescue => Fault::Arguments,
            ArchiveError::Damaged { .. } | ArchiveError::DamagedRescue { .. } | ArchiveError::Store(_) => {
                Fault::Internal
            }
        };
        Self::new(fault, error)
    }
}

/// What is kept for a bad day.
pub static RESCUE: Operation<NoArguments, StoredText> = Operation {
    about: About {
        role: Role::Group,
        faults: &[(Fault::Arguments, "none is saved")],
        ..About::question("rescue", "/api/rescue", "The rescue configuration")
    },
    act: Act::Read(|shared, _| Ok(stored_text(shared.drafts.archive.rescue()?))),
};

/// What is in force is known to work.
pub static SAVE_RESCUE: Operation<NoArguments, Done> = Operation {
    about: About::change(
        "save-rescue",
        "/api/rescue/save",
        "Save the configuration in force as the rescue configuration",
        Body::Nothing,
    ),
    act: Act::Change(|gateway, _, _| {
        let active = gateway.shared.active();
        let rescue = Earlier { commit: active.commit.clone(), text: active.text.clone() };
        gateway.shared.drafts.archive.save_rescue(&rescue).map_err(ArchiveError::from)?;
        Ok(Done { done: true })
    }),
};

/// It is of no use any more.
pub static DELETE_RESCUE: Operation<NoArguments, Done> = Operation {
    about: About::change(
        "delete-rescue",
        "/api/rescue/delete",
        "Delete the rescue configuration",
        Body::Nothing,
    ),
    act: Act::Change(|gateway, _, _| {
        let done = gateway.shared.drafts.archive.delete_rescue().map_err(ArchiveError::from)?;
        Ok(Done { done })
    }),
};
