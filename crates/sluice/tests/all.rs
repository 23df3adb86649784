//! Every test of the crate in one program, which links once and keeps both CPUs busy.

mod access;
mod api;
mod bonds;
mod boot;
#[path = "../../../tests/lab/branch.rs"]
mod branch;
mod by_kernel;
mod coexistence;
mod commands;
mod commit;
mod common;
mod confirmed;
mod devices;
mod dhcp;
mod dhcp_provider;
mod dhcp_server;
mod dhcpv6_server;
mod drivers;
mod drops;
mod equations;
mod events;
mod expiry;
#[path = "fanout/main.rs"]
mod fanout;
mod fragments;
mod frr;
mod gate;
mod gate_alone;
mod gtpu;
mod gtpu_copies;
mod gtpu_count;
mod gtpu_judged;
mod gtpu_many;
mod gtpu_spread;
mod import_command;
mod instances;
#[path = "../../../tests/lab/nat64.rs"]
mod lab_nat64;
#[path = "../../../tests/lab/operate.rs"]
mod lab_operate;
mod lifecycle;
mod matching;
mod memory;
mod monitor_command;
mod monitor_port;
mod nat;
mod null_zone;
mod operations;
mod package;
mod qinq;
mod resumed;
mod rooms;
mod router_advertisement;
mod routes;
mod routing_instances;
mod schemathesis;
mod screens;
mod session_log;
mod shell;
mod starts;
mod store;
mod syn_flood;
mod syslog;
mod syslog_ng;
mod system_syslog;
mod trace;
