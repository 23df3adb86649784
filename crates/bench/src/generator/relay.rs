//! The plainest relay that takes many datagrams at a time: recvmmsg, sendmmsg, receivers by turns. What fan-out in user
//! space is measured against.
#![allow(unsafe_code)] // the standard library has neither system call

use std::io;
use std::mem::{size_of, zeroed};
use std::net::{SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use nix::sys::socket::{setsockopt, sockopt};

const BATCH: usize = 64;
const SLOT: usize = 2048 + 64;
/// As `sluice fanout` has it.
const BUFFER: usize = 8 << 20;

#[derive(Debug, clap::Args)]
pub struct RelayArgs {
    listen: SocketAddrV4,
    #[arg(required = true)]
    receivers: Vec<SocketAddrV4>,
}

fn name(address: SocketAddrV4) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: address.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
        sin_zero: [0; 8],
    }
}

/// `sluice bench relay`: until it is killed.
pub fn command(args: &RelayArgs) -> Result<ExitCode> {
    ensure!(!args.receivers.is_empty(), "no receivers");
    let socket = UdpSocket::bind(args.listen).with_context(|| format!("cannot listen on {}", args.listen))?;
    setsockopt(&socket, sockopt::RcvBufForce, &BUFFER)?;
    let receivers: Vec<libc::sockaddr_in> = args.receivers.iter().map(|address| name(*address)).collect();
    relay(&socket, receivers).context("relay")?;
    Ok(ExitCode::SUCCESS)
}

fn relay(socket: &UdpSocket, mut receivers: Vec<libc::sockaddr_in>) -> io::Result<()> {
    let mut buffer = vec![0u8; BATCH * SLOT];
    let slots = buffer.chunks_exact_mut(SLOT);
    let mut vectors: Vec<libc::iovec> =
        slots.map(|slot| libc::iovec { iov_base: slot.as_mut_ptr().cast(), iov_len: SLOT }).collect();
    // SAFETY: zeros are a valid header.
    let mut headers: Vec<libc::mmsghdr> = vec![unsafe { zeroed() }; BATCH];
    for (header, vector) in headers.iter_mut().zip(&mut vectors) {
        (header.msg_hdr.msg_iov, header.msg_hdr.msg_iovlen) = (vector, 1);
    }
    let mut receiver = 0;
    loop {
        for (header, vector) in headers.iter_mut().zip(&mut vectors) {
            vector.iov_len = SLOT;
            (header.msg_hdr.msg_name, header.msg_hdr.msg_namelen) = (std::ptr::null_mut(), 0);
        }
        let none = std::ptr::null_mut();
        // SAFETY: every header points to a vector, every vector to its part of the buffer; all live here.
        let got = unsafe {
            libc::recvmmsg(socket.as_raw_fd(), headers.as_mut_ptr(), BATCH as u32, libc::MSG_WAITFORONE, none)
        };
        if got < 0 {
            return Err(io::Error::last_os_error());
        }
        for (header, vector) in headers.iter_mut().zip(&mut vectors).take(got as usize) {
            vector.iov_len = header.msg_len as usize;
            receiver = if receiver + 1 >= receivers.len() { 0 } else { receiver + 1 };
            header.msg_hdr.msg_name = (&raw mut receivers[receiver]).cast();
            header.msg_hdr.msg_namelen = size_of::<libc::sockaddr_in>() as u32;
        }
        send(socket, &mut headers[..got as usize])?;
    }
}

fn send(socket: &UdpSocket, mut headers: &mut [libc::mmsghdr]) -> io::Result<()> {
    while !headers.is_empty() {
        // SAFETY: as for receiving; names point to receivers, which live on.
        let sent =
            unsafe { libc::sendmmsg(socket.as_raw_fd(), headers.as_mut_ptr(), headers.len() as u32, 0) };
        if sent < 0 {
            return Err(io::Error::last_os_error());
        }
        headers = &mut headers[sent as usize..];
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_relay_takes_turns() {
        let receivers = [(); 3].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        let own = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = own.local_addr().unwrap();
        let of = |socket: &UdpSocket| match socket.local_addr().unwrap() {
            std::net::SocketAddr::V4(address) => name(address),
            std::net::SocketAddr::V6(_) => unreachable!("bound to IPv4"),
        };
        let names = receivers.iter().map(of).collect();
        std::thread::spawn(move || relay(&own, names));
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        for number in 0..30u8 {
            sender.send_to(&[number; 40], address).unwrap();
        }
        for receiver in &receivers {
            receiver.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            let mut buffer = [0; 100];
            let got: Vec<u8> =
                (0..10).map(|_| receiver.recv(&mut buffer).map(|_| buffer[0]).unwrap()).collect();
            assert!(got.windows(2).all(|pair| pair[1] == pair[0] + 3), "{got:?}");
        }
    }
}
