//! How results are told: on the terminal, as a page, as files, beside those of another run.

pub mod compare;
pub(crate) mod csv;
pub mod html;
pub mod output;
pub mod published;
pub(crate) mod tables;
pub mod text;
