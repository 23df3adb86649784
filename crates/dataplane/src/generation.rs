//! One generation: its tables, its programs, and the slot they stand in.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use sluice_abi::tables::{FlowRules, Table, Tables};
use sluice_abi::{
    CONFIG_PERSISTENT_NAT, GENERATION_NO_SEQUENCE_CHECK, GENERATION_REVERSE_ACROSS_ZONES,
    Generation as Header, MAX_VARIANTS, ProgramConfig, REEVALUATED_PER_SECOND,
};
use sluice_libbpf::program;

use crate::error::{Doing, Error, Result};
use crate::examine::{self, Examined};
use crate::objects::{self, Frozen, ObjectKind, Recipe};
use crate::programs::{HOOKS, Key, Program};
use crate::rules::RuleTables;
use crate::slots::Filled;
use crate::{Dataplane, ProgramDetails, spread};

/// Programs that are no generation's.
const FIXED: [(ObjectKind, &[&str]); 3] = [
    (ObjectKind::Xdp, &["xdp_root", "xdp_gate", "xdp_sweep", "xdp_reap"]),
    (ObjectKind::Tc, &["tc_root", "tc_gate", "tc_egress_root", "tc_finish", "read_clock"]),
    (ObjectKind::Cpu, &[spread::ROOT]),
];

/// A distinct set of optional stages. Its number is its index in the list given to [`Dataplane::load`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variant {
    /// [`sluice_abi::stages::Stage::bit`]s
    pub stage_mask: u32,
    /// Those that devices with this variant have.
    pub hooks: Hooks,
}

impl Variant {
    /// For devices on either hook.
    pub fn new(stage_mask: u32) -> Variant {
        Variant { stage_mask, hooks: Hooks { xdp: true, tc: true, cpu: false } }
    }
}

/// Hooks on which some device runs a variant. The programs of others are not loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Hooks {
    /// In the driver or generic.
    pub xdp: bool,
    /// At tc.
    pub tc: bool,
    /// On CPUs that XDP leaves packets to, see [`sluice_abi::tables::Spread`].
    pub cpu: bool,
}

impl Hooks {
    pub(crate) fn has(self, hook: ObjectKind) -> bool {
        match hook {
            ObjectKind::Xdp => self.xdp,
            ObjectKind::Tc => self.tc,
            ObjectKind::Cpu => self.cpu,
        }
    }
}

/// A loaded generation. The kernel keeps its programs as long as its slot holds them, also after this is dropped.
#[derive(Debug)]
pub struct Generation {
    slot: u32,
    number: u32,
    tables: Filled,
    programs: BTreeMap<Key, OwnedFd>,
    loaded: usize,
}

impl Generation {
    /// Index of the slot it was loaded into: 0 or 1.
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

    /// How many of its programs were not in the slot and had to be loaded.
    pub fn programs_loaded(&self) -> usize {
        self.loaded
    }

    /// What decides which policy a packet matches.
    pub fn rule_tables(&self) -> RuleTables {
        RuleTables::of(&self.tables)
    }

    /// Every table with its entries and the bytes they take.
    pub fn tables_account(&self) -> Vec<(Table, usize, usize)> {
        self.tables.account()
    }

    pub(crate) fn tables(&self) -> &Filled {
        &self.tables
    }

    /// What the kernel says of every program.
    pub fn programs(&self) -> Result<Vec<ProgramDetails>> {
        let details = |fd: &OwnedFd| program::details(fd).doing(|| "examine a program".to_owned());
        self.programs.values().map(details).collect()
    }
}

