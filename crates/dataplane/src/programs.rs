//! The programs of a generation: which there are, what they are loaded with, and the slots they are called from.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::thread;

use libbpf_rs::{MapCore, MapFlags};
pub use sluice_abi::programs::Program;
use sluice_abi::stages::Stage;
use sluice_abi::{MAX_VARIANTS, ProgramConfig, program_slot};
use sluice_libbpf::program;

use crate::error::{Doing, Result};
use crate::loaded::{Identity, id_at};
use crate::objects::{self, Frozen, KnownMaps, ObjectKind, Recipe};
use crate::slots::{Filled, Lines};
use crate::{Dataplane, Variant, gate, reaper};

/// Hook, variant and program.
pub(crate) type Key = (ObjectKind, u32, Program);

pub(crate) const HOOKS: [ObjectKind; 3] = [ObjectKind::Xdp, ObjectKind::Tc, ObjectKind::Cpu];

/// Its name in the object of a hook.
pub(crate) fn symbol(hook: ObjectKind, program: Program) -> String {
    format!("{}_{}", hook.prefix(), program.name())
}

/// A program of a generation.
pub(crate) struct Found {
    pub fd: OwnedFd,
    identity: Identity,
    /// Not in its slot yet.
    pub is_new: bool,
}

/// What a variant consists of on a hook. What leaves a device is the same for all variants, and there is always some.
fn needed(hook: ObjectKind, number: u32, variant: Variant) -> impl Iterator<Item = Program> {
    Program::ALL.into_iter().filter(move |program| {
        program.needs().bit() & variant.stage_mask != 0
            && (!program.is_tc_only() || hook == ObjectKind::Tc)
            // nothing but packets out of tunnels is left to CPUs
            && (variant.stage_mask & Stage::Gtpu.bit() != 0 || hook != ObjectKind::Cpu)
            && match program {
                Program::Egress => number == 0,
                _ => variant.hooks.has(hook),
            }
    })
}

/// What no device's own stages change: they come before the verdict, and from there on variants that differ in them alone
/// have the same programs. These call each other, and where this gateway answers, what the leader's devices take.
const SHARED: [Program; 5] =
    [Program::GtpuSignal, Program::Judge, Program::Record, Program::Leave, Program::GtpuEncap];
const OF_DEVICES: [Stage; 4] = [Stage::Screen, Stage::ScreenRate, Stage::ScreenFirst, Stage::Fanout];

/// What a variant consists of on a hook.
struct Parts {
    /// The variant before it whose programs it shares, and those.
    leader: u32,
    shared: Vec<Program>,
    own: Vec<Program>,
}

impl Parts {
    fn of(hook: ObjectKind, variants: &[Variant], number: u32) -> Parts {
        let wanted = variants[number as usize];
        let of_devices = OF_DEVICES.iter().fold(0, |mask, stage| mask | stage.bit());
        let leads = |other: &Variant| {
            other.hooks.has(hook) && (other.stage_mask ^ wanted.stage_mask) & !of_devices == 0
        };
        let leader = variants[..number as usize].iter().position(leads);
        let (shared, own) =
            needed(hook, number, wanted).partition(|program| leader.is_some() && SHARED.contains(program));
        Parts { leader: leader.unwrap_or_default() as u32, shared, own }
    }

    /// The maps that the leader's programs work with: they hand packets over in them. None where nothing is shared.
    fn maps<'a>(&self, leads: impl Fn(Program) -> Option<BorrowedFd<'a>>) -> Result<Vec<u32>> {
        let mut ids = BTreeSet::new();
        for program in self.shared.iter().filter_map(|program| leads(*program)) {
            ids.extend(program::details(program).doing(|| "examine a shared program".to_owned())?.map_ids);
        }
        Ok(ids.into_iter().collect())
    }
}

