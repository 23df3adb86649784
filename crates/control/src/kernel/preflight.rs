//! What must be true before the daemon touches anything.

use std::fs;
use std::io::Read;
use std::path::Path;

use flate2::read::GzDecoder;

/// What this machine lacks, and where to get it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "its variants and their fields are what their messages name")]
pub enum PreflightError {
    #[error("this needs root (missing: {}); run it with sudo", missing.join(", "))]
    Privilege { missing: Vec<&'static str> },
    #[error("kernel {release} is too old; Sluice needs Linux 6.8 or newer")]
    Kernel { release: String },
    #[error("there is no program `nft`, which puts up the guard; install the nftables package")]
    NoNft,
    #[error("the kernel has no BTF at /sys/kernel/btf/vmlinux; use one built with CONFIG_DEBUG_INFO_BTF=y")]
    NoBtf,
    #[error(
        "this is a PREEMPT_RT kernel {why}: there one packet may interrupt another on the same CPU, and both would \
         use the same memory; boot a kernel without PREEMPT_RT, or one built with \
         CONFIG_PREEMPT_RT_NEEDS_BH_LOCK=y"
    )]
    Realtime { why: &'static str },
}

/// Capability numbers of <linux/capability.h>. SYS_ADMIN is for what a daemon before has left: bpf(2) gives programs, maps and
/// types by number to nobody without, and what cannot be looked at would be taken for gone.
const CAPABILITIES: [(u32, &str); 4] =
    [(12, "CAP_NET_ADMIN"), (21, "CAP_SYS_ADMIN"), (38, "CAP_PERFMON"), (39, "CAP_BPF")];

/// Where the daemon finds programs that a plain user, who may check, does not.
const ADMINISTRATORS: &str = "/usr/local/sbin:/usr/sbin:/sbin";

const OLDEST: (u32, u32) = (6, 8);

/// What every command that touches the data plane needs.
pub fn check() -> Result<(), PreflightError> {
    privileged()?;
    able(&release())
}

pub fn privileged() -> Result<(), PreflightError> {
    privilege(&fs::read_to_string("/proc/self/status").unwrap_or_default())
}

fn able(release: &str) -> Result<(), PreflightError> {
    kernel(release)?;
    btf(Path::new("/sys/kernel/btf/vmlinux"))
}

fn btf(file: &Path) -> Result<(), PreflightError> {
    if file.exists() { Ok(()) } else { Err(PreflightError::NoBtf) }
}

/// `path` is a list of directories, as in the environment.
fn nft(path: &str) -> Result<(), PreflightError> {
    let is_there = path.split(':').any(|directory| Path::new(directory).join("nft").is_file());
    if is_there { Ok(()) } else { Err(PreflightError::NoNft) }
}

/// Whether this kernel can run the data plane.
pub fn machine() -> Result<(), PreflightError> {
    let release = release();
    able(&release)?;
    nft(&format!("{}:{ADMINISTRATORS}", std::env::var("PATH").unwrap_or_default()))?;
    let version = fs::read_to_string("/proc/sys/kernel/version").unwrap_or_default();
    let patched = fs::read_to_string("/sys/kernel/realtime").unwrap_or_default();
    softirqs(&version, &patched, kernel_config(release.trim()).as_deref())
}

fn release() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default()
}

/// What the running kernel was built with, where its distribution tells.
fn kernel_config(release: &str) -> Option<String> {
    let mut text = String::new();
    let packed = fs::File::open("/proc/config.gz").ok();
    if packed.is_some_and(|file| GzDecoder::new(file).read_to_string(&mut text).is_ok()) {
        return Some(text);
    }
    [format!("/boot/config-{release}"), format!("/lib/modules/{release}/config")]
        .iter()
        .find_map(|file| fs::read_to_string(file).ok())
}

