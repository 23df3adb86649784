//! The configuration language of Sluice: Junos text, its tree, and the typed configuration it means.
//!
//! [`parse`] reads any Junos text, hierarchical or `set`, into a [`Tree`]; [`Tree::to_text`] and [`Tree::to_set`] print
//! it. [`compile`] refuses what the [`schema`] does not list and every name that leads nowhere, and returns the
//! [`Config`] that plans are made from. Nothing here touches files, devices or the network.

mod check;
mod compile;
pub mod config;
mod error;
pub mod fan_out;
mod gate;
mod groups;
mod lexer;
pub mod nat;
mod parser;
mod predefined;
mod print;
mod ranges;
mod schedule;
pub mod schema;
mod services;
mod tree;
mod values;

pub use compile::{application, compile};
pub use config::*;
pub use error::{Error, Errors, Location};
pub use services::has_ports;
pub use tree::Tree;

/// Reads a text into a tree; `file` names it in errors.
pub fn parse(text: &str, file: &str) -> Result<Tree, Errors> {
    let mut tree = Tree::default();
    tree.read(text, file).map(|()| tree)
}
