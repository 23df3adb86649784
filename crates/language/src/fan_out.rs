//! `services fan-out` as types.

use std::net::{IpAddr, SocketAddr};

use serde::Serialize;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
pub struct FanOut {
    pub listeners: Vec<Listener>,
    pub metrics: Option<SocketAddr>,
}

impl FanOut {
    /// Listeners that the data plane serves.
    pub fn kernel(&self) -> impl Iterator<Item = &Listener> {
        self.listeners.iter().filter(|listener| listener.mode.is_kernel())
    }

    /// Listeners that threads of the daemon serve.
    pub fn user(&self) -> impl Iterator<Item = &Listener> {
        self.listeners.iter().filter(|listener| !listener.mode.is_kernel())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Listener {
    pub name: String,
    /// `NAME.UNIT`; only user-space modes do without.
    pub interface: Option<String>,
    pub mode: Mode,
    pub bind: SocketAddr,
    pub balance: Balance,
    pub receivers: Vec<Receiver>,
    pub health: Option<HealthCheck>,
    pub none_left: NoneLeft,
    pub framing: Framing,
    pub answer_arp: bool,
    pub keep_source: bool,
    pub max_packet_size: u32,
    pub queue_bytes: u32,
    pub receive_buffer: u32,
    /// None = one a CPU.
    pub workers: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    #[default]
    Auto,
    Xdp,
    TcEbpf,
    AfXdp,
    Userspace,
    TcpForward,
}

impl Mode {
    pub const ALL: [Mode; 6] =
        [Self::Auto, Self::Xdp, Self::TcEbpf, Self::AfXdp, Self::Userspace, Self::TcpForward];

    /// As it is written in the tree.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Xdp => "xdp",
            Self::TcEbpf => "tc-ebpf",
            Self::AfXdp => "af-xdp",
            Self::Userspace => "userspace",
            Self::TcpForward => "tcp-forward",
        }
    }

    /// The data plane does it, or must at least be asked.
    pub fn is_kernel(self) -> bool {
        matches!(self, Self::Auto | Self::Xdp | Self::TcEbpf)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Balance {
    #[default]
    RoundRobin,
    Flow,
    Source,
}

impl Balance {
    pub const ALL: [Balance; 3] = [Self::RoundRobin, Self::Flow, Self::Source];

    pub fn name(self) -> &'static str {
        match self {
            Self::RoundRobin => "round-robin",
            Self::Flow => "flow",
            Self::Source => "source",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Framing {
    #[default]
    Newline,
    OctetCounting,
    LengthPrefix,
}

impl Framing {
    pub const ALL: [Framing; 3] = [Self::Newline, Self::OctetCounting, Self::LengthPrefix];

    pub fn name(self) -> &'static str {
        match self {
            Self::Newline => "newline",
            Self::OctetCounting => "octet-counting",
            Self::LengthPrefix => "length-prefix",
        }
    }
}

/// What happens to packets while no receiver is up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum NoneLeft {
    #[default]
    Drop,
    All,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct Receiver {
    pub name: String,
    pub target: Target,
    pub weight: u16,
    /// It is to be left alone, by and by.
    pub drain: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    Address(SocketAddr),
    /// Every address of the name.
    Host(String, u16),
    /// Hosts and ports of SRV records (RFC 2782).
    Service(String),
}

impl Receiver {
    /// Where it is, if that does not depend on the DNS.
    pub fn address(&self) -> Option<SocketAddr> {
        match self.target {
            Target::Address(address) => Some(address),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    Icmp,
    Udp,
    Tcp,
    Http,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HealthCheck {
    pub method: Method,
    pub port: Option<u16>,
    /// What is asked for over HTTP.
    pub path: String,
    pub interval_ms: u32,
    pub timeout_ms: u32,
    pub rise: u32,
    pub fall: u32,
    pub slow_start_ms: u32,
    pub drain_ms: u32,
}

impl Default for HealthCheck {
    fn default() -> Self {
        HealthCheck {
            method: Method::Icmp,
            port: None,
            path: "/".to_owned(),
            interval_ms: 1000,
            timeout_ms: 500,
            rise: 2,
            fall: 2,
            slow_start_ms: 0,
            drain_ms: 0,
        }
    }
}

pub const MAX_PACKET_SIZE: u32 = 65_507;
pub const QUEUE_BYTES: u32 = 4 << 20;
pub const RECEIVE_BUFFER: u32 = 8 << 20;
pub const METRICS_PORT: u16 = 9090;

/// Whoever listens on one also gets what is meant for the other.
pub fn same_bind(a: SocketAddr, b: SocketAddr) -> bool {
    a.port() == b.port() && (a.ip() == b.ip() || covers(a.ip(), b.ip()) || covers(b.ip(), a.ip()))
}

fn covers(all: IpAddr, one: IpAddr) -> bool {
    all.is_unspecified() && all.is_ipv4() == one.is_ipv4()
}
