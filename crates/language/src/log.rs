//! Where the session log goes, and the gateway's own messages.

use std::net::{IpAddr, SocketAddr};

use serde::Serialize;

/// `security log`
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SecurityLog {
    /// Entries a second.
    pub rate_cap: u32,
    /// None = no file is written.
    pub file: Option<LogFile>,
    /// Collectors, each of which gets every entry.
    pub streams: Vec<LogStream>,
}

pub const RATE_CAP: u32 = 100_000;

impl Default for SecurityLog {
    fn default() -> Self {
        Self { rate_cap: RATE_CAP, file: None, streams: vec![] }
    }
}

/// `system syslog`: where the gateway's own messages go.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SystemLog {
    /// Collectors.
    pub hosts: Vec<MessageHost>,
    /// Files of this machine.
    pub files: Vec<MessageFile>,
}

/// A collector of messages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MessageHost {
    /// Named by its address.
    pub to: LogStream,
    /// What it gets.
    pub chosen: Chosen,
}

/// A file of messages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MessageFile {
    /// And those that it replaced.
    pub to: LogFile,
    /// What it gets.
    pub chosen: Chosen,
}

/// Facilities, as the configuration names them; `any` is every one that is not named.
pub const FACILITIES: [&str; 15] = [
    "any",
    "authorization",
    "change-log",
    "conflict-log",
    "daemon",
    "dfc",
    "external",
    "firewall",
    "ftp",
    "interactive-commands",
    "kernel",
    "ntp",
    "pfe",
    "security",
    "user",
];

/// Which messages, and in which form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Chosen {
    /// Facilities that are named, each with the least grave severity (RFC 5424 6.2.1); None = no messages of it.
    pub least: Vec<(&'static str, Option<u8>)>,
    /// What belongs to a message stands in its structured data.
    pub structured: bool,
}

impl Chosen {
    /// Whether a message is among them.
    pub fn has(&self, facility: &str, severity: u8) -> bool {
        let of = |name: &str| self.least.iter().find(|(known, _)| *known == name).map(|(_, least)| *least);
        let least = of(facility).or_else(|| of("any")).flatten();
        least.is_some_and(|least| severity <= least)
    }
}

/// A file of entries, and those that it replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LogFile {
    /// Base name.
    pub name: String,
    /// Absolute path of the directory it stands in.
    pub directory: String,
    /// Megabytes after which another one is begun.
    pub size_mb: u32,
    /// The one that is written included.
    pub files: u32,
}

/// A collector.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LogStream {
    /// Reports call it so; it is not sent.
    pub name: String,
    /// Address and port it listens on.
    pub collector: SocketAddr,
    /// Address that is sent from; None = the kernel chooses.
    pub source: Option<IpAddr>,
    /// How entries get there.
    pub transport: LogTransport,
}

/// How entries get to a collector.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogTransport {
    /// A datagram each (RFC 5426).
    Udp,
    /// Each behind its length (RFC 6587 3.4.1).
    Tcp,
    /// As TCP, inside TLS (RFC 5425).
    Tls {
        /// None = what this machine trusts.
        ca_file: Option<String>,
        /// None = the collector's address.
        server_name: Option<String>,
    },
}

impl LogTransport {
    /// As the configuration spells it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Tcp => "tcp",
            Self::Tls { .. } => "tls",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_facility_that_is_named_is_none_of_any() {
        let chosen =
            |least: &[(&'static str, Option<u8>)]| Chosen { least: least.to_vec(), structured: false };
        let quiet = chosen(&[("any", Some(4)), ("change-log", Some(6)), ("daemon", None)]);
        assert!(quiet.has("change-log", 6) && !quiet.has("daemon", 0));
        assert!(quiet.has("kernel", 4) && !quiet.has("kernel", 5));
        assert!(!chosen(&[("daemon", Some(7))]).has("change-log", 0));
    }
}
