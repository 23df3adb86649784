//! Addresses that belong to this host: what arrives for them is delivered, not forwarded.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sluice_dataplane::Dataplane;
use sluice_language::Prefix;

use crate::engine::CommitError;
use crate::kernel::Kernel;

/// The only routing instance there is yet.
const MAIN: u16 = 0;

/// Makes the data plane's table hold what the kernel has.
pub fn update(kernel: &Kernel, dataplane: &Dataplane) -> Result<(), CommitError> {
    let mut wanted: Vec<(u16, IpAddr)> = kernel
        .addresses()?
        .iter()
        .filter(|a| !a.prefix.addr.is_loopback())
        .flat_map(|a| own(a.prefix))
        .map(|addr| (MAIN, addr))
        .collect();
    wanted.sort_unstable();
    wanted.dedup();
    dataplane.set_local_addresses(&wanted)?;
    Ok(())
}

/// An interface's address, and what else in its subnet means every host or this router: the IPv4 broadcast addresses
/// (RFC 1812 section 4.2.2.11) and the IPv6 subnet-router anycast address (RFC 4291 section 2.6.1).
fn own(prefix: Prefix) -> Vec<IpAddr> {
    match prefix.addr {
        IpAddr::V4(addr) if prefix.len < 31 => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix.len)).unwrap_or(0);
            let network = u32::from(addr) & mask;
            vec![addr.into(), Ipv4Addr::from(network).into(), Ipv4Addr::from(network | !mask).into()]
        }
        IpAddr::V6(addr) if prefix.len < 127 => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix.len)).unwrap_or(0);
            vec![addr.into(), Ipv6Addr::from(u128::from(addr) & mask).into()]
        }
        addr => vec![addr],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subnets_have_broadcast_and_anycast_addresses() {
        let own = |addr: &str, len| own(Prefix { addr: addr.parse().unwrap(), len });
        let ips = |list: &[&str]| list.iter().map(|a| a.parse::<IpAddr>().unwrap()).collect::<Vec<_>>();
        assert_eq!(own("10.0.1.1", 24), ips(&["10.0.1.1", "10.0.1.0", "10.0.1.255"]));
        assert_eq!(own("10.0.1.1", 31), ips(&["10.0.1.1"]));
        assert_eq!(own("fd00:1::1", 64), ips(&["fd00:1::1", "fd00:1::"]));
        assert_eq!(own("fd00:1::1", 128), ips(&["fd00:1::1"]));
    }
}
