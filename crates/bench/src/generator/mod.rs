//! What makes packets and what receives them.

pub mod echo;
pub mod endpoints;
pub mod frames;
pub mod harness;
pub(crate) mod layouts;
pub(crate) mod link;
pub(crate) mod mapping;
pub(crate) mod napi;
pub mod packets;
pub(crate) mod relay;
pub mod ring;
pub(crate) mod ring_relay;
pub mod site;
pub mod wire;
