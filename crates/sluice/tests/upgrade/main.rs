//! Upgrades to other versions and back, under load: every session, translation and grant stays, nothing is lost and
//! nothing passes unjudged. The versions are built here, from sources that are not this one's.

#[path = "../common/mod.rs"]
mod common;

mod carried;
mod crashes;
mod load;
mod routes;
mod trees;
