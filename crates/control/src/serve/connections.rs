//! Who may hold how many connections. Owners have a pool of their own; everybody else shares one that can neither fill the
//! daemon's files nor its threads.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use nix::sys::socket::{Shutdown, shutdown};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Connections that a pool holds at one time.
const LIMIT: usize = 256;
/// Of these, a single user or host that is no owner.
const EACH: usize = 64;
/// How long a connection may say nothing while nothing is being done for it.
const IDLE_END: Duration = Duration::from_secs(30);
/// Requests of others that are worked on at one time; owners do not wait for them.
const OTHERS_AT_WORK: usize = 8;

/// Who is at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// As SO_PEERCRED told when the connection was made.
    User { uid: u32, gid: u32 },
    /// A local process that the kernel does not name.
    Unknown,
    /// Over TCP, where `local` was asked.
    Tcp { local: SocketAddr, remote: SocketAddr },
}

impl Who {
    /// May change things: root and the daemon's own user.
    pub fn is_owner(self) -> bool {
        let own = nix::unistd::geteuid().as_raw();
        matches!(self, Who::User { uid, .. } if uid == 0 || uid == own)
    }

    /// May read what is not public: owners and the daemon's group.
    pub fn may_read_all(self) -> bool {
        let own = nix::unistd::getegid().as_raw();
        self.is_owner() || matches!(self, Who::User { gid, .. } if gid == own)
    }

    /// What is counted against one who wants many connections.
    fn same_caller(self, other: Who) -> bool {
        let host = |remote: SocketAddr| -> IpAddr { remote.ip().to_canonical() };
        match (self, other) {
            (Who::User { uid: a, .. }, Who::User { uid: b, .. }) => a == b,
            (Who::Unknown, Who::Unknown) => true,
            (Who::Tcp { remote: a, .. }, Who::Tcp { remote: b, .. }) => host(a) == host(b),
            _ => false,
        }
    }
}

/// A stream that tells who is at its other end.
pub trait Stream: AsyncRead + AsyncWrite + AsRawFd + Unpin + Send + 'static {
    fn who(&self) -> Who;

    /// The process that connected, where the kernel tells.
    fn pid(&self) -> Option<i32> {
        None
    }
}

impl Stream for UnixStream {
    fn who(&self) -> Who {
        self.peer_cred().map_or(Who::Unknown, |peer| Who::User { uid: peer.uid(), gid: peer.gid() })
    }

    fn pid(&self) -> Option<i32> {
        // 0 is one of another pid namespace
        self.peer_cred().ok()?.pid().filter(|pid| *pid > 0)
    }
}

impl Stream for TcpStream {
    fn who(&self) -> Who {
        match (self.local_addr(), self.peer_addr()) {
            (Ok(local), Ok(remote)) => Who::Tcp { local, remote },
            _ => Who::Unknown,
        }
    }
}

/// The connections of everybody.
#[derive(Clone)]
pub struct Pools {
    owners: Arc<Pool>,
    others: Arc<Pool>,
    /// Turns of others' requests.
    permits: Arc<Semaphore>,
}

impl Default for Pools {
    fn default() -> Self {
        Self {
            owners: Arc::new(Pool::new(LIMIT, LIMIT)),
            others: Arc::new(Pool::new(LIMIT, EACH)),
            permits: Arc::new(Semaphore::new(OTHERS_AT_WORK)),
        }
    }
}

impl Pools {
    fn of(&self, who: Who) -> &Arc<Pool> {
        if who.is_owner() { &self.owners } else { &self.others }
    }

    /// Waits until this caller's request may be worked on: an owner's may at once.
    pub async fn permit(&self, who: Who) -> Option<OwnedSemaphorePermit> {
        match who.is_owner() {
            true => None,
            false => self.permits.clone().acquire_owned().await.ok(),
        }
    }

    /// Ends idle connections as long as it is polled.
    pub async fn end_idle(self) {
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            for pool in [&self.owners, &self.others] {
                pool.end_idle(Instant::now());
            }
        }
    }
}

struct Pool {
    limit: usize,
    each: usize,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    made: u64,
    seats: BTreeMap<u64, Seat>,
}

