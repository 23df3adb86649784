//! What is said of the DHCP server.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The DHCP server and what it has lent.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct DhcpServerView {
    /// Of the process that serves; none where nobody is served.
    pub pid: Option<u32>,
    /// Why nobody is served although it is configured.
    pub error: Option<String>,
    /// In the order of addresses.
    pub bindings: Vec<DhcpBindingView>,
}

/// An address that is lent.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct DhcpBindingView {
    /// The address.
    pub address: String,
    /// Of the client.
    pub hardware_address: String,
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
    /// The address that is lent.
    pub address: String,
}

/// Whether a lease has ended.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct DhcpCleared {
    /// False = nobody had it.
    pub cleared: bool,
}
