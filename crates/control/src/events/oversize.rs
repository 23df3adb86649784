//! Sends the fragments that NAT64 makes of IPv4 packets without DF (RFC 7915 4): by the device of the next hop, with a
//! mark that tells the egress programs whose they are.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::net::SocketAddrV6;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::net::if_::if_indextoname;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn6, sendto, setsockopt, socket,
    sockopt,
};
use sluice_abi::PIECE_MARK;
use sluice_dataplane::{Oversize, Unfit};

use crate::commit::Shared;
use crate::state::unfragmented::Unfragmented;

/// Reads packets for as long as the process lives.
pub fn start(shared: Arc<Shared>) -> io::Result<()> {
    let read = move || {
        let (mut senders, mut warning) = (Senders::default(), Warning::default());
        let watched = shared.dataplane.watch_oversize(
            || true,
            |packet| {
                let Err(lost) = packet.map_err(Lost::from).and_then(|packet| senders.send(&packet)) else {
                    return;
                };
                count(&shared.unfragmented, lost);
                warning.say(lost, &shared.unfragmented);
            },
        );
        if let Err(error) = watched {
            tracing::error!(%error, "NAT64 fragments nothing from here on; restart the daemon to have it again");
        }
    };
    thread::Builder::new().name("fragments".to_owned()).spawn(read).map(drop)
}

/// Why the receiver of a packet does not get all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    Unfit(Unfit),
    /// The device's queue or the socket's buffer is full.
    Busy,
    /// The kernel refuses it: the device is gone or down, or there is no way.
    Refused(Errno),
}

impl From<Unfit> for Lost {
    fn from(unfit: Unfit) -> Self {
        Self::Unfit(unfit)
    }
}

impl From<Errno> for Lost {
    fn from(error: Errno) -> Self {
        match error {
            Errno::EAGAIN | Errno::ENOBUFS => Self::Busy,
            error => Self::Refused(error),
        }
    }
}

fn count(counts: &Unfragmented, lost: Lost) {
    let counter = match lost {
        Lost::Unfit(Unfit::Late) => &counts.late,
        Lost::Unfit(Unfit::Malformed) => &counts.malformed,
        Lost::Busy => &counts.busy,
        Lost::Refused(_) => &counts.refused,
    };
    counter.fetch_add(1, Ordering::Relaxed);
}

/// At most one a second.
#[derive(Default)]
struct Warning(Option<Instant>);

impl Warning {
    fn say(&mut self, lost: Lost, all: &Unfragmented) {
        if self.0.is_none_or(|said| said.elapsed() >= Duration::from_secs(1)) {
            self.0 = Some(Instant::now());
            tracing::warn!(reason = ?lost, so_far = all.all(), "NAT64: a packet did not leave in fragments");
        }
    }
}

/// A socket for each device by which fragments have left.
#[derive(Default)]
struct Senders(BTreeMap<u32, OwnedFd>);

impl Senders {
    fn send(&mut self, packet: &Oversize) -> Result<(), Lost> {
        let sent = self.send_pieces(packet).map_err(Lost::from);
        if let Err(Lost::Refused(_)) = sent {
            // The device may be another one by now.
            self.0.remove(&packet.ifindex);
        }
        sent
    }

    fn send_pieces(&mut self, packet: &Oversize) -> nix::Result<()> {
        let sender = match self.0.get(&packet.ifindex) {
            Some(sender) => sender,
            None => self.0.entry(packet.ifindex).or_insert(sender(packet.ifindex)?),
        };
        let to = SockaddrIn6::from(SocketAddrV6::new(packet.destination(), 0, 0, 0));
        for piece in packet.pieces() {
            sendto(sender.as_raw_fd(), &piece, &to, MsgFlags::MSG_DONTWAIT)?;
        }
        Ok(())
    }
}

/// Takes whole IPv6 packets, with any source, and sends them by this device alone.
fn sender(ifindex: u32) -> nix::Result<OwnedFd> {
    let name = if_indextoname(ifindex)?;
    let sender = socket(AddressFamily::Inet6, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::Raw)?;
    setsockopt(&sender, sockopt::BindToDevice, &OsString::from_vec(name.into_bytes()))?;
    setsockopt(&sender, sockopt::Mark, &PIECE_MARK)?;
    Ok(sender)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lost_is_counted_by_its_reason() {
        let counts = Unfragmented::default();
        let lost = [Unfit::Late.into(), Unfit::Malformed.into(), Errno::EAGAIN.into(), Errno::ENOBUFS.into()];
        lost.into_iter().chain([Errno::ENETDOWN.into()]).for_each(|lost| count(&counts, lost));
        let by_reason = [&counts.late, &counts.malformed, &counts.busy, &counts.refused];
        assert_eq!(by_reason.map(|count| count.load(Ordering::Relaxed)), [1, 1, 2, 1]);
        assert_eq!(counts.all(), 5);
    }
}
