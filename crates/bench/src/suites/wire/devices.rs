//! Over real devices (`--if A,B`), or from here to another machine (`--peer`): what was sent, what came, what was lost.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::SUITE;
use crate::generator::wire::control::{Remote, receiver_on};
use crate::generator::wire::frame::RFC2544_SIZES;
use crate::generator::wire::pair::device_mac;
use crate::generator::wire::receiver::{Received, Receiver};
use crate::generator::wire::{Addresses, Device, Generator, Order, Sent, Size};
use crate::method::checks;
use crate::method::result::{Better, Check, Figure, SuiteResult, Table};
use crate::method::suite::Context;

const FLOWS: u32 = 10_000;
/// Shares of the highest rate at which loss is looked at.
const SHARES: [f64; 3] = [1.0, 0.5, 0.1];

/// Where frames arrive.
enum Far {
    Here(Box<Receiver>),
    Peer(Box<Remote>),
}

impl Far {
    fn expect(&mut self, flows: u32) -> Result<()> {
        match self {
            Far::Here(receiver) => receiver.expect(flows, true),
            Far::Peer(remote) => remote.expect(flows),
        }
    }

    fn report(&mut self, sent: u64) -> Result<Received> {
        match self {
            Far::Here(receiver) => {
                receiver.settle(sent);
                Ok(receiver.report(sent))
            }
            Far::Peer(remote) => remote.report(sent),
        }
    }
}

struct Link {
    generator: Generator,
    from: u32,
    far: Far,
    addresses: Addresses,
}

impl Link {
    fn exchange(&mut self, order: &Order, time: Duration) -> Result<(Sent, Received)> {
        self.far.expect(order.flows)?;
        let running = self.generator.start(Device { netns: None, ifindex: self.from }, order)?;
        running.wait_for_first()?;
        std::thread::sleep(time);
        let sent = running.stop()?;
        let received = self.far.report(sent.frames)?;
        Ok((sent, received))
    }
}

pub fn run(context: &Context) -> Result<SuiteResult> {
    let (a, b) = context.interfaces.as_ref().context(
        "--peer also needs --if A,B: frames leave by A of this machine and arrive at B of the peer",
    )?;
    let mut result = SuiteResult::new(SUITE.name);
    let mut link = connect(context, a, b, &mut result)?;
    let time = Duration::from_secs_f64(context.pick(0.5, 10.0));
    let sizes: Vec<Size> = match context.quick() {
        true => vec![Size::Bytes(64), Size::Bytes(512), Size::Bytes(1518), Size::Imix],
        false => RFC2544_SIZES.map(Size::Bytes).into_iter().chain([Size::Imix]).collect(),
    };
    let mut table = Table {
        title: format!("{a} to {b}"),
        header: ["size", "offered", "sent pps", "received pps", "lost", "loss ratio", "duplicates", "reordered", "corrupt"]
            .map(str::to_owned)
            .into(),
        rows: vec![],
        note: "RFC 2544 section 26.3: loss at the generator's own maximum and below it. Sent is what the driver was \
               given; what its ring had no room for is lost, and named by ethtool -S."
            .to_owned(),
    };
    for (i, size) in sizes.iter().enumerate() {
        context.progress.at(i as f64 / sizes.len() as f64, &size.name());
        one_size(context, &mut link, *size, time, &mut table, &mut result)?;
    }
    result.tables.push(table);
    result.notes.push(
        "times one way are not given: they would need one clock on both ends; use the latency suite"
            .to_owned(),
    );
    Ok(result)
}

fn connect(context: &Context, a: &str, b: &str, result: &mut SuiteResult) -> Result<Link> {
    let from = nix::net::if_::if_nametoindex(a).with_context(|| format!("there is no device {a}"))?;
    let (far, mac, native) = match &context.peer {
        Some(address) => {
            let remote = Remote::connect(address)?;
            let offered = remote.hello.device.clone();
            ensure!(offered == *b, "the peer receives on {offered}, not on {b}: say --if {a},{offered}");
            let (mac, native) = (remote.hello.mac, remote.hello.native);
            (Far::Peer(Box::new(remote)), mac, native)
        }
        None => {
            let (receiver, native) = receiver_on(b)?;
            (Far::Here(Box::new(receiver)), device_mac(b)?, native)
        }
    };
    let found = if native { "native XDP" } else { "generic XDP" };
    result.checks.push(checks::native_mode(b, found, "native XDP"));
    Ok(Link {
        generator: Generator::load()?,
        from,
        far,
        addresses: Addresses::of_rfc2544(device_mac(a)?, mac),
    })
}

fn one_size(
    context: &Context,
    link: &mut Link,
    size: Size,
    time: Duration,
    table: &mut Table,
    result: &mut SuiteResult,
) -> Result<()> {
    let full = Order::new(link.addresses, FLOWS).stamped().size(size);
    let mut highest = vec![];
    let mut arrived = vec![];
    let mut all = vec![];
    for _ in 0..context.rounds {
        let (sent, received) = link.exchange(&full, time)?;
        highest.push(sent.rate());
        arrived.push(received.distinct as f64 / sent.seconds / 1e6);
        all.push(received);
    }
    let highest = crate::method::stats::median(&highest);
    let mut figure = Figure::new(format!("{} received", size.name()), "Mpps", Better::Higher, arrived);
    figure.checks = account(size, &all);
    result.figures.push(figure);
    for share in SHARES {
        let order = if share < 1.0 { full.clone().rate(share * highest) } else { full.clone() };
        let (sent, received) = link.exchange(&order, time)?;
        table.rows.push(row(size, share, &sent, &received));
    }
    Ok(())
}

/// What must hold of the frames of all rounds.
fn account(size: Size, rounds: &[Received]) -> Vec<Check> {
    let sum = |field: fn(&Received) -> u64| rounds.iter().map(field).sum::<u64>();
    let (received, corrupt) = (sum(|one| one.received), sum(Received::corrupt));
    let once = sum(|one| one.distinct) + corrupt + sum(|one| one.stale);
    // the frame check sequence is counted in a size and is not in memory
    let bits = 8.0 * (sum(|one| one.bytes) + 4 * received) as f64;
    vec![
        checks::single_pass(received, once),
        Check::new("frames whole", corrupt == 0, format!("{corrupt} of {received} came changed")),
        checks::frame_size(bits, received as f64, (size.mean_bytes(), size.mean_bytes())),
    ]
}

fn row(size: Size, share: f64, sent: &Sent, received: &Received) -> Vec<String> {
    vec![
        size.name(),
        format!("{:.0} %", 100.0 * share),
        format!("{:.0}", sent.rate()),
        format!("{:.0}", received.received as f64 / sent.seconds),
        received.lost().to_string(),
        format!("{:.2e}", received.loss_ratio()),
        received.duplicates.to_string(),
        received.reordered.to_string(),
        received.corrupt().to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duplicate_or_a_changed_frame_of_any_round_is_seen() {
        let whole = Received { sent: 10, received: 10, distinct: 10, bytes: 600, ..Received::default() };
        let failed = |first: Received| -> Vec<String> {
            let checks = account(Size::Bytes(64), &[first, whole.clone()]);
            checks.into_iter().filter(|check| !check.passed).map(|check| check.name).collect()
        };
        assert_eq!(failed(whole.clone()), [""; 0]);
        let twice = Received { received: 11, duplicates: 1, bytes: 660, ..whole.clone() };
        assert_eq!(failed(twice), ["single pass"]);
        assert_eq!(failed(Received { distinct: 9, bad_udp: 1, ..whole.clone() }), ["frames whole"]);
    }
}
