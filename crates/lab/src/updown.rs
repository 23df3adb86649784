//! `sluice lab up` and `down`: the branch, left running for a person to work in.

use std::path::PathBuf;
use std::process::ExitCode;
use std::{mem, path::Path};

use anyhow::{Result, bail};

use crate::branch::{Branch, Hook, Site};
use crate::{demo, gateway, interrupt, netns, services, state};

const PREFIX: &str = "branch-";

/// Lays out the branch under fixed names, starts the daemon and the hosts' servers, and leaves them running.
pub fn up(hook: Hook, config: Option<&Path>) -> Result<ExitCode> {
    if netns::names().iter().any(|name| name.starts_with(PREFIX)) {
        bail!("the branch is up already; `sluice lab down branch` tears it down");
    }
    // Until everything runs, Ctrl-C takes the ordinary way out, which removes what is there so far.
    interrupt::install()?;
    state::remove_leftovers();
    let state = state_directory();
    gateway::remove_state(&state);
    let branch = Branch::create_named(Some(hook))?;
    branch.queue_per_cpu()?;
    std::fs::create_dir_all(&state)?;
    let hosts: Vec<_> = Site::ALL.iter().map(|site| branch.host(*site)).collect();
    let services = services::start(&hosts, &state)?;
    interrupt::check()?;
    let gateway = demo::start_gateway(hook, &branch, &state, config)?;
    // From here on only `down` ends them.
    mem::forget(gateway);
    mem::forget(services);
    branch.keep();
    print!("{}", instructions(hook, config, &state));
    Ok(ExitCode::SUCCESS)
}

/// Removes what `up` made and what killed runs left.
pub fn down() -> Result<ExitCode> {
    let leftovers = state::remove_leftovers();
    let removed = netns::remove_by_prefix(PREFIX);
    gateway::remove_state(&state_directory());
    println!("removed {} namespaces of the branch, {} of killed runs", removed.len(), leftovers.len());
    Ok(ExitCode::SUCCESS)
}

fn state_directory() -> PathBuf {
    std::env::temp_dir().join("sluice-lab-branch")
}

fn instructions(hook: Hook, config: Option<&Path>, state: &Path) -> String {
    let config = config.unwrap_or(Path::new("examples/branch.conf")).display();
    let mut text = format!(
        "The branch is up; its gateway runs {config} on the {} hook.\n\n  namespace       address\n",
        hook.name()
    );
    for site in Site::ALL {
        text += &format!("  {PREFIX}{:<9}{:<15} {}\n", site.name(), site.host4(), site.host6());
    }
    let state = state.display();
    text += &format!(
        "\nEvery host runs a web server on port 80 and iperf3 on port 5201. Get into one, or just run something:\n  \
         nsenter --net=/run/netns/branch-trust\n  \
         nsenter --net=/run/netns/branch-trust ping 10.0.30.100          # permitted\n  \
         nsenter --net=/run/netns/branch-untrust curl http://10.0.1.100  # permitted: web only\n  \
         nsenter --net=/run/netns/branch-untrust ping 10.0.1.100         # denied\n  \
         nsenter --net=/run/netns/branch-dmz curl http://10.0.2.100      # rejected\n\
         \nAsk the gateway, change its policies, and see the difference:\n  \
         sluice show sessions --state-dir {state}\n  \
         sluice show drops --state-dir {state}\n  \
         sluice commit my.conf --state-dir {state}\n  \
         nsenter --net=/run/netns/branch-gw curl http://127.0.0.1:8080/api/stats\n\
         \n`sluice lab down branch` tears it down.\n"
    );
    text
}
