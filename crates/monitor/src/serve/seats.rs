//! Connections within a limit: who says nothing, or reads nothing, gives up its place.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::{Instant, Sleep, sleep};

/// Connections at the same time, well below the 1,024 files that a process usually may open.
const SEATS: usize = 256;
/// A client has so long to ask, the first time and each time again, and to take some of an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// What a request without a body, which all of ours are, ends with (RFC 9112 2.1).
const END: &[u8] = b"\r\n\r\n";

/// A listener that never holds more than [`SEATS`] connections: the one that has waited longest for its client's question
/// is closed for a new one.
pub(super) struct Seats {
    listener: TcpListener,
    taken: VecDeque<Weak<Seat>>,
}

impl Seats {
    pub(super) fn new(listener: TcpListener) -> Seats {
        Seats { listener, taken: VecDeque::new() }
    }

    fn make_room(&mut self) {
        self.taken.retain(|seat| seat.strong_count() > 0);
        if self.taken.len() < SEATS {
            return;
        }
        let waits =
            |seat: &Weak<Seat>| seat.upgrade().is_some_and(|seat| !seat.is_asked.load(Ordering::Relaxed));
        let at = self.taken.iter().position(waits).unwrap_or(0);
        if let Some(seat) = self.taken.remove(at).and_then(|seat| seat.upgrade()) {
            seat.is_given_up.store(true, Ordering::Relaxed);
            seat.wake.notify_one();
        }
    }
}

impl Listener for Seats {
    type Io = Client;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Client, SocketAddr) {
        // Waits and tries again where a connection cannot be accepted.
        let (stream, address) = Listener::accept(&mut self.listener).await;
        self.make_room();
        let seat = Arc::new(Seat::default());
        self.taken.push_back(Arc::downgrade(&seat));
        (Client::new(stream, seat), address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

#[derive(Default)]
struct Seat {
    /// A whole question has come, and nothing of its answer has gone.
    is_asked: AtomicBool,
    is_given_up: AtomicBool,
    wake: Notify,
}

/// A connection with its limits of time.
pub(super) struct Client {
    stream: TcpStream,
    seat: Arc<Seat>,
    deadline: Pin<Box<Sleep>>,
    given_up: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Client {
    fn new(stream: TcpStream, seat: Arc<Seat>) -> Client {
        let waiting = Arc::clone(&seat);
        let given_up = Box::pin(async move { waiting.wake.notified().await });
        Client { stream, seat, deadline: Box::pin(sleep(PATIENCE)), given_up }
    }

    /// Whether its time is over.
    fn poll_over(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if !self.seat.is_given_up.load(Ordering::Relaxed) && self.given_up.as_mut().poll(context).is_pending()
        {
            return self.deadline.as_mut().poll(context);
        }
        Poll::Ready(())
    }

    fn begin_anew(&mut self) {
        self.deadline.as_mut().reset(Instant::now() + PATIENCE);
    }
}

fn over<T>() -> Poll<io::Result<T>> {
    Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
}

impl AsyncRead for Client {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let client = &mut *self;
        if let Poll::Ready(read) = Pin::new(&mut client.stream).poll_read(context, buffer) {
            client.seat.is_asked.store(buffer.filled().ends_with(END), Ordering::Relaxed);
            return Poll::Ready(read);
        }
        // While an answer is put together the client has nothing to say.
        match client.seat.is_asked.load(Ordering::Relaxed) {
            true => Poll::Pending,
            false if client.poll_over(context).is_ready() => over(),
            false => Poll::Pending,
        }
    }
}

impl AsyncWrite for Client {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let client = &mut *self;
        if let Poll::Ready(written) = Pin::new(&mut client.stream).poll_write(context, bytes) {
            client.seat.is_asked.store(false, Ordering::Relaxed);
            client.begin_anew();
            return Poll::Ready(written);
        }
        if client.poll_over(context).is_ready() { over() } else { Poll::Pending }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
