//! What a protocol parser says about one frame: the secure channel it belongs to and its place in the sequence.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use sluice_wire::{ethertype, protocol};

/// The protocols with channels of their own. The number is stored in keys: append only, at most 16.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Protocol {
    /// IEEE 802.1AE SecTAG; a channel is (SCI, AN), the sequence is the PN.
    Macsec = 0,
    /// IEEE 802.1X MKA over EAPOL; a channel is (source MAC, CKN digest), the sequence is the member's MN.
    Mka = 1,
    /// ESP over IP (RFC 4303); a channel is (source, destination, SPI).
    Esp = 2,
    /// ESP in UDP (RFC 3948), port 4500, and its keepalives (SPI 0).
    EspUdp = 3,
    /// AH (RFC 4302).
    Ah = 4,
    /// IKEv2 headers (RFC 7296): counted, without a sequence.
    Ike = 5,
    /// GTP-U (3GPP TS 29.281); a channel is (source, destination, TEID), 16 bits of sequence where the S flag is set.
    #[serde(rename = "gtpu")]
    GtpU = 6,
}

impl Protocol {
    /// By their number in a key.
    pub const ALL: [Protocol; 7] = [
        Protocol::Macsec,
        Protocol::Mka,
        Protocol::Esp,
        Protocol::EspUdp,
        Protocol::Ah,
        Protocol::Ike,
        Protocol::GtpU,
    ];