impl Dataplane {
    /// The programs of a slot: those that are there already, and the others loaded.
    pub(crate) fn find_or_load(
        &self,
        slot: u32,
        filled: &Filled,
        variants: &[Variant],
        config: ProgramConfig,
    ) -> Result<BTreeMap<Key, Found>> {
        // they have nothing in common but maps that exist; the verifier is most of the time
        let loaded = thread::scope(|scope| {
            let of = |hook| self.find_or_load_hook(hook, (slot, filled), variants, config);
            let threads = HOOKS.map(|hook| scope.spawn(move || of(hook)));
            threads.map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        let mut programs = BTreeMap::new();
        for found in loaded {
            programs.extend(found?);
        }
        Ok(programs)
    }

    /// Those of one hook.
    fn find_or_load_hook(
        &self,
        hook: ObjectKind,
        (slot, filled): (u32, &Filled),
        variants: &[Variant],
        config: ProgramConfig,
    ) -> Result<BTreeMap<Key, Found>> {
        let slot_maps = self.slots.map_ids(slot)?;
        let mut programs: BTreeMap<Key, Found> = BTreeMap::new();
        for (variant, wanted) in (0u32..).zip(variants) {
            let parts = Parts::of(hook, variants, variant);
            let lead = |program| programs.get(&(hook, parts.leader, program));
            let maps = parts.maps(|program| Some(lead(program)?.fd.as_fd()))?;
            let config = ProgramConfig { variant, stage_mask: wanted.stage_mask, ..config };
            let identity = self.loaded.identity(hook, &config, &[&slot_maps[..], &maps].concat());
            let find = |program: &Program| {
                let index = program_slot(slot, variant, *program);
                self.loaded.find(hook, self.state.programs(hook), index, identity)
            };
            let there: Option<Vec<OwnedFd>> = parts.own.iter().map(find).collect();
            let is_new = there.is_none();
            let fds = match there {
                Some(fds) => fds,
                None => self.load_variant(hook, filled.lines(), (&parts.own, &maps), config)?,
            };
            let mut found: Vec<(Program, Found)> = vec![];
            for program in &parts.shared {
                let Some(lead) = lead(*program) else { continue };
                let fd = lead.fd.try_clone().doing(|| "share a program".to_owned())?;
                let stands =
                    |variant| id_at(self.state.programs(hook), program_slot(slot, variant, *program));
                let is_new = lead.is_new || stands(variant) != stands(parts.leader);
                found.push((*program, Found { fd, identity: lead.identity, is_new }));
            }
            found.extend(
                parts.own.iter().zip(fds).map(|(program, fd)| (*program, Found { fd, identity, is_new })),
            );
            programs.extend(found.into_iter().map(|(program, found)| ((hook, variant, program), found)));
        }
        Ok(programs)
    }

    /// Loads the programs of all variants on a hook, each once.
    pub(crate) fn load_variants(
        &self,
        hook: ObjectKind,
        lines: &Lines,
        variants: &[Variant],
        config: ProgramConfig,
    ) -> Result<BTreeMap<Key, OwnedFd>> {
        let mut programs: BTreeMap<Key, OwnedFd> = BTreeMap::new();
        for (variant, wanted) in (0u32..).zip(variants) {
            let parts = Parts::of(hook, variants, variant);
            let maps = parts.maps(|program| programs.get(&(hook, parts.leader, program)).map(AsFd::as_fd))?;
            let config = ProgramConfig { variant, stage_mask: wanted.stage_mask, ..config };
            let fds = self.load_variant(hook, lines, (&parts.own, &maps), config)?;
            programs.extend(parts.own.into_iter().map(|program| (hook, variant, program)).zip(fds));
        }
        Ok(programs)
    }

    /// Loads programs of one variant, in the order of `wanted`; beside maps of the state and of the slot they work with
    /// those with the ids `shared`.
    fn load_variant(
        &self,
        hook: ObjectKind,
        lines: &Lines,
        (wanted, shared): (&[Program], &[u32]),
        config: ProgramConfig,
    ) -> Result<Vec<OwnedFd>> {
        let symbols: Vec<String> = wanted.iter().map(|program| symbol(hook, *program)).collect();
        let names: Vec<&str> = symbols.iter().map(String::as_str).collect();
        let shared = KnownMaps::of(shared);
        let reuse = |name: &str| {
            let own = self.slots.descriptor(config.slot, lines, name);
            own.or_else(|| self.state.descriptor(hook, name)).or_else(|| shared.descriptor(name))
        };
        let object = objects::load(&Recipe {
            kind: hook,
            programs: &names,
            reuse: &reuse,
            create: &|name| {
                name != objects::CLOCK_SECTION && !reaper::MAPS.contains(&name) && !gate::MAPS.contains(&name)
            },
            frozen: Frozen { config, root_variant: config.variant },
            entries: &|name| self.sizes().entries(name),
        })?;
        names.into_iter().map(|name| objects::program(&object, name)).collect()
    }

    /// From the last program a packet meets to the first: none must ever miss the one that comes next. What the slot had
    /// beside them goes.
    pub(crate) fn store_programs(&self, slot: u32, found: &BTreeMap<Key, Found>) -> Result<()> {
        for program in Program::ALL.into_iter().rev() {
            let new = found.iter().filter(|((_, _, of), found)| *of == program && found.is_new);
            for ((hook, variant, _), Found { fd, identity, .. }) in new {
                let (index, programs) = (program_slot(slot, *variant, program), self.state.programs(*hook));
                programs
                    .update(&index.to_ne_bytes(), &fd.as_raw_fd().to_ne_bytes(), MapFlags::ANY)
                    .doing(|| format!("put {} into its slot", symbol(*hook, program)))?;
                self.loaded.remember(*hook, programs, index, *identity)?;
            }
        }
        self.clear_where(slot, |hook, variant, program| !found.contains_key(&(hook, variant, program)))
    }

    pub(crate) fn clear_slot(&self, slot: u32) -> Result<()> {
        self.clear_where(slot, |_, _, _| true)
    }

    /// Empties a slot of what another binary or another state left there.
    pub(crate) fn clear_foreign(&self, slot: u32) -> Result<()> {
        self.clear_where(slot, |hook, variant, program| {
            let index = program_slot(slot, variant, program);
            self.loaded.is_foreign(hook, self.state.programs(hook), index)
        })
    }

    /// From the first program a packet meets to the last, so that packets under way still find all that follow.
    fn clear_where(&self, slot: u32, unwanted: impl Fn(ObjectKind, u32, Program) -> bool) -> Result<()> {
        for program in Program::ALL {
            for hook in HOOKS {
                for variant in (0..MAX_VARIANTS as u32).filter(|variant| unwanted(hook, *variant, program)) {
                    self.clear(hook, slot, variant, program)?;
                }
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

    /// Takes a program out of the active slot. Packets that miss it end, counted; the next commit but one puts it back.
    /// For tests.
    pub fn remove_program(&self, program: Program) -> Result<()> {
        let _changing = self.changing();
        let slot = self.active_slot();
        self.clear_where(slot, |_, _, of| of == program)
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
