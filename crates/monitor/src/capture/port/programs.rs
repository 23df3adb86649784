//! The programs that make copies, and how they stand before the gateway's.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use libbpf_rs::{MapCore, MapFlags, MapHandle, Object, ObjectBuilder};
use sluice_libbpf::program::{by_id, details, name_of};
use sluice_libbpf::{Link, Target, device};

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/copies.bpf.o"));

/// Copies a millisecond and CPU, at most: what a port may lose of its CPU to the monitor.
const MOST_PER_MILLISECOND: u32 = 1000;
/// Names of the gateway's programs at the entries of a port, and of the one that takes the place of the first.
const XDP_ROOT: &str = "xdp_root";
const TC_ROOT: &str = "tc_root";
const XDP_COPY: &str = "copy_xdp";
/// Where the gateway's program is kept while a copying one has its place: a port must go on when the monitor is killed.
const PINS: &str = "/sys/fs/bpf/sluice-monitor";

/// Programs in place on a port. What is asked of them after they were put there works from every network namespace.
pub struct Tap {
    pub copies: MapHandle,
    lost: MapHandle,
    entry: Entry,
    /// Before the gateway's programs; they go with their descriptors.
    _tcx: Vec<Link>,
}

/// Where received frames are copied. The gateway's links are known by number: a descriptor would keep its program on the port
/// when the gateway lets go of it.
enum Entry {
    /// Before the gateway's program on this link.
    Tc {
        link: u32,
    },
    Xdp(Displaced),
}

/// A program of ours in the place of the gateway's, and how that one is called and put back.
struct Displaced {
    link: u32,
    copier: OwnedFd,
    copier_id: u32,
    root: OwnedFd,
    kept: MapHandle,
    pin: PathBuf,
}

/// How a tap finds itself.
pub enum Standing {
    InPlace,
    /// The gateway has replaced the tap by another program of its own.
    Displaced,
    Gone,
}

impl Tap {
    /// Whether a gateway's programs stand on the port, or what a killed monitor left in their place.
    pub fn is_wanted(ifindex: u32) -> bool {
        xdp_entry(ifindex).is_some() || tc_root(ifindex).is_some()
    }

    /// Puts copying programs before the gateway's.
    pub fn set_up(ifindex: u32, everything: bool) -> io::Result<Tap> {
        let object = load(everything)?;
        let (copies, lost) = (map(&object, "copies")?, map(&object, ".data.lost")?);
        let mut tcx = vec![Link::attach(program(&object, "copy_sent")?, ifindex, Target::TcxEgress)?];
        let entry = match (xdp_entry(ifindex), tc_root(ifindex)) {
            (Some((id, name)), _) => Entry::Xdp(displace(&object, ifindex, id, &name)?),
            (None, Some(link)) => {
                let received = program(&object, "copy_received")?;
                tcx.push(Link::attach(received, ifindex, Target::TcxIngress)?);
                Entry::Tc { link }
            }
            (None, None) => return Err(io::Error::new(io::ErrorKind::NotFound, "the gateway left the port")),
        };
        Ok(Tap { copies, lost, entry, _tcx: tcx })
    }

    /// Whether the programs still stand where they see every frame.
    pub fn standing(&self) -> Standing {
        let link = match &self.entry {
            Entry::Tc { link } => *link,
            Entry::Xdp(displaced) => displaced.link,
        };
        let Ok(now) = on_link(link) else { return Standing::Gone };
        match &self.entry {
            Entry::Xdp(displaced) if now == displaced.copier_id => Standing::InPlace,
            Entry::Xdp(_) => Standing::Displaced,
            Entry::Tc { .. } if name_of(now).as_deref() == Some(TC_ROOT) => Standing::InPlace,
            Entry::Tc { .. } => Standing::Gone,
        }
    }

    /// Takes the place of the program that the gateway has there now.
    pub fn renew(&mut self) -> io::Result<()> {
        let Entry::Xdp(displaced) = &mut self.entry else { return Ok(()) };
        let root = by_id(on_link(displaced.link)?)?;
        keep(&displaced.kept, &root)?;
        update(displaced.link, &displaced.copier)?;
        displaced.root = root;
        Ok(())
    }

    /// Copies that were not made.
    pub fn lost(&self) -> u64 {
        let value = self.lost.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).ok().flatten().unwrap_or_default();
        value
            .chunks_exact(8)
            .filter_map(|word| word.first_chunk())
            .map(|word| u64::from_ne_bytes(*word))
            .sum()
    }
}

impl Drop for Displaced {
    /// Gives the gateway's program its place back.
    fn drop(&mut self) {
        let is_ours = on_link(self.link).is_ok_and(|program| program == self.copier_id);
        if is_ours && let Err(error) = update(self.link, &self.root) {
            // Frames go on through the copying program, which needs its pin.
            eprintln!(
                "sluice monitor: cannot give the gateway's program its place back: {error}; the next commit does"
            );
        } else if let Err(error) = fs::remove_file(&self.pin) {
            eprintln!("sluice monitor: cannot remove {}: {error}", self.pin.display());
        }
    }
}

