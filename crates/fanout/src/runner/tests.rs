//! Listeners of user space that change and end while datagrams come.

use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::channel;
use std::thread;

use super::*;

/// Shorter than what a receiver is asked for here, longer than any machine takes for an end.
const PATIENCE: Duration = Duration::from_secs(20);

fn free() -> SocketAddr {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn fan_out(bind: SocketAddr, receiver: SocketAddr, more: &str) -> FanOut {
    let (address, port) = (bind.ip(), bind.port());
    let mut text = String::from("mode userspace\n");
    text += &format!("address {address}\nport {port}\n");
    text += &format!("receiver r address {}\nreceiver r port {}\n{more}", receiver.ip(), receiver.port());
    let text: String = text.lines().map(|line| format!("set services fan-out listener l {line}\n")).collect();
    sluice_language::compile(&sluice_language::parse(&text, "test").unwrap()).unwrap().fan_out
}

/// Calls from another thread, so that a test can say that it takes too long.
fn within<T: Send + 'static>(what: &str, call: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, wait) = channel();
    thread::spawn(move || done.send(call()));
    wait.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{what} does not return"))
}

/// A receiver that counts, and a sender that has at most a few datagrams under way.
struct Traffic {
    receiver: SocketAddr,
    sent: Arc<AtomicU64>,
    got: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    sender: Option<JoinHandle<()>>,
}

const UNDER_WAY: u64 = 32;

impl Traffic {
    fn new() -> Traffic {
        let sink = UdpSocket::bind("127.0.0.1:0").unwrap();
        let receiver = sink.local_addr().unwrap();
        let (sent, got, stop) =
            (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let count = got.clone();
        thread::spawn(move || {
            while sink.recv(&mut [0; 64]).is_ok() {
                count.fetch_add(1, Ordering::Release);
            }
        });
        Traffic { receiver, sent, got, stop, sender: None }
    }

    fn send(&mut self, to: SocketAddr) {
        let (own, had, end) = (self.sent.clone(), self.got.clone(), self.stop.clone());
        self.sender = Some(thread::spawn(move || {
            // from many ports, so that every socket of a listener has its share
            let sockets: Vec<UdpSocket> = (0..16).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
            for socket in sockets.iter().cycle().take_while(|_| !end.load(Ordering::Acquire)) {
                if own.load(Ordering::Acquire) < had.load(Ordering::Acquire) + UNDER_WAY {
                    own.fetch_add(socket.send_to(b"datagram", to).is_ok().into(), Ordering::Release);
                } else {
                    thread::sleep(Duration::from_micros(50));
                }
            }
        }));
    }

    fn wait_for(&self, more: u64) {
        let wanted = self.got.load(Ordering::Acquire) + more;
        let begun = Instant::now();
        while self.got.load(Ordering::Acquire) < wanted {
            let (sent, got) = (self.sent.load(Ordering::Acquire), self.got.load(Ordering::Acquire));
            assert!(begun.elapsed() < PATIENCE, "of {sent} datagrams {got} have arrived");
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        let _ = self.sender.take().map(JoinHandle::join);
    }
}

#[test]
fn a_listener_ends_while_datagrams_come() {
    let bind = free();
    // without a sink's count: it goes on whatever arrives
    let stop = Arc::new(AtomicBool::new(false));
    let end = stop.clone();
    let sender = thread::spawn(move || {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        while !end.load(Ordering::Acquire) {
            let _ = socket.send_to(b"datagram", bind);
        }
    });
    let runner = Runner::start(Names::default()).unwrap();
    runner.apply(&fan_out(bind, free(), "")).unwrap();
    let own = runner.clone();
    within("the end", move || own.end());
    stop.store(true, Ordering::Release);
    sender.join().unwrap();
    socket::is_free(bind, None).expect("its sockets are closed");
}

#[test]
fn sockets_are_replaced_without_a_loss_while_datagrams_come() {
    let bind = free();
    let mut traffic = Traffic::new();
    let runner = Runner::start(Names::default()).unwrap();
    for round in 0..20 {
        let wanted = fan_out(bind, traffic.receiver, &format!("workers {}\n", 1 + round % 2));
        let own = runner.clone();
        within("a reload", move || own.apply(&wanted).unwrap());
        if round == 0 {
            traffic.send(bind);
        }
        traffic.wait_for(2 * UNDER_WAY);
    }
    let (sent, got) = (traffic.sent.clone(), traffic.got.clone());
    drop(traffic);
    let begun = Instant::now();
    while got.load(Ordering::Acquire) < sent.load(Ordering::Acquire) {
        assert!(begun.elapsed() < PATIENCE, "{got:?} of {sent:?}");
        thread::sleep(Duration::from_millis(1));
    }
    runner.end();
}

#[test]
fn a_receiver_that_is_being_asked_holds_up_no_end() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let asked = silent.local_addr().unwrap();
    let check = "health-check method udp\nhealth-check interval 60000\nhealth-check timeout 60000\n";
    let runner = Runner::start(Names::default()).unwrap();
    runner.apply(&fan_out(free(), asked, check)).unwrap();
    silent.recv(&mut [0; 64]).expect("the question");
    within("the end", move || runner.end());
}

#[test]
fn a_bind_that_covers_our_own_is_not_in_use() {
    let (bind, receiver) = (free(), free());
    let everywhere = SocketAddr::new([0, 0, 0, 0].into(), bind.port());
    let runner = Runner::start(Names::default()).unwrap();
    for bind in [bind, everywhere, bind] {
        runner.apply(&fan_out(bind, receiver, "")).unwrap();
    }
    runner.end();
}
