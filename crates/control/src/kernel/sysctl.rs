//! Settings below /proc/sys.

use std::fs;

use super::connection::{KernelError, Result};

/// Reads a file below /proc/sys.
pub fn sysctl(path: &str) -> Result<String> {
    let text = fs::read_to_string(format!("/proc/sys/{path}")).map_err(|e| sysctl_error("read", path, &e))?;
    Ok(text.trim().to_owned())
}

/// Writes a file below /proc/sys unless it holds the value already.
pub fn set_sysctl(path: &str, value: &str) -> Result<()> {
    if sysctl(path).is_ok_and(|current| current == value) {
        return Ok(());
    }
    fs::write(format!("/proc/sys/{path}"), value).map_err(|e| sysctl_error("write", path, &e))
}

/// A device goes back to what the whole machine is set to; one that is gone needs nothing.
pub fn stop_forwarding(device: &str) -> Result<()> {
    for family in ["ipv4", "ipv6"] {
        let path = format!("net/{family}/conf/{device}/forwarding");
        if sysctl(&path).is_ok() {
            set_sysctl(&path, &sysctl(&format!("net/{family}/conf/all/forwarding"))?)?;
        }
    }
    Ok(())
}

fn sysctl_error(verb: &str, path: &str, error: &std::io::Error) -> KernelError {
    KernelError {
        action: format!("{verb} /proc/sys/{path}"),
        reason: error.to_string(),
        advice: "run as root, with IPv6 enabled in the kernel and /proc/sys writable, or set it before the start (in a container: from the host)",
    }
}
