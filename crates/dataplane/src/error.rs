//! What can go wrong, in words an operator can act on.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

use sluice_abi::tables::TooLarge;
use sluice_abi::{GRANT_LABEL_BYTES, GRANT_LENGTHS};

/// What the kernel, or the pinned state, does not let happen.
#[allow(missing_docs, reason = "its variants and their fields are what their messages name")]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot {action}: {source}")]
    Bpf { action: String, source: libbpf_rs::Error },
    #[error("cannot {action}: {source}")]
    Os { action: String, source: io::Error },
    #[error("the kernel refuses the programs of {object}: {source}\n{}", last_lines(log))]
    Load { object: &'static str, source: libbpf_rs::Error, log: String },
    #[error(
        "{} is not inside a BPF file system; mount one with `mount -t bpf bpf /sys/fs/bpf` or choose another place",
        path.display()
    )]
    NotBpffs { path: PathBuf },
    #[error(
        "{} has {what} {found}, this configuration needs {wanted}; `sluice cleanup --keep-commits` removes it together \
         with all sessions, then start again",
        path.display()
    )]
    Incompatible { path: PathBuf, what: &'static str, found: u64, wanted: u64 },
    #[error(
        "{} belongs to the pinned state but cannot be opened: {source}; `sluice cleanup --keep-commits` removes the \
         rest together with all sessions, then start again",
        path.display()
    )]
    Damaged { path: PathBuf, source: libbpf_rs::Error },
    #[error(
        "the pinned map {map} was made by another version and cannot be carried over: {why}; the data plane goes on as it \
         was. Start the version that made it, or run `sluice cleanup --keep-commits`, which ends all sessions, and start again"
    )]
    Uncarried { map: String, why: String },
    #[error(
        "{} belongs to the pinned state and is not there; `sluice cleanup --keep-commits` removes the rest together with \
         all sessions, then start again",
        path.display()
    )]
    Missing { path: PathBuf },
    #[error(
        "{what} have numbers up to {highest}, and there are counters for {room}; start the daemon again with this \
         configuration, and it makes more (sessions stay)"
    )]
    NoCounters { what: &'static str, highest: u32, room: u32 },
    #[error("{sessions} {family} are configured; between 1 and {limit} are possible")]
    Sizes { family: &'static str, sessions: u32, limit: u32 },
    #[error("packets are being traced or captured already, by another process; one can at a time")]
    AlreadyTraced,
    #[error(
        "the gateway's state was put away meanwhile, by a start of another version or by `sluice cleanup`; begin anew"
    )]
    TraceGone,
    #[error(transparent)]
    Grants(#[from] Refused),
    #[error(transparent)]
    Tables(#[from] TooLarge),
    #[error(
        "CPU {cpu} cannot have packets of GTP-U spread to it: {source}; `processors` are numbers of CPUs that are online"
    )]
    SpreadCpu { cpu: u16, source: libbpf_rs::Error },
    #[error("{count} variants were asked for; between 1 and {limit} can be loaded at one time")]
    Variants { count: usize, limit: usize },
    #[error(
        "no generation is active that has variant {variant} for {hook}; load and switch before attaching"
    )]
    NotActive { hook: &'static str, variant: u32 },
    #[error(
        "the XDP hook of {interface} is taken by program {program_id} ({program_name}, {mode}); remove it with \
         `ip link set dev {interface} xdp off` or `bpftool link detach`, or use mode tc there"
    )]
    HookTaken { interface: String, program_id: u32, program_name: String, mode: &'static str },
    #[error("cannot attach {mode} XDP to {interface}: {}; {cure}", words.as_ref().unwrap_or(&source.to_string()))]
    Xdp {
        interface: String,
        mode: &'static str,
        /// Why, as the driver or the kernel put it.
        words: Option<String>,
        cure: String,
        source: io::Error,
    },
    #[error(
        "the kernel did not take up the sweep of the session table; idle sessions would never end: run `sluice cleanup \
         --keep-commits` and start again"
    )]
    Timer,
    #[error("generation {generation} is not loaded any more")]
    Replaced { generation: u32 },
    #[error("there is no room for GTP-U sessions: no configuration with `services gtp-u` was committed yet")]
    NoTunnels,
    #[error(
        "{wanted} GTP-U sessions are to be possible, and the pinned state was made with room for {room}; say at most that, or \
         run `sluice cleanup --keep-commits`, which ends all sessions, and start again"
    )]
    TunnelRoom { wanted: u32, room: u32 },
    #[error("no session has number {number}")]
    NoSession { number: u32 },
    #[error("next hop {index} is outside the table ({limit} entries)")]
    NoNexthop { index: u32, limit: u32 },
    #[error("{what} is missing in the BPF object; the program and its headers do not match")]
    Object { what: String },
}

/// Of a verifier's log, the end says why.
fn last_lines(log: &str) -> String {
    const LINES: usize = 12;
    let lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}

/// What this crate returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Says what was being done when libbpf or the kernel refused.
pub(crate) trait Doing<T> {
    fn doing(self, action: impl FnOnce() -> String) -> Result<T>;
}

impl<T> Doing<T> for libbpf_rs::Result<T> {
    fn doing(self, action: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| Error::Bpf { action: action(), source })
    }
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, action: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| Error::Os { action: action(), source })
    }
}

/// Why grants are not given.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "its variants and their fields are what their messages name")]
pub enum Refused {
    #[error(
        "{wanted} new grants, and there is room for {room} of {capacity}; revoke some, or raise max-grants"
    )]
    Full { wanted: usize, room: usize, capacity: u32 },
    #[error("{address}/{length} has a grant for this service already, given to {user}; revoke that first")]
    Taken { address: IpAddr, length: u8, user: String },
    #[error(
        "{address}/{length} has a grant for this service in the configuration, of {user}; change it there"
    )]
    Configured { address: IpAddr, length: u8, user: String },
    #[error(
        "grants for prefixes have {GRANT_LENGTHS} different lengths already, {length} is one more; use one of them"
    )]
    Lengths { length: u8 },
    #[error("user name `{user}`: 1 to {} bytes without control characters are possible", GRANT_LABEL_BYTES - 1)]
    User { user: String },
    #[error("{address}/{length} has host bits, or a length that its family does not have")]
    Prefix { address: IpAddr, length: u8 },
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A log may have a line for every instruction of a program; an operator is told the end of it, without its empty lines.
    #[test]
    fn a_refusal_tells_the_last_lines_of_the_log() {
        let log: String = (0..100_000).map(|n| format!("{n}: (b7) r0 = {n}\n")).collect();
        let log = log + "\n \nR1 invalid mem access 'scalar'\n\nprocessed 100000 insns\n";
        let source = libbpf_rs::Error::from(io::Error::from(io::ErrorKind::PermissionDenied));
        let said = Error::Load { object: "tc", source, log }.to_string();
        let lines: Vec<&str> = said.lines().collect();
        assert!(lines[0].starts_with("the kernel refuses the programs of tc: "), "{}", lines[0]);
        assert_eq!((lines.len(), lines[1]), (13, "99990: (b7) r0 = 99990"));
        assert_eq!(lines[11..], ["R1 invalid mem access 'scalar'", "processed 100000 insns"]);
        assert_eq!(last_lines("short\n"), "short");
        assert_eq!(last_lines(""), "");
    }
}
