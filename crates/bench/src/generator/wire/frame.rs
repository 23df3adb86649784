//! The frames of the generator: lengths, addresses, checksums, and the same frame built in user space.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::generator::layouts::{
    WIRE_CLIENT_PORT, WIRE_HEAD, WIRE_MAGIC, WIRE_ROOM, WIRE_SERVER_MIX, WIRE_SERVER_PORT, WIRE_SHAPES,
    WIRE_TTL, WireShape,
};
use crate::generator::packets::{CLIENTS4, SERVERS4};

/// Frame sizes of RFC 2544 section 9.1, with the frame check sequence that is not in memory.
pub const RFC2544_SIZES: [u16; 7] = [64, 128, 256, 512, 1024, 1280, 1518];
/// 7 : 4 : 1 frames that carry IP packets of 40, 576 and 1,500 bytes, spread over twelve.
const IMIX: [u16; WIRE_SHAPES as usize] = [64, 594, 64, 64, 594, 64, 1518, 64, 594, 64, 64, 594];
const FCS: u16 = 4;
/// Preamble, start delimiter and the gap to the next frame (IEEE 802.3), in bytes a frame beside its own.
const BETWEEN_FRAMES: u16 = 20;

const ETHERNET: usize = 14;
const IP: usize = 20;
const HEAD: usize = WIRE_HEAD as usize;

/// How long frames are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Size {
    /// With the frame check sequence, as everybody counts: 64 to 1518.
    Bytes(u16),
    /// A mix of sizes, frame by frame.
    Imix,
}

impl Size {
    /// Frame sizes in the order in which they are sent, over and over.
    pub fn sequence(self) -> Vec<u16> {
        match self {
            Size::Bytes(bytes) => vec![bytes],
            Size::Imix => IMIX.to_vec(),
        }
    }

    /// Bytes of a frame in memory, in the same order.
    pub fn lengths(self) -> Vec<u16> {
        self.sequence().iter().map(|size| size - FCS).collect()
    }

    /// Of a frame on the wire, with FCS.
    pub fn mean_bytes(self) -> f64 {
        let sizes = self.sequence();
        sizes.iter().map(|size| f64::from(*size)).sum::<f64>() / sizes.len() as f64
    }

    /// Frames a second that a link of `gbps` carries (RFC 2544 section 26.1 asks for it beside every rate).
    pub fn line_rate(self, gbps: f64) -> f64 {
        gbps * 1e9 / 8.0 / (self.mean_bytes() + f64::from(BETWEEN_FRAMES))
    }

    /// As tables have it.
    pub fn name(self) -> String {
        match self {
            Size::Bytes(bytes) => format!("{bytes} B"),
            Size::Imix => "IMIX".to_owned(),
        }
    }
}

/// Between whom the frames go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Addresses {
    /// Destination MAC address.
    pub dmac: [u8; 6],
    /// Source MAC address.
    pub smac: [u8; 6],
    /// First two bytes of clients' IPv4 addresses.
    pub client_net: [u8; 2],
    /// First two bytes of servers' IPv4 addresses.
    pub server_net: [u8; 2],
    /// From server to client.
    pub reply: bool,
}

impl Addresses {
    /// The networks of the bench's own sites.
    pub fn of_link(smac: [u8; 6], dmac: [u8; 6]) -> Addresses {
        Addresses { dmac, smac, client_net: CLIENTS4, server_net: SERVERS4, reply: false }
    }

    /// On real links: the networks that RFC 2544 C.2.2 sets aside for it.
    pub fn of_rfc2544(smac: [u8; 6], dmac: [u8; 6]) -> Addresses {
        Addresses { dmac, smac, client_net: [198, 18], server_net: [198, 19], reply: false }
    }

    /// The other way round, between the devices given.
    pub fn reversed(self, smac: [u8; 6], dmac: [u8; 6]) -> Addresses {
        Addresses { smac, dmac, reply: !self.reply, ..self }
    }
}

/// Source and destination address and port of a flow.
pub fn tuple(addresses: &Addresses, flow: u32) -> ([u8; 4], [u8; 4], u16, u16) {
    let host = |net: [u8; 2], host: u16| [net[0], net[1], host.to_be_bytes()[0], host.to_be_bytes()[1]];
    let client = host(addresses.client_net, flow as u16);
    let server = host(addresses.server_net, (flow.wrapping_mul(WIRE_SERVER_MIX) >> 20) as u16);
    let (port, server_port) = (WIRE_CLIENT_PORT as u16 + (flow >> 16) as u16, WIRE_SERVER_PORT as u16);
    if addresses.reply { (server, client, server_port, port) } else { (client, server, port, server_port) }
}

