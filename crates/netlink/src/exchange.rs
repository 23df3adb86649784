//! A question and its answer.

use std::io;
use std::time::Duration;

use netlink_packet_core::{
    DecodeError, NLM_F_DUMP, NLM_F_REQUEST, NetlinkBuffer, NetlinkDeserializable, NetlinkHeader,
    NetlinkMessage, NetlinkPayload, NetlinkSerializable,
};
use netlink_sys::{Socket, SocketAddr};
use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::{TimeVal, TimeValLike};

/// How long the kernel may take for a datagram of its answer.
pub const PATIENCE: Duration = Duration::from_secs(1);

const KERNEL: u32 = 0;

/// A socket of one thread, which asks one thing at a time.
pub struct Exchange {
    socket: Socket,
    sequence: u32,
}

impl Exchange {
    /// Of the calling thread's network namespace.
    pub fn open(protocol: isize) -> io::Result<Exchange> {
        let mut socket = Socket::new(protocol)?;
        socket.bind_auto()?;
        setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::seconds(PATIENCE.as_secs() as i64))?;
        Ok(Exchange { socket, sequence: 0 })
    }

    /// What the kernel answers; None where it acknowledges only.
    pub fn ask<M>(&mut self, question: M, flags: u16) -> io::Result<Option<M>>
    where
        M: NetlinkSerializable + NetlinkDeserializable,
    {
        self.send(question, flags)?;
        loop {
            let datagram = self.receive()?;
            for message in self.answers(&datagram) {
                match payload(message).map_err(invalid)? {
                    NetlinkPayload::InnerMessage(answer) => return Ok(Some(answer)),
                    NetlinkPayload::Error(error) if error.code.is_some() => return Err(error.to_io()),
                    NetlinkPayload::Error(_) | NetlinkPayload::Done(_) => return Ok(None),
                    _ => {}
                }
            }
        }
    }

    /// Hands over every message of a list, also those that cannot be read.
    pub fn list<M: NetlinkDeserializable>(
        &mut self,
        question: impl NetlinkSerializable,
        mut take: impl FnMut(Result<M, DecodeError>),
    ) -> io::Result<()> {
        self.send(question, NLM_F_DUMP)?;
        loop {
            let datagram = self.receive()?;
            for message in self.answers(&datagram) {
                match payload(message) {
                    Ok(NetlinkPayload::InnerMessage(entry)) => take(Ok(entry)),
                    Ok(NetlinkPayload::Error(error)) if error.code.is_some() => return Err(error.to_io()),
                    Ok(NetlinkPayload::Done(done)) if done.code < 0 => {
                        return Err(io::Error::from_raw_os_error(-done.code));
                    }
                    Ok(NetlinkPayload::Error(_) | NetlinkPayload::Done(_)) => return Ok(()),
                    Ok(_) => {}
                    Err(error) => take(Err(error)),
                }
            }
        }
    }

    fn send(&mut self, question: impl NetlinkSerializable, flags: u16) -> io::Result<()> {
        self.sequence += 1;
        let mut header = NetlinkHeader::default();
        (header.flags, header.sequence_number) = (NLM_F_REQUEST | flags, self.sequence);
        let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(question));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send_to(&bytes, &SocketAddr::new(KERNEL, 0), 0).map(drop)
    }

    fn receive(&self) -> io::Result<Vec<u8>> {
        loop {
            match self.socket.recv_from_full() {
                Ok((datagram, from)) if from.port_number() == KERNEL => return Ok(datagram),
                // another process may write to this one
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let text = format!("the kernel has not answered within {} s", PATIENCE.as_secs());
                    return Err(io::Error::new(io::ErrorKind::TimedOut, text));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Messages that answer the last question: an earlier one may have taken too long.
    fn answers<'a>(&self, datagram: &'a [u8]) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let sequence = self.sequence;
        messages(datagram).filter(move |message| NetlinkBuffer::new(message).sequence_number() == sequence)
    }
}

fn invalid(error: DecodeError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

fn payload<M: NetlinkDeserializable>(message: &[u8]) -> Result<NetlinkPayload<M>, DecodeError> {
    NetlinkMessage::<M>::deserialize(message).map(|message| message.payload)
}

/// The messages of a datagram, each with its header. A broken one ends them.
fn messages(mut rest: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let length = NetlinkBuffer::new_checked(rest).ok()?.length() as usize;
        let message = rest.get(..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_cut_apart_and_a_broken_one_ends_them() {
        let message = |length: u32, body: &[u8]| {
            let header = [&length.to_ne_bytes()[..], &[0; 12]].concat();
            [&header, body].concat()
        };
        let two = [message(17, &[1, 0, 0, 0]), message(20, &[2, 0, 0, 0])].concat();
        assert_eq!(messages(&two).map(|message| message[16]).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(messages(&two[..39]).count(), 1);
        assert_eq!(messages(&message(15, &[])).count(), 0);
        assert_eq!(messages(&[]).count(), 0);
    }
}
