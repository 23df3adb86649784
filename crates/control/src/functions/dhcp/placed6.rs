//! What a client of DHCPv6 puts into the kernel: addresses of its own and of units, the rest of a prefix, and how its device
//! takes router advertisements.

use std::net::IpAddr;
use std::time::Instant;

use nix::net::if_::if_nametoindex;
use sluice_language::config::Prefix;

use super::client4::Around;
use super::client6::{Client6, TRIED};
use super::lease::{Given, Lease6, Net, Until};
use super::reply6::sub_prefix;
use crate::kernel::lease::{Leased, LeasedRoute, LeasedVia};
use crate::kernel::{Kernel, KernelError, set_sysctl, sysctl};

/// What hosts have of a prefix that is no longer ours is good for at most this (RFC 7084 as of RFC 9096, L-13).
const FORMER_S: u32 = 7200;
const MOST_FORMER: usize = 16;
/// The kernel's own metric of routes by router advertisements (IP6_RT_PRIO_USER).
const RA_METRIC: u32 = 1024;

impl Client6 {
    /// What the kernel does with router advertisements, which carry the default route: 2 = although it forwards.
    pub fn accept_advertisements(&self, kernel: &Kernel) {
        let metric = self.config.preference.unwrap_or(RA_METRIC).to_string();
        let default_route = if self.config.default_route { "1" } else { "0" };
        set_advertisements(kernel, &self.device, ["2", default_route, &metric]);
    }

    /// Which unit has what of the prefix; what it had is on its way out (RFC 9096, section 3.3), at most as long as the
    /// prefix that it was of is good.
    pub fn assign(&mut self, prefix: &Given, before: &Until) {
        let Some(lease) = &mut self.lease else { return };
        let lans: Vec<(String, Net)> = (0..)
            .zip(&self.lans)
            .filter_map(|(index, device)| {
                Some((device.clone(), sub_prefix(prefix.net, self.config.sub_prefix_length, index)?))
            })
            .collect();
        if lans.len() < self.lans.len() {
            self.note =
                format!("{} has sub-prefixes for {} units of {}", prefix.net, lans.len(), self.lans.len());
            tracing::warn!(interface = self.unit, "DHCPv6: {}", self.note);
        }
        let gone =
            std::mem::replace(&mut lease.lans, lans.clone()).into_iter().filter(|old| !lans.contains(old));
        let left_s = before.left_s().min(FORMER_S);
        lease.former.extend(gone.map(|(device, net)| (device, net, Until::after(left_s))));
        lease.former.retain(|(device, net, _)| !lans.contains(&(device.clone(), *net)));
        let excess = lease.former.len().saturating_sub(MOST_FORMER);
        lease.former.drain(..excess);
    }

    /// Takes away what the new lease has no more.
    pub fn replace(&self, old: &Lease6, new: &Lease6, kernel: &Kernel) {
        let net = |given: &Option<Given>| given.as_ref().map(|given| given.net);
        if let Some(address) = net(&old.address).filter(|address| Some(*address) != net(&new.address)) {
            self.take_away(&self.device, address, kernel);
        }
        if let Some(prefix) = net(&old.prefix).filter(|prefix| Some(*prefix) != net(&new.prefix)) {
            tracing::warn!(
                interface = self.unit,
                "DHCPv6: another prefix instead of {prefix}; what units have of it is deprecated"
            );
            let _ = kernel.delete_leased_route(&unreachable(prefix));
        }
    }

    /// Has the kernel know the lease; what is there already is not touched, unless it is good for longer now.
    pub fn place(&mut self, around: &Around<'_>, is_extended: bool) {
        let Some(lease) = self.lease.clone() else { return };
        if self.link.is_none() && lease.prefix.is_none() {
            return;
        }
        let is_there = self.has(&lease, around.kernel);
        // the kernel's clock may be ahead of ours by a moment: what ends now is not put back
        let ends = |given: &Given| given.valid.left().is_some_and(|left| left <= TRIED);
        if !is_there && lease.address.as_ref().is_some_and(ends) {
            return;
        }
        // who is to try an address and finds that another host has it takes one that ends by itself away at once
        if !is_there && !is_extended && self.tried.is_some() {
            return self.decline(around);
        }
        if let Err(error) = self.put(&lease, around.kernel, is_extended) {
            tracing::warn!(interface = self.unit, %error, "DHCPv6: not all of the lease is in the kernel");
            self.note = error.to_string();
        }
        if !is_there && self.link.is_some() {
            self.tried = Some(Instant::now() + TRIED);
        }
    }

    /// Whether the kernel has the lease's address, if there is one, and no other host has. Where it does not say, it has.
    pub fn has(&self, lease: &Lease6, kernel: &Kernel) -> bool {
        let Some(address) = &lease.address else { return true };
        let is_it = |leased: &Leased| leased.prefix == address.net.into() && !leased.is_duplicate;
        kernel.leased().map_or(true, |all| all.iter().any(is_it))
    }

