//! Why an operation was not done, and how HTTP says it.

use axum::extract::rejection::QueryRejection;
use axum::http::StatusCode;
use sluice_dataplane::GtpuRefused;

use crate::functions::CommitError;
use crate::functions::gate::grants::GateError;
use crate::functions::gtpu::sessions::GtpuError;
use crate::state::error::AskError;

/// Kinds of failures, one a status of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The question cannot be understood.
    Arguments,
    /// Not for who asks.
    Denied,
    /// It contradicts what there is.
    Conflict,
    /// The body is too large.
    Large,
    /// It was meant for another host.
    Elsewhere,
    /// What is wanted is wrong.
    Refused,
    /// The machine is at fault.
    Internal,
    /// There is no room.
    Full,
}

impl Fault {
    /// All of them, by status.
    pub const ALL: [Self; 8] = [
        Self::Arguments,
        Self::Denied,
        Self::Conflict,
        Self::Large,
        Self::Elsewhere,
        Self::Refused,
        Self::Internal,
        Self::Full,
    ];

    /// As HTTP says it.
    pub fn status(self) -> StatusCode {
        match self {
            Self::Arguments => StatusCode::BAD_REQUEST,
            Self::Denied => StatusCode::FORBIDDEN,
            Self::Conflict => StatusCode::CONFLICT,
            Self::Large => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Elsewhere => StatusCode::MISDIRECTED_REQUEST,
            Self::Refused => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Full => StatusCode::INSUFFICIENT_STORAGE,
        }
    }

    /// What it means where an operation gives no meaning of its own.
    pub fn help(self) -> &'static str {
        match self {
            Self::Arguments => "an argument is missing, unknown, or cannot be understood",
            Self::Denied => "it is not for who asks",
            Self::Conflict => "it contradicts what there is; nothing was done",
            Self::Large => "the body has more than 16 MiB",
            Self::Elsewhere => "over TCP: the name in the request is not this host's",
            Self::Refused => "what is wanted is wrong; nothing was done",
            Self::Internal => "the machine is at fault, and the message says how",
            Self::Full => "there is no room; nothing was done",
        }
    }
}

/// What became of a request that failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Of a query, in the words of who reads it.
    #[error(transparent)]
    Query(#[from] QueryRejection),
    /// Of an operation.
    #[error("{message}")]
    Said {
        /// Its kind.
        fault: Fault,
        /// What is wrong, and what to do.
        message: String,
    },
}

impl Failure {
    /// A failure with its words.
    pub fn new(fault: Fault, message: impl ToString) -> Self {
        Self::Said { fault, message: message.to_string() }
    }

    /// The question is at fault.
    pub fn arguments(message: impl ToString) -> Self {
        Self::new(Fault::Arguments, message)
    }
}

impl From<CommitError> for Failure {
    fn from(error: CommitError) -> Self {
        let fault = if error.is_bad_input() { Fault::Refused } else { Fault::Internal };
        Self::new(fault, error)
    }
}

impl From<AskError> for Failure {
    fn from(error: AskError) -> Self {
        Self::new(Fault::Internal, error)
    }
}

impl From<GtpuError> for Failure {
    fn from(error: GtpuError) -> Self {
        let fault = match &error {
            GtpuError::Request { .. } | GtpuError::Bad(_) | GtpuError::Unknown(_) => Fault::Refused,
            GtpuError::Dataplane(sluice_dataplane::Error::NoTunnels) => Fault::Refused,
            GtpuError::Room { .. } | GtpuError::Refused { source: GtpuRefused::Full { .. }, .. } => {
                Fault::Full
            }
            GtpuError::Twice(_) | GtpuError::Configured(_) => Fault::Conflict,
            GtpuError::Refused { .. } => Fault::Conflict,
            GtpuError::Dataplane(_) | GtpuError::Journal(_) => Fault::Internal,
        };
        Self::new(fault, error)
    }
}

impl From<GateError> for Failure {
    fn from(error: GateError) -> Self {
        let fault = match &error {
            error if error.is_bad_input() => Fault::Refused,
            error if error.is_full() => Fault::Full,
            GateError::Refused(_) => Fault::Conflict,
            _ => Fault::Internal,
        };
        Self::new(fault, error)
    }
}
