//! Who sends: flow `n` and flow `n ^ 1` are the two directions between a pair of stations.

use std::net::Ipv6Addr;

use sluice_wire::ike::NAT_TRAVERSAL_PORT as NAT_T;
use sluice_wire::macsec;

use crate::observation::{ChannelKey, Location, Protocol, Vlans};

use super::random::mix;
use super::{Mix, Options};

/// What a flow's packets look like on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    MacsecSci,
    /// SecTAG without SCI: source MAC and port 1 stand for it (802.1AE 9.9).
    MacsecImplied,
    Esp4,
    Esp6,
    EspUdp,
    Ah,
    GtpU,
}

const MIXED: [Carrier; 8] = [
    Carrier::MacsecSci,
    Carrier::Esp4,
    Carrier::EspUdp,
    Carrier::GtpU,
    Carrier::Esp6,
    Carrier::Ah,
    Carrier::MacsecImplied,
    Carrier::Esp4,
];
const IPSEC: [Carrier; 4] = [Carrier::Esp4, Carrier::Esp4, Carrier::EspUdp, Carrier::Esp6];

/// In a mixed capture without VLANs of its own the seventh and eighth pair of every eight have these.
const MIXED_VLANS: [Vlans; 2] = [Vlans { outer: 300, inner: 42 }, Vlans { outer: 0, inner: 77 }];

/// One flow's unchanging facts, derived from its number.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    pub number: u32,
    pub carrier: Carrier,
    pub vlans: Vlans,
}

impl Flow {
    pub fn of(number: u32, options: &Options) -> Self {
        let pair = number as usize / 2;
        let carrier = match options.protocol {
            Mix::Macsec => Carrier::MacsecSci,
            Mix::Ipsec => IPSEC[pair % IPSEC.len()],
            Mix::Gtpu => Carrier::GtpU,
            Mix::Mixed => MIXED[pair % MIXED.len()],
        };
        let own = match (options.protocol, pair % MIXED.len()) {
            (Mix::Mixed, at @ 6..) => MIXED_VLANS[at - 6],
            _ => Vlans::default(),
        };
        let vlans = match options.vlans[..] {
            [] => own,
            [inner] => Vlans { outer: 0, inner },
            [outer, inner, ..] => Vlans { outer, inner },
        };
        Flow { number, carrier, vlans }
    }

    fn pair(self) -> u32 {
        self.number / 2
    }

    fn is_back(self) -> bool {
        self.number & 1 == 1
    }

    /// The station's MAC address: its own for MACsec, that of one of two routers for IP.
    pub fn mac(self, of_sender: bool) -> [u8; 6] {
        let side = u8::from(self.is_back() == of_sender);
        match self.carrier {
            Carrier::MacsecSci | Carrier::MacsecImplied => {
                let [a, b, c, d] = self.pair().to_be_bytes();
                [2, 0x50 | side, a, b, c, d]
            }
            _ => [2, 0, 0, 0, 0, 1 + side],
        }
    }

    pub fn sci(self) -> u64 {
        macsec::sci(self.mac(true), macsec::END_STATION_PORT)
    }

    /// Source or destination: 10/8 on one side, 100.64/10 (RFC 6598) on the other.
    pub fn ipv4(self, of_sender: bool) -> [u8; 4] {
        let [_, a, b, c] = (self.pair() + 1).to_be_bytes();
        if self.is_back() == of_sender { [100, 64 | (a & 63), b, c] } else { [10, a, b, c] }
    }

    pub fn ipv6(self, of_sender: bool) -> [u8; 16] {
        let side = if self.is_back() == of_sender { 0xb } else { 0xa };
        let pair = self.pair() + 1;
        Ipv6Addr::new(0x2001, 0xdb8, side, 0, 0, 0, (pair >> 16) as u16, pair as u16).octets()
    }

    /// UDP source and destination port of encapsulated ESP; the first station of a pair is behind a NAT.
    pub fn ports(self) -> (u16, u16) {
        let inside = 50_000 + (self.pair() % 15_000) as u16;
        if self.is_back() { (NAT_T, inside) } else { (inside, NAT_T) }
    }

    /// AN, SPI or TEID of the flow's `key`-th key.
    pub fn key_id(self, key: u32, seed: u64) -> u32 {
        let random = mix(seed ^ (u64::from(self.number) << 32 | u64::from(key))) as u32;
        match self.carrier {
            Carrier::MacsecSci | Carrier::MacsecImplied => key & 3,
            Carrier::GtpU => (mix(seed ^ u64::from(self.number)) as u32).max(1),
            // SPIs up to 255 are reserved (RFC 4303 2.1).
            _ => random | 0x100,
        }
    }

    /// What the analysis must call the flow's `key`-th key.
    pub fn channel(self, key: u32, seed: u64) -> ChannelKey {
        let (location, id) = (Location::new(0, self.vlans), self.key_id(key, seed));
        let over4 = |protocol| ChannelKey::ipv4(protocol, self.ipv4(true), self.ipv4(false), id, location);
        match self.carrier {
            Carrier::MacsecSci | Carrier::MacsecImplied => ChannelKey::macsec(self.sci(), id as u8, location),
            Carrier::Esp4 => over4(Protocol::Esp),
            Carrier::Esp6 => ChannelKey::ipv6(Protocol::Esp, self.ipv6(true), self.ipv6(false), id, location),
            Carrier::EspUdp => {
                let (source, destination) = self.ports();
                over4(Protocol::EspUdp).with_ports(source, destination)
            }
            Carrier::Ah => over4(Protocol::Ah),
            Carrier::GtpU => over4(Protocol::GtpU),
        }
    }

    /// The number that the flow's `key`-th key starts with: a first key was in use before the capture began.
    pub fn first_number(self, key: u32, seed: u64) -> u64 {
        let random = mix(!seed ^ u64::from(self.number).wrapping_mul(0x9e37_79b9));
        match (self.carrier, key) {
            (Carrier::GtpU, _) => random & 0xffff,
            // Some extended packet numbers pass 2^32 (802.1AE 10.7.14).
            (Carrier::MacsecImplied, 0) if random.is_multiple_of(4) => (1 << 32) - 1 - (random >> 32) % 300,
            (_, 0) => 1 + (random & 0x3fff_ffff),
            _ => 1,
        }
    }

    /// Bits of the number on the wire.
    pub fn is_narrow(self) -> bool {
        self.carrier == Carrier::GtpU
    }
}
