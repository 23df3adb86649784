//! Which channel a frame belongs to: one file a protocol, direct dispatch by the headers in front.

use crate::frame::Frame;
use crate::observation::{Observation, Unknown};

/// Reads a frame up to its sequence number.
#[inline]
pub fn observe(frame: &Frame<'_>) -> Result<Observation, Unknown> {
    let _ = frame;
    Err(Unknown::LinkType)
}
