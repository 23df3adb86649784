//! Batches of datagrams in one system call: recvmmsg with GRO, sendmmsg with UDP_SEGMENT.
#![allow(unsafe_code, reason = "the standard library has neither system call")]

use std::io;
use std::mem::{size_of, zeroed};
use std::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::RawFd;

/// Datagrams, or bursts of them, that one call takes.
pub const BATCH: usize = 64;
/// A burst is at most as long as an IP packet.
const SLOT: usize = 1 << 16;
/// From one slot to the next. Were it a power of two, the first lines of all slots would share one set of the cache.
const STRIDE: usize = SLOT + 3 * 64;
/// Of control messages: GRO's segment size and the overflow counter fit.
const CONTROL: usize = 64;
/// Segments that every kernel takes at once (UDP_MAX_SEGMENTS), and bytes.
const MAX_SEGMENTS: usize = 64;
const MAX_BURST: usize = 65_000;

#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; CONTROL]);

/// Buffers of one thread. The vectors point into each other, so they are made once and never grow.
pub struct Receive {
    headers: Vec<libc::mmsghdr>,
    names: Vec<libc::sockaddr_storage>,
    control: Vec<Control>,
    buffer: Vec<u8>,
    /// Only kept because `headers` point to them.
    _vectors: Vec<libc::iovec>,
}

/// One datagram, or a burst of datagrams of one sender that are all `segment` bytes long but for the last.
pub struct Burst<'a> {
    pub data: &'a [u8],
    pub segment: usize,
    pub source: SocketAddr,
    /// Datagrams that the kernel has lost on this socket since it was opened.
    pub overflow: Option<u32>,
}

// SAFETY: the pointers lead into the vectors beside them, which move with it; nobody else has them.
unsafe impl std::marker::Send for Receive {}

impl Receive {
    pub fn new() -> Receive {
        // SAFETY: all of these are plain C structures for which zeros are valid.
        let (name, header): (libc::sockaddr_storage, libc::mmsghdr) = unsafe { (zeroed(), zeroed()) };
        let mut receive = Receive {
            headers: vec![header; BATCH],
            names: vec![name; BATCH],
            control: vec![Control([0; CONTROL]); BATCH],
            buffer: vec![0; BATCH * STRIDE],
            _vectors: Vec::with_capacity(BATCH),
        };
        for slot in receive.buffer.chunks_exact_mut(STRIDE) {
            receive._vectors.push(libc::iovec { iov_base: slot.as_mut_ptr().cast(), iov_len: SLOT });
        }
        for (index, header) in receive.headers.iter_mut().enumerate() {
            header.msg_hdr.msg_iov = &raw mut receive._vectors[index];
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_name = (&raw mut receive.names[index]).cast();
            header.msg_hdr.msg_control = (&raw mut receive.control[index]).cast();
        }
        receive
    }

    /// Waits for at least one, as long as the socket's timeout says, and takes what else is there.
    pub fn receive(&mut self, socket: RawFd) -> io::Result<usize> {
        self.take(socket, libc::MSG_WAITFORONE)
    }

    /// Takes what is there, and fails at once where nothing is.
    pub fn receive_at_once(&mut self, socket: RawFd) -> io::Result<usize> {
        self.take(socket, libc::MSG_DONTWAIT)
    }

    fn take(&mut self, socket: RawFd, flags: i32) -> io::Result<usize> {
        for header in &mut self.headers {
            header.msg_hdr.msg_namelen = size_of::<libc::sockaddr_storage>() as u32;
            header.msg_hdr.msg_controllen = CONTROL as _;
        }
        let (headers, none) = (self.headers.as_mut_ptr(), std::ptr::null_mut());
        // SAFETY: every header points to buffers of the length it says, which live as long as `self`.
        let got = unsafe { libc::recvmmsg(socket, headers, BATCH as u32, flags, none) };
        if got < 0 { Err(io::Error::last_os_error()) } else { Ok(got as usize) }
    }

