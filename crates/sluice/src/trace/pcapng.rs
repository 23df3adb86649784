//! Captures as Wireshark reads them (draft-ietf-opsawg-pcapng): an interface a unit, each packet as it came and as it
//! left, and what became of it as the comment of both.

use std::collections::BTreeMap;
use std::io::{self, Write};

use sluice_control::api::trace::TracedPacket;
use sluice_control::{Traced, TracedFrame};

const SECTION: u32 = 0x0a0d_0d0a;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const INTERFACE: u32 = 1;
const ENHANCED_PACKET: u32 = 6;

const OPTION_COMMENT: u16 = 1;
const OPTION_NAME: u16 = 2;
/// epb_flags (4.3.1): the low two bits are the direction.
const OPTION_FLAGS: u16 = 2;
const OPTION_APPLICATION: u16 = 4;
const OPTION_RESOLUTION: u16 = 9;

const ETHERNET: u16 = 1;
const NANOSECONDS: u8 = 9;
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;

pub struct Writer<W: Write> {
    out: W,
    snaplen: u32,
    /// Numbers of interfaces by name.
    interfaces: BTreeMap<String, u32>,
}

impl<W: Write> Writer<W> {
    pub fn new(out: W, snaplen: u32) -> io::Result<Self> {
        let mut writer = Self { out, snaplen, interfaces: BTreeMap::new() };
        let mut body = Vec::new();
        body.extend(BYTE_ORDER.to_le_bytes());
        body.extend([1, 0, 0, 0]);
        // how long the section is, nobody knows yet
        body.extend(u64::MAX.to_le_bytes());
        option(&mut body, OPTION_APPLICATION, concat!("sluice ", env!("CARGO_PKG_VERSION")).as_bytes());
        end_of_options(&mut body);
        writer.block(SECTION, &body)?;
        Ok(writer)
    }

    /// As it came, and as it left, if it did.
    pub fn packet(&mut self, told: &TracedPacket, traced: &Traced) -> io::Result<()> {
        let came = traced.before.as_ref().unwrap_or(&traced.after);
        // the clock of frames is another than that of the day
        let offset = told.unix_ns.saturating_sub(came.when_ns);
        let direction = if told.hook == "egress" { OUTBOUND } else { INBOUND };
        self.frame(&told.interface, came, offset, direction, &told.summary)?;
        let leaves = matches!(told.verdict.as_str(), "forwarded" | "handed-off" | "answered");
        if traced.before.is_some() && (leaves || told.leaves_as.is_some()) {
            let interface = told.out_interface.as_ref().unwrap_or(&told.interface);
            let direction = if leaves { OUTBOUND } else { direction };
            self.frame(interface, &traced.after, offset, direction, &told.summary)?;
        }
        // a capture is looked at while it runs
        self.out.flush()
    }

    pub fn finish(mut self) -> io::Result<()> {
        self.out.flush()
    }

    fn frame(
        &mut self,
        interface: &str,
        frame: &TracedFrame,
        offset: u64,
        direction: u32,
        comment: &str,
    ) -> io::Result<()> {
        let interface = self.interface(interface)?;
        let at = frame.when_ns + offset;
        let mut body = Vec::with_capacity(frame.bytes.len() + comment.len() + 64);
        for word in [interface, (at >> 32) as u32, at as u32, frame.bytes.len() as u32, frame.length] {
            body.extend(word.to_le_bytes());
        }
        padded(&mut body, &frame.bytes);
        option(&mut body, OPTION_COMMENT, comment.as_bytes());
        option(&mut body, OPTION_FLAGS, &direction.to_le_bytes());
        end_of_options(&mut body);
        self.block(ENHANCED_PACKET, &body)
    }

    /// Its number; described when it is first seen.
    fn interface(&mut self, name: &str) -> io::Result<u32> {
        if let Some(number) = self.interfaces.get(name) {
            return Ok(*number);
        }
        let number = self.interfaces.len() as u32;
        let mut body = Vec::new();
        body.extend(ETHERNET.to_le_bytes());
        body.extend([0, 0]);
        body.extend(self.snaplen.to_le_bytes());
        option(&mut body, OPTION_NAME, name.as_bytes());
        option(&mut body, OPTION_RESOLUTION, &[NANOSECONDS]);
        end_of_options(&mut body);
        self.block(INTERFACE, &body)?;
        self.interfaces.insert(name.to_owned(), number);
        Ok(number)
    }

    fn block(&mut self, kind: u32, body: &[u8]) -> io::Result<()> {
        let length = (body.len() as u32 + 12).to_le_bytes();
        self.out.write_all(&kind.to_le_bytes())?;
        self.out.write_all(&length)?;
        self.out.write_all(body)?;
        self.out.write_all(&length)
    }
}

fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    // none is longer than its length can say
    let value = &value[..value.len().min(u16::MAX as usize)];
    body.extend(code.to_le_bytes());
    body.extend((value.len() as u16).to_le_bytes());
    padded(body, value);
}

fn end_of_options(body: &mut Vec<u8>) {
    body.extend([0; 4]);
}

/// To whole words.
fn padded(body: &mut Vec<u8>, value: &[u8]) {
    body.extend(value);
    body.resize(body.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_begins_with_its_section_and_each_interface_stands_once() {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes, 96).unwrap();
        let frame = TracedFrame { when_ns: 5, length: 100, bytes: vec![7; 61] };
        for name in ["a0.0", "b0.0", "a0.0"] {
            writer.frame(name, &frame, 1 << 32, INBOUND, "why").unwrap();
        }
        writer.finish().unwrap();
        let mut kinds = vec![];
        let mut rest = &bytes[..];
        while let Some((kind, after)) = rest.split_first_chunk::<4>() {
            let length = u32::from_le_bytes(*after.first_chunk().unwrap()) as usize;
            assert_eq!(length % 4, 0);
            assert_eq!(rest[length - 4..length], (length as u32).to_le_bytes());
            kinds.push(u32::from_le_bytes(*kind));
            rest = &rest[length..];
        }
        assert_eq!(kinds, [SECTION, INTERFACE, ENHANCED_PACKET, INTERFACE, ENHANCED_PACKET, ENHANCED_PACKET]);
    }
}
