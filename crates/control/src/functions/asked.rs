//! What FRR and Kea say of a configuration that is only checked; a commit asks them too.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use sluice_language::Config;
use sluice_language::dhcp_server::Family;
use sluice_plan::Plan;

use super::dhcp::chance;
use super::dhcp_server::process::{Place, program};
use super::dhcp_server::{Refused, kea};
use super::frr::{Frr, FrrError};
use super::router_advertisement::device_of;

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

/// Names that are tried before the directory of temporary files is taken to be full of them.
const NAMES: usize = 16;

impl Scratch {
    /// Everybody may make names in the directory of temporary files: what is there already, be it a link, is not used.
    fn new() -> io::Result<Self> {
        let names = (0..NAMES).map(|_| chance::name("sluice-asked"));
        Self::of(names.map(|name| std::env::temp_dir().join(name)))
    }

    fn of(paths: impl Iterator<Item = PathBuf>) -> io::Result<Self> {
        for path in paths {
            match DirBuilder::new().mode(0o700).create(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => return made.map(|()| Self(path)),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
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
    let text = match kea::text(config, |_| true, &place) {
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn what_others_have_made_is_neither_used_nor_removed() {
        let foreseen = std::env::temp_dir().join(format!("sluice-asked-{}", std::process::id()));
        fs::create_dir(&foreseen).unwrap();
        let inside = |name: &str| foreseen.join(name);
        fs::create_dir(inside("theirs")).unwrap();
        symlink(inside("theirs"), inside("link")).unwrap();
        symlink(inside("nowhere"), inside("broken")).unwrap();
        let scratch = Scratch::new().unwrap();
        assert_ne!(scratch.0, foreseen);
        assert_eq!(fs::metadata(&scratch.0).unwrap().permissions().mode() & 0o777, 0o700);
        drop(scratch);
        let scratch = Scratch::of(["theirs", "link", "broken", "free"].map(inside).into_iter()).unwrap();
        assert_eq!(scratch.0, inside("free"));
        drop(scratch);
        assert!(Scratch::of(["theirs", "link", "broken"].map(inside).into_iter()).is_err());
        let mut left: Vec<_> =
            fs::read_dir(&foreseen).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["broken", "link", "theirs"]);
        fs::remove_dir_all(&foreseen).unwrap();
    }
}
