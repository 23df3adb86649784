//! What a client of DHCPv6 says.

use sluice_language::config::Prefix;
use sluice_language::dhcp::DuidType;

use super::Client6;
use crate::functions::dhcp::chance;
use crate::functions::dhcp::client4::Around;
use crate::functions::dhcp::lease::Given;
use crate::functions::dhcp::wire6::{Association, Message, Part, Type, asked, status};

impl Client6 {
    pub(super) fn transmit(&self, message: &Message) -> bool {
        self.port.as_ref().is_some_and(|port| port.send(&message.bytes()).is_ok())
    }

    pub(super) fn message(&self, kind: Type, around: &Around<'_>) -> Message {
        let mut message = Message::new(kind, self.xid, self.duid(around));
        let elapsed = if self.sent == 0 { 0 } else { self.begun.elapsed().as_millis() / 10 };
        message.elapsed = Some(elapsed.min(0xffff) as u16);
        message.asked = asked(self.config.dns);
        message
    }

    /// RFC 8415, section 11.
    pub(super) fn duid(&self, around: &Around<'_>) -> Vec<u8> {
        match (self.config.duid, self.link) {
            (DuidType::LinkLayer, Some((_, mac))) => [&[0, 3, 0, 1], &mac[..]].concat(),
            _ => around.duid.to_vec(),
        }
    }

    /// What is asked for, with what is had already.
    pub(super) fn associations<'a>(&self, given: impl Iterator<Item = &'a Given>) -> Vec<Association> {
        let given: Vec<&Given> = given.collect();
        let association = |is_prefix: bool| {
            let part = |given: &&Given| Part {
                prefix: given.net.into(),
                preferred_s: given.preferred.left_s(),
                valid_s: given.valid.left_s(),
            };
            let mut parts: Vec<Part> =
                given.iter().filter(|given| given.is_prefix() == is_prefix).map(part).collect();
            if let (true, true, Some(len)) = (is_prefix, parts.is_empty(), self.config.prefix_length) {
                let prefix = Prefix { addr: std::net::Ipv6Addr::UNSPECIFIED.into(), len };
                parts.push(Part { prefix, preferred_s: 0, valid_s: 0 });
            }
            Association {
                is_prefix,
                id: chance::iaid(&self.unit),
                t1_s: 0,
                t2_s: 0,
                parts,
                status: status::SUCCESS,
            }
        };
        let wanted = [(self.config.address, false), (self.config.prefix, true)];
        wanted
            .into_iter()
            .filter(|(is_wanted, _)| *is_wanted)
            .map(|(_, is_prefix)| association(is_prefix))
            .collect()
    }
}