fn load(everything: bool) -> io::Result<Object> {
    let mut builder = ObjectBuilder::default();
    let mut open = builder.open_memory(OBJECT).map_err(io::Error::other)?;
    let mut config = [0; 8];
    config[..4].copy_from_slice(&MOST_PER_MILLISECOND.to_ne_bytes());
    config[4..].copy_from_slice(&u32::from(everything).to_ne_bytes());
    for mut map in open.maps_mut().filter(|map| map.name() == ".rodata.config") {
        map.set_initial_value(&config).map_err(io::Error::other)?;
    }
    open.load().map_err(|error| io::Error::other(format!("cannot load the copying programs: {error}")))
}

fn program(object: &Object, name: &str) -> io::Result<OwnedFd> {
    let found = object.progs().find(|program| program.name() == name);
    found.ok_or(io::ErrorKind::NotFound)?.as_fd().try_clone_to_owned()
}

fn map(object: &Object, name: &str) -> io::Result<MapHandle> {
    let found = object.maps().find(|map| map.name() == name).ok_or(io::ErrorKind::NotFound)?;
    MapHandle::try_from(&found).map_err(io::Error::other)
}

/// Takes the place of the gateway's XDP program. Its link is changed, never detached: no frame meets a bare port.
fn displace(object: &Object, ifindex: u32, present: u32, name: &str) -> io::Result<Displaced> {
    let missing = || io::Error::new(io::ErrorKind::NotFound, "the gateway's program is on no link");
    let link = device::xdp_link(ifindex, present).ok_or_else(missing)?;
    let pin = pin_of(ifindex)?;
    // What a killed monitor left knows the gateway's program by its pinned map.
    let root = if name == XDP_COPY { kept_program(&pin)? } else { by_id(present)? };
    let kept = map(object, "copied_root")?;
    keep(&kept, &root)?;
    let copier = program(object, XDP_COPY)?;
    let copier_id = details(&copier)?.id;
    fs::create_dir_all(PINS)?;
    let fresh = PathBuf::from(format!("{}_new", pin.display()));
    // Usually there is none.
    let _ = fs::remove_file(&fresh);
    sluice_libbpf::pin(&kept, &fresh)?;
    if let Err(error) = update(link, &copier) {
        fs::remove_file(&fresh)?;
        return Err(error);
    }
    fs::rename(&fresh, &pin)?;
    Ok(Displaced { link, copier, copier_id, root, kept, pin })
}

/// The program that is called when a frame was copied.
fn keep(kept: &MapHandle, root: &OwnedFd) -> io::Result<()> {
    let fd = root.as_raw_fd() as u32;
    kept.update(&0u32.to_ne_bytes(), &fd.to_ne_bytes(), MapFlags::ANY).map_err(io::Error::other)
}

/// Interfaces have their numbers within a network namespace. The file system takes no dots in names.
fn pin_of(ifindex: u32) -> io::Result<PathBuf> {
    let namespace = fs::metadata("/proc/thread-self/ns/net")?.ino();
    Ok(Path::new(PINS).join(format!("{namespace}-{ifindex}")))
}

/// Id of the program on a link that still has its device.
fn on_link(link: u32) -> io::Result<u32> {
    let details = Link::by_id(link)?.details()?;
    if details.ifindex == 0 { Err(io::ErrorKind::NotFound.into()) } else { Ok(details.program_id) }
}

fn update(link: u32, program: &OwnedFd) -> io::Result<()> {
    Link::by_id(link)?.update(program)
}

fn kept_program(pin: &Path) -> io::Result<OwnedFd> {
    let kept = MapHandle::from_pinned_path(pin).map_err(io::Error::other)?;
    let id = kept.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).map_err(io::Error::other)?;
    let id = id.as_deref().and_then(|id| id.first_chunk()).ok_or(io::ErrorKind::NotFound)?;
    by_id(u32::from_ne_bytes(*id))
}

/// Id and name of the XDP program on a device of the calling thread's namespace, if it is the gateway's or a copying one.
fn xdp_entry(ifindex: u32) -> Option<(u32, String)> {
    let id = device::xdp(ifindex).ok()?.program_id;
    name_of(id).filter(|name| name == XDP_ROOT || name == XDP_COPY).map(|name| (id, name))
}

/// The link of the gateway's program at a device's tcx ingress.
fn tc_root(ifindex: u32) -> Option<u32> {
    let programs = device::tcx(ifindex, Target::TcxIngress).ok()?;
    programs.into_iter().find(|(id, _)| name_of(*id).as_deref() == Some(TC_ROOT)).map(|(_, link)| link)
}