    /// As reports, databases and the REST interface have it.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Macsec => "macsec",
            Protocol::Mka => "mka",
            Protocol::Esp => "esp",
            Protocol::EspUdp => "esp_udp",
            Protocol::Ah => "ah",
            Protocol::Ike => "ike",
            Protocol::GtpU => "gtpu",
        }
    }

    /// Whether its channels carry protected user traffic whose keys are renewed (rekey pairing, exhaustion).
    pub fn is_keyed(self) -> bool {
        matches!(self, Protocol::Macsec | Protocol::Esp | Protocol::EspUdp | Protocol::Ah)
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Identity of a channel: 40 bytes, compared and hashed as five words.
///
/// Words 0 and 1 are the source, 2 and 3 the destination, 4 is `id << 32 | protocol | interface | VLANs`.
/// IPv4 addresses are stored mapped, with the UDP ports in the first four bytes where a channel has them; MACsec has
/// its SCI in word 0 and zeros after it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialOrd, Ord)]
#[repr(C)]
pub struct ChannelKey([u64; 5]);

/// Five words without a branch or a call: this happens to every packet.
impl PartialEq for ChannelKey {
    #[inline(always)]
    fn eq(&self, other: &Self) -> bool {
        let ([a, b, c, d, e], [v, w, x, y, z]) = (self.0, other.0);
        (a ^ v) | (b ^ w) | (c ^ x) | (d ^ y) | (e ^ z) == 0
    }
}

impl std::hash::Hash for ChannelKey {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

/// VLAN tags in front of the protocol, 0 where there is none; `outer` only with two tags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vlans {
    /// VLAN of the first of two tags.
    pub outer: u16,
    /// VLAN of the tag next to the protocol.
    pub inner: u16,
}

/// fe80::/10 (RFC 4291 2.5.6)
const LINK_LOCAL: u64 = 0xfe80 >> 6;
const MAPPED: u64 = 0x0000_ffff_0000_0000;

impl ChannelKey {
    /// A MACsec channel. Without an explicit SCI pass the source MAC followed by port 0001 (802.1AE 9.9, 10.5.1).
    #[inline]
    pub fn macsec(sci: u64, an: u8, location: Location) -> Self {
        ChannelKey([sci, 0, 0, 0, Self::tail(Protocol::Macsec, u32::from(an), location)])
    }

    /// An MKA participant: its SCI or MAC, and a digest of CKN and member identifier.
    pub fn mka(sci: u64, member: u32, location: Location) -> Self {
        ChannelKey([sci, 0, 0, 0, Self::tail(Protocol::Mka, member, location)])
    }

    /// A channel between two IPv4 addresses (network byte order words); `ports` is 0 unless UDP ports tell apart.
    #[inline]
    pub fn ipv4(
        protocol: Protocol,
        source: [u8; 4],
        destination: [u8; 4],
        id: u32,
        location: Location,
    ) -> Self {
        let low = |address: [u8; 4]| MAPPED | u64::from(u32::from_be_bytes(address));
        ChannelKey([0, low(source), 0, low(destination), Self::tail(protocol, id, location)])
    }

    /// A channel between two IPv6 addresses.
    #[inline]
    pub fn ipv6(
        protocol: Protocol,
        source: [u8; 16],
        destination: [u8; 16],
        id: u32,
        location: Location,
    ) -> Self {
        let (source, destination) = (u128::from_be_bytes(source), u128::from_be_bytes(destination));
        ChannelKey([
            (source >> 64) as u64,
            source as u64,
            (destination >> 64) as u64,
            destination as u64,
            Self::tail(protocol, id, location),
        ])
    }

    /// Adds UDP ports to an IPv4 channel: peers behind one NAT address may have chosen the same SPI.
    #[inline]
    pub fn with_ports(mut self, source: u16, destination: u16) -> Self {
        self.0[0] = (u64::from(source) << 48) | (u64::from(destination) << 32);
        self
    }

    fn tail(protocol: Protocol, id: u32, location: Location) -> u64 {
        (u64::from(id) << 32) | ((protocol as u64) << 28) | u64::from(location.0)
    }

    /// For storing it; [`Self::from_words`] reads it.
    pub fn words(&self) -> &[u64; 5] {
        &self.0
    }

    /// What [`Self::words`] gave.
    pub fn from_words(words: [u64; 5]) -> Self {
        ChannelKey(words)
    }

    /// What its packets carry.
    pub fn protocol(&self) -> Protocol {
        Protocol::ALL[((self.0[4] >> 28) & 0xf) as usize % Protocol::ALL.len()]
    }

    /// AN, SPI or TEID.
    pub fn id(&self) -> u32 {
        (self.0[4] >> 32) as u32
    }

    /// Capture interface; from the 16th on they share one number.
    pub fn interface(&self) -> u8 {
        (self.0[4] >> 24) as u8 & 0xf
    }

    /// In front of the protocol.
    pub fn vlans(&self) -> Vlans {
        Vlans { outer: (self.0[4] >> 12) as u16 & 0xfff, inner: self.0[4] as u16 & 0xfff }
    }

    /// The SCI of a MACsec or MKA channel.
    pub fn sci(&self) -> Option<u64> {
        matches!(self.protocol(), Protocol::Macsec | Protocol::Mka).then_some(self.0[0])
    }

    /// Source and destination address of an IP channel.
    pub fn addresses(&self) -> Option<(IpAddr, IpAddr)> {
        self.sci().is_none().then(|| (self.address(0), self.address(2)))
    }

    /// UDP source and destination port where they are part of the identity.
    pub fn ports(&self) -> Option<(u16, u16)> {
        let has = self.sci().is_none() && self.is_ipv4(0) && self.0[0] != 0;
        has.then_some(((self.0[0] >> 48) as u16, (self.0[0] >> 32) as u16))
    }

    fn is_ipv4(&self, word: usize) -> bool {
        self.0[word] as u32 == 0 && self.0[word + 1] >> 32 == MAPPED >> 32
    }

    fn address(&self, word: usize) -> IpAddr {
        if self.is_ipv4(word) {
            return Ipv4Addr::from(self.0[word + 1] as u32).into();
        }
        Ipv6Addr::from((u128::from(self.0[word]) << 64) | u128::from(self.0[word + 1])).into()
    }

    /// The same sender, receiver and place without AN, SPI or TEID: successive keys of one secure channel share it.
    #[inline]
    pub fn group(&self) -> ChannelKey {
        let mut group = *self;
        group.0[4] &= 0xffff_ffff;
        group
    }

    /// The group of the opposite direction, where the addresses tell it (IP).
    pub fn reverse_group(&self) -> Option<ChannelKey> {
        self.sci().is_none().then(|| {
            let ports = self.ports().map_or(0, |(source, destination)| {
                (u64::from(destination) << 48) | (u64::from(source) << 32)
            });
            let source_high = if self.is_ipv4(2) { ports } else { self.0[2] };
            let destination_high = if self.is_ipv4(0) { 0 } else { self.0[0] };
            ChannelKey([source_high, self.0[3], destination_high, self.0[1], self.0[4] & 0xffff_ffff])
        })
    }

    /// Whether one counter may number what this sender sends under this SPI to several destinations: AH, and ESP from
    /// link-local addresses, as routers use them among each other (RFC 4552, RFC 5796).
    pub fn may_share_counter(&self) -> bool {
        match self.protocol() {
            Protocol::Ah => true,
            Protocol::Esp => self.0[0] >> 54 == LINK_LOCAL,
            _ => false,
        }
    }

    /// The same without the destination.
    pub fn sender(&self) -> ChannelKey {
        let [a, b, _, _, tail] = self.0;
        ChannelKey([a, b, 0, 0, tail])
    }

    /// What one worker keeps: channels that may share keys or a counter.
    #[inline]
    pub fn shard(&self) -> u64 {
        let group = if self.may_share_counter() { self.sender().group() } else { self.group() };
        group.channel_id()
    }

    /// Its destination is a multicast address.
    pub fn is_multicast(&self) -> bool {
        self.sci().is_none() && self.address(2).is_multicast()
    }

    /// Whether the destination is a group or a neighbour on the link.
    pub fn is_on_link(&self) -> bool {
        self.is_multicast() || self.sci().is_none() && self.0[2] >> 54 == LINK_LOCAL
    }

    /// The same channel seen from any capture interface (two taps, aggregated links).
    pub fn any_interface(mut self) -> Self {
        self.0[4] &= !(0xf << 24);
        self
    }

    /// The channel's stable 64-bit number: the same key has the same number in every run and database.
    #[inline]
    pub fn channel_id(&self) -> u64 {
        self.mixed(&FACTORS)
    }

    /// A number that nobody can foresee who chooses addresses: another one in every process.
    #[inline]
    pub(crate) fn hash(&self) -> u64 {
        self.mixed(&SECRET)
    }

    #[inline]
    fn mixed(&self, factors: &[u64; 4]) -> u64 {
        let [a, b, c, d, e] = self.0;
        let first = fold(a ^ factors[0], b ^ factors[1]);
        let second = fold(c ^ factors[2], d ^ factors[3]);
        fold(
            first.rotate_left(32) ^ e ^ 0x2545_f491_4f6c_dd1d,
            second ^ e.rotate_left(17) ^ 0x9fb2_1c65_1e98_df25,
        )
    }
}

/// What the words of a key meet before they are multiplied.
const FACTORS: [u64; 4] =
    [0x9e37_79b9_7f4a_7c15, 0xd1b5_4a32_d192_ed03, 0x8cb9_2ba7_2f3d_8dd7, 0xaef1_7502_b3a6_5c25];

/// The same for tables in memory, whose searches must not be made long.
static SECRET: LazyLock<[u64; 4]> = LazyLock::new(|| {
    let chance = RandomState::new();
    FACTORS.map(|factor| chance.hash_one(factor))
});

/// Both halves of the product. A factor of 0 would take the other one with it: the address of any sender, if it likes.
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let whole = |factor: u64| if factor == 0 { 0x94d0_49bb_1331_11eb } else { factor };
    let product = u128::from(whole(a)) * u128::from(whole(b));
    (product >> 64) as u64 ^ product as u64
}

