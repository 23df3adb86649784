//! Traced programs in the places of a generation's own, and how those get their places back.
//!
//! A program whose place is taken is pinned first, under the number of its place, so that nothing depends on who took it.
//! Which program belongs in a place is written down in `loaded`, and does not change.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::time::Duration;

use libbpf_rs::{MapCore, MapFlags, MapHandle, Object, ObjectBuilder};
use nix::fcntl::Flock;
use sluice_abi::{MAX_VARIANTS, TraceConfig, TraceTotals, program_slot};
use sluice_libbpf::program;
use zerocopy::{FromBytes, IntoBytes};

use crate::carry::home;
use crate::error::{Doing, Error, Result};
use crate::loaded::id_at;
use crate::objects::{self, CONFIG_SECTION, KnownMaps, ObjectKind, RODATA, program_by_id};
use crate::programs::{HOOKS, Program, symbol};
use crate::sys;
use crate::{Dataplane, ProgramDetails};

use super::{EVENTS, UNITS, Untold};

static XDP_OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/xdp_traced.bpf.o.zz"));
static TC_OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tc_traced.bpf.o.zz"));

fn unpacked(hook: ObjectKind) -> Vec<u8> {
    objects::unpacked(if hook == ObjectKind::Tc { TC_OBJECT } else { XDP_OBJECT })
}

const CONFIG: &str = ".rodata.trace";
const TOTALS: &str = ".data.totals";
const LEASE: &str = ".data.lease";
const MEMORY: &str = "trace_memory";
/// How long whoever puts back what a killed trace left may take.
const PATIENCE: Duration = Duration::from_millis(500);

/// Where packets come in, and where they have their verdict, in the order in which they meet them.
const TRACED: [Program; 11] = [
    Program::Fast,
    Program::GtpuDecap,
    Program::GtpuSignal,
    Program::FastInner,
    Program::GtpuDevice,
    Program::Fanout,
    Program::Nat64,
    Program::Ungranted,
    Program::Leave,
    Program::GtpuEncap,
    Program::Egress,
];

/// A program of ours, and whose place it has.
struct Place {
    hook: ObjectKind,
    /// In the PROG_ARRAY.
    place: u32,
    program: Program,
    own: OwnedFd,
    /// What is there until then.
    before: u32,
}

/// What the traced programs of a slot are known by.
pub(super) struct Standing {
    slot: u32,
    /// Hook, place, and the program that stands there.
    places: Vec<(ObjectKind, u32, u32)>,
    totals: Vec<MapHandle>,
    leases: Vec<MapHandle>,
}

/// Loaded programs that are in no place yet.
struct Prepared {
    places: Vec<Place>,
    totals: Vec<MapHandle>,
    leases: Vec<MapHandle>,
}

impl Standing {
    /// Loads traced programs for the active slot and puts them into their places. None, if its programs were changed
    /// meanwhile.
    pub fn begin(
        dataplane: &Dataplane,
        config: &TraceConfig,
        events: &MapHandle,
        units: &MapHandle,
    ) -> Result<Option<Standing>> {
        let slot = dataplane.active_slot();
        let mut prepared = Prepared { places: vec![], totals: vec![], leases: vec![] };
        for hook in HOOKS {
            for variant in 0..MAX_VARIANTS as u32 {
                prepared.load(dataplane, (hook, slot, variant), config, [events, units])?;
            }
        }
        let Prepared { mut places, totals, leases } = prepared;
        let mut standing = Standing { slot, places: vec![], totals, leases };
        if places.is_empty() {
            return Ok(None);
        }
        // who begins a packet comes last, so that no end is without its beginning
        places.sort_by_key(|place| std::cmp::Reverse(place.program));
        let _changing = dataplane.changing();
        let programs = |place: &Place| dataplane.state.programs(place.hook);
        let is_as_before = |place: &Place| id_at(programs(place), place.place) == Some(place.before);
        if dataplane.active_slot() != slot || !places.iter().all(is_as_before) {
            return Ok(None);
        }
        for place in &places {
            dataplane.pin_original(place)?;
        }
        for place in &places {
            put(programs(place), place.place, &place.own)?;
            let id = id_at(programs(place), place.place).unwrap_or_default();
            standing.places.push((place.hook, place.place, id));
        }
        Ok(Some(standing))
    }

