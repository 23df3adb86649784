//! One generation: its tables, its programs, and the slot they stand in.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::thread;

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use sluice_abi::stages::Stage;
use sluice_abi::tables::Tables;
use sluice_abi::{
    CONFIG_NO_SEQUENCE_CHECK, CONFIG_PERSISTENT_NAT, MAX_FANOUT_SLOTS, MAX_VARIANTS, PROGRAM_EGRESS,
    PROGRAM_FAST, PROGRAM_KINDS, PROGRAM_NAT64, PROGRAM_SLOW, ProgramConfig, REJUDGE_PER_TICK, program_slot,
};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::error::{Doing, Error, Result};
use crate::mmap::Mapped;
use crate::objects::{self, Frozen, ObjectKind, Recipe};
use crate::rules::RuleTables;
use crate::{Dataplane, ProgramDetails, gate, reaper, sys};

const TABLES: [&str; 18] = [
    "units",
    "zone_pairs",
    "contexts",
    "rules",
    "classes",
    "rows",
    "service_terms",
    "screen_limits",
    "white_terms",
    "zone_limits",
    "fanout_listeners",
    "fanout_receivers",
    "fanout_lines",
    "nat_units",
    "nat_sources",
    "nat_rules",
    "nat_pools",
    "nat_ranges",
];

/// A distinct set of optional stages. Its number is its place in the list given to [`Dataplane::load`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Variant {
    /// [`sluice_abi::stages::Stage::bit`]s
    pub stage_mask: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProgramKind {
    Fast,
    Slow,
    /// tc, variant 0
    Egress,
    /// Of variants with packets between the families.
    Nat64,
}

impl ProgramKind {
    fn name(self, hook: ObjectKind) -> &'static str {
        match (hook, self) {
            (ObjectKind::Xdp, ProgramKind::Fast) => "xdp_fast",
            (ObjectKind::Xdp, ProgramKind::Nat64) => "xdp_nat64",
            (ObjectKind::Xdp, _) => "xdp_slow",
            (ObjectKind::Tc, ProgramKind::Fast) => "tc_fast",
            (ObjectKind::Tc, ProgramKind::Slow) => "tc_slow",
            (ObjectKind::Tc, ProgramKind::Egress) => "tc_egress",
            (ObjectKind::Tc, ProgramKind::Nat64) => "tc_nat64",
        }
    }

    fn number(self) -> usize {
        match self {
            ProgramKind::Fast => PROGRAM_FAST,
            ProgramKind::Slow => PROGRAM_SLOW,
            ProgramKind::Egress => PROGRAM_EGRESS,
            ProgramKind::Nat64 => PROGRAM_NAT64,
        }
    }
}

type Key = (ObjectKind, u32, ProgramKind);

/// A loaded generation. The kernel keeps its programs as long as its slot holds them, also after this is dropped.
#[derive(Debug)]
pub struct Generation {
    slot: u32,
    number: u32,
    tables: BTreeMap<&'static str, MapHandle>,
    programs: BTreeMap<Key, OwnedFd>,
}

impl Generation {
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// The commit it was loaded for.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// A program, for test runs.
    pub fn program(&self, hook: ObjectKind, variant: u32, kind: ProgramKind) -> Option<BorrowedFd<'_>> {
        self.programs.get(&(hook, variant, kind)).map(AsFd::as_fd)
    }

    /// What decides which policy a packet matches.
    pub fn rule_tables(&self) -> Result<RuleTables> {
        RuleTables::of(self)
    }

    pub(crate) fn table(&self, name: &str) -> &MapHandle {
        &self.tables[name]
    }

    /// What the kernel says of every program.
    pub fn programs(&self) -> Result<Vec<ProgramDetails>> {
        let details =
            |fd: &OwnedFd| sys::program_details(fd.as_fd()).doing(|| "examine a program".to_owned());
        self.programs.values().map(details).collect()
    }
}

