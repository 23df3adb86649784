//! Messages of DHCP: RFC 2131 section 2, options of RFC 2132, long ones (RFC 3396), routes (RFC 3442).

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use sluice_language::config::Prefix;

/// RFC 2131, section 2: fields before the options, and what begins those.
const FIXED: usize = 236;
const COOKIE: [u8; 4] = [99, 130, 83, 99];
const SNAME: std::ops::Range<usize> = 44..108;
const FILE: std::ops::Range<usize> = 108..236;
/// BOOTP's least, which old relays insist on (RFC 1542, section 2.1).
const LEAST: usize = 300;

/// Routes and servers that are taken of one message.
const MOST_ROUTES: usize = 64;
const MOST_SERVERS: usize = 8;

/// RFC 2132, section 9.6.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    Discover = 1,
    Offer,
    Request,
    Decline,
    Ack,
    Nak,
    Release,
}

impl Type {
    fn of(octet: u8) -> Option<Self> {
        let all =
            [Self::Discover, Self::Offer, Self::Request, Self::Decline, Self::Ack, Self::Nak, Self::Release];
        all.into_iter().find(|kind| *kind as u8 == octet)
    }
}

/// Codes of options (RFC 2132; 121 of RFC 3442).
pub mod code {
    pub const MASK: u8 = 1;
    pub const ROUTER: u8 = 3;
    pub const DNS: u8 = 6;
    pub const HOST_NAME: u8 = 12;
    pub const ADDRESS: u8 = 50;
    pub const LEASE: u8 = 51;
    pub const OVERLOAD: u8 = 52;
    pub const TYPE: u8 = 53;
    pub const SERVER: u8 = 54;
    pub const ASKED: u8 = 55;
    pub const MESSAGE: u8 = 56;
    pub const SIZE: u8 = 57;
    pub const T1: u8 = 58;
    pub const T2: u8 = 59;
    pub const VENDOR: u8 = 60;
    pub const CLIENT: u8 = 61;
    pub const ROUTES: u8 = 121;
}

/// What a client sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub kind: Type,
    pub xid: u32,
    pub secs: u16,
    pub mac: [u8; 6],
    /// `ciaddr`: the address that the client has, or unspecified.
    pub own: Ipv4Addr,
    /// In the order in which they are sent; each at most 255 octets.
    pub options: Vec<(u8, Vec<u8>)>,
}

impl Request {
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; FIXED];
        // BOOTREQUEST over Ethernet
        bytes[..3].copy_from_slice(&[1, 1, 6]);
        bytes[4..8].copy_from_slice(&self.xid.to_be_bytes());
        bytes[8..10].copy_from_slice(&self.secs.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.own.octets());
        bytes[28..34].copy_from_slice(&self.mac);
        bytes.extend(COOKIE);
        bytes.extend([code::TYPE, 1, self.kind as u8]);
        for (code, value) in &self.options {
            let value = &value[..value.len().min(255)];
            bytes.extend([*code, value.len() as u8]);
            bytes.extend(value);
        }
        bytes.push(255);
        bytes.resize(bytes.len().max(LEAST), 0);
        bytes
    }
}

/// What a server sends, as far as a client uses it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    pub kind: Type,
    pub xid: u32,
    pub mac: [u8; 6],
    /// `yiaddr`.
    pub yours: Ipv4Addr,
    options: BTreeMap<u8, Vec<u8>>,
}

