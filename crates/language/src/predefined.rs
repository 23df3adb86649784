//! Applications that exist without being defined, as Junos has them.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::config::Service;
use crate::services::{ICMP, ICMP6, TCP, UDP, icmp, ports, protocol, tcp, udp};

const SCTP: u8 = 132;

pub const PREDEFINED: &[(&str, &[Service])] = &[
    ("junos-aol", &[ports(TCP, 5190, 5193)]),
    ("junos-bgp", &[tcp(179)]),
    ("junos-biff", &[udp(512)]),
    ("junos-bootpc", &[udp(68)]),
    ("junos-bootps", &[udp(67)]),
    ("junos-chargen", &[udp(19)]),
    ("junos-cvspserver", &[tcp(2401)]),
    ("junos-dhcp-client", &[udp(68)]),
    ("junos-dhcp-relay", &[udp(67)]),
    ("junos-dhcp-server", &[udp(67)]),
    ("junos-discard", &[udp(9)]),
    ("junos-dns-tcp", &[tcp(53)]),
    ("junos-dns-udp", &[udp(53)]),
    ("junos-echo", &[udp(7)]),
    ("junos-finger", &[tcp(79)]),
    ("junos-ftp", &[tcp(21)]),
    ("junos-ftp-data", &[tcp(20)]),
    ("junos-gnutella", &[ports(UDP, 6346, 6347)]),
    ("junos-gopher", &[tcp(70)]),
    ("junos-gprs-gtp-c", &[tcp(2123), udp(2123)]),
    ("junos-gprs-gtp-c-tcp", &[tcp(2123)]),
    ("junos-gprs-gtp-c-udp", &[udp(2123)]),
    ("junos-gprs-gtp-u", &[tcp(2152), udp(2152)]),
    ("junos-gprs-gtp-u-tcp", &[tcp(2152)]),
    ("junos-gprs-gtp-u-udp", &[udp(2152)]),
    ("junos-gprs-gtp-v0", &[tcp(3386), udp(3386)]),
    ("junos-gprs-gtp-v0-tcp", &[tcp(3386)]),
    ("junos-gprs-gtp-v0-udp", &[udp(3386)]),
    ("junos-gprs-sctp", &[protocol(SCTP)]),
    ("junos-gre", &[protocol(47)]),
    ("junos-gtp", &[udp(2123), udp(2152), udp(3386)]),
    ("junos-h323", &[tcp(1720), udp(1719), tcp(1503), tcp(389), tcp(522), tcp(1731)]),
    ("junos-http", &[tcp(80)]),
    ("junos-http-ext", &[tcp(7001)]),
    ("junos-https", &[tcp(443)]),
    ("junos-icmp-all", &[protocol(ICMP)]),
    ("junos-icmp-ping", &[icmp(ICMP, 8, 8)]),
    ("junos-icmp6-all", &[protocol(ICMP6)]),
    ("junos-icmp6-dst-unreach-addr", &[Service { icmp_code: Some((3, 3)), ..icmp(ICMP6, 1, 1) }]),
    ("junos-icmp6-dst-unreach-admin", &[Service { icmp_code: Some((1, 1)), ..icmp(ICMP6, 1, 1) }]),
    ("junos-icmp6-dst-unreach-beyond", &[Service { icmp_code: Some((2, 2)), ..icmp(ICMP6, 1, 1) }]),
    ("junos-icmp6-dst-unreach-port", &[Service { icmp_code: Some((4, 4)), ..icmp(ICMP6, 1, 1) }]),
    ("junos-icmp6-dst-unreach-route", &[Service { icmp_code: Some((0, 0)), ..icmp(ICMP6, 1, 1) }]),
    ("junos-icmp6-echo-reply", &[icmp(ICMP6, 129, 129)]),
    ("junos-icmp6-echo-request", &[icmp(ICMP6, 128, 128)]),
    ("junos-icmp6-packet-to-big", &[icmp(ICMP6, 2, 2)]),
    ("junos-icmp6-packet-too-big", &[icmp(ICMP6, 2, 2)]),
    ("junos-icmp6-param-prob-header", &[Service { icmp_code: Some((0, 0)), ..icmp(ICMP6, 4, 4) }]),
    ("junos-icmp6-param-prob-nexthdr", &[Service { icmp_code: Some((1, 1)), ..icmp(ICMP6, 4, 4) }]),
    ("junos-icmp6-param-prob-option", &[Service { icmp_code: Some((2, 2)), ..icmp(ICMP6, 4, 4) }]),
    ("junos-icmp6-time-exceed-reassembly", &[Service { icmp_code: Some((1, 1)), ..icmp(ICMP6, 3, 3) }]),
    ("junos-icmp6-time-exceed-transit", &[Service { icmp_code: Some((0, 0)), ..icmp(ICMP6, 3, 3) }]),
    ("junos-ident", &[tcp(113)]),
    ("junos-ike", &[udp(500)]),
    ("junos-ike-nat", &[udp(4500)]),
    ("junos-imap", &[tcp(143)]),
    ("junos-imaps", &[tcp(993)]),
    ("junos-internet-locator-service", &[tcp(389)]),
    ("junos-irc", &[ports(TCP, 6660, 6669)]),
    ("junos-l2tp", &[udp(1701)]),
    ("junos-ldap", &[tcp(389)]),
    ("junos-ldp-tcp", &[tcp(646)]),
    ("junos-ldp-udp", &[udp(646)]),
    ("junos-lpr", &[tcp(515)]),
    ("junos-mail", &[tcp(25)]),
    ("junos-mgcp-ca", &[udp(2727)]),
    ("junos-mgcp-ua", &[udp(2427)]),
    ("junos-ms-rpc-epm", &[tcp(135)]),
    ("junos-ms-rpc-tcp", &[tcp(135)]),
    ("junos-ms-rpc-udp", &[udp(135)]),
    ("junos-ms-sql", &[tcp(1433)]),
    ("junos-msn", &[tcp(1863)]),
    ("junos-nbds", &[udp(138)]),
    ("junos-nbname", &[udp(137)]),
    ("junos-netbios-session", &[tcp(139)]),
    ("junos-nfs", &[udp(111)]),
    ("junos-nfsd-tcp", &[tcp(2049)]),
    ("junos-nfsd-udp", &[udp(2049)]),
    ("junos-nntp", &[tcp(119)]),
    ("junos-ns-global", &[tcp(15397)]),
    ("junos-ns-global-pro", &[tcp(15397)]),
    ("junos-nsm", &[udp(69)]),
    ("junos-ntalk", &[udp(518), tcp(518)]),
    ("junos-ntp", &[udp(123)]),
    ("junos-ospf", &[protocol(89)]),
    ("junos-pc-anywhere", &[udp(5632)]),
    ("junos-persistent-nat", &[protocol(255)]),
    ("junos-ping", &[icmp(ICMP, 8, 8)]),
    ("junos-pingv6", &[icmp(ICMP6, 128, 128)]),
    ("junos-pop3", &[tcp(110)]),
    ("junos-pop3s", &[tcp(995)]),
    ("junos-pptp", &[tcp(1723)]),
    ("junos-printer", &[tcp(515)]),
    ("junos-r2cp", &[udp(28672)]),
    ("junos-radacct", &[udp(1813)]),
    ("junos-radius", &[udp(1812)]),
    ("junos-rdp", &[tcp(3389)]),
    ("junos-realaudio", &[tcp(554)]),
    ("junos-rip", &[udp(520)]),
    ("junos-rsh", &[tcp(514)]),
    ("junos-rtsp", &[tcp(554)]),
    ("junos-sccp", &[tcp(2000)]),
    ("junos-sctp-any", &[protocol(SCTP)]),
    ("junos-sip", &[udp(5060), tcp(5060)]),
    ("junos-smb", &[tcp(139), tcp(445)]),
    ("junos-smb-session", &[tcp(445)]),
    ("junos-smtp", &[tcp(25)]),
    ("junos-smtps", &[tcp(465)]),
    ("junos-snmp-agentx", &[tcp(705)]),
    ("junos-snpp", &[tcp(444)]),
    ("junos-sql-monitor", &[udp(1434)]),
    ("junos-sqlnet-v1", &[tcp(1525)]),
    ("junos-sqlnet-v2", &[tcp(1521)]),
    ("junos-ssh", &[tcp(22)]),
    ("junos-stun", &[ports(UDP, 3478, 3479), ports(TCP, 3478, 3479)]),
    ("junos-stun-tcp", &[ports(TCP, 3478, 3479)]),
    ("junos-stun-udp", &[ports(UDP, 3478, 3479)]),
    ("junos-sun-rpc-portmap-tcp", &[tcp(111)]),
    ("junos-sun-rpc-portmap-udp", &[udp(111)]),
    ("junos-sun-rpc-tcp", &[tcp(111)]),
    ("junos-sun-rpc-udp", &[udp(111)]),
    ("junos-syslog", &[udp(514)]),
    ("junos-tacacs", &[tcp(49)]),
    ("junos-tacacs-ds", &[tcp(65)]),
    ("junos-talk", &[udp(517), tcp(517)]),
    ("junos-tcp-any", &[protocol(TCP)]),
    ("junos-telnet", &[tcp(23)]),
    ("junos-tftp", &[udp(69)]),
    ("junos-twamp", &[tcp(862)]),
    ("junos-udp-any", &[protocol(UDP)]),
    ("junos-uucp", &[udp(540)]),
    ("junos-vdo-live", &[ports(UDP, 7000, 7010)]),
    ("junos-vnc", &[tcp(5800)]),
    ("junos-wais", &[tcp(210)]),
    ("junos-who", &[udp(513)]),
    ("junos-whois", &[tcp(43)]),
    ("junos-winframe", &[tcp(1494)]),
    ("junos-wxcontrol", &[tcp(3578)]),
    ("junos-x-windows", &[ports(TCP, 6000, 6063)]),
    ("junos-xnm-clear-text", &[tcp(3221)]),
    ("junos-xnm-ssl", &[tcp(3220)]),
    ("junos-ymsg", &[ports(TCP, 5000, 5010), tcp(5050), ports(UDP, 5000, 5010), udp(5050)]),
];

