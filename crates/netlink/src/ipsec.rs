//! Policies of IPsec (ip-xfrm(8)).

use std::io;
use std::net::IpAddr;

use netlink_packet_core::{DecodeError, NetlinkDeserializable, NetlinkHeader, Parseable};
use netlink_packet_xfrm::constants::{
    AF_INET, AF_INET6, XFRM_MODE_TUNNEL, XFRM_MSG_NEWPOLICY, XFRM_POLICY_ALLOW, XFRM_POLICY_OUT,
};
use netlink_packet_xfrm::policy::{DelGetMessage, ModifyMessage};
use netlink_packet_xfrm::{Address, XFRM_USER_POLICY_INFO_LEN, XfrmAttrs, XfrmMessage};
use netlink_sys::protocols::NETLINK_XFRM;
use nix::errno::Errno;

use crate::exchange::Exchange;

/// An address and the length of its prefix.
pub type Network = (IpAddr, u8);

/// A policy of the kernel's IPsec (XFRM).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Whom packets come from.
    pub source: Network,
    /// Whom packets are for.
    pub destination: Network,
    /// For packets that leave.
    pub is_outward: bool,
    /// It lets packets pass, protected as it says.
    pub allows: bool,
    /// One of its templates asks for a tunnel.
    pub tunnels: bool,
    /// Of the xfrm interface that routes lead into; 0 = of none, which all packets meet.
    pub interface: u32,
}

/// Every policy of the calling thread's network namespace; none where the kernel has no IPsec. One that cannot be read is told of
/// in the log and left out.
pub fn policies() -> io::Result<Vec<Policy>> {
    let mut exchange = match Exchange::open(NETLINK_XFRM) {
        Err(error) if error.raw_os_error() == Some(Errno::EPROTONOSUPPORT as i32) => return Ok(vec![]),
        other => other?,
    };
    let mut policies = vec![];
    exchange.list(XfrmMessage::GetPolicy(DelGetMessage::default()), |policy| match policy {
        Ok(policy) => policies.push(policy),
        Err(error) => tracing::warn!(%error, "a policy of IPsec cannot be read and is left out"),
    })?;
    Ok(policies)
}

impl NetlinkDeserializable for Policy {
    type Error = DecodeError;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<Policy, DecodeError> {
        if header.message_type != XFRM_MSG_NEWPOLICY {
            return Err(format!("message type {} is no policy", header.message_type).into());
        }
        // the crate takes it for granted
        if payload.len() < XFRM_USER_POLICY_INFO_LEN {
            return Err(DecodeError::buffer_too_small(payload.len(), XFRM_USER_POLICY_INFO_LEN));
        }
        let message = ModifyMessage::parse(payload)?;
        let info = message.user_policy_info;
        let network = |address, len| Ok::<Network, DecodeError>((ip(info.selector.family, address)?, len));
        let is_tunnel = |attribute: &XfrmAttrs| match attribute {
            XfrmAttrs::Template(templates) => templates.iter().any(|one| one.mode == XFRM_MODE_TUNNEL),
            _ => false,
        };
        let interface = message.nlas.iter().find_map(|attribute| match attribute {
            XfrmAttrs::IfId(id) => Some(*id),
            _ => None,
        });
        Ok(Policy {
            source: network(info.selector.saddr, info.selector.prefixlen_s)?,
            destination: network(info.selector.daddr, info.selector.prefixlen_d)?,
            is_outward: info.direction == XFRM_POLICY_OUT,
            allows: info.action == XFRM_POLICY_ALLOW,
            tunnels: message.nlas.iter().any(is_tunnel),
            interface: interface.unwrap_or(0),
        })
    }
}

fn ip(family: u16, address: Address) -> Result<IpAddr, DecodeError> {
    match family {
        AF_INET => Ok(address.to_ipv4().into()),
        AF_INET6 => Ok(address.to_ipv6().into()),
        _ => Err(format!("addresses of family {family}").into()),
    }
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::Emitable;
    use netlink_packet_xfrm::UserTemplate;

    use super::*;

    const TRANSPORT: u8 = 0;

    fn read(message: &ModifyMessage) -> Result<Policy, DecodeError> {
        let mut bytes = vec![0; message.buffer_len()];
        message.emit(&mut bytes);
        read_bytes(&bytes)
    }

    fn read_bytes(bytes: &[u8]) -> Result<Policy, DecodeError> {
        let mut header = NetlinkHeader::default();
        header.message_type = XFRM_MSG_NEWPOLICY;
        Policy::deserialize(&header, bytes)
    }

    fn policy(modes: &[u8]) -> ModifyMessage {
        let mut message = ModifyMessage::default();
        message.user_policy_info.selector.source_prefix(&"10.0.1.0".parse().unwrap(), 24);
        message.user_policy_info.selector.destination_prefix(&"10.99.0.0".parse().unwrap(), 16);
        message.user_policy_info.direction = XFRM_POLICY_OUT;
        let template = |mode: &u8| UserTemplate { mode: *mode, ..Default::default() };
        message.nlas = vec![XfrmAttrs::IfId(7), XfrmAttrs::Template(modes.iter().map(template).collect())];
        message
    }

    #[test]
    fn any_template_makes_a_tunnel() {
        for (modes, tunnels) in [
            (&[][..], false),
            (&[TRANSPORT], false),
            (&[XFRM_MODE_TUNNEL], true),
            (&[XFRM_MODE_TUNNEL, TRANSPORT], true),
            (&[TRANSPORT, XFRM_MODE_TUNNEL], true),
        ] {
            let wanted = Policy {
                source: ("10.0.1.0".parse().unwrap(), 24),
                destination: ("10.99.0.0".parse().unwrap(), 16),
                is_outward: true,
                allows: true,
                tunnels,
                interface: 7,
            };
            assert_eq!(read(&policy(modes)).unwrap(), wanted, "{modes:?}");
        }
    }

    #[test]
    fn what_is_cut_short_or_of_another_family_is_an_error() {
        let mut message = policy(&[XFRM_MODE_TUNNEL]);
        let mut bytes = vec![0; message.buffer_len()];
        message.emit(&mut bytes);
        for length in 0..XFRM_USER_POLICY_INFO_LEN {
            assert!(read_bytes(&bytes[..length]).is_err(), "{length}");
        }
        assert!(read_bytes(&bytes[..bytes.len() - 1]).is_err());
        message.user_policy_info.selector.family = 0;
        assert!(read(&message).is_err());
    }
}
