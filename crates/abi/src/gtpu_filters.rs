//! Flows of a session as bpf/abi/gtpu.h has them: made from what SDF filters ask for, and looked up as programs do it.

use std::net::IpAddr;

use crate::{
    GTPU_ASKS_ADDRESS, GTPU_ASKS_LOCAL_PORT, GTPU_ASKS_REMOTE_PORT, GTPU_FLOWS, GTPU_INTERVALS, GTPU_NARROW,
    GTPU_WIDE_LOCAL_PORT, GTPU_WIDE_REMOTE_PORT, GTPU_WIDE_REMOTE4, GTPU_WIDE_REMOTE6, GtpuFilters,
    GtpuRules,
};

/// What an SDF filter asks of a packet (TS 29.244 5.2.1, TS 23.501 5.7.6.2); what is None or empty matches every one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FlowMatch {
    /// Of IPv6 the first header that is no extension header.
    pub protocol: Option<u8>,
    /// Addresses of who is not the subscriber, from the first to the last of one family.
    pub remote: Vec<(IpAddr, IpAddr)>,
    /// Port of who is not the subscriber.
    pub remote_ports: Vec<(u16, u16)>,
    /// Port of the subscriber.
    pub local_ports: Vec<(u16, u16)>,
    /// Differentiated services code point.
    pub dscp: Option<u8>,
}

/// What filters see of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowPacket {
    /// Who is not the subscriber.
    pub remote: IpAddr,
    /// See [`FlowMatch::protocol`].
    pub protocol: u8,
    /// Differentiated services code point.
    pub dscp: u8,
    /// The remote one and the subscriber's; None = its protocol has none, or it is a fragment that is not the first.
    pub ports: Option<(u16, u16)>,
}

fn has<T: PartialOrd>(ranges: &[(T, T)], value: T) -> bool {
    ranges.is_empty() || ranges.iter().any(|(first, last)| *first <= value && value <= *last)
}

impl FlowMatch {
    /// Plainly: what tables make of it is held against this.
    pub fn matches(&self, packet: &FlowPacket) -> bool {
        let ports = match packet.ports {
            Some((remote, local)) => has(&self.remote_ports, remote) && has(&self.local_ports, local),
            None => self.is_portless(),
        };
        ports
            && self.protocol.is_none_or(|protocol| protocol == packet.protocol)
            && self.dscp.is_none_or(|dscp| dscp == packet.dscp)
            && has(&self.remote, packet.remote)
    }

    fn is_portless(&self) -> bool {
        self.remote_ports.is_empty() && self.local_ports.is_empty()
    }

    /// Ranges of one family; None = every address of it.
    fn remote_of(&self, v4: bool) -> Option<Vec<(u128, u128)>> {
        let own = self.remote.iter().filter(|(first, _)| first.is_ipv4() == v4);
        (!self.remote.is_empty()).then(|| own.map(|(first, last)| (bits(*first), bits(*last))).collect())
    }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

fn ports(ranges: &[(u16, u16)]) -> Option<Vec<(u128, u128)>> {
    (!ranges.is_empty()).then(|| ranges.iter().map(|(a, b)| ((*a).into(), (*b).into())).collect())
}

/// In the row of the value that is asked for, or in all.
fn mark(rows: &mut [u64], asked: Option<u8>, bit: u64) {
    let own = |(value, _): &(usize, &mut u64)| asked.is_none_or(|asked| usize::from(asked) == *value);
    rows.iter_mut().enumerate().filter(own).for_each(|(_, row)| *row |= bit);
}

/// More than one set of filters has room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooManyFilters {
    /// `flows`, or what they ask for.
    pub what: &'static str,
}

const ROOM: usize = GTPU_INTERVALS as usize;

/// Intervals of one thing that filters ask for, filled up to [`GTPU_INTERVALS`].
struct Intervals {
    keys: Vec<u128>,
    flows: Vec<u64>,
    is_wide: bool,
}

