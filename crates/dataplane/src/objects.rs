//! The two embedded BPF objects: what to create, re-use and freeze before the kernel sees them.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Once, OnceLock};

use flate2::read::ZlibDecoder;
use libbpf_rs::{
    MapCore, MapHandle, Object, ObjectBuilder, OpenObject, OpenProgramMut, PrintLevel, ProgramAttachType,
    set_print,
};
use sluice_abi::{CONFIG_ON_CPU, CONFIG_WEAK_ORDER, ProgramConfig};
use sluice_libbpf::program::ProgramDetails;
use sluice_libbpf::{btf, program};
use zerocopy::IntoBytes;

use crate::error::{Doing, Error, Result};
use crate::sys;

pub(crate) const CONFIG_SECTION: &str = ".rodata.config";
pub(crate) const ACTIVE_SECTION: &str = ".data.active";
pub(crate) const CLOCK_SECTION: &str = ".data.clock";

/// What every program is told of the machine it runs on.
pub(crate) const MACHINE_FLAGS: u32 = if cfg!(target_arch = "x86_64") { 0 } else { CONFIG_WEAK_ORDER };

static XDP_OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/xdp.bpf.o.zz"));
static TC_OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tc.bpf.o.zz"));

/// Which of the two objects, and for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectKind {
    /// Programs for XDP.
    Xdp,
    /// Programs for tc ingress and egress.
    Tc,
    /// The XDP object's once more, for CPUs that others leave packets to: the kernel has them in an array of their own.
    Cpu,
}

impl ObjectKind {
    /// As in names of pins.
    pub fn name(self) -> &'static str {
        match self {
            ObjectKind::Xdp => "xdp",
            ObjectKind::Tc => "tc",
            ObjectKind::Cpu => "cpu",
        }
    }

    /// As in names of programs.
    pub(crate) fn prefix(self) -> &'static str {
        if self == ObjectKind::Tc { "tc" } else { "xdp" }
    }
}

/// Values frozen into `.rodata.config`.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Frozen {
    pub config: ProgramConfig,
    pub root_variant: u32,
}

/// What one load takes from an object.
pub(crate) struct Recipe<'a> {
    pub kind: ObjectKind,
    pub programs: &'a [&'a str],
    /// Existing maps by the name they have in the object.
    pub reuse: &'a dyn Fn(&str) -> Option<BorrowedFd<'a>>,
    /// Which of the others to create.
    pub create: &'a dyn Fn(&str) -> bool,
    pub frozen: Frozen,
    /// Sizes of created maps that differ from the object's.
    pub entries: &'a dyn Fn(&str) -> Option<u32>,
}

thread_local! {
    /// What libbpf said on this thread since the last load began: the verifier's log, when there is one.
    static MESSAGES: RefCell<String> = const { RefCell::new(String::new()) };
    /// Whether the verifier is asked for its account of programs that load.
    static EXAMINING: Cell<bool> = const { Cell::new(false) };
}

/// Asks the verifier for its account (BPF_LOG_STATS).
const LOG_STATS: u32 = 4;

/// What the verifier says of everything that `work` loads on this thread.
pub(crate) fn examining<T>(work: impl Fn() -> Result<T>) -> Result<(T, String)> {
    route_messages();
    set_print(Some((PrintLevel::Debug, message)));
    EXAMINING.set(true);
    let result = work();
    EXAMINING.set(false);
    set_print(Some((PrintLevel::Info, message)));
    let account = MESSAGES.take();
    // who asks for an account gets no log of a refusal
    let result = if result.is_ok() { result } else { work() };
    Ok((result?, account))
}

/// Sends libbpf's messages to `tracing`, and keeps warnings for the error of the load that caused them.
fn route_messages() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        set_print(Some((PrintLevel::Info, message)));
    });
}

fn message(level: PrintLevel, text: String) {
    let line = text.trim_end();
    let account = EXAMINING.get() && line.contains("PROG LOAD LOG");
    match level {
        PrintLevel::Debug => tracing::trace!(target: "libbpf", "{line}"),
        PrintLevel::Info | PrintLevel::Warn => tracing::debug!(target: "libbpf", "{line}"),
    }
    if account || level == PrintLevel::Warn {
        MESSAGES.with_borrow_mut(|messages| *messages += &text);
    }
}

/// What libbpf said on this thread while `work` ran.
pub(crate) fn said_during(work: impl FnOnce()) -> String {
    route_messages();
    MESSAGES.with_borrow_mut(String::clear);
    work();
    MESSAGES.take()
}

/// An object that is kept packed.
pub(crate) fn unpacked(packed: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(packed.len() * 5);
    ZlibDecoder::new(packed).read_to_end(&mut bytes).expect("packed by build.rs");
    bytes
}

/// The object as it was compiled.
pub(crate) fn bytes(kind: ObjectKind) -> &'static [u8] {
    static XDP: OnceLock<Vec<u8>> = OnceLock::new();
    static TC: OnceLock<Vec<u8>> = OnceLock::new();
    match kind {
        ObjectKind::Xdp | ObjectKind::Cpu => XDP.get_or_init(|| unpacked(XDP_OBJECT)),
        ObjectKind::Tc => TC.get_or_init(|| unpacked(TC_OBJECT)),
    }
}

pub(crate) fn open(kind: ObjectKind) -> Result<OpenObject> {
    route_messages();
    let mut builder = ObjectBuilder::default();
    builder.name(kind.name()).doing(|| format!("name object {}", kind.name()))?;
    builder.open_memory(bytes(kind)).doing(|| format!("read object {}", kind.name()))
}

