use std::net::IpAddr;

use sluice_language::config::Prefix;

/// An address, or a prefix: `192.0.2.1`, `192.0.2.0/24`.
pub fn parse(text: &str) -> Option<Prefix> {
    let (addr, len) = text.split_once('/').map_or((text, None), |(addr, len)| (addr, Some(len)));
    let addr: IpAddr = addr.parse().ok()?;
    let longest = if addr.is_ipv4() { 32 } else { 128 };
    let len = len.map_or(Ok(longest), str::parse).ok()?;
    (len <= longest).then_some(Prefix { addr, len })
}