/// Predefined application-sets and their members.
pub const SETS: &[(&str, &[&str])] = &[
    ("junos-cifs", &["junos-netbios-session", "junos-smb-session"]),
    ("junos-mgcp", &["junos-mgcp-ca", "junos-mgcp-ua"]),
    ("junos-ms-rpc", &["junos-ms-rpc-tcp", "junos-ms-rpc-udp"]),
    // Junos opens what the endpoint mapper hands out, too; without an ALG there is only the mapper itself.
    ("junos-ms-rpc-any", &["junos-ms-rpc-tcp", "junos-ms-rpc-udp"]),
    ("junos-routing-inbound", &["junos-bgp", "junos-ldp-tcp", "junos-ldp-udp", "junos-rip"]),
    ("junos-sun-rpc", &["junos-sun-rpc-tcp", "junos-sun-rpc-udp"]),
    ("junos-sun-rpc-any", &["junos-sun-rpc-tcp", "junos-sun-rpc-udp"]),
    ("junos-sun-rpc-portmap", &["junos-sun-rpc-portmap-tcp", "junos-sun-rpc-portmap-udp"]),
];

/// What stands behind `junos-ms-rpc-` in names of applications that are told apart by UUID.
const MS_RPC: &[&str] = &[
    "iis-com",
    "iis-com-1",
    "iis-com-adminbase",
    "msexchange",
    "msexchange-database",
    "msexchange-directory",
    "msexchange-directory-nsp",
    "msexchange-directory-rfr",
    "msexchange-info-store",
    "uuid-any-tcp",
    "uuid-any-udp",
    "wmic",
    "wmic-admin",
    "wmic-admin2",
    "wmic-mgmt",
    "wmic-webm-callresult",
    "wmic-webm-classobject",
    "wmic-webm-level1login",
    "wmic-webm-login-clientid",
    "wmic-webm-login-helper",
    "wmic-webm-objectsink",
    "wmic-webm-refreshing-services",
    "wmic-webm-remote-refresher",
    "wmic-webm-services",
    "wmic-webm-shutdown",
];

