//! One captured frame, and the batch that owns the bytes of many.

use std::sync::Arc;

use sluice_memory::Piece;

/// How the first bytes of a frame are to be read (the LINKTYPE_ registry of the pcap format).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum LinkType {
    /// LINKTYPE_ETHERNET (1).
    #[default]
    Ethernet,
    /// LINKTYPE_RAW (101), LINKTYPE_IPV4 (228), LINKTYPE_IPV6 (229): starts with the IP header.
    RawIp,
    /// LINKTYPE_LINUX_SLL (113).
    LinuxCooked,
    /// LINKTYPE_LINUX_SLL2 (276).
    LinuxCooked2,
    /// LINKTYPE_NULL (0): four bytes of address family, then IP.
    Null,
    /// Anything else: counted as unknown.
    Other,
}

/// A frame as captured.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Capture time, nanoseconds since the epoch.
    pub time_ns: u64,
    /// Capture interface, numbered from 0 in the order of their first description.
    pub interface: u32,
    /// Length on the wire; `data` is shorter where a snap length cut it.
    pub wire_len: u32,
    /// What its first header is.
    pub link: LinkType,
    /// From the first byte of that header, as far as it was captured.
    pub data: &'a [u8],
    /// Position among the frames of its source, from 1.
    pub number: u64,
}

impl Frame<'_> {
    /// Whether the capture kept less of the frame than was on the wire.
    pub fn is_cut(&self) -> bool {
        (self.data.len() as u64) < u64::from(self.wire_len)
    }
}

/// Where the bytes of one frame lie in its batch.
#[derive(Clone, Copy, Debug, Default)]
pub struct Record {
    /// Capture time, nanoseconds since the epoch.
    pub time_ns: u64,
    /// Offset into the bytes of the batch.
    pub offset: u32,
    /// Bytes that were captured.
    pub captured: u32,
    /// Bytes on the wire.
    pub wire_len: u32,
    /// Capture interface, numbered from 0.
    pub interface: u16,
    /// What its first header is.
    pub link: LinkType,
}

/// The bytes behind a batch: a buffer of its own, or a window of a mapped file.
#[derive(Debug)]
enum Bytes {
    Owned(Vec<u8>),
    Mapped { map: Arc<Piece>, start: usize, end: usize },
}

/// Some thousands of frames with their bytes. A source fills it, a worker owns it while it reads, then it is reused.
#[derive(Debug)]
pub struct Batch {
    bytes: Bytes,
    records: Vec<Record>,
    first_number: u64,
}

impl Default for Batch {
    fn default() -> Self {
        Batch { bytes: Bytes::Owned(Vec::new()), records: Vec::new(), first_number: 1 }
    }
}

impl Batch {
    /// Empties the batch for frames that start with `first_number`; allocations are kept.
    pub fn reset(&mut self, first_number: u64) {
        self.records.clear();
        self.first_number = first_number;
    }

    /// The batch's own buffer, for a source to read into. A mapped window is let go.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        if let Bytes::Mapped { .. } = self.bytes {
            self.bytes = Bytes::Owned(Vec::new());
        }
        match &mut self.bytes {
            Bytes::Owned(buffer) => buffer,
            Bytes::Mapped { .. } => unreachable!("replaced above"),
        }
    }

    /// Lets the records refer to `map[start..end]`; their offsets count from `start`.
    ///
    /// # Panics
    /// When the window does not lie inside the mapping.
    pub fn window(&mut self, map: &Arc<Piece>, start: usize, end: usize) {
        assert!(start <= end && end <= map.len(), "the window must lie inside the mapping");
        self.bytes = Bytes::Mapped { map: Arc::clone(map), start, end };
    }

    /// Takes back the records that end behind the first `bytes` of the buffer or window, and all after them.
    pub fn cut(&mut self, bytes: u64) {
        let end = |record: &Record| u64::from(record.offset) + u64::from(record.captured);
        let whole = self.records.iter().position(|record| end(record) > bytes).unwrap_or(self.records.len());
        self.records.truncate(whole);
    }

    /// Adds a frame whose bytes already lie in the buffer or window.
    #[inline]
    pub fn push(&mut self, record: Record) {
        self.records.push(record);
    }

    /// Copies a frame's bytes to the end of the buffer and adds it; `record.offset` and `captured` are set here.
    pub fn push_copy(&mut self, mut record: Record, data: &[u8]) {
        let buffer = self.buffer();
        record.offset = buffer.len() as u32;
        record.captured = data.len() as u32;
        buffer.extend_from_slice(data);
        self.records.push(record);
    }

    /// Frames in it.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Without a frame.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Position of its first frame in the source, from 1.
    pub fn first_number(&self) -> u64 {
        self.first_number
    }

    /// Gives the first frame another number, and those after it the following ones.
    pub fn number_from(&mut self, first_number: u64) {
        self.first_number = first_number;
    }

    /// Asks for each frame, with its bytes, which interface it is of.
    pub fn number_interfaces(&mut self, mut number: impl FnMut(&Record, &[u8]) -> u16) {
        let mut records = std::mem::take(&mut self.records);
        let bytes = self.bytes();
        for record in &mut records {
            let start = record.offset as usize;
            record.interface = number(record, &bytes[start..start + record.captured as usize]);
        }
        self.records = records;
    }

    /// One a frame, in order.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// All bytes of the batch, for [`Batch::frame_of`].
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Owned(buffer) => buffer,
            Bytes::Mapped { map, start, end } => &map[*start..*end],
        }
    }

    /// The frame at `index`, counted from 0.
    ///
    /// # Panics
    /// When there is no such frame or its record points outside the bytes.
    #[inline]
    pub fn frame(&self, index: usize) -> Frame<'_> {
        Self::frame_of(self.bytes(), &self.records[index], self.first_number + index as u64)
    }

    /// The frame that `record` describes inside `bytes`.
    #[inline]
    pub fn frame_of<'a>(bytes: &'a [u8], record: &Record, number: u64) -> Frame<'a> {
        let start = record.offset as usize;
        Frame {
            time_ns: record.time_ns,
            interface: u32::from(record.interface),
            wire_len: record.wire_len,
            link: record.link,
            data: &bytes[start..start + record.captured as usize],
            number,
        }
    }

    /// In order.
    pub fn frames(&self) -> impl Iterator<Item = Frame<'_>> {
        let (bytes, first) = (self.bytes(), self.first_number);
        self.records
            .iter()
            .enumerate()
            .map(move |(index, record)| Self::frame_of(bytes, record, first + index as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_numbered_and_keep_their_bytes() {
        let mut batch = Batch::default();
        batch.reset(7);
        batch.push_copy(Record { time_ns: 1, wire_len: 3, ..Record::default() }, b"abc");
        batch.push_copy(Record { time_ns: 2, wire_len: 9, ..Record::default() }, b"de");
        let frames: Vec<_> = batch.frames().collect();
        assert_eq!((frames[0].number, frames[0].data, frames[0].is_cut()), (7, &b"abc"[..], false));
        assert_eq!((frames[1].number, frames[1].data, frames[1].is_cut()), (8, &b"de"[..], true));
        batch.reset(9);
        batch.buffer().clear();
        assert!(batch.is_empty());
    }
}
