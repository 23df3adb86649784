//! What a thread does to the namespace that it is in.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::run_on;
use crate::{Error, Result};

/// What errors call it.
const NAME: &str = "the namespace of this thread";

/// Runs lines of `ip` commands, all of them; those that failed are in the error.
pub fn ip(lines: &[String]) -> Result<()> {
    batch(&["-force", "-batch", "-"], lines)
}

/// The same of commands that say nothing of the family, and mean IPv6.
pub fn ip6(lines: &[String]) -> Result<()> {
    batch(&["-6", "-force", "-batch", "-"], lines)
}

fn batch(options: &[&str], lines: &[String]) -> Result<()> {
    let text = lines.join("\n") + "\n";
    let output = run_on(Command::new("ip").args(options), &text)?;
    if output.status.success() {
        return Ok(());
    }
    let (numbered, said) = (text.lines().zip(1..), String::from_utf8_lossy(&output.stderr));
    let failed = numbered.filter(|(_, n)| said.contains(&format!("-:{n}\n"))).map(|(line, _)| line);
    let failed = failed.collect::<Vec<_>>().join("; ");
    Err(Error::Lines { said: said.trim().to_owned(), failed })
}

/// Sets `net/ipv4/ip_forward` and the like.
pub fn sysctl(key: &str, value: &str) -> Result<()> {
    write(key, value).map_err(|source| Error::Sysctl {
        key: key.to_owned(),
        value: value.to_owned(),
        name: NAME.to_owned(),
        source,
    })
}

/// Index of a device.
pub fn ifindex(device: &str) -> Result<u32> {
    index(device).map_err(|source| Error::Device { device: device.to_owned(), name: NAME.to_owned(), source })
}

/// Writes below /proc/sys. A key has slashes, or dots where no name in it has one.
pub(crate) fn write(key: &str, value: &str) -> io::Result<()> {
    fs::write(sysctl_path(key), value)
}

pub(crate) fn index(device: &str) -> io::Result<u32> {
    Ok(nix::net::if_::if_nametoindex(device)?)
}

fn sysctl_path(key: &str) -> PathBuf {
    let path = if key.contains('/') { key.to_owned() } else { key.replace('.', "/") };
    Path::new("/proc/sys").join(path)
}
