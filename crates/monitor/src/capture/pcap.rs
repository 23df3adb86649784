//! The classic capture file (draft-ietf-opsawg-pcap): a header of 24 bytes, then records with a header of 16.

use super::mapping::prefetch;
use super::{Broken, LONGEST_FRAME, Order};
use crate::frame::{Batch, LinkType, Record};

pub(super) const HEADER_LEN: usize = 24;
const RECORD_HEADER: usize = 16;

const MICROSECONDS: u32 = 0xa1b2_c3d4;
const NANOSECONDS: u32 = 0xa1b2_3c4d;

#[derive(Debug)]
pub(super) struct Pcap {
    order: Order,
    /// Nanoseconds in the unit of the fraction.
    unit_ns: u64,
    link: LinkType,
    /// Frame check sequence behind each frame, bytes: not part of what other sources show.
    fcs: u32,
    header_seen: bool,
}

impl Pcap {
    /// None when the file begins otherwise.
    pub fn of(start: &[u8]) -> Result<Option<Pcap>, Broken> {
        if start.len() < 4 {
            return Ok(None);
        }
        let known = [false, true].into_iter().find_map(|big| {
            let order = Order { big };
            match order.u32(start, 0) {
                MICROSECONDS => Some((order, 1000)),
                NANOSECONDS => Some((order, 1)),
                _ => None,
            }
        });
        let Some((order, unit_ns)) = known else { return Ok(None) };
        let Some(start) = start.first_chunk::<HEADER_LEN>() else {
            // Cut within its header: nothing will be parsed.
            return Ok(Some(Pcap { order, unit_ns, link: LinkType::Other, fcs: 0, header_seen: false }));
        };
        let (major, minor) = (order.u16(start, 4), order.u16(start, 6));
        if major != 2 {
            return Err(format!("pcap version {major}.{minor}, 2.4 is read"));
        }
        // The upper bits say whether a frame check sequence is there (F) and how long it is, in units of two bytes.
        let network = order.u32(start, 20);
        let fcs = if network & 1 << 26 != 0 { (network >> 28) * 2 } else { 0 };
        Ok(Some(Pcap { order, unit_ns, link: link_type(network & 0xffff), fcs, header_seen: false }))
    }

    pub fn parse(&mut self, bytes: &[u8], from: usize, batch: &mut Batch) -> (usize, Result<(), Broken>) {
        let mut at = from;
        if !self.header_seen {
            if bytes.len() < HEADER_LEN {
                return (at, Ok(()));
            }
            self.header_seen = true;
            at = HEADER_LEN;
        }
        while let Some(header) = bytes[at..].first_chunk::<RECORD_HEADER>() {
            let (captured, on_wire) = (self.order.u32(header, 8), self.order.u32(header, 12));
            if captured > LONGEST_FRAME {
                return (at, Err(format!("a record says it holds {captured} bytes")));
            }
            let offset = at + RECORD_HEADER;
            let end = offset + captured as usize;
            if end > bytes.len() {
                break;
            }
            prefetch(bytes, offset, end);
            let wire_len = on_wire.max(captured);
            let fcs = if captured == wire_len { self.fcs.min(captured) } else { 0 };
            batch.push(Record {
                time_ns: u64::from(self.order.u32(header, 0)) * 1_000_000_000
                    + u64::from(self.order.u32(header, 4)) * self.unit_ns,
                offset: offset as u32,
                captured: captured - fcs,
                wire_len: wire_len - fcs,
                interface: 0,
                link: self.link,
            });
            at = end;
        }
        (at, Ok(()))
    }
}

/// By the registry of link types of the pcap and pcapng formats.
pub(super) fn link_type(number: u32) -> LinkType {
    match number {
        0 => LinkType::Null,
        1 => LinkType::Ethernet,
        // 12 and 14 are what some systems write for 101.
        12 | 14 | 101 | 228 | 229 => LinkType::RawIp,
        113 => LinkType::LinuxCooked,
        276 => LinkType::LinuxCooked2,
        _ => LinkType::Other,
    }
}
