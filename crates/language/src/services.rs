//! Services and protocols of `host-inbound-traffic`, as packets show them.

use crate::values::Service;

/// Names an operator may choose from, with help.
pub type Choices = &'static [(&'static str, &'static str)];

pub const ICMP: u8 = 1;
pub const TCP: u8 = 6;
pub const UDP: u8 = 17;
pub const ICMP6: u8 = 58;
pub const DCCP: u8 = 33;
pub const SCTP: u8 = 132;
pub const UDP_LITE: u8 = 136;

/// Protocols whose headers begin with two ports (RFC 9260 section 3.1, RFC 4340 section 5.1, RFC 3828 section 3.1).
pub const fn has_ports(protocol: u8) -> bool {
    matches!(protocol, TCP | UDP | DCCP | SCTP | UDP_LITE)
}

/// The same in words.
pub const WITH_PORTS: &str = "tcp, udp, sctp, DCCP (33) and UDP-Lite (136)";

/// Whose ports a translation may change: a checksum of SCTP covers them and all the rest (RFC 9260 section 6.8).
pub const fn has_translated_ports(protocol: u8) -> bool {
    matches!(protocol, TCP | UDP)
}

pub const SYSTEM_SERVICES: Choices = &[
    ("all", "Every service of this list."),
    ("any-service", "Everything, listed here or not."),
    ("bootp", "BOOTP and DHCP relay: UDP 67 and 68."),
    ("dhcp", "DHCP: UDP 67 and 68."),
    ("dhcpv6", "DHCPv6: UDP 546 and 547."),
    ("dns", "DNS: UDP and TCP 53."),
    ("finger", "Finger: TCP 79."),
    ("ftp", "FTP control: TCP 21."),
    ("http", "HTTP: TCP 80."),
    ("https", "HTTPS: TCP 443."),
    ("ident-reset", "Ident: TCP 113."),
    ("ike", "IKE and NAT traversal: UDP 500 and 4500, ESP."),
    ("lsping", "MPLS LSP ping: UDP 3503."),
    ("netconf", "NETCONF over SSH: TCP 830."),
    ("ntp", "NTP: UDP 123."),
    ("ping", "Echo requests: ICMP type 8, ICMPv6 type 128."),
    ("reverse-ssh", "Reverse SSH: TCP 2901."),
    ("reverse-telnet", "Reverse Telnet: TCP 2900."),
    ("rlogin", "Rlogin: TCP 513."),
    ("rpm", "Real-time performance monitoring: UDP and TCP 7."),
    ("rsh", "Rsh: TCP 514."),
    ("sip", "SIP: UDP and TCP 5060."),
    ("snmp", "SNMP: UDP 161."),
    ("snmp-trap", "SNMP traps: UDP 162."),
    ("ssh", "SSH: TCP 22."),
    ("telnet", "Telnet: TCP 23."),
    ("tftp", "TFTP: UDP 69."),
    ("traceroute", "Traceroute probes: UDP 33434 to 33534."),
    ("xnm-clear-text", "Junoscript: TCP 3221."),
    ("xnm-ssl", "Junoscript over TLS: TCP 3220."),
];

pub const PROTOCOLS: Choices = &[
    ("all", "Every protocol of this list."),
    ("bfd", "BFD: UDP 3784, 3785 and 4784."),
    ("bgp", "BGP: TCP 179."),
    ("dvmrp", "DVMRP, carried by IGMP."),
    ("igmp", "IGMP, and MLD for IPv6."),
    ("ldp", "LDP: UDP and TCP 646."),
    ("msdp", "MSDP: TCP 639."),
    ("ndp", "Neighbour discovery: ICMPv6 types 133 to 137."),
    ("nhrp", "NHRP: IP protocol 54."),
    ("ospf", "OSPF: IP protocol 89."),
    ("ospf3", "OSPFv3: IP protocol 89."),
    ("pgm", "PGM: IP protocol 113."),
    ("pim", "PIM: IP protocol 103."),
    ("rip", "RIP: UDP 520."),
    ("ripng", "RIPng: UDP 521."),
    ("router-discovery", "ICMP router discovery: ICMP types 9 and 10, ICMPv6 types 133 and 134."),
    ("rsvp", "RSVP: IP protocol 46."),
    ("sap", "Session announcements: UDP 9875."),
    ("vrrp", "VRRP: IP protocol 112."),
];

