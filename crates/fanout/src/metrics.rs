//! Counters over HTTP, in the text format of Prometheus.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use nix::sys::socket;
use sluice_language::fan_out::same_bind;
use sluice_metrics::Kind::{self, Counter, Gauge};
use sluice_metrics::{CONTENT_TYPE, Page};

use crate::counters::Drop;

/// What is reported of one receiver.
#[derive(Debug, Clone, Default)]
pub struct ReceiverReport {
    /// As configured; with what its name resolves to where it is one.
    pub name: String,
    /// `ADDRESS:PORT`
    pub address: String,
    /// It has left the configuration: what it got stays in the account, and nobody expects it to be up.
    pub is_former: bool,
    /// Datagrams go to it.
    pub up: bool,
    /// Tenths of its weight that it gets.
    pub share: u32,
    /// Sent to it.
    pub packets: u64,
    /// Bytes of UDP payload sent to it.
    pub bytes: u64,
    /// Messages that wait for its TCP connection.
    pub waiting: u64,
    /// Reason and count, those without any included.
    pub drops: Vec<(&'static str, u64)>,
}

/// What is reported of one socket, ring or data-plane listener.
#[derive(Debug, Clone, Default)]
pub struct QueueReport {
    /// Number of the socket or ring.
    pub queue: String,
    /// Received.
    pub packets: u64,
    /// Bytes of UDP payload received.
    pub bytes: u64,
    /// SO_RXQ_OVFL; None where there is no socket.
    pub overflow: Option<u64>,
    /// Reason and count, those without any included.
    pub drops: Vec<(&'static str, u64)>,
    /// XDP_STATISTICS, by name.
    pub xdp_statistics: Vec<(&'static str, u64)>,
}

/// What is reported of one listener.
#[derive(Debug, Clone, Default)]
pub struct ListenerReport {
    /// As configured.
    pub name: String,
    /// As configured, `auto` resolved.
    pub mode: String,
    /// Where programs are attached: `native`, `generic`, `tc`, or `none`.
    pub attach: String,
    /// Rings share their frames with the driver.
    pub zero_copy: bool,
    /// Bytes of the memory that all rings share; None where there are no rings.
    pub ring_memory: Option<u64>,
    /// Unit that it listens on; empty where it has none.
    pub interface: String,
    /// One a socket or ring; one for the whole data plane.
    pub queues: Vec<QueueReport>,
    /// In configuration order, those that have left behind.
    pub receivers: Vec<ReceiverReport>,
}

impl ListenerReport {
    /// Datagrams that arrived.
    pub fn received(&self) -> u64 {
        self.queues.iter().map(|queue| queue.packets).sum()
    }

    /// Datagrams that went to a receiver.
    pub fn sent(&self) -> u64 {
        self.receivers.iter().map(|receiver| receiver.packets).sum()
    }

    /// Datagrams that did not, for any reason.
    pub fn dropped(&self) -> u64 {
        let sum = |drops: &[(&'static str, u64)]| drops.iter().map(|(_, count)| count).sum::<u64>();
        self.queues.iter().map(|q| sum(&q.drops)).sum::<u64>()
            + self.receivers.iter().map(|r| sum(&r.drops)).sum::<u64>()
    }

    /// Messages in queues of TCP connections.
    pub fn waiting(&self) -> u64 {
        self.receivers.iter().map(|receiver| receiver.waiting).sum()
    }
}

/// Drops by name, as the counters have them.
pub fn named(drops: &crate::counters::Drops) -> Vec<(&'static str, u64)> {
    Drop::ALL.iter().map(|reason| (reason.name(), drops.get(*reason))).collect()
}

/// Reads the reports of a page; called for each request.
pub type Source = Arc<dyn Fn() -> Vec<ListenerReport> + Send + Sync>;

/// The whole page.
pub fn page(listeners: &[ListenerReport]) -> String {
    let mut page = Page::default();
    let info = page.family("sluice_fanout_listener_info", Gauge, "Mode in force of a listener (always 1)");
    for listener in listeners {
        let (queues, zero_copy) = (listener.queues.len().to_string(), listener.zero_copy.to_string());
        let labels = [
            ("listener", listener.name.as_str()),
            ("mode", &listener.mode),
            ("attach", &listener.attach),
            ("interface", &listener.interface),
            ("queues", &queues),
            ("zero_copy", &zero_copy),
        ];
        info.sample(&labels, true);
    }
    // one memory, whoever is asked for it
    if let Some((listener, bytes)) = listeners.iter().find_map(|l| Some((l, l.ring_memory?))) {
        page.family("sluice_fanout_ring_memory_bytes", Gauge, "Memory for frames that all rings share")
            .sample(&[("mode", &listener.mode)], bytes);
    }
    queues(&mut page, listeners);
    receivers(&mut page, listeners);
    drops(&mut page, listeners);
    page.text()
}

fn queues(page: &mut Page, listeners: &[ListenerReport]) {
    type Field = fn(&QueueReport) -> Option<u64>;
    let families: [(&str, &str, Field); 3] = [
        ("sluice_fanout_received_packets_total", "Datagrams received", |q| Some(q.packets)),
        ("sluice_fanout_received_bytes_total", "Bytes of datagrams received", |q| Some(q.bytes)),
        (
            "sluice_fanout_socket_overflow_total",
            "Datagrams the kernel lost before the socket (SO_RXQ_OVFL)",
            |q| q.overflow,
        ),
    ];
    for (name, help, field) in families {
        let family = page.family(name, Counter, help);
        for listener in listeners {
            for queue in &listener.queues {
                if let Some(value) = field(queue) {
                    family.sample(&[("listener", &listener.name), ("queue", &queue.queue)], value);
                }
            }
        }
    }
    let rings =
        page.family("sluice_fanout_xdp_statistics_total", Counter, "XDP_STATISTICS of a ring, by name");
    for listener in listeners {
        for queue in &listener.queues {
            for (statistic, value) in &queue.xdp_statistics {
                let labels =
                    [("listener", listener.name.as_str()), ("queue", &queue.queue), ("statistic", statistic)];
                rings.sample(&labels, *value);
            }
        }
    }
}

fn receivers(page: &mut Page, listeners: &[ListenerReport]) {
    type Field = fn(&ReceiverReport) -> Option<u64>;
    let families: [(&str, Kind, &str, Field); 5] = [
        ("sluice_fanout_sent_packets_total", Counter, "Datagrams sent to a receiver", |r| Some(r.packets)),
        ("sluice_fanout_sent_bytes_total", Counter, "Bytes sent to a receiver", |r| Some(r.bytes)),
        ("sluice_fanout_receiver_up", Gauge, "Whether a receiver takes part", |r| {
            (!r.is_former).then_some(r.up.into())
        }),
        ("sluice_fanout_receiver_share", Gauge, "Tenths of its weight that a receiver gets", |r| {
            (!r.is_former).then_some(r.share.into())
        }),
        ("sluice_fanout_waiting_messages", Gauge, "Messages that wait for a connection", |r| Some(r.waiting)),
    ];
    for (name, kind, help, field) in families {
        let family = page.family(name, kind, help);
        for listener in listeners {
            for receiver in &listener.receivers {
                let labels = [
                    ("listener", listener.name.as_str()),
                    ("receiver", &receiver.name),
                    ("address", &receiver.address),
                ];
                if let Some(value) = field(receiver) {
                    family.sample(&labels, value);
                }
            }
        }
    }
}

fn drops(page: &mut Page, listeners: &[ListenerReport]) {
    let name = "sluice_fanout_dropped_packets_total";
    let family = page.family(name, Counter, "Datagrams that went nowhere, by reason");
    let mut each = |whose: &[(&'static str, &str)], drops: &[(&'static str, u64)]| {
        for (reason, count) in drops {
            family.sample(&[whose, &[("reason", *reason)]].concat(), *count);
        }
    };
    for listener in listeners {
        let of = ("listener", listener.name.as_str());
        for queue in &listener.queues {
            each(&[of, ("queue", &queue.queue)], &queue.drops);
        }
        for receiver in &listener.receivers {
            each(&[of, ("receiver", &receiver.name), ("address", &receiver.address)], &receiver.drops);
        }
    }
}

/// An address that is listened on and not served yet.
#[derive(Debug)]
pub struct Bound {
    wanted: SocketAddr,
    /// None = our own server has the address, and closes it when this one takes over.
    listener: Option<TcpListener>,
}

#[derive(Debug)]
struct Serving {
    wanted: SocketAddr,
    bound: SocketAddr,
    end: Arc<End>,
    listener: TcpListener,
    thread: JoinHandle<()>,
}

/// Who is being answered, and how that is told to end.
#[derive(Debug, Default)]
struct End {
    is_wanted: AtomicBool,
    /// In the order in which they came, by number.
    clients: Mutex<VecDeque<(u64, TcpStream)>>,
}

impl End {
    fn clients(&self) -> MutexGuard<'_, VecDeque<(u64, TcpStream)>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// False where the end has come. Of too many the one that has taken longest gives way.
    fn begin(&self, number: u64, client: TcpStream) -> bool {
        let mut clients = self.clients();
        if clients.len() >= CLIENTS
            && let Some((_, longest)) = clients.pop_front()
        {
            hang_up(&longest);
        }
        clients.push_back((number, client));
        !self.is_wanted.load(Ordering::Acquire)
    }

    fn done(&self, number: u64) {
        self.clients().retain(|(other, _)| *other != number);
    }

    fn want(&self) {
        self.is_wanted.store(true, Ordering::Release);
        self.clients().iter().for_each(|(_, client)| hang_up(client));
    }
}

fn hang_up(client: &TcpStream) {
    // it may have gone by itself
    let _ = client.shutdown(Shutdown::Both);
}

/// Answers `GET /metrics`, where the configuration in force wants it.
#[derive(Debug, Clone, Default)]
pub struct Server(Arc<Mutex<Option<Serving>>>);

impl Server {
    fn serving(&self) -> MutexGuard<'_, Option<Serving>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What can be refused of a change, before anything changes; None where nothing new is to be listened on. Errors are
    /// those of [`listen`].
    pub fn prepare(&self, wanted: Option<SocketAddr>) -> io::Result<Option<Bound>> {
        let now = self.serving().as_ref().map(|serving| (serving.wanted, serving.bound));
        let Some(wanted) = wanted.filter(|wanted| now.is_none_or(|(now, _)| now != *wanted)) else {
            return Ok(None);
        };
        match listen(wanted) {
            Ok(listener) => Ok(Some(Bound { wanted, listener: Some(listener) })),
            Err(error)
                if error.kind() == ErrorKind::AddrInUse
                    && now.is_some_and(|(_, bound)| same_bind(bound, wanted)) =>
            {
                Ok(Some(Bound { wanted, listener: None }))
            }
            Err(error) => Err(error),
        }
    }

    /// Changes over to what was prepared for `wanted`. An error leaves it as it was.
    pub fn put(&self, wanted: Option<SocketAddr>, bound: Option<Bound>, source: &Source) -> io::Result<()> {
        let mut serving = self.serving();
        if serving.as_ref().map(|serving| serving.wanted) == wanted {
            return Ok(());
        }
        let waits = bound.as_ref().is_some_and(|bound| bound.listener.is_none());
        let before = if waits { serving.take().map(Serving::end) } else { None };
        let next = match bound.map(|bound| serve(bound, source.clone())).transpose() {
            Ok(next) => next,
            Err(error) => {
                if let Some(wanted) = before {
                    *serving = Some(serve(Bound { wanted, listener: None }, source.clone())?);
                }
                return Err(error);
            }
        };
        if let Some(next) = &next {
            tracing::info!(address = %next.bound, "metrics of fan-out at /metrics");
        }
        let former = std::mem::replace(&mut *serving, next);
        drop(serving);
        former.map(Serving::end);
        Ok(())
    }
}

impl Serving {
    /// Returns when its address is free.
    fn end(self) -> SocketAddr {
        self.end.want();
        // the thread sleeps until somebody comes, which nobody can where the address has gone
        let _ = socket::shutdown(self.listener.as_raw_fd(), socket::Shutdown::Both);
        let _ = self.thread.join();
        self.wanted
    }
}

/// Listens where metrics are wanted. An error says where that is, and what helps.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address).map_err(|error| refused(address, &error))
}

fn refused(address: SocketAddr, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("metrics on {address}: {error}; choose another"))
}

fn serve(bound: Bound, source: Source) -> io::Result<Serving> {
    let wanted = bound.wanted;
    let listener = bound.listener.map_or_else(|| listen(wanted), Ok)?;
    serve_on(wanted, listener, source).map_err(|error| refused(wanted, &error))
}

fn serve_on(wanted: SocketAddr, listener: TcpListener, source: Source) -> io::Result<Serving> {
    let (bound, end) = (listener.local_addr()?, Arc::<End>::default());
    let serving = listener.try_clone()?;
    let told = end.clone();
    let thread = Builder::new().name("fan-metrics".into()).spawn(move || {
        for (number, stream) in (0..).zip(serving.incoming()) {
            if told.is_wanted.load(Ordering::Acquire) {
                return;
            }
            if let Err(error) = stream.and_then(|stream| begin(number, stream, &told, &source)) {
                // most of all that there are no descriptors or threads left, which others give back
                tracing::debug!(%error, "a client of the metrics is not answered");
                std::thread::sleep(PAUSE);
            }
        }
    })?;
    Ok(Serving { wanted, bound, end, listener, thread })
}

/// Answers a client on a thread of its own: one that is slow or gone is its own affair.
fn begin(number: u64, stream: TcpStream, end: &Arc<End>, source: &Source) -> io::Result<()> {
    if !end.begin(number, stream.try_clone()?) {
        return Ok(());
    }
    let (told, source) = (end.clone(), source.clone());
    let spawned = Builder::new().name("fan-scrape".into()).spawn(move || {
        // whoever asked has hung up
        let _ = answer(&stream, &source);
        told.done(number);
    });
    if spawned.is_err() {
        end.done(number);
    }
    spawned.map(drop)
}

/// So many are answered at a time.
const CLIENTS: usize = 16;
/// After a client that could not be taken.
const PAUSE: Duration = Duration::from_millis(50);
/// So long a client has for its request and its answer.
const LONGEST: Duration = Duration::from_secs(2);

/// A connection that ends at a time, however little and often its client reads and writes.
struct Timed<'a> {
    stream: &'a TcpStream,
    end: Instant,
}

impl Timed<'_> {
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(into)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(from)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn answer(stream: &TcpStream, source: &Source) -> io::Result<()> {
    let mut stream = Timed { stream, end: Instant::now() + LONGEST };
    let mut request = String::new();
    let mut lines = BufReader::new((&mut stream).take(16_384));
    lines.read_line(&mut request)?;
    let mut header = String::from("-");
    while !header.trim().is_empty() {
        header.clear();
        if lines.read_line(&mut header)? == 0 {
            break;
        }
    }
    let (status, body) = match request.split(' ').nth(1) {
        Some("/metrics") if request.starts_with("GET ") => ("200 OK", page(&source())),
        _ => ("404 Not Found", "only GET /metrics is here\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {CONTENT_TYPE}; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}

#[cfg(test)]
mod tests {
    use sluice_metrics::judge;

    use super::*;

    fn report() -> ListenerReport {
        ListenerReport {
            name: "l\"\\\n".into(),
            mode: "af-xdp".into(),
            attach: "native".into(),
            zero_copy: true,
            ring_memory: Some(4096),
            interface: "eth0".into(),
            queues: vec![QueueReport {
                queue: "0".into(),
                packets: 9,
                bytes: 10,
                overflow: Some(3),
                drops: vec![("rx_ring", 4), ("frame_too_large", 5)],
                xdp_statistics: vec![("rx_dropped", 6)],
            }],
            receivers: vec![ReceiverReport {
                name: "a".into(),
                address: "192.0.2.1:514".into(),
                is_former: false,
                up: true,
                share: 10,
                packets: 8,
                bytes: 11,
                waiting: 2,
                drops: vec![("send_failed", 1)],
            }],
        }
    }

    #[test]
    fn the_page_is_the_one_kept_and_another_reader_reads_it() {
        let bare = ListenerReport {
            name: "m".into(),
            queues: vec![QueueReport { queue: "1".into(), ..Default::default() }],
            ..Default::default()
        };
        let page = page(&[report(), bare]);
        judge::golden("fanout", &page);
        judge::read(&page).unwrap();
    }

    #[test]
    fn without_listeners_families_are_announced_all_the_same() {
        assert_eq!(judge::read(&page(&[])).unwrap().len(), 11);
    }

    #[test]
    fn a_receiver_that_got_another_address_is_two_series() {
        let mut report = report();
        let former = ReceiverReport {
            address: "192.0.2.2:514".into(),
            is_former: true,
            ..report.receivers[0].clone()
        };
        report.receivers.push(former);
        judge::read(&page(&[report])).unwrap();
    }

    #[test]
    fn of_a_receiver_that_has_left_only_counters_remain() {
        let mut report = report();
        report.receivers[0].is_former = true;
        let text = page(&[report]);
        assert!(text.contains("receiver=\"a\",address=\"192.0.2.1:514\"} 8"), "{text}");
        for gauge in ["receiver_up{", "receiver_share{"] {
            assert!(!text.contains(gauge), "an alert would never end:\n{text}");
        }
    }

    fn get(address: SocketAddr, path: &str) -> io::Result<String> {
        let mut stream = TcpStream::connect(address)?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    }

    #[test]
    fn it_is_served_and_moves() {
        let (server, source): (Server, Source) = (Server::default(), Arc::new(|| vec![report()]));
        let put = |wanted: Option<SocketAddr>| {
            let bound = server.prepare(wanted)?;
            server.put(wanted, bound, &source)?;
            Ok::<_, io::Error>(server.serving().as_ref().map(|serving| serving.bound))
        };
        let first = put(Some("127.0.0.1:0".parse().unwrap())).unwrap().unwrap();
        for (path, status) in [("/metrics", "200"), ("/", "404")] {
            let text = get(first, path).unwrap();
            assert!(text.starts_with(&format!("HTTP/1.1 {status}")), "{text}");
        }
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let error = put(Some(address)).unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("metrics on {address}: ")) && error.ends_with("; choose another"),
            "{error}"
        );
        assert!(get(first, "/metrics").is_ok(), "a refusal changes nothing");
        let second = put(Some("[::1]:0".parse().unwrap())).unwrap().unwrap();
        assert!(get(second, "/metrics").unwrap().starts_with("HTTP/1.1 200"));
        let everywhere = SocketAddr::new("::".parse().unwrap(), second.port());
        put(Some(second)).unwrap();
        assert_eq!(put(Some(everywhere)).unwrap(), Some(everywhere), "the same port, more addresses");
        assert!(get(second, "/metrics").unwrap().starts_with("HTTP/1.1 200"));
        assert_eq!(put(None).unwrap(), None);
        while [first, second].iter().any(|address| TcpStream::connect(address).is_ok()) {
            std::thread::yield_now();
        }
    }

    /// A byte a second is never late for a read, and would be an hour of headers.
    #[test]
    fn a_slow_client_holds_up_neither_the_next_nor_the_end() {
        let (server, source): (Server, Source) = (Server::default(), Arc::new(|| vec![report()]));
        let wanted: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let bound = server.prepare(Some(wanted)).unwrap();
        server.put(Some(wanted), bound, &source).unwrap();
        let address = server.serving().as_ref().unwrap().bound;
        let mut slow = TcpStream::connect(address).unwrap();
        let trickle = std::thread::spawn(move || {
            while slow.write_all(b"x: y\r\n").is_ok() {
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        let begun = Instant::now();
        assert!(get(address, "/metrics").unwrap().starts_with("HTTP/1.1 200"));
        assert!(begun.elapsed() < 3 * LONGEST, "{:?}", begun.elapsed());
        trickle.join().unwrap();
        let _silent: Vec<_> = (0..32).map(|_| TcpStream::connect(address).unwrap()).collect();
        let begun = Instant::now();
        assert!(get(address, "/metrics").unwrap().starts_with("HTTP/1.1 200"));
        assert!(begun.elapsed() < LONGEST / 2, "{:?}", begun.elapsed());
        let begun = Instant::now();
        server.put(None, None, &source).unwrap();
        assert!(begun.elapsed() < LONGEST / 2, "{:?}", begun.elapsed());
    }
}