impl Intervals {
    /// What each flow asks for; None = nothing.
    fn of(
        what: &'static str,
        top: u128,
        asked: &[Option<Vec<(u128, u128)>>],
    ) -> Result<Self, TooManyFilters> {
        let ranges = asked.iter().flatten().flatten();
        let ends = ranges.flat_map(|(first, last)| [Some(*first), last.checked_add(1)]);
        let mut keys: Vec<u128> = ends.flatten().filter(|key| *key <= top).chain([0]).collect();
        keys.sort_unstable();
        keys.dedup();
        if keys.len() > ROOM {
            return Err(TooManyFilters { what });
        }
        let is_wide = keys.len() > GTPU_NARROW as usize;
        let last = keys.last().copied().unwrap_or(0);
        keys.resize(ROOM, last);
        let flow = |key: u128, asked: &Option<Vec<(u128, u128)>>| match asked {
            None => true,
            Some(ranges) => ranges.iter().any(|(first, last)| *first <= key && key <= *last),
        };
        let row = |key: &u128| {
            let bits = asked.iter().zip(0..).filter(|(asked, _)| flow(*key, asked));
            bits.fold(0, |row, (_, bit)| row | 1u64 << bit)
        };
        let flows = keys.iter().map(row).collect();
        Ok(Intervals { keys, flows, is_wide })
    }

    fn put<T>(&self, keys: &mut [T], rows: &mut [u64], key: impl Fn(u128) -> T) {
        keys.iter_mut().zip(&self.keys).for_each(|(to, from)| *to = key(*from));
        rows.copy_from_slice(&self.flows);
    }
}

impl GtpuFilters {
    /// Of flows in order of precedence, each with what its packets meet.
    ///
    /// # Errors
    /// When there are more flows, addresses or ports than there is room for.
    pub fn new(flows: &[(FlowMatch, GtpuRules)]) -> Result<Box<GtpuFilters>, TooManyFilters> {
        if flows.len() > GTPU_FLOWS as usize {
            return Err(TooManyFilters { what: "flows" });
        }
        let mut filters = Box::<GtpuFilters>::default();
        for ((asked, rules), number) in flows.iter().zip(0..) {
            let bit = 1u64 << number;
            filters.flows |= bit;
            filters.portless |= if asked.is_portless() { bit } else { 0 };
            mark(&mut filters.protocols, asked.protocol, bit);
            mark(&mut filters.dscps, asked.dscp, bit);
            filters.rules[number] = *rules;
        }
        filters.put_addresses(flows)?;
        filters.put_ports(flows)?;
        Ok(filters)
    }

    fn put_addresses(&mut self, flows: &[(FlowMatch, GtpuRules)]) -> Result<(), TooManyFilters> {
        let of = |v4| flows.iter().map(|(asked, _)| asked.remote_of(v4)).collect::<Vec<_>>();
        let four = Intervals::of("IPv4 remote addresses", u32::MAX.into(), &of(true))?;
        four.put(&mut self.remote4, &mut self.remote4_flows, |key| key as u32);
        let six = Intervals::of("IPv6 remote addresses", u128::MAX, &of(false))?;
        six.put(&mut self.remote6_upper, &mut self.remote6_flows, |key| (key >> 64) as u64);
        six.put(&mut self.remote6_lower, &mut self.remote6_flows, |key| key as u64);
        self.ask(flows.iter().any(|(asked, _)| !asked.remote.is_empty()), GTPU_ASKS_ADDRESS);
        self.ask(four.is_wide, GTPU_WIDE_REMOTE4);
        self.ask(six.is_wide, GTPU_WIDE_REMOTE6);
        Ok(())
    }

    fn put_ports(&mut self, flows: &[(FlowMatch, GtpuRules)]) -> Result<(), TooManyFilters> {
        let top = u16::MAX.into();
        let of = |ranges: fn(&FlowMatch) -> &[(u16, u16)]| {
            flows.iter().map(|(asked, _)| ports(ranges(asked))).collect::<Vec<_>>()
        };
        let remote = Intervals::of("remote ports", top, &of(|asked| &asked.remote_ports))?;
        remote.put(&mut self.remote_port, &mut self.remote_port_flows, |key| key as u16);
        let local = Intervals::of("local ports", top, &of(|asked| &asked.local_ports))?;
        local.put(&mut self.local_port, &mut self.local_port_flows, |key| key as u16);
        self.ask(flows.iter().any(|(asked, _)| !asked.remote_ports.is_empty()), GTPU_ASKS_REMOTE_PORT);
        self.ask(flows.iter().any(|(asked, _)| !asked.local_ports.is_empty()), GTPU_ASKS_LOCAL_PORT);
        self.ask(remote.is_wide, GTPU_WIDE_REMOTE_PORT);
        self.ask(local.is_wide, GTPU_WIDE_LOCAL_PORT);
        Ok(())
    }

