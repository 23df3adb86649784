//! What it costs that a statement is not in effect, and what to do about it.

/// In the order in which it is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cost {
    /// More passes than on the router.
    Wider,
    /// A protection is missing, or a policy is another one.
    Security,
    /// Packets that were forwarded are not, or are otherwise.
    Traffic,
    /// Hosts miss a service of the router.
    Service,
    /// The administrator does it otherwise.
    Management,
    /// Nobody notices.
    Form,
}

impl Cost {
    /// One word for it, as `sluice import` prints it.
    pub fn name(self) -> &'static str {
        match self {
            Cost::Wider => "wider",
            Cost::Security => "security",
            Cost::Traffic => "traffic",
            Cost::Service => "service",
            Cost::Management => "management",
            Cost::Form => "form",
        }
    }

    /// What all of its kind have in common.
    pub fn heading(self) -> &'static str {
        match self {
            Cost::Wider => "more may pass than on the router",
            Cost::Security => "protection and policies that are not as they were",
            Cost::Traffic => "packets that are not forwarded as they were",
            Cost::Service => "services that hosts will miss",
            Cost::Management => "done by the host, not by Sluice",
            Cost::Form => "of no consequence for packets",
        }
    }
}

const FILTER: &str = "what the filter dropped reaches the policies; write it as policies or screens";
const TUNNEL: &str =
    "Sluice builds no tunnels; strongSwan beside it can, and routes into them are yours to set";
const PROTOCOLS: &str = "FRR beside Sluice speaks it and fills the kernel's routes, which Sluice follows";
const SWITCHING: &str = "Sluice routes and does not switch; a Linux bridge beside it can";
const LINK: &str = "set it with `ethtool` or `ip link`";
const USERS: &str = "what uses it is left out, too";
const HOST: &str = "the host does it, in its own way";
const INSPECTION: &str = "nothing looks into packets here";