impl Dataplane {
    /// Fills the idle slot with a new generation, and loads those of its programs that are not there. On an error the
    /// active generation is untouched.
    pub fn load(&self, tables: &Tables, variants: &[Variant], generation: u32) -> Result<Generation> {
        let _changing = self.changing();
        tables.check()?;
        self.sizes().check_room(tables)?;
        if !(1..=MAX_VARIANTS).contains(&variants.len()) {
            return Err(Error::Variants { count: variants.len(), limit: MAX_VARIANTS });
        }
        if tables.needs_extensions() {
            self.extend()?;
        }
        if tables.gtpu_sessions > 0 {
            self.make_gtpu_room(tables.gtpu_sessions)?;
        }
        if tables.gtpu_flows {
            self.make_flow_room()?;
        }
        self.prepare_spread(&tables.spread)?;
        let slot = 1 - self.active_slot();
        // packets that still run the slot's programs read its tables
        self.grace()?;
        self.put_back(slot)?;
        let filled = self.slots.fill(slot, tables, self.header(tables, generation))?;
        let found = self.find_or_load(slot, &filled, variants, self.frozen(slot, tables))?;
        if let Err(error) = self.store_programs(slot, &found) {
            self.clear_slot(slot)?;
            return Err(error);
        }
        let loaded = found.values().filter(|program| program.is_new).count();
        tracing::debug!(slot, generation, loaded, programs = found.len(), "generation loaded");
        let programs = found.into_iter().map(|(key, program)| (key, program.fd)).collect();
        Ok(Generation { slot, number: generation, tables: filled, programs, loaded })
    }

    /// What programs read of a commit beside its tables.
    fn header(&self, tables: &Tables, number: u32) -> Header {
        let sizes = self.sizes();
        Header {
            number,
            flags: flags_of(&tables.flow),
            unit_multiplier: tables.unit_multiplier,
            unit_shift: tables.unit_shift,
            fanout_multiplier: tables.fan_out.multiplier,
            gate_zones: tables.gate.zones,
            gate_context: tables.gate.context,
            tcp_mss: tables.tcp_mss.into(),
            lowest_ipv6_mtu: tables.lowest_ipv6_mtu.into(),
            unanswered4: tables.flow.unanswered(sizes.sessions4),
            unanswered6: tables.flow.unanswered(sizes.sessions6),
            cookie_key: [crate::random(), crate::random()],
            spread_limit: tables.spread.queue,
            spread: spread::shares(&tables.spread),
            ..Default::default()
        }
    }

    /// What is compiled into the programs of a slot.
    fn frozen(&self, slot: u32, tables: &Tables) -> ProgramConfig {
        let own = crate::table_config(self.sizes(), self.seed);
        let persistent = if tables.nat.is_persistent() { CONFIG_PERSISTENT_NAT } else { 0 };
        ProgramConfig {
            slot,
            reevaluated_per_tick: reevaluated_per_tick(self.hz()),
            hz: self.hz(),
            flags: own.flags | persistent,
            ..own
        }
    }

    /// What the verifier says of each program that these tables and variants ask for. Loads them and lets them go.
    pub fn examine(&self, tables: &Tables, variants: &[Variant]) -> Result<Vec<Examined>> {
        let (lines, config) = (self.slots.lines(0), self.frozen(0, tables));
        let mut found = Vec::new();
        for hook in HOOKS {
            let load = || self.load_variants(hook, &lines, variants, config);
            let (programs, log) = objects::examining(load)?;
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
            let config = self.fixed_config();
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

    /// Takes programs of other binaries and other state out of the idle slot, so that the kernel frees them and what
    /// they hold. Its own stay for the next commit. Call it after [`Dataplane::grace`]. A state of another version that
    /// was carried over goes with them.
    pub fn retire_idle(&self) -> Result<()> {
        let _changing = self.changing();
        self.put_back(1 - self.active_slot())?;
        self.clear_foreign(1 - self.active_slot())?;
        self.settle_spread()?;
        self.settle_state()
    }
}

/// Ticks may be long or short; flows are re-evaluated at the same rate.
pub(crate) fn reevaluated_per_tick(hz: u32) -> u32 {
    REEVALUATED_PER_SECOND.div_ceil(hz)
}

fn flags_of(flow: &FlowRules) -> u32 {
    let flags = [
        (!flow.sequence_check, GENERATION_NO_SEQUENCE_CHECK),
        (flow.reverse_across_zones, GENERATION_REVERSE_ACROSS_ZONES),
    ];
    flags.iter().filter(|(on, _)| *on).map(|(_, flag)| flag).sum()
}
