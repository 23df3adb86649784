//! Sends the fragments that NAT64 makes of IPv4 packets without DF (RFC 7915 4): by the device of the next hop, with a
//! mark that tells the egress programs whose they are.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::net::SocketAddrV6;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;
use std::thread;

use nix::net::if_::if_indextoname;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn6, sendto, setsockopt, socket,
    sockopt,
};
use sluice_abi::PIECE_MARK;
use sluice_dataplane::Oversize;

use crate::commit::Shared;

/// Reads packets for as long as the process lives.
pub fn start(shared: Arc<Shared>) -> io::Result<()> {
    let read = move || {
        let mut senders = Senders::default();
        let watched = shared.dataplane.watch_oversize(
            || true,
            |packet| {
                if let Err(error) = senders.send(&packet) {
                    tracing::debug!(%error, to = %packet.destination(), "a packet was not fragmented");
                }
            },
        );
        if let Err(error) = watched {
            tracing::error!(%error, "NAT64 fragments nothing from here on; restart the daemon to have it again");
        }
    };
    thread::Builder::new().name("fragments".to_owned()).spawn(read).map(drop)
}

/// A socket for each device by which fragments have left.
#[derive(Default)]
struct Senders(BTreeMap<u32, OwnedFd>);

impl Senders {
    fn send(&mut self, packet: &Oversize) -> nix::Result<()> {
        let sent = self.send_pieces(packet);
        if sent.is_err() {
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
