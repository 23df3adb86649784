//! What a commit is made of. Each function of the gateway answers for its own part of a configuration; a commit walks their
//! list forwards to put a candidate in force, and backwards to take away what it replaces, or to undo what has failed.
//! A new function is a file here and a line in [`all`].

pub mod asked;
pub mod bindings;
mod counts;
pub mod dhcp;
pub mod dhcp_server;
pub mod fan_out;
pub mod forwarding;
pub mod frr;
mod function;
pub mod gate;
pub mod gtpu;
mod guard;
mod links;
pub mod local;
mod programs;
mod room;
pub mod router_advertisement;
mod store;
mod tables;

use std::sync::Arc;

use sluice_dataplane::Dataplane;

use crate::functions::dhcp::clients::Clients;
use crate::functions::fan_out::positions::InForce;
use crate::functions::fan_out::service::FanOutService;
use crate::functions::frr::Frr;
use crate::functions::gate::audit::Audit;
use crate::functions::gtpu::sessions::Sessions;
use crate::kernel::Kernel;
use crate::kernel::devices::Latest;
use crate::state::store::Store;

pub use function::{Candidate, CommitError, Function};
pub(crate) use programs::variants;

/// What functions work with.
pub struct Tools {
    pub kernel: Kernel,
    pub store: Arc<Store>,
    pub dataplane: Arc<Dataplane>,
    pub in_force: InForce,
    pub devices_latest: Latest,
    pub audit: Arc<Audit>,
    pub fan_out: FanOutService,
    pub gtpu: Arc<Sessions>,
    pub frr: Arc<Frr>,
    pub dhcp: Arc<Clients>,
}

/// The functions in the order in which a commit applies them. Nothing of the packet path changes before `programs`, and all
/// that stands before it can still be undone; devices stand behind the guard before anything is forwarded by them.
pub fn all(tools: &Tools) -> Vec<Box<dyn Function>> {
    let Tools { kernel, store, dataplane, in_force, devices_latest, audit, fan_out, gtpu, frr, dhcp } = tools;
    vec![
        Box::new(room::Room::new(dataplane)),
        Box::new(local::Local::new(kernel, dataplane)),
        Box::new(links::Links::new(kernel)),
        // behind the addresses that its sockets are bound to
        Box::new(fan_out::FanOut::new(fan_out)),
        Box::new(dhcp_server::DhcpServer::new(store)),
        Box::new(guard::Guard),
        Box::new(dhcp::Dhcp::new(dhcp)),
        Box::new(forwarding::Forwarding::new(kernel)),
        Box::new(bindings::Bindings::new(dataplane)),
        Box::new(tables::Tables::new(dataplane)),
        Box::new(counts::Counts::new(devices_latest)),
        Box::new(gate::Gate::new(dataplane, audit)),
        Box::new(gtpu::GtpU::new(dataplane, gtpu)),
        Box::new(frr::Routing::new(frr)),
        Box::new(store::Written::new(store)),
        Box::new(programs::Programs::new(dataplane, in_force)),
    ]
}

/// Walks a candidate through the functions until it is in force, or until all of them have undone what they did. `replan`
/// looks at the machine once more when it is prepared.
pub fn put_in_force(
    functions: &mut [Box<dyn Function>],
    candidate: &mut Candidate<'_>,
    replan: impl FnOnce(&mut Candidate<'_>) -> Result<(), CommitError>,
) -> Result<(), CommitError> {
    functions.iter_mut().try_for_each(|function| function.check(candidate))?;
    let prepared = functions.iter_mut().try_for_each(|function| function.prepare(candidate));
    let applied = prepared
        .and_then(|()| replan(candidate))
        .and_then(|()| functions.iter_mut().try_for_each(|function| function.apply(candidate)));
    if applied.is_err() {
        for function in functions.iter_mut().rev() {
            if let Err(error) = function.abort(candidate) {
                tracing::error!(function = function.name(), %error, "what the failed commit did was not undone");
            }
        }
    }
    applied
}

/// After the point of no return: says what remains of what was replaced.
pub fn retire(functions: &mut [Box<dyn Function>], candidate: &Candidate<'_>) -> Vec<String> {
    let mut remains = vec![];
    for function in functions.iter_mut().rev() {
        for error in function.retire(candidate) {
            tracing::warn!(function = function.name(), error, "the commit stands, but something old remains");
            remains.push(error);
        }
    }
    remains
}

#[cfg(test)]
mod tests;