/// Where a channel was seen: capture interface (from the 16th on they share one number) and VLAN tags before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Location(u32);

impl Location {
    /// Tags are cut to 12 bits.
    #[inline]
    pub fn new(interface: u32, vlans: Vlans) -> Self {
        Location(
            (interface.min(15) << 24)
                | (u32::from(vlans.outer & 0xfff) << 12)
                | u32::from(vlans.inner & 0xfff),
        )
    }
}

impl fmt::Display for ChannelKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.protocol())?;
        match (self.sci(), self.addresses()) {
            (Some(sci), _) if self.protocol() == Protocol::Macsec => {
                write!(f, "{:012x}:{:04x} AN {}", sci >> 16, sci & 0xffff, self.id())?;
            }
            (Some(sci), _) => write!(f, "{:012x} member {:08x}", sci >> 16, self.id())?,
            (None, Some((source, destination))) => {
                let name = if self.protocol() == Protocol::GtpU { "TEID" } else { "SPI" };
                match self.ports() {
                    Some((from, to)) => write!(f, "{source}:{from} > {destination}:{to}")?,
                    None => write!(f, "{source} > {destination}")?,
                }
                write!(f, " {name} 0x{:08x}", self.id())?;
            }
            (None, None) => unreachable!("a channel has an SCI or addresses"),
        }
        match self.vlans() {
            Vlans { outer: 0, inner: 0 } => Ok(()),
            Vlans { outer: 0, inner } => write!(f, " vlan {inner}"),
            Vlans { outer, inner } => write!(f, " vlan {outer}.{inner}"),
        }
    }
}

