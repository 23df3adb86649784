//! IP protocol numbers (IANA registry "Assigned Internet Protocol Numbers"): the protocol of an IPv4 header (RFC 791
//! section 3.1), the next header of an IPv6, an AH and an ESP one (RFC 8200 section 3).

crate::numbers::numbers! { u8:
    /// Extension header: hop-by-hop options (RFC 8200 section 4.3).
    HOP_BY_HOP = 0 "hbh",
    /// RFC 792.
    ICMP = 1 "icmp",
    /// RFC 3376.
    IGMP = 2,
    /// IPv4 in IP (RFC 2003).
    IPV4 = 4 "ip",
    /// RFC 9293.
    TCP = 6 "tcp",
    /// RFC 768.
    UDP = 17 "udp",
    /// RFC 4340.
    DCCP = 33,
    /// IPv6 in IP (RFC 2473).
    IPV6 = 41 "ip6",
    /// Extension header: routing (RFC 8200 section 4.4).
    ROUTING = 43 "routing",
    /// Extension header: fragment (RFC 8200 section 4.5).
    FRAGMENT = 44 "fragment",
    /// RFC 2784.
    GRE = 47 "gre",
    /// RFC 4303.
    ESP = 50 "esp",
    /// RFC 4302; over IPv6 an extension header whose length counts in a unit of its own.
    AH = 51 "ah",
    /// RFC 4443.
    ICMPV6 = 58 "icmp6",
    /// Nothing follows (RFC 8200 section 4.7).
    NO_NEXT = 59 "none",
    /// Extension header: destination options (RFC 8200 section 4.6).
    DESTINATION_OPTIONS = 60 "dstopts",
    /// RFC 2328, RFC 5340.
    OSPF = 89,
    /// RFC 9260.
    SCTP = 132 "sctp",
    /// Extension header: mobility (RFC 6275 section 6.1).
    MOBILITY = 135,
    /// RFC 3828.
    UDP_LITE = 136,
    /// Never assigned: stands for "not stated" here.
    RESERVED = 255,
}
