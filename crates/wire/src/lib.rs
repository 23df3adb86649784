//! Packets: one module a protocol, all of one shape (field ranges, checked view, builder, literal-byte tests), and
//! the readable layered text form that tests are written in ([`text`]). No I/O.
//!
//! Every offset, flag, ethertype, protocol number and port of the project stands here, once, with its clause beside it.
//! Who must not build views or vectors reads and writes the ranges themselves ([`fields`]): the monitor's parsers, and
//! generators that patch frames. Protocols that only those follow have no view.
//!
//! A view is checked once when it is made, so its accessors never fail. A builder writes correct lengths and
//! checksums unless one is given explicitly, which is how wrong packets are written down; `append` writes the header
//! alone behind what there is, `build` makes the whole packet.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod ah;
pub mod arp;
pub mod checksum;
pub mod cooked;
pub mod eapol;
mod error;
pub mod esp;
pub mod eth;
pub mod ethertype;
pub mod fields;
pub mod gtpu;
pub mod icmpv4;
pub mod icmpv6;
pub mod ike;
pub mod ipv4;
pub mod ipv6;
pub mod ipv6_ext;
mod mac;
pub mod macsec;
mod numbers;
pub mod protocol;
pub mod tcp;
pub mod text;
pub mod udp;
pub mod vlan;

pub use error::Error;
pub use mac::Mac;
