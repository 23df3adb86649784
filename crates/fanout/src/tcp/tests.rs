//! Framing, queues, and connections that come and go.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc::{Receiver, channel};

use sluice_language::fan_out::Listener;

use super::*;

fn framed(framing: Framing, message: &[u8]) -> Vec<u8> {
    let mut out = vec![];
    frame(framing, message, &mut out);
    out
}

#[test]
fn framing_of_rfc_6587() {
    assert_eq!(framed(Framing::OctetCounting, b"<34>1 hello\n"), b"12 <34>1 hello\n");
    assert_eq!(framed(Framing::Newline, b"<34>1 hello\n"), b"<34>1 hello\n");
    assert_eq!(framed(Framing::Newline, b"two\nlines"), b"two#012lines\n");
    assert_eq!(framed(Framing::LengthPrefix, b"abc"), b"\0\0\0\x03abc");
}

#[test]
fn what_was_written_in_part_is_written_again_from_its_beginning() {
    let mut batch = Batch { bytes: b"aaabbbbcc".to_vec(), lengths: vec![3, 4, 2], is_closed: false };
    assert_eq!(batch.written(5), (1, 3));
    assert_eq!((batch.bytes.as_slice(), batch.lengths.as_slice()), (&b"bbbbcc"[..], &[4, 2][..]));
    assert_eq!(batch.written(6), (2, 6));
    assert!(batch.bytes.is_empty());
}

const PATIENCE: Duration = Duration::from_secs(20);

fn listener(receiver: SocketAddr, more: &str) -> Listener {
    let mut text = String::from("mode tcp-forward\naddress 127.0.0.1\nport 9\n");
    text += &format!("receiver r address {}\nreceiver r port {}\n{more}", receiver.ip(), receiver.port());
    let text: String = text.lines().map(|line| format!("set services fan-out listener l {line}\n")).collect();
    let tree = sluice_language::parse(&text, "test").unwrap();
    sluice_language::compile(&tree).unwrap().fan_out.listeners.remove(0)
}

fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// Lines that arrive there, over any number of connections.
fn collector(at: SocketAddr) -> Receiver<String> {
    let (sender, lines) = channel();
    let listener = TcpListener::bind(at).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, sender) = (stream.unwrap(), sender.clone());
            std::thread::spawn(move || {
                BufReader::new(stream).lines().map_while(Result::ok).all(|line| sender.send(line).is_ok())
            });
        }
    });
    lines
}