    /// Whether packets meet these programs.
    pub fn is_in_force(&self, dataplane: &Dataplane) -> bool {
        let is_there = |(hook, place, id): &(ObjectKind, u32, u32)| {
            id_at(dataplane.state.programs(*hook), *place) == Some(*id)
        };
        dataplane.active_slot() == self.slot && self.places.iter().all(is_there)
    }

    pub fn programs(&self) -> Result<Vec<ProgramDetails>> {
        let examine = |(_, _, id): &(_, _, u32)| {
            program::details_by_id(*id).doing(|| "examine a traced program".to_owned())
        };
        self.places.iter().map(examine).collect()
    }

    /// They tell of packets until then.
    pub fn extend_lease(&self, until_ns: u64) -> Result<()> {
        let write = |map: &MapHandle| map.update(&0u32.to_ne_bytes(), &until_ns.to_ne_bytes(), MapFlags::ANY);
        self.leases.iter().try_for_each(|map| write(map).doing(|| "go on with a trace".to_owned()))
    }

    pub fn untold(&self) -> Untold {
        let read = |map: &MapHandle| {
            let value = map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).ok().flatten()?;
            TraceTotals::read_from_bytes(&value).ok()
        };
        let mut sum = Untold::default();
        for totals in self.totals.iter().filter_map(read) {
            sum.rate += totals.left_out;
            sum.lost += totals.lost;
        }
        sum
    }
}

impl Prepared {
    /// Those of one variant on a hook, if it has any.
    fn load(
        &mut self,
        dataplane: &Dataplane,
        (hook, slot, variant): (ObjectKind, u32, u32),
        config: &TraceConfig,
        [events, units]: [&MapHandle; 2],
    ) -> Result<()> {
        let at = |program: Program| {
            let place = program_slot(slot, variant, program);
            Some((program, place, id_at(dataplane.state.programs(hook), place)?))
        };
        let present: Vec<(Program, u32, u32)> = Program::ALL.into_iter().filter_map(at).collect();
        // what another variant has, too, calls that one's programs: this one's own come in their places as well
        let is_shared = |program: Program, id: u32| {
            let mut others = (0..variant).map(|other| program_slot(slot, other, program));
            others.any(|place| id_at(dataplane.state.programs(hook), place) == Some(id))
        };
        let wanted: Vec<_> = present
            .iter()
            .filter(|(program, _, id)| TRACED.contains(program) || is_shared(*program, *id))
            .collect();
        let Some((.., first)) = present.first().filter(|_| !wanted.is_empty()) else { return Ok(()) };
        let known = present.iter().filter_map(|(.., id)| program::details_by_id(*id).ok());
        let ids: Vec<u32> = known.flat_map(|details| details.map_ids).collect();
        let own = KnownMaps::of(&ids);
        let lines = dataplane.slots.lines(slot);
        let maps = |name: &str| match name {
            EVENTS => Some(events.as_fd()),
            UNITS => Some(units.as_fd()),
            _ => {
                let shared = dataplane.slots.descriptor(slot, &lines, name);
                shared.or_else(|| dataplane.state.descriptor(hook, name)).or_else(|| own.descriptor(name))
            }
        };
        let missing = || Error::Object { what: CONFIG_SECTION.to_owned() };
        let frozen = frozen_of(*first).ok_or_else(missing)?;
        let names: Vec<String> = wanted.iter().map(|(program, ..)| symbol(hook, *program)).collect();
        let object = load(hook, &names, &maps, (&frozen, config))?;
        for ((program, place, before), name) in wanted.into_iter().zip(&names) {
            let own = objects::program(&object, name)?;
            self.places.push(Place { hook, place: *place, program: *program, own, before: *before });
        }
        self.totals.push(objects::map(&object, TOTALS)?);
        self.leases.push(objects::map(&object, LEASE)?);
        Ok(())
    }
}

