//! Routes to prefixes that clients of the DHCPv6 server have. Their number is another than that of configured routes, which a
//! commit would take away.

use sluice_plan::{RouteVia, RouteWant};

use super::connection::{Kernel, Result};

/// Of the gateway, as 83 is.
const PROTOCOL: u8 = 84;

impl Kernel {
    /// Has these routes stand, and no others of their kind. What fails does not keep the rest from it.
    pub fn keep_delegated(&self, wants: &[RouteWant]) -> Result<()> {
        let links = self.links()?;
        let name = |index| links.iter().find(|link| link.index == index).map(|link| link.name.clone());
        let index = |name: &str| links.iter().find(|link| link.name == name).map(|link| link.index);
        let present = self.routes_of(PROTOCOL, name)?;
        let strays = present.iter().filter(|route| !wants.contains(route));
        let missing = wants.iter().filter(|route| !present.contains(route));
        let removed = strays.map(|route| self.delete_route_of(PROTOCOL, route, index));
        let added = missing.map(|route| self.put_route_of(PROTOCOL, route, index));
        // all of them are tried, and the stray ones first
        let done: Vec<Result<()>> = removed.collect();
        done.into_iter().chain(added.collect::<Vec<_>>()).collect()
    }

    /// Whether they stand still: with a device that goes down, its routes go.
    pub fn has_delegated(&self, wants: &[RouteWant]) -> bool {
        let Ok(links) = self.links() else { return true };
        let stands = |route: &RouteWant| {
            let RouteVia::Gateways(hops) = &route.target else { return true };
            hops.iter().all(|hop| {
                let device = links.iter().find(|link| Some(&link.name) == hop.device.as_ref());
                device.is_some_and(|link| self.leads(route.destination.addr, None, (link.index, hop.addr)))
            })
        };
        wants.iter().all(stands)
    }
}
