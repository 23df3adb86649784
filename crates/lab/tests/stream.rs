//! The stream must itself be exact, or nothing measured with it is.

use std::mem::MaybeUninit;
use std::thread;
use std::time::Duration;

use sluice_lab::netns::{Netns, VethEnd, veth};
use sluice_lab::stream::{Account, Shape, Stream};

const SOURCE_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const SINK_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

struct Wire {
    sender: Netns,
    receiver: Netns,
}

fn wire() -> Wire {
    let wire = Wire { sender: Netns::create("send").unwrap(), receiver: Netns::create("sink").unwrap() };
    veth(
        VethEnd { netns: &wire.sender, name: "out0", mac: Some("02:00:00:00:00:01"), addresses: &[] },
        VethEnd { netns: &wire.receiver, name: "in0", mac: Some("02:00:00:00:00:02"), addresses: &[] },
    )
    .unwrap();
    wire
}

fn shape(wire: &Wire, denied_every: u32) -> Shape {
    Shape {
        flows: 100,
        denied_every,
        ifindex: wire.sender.ifindex("out0").unwrap(),
        source_mac: SOURCE_MAC,
        destination_mac: SINK_MAC,
        source: [192, 0, 2, 1].into(),
        destination: [192, 0, 2, 2].into(),
    }
}

/// What became of a stream without a gateway.
fn on_a_wire(denied_every: u32, length: Duration) -> Account {
    let wire = wire();
    let mut storage = MaybeUninit::uninit();
    let mut stream = Stream::load(&mut storage, shape(&wire, denied_every)).unwrap();
    let _sink = stream.sink(&wire.receiver, "in0").unwrap();
    let running = stream.start(&wire.sender, 0, None).unwrap();
    thread::sleep(length);
    stream.finish(running).unwrap()
}

#[test]
fn everything_sent_on_a_plain_wire_arrives_once() {
    let account = on_a_wire(0, Duration::from_millis(300));
    assert!(account.is_exact(), "{account:?}");
    assert!(account.sent > 10_000, "{account:?}");
}

/// On a wire without a gateway the packets that must be denied arrive: the account must not call that exact.
#[test]
fn denied_packets_that_arrive_are_noticed() {
    let account = on_a_wire(16, Duration::from_millis(100));
    assert_eq!(account.sent, account.arrived, "{account:?}");
    assert_eq!(account.sent_denied, account.arrived_denied, "{account:?}");
    assert!(account.sent_denied > 0 && !account.is_exact(), "{account:?}");
}

/// Frames lost on the way (here: the sink's device goes down for a moment) must show.
#[test]
fn loss_is_noticed() {
    let wire = wire();
    let mut storage = MaybeUninit::uninit();
    let mut stream = Stream::load(&mut storage, shape(&wire, 0)).unwrap();
    let _sink = stream.sink(&wire.receiver, "in0").unwrap();
    let running = stream.start(&wire.sender, 0, None).unwrap();
    wire.receiver.ip("link set in0 down").unwrap();
    wire.receiver.ip("link set in0 up").unwrap();
    let account = stream.finish(running).unwrap();
    assert!(
        account.sent > account.arrived && account.flows_with_loss > 0 && !account.is_exact(),
        "{account:?}"
    );
}

#[test]
fn pacing_holds_the_rate() {
    let wire = wire();
    let mut storage = MaybeUninit::uninit();
    let mut stream = Stream::load(&mut storage, shape(&wire, 0)).unwrap();
    let _sink = stream.sink(&wire.receiver, "in0").unwrap();
    let running = stream.start(&wire.sender, 0, Some(Duration::from_micros(10))).unwrap();
    let (before, started) = (stream.sent_total(), std::time::Instant::now());
    thread::sleep(Duration::from_millis(300));
    let rate = (stream.sent_total() - before) as f64 / started.elapsed().as_secs_f64();
    let account = stream.finish(running).unwrap();
    assert!(account.is_exact(), "{account:?}");
    assert!((10_000.0..110_000.0).contains(&rate), "100,000 packets a second wanted, {rate:.0} seen");
}
