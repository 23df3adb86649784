//! `sluice lab ...`

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, bail};

use crate::branch::Hook;

#[derive(Debug, clap::Args)]
#[allow(missing_docs, reason = "clap would take it for help")]
pub struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Lay out a lab, start its gateway and leave both running
    Up {
        #[arg(value_name = "NAME")]
        lab: Lab,
        /// Hook the gateway's interfaces run on
        #[arg(long, default_value = "tc")]
        hook: Hook,
        /// Configuration of the gateway instead of the lab's own
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Lay out a lab of its own, run its traffic, report, tear it down
    Run(RunArgs),
    /// Tear down what `up` made, and what killed runs left behind
    Down {
        #[arg(value_name = "NAME")]
        lab: Lab,
    },
}

#[derive(Debug, clap::Args)]
pub struct RunArgs {
    #[arg(value_name = "NAME")]
    pub lab: Lab,
    /// Hook the gateway's interfaces run on
    #[arg(long, default_value = "both")]
    pub hook: Hooks,
    /// Write the results as JSON to this file (- = standard output)
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Configuration of the gateway instead of the lab's own (`branch` and `nat64` only)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// `linux` runs only what must pass, through plain kernel forwarding: the lab's own check
    #[arg(long, default_value = "sluice", hide = true)]
    pub gateway: GatewayKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Lab {
    /// Five zones, the WAN on VLAN 100, and a management network
    Branch,
    /// An office and a web server behind address translation (`run` only)
    Nat,
    /// A database that is reached with a grant only (`run` only)
    Gate,
    /// A branch office with DHCP, a delegated prefix and BGP (`run` only)
    Edges,
    /// A base station, the user plane of a mobile network, a data network (`run` only)
    Gtpu,
    /// One address whose datagrams three receivers share (`run` only)
    Fanout,
    /// An IPv6-only client and IPv4-only servers (`run` only)
    Nat64,
    /// The first section of docs/OPERATE.md, command by command (`run` only)
    Operate,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Hooks {
    Tc,
    Xdp,
    Both,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum GatewayKind {
    Sluice,
    Linux,
}

impl RunArgs {
    /// A configuration that would be ignored, or that is not there, is told before anything is laid out.
    pub fn check_config(&self) -> anyhow::Result<()> {
        let Some(file) = &self.config else { return Ok(()) };
        if !matches!(self.lab, Lab::Branch | Lab::Nat64) {
            let lab = clap::ValueEnum::to_possible_value(&self.lab);
            let lab = lab.as_ref().map_or("this one", |value| value.get_name());
            bail!(
                "the lab `{lab}` has a configuration of its own and takes no other one: leave out --config {}",
                file.display()
            );
        }
        fs::read(file).map(|_| ()).with_context(|| format!("cannot read {}", file.display()))
    }
}

impl Hooks {
    pub fn list(self) -> &'static [Hook] {
        match self {
            Hooks::Tc => &[Hook::Tc],
            Hooks::Xdp => &[Hook::Xdp],
            Hooks::Both => &[Hook::Tc, Hook::Xdp],
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn no_lab_ignores_a_configuration() {
        for lab in Lab::value_variants() {
            let with = |config: Option<&str>| RunArgs {
                lab: *lab,
                hook: Hooks::Both,
                json: None,
                config: config.map(PathBuf::from),
                gateway: GatewayKind::Sluice,
            };
            assert!(with(None).check_config().is_ok(), "{lab:?}");
            let refused = with(Some("/nonexistent")).check_config().unwrap_err();
            assert!(format!("{refused:#}").contains("/nonexistent"), "{refused:#}");
        }
    }
}
