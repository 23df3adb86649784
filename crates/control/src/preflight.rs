//! What must be true before the daemon touches anything.

use std::fs;
use std::path::Path;

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum PreflightError {
    #[error("this needs root (missing: {}); run it with sudo", missing.join(", "))]
    Privilege { missing: Vec<&'static str> },
    #[error("kernel {release} is too old; Sluice needs Linux 6.8 or newer")]
    Kernel { release: String },
    #[error("the kernel has no BTF at /sys/kernel/btf/vmlinux; use one built with CONFIG_DEBUG_INFO_BTF=y")]
    NoBtf,
}

/// Capability numbers of <linux/capability.h>.
const CAPABILITIES: [(u32, &str); 3] = [(12, "CAP_NET_ADMIN"), (38, "CAP_PERFMON"), (39, "CAP_BPF")];

const OLDEST: (u32, u32) = (6, 8);

pub fn check() -> Result<(), PreflightError> {
    privilege(&fs::read_to_string("/proc/self/status").unwrap_or_default())?;
    kernel(&fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default())?;
    if Path::new("/sys/kernel/btf/vmlinux").exists() { Ok(()) } else { Err(PreflightError::NoBtf) }
}

fn privilege(status: &str) -> Result<(), PreflightError> {
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0);
    let lacks = |(bit, _): &&(u32, &str)| effective & (1 << bit) == 0;
    let missing: Vec<&str> = CAPABILITIES.iter().filter(lacks).map(|(_, name)| *name).collect();
    if missing.is_empty() { Ok(()) } else { Err(PreflightError::Privilege { missing }) }
}

fn kernel(release: &str) -> Result<(), PreflightError> {
    let mut numbers = release.trim().split(|c: char| !c.is_ascii_digit()).map_while(|n| n.parse().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version >= OLDEST {
        Ok(())
    } else {
        Err(PreflightError::Kernel { release: release.trim().to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_kernels_are_refused() {
        assert!(kernel("6.8.0-45-generic\n").is_ok());
        assert!(kernel("7.0\n").is_ok());
        assert_eq!(
            kernel("6.1.0-18-amd64\n"),
            Err(PreflightError::Kernel { release: "6.1.0-18-amd64".into() })
        );
    }

    #[test]
    fn missing_capabilities_are_named() {
        assert!(privilege("Name:\tx\nCapEff:\t000001ffffffffff\n").is_ok());
        let missing = vec!["CAP_PERFMON", "CAP_BPF"];
        assert_eq!(privilege("CapEff:\t0000000000001000\n"), Err(PreflightError::Privilege { missing }));
    }
}