    fn ask(&mut self, does: bool, what: u32) {
        self.asks |= if does { what } else { 0 };
    }

    fn asks_for(&self, what: u32) -> bool {
        self.asks & what != 0
    }

    /// How many flows there are.
    pub fn len(&self) -> usize {
        self.flows.count_ones() as usize
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.flows == 0
    }

    /// The first flow that a packet matches, as `gtpu_match` of bpf/gtpu/flows.h finds it.
    pub fn find(&self, packet: &FlowPacket) -> Option<u32> {
        let mut flows =
            self.protocols[usize::from(packet.protocol)] & self.dscps[usize::from(packet.dscp & 63)];
        if self.asks_for(GTPU_ASKS_ADDRESS) {
            flows &= match packet.remote {
                IpAddr::V4(remote) => {
                    let key = |at: usize| self.remote4[at] <= remote.to_bits();
                    self.remote4_flows[interval(self.asks_for(GTPU_WIDE_REMOTE4), key)]
                }
                IpAddr::V6(remote) => {
                    let whole =
                        |at| u128::from(self.remote6_upper[at]) << 64 | u128::from(self.remote6_lower[at]);
                    let key = |at: usize| whole(at) <= remote.to_bits();
                    self.remote6_flows[interval(self.asks_for(GTPU_WIDE_REMOTE6), key)]
                }
            };
        }
        match packet.ports {
            None => flows &= self.portless,
            Some((remote, local)) => flows &= self.of_ports(remote, local),
        }
        (flows != 0).then(|| flows.trailing_zeros())
    }

    fn of_ports(&self, remote: u16, local: u16) -> u64 {
        let mut flows = self.flows;
        if self.asks_for(GTPU_ASKS_REMOTE_PORT) {
            let key = |at: usize| self.remote_port[at] <= remote;
            flows &= self.remote_port_flows[interval(self.asks_for(GTPU_WIDE_REMOTE_PORT), key)];
        }
        if self.asks_for(GTPU_ASKS_LOCAL_PORT) {
            let key = |at: usize| self.local_port[at] <= local;
            flows &= self.local_port_flows[interval(self.asks_for(GTPU_WIDE_LOCAL_PORT), key)];
        }
        flows
    }
}

