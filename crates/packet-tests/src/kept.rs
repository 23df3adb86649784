//! A gateway that files of the same world use one after the other: loading programs takes longer than most files.

use std::path::PathBuf;

use anyhow::Result;
use sluice_dataplane::Sizes;

use crate::case::{Action, File};
use crate::gateway::{Gateway, Hook};
use crate::world::World;

pub struct Kept {
    hook: Hook,
    last: Option<(PathBuf, u32, Gateway)>,
}

impl Kept {
    pub fn new(hook: Hook) -> Kept {
        Kept { hook, last: None }
    }

    /// The gateway of a file, as its world describes it; `File::all` has those of one world behind each other.
    pub fn gateway(&mut self, file: &File) -> Result<&mut Gateway> {
        let fits =
            |(world, sessions, _): &(PathBuf, u32, _)| (world, *sessions) == (&file.world, file.sessions);
        let changed = changes_the_gateway(file);
        if changed || !self.last.as_ref().is_some_and(fits) {
            // what is no more makes room first
            self.last = None;
            let world = World::read(&file.world)?;
            let config = std::fs::read_to_string(&world.config)?;
            let sizes = Sizes { sessions4: file.sessions, sessions6: file.sessions, ..Sizes::default() };
            let gateway = Gateway::new(world, &config, sizes, self.hook)?;
            gateway.idle_near_ends()?;
            // nobody but this file asks for a world without a path
            let world = if changed { PathBuf::new() } else { file.world.clone() };
            self.last = Some((world, file.sessions, gateway));
        }
        Ok(&mut self.last.as_mut().expect("it was made just now").2)
    }
}

/// Whether a file leaves another configuration, or other addresses, than it found.
fn changes_the_gateway(file: &File) -> bool {
    let mut steps = file.cases.iter().flat_map(|case| &case.steps);
    steps.any(|step| matches!(step.action, Action::Commit(_) | Action::Ip(_)))
}