/// One frame of a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observation {
    /// The channel it belongs to.
    pub key: ChannelKey,
    /// The sequence number as on the wire; the upper half of an ESN or XPN is inferred later.
    pub sequence: u64,
    /// Digest of the packet's last bytes (its ICV) and length, which tells a copy from another packet with the same
    /// number. 0: not known, because the capture cut the frame.
    pub fingerprint: u32,
    /// Protected payload, bytes: secure data without tag and ICV for MACsec, everything after the header elsewhere.
    pub payload_len: u16,
    /// Width of the number on the wire: 16, 32 or 64; 0 when the packet carries none.
    pub bits: u8,
    /// What else is known of it.
    pub flags: Flags,
}

/// Facts about a packet beside its number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u8);

impl Flags {
    /// The payload is encrypted (MACsec E and C bits set).
    pub const ENCRYPTED: Flags = Flags(1);
    /// Authenticated but readable (MACsec E=0 C=0, AH, what looks like ESP with NULL encryption).
    pub const INTEGRITY_ONLY: Flags = Flags(2);
    /// The lengths contradict each other (SL against frame, IP length against ESP).
    pub const LENGTH_MISMATCH: Flags = Flags(4);
    /// The frame was cut by the snap length before its end.
    pub const CUT: Flags = Flags(8);
    /// Key management or keepalive, not user traffic.
    pub const CONTROL: Flags = Flags(16);
    /// The SCI was implied, not carried (MACsec).
    pub const IMPLIED_SCI: Flags = Flags(32);
    /// A fragment: the rest of the packet follows in frames that carry no number.
    pub const FRAGMENT: Flags = Flags(64);

    /// Kept of a channel, never said of a packet: the last one looked open where encryption may look so by chance.
    pub(crate) const LOOKS_OPEN: Flags = Flags(128);

