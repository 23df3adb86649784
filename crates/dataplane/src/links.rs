//! Pinned links: `<pin>/links/{xdp,tcx_in,tcx_out}_<ifindex>`. An existing one is only ever updated.

use std::fs;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use sluice_libbpf::device::{self, XdpMode};
use sluice_libbpf::{Link, LinkDetails, Target};

use crate::error::{Doing, Result};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AttachPoint {
    Xdp,
    TcxIn,
    TcxOut,
}

impl AttachPoint {
    /// In the order in which programs are taken off a device.
    pub const ALL: [AttachPoint; 3] = [AttachPoint::Xdp, AttachPoint::TcxIn, AttachPoint::TcxOut];

    pub fn name(self) -> &'static str {
        match self {
            AttachPoint::Xdp => "xdp",
            AttachPoint::TcxIn => "tcx_in",
            AttachPoint::TcxOut => "tcx_out",
        }
    }
}

/// A link and its pin.
#[derive(Debug)]
pub(crate) struct Pinned {
    pub point: AttachPoint,
    pub ifindex: u32,
    pub path: PathBuf,
    pub details: LinkDetails,
    link: Link,
}

pub(crate) fn directory(pin: &Path) -> PathBuf {
    pin.join("links")
}

fn path(pin: &Path, point: AttachPoint, ifindex: u32) -> PathBuf {
    directory(pin).join(format!("{}_{ifindex}", point.name()))
}

impl Pinned {
    pub fn open(pin: &Path, point: AttachPoint, ifindex: u32) -> Result<Option<Pinned>> {
        let path = path(pin, point, ifindex);
        let link = match Link::pinned(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.doing(|| format!("open link {}", path.display()))?,
        };
        let details = link.details().doing(|| format!("examine link {}", path.display()))?;
        Ok(Some(Pinned { point, ifindex, path, details, link }))
    }

    /// Attaches and pins; a link that cannot be pinned is gone again.
    pub fn create(
        pin: &Path,
        point: AttachPoint,
        ifindex: u32,
        target: Target,
        program: BorrowedFd<'_>,
    ) -> io::Result<Pinned> {
        let path = path(pin, point, ifindex);
        let link = Link::attach(program, ifindex, target)?;
        sluice_libbpf::pin(&link, &path)?;
        let details = link.details()?;
        Ok(Pinned { point, ifindex, path, details, link })
    }

    /// Whether its device is of the calling thread's network namespace. One that has moved to another keeps its programs, and its
    /// number as well, which a new device here may have by now.
    pub fn is_here(&self) -> bool {
        let holds = |target| {
            device::tcx(self.ifindex, target)
                .is_ok_and(|all| all.iter().any(|(_, link)| *link == self.details.id))
        };
        match self.point {
            _ if self.details.ifindex == 0 => false,
            AttachPoint::TcxIn => holds(Target::TcxIngress),
            AttachPoint::TcxOut => holds(Target::TcxEgress),
            AttachPoint::Xdp => device::xdp(self.ifindex).is_ok_and(|state| {
                state.mode == XdpMode::Several || state.program_id == self.details.program_id
            }),
        }
    }

    pub fn update(&self, program: BorrowedFd<'_>) -> Result<()> {
        self.link.update(program).doing(|| format!("update link {}", self.path.display()))
    }

    /// Takes the program off the device and removes the pin.
    pub fn remove(self) -> Result<()> {
        if self.details.ifindex != 0 {
            // a device that goes away at this moment detaches by itself
            if let Err(error) = self.link.detach() {
                tracing::debug!(%error, link = %self.path.display(), "detach");
            }
        }
        fs::remove_file(&self.path).doing(|| format!("remove {}", self.path.display()))
    }
}

/// Every pinned link, in the order of `AttachPoint::ALL` and then of the devices.
pub(crate) fn all(pin: &Path) -> Result<Vec<Pinned>> {
    let directory = directory(pin);
    let entries = match fs::read_dir(&directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.doing(|| format!("list {}", directory.display()))?,
    };
    let mut keys: Vec<(AttachPoint, u32)> = entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name();
            let (point, ifindex) = name.to_str()?.rsplit_once('_')?;
            let point = AttachPoint::ALL.into_iter().find(|candidate| candidate.name() == point)?;
            Some((point, ifindex.parse().ok()?))
        })
        .collect();
    keys.sort_unstable();
    keys.into_iter().filter_map(|(point, ifindex)| Pinned::open(pin, point, ifindex).transpose()).collect()
}

/// Removes the pins of links whose device is gone.
pub(crate) fn remove_dead(pin: &Path) -> Result<()> {
    remove(pin, "its device is gone", |link| link.details.ifindex == 0)
}

/// The same, and links whose device has moved to another network namespace than the calling thread's: what arrives there is not
/// ours.
pub(crate) fn remove_lost(pin: &Path) -> Result<()> {
    remove(pin, "its device is gone, or in another network namespace", |link| !link.is_here())
}

fn remove(pin: &Path, why: &str, is_lost: impl Fn(&Pinned) -> bool) -> Result<()> {
    for link in all(pin)?.into_iter().filter(is_lost) {
        tracing::info!(link = %link.path.display(), "{why}; removing the link");
        link.remove()?;
    }
    Ok(())
}

/// Whether programs pinned there are on a device, of whichever network namespace.
pub fn is_attached(pin: &Path) -> Result<bool> {
    Ok(all(pin)?.iter().any(|link| link.details.ifindex != 0))
}

pub(crate) fn detach_all(pin: &Path) -> Result<()> {
    all(pin)?.into_iter().try_for_each(Pinned::remove)
}
