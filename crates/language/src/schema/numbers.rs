//! Numbers of protocols, ports and ICMP messages, and the names Junos has for them.

use super::kind::number;
use crate::error::closest;

/// Port names Junos accepts.
const PORTS: &[(&str, u16)] = &[
    ("afs", 1483),
    ("bgp", 179),
    ("biff", 512),
    ("bootpc", 68),
    ("bootps", 67),
    ("cmd", 514),
    ("cvspserver", 2401),
    ("dhcp", 67),
    ("domain", 53),
    ("eklogin", 2105),
    ("ekshell", 2106),
    ("exec", 512),
    ("finger", 79),
    ("ftp", 21),
    ("ftp-data", 20),
    ("http", 80),
    ("https", 443),
    ("ident", 113),
    ("imap", 143),
    ("kerberos-sec", 88),
    ("klogin", 543),
    ("kpasswd", 761),
    ("krb-prop", 754),
    ("krbupdate", 760),
    ("kshell", 544),
    ("ldap", 389),
    ("ldp", 646),
    ("login", 513),
    ("mobileip-agent", 434),
    ("mobilip-mn", 435),
    ("msdp", 639),
    ("netbios-dgm", 138),
    ("netbios-ns", 137),
    ("netbios-ssn", 139),
    ("nfsd", 2049),
    ("nntp", 119),
    ("ntalk", 518),
    ("ntp", 123),
    ("pop3", 110),
    ("pptp", 1723),
    ("printer", 515),
    ("radacct", 1813),
    ("radius", 1812),
    ("rip", 520),
    ("rkinit", 2108),
    ("smtp", 25),
    ("snmp", 161),
    ("snmptrap", 162),
    ("snpp", 444),
    ("socks", 1080),
    ("ssh", 22),
    ("sunrpc", 111),
    ("syslog", 514),
    ("tacacs", 49),
    ("tacacs-ds", 65),
    ("talk", 517),
    ("telnet", 23),
    ("tftp", 69),
    ("timed", 525),
    ("who", 513),
    ("xdmcp", 177),
    ("zephyr-clt", 2103),
    ("zephyr-hm", 2104),
    ("zephyr-srv", 2102),
];

fn port(word: &str) -> Result<u16, String> {
    if let Some((_, port)) = PORTS.iter().find(|(name, _)| *name == word) {
        return Ok(*port);
    }
    number(word, 0, 65535).map(|port| port as u16).map_err(|why| match why.as_str() {
        "out of range" => format!("port {word} is above 65535"),
        _ => match closest(word, PORTS.iter().map(|(name, _)| *name)) {
            Some(name) => format!("no such port; did you mean `{name}`?"),
            None => "not a port".to_owned(),
        },
    })
}

/// Reads a port or an inclusive range.
pub(crate) fn ports(word: &str) -> Result<(u16, u16), String> {
    if let Ok(single) = port(word) {
        return Ok((single, single));
    }
    match word.split_once('-') {
        Some((low, high)) => {
            let (low, high) = (port(low)?, port(high)?);
            if low > high {
                return Err("the range runs backwards".into());
            }
            Ok((low, high))
        }
        None => port(word).map(|single| (single, single)),
    }
}

/// Protocol names Junos accepts in applications.
pub(super) const PROTOCOLS: &[(&str, u8)] = &[
    ("ah", 51),
    ("egp", 8),
    ("esp", 50),
    ("gre", 47),
    ("icmp", 1),
    ("icmp6", 58),
    ("igmp", 2),
    ("ipip", 4),
    ("node", 0),
    ("ospf", 89),
    ("pim", 103),
    ("rsvp", 46),
    ("sctp", 132),
    ("tcp", 6),
    ("udp", 17),
];

pub(crate) fn protocol(word: &str) -> Result<u8, String> {
    if let Some((_, protocol)) = PROTOCOLS.iter().find(|(name, _)| *name == word) {
        return Ok(*protocol);
    }
    number(word, 0, 255).map(|protocol| protocol as u8).map_err(|_| "not a protocol".to_owned())
}

/// ICMP types (RFC 792, RFC 1256).
const ICMP_TYPES: &[(&str, u8)] = &[
    ("echo-reply", 0),
    ("unreachable", UNREACHABLE),
    ("source-quench", 4),
    ("redirect", REDIRECT),
    ("echo-request", 8),
    ("router-advertisement", 9),
    ("router-solicit", 10),
    ("time-exceeded", TIME_EXCEEDED),
    ("parameter-problem", PARAMETER_PROBLEM),
    ("timestamp", 13),
    ("timestamp-reply", 14),
    ("info-request", 15),
    ("info-reply", 16),
    ("mask-request", 17),
    ("mask-reply", 18),
];

/// ICMPv6 types (RFC 4443, RFC 2710, RFC 4861, RFC 2894, RFC 4620, RFC 3122).
const ICMP6_TYPES: &[(&str, u8)] = &[
    ("destination-unreachable", UNREACHABLE6),
    ("packet-too-big", 2),
    ("time-exceeded", TIME_EXCEEDED6),
    ("parameter-problem", PARAMETER_PROBLEM6),
    ("echo-request", 128),
    ("echo-reply", 129),
    ("membership-query", 130),
    ("membership-report", 131),
    ("membership-termination", 132),
    ("router-solicit", 133),
    ("router-advertisement", 134),
    ("neighbor-solicit", 135),
    ("neighbor-advertisement", 136),
    ("redirect", 137),
    ("router-renumbering", 138),
    ("node-information-request", 139),
    ("node-information-reply", 140),
    ("inverse-neighbor-discovery-solicitation", 141),
    ("inverse-neighbor-discovery-advertisement", 142),
];

