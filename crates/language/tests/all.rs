//! Every test of the crate in one program, which links once and keeps both CPUs busy.

mod documents;
mod fuzz;
mod golden;
mod mutations;
mod properties;
mod typed;
