//! Where the session log goes.

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
