//! Questions to the kernel over netlink(7), for threads that wait for the answer, [`PATIENCE`] at most.
//!
//! [`Routing`] asks for ways, neighbours and devices (rtnetlink(7)), [`ipsec`] for the policies of IPsec. The messages are those of
//! the rust-netlink crates. Who has many questions at one time, or waits for news, uses `rtnetlink` as the daemon does.
#![warn(missing_docs)]

mod exchange;
pub mod ipsec;
mod neighbour;
mod routing;

pub use exchange::PATIENCE;
pub use neighbour::{Neighbour, parse_neighbour};
pub use routing::{Device, NextHop, Routing};
