//! One gateway a network namespace, and whose a directory of pins is.
//!
//! While a daemon runs, it holds a name among the namespace's abstract sockets. What outlives it, its pins, says whose it is:
//! `owner/is` is a symbolic link whose text names namespace and state directory. Versions that know nothing of it take no
//! notice of directories; pins without it are of such a version, and belong to who comes.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, connect, getsockopt, listen, socket, sockopt,
};

use crate::state::store;

/// Of the abstract socket.
const NAME: &[u8] = b"sluice-gateway";

#[derive(Debug, thiserror::Error)]
pub enum OwnerError {
    #[error(
        "a gateway (pid {pid}) runs in this network namespace, and there can be one; stop it, or run this one in a network \
         namespace of its own"
    )]
    Running { pid: i32 },
    #[error(
        "the data plane of {} is in force in this network namespace, and there can be one; start with that --state-dir, or \
         `sluice cleanup --state-dir {}` first",
        state.display(), state.display()
    )]
    Beside { state: PathBuf },
    #[error(
        "{} belongs to the gateway of {} in another network namespace, which is in force; give this one a state directory \
         whose last part is another name, or a BPF file system of its own (--bpffs)",
        pin.display(), state.display()
    )]
    Elsewhere { pin: PathBuf, state: PathBuf },
    #[error(
        "{} belongs to the gateway of {}; start with that --state-dir, or run `sluice cleanup --state-dir {}` first, or give \
         this one a state directory whose last part is another name",
        pin.display(), state.display(), state.display()
    )]
    Directory { pin: PathBuf, state: PathBuf },
    #[error("cannot {action}: {source}")]
    Os { action: String, source: io::Error },
}

fn os(action: impl Into<String>) -> impl FnOnce(io::Error) -> OwnerError {
    let action = action.into();
    move |source| OwnerError::Os { action, source }
}

/// The namespace is this process's gateway's as long as this lives.
#[derive(Debug)]
pub struct Namespace {
    inode: u64,
    _held: Option<OwnedFd>,
}

impl Namespace {
    pub fn lock() -> Result<Namespace, OwnerError> {
        let own = "/proc/thread-self/ns/net";
        let inode = fs::metadata(own).map_err(os(format!("examine {own}")))?.ino();
        Ok(Namespace { inode, _held: hold()? })
    }

    /// Refuses pins that are somebody else's, and to stand beside another gateway that is in force here.
    pub fn check(&self, pin: &Path, state_dir: &Path) -> Result<(), OwnerError> {
        let state = canonical(state_dir);
        if let Some(owner) = Owner::read(pin) {
            let pin = pin.to_owned();
            match (owner.netns == self.inode, owner.state == state) {
                (true, true) => {}
                (false, _) if owner.is_in_force(&pin)? => {
                    return Err(OwnerError::Elsewhere { pin, state: owner.state });
                }
                (true, false) if store::is_used(&owner.state) => {
                    return Err(OwnerError::Directory { pin, state: owner.state });
                }
                // its namespace is gone, or the directory has moved
                _ => {
                    tracing::info!(pin = %pin.display(), was = %owner.state.display(), "taking over pins nobody uses")
                }
            }
        }
        let root = pin.parent().unwrap_or(pin);
        let others = fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path());
        for other in others.filter(|other| other != pin) {
            let here = Owner::read(&other).filter(|owner| owner.netns == self.inode);
            if let Some(owner) = here
                && owner.is_in_force(&other)?
            {
                return Err(OwnerError::Beside { state: owner.state });
            }
        }
        Ok(())
    }

    /// From here on these pins are this gateway's.
    pub fn claim(&self, pin: &Path, state_dir: &Path) -> Result<(), OwnerError> {
        let owner = Owner { netns: self.inode, state: canonical(state_dir) };
        if Owner::read(pin).as_ref() == Some(&owner) {
            return Ok(());
        }
        let (path, next) = (record(pin), pin.join("owner/next"));
        let doing = || os(format!("write {}", path.display()));
        fs::create_dir_all(pin.join("owner")).map_err(doing())?;
        match fs::remove_file(&next) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(doing()(error)),
            _ => {}
        }
        symlink(owner.text(), &next).map_err(doing())?;
        fs::rename(&next, &path).map_err(doing())
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Owner {
    /// Inode of the network namespace: of those that live, only one has it.
    netns: u64,
    state: PathBuf,
}

fn record(pin: &Path) -> PathBuf {
    pin.join("owner/is")
}

impl Owner {
    fn read(pin: &Path) -> Option<Owner> {
        let text = fs::read_link(record(pin)).ok()?;
        let (netns, state) = text.to_str()?.strip_prefix("netns ")?.split_once(" state ")?;
        Some(Owner { netns: netns.parse().ok()?, state: state.into() })
    }

    fn text(&self) -> String {
        format!("netns {} state {}", self.netns, self.state.display())
    }

    /// Its programs are on devices, or its daemon runs.
    fn is_in_force(&self, pin: &Path) -> Result<bool, OwnerError> {
        let attached = sluice_dataplane::is_attached(pin)
            .map_err(|error| os(format!("examine {}", pin.display()))(io::Error::other(error)))?;
        Ok(attached || store::is_locked(&self.state))
    }
}

fn canonical(dir: &Path) -> PathBuf {
    fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned())
}

/// Anybody may take such a name, so who has it must be somebody whom a gateway could be run by. None = that is not so, and there
/// is nothing to hold.
fn hold() -> Result<Option<OwnedFd>, OwnerError> {
    let failed = |errno: Errno| os("lock the network namespace")(errno.into());
    let address = UnixAddr::new_abstract(NAME).map_err(failed)?;
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let make = || socket(AddressFamily::Unix, SockType::Stream, flags, None).map_err(failed);
    let own = make()?;
    match bind(own.as_raw_fd(), &address) {
        Ok(()) => {
            listen(&own, Backlog::MAXCONN).map_err(failed)?;
            return Ok(Some(own));
        }
        Err(Errno::EADDRINUSE) => {}
        Err(errno) => return Err(failed(errno)),
    }
    let probe = make()?;
    let holder =
        connect(probe.as_raw_fd(), &address).and_then(|()| getsockopt(&probe, sockopt::PeerCredentials));
    match holder {
        Ok(peer) if peer.uid() == 0 || peer.uid() == nix::unistd::geteuid().as_raw() => {
            Err(OwnerError::Running { pid: peer.pid() })
        }
        _ => {
            tracing::warn!(
                "somebody who is no gateway holds the name @sluice-gateway in this network namespace: nothing keeps a second \
                 gateway from being started here"
            );
            Ok(None)
        }
    }
}
