use std::net::IpAddr;

use sluice_language::config::Prefix;
use sluice_language::nat::{address, bits};

/// Whether an address is one of a prefix. No address is one of the other family's.
pub fn contains(prefix: Prefix, address: IpAddr) -> bool {
    let ((network, width), (address, own_width)) = (bits(prefix.addr), bits(address));
    let differ = |len: u32| (network ^ address).checked_shr(width - len).unwrap_or(0);
    width == own_width && differ(prefix.len.into()) == 0
}

/// Of one address alone, which has no subnet.
pub fn is_host(prefix: Prefix) -> bool {
    u32::from(prefix.len) == bits(prefix.addr).1
}

/// The subnet of an address.
pub fn network(prefix: Prefix) -> Prefix {
    let (number, width) = bits(prefix.addr);
    let host = width - u32::from(prefix.len);
    let kept = number.checked_shr(host).and_then(|kept| kept.checked_shl(host)).unwrap_or(0);
    Prefix { addr: address(kept, prefix.addr), len: prefix.len }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_no_bits_of_hosts() {
        for (addr, len, wanted) in [
            ("10.71.2.9", 24, "10.71.2.0"),
            ("10.71.2.9", 0, "0.0.0.0"),
            ("10.71.2.9", 32, "10.71.2.9"),
            ("fd71:2::9", 64, "fd71:2::"),
            ("fd71:2::9", 0, "::"),
            ("fd71:2::9", 128, "fd71:2::9"),
        ] {
            let prefix = Prefix { addr: addr.parse().unwrap(), len };
            assert_eq!(network(prefix), Prefix { addr: wanted.parse().unwrap(), len });
        }
    }
}
