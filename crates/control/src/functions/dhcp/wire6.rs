//! Messages of DHCPv6: RFC 8415 sections 8 and 21, name servers of RFC 3646.

use std::net::Ipv6Addr;

use sluice_language::config::Prefix;

/// RFC 8415, section 7.3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    Solicit = 1,
    Advertise,
    Request,
    Confirm,
    Renew,
    Rebind,
    Reply,
    Release,
    Decline,
    InformationRequest = 11,
}

/// RFC 8415, section 21.
mod code {
    pub const CLIENT: u16 = 1;
    pub const SERVER: u16 = 2;
    pub const IA_NA: u16 = 3;
    pub const ADDRESS: u16 = 5;
    pub const ASKED: u16 = 6;
    pub const ELAPSED: u16 = 8;
    pub const STATUS: u16 = 13;
    pub const RAPID: u16 = 14;
    pub const DNS: u16 = 23;
    pub const IA_PD: u16 = 25;
    pub const PREFIX: u16 = 26;
    pub const SOL_MAX_RT: u16 = 82;
}

/// RFC 8415, section 21.13.
pub mod status {
    pub const SUCCESS: u16 = 0;
    pub const NO_BINDING: u16 = 3;
    pub const NOT_ON_LINK: u16 = 4;
}

/// Of one association: what a hostile server may say is bounded here.
const MOST_PARTS: usize = 8;
const MOST_SERVERS: usize = 8;

/// An address or a prefix, and how long it is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Of an address the length is 128.
    pub prefix: Prefix,
    pub preferred_s: u32,
    pub valid_s: u32,
}

/// Identity association: of addresses (section 21.4) or of prefixes (section 21.21).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Association {
    pub is_prefix: bool,
    pub id: u32,
    pub t1_s: u32,
    pub t2_s: u32,
    pub parts: Vec<Part>,
    pub status: u16,
}

/// A message of either side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub kind: Type,
    pub xid: [u8; 3],
    pub client: Vec<u8>,
    pub server: Option<Vec<u8>>,
    pub associations: Vec<Association>,
    pub rapid: bool,
    /// Hundredths of a second; sent only.
    pub elapsed: Option<u16>,
    /// Codes of options that are asked for; sent only.
    pub asked: Vec<u16>,
    pub status: u16,
    pub dns: Vec<Ipv6Addr>,
    pub solicit_max_s: Option<u32>,
}

/// What a client asks for besides (section 21.7): the longest pause between solicits always, which servers insist on.
pub fn asked(dns: bool) -> Vec<u16> {
    [Some(code::SOL_MAX_RT), dns.then_some(code::DNS)].into_iter().flatten().collect()
}

fn option(code: u16, value: &[u8]) -> Vec<u8> {
    [&code.to_be_bytes(), &(value.len() as u16).to_be_bytes(), value].concat()
}

impl Message {
    pub fn new(kind: Type, xid: [u8; 3], client: Vec<u8>) -> Self {
        Self {
            kind,
            xid,
            client,
            server: None,
            associations: vec![],
            rapid: false,
            elapsed: None,
            asked: vec![],
            status: status::SUCCESS,
            dns: vec![],
            solicit_max_s: None,
        }
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![self.kind as u8];
        bytes.extend(self.xid);
        bytes.extend(option(code::CLIENT, &self.client));
        bytes.extend(self.server.iter().flat_map(|server| option(code::SERVER, server)));
        bytes.extend(self.associations.iter().flat_map(Association::bytes));
        if self.rapid {
            bytes.extend(option(code::RAPID, &[]));
        }
        if let Some(elapsed) = self.elapsed {
            bytes.extend(option(code::ELAPSED, &elapsed.to_be_bytes()));
        }
        if !self.asked.is_empty() {
            let codes: Vec<u8> = self.asked.iter().flat_map(|code| code.to_be_bytes()).collect();
            bytes.extend(option(code::ASKED, &codes));
        }
        bytes
    }

    /// None = it is no answer of a server, or cut short.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (&[kind, x, y, z], options) = bytes.split_first_chunk()?;
        let kind = [Type::Advertise, Type::Reply].into_iter().find(|known| *known as u8 == kind)?;
        let mut message = Self::new(kind, [x, y, z], vec![]);
        for (code, value) in options_of(options)? {
            match code {
                code::CLIENT => message.client = value.to_vec(),
                code::SERVER => message.server = Some(value.to_vec()),
                code::IA_NA | code::IA_PD if message.associations.len() < MOST_PARTS => {
                    message.associations.push(Association::parse(code == code::IA_PD, value)?);
                }
                code::RAPID => message.rapid = true,
                code::STATUS => message.status = u16::from_be_bytes(*value.first_chunk()?),
                code::DNS => {
                    let servers = value.as_chunks::<16>().0.iter().take(MOST_SERVERS);
                    message.dns = servers.map(|octets| Ipv6Addr::from(*octets)).collect();
                }
                code::SOL_MAX_RT => message.solicit_max_s = Some(u32::from_be_bytes(value.try_into().ok()?)),
                _ => {}
            }
        }
        Some(message)
    }
}

