//! A gateway that files of the same world use one after the other: loading programs takes longer than most files.

use std::path::PathBuf;

use anyhow::Result;
use sluice_dataplane::Sizes;

use crate::case::File;
use crate::gateway::{Gateway, Hook};
use crate::world::World;

/// `T` is what a test makes of a gateway.
pub struct Kept<T> {
    hook: Hook,
    make: fn(Gateway) -> Result<T>,
    last: Option<(PathBuf, u32, T)>,
}

impl<T> Kept<T> {
    /// `make` is called when a file needs another gateway than the last one.
    pub fn new(hook: Hook, make: fn(Gateway) -> Result<T>) -> Kept<T> {
        Kept { hook, make, last: None }
    }

    /// What was made for a file before, or is made now; `File::all` has those that may share one behind each other.
    pub fn of(&mut self, file: &File) -> Result<&mut T> {
        // a file that changes its gateway has one of its own
        let whose = if file.changes_the_gateway() { &file.path } else { &file.world };
        let fits =
            |(made_for, sessions, _): &(PathBuf, u32, T)| (made_for, *sessions) == (whose, file.sessions);
        if !self.last.as_ref().is_some_and(fits) {
            // what is no more makes room first
            self.last = None;
            let world = World::read(&file.world)?;
            let config = std::fs::read_to_string(&world.config)?;
            let sizes = Sizes { sessions4: file.sessions, sessions6: file.sessions, ..Sizes::default() };
            let made = (self.make)(Gateway::new(world, &config, sizes, self.hook)?)?;
            self.last = Some((whose.clone(), file.sessions, made));
        }
        Ok(&mut self.last.as_mut().expect("it was made just now").2)
    }
}
