//! Files that are there as a whole or not at all, whatever ends the process or fills the disk.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Ends the name of what is being written.
pub const NEW: &str = ".new";

/// Writes `NAME.new`, which [`keep`] makes `NAME`.
pub fn write_new(dir: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let path = dir.join(format!("{name}{NEW}"));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Puts what was written anew in the place of what was there. It lasts once [`sync`] has returned.
pub fn keep(dir: &Path, name: &str) -> io::Result<()> {
    fs::rename(dir.join(format!("{name}{NEW}")), dir.join(name))
}

/// What was begun takes the room that is missing.
pub fn forget_new(dir: &Path, name: &str) {
    let _ = fs::remove_file(dir.join(format!("{name}{NEW}")));
}

/// Names of a directory last from here on.
pub fn sync(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// All of it.
pub fn replace(dir: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let written = write_new(dir, name, bytes).and_then(|()| keep(dir, name));
    if written.is_err() {
        forget_new(dir, name);
    }
    written.and_then(|()| sync(dir))
}

/// False when it was not there.
pub fn remove(dir: &Path, name: &str) -> io::Result<bool> {
    match fs::remove_file(dir.join(name)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        done => done.and_then(|()| sync(dir)).map(|()| true),
    }
}

/// A directory for its owner alone.
pub fn make_dir(dir: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// What an earlier start under the umask of the unit (0027) made of the state directory.
const CLOSED_BY_UMASK: u32 = 0o750;

/// A directory that everybody may enter, whatever the umask: what stands in it has a mode of its own. One that is there stays as its
/// owner has it, unless a umask made it.
pub fn make_open_dir(dir: &Path) -> io::Result<()> {
    let open = || fs::set_permissions(dir, fs::Permissions::from_mode(0o755));
    match (fs::create_dir(dir), dir.parent()) {
        (Ok(()), _) => open(),
        (Err(error), Some(parent)) if error.kind() == io::ErrorKind::NotFound && parent != dir => {
            make_open_dir(parent)?;
            fs::create_dir(dir)?;
            open()
        }
        (Err(error), _) if error.kind() == io::ErrorKind::AlreadyExists => {
            let found = fs::metadata(dir)?;
            let is_ours = found.uid() == nix::unistd::geteuid().as_raw();
            if found.is_dir() && is_ours && found.mode() & 0o7777 == CLOSED_BY_UMASK {
                open()
            } else {
                Ok(())
            }
        }
        (Err(error), _) => Err(error),
    }
}

/// A checksum is the first field: of all that follows it, byte by byte.
pub const SEAL: &str = "{\n  \"checksum\": \"";
const SUM: usize = 8;

pub fn sealed(value: &impl Serialize) -> io::Result<Vec<u8>> {
    let plain = serde_json::to_vec_pretty(value)?;
    let rest = [b"\",", &plain[1..]].concat();
    let sum = format!("{:08x}", checksum(&rest));
    Ok([SEAL.as_bytes(), sum.as_bytes(), &rest].concat())
}

/// Those of versions that write no checksum are taken as they are.
pub fn unsealed<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    if let Some((sum, rest)) =
        bytes.strip_prefix(SEAL.as_bytes()).and_then(|bytes| bytes.split_at_checked(SUM))
        && sum != format!("{:08x}", checksum(rest)).as_bytes()
    {
        return Err("its checksum is wrong".to_owned());
    }
    serde_json::from_slice(bytes).map_err(|error| error.to_string())
}

fn checksum(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}