/// The first that a path begins with is meant; `*` is any word.
const COSTS: &[(&[&str], Cost, &str)] = &[
    (&["apply-groups"], Cost::Security, "what the group holds is not in effect: copy what you need of it"),
    (&["security", "idp"], Cost::Security, INSPECTION),
    (&["security", "utm"], Cost::Security, INSPECTION),
    (&["security", "application-firewall"], Cost::Security, INSPECTION),
    (&["security", "application-tracking"], Cost::Form, INSPECTION),
    (&["security", "screen"], Cost::Security, "what it would drop is not dropped"),
    (
        &["security", "zones", "functional-zone"],
        Cost::Security,
        "filters of the host itself rule what reaches it there",
    ),
    (
        &["security", "zones", "security-zone", "*", "host-inbound-traffic"],
        Cost::Service,
        "the gateway is not reached by it",
    ),
    (
        &["security", "zones", "security-zone", "*", "interfaces", "*", "host-inbound-traffic"],
        Cost::Service,
        "the gateway is not reached by it",
    ),
    (&["security", "zones", "security-zone", "*", "interfaces"], Cost::Traffic, "nothing passes there"),
    (&["security", "zones", "security-zone", "*", "application-tracking"], Cost::Form, INSPECTION),
    (&["security", "zones"], Cost::Security, "the zone is without it"),
    (
        &["security", "policies", "pre-id-default-policy"],
        Cost::Form,
        "no session waits for its application to be known",
    ),
    (&["security", "policies", "traceoptions"], Cost::Management, "`sluice show log` tells what policies do"),
    (
        &["security", "policies", "policy-rematch"],
        Cost::Form,
        "sessions are always judged again after a commit",
    ),
    (&["security", "policies", "policy-stats"], Cost::Form, "`then count` counts"),
    (&["security", "policies"], Cost::Security, "it decides nothing"),
    (&["security", "ike"], Cost::Traffic, TUNNEL),
    (&["security", "ipsec"], Cost::Traffic, TUNNEL),
    (&["security", "pki"], Cost::Traffic, TUNNEL),
    (&["security", "group-vpn"], Cost::Traffic, TUNNEL),
    (&["security", "dynamic-vpn"], Cost::Traffic, TUNNEL),
    (&["security", "certificates"], Cost::Management, HOST),
    (&["security", "ssh-known-hosts"], Cost::Management, HOST),
    (&["security", "log"], Cost::Management, "sessions are in `sluice show log`"),
    (&["security", "alarms"], Cost::Management, HOST),
    (&["security", "traceoptions"], Cost::Management, HOST),
    (
        &["security", "alg"],
        Cost::Traffic,
        "connections that FTP, SIP and the like open besides need policies of their own",
    ),
    (
        &["security", "flow", "allow-embedded-icmp"],
        Cost::Form,
        "ICMP errors that belong to no session stay dropped",
    ),
    (&["security", "flow", "allow-dns-reply"], Cost::Form, "answers that nobody asked for stay dropped"),
    (&["security", "flow", "traceoptions"], Cost::Management, "`sluice show drops` tells reasons"),
    (&["security", "flow"], Cost::Traffic, "sessions are followed as FIREWALL.md says"),
    (&["security", "forwarding-options"], Cost::Form, "both families are always handled by sessions"),
    (&["security", "nat"], Cost::Traffic, "what it translated is not, or by a later rule"),
    (&["security", "address-book"], Cost::Form, USERS),
    (&["security"], Cost::Security, "it is not in effect"),
    (&["services", "security-intelligence"], Cost::Security, INSPECTION),
    (&["services", "advanced-anti-malware"], Cost::Security, INSPECTION),
    (&["services", "ssl"], Cost::Security, INSPECTION),
    (&["services"], Cost::Service, "it is not in effect"),
    (&["firewall"], Cost::Security, FILTER),
    (&["interfaces", "*", "unit", "*", "family", "*", "filter"], Cost::Security, FILTER),
    (
        &["interfaces", "*", "unit", "*", "family", "*", "rpf-check"],
        Cost::Security,
        "the screen `ip spoofing` does it",
    ),
    (&["interfaces", "*", "unit", "*", "family", "*", "dhcp", "*"], Cost::Form, CLIENT),
    (&["interfaces", "*", "unit", "*", "family", "*", "dhcp-client", "*"], Cost::Form, CLIENT),
    (&["interfaces", "*", "unit", "*", "family", "*", "dhcpv6-client", "*"], Cost::Form, CLIENT),
    (&["interfaces", "*", "unit", "*", "family", "*", "sampling"], Cost::Management, HOST),
    (&["interfaces", "*", "unit", "*", "family", "ethernet-switching"], Cost::Traffic, SWITCHING),
    (
        &["interfaces", "*", "unit", "*", "family", "*", "address", "*", "vrrp-group"],
        Cost::Traffic,
        "keepalived on the host does it",
    ),
    (&["interfaces", "*", "gigether-options"], Cost::Form, LINK),
    (&["interfaces", "*", "ether-options"], Cost::Form, LINK),
    (&["interfaces", "*", "fastether-options"], Cost::Form, LINK),
    (&["interfaces", "*", "redundant-ether-options"], Cost::Form, "there is one machine"),
    (&["interfaces", "*", "aggregated-ether-options"], Cost::Form, "a Linux bond does it"),
    (&["interfaces", "*", "speed"], Cost::Form, LINK),
    (&["interfaces", "*", "link-mode"], Cost::Form, LINK),
    (&["interfaces", "*", "hold-time"], Cost::Form, LINK),
    (&["interfaces", "*", "traceoptions"], Cost::Management, HOST),
    (&["interfaces"], Cost::Traffic, "nothing passes by it"),
    (&["routing-instances", "*", "protocols"], Cost::Traffic, "in the main instance FRR speaks them"),
    (&["routing-instances", "*", "route-distinguisher"], Cost::Form, VPN),
    (&["routing-instances", "*", "vrf-target"], Cost::Form, VPN),
    (&["routing-instances", "*", "vrf-import"], Cost::Form, VPN),
    (&["routing-instances", "*", "vrf-export"], Cost::Form, VPN),
    (&["routing-instances", "*", "vrf-table-label"], Cost::Form, VPN),
    (&["routing-instances", "*", "routing-options"], Cost::Traffic, "what it routed takes another way"),
    (&["routing-instances", "*", "interface"], Cost::Security, "the unit is left out with it"),
    (&["routing-instances"], Cost::Security, "its units are left out with it"),
    (&["routing-options", "static", "route", "*", "qualified-next-hop"], Cost::Traffic, SECOND),
    (&["routing-options", "static", "route", "*", "*"], Cost::Form, "the route holds without it"),
    (&["routing-options", "rib", "*", "static", "route", "*", "qualified-next-hop"], Cost::Traffic, SECOND),
    (&["routing-options", "rib", "*", "static", "route", "*", "*"], Cost::Form, "the route holds without it"),
    (&["routing-options", "static"], Cost::Traffic, "what it routed takes another way"),
    (&["routing-options", "rib"], Cost::Traffic, "what it routed takes another way"),
    (&["routing-options", "router-id"], Cost::Form, PROTOCOLS),
    (&["routing-options", "autonomous-system"], Cost::Form, PROTOCOLS),
    (&["routing-options"], Cost::Traffic, PROTOCOLS),
    (&["protocols", "lldp"], Cost::Management, "lldpd on the host does it"),
    (&["protocols", "lldp-med"], Cost::Management, "lldpd on the host does it"),
    (&["protocols", "l2-learning"], Cost::Form, SWITCHING),
    (&["protocols", "rstp"], Cost::Form, SWITCHING),
    (&["protocols", "stp"], Cost::Form, SWITCHING),
    (&["protocols", "igmp-snooping"], Cost::Form, SWITCHING),
    (&["protocols", "router-advertisement"], Cost::Service, "hosts are not told of it"),
    (&["protocols", "bgp", "group"], Cost::Traffic, "its neighbours are without it"),
    (&["protocols"], Cost::Traffic, PROTOCOLS),
    (&["policy-options", "policy-statement"], Cost::Traffic, USERS),
    (&["policy-options", "prefix-list"], Cost::Form, USERS),
    (&["policy-options", "community"], Cost::Form, USERS),
    (&["policy-options", "as-path"], Cost::Form, USERS),
    (&["policy-options"], Cost::Form, "only routing protocols ask it"),
    (&["class-of-service"], Cost::Traffic, "there are no queues; `tc` on the way out can have some"),
    (&["vlans"], Cost::Traffic, SWITCHING),
    (&["bridge-domains"], Cost::Traffic, SWITCHING),
    (&["ethernet-switching-options"], Cost::Traffic, SWITCHING),
    (&["switch-options"], Cost::Form, SWITCHING),
    (&["chassis", "cluster"], Cost::Traffic, "there is one machine, without a peer that takes over"),
    (&["chassis"], Cost::Management, "there is no chassis"),
    (&["applications", "application", "*", "inactivity-timeout"], Cost::Form, TIMEOUT),
    (&["applications", "application", "*", "term", "*", "inactivity-timeout"], Cost::Form, TIMEOUT),
    (&["applications", "application", "*", "alg"], Cost::Traffic, ALG),
    (&["applications", "application", "*", "application-protocol"], Cost::Traffic, ALG),
    (&["applications", "application", "*", "term", "*", "alg"], Cost::Traffic, ALG),
    (&["applications", "application", "*", "term", "*", "application-protocol"], Cost::Traffic, ALG),
    (&["applications"], Cost::Form, USERS),
    (&["schedulers"], Cost::Form, USERS),
    (&["access", "address-assignment"], Cost::Service, POOL),
    (&["access"], Cost::Service, "accounts are not in effect"),
    (&["system", "services", "dhcp"], Cost::Service, SERVER),
    (&["system", "services", "dhcp-local-server"], Cost::Service, POOL),
    (&["system", "services", "dns"], Cost::Service, "dnsmasq or unbound on the host does it"),
    (&["forwarding-options", "dhcp-relay"], Cost::Service, "a relay on the host does it"),
    (&["forwarding-options", "helpers"], Cost::Service, "a relay on the host does it"),
    (&["forwarding-options"], Cost::Management, HOST),
    (&["system"], Cost::Management, HOST),
    (&["snmp"], Cost::Management, HOST),
    (&["event-options"], Cost::Management, HOST),
    (&["accounting-options"], Cost::Management, HOST),
];

