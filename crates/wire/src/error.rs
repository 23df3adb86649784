use std::fmt;

/// Why bytes are not a header of the wanted kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Error {
    /// They end too early.
    Truncated {
        /// Which header.
        layer: &'static str,
        /// Bytes that it takes.
        need: usize,
        /// Bytes that are there.
        have: usize,
    },
    /// A field contradicts the standard or another one.
    Malformed {
        /// Which header.
        layer: &'static str,
        /// What is wrong with it.
        what: &'static str,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Truncated { layer, need, have } => {
                write!(f, "{layer}: needs {need} bytes, only {have} are there")
            }
            Error::Malformed { layer, what } => write!(f, "{layer}: {what}"),
        }
    }
}

impl std::error::Error for Error {}

/// Refuses `bytes` that are shorter than `need`.
pub(crate) fn need(layer: &'static str, bytes: &[u8], need: usize) -> Result<(), Error> {
    if bytes.len() < need { Err(Error::Truncated { layer, need, have: bytes.len() }) } else { Ok(()) }
}