    /// Whether all bits of `other` are set.
    #[inline]
    pub fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// With the bits of `other` set, too.
    #[inline]
    pub fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

/// Why a frame belongs to no channel: the first header that differs from what the monitor follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Unknown {
    /// Another ethertype (or, below 0x600, an 802.3 length).
    Ethertype(u16),
    /// Another IP protocol.
    IpProtocol(u8),
    /// A UDP packet between ports that no followed protocol uses: the lower of the two.
    UdpPort(u16),
    /// A later IP fragment: it carries no header to look at.
    Fragment,
    /// The frame ends inside this header.
    Short(&'static str),
    /// The header contradicts its standard: what is wrong.
    Malformed(&'static str),
    /// A link type that is not read.
    LinkType,
}

/// Ethertypes of user data.
const CLEAR_TEXT: [u16; 6] = [
    ethertype::IPV4,
    ethertype::IPV6,
    ethertype::MPLS,
    ethertype::MPLS_UPSTREAM,
    ethertype::PPPOE_DISCOVERY,
    ethertype::PPPOE_SESSION,
];
/// IP protocols that do so; everything else is data.
const KEEP_A_LINK_ALIVE: [u8; 4] = [protocol::ICMP, protocol::IGMP, protocol::ICMPV6, protocol::OSPF];

impl Unknown {
    /// Whether the frame carried user data in clear text: what a policy that demands protection forbids.
    pub fn is_clear_text(&self) -> bool {
        match self {
            Unknown::Ethertype(kind) => CLEAR_TEXT.contains(kind),
            Unknown::IpProtocol(number) => !KEEP_A_LINK_ALIVE.contains(number),
            Unknown::UdpPort(_) => true,
            _ => false,
        }
    }
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unknown::Ethertype(kind) => write!(f, "ethertype 0x{kind:04x}"),
            Unknown::IpProtocol(protocol) => write!(f, "IP protocol {protocol}"),
            Unknown::UdpPort(port) => write!(f, "UDP port {port}"),
            Unknown::Fragment => f.write_str("later IP fragment"),
            Unknown::Short(header) => write!(f, "ends inside {header}"),
            Unknown::Malformed(what) => write!(f, "malformed {what}"),
            Unknown::LinkType => f.write_str("unread link type"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_print_what_they_were_made_of() {
        let location = Location::new(2, Vlans { outer: 100, inner: 42 });
        let macsec = ChannelKey::macsec(0x0011_2233_4455_0001, 3, location);
        assert_eq!(macsec.to_string(), "macsec 001122334455:0001 AN 3 vlan 100.42");
        assert_eq!((macsec.interface(), macsec.vlans()), (2, Vlans { outer: 100, inner: 42 }));

        let esp =
            ChannelKey::ipv4(Protocol::EspUdp, [10, 0, 0, 1], [10, 0, 0, 2], 0xabcd, Location::default());
        assert_eq!(
            esp.with_ports(4500, 1024).to_string(),
            "esp_udp 10.0.0.1:4500 > 10.0.0.2:1024 SPI 0x0000abcd"
        );
        assert_eq!(esp.to_string(), "esp_udp 10.0.0.1 > 10.0.0.2 SPI 0x0000abcd");

        let (a, b) = ("2001:db8::1".parse::<Ipv6Addr>().unwrap(), "2001:db8::2".parse::<Ipv6Addr>().unwrap());
        let gtpu = ChannelKey::ipv6(Protocol::GtpU, a.octets(), b.octets(), 7, Location::default());
        assert_eq!(gtpu.to_string(), "gtpu 2001:db8::1 > 2001:db8::2 TEID 0x00000007");
    }

    #[test]
    fn a_group_forgets_only_the_id_and_reverses() {
        let location = Location::new(0, Vlans { outer: 0, inner: 5 });
        let one =
            ChannelKey::ipv4(Protocol::EspUdp, [1, 1, 1, 1], [2, 2, 2, 2], 1, location).with_ports(4500, 9);
        let two =
            ChannelKey::ipv4(Protocol::EspUdp, [1, 1, 1, 1], [2, 2, 2, 2], 2, location).with_ports(4500, 9);
        let back =
            ChannelKey::ipv4(Protocol::EspUdp, [2, 2, 2, 2], [1, 1, 1, 1], 3, location).with_ports(9, 4500);
        assert_eq!(one.group(), two.group());
        assert_ne!(one.channel_id(), two.channel_id());
        assert_eq!(one.reverse_group(), Some(back.group()));
        let (a, b) = ([0x20; 16], [0x30; 16]);
        let forth = ChannelKey::ipv6(Protocol::Esp, a, b, 1, location);
        assert_eq!(forth.reverse_group(), Some(ChannelKey::ipv6(Protocol::Esp, b, a, 9, location).group()));
    }

    /// Sources that anybody may write into a packet, chosen so that a factor of the product is 0.
    #[test]
    fn no_address_makes_others_alike() {
        let ids = |keys: &[ChannelKey]| {
            keys.iter().map(ChannelKey::channel_id).collect::<std::collections::HashSet<_>>().len()
        };
        let key = |words: [u64; 4]| ChannelKey([words[0], words[1], words[2], words[3], 7 << 32 | 2 << 28]);
        for (at, absorbing) in FACTORS.into_iter().enumerate() {
            let forged = |other: u64| {
                let mut words = [0x2001_0db8_0000_0001, 5, 0x2001_0db8_0000_0002, 6];
                (words[at], words[at ^ 1]) = (absorbing, other.wrapping_mul(0x9e37_79b9_7f4a_7c15));
                key(words)
            };
            let keys: Vec<_> = (0..1000).map(forged).collect();
            assert_eq!(ids(&keys), 1000, "word {at}");
        }
    }

    /// Numbers of channels stay what they are in databases.
    #[test]
    fn numbers_of_channels_are_the_same_in_every_version() {
        let macsec = ChannelKey::macsec(0x0011_2233_4455_0001, 3, Location::default());
        let esp = ChannelKey::ipv4(Protocol::Esp, [10, 0, 0, 1], [10, 0, 0, 2], 0xabcd, Location::default());
        let ids = [macsec, esp, ChannelKey::default()].map(|key| format!("{:016x}", key.channel_id()));
        assert_eq!(ids, ["206c691ae3dc8a25", "caca643cec8280f9", "be38828c75646cc6"]);
    }

    #[test]
    fn an_observation_fits_a_cache_line() {
        assert_eq!(size_of::<ChannelKey>(), 40);
        assert!(size_of::<Observation>() <= 64);
    }
}
