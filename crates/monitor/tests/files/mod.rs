//! Writes capture files byte by byte, in every variant.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endian {
    Little,
    Big,
}

impl Endian {
    pub fn u16(self, value: u16) -> [u8; 2] {
        if self == Endian::Little { value.to_le_bytes() } else { value.to_be_bytes() }
    }

    pub fn u32(self, value: u32) -> [u8; 4] {
        if self == Endian::Little { value.to_le_bytes() } else { value.to_be_bytes() }
    }

    pub fn u64(self, value: u64) -> [u8; 8] {
        if self == Endian::Little { value.to_le_bytes() } else { value.to_be_bytes() }
    }

    fn words(self, words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| self.u32(*word)).collect()
    }
}

/// A pcap file (draft-ietf-opsawg-pcap).
pub struct Pcap {
    order: Endian,
    nano: bool,
    pub bytes: Vec<u8>,
}

impl Pcap {
    pub fn new(order: Endian, nano: bool, link: u32) -> Self {
        let mut bytes = order.u32(if nano { 0xa1b2_3c4d } else { 0xa1b2_c3d4 }).to_vec();
        bytes.extend([order.u16(2), order.u16(4)].concat());
        bytes.extend(order.words(&[0, 0, 262_144, link]));
        Pcap { order, nano, bytes }
    }

    pub fn frame(&mut self, time_ns: u64, data: &[u8], wire_len: u32) -> &mut Self {
        let fraction = time_ns % 1_000_000_000 / if self.nano { 1 } else { 1000 };
        let seconds = (time_ns / 1_000_000_000) as u32;
        self.bytes.extend(self.order.words(&[seconds, fraction as u32, data.len() as u32, wire_len]));
        self.bytes.extend(data);
        self
    }
}

/// A pcapng file (draft-ietf-opsawg-pcapng) of one section.
pub struct PcapNg {
    order: Endian,
    pub bytes: Vec<u8>,
}

/// A block with its two lengths, padded.
fn block(order: Endian, kind: u32, body: &[u8]) -> Vec<u8> {
    let length = 12 + body.len().next_multiple_of(4);
    let mut bytes = order.words(&[kind, length as u32]);
    bytes.extend(body);
    bytes.resize(length - 4, 0);
    bytes.extend(order.u32(length as u32));
    bytes
}

/// Options with their end marker (section 3.5).
pub fn options(order: Endian, list: &[(u16, &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (code, value) in list {
        bytes.extend([order.u16(*code), order.u16(value.len() as u16)].concat());
        bytes.extend(*value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }
    bytes.extend([0; 4]);
    bytes
}

impl PcapNg {
    pub fn new(order: Endian) -> Self {
        let mut file = PcapNg { order, bytes: Vec::new() };
        let body = [&order.u32(0x1a2b_3c4d)[..], &order.u16(1), &order.u16(0), &[0xff; 8]].concat();
        file.push(0x0a0d_0d0a, &body);
        file
    }

    pub fn push(&mut self, kind: u32, body: &[u8]) -> &mut Self {
        self.bytes.extend(block(self.order, kind, body));
        self
    }

    pub fn interface(&mut self, link: u16, options: &[u8]) -> &mut Self {
        let body = [&self.order.u16(link)[..], &[0; 2], &self.order.u32(0), options].concat();
        self.push(1, &body)
    }

    pub fn frame(&mut self, interface: u32, ticks: u64, data: &[u8], options: &[u8]) -> &mut Self {
        let length = data.len() as u32;
        let mut body = self.order.words(&[interface, (ticks >> 32) as u32, ticks as u32, length, length]);
        body.extend(data);
        body.resize(body.len().next_multiple_of(4), 0);
        body.extend(options);
        self.push(6, &body)
    }

    /// The obsolete packet block.
    pub fn obsolete(&mut self, interface: u16, drops: u16, ticks: u64, data: &[u8]) -> &mut Self {
        let mut body = [self.order.u16(interface), self.order.u16(drops)].concat();
        let length = data.len() as u32;
        body.extend(self.order.words(&[(ticks >> 32) as u32, ticks as u32, length, length]));
        body.extend(data);
        self.push(2, &body)
    }

    pub fn simple(&mut self, data: &[u8], wire_len: u32) -> &mut Self {
        let body = [&self.order.u32(wire_len)[..], data].concat();
        self.push(3, &body)
    }

    pub fn statistics(&mut self, interface: u32, options: &[u8]) -> &mut Self {
        let body = [self.order.words(&[interface, 0, 0]), options.to_vec()].concat();
        self.push(5, &body)
    }
}
