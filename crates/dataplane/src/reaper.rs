//! Ends sessions through a program. The index's bucket locks may only be taken where softirqs are off, so user space
//! lists what shall end and test-runs `xdp_reap`, which checks each entry again before it acts.

use std::mem::offset_of;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

use sluice_abi::{ProgramConfig, REAP_MAX, ReapEntry, ReapHeader};

use crate::Sizes;
use crate::error::{Doing, Result};
use crate::mmap::{Array, array};
use crate::objects::{self, Frozen, ObjectKind, Recipe};
use crate::prog_run::{self, XdpRun};
use crate::sessions::Family;
use crate::state::State;

const LIST: &str = "reap_list";
const HEADER: &str = "reap_header";
pub(crate) const MAPS: [&str; 2] = [LIST, HEADER];

#[derive(Debug)]
pub(crate) struct Reaper {
    program: OwnedFd,
    list: Array<ReapEntry>,
    header: Array<ReapHeader>,
    busy: Mutex<()>,
    /// Its programs know the room for extensions.
    pub extended: bool,
}

impl Reaper {
    pub fn new(state: &State, sizes: Sizes, config: ProgramConfig) -> Result<Reaper> {
        let object = objects::load(&Recipe {
            kind: ObjectKind::Xdp,
            programs: &["xdp_reap"],
            reuse: &|name| state.descriptor(ObjectKind::Xdp, name),
            create: &|name| MAPS.contains(&name) || name == objects::CONFIG_SECTION,
            frozen: Frozen { config, ..Default::default() },
            entries: &|name| sizes.entries(name),
        })?;
        let map = |name: &str| objects::map(&object, name);
        Ok(Reaper {
            program: objects::program(&object, "xdp_reap")?,
            list: array(&map(LIST)?).doing(|| "map the list of sessions to end".to_owned())?,
            header: array(&map(HEADER)?).doing(|| "map the head of that list".to_owned())?,
            busy: Mutex::default(),
            extended: state.is_extended(),
        })
    }

    /// Ends the listed sessions and says how many ended.
    pub fn reap(&self, family: Family, entries: &[ReapEntry]) -> Result<u32> {
        let _busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        let mut ended = 0;
        for part in entries.chunks(REAP_MAX) {
            for (index, entry) in (0..).zip(part) {
                self.list.write(index, *entry);
            }
            let family = if family == Family::V4 { 4 } else { 6 };
            self.header.write(0, ReapHeader { family, count: part.len() as u32, ..Default::default() });
            prog_run::xdp(self.program.as_fd(), &XdpRun::new(&[0; 64], 0))?;
            ended += self.header.word(0, offset_of!(ReapHeader, reaped)).load(Ordering::Relaxed);
        }
        Ok(ended)
    }
}