/// Any packet of an IP protocol.
pub const fn protocol(number: u8) -> Service {
    Service {
        protocol: Some(number),
        source_port: (0, 65535),
        destination_port: (0, 65535),
        icmp_type: None,
        icmp_code: None,
        inactivity_timeout_s: None,
    }
}

pub const fn ports(number: u8, low: u16, high: u16) -> Service {
    Service { destination_port: (low, high), ..protocol(number) }
}

pub const fn tcp(port: u16) -> Service {
    ports(TCP, port, port)
}

pub const fn udp(port: u16) -> Service {
    ports(UDP, port, port)
}

/// ICMP or ICMPv6 types `low..=high`, any code.
pub const fn icmp(number: u8, low: u8, high: u8) -> Service {
    Service { icmp_type: Some((low, high)), ..protocol(number) }
}

/// Terms of one system service. `all` and `any-service` have none of their own.
pub fn system_service(name: &str) -> Vec<Service> {
    match name {
        "bootp" | "dhcp" => vec![ports(UDP, 67, 68)],
        "dhcpv6" => vec![ports(UDP, 546, 547)],
        "dns" => vec![udp(53), tcp(53)],
        "finger" => vec![tcp(79)],
        "ftp" => vec![tcp(21)],
        "http" => vec![tcp(80)],
        "https" => vec![tcp(443)],
        "ident-reset" => vec![tcp(113)],
        "ike" => vec![udp(500), udp(4500), protocol(50)],
        "lsping" => vec![udp(3503)],
        "netconf" => vec![tcp(830)],
        "ntp" => vec![udp(123)],
        "ping" => vec![icmp(ICMP, 8, 8), icmp(ICMP6, 128, 128)],
        "reverse-ssh" => vec![tcp(2901)],
        "reverse-telnet" => vec![tcp(2900)],
        "rlogin" => vec![tcp(513)],
        "rpm" => vec![udp(7), tcp(7)],
        "rsh" => vec![tcp(514)],
        "sip" => vec![udp(5060), tcp(5060)],
        "snmp" => vec![udp(161)],
        "snmp-trap" => vec![udp(162)],
        "ssh" => vec![tcp(22)],
        "telnet" => vec![tcp(23)],
        "tftp" => vec![udp(69)],
        // Three probes for each of 30 hops, one port each, from 33434 on, with some room.
        "traceroute" => vec![ports(UDP, 33434, 33534)],
        "xnm-clear-text" => vec![tcp(3221)],
        "xnm-ssl" => vec![tcp(3220)],
        _ => Vec::new(),
    }
}

/// Terms of one protocol. `all` has none of its own.
pub fn routing_protocol(name: &str) -> Vec<Service> {
    match name {
        "bfd" => vec![ports(UDP, 3784, 3785), udp(4784)],
        "bgp" => vec![tcp(179)],
        "dvmrp" => vec![protocol(2)],
        "igmp" => vec![protocol(2), icmp(ICMP6, 130, 132), icmp(ICMP6, 143, 143)],
        "ldp" => vec![udp(646), tcp(646)],
        "msdp" => vec![tcp(639)],
        "ndp" => vec![icmp(ICMP6, 133, 137)],
        "nhrp" => vec![protocol(54)],
        "ospf" | "ospf3" => vec![protocol(89)],
        "pgm" => vec![protocol(113)],
        "pim" => vec![protocol(103)],
        "rip" => vec![udp(520)],
        "ripng" => vec![udp(521)],
        "router-discovery" => vec![icmp(ICMP, 9, 10), icmp(ICMP6, 133, 134)],
        "rsvp" => vec![protocol(46)],
        "sap" => vec![udp(9875)],
        "vrrp" => vec![protocol(112)],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_name_has_terms() {
        for (name, _) in SYSTEM_SERVICES {
            assert_eq!(system_service(name).is_empty(), matches!(*name, "all" | "any-service"), "{name}");
        }
        for (name, _) in PROTOCOLS {
            assert_eq!(routing_protocol(name).is_empty(), *name == "all", "{name}");
        }
    }
}
