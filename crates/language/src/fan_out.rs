//! `services fan-out` as types.

use std::net::{IpAddr, SocketAddr};

use serde::Serialize;

/// All of `services fan-out`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
pub struct FanOut {
    /// In configuration order; names are unique.
    pub listeners: Vec<Listener>,
    /// Where a Prometheus page of its counters is served over HTTP; None = nowhere.
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

/// An address and port whose UDP datagrams are spread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Listener {
    /// Reports, metrics and the log call it so.
    pub name: String,
    /// `NAME.UNIT`; only user-space modes do without.
    pub interface: Option<String>,
    /// Tag of its frames, by the unit's configuration; by its number where nothing else says.
    pub vlan: Option<u16>,
    /// Where the work is done.
    pub mode: Mode,
    /// Datagrams for this address and port are its own.
    pub bind: SocketAddr,
    /// How the receiver of a datagram is chosen.
    pub balance: Balance,
    /// Those that share the datagrams; at least one.
    pub receivers: Vec<Receiver>,
    /// None = receivers are taken to be up.
    pub health: Option<HealthCheck>,
    /// What becomes of datagrams while no receiver is up.
    pub none_left: NoneLeft,
    /// How messages are told apart over TCP; of `tcp-forward` alone.
    pub framing: Framing,
    /// The interface gets the address, so that the kernel answers ARP and neighbour solicitations for it.
    pub answer_arp: bool,
    /// Receivers see the sender's address; kernel modes always do that.
    pub keep_source: bool,
    /// Bytes of UDP payload that user-space modes have room for.
    pub max_packet_size: u32,
    /// Bytes that may wait for one receiver in `tcp-forward`.
    pub queue_bytes: u32,
    /// Bytes of each socket's receive buffer (SO_RCVBUF).
    pub receive_buffer: u32,
    /// None = one a CPU.
    pub workers: Option<u32>,
}

impl Listener {
    /// Datagrams of one address family reach receivers of the other.
    pub fn changes_family(&self) -> bool {
        self.mode.changes_family(self.keep_source)
    }
}

/// Where a listener's datagrams are spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// XDP where the unit runs on it, else tc.
    #[default]
    Auto,
    /// In the driver, by the program on the unit's XDP hook.
    Xdp,
    /// By the program on the unit's tc hook.
    TcEbpf,
    /// By the daemon's threads, from AF_XDP rings of the device's queues.
    AfXdp,
    /// By the daemon's threads, from UDP sockets.
    Userspace,
    /// By the daemon's threads, over a TCP connection to each receiver.
    TcpForward,
}

impl Mode {
    /// In the order completion lists them.
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

    /// Datagrams of one address family reach receivers of the other; a sender that is kept is of one family.
    pub fn changes_family(self, keep_source: bool) -> bool {
        match self {
            Self::Userspace => !keep_source,
            Self::TcpForward => true,
            Self::Auto | Self::Xdp | Self::TcEbpf | Self::AfXdp => false,
        }
    }
}

/// How the receiver of a datagram is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Balance {
    /// Datagram by datagram, by weights.
    #[default]
    RoundRobin,
    /// By a hash of addresses and ports.
    Flow,
    /// By a hash of the source address.
    Source,
}

impl Balance {
    /// In the order completion lists them.
    pub const ALL: [Balance; 3] = [Self::RoundRobin, Self::Flow, Self::Source];

    /// As configuration and reports spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::RoundRobin => "round-robin",
            Self::Flow => "flow",
            Self::Source => "source",
        }
    }
}

/// How messages are told apart on a TCP connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Framing {
    /// A line feed behind each (RFC 6587 3.4.2).
    #[default]
    Newline,
    /// Decimal length and a blank before each (RFC 6587 3.4.1).
    OctetCounting,
    /// Length in four bytes, most significant first, before each.
    LengthPrefix,
}

impl Framing {
    /// In the order completion lists them.
    pub const ALL: [Framing; 3] = [Self::Newline, Self::OctetCounting, Self::LengthPrefix];

    /// As configuration and reports spell it.
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
    /// They are dropped and counted.
    #[default]
    Drop,
    /// They are spread as if all receivers were up.
    All,
}

/// One of those that share a listener's datagrams.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct Receiver {
    /// Unique within its listener.
    pub name: String,
    /// Where it is.
    pub target: Target,
    /// Its share, 1 to 256; SRV records may replace it.
    pub weight: u16,
    /// It gets ever less of its share, over the time of `drain_ms`, then nothing.
    pub drain: bool,
}

/// Where a receiver is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// One address and port.
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

/// How a receiver is asked whether it is up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// An echo request is answered.
    Icmp,
    /// A datagram to the port comes back.
    Udp,
    /// A connection to the port is accepted.
    Tcp,
    /// GET is answered with a status of 200 to 399.
    Http,
}

/// How receivers of a listener are checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HealthCheck {
    /// What is sent, and what is an answer.
    pub method: Method,
    /// None = the receiver's own.
    pub port: Option<u16>,
    /// What is asked for over HTTP.
    pub path: String,
    /// Between two checks.
    pub interval_ms: u32,
    /// To wait for an answer.
    pub timeout_ms: u32,
    /// Answers in a row after which a receiver is up again.
    pub rise: u32,
    /// Failures in a row after which a receiver is down.
    pub fall: u32,
    /// Time in which a receiver that came back gets to its full share; 0 = at once.
    pub slow_start_ms: u32,
    /// Time in which a receiver that leaves gets down to nothing; 0 = at once.
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

/// Default of `max-packet-size`: the longest UDP payload of IPv4.
pub const MAX_PACKET_SIZE: u32 = 65_507;
/// Default of `queue-bytes`.
pub const QUEUE_BYTES: u32 = 4 << 20;
/// Default of `receive-buffer`.
pub const RECEIVE_BUFFER: u32 = 8 << 20;
/// Default port of `metrics`.
pub const METRICS_PORT: u16 = 9090;

/// A datagram to a receiver comes back to who listens there. Of addresses that are not the listener's word for word,
/// `is_own` says which are this host's.
pub fn comes_back(bind: SocketAddr, receiver: SocketAddr, is_own: impl Fn(IpAddr) -> bool) -> bool {
    bind == receiver || same_bind(bind, receiver) && is_own(receiver.ip())
}

/// A datagram can be sent to it, and one host has it.
pub fn can_receive(address: IpAddr) -> bool {
    !address.is_unspecified() && !address.is_multicast()
}

/// Whoever listens on one also gets what is meant for the other.
pub fn same_bind(a: SocketAddr, b: SocketAddr) -> bool {
    a.port() == b.port() && (a.ip() == b.ip() || covers(a.ip(), b.ip()) || covers(b.ip(), a.ip()))
}

fn covers(all: IpAddr, one: IpAddr) -> bool {
    all.is_unspecified() && all.is_ipv4() == one.is_ipv4()
}