fn wait_until(what: &str, mut is: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn connected(listener: &Listener) -> (Arc<Pool>, Arc<Connections>) {
    let pool = Arc::new(Pool::new(listener));
    let connections = Connections::new(pool.clone(), Framing::Newline, 1 << 20);
    connections.prepare(&pool.table().targets);
    (pool, connections)
}

fn configure(pool: &Pool, connections: &Arc<Connections>, listener: &Listener) {
    pool.configure_with(listener, |targets| connections.prepare(targets));
    connections.retire();
}

#[test]
fn a_receiver_that_comes_back_is_served_whatever_became_of_what_waited_for_it() {
    let (first, second) = (free(), free());
    let (pool, connections) = connected(&listener(first, ""));
    let target = pool.table().targets[0].clone();
    // nobody listens there, so it waits
    connections.push(&target, b"one");
    let lines = collector(second);
    configure(&pool, &connections, &listener(second, ""));
    assert_eq!(lines.recv_timeout(PATIENCE).as_deref(), Ok("one"), "who is left has it");
    let ends = |(line, thread): &Running| !Arc::ptr_eq(&line.target, &target) || thread.is_finished();
    wait_until("its thread ends", || lock(&connections.lines).iter().all(ends));
    let lines = collector(first);
    configure(&pool, &connections, &listener(first, ""));
    assert!(Arc::ptr_eq(&target, &pool.table().targets[0]), "it counts on");
    connections.push(&target, b"two");
    connections.wake();
    assert_eq!(lines.recv_timeout(PATIENCE).as_deref(), Ok("two"));
    connections.end();
}

#[test]
fn a_receiver_is_connected_to_before_it_gets_messages_and_until_none_can_come() {
    let (first, second) = (free(), free());
    let (to_first, to_second) = (collector(first), collector(second));
    let (pool, connections) = connected(&listener(first, ""));
    let before = pool.table();
    pool.configure_with(&listener(second, ""), |targets| {
        connections.prepare(targets);
        connections.push(&targets[0], b"early");
    });
    connections.retire();
    assert_eq!(to_second.recv_timeout(PATIENCE).as_deref(), Ok("early"));
    // a worker that has not looked at the table yet
    connections.push(&before.targets[0], b"late");
    assert_eq!(to_first.recv_timeout(PATIENCE).as_deref(), Ok("late"));
    wait_until("its connection ends", || {
        connections.seen.store(0, Ordering::Release);
        connections.retire();
        lock(&connections.lines).len() == 1
    });
    connections.push(&before.targets[0], b"too late");
    let counters = &before.targets[0].counters;
    assert_eq!((counters.drops.get(Reason::NoReceiver), crate::counters::get(&counters.waiting)), (1, 0));
    connections.end();
}

/// A receiver that takes connections and hangs up at once: a port that a proxy keeps open for a program that is gone.
#[test]
fn a_receiver_that_hangs_up_at_once_is_left_out() {
    let hangs_up = TcpListener::bind("127.0.0.1:0").unwrap();
    let (bad, good) = (hangs_up.local_addr().unwrap(), free());
    std::thread::spawn(move || hangs_up.incoming().for_each(drop));
    let lines = collector(good);
    let two = format!("receiver s address {}\nreceiver s port {}", good.ip(), good.port());
    let (pool, connections) = connected(&listener(bad, &two));
    let mut position = 0;
    let mut push = |message: String| {
        let table = pool.table();
        let index = table.pick(&bad, &mut position).unwrap();
        connections.push(&table.targets[index], message.as_bytes());
        connections.wake();
        std::thread::sleep(Duration::from_millis(1));
    };
    wait_until("it is left out", || {
        push("before".to_owned());
        !pool.view()[0].up
    });
    (0..1500).for_each(|number| push(number.to_string()));
    for number in 0..1500 {
        let mut all = std::iter::repeat_with(|| lines.recv_timeout(PATIENCE).unwrap());
        assert_eq!(all.find(|line| line != "before"), Some(number.to_string()));
    }
    connections.end();
}

/// RFC 6587 section 3.4.1 has no message of no length, and an empty line is none of section 3.4.2.
#[test]
fn an_empty_datagram_is_no_message_of_syslog() {
    for (framing, sent) in [(Framing::OctetCounting, 0), (Framing::Newline, 0), (Framing::LengthPrefix, 1)] {
        let address = free();
        let received = collector(address);
        let pool = Arc::new(Pool::new(&listener(address, "")));
        let connections = Connections::new(pool.clone(), framing, 1 << 20);
        connections.prepare(&pool.table().targets);
        let target = pool.table().targets[0].clone();
        connections.push(&target, b"");
        connections.end();
        let counters = &target.counters;
        assert_eq!((counters.drops.total(), crate::counters::get(&counters.packets)), (1 - sent, sent));
        drop(received);
    }
}

/// A host that is gone without a word leaves the connection as it was.
#[test]
fn a_connection_ends_that_nobody_answers_on() {
    use nix::sys::socket::{getsockopt, sockopt};
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    notice_silence(&stream).unwrap();
    assert_eq!(getsockopt(&stream, sockopt::TcpUserTimeout).unwrap(), STALL.as_millis() as u32);
    assert!(getsockopt(&stream, sockopt::KeepAlive).unwrap());
    assert_eq!(getsockopt(&stream, sockopt::TcpKeepIdle).unwrap(), SILENCE as u32);
}
