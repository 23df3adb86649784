//! Routes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A static route of the configuration in force.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StaticRouteView {
    /// Prefix.
    pub destination: String,
    /// The least one is used; the kernel calls it metric.
    pub preference: u32,
    /// Next hops, a device, `discard` or `reject`.
    pub target: String,
    /// The kernel has it as it is configured. It has none over a device that is down.
    pub present: bool,
    /// Whose table it stands in; none = the main one's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routing_instance: Option<String>,
}

/// A routing instance of the configuration in force.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RoutingInstanceView {
    /// The kernel's VRF device has it too.
    pub name: String,
    /// `virtual-router` or `vrf`, which are the same.
    #[serde(default)]
    pub instance_type: String,
    /// As the configuration has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Number of the kernel's routing table.
    pub table: u32,
    /// Units whose packets are routed there.
    pub interfaces: Vec<String>,
    /// Those of them whose device is no port of the VRF device.
    pub missing: Vec<String>,
    /// The VRF device is there and up.
    pub up: bool,
}
