//! IKEv2 (RFC 7296 section 3.1).

/// UDP port (RFC 7296 section 2).
pub const PORT: u16 = 500;
/// UDP port behind NAT, shared with ESP (RFC 7296 section 2.23).
pub const NAT_TRAVERSAL_PORT: u16 = 4500;
/// Stands in front of IKE on that port, where ESP would have its SPI (RFC 3948 section 2.2).
pub const NON_ESP_MARKER: [u8; 4] = [0; 4];
/// The only byte of a datagram that keeps the NAT's mapping (RFC 3948 section 2.3).
pub const KEEPALIVE: u8 = 0xff;

/// Field ranges (RFC 7296 section 3.1, figure 4).
pub mod field {
    use std::ops::Range;
    /// The initiator's SPI names the SA from its first message on.
    pub const INITIATOR_SPI: Range<usize> = 0..8;
    /// 0 in the first message.
    pub const RESPONDER_SPI: Range<usize> = 8..16;
    /// Type of the first payload (section 3.2).
    pub const NEXT_PAYLOAD: usize = 16;
    /// Major and minor version, four bits each.
    pub const VERSION: usize = 17;
    /// What the message is for.
    pub const EXCHANGE: usize = 18;
    /// Response, version and initiator.
    pub const FLAGS: usize = 19;
    /// Repeated messages have the same one.
    pub const MESSAGE_ID: Range<usize> = 20..24;
    /// Of the message, this header included.
    pub const LENGTH: Range<usize> = 24..28;
    /// The first payload begins here.
    pub const HEADER: usize = 28;
}

/// Version 2.0.
pub const VERSION_2: u8 = 0x20;
/// Exchange type INFORMATIONAL.
pub const INFORMATIONAL: u8 = 37;
/// I: the sender has begun the SA.
pub const INITIATOR: u8 = 0x08;
/// Payload type SK, encrypted and authenticated (section 3.14).
pub const PAYLOAD_SK: u8 = 46;
/// The header in front of every payload: next payload, flags, length (section 3.2).
pub const PAYLOAD_HEADER: usize = 4;

/// The header of one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Builder {
    /// Initiator's SPI.
    pub initiator_spi: u64,
    /// Responder's SPI.
    pub responder_spi: u64,
    /// Type of the first payload.
    pub next_payload: u8,
    /// What the message is for.
    pub exchange: u8,
    /// Response, version and initiator.
    pub flags: u8,
    /// Message identifier.
    pub message_id: u32,
}

impl Builder {
    /// Appends the header of a message with `payload` bytes of payloads.
    #[inline]
    pub fn append(&self, payload: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.initiator_spi.to_be_bytes());
        out.extend_from_slice(&self.responder_spi.to_be_bytes());
        out.extend_from_slice(&[self.next_payload, VERSION_2, self.exchange, self.flags]);
        out.extend_from_slice(&self.message_id.to_be_bytes());
        out.extend_from_slice(&((field::HEADER + payload) as u32).to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::{be32, be64};

    const HEADER: [u8; field::HEADER] =
        [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 46, 0x20, 37, 0x08, 0, 0, 0, 2, 0, 0, 0, 36];

    #[test]
    fn fields_lie_where_the_figure_has_them() {
        assert_eq!(be64(&HEADER, field::INITIATOR_SPI), 0x0102_0304_0506_0708);
        assert_eq!(be64(&HEADER, field::RESPONDER_SPI), 0x090a_0b0c_0d0e_0f10);
        assert_eq!((HEADER[field::NEXT_PAYLOAD], HEADER[field::VERSION]), (PAYLOAD_SK, VERSION_2));
        assert_eq!((HEADER[field::EXCHANGE], HEADER[field::FLAGS]), (INFORMATIONAL, INITIATOR));
        assert_eq!((be32(&HEADER, field::MESSAGE_ID), be32(&HEADER, field::LENGTH)), (2, 36));
    }

    #[test]
    fn builder_writes_literal_bytes() {
        let mut out = vec![];
        let header = Builder {
            initiator_spi: 0x0102_0304_0506_0708,
            responder_spi: 0x090a_0b0c_0d0e_0f10,
            next_payload: PAYLOAD_SK,
            exchange: INFORMATIONAL,
            flags: INITIATOR,
            message_id: 2,
        };
        header.append(8, &mut out);
        assert_eq!(out, HEADER);
    }
}