impl Association {
    fn bytes(&self) -> Vec<u8> {
        let mut value = [self.id, self.t1_s, self.t2_s].map(u32::to_be_bytes).concat();
        value.extend(self.parts.iter().flat_map(|part| part.bytes(self.is_prefix)));
        option(if self.is_prefix { code::IA_PD } else { code::IA_NA }, &value)
    }

    fn parse(is_prefix: bool, value: &[u8]) -> Option<Self> {
        let (fixed, options) = value.split_first_chunk::<12>()?;
        let word = |at: usize| u32::from_be_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]]);
        let mut association = Self {
            is_prefix,
            id: word(0),
            t1_s: word(4),
            t2_s: word(8),
            parts: vec![],
            status: status::SUCCESS,
        };
        for (code, value) in options_of(options)? {
            match (code, is_prefix) {
                (code::ADDRESS, false) | (code::PREFIX, true) if association.parts.len() < MOST_PARTS => {
                    association.parts.push(Part::parse(is_prefix, value)?);
                }
                (code::STATUS, _) => association.status = u16::from_be_bytes(*value.first_chunk()?),
                _ => {}
            }
        }
        Some(association)
    }
}

impl Part {
    fn bytes(&self, is_prefix: bool) -> Vec<u8> {
        let octets = match self.prefix.addr {
            std::net::IpAddr::V6(addr) => addr.octets(),
            std::net::IpAddr::V4(addr) => addr.to_ipv6_mapped().octets(),
        };
        let times = [self.preferred_s, self.valid_s].map(u32::to_be_bytes).concat();
        match is_prefix {
            true => option(code::PREFIX, &[&times[..], &[self.prefix.len], &octets].concat()),
            false => option(code::ADDRESS, &[&octets[..], &times].concat()),
        }
    }

    /// Sections 21.6 and 21.22; options of its own are not looked at.
    fn parse(is_prefix: bool, value: &[u8]) -> Option<Self> {
        let (addr, len, times) = match is_prefix {
            true => {
                let (times, rest) = value.split_first_chunk::<8>()?;
                let (&len, rest) = rest.split_first()?;
                (*rest.first_chunk::<16>()?, len, *times)
            }
            false => {
                let (addr, rest) = value.split_first_chunk::<16>()?;
                (*addr, 128, *rest.first_chunk::<8>()?)
            }
        };
        if len > 128 {
            return None;
        }
        let [a, b, c, d, e, f, g, h] = times;
        Some(Self {
            prefix: sluice_plan::network(Prefix { addr: Ipv6Addr::from(addr).into(), len }),
            preferred_s: u32::from_be_bytes([a, b, c, d]),
            valid_s: u32::from_be_bytes([e, f, g, h]),
        })
    }
}

/// All, or none where one goes past the end.
fn options_of(mut rest: &[u8]) -> Option<Vec<(u16, &[u8])>> {
    let mut options = vec![];
    while let Some((&[a, b, c, d], behind)) = rest.split_first_chunk::<4>() {
        let (value, behind) = behind.split_at_checked(u16::from_be_bytes([c, d]).into())?;
        options.push((u16::from_be_bytes([a, b]), value));
        rest = behind;
    }
    rest.is_empty().then_some(options)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message() -> impl Strategy<Value = Message> {
        let part = |is_prefix: bool| {
            (any::<u128>(), 0..=128u8, any::<[u32; 2]>()).prop_map(
                move |(addr, len, [preferred_s, valid_s])| {
                    let len = if is_prefix { len } else { 128 };
                    let prefix = sluice_plan::network(Prefix { addr: Ipv6Addr::from(addr).into(), len });
                    Part { prefix, preferred_s, valid_s }
                },
            )
        };
        let association =
            (any::<bool>(), any::<[u32; 3]>()).prop_flat_map(move |(is_prefix, [id, t1_s, t2_s])| {
                prop::collection::vec(part(is_prefix), 0..MOST_PARTS).prop_map(move |parts| Association {
                    is_prefix,
                    id,
                    t1_s,
                    t2_s,
                    parts,
                    status: 0,
                })
            });
        (any::<[u8; 3]>(), prop::collection::vec(association, 0..4), any::<bool>(), any::<Option<[u8; 10]>>())
            .prop_map(|(xid, associations, rapid, server)| Message {
                associations,
                rapid,
                server: server.map(|id| id.to_vec()),
                ..Message::new(Type::Reply, xid, vec![0, 1, 2, 3])
            })
    }

    proptest! {
        #[test]
        fn what_is_made_reads_back(message in message()) {
            prop_assert_eq!(Message::parse(&message.bytes()), Some(message));
        }

        #[test]
        fn nothing_that_arrives_ends_the_reader(message in message(), cut: usize, at: usize, octet: u8) {
            let mut bytes = message.bytes();
            let at = at % bytes.len();
            bytes[at] = octet;
            bytes.truncate(cut % (bytes.len() + 1));
            let _ = Message::parse(&bytes);
        }
    }

    #[test]
    fn what_is_cut_short_is_not_half_used() {
        let whole =
            Message { server: Some(vec![1; 4]), ..Message::new(Type::Reply, [1, 2, 3], vec![2; 4]) }.bytes();
        assert!(Message::parse(&whole).is_some());
        assert!(
            (0..whole.len()).all(|end| [4, 12].contains(&end) || Message::parse(&whole[..end]).is_none())
        );
    }
}
