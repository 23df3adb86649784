//! Every test of the crate in one program, which links once and keeps both CPUs busy.

mod attach;
mod carry;
mod common;
mod gate;
mod generations;
mod grants;
mod records;
mod sources;
mod state;
mod trace;
