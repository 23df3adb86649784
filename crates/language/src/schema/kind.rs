//! What the values of statements look like, and how they are read.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::numbers::{PROTOCOLS, icmp_code, icmp_type, ports, protocol};
use crate::config::{NEVER_S, Prefix};
use crate::error::{closest, one_of};
use crate::schedule::{DAY_S, days_of_month, days_since_1970};
pub use crate::services::Choices;

/// What a value has to look like.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// Free text in quotes.
    Text,
    /// DNS-style name of a host.
    HostName,
    /// Identifier; the text says of what.
    Name(&'static str),
    /// Decimal.
    Number {
        /// Smallest.
        min: u64,
        /// Largest.
        max: u64,
    },
    /// Decimal, with `k`, `m` or `g` behind it for thousands, millions or thousands of millions.
    Amount {
        /// What of.
        unit: &'static str,
        /// Smallest.
        min: u64,
        /// Largest.
        max: u64,
    },
    /// Number of a GTP-U tunnel's end, decimal or hexadecimal.
    Teid,
    /// Differentiated services code point, by number or name.
    Dscp,
    /// A VLAN, with its TPID before it if one likes.
    VlanTag {
        /// 0x88a8 may be that TPID.
        service: bool,
    },
    /// Linux network device.
    Interface,
    /// `NAME.UNIT`, or `NAME` for unit 0.
    Unit,
    /// Host address with prefix length.
    InterfaceAddress,
    /// Network prefix without host bits.
    Prefix,
    /// Prefix of the address book: a bare address is a host.
    BookPrefix,
    /// Host address of either family.
    Address,
    /// One port or a range, by number or well-known name.
    Ports,
    /// IP protocol, by number or name.
    Protocol,
    /// Type of ICMP or ICMPv6, by number or name.
    IcmpType,
    /// Code of ICMP or ICMPv6, by number or name.
    IcmpCode,
    /// Seconds, or `never`.
    InactivityTimeout,
    /// Time of the day.
    Time,
    /// Date and time.
    Date,
    /// Gateway, or interface unit.
    NextHop,
    /// One of these; the text names the choice.
    Choice(&'static str, Choices),
}

impl Kind {
    /// Shown where a value is expected, as `<name>`.
    pub fn placeholder(&self) -> String {
        let name = match self {
            Kind::Text => "text",
            Kind::HostName => "host-name",
            Kind::Name(what) => what,
            Kind::Number { min, max } => return format!("<{min}..{max}>"),
            Kind::Amount { .. } => "amount",
            Kind::Teid => "teid",
            Kind::Dscp => "dscp",
            Kind::VlanTag { .. } => "tag",
            Kind::Interface => "interface",
            Kind::Unit => "interface.unit",
            Kind::InterfaceAddress => "address/length",
            Kind::Prefix | Kind::BookPrefix => "prefix",
            Kind::Address => "address",
            Kind::Ports => "port",
            Kind::Protocol => "protocol",
            Kind::IcmpType => "type",
            Kind::IcmpCode => "code",
            Kind::InactivityTimeout => "seconds",
            Kind::Time => "time",
            Kind::Date => "date",
            Kind::NextHop => "next-hop",
            Kind::Choice(name, _) => name,
        };
        format!("<{name}>")
    }

    /// What is accepted, in words.
    pub fn describe(&self) -> String {
        match self {
            Kind::Text => "text of at most 900 characters".into(),
            Kind::HostName => "a host name of letters, digits, `-` and `.`".into(),
            Kind::Name(_) => {
                "a name: up to 63 letters, digits, `-`, `_`, `.`, `:` and `/`, not beginning with `-`".into()
            }
            Kind::Number { min, max } => format!("a number from {min} to {max}"),
            Kind::Amount { unit, min, max } => {
                format!(
                    "{unit} from {min} to {max}; `k`, `m` and `g` stand for thousands, millions and so on"
                )
            }
            Kind::Teid => "a TEID from 1 to 4294967295, like `4097` or `0x1001`".into(),
            Kind::Dscp => format!("a number from 0 to 63 or one of: {}", names(DSCPS)),
            Kind::VlanTag { service: true } => {
                "a VLAN from 1 to 4094, like `100`, `0x8100.100` or `0x88a8.100`".into()
            }
            Kind::VlanTag { .. } => "a VLAN from 1 to 4094, like `100` or `0x8100.100`".into(),
            Kind::Interface => "the name of a Linux network device: at most 15 characters, no `/`".into(),
            Kind::Unit => "an interface and its unit, like `wan0.100`".into(),
            Kind::InterfaceAddress => {
                "an address and its length, like `192.0.2.1/24` or `2001:db8::1/64`".into()
            }
            Kind::Prefix => "a prefix, like `192.0.2.0/24` or `2001:db8::/32`".into(),
            Kind::BookPrefix => "a prefix or an address, like `192.0.2.0/24` or `2001:db8::1`".into(),
            Kind::Address => "an address, like `192.0.2.1` or `2001:db8::1`".into(),
            Kind::Ports => "a port or range, like `443`, `8000-8080` or `https`".into(),
            Kind::Protocol => format!("a protocol number from 0 to 255 or one of: {}", names(PROTOCOLS)),
            Kind::IcmpType => "a type number from 0 to 255 or a name such as `echo-request`".into(),
            Kind::IcmpCode => "a code number from 0 to 255 or a name such as `port-unreachable`".into(),
            Kind::InactivityTimeout => format!("a number of seconds from 4 to {MAX_TIMEOUT_S}, or `never`"),
            Kind::Time => "a time of the day, like `08:30`, `08:30:15` or `24:00`".into(),
            Kind::Date => "a date and time, like `2026-12-24.18:00`".into(),
            Kind::NextHop => "a gateway address or an interface and its unit".into(),
            Kind::Choice(_, choices) => {
                format!("one of: {}", one_of(&choices.iter().map(|(name, _)| *name).collect::<Vec<_>>()))
            }
        }
    }

    /// `Err` says why `word` is not acceptable; what would be is `describe`'s business.
    pub fn check(&self, word: &str) -> Result<(), String> {
        match self {
            Kind::Text => ensure(word.chars().count() <= 900, "too long"),
            Kind::HostName => host_name(word),
            Kind::Name(_) => identifier(word),
            Kind::Number { min, max } => number(word, *min, *max).map(drop),
            Kind::Amount { min, max, .. } => amount(word, *min, *max).map(drop),
            Kind::Teid => teid(word).map(drop),
            Kind::Dscp => dscp(word).map(drop),
            Kind::VlanTag { service } => {
                let (is_service, _) = vlan_tag(word)?;
                ensure(*service || !is_service, "an inner tag is an 802.1Q one")
            }
            Kind::Interface => interface(word),
            Kind::Unit => unit(word).map(drop),
            Kind::InterfaceAddress => interface_address(word).map(drop),
            Kind::Prefix => prefix(word).and_then(no_host_bits).map(drop),
            Kind::BookPrefix => book_prefix(word).map(drop),
            Kind::Address => address(word).map(drop),
            Kind::Ports => ports(word).map(drop),
            Kind::Protocol => protocol(word).map(drop),
            Kind::IcmpType => {
                icmp_type(word, false).or_else(|why| icmp_type(word, true).map_err(|_| why)).map(drop)
            }
            Kind::IcmpCode => {
                let of = |six| icmp_code(word, six, None);
                of(false).or_else(|why| of(true).map_err(|_| why)).map(drop)
            }
            Kind::InactivityTimeout => inactivity_timeout(word).map(drop),
            Kind::Time => time(word).map(drop),
            Kind::Date => date(word).map(drop),
            Kind::NextHop => next_hop(word),
            Kind::Choice(_, choices) => choice(word, choices),
        }
    }

    /// Word and help of each; empty unless it is a choice.
    pub fn choices(&self) -> Choices {
        match self {
            Kind::Choice(_, choices) => choices,
            _ => &[],
        }
    }
}

fn ensure(condition: bool, complaint: &str) -> Result<(), String> {
    if condition { Ok(()) } else { Err(complaint.to_owned()) }
}

fn names<T>(table: &[(&'static str, T)]) -> String {
    table.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

fn choice(word: &str, choices: Choices) -> Result<(), String> {
    if choices.iter().any(|(name, _)| *name == word) {
        return Ok(());
    }
    match closest(word, choices.iter().map(|(name, _)| *name)) {
        Some(name) => Err(format!("not known; did you mean `{name}`?")),
        None => Err("not known".into()),
    }
}

fn host_name(word: &str) -> Result<(), String> {
    let label_ok = |label: &str| {
        (1..=63).contains(&label.len())
            && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    ensure(word.len() <= 253 && word.split('.').all(label_ok), "not a host name")
}

fn identifier(word: &str) -> Result<(), String> {
    ensure(!word.is_empty() && word.len() <= 63, "too long or empty")?;
    let valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | '/');
    ensure(word.chars().all(valid) && !word.starts_with('-'), "not a name")
}

fn interface(word: &str) -> Result<(), String> {
    ensure((1..=15).contains(&word.len()), "longer than the 15 characters Linux allows, or empty")?;
    let valid = |c: char| c.is_ascii_graphic() && !matches!(c, '/' | '*' | '<' | '>' | '%');
    ensure(word.chars().all(valid) && word != "." && word != "..", "not a device name")
}

/// There is one way to write each: as words they are compared, and name what may stand once.
pub(crate) fn number(word: &str, min: u64, max: u64) -> Result<u64, String> {
    let value = digits(word, min, max)?;
    ensure(word.len() == 1 || !word.starts_with('0'), "a number that begins with 0")?;
    Ok(value)
}

/// Of a fixed length, with zeros in front.
fn digits(word: &str, min: u64, max: u64) -> Result<u64, String> {
    if word.is_empty() || !word.bytes().all(|b| b.is_ascii_digit()) {
        return Err("not a number".into());
    }
    match word.parse::<u64>() {
        Ok(value) if (min..=max).contains(&value) => Ok(value),
        _ => Err("out of range".into()),
    }
}

/// Reads `10m`.
pub(crate) fn amount(word: &str, min: u64, max: u64) -> Result<u64, String> {
    let scale = match word.bytes().last() {
        Some(b'k') => 1_000,
        Some(b'm') => 1_000_000,
        Some(b'g') => 1_000_000_000,
        _ => 1,
    };
    let digits = if scale == 1 { word } else { &word[..word.len() - 1] };
    let value = number(digits, 0, u64::MAX)?.checked_mul(scale);
    value.filter(|value| (min..=max).contains(value)).ok_or_else(|| "out of range".to_owned())
}

/// The end of a tunnel; no session has 0 (TS 29.281 5.1).
pub(crate) fn teid(word: &str) -> Result<u32, String> {
    let value = match word.strip_prefix("0x") {
        Some(digits) if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit()) => {
            u32::from_str_radix(digits, 16).map_err(|_| "out of range".to_owned())?
        }
        Some(_) => return Err("not a number".into()),
        None => number(word, 0, u32::MAX.into())? as u32,
    };
    if value == 0 { Err("no session has the TEID 0".into()) } else { Ok(value) }
}

/// RFC 2474, RFC 2597, RFC 3246, RFC 5865.
const DSCPS: &[(&str, u8)] = &[
    ("be", 0),
    ("cs1", 8),
    ("af11", 10),
    ("af12", 12),
    ("af13", 14),
    ("cs2", 16),
    ("af21", 18),
    ("af22", 20),
    ("af23", 22),
    ("cs3", 24),
    ("af31", 26),
    ("af32", 28),
    ("af33", 30),
    ("cs4", 32),
    ("af41", 34),
    ("af42", 36),
    ("af43", 38),
    ("cs5", 40),
    ("va", 44),
    ("ef", 46),
    ("cs6", 48),
    ("cs7", 56),
];

pub(crate) fn dscp(word: &str) -> Result<u8, String> {
    match DSCPS.iter().find(|(name, _)| *name == word) {
        Some((_, value)) => Ok(*value),
        None => number(word, 0, 63).map(|value| value as u8),
    }
}

/// Reads `VLAN` or `TPID.VLAN`; whether the TPID is that of a service tag, and the VLAN.
pub(crate) fn vlan_tag(word: &str) -> Result<(bool, u16), String> {
    let (tpid, id) = word.split_once('.').unwrap_or(("0x8100", word));
    let service = match tpid.to_ascii_lowercase().as_str() {
        "0x8100" => false,
        "0x88a8" => true,
        _ => return Err(format!("the TPID `{tpid}` is neither 0x8100 nor 0x88a8")),
    };
    Ok((service, number(id, 1, 4094)? as u16))
}

/// The data plane counts in 16 bits; the largest number means `never`.
const MAX_TIMEOUT_S: u16 = NEVER_S - 1;

pub(crate) fn inactivity_timeout(word: &str) -> Result<u16, String> {
    match word {
        "never" => Ok(NEVER_S),
        word => number(word, 4, MAX_TIMEOUT_S.into()).map(|seconds| seconds as u16),
    }
}

/// Reads `HH:MM` or `HH:MM:SS` as seconds of the day; `24:00` is its end.
pub(crate) fn time(word: &str) -> Result<u32, String> {
    let parts: Vec<&str> = word.split(':').collect();
    let part = |index: usize, max: u64| match parts.get(index) {
        Some(part) => ensure(part.len() == 2, "not a time").and_then(|()| digits(part, 0, max)),
        None => Ok(0),
    };
    ensure(matches!(parts.len(), 2 | 3), "not a time")?;
    let seconds = part(0, 24)? * 3600 + part(1, 59)? * 60 + part(2, 59)?;
    ensure(seconds <= u64::from(DAY_S as u32), "out of range")?;
    Ok(seconds as u32)
}

/// Reads `YYYY-MM-DD.HH:MM` as local seconds since 1970.
pub(crate) fn date(word: &str) -> Result<i64, String> {
    let (day, time_of_day) = word.split_once('.').ok_or("the time is missing")?;
    let parts: Vec<&str> = day.split('-').collect();
    let [year, month, day] = parts.as_slice() else { return Err("not a date".into()) };
    ensure(year.len() == 4 && month.len() == 2 && day.len() == 2, "not a date")?;
    let (year, month) = (digits(year, 1970, 9999)?, digits(month, 1, 12)?);
    let day = digits(day, 1, 31)?;
    let days = days_since_1970(year as i64, month as i64, day as i64);
    ensure(day <= days_of_month(year as i64, month as i64), "the month has fewer days")?;
    Ok(days * DAY_S + i64::from(time(time_of_day)?))
}

/// Splits `wan0.100`; a name without unit means unit 0.
pub(crate) fn unit(word: &str) -> Result<(&str, u32), String> {
    let (name, unit) = match word.rsplit_once('.') {
        Some((name, unit)) => (name, number(unit, 0, 16385).map_err(|why| format!("the unit is {why}"))?),
        None => (word, 0),
    };
    interface(name)?;
    Ok((name, unit as u32))
}

pub(crate) fn address(word: &str) -> Result<IpAddr, String> {
    word.parse().map_err(|_| "not an IPv4 or IPv6 address".to_owned())
}

fn length(word: &str, max: u8) -> Result<u8, String> {
    number(word, 0, max.into())
        .map(|length| length as u8)
        .map_err(|_| format!("`/{word}` is not a length from 0 to {max}"))
}

/// Reads `address/length`; IPv4 may be cut short as in `10/8`.
pub(crate) fn prefix(word: &str) -> Result<Prefix, String> {
    let Some((addr, len)) = word.split_once('/') else {
        address(word)?;
        return Err("the length is missing".into());
    };
    let addr = match address(addr) {
        Ok(addr) => addr,
        Err(why) => IpAddr::V4(short_ipv4(addr).ok_or(why)?),
    };
    let len = length(len, if addr.is_ipv4() { 32 } else { 128 })?;
    Ok(Prefix { addr, len })
}

fn short_ipv4(word: &str) -> Option<Ipv4Addr> {
    let mut octets = [0u8; 4];
    for (index, part) in word.split('.').enumerate() {
        *octets.get_mut(index)? = number(part, 0, 255).ok()? as u8;
    }
    Some(octets.into())
}

/// Refuses `192.0.2.1/24` where a network is meant.
pub(crate) fn no_host_bits(prefix: Prefix) -> Result<Prefix, String> {
    let network = first_address(prefix);
    if network == prefix.addr {
        return Ok(prefix);
    }
    Err(format!("bits beyond the length are set; did you mean `{network}/{}`?", prefix.len))
}

/// The network's own.
pub fn first_address(prefix: Prefix) -> IpAddr {
    match prefix.addr {
        IpAddr::V4(addr) => IpAddr::V4(Ipv4Addr::from_bits(addr.to_bits() & mask4(prefix.len))),
        IpAddr::V6(addr) => IpAddr::V6(Ipv6Addr::from_bits(addr.to_bits() & mask6(prefix.len))),
    }
}

/// With all bits of hosts.
pub fn last_address(prefix: Prefix) -> IpAddr {
    match prefix.addr {
        IpAddr::V4(addr) => IpAddr::V4(Ipv4Addr::from_bits(addr.to_bits() | !mask4(prefix.len))),
        IpAddr::V6(addr) => IpAddr::V6(Ipv6Addr::from_bits(addr.to_bits() | !mask6(prefix.len))),
    }
}

fn mask4(len: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0)
}

fn mask6(len: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0)
}

/// A prefix, or an address that stands for itself alone.
pub(crate) fn book_prefix(word: &str) -> Result<Prefix, String> {
    match word.parse::<IpAddr>() {
        Ok(addr) => Ok(Prefix { addr, len: if addr.is_ipv4() { 32 } else { 128 } }),
        Err(_) => prefix(word).and_then(no_host_bits),
    }
}

/// An address a host may carry, with the length of its subnet.
pub(crate) fn interface_address(word: &str) -> Result<Prefix, String> {
    let prefix = prefix(word)?;
    let (first, last) = (first_address(prefix), last_address(prefix));
    match prefix.addr {
        IpAddr::V4(addr) => {
            let spare_ends = prefix.len < 31;
            ensure(
                !(spare_ends && prefix.addr == first),
                "that is the address of the network, not of a host",
            )?;
            ensure(!(spare_ends && prefix.addr == last), "that is the broadcast address of the network")?;
            let usable = !addr.is_loopback() && !addr.is_multicast() && !addr.is_unspecified();
            ensure(usable && addr.octets()[0] < 240, "no host can have that address")?;
        }
        IpAddr::V6(addr) => {
            let usable = !addr.is_loopback() && !addr.is_multicast() && !addr.is_unspecified();
            ensure(usable && addr.to_ipv4_mapped().is_none(), "no host can have that address")?;
        }
    }
    Ok(prefix)
}

fn next_hop(word: &str) -> Result<(), String> {
    if address(word).is_ok() {
        return Ok(());
    }
    ensure(!word.contains('/'), "a next hop has no length")?;
    unit(word).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> Prefix {
        prefix(text).unwrap()
    }

    #[test]
    fn prefixes_are_read_strictly() {
        assert_eq!(net("0/0").len, 0);
        assert_eq!(net("10/8"), net("10.0.0.0/8"));
        assert_eq!(first_address(net("fd00:1::1/64")), "fd00:1::".parse::<IpAddr>().unwrap());
        assert_eq!(last_address(net("10.0.1.1/24")), "10.0.1.255".parse::<IpAddr>().unwrap());
        assert_eq!(last_address(net("::/0")), IpAddr::V6(Ipv6Addr::from_bits(u128::MAX)));
        for wrong in
            ["10.0.0.0", "10.0.0.0/33", "10.0.0.256/24", "::/129", "/8", "10.0.0.0/", "1.2.3.4.5/8", "1/+8"]
        {
            assert!(prefix(wrong).is_err(), "{wrong}");
        }
        assert!(book_prefix("10.0.0.1/24").unwrap_err().contains("`10.0.0.0/24`"));
    }

    #[test]
    fn a_prefix_goes_from_no_bits_of_hosts_to_all() {
        for (prefix, first, last) in [
            ("10.71.2.9/24", "10.71.2.0", "10.71.2.255"),
            ("10.71.2.9/0", "0.0.0.0", "255.255.255.255"),
            ("10.71.2.9/32", "10.71.2.9", "10.71.2.9"),
            ("fd71:2::9/64", "fd71:2::", "fd71:2::ffff:ffff:ffff:ffff"),
            ("fd71:2::9/0", "::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
            ("fd71:2::9/128", "fd71:2::9", "fd71:2::9"),
        ] {
            let prefix = net(prefix);
            assert_eq!(
                (first_address(prefix), last_address(prefix)),
                (first.parse().unwrap(), last.parse().unwrap())
            );
        }
    }

    #[test]
    fn interface_addresses_belong_to_hosts() {
        for good in ["10.0.1.1/24", "10.0.1.0/31", "10.0.1.1/32", "fd00::1/64", "fe80::1/64"] {
            assert!(interface_address(good).is_ok(), "{good}");
        }
        for wrong in [
            "10.0.1.0/24",
            "10.0.1.255/24",
            "127.0.0.1/8",
            "224.0.0.1/24",
            "::1/128",
            "ff02::1/64",
            "240.0.0.1/8",
        ] {
            assert!(interface_address(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn tags_may_name_their_tpid() {
        assert_eq!(vlan_tag("100"), Ok((false, 100)));
        assert_eq!(vlan_tag("0x8100.4094"), Ok((false, 4094)));
        assert_eq!(vlan_tag("0x88A8.1"), Ok((true, 1)));
        for wrong in ["0", "4095", "0x9100.5", "0x88a8.", "0x88a8.0", "88a8.5", "x", "1.2"] {
            assert!(vlan_tag(wrong).is_err(), "{wrong}");
        }
        assert!(Kind::VlanTag { service: false }.check("0x88a8.5").is_err());
    }

    #[test]
    fn units_default_to_zero() {
        assert_eq!(unit("wan0.100"), Ok(("wan0", 100)));
        assert_eq!(unit("wan0"), Ok(("wan0", 0)));
        assert!(unit("wan0.x").is_err() && unit("wan0.16386").is_err() && unit(".1").is_err());
    }
}
