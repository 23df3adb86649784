//! The configuration language of Sluice: Junos text, its tree, and the typed configuration it means.
//!
//! [`parse`] reads any Junos text, hierarchical or `set`, into a [`Tree`]; [`Tree::to_text`] and [`Tree::to_set`] print
//! it. [`compile`] refuses what the [`schema`] does not list and every name that leads nowhere, and returns the
//! [`Config`] that plans are made from. Nothing here touches files, devices or the network.

#![warn(missing_docs)]

mod check;
mod commands;
mod compile;
pub mod config;
pub mod dhcp;
pub mod dhcp_server;
mod edit;
mod error;
pub mod fan_out;
pub mod follows;
mod gate;
mod groups;
pub mod gtpu;
pub mod import;
mod lexer;
mod log;
pub mod nat;
mod parser;
mod predefined;
mod print;
pub mod protocols;
mod ranges;
pub mod router_advertisement;
mod schedule;
pub mod schema;
mod services;
mod stray;
mod tree;
mod values;

pub use compile::{application, compile};
pub use config::*;
pub use edit::Load;
pub use error::{Error, Errors, Location};
pub use predefined::names as predefined_applications;
pub use predefined::service_name;
pub use services::has_ports;
pub use tree::Tree;

/// Reads a text into a tree; `file` names it in errors.
pub fn parse(text: &str, file: &str) -> Result<Tree, Errors> {
    let mut tree = Tree::default();
    tree.read(text, file).map(|()| tree)
}

/// The words of a path, as they stand in a `set` command; names with blanks are quoted.
pub fn words(path: &str) -> Result<Vec<String>, Errors> {
    let mut report = error::Report::default();
    let lexemes = lexer::lex(path, &"path".into(), &mut report);
    let mut words = vec![];
    for lexeme in lexemes {
        match lexeme.token {
            lexer::Token::Word { text, .. } => words.push(text),
            _ => report.error(&lexeme.span.in_file(&"path".into()), "a path consists of words"),
        }
    }
    report.finish(words)
}
