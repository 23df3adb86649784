//! Addresses that belong to this host: what arrives for them is delivered, not forwarded.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sluice_dataplane::{Dataplane, LocalKind};
use sluice_language::Prefix;
use sluice_plan::InstanceWant;

use crate::kernel::{Kernel, instances};
use crate::state::error::AskError;

/// Makes the data plane's table hold what the kernel has; never less than what both states have in common.
/// An address belongs to the routing instance that its device is in.
pub fn update(kernel: &Kernel, dataplane: &Dataplane, known: &[InstanceWant]) -> Result<(), AskError> {
    let mut wanted = BTreeMap::new();
    let links = if known.is_empty() { vec![] } else { kernel.links()? };
    let instances = instances::numbers(&links, known);
    for address in kernel.addresses()?.iter().filter(|a| !a.prefix.addr.is_loopback()) {
        let instance = instances.get(&address.ifindex).copied().unwrap_or(0);
        for (addr, kind) in own(address.prefix, address.ifindex) {
            let entry = wanted.entry((instance, addr));
            entry.and_modify(|known: &mut LocalKind| *known = known.and(kind)).or_insert(kind);
        }
    }
    let wanted: Vec<_> = wanted.into_iter().map(|((instance, addr), kind)| (instance, addr, kind)).collect();
    dataplane.set_local_addresses(&wanted)?;
    Ok(())
}

/// An interface's address, and what else in its subnet means this router: the directed broadcast address (RFC 1812
/// section 4.2.2.11) and the IPv6 subnet-router anycast address (RFC 4291 section 2.6.1).
fn own(prefix: Prefix, ifindex: u32) -> Vec<(IpAddr, LocalKind)> {
    match prefix.addr {
        IpAddr::V4(addr) if prefix.len < 31 => {
            let hosts = u32::MAX.checked_shr(prefix.len.into()).unwrap_or(0);
            let broadcast = Ipv4Addr::from(u32::from(addr) | hosts);
            vec![
                (addr.into(), LocalKind::Address),
                (broadcast.into(), LocalKind::Broadcast { ifindex: Some(ifindex) }),
            ]
        }
        IpAddr::V6(addr) if prefix.len < 127 => {
            let hosts = u128::MAX.checked_shr(prefix.len.into()).unwrap_or(0);
            let anycast = Ipv6Addr::from(u128::from(addr) & !hosts);
            vec![(addr.into(), LocalKind::Address), (anycast.into(), LocalKind::Address)]
        }
        addr => vec![(addr, LocalKind::Address)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subnets_have_broadcast_and_anycast_addresses() {
        let own = |addr: &str, len| own(Prefix { addr: addr.parse().unwrap(), len }, 7);
        let list = |list: &[(&str, LocalKind)]| -> Vec<(IpAddr, LocalKind)> {
            list.iter().map(|(a, kind)| (a.parse().unwrap(), *kind)).collect()
        };
        assert_eq!(
            own("10.0.1.1", 24),
            list(&[
                ("10.0.1.1", LocalKind::Address),
                ("10.0.1.255", LocalKind::Broadcast { ifindex: Some(7) })
            ])
        );
        assert_eq!(own("10.0.1.1", 31), list(&[("10.0.1.1", LocalKind::Address)]));
        assert_eq!(
            own("fd00:1::1", 64),
            list(&[("fd00:1::1", LocalKind::Address), ("fd00:1::", LocalKind::Address)])
        );
        assert_eq!(own("fd00:1::1", 128), list(&[("fd00:1::1", LocalKind::Address)]));
    }
}
