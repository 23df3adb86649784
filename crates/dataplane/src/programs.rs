//! The programs of a generation: which there are, what they are loaded with, and the slots they are called from.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use libbpf_rs::{MapCore, MapFlags, MapHandle};
pub use sluice_abi::programs::Program;
use sluice_abi::{MAX_VARIANTS, ProgramConfig, program_slot};

use crate::error::{Doing, Result};
use crate::objects::{self, Frozen, ObjectKind, Recipe};
use crate::{Dataplane, Generation, Variant, gate, reaper};

/// Hook, variant and program.
pub(crate) type Key = (ObjectKind, u32, Program);

const HOOKS: [ObjectKind; 2] = [ObjectKind::Xdp, ObjectKind::Tc];

/// Its name in the object of a hook.
fn symbol(hook: ObjectKind, program: Program) -> String {
    format!("{}_{}", hook.name(), program.name())
}

/// What a variant consists of on a hook. What leaves a device is the same for all variants.
fn needed(hook: ObjectKind, variant: u32, stage_mask: u32) -> impl Iterator<Item = Program> {
    Program::ALL.into_iter().filter(move |program| {
        program.needs().bit() & stage_mask != 0
            && (!program.is_tc_only() || hook == ObjectKind::Tc)
            && (*program != Program::Egress || variant == 0)
    })
}

impl Dataplane {
    pub(crate) fn load_hook(
        &self,
        hook: ObjectKind,
        tables: &BTreeMap<&'static str, MapHandle>,
        variants: &[Variant],
        config: ProgramConfig,
    ) -> Result<BTreeMap<Key, OwnedFd>> {
        let mut programs = BTreeMap::new();
        for (variant, Variant { stage_mask }) in (0u32..).zip(variants) {
            let kinds: Vec<Program> = needed(hook, variant, *stage_mask).collect();
            let symbols: Vec<String> = kinds.iter().map(|program| symbol(hook, *program)).collect();
            let names: Vec<&str> = symbols.iter().map(String::as_str).collect();
            let reuse =
                |name: &str| tables.get(name).map(AsFd::as_fd).or_else(|| self.state.descriptor(hook, name));
            let object = objects::load(&Recipe {
                kind: hook,
                programs: &names,
                reuse: &reuse,
                create: &|name| {
                    name != objects::CLOCK_SECTION
                        && !reaper::MAPS.contains(&name)
                        && !gate::MAPS.contains(&name)
                },
                frozen: Frozen {
                    config: ProgramConfig { variant, stage_mask: *stage_mask, ..config },
                    root_variant: variant,
                },
                entries: &|name| self.sizes().entries(name),
            })?;
            for (program, name) in kinds.into_iter().zip(names) {
                programs.insert((hook, variant, program), objects::program(&object, name)?);
            }
        }
        Ok(programs)
    }

    /// From the last program a packet meets to the first: none must ever miss the one that comes next.
    pub(crate) fn store_programs(&self, generation: &Generation) -> Result<()> {
        for program in Program::ALL.into_iter().rev() {
            let found = generation.programs.iter().filter(|((_, _, found), _)| *found == program);
            for ((hook, variant, _), fd) in found {
                let slot = program_slot(generation.slot(), *variant, program);
                self.state
                    .programs(*hook)
                    .update(&slot.to_ne_bytes(), &fd.as_raw_fd().to_ne_bytes(), MapFlags::ANY)
                    .doing(|| format!("put {} into its slot", symbol(*hook, program)))?;
            }
        }
        Ok(())
    }

    /// From the first program a packet meets to the last: who is on the way gets to the end.
    pub(crate) fn clear_slot(&self, slot: u32) -> Result<()> {
        for program in Program::ALL {
            for hook in HOOKS {
                (0..MAX_VARIANTS as u32).try_for_each(|variant| self.clear(hook, slot, variant, program))?;
            }
        }
        Ok(())
    }

    fn clear(&self, hook: ObjectKind, slot: u32, variant: u32, program: Program) -> Result<()> {
        let index = program_slot(slot, variant, program);
        match self.state.programs(hook).delete(&index.to_ne_bytes()) {
            Err(error) if error.kind() != libbpf_rs::ErrorKind::NotFound => {
                Err(error).doing(|| format!("empty the slot of {}", symbol(hook, program)))
            }
            _ => Ok(()),
        }
    }

    /// Whether the active slot holds a program.
    pub(crate) fn is_loaded(&self, hook: ObjectKind, variant: u32, program: Program) -> bool {
        let slot = program_slot(self.active_slot(), variant, program);
        matches!(self.state.programs(hook).lookup(&slot.to_ne_bytes(), MapFlags::ANY), Ok(Some(_)))
    }

    /// Whether a generation is active, perhaps one that an earlier daemon loaded.
    pub fn has_generation(&self) -> bool {
        self.is_loaded(ObjectKind::Tc, 0, Program::Egress)
    }
}
