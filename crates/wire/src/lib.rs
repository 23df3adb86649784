//! Packets: one module a protocol, all of one shape (field ranges, checked view, builder, literal-byte tests), and
//! the readable layered text form that tests are written in ([`text`]). No I/O.
//!
//! A view is checked once when it is made, so its accessors never fail. A builder writes correct lengths and
//! checksums unless one is given explicitly, which is how wrong packets are written down.

pub mod arp;
pub mod checksum;
mod error;
pub mod eth;
pub mod icmpv4;
pub mod icmpv6;
pub mod ipv4;
pub mod ipv6;
pub mod ipv6_ext;
mod mac;
mod read;
pub mod tcp;
pub mod text;
pub mod udp;
pub mod vlan;

pub use error::Error;
pub use mac::Mac;