    /// Number `index` of the last call.
    pub fn burst(&self, index: usize) -> Burst<'_> {
        let header = &self.headers[index];
        let data = &self.buffer[index * STRIDE..][..(header.msg_len as usize).min(SLOT)];
        let (mut segment, mut overflow) = (data.len(), None);
        // SAFETY: the kernel has just written `msg_controllen` bytes of control messages where the header points.
        unsafe {
            let mut message = libc::CMSG_FIRSTHDR(&header.msg_hdr);
            while let Some(found) = message.as_ref() {
                match (found.cmsg_level, found.cmsg_type) {
                    (libc::SOL_UDP, libc::UDP_GRO) => {
                        segment = libc::CMSG_DATA(message).cast::<libc::c_int>().read_unaligned() as usize;
                    }
                    (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                        overflow = Some(libc::CMSG_DATA(message).cast::<u32>().read_unaligned());
                    }
                    _ => {}
                }
                message = libc::CMSG_NXTHDR(&header.msg_hdr, message);
            }
        }
        Burst { data, segment: segment.max(1), source: address_of(&self.names[index]), overflow }
    }
}

fn address_of(name: &libc::sockaddr_storage) -> SocketAddr {
    let address: *const libc::sockaddr_storage = name;
    if i32::from(name.ss_family) == libc::AF_INET {
        // SAFETY: the family says so, and the storage is large and aligned enough for every family.
        let v4 = unsafe { &*address.cast::<libc::sockaddr_in>() };
        let ip = u32::from_be(v4.sin_addr.s_addr).into();
        return SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into();
    }
    // SAFETY: as above; an unknown family reads as an address of zeros.
    let v6 = unsafe { &*address.cast::<libc::sockaddr_in6>() };
    let ip = IpAddr::from(v6.sin6_addr.s6_addr).to_canonical();
    match ip {
        IpAddr::V4(ip) => SocketAddrV4::new(ip, u16::from_be(v6.sin6_port)).into(),
        IpAddr::V6(ip) => SocketAddrV6::new(ip, u16::from_be(v6.sin6_port), 0, v6.sin6_scope_id).into(),
    }
}

/// What became of datagrams that were to be sent.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Sent {
    pub packets: u64,
    pub bytes: u64,
    pub failed: u64,
    /// The socket stayed full.
    pub full: u64,
}

/// A message: datagrams `first..first + count`, sent as one burst.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    first: usize,
    count: usize,
}

/// What one thread collects for one receiver until it sends it.
pub struct Send {
    vectors: Vec<libc::iovec>,
    runs: Vec<Run>,
    headers: Vec<libc::mmsghdr>,
    control: Vec<Control>,
}

// SAFETY: the pointers are only followed in `flush`, on the thread that pushed the datagrams.
unsafe impl std::marker::Send for Send {}

impl Send {
    pub fn new() -> Send {
        Send { vectors: vec![], runs: vec![], headers: vec![], control: vec![] }
    }

    /// `datagram` must stay where it is until `flush`.
    pub fn push(&mut self, datagram: &[u8]) {
        self.vectors
            .push(libc::iovec { iov_base: datagram.as_ptr().cast_mut().cast(), iov_len: datagram.len() });
    }

    /// Sends everything over a connected socket. What fails costs only itself.
    pub fn flush(&mut self, socket: RawFd) -> Sent {
        let lengths: Vec<usize> = self.vectors.iter().map(|vector| vector.iov_len).collect();
        self.runs = runs(&lengths);
        let sent = self.send_runs(socket);
        self.vectors.clear();
        sent
    }

