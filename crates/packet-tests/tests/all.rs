//! Every test of the crate in one program, which links once and keeps both CPUs busy.

mod differential;
mod extensions;
mod fragments;
mod guest;
mod host_inbound;
mod largest;
mod limits;
mod nat;
mod nat64;
mod nat64_fragments;
mod nat64_sessions;
mod nat_ports;
mod neighbours;
mod no_trace;
mod onwire;
mod persistent;
mod policies;
mod rates;
mod reopening;
mod route_mtu;
mod special_purpose;
mod tables;
mod unanswered;

#[path = "gtpu/main.rs"]
mod gtpu;
#[path = "nftables/main.rs"]
mod nftables;
