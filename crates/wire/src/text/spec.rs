//! What each layer is called and which fields it has: the one list behind parsing, printing and help.

use super::Value;
use crate::{ethertype, icmpv4, icmpv6, protocol};

/// What a layer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// [`crate::eth`].
    Eth,
    /// [`crate::vlan`].
    Vlan,
    /// [`crate::arp`].
    Arp,
    /// [`crate::ipv4`].
    Ip,
    /// [`crate::ipv6`].
    Ip6,
    /// Hop-by-hop options of [`crate::ipv6_ext`].
    HopByHop,
    /// Destination options of [`crate::ipv6_ext`].
    DestinationOptions,
    /// Routing header of [`crate::ipv6_ext`].
    Routing,
    /// Fragment header of [`crate::ipv6_ext`].
    Fragment,
    /// [`crate::udp`].
    Udp,
    /// [`crate::tcp`].
    Tcp,
    /// [`crate::icmpv4`].
    Icmp,
    /// [`crate::icmpv6`].
    Icmp6,
    /// Payload as it is given.
    Raw,
    /// Payload of one byte many times.
    Fill,
    /// Ethernet padding, which no length counts.
    Trailer,
    /// Keeps the first bytes of the frame only.
    Cut,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Mac,
    V4,
    V6,
    Number {
        bits: u8,
    },
    Hex {
        bits: u8,
    },
    Named {
        bits: u8,
        names: &'static [(&'static str, u64)],
    },
    /// TCP flags as letters, `SA` for SYN with ACK.
    Letters,
    Bytes,
}

#[derive(Debug, Clone, Copy)]
pub struct Field {
    pub name: &'static str,
    pub form: Form,
    /// Printed even when it has its default.
    pub always: bool,
}

const fn always(name: &'static str, form: Form) -> Field {
    Field { name, form, always: true }
}

const fn maybe(name: &'static str, form: Form) -> Field {
    Field { name, form, always: false }
}

const fn num(bits: u8) -> Form {
    Form::Number { bits }
}

const fn hx(bits: u8) -> Form {
    Form::Hex { bits }
}

const ARP_OPERATIONS: &[(&str, u64)] = &[("request", 1), ("reply", 2)];
const NO_NAMES: &[(&str, u64)] = &[];
/// In the order of their bits, lowest first (RFC 9293 section 3.1; ECE and CWR RFC 3168).
const FLAG_LETTERS: &[u8; 8] = b"FSRPAUEC";

const ETHERTYPE: Form = Form::Named { bits: 16, names: ethertype::NAMES };
const PROTOCOL: Form = Form::Named { bits: 8, names: protocol::NAMES };

const ETH: &[Field] = &[always("dst", Form::Mac), always("src", Form::Mac), maybe("type", ETHERTYPE)];
const VLAN: &[Field] =
    &[always("id", num(12)), maybe("pcp", num(3)), maybe("dei", num(1)), maybe("type", ETHERTYPE)];
const ARP: &[Field] = &[
    always("op", Form::Named { bits: 16, names: ARP_OPERATIONS }),
    always("sha", Form::Mac),
    always("spa", Form::V4),
    always("tha", Form::Mac),
    always("tpa", Form::V4),
];
const IP: &[Field] = &[
    always("src", Form::V4),
    always("dst", Form::V4),
    always("ttl", num(8)),
    maybe("proto", PROTOCOL),
    maybe("tos", hx(8)),
    maybe("id", num(16)),
    maybe("df", num(1)),
    maybe("mf", num(1)),
    maybe("rf", num(1)),
    maybe("frag", num(13)),
    maybe("opts", Form::Bytes),
    maybe("version", num(4)),
    maybe("ihl", num(4)),
    maybe("len", num(16)),
    maybe("csum", hx(16)),
];
const IP6: &[Field] = &[
    always("src", Form::V6),
    always("dst", Form::V6),
    always("hop", num(8)),
    maybe("next", PROTOCOL),
    maybe("tc", hx(8)),
    maybe("flow", hx(20)),
    maybe("version", num(4)),
    maybe("len", num(16)),
];
const OPTIONS: &[Field] = &[maybe("next", PROTOCOL), maybe("opts", Form::Bytes), maybe("len", num(8))];
const ROUTING: &[Field] = &[
    maybe("next", PROTOCOL),
    always("type", num(8)),
    always("left", num(8)),
    maybe("data", Form::Bytes),
    maybe("len", num(8)),
];
const FRAGMENT: &[Field] = &[
    maybe("next", PROTOCOL),
    always("frag", num(13)),
    always("mf", num(1)),
    always("id", num(32)),
    maybe("res", hx(8)),
    maybe("res2", num(2)),
];
const UDP: &[Field] =
    &[always("sport", num(16)), always("dport", num(16)), maybe("len", num(16)), maybe("csum", hx(16))];
const TCP: &[Field] = &[
    always("sport", num(16)),
    always("dport", num(16)),
    always("flags", Form::Letters),
    maybe("seq", num(32)),
    maybe("ack", num(32)),
    maybe("win", num(16)),
    maybe("urg", num(16)),
    maybe("opts", Form::Bytes),
    maybe("res", num(4)),
    maybe("off", num(4)),
    maybe("csum", hx(16)),
];
const ICMP: &[Field] = &[
    always("type", Form::Named { bits: 8, names: icmpv4::NAMES }),
    maybe("code", num(8)),
    maybe("id", num(16)),
    maybe("seq", num(16)),
    maybe("mtu", num(16)),
    maybe("rest", hx(32)),
    maybe("csum", hx(16)),
    maybe("quote", num(16)),
];
const ICMP6: &[Field] = &[
    always("type", Form::Named { bits: 8, names: icmpv6::NAMES }),
    maybe("code", num(8)),
    maybe("id", num(16)),
    maybe("seq", num(16)),
    maybe("mtu", num(32)),
    maybe("rest", hx(32)),
    maybe("csum", hx(16)),
    maybe("quote", num(16)),
];
const BYTES: &[Field] = &[always("bytes", Form::Bytes)];
const FILL: &[Field] = &[always("n", num(16)), maybe("byte", hx(8))];
const CUT: &[Field] = &[always("n", num(16))];