pub(crate) fn load(recipe: &Recipe<'_>) -> Result<Object> {
    let kind = recipe.kind;
    let mut object = open(kind)?;
    freeze(&mut object, kind, &recipe.frozen)?;
    for mut program in object.progs_mut() {
        let wanted = recipe.programs.iter().any(|name| program.name() == *name);
        program.set_autoload(wanted);
        attach_for(&mut program, kind);
        if EXAMINING.get() {
            program.set_log_level(LOG_STATS);
        }
    }
    for mut map in object.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        let doing = || format!("prepare map {name} of object {}", kind.name());
        if let Some(fd) = (recipe.reuse)(&name) {
            map.reuse_fd(fd).doing(doing)?;
        } else if (recipe.create)(&name) {
            if let Some(entries) = (recipe.entries)(&name) {
                map.set_max_entries(entries).doing(doing)?;
            }
        } else {
            map.set_autocreate(false).doing(doing)?;
        }
    }
    if !EXAMINING.get() {
        MESSAGES.with_borrow_mut(String::clear);
    }
    let loaded = object.load();
    let log = if EXAMINING.get() && loaded.is_ok() { String::new() } else { MESSAGES.take() };
    loaded.map_err(|source| Error::Load { object: kind.name(), source, log })
}

/// The kernel lets programs call each other that are for the same place.
pub(crate) fn attach_for(program: &mut OpenProgramMut<'_>, kind: ObjectKind) {
    if kind == ObjectKind::Cpu {
        program.set_attach_type(ProgramAttachType::XdpCpumap);
    }
}

fn freeze(object: &mut OpenObject, kind: ObjectKind, frozen: &Frozen) -> Result<()> {
    let config = location(object, "config", size_of::<ProgramConfig>())?;
    let variant = location(object, "root_variant", size_of::<u32>())?;
    let mut maps = object.maps_mut();
    let mut section = maps.find(|map| map.name() == CONFIG_SECTION).ok_or_else(|| missing(CONFIG_SECTION))?;
    let bytes = section.initial_value_mut().ok_or_else(|| missing(CONFIG_SECTION))?;
    let place = if kind == ObjectKind::Cpu { CONFIG_ON_CPU } else { 0 };
    let config_here = ProgramConfig { flags: frozen.config.flags | MACHINE_FLAGS | place, ..frozen.config };
    bytes[config].copy_from_slice(config_here.as_bytes());
    bytes[variant].copy_from_slice(frozen.root_variant.as_bytes());
    Ok(())
}

/// Bytes of a frozen variable in `.rodata.config`.
fn location(object: &OpenObject, variable: &str, size: usize) -> Result<std::ops::Range<usize>> {
    match btf::variable(object, CONFIG_SECTION, variable) {
        Some((offset, found)) if found == size => Ok(offset..offset + size),
        _ => Err(missing(variable)),
    }
}

/// Where `root_variant` lies in the section.
pub(crate) fn root_variant_offset(kind: ObjectKind) -> Result<usize> {
    Ok(location(&open(kind)?, "root_variant", size_of::<u32>())?.start)
}

pub(crate) fn program(object: &Object, name: &str) -> Result<OwnedFd> {
    let program = object.progs().find(|program| program.name() == name).ok_or_else(|| missing(name))?;
    sys::duplicate(&program).doing(|| format!("keep program {name}"))
}

pub(crate) fn map(object: &Object, name: &str) -> Result<MapHandle> {
    let map = object.maps().find(|map| map.name() == name).ok_or_else(|| missing(name))?;
    MapHandle::try_from(&map).doing(|| format!("keep map {name}"))
}

fn missing(what: &str) -> Error {
    Error::Object { what: what.to_owned() }
}

/// A loaded program and its maps; None when it is gone.
pub(crate) fn program_by_id(id: u32) -> Option<(ProgramDetails, Vec<MapHandle>)> {
    let details = program::details_by_id(id).ok()?;
    let maps = maps_by_id(&details.map_ids).collect();
    Some((details, maps))
}

/// Those that are still there.
fn maps_by_id(ids: &[u32]) -> impl Iterator<Item = MapHandle> {
    ids.iter().filter_map(|id| MapHandle::from_map_id(*id).ok())
}

/// Maps that programs work with, without those of the compiler and of the loader.
pub(crate) struct KnownMaps(BTreeMap<String, MapHandle>);

/// The kernel keeps so much of a map's name.
const NAME_BYTES: usize = 15;
pub(crate) const RODATA: &str = ".rodata";

impl KnownMaps {
    pub fn of(ids: &[u32]) -> KnownMaps {
        let named = maps_by_id(ids).map(|map| (map.name().to_string_lossy().into_owned(), map));
        KnownMaps(named.filter(|(name, _)| !name.contains(RODATA)).collect())
    }

    /// The one that stands for `name` of an object.
    pub fn descriptor(&self, name: &str) -> Option<BorrowedFd<'_>> {
        self.0.get(name.get(..NAME_BYTES).unwrap_or(name)).map(AsFd::as_fd)
    }
}

#[cfg(test)]
mod tests {
    use libbpf_rs::btf::{Btf, types};
    use sluice_abi::stages::Reason;

    /// Whoever finds these maps pinned reads there which counter is of which reason, whatever its own list says.
    #[test]
    fn type_information_names_every_reason() {
        let object = concat!(env!("OUT_DIR"), "/tc.bpf.o");
        let btf = Btf::from_path(object).unwrap();
        let reasons: types::Enum<'_> = btf.type_by_name("reason").unwrap();
        for reason in Reason::ALL {
            let name = format!("REASON_{}", reason.name().to_ascii_uppercase());
            let found = reasons.iter().find(|member| member.name.unwrap().to_str() == Some(&name));
            assert_eq!(found.map(|member| member.value), Some(reason as i64), "{name}");
        }
    }
}
