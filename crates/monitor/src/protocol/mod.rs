//! Which channel a frame belongs to: one file a protocol, direct dispatch by the headers in front.
//!
//! A parser gets the [`Packet`] from its header on, and either ends in an observation or hands on what follows its
//! header. Where its fields lie stands in `sluice-wire`; a header is taken as an array of its length, so reading them
//! checks nothing again. Nothing here allocates, remembers or panics: a frame is judged by its own bytes alone.
//!
//! Everything that an Ethernet frame passes is inlined. A packet that is handed to a function lies in memory, written
//! field by field and read in larger pieces, for which the CPU has to wait until the writes are done: a fifth of the time
//! that a short frame took.

mod ah;
mod esp;
mod gtpu;
mod ike;
mod ip;
mod link;
mod macsec;
mod mka;
mod udp;

use crate::frame::{Frame, LinkType};
use crate::observation::{Flags, Location, Observation, Unknown, Vlans};

/// Reads a frame up to its sequence number.
#[inline(always)]
pub fn observe(frame: &Frame<'_>) -> Result<Observation, Unknown> {
    match frame.link {
        LinkType::Ethernet => link::ethernet(Packet::of(frame)),
        _ => observe_other(frame),
    }
}

/// Frames of other links than Ethernet.
#[inline(never)]
fn observe_other(frame: &Frame<'_>) -> Result<Observation, Unknown> {
    let packet = Packet::of(frame);
    match frame.link {
        LinkType::RawIp => ip::any(packet),
        LinkType::LinuxCooked => link::cooked(packet),
        LinkType::LinuxCooked2 => link::cooked2(packet),
        LinkType::Null => link::null(packet),
        LinkType::Ethernet | LinkType::Other => Err(Unknown::LinkType),
    }
}

/// What is left of a frame from some header on.
#[derive(Clone, Copy)]
struct Packet<'a> {
    /// As captured.
    data: &'a [u8],
    /// Bytes that were on the wire; more than `data` has where the capture cut the frame.
    wire: u32,
    interface: u32,
    vlans: Vlans,
    flags: Flags,
}

impl<'a> Packet<'a> {
    #[inline(always)]
    fn of(frame: &Frame<'a>) -> Packet<'a> {
        Packet {
            data: frame.data,
            wire: frame.wire_len.max(frame.data.len() as u32),
            interface: frame.interface,
            vlans: Vlans::default(),
            flags: if frame.is_cut() { Flags::CUT } else { Flags::default() },
        }
    }

    /// The first N bytes, which belong to the named header.
    #[inline(always)]
    fn head<const N: usize>(&self, header: &'static str) -> Result<&'a [u8; N], Unknown> {
        self.data.first_chunk().ok_or(Unknown::Short(header))
    }

    /// What follows the first `bytes`.
    #[inline(always)]
    fn after(mut self, bytes: usize, header: &'static str) -> Result<Packet<'a>, Unknown> {
        self.data = self.data.get(bytes..).ok_or(Unknown::Short(header))?;
        self.wire = self.wire.saturating_sub(bytes as u32);
        Ok(self)
    }

    /// Ends after `bytes` as a length field says: what is behind is padding. When fewer were on the wire, the length
    /// lies.
    #[inline(always)]
    fn ending(mut self, bytes: u32) -> Packet<'a> {
        if bytes > self.wire {
            self.flags = self.flags.with(Flags::LENGTH_MISMATCH);
        } else {
            self.wire = bytes;
            self.data = &self.data[..self.data.len().min(bytes as usize)];
        }
        self
    }

    #[inline(always)]
    fn location(&self) -> Location {
        Location::new(self.interface, self.vlans)
    }

    /// Digest of the last bytes and the length: two packets that differ differ there, if they are protected.
    #[inline(always)]
    fn fingerprint(&self) -> u32 {
        if self.flags.has(Flags::CUT) {
            return 0;
        }
        let tail = self.data.last_chunk::<8>().map_or(0, |tail| u64::from_le_bytes(*tail));
        let product = u128::from(tail ^ 0x9e37_79b9_7f4a_7c15)
            * u128::from(0xd1b5_4a32_d192_ed03 ^ u64::from(self.wire));
        ((product >> 64) as u64 ^ product as u64) as u32 | 1
    }

    #[inline(always)]
    fn payload_len(&self) -> u16 {
        self.wire.min(u32::from(u16::MAX)) as u16
    }
}
