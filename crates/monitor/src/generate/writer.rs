//! Writes captures: pcap and pcapng with nanoseconds, plain or compressed.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::frame::{Frame, LinkType};

const BUFFER: usize = 1 << 20;
/// Longer frames would not be read by most tools.
const SNAP: u32 = 262_144;

/// A capture's container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Pcap,
    PcapNg,
}

/// How the whole file is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    Plain,
    Gzip,
    Zstd,
}

/// What a file name asks for; `None` when it ends in nothing that is written.
pub fn formats_of(path: &Path) -> Option<(Format, Packing)> {
    let name = path.file_name()?.to_str()?;
    let (name, packing) = match name.rsplit_once('.')? {
        (rest, "gz") => (rest, Packing::Gzip),
        (rest, "zst") => (rest, Packing::Zstd),
        _ => (name, Packing::Plain),
    };
    match name.rsplit_once('.')?.1 {
        "pcap" => Some((Format::Pcap, packing)),
        "pcapng" => Some((Format::PcapNg, packing)),
        _ => None,
    }
}

/// A file behind its compression.
enum Sink {
    Plain(BufWriter<File>),
    Gzip(flate2::write::GzEncoder<BufWriter<File>>),
    Zstd(zstd::Encoder<'static, BufWriter<File>>),
}

impl Sink {
    fn new(file: File, packing: Packing) -> io::Result<Self> {
        let file = BufWriter::with_capacity(BUFFER, file);
        Ok(match packing {
            Packing::Plain => Sink::Plain(file),
            Packing::Gzip => Sink::Gzip(flate2::write::GzEncoder::new(file, flate2::Compression::fast())),
            Packing::Zstd => Sink::Zstd(zstd::Encoder::new(file, 1)?),
        })
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Sink::Plain(out) => out.write_all(bytes),
            Sink::Gzip(out) => out.write_all(bytes),
            Sink::Zstd(out) => out.write_all(bytes),
        }
    }

    fn finish(self) -> io::Result<()> {
        match self {
            Sink::Plain(mut out) => out.flush(),
            Sink::Gzip(out) => out.finish()?.flush(),
            Sink::Zstd(out) => out.finish()?.flush(),
        }
    }
}

/// A capture interface, as pcapng describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    pub link: LinkType,
    pub name: String,
}

/// A capture file in the making.
pub struct CaptureWriter {
    sink: Sink,
    format: Format,
    block: Vec<u8>,
}

impl CaptureWriter {
    /// Creates the file; its header describes `interfaces`. A pcap file has one.
    pub fn create(
        path: &Path,
        format: Format,
        packing: Packing,
        interfaces: &[Interface],
    ) -> io::Result<Self> {
        CaptureWriter::new(File::create(path)?, format, packing, interfaces)
    }

    /// The same into a file that is empty.
    pub fn new(file: File, format: Format, packing: Packing, interfaces: &[Interface]) -> io::Result<Self> {
        let mut writer =
            CaptureWriter { sink: Sink::new(file, packing)?, format, block: Vec::with_capacity(BUFFER) };
        match format {
            Format::Pcap => writer.pcap_header(interfaces.first().map_or(LinkType::Ethernet, |i| i.link)),
            Format::PcapNg => {
                writer.section_header();
                for interface in interfaces {
                    writer.interface(interface);
                }
            }
        }
        Ok(writer)
    }

    /// Describes one more interface, which later frames may refer to (pcapng).
    pub fn add_interface(&mut self, interface: &Interface) {
        self.interface(interface);
    }

    /// Adds a frame.
    pub fn write(&mut self, frame: &Frame<'_>, comment: Option<&str>) -> io::Result<()> {
        self.block.reserve(frame.data.len() + 64);
        match self.format {
            Format::Pcap => self.pcap_record(frame),
            Format::PcapNg => self.enhanced_packet(frame, comment),
        }
        if self.block.len() >= BUFFER - (64 << 10) {
            self.sink.write_all(&self.block)?;
            self.block.clear();
        }
        Ok(())
    }

    pub fn finish(mut self) -> io::Result<()> {
        self.sink.write_all(&self.block)?;
        self.sink.finish()
    }

    fn words(&mut self, words: &[u32]) {
        for word in words {
            self.block.extend_from_slice(&word.to_le_bytes());
        }
    }

    /// draft-ietf-opsawg-pcap 4: the magic number for nanoseconds, version 2.4.
    fn pcap_header(&mut self, link: LinkType) {
        self.words(&[0xa1b2_3c4d, 0x0004_0002, 0, 0, SNAP, link_number(link)]);
    }

    fn pcap_record(&mut self, frame: &Frame<'_>) {
        let (seconds, nanoseconds) = (frame.time_ns / 1_000_000_000, frame.time_ns % 1_000_000_000);
        self.words(&[seconds as u32, nanoseconds as u32, frame.data.len() as u32, frame.wire_len]);
        self.block.extend_from_slice(frame.data);
    }

    /// draft-ietf-opsawg-pcapng 4.1: byte-order magic, version 1.0, length not known.
    fn section_header(&mut self) {
        self.words(&[0x0a0d_0d0a, 28, 0x1a2b_3c4d, 1, u32::MAX, u32::MAX, 28]);
    }

    /// 4.2, with if_name (2) and if_tsresol (9) of 10^-9.
    fn interface(&mut self, interface: &Interface) {
        let start = self.begin_block(1);
        self.words(&[link_number(interface.link), SNAP]);
        if !interface.name.is_empty() {
            self.option(2, interface.name.as_bytes());
        }
        self.option(9, &[9]);
        self.option(0, &[]);
        self.end_block(start);
    }

    /// 4.3, with opt_comment (1).
    fn enhanced_packet(&mut self, frame: &Frame<'_>, comment: Option<&str>) {
        let start = self.begin_block(6);
        self.words(&[frame.interface, (frame.time_ns >> 32) as u32, frame.time_ns as u32]);
        self.words(&[frame.data.len() as u32, frame.wire_len]);
        self.block.extend_from_slice(frame.data);
        self.pad(start);
        if let Some(comment) = comment {
            self.option(1, comment.as_bytes());
            self.option(0, &[]);
        }
        self.end_block(start);
    }

    fn begin_block(&mut self, kind: u32) -> usize {
        let start = self.block.len();
        self.words(&[kind, 0]);
        start
    }

    /// A block's length stands before and behind it.
    fn end_block(&mut self, start: usize) {
        let length = (self.block.len() - start + 4) as u32;
        self.words(&[length]);
        self.block[start + 4..start + 8].copy_from_slice(&length.to_le_bytes());
    }

    fn option(&mut self, code: u16, value: &[u8]) {
        let start = self.block.len();
        self.words(&[u32::from(code) | (value.len() as u32) << 16]);
        self.block.extend_from_slice(value);
        self.pad(start);
    }

    /// Fills up to 32 bits.
    fn pad(&mut self, start: usize) {
        let missing = (self.block.len() - start).wrapping_neg() & 3;
        self.block.extend_from_slice(&[0; 3][..missing]);
    }
}

fn link_number(link: LinkType) -> u32 {
    match link {
        LinkType::Ethernet => 1,
        LinkType::RawIp => 101,
        LinkType::LinuxCooked => 113,
        LinkType::LinuxCooked2 => 276,
        LinkType::Null => 0,
        // LINKTYPE_USER0: nobody knows what it is.
        LinkType::Other => 147,
    }
}
