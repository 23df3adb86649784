//! One trace through two gateways: nftables (stateful, masquerade, dnat) and ours make the same of every packet.
//!
//! What may differ, and why, is taken away before packets are compared:
//! - the port or identifier that source NAT chose: each gateway chooses for itself (RFC 6056);
//! - where a datagram is cut, and the identification of IPv6 pieces: conntrack puts datagrams together, we do not.
//!
//! What is not sent because the gateways differ by design: pieces before their first (`fragment_no_first`), ACKs without
//! a session (conntrack adopts them unless it is told not to, as here), and what gateways answer themselves.

mod packets;
mod trace;

use sluice_dataplane::Sizes;
use sluice_packet_tests::extent;
use sluice_packet_tests::gateway::{Gateway, Hook};
use sluice_packet_tests::netns::in_thread;
use sluice_packet_tests::nft::NftGateway;
use sluice_packet_tests::onwire::Wire;
use sluice_packet_tests::random::Random;
use sluice_packet_tests::scenario::{nat_of_two_zones, two_zones};
use trace::{Both, Trace};

/// What each of these adds to the gateway of the two zones.
const CONFIG: &str = "
set security address-book global address published 10.9.0.80/31
set security address-book global address published6 fd09::80/128
set security nat source rule-set out rule marks match destination-address 10.2.0.101/32
set security nat source rule-set out rule marks then source-nat off
set security nat source rule-set out rule four match source-address 0.0.0.0/0
set security nat source rule-set out rule four then source-nat interface
set security nat source rule-set out rule six match source-address ::/0
set security nat source rule-set out rule six then source-nat interface
set security nat destination pool web6 address fd09::80/128 port 8080
set security nat destination rule-set in rule web6 match destination-address 2001:db8::200/128
set security nat destination rule-set in rule web6 match destination-port 80
set security nat destination rule-set in rule web6 then destination-nat pool web6
set security nat static rule-set one rule host match destination-address 198.51.100.201/32
set security nat static rule-set one rule host then static-nat prefix 10.9.0.81/32
";

const RULES: &str = r#"
table inet nat {
    chain before { type nat hook prerouting priority dstnat; policy accept;
        iifname "b0" ip daddr 198.51.100.200 meta l4proto { tcp, udp } th dport 80 dnat ip to 10.9.0.80:8080
        iifname "b0" ip6 daddr 2001:db8::200 meta l4proto { tcp, udp } th dport 80 dnat ip6 to [fd09::80]:8080
        iifname "b0" ip daddr 198.51.100.201 dnat ip to 10.9.0.81
    }
    chain behind { type nat hook postrouting priority srcnat; policy accept;
        oifname "b0" ip daddr 10.2.0.101 accept
        oifname "b0" ip saddr 10.9.0.81 snat ip to 198.51.100.201
        oifname "b0" masquerade
    }
    chain through { type filter hook forward priority filter; policy drop;
        ct state established,related accept
        ct state invalid drop
        iifname "a0" oifname "b0" accept
        iifname "b0" oifname "a0" ct status dnat accept
    }
    chain to_host { type filter hook input priority filter; policy drop; }
}
"#;

const LINES: &[&str] = &[
    "addr add 10.1.0.1/24 dev a0",
    "addr add 10.2.0.1/24 dev b0",
    "addr add fd00:1::1/64 dev a0 nodad",
    "addr add fd00:2::1/64 dev b0 nodad",
    "route add blackhole 198.51.100.0/24",
    "route add 10.9.0.0/16 via 10.1.0.100",
    "route add default via 10.2.0.100",
    "route add blackhole 2001:db8::/32",
    "route add fd09::/16 via fd00:1::64",
    "route add ::/0 via fd00:2::64",
];

/// A packet in the middle of nothing opens no session; none ends while a busy machine pauses.
const SYSCTLS: &[(&str, &str)] = &[
    ("net/netfilter/nf_conntrack_tcp_loose", "0"),
    ("net/netfilter/nf_conntrack_udp_timeout", "3600"),
    ("net/netfilter/nf_conntrack_udp_timeout_stream", "3600"),
    ("net/netfilter/nf_conntrack_icmp_timeout", "3600"),
    ("net/netfilter/nf_conntrack_icmpv6_timeout", "3600"),
    ("net/netfilter/nf_conntrack_tcp_timeout_syn_sent", "3600"),
    ("net/netfilter/nf_conntrack_tcp_timeout_close", "3600"),
];

fn both(hook: Hook, config: &str) -> anyhow::Result<Both> {
    let lines: Vec<String> = LINES.iter().map(|line| (*line).to_owned()).collect();
    let theirs = NftGateway::new(&two_zones(), SYSCTLS, &lines, RULES)?;
    let sizes = Sizes { sessions4: 16_384, sessions6: 16_384, ..Sizes::default() };
    let ours = Wire::new(Gateway::new(two_zones(), config, sizes, hook)?)?;
    Both::new(ours, theirs)
}

fn config() -> String {
    nat_of_two_zones() + CONFIG
}

fn agree(hook: Hook) {
    let (steps, seed) = (extent::steps(6000), extent::first_seed());
    in_thread(move || {
        let mut trace = Trace::new(both(hook, &config()).unwrap_or_else(|error| panic!("{error:#}")), seed);
        let mut random = Random::new(seed);
        for step in 0..steps {
            let done = trace.step(&mut random);
            done.unwrap_or_else(|error| panic!("seed {seed}, step {step} on {}: {error}", hook.name()));
        }
        println!("{steps} steps on {}: {:?}", hook.name(), trace.seen());
        for (what, count) in trace.seen() {
            assert!(*count as u64 > steps / 200, "only {count} of {what}");
        }
        assert_eq!(trace.seen().len(), trace::KINDS, "{:?}", trace.seen());
        assert!(trace.chosen_apart() > 0, "no port was chosen differently: nothing was taken away");
    });
}

#[test]
fn nftables_and_the_tc_hook_agree() {
    agree(Hook::Tc);
}

#[test]
fn nftables_and_the_xdp_hook_agree() {
    agree(Hook::Xdp);
}

/// A gateway without one of the rules is found out.
#[test]
fn a_difference_is_seen() {
    let said = in_thread(|| {
        let less: String = config()
            .lines()
            .filter(|line| !line.contains("static rule-set"))
            .fold(String::new(), |all, line| all + line + "\n");
        let mut trace = Trace::new(both(Hook::Tc, &less).unwrap_or_else(|error| panic!("{error:#}")), 1);
        let mut random = Random::new(1);
        (0..3000).find_map(|_| trace.step(&mut random).err())
    });
    let said = said.expect("static NAT is missing");
    assert!(said.contains("gateway 0"), "{said}");
}