    fn put(&self, lease: &Lease6, kernel: &Kernel, is_extended: bool) -> Result<(), KernelError> {
        let (present, links) = (kernel.leased()?, kernel.links()?);
        let put = |device: &str,
                   net: Net,
                   [preferred_s, valid_s]: [u32; 2],
                   is_extended: bool,
                   is_tried: bool| {
            let Some(link) = links.iter().find(|link| link.name == device && link.up) else { return Ok(()) };
            let (ifindex, prefix) = (link.index, Prefix::from(net));
            let there = present.iter().find(|leased| (leased.ifindex, leased.prefix) == (ifindex, prefix));
            // what is deprecated stays so
            match there.is_some_and(|leased| !is_extended && (preferred_s > 0 || leased.preferred_s == 0)) {
                true => Ok(()),
                false => kernel.put_leased(
                    device,
                    &Leased { ifindex, prefix, preferred_s, valid_s, is_duplicate: false },
                    is_tried,
                ),
            }
        };
        let times = |given: &Given| [given.preferred.left_s(), given.valid.left_s()];
        if let Some(address) = &lease.address {
            put(&self.device, address.net, times(address), is_extended, true)?;
        }
        for (device, net, until) in lease.former.iter().filter(|(_, _, until)| until.left_s() > 0) {
            put(device, *net, [0, until.left_s()], false, false)?;
        }
        if let Some(prefix) = &lease.prefix {
            // RFC 7084, WPD-5: what no unit has of it must not go back to where it came from
            let route = unreachable(prefix.net);
            if !kernel.leased_routes()?.iter().any(|known| is_to(known, prefix.net)) {
                kernel.put_leased_route(&route, true)?;
            }
            for (device, net) in &lease.lans {
                put(device, *net, times(prefix), is_extended, false)?;
            }
        }
        Ok(())
    }

    /// Addresses and prefix. What units have of it is deprecated, and ends with the hosts behind them in mind.
    pub fn drop_given(&self, lease: &Lease6, kernel: &Kernel) {
        if let Some(address) = &lease.address {
            self.take_away(&lease.device, address.net, kernel);
        }
        if let Some(prefix) = &lease.prefix {
            let _ = kernel.delete_leased_route(&unreachable(prefix.net));
        }
        let links = kernel.links().unwrap_or_default();
        for (device, net) in &lease.lans {
            let Some(link) = links.iter().find(|link| link.name == *device) else { continue };
            let left_s = lease.prefix.as_ref().map_or(0, |prefix| prefix.valid.left_s()).min(FORMER_S);
            let leased = Leased {
                ifindex: link.index,
                prefix: (*net).into(),
                preferred_s: 0,
                valid_s: left_s,
                is_duplicate: false,
            };
            let is_there =
                kernel.leased().unwrap_or_default().iter().any(|known| known.prefix == leased.prefix);
            match left_s {
                0 => self.take_away(device, *net, kernel),
                _ if is_there => {
                    let _ = kernel.put_leased(device, &leased, false);
                }
                _ => {}
            }
        }
    }

    pub fn take_away(&self, device: &str, net: Net, kernel: &Kernel) {
        let ifindex =
            kernel.links().unwrap_or_default().iter().find(|link| link.name == device).map(|link| link.index);
        let is_there = |ifindex| {
            kernel
                .leased()
                .unwrap_or_default()
                .iter()
                .any(|leased| (leased.ifindex, leased.prefix) == (ifindex, net.into()))
        };
        if let Some(ifindex) = ifindex.filter(|ifindex| is_there(*ifindex))
            && let Err(error) = kernel.delete_address(ifindex, device, net.into())
        {
            tracing::warn!(interface = self.unit, %error, "DHCPv6: an address stays");
        }
    }
}

/// To a prefix whose units are not all there.
pub fn unreachable(prefix: Net) -> LeasedRoute {
    debug_assert!(matches!(prefix.addr, IpAddr::V6(_)));
    LeasedRoute { destination: prefix.into(), via: LeasedVia::Unreachable, metric: RA_METRIC }
}

/// Whether a route is that of a prefix, whatever its metric.
pub fn is_to(route: &LeasedRoute, prefix: Net) -> bool {
    (route.destination, route.via) == (prefix.into(), LeasedVia::Unreachable)
}

/// A device goes back to what kernels begin with.
pub fn forget_advertisements(kernel: &Kernel, device: &str) {
    set_advertisements(kernel, device, ["1", "1", &RA_METRIC.to_string()]);
}

fn set_advertisements(kernel: &Kernel, device: &str, values: [&str; 3]) {
    let took_them = sysctl(&format!("net/ipv6/conf/{device}/accept_ra")).is_ok_and(|now| now == "2");
    for (name, value) in ["accept_ra", "accept_ra_defrtr", "ra_defrtr_metric"].into_iter().zip(values) {
        let path = format!("net/ipv6/conf/{device}/{name}");
        // one that is not there belongs to a device that has gone, or to a later kernel
        if sysctl(&path).is_ok_and(|now| now != value)
            && let Err(error) = set_sysctl(&path, value)
        {
            tracing::warn!(%error, "DHCPv6: router advertisements are taken otherwise than configured");
        }
    }
    if took_them
        && (values[0], values[1]) != ("2", "1")
        && let Ok(ifindex) = if_nametoindex(device)
        && let Err(error) = kernel.forget_routers(ifindex)
    {
        tracing::warn!(%error, "DHCPv6: a default route of router advertisements stays");
    }
}
