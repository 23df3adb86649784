//! What makes packets and what receives them.

pub(crate) mod echo;
pub(crate) mod endpoints;
pub(crate) mod frames;
pub mod harness;
pub(crate) mod layouts;
pub(crate) mod link;
pub(crate) mod mapping;
pub(crate) mod napi;
pub mod packets;
pub(crate) mod relay;
pub(crate) mod ring;
pub(crate) mod ring_relay;
pub(crate) mod site;
pub(crate) mod tunnels;
pub mod wire;
