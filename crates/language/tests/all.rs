//! Every test of the crate in one program, which links once and keeps both CPUs busy.

mod documents;
mod edit;
mod fuzz;
mod golden;
mod import;
mod mutations;
mod properties;
mod typed;
