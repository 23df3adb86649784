//! Packets through the real programs, checked against written tables and against a plain reference model.
//!
//! * [`case`]: the format of `tests/packet/*.case`: packet in, verdict, packet out, every counter that changes.
//! * [`world`]: what stands around a gateway: configuration, hosts with their MAC addresses, routes.
//! * [`gateway`]: such a gateway in a private network namespace, with the real programs loaded.
//! * [`table`]: runs cases by prog-run; [`onwire`] runs the same cases over real veth pairs.
//! * `told`: what the daemon is told of the packets that a case drops.
//! * [`limits`]: how much of the kernel's limits real configurations take.
//! * [`nat_model`]: translation in plain Rust, for random traces.
//! * [`binding_model`]: translation with endpoint-independent mapping and filtering.
//! * [`tunnel`]: messages of GTP-U; [`tunnel_model`]: what becomes of them.
//! * [`extent`]: how long random traces are, and their seeds.
//! * [`model`]: zone policy and sessions in plain Rust, for random packets under random configurations.

#![warn(missing_docs)]

pub mod binding_model;
pub mod case;
pub mod counters;
pub mod extent;
pub mod forward;
pub mod gateway;
pub mod judge;
pub mod kept;
pub mod limits;
pub mod model;
pub mod nat_model;
pub mod netns;
pub mod nft;
pub mod onwire;
pub mod random;
pub mod refused;
pub mod scenario;
pub mod table;
mod told;
pub mod tunnel;
pub mod tunnel_model;
pub mod world;