impl Dataplane {
    /// Fills the idle slot with a new generation. On an error the slot is empty and the active generation untouched.
    pub fn load(&self, tables: &Tables, variants: &[Variant], generation: u32) -> Result<Generation> {
        let _changing = self.changing();
        tables.check()?;
        if !(1..=MAX_VARIANTS).contains(&variants.len()) {
            return Err(Error::Variants { count: variants.len(), limit: MAX_VARIANTS });
        }
        let slot = 1 - self.active_slot();
        self.clear_slot(slot)?;
        let maps = create_tables(tables)?;
        fill_tables(&maps, tables)?;

        let (sizes, own) = (self.sizes(), crate::table_config(self.sizes(), self.seed));
        let sequence = if tables.flow.sequence_check { 0 } else { CONFIG_NO_SEQUENCE_CHECK };
        let persistent = if tables.nat.is_persistent() { CONFIG_PERSISTENT_NAT } else { 0 };
        let config = ProgramConfig {
            slot,
            generation,
            unit_multiplier: tables.unit_multiplier,
            fanout_multiplier: tables.fan_out.multiplier,
            rejudge_per_tick: REJUDGE_PER_TICK,
            tcp_mss: tables.tcp_mss.into(),
            hz: self.hz(),
            gate_context: tables.gate.context,
            gate_zones: tables.gate.zones,
            cookie_key: [crate::random(), crate::random()],
            flags: own.flags | sequence | persistent,
            unanswered4: tables.flow.unanswered(sizes.sessions4),
            unanswered6: tables.flow.unanswered(sizes.sessions6),
            ..own
        };
        let load = |hook| self.load_hook(hook, &maps, variants, config);
        // the two objects have nothing in common but maps that exist; the verifier is most of the time
        let (xdp, tc) = thread::scope(|scope| {
            let xdp = scope.spawn(|| load(ObjectKind::Xdp));
            let tc = load(ObjectKind::Tc);
            (xdp.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), tc)
        });
        let mut programs = xdp?;
        programs.extend(tc?);
        let generation = Generation { slot, number: generation, tables: maps, programs };
        if let Err(error) = self.store_programs(&generation) {
            self.clear_slot(slot)?;
            return Err(error);
        }
        tracing::debug!(
            slot,
            generation = generation.number,
            tables = generation.tables.len(),
            "generation loaded"
        );
        Ok(generation)
    }

    fn load_hook(
        &self,
        hook: ObjectKind,
        tables: &BTreeMap<&'static str, MapHandle>,
        variants: &[Variant],
        config: ProgramConfig,
    ) -> Result<BTreeMap<Key, OwnedFd>> {
        let mut programs = BTreeMap::new();
        for (variant, Variant { stage_mask }) in (0u32..).zip(variants) {
            let mut kinds = vec![ProgramKind::Fast, ProgramKind::Slow];
            if hook == ObjectKind::Tc && variant == 0 {
                kinds.push(ProgramKind::Egress);
            }
            if stage_mask & Stage::Nat64.bit() != 0 {
                kinds.push(ProgramKind::Nat64);
            }
            let names: Vec<&str> = kinds.iter().map(|kind| kind.name(hook)).collect();
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
            for kind in kinds {
                programs.insert((hook, variant, kind), objects::program(&object, kind.name(hook))?);
            }
        }
        Ok(programs)
    }

    /// Slow programs first: a fast one must never miss its slow one.
    fn store_programs(&self, generation: &Generation) -> Result<()> {
        for kind in [ProgramKind::Slow, ProgramKind::Nat64, ProgramKind::Egress, ProgramKind::Fast] {
            for ((hook, variant, _), fd) in
                generation.programs.iter().filter(|((_, _, found), _)| *found == kind)
            {
                let slot = program_slot(generation.slot, *variant, kind.number());
                self.state
                    .programs(*hook)
                    .update(&slot.to_ne_bytes(), &fd.as_raw_fd().to_ne_bytes(), MapFlags::ANY)
                    .doing(|| format!("put {} into its slot", kind.name(*hook)))?;
            }
        }
        Ok(())
    }

    /// Empties the idle slot. Call it after [`Dataplane::grace`]; the kernel then frees the old programs and tables.
    pub fn retire_idle(&self) -> Result<()> {
        let _changing = self.changing();
        self.clear_slot(1 - self.active_slot())
    }

    fn clear_slot(&self, slot: u32) -> Result<()> {
        for hook in [ObjectKind::Xdp, ObjectKind::Tc] {
            let programs = self.state.programs(hook);
            for entry in 0..(MAX_VARIANTS * PROGRAM_KINDS) as u32 {
                let index = program_slot(slot, 0, 0) + entry;
                match programs.delete(&index.to_ne_bytes()) {
                    Err(error) if error.kind() != libbpf_rs::ErrorKind::NotFound => {
                        return Err(error)
                            .doing(|| format!("empty slot {slot} of the {} programs", hook.name()));
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Whether the active slot holds a program.
    pub(crate) fn is_loaded(&self, hook: ObjectKind, variant: u32, kind: ProgramKind) -> bool {
        let slot = program_slot(self.active_slot(), variant, kind.number());
        matches!(self.state.programs(hook).lookup(&slot.to_ne_bytes(), MapFlags::ANY), Ok(Some(_)))
    }

    /// Whether a generation is active, perhaps one that an earlier daemon loaded.
    pub fn has_generation(&self) -> bool {
        self.is_loaded(ObjectKind::Tc, 0, ProgramKind::Egress)
    }
}

/// Tables of a configuration's size; the others have the object's.
fn create_tables(tables: &Tables) -> Result<BTreeMap<&'static str, MapHandle>> {
    let entries = |name: &str| {
        let needed = match name {
            "rules" => tables.rules.len(),
            "classes" => tables.classes.len(),
            "rows" => tables.rows.len(),
            "service_terms" => tables.service_terms.len(),
            "fanout_listeners" if !tables.fan_out.listeners.is_empty() => MAX_FANOUT_SLOTS,
            "fanout_receivers" => tables.fan_out.receivers.len(),
            "fanout_lines" => tables.fan_out.lines.len(),
            "fanout_listeners" => 1,
            "nat_rules" => tables.nat.rules.len(),
            "nat_pools" => tables.nat.pools.len(),
            "nat_ranges" => tables.nat.ranges.len(),
            _ => return None,
        };
        Some(needed.max(1) as u32)
    };
    let object = objects::load(&Recipe {
        kind: ObjectKind::Tc,
        programs: &[],
        reuse: &|_| None,
        create: &|name| TABLES.contains(&name),
        frozen: Frozen::default(),
        entries: &entries,
    })?;
    TABLES.into_iter().map(|name| Ok((name, objects::map(&object, name)?))).collect()
}

fn fill_tables(maps: &BTreeMap<&'static str, MapHandle>, tables: &Tables) -> Result<()> {
    fill(&maps["units"], tables.units.iter().map(|(slot, unit)| (*slot, *unit)))?;
    fill(&maps["zone_pairs"], tables.zone_pairs.iter().copied().enumerate())?;
    fill(&maps["rules"], tables.rules.iter().copied().enumerate())?;
    fill(&maps["contexts"], tables.contexts.iter().copied().enumerate())?;
    fill(&maps["classes"], tables.classes.iter().copied().enumerate())?;
    fill(&maps["rows"], tables.rows.iter().copied().enumerate())?;
    fill(&maps["service_terms"], tables.service_terms.iter().copied().enumerate())?;
    fill(&maps["screen_limits"], tables.screen_limits.iter().copied().enumerate())?;
    fill(&maps["white_terms"], tables.white_terms.iter().copied().enumerate())?;
    fill(&maps["zone_limits"], tables.zone_limits.iter().copied().enumerate())?;
    fill(&maps["fanout_listeners"], tables.fan_out.listeners.iter().map(|l| (l.slot, l.entry)))?;
    fill(&maps["fanout_receivers"], tables.fan_out.receivers.iter().copied().enumerate())?;
    fill(&maps["fanout_lines"], tables.fan_out.lines.iter().copied().enumerate())?;
    fill(&maps["nat_units"], tables.nat.units.iter().copied().enumerate())?;
    fill(&maps["nat_sources"], tables.nat.sources.iter().copied().enumerate())?;
    fill(&maps["nat_rules"], tables.nat.rules.iter().copied().enumerate())?;
    fill(&maps["nat_pools"], tables.nat.pools.iter().copied().enumerate())?;
    fill(&maps["nat_ranges"], tables.nat.ranges.iter().copied().enumerate())
}

fn fill<T>(map: &MapHandle, entries: impl Iterator<Item = (usize, T)>) -> Result<()>
where
    T: FromBytes + IntoBytes + Immutable + Copy,
{
    let mapped = Mapped::new(map).doing(|| format!("map table {}", map.name().to_string_lossy()))?;
    for (index, entry) in entries {
        mapped.write(index as u32, entry);
    }
    Ok(())
}
