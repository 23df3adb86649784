//! What FRR and Kea say of a configuration that is only checked; a commit asks them too.

use std::fs;
use std::io;
use std::path::PathBuf;

use sluice_language::Config;
use sluice_language::dhcp_server::Family;
use sluice_plan::Plan;

use super::dhcp_server::process::{Place, program};
use super::dhcp_server::{Refused, kea};
use super::frr::{Frr, FrrError};
use super::router_advertisement::device_of;
use crate::state::files;

/// Why another program does not take its part of a configuration.
#[derive(Debug, thiserror::Error)]
#[error("{file}: {words}")]
pub struct AskedError {
    file: String,
    words: String,
}

/// Says what could not be asked, and why. The text is one that has a plan.
pub fn asked(text: &str, file: &str, plan: &Plan) -> Result<Vec<String>, AskedError> {
    let Ok(config) = sluice_language::parse(text, file).and_then(|tree| sluice_language::compile(&tree))
    else {
        return Ok(vec![]);
    };
    if plan.frr.is_empty() && config.dhcp_server.subnets.is_empty() {
        return Ok(vec![]);
    }
    let scratch = match Scratch::new() {
        Ok(scratch) => scratch,
        Err(error) => {
            return Ok(vec![format!("FRR and Kea were not asked: no room for a file to show them: {error}")]);
        }
    };
    let refused = |words: String| AskedError { file: file.to_owned(), words };
    let mut unasked = vec![];
    if !plan.frr.is_empty() {
        unasked.extend(frr(&plan.frr, &scratch).map_err(refused)?);
    }
    for family in Family::ALL {
        unasked.extend(server(&config, family, &scratch).map_err(refused)?);
    }
    Ok(unasked)
}

/// A directory for the questions, which goes with the answers.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> io::Result<Self> {
        let dir = std::env::temp_dir().join(format!("sluice-asked-{}", std::process::id()));
        files::make_dir(&dir)?;
        Ok(Self(dir))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // what remains of it is in a directory of temporary files
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn frr(text: &str, scratch: &Scratch) -> Result<Option<String>, String> {
    match Frr::of(&scratch.0, None).dry_run(text) {
        Ok(()) => Ok(None),
        Err(error @ FrrError::Refused(_)) => Err(error.to_string()),
        Err(error) => Ok(Some(format!("FRR was not asked whether it takes what `protocols` means: {error}"))),
    }
}

fn server(config: &Config, family: Family, scratch: &Scratch) -> Result<Option<String>, String> {
    let place = Place::of(&scratch.0, family);
    let statement = family.statement();
    let unasked = |why: &str| Ok(Some(format!("Kea was not asked whether it takes `{statement}`: {why}")));
    let text = match kea::text(config, &place) {
        Ok(Some(text)) => text,
        Ok(None) => return Ok(None),
        Err(error) => return unasked(&error.to_string()),
    };
    let Some(program) = program(family) else { return unasked("it is not installed") };
    // it would refuse devices that the commit makes
    let devices = config.dhcp_server.of(family).filter_map(|subnet| device_of(config, &subnet.unit));
    for device in devices {
        if nix::net::if_::if_nametoindex(device.as_str()).is_err() {
            return unasked(&format!("there is no {device} on this machine yet"));
        }
    }
    match place.try_out(&program, &text) {
        Ok(Ok(())) => Ok(None),
        Ok(Err(words)) => Err(Refused { statement, words }.to_string()),
        Err(error) => unasked(&error.to_string()),
    }
}
