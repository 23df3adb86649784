//! Questions that the kernel or the data plane did not answer.

use crate::kernel::KernelError;

#[derive(Debug, thiserror::Error)]
pub enum AskError {
    #[error(transparent)]
    Kernel(#[from] KernelError),
    #[error(transparent)]
    Dataplane(#[from] sluice_dataplane::Error),
}
