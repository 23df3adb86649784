//! Pinned links: `<pin>/links/{xdp,tcx_in,tcx_out}_<ifindex>`. An existing one is only ever updated.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use crate::error::{Doing, Result};
use crate::sys::{self, LinkDetails, Target};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    Xdp,
    TcxIn,
    TcxOut,
}

impl Place {
    /// In the order in which programs are taken off a device.
    pub const ALL: [Place; 3] = [Place::Xdp, Place::TcxIn, Place::TcxOut];

    pub fn name(self) -> &'static str {
        match self {
            Place::Xdp => "xdp",
            Place::TcxIn => "tcx_in",
            Place::TcxOut => "tcx_out",
        }
    }
}

/// A link and its pin.
#[derive(Debug)]
pub(crate) struct Pinned {
    pub place: Place,
    pub ifindex: u32,
    pub path: PathBuf,
    pub details: LinkDetails,
    fd: OwnedFd,
}

pub(crate) fn directory(pin: &Path) -> PathBuf {
    pin.join("links")
}

fn path(pin: &Path, place: Place, ifindex: u32) -> PathBuf {
    directory(pin).join(format!("{}_{ifindex}", place.name()))
}

impl Pinned {
    pub fn open(pin: &Path, place: Place, ifindex: u32) -> Result<Option<Pinned>> {
        let path = path(pin, place, ifindex);
        let fd = match sys::open_pin(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.doing(|| format!("open link {}", path.display()))?,
        };
        let details = sys::link_details(fd.as_fd()).doing(|| format!("examine link {}", path.display()))?;
        Ok(Some(Pinned { place, ifindex, path, details, fd }))
    }

    /// Attaches and pins; a link that cannot be pinned is gone again.
    pub fn create(
        pin: &Path,
        place: Place,
        ifindex: u32,
        target: Target,
        program: BorrowedFd<'_>,
    ) -> io::Result<Pinned> {
        let path = path(pin, place, ifindex);
        let fd = sys::link_create(program, ifindex, target)?;
        sys::pin(fd.as_fd(), &path)?;
        let details = sys::link_details(fd.as_fd())?;
        Ok(Pinned { place, ifindex, path, details, fd })
    }

    pub fn update(&self, program: BorrowedFd<'_>) -> Result<()> {
        sys::link_update(self.fd.as_fd(), program).doing(|| format!("update link {}", self.path.display()))
    }

    /// Takes the program off the device and removes the pin.
    pub fn remove(self) -> Result<()> {
        if self.details.ifindex != 0 {
            // a device that goes away at this moment detaches by itself
            if let Err(error) = sys::link_detach(self.fd.as_fd()) {
                tracing::debug!(%error, link = %self.path.display(), "detach");
            }
        }
        fs::remove_file(&self.path).doing(|| format!("remove {}", self.path.display()))
    }
}

/// Every pinned link, in the order of `Place::ALL` and then of the devices.
pub(crate) fn all(pin: &Path) -> Result<Vec<Pinned>> {
    let directory = directory(pin);
    let entries = match fs::read_dir(&directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.doing(|| format!("list {}", directory.display()))?,
    };
    let mut keys: Vec<(Place, u32)> = entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name();
            let (place, ifindex) = name.to_str()?.rsplit_once('_')?;
            let place = Place::ALL.into_iter().find(|candidate| candidate.name() == place)?;
            Some((place, ifindex.parse().ok()?))
        })
        .collect();
    keys.sort_unstable();
    keys.into_iter().filter_map(|(place, ifindex)| Pinned::open(pin, place, ifindex).transpose()).collect()
}

/// Removes the pins of links whose device is gone.
pub(crate) fn remove_dead(pin: &Path) -> Result<()> {
    for link in all(pin)?.into_iter().filter(|link| link.details.ifindex == 0) {
        tracing::info!(link = %link.path.display(), "its device is gone; removing the link");
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
