//! Memory shared with the kernel: the one place that maps any.
//!
//! [`Memory`] is a mapping of a descriptor or of nothing, whose bytes somebody else may change at any time. [`Piece`] is a
//! stretch of a file, which is read like a slice.

mod mapping;
mod piece;

pub use mapping::Memory;
pub use piece::Piece;
