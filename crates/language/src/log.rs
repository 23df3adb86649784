//! Where the session log goes.

use std::net::{IpAddr, SocketAddr};

use serde::Serialize;

/// `security log`
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SecurityLog {
    /// Entries a second.
    pub rate_cap: u32,
    pub file: Option<LogFile>,
    pub streams: Vec<LogStream>,
}

pub const RATE_CAP: u32 = 100_000;

impl Default for SecurityLog {
    fn default() -> Self {
        Self { rate_cap: RATE_CAP, file: None, streams: vec![] }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LogFile {
    pub name: String,
    pub directory: String,
    pub size_mb: u32,
    /// The one that is written included.
    pub files: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LogStream {
    pub name: String,
    pub collector: SocketAddr,
    pub source: Option<IpAddr>,
    pub transport: LogTransport,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogTransport {
    Udp,
    Tcp,
    Tls {
        /// None = what this machine trusts.
        ca_file: Option<String>,
        /// None = the collector's address.
        server_name: Option<String>,
    },
}

impl LogTransport {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Tcp => "tcp",
            Self::Tls { .. } => "tls",
        }
    }
}
