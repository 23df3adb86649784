//! Values that several parts of a configuration have.

use std::net::IpAddr;

use serde::Serialize;

/// An address with its prefix length; host bits may be set (interface addresses) or not (routes).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, PartialOrd, Ord)]
pub struct Prefix {
    /// With its host bits, as written.
    pub addr: IpAddr,
    /// In bits: 0 to 32 or 128.
    pub len: u8,
}

/// Whether two prefixes have an address in common.
pub(crate) fn overlap(a: &Prefix, b: &Prefix) -> bool {
    let bits = |prefix: &Prefix| match prefix.addr {
        IpAddr::V4(addr) => (u128::from(addr.to_bits()), 32),
        IpAddr::V6(addr) => (addr.to_bits(), 128),
    };
    let ((a_bits, width), (b_bits, b_width)) = (bits(a), bits(b));
    let differ = (a_bits ^ b_bits).checked_shr(width - u32::from(a.len.min(b.len))).unwrap_or(0);
    width == b_width && differ == 0
}

/// One term of an application: protocol plus port or ICMP ranges, all inclusive.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct Service {
    /// None = any protocol.
    pub protocol: Option<u8>,
    /// First and last; 0 to 65535 = any, and where the protocol has no ports.
    pub source_port: (u16, u16),
    /// As the source port.
    pub destination_port: (u16, u16),
    /// ICMP / ICMPv6 only.
    pub icmp_type: Option<(u8, u8)>,
    /// First and last; None = any.
    pub icmp_code: Option<(u8, u8)>,
    /// `NEVER_S` = the session does not end by being idle.
    pub inactivity_timeout_s: Option<u16>,
}

/// `inactivity-timeout never`
pub const NEVER_S: u16 = u16::MAX;
