//! Network-namespace topologies: what the demo, the end-to-end tests and the bench run on.
//!
//! Everything happens inside namespaces that this crate makes and removes; the root namespace's devices and routes
//! are never touched.

#![warn(missing_docs)]

mod args;
pub mod bird;
pub mod branch;
pub mod browser;
pub mod capture;
pub mod demo;
pub mod devices;
mod edges;
mod fan_out;
pub mod frr;
mod gate;
pub mod gateway;
pub mod gnb;
mod gtpu;
pub mod helpers;
pub mod hosts;
pub mod interrupt;
mod matrix;
pub mod metrics;
mod nat;
mod nat64;
pub mod niceness;
mod operate;
pub mod patience;
mod probe;
mod receivers;
mod report;
mod scene;
mod services;
pub mod state;
pub mod stats;
pub mod stream;
mod updown;

use std::process::ExitCode;

pub use args::Args;
use args::Command;
pub use sluice_netns as netns;

/// Runs `sluice lab ...`.
pub fn main(args: Args) -> anyhow::Result<ExitCode> {
    if let Command::Run(args) = &args.command {
        args.check_config()?;
    }
    match args.command {
        Command::Up { lab: args::Lab::Branch, hook, config } => updown::up(hook, config.as_deref()),
        Command::Run(args) if args.lab == args::Lab::Nat64 => nat64::run(&args),
        Command::Run(args) if args.lab == args::Lab::Nat => nat::run_lab(&args),
        Command::Run(args) if args.lab == args::Lab::Edges => edges::run_lab(&args),
        Command::Run(args) if args.lab == args::Lab::Gate => gate::run_lab(&args),
        Command::Run(args) if args.lab == args::Lab::Gtpu => gtpu::run_lab(&args),
        Command::Run(args) if args.lab == args::Lab::Fanout => fan_out::run_lab(&args),
        Command::Run(args) if args.lab == args::Lab::Operate => operate::run_lab(&args),
        Command::Run(args) => demo::run(&args),
        Command::Down { .. } => updown::down(),
        Command::Up { .. } => {
            anyhow::bail!("only the lab `branch` can be left running; use `sluice lab run`")
        }
    }
}