/// What a program was frozen with.
fn frozen_of(id: u32) -> Option<Vec<u8>> {
    let (_, maps) = program_by_id(id)?;
    let config = maps.into_iter().find(|map| map.name() == CONFIG_SECTION)?;
    config.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).ok()?
}

/// Programs of an object that tell of packets, with the maps and what is frozen of those in whose places they come.
fn load<'a>(
    hook: ObjectKind,
    names: &[String],
    maps: &dyn Fn(&str) -> Option<BorrowedFd<'a>>,
    (frozen, config): (&[u8], &TraceConfig),
) -> Result<Object> {
    let doing = || format!("prepare the traced programs of {}", hook.name());
    let bytes = unpacked(hook);
    let mut builder = ObjectBuilder::default();
    builder.name(hook.name()).doing(doing)?;
    let mut object = builder.open_memory(&bytes).doing(doing)?;
    for mut program in object.progs_mut() {
        let is_wanted = names.iter().any(|name| program.name() == name.as_str());
        program.set_autoload(is_wanted);
        objects::attach_for(&mut program, hook);
    }
    for mut map in object.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        match (name.as_str(), maps(&name)) {
            (CONFIG, _) => map.set_initial_value(config.as_bytes()).doing(doing)?,
            (CONFIG_SECTION, _) => map.set_initial_value(frozen).doing(doing)?,
            (TOTALS | LEASE | MEMORY, _) => {}
            // tables of the compiler's making
            (name, _) if name.ends_with(RODATA) => {}
            (_, Some(present)) => map.reuse_fd(present).doing(doing)?,
            (_, None) => map.set_autocreate(false).doing(doing)?,
        }
    }
    let mut loaded = None;
    let log = objects::said_during(|| loaded = Some(object.load()));
    match loaded {
        Some(Ok(object)) => Ok(object),
        Some(Err(source)) => Err(Error::Load { object: hook.name(), source, log }),
        None => Err(Error::Object { what: hook.name().to_owned() }),
    }
}

fn put(programs: &MapHandle, place: u32, program: &OwnedFd) -> Result<()> {
    let fd = program.as_raw_fd();
    let put = programs.update(&place.to_ne_bytes(), &fd.to_ne_bytes(), MapFlags::ANY);
    put.doing(|| format!("put a program into place {place}"))
}

/// Hook and place that a pin is named after.
fn place_of(name: &str) -> Option<(ObjectKind, u32)> {
    let (hook, place) = name.split_once('_')?;
    let hook = HOOKS.into_iter().find(|known| known.name() == hook)?;
    Some((hook, place.parse().ok()?))
}

impl Dataplane {
    fn traced_directory(&self) -> PathBuf {
        self.state.directory().join(home::TRACED)
    }

    /// Whether the state is still the gateway's.
    pub(super) fn is_there(&self) -> bool {
        self.state.directory().join("programs_tc").exists()
    }

    /// There is one trace at a time. What another left behind is put back first.
    pub(super) fn begin_trace(&self) -> Result<Flock<File>> {
        let directory = self.traced_directory();
        let mut builder = DirBuilder::new();
        builder
            .recursive(true)
            .mode(0o700)
            .create(&directory)
            .doing(|| format!("create {}", directory.display()))?;
        let alone = sys::exclude(&directory, PATIENCE).ok_or(Error::AlreadyTraced)?;
        self.end_traced()?;
        Ok(alone)
    }

