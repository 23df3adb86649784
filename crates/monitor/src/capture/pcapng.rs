//! The block-structured capture file (draft-ietf-opsawg-pcapng): several interfaces, any time resolution, either byte
//! order in each section.

use std::collections::HashMap;

use super::mapping::prefetch;
use super::pcap::link_type;
use super::{Broken, LONGEST_FRAME, Order};
use crate::frame::{Batch, LinkType, Record};

const SECTION: u32 = 0x0a0d_0d0a;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const INTERFACE: u32 = 1;
/// The obsolete packet block (appendix A).
const PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;

const OPTION_NAME: u16 = 2;
const OPTION_RESOLUTION: u16 = 9;
const OPTION_FCS_LEN: u16 = 13;
const OPTION_OFFSET: u16 = 14;
/// isb_ifdrop and isb_osdrop: by the interface, and by the operating system (4.6).
const OPTION_DROPS: [u16; 2] = [5, 7];
/// epb_dropcount: since the packet before (4.3).
const OPTION_DROPPED_BEFORE: u16 = 4;

/// Longer blocks are damage.
const LONGEST_BLOCK: u32 = 16 << 20;

/// How an interface counts time.
#[derive(Debug, Clone, Copy)]
enum Unit {
    /// Nanoseconds a tick.
    Times(u64),
    /// Ticks a nanosecond.
    Parts(u64),
    /// Ticks a second, as a power of two.
    Binary(u32),
}

#[derive(Debug, Clone)]
struct Interface {
    /// Its number among all that the file described.
    number: u16,
    link: LinkType,
    snap: u32,
    unit: Unit,
    offset_ns: i64,
    fcs: u32,
    /// As statistics say, since the start of the section.
    drops: u64,
    /// As packets say, one by one.
    noted_drops: u64,
}

#[derive(Debug)]
pub(super) struct Pcapng {
    order: Order,
    /// Of the present section.
    interfaces: Vec<Interface>,
    /// All interfaces of the file, by number: position in their section, name, link type. One that comes again in a
    /// later section is the same: files of one capture are often joined.
    known: HashMap<(usize, Vec<u8>, LinkType), u16>,
    earlier_drops: u64,
    last_ns: u64,
}

impl Pcapng {
    pub fn of(start: &[u8]) -> Option<Pcapng> {
        let order = Order { big: false };
        (start.len() >= 4 && order.u32(start, 0) == SECTION).then(|| Pcapng {
            order,
            interfaces: vec![],
            known: HashMap::new(),
            earlier_drops: 0,
            last_ns: 0,
        })
    }

    pub fn drops(&self) -> u64 {
        self.earlier_drops + self.interfaces.iter().map(|one| one.drops.max(one.noted_drops)).sum::<u64>()
    }

    pub fn parse(&mut self, bytes: &[u8], from: usize, batch: &mut Batch) -> (usize, Result<(), Broken>) {
        let mut at = from;
        while let Some(head) = bytes[at..].first_chunk::<12>() {
            if self.order.u32(head, 0) == SECTION {
                match section_order(head) {
                    Some(order) => self.order = order,
                    None => return (at, Err("a section header has no byte-order magic".to_owned())),
                }
            }
            let (kind, length) = (self.order.u32(head, 0), self.order.u32(head, 4));
            if length < 12 || length % 4 != 0 || length > LONGEST_BLOCK {
                return (at, Err(format!("a block of {length} bytes")));
            }
            let Some(block) = bytes.get(at..at + length as usize) else { break };
            if self.order.u32(block, length as usize - 4) != length {
                return (at, Err("the two lengths of a block differ".to_owned()));
            }
            let body = &block[8..length as usize - 4];
            if let Err(error) = self.block(kind, body, at + 8, batch) {
                return (at, Err(error));
            }
            at += length as usize;
        }
        (at, Ok(()))
    }

    #[inline(always)]
    fn block(&mut self, kind: u32, body: &[u8], at: usize, batch: &mut Batch) -> Result<(), Broken> {
        match kind {
            ENHANCED_PACKET | PACKET => self.packet(kind, body, at, batch),
            SIMPLE_PACKET => self.simple_packet(body, at, batch),
            INTERFACE => self.interface(body),
            STATISTICS => {
                self.statistics(body);
                Ok(())
            }
            SECTION => {
                self.earlier_drops = self.drops();
                self.interfaces.clear();
                Ok(())
            }
            // Name resolution, secrets, comments and what else tools add.
            _ => Ok(()),
        }
    }

    #[inline(always)]
    fn packet(&mut self, kind: u32, body: &[u8], at: usize, batch: &mut Batch) -> Result<(), Broken> {
        let Some(head) = body.first_chunk::<20>() else {
            return Err("a packet block without its fields".to_owned());
        };
        let order = self.order;
        let number = if kind == PACKET { order.u16(head, 0).into() } else { order.u32(head, 0) };
        let Some(interface) = self.interfaces.get_mut(number as usize) else {
            return Err(format!("a packet of interface {number}, which was not described"));
        };
        let ticks = u64::from(order.u32(head, 4)) << 32 | u64::from(order.u32(head, 8));
        let (captured, on_wire) = (order.u32(head, 12), order.u32(head, 16));
        if captured as usize > body.len() - 20 || captured > LONGEST_FRAME {
            return Err(format!("a packet of {captured} bytes in a block of {}", body.len()));
        }
        prefetch(body, 20, 20 + captured as usize);
        self.last_ns = interface.time_ns(ticks);
        let frame = (at + 20, captured, on_wire);
        batch.push(interface.record(self.last_ns, frame));
        let behind = 20 + (captured as usize).next_multiple_of(4);
        if kind == PACKET {
            // 0xffff: not known.
            let drops = order.u16(head, 2);
            interface.noted_drops += if drops == u16::MAX { 0 } else { u64::from(drops) };
        } else if behind < body.len() {
            interface.noted_drops += dropped_before(order, &body[behind..]);
        }
        Ok(())
    }

