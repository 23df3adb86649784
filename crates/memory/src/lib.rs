//! Memory shared with the kernel: the one place that maps any.
//!
//! [`Memory`] is a mapping of a descriptor or of nothing, whose bytes somebody else may change at any time. [`Piece`] is a
//! stretch of a file, which is read like a slice. [`Array`] are the elements of a BPF map.
#![warn(missing_docs)]

mod array;
mod mapping;
mod piece;

pub use array::Array;
pub use mapping::Memory;
pub use piece::Piece;