struct Seat {
    who: Who,
    /// Open as long as the seat is held: [`Connection`] gives it back before it closes.
    fd: RawFd,
    /// Since when nothing is being done.
    since: Instant,
    /// Requests that are being worked on.
    busy: u32,
    /// Has been shut down and will go as soon as its task finds out.
    ended: bool,
}

impl Pool {
    fn new(limit: usize, each: usize) -> Self {
        Self { limit, each, held: Mutex::default() }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A seat for a new connection. Who finds none takes that of the connection that has been idle for the longest: of the same
    /// caller, if that one has its share. None when all are being worked for.
    fn seat(self: &Arc<Self>, who: Who, fd: RawFd) -> Option<Ticket> {
        let mut held = self.held();
        let live = |seat: &Seat| !seat.ended;
        let own = held.seats.values().filter(|seat| live(seat) && seat.who.same_caller(who)).count();
        let all = held.seats.values().filter(|seat| live(seat)).count();
        if own >= self.each {
            held.end_longest_idle(|seat| seat.who.same_caller(who))?;
        } else if all >= self.limit {
            held.end_longest_idle(|_| true)?;
        }
        held.made += 1;
        let number = held.made;
        held.seats.insert(number, Seat { who, fd, since: Instant::now(), busy: 0, ended: false });
        Some(Ticket { pool: self.clone(), number })
    }

    fn end_idle(&self, now: Instant) {
        let is_idle = |seat: &&mut Seat| {
            seat.busy == 0 && !seat.ended && now.saturating_duration_since(seat.since) >= IDLE_END
        };
        self.held().seats.values_mut().filter(is_idle).for_each(Seat::end);
    }
}

impl Held {
    fn end_longest_idle(&mut self, of: impl Fn(&Seat) -> bool) -> Option<()> {
        let idle = self.seats.values_mut().filter(|seat| seat.busy == 0 && !seat.ended && of(seat));
        idle.min_by_key(|seat| seat.since).map(Seat::end)
    }
}

impl Seat {
    fn end(&mut self) {
        self.ended = true;
        // the other end may have gone already
        let _ = shutdown(self.fd, Shutdown::Both);
    }
}

/// Names a seat.
#[derive(Clone)]
struct Ticket {
    pool: Arc<Pool>,
    number: u64,
}

impl Ticket {
    fn change(&self, change: impl FnOnce(&mut Seat)) {
        if let Some(seat) = self.pool.held().seats.get_mut(&self.number) {
            change(seat);
        }
    }
}

/// A connection as its requests see it.
#[derive(Clone)]
pub struct Peer {
    pub who: Who,
    pub pid: Option<i32>,
    ticket: Ticket,
}

impl Peer {
    /// The connection is not idle as long as this lives.
    pub fn at_work(&self) -> AtWork {
        self.ticket.change(|seat| seat.busy += 1);
        AtWork(self.ticket.clone())
    }
}

pub struct AtWork(Ticket);

impl Drop for AtWork {
    fn drop(&mut self) {
        self.0.change(|seat| {
            seat.busy -= 1;
            seat.since = Instant::now();
        });
    }
}

/// A stream that holds a seat.
pub struct Connection<S> {
    stream: S,
    peer: Peer,
}

impl<S> Drop for Connection<S> {
    fn drop(&mut self) {
        self.peer.ticket.pool.held().seats.remove(&self.peer.ticket.number);
    }
}

impl<S: Stream> AsyncRead for Connection<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: Stream> AsyncWrite for Connection<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// A listener whose connections need a seat.
pub struct Seated<L> {
    pub listener: L,
    pub pools: Pools,
}

impl<L: Listener<Io: Stream>> Listener for Seated<L> {
    type Io = Connection<L::Io>;
    type Addr = L::Addr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let (stream, address) = self.listener.accept().await;
            let who = stream.who();
            if let Some(ticket) = self.pools.of(who).seat(who, stream.as_raw_fd()) {
                let peer = Peer { who, pid: stream.pid(), ticket };
                return (Connection { stream, peer }, address);
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

impl Connected<IncomingStream<'_, Seated<UnixListener>>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Seated<UnixListener>>) -> Self {
        stream.io().peer.clone()
    }
}

impl Connected<IncomingStream<'_, Seated<TcpListener>>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Seated<TcpListener>>) -> Self {
        stream.io().peer.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream as Std;

