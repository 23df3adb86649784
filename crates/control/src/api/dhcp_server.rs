//! What is said of the DHCP servers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A server of DHCP or DHCPv6 and what it has lent.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct DhcpServerView {
    /// Of the process that serves; none where nobody is served.
    pub pid: Option<u32>,
    /// Why nobody is served although it is configured.
    pub error: Option<String>,
    /// In the order of addresses.
    pub bindings: Vec<DhcpBindingView>,
}

/// An address or a prefix that is lent.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct DhcpBindingView {
    /// The address; of a delegated prefix with its length.
    pub address: String,
    /// Of the client; empty where a DHCPv6 client does not say it.
    pub hardware_address: String,
    /// Of a DHCPv6 client.
    pub duid: Option<String>,
    /// The client that packets for a delegated prefix go to; none where no route stands.
    pub next_hop: Option<String>,
    /// As the client calls itself.
    pub hostname: String,
    /// When it is over, in milliseconds since 1970.
    pub expires_unix_ms: u64,
    /// The pool that has the address; none where the configuration has none any more.
    pub pool: Option<String>,
    /// The unit that it is served on.
    pub interface: Option<String>,
    /// A client has found the address to be taken; it is not lent for a while.
    pub declined: bool,
}

/// Which lease shall end.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DhcpClearRequest {
    /// The address that is lent, or the delegated prefix, with its length or without.
    pub address: String,
}

/// Whether a lease has ended.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct DhcpCleared {
    /// False = nobody had it.
    pub cleared: bool,
}