/// The data plane's memory of a packet is per CPU. That holds while a softirq cannot interrupt another on its CPU;
/// PREEMPT_RT lets it, unless `local_bh_disable` takes a lock there.
fn softirqs(version: &str, patched: &str, config: Option<&str>) -> Result<(), PreflightError> {
    let has = |option: &str| config.is_some_and(|text| text.lines().any(|line| line.trim() == option));
    let is_realtime = version.split_whitespace().any(|word| word == "PREEMPT_RT")
        || patched.trim() == "1"
        || has("CONFIG_PREEMPT_RT=y");
    match (is_realtime, config) {
        (false, _) => Ok(()),
        (true, Some(_)) if has("CONFIG_PREEMPT_RT_NEEDS_BH_LOCK=y") => Ok(()),
        (true, Some(_)) => Err(PreflightError::Realtime { why: "without CONFIG_PREEMPT_RT_NEEDS_BH_LOCK" }),
        (true, None) => Err(PreflightError::Realtime {
            why: "whose configuration is not to be found (/proc/config.gz, /boot, /lib/modules)",
        }),
    }
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
    fn what_is_missing_is_named() {
        assert_eq!(btf(Path::new("/nowhere/vmlinux")), Err(PreflightError::NoBtf));
        assert_eq!(nft("/nowhere:/proc"), Err(PreflightError::NoNft));
        assert_eq!(nft(&format!("/nowhere:{ADMINISTRATORS}")), Ok(()));
    }

    #[test]
    fn missing_capabilities_are_named() {
        assert!(privilege("Name:\tx\nCapEff:\t000001ffffffffff\n").is_ok());
        let missing = vec!["CAP_SYS_ADMIN", "CAP_PERFMON", "CAP_BPF"];
        assert_eq!(privilege("CapEff:\t0000000000001000\n"), Err(PreflightError::Privilege { missing }));
    }

    #[test]
    fn units_and_manifests_give_what_is_demanded() {
        let unit = include_str!("../../../../contrib/systemd/sluice.service");
        let manifest = include_str!("../../../../contrib/k8s/fanout.yaml");
        let given = |text: &str, before: &str| -> Vec<String> {
            let line = text.lines().find_map(|line| line.trim().strip_prefix(before)).unwrap();
            let names = line.split(|c: char| !c.is_ascii_uppercase() && c != '_');
            names.map(|name| name.trim_start_matches("CAP_").to_owned()).collect()
        };
        let unit = given(unit, "CapabilityBoundingSet=");
        let manifest = given(manifest, "add:");
        for (_, name) in CAPABILITIES {
            let name = name.trim_start_matches("CAP_").to_owned();
            assert!(unit.contains(&name) && manifest.contains(&name), "{name}: {unit:?} {manifest:?}");
        }
    }

    #[test]
    fn realtime_kernels_need_the_lock_of_softirqs() {
        const PLAIN: &str = "#1 SMP PREEMPT_DYNAMIC Debian 6.12.117-1 (2026-11-14)\n";
        const REALTIME: &str = "#1 SMP PREEMPT_RT Debian 6.12.117-1 (2026-11-14)\n";
        const UNLOCKED: &str = "CONFIG_PREEMPT_RT=y\n# CONFIG_PREEMPT_RT_NEEDS_BH_LOCK is not set\n";
        const LOCKED: &str = "CONFIG_PREEMPT_RT=y\nCONFIG_PREEMPT_RT_NEEDS_BH_LOCK=y\n";
        let without = PreflightError::Realtime { why: "without CONFIG_PREEMPT_RT_NEEDS_BH_LOCK" };
        assert_eq!(softirqs(PLAIN, "", None), Ok(()));
        assert_eq!(softirqs(PLAIN, "", Some("# CONFIG_PREEMPT_RT is not set\n")), Ok(()));
        assert_eq!(softirqs(REALTIME, "", Some(LOCKED)), Ok(()));
        assert_eq!(softirqs(REALTIME, "", Some(UNLOCKED)), Err(without));
        assert!(softirqs(REALTIME, "", None).unwrap_err().to_string().contains("/proc/config.gz"));
        // before 5.16 and in hand-made kernels the version may not say it
        assert!(softirqs(PLAIN, "1\n", Some("")).is_err());
        assert!(softirqs(PLAIN, "", Some(UNLOCKED)).is_err());
    }
}
