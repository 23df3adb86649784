use std::net::IpAddr;

use sluice_language::config::Prefix;
use sluice_language::nat::bits;

/// Whether an address is one of a prefix. No address is one of the other family's.
pub fn contains(prefix: Prefix, address: IpAddr) -> bool {
    let ((network, width), (address, own_width)) = (bits(prefix.addr), bits(address));
    let differ = |len: u32| (network ^ address).checked_shr(width - len).unwrap_or(0);
    width == own_width && differ(prefix.len.into()) == 0
}