    fn pin_original(&self, place: &Place) -> Result<()> {
        let path = self.traced_directory().join(format!("{}_{}", place.hook.name(), place.place));
        let doing = || format!("pin {}", path.display());
        let original = program::by_id(place.before).doing(doing)?;
        sluice_libbpf::pin(&original, &path).doing(doing)
    }

    /// Every program whose place a traced one has gets it back.
    pub(super) fn end_traced(&self) -> Result<()> {
        let _changing = self.changing();
        (0..2).try_for_each(|slot| self.put_back(slot))
    }

    /// The same of a trace that nobody ends any more.
    pub fn end_abandoned_trace(&self) -> Result<()> {
        let directory = self.traced_directory();
        if self.traced_places()?.is_empty() {
            return Ok(());
        }
        let Some(_alone) = sys::exclude(&directory, Duration::ZERO) else { return Ok(()) };
        tracing::info!("a trace has ended without putting the gateway's programs back");
        self.end_traced()
    }

    /// The programs of a slot get back the places that traced ones have; the caller keeps others from changing them. First
    /// those that begin packets: an end without a beginning tells nothing.
    pub(crate) fn put_back(&self, slot: u32) -> Result<()> {
        let mut places = self.traced_places()?;
        let own = |place: u32| place / program_slot(1, 0, Program::Fast) == slot;
        places.retain(|(_, place, _)| own(*place));
        places.sort_by_key(|(_, place, _)| place % Program::ALL.len() as u32);
        for (hook, place, path) in places {
            self.put_original(hook, place, &path)?;
        }
        Ok(())
    }

    fn put_original(&self, hook: ObjectKind, place: u32, path: &PathBuf) -> Result<()> {
        let doing = || format!("put {} back", path.display());
        let original = program::pinned(path).doing(doing)?;
        let id = program::details(&original).doing(doing)?.id;
        let programs = self.state.programs(hook);
        // else a commit has given the place to another one
        if self.loaded.id(hook, place) == id && id_at(programs, place) != Some(id) {
            put(programs, place, &original)?;
        }
        fs::remove_file(path).doing(doing)
    }

    /// Hook, place and pin of every program that waits for its place.
    fn traced_places(&self) -> Result<Vec<(ObjectKind, u32, PathBuf)>> {
        let directory = self.traced_directory();
        let entries = match fs::read_dir(&directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
            other => other.doing(|| format!("read {}", directory.display()))?,
        };
        let place = |entry: fs::DirEntry| {
            let (hook, place) = place_of(&entry.file_name().to_string_lossy())?;
            Some((hook, place, entry.path()))
        };
        Ok(entries.flatten().filter_map(place).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What only traced programs have.
    const MAPS: [&str; 6] = [EVENTS, UNITS, MEMORY, CONFIG, TOTALS, LEASE];

    fn maps(object: &[u8]) -> Vec<String> {
        let object = ObjectBuilder::default().open_memory(object).unwrap();
        let names = object.maps().map(|map| map.name().to_string_lossy().into_owned());
        names.filter(|name| !name.ends_with(RODATA)).collect()
    }

    #[test]
    fn a_generations_own_programs_have_nothing_of_a_trace() {
        for hook in HOOKS {
            let (own, traced) = (maps(objects::bytes(hook)), maps(&unpacked(hook)));
            assert!(MAPS.iter().all(|map| traced.iter().any(|found| found == map)), "{traced:?}");
            let more: Vec<&String> = traced.iter().filter(|map| !own.contains(map)).collect();
            assert_eq!(more.len(), MAPS.len(), "{more:?}");
            assert_eq!(traced.len(), own.len() + MAPS.len());
        }
    }

    #[test]
    fn pins_are_named_after_places() {
        assert_eq!(place_of("tc_17"), Some((ObjectKind::Tc, 17)));
        assert_eq!(place_of("xdp_0"), Some((ObjectKind::Xdp, 0)));
        assert!(place_of("tc_").is_none() && place_of("tcx_in_3").is_none() && place_of("active").is_none());
    }
}
