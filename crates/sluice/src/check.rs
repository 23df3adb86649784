//! `sluice check`: everything that can be found wrong without touching anything.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::exit::{Failure, Outcome, read};

#[derive(Args)]
pub struct CheckArgs {
    /// Configuration file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Do not look at this machine, its kernel and interfaces: check for another one
    #[arg(long)]
    no_interfaces: bool,
    /// Print the plan: what the data plane and the kernel would get
    #[arg(long)]
    plan: bool,
}

pub fn check(args: &CheckArgs) -> Outcome {
    let text = read(&args.file)?;
    let file = args.file.display().to_string();
    if !args.no_interfaces {
        sluice_control::check_machine().map_err(Failure::failed)?;
    }
    let plan = sluice_control::check(&text, &file, !args.no_interfaces)?;
    for warning in sluice_language::parse(&text, &file).iter().flat_map(|tree| tree.warnings()) {
        eprintln!("sluice: warning: {warning}");
    }
    for remark in plan.remarks() {
        eprintln!("sluice: warning: {remark}");
    }
    if !args.no_interfaces {
        for unasked in sluice_control::check_asked(&text, &file, &plan).map_err(Failure::bad_input)? {
            eprintln!("sluice: note: {unasked}");
        }
    }
    if !args.no_interfaces && !sluice_control::check_loads(&plan).map_err(Failure::failed)? {
        eprintln!(
            "sluice: note: whether this kernel takes the programs was not tried; that takes root and /sys/fs/bpf"
        );
    }
    if args.plan {
        print!("{plan}");
    } else {
        let (units, zones, policies) = (plan.units.len(), plan.zones.len(), plan.policies.len());
        println!("{file}: ok ({units} units, {zones} zones, {policies} policies)");
    }
    Ok(ExitCode::SUCCESS)
}

impl From<sluice_control::CheckError> for Failure {
    fn from(error: sluice_control::CheckError) -> Self {
        Self::bad_input(error)
    }
}