impl Reply {
    /// None = it is no answer to a client on Ethernet, or cut short; what is cut short is not half used.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let fixed: &[u8; FIXED] = bytes.first_chunk()?;
        let options = bytes[FIXED..].strip_prefix(&COOKIE)?;
        if fixed[..3] != [2, 1, 6] {
            return None;
        }
        let options = all_options(fixed, options)?;
        let [octet] = options.get(&code::TYPE)?.as_slice() else { return None };
        Some(Self {
            kind: Type::of(*octet)?,
            xid: u32::from_be_bytes(*fixed[4..].first_chunk()?),
            mac: *fixed[28..].first_chunk()?,
            yours: Ipv4Addr::from(*fixed[16..].first_chunk::<4>()?),
            options,
        })
    }

    fn address(&self, code: u8) -> Option<Ipv4Addr> {
        let octets: [u8; 4] = self.options.get(&code)?.as_slice().try_into().ok()?;
        Some(octets.into())
    }

    /// A number of seconds.
    pub fn seconds(&self, code: u8) -> Option<u32> {
        self.address(code).map(u32::from)
    }

    pub fn server(&self) -> Option<Ipv4Addr> {
        self.address(code::SERVER)
    }

    fn addresses(&self, code: u8) -> Vec<Ipv4Addr> {
        let octets = self.options.get(&code).map_or(&[][..], Vec::as_slice);
        octets.as_chunks::<4>().0.iter().take(MOST_SERVERS).map(|octets| (*octets).into()).collect()
    }

    pub fn routers(&self) -> Vec<Ipv4Addr> {
        self.addresses(code::ROUTER)
    }

    pub fn name_servers(&self) -> Vec<Ipv4Addr> {
        self.addresses(code::DNS)
    }

    /// Length of the subnet. Without option 1 it is that of the address's class (RFC 950); a mask with holes is none.
    pub fn length(&self) -> Option<u8> {
        match self.options.contains_key(&code::MASK) {
            true => {
                let mask = u32::from(self.address(code::MASK)?);
                let length = mask.leading_ones() as u8;
                (mask.count_ones() as u8 == length && length > 0).then_some(length)
            }
            false => Some(match self.yours.octets()[0] {
                0..128 => 8,
                128..192 => 16,
                _ => 24,
            }),
        }
    }

    /// RFC 3442: with option 121 option 3 counts for nothing. The first of those that are too many. None = there is none, or it
    /// cannot be read.
    pub fn routes(&self) -> Option<Vec<(Prefix, Ipv4Addr)>> {
        let mut rest = self.options.get(&code::ROUTES)?.as_slice();
        let mut routes = vec![];
        while let Some((&len, behind)) = rest.split_first() {
            let significant = usize::from(len).div_ceil(8);
            if routes.len() == MOST_ROUTES {
                break;
            }
            if len > 32 || behind.len() < significant + 4 {
                return None;
            }
            let (destination, behind) = behind.split_at(significant);
            let mut octets = [0; 4];
            octets[..significant].copy_from_slice(destination);
            let (router, behind) = behind.split_first_chunk::<4>()?;
            let prefix = sluice_plan::network(Prefix { addr: Ipv4Addr::from(octets).into(), len });
            routes.push((prefix, Ipv4Addr::from(*router)));
            rest = behind;
        }
        Some(routes)
    }

    /// What the server says of a refusal, without what a terminal would take for an order.
    pub fn words(&self) -> String {
        let text = self.options.get(&code::MESSAGE).map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        text.unwrap_or_default().chars().filter(|c| !c.is_control()).take(100).collect()
    }
}

/// Options of all places; one that stands several times is one that is long (RFC 3396, section 7), in the order of options,
/// `file`, `sname` (section 5).
fn all_options(fixed: &[u8; FIXED], options: &[u8]) -> Option<BTreeMap<u8, Vec<u8>>> {
    let mut found = BTreeMap::new();
    add_options(options, &mut found)?;
    let overload = found.get(&code::OVERLOAD).and_then(|value: &Vec<u8>| value.first().copied()).unwrap_or(0);
    if overload & 1 != 0 {
        add_options(&fixed[FILE], &mut found)?;
    }
    if overload & 2 != 0 {
        add_options(&fixed[SNAME], &mut found)?;
    }
    Some(found)
}

fn add_options(mut rest: &[u8], found: &mut BTreeMap<u8, Vec<u8>>) -> Option<()> {
    loop {
        match rest.split_first() {
            // many servers leave the end out
            None | Some((255, _)) => return Some(()),
            Some((0, behind)) => rest = behind,
            Some((&code, behind)) => {
                let (&length, behind) = behind.split_first()?;
                let (value, behind) = behind.split_at_checked(length.into())?;
                found.entry(code).or_default().extend(value);
                rest = behind;
            }
        }
    }
}

