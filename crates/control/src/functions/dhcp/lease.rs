//! What servers gave, as it is kept over a restart.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sluice_language::config::Prefix;

use crate::kernel::clock::Deadline;
use crate::kernel::lease::FOREVER_S;

/// Until when something is good; None = for ever.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Until(Option<Deadline>);

impl Until {
    pub fn after(seconds: u32) -> Self {
        Self((seconds != FOREVER_S).then(|| Deadline::after(Duration::from_secs(seconds.into()))))
    }

    pub fn has_passed(&self) -> bool {
        self.0.as_ref().is_some_and(Deadline::has_passed)
    }

    pub fn left(&self) -> Option<Duration> {
        self.0.as_ref().map(Deadline::left)
    }

    /// As the kernel and the protocols count.
    pub fn left_s(&self) -> u32 {
        self.left().map_or(FOREVER_S, |left| left.as_secs().min(u64::from(FOREVER_S - 1)) as u32)
    }
}

/// A network, or an address with the length of its subnet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Net {
    pub addr: IpAddr,
    pub len: u8,
}

impl From<Prefix> for Net {
    fn from(Prefix { addr, len }: Prefix) -> Self {
        Self { addr, len }
    }
}

impl From<Net> for Prefix {
    fn from(Net { addr, len }: Net) -> Self {
        Self { addr, len }
    }
}

impl std::fmt::Display for Net {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.addr, self.len)
    }
}

/// Of a DHCP server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease4 {
    pub device: String,
    pub address: Ipv4Addr,
    pub length: u8,
    pub server: Ipv4Addr,
    pub ends: Until,
    pub t1: Until,
    pub t2: Until,
    /// Destination and gateway; an unspecified one is on the link.
    pub routes: Vec<(Net, Ipv4Addr)>,
    pub dns: Vec<Ipv4Addr>,
}

impl Lease4 {
    pub fn prefix(&self) -> Prefix {
        Prefix { addr: self.address.into(), len: self.length }
    }
}

/// Of a DHCPv6 server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease6 {
    pub device: String,
    /// Its DUID.
    pub server: Vec<u8>,
    pub t1: Until,
    pub t2: Until,
    pub address: Option<Given>,
    pub prefix: Option<Given>,
    pub dns: Vec<Ipv6Addr>,
    /// What units have of the prefix, by device.
    pub lans: Vec<(String, Net)>,
    /// What units had of prefixes before, until hosts behind them have forgotten it.
    pub former: Vec<(String, Net, Until)>,
}

/// An address or a prefix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Given {
    pub net: Net,
    pub preferred: Until,
    pub valid: Until,
}

impl Given {
    pub fn is_prefix(&self) -> bool {
        self.net.len < 128
    }
}

impl Lease6 {
    pub fn given(&self) -> impl Iterator<Item = &Given> {
        self.address.iter().chain(&self.prefix)
    }

    /// What is meant of it, taken out, with what units have of the prefix; None = nothing is.
    pub fn take(&mut self, is_meant: impl Fn(&Given) -> bool) -> Option<Self> {
        let [address, prefix] =
            [&mut self.address, &mut self.prefix].map(|given| given.take_if(|given| is_meant(given)));
        let lans = if prefix.is_some() { std::mem::take(&mut self.lans) } else { vec![] };
        let part = Self {
            device: self.device.clone(),
            server: self.server.clone(),
            address,
            prefix,
            lans,
            ..Self::default()
        };
        (!part.is_empty()).then_some(part)
    }

    /// It is no lease, or what was one has gone.
    pub fn is_empty(&self) -> bool {
        self.given().next().is_none()
    }

    /// Nothing of it is good any more.
    pub fn has_ended(&self) -> bool {
        self.given().all(|given| given.valid.has_passed())
    }
}

/// The file of leases.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// The machine's DUID (RFC 8415, section 11), made once.
    pub duid: Vec<u8>,
    /// By unit.
    pub v4: BTreeMap<String, Lease4>,
    pub v6: BTreeMap<String, Lease6>,
}
