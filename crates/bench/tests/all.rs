//! The tests of the crate in one program, which links once and keeps both CPUs busy. Two have programs of their own: `busy`,
//! which must be without orphans of others, and `wire`, which judges rates.

mod checks;
mod docs;
mod floors;
mod harness;
mod mlr_oracle;
#[path = "report/main.rs"]
mod report;
mod schema;
mod verify;
