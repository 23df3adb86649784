//! Policies of IPsec that ask for a tunnel. The kernel applies them to what it forwards itself, which is nothing that Sluice
//! redirects.

use std::io;

use sluice_language::config::Prefix;
use sluice_netlink::ipsec::{Network, Policy, policies};

/// What forwarded packets a tunnel is for, by source and destination; none where the kernel has no IPsec.
pub fn tunnels() -> io::Result<Vec<(Prefix, Prefix)>> {
    let is_met =
        |policy: &Policy| policy.is_outward && policy.allows && policy.tunnels && policy.interface == 0;
    let prefix = |(addr, len): Network| Prefix { addr, len };
    let met = policies()?.into_iter().filter(is_met);
    Ok(met.map(|policy| (prefix(policy.source), prefix(policy.destination))).collect())
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
            format!(
                "src 10.0.5.0/24 dst 10.99.0.0/16 dir out tmpl proto comp reqid 2 mode transport {}",
                tmpl("tunnel")
            ),
            "src fd00:1::/64 dst fd00:99::/48 dir out tmpl src 2001:db8::1 dst 2001:db8::2 proto esp reqid 1 mode tunnel"
                .to_owned(),
        ] {
            netns.ip(&format!("xfrm policy add {policy}")).unwrap();
        }
        let found = netns.enter(tunnels).unwrap().unwrap();
        let mut texts: Vec<String> =
            found.iter().map(|(s, d)| format!("{}/{} {}/{}", s.addr, s.len, d.addr, d.len)).collect();
        texts.sort();
        assert_eq!(
            texts,
            ["10.0.1.0/24 10.99.0.0/16", "10.0.5.0/24 10.99.0.0/16", "fd00:1::/64 fd00:99::/48"]
        );
    }
}
