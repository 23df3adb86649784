//! Every test of the crate in one program, which links once and keeps both CPUs busy.

mod captures;
mod clocks;
mod common;
mod compare;
mod docs;
mod files;
mod fuzz;
mod generate;
mod intervals;
mod judges;
mod kernels;
mod live;
mod mutations;
mod packets;
mod page;
mod plausible;
mod protocols;
mod reading;
mod reference;
mod rest;
mod results;
mod scenarios;
mod sequences;
mod slice;
mod speed;
mod truth;
