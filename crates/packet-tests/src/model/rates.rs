//! What screens that count must say within one second, from sets and counts that are never full.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use super::{ICMP, ICMPV6, TCP, Tuple, UDP};

/// So many hosts or ports of one source are too many.
const TEN: usize = 10;

/// Packets a second; all are on.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// ICMP packets to one address.
    pub icmp: u32,
    /// UDP packets to one address and port.
    pub udp: u32,
    /// SYNs from one address.
    pub syn_source: u32,
    /// SYNs to one address.
    pub syn_destination: u32,
}

/// One zone that drops, in one second that is as long as every interval. TCP packets are SYNs, ICMP ones echo requests.
#[derive(Debug, Clone)]
pub struct Rates {
    limits: Limits,
    /// By check, address and port.
    packets: HashMap<(&'static str, IpAddr, u16), u32>,
    hosts: HashMap<(u8, IpAddr), HashSet<IpAddr>>,
    ports: HashMap<(u8, IpAddr, IpAddr), HashSet<u16>>,
    sessions: HashSet<Tuple>,
}

impl Rates {
    /// Before the first packet of the second.
    pub fn new(limits: Limits) -> Rates {
        Rates {
            limits,
            packets: HashMap::new(),
            hosts: HashMap::new(),
            ports: HashMap::new(),
            sessions: HashSet::new(),
        }
    }

    /// The check that drops the packet.
    pub fn judge(&mut self, packet: Tuple) -> Option<&'static str> {
        let dropped = self.flood(packet).or_else(|| {
            let known = self.sessions.contains(&packet);
            if known { None } else { self.looking_around(packet) }
        });
        if dropped.is_none() {
            self.sessions.insert(packet);
        }
        dropped
    }

    fn count(&mut self, check: &'static str, address: IpAddr, port: u16, limit: u32) -> Option<&'static str> {
        let count = self.packets.entry((check, address, port)).or_default();
        *count += 1;
        (*count > limit).then_some(check)
    }

    fn flood(&mut self, packet: Tuple) -> Option<&'static str> {
        let Limits { icmp, udp, syn_source, syn_destination } = self.limits;
        match packet.protocol {
            ICMP | ICMPV6 => self.count("icmp_flood", packet.destination, 0, icmp),
            UDP => self.count("udp_flood", packet.destination, packet.dport, udp),
            TCP => self
                .count("syn_flood_source", packet.source, 0, syn_source)
                .or_else(|| self.count("syn_flood_destination", packet.destination, 0, syn_destination)),
            _ => None,
        }
    }

    fn looking_around(&mut self, packet: Tuple) -> Option<&'static str> {
        let Tuple { source, destination, protocol, .. } = packet;
        let (sweep, scan) = match protocol {
            TCP => ("tcp_sweep", Some("port_scan")),
            UDP => ("udp_sweep", Some("udp_port_scan")),
            _ => ("ip_sweep", None),
        };
        if full(self.hosts.entry((protocol, source)).or_default(), destination) {
            return Some(sweep);
        }
        let ports = self.ports.entry((protocol, source, destination)).or_default();
        scan.filter(|_| full(ports, packet.dport))
    }
}

fn full<T: std::hash::Hash + Eq>(seen: &mut HashSet<T>, one: T) -> bool {
    seen.insert(one);
    seen.len() >= TEN
}
