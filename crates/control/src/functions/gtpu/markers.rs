//! End Markers (TS 29.281 7.3.2): when a session's tunnel leads elsewhere, its old end is told that nothing more comes that way.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use sluice_dataplane::Tunnel;

/// Where GTP-U is spoken (4.4.2).
const PORT: u16 = 2152;
/// How long one message may take to find room in the kernel's queue.
const PATIENCE: Duration = Duration::from_millis(100);

/// One of version 1 without optional fields (5.1, 6.1).
fn message(teid: u32) -> [u8; 8] {
    let [a, b, c, d] = teid.to_be_bytes();
    [0x30, 254, 0, 0, a, b, c, d]
}

/// To each tunnel, once no program sends anything into it any more. What cannot be sent is lost, as any packet may be.
pub fn send(left: &[Tunnel]) {
    let mut sockets: HashMap<IpAddr, io::Result<UdpSocket>> = HashMap::new();
    let mut lost = 0;
    for tunnel in left {
        let socket = sockets.entry(tunnel.peer.local).or_insert_with(|| open(tunnel.peer.local));
        let to = SocketAddr::new(tunnel.peer.remote, PORT);
        let sent = socket.as_ref().is_ok_and(|socket| socket.send_to(&message(tunnel.teid), to).is_ok());
        lost += usize::from(!sent);
    }
    if lost > 0 {
        tracing::warn!(
            lost,
            "End Markers could not be sent; the old ends of those tunnels wait for them in vain"
        );
    }
}

/// By any source port (4.4.2.3).
fn open(local: IpAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((local, 0))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// TS 29.281 5.1: version 1, PT 1, no optional fields; 6.1: 254; a length of nothing.
    #[test]
    fn a_marker_is_a_header_alone() {
        assert_eq!(message(0xdead_beef), [0x30, 254, 0, 0, 0xde, 0xad, 0xbe, 0xef]);
    }
}
