//! A base station with subscribers behind it: packets of a TUN device go into tunnels and come out of them. Its GTP-U is that of
//! the crate `oxirush-gtp-u`, and what it counts is counted outside of the gateway.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{setsockopt, sockopt};
use oxirush_gtp_u::{MessageType, Packet};

use crate::netns::Netns;

/// Where GTP-U is spoken (TS 29.281 4.4.2).
const PORT: u16 = 2152;
/// Subscribers' device.
pub const DEVICE: &str = "ue0";
/// QoS flow of what subscribers send.
const QFI: u8 = 9;
/// A window of TCP and more.
const RECEIVE_BUFFER: usize = 64 << 20;
/// Largest packet of either side.
const LARGEST: usize = 65_536;

/// A subscriber's tunnel: where what it sends goes, and what comes for it under.
#[derive(Debug, Clone, Copy)]
pub struct Tunnel {
    /// Its IPv4 address, or the first one of its IPv6 prefix.
    pub subscriber: IpAddr,
    /// Of the gateway.
    pub uplink: u32,
    /// Of this base station.
    pub downlink: u32,
}

/// Inner packets, and messages that are none.
#[derive(Debug, Default)]
pub struct Counts {
    /// Sent for subscribers.
    pub up_bytes: AtomicU64,
    /// Sent for subscribers.
    pub up_packets: AtomicU64,
    /// For subscribers, under their TEIDs.
    pub down_bytes: AtomicU64,
    /// For subscribers, under their TEIDs.
    pub down_packets: AtomicU64,
    /// Under a TEID that nobody has here, or without the QoS flow.
    pub strange: AtomicU64,
    /// Echo Responses.
    pub echoes: AtomicU64,
    /// Error Indications.
    pub errors: AtomicU64,
}

#[derive(Debug)]
struct Station {
    socket: UdpSocket,
    device: File,
    gateway: SocketAddr,
    tunnels: Mutex<HashMap<IpAddr, Tunnel>>,
    counts: Counts,
    is_over: AtomicBool,
}

/// Works until it is dropped.
#[derive(Debug)]
pub struct Gnb {
    station: Arc<Station>,
    threads: Vec<JoinHandle<()>>,
}

impl Gnb {
    /// Its socket is in one namespace, its subscribers' device in another.
    pub fn start(radio: &Netns, subscribers: &Netns, own: IpAddr, gateway: IpAddr) -> Result<Gnb> {
        let device =
            subscribers.enter(|| open_tun(DEVICE))?.context("cannot make the device of subscribers")?;
        let socket = radio.enter(|| UdpSocket::bind((own, PORT)))?.context("cannot listen on port 2152")?;
        socket.set_read_timeout(Some(LOOK))?;
        // what is lost there would be counted by nobody
        setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BUFFER)?;
        let station = Arc::new(Station {
            socket,
            device,
            gateway: SocketAddr::new(gateway, PORT),
            tunnels: Mutex::default(),
            counts: Counts::default(),
            is_over: AtomicBool::new(false),
        });
        let begin = |work: fn(&Station)| {
            let station = station.clone();
            thread::spawn(move || work(&station))
        };
        let threads = vec![begin(Station::uplink), begin(Station::downlink)];
        Ok(Gnb { station, threads })
    }

    /// From here on the subscriber has this tunnel.
    pub fn set(&self, tunnel: Tunnel) {
        self.station.tunnels().insert(key(tunnel.subscriber), tunnel);
    }

    /// What has gone through it.
    pub fn counts(&self) -> &Counts {
        &self.station.counts
    }

    /// Asks whether the gateway is there.
    pub fn send_echo(&self) -> Result<()> {
        self.station.send(&Packet::echo_request(1))
    }

    /// Sends a packet as if a subscriber had.
    pub fn send(&self, teid: u32, packet: &[u8]) -> Result<()> {
        self.station.send(&Packet::uplink(teid, QFI, packet.to_vec()))
    }
}