/// What stands behind `junos-sun-rpc-`, perhaps with `-tcp` or `-udp`, in names of applications that are told apart by
/// RPC program number.
const SUN_RPC: &[&str] = &[
    "any",
    "mountd",
    "nfs",
    "nfs-access",
    "nlockmgr",
    "rquotad",
    "ruserd",
    "sadmind",
    "sprayd",
    "status",
    "walld",
    "ypbind",
    "ypserv",
];

/// Every predefined name with its terms, sets included.
pub fn all<'a>() -> impl Iterator<Item = (&'a str, Vec<Service>)> {
    let sets = SETS.iter().map(|(name, members)| (*name, flattened(members)));
    PREDEFINED.iter().map(|(name, terms)| (*name, terms.to_vec())).chain(sets)
}

/// The terms of a predefined application-set.
pub fn set(name: &str) -> Option<Vec<Service>> {
    SETS.iter().find(|(set, _)| *set == name).map(|(_, members)| flattened(members))
}

fn flattened(members: &[&str]) -> Vec<Service> {
    let terms = |member: &&str| PREDEFINED.iter().find(|(name, _)| name == member).map(|(_, terms)| *terms);
    members.iter().filter_map(terms).flatten().cloned().collect()
}

/// An application of Junos that only the RPC payload tells, so that no protocol and port can stand for it.
pub fn is_alg_only(name: &str) -> bool {
    if let Some(rest) = name.strip_prefix("junos-ms-rpc-") {
        return MS_RPC.contains(&rest);
    }
    let Some(rest) = name.strip_prefix("junos-sun-rpc-") else { return false };
    let program = rest.strip_suffix("-tcp").or_else(|| rest.strip_suffix("-udp")).unwrap_or(rest);
    SUN_RPC.contains(&program) && rest != "any"
}

