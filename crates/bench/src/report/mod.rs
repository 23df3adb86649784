//! How results are told: on the terminal, as a page, as files, beside those of another run.

pub(crate) mod compare;
pub(crate) mod csv;
pub mod html;
pub(crate) mod output;
pub mod published;
pub(crate) mod tables;
pub(crate) mod text;