#[cfg(test)]
pub mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A message of a server.
    pub fn reply(kind: Type, xid: u32, mac: [u8; 6], yours: Ipv4Addr, options: &[(u8, &[u8])]) -> Vec<u8> {
        let options = options.iter().map(|(code, value)| (*code, value.to_vec())).collect();
        let mut bytes = Request { kind, xid, secs: 0, mac, own: Ipv4Addr::UNSPECIFIED, options }.bytes();
        bytes[0] = 2;
        bytes[16..20].copy_from_slice(&yours.octets());
        bytes
    }

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const YOURS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 9);

    #[test]
    fn options_in_all_places_are_one_list_and_long_ones_are_put_together() {
        let (one, two) = ([24, 10, 0, 0, 192, 0], [2, 1, 0, 192, 0, 2, 254]);
        let mut bytes = reply(
            Type::Ack,
            7,
            MAC,
            YOURS,
            &[(code::OVERLOAD, &[3]), (code::ROUTES, &one), (code::ROUTES, &two)],
        );
        bytes[FILE][..7].copy_from_slice(&[code::MASK, 4, 255, 255, 255, 0, 255]);
        bytes[SNAME][..7].copy_from_slice(&[code::SERVER, 4, 192, 0, 2, 1, 255]);
        let read = Reply::parse(&bytes).unwrap();
        assert_eq!((read.length(), read.server()), (Some(24), Some(Ipv4Addr::new(192, 0, 2, 1))));
        let routes = read.routes().unwrap();
        let text: Vec<_> = routes.iter().map(|(p, via)| format!("{}/{} {via}", p.addr, p.len)).collect();
        assert_eq!(text, ["10.0.0.0/24 192.0.2.1", "0.0.0.0/0 192.0.2.254"]);
    }

    #[test]
    fn what_is_cut_short_or_makes_no_sense_is_not_half_used() {
        let good = reply(Type::Ack, 7, MAC, YOURS, &[(code::MASK, &[255, 255, 255, 0])]);
        assert!(Reply::parse(&good).is_some());
        assert!(Reply::parse(&good[..FIXED + 3]).is_none());
        let mut longer = good.clone();
        longer[FIXED + 8] = 255;
        assert!(Reply::parse(&longer).is_none(), "an option that is longer than the message");
        let mask = |octets: [u8; 4]| {
            Reply::parse(&reply(Type::Ack, 7, MAC, YOURS, &[(code::MASK, &octets)])).unwrap().length()
        };
        assert_eq!([mask([0; 4]), mask([255, 0, 255, 0]), mask([255; 4])], [None, None, Some(32)]);
        let routes = |octets: &[u8]| {
            Reply::parse(&reply(Type::Ack, 7, MAC, YOURS, &[(code::ROUTES, octets)])).unwrap().routes()
        };
        assert_eq!(routes(&[33, 1, 2, 3, 4, 5, 1, 2, 3, 4]), None);
        assert_eq!(routes(&[24, 10, 0, 0, 192, 0, 2]), None);
        assert_eq!(routes(&[0; 5 * 51]).map(|routes| routes.len()), Some(51));
    }

    proptest! {
        #[test]
        fn nothing_that_arrives_ends_the_reader(bytes in prop::collection::vec(any::<u8>(), 0..700), valid: bool) {
            let mut bytes = bytes;
            if valid && bytes.len() > FIXED + 4 {
                bytes[..3].copy_from_slice(&[2, 1, 6]);
                bytes[FIXED..FIXED + 4].copy_from_slice(&COOKIE);
            }
            if let Some(reply) = Reply::parse(&bytes) {
                let _ = (reply.length(), reply.routes(), reply.words(), reply.routers(), reply.name_servers());
            }
        }

        #[test]
        fn what_is_made_reads_back(xid: u32, mac: [u8; 6], lease: u32, long in prop::collection::vec(any::<u8>(), 0..255)) {
            let options: &[(u8, &[u8])] = &[(code::LEASE, &lease.to_be_bytes()), (code::MESSAGE, &long)];
            let read = Reply::parse(&reply(Type::Nak, xid, mac, YOURS, options)).unwrap();
            prop_assert_eq!((read.kind, read.xid, read.mac, read.yours), (Type::Nak, xid, mac, YOURS));
            prop_assert_eq!(read.seconds(code::LEASE), Some(lease));
            prop_assert_eq!(read.options.get(&code::MESSAGE), Some(&long));
        }
    }
}