    fn prepare(&mut self) {
        // SAFETY: zeros are a valid header.
        let empty: libc::mmsghdr = unsafe { zeroed() };
        self.headers.clear();
        self.headers.resize(self.runs.len(), empty);
        self.control.clear();
        self.control.resize(self.runs.len(), Control([0; CONTROL]));
        for (index, run) in self.runs.iter().enumerate() {
            let header = &mut self.headers[index].msg_hdr;
            header.msg_iov = &raw mut self.vectors[run.first];
            header.msg_iovlen = run.count as _;
            if run.count == 1 {
                continue;
            }
            header.msg_control = (&raw mut self.control[index]).cast();
            // SAFETY: the buffer is 64 bytes, aligned to 8, and one message with two bytes fits.
            unsafe {
                header.msg_controllen = libc::CMSG_SPACE(2) as _;
                let message = libc::CMSG_FIRSTHDR(header);
                (*message).cmsg_level = libc::SOL_UDP;
                (*message).cmsg_type = libc::UDP_SEGMENT;
                (*message).cmsg_len = libc::CMSG_LEN(2) as _;
                let segment = self.vectors[run.first].iov_len as u16;
                libc::CMSG_DATA(message).cast::<u16>().write_unaligned(segment);
            }
        }
    }

    fn send_runs(&mut self, socket: RawFd) -> Sent {
        let (mut sent, mut next, mut tries) = (Sent::default(), 0, 0);
        self.prepare();
        while next < self.runs.len() {
            let left = (self.runs.len() - next).min(1024) as u32;
            // SAFETY: headers, vectors and control messages stand still, and the datagrams do until we return.
            let done = unsafe {
                libc::sendmmsg(socket, self.headers.as_mut_ptr().add(next), left, libc::MSG_DONTWAIT)
            };
            if done > 0 {
                (next..next + done as usize).for_each(|index| self.count(self.runs[index], &mut sent));
                (next, tries) = (next + done as usize, 0);
                continue;
            }
            let error = io::Error::last_os_error();
            tries += 1;
            match error.raw_os_error() {
                Some(libc::EINTR) => continue,
                // an ICMP error about an earlier datagram: this one has not been tried yet
                Some(libc::ECONNREFUSED | libc::EHOSTUNREACH | libc::ENETUNREACH) if tries == 1 => continue,
                Some(libc::EAGAIN) if tries <= 3 && writable(socket) => continue,
                Some(libc::EAGAIN) => sent.full += self.runs[next].count as u64,
                _ if self.runs[next].count > 1 => {
                    self.split(next);
                    tries = 0;
                    continue;
                }
                _ => sent.failed += 1,
            }
            (next, tries) = (next + 1, 0);
        }
        sent
    }

    fn count(&self, run: Run, sent: &mut Sent) {
        sent.packets += run.count as u64;
        sent.bytes +=
            self.vectors[run.first..run.first + run.count].iter().map(|v| v.iov_len as u64).sum::<u64>();
    }

    /// A burst that the kernel does not take (a path MTU below its segments, a device without checksums) goes one by one.
    fn split(&mut self, index: usize) {
        let run = self.runs[index];
        let single = (run.first..run.first + run.count).map(|first| Run { first, count: 1 });
        self.runs.splice(index..=index, single);
        self.prepare();
    }
}

/// Waits a moment for room.
fn writable(socket: RawFd) -> bool {
    let mut poll = libc::pollfd { fd: socket, events: libc::POLLOUT, revents: 0 };
    // SAFETY: one structure, and the count says so.
    unsafe { libc::poll(&raw mut poll, 1, 10) > 0 }
}

/// Bursts of datagrams of one length, of which the last may be shorter.
fn runs(lengths: &[usize]) -> Vec<Run> {
    let mut runs: Vec<Run> = vec![];
    let (mut bytes, mut open) = (0, false);
    for (index, length) in lengths.iter().enumerate() {
        if let Some(run) = runs.last_mut().filter(|_| open) {
            let segment = lengths[run.first];
            if *length > 0 && *length <= segment && run.count < MAX_SEGMENTS && bytes + length <= MAX_BURST {
                run.count += 1;
                bytes += length;
                open = *length == segment;
                continue;
            }
        }
        runs.push(Run { first: index, count: 1 });
        (bytes, open) = (*length, *length > 0);
    }
    runs
}

