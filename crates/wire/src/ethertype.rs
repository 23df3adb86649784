//! EtherTypes (IANA registry "IEEE 802 Numbers"): what follows an Ethernet header or a VLAN tag.

crate::numbers::numbers! { u16:
    /// RFC 894.
    IPV4 = 0x0800 "ip",
    /// RFC 826.
    ARP = 0x0806 "arp",
    /// Customer tag (IEEE 802.1Q-2018 section 9.5).
    VLAN = 0x8100 "vlan",
    /// RFC 2464 section 3.
    IPV6 = 0x86dd "ip6",
    /// RFC 3032 section 5.
    MPLS = 0x8847,
    /// The label is the sender's own (RFC 5332).
    MPLS_UPSTREAM = 0x8848,
    /// RFC 2516 section 4.
    PPPOE_DISCOVERY = 0x8863,
    /// RFC 2516 section 4.
    PPPOE_SESSION = 0x8864,
    /// IEEE 802.1X-2020 section 11.1.4.
    EAPOL = 0x888e,
    /// Service tag (IEEE 802.1Q-2018 section 9.5).
    SERVICE_VLAN = 0x88a8 "qinq",
    /// IEEE 802.1AE-2018 section 9.4.
    MACSEC = 0x88e5,
    /// Service tag of the time before there was a standard for it.
    OLD_SERVICE_VLAN = 0x9100,
}

/// Types of VLAN tags: what follows is a tag and another type.
pub const TAGS: [u16; 3] = [VLAN, SERVICE_VLAN, OLD_SERVICE_VLAN];