const ALG: &str = "connections that FTP, SIP and the like open besides need policies of their own";
const TIMEOUT: &str = "the time of its protocol holds";
const SECOND: &str = "there is no second way when the first one fails";
const VPN: &str = "VPN routes are not exchanged";
const POOL: &str = "DHCP clients are served without it";
const CLIENT: &str = "the client does without it";
const SERVER: &str = "kea or dnsmasq on the host does it";

pub(super) fn of(path: &[&str]) -> (Cost, &'static str) {
    let path = inside_groups(path);
    let begins = |words: &[&str]| {
        words.len() <= path.len() && words.iter().zip(path).all(|(word, step)| *word == "*" || word == step)
    };
    COSTS
        .iter()
        .find(|(words, ..)| begins(words))
        .map_or((Cost::Traffic, "it is not in effect"), |(_, cost, means)| (*cost, means))
}

/// A path as it will be where a group is applied.
pub(super) fn inside_groups<'a, 'b>(path: &'a [&'b str]) -> &'a [&'b str] {
    match path {
        ["groups", _, inside @ ..] => inside,
        path => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closest_line_is_met_first() {
        for (index, (words, ..)) in COSTS.iter().enumerate() {
            let earlier = COSTS[..index].iter().find(|(earlier, ..)| words.starts_with(earlier));
            assert!(earlier.is_none(), "{words:?} is never met");
        }
        assert_eq!(of(&["groups", "g", "security", "idp", "x"]).0, Cost::Security);
        assert_eq!(of(&["interfaces", "eth0", "unit", "0", "family", "inet", "filter"]).0, Cost::Security);
    }
}