/// Sets an option that is an integer.
pub fn set_option(socket: RawFd, level: i32, name: i32, value: i32) -> io::Result<()> {
    // SAFETY: the pointer leads to an integer, and the length says so.
    let result =
        unsafe { libc::setsockopt(socket, level, name, (&raw const value).cast(), size_of::<i32>() as u32) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::UdpSocket;
    use std::os::fd::AsRawFd;

    proptest! {
        #[test]
        fn runs_cover_everything_once_and_only_their_last_is_short(lengths in proptest::collection::vec(0usize..1500, 0..300)) {
            let mut next = 0;
            for run in runs(&lengths) {
                prop_assert_eq!(run.first, next);
                next += run.count;
                let of = &lengths[run.first..next];
                prop_assert!(of[..of.len() - 1].iter().all(|length| *length == of[0]) && of[of.len() - 1] <= of[0]);
                prop_assert!(run.count == 1 || of.iter().all(|length| *length > 0));
                prop_assert!(run.count <= MAX_SEGMENTS && of.iter().sum::<usize>() <= MAX_BURST.max(of[0]));
            }
            prop_assert_eq!(next, lengths.len());
        }
    }

    fn pair() -> (UdpSocket, UdpSocket) {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        (sender, receiver)
    }

    #[test]
    fn bursts_arrive_as_the_datagrams_they_were_made_of() {
        let (sender, receiver) = pair();
        set_option(receiver.as_raw_fd(), libc::SOL_UDP, libc::UDP_GRO, 1).unwrap();
        let datagrams: Vec<Vec<u8>> = (0..100u8).map(|n| vec![n; 64 + usize::from(n / 40)]).collect();
        let mut send = Send::new();
        datagrams.iter().for_each(|datagram| send.push(datagram));
        let sent = send.flush(sender.as_raw_fd());
        assert_eq!((sent.packets, sent.failed, sent.full), (100, 0, 0));
        let (mut receive, mut got) = (Receive::new(), vec![]);
        while got.len() < datagrams.len() {
            let count = receive.receive(receiver.as_raw_fd()).unwrap();
            for burst in (0..count).map(|index| receive.burst(index)) {
                assert_eq!(burst.source, sender.local_addr().unwrap());
                got.extend(burst.data.chunks(burst.segment).map(<[u8]>::to_vec));
            }
        }
        assert_eq!(got, datagrams);
    }

    #[test]
    fn a_datagram_that_cannot_be_sent_costs_only_itself() {
        let (sender, receiver) = pair();
        let (small, huge) = (vec![1u8; 100], vec![2u8; 65_508]);
        let mut send = Send::new();
        for datagram in [&small, &huge, &small] {
            send.push(datagram);
        }
        let sent = send.flush(sender.as_raw_fd());
        assert_eq!((sent.packets, sent.failed), (2, 1));
        for _ in 0..2 {
            let mut buffer = [0; 200];
            assert_eq!(receiver.recv(&mut buffer).unwrap(), 100);
        }
    }

    #[test]
    fn a_refusal_of_an_earlier_datagram_does_not_lose_this_one() {
        let (sender, receiver) = pair();
        let address = receiver.local_addr().unwrap();
        drop(receiver);
        let _ = sender.send(b"to nobody");
        std::thread::sleep(std::time::Duration::from_millis(20));
        let receiver = UdpSocket::bind(address).unwrap();
        let mut send = Send::new();
        send.push(b"to somebody");
        assert_eq!(send.flush(sender.as_raw_fd()).packets, 1);
        let mut buffer = [0; 200];
        assert_eq!(receiver.recv(&mut buffer).unwrap(), 11);
    }
}