impl Drop for Gnb {
    fn drop(&mut self) {
        self.station.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // what went wrong there, its checks have told
            let _ = thread.join();
        }
    }
}

/// How often threads look whether they are to end.
const LOOK: Duration = Duration::from_millis(100);

impl Station {
    fn tunnels(&self) -> std::sync::MutexGuard<'_, HashMap<IpAddr, Tunnel>> {
        self.tunnels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, packet: &Packet) -> Result<()> {
        let bytes = packet.encode().map_err(|error| anyhow!("{error}"))?;
        self.socket.send_to(&bytes, self.gateway)?;
        Ok(())
    }

    fn uplink(&self) {
        let mut buffer = vec![0; LARGEST];
        while !self.is_over.load(Ordering::Relaxed) {
            let mut ready = [PollFd::new(std::os::fd::AsFd::as_fd(&self.device), PollFlags::POLLIN)];
            if !matches!(poll(&mut ready, PollTimeout::from(LOOK.as_millis() as u16)), Ok(1..)) {
                continue;
            }
            while let Ok(length @ 1..) = (&self.device).read(&mut buffer) {
                let packet = &buffer[..length];
                let tunnel = source(packet).and_then(|source| self.tunnels().get(&key(source)).copied());
                let Some(tunnel) = tunnel else { continue };
                if self.send(&Packet::uplink(tunnel.uplink, QFI, packet.to_vec())).is_ok() {
                    self.counts.up_bytes.fetch_add(length as u64, Ordering::Relaxed);
                    self.counts.up_packets.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }

    fn downlink(&self) {
        let mut buffer = vec![0; LARGEST];
        while !self.is_over.load(Ordering::Relaxed) {
            let Ok((length, _)) = self.socket.recv_from(&mut buffer) else { continue };
            let counts = &self.counts;
            let count = match Packet::decode_borrowed(&buffer[..length]) {
                Ok(packet) if packet.message_type == MessageType::ECHO_RESPONSE => &counts.echoes,
                Ok(packet) if packet.message_type == MessageType::ERROR_INDICATION => &counts.errors,
                Ok(packet) if packet.message_type == MessageType::G_PDU => {
                    let is_known = self.tunnels().values().any(|tunnel| tunnel.downlink == packet.teid);
                    if is_known && packet.qfi() == Some(QFI) {
                        // a device that is down takes nothing
                        let _ = (&self.device).write(packet.payload);
                        counts.down_bytes.fetch_add(packet.payload.len() as u64, Ordering::Relaxed);
                        &counts.down_packets
                    } else {
                        &counts.strange
                    }
                }
                _ => &counts.strange,
            };
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Of IPv6 the first 64 bits say who a subscriber is.
fn key(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
    }
}

fn source(packet: &[u8]) -> Option<IpAddr> {
    match packet.first()? >> 4 {
        4 => <[u8; 4]>::try_from(packet.get(12..16)?).ok().map(IpAddr::from),
        6 => <[u8; 16]>::try_from(packet.get(8..24)?).ok().map(IpAddr::from),
        _ => None,
    }
}

/// `struct ifreq` as TUNSETIFF reads it: a name, and flags.
#[repr(C)]
struct Request {
    name: [u8; libc::IFNAMSIZ],
    flags: i16,
    rest: [u8; 22],
}

/// A device whose packets are read and written here, without anything before them.
#[allow(unsafe_code, reason = "TUNSETIFF takes a pointer")]
fn open_tun(name: &str) -> io::Result<File> {
    let file =
        OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun")?;
    let mut request =
        Request { name: [0; libc::IFNAMSIZ], flags: (libc::IFF_TUN | libc::IFF_NO_PI) as i16, rest: [0; 22] };
    request.name[..name.len()].copy_from_slice(name.as_bytes());
    // SAFETY: the request outlives the call, and has the length of a `struct ifreq`.
    match unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &mut request) } {
        0 => Ok(file),
        _ => Err(io::Error::last_os_error()),
    }
}
