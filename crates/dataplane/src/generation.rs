//! One generation: its tables, its programs, and the slot they stand in.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread;

use libbpf_rs::{MapCore, MapHandle};
use sluice_abi::tables::Tables;
use sluice_abi::{
    CONFIG_NO_SEQUENCE_CHECK, CONFIG_PERSISTENT_NAT, MAX_FANOUT_SLOTS, MAX_VARIANTS, ProgramConfig,
    REJUDGE_PER_TICK,
};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::error::{Doing, Error, Result};
use crate::examine::{self, Examined};
use crate::mmap::Mapped;
use crate::objects::{self, Frozen, ObjectKind, Recipe};
use crate::programs::{Key, Program};
use crate::rules::RuleTables;
use crate::{Dataplane, ProgramDetails, sys};

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

/// Programs that are no generation's.
const FIXED: [(ObjectKind, &[&str]); 2] = [
    (ObjectKind::Xdp, &["xdp_root", "xdp_gate", "xdp_sweep_start", "xdp_sweep", "xdp_reap"]),
    (ObjectKind::Tc, &["tc_root", "tc_gate", "tc_egress_root", "tc_finish", "read_clock"]),
];

/// A distinct set of optional stages. Its number is its place in the list given to [`Dataplane::load`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Variant {
    /// [`sluice_abi::stages::Stage::bit`]s
    pub stage_mask: u32,
}

/// A loaded generation. The kernel keeps its programs as long as its slot holds them, also after this is dropped.
#[derive(Debug)]
pub struct Generation {
    slot: u32,
    number: u32,
    tables: BTreeMap<&'static str, MapHandle>,
    pub(crate) programs: BTreeMap<Key, OwnedFd>,
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
    pub fn program(&self, hook: ObjectKind, variant: u32, program: Program) -> Option<BorrowedFd<'_>> {
        self.programs.get(&(hook, variant, program)).map(AsFd::as_fd)
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

        let config = self.program_config(tables, slot, generation);
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

    fn program_config(&self, tables: &Tables, slot: u32, generation: u32) -> ProgramConfig {
        let (sizes, own) = (self.sizes(), crate::table_config(self.sizes(), self.seed));
        let sequence = if tables.flow.sequence_check { 0 } else { CONFIG_NO_SEQUENCE_CHECK };
        let persistent = if tables.nat.is_persistent() { CONFIG_PERSISTENT_NAT } else { 0 };
        ProgramConfig {
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
        }
    }

    /// What the verifier says of each program that these tables and variants ask for. Loads them and lets them go.
    pub fn examine(&self, tables: &Tables, variants: &[Variant]) -> Result<Vec<Examined>> {
        let maps = create_tables(tables)?;
        fill_tables(&maps, tables)?;
        let config = self.program_config(tables, 0, 1);
        let mut found = Vec::new();
        for hook in [ObjectKind::Xdp, ObjectKind::Tc] {
            let (programs, log) = objects::examining(|| self.load_hook(hook, &maps, variants, config))?;
            found.extend(examine::accounts(
                programs.iter().map(|((_, variant, _), fd)| (*variant, fd)),
                &log,
            )?);
        }
        Ok(found)
    }

    /// The same of the programs that serve every generation.
    pub fn examine_fixed(&self) -> Result<Vec<Examined>> {
        let mut found = Vec::new();
        for (hook, names) in FIXED {
            let config = ProgramConfig { hz: self.hz(), ..crate::table_config(self.sizes(), self.seed) };
            let load = || {
                objects::load(&Recipe {
                    kind: hook,
                    programs: names,
                    reuse: &|name| self.state.descriptor(hook, name),
                    create: &|_| true,
                    frozen: Frozen { config, root_variant: 0 },
                    entries: &|name| self.sizes().entries(name),
                })
            };
            let (object, log) = objects::examining(load)?;
            let programs = names.iter().map(|name| objects::program(&object, name));
            found.extend(examine::accounts(
                programs.collect::<Result<Vec<_>>>()?.iter().map(|fd| (0, fd)),
                &log,
            )?);
        }
        Ok(found)
    }

    /// Empties the idle slot. Call it after [`Dataplane::grace`]; the kernel then frees the old programs and tables.
    pub fn retire_idle(&self) -> Result<()> {
        let _changing = self.changing();
        self.clear_slot(1 - self.active_slot())
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