/// Byte `at` of every long frame: no two neighbours alike, and no two words.
pub fn tail() -> [u8; WIRE_ROOM as usize] {
    std::array::from_fn(|at| (at as u32).wrapping_mul(WIRE_SERVER_MIX).to_be_bytes()[0])
}

/// One's complement sum of 16-bit words as they lie in memory (RFC 1071: the order of bytes does not matter).
fn sum(bytes: &[u8]) -> u32 {
    let words = bytes.chunks(2).map(|pair| u16::from_ne_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
    let mut total: u32 = words.map(u32::from).sum();
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    total
}

/// The sum of what follows the head of a frame of `len` bytes.
pub fn tail_sum(len: usize) -> u16 {
    sum(&tail()[..len.saturating_sub(HEAD)]) as u16
}

/// What the generator must know of frames of one length.
pub fn shape(len: u16) -> WireShape {
    let (ip_len, udp_len) = (len - ETHERNET as u16, len - (ETHERNET + IP) as u16);
    let header = ip_header(ip_len, [0; 4], [0; 4]);
    let mut udp_sum = sum(&[0, 17]) + 2 * sum(&udp_len.to_be_bytes());
    udp_sum += sum(&WIRE_MAGIC.to_be_bytes()) + u32::from(tail_sum(len.into()));
    WireShape {
        len,
        be_ip_len: ip_len.to_be(),
        be_udp_len: udp_len.to_be(),
        zero: 0,
        ip_sum: sum(&header),
        udp_sum,
    }
}

/// Without its checksum.
fn ip_header(len: u16, source: [u8; 4], destination: [u8; 4]) -> [u8; IP] {
    let mut header = [0; IP];
    header[0] = 0x45;
    header[2..4].copy_from_slice(&len.to_be_bytes());
    header[6] = 0x40; // don't fragment
    header[8..10].copy_from_slice(&[WIRE_TTL as u8, 17]);
    header[12..16].copy_from_slice(&source);
    header[16..].copy_from_slice(&destination);
    header
}

/// A whole frame of `len` bytes, as the program makes it. `time` in nanoseconds; 48 bits of it are sent.
pub fn build(addresses: &Addresses, len: u16, flow: u32, lap: u32, time: u64) -> Vec<u8> {
    let (source, destination, sport, dport) = tuple(addresses, flow);
    let mut frame = [addresses.dmac, addresses.smac].concat();
    frame.extend([0x08, 0x00]);
    let mut header = ip_header(len - ETHERNET as u16, source, destination);
    let check = !(sum(&header) as u16);
    header[10..12].copy_from_slice(&check.to_ne_bytes());
    frame.extend(header);
    let udp_len = (len - (ETHERNET + IP) as u16).to_be_bytes();
    frame.extend([sport.to_be_bytes(), dport.to_be_bytes(), udp_len, [0, 0]].concat());
    frame.extend([WIRE_MAGIC, flow, lap].map(u32::to_be_bytes).concat());
    frame.extend(&time.to_be_bytes()[2..]);
    frame.extend(&tail()[..usize::from(len) - HEAD]);
    set_udp_check(&mut frame);
    frame
}

/// Makes frames of one length fast: everything they have in common is there already.
pub struct Maker {
    addresses: Addresses,
    shape: WireShape,
    first: Vec<u8>,
}

impl Maker {
    /// `len` in bytes, without FCS.
    pub fn new(addresses: Addresses, len: u16) -> Maker {
        Maker { addresses, shape: shape(len), first: build(&addresses, len, 0, 0, 0) }
    }

    /// What a buffer must hold before the first [`Maker::write`] into it.
    pub fn first(&self) -> &[u8] {
        &self.first
    }

    /// Makes a frame that holds one of this maker into the one of a flow, lap and time.
    pub fn write(&self, frame: &mut [u8], flow: u32, lap: u32, time: u64) {
        let (source, destination, sport, dport) = tuple(&self.addresses, flow);
        frame[26..30].copy_from_slice(&source);
        frame[30..34].copy_from_slice(&destination);
        frame[34..36].copy_from_slice(&sport.to_be_bytes());
        frame[36..38].copy_from_slice(&dport.to_be_bytes());
        frame[46..50].copy_from_slice(&flow.to_be_bytes());
        frame[50..54].copy_from_slice(&lap.to_be_bytes());
        frame[54..60].copy_from_slice(&time.to_be_bytes()[2..]);
        let addresses = sum(&frame[26..34]);
        let ip = !folded(self.shape.ip_sum + addresses);
        let udp = !folded(self.shape.udp_sum + addresses + sum(&frame[34..38]) + sum(&frame[46..60]));
        frame[24..26].copy_from_slice(&ip.to_ne_bytes());
        frame[40..42].copy_from_slice(&if udp == 0 { 0xffff } else { udp }.to_ne_bytes());
    }
}

fn folded(sum: u32) -> u16 {
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

/// Computes the checksum of an IPv4 UDP frame anew.
pub fn set_udp_check(frame: &mut [u8]) {
    const CHECK: usize = ETHERNET + IP + 6;
    frame[CHECK..CHECK + 2].fill(0);
    let mut covered = frame[ETHERNET + 12..ETHERNET + IP].to_vec();
    covered.extend([0, 17]);
    covered.extend(&frame[ETHERNET + IP + 4..ETHERNET + IP + 6]);
    covered.extend(&frame[ETHERNET + IP..]);
    let check = match !(sum(&covered) as u16) {
        0 => 0xffff,
        check => check,
    };
    frame[CHECK..CHECK + 2].copy_from_slice(&check.to_ne_bytes());
}

/// The numbers of flows in the order of one lap: every `stride`th, so that neighbours in time are none in a table.
pub fn stride(flows: u32) -> u32 {
    let golden = (f64::from(flows) * 0.618_034) as u32;
    (golden.max(1)..).find(|stride| gcd(*stride, flows) == 1).unwrap_or(1)
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use sluice_wire::checksum::Pseudo;
    use sluice_wire::{eth, ipv4, udp};

    use super::*;

    const LINK: Addresses = Addresses {
        dmac: [2, 0, 0, 0, 0, 1],
        smac: [2, 0, 0, 0, 0, 2],
        client_net: CLIENTS4,
        server_net: SERVERS4,
        reply: false,
    };

    #[test]
    fn frames_of_every_size_are_sound() {
        for size in RFC2544_SIZES.into_iter().chain(IMIX) {
            for reply in [false, true] {
                let addresses = Addresses { reply, ..LINK };
                let frame = build(&addresses, size - FCS, 70_000, 3, 0x1234_5678_9abc);
                assert_eq!(frame.len(), usize::from(size - FCS));
                let ip = ipv4::View::new(eth::View::new(&frame).unwrap().payload()).unwrap();
                assert!(ip.checksum_ok() && ip.ttl() == 64);
                let datagram = udp::View::new(ip.payload()).unwrap();
                assert!(datagram.checksum_ok(Pseudo::V4(ip.source(), ip.destination())), "{size}");
                assert_eq!(datagram.payload().len(), usize::from(size) - 46);
            }
        }
    }

    #[test]
    fn frames_made_fast_are_the_same() {
        let maker = Maker::new(LINK, 590);
        let mut frame = maker.first().to_vec();
        for i in 0..1000u32 {
            let (flow, lap, time) = (i * 7919, i, u64::from(i) << 32);
            maker.write(&mut frame, flow, lap, time);
            assert_eq!(frame, build(&LINK, 590, flow, lap, time));
        }
    }

    #[test]
    fn the_sums_of_a_shape_leave_out_only_what_differs() {
        let frame = build(&LINK, 590, 5, 6, 7);
        let parts = sum(&frame[26..34]) + sum(&frame[34..38]) + sum(&frame[46..60]);
        let check = !(sum(&(parts + shape(590).udp_sum).to_ne_bytes()) as u16);
        assert_eq!(check.to_ne_bytes(), frame[40..42]);
    }

    #[test]
    fn a_lap_visits_every_flow_once() {
        for flows in [1, 2, 3, 10, 1000, 65_536, 100_000] {
            let stride = stride(flows);
            let visited: HashSet<u32> =
                (0..u64::from(flows)).map(|i| (i * u64::from(stride) % u64::from(flows)) as u32).collect();
            assert_eq!(visited.len(), flows as usize);
            assert!(flows == 1 || stride < flows, "one subtraction must suffice");
        }
    }

    #[test]
    fn flows_never_share_a_tuple() {
        let tuples: HashSet<_> = (0..200_000).map(|flow| tuple(&LINK, flow)).collect();
        assert_eq!(tuples.len(), 200_000);
    }

    #[test]
    fn line_rates_are_those_of_the_books() {
        assert_eq!(Size::Bytes(64).line_rate(10.0).round(), 14_880_952.0);
        assert_eq!(Size::Bytes(1518).line_rate(10.0).round(), 812_744.0);
        assert_eq!(Size::Imix.mean_bytes(), (7.0 * 64.0 + 4.0 * 594.0 + 1518.0) / 12.0);
    }
}