const ALL: &[(Kind, &str, &[Field])] = &[
    (Kind::Eth, "eth", ETH),
    (Kind::Vlan, "vlan", VLAN),
    (Kind::Arp, "arp", ARP),
    (Kind::Ip, "ip", IP),
    (Kind::Ip6, "ip6", IP6),
    (Kind::HopByHop, "hbh", OPTIONS),
    (Kind::DestinationOptions, "dstopts", OPTIONS),
    (Kind::Routing, "routing", ROUTING),
    (Kind::Fragment, "fragment", FRAGMENT),
    (Kind::Udp, "udp", UDP),
    (Kind::Tcp, "tcp", TCP),
    (Kind::Icmp, "icmp", ICMP),
    (Kind::Icmp6, "icmp6", ICMP6),
    (Kind::Raw, "raw", BYTES),
    (Kind::Fill, "fill", FILL),
    (Kind::Trailer, "trailer", BYTES),
    (Kind::Cut, "cut", CUT),
];

impl Kind {
    fn entry(self) -> &'static (Kind, &'static str, &'static [Field]) {
        ALL.iter().find(|(kind, ..)| *kind == self).expect("every kind is listed")
    }

    /// By a layer's word in the text form.
    pub fn by_name(name: &str) -> Option<Kind> {
        ALL.iter().find(|(_, known, _)| *known == name).map(|(kind, ..)| *kind)
    }

    /// The layer's word in the text form.
    pub fn name(self) -> &'static str {
        self.entry().1
    }

    /// Its fields, in the order in which they are printed.
    pub fn fields(self) -> &'static [Field] {
        self.entry().2
    }

    /// Every layer name, for error messages.
    pub fn names() -> String {
        ALL.iter().map(|(_, name, _)| *name).collect::<Vec<_>>().join(", ")
    }
}

impl Field {
    pub fn print(&self, value: &Value) -> String {
        match (value, self.form) {
            (Value::Mac(mac), _) => mac.to_string(),
            (Value::V4(addr), _) => addr.to_string(),
            (Value::V6(addr), _) => addr.to_string(),
            (Value::Bytes(bytes), _) => hex(bytes),
            (Value::Number(n), Form::Hex { .. }) => format!("0x{n:x}"),
            (Value::Number(n), Form::Letters) => letters(*n as u8),
            (Value::Number(n), Form::Named { bits, names }) => {
                match names.iter().find(|(_, known)| known == n) {
                    Some((name, _)) => (*name).to_owned(),
                    None if bits == 16 => format!("0x{n:04x}"),
                    None => n.to_string(),
                }
            }
            (Value::Number(n), _) => n.to_string(),
        }
    }

    pub fn parse(&self, text: &str) -> Result<Value, String> {
        let wrong = |what: &str| format!("`{text}` is not {what} (field `{}`)", self.name);
        match self.form {
            Form::Mac => text.parse().map(Value::Mac),
            Form::V4 => text.parse().map(Value::V4).map_err(|_| wrong("an IPv4 address")),
            Form::V6 => text.parse().map(Value::V6).map_err(|_| wrong("an IPv6 address")),
            Form::Bytes => unhex(text).map(Value::Bytes).ok_or_else(|| wrong("hex bytes such as 0x9404")),
            Form::Letters => flags(text).map(Value::Number).ok_or_else(|| wrong("TCP flags such as SA")),
            Form::Number { bits } | Form::Hex { bits } => self.number(text, bits, NO_NAMES),
            Form::Named { bits, names } => self.number(text, bits, names),
        }
    }

    fn number(&self, text: &str, bits: u8, names: &[(&str, u64)]) -> Result<Value, String> {
        if let Some((_, value)) = names.iter().find(|(name, _)| *name == text) {
            return Ok(Value::Number(*value));
        }
        let parsed = match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => text.parse(),
        };
        match parsed {
            Ok(value) if value >> bits == 0 => Ok(Value::Number(value)),
            Ok(_) => Err(format!("`{text}` does not fit the {bits} bits of `{}`", self.name)),
            Err(_) => Err(format!("`{text}` is not a number (field `{}`)", self.name)),
        }
    }
}

fn letters(flags: u8) -> String {
    let set = (0..8).filter(|bit| flags & 1 << bit != 0);
    let text: String = set.map(|bit| FLAG_LETTERS[bit] as char).collect();
    if text.is_empty() { "none".to_owned() } else { text }
}

fn flags(text: &str) -> Option<u64> {
    if text == "none" {
        return Some(0);
    }
    text.bytes().try_fold(0, |flags, letter| {
        let bit = FLAG_LETTERS.iter().position(|known| *known == letter)?;
        Some(flags | 1 << bit)
    })
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold("0x".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.strip_prefix("0x")?;
    if digits.len() % 2 != 0 || !digits.is_ascii() {
        return None;
    }
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).ok()).collect()
}