    use futures_util::FutureExt;

    use super::*;

    /// Connections of a pool, and the ends of those that asked.
    fn fill(pool: &Arc<Pool>, who: Who, count: usize) -> Vec<(Ticket, Std, Std)> {
        let one = |_| {
            let (ours, theirs) = Std::pair().unwrap();
            theirs.set_nonblocking(true).unwrap();
            (pool.seat(who, ours.as_raw_fd()).unwrap(), ours, theirs)
        };
        (0..count).map(one).collect()
    }

    fn ended(mut end: &Std) -> bool {
        end.read(&mut [0]).is_ok_and(|read| read == 0)
    }

    const A: Who = Who::User { uid: 1001, gid: 1001 };
    const B: Who = Who::User { uid: 1002, gid: 1002 };

    #[test]
    fn one_caller_displaces_itself_only() {
        let pool = Arc::new(Pool::new(8, 4));
        let others = fill(&pool, B, 3);
        let own = fill(&pool, A, 6);
        assert_eq!(
            own.iter().map(|(_, _, end)| ended(end)).collect::<Vec<_>>(),
            [true, true, false, false, false, false]
        );
        assert!(others.iter().all(|(_, _, end)| !ended(end)));
    }

    #[test]
    fn who_is_being_worked_for_keeps_the_seat() {
        let pool = Arc::new(Pool::new(2, 2));
        let seats = fill(&pool, A, 2);
        let peers = seats.iter().map(|(ticket, _, _)| Peer { who: A, pid: None, ticket: ticket.clone() });
        let mut work: Vec<AtWork> = peers.map(|peer| peer.at_work()).collect();
        assert!(pool.seat(B, 0).is_none(), "all are busy");
        let later = Instant::now() + 2 * IDLE_END;
        pool.end_idle(later);
        assert!(seats.iter().all(|(_, _, end)| !ended(end)), "nor does time end them");
        drop(work.pop());
        // held to the end: a seat whose stream is closed would end whoever gets its descriptor
        let _other = fill(&pool, B, 1);
        assert!(!ended(&seats[0].2) && ended(&seats[1].2));
        drop(work);
        pool.end_idle(Instant::now());
        assert!(!ended(&seats[0].2), "their time begins when the work is done");
        pool.end_idle(later);
        assert!(ended(&seats[0].2));
    }

    /// Every seat of the others is taken, every one is worked for, and so are all of their permits.
    #[test]
    fn owners_are_served_whatever_others_do() {
        let pools = Pools::default();
        // nobody is ended who is worked for, so they may all have the same stream
        let (stream, end) = Std::pair().unwrap();
        end.set_nonblocking(true).unwrap();
        let sit = |who: Who| {
            let ticket = pools.of(who).seat(who, stream.as_raw_fd())?;
            Some(Peer { who, pid: None, ticket }.at_work())
        };
        let users = (0..(LIMIT / EACH) as u32).map(|n| Who::User { uid: 64_000 + n, gid: 64_000 + n });
        let seats = users.flat_map(|who| std::iter::repeat_n(who, EACH));
        let _work: Vec<AtWork> = seats.map(|who| sit(who).unwrap()).collect();
        assert!(sit(Who::Unknown).is_none(), "there is no seat left");
        let permit = |who: Who| pools.permit(who).now_or_never();
        let _permits: Vec<_> = (0..OTHERS_AT_WORK).map(|_| permit(Who::Unknown).unwrap()).collect();
        assert!(permit(Who::Unknown).is_none(), "nor a permit");
        for uid in [0, nix::unistd::geteuid().as_raw()] {
            let owner = Who::User { uid, gid: uid };
            assert!(sit(owner).is_some(), "an owner has a seat");
            assert!(permit(owner).is_some(), "and does not wait");
        }
        assert!(!ended(&end), "nobody had to go for it");
    }
}