    /// 4.4: of interface 0, without a time: it takes that of the packet before.
    fn simple_packet(&mut self, body: &[u8], at: usize, batch: &mut Batch) -> Result<(), Broken> {
        let (Some(head), Some(interface)) = (body.first_chunk::<4>(), self.interfaces.first()) else {
            return Err("a simple packet block without an interface or its length".to_owned());
        };
        let on_wire = self.order.u32(head, 0);
        let snap = if interface.snap == 0 { u32::MAX } else { interface.snap };
        let captured = on_wire.min(snap).min((body.len() - 4) as u32);
        batch.push(interface.record(self.last_ns, (at + 4, captured, on_wire)));
        Ok(())
    }

    fn interface(&mut self, body: &[u8]) -> Result<(), Broken> {
        let Some(head) = body.first_chunk::<8>() else {
            return Err("an interface block without its fields".to_owned());
        };
        let mut interface = Interface {
            number: 0,
            link: link_type(self.order.u16(head, 0).into()),
            snap: self.order.u32(head, 4),
            unit: Unit::Times(1000),
            offset_ns: 0,
            fcs: 0,
            drops: 0,
            noted_drops: 0,
        };
        let mut name = Vec::new();
        for (code, value) in options(self.order, &body[8..]) {
            match (code, value.len()) {
                (OPTION_NAME, _) => name = value.to_vec(),
                (OPTION_RESOLUTION, 1..) => interface.unit = unit(value[0])?,
                (OPTION_FCS_LEN, 1..) => interface.fcs = value[0].into(),
                (OPTION_OFFSET, 8..) => {
                    interface.offset_ns = (eight(self.order, value) as i64).saturating_mul(1_000_000_000)
                }
                _ => {}
            }
        }
        interface.number = self.number_of(name, interface.link);
        self.interfaces.push(interface);
        Ok(())
    }

    fn number_of(&mut self, name: Vec<u8>, link: LinkType) -> u16 {
        let this = (self.interfaces.len(), name, link);
        let next = u16::try_from(self.known.len()).unwrap_or(u16::MAX);
        *self.known.entry(this).or_insert(next)
    }

    /// 4.6: counters are absolute, so the last block of an interface holds.
    fn statistics(&mut self, body: &[u8]) {
        let Some(head) = body.first_chunk::<12>() else { return };
        let number = self.order.u32(head, 0) as usize;
        let order = self.order;
        let Some(interface) = self.interfaces.get_mut(number) else { return };
        let drops = options(order, &body[12..])
            .filter(|(code, value)| OPTION_DROPS.contains(code) && value.len() >= 8)
            .fold(0u64, |sum, (_, value)| sum.saturating_add(eight(order, value)));
        interface.drops = interface.drops.max(drops);
    }
}

impl Interface {
    #[inline(always)]
    fn time_ns(&self, ticks: u64) -> u64 {
        let ns = match self.unit {
            Unit::Times(factor) => ticks.wrapping_mul(factor),
            Unit::Parts(parts) => ticks / parts,
            Unit::Binary(shift) => ((u128::from(ticks) * 1_000_000_000) >> shift) as u64,
        };
        ns.saturating_add_signed(self.offset_ns)
    }

    #[inline(always)]
    fn record(&self, time_ns: u64, (offset, captured, on_wire): (usize, u32, u32)) -> Record {
        let wire_len = on_wire.max(captured);
        let fcs = if captured == wire_len { self.fcs.min(captured) } else { 0 };
        Record {
            time_ns,
            offset: offset as u32,
            captured: captured - fcs,
            wire_len: wire_len - fcs,
            interface: self.number,
            link: self.link,
        }
    }
}

fn section_order(head: &[u8; 12]) -> Option<Order> {
    [false, true].into_iter().map(|big| Order { big }).find(|order| order.u32(head, 8) == BYTE_ORDER)
}

/// if_tsresol: the upper bit says power of two, the others are the negative exponent (4.2).
fn unit(resolution: u8) -> Result<Unit, Broken> {
    let exponent = u32::from(resolution & 0x7f);
    match resolution & 0x80 != 0 {
        true if exponent < 64 => Ok(Unit::Binary(exponent)),
        false if exponent <= 9 => Ok(Unit::Times(10u64.pow(9 - exponent))),
        false if exponent <= 18 => Ok(Unit::Parts(10u64.pow(exponent - 9))),
        _ => Err(format!("a time resolution of 0x{resolution:02x}")),
    }
}

fn dropped_before(order: Order, bytes: &[u8]) -> u64 {
    let mut drops =
        options(order, bytes).filter(|(code, value)| (*code, value.len()) == (OPTION_DROPPED_BEFORE, 8));
    drops.next().map_or(0, |(_, value)| eight(order, value))
}

fn eight(order: Order, value: &[u8]) -> u64 {
    let (first, second) = (u64::from(order.u32(value, 0)), u64::from(order.u32(value, 4)));
    if order.big { first << 32 | second } else { second << 32 | first }
}

/// Options up to the end marker or the first that does not fit.
fn options(order: Order, mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let head = bytes.first_chunk::<4>()?;
        let (code, length) = (order.u16(head, 0), usize::from(order.u16(head, 2)));
        let value = bytes.get(4..4 + length)?;
        bytes = bytes.get(4 + length.next_multiple_of(4)..).unwrap_or(&[]);
        (code != 0).then_some((code, value))
    })
}
