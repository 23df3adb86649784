//! Policies of IPsec (ip-xfrm(8)) that ask for a tunnel. The kernel applies them to what it forwards itself, which is nothing
//! that Sluice redirects.

use std::io;
use std::net::IpAddr;

use rtnetlink::packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NetlinkBuffer, NlasIterator,
};
use rtnetlink::sys::{Socket, SocketAddr, protocols};
use sluice_language::config::Prefix;

/// linux/xfrm.h
const XFRM_MSG_NEWPOLICY: u16 = 0x13;
const XFRM_MSG_GETPOLICY: u16 = 0x15;
const XFRM_POLICY_OUT: u8 = 1;
const XFRM_POLICY_ALLOW: u8 = 0;
const XFRM_MODE_TUNNEL: u8 = 1;
const XFRMA_TMPL: u16 = 5;
const XFRMA_IF_ID: u16 = 31;

/// Bytes of `nlmsghdr`, `xfrm_userpolicy_id` and `xfrm_userpolicy_info`, and offsets in them and in `xfrm_user_tmpl`.
const HEADER: usize = 16;
const QUESTION: usize = 64;
const POLICY: usize = 168;
const SELECTOR_FAMILY: usize = 40;
const SELECTOR_LENGTHS: usize = 42;
const POLICY_DIRECTION: usize = 160;
const POLICY_ACTION: usize = 161;
const TEMPLATE_MODE: usize = 48;

/// What forwarded packets a tunnel is for, by source and destination; none where the kernel has no IPsec.
pub fn tunnels() -> io::Result<Vec<(Prefix, Prefix)>> {
    let mut socket = match Socket::new(protocols::NETLINK_XFRM) {
        Err(error) if error.raw_os_error() == Some(libc::EPROTONOSUPPORT) => return Ok(vec![]),
        other => other?,
    };
    socket.bind(&SocketAddr::new(0, 0))?;
    let mut question = vec![0; HEADER + QUESTION];
    let mut header = NetlinkBuffer::new(&mut question);
    header.set_length((HEADER + QUESTION) as u32);
    header.set_message_type(XFRM_MSG_GETPOLICY);
    header.set_flags(NLM_F_REQUEST | NLM_F_DUMP);
    socket.send_to(&question, &SocketAddr::new(0, 0), 0)?;
    let mut found = vec![];
    loop {
        let (datagram, _) = socket.recv_from_full()?;
        let mut rest = &datagram[..];
        while let Ok(message) = NetlinkBuffer::new_checked(rest) {
            match message.message_type() {
                NLMSG_DONE => return Ok(found),
                NLMSG_ERROR => return Err(refusal(message.payload())),
                XFRM_MSG_NEWPOLICY => found.extend(tunnel(message.payload())),
                _ => {}
            }
            rest = rest.get((message.length() as usize).next_multiple_of(4)..).unwrap_or_default();
        }
    }
}

fn refusal(body: &[u8]) -> io::Error {
    let code = body.first_chunk().map_or(0, |code| i32::from_ne_bytes(*code));
    io::Error::from_raw_os_error(-code)
}

/// A policy of its own for what leaves, not of an interface that routes lead into.
fn tunnel(policy: &[u8]) -> Option<(Prefix, Prefix)> {
    let attributes = NlasIterator::new(policy.get(POLICY..)?);
    let leaves = policy[POLICY_DIRECTION] == XFRM_POLICY_OUT && policy[POLICY_ACTION] == XFRM_POLICY_ALLOW;
    let (mut tunnels, mut of_interface) = (false, false);
    for attribute in attributes.flatten() {
        let (kind, value) = (attribute.kind(), attribute.value());
        tunnels |= kind == XFRMA_TMPL && value.get(TEMPLATE_MODE) == Some(&XFRM_MODE_TUNNEL);
        of_interface |= kind == XFRMA_IF_ID && value.iter().any(|byte| *byte != 0);
    }
    let family = u16::from_ne_bytes(*policy[SELECTOR_FAMILY..].first_chunk()?);
    let prefix =
        |at: usize, len: usize| Some(Prefix { addr: address(family, &policy[at..])?, len: policy[len] });
    let selector = (prefix(16, SELECTOR_LENGTHS + 1)?, prefix(0, SELECTOR_LENGTHS)?);
    (leaves && tunnels && !of_interface).then_some(selector)
}

fn address(family: u16, bytes: &[u8]) -> Option<IpAddr> {
    match i32::from(family) {
        libc::AF_INET => Some(IpAddr::from(*bytes.first_chunk::<4>()?)),
        libc::AF_INET6 => Some(IpAddr::from(*bytes.first_chunk::<16>()?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_netns::Netns;

    #[test]
    fn tunnels_of_forwarded_packets_are_found() {
        let netns = Netns::create("ipsec").unwrap();
        let tmpl = |mode: &str| format!("tmpl src 192.0.2.1 dst 192.0.2.2 proto esp reqid 1 mode {mode}");
        for policy in [
            format!("src 10.0.1.0/24 dst 10.99.0.0/16 dir out {}", tmpl("tunnel")),
            format!("src 10.0.2.0/24 dst 10.99.0.0/16 dir in {}", tmpl("tunnel")),
            format!("src 192.0.2.1/32 dst 192.0.2.2/32 dir out {}", tmpl("transport")),
            format!("src 10.0.3.0/24 dst 10.99.0.0/16 dir out if_id 7 {}", tmpl("tunnel")),
            "src 10.0.4.0/24 dst 10.99.0.0/16 dir out action block".to_owned(),
            "src fd00:1::/64 dst fd00:99::/48 dir out tmpl src 2001:db8::1 dst 2001:db8::2 proto esp reqid 1 mode tunnel"
                .to_owned(),
        ] {
            netns.ip(&format!("xfrm policy add {policy}")).unwrap();
        }
        let found = netns.enter(tunnels).unwrap().unwrap();
        let mut texts: Vec<String> =
            found.iter().map(|(s, d)| format!("{}/{} {}/{}", s.addr, s.len, d.addr, d.len)).collect();
        texts.sort();
        assert_eq!(texts, ["10.0.1.0/24 10.99.0.0/16", "fd00:1::/64 fd00:99::/48"]);
    }
}
