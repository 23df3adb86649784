//! What a client of DHCP puts into the kernel: its address, and routes whose source it is.

use std::net::Ipv4Addr;

use nix::net::if_::if_nametoindex;
use sluice_language::config::Prefix;

use super::client4::{Around, Client4};
use super::lease::{Lease4, Net};
use crate::kernel::lease::{Leased, LeasedRoute, LeasedVia};
use crate::kernel::{Kernel, KernelError};

impl Client4 {
    /// Has the kernel know the lease and nothing else of this device's. What is there already is not touched, unless it is
    /// good for longer now.
    pub fn place(&mut self, around: &Around<'_>, is_extended: bool) {
        // what is given back goes from a device without a carrier, too
        let by_name = || self.lease.is_none().then(|| if_nametoindex(self.device.as_str()).ok()).flatten();
        let Some(ifindex) = self.link.map(|(ifindex, _)| ifindex).or_else(by_name) else { return };
        match self.put(ifindex, around.kernel, is_extended) {
            Ok(held) => {
                if !held.is_empty() && held != self.held {
                    tracing::warn!(interface = self.unit, "DHCP: left out: {held}");
                }
                self.held = held;
            }
            Err(error) => {
                tracing::error!(interface = self.unit, %error, "DHCP: the lease is not in the kernel");
                self.note = error.to_string();
            }
        }
    }

    /// Says which routes others have already.
    fn put(&self, ifindex: u32, kernel: &Kernel, is_extended: bool) -> Result<String, KernelError> {
        let own = |leased: &&Leased| leased.ifindex == ifindex && leased.prefix.addr.is_ipv4();
        let present = kernel.leased()?;
        let wanted: Option<Prefix> = self.in_force().map(Lease4::prefix);
        // with the first address of a subnet the kernel takes away those that came behind it
        for leased in present.iter().filter(own).filter(|leased| Some(leased.prefix) != wanted) {
            kernel.delete_address(ifindex, &self.device, leased.prefix)?;
        }
        if let Some(lease) = self.in_force() {
            let known = present.iter().any(|leased| own(&leased) && leased.prefix == lease.prefix());
            if is_extended || !known {
                let valid_s = lease.ends.left_s();
                let (prefix, is_duplicate) = (lease.prefix(), false);
                let leased = Leased { ifindex, prefix, preferred_s: valid_s, valid_s, is_duplicate };
                kernel.put_leased(&self.device, &leased, false)?;
            }
        }
        let routes = self.routes(ifindex);
        let there = kernel.leased_routes()?;
        let is_own = |route: &&LeasedRoute| {
            matches!(route.via, LeasedVia::Device { ifindex: of, .. } if of == ifindex)
                && route.destination.addr.is_ipv4()
        };
        let is_same = |one: &LeasedRoute, other: &LeasedRoute| {
            (one.destination, one.metric) == (other.destination, other.metric)
        };
        let mut held = vec![];
        for route in routes.iter().filter(|route| !there.contains(route)) {
            let has_one = there.iter().filter(is_own).any(|own| is_same(own, route));
            if !kernel.put_leased_route(route, has_one)? {
                held.push(format!("{} of metric {}", Net::from(route.destination), route.metric));
            }
        }
        for route in
            there.iter().filter(is_own).filter(|route| !routes.iter().any(|other| is_same(other, route)))
        {
            kernel.delete_leased_route(route)?;
        }
        Ok(match held.is_empty() {
            true => String::new(),
            false => format!("others have a route to {}", held.join(", ")),
        })
    }

    fn routes(&self, ifindex: u32) -> Vec<LeasedRoute> {
        let Some(lease) = self.in_force() else { return vec![] };
        let wanted = lease.routes.iter().filter(|(to, _)| to.len > 0 || self.config.default_route);
        let route = |(to, gateway): &(Net, Ipv4Addr)| LeasedRoute {
            destination: (*to).into(),
            via: LeasedVia::Device { ifindex, gateway: *gateway, source: lease.address },
            metric: self.config.preference,
        };
        wanted.map(route).collect()
    }
}