/// Names that others, which say better what mostly stands behind the port, are preferred to.
const SECOND_NAMES: &[&str] = &[
    "junos-bootpc",
    "junos-bootps",
    "junos-dhcp-relay",
    "junos-gprs-gtp-c",
    "junos-gprs-gtp-u",
    "junos-gprs-gtp-v0",
    "junos-internet-locator-service",
    "junos-lpr",
    "junos-ms-rpc-epm",
    "junos-nfs",
    "junos-ns-global-pro",
    "junos-nsm",
    "junos-rsh",
    "junos-sun-rpc-portmap-tcp",
    "junos-sun-rpc-portmap-udp",
];

type Named = HashMap<(u8, u16), &'static str>;

/// Applications of one port each before those that have several.
static NAMES: LazyLock<Named> = LazyLock::new(|| {
    let mut names = Named::new();
    let named = PREDEFINED.iter().filter(|(name, _)| !SECOND_NAMES.contains(name));
    let (one, several): (Vec<_>, Vec<_>) = named.partition(|(_, terms)| terms.len() == 1);
    for (name, terms) in one.into_iter().chain(several) {
        for term in terms.iter() {
            let Some(protocol) = term.protocol.filter(|protocol| [TCP, UDP].contains(protocol)) else {
                continue;
            };
            let (low, high) = term.destination_port;
            if (low, high) != (0, u16::MAX) {
                for port in low..=high {
                    names.entry((protocol, port)).or_insert(name);
                }
            }
        }
    }
    names
});

/// The predefined application that a protocol and a destination port stand for, as logs name it.
pub fn service_name(protocol: u8, port: u16) -> Option<&'static str> {
    match protocol {
        ICMP => Some("icmp"),
        ICMP6 => Some("icmp6"),
        _ => NAMES.get(&(protocol, port)).copied(),
    }
}

/// What predefined applications and their sets are called.
pub fn names() -> impl Iterator<Item = &'static str> {
    PREDEFINED.iter().map(|(name, _)| *name).chain(SETS.iter().map(|(name, _)| *name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_and_distinct() {
        assert!(PREDEFINED.is_sorted_by(|a, b| a.0 < b.0) && SETS.is_sorted_by(|a, b| a.0 < b.0));
        assert!(PREDEFINED.iter().all(|(name, terms)| name.starts_with("junos-") && !terms.is_empty()));
        assert!(!SETS.iter().any(|(set, _)| PREDEFINED.iter().any(|(name, _)| name == set)));
    }

    #[test]
    fn a_port_is_called_by_what_mostly_stands_behind_it() {
        assert_eq!(service_name(TCP, 80), Some("junos-http"));
        assert_eq!(service_name(UDP, 53), Some("junos-dns-udp"));
        assert_eq!(service_name(TCP, 389), Some("junos-ldap"));
        assert_eq!(service_name(UDP, 69), Some("junos-tftp"));
        assert_eq!(service_name(UDP, 67), Some("junos-dhcp-server"));
        assert_eq!(service_name(TCP, 445), Some("junos-smb-session"));
        assert_eq!(service_name(ICMP, 0), Some("icmp"));
        assert_eq!(service_name(TCP, 33333), None);
        assert!(SECOND_NAMES.iter().all(|second| PREDEFINED.iter().any(|(name, _)| name == second)));
    }

    #[test]
    fn members_of_sets_exist() {
        for (set, members) in SETS {
            for member in *members {
                assert!(PREDEFINED.iter().any(|(name, _)| name == member), "{member} of {set}");
            }
        }
    }

    #[test]
    fn what_an_alg_alone_can_tell_is_not_predefined() {
        for name in
            ["junos-ms-rpc-wmic", "junos-sun-rpc-nfs-tcp", "junos-sun-rpc-status", "junos-sun-rpc-any-udp"]
        {
            assert!(is_alg_only(name), "{name}");
        }
        for (name, _) in all() {
            assert!(!is_alg_only(name), "{name}");
        }
    }
}