const UNREACHABLE: u8 = 3;
const REDIRECT: u8 = 5;
const TIME_EXCEEDED: u8 = 11;
const PARAMETER_PROBLEM: u8 = 12;
const UNREACHABLE6: u8 = 1;
const TIME_EXCEEDED6: u8 = 3;
const PARAMETER_PROBLEM6: u8 = 4;

/// Codes: name, type, number (RFC 792, RFC 1122 3.2.2.1, RFC 1812 5.2.7.1).
const ICMP_CODES: &[(&str, u8, u8)] = &[
    ("network-unreachable", UNREACHABLE, 0),
    ("host-unreachable", UNREACHABLE, 1),
    ("protocol-unreachable", UNREACHABLE, 2),
    ("port-unreachable", UNREACHABLE, 3),
    ("fragmentation-needed", UNREACHABLE, 4),
    ("source-route-failed", UNREACHABLE, 5),
    ("destination-network-unknown", UNREACHABLE, 6),
    ("destination-host-unknown", UNREACHABLE, 7),
    ("source-host-isolated", UNREACHABLE, 8),
    ("destination-network-prohibited", UNREACHABLE, 9),
    ("destination-host-prohibited", UNREACHABLE, 10),
    ("network-unreachable-for-tos", UNREACHABLE, 11),
    ("host-unreachable-for-tos", UNREACHABLE, 12),
    ("communication-prohibited-by-filtering", UNREACHABLE, 13),
    ("host-precedence-violation", UNREACHABLE, 14),
    ("precedence-cutoff-in-effect", UNREACHABLE, 15),
    ("redirect-for-network", REDIRECT, 0),
    ("redirect-for-host", REDIRECT, 1),
    ("redirect-for-tos-and-net", REDIRECT, 2),
    ("redirect-for-tos-and-host", REDIRECT, 3),
    ("ttl-eq-zero-during-transit", TIME_EXCEEDED, 0),
    ("ttl-eq-zero-during-reassembly", TIME_EXCEEDED, 1),
    ("ip-header-bad", PARAMETER_PROBLEM, 0),
    ("required-option-missing", PARAMETER_PROBLEM, 1),
];

/// Codes of ICMPv6 (RFC 4443 3).
const ICMP6_CODES: &[(&str, u8, u8)] = &[
    ("no-route-to-destination", UNREACHABLE6, 0),
    ("administratively-prohibited", UNREACHABLE6, 1),
    ("beyond-scope", UNREACHABLE6, 2),
    ("address-unreachable", UNREACHABLE6, 3),
    ("port-unreachable", UNREACHABLE6, 4),
    ("ttl-eq-zero-during-transit", TIME_EXCEEDED6, 0),
    ("ttl-eq-zero-during-reassembly", TIME_EXCEEDED6, 1),
    ("ip6-header-bad", PARAMETER_PROBLEM6, 0),
    ("unrecognized-next-header", PARAMETER_PROBLEM6, 1),
    ("unrecognized-option", PARAMETER_PROBLEM6, 2),
];

/// Reads an ICMP type of one family; a name may mean different numbers in the two.
pub(crate) fn icmp_type(word: &str, six: bool) -> Result<u8, String> {
    let names = if six { ICMP6_TYPES } else { ICMP_TYPES };
    if let Some((_, number)) = names.iter().find(|(name, _)| *name == word) {
        return Ok(*number);
    }
    octet(word, names.iter().map(|(name, _)| *name), "not an ICMP type")
}

/// Reads a code of messages of type `kind`; None = of any type, to see whether the word is one at all.
pub(crate) fn icmp_code(word: &str, six: bool, kind: Option<u8>) -> Result<u8, String> {
    let names = if six { ICMP6_CODES } else { ICMP_CODES };
    let of_type = || names.iter().filter(|(_, of, _)| kind.is_none_or(|kind| kind == *of));
    if let Some((_, _, number)) = of_type().find(|(name, ..)| *name == word) {
        return Ok(*number);
    }
    octet(word, of_type().map(|(name, ..)| *name), "not an ICMP code")
}

fn octet<'a>(word: &str, names: impl Iterator<Item = &'a str>, complaint: &str) -> Result<u8, String> {
    number(word, 0, 255).map(|number| number as u8).map_err(|_| match closest(word, names) {
        Some(name) => format!("{complaint}; did you mean `{name}`?"),
        None => complaint.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_numbers_names_or_ranges() {
        assert_eq!(ports("443"), Ok((443, 443)));
        assert_eq!(ports("ftp-data"), Ok((20, 20)));
        assert_eq!(ports("http-https"), Ok((80, 443)));
        assert_eq!(ports("0-65535"), Ok((0, 65535)));
        assert!(ports("90-80").unwrap_err().contains("backwards"));
        assert!(ports("htpp").unwrap_err().contains("`http`"));
        assert!(ports("65536").is_err() && ports("-").is_err() && ports("").is_err());
    }

    #[test]
    fn icmp_names_belong_to_their_family_and_type() {
        assert_eq!((icmp_type("echo-request", false), icmp_type("echo-request", true)), (Ok(8), Ok(128)));
        assert!(icmp_type("packet-too-big", false).is_err() && icmp_type("256", true).is_err());
        assert_eq!(icmp_code("port-unreachable", false, Some(3)), Ok(3));
        assert_eq!(icmp_code("port-unreachable", true, Some(1)), Ok(4));
        assert!(icmp_code("port-unreachable", true, Some(3)).is_err());
        assert!(icmp_code("port-unreachable", false, None).is_ok());
    }
}