/// Where the last key stands that is reached: by quarters of what is left.
fn interval(is_wide: bool, is_reached: impl Fn(usize) -> bool) -> usize {
    let steps: &[usize] = if is_wide { &[64, 16, 4, 1] } else { &[16, 4, 1] };
    steps.iter().fold(0, |at, step| at + step * (1..4).filter(|n| is_reached(at + n * step)).count())
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Few numbers, so that packets meet edges.
    fn address() -> impl Strategy<Value = IpAddr> {
        let four = prop_oneof![
            (0u32..40).prop_map(|n| Ipv4Addr::from(0x0a00_0000 + n)),
            Just(Ipv4Addr::UNSPECIFIED),
            Just(Ipv4Addr::BROADCAST)
        ];
        let low = 0x2001_0db8_0000_0000u64;
        let six = prop_oneof![
            (0u64..4, 0u64..6).prop_map(move |(upper, lower)| {
                Ipv6Addr::from(u128::from(low + upper) << 64 | u128::from(lower.wrapping_sub(2)))
            }),
            Just(Ipv6Addr::UNSPECIFIED),
            Just(Ipv6Addr::from(u128::MAX))
        ];
        prop_oneof![four.prop_map(IpAddr::V4), six.prop_map(IpAddr::V6)]
    }

    fn port() -> impl Strategy<Value = u16> {
        prop_oneof![0u16..20, 65_530u16..=65_535]
    }

    fn ranges() -> impl Strategy<Value = Vec<(u16, u16)>> {
        vec((port(), port()).prop_map(|(a, b)| (a.min(b), a.max(b))), 0..3)
    }

    fn asked() -> impl Strategy<Value = FlowMatch> {
        let both = (address(), address()).prop_map(|(a, b)| match a.is_ipv4() == b.is_ipv4() {
            true => (a.min(b), a.max(b)),
            false => (a, a),
        });
        let protocol = proptest::option::of(prop_oneof![Just(6u8), Just(17), Just(1), any::<u8>()]);
        (protocol, vec(both, 0..3), ranges(), ranges(), proptest::option::of(0u8..64)).prop_map(
            |(protocol, remote, remote_ports, local_ports, dscp)| FlowMatch {
                protocol,
                remote,
                remote_ports,
                local_ports,
                dscp,
            },
        )
    }

    fn packet() -> impl Strategy<Value = FlowPacket> {
        let protocol = prop_oneof![Just(6u8), Just(17), Just(1), any::<u8>()];
        (address(), protocol, 0u8..64, proptest::option::weighted(0.8, (port(), port())))
            .prop_map(|(remote, protocol, dscp, ports)| FlowPacket { remote, protocol, dscp, ports })
    }

    fn tables(flows: &[FlowMatch]) -> Box<GtpuFilters> {
        let flows: Vec<_> = flows.iter().map(|asked| (asked.clone(), GtpuRules::default())).collect();
        GtpuFilters::new(&flows).unwrap()
    }

    proptest! {
        /// TS 29.244 5.2.1: the first by precedence of those that match.
        #[test]
        fn tables_find_what_a_scan_finds(flows in vec(asked(), 0..40), packets in vec(packet(), 1..60)) {
            let filters = tables(&flows);
            prop_assert_eq!(filters.len(), flows.len());
            for packet in packets {
                let scan = flows.iter().position(|asked| asked.matches(&packet));
                prop_assert_eq!(filters.find(&packet), scan.map(|flow| flow as u32), "{:?}", packet);
            }
        }
    }

    /// As many intervals as there is room for, of each kind: the first one, the last one, and none.
    #[test]
    fn all_there_is_room_for() {
        let host = |n: u32| IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + 2 * n));
        let six = |n: u32| IpAddr::V6(Ipv6Addr::from((0x2001_0db8u128 << 96) + u128::from(2 * n)));
        let of = |n: u32| FlowMatch {
            remote: vec![(host(n), host(n)), (host(n + 64), host(n + 64)), (six(n), six(n))],
            remote_ports: vec![(2 * n as u16 + 1, 2 * n as u16 + 1)],
            local_ports: vec![(2 * n as u16 + 1001, 2 * n as u16 + 1001)],
            ..FlowMatch::default()
        };
        let mut flows: Vec<FlowMatch> = (0..63).map(of).collect();
        let filters = tables(&flows);
        assert_eq!(filters.asks, 0xf7);
        for n in 0..63u32 {
            let ports = Some((2 * n as u16 + 1, 2 * n as u16 + 1001));
            for remote in [host(n), host(n + 64), six(n)] {
                let packet = FlowPacket { remote, protocol: 17, dscp: 0, ports };
                assert_eq!(filters.find(&packet), Some(n), "{packet:?}");
                assert_eq!(filters.find(&FlowPacket { ports: Some((2, 1001)), ..packet }), None);
            }
        }
        flows.push(FlowMatch {
            remote: (0..4).map(|n| (host(n + 200), host(n + 200))).collect(),
            ..FlowMatch::default()
        });
        let refused = |flows: &[FlowMatch]| {
            let flows: Vec<_> = flows.iter().map(|asked| (asked.clone(), GtpuRules::default())).collect();
            GtpuFilters::new(&flows).err().map(|error| error.what)
        };
        assert_eq!(refused(&flows), Some("IPv4 remote addresses"));
        flows.push(FlowMatch::default());
        assert_eq!(refused(&flows), Some("flows"));
    }
}
